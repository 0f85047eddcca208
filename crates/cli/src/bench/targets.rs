//! Targets: the processes that measure.

use causeway_config::read::PROCESS;
use causeway_config::table::{DRIVER, VIA};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;

use causeway_access::Target as Server;
use causeway_link::{check, check_choice};
use causeway_measure::results::{Kind, Run};
use causeway_measure::run::Group;
use causeway_measure::worker_process::{Target, TargetLocation};
use causeway_pipeline::VARIABLE as PIPELINE;
use causeway_wire::handshake::Protection;

use super::arguments::Arguments;
use super::error::TargetError;
use crate::keys::{HandOverError, hand_over};
use crate::launch;
use crate::library;
use crate::report::{self, Report};
use crate::server::{ServerError, Servers, connect_options, via};

/// All targets, and what must be there while they are measured.
pub struct Targets {
    /// The native GPU first.
    pub groups: Vec<Group>,
    /// Where the process of each target reports to at its end; none for the native one.
    reports: Vec<Option<Rc<report::File>>>,
    /// The servers; private ones end with this.
    servers: Option<Servers>,
}

impl Targets {
    /// What the arguments name; a private server if they name none.
    pub fn new(arguments: &Arguments) -> Result<Self, TargetError> {
        let common = arguments.common();
        let executable = std::env::current_exe().map_err(TargetError::Executable)?;
        let mut targets = Self { groups: Vec::new(), reports: Vec::new(), servers: None };
        if common.native {
            targets.groups.push(native(&executable));
            targets.reports.push(None);
        }
        if common.native && common.on.list().map_err(ServerError::from)?.is_none() {
            return Ok(targets);
        }
        let servers = targets.servers.insert(common.on.servers(&common.via, false)?);
        let measurer = Measurer {
            executable,
            folder: library::folder()?,
            key_file: servers.key_file().map(Path::to_owned),
            by_size: arguments.kind() == Kind::Pipeline,
        };
        // What is not named is as the environment has it.
        let vias: Vec<_> =
            if common.via.is_empty() { vec![None] } else { common.via.iter().copied().map(Some).collect() };
        let fixed = arguments.fixed_plans().into_iter().map(Some);
        let plans: Vec<_> = [None].into_iter().chain(fixed).collect();
        let joined = if arguments.joins_servers() { servers.targets.len().max(1) } else { 1 };
        let alone = servers.targets.len() / joined * vias.len() == 1;
        for chunk in servers.targets.chunks(joined) {
            let name = joined_by(" and ", chunk, |server| servers.label(server));
            for requested in &vias {
                // Trouble is told here in one sentence; the others are measured all the same.
                let mut reachable = Ok(());
                for server in chunk {
                    let options = connect_options(via(*requested, server).map_err(ServerError::from)?);
                    reachable = reachable
                        .and_then(|()| check_choice(server, &options))
                        .and_then(|()| check(server, &options));
                }
                let via = requested.map(|via| via.to_string());
                let report = Rc::new(report::File::new()?);
                let command = match reachable {
                    Ok(()) => {
                        let mut command = measurer.command(chunk, via.as_deref())?;
                        report.ask_for(&mut command);
                        Ok(command)
                    }
                    Err(error) => Err(error.to_string()),
                };
                let way = via.as_deref().map(|via| way_of(via, chunk));
                let target = |pipeline: &Option<String>| Target {
                    name: name_of(&name, way.as_deref(), pipeline.as_deref(), alone),
                    location: TargetLocation::Server {
                        address: joined_by(",", chunk, Server::address),
                        via: via.clone(),
                        pipeline: pipeline.clone(),
                    },
                };
                targets.groups.push(Group { targets: plans.iter().map(target).collect(), command });
                targets.reports.extend(plans.iter().map(|_| Some(Rc::clone(&report))));
            }
        }
        Ok(targets)
    }

    /// The servers, if any is measured.
    pub fn servers(&self) -> &[Server] {
        self.servers.as_ref().map(|servers| servers.targets.as_slice()).unwrap_or_default()
    }

    /// When all processes have ended: notes which module each of them used, and ends the private server.
    pub fn finish(self, run: &mut Run) {
        for (record, file) in run.targets.iter_mut().zip(self.reports) {
            // One that has not begun or was killed has left none, and its trouble is noted already.
            let Some(Ok(report)) = file.map(|file| file.read()) else { continue };
            record.module = report.module().map(str::to_owned);
            if record.error.is_none() {
                record.error = unmet_request(&record.target, &report);
            }
        }
        drop(self.servers);
    }
}

/// What a target was to use and has not used by its own report, as a sentence: its figures would be called what they are not.
fn unmet_request(target: &Target, report: &Report) -> Option<String> {
    let TargetLocation::Server { via, .. } = &target.location else { return None };
    let via = via.as_deref().filter(|via| *via != "auto" && report.module() != Some(*via))?;
    let used = report.module().unwrap_or("another module");
    Some(format!("{via} was requested, but {used} was used"))
}

fn native(executable: &Path) -> Group {
    let driver = PROCESS.path(&DRIVER);
    let mut command = Command::new(executable);
    command.args(["measure", "--native", "--library"]);
    command.arg(driver.unwrap_or_else(|| "libcuda.so.1".into()));
    let target = Target { name: "native".to_owned(), location: TargetLocation::Native };
    Group { targets: vec![target], command: Ok(command) }
}

/// What makes a process that measures a server.
struct Measurer {
    executable: PathBuf,
    /// The folder with our client library.
    folder: PathBuf,
    /// The file with the servers' keys, where one is named.
    key_file: Option<PathBuf>,
    /// Whether copies have Causeway's own plans, whatever the environment says.
    by_size: bool,
}

impl Measurer {
    fn command(&self, servers: &[Server], via: Option<&str>) -> Result<Command, HandOverError> {
        let program = [
            self.executable.clone().into_os_string(),
            "measure".into(),
            "--library".into(),
            self.folder.join("libcuda.so.1").into_os_string(),
        ];
        let mut command = launch::command(&program, &self.folder);
        hand_over(&mut command, servers, self.key_file.as_deref())?;
        if let Some(via) = via {
            command.env(VIA.name, via);
        }
        if self.by_size {
            command.env_remove(PIPELINE);
        }
        Ok(command)
    }
}

/// What `text` gives for each of these servers, with something between them.
fn joined_by(between: &str, servers: &[Server], text: impl Fn(&Server) -> String) -> String {
    servers.iter().map(text).collect::<Vec<_>>().join(between)
}

/// What tables and plots call a way to servers: figures over TCP say whether anything is encrypted.
fn way_of(via: &str, servers: &[Server]) -> String {
    let is_encrypted = |server: &Server| server.protection == Protection::Encrypted;
    match via {
        "tcp" if servers.iter().all(is_encrypted) => "tcp (encrypted)".to_owned(),
        "tcp" if servers.iter().any(is_encrypted) => "tcp (partly encrypted)".to_owned(),
        "tcp" => "tcp (clear)".to_owned(),
        _ => via.to_owned(),
    }
}

/// What tables and plots call a target. `alone` says that there is one server and one way to it.
fn name_of(server: &str, via: Option<&str>, plan: Option<&str>, alone: bool) -> String {
    let server = via.map_or_else(|| server.to_owned(), |via| format!("{server} {via}"));
    match plan {
        Some(plan) if alone => plan.to_owned(),
        Some(plan) => format!("{server} {plan}"),
        None => server,
    }
}

/// The command line as it goes into files: without keys.
pub fn command_line(arguments: impl Iterator<Item = OsString>) -> String {
    let arguments: Vec<_> = arguments.map(|word| without_keys(&word.to_string_lossy())).collect();
    arguments.join(" ")
}

/// A word of a command line in which every key of a connect string is left out.
fn without_keys(word: &str) -> String {
    const SCHEME: &str = "causeway://";
    let mut pieces = word.split(SCHEME);
    let mut out = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        // Up to the next server of a list; a key has neither of these characters.
        let server = piece.split(',').next().unwrap_or_default();
        let rest = match server.rsplit_once('@') {
            Some((key, _)) => format!("...{}", &piece[key.len()..]),
            None => piece.to_owned(),
        };
        out += SCHEME;
        out += &rest;
    }
    out
}

#[cfg(test)]
mod tests {
    use causeway_access::servers;

    use super::*;

    #[test]
    fn keys_stay_out_of_files() {
        let arguments =
            ["causeway", "--on", "causeway://SECRET@host:1", "--on=causeway://SECRET@a,causeway://b:2,x@y"];
        let line = command_line(arguments.into_iter().map(OsString::from));
        assert_eq!(line, "causeway --on causeway://...@host:1 --on=causeway://...@a,causeway://b:2,x@y");
        assert_eq!(without_keys("causeway://a@b@c"), "causeway://...@c");
    }

    #[test]
    fn figures_over_tcp_say_whether_anything_is_encrypted() {
        let [encrypted, clear] = [Protection::Encrypted, Protection::Authenticated]
            .map(|protection| Server { protection, ..servers("host:1", None).unwrap().remove(0) });
        assert_eq!(way_of("tcp", core::slice::from_ref(&encrypted)), "tcp (encrypted)");
        assert_eq!(way_of("tcp", core::slice::from_ref(&clear)), "tcp (clear)");
        assert_eq!(way_of("tcp", &[encrypted.clone(), clear.clone()]), "tcp (partly encrypted)");
        assert_eq!(way_of("shm", &[encrypted, clear]), "shm");
    }

    #[test]
    fn names_say_what_differs() {
        assert_eq!(name_of("gpu:1", None, None, true), "gpu:1");
        assert_eq!(name_of("gpu:1", Some("shm"), None, false), "gpu:1 shm");
        assert_eq!(name_of("gpu:1", Some("tcp"), Some("8x4M"), true), "8x4M");
        assert_eq!(name_of("gpu:1", Some("tcp"), Some("8x4M"), false), "gpu:1 tcp 8x4M");
    }
}
