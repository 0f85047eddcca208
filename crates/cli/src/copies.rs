//! Summary of a program's copies: their paths, and what slowed them that the program could change.
//!
//! The two pitfalls were published for the first version of GPUDirect, and are no younger for other ways to a GPU far away: memory
//! that is not pinned is copied once more, and short copies cost their calls rather than their bytes.

use causeway_doctor::print::binary;
use causeway_pipeline::{INLINE_BYTES, TransportKind};
use serde_json::Value;

/// Copies of pageable memory are reported from this many bytes on, if they are this share of all bytes.
const MUCH_PAGEABLE: u64 = 1 << 20;
const PAGEABLE_SHARE: f64 = 0.05;

/// Short copies are reported from this many on, if they are this share of all copies.
const MANY_SHORT: u64 = 100;
const SHORT_SHARE: f64 = 0.5;

/// A transport: its name in the report, and for people.
const fn of(kind: TransportKind) -> (&'static str, &'static str) {
    (kind.name(), kind.description())
}

/// What carries copies: its name in the report, and for people.
const PATHS: [(&str, &str); 6] = [
    ("gpudirect", "by GPUDirect"),
    ("registered", "by RDMA of pinned memory"),
    ("zero_copy", "without a copy"),
    ("staged", "through staging"),
    of(TransportKind::Tcp),
    ("with_commands", "with commands"),
];

/// What carries copies between devices of two servers, likewise.
fn between_servers() -> impl Iterator<Item = (&'static str, &'static str)> {
    let links = TransportKind::ALL.into_iter().map(of);
    [("device", "by the device itself")].into_iter().chain(links).chain([("client", "through this machine")])
}

/// The directions: the name in the report, and for people, as the memory's part in it.
const DIRECTIONS: [(&str, &str, &str); 2] =
    [("to_device", "to the device", "from"), ("from_device", "from the device", "into")];

/// Copies and bytes.
#[derive(Clone, Copy)]
struct Count {
    copies: u64,
    bytes: u64,
}

impl Count {
    fn of(report: &Value, direction: &str, what: &str) -> Self {
        let number = |field| report["copies"][direction][what][field].as_u64().unwrap_or(0);
        Self { copies: number("copies"), bytes: number("bytes") }
    }

    fn all(report: &Value, direction: &str) -> Self {
        let counts = PATHS.map(|(path, _)| Self::of(report, direction, path));
        let sum = |one: fn(&Self) -> u64| counts.iter().map(one).sum();
        Self { copies: sum(|count| count.copies), bytes: sum(|count| count.bytes) }
    }
}

fn share(part: u64, all: u64) -> f64 {
    if all == 0 { 0.0 } else { part as f64 / all as f64 }
}

/// A line for each direction in which anything was copied: what carried how much.
pub fn paths(report: &Value) -> Vec<String> {
    let lines = DIRECTIONS.iter().filter_map(|(direction, name, _)| {
        let ways: Vec<String> = PATHS
            .iter()
            .filter_map(|(path, words)| {
                let Count { copies, bytes } = Count::of(report, direction, path);
                // What network cards do by themselves is counted by the link, in bytes alone.
                match (copies, bytes) {
                    (0, 0) => None,
                    (0, _) => Some(format!("{} {words}", binary(bytes))),
                    _ => Some(format!("{} {words} ({copies}x)", binary(bytes))),
                }
            })
            .collect();
        (!ways.is_empty()).then(|| format!("{name}: {}", ways.join(", ")))
    });
    let between: Vec<String> = between_servers()
        .filter_map(|(path, words)| {
            let Count { copies, bytes } = Count::of(report, "between_servers", path);
            (copies > 0).then(|| format!("{} {words} ({copies}x)", binary(bytes)))
        })
        .collect();
    let between = (!between.is_empty()).then(|| format!("between servers: {}", between.join(", ")));
    lines.chain(between).collect()
}

/// What the program could change, a sentence each.
pub fn warnings(report: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    for (direction, name, preposition) in DIRECTIONS {
        let all = Count::all(report, direction);
        let pageable = Count::of(report, direction, "pageable");
        let pageable_share = share(pageable.bytes, all.bytes);
        if pageable.bytes >= MUCH_PAGEABLE && pageable_share >= PAGEABLE_SHARE {
            warnings.push(format!(
                "{} of the bytes {name} ({:.0} %) went {preposition} pageable memory, which is copied once more on the way and \
                 keeps the call waiting: pin it (cudaMallocHost, cudaHostRegister, pin_memory=True of PyTorch)",
                binary(pageable.bytes),
                100.0 * pageable_share
            ));
        }
        let short = Count::of(report, direction, "with_commands");
        let short_share = share(short.copies, all.copies);
        if short.copies >= MANY_SHORT && short_share >= SHORT_SHARE {
            warnings.push(format!(
                "{} of the {} copies {name} ({:.0} %) were of {} or less, too short for RDMA and GPUDirect: \
                 combine them if possible",
                short.copies,
                all.copies,
                100.0 * short_share,
                binary(INLINE_BYTES as u64)
            ));
        }
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_path_is_named_with_its_bytes() {
        let report = json!({ "copies": {
            "to_device": {
                "gpudirect": { "bytes": 3_u64 << 30 },
                "registered": { "bytes": 2 << 20 },
                "zero_copy": { "copies": 2, "bytes": 1 << 20 },
                "with_commands": { "copies": 5, "bytes": 100 },
                "staged": { "copies": 0, "bytes": 0 },
            },
            "from_device": {},
            "between_servers": { "shm": { "copies": 3, "bytes": 2 << 20 }, "tcp": { "copies": 0, "bytes": 0 } },
        }});
        let expected = [
            "to the device: 3 GiB by GPUDirect, 2 MiB by RDMA of pinned memory, 1 MiB without a copy (2x), 100 bytes with commands (5x)",
            "between servers: 2 MiB through shared memory (3x)",
        ];
        assert_eq!(paths(&report), expected);
        assert!(warnings(&report).is_empty());
        assert!(
            paths(&json!({})).is_empty() && warnings(&json!({})).is_empty(),
            "a report of an older library"
        );
    }

    #[test]
    fn pageable_memory_is_warned_of_from_a_share_on() {
        let report = |pageable: u64| {
            json!({ "copies": { "from_device": {
                "tcp": { "copies": 9, "bytes": 100 << 20 },
                "pageable": { "copies": 9, "bytes": pageable },
            }}})
        };
        let [warning] = &warnings(&report(60 << 20))[..] else { panic!("one warning") };
        assert!(
            warning.starts_with("60 MiB of the bytes from the device (60 %) went into pageable memory"),
            "{warning}"
        );
        assert!(warnings(&report(4 << 20)).is_empty());
        assert!(warnings(&report(5 << 20)).len() == 1);
    }

    #[test]
    fn short_copies_are_warned_of_when_they_are_most() {
        let report = |short: u64, long: u64| {
            json!({ "copies": { "to_device": {
                "staged": { "copies": long, "bytes": long << 20 },
                "with_commands": { "copies": short, "bytes": short * 8 },
            }}})
        };
        let [warning] = &warnings(&report(300, 100))[..] else { panic!("one warning") };
        assert!(
            warning.starts_with("300 of the 400 copies to the device (75 %) were of 64 KiB or less"),
            "{warning}"
        );
        assert!(warnings(&report(99, 0)).is_empty());
        assert!(warnings(&report(300, 301)).is_empty());
    }
}
