//! Lane scheduler: which lane sends what next, and retransmission when a lane has died.
//!
//! Transfers wait in *flows*, one for each stream or thread that they belong to. Whoever can send asks for a
//! free lane and the next thing to put on it, so that lanes go from one transfer to the next without a pause.
//! Flows take turns chunk by chunk; within a flow transfers begin in order.
//!
//! Both ends count the chunks that come whole on each lane. The counts travel back now and then
//! (*acknowledgement*), those of all lanes on whichever is free so that few threads have to wake for them,
//! and once more when a lane has ended (*report*): what was sent behind that many chunks never arrived,
//! exactly that is sent again, and so no byte is lost and none written twice. It takes memory that is still
//! as it was; a transfer whose memory has been released cannot be repaired, and the link is lost.
//!
//! Nothing here touches a socket, a clock or the memory of a transfer.
//!
//! | module | contents |
//! | --- | --- |
//! | `orders` | Transfer queue of the lane scheduler: priorities, and the progress of each transfer |
//! | `error` | Errors of lanes that end the link |
//! | `in_flight_chunks` | Chunks in flight by lane, and acknowledgements |

mod error;
mod in_flight_chunks;
mod orders;
#[cfg(test)]
mod tests;

use causeway_transport::{BufferGuard, OutgoingTransfer};
use causeway_wire::chunk::LaneRecord;

use in_flight_chunks::{InFlightChunks, Part};
use orders::Orders;

pub use error::LaneError;
pub(super) use orders::{Chunk, OrderId};

/// Something to put on a lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Task {
    /// The lane, which is busy until [`Schedule::sent`].
    pub lane: usize,
    /// What must be sent to the peer; it goes out first.
    pub records: Vec<LaneRecord>,
    /// What follows.
    pub chunk: Option<Chunk>,
}

#[derive(Default)]
pub(super) struct Schedule {
    in_flight: InFlightChunks,
    orders: Orders,
}

impl Schedule {
    /// Of a link that goes on when all its lanes have died: the memory of every transfer stays as it is until the peer
    /// has the bytes, so that they can be sent again.
    pub fn resumable() -> Self {
        Self { orders: Orders::repeatable(), ..Self::default() }
    }

    /// Of a resumable link that was another process's before.
    pub fn taken_up() -> Self {
        Self { in_flight: InFlightChunks::taken_up(), ..Self::resumable() }
    }

    /// How many lanes have been added since the link began.
    pub fn lanes_ever(&self) -> usize {
        self.in_flight.lanes_ever()
    }

    /// Whether a lane has its number.
    pub fn is_numbered(&self, lane: usize) -> bool {
        self.in_flight.is_numbered(lane)
    }

    /// Adds a lane. Without a number it carries nothing until the peer has given it one. One that `refers`
    /// takes references to steady memory as fast as they are given: it joins two processes of one host, and
    /// copies nothing.
    pub fn add_lane(&mut self, number: Option<u32>, refers: bool) -> usize {
        self.in_flight.add(number, refers)
    }

    /// The peer has numbered a lane. Whether it can be used: not when it ended for the peer before its number
    /// came, and the peer has been answered that nothing came over it.
    pub fn number(&mut self, lane: usize, number: u32, max_in_flight: u32) -> Result<bool, LaneError> {
        self.in_flight.number(lane, number, max_in_flight)
    }

    /// Lanes that things can be sent on.
    pub fn live(&self) -> usize {
        self.in_flight.live()
    }

    /// Puts a transfer behind the others of its flow. Its number here, and whether it is a single chunk.
    pub fn post(&mut self, order: OutgoingTransfer) -> (OrderId, bool) {
        self.orders.post(order, self.live())
    }

    /// What a free lane can do now: what the lanes have to tell each other, and the next chunk, of `only`
    /// that transfer if one is named.
    pub fn take(&mut self, only: Option<OrderId>) -> Option<Task> {
        let task = self.choose(only)?;
        self.in_flight.begin(task.lane);
        Some(task)
    }

    /// What shows the peer that this end is there, on a free lane that has carried nothing since this was last asked
    /// of it: how many chunks have come over the lane, whether or not that is news. Done with, too, by
    /// [`sent`](Self::sent).
    pub fn take_keepalive(&mut self, lane: usize) -> Option<Task> {
        let record = self.in_flight.take_keepalive(lane)?;
        self.in_flight.begin(lane);
        Some(Task { lane, records: vec![record], chunk: None })
    }

    fn choose(&mut self, only: Option<OrderId>) -> Option<Task> {
        if let Some((lane, number)) = self.in_flight.take_new() {
            return Some(Task { lane, records: vec![LaneRecord::Number(number)], chunk: None });
        }
        let next = self.orders.next(only);
        let lane = self.in_flight.free(next.as_ref().map_or(1, |next| next.lanes))?;
        let records = self.in_flight.take_records();
        let chunk = next.and_then(|next| self.orders.take(next)).map(|(chunk, range)| {
            self.in_flight.put(lane, (chunk.order, range));
            chunk
        });
        (!records.is_empty() || chunk.is_some()).then_some(Task { lane, records, chunk })
    }

    /// Whether [`take`](Self::take) would give something.
    pub fn has_task(&self) -> bool {
        self.in_flight.has_free() && (self.in_flight.has_records() || self.orders.next(None).is_some())
    }

    /// Whether a transfer has something to send.
    pub fn has_order(&self) -> bool {
        self.orders.next(None).is_some()
    }

    /// How many threads may send what is next. Across a network each lane needs one, which waits for room on
    /// it. Within a host a reference is put on a lane in a fifth of the time in which the peer copies what it
    /// refers to, so half as many serve all, and leave cores to those that copy (16 cores, 2026-11-22).
    pub fn senders(&self) -> usize {
        let lanes = self.live();
        let only_refers =
            self.in_flight.only_refers() && self.orders.next(None).is_some_and(|next| next.steady);
        if only_refers { lanes.div_ceil(2) } else { lanes }
    }

    /// Whether a transfer came a stage further since this was last asked: nobody reads its memory, or the
    /// peer has it.
    pub fn take_progress(&mut self) -> bool {
        self.orders.take_progress()
    }

    /// A task's bytes have left, or its lane has failed.
    pub fn sent(&mut self, task: &Task, well: bool) {
        if let Some(chunk) = task.chunk {
            self.orders.sent(chunk.order);
        }
        self.in_flight.sent(task.lane, well);
    }

    /// A chunk has come whole, and its transfer is not known to have it yet. So whoever completes a transfer
    /// finds all of its chunks counted here. Tells whether the peer has to hear of the chunks that have come.
    pub fn received(&mut self, lane: usize) -> bool {
        self.in_flight.received(lane)
    }

    /// The peer has to be notified of all chunks that have come.
    pub fn acknowledge(&mut self) {
        self.in_flight.acknowledge();
    }

    /// Nothing more is received on a lane; the peer must be notified.
    pub fn ended(&mut self, lane: usize) {
        self.in_flight.ended(lane);
    }

    /// The peer has this many chunks of the lane with this number.
    pub fn acknowledged(&mut self, number: u32, received: u64) -> Result<(), LaneError> {
        let arrived = self.in_flight.acknowledged(number, received)?;
        self.arrived(arrived);
        Ok(())
    }

    fn arrived(&mut self, parts: Vec<Part>) {
        parts.into_iter().for_each(|(order, _)| self.orders.arrived(order));
    }

    /// A lane has ended for the peer, which got this many chunks on it: the others are sent again. Gives the
    /// lane if it has to be shut down.
    pub fn peer_report(
        &mut self,
        number: u32,
        received: u64,
        max_in_flight: u32,
    ) -> Result<Option<usize>, LaneError> {
        let report = self.in_flight.peer_report(number, received, max_in_flight)?;
        self.arrived(report.arrived);
        report.lost.into_iter().try_for_each(|(order, range)| self.orders.lost(order, range))?;
        // What was on the lane is not at risk any more.
        self.orders.note_progress();
        Ok(report.lane)
    }

    /// Whether all bytes of a transfer have left, at least for the kernel. True for one that is over.
    pub fn is_consumed(&self, order: OrderId) -> bool {
        self.orders.is_consumed(order)
    }

    /// Whether the memory of a consumed transfer may be released: nothing of it went over a lane that has
    /// died, as far as is known, without the peer having said what came; and of a steady one, which the
    /// kernel may read until then, the peer has everything.
    pub fn may_release(&self, order: OrderId) -> bool {
        self.is_consumed(order) && !self.orders.is_read(order) && !self.in_flight.is_at_risk(order)
    }

    /// Whether memory of a transfer is being read.
    pub fn is_in_flight(&self, order: OrderId) -> bool {
        self.orders.is_in_flight(order)
    }

    /// The memory of a transfer is its owner's again; it must be consumed.
    pub fn release(&mut self, order: OrderId) {
        self.orders.release(order);
    }

    /// The link has ended: nothing more is sent, and what nobody reads is released.
    pub fn end(&mut self) {
        self.in_flight.end();
        self.orders.end();
    }

    /// What is to be dropped where no lock is held.
    pub fn take_finished(&mut self) -> Vec<BufferGuard> {
        self.orders.take_finished()
    }
}
