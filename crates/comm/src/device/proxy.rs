//! Proxy thread: executes device-posted requests. One queue, a step at a time.
//!
//! Requests of a queue have no order among each other but this: a signal comes after all that was posted
//! before it. So what is there at once is a *batch*: transfers first, neighbours as one, then its signals.
//! Memory of the host the thread copies itself; all else goes over the lane, which nothing waits for.
//! `completed` follows the first request that is not done yet.

use core::sync::atomic::{AtomicU64, Ordering};
use std::collections::VecDeque;

use super::failure::{Failure, Refused, Status};
use super::gpu::{GpuError, Lane};
use super::packing::pack;
use super::queue::Consumer;
use super::request::{Atomic, RemoteRange, Request};
use super::windows::KnownWindows;

/// Requests that are taken at once at most.
const BATCH: usize = 256;

/// What has become of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Done,
    /// Done when the lane has passed a mark.
    Marked(u64),
    /// Waits for something before it is begun.
    Deferred,
}

/// What waits until the lane has passed a mark.
#[derive(Debug, Clone, Copy)]
struct Deferred {
    number: u64,
    after: u64,
    what: Then,
}

#[derive(Debug, Clone, Copy)]
enum Then {
    /// A word of the host's memory is written or counted up.
    Signal { address: u64, value: u64, adds: bool },
    /// An answer is published, whose value is there, or has been copied there.
    Response(Option<u64>),
}

/// One queue and what serves it.
pub struct Proxy {
    rank: u32,
    queue: Consumer,
    lane: Box<dyn Lane>,
    windows: KnownWindows,
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
}

/// A word of memory that threads of the host share with kernels.
fn word(address: u64) -> &'static AtomicU64 {
    // SAFETY: the address was found in a window of memory of the host, at a multiple of 8; windows stay while
    // the proxy runs.
    unsafe { &*(address as *const AtomicU64) }
}

impl Proxy {
    /// For a rank's queue.
    pub fn new(rank: u32, queue: Consumer, lane: Box<dyn Lane>, windows: KnownWindows) -> Self {
        Self {
            rank,
            queue,
            lane,
            windows,
            states: VecDeque::new(),
            first: 0,
            deferred: VecDeque::new(),
            mark: 0,
            operand: 0,
            batch: Vec::with_capacity(BATCH),
            packed: Vec::with_capacity(BATCH),
        }
    }

    /// To be called first by the thread that steps.
    pub fn enter(&mut self) {
        self.lane.enter();
    }

    /// Whether nothing is under way.
    pub fn is_idle(&self) -> bool {
        self.states.is_empty()
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
        Ok(self.finish() || did)
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
        let mut uses_lane = false;
        let mut packed = core::mem::take(&mut self.packed);
        let transfers = batch.iter().map(|(_, request)| *request);
        pack(transfers.filter(|request| matches!(request, Request::Transfer { .. })), &mut packed);
        for transfer in &packed {
            uses_lane |= self.transfer(transfer)?;
        }
        self.packed = packed;
        let start = self.states.len();
        for (number, request) in batch {
            let state = match *request {
                Request::Transfer { there, bytes, local, local_offset, .. } => {
                    let here = RemoteRange { peer: self.rank, window: local, offset: local_offset };
                    let in_host = self.find(request, &there, bytes)?.1 && self.find(request, &here, bytes)?.1;
                    // The lane has it; which mark is behind it comes below.
                    if in_host { State::Done } else { State::Marked(0) }
                }
                Request::Store { to, value } => {
                    let (address, in_host) = self.find_word(request, &to)?;
                    if in_host {
                        word(address).store(value, Ordering::Relaxed);
                        State::Done
                    } else {
                        uses_lane = true;
                        self.lane.set(address, value).map_err(|cause| self.gpu(cause))?;
                        State::Marked(0)
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
        let mut sets = Vec::new();
        for (at, (number, request)) in batch.iter().enumerate() {
            if let Request::Signal { to, value, adds } = *request {
                let (address, in_host) = self.find_word(request, &to)?;
                if in_host {
                    let what = Then::Signal { address, value, adds };
                    self.deferred.push_back(Deferred { number: *number, after: before_signals, what });
                } else if adds {
                    return Err(self.refuse(request, &to, 8, Status::Unsupported));
                } else {
                    self.lane.set(address, value).map_err(|cause| self.gpu(cause))?;
                    sets.push(start + at);
                }
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
        let (remote, remote_in_host) = self.find(request, &there, bytes)?;
        let here = RemoteRange { peer: self.rank, window: local, offset: local_offset };
        let (own, own_in_host) = self.find(request, &here, bytes)?;
        let (to, from) = if is_get { (own, remote) } else { (remote, own) };
        if remote_in_host && own_in_host {
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
        let (address, in_host) = self.find_word(request, to)?;
        if in_host {
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
            self.deferred.push_back(Deferred { number, after: 0, what: Then::Response(Some(before)) });
            return Ok(false);
        }
        if operation != Atomic::Fetch {
            return Err(self.refuse(request, to, 8, Status::Unsupported));
        }
        let brought = &raw const self.queue.response(number).brought;
        self.lane.copy(brought as u64, address, 8).map_err(|cause| self.gpu(cause))?;
        self.deferred.push_back(Deferred { number, after: u64::MAX, what: Then::Response(None) });
        Ok(true)
    }

    /// Does what has waited, and tells how far the queue is done. Whether there was anything.
    fn finish(&mut self) -> bool {
        if self.states.is_empty() {
            return false;
        }
        let done = self.lane.done();
        let mut did = false;
        // Once round: what waits on comes to the back again.
        for _ in 0..self.deferred.len() {
            let Some(deferred) = self.deferred.pop_front() else { break };
            if deferred.after <= done && self.carry_out(&deferred) {
                self.states[(deferred.number - self.first) as usize] = State::Done;
                did = true;
            } else {
                self.deferred.push_back(deferred);
            }
        }
        while let Some(state) = self.states.front() {
            match state {
                State::Done => {}
                State::Marked(mark) if *mark <= done => {}
                _ => break,
            }
            self.states.pop_front();
            self.first += 1;
            did = true;
        }
        self.queue.complete(self.first);
        did
    }

    fn carry_out(&self, deferred: &Deferred) -> bool {
        match deferred.what {
            // Released: the copies before are there when it is.
            Then::Signal { address, value, adds: false } => word(address).store(value, Ordering::Release),
            Then::Signal { address, value, adds: true } => {
                word(address).fetch_add(value, Ordering::Release);
            }
            Then::Response(value) => {
                if !self.queue.can_respond(deferred.number) {
                    return false;
                }
                self.queue.publish(deferred.number, value);
            }
        }
        true
    }

    fn find(&mut self, request: &Request, remote: &RemoteRange, bytes: u64) -> Result<(u64, bool), Failure> {
        self.windows.find(remote, bytes).map_err(|status| self.refuse(request, remote, bytes, status))
    }

    fn find_word(&mut self, request: &Request, remote: &RemoteRange) -> Result<(u64, bool), Failure> {
        self.windows.find_word(remote).map_err(|status| self.refuse(request, remote, 8, status))
    }

    fn refuse(&self, request: &Request, remote: &RemoteRange, bytes: u64, status: Status) -> Failure {
        let RemoteRange { peer, window, offset } = *remote;
        let refused = Refused { status, verb: request.verb(), peer, window, offset, bytes, thread: None };
        Failure::Refused { rank: self.rank, refused }
    }

    fn gpu(&self, cause: GpuError) -> Failure {
        Failure::Gpu { rank: self.rank, cause }
    }
}
