//! Stage of a pattern: the memory and streams that all patterns use.

use super::super::builder::Builder;
use crate::program::{Call, CopyForm, Region, Work};

/// The buffers of a pattern: two of a device, then two of the host (a mapped one among them for that
/// pattern).
pub const DEVICE: usize = 0;
pub const OTHER_DEVICE: usize = 1;
pub const HOST: usize = 2;
pub const OTHER_HOST: usize = 3;
/// One more of the device and one of the host, for patterns that say so.
pub const SPARE_DEVICE: usize = 4;
pub const SPARE_HOST: usize = 5;

/// What a pattern plays with.
pub struct Stage {
    pub streams: Vec<usize>,
    /// The common size of all buffers, a multiple of 4.
    pub size: usize,
    pub repetitions: usize,
}

impl Stage {
    pub fn whole(&self, buffer: usize) -> Region {
        Region::linear(buffer, 0, self.size)
    }

    pub fn stream(&self, index: usize) -> usize {
        self.streams[index % self.streams.len()]
    }
}

impl Builder<'_> {
    /// Work in a stream, after all that it must come after.
    pub fn put(&mut self, stream: usize, work: Work) {
        self.settle(0, Call::Enqueue { stream, work });
    }

    pub fn generate(&mut self, stream: usize, to: Region) {
        let key = self.rng.u32(..);
        let delay = if self.rng.u32(..8) == 0 { 20_000 } else { 0 };
        self.put(stream, Work::Generate { to, key, delay });
    }

    pub fn copy(&mut self, stream: usize, to: Region, from: Region) {
        let form = if !to.is_linear() {
            CopyForm::Rows
        } else if self.rng.u32(..3) == 0 {
            CopyForm::Unified
        } else {
            CopyForm::Directed
        };
        self.put(stream, Work::Copy { to, from, form });
    }

    pub fn read(&mut self, stage: &Stage) {
        for buffer in [HOST, OTHER_HOST] {
            self.settle(0, Call::Host(Work::HostRead { from: stage.whole(buffer) }));
        }
    }

    /// The device buffer of a stream's device.
    pub fn buffer_of(&self, stream: usize) -> usize {
        if self.scenery.streams[stream].device == 0 { DEVICE } else { OTHER_DEVICE }
    }
}
