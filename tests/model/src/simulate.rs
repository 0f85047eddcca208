//! A CUDA machine made of queues, which does what it may do in any order that chance gives it.
//!
//! It knows nothing of [`crate::order`]'s sets: streams, events, the legacy default stream and threads are
//! what they are in a driver. A program that gives the same under many schedules, and what the model says, is
//! free of races.

mod tests;

use crate::interpret::{Expected, Memory};
use crate::order::{Effect, HappensBefore};
use crate::program::{Await, BufferKind, Call, Program, Step, StreamKind, Work};
use fastrand::Rng;

/// Something in a queue.
struct Item {
    /// Items that are done before.
    after: Vec<usize>,
    what: What,
    is_done: bool,
}

enum What {
    /// Nothing; others are ordered by it.
    Mark,
    /// An action of the program.
    Act(usize),
    /// A copy to the host whose bytes arrive late: the fault that is looked for.
    Land(usize, Vec<u8>),
    WaitValue(usize),
    WriteValue(usize),
}

/// How a simulation ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Result {
    Right,
    Wrong,
    Hung,
}

/// The machine.
pub struct Simulation<'a> {
    program: &'a Program,
    order: &'a HappensBefore<'a>,
    expected: &'a Expected,
    memory: Memory,
    items: Vec<Item>,
    last: Vec<Option<usize>>,
    legacy_work: Vec<Option<usize>>,
    destroyed: Vec<bool>,
    events: Vec<Vec<usize>>,
    graphs: Vec<Option<usize>>,
    words: Vec<bool>,
    /// For each thread: its next operation, and what it waits for.
    threads: Vec<(usize, Vec<usize>)>,
    /// Whether copies to the host arrive in any order.
    lands_late: bool,
    is_wrong: bool,
}

impl<'a> Simulation<'a> {
    pub fn new(
        program: &'a Program,
        order: &'a HappensBefore<'a>,
        expected: &'a Expected,
        lands_late: bool,
    ) -> Self {
        Self {
            program,
            order,
            expected,
            memory: Memory::new(program),
            items: Vec::new(),
            last: vec![None; program.streams.len()],
            legacy_work: vec![None; program.devices],
            destroyed: vec![false; program.streams.len()],
            events: vec![Vec::new(); program.events.len()],
            graphs: vec![None; program.graphs.len()],
            words: vec![false; program.words],
            threads: vec![(0, Vec::new()); program.threads],
            lands_late,
            is_wrong: false,
        }
    }

    pub fn run(mut self, rng: &mut Rng) -> Result {
        // Some schedules let the threads run ahead, some the streams.
        let eagerness = rng.u32(1..10);
        loop {
            let threads: Vec<usize> =
                (0..self.threads.len()).filter(|&thread| self.can_step(thread)).collect();
            let items: Vec<usize> = (0..self.items.len()).filter(|&item| self.can_do(item)).collect();
            if !threads.is_empty() && (items.is_empty() || rng.u32(..10) < eagerness) {
                let thread = threads[rng.usize(..threads.len())];
                self.step(thread);
            } else if !items.is_empty() {
                let item = items[rng.usize(..items.len())];
                self.act(item);
            } else {
                break;
            }
        }
        let is_over =
            self.threads.iter().all(|(next, waits)| *next == self.program.ops.len() && waits.is_empty());
        if !is_over || self.items.iter().any(|item| !item.is_done) {
            Result::Hung
        } else if self.is_wrong || self.memory.buffers != self.expected.buffers {
            Result::Wrong
        } else {
            Result::Right
        }
    }

    fn all_done(&self, items: &[usize]) -> bool {
        items.iter().all(|&item| self.items[item].is_done)
    }

    fn can_step(&self, thread: usize) -> bool {
        let (next, waits) = &self.threads[thread];
        let landed = || self.items.iter().all(|item| item.is_done || !matches!(item.what, What::Land(..)));
        if !(waits.is_empty() || self.all_done(waits) && landed()) {
            return false;
        }
        match self.program.ops.get(*next) {
            None => !waits.is_empty(),
            Some(op) if matches!(op.call, Call::Barrier) => self.threads.iter().all(|(other, waits)| {
                other > next || other == next && (waits.is_empty() || self.all_done(waits) && landed())
            }),
            Some(_) => true,
        }
    }

    fn can_do(&self, item: usize) -> bool {
        let Item { after, what, is_done } = &self.items[item];
        !is_done && self.all_done(after) && !matches!(what, What::WaitValue(word) if !self.words[*word])
    }

    fn act(&mut self, item: usize) {
        self.items[item].is_done = true;
        match self.items[item].what {
            What::Mark | What::WaitValue(_) => {}
            What::WriteValue(word) => self.words[word] = true,
            What::Act(action) => self.effect(action),
            What::Land(action, ref bytes) => {
                if let Effect::Work(Work::Copy { to, .. }) = &self.order.actions()[action].effect {
                    self.memory.store(to, bytes);
                }
            }
        }
    }

    fn effect(&mut self, number: usize) {
        let action = &self.order.actions()[number];
        if let Effect::Work(Work::Copy { to, from, .. }) = &action.effect {
            let kind = |region: &crate::program::Region| self.program.buffers[region.buffer].kind;
            if self.lands_late && kind(to).is_host() && kind(from).is_device() {
                let what = What::Land(number, self.memory.load(from));
                self.items.push(Item { after: Vec::new(), what, is_done: false });
                return;
            }
        }
        let read = self.memory.act(self.program, number, action);
        self.is_wrong |= read.as_deref() != self.expected.reads[number].as_deref();
    }

    fn step(&mut self, thread: usize) {
        self.threads[thread].1.clear();
        let next = self.threads[thread].0;
        if let Some(op) = self.program.ops.get(next) {
            self.threads[thread].0 += 1;
            if op.thread == thread && !matches!(op.call, Call::Barrier) {
                self.threads[thread].1 = self.call(next, &op.call);
            }
        }
    }

    /// Puts an item at the end of a stream.
    fn put(&mut self, stream: usize, what: What, also: &[usize]) -> usize {
        let mut after = self.before(stream);
        after.extend(also);
        self.items.push(Item { after, what, is_done: false });
        let item = self.items.len() - 1;
        self.last[stream] = Some(item);
        if self.program.streams[stream].kind == StreamKind::Legacy {
            self.legacy_work[self.program.streams[stream].device] = Some(item);
        }
        item
    }

    fn before(&self, stream: usize) -> Vec<usize> {
        let mut before = self.end(stream);
        let state = &self.program.streams[stream];
        if state.kind != StreamKind::NonBlocking {
            before.extend(self.legacy_work[state.device]);
        }
        before
    }

    fn end(&self, stream: usize) -> Vec<usize> {
        let mut end: Vec<usize> = self.last[stream].into_iter().collect();
        if self.program.streams[stream].kind == StreamKind::Legacy {
            for (other, state) in self.program.streams.iter().enumerate() {
                let is_blocking = state.kind != StreamKind::NonBlocking && !self.destroyed[other];
                if is_blocking && state.device == self.program.streams[stream].device {
                    end.extend(self.last[other]);
                }
            }
        }
        end
    }

    /// The actions of an operation.
    fn actions(&self, op: usize) -> Vec<usize> {
        let actions = self.order.actions().iter().enumerate();
        actions.filter(|(_, action)| action.op == op).map(|(number, _)| number).collect()
    }

    /// Work of a stream, whose last action is the stream's; one before it is the calling thread's.
    fn work(&mut self, op: usize, stream: usize) -> usize {
        let actions = self.actions(op);
        if let [stage, _] = actions[..] {
            self.effect(stage);
        }
        self.put(stream, What::Act(actions[actions.len() - 1]), &[])
    }

    /// Issues a call, and gives what the thread then waits for.
    fn call(&mut self, op: usize, call: &Call) -> Vec<usize> {
        let kind = |region: &crate::program::Region| self.program.buffers[region.buffer].kind;
        match call {
            Call::Enqueue { stream, work } => {
                let item = self.work(op, *stream);
                let to_pageable = matches!(work, Work::Copy { to, .. } if kind(to) == BufferKind::Pageable);
                return if to_pageable { vec![item] } else { Vec::new() };
            }
            Call::Blocking { device, work } => {
                let item = self.work(op, *device);
                if let Work::Copy { to, from, .. } = work
                    && (kind(to).is_locked()
                        || kind(to) == BufferKind::Pageable
                        || (kind(from).is_locked() && self.program.uploads_wait))
                {
                    return vec![item];
                }
            }
            Call::Host(_) => self.effect(self.actions(op)[0]),
            Call::Record { event, stream } => self.events[*event] = self.end(*stream),
            Call::WaitEvent { stream, event } => {
                let mut after = self.events[*event].clone();
                after.extend(self.last[*stream]);
                self.items.push(Item { after, what: What::Mark, is_done: false });
                self.last[*stream] = Some(self.items.len() - 1);
            }
            Call::Await(Await::Stream(stream) | Await::StreamQueries(stream)) => {
                return self.last[*stream].into_iter().collect();
            }
            Call::Await(Await::Event(event) | Await::EventQueries(event)) => {
                return self.events[*event].clone();
            }
            Call::Await(Await::Context(device)) => {
                let streams = self.program.streams.iter().zip(&self.last);
                return streams
                    .filter(|(state, _)| state.device == *device)
                    .filter_map(|(_, last)| *last)
                    .collect();
            }
            Call::Launch { graph, stream } => self.launch(op, *graph, *stream),
            Call::Allocate { buffer, stream, .. } => {
                if self.program.buffers[*buffer].kind.is_device() {
                    self.work(op, *stream);
                } else {
                    self.effect(self.actions(op)[0]);
                }
            }
            Call::Release { buffer, stream } => {
                if self.program.buffers[*buffer].kind == BufferKind::Pool {
                    self.work(op, *stream);
                } else {
                    self.effect(self.actions(op)[0]);
                }
            }
            Call::DestroyStream { stream } => self.destroyed[*stream] = true,
            Call::WaitValue { stream, word } => drop(self.put(*stream, What::WaitValue(*word), &[])),
            Call::WriteValue { stream, word } => drop(self.put(*stream, What::WriteValue(*word), &[])),
            Call::Capture { .. } | Call::Barrier => {}
        }
        Vec::new()
    }

    fn launch(&mut self, op: usize, graph: usize, stream: usize) {
        let plan = &self.program.graphs[graph];
        let mut base = self.before(stream);
        base.extend(self.graphs[graph]);
        let mut lanes = vec![base; plan.lanes];
        for number in self.actions(op) {
            // Joins before the action.
            let part = self.order.actions()[number].part;
            let first = plan.steps[..part].iter().rposition(|step| matches!(step, Step::Work { .. }));
            for step in &plan.steps[first.map_or(0, |first| first + 1)..part] {
                if let Step::Join { from, to } = step {
                    let more = lanes[*from].clone();
                    lanes[*to].extend(more);
                }
            }
            let Step::Work { lane, .. } = plan.steps[part] else { continue };
            let after = lanes[lane].clone();
            self.items.push(Item { after, what: What::Act(number), is_done: false });
            lanes[lane] = vec![self.items.len() - 1];
        }
        let end = self.put(stream, What::Mark, &lanes.concat());
        self.graphs[graph] = Some(end);
    }
}
