//! Programs that repeat what has broken transports before: one host range that many copies write and read.

use super::builder::Builder;
use super::{Setting, scenery};
use crate::program::{
    Await, Buffer, BufferKind, Call, CopyForm, GraphPlan, Program, Region, Step, Stream, StreamKind, Work,
};
use fastrand::Rng;

type Issue = fn(&mut Builder<'_>, &Stage);

/// The patterns by name.
pub const PATTERNS: [(&str, Issue); 16] = [
    ("repeat-down", repeat_down),
    ("turns", turns),
    ("rows-down", rows_down),
    ("shifting-down", shifting_down),
    ("graph-rounds", graph_rounds),
    ("legacy", legacy),
    ("round-trip", round_trip),
    ("destroyed-stream", destroyed_stream),
    ("host-functions", host_functions),
    ("stopped-stream", stopped_stream),
    ("mapped", mapped),
    ("reused-source", reused_source),
    ("within-host", within_host),
    ("synchronous", synchronous),
    ("default-streams", default_streams),
    ("two-threads", two_threads),
];

/// The buffers of a pattern: two of a device, then two of the host (a mapped one among them for that
/// pattern).
const DEVICE: usize = 0;
const OTHER_DEVICE: usize = 1;
const HOST: usize = 2;
const OTHER_HOST: usize = 3;
/// One more of the device and one of the host, for patterns that say so.
const SPARE_DEVICE: usize = 4;
const SPARE_HOST: usize = 5;

/// What a pattern plays with.
pub struct Stage {
    streams: Vec<usize>,
    /// The common size of all buffers, a multiple of 4.
    size: usize,
    repetitions: usize,
}

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
        made.graphs.push(round_graph(size, rng));
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

impl Stage {
    fn whole(&self, buffer: usize) -> Region {
        Region::linear(buffer, 0, self.size)
    }

    fn stream(&self, index: usize) -> usize {
        self.streams[index % self.streams.len()]
    }
}

impl Builder<'_> {
    /// Work in a stream, after all that it must come after.
    fn put(&mut self, stream: usize, work: Work) {
        self.settle(0, Call::Enqueue { stream, work });
    }

    fn generate(&mut self, stream: usize, to: Region) {
        let key = self.rng.u32(..);
        let delay = if self.rng.u32(..8) == 0 { 20_000 } else { 0 };
        self.put(stream, Work::Generate { to, key, delay });
    }

    fn copy(&mut self, stream: usize, to: Region, from: Region) {
        let form = if !to.is_linear() {
            CopyForm::Rows
        } else if self.rng.u32(..3) == 0 {
            CopyForm::Unified
        } else {
            CopyForm::Directed
        };
        self.put(stream, Work::Copy { to, from, form });
    }

    fn read(&mut self, stage: &Stage) {
        for buffer in [HOST, OTHER_HOST] {
            self.settle(0, Call::Host(Work::HostRead { from: stage.whole(buffer) }));
        }
    }

    /// The device buffer of a stream's device.
    fn buffer_of(&self, stream: usize) -> usize {
        if self.scenery.streams[stream].device == 0 { DEVICE } else { OTHER_DEVICE }
    }
}

/// A kernel fills, a copy brings it to the same place; one wait at the end.
fn repeat_down(builder: &mut Builder<'_>, stage: &Stage) {
    let used = builder.rng.usize(1..=stage.streams.len());
    for index in 0..stage.repetitions {
        let stream = stage.streams[index % used];
        builder.generate(stream, stage.whole(DEVICE));
        builder.copy(stream, stage.whole(HOST), stage.whole(DEVICE));
    }
    builder.read(stage);
}

/// Two streams copy to one place by turns, from buffers of their own.
fn turns(builder: &mut Builder<'_>, stage: &Stage) {
    for index in 0..stage.repetitions {
        let stream = stage.stream(index % 2);
        let two = builder.scenery.devices == 2;
        let buffer = if two { builder.buffer_of(stream) } else { [DEVICE, OTHER_DEVICE][index % 2] };
        builder.generate(stream, stage.whole(buffer));
        builder.copy(stream, stage.whole(HOST), stage.whole(buffer));
        let next = stage.stream((index + 1) % 2);
        builder.join(0, stream, next);
    }
    builder.read(stage);
}

/// Copies of rows to the same rows, or to rows with another pitch.
fn rows_down(builder: &mut Builder<'_>, stage: &Stage) {
    for index in 0..stage.repetitions {
        let stream = stage.stream(index / 3);
        builder.generate(stream, stage.whole(DEVICE));
        let height = builder.rng.usize(2..=8);
        let pitch = stage.size / height / 4 * 4;
        let width = if builder.rng.bool() { pitch } else { (pitch / 2).max(4) };
        let to = Region { width, pitch, height, depth: 1, slice_rows: height, ..stage.whole(HOST) };
        let from = Region { buffer: DEVICE, pitch: if builder.rng.bool() { width } else { pitch }, ..to };
        builder.copy(stream, to, from);
    }
    builder.read(stage);
}

/// Copies of many lengths to ranges that overlap.
fn shifting_down(builder: &mut Builder<'_>, stage: &Stage) {
    for index in 0..stage.repetitions {
        let stream = stage.stream(index / 2);
        builder.generate(stream, stage.whole(DEVICE));
        let start = builder.rng.usize(..stage.size / 8) * 4;
        let width = builder.rng.usize(1..=(stage.size - start) / 4) * 4;
        let from = builder.rng.usize(..=(stage.size - width) / 4) * 4;
        builder.copy(stream, Region::linear(HOST, start, width), Region::linear(DEVICE, from, width));
    }
    builder.read(stage);
}

/// A kernel, a copy down, and a copy up of the same bytes, with a host function between them now and then; or
/// work of the device alone.
fn round_graph(size: usize, rng: &mut Rng) -> GraphPlan {
    let whole = |buffer| Region::linear(buffer, 0, size);
    let plan = |steps: Vec<Work>| {
        let steps = steps.into_iter().map(|work| Step::Work { lane: 0, work }).collect();
        GraphPlan { device: 0, lanes: 1, steps }
    };
    let form = CopyForm::Directed;
    let mut steps = vec![Work::Add { to: whole(DEVICE), constant: rng.u32(..), delay: 0 }];
    if rng.bool() {
        steps.push(Work::Copy { to: whole(OTHER_DEVICE), from: whole(DEVICE), form });
        return plan(steps);
    }
    steps.push(Work::Copy { to: whole(HOST), from: whole(DEVICE), form });
    match rng.u32(..4) {
        0 => steps.push(Work::HostRead { from: whole(HOST) }),
        1 => steps
            .push(Work::HostWrite { to: Region::linear(HOST, 0, (size / 8).max(1) * 4), key: rng.u32(..) }),
        _ => {}
    }
    steps.push(Work::Copy { to: whole(OTHER_DEVICE), from: whole(HOST), form });
    if rng.bool() {
        steps.push(Work::Copy { to: whole(OTHER_HOST), from: whole(OTHER_DEVICE), form });
    }
    plan(steps)
}

/// A graph launched many times, in one stream or by turns, and some launches behind what the next one must
/// not overtake: a copy to the device that may be late, and a kernel.
fn graph_rounds(builder: &mut Builder<'_>, stage: &Stage) {
    builder.settle(0, Call::Capture { graph: 0 });
    let used = if builder.rng.u32(..4) == 0 { 1 } else { 2 };
    for index in 0..stage.repetitions.min(20) {
        let stream = stage.streams[index % used];
        if index % 2 == 0 && builder.rng.bool() {
            for _ in 0..builder.rng.usize(1..=4) {
                builder.copy(stream, stage.whole(SPARE_DEVICE), stage.whole(SPARE_HOST));
            }
            builder.generate(stream, stage.whole(DEVICE));
        }
        builder.settle(0, Call::Launch { graph: 0, stream });
    }
    builder.copy(stage.streams[0], stage.whole(OTHER_HOST), stage.whole(OTHER_DEVICE));
    builder.read(stage);
}

/// Streams in order only through work in the legacy default stream.
fn legacy(builder: &mut Builder<'_>, stage: &Stage) {
    for index in 0..stage.repetitions {
        let stream = stage.stream(index);
        builder.generate(stream, stage.whole(DEVICE));
        builder.copy(stream, stage.whole(HOST), stage.whole(DEVICE));
        let value = builder.rng.u32(..);
        let to = Region::linear(OTHER_DEVICE, 0, 4);
        let work = Work::Fill { to, value, element: 4 };
        let call = if builder.rng.bool() {
            Call::Enqueue { stream: 0, work }
        } else {
            Call::Blocking { device: 0, work }
        };
        builder.settle(0, call);
    }
    builder.read(stage);
}

/// Down to the host, and up again from there in another stream.
fn round_trip(builder: &mut Builder<'_>, stage: &Stage) {
    for index in 0..stage.repetitions {
        let (down, up) = (stage.stream(index), stage.stream(index + 1));
        let from = builder.buffer_of(down);
        builder.generate(down, stage.whole(from));
        builder.copy(down, stage.whole(HOST), stage.whole(from));
        builder.join(0, down, up);
        let to = if builder.scenery.devices == 2 { builder.buffer_of(up) } else { OTHER_DEVICE };
        builder.copy(up, stage.whole(to), stage.whole(HOST));
        builder.copy(up, stage.whole(OTHER_HOST), stage.whole(to));
        // Of two devices, each round counts: what is wrong once is overwritten by the next.
        if builder.scenery.devices == 2 && builder.rng.bool() {
            builder.put(up, Work::HostRead { from: stage.whole(OTHER_HOST) });
        }
    }
    builder.read(stage);
}

/// Work of a stream that has been destroyed still comes before what follows its event, what came to the
/// legacy default stream before, and what a wait for the context ends.
fn destroyed_stream(builder: &mut Builder<'_>, stage: &Stage) {
    let (last, others) = (stage.streams[stage.streams.len() - 1], &stage.streams[..stage.streams.len() - 1]);
    let is_blocking = |stream: usize| builder.scenery.streams[stream].kind == StreamKind::Blocking;
    let are_blocking = stage.streams.iter().all(|&stream| is_blocking(stream));
    for &stream in others {
        for _ in 0..stage.repetitions.div_ceil(4) {
            builder.generate(stream, stage.whole(DEVICE));
            builder.copy(stream, stage.whole(HOST), stage.whole(DEVICE));
        }
        let waits = builder.rng.u32(..3) == 0;
        if are_blocking {
            let work =
                Work::Fill { to: Region::linear(OTHER_DEVICE, 0, 4), value: builder.rng.u32(..), element: 4 };
            builder.put(0, work);
        } else if !waits {
            builder.join(0, stream, last);
        }
        let _ = builder.issue(0, Call::DestroyStream { stream });
        if waits {
            let what = if are_blocking && builder.rng.bool() { Await::Stream(0) } else { Await::Context(0) };
            let _ = builder.issue(0, Call::Await(what));
            let _ = builder.issue(0, Call::Host(Work::HostRead { from: stage.whole(HOST) }));
        }
        builder.generate(last, stage.whole(OTHER_DEVICE));
        builder.copy(last, stage.whole(HOST), stage.whole(OTHER_DEVICE));
    }
    builder.read(stage);
}

/// Host functions read and write what copies bring and take.
fn host_functions(builder: &mut Builder<'_>, stage: &Stage) {
    for index in 0..stage.repetitions.min(16) {
        let stream = stage.stream(index / 2);
        builder.generate(stream, stage.whole(DEVICE));
        builder.copy(stream, stage.whole(HOST), stage.whole(DEVICE));
        builder.put(stream, Work::HostRead { from: stage.whole(HOST) });
        let half = Region::linear(HOST, 0, (stage.size / 8).max(1) * 4);
        let key = builder.rng.u32(..);
        builder.put(stream, Work::HostWrite { to: half, key });
        builder.copy(stream, stage.whole(OTHER_DEVICE), stage.whole(HOST));
        builder.copy(stream, stage.whole(OTHER_HOST), stage.whole(OTHER_DEVICE));
    }
    builder.read(stage);
}

/// One stream stands still with copies behind it, while another goes on with the other half of the same
/// memory.
fn stopped_stream(builder: &mut Builder<'_>, stage: &Stage) {
    let half = (stage.size / 8).max(1) * 4;
    let (low, high) = (|buffer| Region::linear(buffer, 0, half), |buffer| Region::linear(buffer, half, half));
    let (stopped, free) = (stage.streams[0], stage.streams[1]);
    let _ = builder.issue(0, Call::WaitValue { stream: stopped, word: 0 });
    for _ in 0..stage.repetitions.div_ceil(4) {
        builder.generate(stopped, low(DEVICE));
        builder.copy(stopped, low(HOST), low(DEVICE));
        builder.generate(free, high(DEVICE));
        builder.copy(free, high(HOST), high(DEVICE));
        builder.copy(free, high(OTHER_DEVICE), high(HOST));
    }
    let _ = builder.issue(0, Call::Await(Await::Stream(free)));
    let _ = builder.issue(0, Call::Host(Work::HostRead { from: high(HOST) }));
    if builder.scenery.words > 0 {
        let stream = builder.scenery.streams.len() - 1;
        let _ = builder.issue(0, Call::WriteValue { stream, word: 0 });
    }
    builder.join(0, stopped, free);
    builder.copy(free, low(OTHER_HOST), low(DEVICE));
    builder.copy(free, low(HOST), low(DEVICE));
    builder.read(stage);
}

/// Kernels and copies write mapped memory by turns.
fn mapped(builder: &mut Builder<'_>, stage: &Stage) {
    for index in 0..stage.repetitions.min(16) {
        let stream = stage.stream(index / 2);
        builder.generate(stream, stage.whole(DEVICE));
        builder.copy(stream, stage.whole(HOST), stage.whole(DEVICE));
        let constant = builder.rng.u32(..);
        builder.put(stream, Work::Add { to: stage.whole(HOST), constant, delay: 0 });
        let (to, from) = (stage.whole(OTHER_DEVICE), stage.whole(HOST));
        if builder.rng.bool() {
            builder.copy(stream, to, from);
        } else {
            builder.put(stream, Work::Move { to, from, constant, delay: 0 });
        }
        builder.copy(stream, stage.whole(OTHER_HOST), stage.whole(OTHER_DEVICE));
    }
    builder.read(stage);
}

/// What copies take up is overwritten by copies down, once they have taken it.
fn reused_source(builder: &mut Builder<'_>, stage: &Stage) {
    for index in 0..stage.repetitions {
        let (up, down) = (stage.stream(index), stage.stream(index + 1));
        builder.copy(up, stage.whole(OTHER_DEVICE), stage.whole(HOST));
        builder.generate(down, stage.whole(DEVICE));
        builder.join(0, up, down);
        builder.copy(down, stage.whole(HOST), stage.whole(DEVICE));
        if builder.rng.bool() {
            builder.copy(up, stage.whole(OTHER_HOST), stage.whole(OTHER_DEVICE));
        }
    }
    builder.read(stage);
}

/// Copies from one place of the host to another, between copies from the device to both.
fn within_host(builder: &mut Builder<'_>, stage: &Stage) {
    for index in 0..stage.repetitions.min(16) {
        let stream = stage.stream(index / 2);
        builder.generate(stream, stage.whole(DEVICE));
        builder.copy(stream, stage.whole(HOST), stage.whole(DEVICE));
        builder.copy(stream, stage.whole(OTHER_HOST), stage.whole(HOST));
        if builder.rng.bool() {
            builder.generate(stream, stage.whole(DEVICE));
            builder.copy(stream, stage.whole(OTHER_HOST), stage.whole(DEVICE));
        }
    }
    builder.read(stage);
}

/// Synchronous copies after asynchronous ones that touch the same memory of the host.
fn synchronous(builder: &mut Builder<'_>, stage: &Stage) {
    for index in 0..stage.repetitions {
        let stream = stage.stream(index);
        builder.generate(stream, stage.whole(DEVICE));
        builder.copy(stream, stage.whole(HOST), stage.whole(DEVICE));
        let (to, from) = match builder.rng.u32(..3) {
            0 => (HOST, OTHER_DEVICE),
            1 => (OTHER_DEVICE, HOST),
            _ => (OTHER_HOST, DEVICE),
        };
        let work = Work::Copy { to: stage.whole(to), from: stage.whole(from), form: CopyForm::Directed };
        builder.settle(0, Call::Blocking { device: 0, work });
        if to != OTHER_DEVICE {
            let _ = builder.issue(0, Call::Host(Work::HostRead { from: stage.whole(to) }));
        }
    }
    builder.read(stage);
}

/// The legacy default streams of two devices: one device is slow to read what copies bring, while copies from
/// and to the other come and go.
fn default_streams(builder: &mut Builder<'_>, stage: &Stage) {
    let other = builder.scenery.devices - 1;
    for _ in 0..stage.repetitions.min(12) {
        let key = builder.rng.u32(..);
        builder.put(0, Work::Generate { to: stage.whole(DEVICE), key, delay: 300_000 });
        builder.copy(0, stage.whole(DEVICE), stage.whole(HOST));
        for _ in 0..builder.rng.usize(1..=3) {
            builder.copy(other, stage.whole(OTHER_HOST), stage.whole(OTHER_DEVICE));
            builder.copy(other, stage.whole(OTHER_DEVICE), stage.whole(OTHER_HOST));
        }
        builder.copy(0, stage.whole(HOST), stage.whole(DEVICE));
        // So that the next copy to the device need not wait until it may read its source.
        for device in 0..=other {
            let _ = builder.issue(0, Call::Await(Await::Context(device)));
        }
        let work = Work::HostWrite { to: stage.whole(HOST), key: builder.rng.u32(..) };
        builder.settle(0, Call::Host(work));
    }
    builder.read(stage);
}

/// One thread copies in a blocking stream, another in the legacy default stream, each its own bytes: neither
/// may wait for what the other is about to give its stream.
fn two_threads(builder: &mut Builder<'_>, stage: &Stage) {
    for index in 0..stage.repetitions {
        let stream = stage.stream(index / 4);
        let put = |builder: &mut Builder<'_>, thread: usize, stream: usize, work: Work| {
            builder.settle(thread, Call::Enqueue { stream, work });
        };
        let form = CopyForm::Directed;
        let down = |to, from| Work::Copy { to: stage.whole(to), from: stage.whole(from), form };
        put(builder, 0, 0, down(OTHER_HOST, OTHER_DEVICE));
        put(builder, 0, 0, Work::HostRead { from: stage.whole(OTHER_HOST) });
        put(builder, 0, 0, down(OTHER_DEVICE, OTHER_HOST));
        let key = builder.rng.u32(..);
        put(builder, 1, stream, Work::Generate { to: stage.whole(DEVICE), key, delay: 0 });
        put(builder, 1, stream, down(HOST, DEVICE));
        if index % 8 == 7 {
            builder.barrier();
        }
    }
    builder.barrier();
    builder.read(stage);
}
