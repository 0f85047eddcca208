//! CUDA programs, unchanged, through the real server on the software GPU.
//!
//! `CAUSEWAY_TEST_ONLY=scan cargo test -p causeway-tests --test programs` runs only the programs with that in
//! their title.

use causeway_tests::client::through_run;
use causeway_tests::programs::{Case, cases, run_all};
use causeway_tests::server::{OPEN, Server};
use std::time::Duration;

/// How long one program may run while others run beside it.
const LIMIT: Duration = Duration::from_secs(90);

/// From so many cores on threads stay awake: a worker's receiving thread issues what others have made ready,
/// and who waits for a reply receives it.
const MANY_CORES: (&str, &str) = ("CAUSEWAY_CORES", "8");

/// The programs that run here.
fn chosen() -> Vec<Case> {
    let only = std::env::var("CAUSEWAY_TEST_ONLY").unwrap_or_default();
    let wanted = |case: &Case| !case.needs_gpu && case.title().contains(&only);
    let cases: Vec<_> = cases().into_iter().filter(wanted).collect();
    assert!(!cases.is_empty(), "no program has {only:?} in its title");
    cases
}

/// Runs them on a server of their own, which has this in its environment as they have.
fn run_on_server(cases: &[Case], environment: &[(&str, &str)]) {
    let mut command = Server::command(&OPEN);
    // Programs that use several devices find two.
    command.env("CAUSEWAY_SOFTWARE_GPU_DEVICES", "2").envs(environment.iter().copied());
    let server = Server::start_command(command);
    let at_once = std::thread::available_parallelism().map_or(1, |cores| cores.get().min(8));
    run_all(cases, at_once, LIMIT, |case| {
        let mut command = through_run(Some(&server.connect_string()), &case.path());
        command.args(&case.arguments).envs(environment.iter().copied());
        command
    });
    // The monitor, which the NVML program has started, stays for the next one that asks.
    let monitors = usize::from(cases.iter().any(|case| case.program == "nvml"));
    server.must_have_workers(monitors);
    server.must_be_well();
}

#[test]
fn every_program_does_what_it_must() {
    run_on_server(&chosen(), &[]);
}

#[test]
fn every_program_does_so_where_threads_stay_awake_whatever_carries_its_calls() {
    let mut cases = chosen();
    run_on_server(&cases, &[MANY_CORES, ("CAUSEWAY_VIA", "shm")]);
    // A kernel that runs sees what the program writes in memory that both share, and only there.
    cases.retain(|case| !case.needs_same_host);
    run_on_server(&cases, &[MANY_CORES, ("CAUSEWAY_VIA", "tcp")]);
}
