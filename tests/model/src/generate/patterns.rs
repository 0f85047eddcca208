//! Programs that repeat what has broken transports before: one host range that many copies write and read.

mod copies;
mod stage;
mod streams;
mod work;

use super::builder::Builder;
use super::{Setting, scenery};
use crate::program::{Buffer, BufferKind, Program, Stream, StreamKind};
use fastrand::Rng;
use stage::Stage;

type Issue = fn(&mut Builder<'_>, &Stage);

/// The patterns by name.
pub const PATTERNS: [(&str, Issue); 16] = [
    ("repeat-down", copies::repeat_down),
    ("turns", copies::turns),
    ("rows-down", copies::rows_down),
    ("shifting-down", copies::shifting_down),
    ("graph-rounds", work::graph_rounds),
    ("legacy", streams::legacy),
    ("round-trip", copies::round_trip),
    ("destroyed-stream", streams::destroyed_stream),
    ("host-functions", work::host_functions),
    ("stopped-stream", streams::stopped_stream),
    ("mapped", work::mapped),
    ("reused-source", copies::reused_source),
    ("within-host", copies::within_host),
    ("synchronous", streams::synchronous),
    ("default-streams", streams::default_streams),
    ("two-threads", streams::two_threads),
];

/// The program of a pattern.
pub fn program(seed: u64, pattern: usize, setting: &Setting, rng: &mut Rng) -> Program {
    let (name, issue) = PATTERNS[pattern];
    let is_with_two = setting.devices > 1
        && match name {
            "turns" | "round-trip" => rng.u32(..4) > 0,
            _ => name == "default-streams",
        };
    let threads = if name == "two-threads" { 2 } else { 1 };
    let mut made = scenery::empty(seed, name, if is_with_two { 2 } else { 1 }, threads, setting);
    let first = made.streams.len();
    let are_blocking = match name {
        "legacy" | "synchronous" | "two-threads" => true,
        "destroyed-stream" => rng.bool(),
        _ => false,
    };
    for index in 0..rng.usize(2..=4) {
        let kind = match name {
            _ if are_blocking => StreamKind::Blocking,
            "stopped-stream" => StreamKind::NonBlocking,
            _ if rng.u32(..3) == 0 => StreamKind::Blocking,
            _ => StreamKind::NonBlocking,
        };
        made.streams.push(Stream { device: index % made.devices, kind });
    }
    let streams: Vec<usize> = (first..made.streams.len()).collect();
    if name == "stopped-stream" && setting.values {
        made.words = 1;
        made.streams.push(Stream { device: 0, kind: StreamKind::NonBlocking });
    }
    made.events = (0..6).map(|index| index % made.devices).collect();
    // From one server to the other, bytes of long copies take the most ways.
    let is_long = is_with_two && name == "round-trip" && rng.bool();
    let size = if is_long { 263_168 } else { scenery::size(setting.profile, rng) & !3 };
    let locked = if name == "mapped" { BufferKind::Mapped } else { scenery::locked_kind(rng) };
    let second = made.devices - 1;
    let kinds =
        [(BufferKind::Device, 0), (BufferKind::Device, second), (locked, 0), (scenery::locked_kind(rng), 0)];
    made.buffers = kinds.map(|(kind, device)| Buffer { kind, size, device, initial: true }).to_vec();
    if name == "graph-rounds" {
        for kind in [BufferKind::Device, scenery::locked_kind(rng)] {
            made.buffers.push(Buffer { kind, size, device: 0, initial: true });
        }
        made.graphs.push(work::round_graph(size, rng));
    }
    // Long copies are repeated less, so that no program takes long.
    let most = if size > 600_000 {
        6
    } else if size > 100_000 {
        20
    } else {
        40
    };
    let stage = Stage { streams, size, repetitions: rng.usize(4..=most) };
    let mut builder = Builder::new(&made, rng);
    issue(&mut builder, &stage);
    builder.finish()
}
