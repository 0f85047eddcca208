//! Programs that follow no pattern.

use super::builder::Builder;
use super::{Profile, Setting, scenery};
use crate::program::{BufferKind, Call, Program, Region, Work};
use fastrand::Rng;

/// A random program.
pub fn program(seed: u64, setting: &Setting, rng: &mut Rng) -> Program {
    let scenery = scenery::random(seed, setting, rng);
    let most = match setting.profile {
        Profile::Small => 40,
        Profile::Long => 120,
    };
    let length = rng.usize(5..=most);
    let mut maker = Maker { builder: Builder::new(&scenery, rng), recent: Vec::new(), until_release: 0 };
    // What is refused counts too, so that this ends.
    for _ in 0..2 * length {
        if maker.builder.ops.len() >= length {
            break;
        }
        maker.step();
    }
    maker.release();
    maker.builder.finish()
}

struct Maker<'a> {
    builder: Builder<'a>,
    /// Regions in use, which later work takes again.
    recent: Vec<Region>,
    /// Steps until a stream that stands still is released.
    until_release: usize,
}

impl Maker<'_> {
    fn step(&mut self) {
        let thread = self.builder.rng.usize(..self.builder.scenery.threads);
        let streams = self.builder.streams(thread);
        if self.builder.order.is_stopped() {
            self.until_release = self.until_release.saturating_sub(1);
            if self.until_release == 0 {
                return self.release();
            }
        }
        let Some(stream) = self.builder.rng.choice(streams.clone()) else { return self.builder.barrier() };
        match self.builder.rng.u32(..100) {
            0..62 => self.enqueue(thread, stream),
            62..68 => self.blocking_call(thread),
            68..74 => self.host_code(thread),
            74..80 => {
                self.builder.wait_for(thread, stream);
                self.look(thread);
            }
            80..84 => {
                let Some(to) = self.builder.rng.choice(streams) else { return };
                if to != stream {
                    self.builder.join(thread, stream, to);
                }
            }
            84..92 => self.graph(thread, stream),
            92..95 => self.lifetime(thread, stream),
            95 => {
                if streams.len() > 2 {
                    let _ = self.builder.issue(thread, Call::DestroyStream { stream });
                }
            }
            96..98 => self.stop(thread, stream),
            _ => self.builder.barrier(),
        }
    }

    fn alive(&self) -> Vec<usize> {
        let buffers = 0..self.builder.scenery.buffers.len();
        buffers.filter(|&buffer| self.builder.order.is_alive(buffer)).collect()
    }

    fn note(&mut self, work: &Work) {
        self.recent.extend(work.source().into_iter().chain(work.target()));
        let surplus = self.recent.len().saturating_sub(12);
        self.recent.drain(..surplus);
    }

    fn work(&mut self, device: usize) -> Option<Work> {
        let alive = self.alive();
        let work = scenery::work(self.builder.scenery, device, &alive, &self.recent, self.builder.rng)?;
        Some(work)
    }

    fn enqueue(&mut self, thread: usize, stream: usize) {
        let device = self.builder.scenery.streams[stream].device;
        let Some(work) = self.work(device) else { return };
        if self.builder.settle(thread, Call::Enqueue { stream, work: work.clone() }) {
            self.note(&work);
        }
    }

    fn blocking_call(&mut self, thread: usize) {
        let device = self.builder.rng.usize(..self.builder.scenery.devices);
        let Some(work) = self.work(device) else { return };
        let is_foreign = |region: &Region| {
            let buffer = &self.builder.scenery.buffers[region.buffer];
            buffer.kind.is_device() && buffer.device != device
        };
        if work.source().into_iter().chain(work.target()).any(is_foreign) {
            return;
        }
        if self.builder.settle(thread, Call::Blocking { device, work: work.clone() }) {
            self.note(&work);
            self.look(thread);
        }
    }

    fn host_code(&mut self, thread: usize) {
        let host = self.host_buffers();
        let Some(buffer) = self.builder.rng.choice(host) else { return };
        let size = self.builder.scenery.buffers[buffer].size & !3;
        let used: Vec<Region> = self
            .recent
            .iter()
            .copied()
            .filter(|region| region.buffer == buffer && region.is_linear())
            .collect();
        let region = match self.builder.rng.choice(used) {
            Some(region) if self.builder.rng.bool() => region,
            _ => Region::linear(buffer, 0, size),
        };
        let key = self.builder.rng.u32(..);
        let work = if self.builder.rng.bool() {
            Work::HostRead { from: region }
        } else {
            Work::HostWrite { to: region, key }
        };
        if self.builder.settle(thread, Call::Host(work.clone())) {
            self.note(&work);
        }
    }

    fn host_buffers(&self) -> Vec<usize> {
        let is_host = |&buffer: &usize| self.builder.scenery.buffers[buffer].kind.is_host();
        self.alive().into_iter().filter(is_host).collect()
    }

    /// Compares what can be compared now.
    fn look(&mut self, thread: usize) {
        for buffer in self.host_buffers() {
            if self.builder.rng.bool() {
                let whole = Region::linear(buffer, 0, self.builder.scenery.buffers[buffer].size);
                let _ = self.builder.issue(thread, Call::Host(Work::HostRead { from: whole }));
            }
        }
    }

    fn graph(&mut self, thread: usize, stream: usize) {
        let graphs = self.builder.scenery.graphs.len();
        if graphs == 0 {
            return self.enqueue(thread, stream);
        }
        let graph = self.builder.rng.usize(..graphs);
        if !self.builder.order.is_captured(graph)
            && self.builder.issue(thread, Call::Capture { graph }).is_err()
        {
            return;
        }
        for _ in 0..self.builder.rng.usize(1..=3) {
            if !self.builder.settle(thread, Call::Launch { graph, stream }) {
                return;
            }
        }
    }

    fn lifetime(&mut self, thread: usize, stream: usize) {
        let buffers = self.builder.scenery.buffers.len();
        let buffer = self.builder.rng.usize(..buffers);
        let (device, kind) = {
            let made = &self.builder.scenery.buffers[buffer];
            (made.device, made.kind)
        };
        if device != self.builder.scenery.streams[stream].device {
            return;
        }
        if self.builder.order.is_unborn(buffer) {
            let value = self.builder.rng.u32(..);
            self.builder.settle(thread, Call::Allocate { buffer, stream, value });
        } else if !self.builder.scenery.buffers[buffer].initial || kind == BufferKind::Pool {
            self.builder.settle(thread, Call::Release { buffer, stream });
        }
    }

    fn stop(&mut self, thread: usize, stream: usize) {
        for word in 0..self.builder.scenery.words {
            if self.builder.issue(thread, Call::WaitValue { stream, word }).is_ok() {
                self.until_release = self.builder.rng.usize(2..=8);
                return;
            }
        }
    }

    /// Releases a stream that stands still. The last stream of the program has no other work, so that it can.
    fn release(&mut self) {
        let stream = self.builder.scenery.streams.len() - 1;
        for word in 0..self.builder.scenery.words {
            if self.builder.order.is_stopped() {
                let _ = self.builder.issue(0, Call::WriteValue { stream, word });
            }
        }
    }
}
