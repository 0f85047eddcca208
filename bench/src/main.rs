//! What calls and copies cost, through the real client library against a real server.
//!
//! It loads the client library as a program would, starts a server with the software GPU unless `--on` names another,
//! prints a table and writes the numbers as JSON. What the software GPU itself takes is part of the copies' times; compare
//! runs on the same machine only. Frames per second through the codec: `cargo bench -p causeway-bench`.

mod calls;
mod copies;
mod driver;
mod report;

use causeway_tests::built;
use causeway_tests::server::{Server, forget_environment};
use clap::Parser;
use report::Report;
use std::error::Error;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

/// Where a server is; also tells this program that it is the process that measures.
const SERVER: &str = "CAUSEWAY_ON";

#[derive(Parser)]
#[command(about = "Measures what calls and copies cost through Causeway", version)]
struct Arguments {
    /// The server to measure with, as `causeway serve` prints it; without one a server with the software GPU is started
    #[arg(long, value_name = "SERVER")]
    on: Option<String>,
    /// Where the numbers go, as JSON
    #[arg(long, value_name = "FILE", default_value = "build/bench.json")]
    json: PathBuf,
    /// The largest copy, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 256)]
    largest: usize,
    /// How many posted calls are made in a row
    #[arg(long, value_name = "COUNT", default_value_t = 100_000)]
    calls: u32,
}

fn main() -> ExitCode {
    run(&Arguments::parse()).unwrap_or_else(|error| {
        eprintln!("causeway-bench: {error}");
        ExitCode::FAILURE
    })
}

/// Measures, or starts the server and the process that measure.
fn run(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    if arguments.on.is_none() && std::env::var_os(SERVER).is_some() {
        return measure(arguments).map(|()| ExitCode::SUCCESS);
    }
    let server = arguments.on.is_none().then(Server::start);
    let target = match (&arguments.on, &server) {
        (Some(target), _) => target.clone(),
        (None, Some(server)) => server.connect_string(),
        (None, None) => unreachable!("without a target a server is started"),
    };
    // The library reads its settings from the environment of a process, so a process with that environment measures.
    let mut measuring = Command::new(std::env::current_exe()?);
    forget_environment(&mut measuring);
    let status = measuring
        .arg("--json")
        .arg(&arguments.json)
        .args(["--largest", &arguments.largest.to_string()])
        .args(["--calls", &arguments.calls.to_string()])
        .env(SERVER, target)
        .status()?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn measure(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let driver = driver::Driver::load(&built::client_library())?;
    let context = driver.open_first_device()?;
    let report = Report {
        release: env!("CARGO_PKG_VERSION"),
        device: context.device_name()?,
        calls: calls::measure(&context, arguments.calls)?,
        copies: copies::measure(&context, arguments.largest << 20)?,
    };
    print!("{report}");
    if let Some(folder) = arguments.json.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(&arguments.json, report.to_json())?;
    println!("\nwritten to {}", arguments.json.display());
    Ok(())
}
