//! `causeway serve`: start and end of a server.
//!
//! | module | contents |
//! | --- | --- |
//! | `options` | Options of `causeway serve` |
//! | `addresses` | Addresses of a server: where it listens, and under which address others reach it |
//! | `service` | Service of systemd: notifications to it by a server that it runs |
//! | `restart` | Restart of a server in place: the program is started anew, takes the listening sockets over, and open sessions go on in the old process until they end |
//! | `error` | Errors of `causeway serve` |
//! | `values` | Values of options that name addresses, files and folders: what a server could not use of them, before it starts |

mod addresses;
mod error;
mod options;
mod restart;
mod service;
mod values;

use std::io::{self, IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use causeway_access::keys::clients::Clients;
use causeway_access::keys::file;
use causeway_api::calls::COMMANDS;
use causeway_config::TimeSpan;
use causeway_server::broker::metrics::Page;
use causeway_server::broker::{
    Access, AllowedUsers, Broker, BrokerConfig, CacheConfig, GpuChoice, KeepaliveSeconds, ReleaseTimes,
    RunningBroker, StartError, devices_for,
};
use causeway_server::heartbeat::HeartbeatTimeouts;
use causeway_sync::threads;
use crossbeam_channel::{never, select, tick, unbounded};
use sd_notify::NotifyState;

pub use addresses::metrics_address;
pub use error::ServeError;
pub use options::Arguments;
pub use values::check_entries;
use values::must_have_folder;

use crate::try_driver::try_driver;
use crate::{inherited, launch, logging, rank_metrics};
use addresses::{ListenAddresses, hint, listen_addresses, reachable};
use restart::{Restart, Successor};
use service::{Reports, report};

/// Runs a server until a signal ends it.
pub fn serve(arguments: &Arguments) -> Result<ExitCode, ServeError> {
    // A shell has its jobs in the background ignore Ctrl-C.
    let interrupt = Some(libc::SIGINT).filter(|signal| !inherited::is_ignored(*signal));
    let awaited = [libc::SIGTERM].into_iter().chain(interrupt).chain(restart::signal());
    let signals = launch::Signals::block(&awaited.collect::<Vec<_>>());
    let program = restart::Program::of_this_process();
    let _at_end = logging::start(&arguments.logging);
    let ListenAddresses { network: listen, vsock, socket } = listen_addresses(&arguments.listen)?;
    let gpu = gpu(arguments)?;
    let devices = arguments.devices.as_ref().map(|list| devices_for(gpu, list));
    let access = match &arguments.key_file {
        // At a Unix socket nobody needs a key.
        _ if arguments.insecure_no_key || (listen.is_none() && vsock.is_none()) => Access::NoKey,
        Some(path) => {
            must_have_folder(path, "the key file")?;
            Access::KeyFile(path.clone())
        }
        None => Access::KeyFile(file::default_path()?),
    };
    let metrics = arguments.metrics.as_deref().map(metrics_address).transpose()?;
    let defaults = BrokerConfig::new(COMMANDS);
    let key_file = match &access {
        Access::KeyFile(path) => Some(path.clone()),
        // At Unix sockets alone nobody needs the key, but users may have limits.
        Access::NoKey if !arguments.insecure_no_key => arguments.key_file.clone(),
        Access::Key(_) | Access::NoKey => None,
    };
    if gpu == GpuChoice::Driver {
        try_driver().map_err(ServeError::NoDriver)?;
    }
    let config = BrokerConfig {
        clients: key_file.as_deref().map(Clients::path_in_folder_of),
        audit_log: arguments.audit_log.clone(),
        listen,
        vsock,
        metrics,
        metrics_sessions: arguments.metrics_sessions,
        further_metrics: arguments.metrics_sessions.then_some(rank_metrics::add_found as fn(&mut Page)),
        socket,
        access,
        clear: arguments.clear,
        allowed: AllowedUsers {
            users: arguments.allow_user.iter().copied().collect(),
            groups: arguments.allow_group.iter().copied().collect(),
        },
        peers: arguments.peers.clone(),
        max_sessions: arguments.max_sessions,
        max_sessions_per_peer: arguments.max_sessions_per_peer,
        heartbeat: HeartbeatTimeouts { hung: arguments.hung_worker, ..defaults.heartbeat },
        keepalive: KeepaliveSeconds {
            connection: arguments.keepalive_timeout,
            client: arguments.client_timeout,
            resume: arguments.resume_timeout,
        },
        release: ReleaseTimes {
            idle: arguments.idle_release.map_or(0, |TimeSpan(time)| time.as_millis() as u64),
            returns_within: arguments.idle_return_timeout.0.as_secs() as u32,
        },
        gpu,
        devices: devices.transpose()?,
        cache: cache(arguments),
        // The software GPU starts in no time.
        spare_worker: gpu != GpuChoice::Cpu,
        worker_arguments: arguments.logging.of_worker(),
        socket_folder: arguments.socket_dir.clone(),
        sandbox: arguments.sandbox.wanted(key_file),
        ..defaults
    };
    let broker = if arguments.takes_over {
        Broker::take_over(config)?
    } else {
        let broker = Broker::start(config)?;
        print_addresses(&broker);
        broker
    };
    // What depends on the service waits for this (Type=notify).
    report(&[NotifyState::Ready, NotifyState::Status(&broker.state())]);
    let end = wait(&broker, signals, arguments.grace_period, program)?;
    if matches!(end, End::Stopped) {
        report(&[NotifyState::Stopping]);
    }
    broker.stop();
    match end {
        End::Stopped => Ok(ExitCode::SUCCESS),
        End::Replaced(successor) => Ok(successor.outlast()),
    }
}

/// Says where the server is. Whoever started it may not want to know; that is no reason not to serve.
fn print_addresses(broker: &RunningBroker) {
    let mut out = io::stdout().lock();
    for target in broker.targets() {
        let target = reachable(target);
        // What is not a terminal may be a log, where a secret would stay.
        if out.is_terminal() {
            let _ = writeln!(out, "{}", *target.connect_string());
            let _ = hint(&target).map(|hint| writeln!(out, "{hint}"));
        } else {
            let _ = writeln!(out, "{}", target.address());
        }
    }
    let _ = out.flush();
}

/// Why a server ends.
enum End {
    /// It is to.
    Stopped,
    /// Another one has taken its place, and its own sessions have ended.
    Replaced(Successor),
}

/// Waits until the server is to end: for a signal, or for the last session of a server that is drained or replaced.
fn wait(
    broker: &RunningBroker,
    signals: launch::Signals,
    seconds: u32,
    program: Option<restart::Program>,
) -> Result<End, ServeError> {
    let (sender, received) = unbounded();
    // It waits for as long as this process lives.
    threads::spawn("signals", move || while sender.send(signals.wait()).is_ok() {})
        .map_err(|cause| ServeError::Start(StartError::System(cause)))?;
    let (drained, mut has_drained) = (broker.drained(), false);
    let (mut reports, interval) = Reports::new();
    let mut next_report = if service::is_service() { tick(interval) } else { never() };
    let mut restart = Restart::new(program, received.clone());
    loop {
        let signal = select! {
            recv(received) -> signal => signal,
            recv(next_report) -> _ => {
                reports.report(broker, has_drained || broker.is_draining());
                continue;
            }
            recv(restart.outcome()) -> outcome => {
                if restart.has_ended(outcome) {
                    // From now on the other one reports.
                    next_report = never();
                }
                continue;
            }
            recv(drained) -> _ => {
                if let Some(successor) = restart.take_successor() {
                    tracing::info!("stopping: the sessions of this server have ended, and another one serves");
                    return Ok(End::Replaced(successor));
                }
                tracing::info!("stopping: the server is drained");
                return Ok(End::Stopped);
            }
        };
        let Ok(signal) = signal else { return Ok(End::Stopped) };
        if restart.passes_on(signal) {
            continue;
        }
        if signal.number == libc::SIGHUP {
            restart.begin(broker);
            continue;
        }
        match on_signal(signal.number, seconds, has_drained) {
            Some(limit) => {
                has_drained = true;
                broker.drain(Some(limit));
            }
            None => {
                tracing::info!(signal = signal.number, "stopping");
                return Ok(End::Stopped);
            }
        }
    }
}

/// For how long a signal lets sessions go on; nothing where it ends them.
fn on_signal(signal: i32, seconds: u32, has_drained: bool) -> Option<Duration> {
    let drains = signal == libc::SIGTERM && seconds > 0 && !has_drained;
    drains.then(|| Duration::from_secs(seconds.into()))
}

/// What executes the calls, as the arguments say.
fn gpu(arguments: &Arguments) -> Result<GpuChoice, ServeError> {
    match (arguments.gpu, arguments.allow_software) {
        (GpuChoice::Auto { .. }, allows_software) => Ok(GpuChoice::Auto { allows_software }),
        (chosen, false) => Ok(chosen),
        (chosen, true) => Err(ServeError::NoFallback(chosen)),
    }
}

/// Where images are kept, as the arguments say.
fn cache(arguments: &Arguments) -> Option<CacheConfig> {
    if arguments.no_cache {
        return None;
    }
    let folder = arguments.cache_dir.clone().or_else(default_cache);
    if folder.is_none() {
        tracing::warn!("image cache disabled: HOME is not set; pass a folder with --cache-dir");
    }
    folder.map(|folder| CacheConfig { folder, capacity: arguments.cache_size })
}

/// The folder for images unless another is named.
fn default_cache() -> Option<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let folder = variable("XDG_CACHE_HOME").filter(|folder| folder.is_absolute());
    let folder = folder.or_else(|| variable("HOME").map(|home_dir| home_dir.join(".cache")))?;
    Some(folder.join("causeway").join("images"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_sigterm_drains_where_that_is_wished_and_all_else_ends() {
        let limit = Some(Duration::from_secs(5));
        assert_eq!(on_signal(libc::SIGTERM, 5, false), limit);
        assert_eq!(on_signal(libc::SIGTERM, 5, true), None);
        assert_eq!(on_signal(libc::SIGTERM, 0, false), None);
        assert_eq!(on_signal(libc::SIGINT, 5, false), None);
    }
}
