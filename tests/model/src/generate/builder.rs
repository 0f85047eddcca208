//! Issues operations, and puts in order what is not yet.

use crate::order::{HappensBefore, Refusal};
use crate::program::{Await, Call, Op, Program, StreamKind};
use fastrand::Rng;

/// A program in the making.
pub struct Builder<'a> {
    /// Its buffers, streams, events and graphs.
    pub scenery: &'a Program,
    /// The order of what was issued.
    pub order: HappensBefore<'a>,
    /// What was issued.
    pub ops: Vec<Op>,
    /// Chance.
    pub rng: &'a mut Rng,
    /// The thread that uses each stream until the next barrier.
    owners: Vec<usize>,
    next_event: usize,
}

impl<'a> Builder<'a> {
    /// Starts a program.
    pub fn new(scenery: &'a Program, rng: &'a mut Rng) -> Self {
        let order = HappensBefore::new(scenery);
        let mut builder = Self { scenery, order, ops: Vec::new(), rng, owners: Vec::new(), next_event: 0 };
        builder.share_out();
        builder
    }

    /// The program.
    pub fn finish(self) -> Program {
        Program { ops: self.ops, ..self.scenery.clone() }
    }

    /// Issues a call if it is in order.
    pub fn issue(&mut self, thread: usize, call: Call) -> Result<(), Refusal> {
        let op = Op { thread, call };
        self.order.push(&op)?;
        self.ops.push(op);
        Ok(())
    }

    /// Issues a call after what it takes to be in order, and says whether that went well.
    pub fn settle(&mut self, thread: usize, call: Call) -> bool {
        for _ in 0..8 {
            match self.issue(thread, call.clone()) {
                Ok(()) => return true,
                Err(Refusal::Race(missing)) => self.put_in_order(thread, &call, &missing),
                Err(Refusal::Managed(_)) => {
                    for device in 0..self.scenery.devices {
                        let _ = self.issue(thread, Call::Await(Await::Context(device)));
                    }
                }
                Err(Refusal::Deadlock | Refusal::Shared | Refusal::Invalid(_)) => return false,
            }
        }
        false
    }

    /// A barrier; after it other threads may use other streams.
    pub fn barrier(&mut self) {
        if self.scenery.threads > 1 && !matches!(self.ops.last(), Some(Op { call: Call::Barrier, .. }) | None)
        {
            let _ = self.issue(0, Call::Barrier);
            self.share_out();
        }
    }

    fn share_out(&mut self) {
        let threads = self.scenery.threads;
        let owner = |stream: &crate::program::Stream| match stream.kind {
            StreamKind::PerThread(thread) => thread,
            _ => self.rng.usize(..threads),
        };
        self.owners = self.scenery.streams.iter().map(owner).collect();
    }

    /// The streams that a thread uses.
    pub fn streams(&self, thread: usize) -> Vec<usize> {
        let all = self.scenery.streams.len();
        // The last stream of a program with words releases the others.
        let usable = if self.scenery.words > 0 { all - 1 } else { all };
        (0..usable).filter(|&stream| self.owners[stream] == thread && self.order.has_stream(stream)).collect()
    }

    /// An event of a device, each in its turn, among those that no other thread uses now.
    pub fn event(&mut self, thread: usize, device: usize) -> Option<usize> {
        let threads = self.scenery.threads;
        let fits =
            |(index, of): &(usize, &usize)| **of == device && (threads == 1 || index % threads == thread);
        let events: Vec<usize> =
            self.scenery.events.iter().enumerate().filter(fits).map(|(index, _)| index).collect();
        self.next_event += 1;
        (!events.is_empty()).then(|| events[self.next_event % events.len()])
    }

    /// Makes one stream wait for another.
    pub fn join(&mut self, thread: usize, from: usize, to: usize) -> bool {
        let Some(event) = self.event(thread, self.scenery.streams[from].device) else { return false };
        self.issue(thread, Call::Record { event, stream: from }).is_ok()
            && self.issue(thread, Call::WaitEvent { stream: to, event }).is_ok()
    }

    /// Makes a thread wait for a stream, in one of many ways.
    pub fn wait_for(&mut self, thread: usize, stream: usize) -> bool {
        let device = self.scenery.streams[stream].device;
        let is_blocking = self.scenery.streams[stream].kind != StreamKind::NonBlocking;
        let what = match self.rng.u32(..8) {
            0 => Await::Context(device),
            1 => Await::StreamQueries(stream),
            2..5 => {
                let Some(event) = self.event(thread, device) else { return false };
                let through = if is_blocking && self.rng.bool() { device } else { stream };
                if self.issue(thread, Call::Record { event, stream: through }).is_err() {
                    return false;
                }
                if self.rng.bool() { Await::Event(event) } else { Await::EventQueries(event) }
            }
            _ => Await::Stream(stream),
        };
        self.issue(thread, Call::Await(what)).is_ok()
    }

    /// Takes a step towards the order of a call and what it must come after.
    fn put_in_order(&mut self, thread: usize, call: &Call, missing: &[usize]) {
        let Some(&last) = missing.last() else { return };
        if self.order.is_foreign(last, thread) {
            self.barrier();
            return;
        }
        let Some(stream) = self.order.actions()[last].stream else { return };
        let own = match call {
            Call::Enqueue { stream, .. } | Call::Launch { stream, .. } | Call::Allocate { stream, .. } => {
                Some(*stream)
            }
            Call::Blocking { device, .. } => Some(*device),
            _ => None,
        };
        let is_mine = self.owners[stream] == thread && self.order.has_stream(stream);
        match own {
            Some(own) if is_mine && own != stream && self.rng.u32(..10) < 7 => {
                self.join(thread, stream, own);
            }
            _ if is_mine => {
                self.wait_for(thread, stream);
            }
            _ => {
                let device = self.scenery.streams[stream].device;
                let _ = self.issue(thread, Call::Await(Await::Context(device)));
            }
        }
    }
}
