//! What does a machine lack for remote GPUs, InfiniBand and GPUDirect, and what is to be done?

use std::io::{self, Write as _};
use std::process::ExitCode;

use causeway_doctor::judge::problems;
use causeway_doctor::{Facts, Finding, examine, judge, print};
use clap::Args;
use serde_json::json;
use thiserror::Error;

use crate::library;

/// Look at what this machine has for remote GPUs, InfiniBand and GPUDirect, and say what to do about what it lacks.
///
/// Nothing is changed, and neither GPU nor network card nor privileges are needed; root sees a little more of the
/// PCIe bus. The exit code is 1 when there is a problem: something that is there does not work, or not as well as
/// it could.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Print everything that was found, as JSON.
    #[arg(long)]
    json: bool,
}

/// Why nothing can be said.
#[derive(Debug, Error)]
pub enum DoctorError {
    /// Nobody reads it.
    #[error("what was found cannot be printed: {0}")]
    Print(#[from] io::Error),
}

/// Examines, and tells.
pub fn doctor(arguments: &Arguments) -> Result<ExitCode, DoctorError> {
    let here = Machine::new(examine_here());
    let count = problems(&here.findings);
    let mut out = io::stdout().lock();
    if arguments.json {
        writeln!(out, "{:#}", json!({ "here": here.to_json(), "problems": count }))?;
    } else {
        write!(out, "{}", here.to_text())?;
        writeln!(out, "{}", conclusion(count))?;
    }
    Ok(if count == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn examine_here() -> Facts {
    let mut facts = examine();
    let folder = library::folder().map(|folder| folder.display().to_string());
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
