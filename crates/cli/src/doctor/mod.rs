//! `causeway doctor`: what a machine lacks for remote GPUs, InfiniBand and GPUDirect, and what to do.

mod conclusion;
mod devices_between_servers;
mod error;
mod path;
mod program;
mod ranks;

use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;

use causeway_access::Target;
use causeway_doctor::checks::machine::{Outcome, Trial, check_program};
use causeway_doctor::checks::path::{self as path_findings, Between, ServerPath, check_between};
use causeway_doctor::checks::{advice, problems};
use causeway_doctor::read::NOT_FORWARDED;
use causeway_doctor::{Facts, Finding, Level, check, examine, print, report as to_json};
use causeway_link::TransportChoice;
use clap::Args;
use ratatui::crossterm::terminal;
use serde_json::json;

use conclusion::conclusion;
pub use error::DoctorError;

use crate::library;
use crate::server::{ServerArguments, ServerError, Servers};

/// Check whether this machine's CUDA programs can run on a server, and what it has for remote GPUs,
/// InfiniBand and GPUDirect; say how to fix what is missing.
///
/// If a server is named, doctor first runs a small CUDA program there, and then checks both machines and the
/// path between them; of several servers, also the paths from server to server, which copies between their
/// devices take. It changes nothing, and needs neither a GPU nor a network card nor privileges; root sees a
/// little more of the PCIe bus. The exit code is 1 if there is a problem: something that is there does not
/// work, or not as well as it could.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    server: ServerArguments,
    /// Report instead which channels the ranks of an MPI job can use between this container and another one
    /// in which the same command runs at the same time, and how to get better ones. NAME is any word, the
    /// same in both; set CAUSEWAY_SOCKET_DIR as for the job.
    #[arg(long, value_name = "NAME")]
    rendezvous: Option<String>,
    /// Print all facts and findings as JSON.
    #[arg(long)]
    json: bool,
}

/// Examines, and tells.
pub fn doctor(arguments: &Arguments) -> Result<ExitCode, DoctorError> {
    if let Some(word) = &arguments.rendezvous {
        return ranks::ranks(word, arguments.json);
    }
    // Without a server this machine alone is looked at.
    let list = arguments.server.list().map_err(ServerError::from)?;
    let named = list.map(|_| arguments.server.servers(false)).transpose()?;
    let targets = named.as_ref().map(|servers| servers.targets.as_slice()).unwrap_or_default();
    let vias = targets.iter().map(|target| arguments.server.via(target));
    let vias = vias.collect::<Result<Vec<_>, _>>().map_err(ServerError::from)?;
    let here = Machine::new(examine_here());
    let key_file = named.as_ref().and_then(Servers::key_file);
    let servers: Vec<_> = targets
        .iter()
        .zip(&vias)
        .map(|(target, via)| Server::examine(target, *via, key_file, &here.facts))
        .collect();
    let between =
        if targets.len() > 1 { devices_between_servers::examine(targets, &vias) } else { Vec::new() };
    let found: Vec<_> = between.iter().map(check_between).collect();
    let elsewhere: usize = servers.iter().map(Server::problems).sum();
    let count = problems(&here.findings) + elsewhere + problems(&found);
    let mut out = io::stdout().lock();
    if arguments.json {
        writeln!(out, "{:#}", report(&here, &servers, (&between, &found), count))?;
    } else {
        let mut text: String =
            servers.iter().map(|server| print::found(core::slice::from_ref(&server.program))).collect();
        if servers.is_empty() {
            text += "  note     No server is named: with --on SERVER, doctor runs a small CUDA program \
                there.\n";
        }
        text += &format!("\nThis machine: {}", here.to_text());
        for server in &servers {
            if let Some(machine) = &server.machine {
                text += &format!("\nThe server's machine: {}", machine.to_text());
            }
            text += &format!("\nThe path to {}\n{}", server.path.target, print::found(&server.findings));
        }
        if !found.is_empty() {
            text += &format!("\nThe paths between the servers\n{}", print::found(&found));
        }
        let all = here.findings.iter().chain(servers.iter().flat_map(Server::all_findings)).chain(&found);
        text += &format!("\n{}", conclusion(count, &advice(all)));
        // What a program reads is not broken.
        let width = terminal::size().ok().filter(|_| io::stdout().is_terminal());
        let width = width.map_or(usize::MAX, |(columns, _)| usize::from(columns));
        write!(out, "{}", print::wrapped(&text, width))?;
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
            all["program"] = server.program_to_json();
        }
        several => {
            let server = |server: &Server| {
                json!({
                    "there": server.machine.as_ref().map(Machine::to_json),
                    "way": server.path_to_json(),
                    "program": server.program_to_json(),
                })
            };
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
    trial: Trial,
    /// What is to be said of the trial.
    program: Finding,
}

impl Server {
    fn examine(
        target: &Target,
        via: TransportChoice,
        key_file: Option<&std::path::Path>,
        here: &Facts,
    ) -> Self {
        let (facts, path) = path::examine(target, via);
        let trial = program::examine(target, via, key_file, &path);
        let machine = facts.map(Machine::new);
        let there = machine.as_ref().map(|machine| machine.facts.clone()).unwrap_or_default();
        let findings = path_findings::check(here, &there, &path);
        Self { findings, machine, path, program: check_program(&trial), trial }
    }

    fn path_to_json(&self) -> serde_json::Value {
        json!({ "facts": to_json::path(&self.path), "findings": self.findings })
    }

    fn program_to_json(&self) -> serde_json::Value {
        json!({ "facts": self.trial, "findings": [self.program] })
    }

    /// Everything that is to be said of the server, the program first.
    fn all_findings(&self) -> impl Iterator<Item = &Finding> {
        let of_machine = self.machine.iter().flat_map(|machine| &machine.findings);
        core::iter::once(&self.program).chain(&self.findings).chain(of_machine)
    }

    /// How many problems there are. That no program can run without a session is reported beside the reason, and counts
    /// once.
    fn problems(&self) -> usize {
        let of_program = matches!(self.trial.outcome, Outcome::Failed { .. });
        let others = self.all_findings().skip(1).filter(|finding| finding.level == Level::Problem).count();
        others + usize::from(of_program)
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
        Self { findings: check(&facts), facts }
    }

    fn to_text(&self) -> String {
        print::machine(&self.facts, &self.findings)
    }

    fn to_json(&self) -> serde_json::Value {
        json!({
            "facts": to_json::facts(&self.facts),
            "distances": to_json::distances(&print::distances_of(&self.facts)),
            "findings": self.findings,
        })
    }
}
