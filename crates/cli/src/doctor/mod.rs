//! What does a machine lack for remote GPUs, InfiniBand and GPUDirect, and what is to be done?

mod between;
mod path;

use causeway_config::table;
use std::io::{self, Write as _};
use std::process::ExitCode;

use causeway_access::Target;
use causeway_access::keys::ServersError;
use causeway_doctor::judge::between::{self as between_servers, Between};
use causeway_doctor::judge::path::{self as judged_path, ServerPath};
use causeway_doctor::judge::problems;
use causeway_doctor::read::NOT_FORWARDED;
use causeway_doctor::{Facts, Finding, examine, judge, print};
use causeway_link::TransportChoice;
use clap::Args;
use serde_json::json;
use thiserror::Error;

use crate::library;
use crate::server::{KeyArguments, named};

/// Look at what this machine has for remote GPUs, InfiniBand and GPUDirect, and say what to do about what it lacks.
///
/// Nothing is changed, and neither GPU nor network card nor privileges are needed; root sees a little more of the
/// PCIe bus. The exit code is 1 when there is a problem: something that is there does not work, or not as well as
/// it could. With a server both machines are looked at, and the way between them; with several also the ways from server to
/// server, which copies between their devices take.
#[derive(Debug, Args)]
pub struct Arguments {
    /// A server whose machine is looked at as well: HOST:PORT, or the connect string that `causeway serve` printed; or several,
    /// with commas between them.
    #[arg(long, value_name = "SERVER[,SERVER...]", env = table::ON.name, hide_env_values = true)]
    on: Option<String>,
    /// The way to the server that is tried: auto (the best that works), tcp, shm or verbs.
    #[arg(long, value_name = "auto|tcp|shm|verbs", env = table::VIA.name, default_value_t)]
    via: TransportChoice,
    #[command(flatten)]
    keys: KeyArguments,
    /// Print everything that was found, as JSON.
    #[arg(long)]
    json: bool,
}

/// Why nothing can be said.
#[derive(Debug, Error)]
pub enum DoctorError {
    /// A server's address makes no sense, or its key cannot be read.
    #[error(transparent)]
    Servers(#[from] ServersError),
    /// Nobody reads it.
    #[error("what was found cannot be printed: {0}")]
    Print(#[from] io::Error),
}

/// Examines, and tells.
pub fn doctor(arguments: &Arguments) -> Result<ExitCode, DoctorError> {
    let on = named(arguments.on.as_deref());
    let targets = on.map(|on| arguments.keys.servers(on)).transpose()?.unwrap_or_default();
    let here = Machine::new(examine_here());
    let servers: Vec<_> =
        targets.iter().map(|target| Server::examine(target, arguments.via, &here.facts)).collect();
    let between = if targets.len() > 1 { between::examine(&targets, arguments.via) } else { Vec::new() };
    let found: Vec<_> = between.iter().map(between_servers::judge).collect();
    let elsewhere: usize = servers.iter().map(Server::problems).sum();
    let count = problems(&here.findings) + elsewhere + problems(&found);
    let mut out = io::stdout().lock();
    if arguments.json {
        writeln!(out, "{:#}", report(&here, &servers, (&between, &found), count))?;
    } else {
        write!(out, "{}", here.to_text())?;
        for server in &servers {
            if let Some(machine) = &server.machine {
                write!(out, "\nThe server's machine: {}", machine.to_text())?;
            }
            write!(out, "\nThe way to {}\n{}", server.path.target, print::found(&server.findings))?;
        }
        if !found.is_empty() {
            write!(out, "\nThe ways between the servers\n{}", print::found(&found))?;
        }
        writeln!(out, "\n{}", conclusion(count))?;
    }
    Ok(if count == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Everything as JSON: of one server under names of its own, of several in a list.
fn report(
    here: &Machine,
    servers: &[Server],
    (between, found): (&[Between], &[Finding]),
    count: usize,
) -> serde_json::Value {
    let mut all = json!({ "here": here.to_json(), "problems": count });
    match servers {
        [] => {}
        [server] => {
            all["there"] = server.machine.as_ref().map(Machine::to_json).into();
            all["way"] = server.path_to_json();
        }
        several => {
            let server = |server: &Server| json!({ "there": server.machine.as_ref().map(Machine::to_json), "way": server.path_to_json() });
            all["servers"] = several.iter().map(server).collect::<Vec<_>>().into();
            all["between"] = json!({ "facts": between, "findings": found });
        }
    }
    all
}

/// A server, as far as it tells, and the way to it.
struct Server {
    machine: Option<Machine>,
    path: ServerPath,
    findings: Vec<Finding>,
}

impl Server {
    fn examine(target: &Target, via: TransportChoice, here: &Facts) -> Self {
        let (facts, path) = path::examine(target, via);
        let machine = facts.map(Machine::new);
        let there = machine.as_ref().map(|machine| machine.facts.clone()).unwrap_or_default();
        Self { findings: judged_path::judge(here, &there, &path), machine, path }
    }

    fn path_to_json(&self) -> serde_json::Value {
        json!({ "facts": self.path, "findings": self.findings })
    }

    fn problems(&self) -> usize {
        problems(&self.findings) + self.machine.as_ref().map_or(0, |machine| problems(&machine.findings))
    }
}

fn examine_here() -> Facts {
    let mut facts = examine();
    let folder = library::folder();
    if let Ok(folder) = &folder {
        let without = NOT_FORWARDED.iter().filter(|name| !folder.join(name).exists());
        facts.live.without_stub = without.map(|name| (*name).to_owned()).collect();
    }
    let folder = folder.map(|folder| folder.display().to_string());
    facts.live.client_library = Some(folder.map_err(|error| error.to_string()));
    facts
}

/// A machine, and what is to be said of it.
struct Machine {
    facts: Facts,
    findings: Vec<Finding>,
}

impl Machine {
    fn new(facts: Facts) -> Self {
        Self { findings: judge(&facts), facts }
    }

    fn to_text(&self) -> String {
        print::machine(&self.facts, &self.findings)
    }

    fn to_json(&self) -> serde_json::Value {
        json!({ "facts": self.facts, "distances": print::distances_of(&self.facts), "findings": self.findings })
    }
}

fn conclusion(problems: usize) -> String {
    match problems {
        0 => "No problem.".to_owned(),
        1 => "One problem.".to_owned(),
        _ => format!("{problems} problems."),
    }
}
