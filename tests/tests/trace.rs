//! `causeway trace`: what a program did when, as trace events that viewers read.

use causeway_tests::built::{causeway, cuda_program};
use causeway_tests::process::{Outcome, run};
use causeway_tests::server::{Server, forget_environment};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);

fn trace(server: &Server, output: &Path, program: &[&str]) -> Outcome {
    let mut command = Command::new(causeway());
    forget_environment(&mut command);
    command.args(["trace", "--on", &server.connect_string(), "-o"]).arg(output).arg("--").args(program);
    run(command.env("CAUSEWAY_CACHE_DIR", ""), LIMIT)
}

/// One complete event.
#[derive(Debug)]
struct Span {
    name: String,
    category: String,
    row: (u64, u64),
    begin: f64,
    end: f64,
}

/// The complete events of a trace, each of which has what the format asks for.
fn spans(trace: &Value) -> Vec<Span> {
    let events = trace["traceEvents"].as_array().expect("a trace has events");
    let mut spans = Vec::new();
    for event in events {
        let number = |key: &str| event[key].as_f64().unwrap_or_else(|| panic!("no number {key} in {event}"));
        let whole =
            |key: &str| event[key].as_u64().unwrap_or_else(|| panic!("no whole number {key} in {event}"));
        assert!(event["name"].is_string(), "{event}");
        let row = (whole("pid"), whole("tid"));
        match event["ph"].as_str() {
            Some("M") => assert!(event["args"]["name"].is_string(), "{event}"),
            Some("X") => {
                let (begin, took) = (number("ts"), number("dur"));
                assert!(begin >= 0.0 && took >= 0.0, "{event}");
                spans.push(Span {
                    name: event["name"].as_str().unwrap_or_default().to_owned(),
                    category: event["cat"].as_str().unwrap_or_default().to_owned(),
                    row,
                    begin,
                    end: begin + took,
                });
            }
            _ => panic!("an event of another kind: {event}"),
        }
    }
    spans
}

#[test]
fn a_trace_has_calls_waits_and_kernels_on_one_clock() {
    let server = Server::start();
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("trace.json");
    let program = cuda_program("vector_add");
    let outcome = trace(&server, &output, &[program.to_str().unwrap()]).must_succeed();
    assert!(outcome.stdout.contains("PASS vector_add"), "{outcome}");
    let text = std::fs::read_to_string(&output).unwrap();
    let all = serde_json::from_str(&text).unwrap();
    let spans = spans(&all);
    let of = |category: &'static str| spans.iter().filter(move |span| span.category == category);
    assert!(of("call").any(|span| span.name.starts_with("cuLaunchKernel")), "{text}");
    assert!(of("wait").count() > 0 && of("device").any(|span| span.name == "copy_to_device"), "{text}");
    let kernel = of("device").find(|span| span.name.contains("add")).expect("the kernel is in the trace");
    let launch = of("call").find(|span| span.name.starts_with("cuLaunchKernel")).unwrap();
    // Half a round trip is what the clocks may be apart; a second is none on any machine.
    const SECOND: f64 = 1e6;
    assert!(kernel.begin > launch.begin - SECOND, "{kernel:?} is before {launch:?}");
    let last = spans.iter().filter(|span| span.category != "device").map(|span| span.end).fold(0.0, f64::max);
    assert!(kernel.end < last + SECOND, "{kernel:?} ends after the program, at {last}");
    // What one thread does lies one in the other, or one after the other.
    let mut rows: BTreeMap<_, Vec<&Span>> = BTreeMap::new();
    for span in spans.iter().filter(|span| span.category != "device") {
        rows.entry(span.row).or_default().push(span);
    }
    for spans in rows.values_mut() {
        spans.sort_by(|one, other| one.begin.total_cmp(&other.begin).then(other.end.total_cmp(&one.end)));
        let mut open: Vec<f64> = Vec::new();
        for span in spans {
            open.retain(|end| *end > span.begin);
            // The format has whole and fractional microseconds; a nanosecond is rounding.
            assert!(open.iter().all(|end| span.end <= end + 0.002), "{span:?} crosses another one");
            open.push(span.end);
        }
    }
}

#[test]
fn every_process_of_a_program_is_in_its_trace() {
    let server = Server::start();
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("trace.json");
    let program = cuda_program("first_kernel");
    let twice = format!("{0} && {0}", program.display());
    trace(&server, &output, &["/bin/sh", "-c", &twice]).must_succeed();
    let all: Value = serde_json::from_str(&std::fs::read_to_string(&output).unwrap()).unwrap();
    let calls = spans(&all).into_iter().filter(|span| span.category == "call");
    let processes: std::collections::BTreeSet<u64> = calls.map(|span| span.row.0).collect();
    assert_eq!(processes.len(), 2);
}

#[test]
fn what_cannot_be_traced_is_said() {
    let server = Server::start();
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("trace.json");
    let nothing = trace(&server, &output, &["/bin/true"]);
    assert_eq!(nothing.code(), Some(0), "{nothing}");
    assert!(nothing.stderr.contains("has left no trace") && !output.exists(), "{nothing}");
    let nowhere = trace(&server, &folder.path().join("no/such/trace.json"), &["/bin/true"]);
    assert!(nowhere.code() == Some(125) && nowhere.stderr.contains("cannot write the trace"), "{nowhere}");
    let program = trace(&server, &output, &["/no/such/program"]);
    assert_eq!(program.code(), Some(127), "{program}");
}

#[test]
fn the_report_has_the_times_of_kernels_and_copies_where_they_are_asked_for() {
    let server = Server::start();
    let report = |options: &[&str]| {
        let mut command = Command::new(causeway());
        forget_environment(&mut command);
        command.args(["run", "--on", &server.connect_string(), "--stats", "--json"]).args(options);
        command.arg("--").arg(cuda_program("vector_add"));
        let outcome = run(command.env("CAUSEWAY_CACHE_DIR", ""), LIMIT).must_succeed();
        let start = outcome.stderr.find('{').unwrap_or_else(|| panic!("no report: {outcome}"));
        serde_json::from_str::<Value>(&outcome.stderr[start..]).unwrap()
    };
    let timed = report(&["--device-times"]);
    let times = &timed["device_time"];
    assert!(times["kernels"]["count"].as_u64() >= Some(1), "{times}");
    // A copy is timed piece by piece.
    let pieces = |direction: &str| times[direction]["count"].as_u64().unwrap();
    assert!(
        pieces("to_device") >= 2 && pieces("from_device") >= 1 && pieces("within_device") == 0,
        "{times}"
    );
    assert!(
        timed["round_trips"]["all"]["event_elapsed"].is_null(),
        "what we ask for is not the program's: {timed}"
    );
    let [kernels, busy, all] = [&times["kernels"]["seconds"], &times["busy_seconds"], &timed["seconds"]]
        .map(|value| value.as_f64().unwrap());
    assert!(0.0 < kernels && kernels <= busy && busy <= all, "{timed}");
    assert!(times["by_kernel"].as_object().unwrap().keys().any(|name| name.contains("add")), "{times}");
    assert!(report(&[])["device_time"].is_null());
}
