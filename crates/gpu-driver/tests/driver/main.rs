//! The real driver's back end on a real GPU: every operation through `dispatch`, as the worker calls it.
//!
//! A program of its own (no test harness): it can be carried to a machine with a GPU and no Rust, takes the
//! names of steps as arguments, goes on after a failure and says on standard error what is wrong. Without
//! NVIDIA's driver it says so and succeeds.

mod code;
mod session;
mod steps;

use causeway_gpu_driver::{Driver, LoadError};
use session::Session;
use std::process::ExitCode;

fn main() -> ExitCode {
    let driver = match Driver::load() {
        Ok(driver) => driver,
        Err(error @ LoadError::NotFound { .. }) => {
            eprintln!("skipped, for there is no NVIDIA driver here. {error}");
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("FAILED  {error}");
            return ExitCode::FAILURE;
        }
    };
    let wanted: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let session = match Session::open(driver) {
        Ok(session) => session,
        Err(error) => {
            eprintln!("FAILED  opening a context: {error}");
            return ExitCode::FAILURE;
        }
    };
    let mut failures = 0;
    for (name, step) in steps::ALL {
        if !wanted.is_empty() && !wanted.iter().any(|part| name.contains(part.as_str())) {
            continue;
        }
        match step(&session) {
            Ok(remark) if remark.is_empty() => eprintln!("ok      {name}"),
            Ok(remark) => eprintln!("ok      {name}: {remark}"),
            Err(error) => {
                failures += 1;
                eprintln!("FAILED  {name}: {error}");
            }
        }
    }
    eprintln!("{failures} failed");
    if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
