//! Copies that touch the same bytes of the host again and again.

use super::super::builder::Builder;
use super::stage::{DEVICE, HOST, OTHER_DEVICE, OTHER_HOST, Stage};
use crate::program::{Region, Work};

/// A kernel fills, a copy brings it to the same place; one wait at the end.
pub fn repeat_down(builder: &mut Builder<'_>, stage: &Stage) {
    let used = builder.rng.usize(1..=stage.streams.len());
    for index in 0..stage.repetitions {
        let stream = stage.streams[index % used];
        builder.generate(stream, stage.whole(DEVICE));
        builder.copy(stream, stage.whole(HOST), stage.whole(DEVICE));
    }
    builder.read(stage);
}

/// Two streams copy to one place by turns, from buffers of their own.
pub fn turns(builder: &mut Builder<'_>, stage: &Stage) {
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
pub fn rows_down(builder: &mut Builder<'_>, stage: &Stage) {
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
pub fn shifting_down(builder: &mut Builder<'_>, stage: &Stage) {
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

/// Down to the host, and up again from there in another stream.
pub fn round_trip(builder: &mut Builder<'_>, stage: &Stage) {
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

/// What copies take up is overwritten by copies down, once they have taken it.
pub fn reused_source(builder: &mut Builder<'_>, stage: &Stage) {
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
pub fn within_host(builder: &mut Builder<'_>, stage: &Stage) {
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
