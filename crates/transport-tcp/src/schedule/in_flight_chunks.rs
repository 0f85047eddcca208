//! Chunks in flight by lane, and acknowledgements.

use std::collections::VecDeque;
use std::ops::Range;

use causeway_wire::chunk::LaneRecord;

use super::error::LaneError;
use super::orders::OrderId;

/// An acknowledgement goes out after so many chunks on a lane, and when [whoever
/// receives](InFlightChunks::acknowledge) wants it to.
pub(super) const CHUNKS_PER_ACKNOWLEDGEMENT: u64 = 16;

/// A part of an order that was put on a lane.
pub(super) type Part = (OrderId, Range<usize>);

#[derive(Default)]
struct Lane {
    /// Its number, by which both ends name it; the client gives it. A lane without one carries nothing yet.
    number: Option<u32>,
    /// Whether the lane takes references to steady memory as fast as they are given.
    refers: bool,
    /// Whether its number must still be sent to the peer.
    is_new: bool,
    busy: bool,
    /// Whether nothing is sent on it any more.
    dead: bool,
    /// Whether nothing is received on it any more.
    ended: bool,
    /// Whether the peer's report has come.
    reported: bool,
    /// Chunks that the peer is known to have.
    confirmed: u64,
    /// Chunks behind those, in the order in which they were sent.
    unconfirmed: VecDeque<Part>,
    /// Chunks that came whole.
    received: u64,
    /// As many of them as the peer has been notified of.
    acknowledged: u64,
    acknowledgement_due: bool,
    /// How often something was sent.
    sent: u64,
    /// How often when it was last looked whether a keepalive is due.
    sent_before: u64,
}

impl Lane {
    fn is_free(&self) -> bool {
        !self.busy && !self.dead && self.number.is_some()
    }

    /// What must be sent to the peer about the chunks that came.
    fn take_acknowledgement(&mut self) -> Option<LaneRecord> {
        let lane = self.number.filter(|_| self.acknowledgement_due)?;
        (self.acknowledgement_due, self.acknowledged) = (false, self.received);
        Some(LaneRecord::Received { lane, received: self.received })
    }

    /// What shows the peer that the lane works, where nothing else has lately. A lane begins with its number.
    fn take_keepalive(&mut self) -> Option<LaneRecord> {
        let lane = self.number.filter(|_| self.is_free() && !self.is_new)?;
        let has_carried = core::mem::replace(&mut self.sent_before, self.sent) != self.sent;
        if has_carried {
            return None;
        }
        // This one does not count.
        self.sent_before += 1;
        Some(LaneRecord::Received { lane, received: self.received })
    }

    /// Takes in how many chunks the peer has. Fewer than it had before are old news that went over another,
    /// slower lane.
    fn confirm(&mut self, received: u64) -> Result<Vec<Part>, LaneError> {
        let sent = self.confirmed + self.unconfirmed.len() as u64;
        if received > sent {
            return Err(LaneError::Count { found: received, sent });
        }
        let newly = received.saturating_sub(self.confirmed);
        self.confirmed += newly;
        Ok(self.unconfirmed.drain(..newly as usize).collect())
    }
}

/// A lane that has ended for the peer.
#[derive(Default)]
pub(super) struct Report {
    /// The lane, when it has to be shut down.
    pub lane: Option<usize>,
    /// What had come.
    pub arrived: Vec<Part>,
    /// What never will.
    pub lost: Vec<Part>,
}

/// The accounts of all lanes.
#[derive(Default)]
pub(super) struct InFlightChunks {
    lanes: Vec<Lane>,
    /// Lanes that have ended here, to be reported to the peer: number and chunks received.
    ended: Vec<(u32, u64)>,
    /// Of these, the first ones that have been told since a lane ended last.
    reported: usize,
    /// Whether the link was another process's before, whose lanes the peer may speak of.
    is_taken_up: bool,
}

impl InFlightChunks {
    /// Those of a link that was another process's before.
    pub fn taken_up() -> Self {
        Self { is_taken_up: true, ..Self::default() }
    }

    pub fn add(&mut self, number: Option<u32>, refers: bool) -> usize {
        self.lanes.push(Lane { number, refers, is_new: number.is_some(), ..Lane::default() });
        self.lanes.len() - 1
    }

    pub fn number(&mut self, lane: usize, number: u32, max_in_flight: u32) -> Result<bool, LaneError> {
        if number >= max_in_flight || self.at(number).is_some() || self.lanes[lane].number.is_some() {
            return Err(LaneError::Number(number));
        }
        self.lanes[lane].number = Some(number);
        Ok(self.ended.iter().all(|(ended, _)| *ended != number))
    }

    pub fn lanes_ever(&self) -> usize {
        self.lanes.len()
    }

    pub fn is_numbered(&self, lane: usize) -> bool {
        self.lanes.get(lane).is_some_and(|lane| lane.number.is_some())
    }

    fn at(&self, number: u32) -> Option<usize> {
        self.lanes.iter().position(|lane| lane.number == Some(number))
    }

    pub fn live(&self) -> usize {
        self.lanes.iter().filter(|lane| !lane.dead).count()
    }

    /// A free lane whose number must be sent to the peer first.
    pub fn take_new(&mut self) -> Option<(usize, u32)> {
        let at = self.lanes.iter().position(|lane| lane.is_free() && lane.is_new)?;
        self.lanes[at].is_new = false;
        Some((at, self.lanes[at].number?))
    }

    /// Whether a lane is free.
    pub fn has_free(&self) -> bool {
        self.lanes.iter().any(Lane::is_free)
    }

    /// The lane for the next chunk of a transfer that may have `max_in_flight` lanes: the first free one, so that
    /// short transfers find lanes whose threads are still awake.
    ///
    /// Memory that goes to the kernel by reference leaves a lane at once, so that the first one would get
    /// nearly everything. There it is the free one with the fewest chunks under way among the first `max_in_flight`,
    /// or among the others.
    pub fn free(&self, max_in_flight: usize) -> Option<usize> {
        if !self.only_refers() {
            return self.lanes.iter().position(Lane::is_free);
        }
        let least_loaded = |lanes: &[Lane]| {
            let free = lanes.iter().enumerate().filter(|(_, lane)| lane.is_free());
            free.min_by_key(|(_, lane)| lane.unconfirmed.len()).map(|(at, _)| at)
        };
        let (first, others) = self.lanes.split_at(max_in_flight.min(self.lanes.len()));
        least_loaded(first).or_else(|| Some(first.len() + least_loaded(others)?))
    }

    /// Whether every lane takes references to steady memory as fast as they are given.
    pub fn only_refers(&self) -> bool {
        self.lanes.iter().all(|lane| lane.refers)
    }

    /// What must be sent to the peer.
    pub fn take_records(&mut self) -> Vec<LaneRecord> {
        let unreported = self.ended.get(self.reported..).unwrap_or_default();
        let ended = unreported.iter().map(|&(lane, received)| LaneRecord::Ended { lane, received });
        let acknowledgements = self.lanes.iter_mut().filter_map(Lane::take_acknowledgement);
        let records = ended.chain(acknowledgements).collect();
        self.reported = self.ended.len();
        records
    }

    /// Whether there is something to tell that a free lane could carry.
    pub fn has_records(&self) -> bool {
        self.reported < self.ended.len()
            || self.lanes.iter().any(|lane| lane.is_free() && lane.is_new || lane.acknowledgement_due)
    }

    pub fn take_keepalive(&mut self, lane: usize) -> Option<LaneRecord> {
        self.lanes.get_mut(lane)?.take_keepalive()
    }

    pub fn begin(&mut self, lane: usize) {
        self.lanes[lane].busy = true;
    }

    pub fn put(&mut self, lane: usize, part: Part) {
        self.lanes[lane].unconfirmed.push_back(part);
    }

    /// A lane is free again, or has failed.
    pub fn sent(&mut self, lane: usize, well: bool) {
        let lane = &mut self.lanes[lane];
        lane.busy = false;
        lane.sent += 1;
        lane.dead |= !well;
    }

    pub fn received(&mut self, lane: usize) -> bool {
        let lane = &mut self.lanes[lane];
        lane.received += 1;
        lane.acknowledgement_due |= lane.received - lane.acknowledged >= CHUNKS_PER_ACKNOWLEDGEMENT;
        lane.acknowledgement_due
    }

    pub fn acknowledge(&mut self) {
        for lane in &mut self.lanes {
            lane.acknowledgement_due |= lane.received > lane.acknowledged;
        }
    }

    pub fn ended(&mut self, lane: usize) {
        let lane = &mut self.lanes[lane];
        if lane.ended {
            return;
        }
        (lane.ended, lane.dead) = (true, true);
        if let Some(number) = lane.number {
            self.ended.push((number, lane.received));
        }
        self.reopen();
    }

    /// A lane has died, and what it was to tell the peer may have been on it.
    fn reopen(&mut self) {
        self.reported = 0;
        self.lanes.iter_mut().for_each(|lane| lane.acknowledgement_due = lane.received > 0);
    }

    /// The peer has this many chunks of the lane with this number; gives those that it is known to have since
    /// now.
    pub fn acknowledged(&mut self, number: u32, received: u64) -> Result<Vec<Part>, LaneError> {
        match self.at(number) {
            Some(at) => self.lanes[at].confirm(received),
            // All that the other process had sent there has been dealt with.
            None if self.is_taken_up => Ok(Vec::new()),
            None => Err(LaneError::Number(number)),
        }
    }

    pub fn peer_report(
        &mut self,
        number: u32,
        received: u64,
        max_in_flight: u32,
    ) -> Result<Report, LaneError> {
        if number >= max_in_flight {
            return Err(LaneError::Number(number));
        }
        let Some(at) = self.at(number) else {
            // It died before its number came. The peer learns that nothing came with it.
            if !self.ended.iter().any(|(ended, _)| *ended == number) {
                self.ended.push((number, 0));
            }
            return Ok(Report::default());
        };
        if self.lanes[at].reported {
            return Ok(Report::default());
        }
        let arrived = self.lanes[at].confirm(received)?;
        self.reopen();
        let lane = &mut self.lanes[at];
        (lane.reported, lane.dead) = (true, true);
        Ok(Report { lane: Some(at), arrived, lost: lane.unconfirmed.drain(..).collect() })
    }

    /// Whether parts of an order went over a lane that has died, without the peer having said what came.
    pub fn is_at_risk(&self, order: OrderId) -> bool {
        let holds = |lane: &Lane| lane.unconfirmed.iter().any(|(of, _)| *of == order);
        self.lanes.iter().any(|lane| lane.dead && !lane.reported && holds(lane))
    }

    pub fn end(&mut self) {
        self.lanes.iter_mut().for_each(|lane| lane.dead = true);
    }
}
