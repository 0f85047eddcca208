//! Worker process: spawning, its handles, and the environment that a client may set.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;

use causeway_config::Component;
use causeway_config::read::from_files;
use causeway_config::table::{ALL, SOCKET_DIR, for_worker};
use causeway_sandbox::{Jail, Plan, Purpose};
use causeway_sync::threads;
use crossbeam_channel::{Sender, bounded, unbounded};

use crate::back_end::devices;
use crate::broker::config::BrokerConfig;
use crate::broker::inherited::inherited;
use crate::broker::totals::Totals;
use crate::broker::worker_log::WorkerLog;
use crate::locks::{Mutex, rank};
use crate::protocol::control::Control;
use crate::protocol::messages::{self, ControlError, ToWorker};

/// Starts worker processes on a thread that lives as long as the broker: the kernel kills a worker when the
/// *thread* that started it ends, which is how a worker dies with its broker whatever ends that.
pub struct Spawner {
    requests: Mutex<rank::Leaf, Option<Sender<Request>>>,
    plan: Arc<Plan>,
    totals: Arc<Totals>,
}

struct Request {
    purpose: Purpose,
    environment: Vec<(String, String)>,
    started: Sender<Result<Started, ControlError>>,
}

impl Spawner {
    /// Starts the thread. The processes may do what `plan` lets them.
    pub fn start(
        config: &BrokerConfig,
        plan: Arc<Plan>,
        totals: Arc<Totals>,
    ) -> io::Result<(Self, JoinHandle<()>)> {
        let (requests, queue) = unbounded::<Request>();
        let config = config.clone();
        let thread = threads::spawn("spawn", {
            let plan = Arc::clone(&plan);
            move || {
                for Request { purpose, environment, started } in queue {
                    // Whoever asked is still there, or the broker is stopping.
                    let _ = started.send(start_worker(&config, &plan, purpose, environment));
                }
            }
        })?;
        Ok((Self { requests: Mutex::new(Some(requests)), plan, totals }, thread))
    }

    /// What processes may do, and which users they have.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Ends the thread, and with it every worker that is left.
    pub fn end(&self) {
        *self.requests.lock() = None;
    }

    /// Starts a process that finds its end of the control connection at its standard input, is confined as
    /// its purpose demands, and has these variables besides those of the broker's that it acts on.
    pub fn spawn(
        &self,
        purpose: Purpose,
        environment: Vec<(String, String)>,
    ) -> Result<Started, ControlError> {
        let stopping = || ControlError::NotStarted(io::Error::other("the server is stopping"));
        let (started, response) = bounded(1);
        let requests = self.requests.lock().clone().ok_or_else(stopping)?;
        requests.send(Request { purpose, environment, started }).map_err(|_| stopping())?;
        let started = response.recv().map_err(|_| stopping())?;
        self.totals.worker_starts(started.is_ok());
        started
    }
}

fn start_worker(
    config: &BrokerConfig,
    plan: &Arc<Plan>,
    purpose: Purpose,
    environment: Vec<(String, String)>,
) -> Result<Started, ControlError> {
    let jail = plan.jail(purpose)?;
    let (control, theirs) = Control::pair()?;
    let (parent, confine) = (std::process::id(), jail.before_exec()?);
    let mut command = Command::new(&config.worker_program);
    // The control socket takes the place of standard input; `WorkerStart::receive` looks for it there.
    command.args(&config.worker_arguments).stdin(OwnedFd::from(theirs)).stdout(Stdio::null());
    let (log, lines) = WorkerLog::start().map_err(ControlError::NotStarted)?;
    command.stderr(lines);
    command.env_clear().envs(inherited(std::env::vars_os()));
    // A worker reads no configuration files: those of the server's owner are not for what a client runs.
    let of_server = |(name, _): &(&str, _)| {
        ALL.iter().any(|one| one.name == *name && one.components.contains(&Component::Server))
    };
    command.envs(from_files().into_iter().filter(of_server)).envs(environment).envs(jail.environment());
    command.envs(config.devices.iter().flat_map(|list| devices::variables(list)));
    // Where a worker looks for the sockets of other servers on this host.
    command.envs(config.socket_folder.iter().map(|folder| (SOCKET_DIR.name, folder)));
    // SAFETY: between fork and exec only async-signal-safe calls are made, and nothing is allocated.
    unsafe {
        command.pre_exec(move || prepare_worker(parent).and_then(|()| confine.apply()));
    }
    let child = command.spawn().map_err(ControlError::NotStarted)?;
    // With it goes this process's own end of the pipe for the lines.
    drop(command);
    let started = Started { child, control, jail, log };
    match messages::send(&started.control, &ToWorker::Confine(started.jail.confinement()), None) {
        Ok(()) => Ok(started),
        Err(error) => {
            started.discard();
            Err(error)
        }
    }
}

/// What a worker process does between fork and exec: it lets go of the broker's descriptors and signal
/// mask, and asks to die with the broker.
fn prepare_worker(parent: u32) -> io::Result<()> {
    let check = |status: i64| if status == -1 { Err(io::Error::last_os_error()) } else { Ok(()) };
    // SAFETY: these calls take numbers and a set that lives here; they change this new process only.
    unsafe {
        check(libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC))?;
        let mut none: libc::sigset_t = core::mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::pthread_sigmask(libc::SIG_SETMASK, &none, core::ptr::null_mut());
        check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong).into())?;
        if libc::getppid() as u32 != parent {
            // The broker died before the line above.
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
    }
    Ok(())
}

/// How a process ended, for a log.
pub fn describe(status: &io::Result<ExitStatus>) -> String {
    match status {
        Ok(status) => match (status.code(), status.signal()) {
            (Some(code), _) => format!("ended with exit code {code}"),
            (None, Some(signal)) => format!("was ended by signal {signal}"),
            (None, None) => "ended".to_owned(),
        },
        Err(error) => format!("could not be waited for: {error}"),
    }
}

/// Those of a client's variables that its worker gets, to set up itself and the driver. No other is taken:
/// some make a process load code or write files.
pub fn admitted(environment: &[(String, String)]) -> Vec<(String, String)> {
    let is_admitted = |(name, value): &&(String, String)| {
        for_worker().any(|variable| variable.name == name) && !value.contains('\0')
    };
    environment.iter().filter(is_admitted).cloned().collect()
}

/// A process that the broker has started, confined, and told nothing yet.
pub struct Started {
    /// The process.
    pub child: Child,
    /// How it is reached.
    pub control: Control,
    /// What it has until it has ended.
    pub jail: Jail,
    /// Its log lines.
    pub log: WorkerLog,
}

impl Started {
    /// Ends the process, which nobody needs.
    pub fn discard(mut self) {
        if let Err(error) = self.child.kill().and_then(|()| self.child.wait()) {
            tracing::warn!("cannot end a process that is no longer needed: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_set_up_the_driver_and_nothing_else() {
        let variables = ["CUDA_MODULE_LOADING", "LD_PRELOAD", "CUDA_VISIBLE_DEVICES", "CAUSEWAY_DRIVER"];
        let given: Vec<_> = variables.iter().map(|name| ((*name).to_owned(), "EAGER".to_owned())).collect();
        assert_eq!(admitted(&given), given[..1]);
        assert!(admitted(&[("CUDA_MODULE_LOADING".to_owned(), "a\0b".to_owned())]).is_empty());
    }
}
