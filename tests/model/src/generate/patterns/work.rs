//! Copies between work of other kinds: graphs, host functions, kernels on mapped memory.

use super::super::builder::Builder;
use super::stage::{DEVICE, HOST, OTHER_DEVICE, OTHER_HOST, SPARE_DEVICE, SPARE_HOST, Stage};
use crate::program::{Call, CopyForm, GraphPlan, Region, Step, Work};
use fastrand::Rng;

/// A kernel, a copy down, and a copy up of the same bytes, with a host function between them now and then; or
/// work of the device alone.
pub fn round_graph(size: usize, rng: &mut Rng) -> GraphPlan {
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
pub fn graph_rounds(builder: &mut Builder<'_>, stage: &Stage) {
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

/// Host functions read and write what copies bring and take.
pub fn host_functions(builder: &mut Builder<'_>, stage: &Stage) {
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

/// Kernels and copies write mapped memory by turns.
pub fn mapped(builder: &mut Builder<'_>, stage: &Stage) {
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
