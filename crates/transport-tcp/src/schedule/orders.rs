//! Transfer queue of the lane scheduler: priorities, and the progress of each transfer.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;

use causeway_wire::chunk::ChunkHeader;

use super::error::LaneError;
use causeway_pipeline::chunk_bytes;
use causeway_transport::{Address, BufferGuard, OutgoingTransfer, TransferOptions};

/// The number of a transfer in the schedule.
pub(crate) type OrderId = u64;

/// A chunk of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Chunk {
    pub(super) order: OrderId,
    /// What is sent to the peer about it.
    pub header: ChunkHeader,
    /// Where its bytes are.
    pub start: Address,
    /// Whether they stay as they are until the peer has them.
    pub steady: bool,
}

struct Progress {
    order: OutgoingTransfer,
    /// Bytes of a chunk.
    chunk: usize,
    /// Where the first chunk begins that nobody has taken.
    next: usize,
    /// Whether any chunk was taken: an empty transfer is one empty chunk.
    started: bool,
    /// Chunks that have to be sent again.
    again: Vec<Range<usize>>,
    /// Chunks that are being sent; the memory is in use while there are any.
    in_flight: usize,
    /// Chunks that were taken and of which the peer has not said that it has them.
    unconfirmed: usize,
    /// Whether the memory has been released.
    released: bool,
}

impl Progress {
    fn has_work(&self) -> bool {
        !self.started || self.next < self.order.length || !self.again.is_empty()
    }

    fn is_consumed(&self) -> bool {
        !self.has_work() && self.in_flight == 0
    }

    fn take(&mut self) -> Range<usize> {
        let range = self.again.pop().unwrap_or_else(|| {
            let end = self.order.length.min(self.next + self.chunk);
            let range = self.next..end;
            self.next = end;
            range
        });
        self.started = true;
        self.in_flight += 1;
        self.unconfirmed += 1;
        range
    }
}

/// The transfer whose turn it is.
pub(super) struct Next {
    id: OrderId,
    /// The place of its flow.
    flow: usize,
    /// How many lanes it may have.
    pub lanes: usize,
    /// Whether its memory stays as it is until the peer has it.
    pub steady: bool,
}

struct FlowQueue {
    id: u64,
    /// Transfers that have chunks to take.
    orders: VecDeque<OrderId>,
}

/// The transfers that are not over.
#[derive(Default)]
pub(super) struct Orders {
    known: HashMap<OrderId, Progress>,
    flows: VecDeque<FlowQueue>,
    next: OrderId,
    /// Guards of transfers that are over, to be dropped where no lock is held.
    finished: Vec<BufferGuard>,
    /// Whether a transfer came a stage further since somebody asked.
    has_progress: bool,
    /// Whether the memory of every transfer, not of steady ones alone, is kept until the peer has the bytes.
    is_repeatable: bool,
}

impl Orders {
    /// The memory of every transfer is kept until the peer has the bytes.
    pub fn repeatable() -> Self {
        Self { is_repeatable: true, ..Self::default() }
    }

    /// Puts a transfer behind the others of its flow; there are `live` lanes.
    pub fn post(&mut self, order: OutgoingTransfer, live: usize) -> (OrderId, bool) {
        let (id, flow) = (self.next, order.options.flow);
        self.next += 1;
        let lanes = order.options.lanes.min(live.max(1));
        let progress = Progress {
            chunk: chunk_bytes(order.length, lanes, order.options.spread),
            order,
            next: 0,
            started: false,
            again: Vec::new(),
            in_flight: 0,
            unconfirmed: 0,
            released: false,
        };
        let is_short = progress.order.length <= progress.chunk;
        self.known.insert(id, progress);
        self.enqueue(flow, id);
        (id, is_short)
    }

    fn enqueue(&mut self, flow: u64, order: OrderId) {
        match self.flows.iter_mut().find(|known| known.id == flow) {
            Some(known) => known.orders.push_back(order),
            None => self.flows.push_back(FlowQueue { id: flow, orders: VecDeque::from([order]) }),
        }
    }

    /// The next chunk of a transfer whose turn it is, with its place in the transfer.
    pub fn take(&mut self, next: Next) -> Option<(Chunk, Range<usize>)> {
        let Next { id, flow, .. } = next;
        let chosen = self.known.get_mut(&id)?;
        let range = chosen.take();
        let OutgoingTransfer { transfer, start, length, options, .. } = chosen.order;
        let header = ChunkHeader {
            transfer,
            offset: range.start as u64,
            total: length as u64,
            length: range.len() as u32,
        };
        let start = Address(start.0.wrapping_add(range.start));
        self.requeue(flow, id);
        Some((Chunk { order: id, header, start, steady: options.steady }, range))
    }

    /// The transfer whose turn it is; `only` that one if one is named.
    pub fn next(&self, only: Option<OrderId>) -> Option<Next> {
        let next = |flow: usize, id: OrderId| {
            let known = self.known.get(&id).filter(|_| only.is_none_or(|only| only == id))?;
            let TransferOptions { lanes, steady, .. } = known.order.options;
            let lanes = lanes.max(1);
            (known.in_flight < lanes).then_some(Next { id, flow, lanes, steady })
        };
        let mut flows = self.flows.iter().enumerate();
        flows.find_map(|(at, flow)| flow.orders.iter().find_map(|id| next(at, *id)))
    }

    /// Sends a flow to the end of the queue after a chunk of `order` was taken, without transfers that have
    /// no more.
    fn requeue(&mut self, flow: usize, order: OrderId) {
        let Some(mut flow) = self.flows.remove(flow) else { return };
        if !self.known[&order].has_work() {
            flow.orders.retain(|other| *other != order);
        }
        if !flow.orders.is_empty() {
            self.flows.push_back(flow);
        }
    }

    /// A chunk is not being sent any more.
    pub fn sent(&mut self, order: OrderId) {
        if let Some(known) = self.known.get_mut(&order) {
            known.in_flight -= 1;
            self.has_progress |= known.is_consumed();
            self.complete(order);
        }
    }

    /// The peer has a chunk.
    pub fn arrived(&mut self, order: OrderId) {
        if let Some(known) = self.known.get_mut(&order) {
            known.unconfirmed -= 1;
            self.has_progress |= known.unconfirmed == 0;
            self.complete(order);
        }
    }

    /// A chunk never arrives, and has to be sent again.
    pub fn lost(&mut self, order: OrderId, range: Range<usize>) -> Result<(), LaneError> {
        let Some(known) = self.known.get_mut(&order) else { return Ok(()) };
        if known.released {
            return Err(LaneError::Unrepeatable);
        }
        let (flow, idle) = (known.order.options.flow, !known.has_work());
        known.unconfirmed -= 1;
        known.again.push(range);
        if idle {
            self.enqueue(flow, order);
        }
        Ok(())
    }

    pub fn is_consumed(&self, order: OrderId) -> bool {
        self.known.get(&order).is_none_or(Progress::is_consumed)
    }

    /// Whether the memory of a transfer may still be read: of a steady one by the kernel, of a repeatable one
    /// to send it again, until the peer has everything.
    pub fn is_read(&self, order: OrderId) -> bool {
        let is_retained = |known: &Progress| self.is_repeatable || known.order.options.steady;
        self.known.get(&order).is_some_and(|known| is_retained(known) && known.unconfirmed > 0)
    }

    pub fn is_in_flight(&self, order: OrderId) -> bool {
        self.known.get(&order).is_some_and(|known| known.in_flight > 0)
    }

    pub fn release(&mut self, order: OrderId) {
        if let Some(known) = self.known.get_mut(&order) {
            debug_assert!(known.is_consumed());
            known.released = true;
            known.order.guard = None;
        }
    }

    /// Forgets a transfer that is over.
    fn complete(&mut self, id: OrderId) {
        let over = |known: &mut Progress| known.is_consumed() && known.unconfirmed == 0;
        if self.known.get_mut(&id).is_some_and(over)
            && let Some(known) = self.known.remove(&id)
        {
            self.finished.extend(known.order.guard);
        }
    }

    pub fn end(&mut self) {
        self.flows.clear();
        let idle: Vec<_> =
            self.known.iter().filter(|(_, known)| known.in_flight == 0).map(|(id, _)| *id).collect();
        for id in idle {
            let known = self.known.remove(&id);
            self.finished.extend(known.and_then(|known| known.order.guard));
        }
    }

    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    pub fn note_progress(&mut self) {
        self.has_progress = true;
    }

    pub fn take_progress(&mut self) -> bool {
        core::mem::take(&mut self.has_progress)
    }

    pub fn take_finished(&mut self) -> Vec<BufferGuard> {
        core::mem::take(&mut self.finished)
    }
}
