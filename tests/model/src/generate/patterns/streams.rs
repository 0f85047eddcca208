//! Streams whose order is easily lost: default streams, stopped and destroyed ones, several threads.

use super::super::builder::Builder;
use super::stage::{DEVICE, HOST, OTHER_DEVICE, OTHER_HOST, Stage};
use crate::program::{Await, Call, CopyForm, Region, StreamKind, Work};

/// Streams in order only through work in the legacy default stream.
pub fn legacy(builder: &mut Builder<'_>, stage: &Stage) {
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

/// Work of a stream that has been destroyed still comes before what follows its event, what came to the
/// legacy default stream before, and what a wait for the context ends.
pub fn destroyed_stream(builder: &mut Builder<'_>, stage: &Stage) {
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

/// One stream stands still with copies behind it, while another goes on with the other half of the same
/// memory.
pub fn stopped_stream(builder: &mut Builder<'_>, stage: &Stage) {
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

/// Synchronous copies after asynchronous ones that touch the same memory of the host.
pub fn synchronous(builder: &mut Builder<'_>, stage: &Stage) {
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
pub fn default_streams(builder: &mut Builder<'_>, stage: &Stage) {
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
pub fn two_threads(builder: &mut Builder<'_>, stage: &Stage) {
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
