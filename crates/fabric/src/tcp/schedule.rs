//! Which lane sends what next, and what is sent again when a lane has died?
//!
//! Transfers wait in *flows*, one for each stream or thread that they belong to. Whoever can send asks for a free lane
//! and the next thing to put on it, so that lanes go from one transfer to the next without a pause. Flows take turns
//! chunk by chunk; within a flow transfers begin in order.
//!
//! Both ends count the chunks that come whole on each lane. The counts travel back now and then (*acknowledgement*), those
//! of all lanes on whichever is free so that few threads have to wake for them, and once more when a lane has ended
//! (*report*): what was sent behind that many chunks never arrived, exactly that is sent again, and so no byte is lost and
//! none written twice. It takes memory that is still as it was; a transfer whose memory has been given back cannot be
//! repaired, and the link is lost.
//!
//! Nothing here touches a socket, a clock or the memory of a transfer.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;

use causeway_wire::chunk::{ChunkHeader, LaneRecord};
use thiserror::Error;

use crate::link::{Address, Keeper, Order};
use crate::pipeline::chunk_bytes;

/// An acknowledgement goes out after so many chunks on a lane, and when a transfer is complete.
const CHUNKS_PER_ACKNOWLEDGEMENT: u64 = 16;

/// The number of a transfer in the schedule.
pub(super) type JobId = u64;

struct Job {
    order: Order,
    /// Bytes of a chunk.
    chunk: usize,
    /// Where the first chunk begins that nobody has taken.
    next: usize,
    /// Whether any chunk was taken: an empty transfer is one empty chunk.
    begun: bool,
    /// Chunks that have to be sent again.
    again: Vec<Range<usize>>,
    /// Chunks that are being sent; the memory is in use while there are any.
    in_flight: usize,
    /// Chunks that were taken and of which the peer has not said that it has them.
    unconfirmed: usize,
    /// Whether the memory has been given back.
    released: bool,
}

impl Job {
    fn has_work(&self) -> bool {
        !self.begun || self.next < self.order.length || !self.again.is_empty()
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
        self.begun = true;
        self.in_flight += 1;
        self.unconfirmed += 1;
        range
    }
}

#[derive(Default)]
struct Lane {
    /// Its number, by which both ends name it; the client gives it. A lane without one carries nothing yet.
    number: Option<u32>,
    /// Whether its number is still to be told to the peer.
    is_new: bool,
    busy: bool,
    /// Whether nothing is sent on it any more.
    dead: bool,
    /// Whether nothing is received on it any more.
    ended: bool,
    /// Whether the peer's report has come.
    settled: bool,
    /// Chunks that the peer is known to have.
    confirmed: u64,
    /// Chunks behind those, in the order in which they were sent.
    unconfirmed: VecDeque<(JobId, Range<usize>)>,
    /// Chunks that came whole.
    received: u64,
    /// As many of them as the peer has been told of.
    acknowledged: u64,
    acknowledgement_due: bool,
}

impl Lane {
    fn is_free(&self) -> bool {
        !self.busy && !self.dead && self.number.is_some()
    }

    /// What the peer has to be told of the chunks that came.
    fn take_acknowledgement(&mut self) -> Option<LaneRecord> {
        let lane = self.number.filter(|_| self.acknowledgement_due)?;
        (self.acknowledgement_due, self.acknowledged) = (false, self.received);
        Some(LaneRecord::Received { lane, received: self.received })
    }
}

struct Flow {
    id: u64,
    /// Transfers that have chunks to take.
    jobs: VecDeque<JobId>,
}

/// Something to put on a lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Task {
    /// The lane, which is busy until [`Schedule::sent`].
    pub lane: usize,
    /// What goes out first; a chunk is the last of them.
    pub records: Vec<LaneRecord>,
    /// What follows them.
    pub chunk: Option<Chunk>,
}

/// The bytes of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Chunk {
    job: JobId,
    /// Where they are.
    pub start: Address,
    /// How many there are.
    pub length: usize,
    /// Whether they stay as they are until the peer has them.
    pub steady: bool,
}

/// Why the link cannot go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum LaneError {
    /// The peer counts chunks that were never sent.
    #[error("the other end broke the protocol: it counts {found} chunks on a lane that carried {sent}")]
    Count {
        /// What it counts.
        found: u64,
        /// What was sent.
        sent: u64,
    },
    /// The peer names a lane by a number that is taken or too large.
    #[error("the other end broke the protocol: it names lane {0}, which cannot be")]
    Number(u32),
    /// What a lane lost cannot be sent again.
    #[error(
        "a bulk lane died with bytes on it whose source has changed since, so that they cannot be sent again"
    )]
    Unrepeatable,
}

#[derive(Default)]
pub(super) struct Schedule {
    lanes: Vec<Lane>,
    jobs: HashMap<JobId, Job>,
    flows: VecDeque<Flow>,
    next_job: JobId,
    /// Lanes that have ended here, as the peer must be told: number and chunks received.
    ended: Vec<(u32, u64)>,
    /// Of these, the first ones that have been told since a lane ended last.
    told: usize,
    /// Keepers of transfers that are over, to be dropped where no lock is held.
    finished: Vec<Keeper>,
}

impl Schedule {
    /// Adds a lane. Without a number it carries nothing until the peer has given it one.
    pub fn add_lane(&mut self, number: Option<u32>) -> usize {
        self.lanes.push(Lane { number, is_new: number.is_some(), ..Lane::default() });
        self.lanes.len() - 1
    }

    /// The peer has numbered a lane. Whether it can be used: not when it ended for the peer before its number came, and
    /// the peer has been answered that nothing came over it.
    pub fn number(&mut self, lane: usize, number: u32, most: u32) -> Result<bool, LaneError> {
        let taken = self.lanes.iter().any(|lane| lane.number == Some(number));
        if number >= most || taken || self.lanes[lane].number.is_some() {
            return Err(LaneError::Number(number));
        }
        self.lanes[lane].number = Some(number);
        Ok(self.ended.iter().all(|(ended, _)| *ended != number))
    }

    /// Lanes that things can be sent on.
    pub fn live(&self) -> usize {
        self.lanes.iter().filter(|lane| !lane.dead).count()
    }

    /// Puts a transfer behind the others of its flow. Its number here, and whether it is a single chunk.
    pub fn post(&mut self, order: Order) -> (JobId, bool) {
        let (id, flow) = (self.next_job, order.carriage.flow);
        self.next_job += 1;
        let lanes = order.carriage.lanes.min(self.live().max(1));
        let job = Job {
            chunk: chunk_bytes(order.length, lanes),
            order,
            next: 0,
            begun: false,
            again: Vec::new(),
            in_flight: 0,
            unconfirmed: 0,
            released: false,
        };
        let is_short = job.order.length <= job.chunk;
        self.jobs.insert(id, job);
        self.enqueue(flow, id);
        (id, is_short)
    }

    fn enqueue(&mut self, flow: u64, job: JobId) {
        match self.flows.iter_mut().find(|known| known.id == flow) {
            Some(known) => known.jobs.push_back(job),
            None => self.flows.push_back(Flow { id: flow, jobs: VecDeque::from([job]) }),
        }
    }

    /// What a free lane can do now: what the lanes have to tell each other, and the next chunk, of `only` that transfer if
    /// one is named.
    pub fn take(&mut self, only: Option<JobId>) -> Option<Task> {
        if let Some(lane) = self.lanes.iter().position(|lane| lane.is_free() && lane.is_new) {
            let number = self.lanes[lane].number?;
            (self.lanes[lane].is_new, self.lanes[lane].busy) = (false, true);
            return Some(Task { lane, records: vec![LaneRecord::Number(number)], chunk: None });
        }
        // The first one, so that short transfers find lanes whose threads are still awake.
        let lane = self.lanes.iter().position(Lane::is_free)?;
        let mut records = self.take_news();
        let chunk = self.take_chunk(lane, only, &mut records);
        if records.is_empty() {
            return None;
        }
        self.lanes[lane].busy = true;
        Some(Task { lane, records, chunk })
    }

    /// What the peer has to be told.
    fn take_news(&mut self) -> Vec<LaneRecord> {
        let untold = self.ended.get(self.told..).unwrap_or_default();
        let ended = untold.iter().map(|&(lane, received)| LaneRecord::Ended { lane, received });
        let acknowledgements = self.lanes.iter_mut().filter_map(Lane::take_acknowledgement);
        let news = ended.chain(acknowledgements).collect();
        self.told = self.ended.len();
        news
    }

    /// The next chunk, for this lane.
    fn take_chunk(
        &mut self,
        lane: usize,
        only: Option<JobId>,
        records: &mut Vec<LaneRecord>,
    ) -> Option<Chunk> {
        let (job, flow) = self.choose(only)?;
        let chosen = self.jobs.get_mut(&job)?;
        let range = chosen.take();
        let Order { transfer, start, length, carriage, .. } = chosen.order;
        records.push(LaneRecord::Chunk(ChunkHeader {
            transfer,
            offset: range.start as u64,
            total: length as u64,
            length: range.len() as u32,
        }));
        let start = Address(start.0.wrapping_add(range.start));
        let chunk = Chunk { job, start, length: range.len(), steady: carriage.steady };
        self.turn(flow, job);
        self.lanes[lane].unconfirmed.push_back((job, range));
        Some(chunk)
    }

    /// The transfer whose turn it is, and the place of its flow.
    fn choose(&self, only: Option<JobId>) -> Option<(JobId, usize)> {
        let may = |job: &JobId| {
            only.is_none_or(|only| only == *job)
                && self.jobs.get(job).is_some_and(|job| job.in_flight < job.order.carriage.lanes.max(1))
        };
        let mut flows = self.flows.iter().enumerate();
        flows.find_map(|(at, flow)| Some((*flow.jobs.iter().find(|job| may(job))?, at)))
    }

    /// Sends a flow to the end of the line after a chunk of `job` was taken, without transfers that have no more.
    fn turn(&mut self, flow: usize, job: JobId) {
        let Some(mut flow) = self.flows.remove(flow) else { return };
        if !self.jobs[&job].has_work() {
            flow.jobs.retain(|other| *other != job);
        }
        if !flow.jobs.is_empty() {
            self.flows.push_back(flow);
        }
    }

    /// Whether [`take`](Self::take) would give something.
    pub fn has_task(&self) -> bool {
        self.lanes.iter().any(Lane::is_free)
            && (self.told < self.ended.len()
                || self.lanes.iter().any(|lane| lane.is_free() && lane.is_new || lane.acknowledgement_due)
                || self.choose(None).is_some())
    }

    /// A task's bytes have left, or its lane has failed.
    pub fn sent(&mut self, task: &Task, well: bool) {
        self.lanes[task.lane].busy = false;
        if let Some(Chunk { job: id, .. }) = task.chunk
            && let Some(job) = self.jobs.get_mut(&id)
        {
            job.in_flight -= 1;
            self.settle(id);
        }
        if !well {
            self.lanes[task.lane].dead = true;
        }
    }

    /// A chunk has come whole, and its transfer is not known to have it yet. So whoever completes a transfer finds all of
    /// its chunks counted here.
    pub fn received(&mut self, lane: usize) {
        let lane = &mut self.lanes[lane];
        lane.received += 1;
        lane.acknowledgement_due |= lane.received - lane.acknowledged >= CHUNKS_PER_ACKNOWLEDGEMENT;
    }

    /// A transfer has come whole: the peer waits to hear of it, perhaps.
    pub fn completed(&mut self) {
        for lane in &mut self.lanes {
            lane.acknowledgement_due |= lane.received > lane.acknowledged;
        }
    }

    /// Nothing more is received on a lane; the peer has to be told.
    pub fn ended(&mut self, lane: usize) {
        let lane = &mut self.lanes[lane];
        if lane.ended {
            return;
        }
        (lane.ended, lane.dead) = (true, true);
        if let Some(number) = lane.number {
            self.ended.push((number, lane.received));
        }
        self.tell_again();
    }

    /// A lane has died, and what it was to tell the peer may have been on it.
    fn tell_again(&mut self) {
        self.told = 0;
        self.lanes.iter_mut().for_each(|lane| lane.acknowledgement_due = lane.received > 0);
    }

    /// The peer has this many chunks of the lane with this number. Fewer than it had before are old news that went over
    /// another, slower lane.
    pub fn acknowledged(&mut self, number: u32, received: u64) -> Result<(), LaneError> {
        let at = self.lanes.iter().position(|lane| lane.number == Some(number));
        self.confirm(at.ok_or(LaneError::Number(number))?, received)
    }

    fn confirm(&mut self, lane: usize, received: u64) -> Result<(), LaneError> {
        let lane = &mut self.lanes[lane];
        let sent = lane.confirmed + lane.unconfirmed.len() as u64;
        if received > sent {
            return Err(LaneError::Count { found: received, sent });
        }
        let news = received.saturating_sub(lane.confirmed);
        lane.confirmed += news;
        let arrived: Vec<_> = lane.unconfirmed.drain(..news as usize).collect();
        for (id, _) in arrived {
            if let Some(job) = self.jobs.get_mut(&id) {
                job.unconfirmed -= 1;
                self.settle(id);
            }
        }
        Ok(())
    }

    /// A lane has ended for the peer, which got this many chunks on it: the others are sent again. Gives the lane if it
    /// has to be shut down.
    pub fn peer_report(&mut self, number: u32, received: u64, most: u32) -> Result<Option<usize>, LaneError> {
        if number >= most {
            return Err(LaneError::Number(number));
        }
        let Some(at) = self.lanes.iter().position(|lane| lane.number == Some(number)) else {
            // It died before its number came. The peer learns that nothing came with it.
            if !self.ended.iter().any(|(ended, _)| *ended == number) {
                self.ended.push((number, 0));
            }
            return Ok(None);
        };
        if self.lanes[at].settled {
            return Ok(None);
        }
        self.confirm(at, received)?;
        self.tell_again();
        let lane = &mut self.lanes[at];
        (lane.settled, lane.dead) = (true, true);
        let lost: Vec<_> = lane.unconfirmed.drain(..).collect();
        for (id, range) in lost {
            let Some(job) = self.jobs.get_mut(&id) else { continue };
            if job.released {
                return Err(LaneError::Unrepeatable);
            }
            let (flow, idle) = (job.order.carriage.flow, !job.has_work());
            job.unconfirmed -= 1;
            job.again.push(range);
            if idle {
                self.enqueue(flow, id);
            }
        }
        Ok(Some(at))
    }

    /// Whether all bytes of a transfer have left, at least for the kernel. True for one that is over.
    pub fn is_consumed(&self, job: JobId) -> bool {
        self.jobs.get(&job).is_none_or(Job::is_consumed)
    }

    /// Whether the memory of a consumed transfer may be given back: nothing of it went over a lane that has died, as far
    /// as is known, without the peer having said what came; and of a steady one, which the kernel may read until then,
    /// the peer has everything.
    pub fn may_release(&self, job: JobId) -> bool {
        let at_risk =
            |lane: &Lane| lane.dead && !lane.settled && lane.unconfirmed.iter().any(|(of, _)| *of == job);
        let is_read = |job: &Job| job.order.carriage.steady && job.unconfirmed > 0;
        self.is_consumed(job) && !self.jobs.get(&job).is_some_and(is_read) && !self.lanes.iter().any(at_risk)
    }

    /// Whether memory of a transfer is being read.
    pub fn is_in_flight(&self, job: JobId) -> bool {
        self.jobs.get(&job).is_some_and(|job| job.in_flight > 0)
    }

    /// The memory of a transfer is its owner's again; it must be consumed.
    pub fn release(&mut self, job: JobId) {
        if let Some(known) = self.jobs.get_mut(&job) {
            debug_assert!(known.is_consumed());
            known.released = true;
            known.order.keeper = None;
        }
    }

    /// Forgets a transfer that is over.
    fn settle(&mut self, id: JobId) {
        let over = |job: &mut Job| job.is_consumed() && job.unconfirmed == 0;
        if self.jobs.get_mut(&id).is_some_and(over)
            && let Some(job) = self.jobs.remove(&id)
        {
            self.finished.extend(job.order.keeper);
        }
    }

    /// The link has ended: nothing more is sent, and what nobody reads is given back.
    pub fn end(&mut self) {
        self.flows.clear();
        self.lanes.iter_mut().for_each(|lane| lane.dead = true);
        let idle: Vec<_> =
            self.jobs.iter().filter(|(_, job)| job.in_flight == 0).map(|(id, _)| *id).collect();
        for id in idle {
            let job = self.jobs.remove(&id);
            self.finished.extend(job.and_then(|job| job.order.keeper));
        }
    }

    /// What is to be dropped where no lock is held.
    pub fn take_finished(&mut self) -> Vec<Keeper> {
        core::mem::take(&mut self.finished)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::Carriage;
    use proptest::prelude::*;
    use std::sync::Arc;

    const K: usize = 1 << 10;

    fn order(transfer: u64, length: usize, flow: u64, lanes: usize) -> Order {
        let carriage = Carriage { flow, lanes, ..Carriage::default() };
        Order { transfer, start: Address(core::ptr::null()), length, carriage, keeper: None }
    }

    /// A schedule whose lanes have told their numbers.
    fn with_lanes(count: u32) -> Schedule {
        let mut schedule = Schedule::default();
        for number in 0..count {
            schedule.add_lane(Some(number));
        }
        for _ in 0..count {
            let task = schedule.take(None).unwrap();
            assert_eq!(task.records, [LaneRecord::Number(task.lane as u32)]);
            schedule.sent(&task, true);
        }
        schedule
    }

    fn chunk(task: &Task) -> ChunkHeader {
        match task.records.last() {
            Some(LaneRecord::Chunk(chunk)) => *chunk,
            other => panic!("{other:?} is no chunk"),
        }
    }

    #[test]
    fn flows_take_turns_and_begin_in_order() {
        let mut schedule = with_lanes(1);
        for (transfer, flow) in [(1, 10), (2, 10), (3, 20)] {
            schedule.post(order(transfer, 512 * K, flow, 8));
        }
        let mut sent = Vec::new();
        while let Some(task) = schedule.take(None) {
            sent.push((chunk(&task).transfer, chunk(&task).offset as usize / K));
            assert!(schedule.take(None).is_none() && !schedule.has_task(), "the lane is busy");
            schedule.sent(&task, true);
        }
        assert_eq!(sent, [(1, 0), (3, 0), (1, 256), (3, 256), (2, 0), (2, 256)]);
    }

    #[test]
    fn a_transfer_takes_no_more_lanes_than_it_may_and_the_next_one_takes_the_rest() {
        let mut schedule = with_lanes(4);
        let (first, _) = schedule.post(order(1, 4096 * K, 0, 2));
        schedule.post(order(2, 4096 * K, 0, 8));
        let tasks: Vec<_> = core::iter::from_fn(|| schedule.take(None)).collect();
        let transfers: Vec<_> = tasks.iter().map(|task| chunk(task).transfer).collect();
        assert_eq!(transfers, [1, 1, 2, 2]);
        let lanes: std::collections::HashSet<_> = tasks.iter().map(|task| task.lane).collect();
        assert_eq!(lanes.len(), 4);
        assert!(schedule.take(Some(first)).is_none());
        schedule.sent(&tasks[3], true);
        assert!(schedule.take(Some(first)).is_none(), "two lanes have it already");
        assert!(schedule.take(None).is_some());
    }

    #[test]
    fn memory_is_kept_until_the_peer_has_it() {
        let mut schedule = with_lanes(2);
        let kept = Arc::new(());
        let keeper: Option<Keeper> = Some(Box::new(Arc::clone(&kept)));
        let (job, is_short) = schedule.post(Order { keeper, ..order(1, 300 * K, 0, 8) });
        assert!(!is_short && !schedule.is_consumed(job));
        let tasks = [schedule.take(None).unwrap(), schedule.take(None).unwrap()];
        assert!(schedule.is_in_flight(job) && schedule.take(None).is_none());
        tasks.iter().for_each(|task| schedule.sent(task, true));
        assert!(schedule.is_consumed(job) && !schedule.is_in_flight(job));
        schedule.acknowledged(0, 1).unwrap();
        assert!(schedule.take_finished().is_empty());
        schedule.acknowledged(1, 1).unwrap();
        drop(schedule.take_finished());
        assert_eq!(Arc::strong_count(&kept), 1);
        assert_eq!(schedule.acknowledged(1, 0), Ok(()), "old news");
        assert_eq!(schedule.acknowledged(1, 2), Err(LaneError::Count { found: 2, sent: 1 }));
        assert_eq!(schedule.acknowledged(2, 0), Err(LaneError::Number(2)));
    }

    #[test]
    fn an_empty_transfer_is_one_empty_chunk() {
        let mut schedule = with_lanes(1);
        let (job, is_short) = schedule.post(order(1, 0, 0, 8));
        let task = schedule.take(None).unwrap();
        assert!(is_short && (chunk(&task).length, chunk(&task).total) == (0, 0));
        schedule.sent(&task, true);
        assert!(schedule.is_consumed(job) && schedule.take(None).is_none());
    }

    #[test]
    fn exactly_what_a_lane_lost_is_sent_again() {
        let mut schedule = with_lanes(2);
        let (job, _) = schedule.post(order(1, 1024 * K, 0, 8));
        let mut of_first = Vec::new();
        for _ in 0..2 {
            let both = [0, 1].map(|lane| schedule.take(None).filter(|task| task.lane == lane).unwrap());
            of_first.push(chunk(&both[0]));
            both.iter().for_each(|task| schedule.sent(task, true));
        }
        assert!(schedule.is_consumed(job) && schedule.may_release(job));
        // The peer has one of the two.
        assert_eq!(schedule.peer_report(0, 1, 8), Ok(Some(0)));
        assert!(!schedule.is_consumed(job));
        let again = schedule.take(None).unwrap();
        assert_eq!((again.lane, chunk(&again)), (1, of_first[1]));
        schedule.sent(&again, true);
        assert!(schedule.is_consumed(job) && schedule.take(None).is_none());
        // A second report of the same lane says nothing new.
        assert_eq!(schedule.peer_report(0, 0, 8), Ok(None));
        schedule.acknowledged(1, 3).unwrap();
        assert!(schedule.jobs.is_empty());
    }

    #[test]
    fn memory_is_not_given_back_while_a_dead_lane_may_have_lost_it_and_not_repaired_afterwards() {
        let mut schedule = with_lanes(2);
        let (job, _) = schedule.post(order(1, 10, 0, 8));
        let task = schedule.take(None).unwrap();
        schedule.sent(&task, true);
        schedule.ended(task.lane);
        assert!(schedule.is_consumed(job) && !schedule.may_release(job));
        let (job, _) = schedule.post(order(2, 10, 0, 8));
        let other = schedule.take(None).unwrap();
        assert_eq!(other.records[0], LaneRecord::Ended { lane: task.lane as u32, received: 0 });
        assert_eq!(chunk(&other).transfer, 2);
        schedule.sent(&other, true);
        schedule.release(job);
        assert_eq!(schedule.peer_report(other.lane as u32, 0, 8), Err(LaneError::Unrepeatable));
        assert_eq!(schedule.peer_report(9, 0, 8), Err(LaneError::Number(9)));
    }

    #[test]
    fn what_came_is_told_at_once_for_all_lanes_and_again_when_a_lane_ends() {
        let mut schedule = with_lanes(2);
        let told = |lane, received| LaneRecord::Received { lane, received };
        schedule.received(0);
        schedule.received(1);
        assert!(schedule.take(None).is_none());
        schedule.completed();
        let task = schedule.take(None).unwrap();
        assert_eq!(task.records, [told(0, 1), told(1, 1)]);
        assert!(schedule.take(None).is_none());
        schedule.sent(&task, true);
        for _ in 1..CHUNKS_PER_ACKNOWLEDGEMENT {
            schedule.received(0);
            assert!(!schedule.has_task());
        }
        schedule.received(0);
        assert!(schedule.has_task());
        schedule.ended(0);
        let report = schedule.take(None).unwrap();
        let received = 1 + CHUNKS_PER_ACKNOWLEDGEMENT;
        // What lane 1 got may have been told on the lane that has ended.
        assert_eq!(report.records, [LaneRecord::Ended { lane: 0, received }, told(0, received), told(1, 1)]);
        assert_eq!((report.lane, schedule.live()), (1, 1));
    }

    #[test]
    fn what_came_is_told_along_with_a_chunk() {
        let mut schedule = with_lanes(1);
        schedule.received(0);
        schedule.completed();
        schedule.post(order(1, 10, 0, 8));
        let task = schedule.take(None).unwrap();
        assert_eq!(task.records[0], LaneRecord::Received { lane: 0, received: 1 });
        assert_eq!((task.records.len(), chunk(&task).length), (2, 10));
    }

    #[test]
    fn memory_that_the_kernel_may_read_is_kept_until_the_peer_has_it() {
        let mut schedule = with_lanes(1);
        let steady = |transfer| {
            let plain = order(transfer, 10, 0, 8);
            Order { carriage: Carriage { steady: true, ..plain.carriage }, ..plain }
        };
        let (job, _) = schedule.post(steady(1));
        let task = schedule.take(None).unwrap();
        assert!(task.chunk.unwrap().steady);
        schedule.sent(&task, true);
        assert!(schedule.is_consumed(job) && !schedule.may_release(job));
        schedule.acknowledged(0, 1).unwrap();
        assert!(schedule.may_release(job));
    }

    #[test]
    fn a_lane_that_died_before_its_number_came_has_carried_nothing() {
        let mut schedule = with_lanes(1);
        let late = schedule.add_lane(None);
        assert_eq!(schedule.peer_report(5, 0, 8), Ok(None));
        let answer = schedule.take(None).unwrap();
        assert_eq!(answer.records, [LaneRecord::Ended { lane: 5, received: 0 }]);
        assert_eq!(schedule.number(late, 5, 8), Ok(false));
        let other = schedule.add_lane(None);
        for wrong in [0, 5, 8] {
            assert_eq!(schedule.number(other, wrong, 8), Err(LaneError::Number(wrong)));
        }
        assert_eq!(schedule.number(other, 6, 8), Ok(true));
    }

    /// What happens to a pair of ends next.
    #[derive(Debug, Clone)]
    enum Step {
        Post(usize, u64),
        /// A chunk leaves, and comes at once.
        Move,
        /// A chunk leaves, and is on its way.
        Delay,
        /// A lane dies with what is on its way.
        Kill(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            2 => (0..2000 * K, 0_u64..3).prop_map(|(length, flow)| Step::Post(length, flow)),
            6 => Just(Step::Move),
            4 => Just(Step::Delay),
            1 => (0_usize..4).prop_map(Step::Kill),
        ]
    }

    proptest! {
        /// Whatever lanes die, as long as one lives every byte comes exactly once.
        #[test]
        fn every_byte_comes_exactly_once(steps in proptest::collection::vec(step(), 1..120)) {
            let mut schedule = with_lanes(4);
            let mut lengths = HashMap::new();
            let mut arrived: HashMap<u64, Vec<(u64, u64)>> = HashMap::new();
            let mut received = [0_u64; 4];
            let mut on_the_way: Vec<(usize, ChunkHeader)> = Vec::new();
            let mut dead = [false; 4];
            let finish = (0..4).map(|_| Step::Move).cycle().take(4000);
            for step in steps.into_iter().chain(finish) {
                match step {
                    Step::Post(length, flow) => {
                        let transfer = lengths.len() as u64;
                        lengths.insert(transfer, length as u64);
                        schedule.post(order(transfer, length, flow, 3));
                    }
                    Step::Kill(lane) if !dead[lane] && dead.iter().filter(|dead| !**dead).count() > 1 => {
                        dead[lane] = true;
                        on_the_way.retain(|(on, _)| *on != lane);
                        schedule.peer_report(lane as u32, received[lane], 8).unwrap();
                    }
                    Step::Kill(_) => {}
                    Step::Move | Step::Delay => {
                        let task = schedule.take(None);
                        if let Some(task) = &task {
                            on_the_way.push((task.lane, chunk(task)));
                            schedule.sent(task, true);
                        }
                        if matches!(step, Step::Move) {
                            for (lane, chunk) in on_the_way.drain(..) {
                                received[lane] += 1;
                                arrived.entry(chunk.transfer).or_default().push((chunk.offset, chunk.end()));
                            }
                        }
                    }
                }
            }
            prop_assert!(!schedule.has_task());
            for (transfer, length) in lengths {
                let mut spans = arrived.remove(&transfer).unwrap_or_default();
                spans.sort_unstable();
                let mut next = 0;
                for (start, end) in &spans {
                    prop_assert_eq!(*start, next);
                    next = *end;
                }
                prop_assert!(next == length && !spans.is_empty());
            }
        }
    }
}
