//! `fabric-perf` and `causeway doctor` with RDMA devices.

use crate::setup::{Far, LIMIT, hosts, is_roce};
use causeway_tests::built;
use causeway_tests::network::{SERVER, Side};
use causeway_tests::process::{Running, run};
use serde_json::Value;
use std::process::Command;

#[test]
fn the_benchmark_measures_every_operation() {
    let Some(hosts) = hosts() else { return };
    let bench = |side, arguments: &[&str]| {
        let mut command = Command::new(built::fabric_perf());
        command.args(arguments);
        hosts.inside(side, &command)
    };
    let far = Running::start(&mut bench(Side::Server, &["--listen"]));
    far.must_print("listening", LIMIT);
    // iWARP's queue pairs are not joined by numbers: only links are measured there. Here all ends share one
    // processor, on which round trips between threads that look take long; of links only the bandwidth is
    // measured.
    if is_roce() {
        let words =
            ["--through", "verbs", "--repetitions", "2", "--sizes", "3,64K", "--sweep", "both,queue-pairs"];
        let outcome =
            run(&mut bench(Side::Client, &[&["--to", SERVER], &words[..]].concat()), LIMIT).must_succeed();
        // A message of 3 bytes leaves the fourth queue pair out.
        let wanted = [
            "RDMA read, bandwidth",
            "2 x 128",
            "4 queue pairs",
            "64 KiB",
            "mean gain over sizes, queue pairs",
        ];
        for words in wanted {
            assert!(outcome.stdout.contains(words), "{words} is missing: {outcome}");
        }
        assert!(!outcome.stdout.contains("not measured"), "{outcome}");
    }
    let words = ["--through", "links", "--repetitions", "1", "--sizes", "64K", "--quantity", "bandwidth"];
    let words = [&["--to", SERVER, "--sweep", "default", "--operation", "send,write"], &words[..]].concat();
    let outcome = run(&mut bench(Side::Client, &words), LIMIT).must_succeed();
    for words in ["messages of a link, bandwidth", "memory of a link, bandwidth", "64 KiB"] {
        assert!(outcome.stdout.contains(words), "{words} is missing: {outcome}");
    }
    assert!(!outcome.stdout.contains("not measured"), "{outcome}");
}

#[test]
fn doctor_finds_the_devices_of_both_hosts() {
    let Some(hosts) = hosts() else { return };
    let far = Far::start(&hosts, &[]);
    let mut doctor = Command::new(built::causeway());
    doctor.args(["doctor", "--json", "--via", "tcp", "--on", &far.server.connect_string()]);
    let outcome = run(&mut hosts.inside(Side::Client, &doctor), LIMIT);
    let report: Value =
        serde_json::from_str(&outcome.stdout).unwrap_or_else(|error| panic!("{error}: {outcome}"));
    for host in ["here", "there"] {
        let facts = &report[host]["facts"];
        let devices = facts["rdma"]["devices"].as_array().expect("there is a list");
        assert!(
            !devices.is_empty()
                && devices.len() == facts["live"]["verbs"]["devices"].as_array().map_or(0, Vec::len)
        );
        for device in devices {
            let port = &device["ports"][0];
            assert_eq!(
                (&port["state"], &port["link_layer"]),
                (&"ACTIVE".into(), &"Ethernet".into()),
                "{report:#}"
            );
        }
        let findings = report[host]["findings"].as_array().expect("there is a list");
        let is_told = |finding: &Value| {
            finding["text"].as_str().is_some_and(|text| text.contains("is active: Ethernet"))
        };
        assert!(findings.iter().any(is_told), "{report:#}");
    }
    assert_eq!(report["problems"], 0, "{report:#}");
}
