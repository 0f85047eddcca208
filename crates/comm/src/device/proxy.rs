//! Proxy thread: executes device-posted requests. One queue, a step at a time.
//!
//! Requests of a queue have no order among each other but this: a signal comes after all that was posted
//! before it. So what is there at once is a *batch*: transfers first, neighbours as one, then its signals.
//! Memory of the host the thread copies itself; all else goes over the lane, which nothing waits for, or
//! where a peer's memory is not mapped over the link to its proxy. A link keeps the order of what is asked of
//! one peer; a signal to another one waits until that peer has said that all is done, and one that goes another
//! way than the one to the same peer before it waits for that. `completed` follows the first request that is not
//! done yet.

use core::sync::atomic::{AtomicU64, Ordering};
use std::collections::VecDeque;
use std::sync::Arc;

use super::correction::{Corrector, NetworkCorrector};
use super::failure::{Failure, Refused, Status};
use super::gpu::{GpuError, Lane};
use super::layout::MAX_RANKS;
use super::queue::Consumer;
use super::remote::frame::Position;
use super::remote::link::{Links, Operation};
use super::request::{Atomic, RemoteRange, Request};
use super::windows::{KnownWindows, Located};
use crate::device::queue::{SignalOrder, SignalPath, pack};

/// Requests that are taken at once at most.
const BATCH: usize = 256;

/// Bytes of a request over a link up to which the time that it takes is that of its way.
const MAX_TIMED_BYTES: u64 = 4096;

/// State of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Done,
    /// Done when the lane has passed a mark.
    Marked(u64),
    /// Done when a peer has done what has this number.
    Linked {
        peer: u32,
        number: u64,
    },
    /// Waits for something before it is begun.
    Deferred,
}

/// What waits until the lane has passed a mark, peers have done what has these numbers, and a request of the queue
/// is done.
#[derive(Debug)]
struct Deferred {
    number: u64,
    after: u64,
    needs: Vec<(u32, u64)>,
    behind: Option<u64>,
    what: Then,
}

#[derive(Debug, Clone, Copy)]
enum Then {
    /// A word of the host's memory is written or counted up.
    Signal { address: u64, value: u64, adds: bool },
    /// A word of a GPU's memory is written.
    Set { address: u64, value: u64 },
    /// A peer's proxy is asked to write a word, or to count it up.
    Linked { peer: u32, to: Position, value: u64, adds: bool },
    /// An answer is published, whose value is there, or has been copied there.
    Response(Option<u64>),
}

/// One queue and what serves it.
pub struct Proxy {
    rank: u32,
    queue: Consumer,
    lane: Box<dyn Lane>,
    windows: KnownWindows,
    /// To ranks whose memory is not mapped, if there are some.
    links: Option<Arc<Links>>,
    /// By peer, the number of the last transfer or store over its link.
    transfers: Vec<u64>,
    /// By peer, how many requests over its link are done: as of the last look, so that what waits for the same goes on
    /// in its order.
    completed: Vec<u64>,
    signals: SignalOrder,
    /// Words of GPUs' memory that are still to be written.
    delayed_sets: usize,
    /// From `first` on.
    states: VecDeque<State>,
    first: u64,
    deferred: VecDeque<Deferred>,
    /// The last mark that was made.
    mark: u64,
    operand: u64,
    /// Room that is used again and again: memory that came new with each request would be most of what a
    /// short one takes.
    batch: Vec<(u64, Request)>,
    packed: Vec<Request>,
    /// What corrects the rank's table of initiators, of one proxy of each rank.
    corrector: Option<Corrector>,
    /// And of that for ranks that a network card reaches.
    network_corrector: Option<NetworkCorrector>,
}

/// A word of memory that threads of the host share with kernels.
fn word(address: u64) -> &'static AtomicU64 {
    // SAFETY: the address was found in a window of memory of the host, at a multiple of 8; windows stay while
    // the proxy runs.
    unsafe { &*(address as *const AtomicU64) }
}

impl Proxy {
    /// For a rank's queue.
    pub fn new(
        rank: u32,
        queue: Consumer,
        lane: Box<dyn Lane>,
        windows: KnownWindows,
        links: Option<Arc<Links>>,
    ) -> Self {
        Self {
            rank,
            queue,
            lane,
            windows,
            links,
            transfers: vec![0; MAX_RANKS],
            completed: vec![0; MAX_RANKS],
            signals: SignalOrder::default(),
            delayed_sets: 0,
            states: VecDeque::new(),
            first: 0,
            deferred: VecDeque::new(),
            mark: 0,
            operand: 0,
            batch: Vec::with_capacity(BATCH),
            packed: Vec::with_capacity(BATCH),
            corrector: None,
            network_corrector: None,
        }
    }

    /// The same, which corrects its rank's table by what it measures.
    #[must_use]
    pub fn with_corrector(self, corrector: Corrector) -> Self {
        Self { corrector: Some(corrector), ..self }
    }

    /// The same, which corrects its rank's table for ranks that a network card reaches.
    #[must_use]
    pub fn with_network_corrector(self, corrector: NetworkCorrector) -> Self {
        Self { network_corrector: Some(corrector), ..self }
    }

    /// To be called first by the thread that steps.
    pub fn enter(&mut self) {
        self.lane.enter();
    }

    /// Whether nothing is under way.
    pub fn is_idle(&self) -> bool {
        let has_corrected =
            self.corrector.as_ref().is_none_or(|corrector| corrector.is_done(self.lane.done()));
        self.states.is_empty() && has_corrected
    }

    /// Takes what is there, begins what can be begun, and says how far it has come. Whether there was
    /// anything to do.
    ///
    /// # Errors
    /// What ends the team.
    pub fn step(&mut self) -> Result<bool, Failure> {
        let mut batch = core::mem::take(&mut self.batch);
        batch.clear();
        let taken = self.take(&mut batch);
        let started = taken.and_then(|()| if batch.is_empty() { Ok(()) } else { self.begin(&batch) });
        let did = !batch.is_empty();
        self.batch = batch;
        started?;
        let did = self.finish()? || did;
        if let Some(corrector) = self.corrector.as_mut().filter(|_| !did && self.states.is_empty()) {
            let corrected = corrector.step(self.lane.as_mut());
            corrected.map_err(|cause| self.gpu(cause))?;
            self.network_corrector.iter_mut().for_each(NetworkCorrector::step);
        }
        Ok(did)
    }

    fn take(&mut self, batch: &mut Vec<(u64, Request)>) -> Result<(), Failure> {
        // What is not done is less than a round of the queue: each has a slot for its answer.
        while batch.len() < BATCH
            && self.states.len() + batch.len() < self.queue.capacity() as usize
            && let Some((number, halves)) = self.queue.take()
        {
            let request =
                Request::decode(halves).map_err(|cause| Failure::Request { rank: self.rank, cause })?;
            batch.push((number, request));
        }
        if !batch.is_empty() {
            self.queue.accept();
        }
        Ok(())
    }

    fn begin(&mut self, batch: &[(u64, Request)]) -> Result<(), Failure> {
        let (mut uses_lane, mut copies, mut copied) = (false, 0, 0);
        self.time_link(batch);
        // With nothing else in flight the time is its own.
        let started = self.corrector.as_ref().filter(|_| self.states.is_empty()).and_then(Corrector::start);
        let mut packed = core::mem::take(&mut self.packed);
        let transfers = batch.iter().map(|(_, request)| *request);
        pack(transfers.filter(|request| matches!(request, Request::Transfer { .. })), &mut packed);
        for transfer in &packed {
            if self.transfer(transfer)? {
                let Request::Transfer { bytes, .. } = *transfer else { continue };
                (uses_lane, copies, copied) = (true, copies + 1, copied + bytes);
            }
        }
        self.packed = packed;
        let start = self.states.len();
        for (number, request) in batch {
            let state = match *request {
                Request::Transfer { there, bytes, local, local_offset, .. } => {
                    let here = RemoteRange { peer: self.rank, window: local, offset: local_offset };
                    let remote = self.locate(request, &there, bytes)?;
                    if self.link_for(&remote, false).is_some() {
                        // The last one of the batch to this peer is behind it.
                        State::Linked { peer: there.peer, number: self.transfers[there.peer as usize] }
                    } else if remote.in_host && self.locate(request, &here, bytes)?.in_host {
                        State::Done
                    } else {
                        // The lane has it; which mark is behind it comes below.
                        State::Marked(0)
                    }
                }
                Request::Store { to, value } => {
                    let located = self.locate_word(request, &to)?;
                    if let Some(links) = self.link_for(&located, false) {
                        let number = links.post(to.peer, Operation::Store { to: located.position, value });
                        self.transfers[to.peer as usize] = number;
                        State::Linked { peer: to.peer, number }
                    } else {
                        let address = self.mapped(request, &to, 8, &located)?;
                        if located.in_host {
                            word(address).store(value, Ordering::Relaxed);
                            State::Done
                        } else {
                            uses_lane = true;
                            self.lane.set(address, value).map_err(|cause| self.gpu(cause))?;
                            State::Marked(0)
                        }
                    }
                }
                Request::Operand { value } => {
                    self.operand = value;
                    State::Done
                }
                Request::Atomic { to, operation, value } => {
                    uses_lane |= self.atomic(*number, request, &to, operation, value)?;
                    State::Deferred
                }
                Request::Signal { .. } => State::Deferred,
            };
            self.states.push_back(state);
        }
        let before_signals = self.mark_if(uses_lane)?;
        if let (Some(started), Some(corrector)) = (started, self.corrector.as_mut().filter(|_| copies > 0)) {
            corrector.time(started, before_signals, copies, copied);
        }
        let mut sets = Vec::new();
        for (at, (number, request)) in batch.iter().enumerate() {
            if let Request::Signal { to, value, adds } = *request
                && self.signal(*number, request, &to, before_signals, value, adds)?
            {
                sets.push(start + at);
            }
        }
        let behind = self.mark_if(!sets.is_empty())?;
        for state in self.states.range_mut(start..) {
            if *state == State::Marked(0) {
                *state = State::Marked(before_signals);
            }
        }
        for at in sets {
            self.states[at] = State::Marked(behind);
        }
        // Of an answer that is copied the mark was not known.
        for deferred in self.deferred.iter_mut().filter(|deferred| deferred.after == u64::MAX) {
            deferred.after = before_signals;
        }
        Ok(())
    }

    /// Times a batch that is a short put to a rank over a link, and its signal perhaps, while nothing else is
    /// under way.
    fn time_link(&mut self, batch: &[(u64, Request)]) {
        let is_alone = self.states.is_empty();
        let links = self.links.is_some();
        let Some(corrector) = self.network_corrector.as_mut().filter(|_| links) else { return };
        corrector.disturb();
        let is_short = match batch {
            [(_, Request::Transfer { there, bytes, .. })]
            | [(_, Request::Transfer { there, bytes, .. }), (_, Request::Signal { .. })] => {
                let is_linked =
                    self.windows.locate(there, *bytes).is_ok_and(|located| located.address.is_none());
                is_linked && *bytes <= MAX_TIMED_BYTES
            }
            _ => false,
        };
        if is_short && is_alone {
            corrector.start(self.first + batch.len() as u64);
        }
    }

    /// Has a signal wait for what was asked for before, or gives it to the lane, which has all of that;
    /// whether it did that.
    fn signal(
        &mut self,
        number: u64,
        request: &Request,
        to: &RemoteRange,
        after: u64,
        value: u64,
        adds: bool,
    ) -> Result<bool, Failure> {
        let located = self.locate_word(request, to)?;
        let is_linked = self.link_for(&located, adds).is_some();
        // What goes over the same link comes before it by itself.
        let needs = self.in_flight_elsewhere(is_linked.then_some(to.peer));
        let path = if is_linked { SignalPath::Linked } else { SignalPath::Mapped };
        let behind = self
            .signals
            .push(to.peer, path, number)
            .filter(|before| !self.is_done(*before, self.lane.done()));
        let what = if is_linked {
            Then::Linked { peer: to.peer, to: located.position, value, adds }
        } else {
            let address = self.mapped(request, to, 8, &located)?;
            match (located.in_host, adds) {
                (true, _) => Then::Signal { address, value, adds },
                (false, true) => return Err(self.refuse(request, to, 8, Status::Unsupported)),
                (false, false) if needs.is_empty() && behind.is_none() && self.delayed_sets == 0 => {
                    self.lane.set(address, value).map_err(|cause| self.gpu(cause))?;
                    return Ok(true);
                }
                (false, false) => {
                    self.delayed_sets += 1;
                    Then::Set { address, value }
                }
            }
        };
        self.deferred.push_back(Deferred { number, after, needs, behind, what });
        Ok(false)
    }

    /// Transfers and stores over links that are not done, but for those to one peer.
    fn in_flight_elsewhere(&self, but: Option<u32>) -> Vec<(u32, u64)> {
        let Some(links) = &self.links else { return Vec::new() };
        let last = (0..).zip(&self.transfers).map(|(peer, number)| (peer, *number));
        last.filter(|(peer, number)| *number > 0 && Some(*peer) != but && *number > links.completed(*peer))
            .collect()
    }

    /// A new mark, or the last one.
    fn mark_if(&mut self, is_needed: bool) -> Result<u64, Failure> {
        if is_needed {
            self.mark = self.lane.mark().map_err(|cause| self.gpu(cause))?;
        }
        Ok(self.mark)
    }

    /// Copies, or has the lane copy; whether it is the lane.
    fn transfer(&mut self, request: &Request) -> Result<bool, Failure> {
        let Request::Transfer { is_get, there, local, local_offset, bytes } = *request else {
            return Ok(false);
        };
        let remote = self.locate(request, &there, bytes)?;
        let here = RemoteRange { peer: self.rank, window: local, offset: local_offset };
        let own = self.locate(request, &here, bytes)?;
        if let Some(links) = self.link_for(&remote, false) {
            let operation = if is_get {
                Operation::Get { from: remote.position, to: own.position, bytes }
            } else {
                Operation::Put { to: remote.position, from: own.position, bytes }
            };
            // Kernels ask for none of no bytes.
            if bytes > 0 {
                self.transfers[there.peer as usize] = links.post(there.peer, operation);
            }
            return Ok(false);
        }
        let is_in_host = remote.in_host && own.in_host;
        let remote = self.mapped(request, &there, bytes, &remote)?;
        let own = self.mapped(request, &here, bytes, &own)?;
        let (to, from) = if is_get { (own, remote) } else { (remote, own) };
        if is_in_host {
            // SAFETY: both ranges lie in windows of memory of the host, which stay while the proxy runs. That
            // nobody else writes them meanwhile is for the program to see to, as with any put.
            unsafe { core::ptr::copy(from as *const u8, to as *mut u8, bytes as usize) };
            return Ok(false);
        }
        self.lane.copy(to, from, bytes).map_err(|cause| self.gpu(cause))?;
        Ok(true)
    }

    /// Carries an operation out whose answer is then due; whether the lane brings it.
    fn atomic(
        &mut self,
        number: u64,
        request: &Request,
        to: &RemoteRange,
        operation: Atomic,
        value: u64,
    ) -> Result<bool, Failure> {
        let located = self.locate_word(request, to)?;
        if let Some(links) = self.link_for(&located, operation != Atomic::Fetch) {
            let brought = (&raw const self.queue.response(number).brought) as u64;
            let operand = if operation == Atomic::CompareAndSwap { self.operand } else { 0 };
            let asked = Operation::Atomic { to: located.position, operation, value, operand, brought };
            let needs = vec![(to.peer, links.post(to.peer, asked))];
            self.defer_response(number, 0, needs, None);
            return Ok(false);
        }
        let address = self.mapped(request, to, 8, &located)?;
        if located.in_host {
            let word = word(address);
            let before = match operation {
                Atomic::Add => word.fetch_add(value, Ordering::AcqRel),
                Atomic::CompareAndSwap => {
                    let swapped =
                        word.compare_exchange(self.operand, value, Ordering::AcqRel, Ordering::Acquire);
                    swapped.unwrap_or_else(|found| found)
                }
                Atomic::Fetch => word.load(Ordering::Acquire),
            };
            self.defer_response(number, 0, Vec::new(), Some(before));
            return Ok(false);
        }
        if operation != Atomic::Fetch {
            return Err(self.refuse(request, to, 8, Status::Unsupported));
        }
        let brought = &raw const self.queue.response(number).brought;
        self.lane.copy(brought as u64, address, 8).map_err(|cause| self.gpu(cause))?;
        self.defer_response(number, u64::MAX, Vec::new(), None);
        Ok(true)
    }

    fn defer_response(&mut self, number: u64, after: u64, needs: Vec<(u32, u64)>, value: Option<u64>) {
        let what = Then::Response(value);
        self.deferred.push_back(Deferred { number, after, needs, behind: None, what });
    }

    /// Does what has waited, and tells how far the queue is done. Whether there was anything.
    fn finish(&mut self) -> Result<bool, Failure> {
        if self.states.is_empty() {
            return Ok(false);
        }
        let done = self.lane.done();
        self.corrector.iter_mut().for_each(|corrector| corrector.passed(done));
        for (peer, completed) in (0..).zip(self.links.iter().flat_map(|links| links.all_completed())) {
            self.completed[peer] = completed;
        }
        let mut did = false;
        // Once round: what waits on comes to the back again.
        for _ in 0..self.deferred.len() {
            let Some(deferred) = self.deferred.pop_front() else { break };
            let is_ready = deferred.after <= done
                && deferred.needs.iter().all(|(peer, number)| self.is_completed(*peer, *number))
                && deferred.behind.is_none_or(|before| self.is_done(before, done));
            match if is_ready { self.carry_out(&deferred)? } else { None } {
                Some(state) => {
                    self.states[(deferred.number - self.first) as usize] = state;
                    did = true;
                }
                None => self.deferred.push_back(deferred),
            }
        }
        while let Some(state) = self.states.front() {
            if !self.has_passed(*state, done) {
                break;
            }
            self.states.pop_front();
            self.first += 1;
            did = true;
        }
        self.queue.complete(self.first);
        let first = self.first;
        self.network_corrector.iter_mut().for_each(|corrector| corrector.passed(first));
        Ok(did)
    }

    fn is_completed(&self, peer: u32, number: u64) -> bool {
        self.completed[peer as usize] >= number
    }

    fn has_passed(&self, state: State, done: u64) -> bool {
        match state {
            State::Done => true,
            State::Marked(mark) => mark <= done,
            State::Linked { peer, number } => self.is_completed(peer, number),
            State::Deferred => false,
        }
    }

    /// Whether a request of the queue is done, where the lane has come so far.
    fn is_done(&self, number: u64, done: u64) -> bool {
        let Some(at) = number.checked_sub(self.first) else { return true };
        self.states.get(at as usize).is_none_or(|state| self.has_passed(*state, done))
    }

    /// Does what has waited long enough: the state of the request; `None` where it has to wait on.
    fn carry_out(&mut self, deferred: &Deferred) -> Result<Option<State>, Failure> {
        match deferred.what {
            // Released: the copies before are there when it is.
            Then::Signal { address, value, adds: false } => word(address).store(value, Ordering::Release),
            Then::Signal { address, value, adds: true } => {
                word(address).fetch_add(value, Ordering::Release);
            }
            Then::Set { address, value } => {
                self.delayed_sets -= 1;
                self.lane.set(address, value).map_err(|cause| self.gpu(cause))?;
                return Ok(Some(State::Marked(self.mark_if(true)?)));
            }
            Then::Linked { peer, to, value, adds } => {
                let Some(links) = &self.links else { return Ok(Some(State::Done)) };
                let number = links.post(peer, Operation::Signal { to, value, adds });
                return Ok(Some(State::Linked { peer, number }));
            }
            Then::Response(value) => {
                if !self.queue.can_respond(deferred.number) {
                    return Ok(None);
                }
                self.queue.publish(deferred.number, value);
            }
        }
        Ok(Some(State::Done))
    }

    fn locate(&mut self, request: &Request, remote: &RemoteRange, bytes: u64) -> Result<Located, Failure> {
        self.windows.locate(remote, bytes).map_err(|status| self.refuse(request, remote, bytes, status))
    }

    fn locate_word(&mut self, request: &Request, remote: &RemoteRange) -> Result<Located, Failure> {
        self.windows.locate_word(remote).map_err(|status| self.refuse(request, remote, 8, status))
    }

    /// The links, where a range is to be reached by one: its memory is not mapped here, or it is a GPU's and
    /// is to be changed atomically.
    fn link_for(&self, located: &Located, is_change: bool) -> Option<&Links> {
        let is_linked = located.address.is_none() || (is_change && !located.in_host);
        self.links.as_deref().filter(|_| is_linked)
    }

    /// The address of a range, where no link is to be taken.
    fn mapped(
        &self,
        request: &Request,
        remote: &RemoteRange,
        bytes: u64,
        located: &Located,
    ) -> Result<u64, Failure> {
        located.address.ok_or_else(|| self.refuse(request, remote, bytes, Status::Unsupported))
    }

    fn refuse(&self, request: &Request, remote: &RemoteRange, bytes: u64, status: Status) -> Failure {
        let RemoteRange { peer, window, offset } = *remote;
        let refused =
            Refused { status, verb: request.verb(), peer, window, offset, bytes, thread: None, nic: None };
        Failure::Refused { rank: self.rank, refused }
    }

    fn gpu(&self, cause: GpuError) -> Failure {
        Failure::Gpu { rank: self.rank, cause }
    }
}

#[cfg(test)]
mod tests;
