//! Does every CUDA program run unchanged, through the real server on the software GPU?
//!
//! `CAUSEWAY_TEST_ONLY=scan cargo test -p causeway-tests --test programs` runs only the programs with that in their title.

use causeway_tests::client::through_run;
use causeway_tests::process::{Outcome, Running};
use causeway_tests::programs::{Case, cases};
use causeway_tests::server::Server;
use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::Mutex;
use std::time::Duration;

/// How long one program may run while others run beside it.
const LIMIT: Duration = Duration::from_secs(90);

struct Row {
    title: String,
    seconds: f64,
    trouble: Option<String>,
}

#[test]
fn every_program_does_what_it_must() {
    let only = std::env::var("CAUSEWAY_TEST_ONLY").unwrap_or_default();
    let wanted = |case: &Case| !case.needs_gpu && case.title().contains(&only);
    let cases: Vec<_> = cases().into_iter().filter(wanted).collect();
    assert!(!cases.is_empty(), "no program has {only:?} in its title");
    // Programs that use several devices find two.
    let mut command = Server::command(&["--listen", "127.0.0.1:0"]);
    let server = Server::start_command({
        command.env("CAUSEWAY_SOFTWARE_GPU_DEVICES", "2");
        command
    });
    let waiting = Mutex::new(cases.iter());
    let rows = Mutex::new(Vec::new());
    let at_once = std::thread::available_parallelism().map_or(1, |cores| cores.get().min(8));
    std::thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                loop {
                    let next = waiting.lock().unwrap().next();
                    let Some(case) = next else { break };
                    let row = run(case, &server);
                    rows.lock().unwrap().push(row);
                }
            });
        }
    });
    let mut rows = rows.into_inner().unwrap();
    rows.sort_by(|a, b| a.title.cmp(&b.title));
    // Past the test harness, which would swallow the table of a test that passes.
    let _ = std::io::stderr().write_all(table(&rows).as_bytes());
    let failed: Vec<_> =
        rows.iter().filter(|row| row.trouble.is_some()).map(|row| row.title.as_str()).collect();
    assert!(failed.is_empty(), "{} of {} failed: {}", failed.len(), rows.len(), failed.join(", "));
    // The monitor, which the NVML program has started, stays for the next one that asks.
    let monitors = usize::from(cases.iter().any(|case| case.program == "nvml"));
    server.must_have_workers(monitors);
    server.must_be_well();
}

/// Runs a case, twice at the same time if it says so.
fn run(case: &Case, server: &Server) -> Row {
    let program = case.path();
    if !program.is_file() {
        let trouble = Some("it has not been compiled: run `make programs`".to_owned());
        return Row { title: case.title(), seconds: 0.0, trouble };
    }
    let start =
        || Running::start(through_run(Some(&server.connect_string()), &program).args(&case.arguments));
    let running: Vec<_> = (0..if case.twice { 2 } else { 1 }).map(|_| start()).collect();
    let outcomes: Vec<_> = running.into_iter().map(|mut process| process.finish(LIMIT)).collect();
    let seconds = outcomes.iter().map(|outcome: &Outcome| outcome.took.as_secs_f64()).fold(0.0, f64::max);
    let trouble = outcomes.iter().find_map(|outcome| {
        case.judge(outcome).err().map(|sentence| format!("{sentence}, but was {outcome}"))
    });
    Row { title: case.title(), seconds, trouble }
}

fn table(rows: &[Row]) -> String {
    let width = rows.iter().map(|row| row.title.len()).max().unwrap_or_default();
    let mut text = String::from("\n");
    for Row { title, seconds, trouble } in rows {
        let verdict = if trouble.is_some() { "FAILED" } else { "ok" };
        let _ = writeln!(text, "{title:width$}  {seconds:6.2} s  {verdict}");
    }
    for row in rows {
        if let Some(trouble) = &row.trouble {
            let _ = writeln!(text, "\n== {}: {trouble}", row.title);
        }
    }
    text
}
