//! Receives: fetch of announced messages, and the thread that sees their copies end.

use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_sync::threads;

use super::state::{Copying, PEER_TIMEOUT, Shared, World};
use crate::bootstrap::Connection;
use crate::channels::receiver::FetchRequest;
use crate::channels::{Channel, TransferError};
use crate::cuda::{self, CudaError, DeviceMemory, Driver};
use crate::locks::{Mutex, rank};
use crate::matching::Descriptor;
use crate::pair::{ConnectedPeer, Pair};
use crate::report::MessagePath;
use crate::tracer::Operation;
use crate::transfer::fetch::{Outcome, Wait};
use crate::transfer::offers::OfferState;
use crate::transfer::{Fetcher, MappedMemory};

/// How long a receiver waits for the connection of a peer that has sent word of a message.
const ARRIVAL_TIMEOUT: Duration = Duration::from_secs(10);

impl World {
    /// A thread waits in a call of the MPI from now on, in which this rank fetches nothing: the peers whose
    /// messages it has fetched before know that.
    pub fn begin_wait(&self) {
        let mut waiting = self.shared.waiting.lock();
        waiting.calls += 1;
        if waiting.calls > 1 {
            return;
        }
        for fetcher in self.shared.incoming.lock().values() {
            // Another thread may be fetching.
            let Some(fetcher) = fetcher.try_lock() else { continue };
            let Some(peer) = fetcher.known_peer_state() else { continue };
            peer.set_waiting(true);
            waiting.announced.push(Arc::clone(peer));
        }
    }

    /// The thread has come back.
    pub fn end_wait(&self) {
        let mut waiting = self.shared.waiting.lock();
        waiting.calls = waiting.calls.saturating_sub(1);
        if waiting.calls == 0 {
            waiting.announced.drain(..).for_each(|peer| peer.set_waiting(false));
        }
    }

    /// Fetches what a descriptor describes, and waits until it is there. Where it is longer than the room for
    /// it, nothing is fetched, and the sender hears that it is done.
    ///
    /// # Safety
    /// `to` is valid for `size` bytes, on the host or on a GPU, and no other code uses it.
    ///
    /// # Errors
    /// When the sender has gone, or no channel brings it.
    pub unsafe fn fetch(
        &self,
        descriptor: &Descriptor,
        to: u64,
        to_gpu: bool,
        size: u64,
        by: Operation,
    ) -> Result<(), TransferError> {
        // SAFETY: the caller has `to` valid for `size` bytes until the fetch is over, and no other code uses
        // it.
        unsafe { self.fetch_and(descriptor, to, to_gpu, size, by, Wait::Blocking) }.map(drop)
    }

    /// The same for a program that does not wait. The number of the fetch, where it is not over at once: then
    /// [`fetch_end`](Self::fetch_end) is to be asked.
    ///
    /// # Safety
    /// As for [`fetch`](Self::fetch), until the fetch is over.
    ///
    /// # Errors
    /// As of `fetch`.
    pub unsafe fn start_fetch(
        &self,
        descriptor: &Descriptor,
        to: u64,
        to_gpu: bool,
        size: u64,
    ) -> Result<Option<u64>, TransferError> {
        let wait = if self.watches_copies() { Wait::NonBlocking } else { Wait::Blocking };
        // SAFETY: the caller has `to` valid for `size` bytes until the fetch is over, and no other code uses
        // it.
        unsafe { self.fetch_and(descriptor, to, to_gpu, size, Operation::NonBlocking, wait) }
    }

    /// # Safety
    /// As of the two above.
    unsafe fn fetch_and(
        &self,
        descriptor: &Descriptor,
        to: u64,
        to_gpu: bool,
        size: u64,
        by: Operation,
        wait: Wait,
    ) -> Result<Option<u64>, TransferError> {
        let Descriptor { from, operation, bytes, memory, word, traffic, .. } = *descriptor;
        if from == self.shared.rank {
            // SAFETY: the caller has `to` valid for `size` bytes, of which no more are written, and no other
            // code uses it.
            return unsafe { self.fetch_from_self(operation, to, size.min(bytes)) }.map(|()| None);
        }
        let request = FetchRequest { operation, bytes, source: memory, word, to, to_gpu, traffic };
        let (start, mut counts) = (Instant::now(), Some(by));
        let fetched = self.with_fetcher(from, |fetcher, locked| {
            if let Some(by) = counts.take().filter(|_| !locked.is_network()) {
                self.shared.tracers.count(from, by);
            }
            if bytes > size {
                return locked.decline(operation).map(|()| None);
            }
            let outcome = locked.fetch(&request, wait)?;
            Ok(Some((outcome, Arc::clone(fetcher))))
        })?;
        let Some((outcome, fetcher)) = fetched else { return Ok(None) };
        match outcome {
            Outcome::Complete(fetched) => {
                self.shared.count(from, MessagePath::Fetched(fetched), bytes);
                Ok(None)
            }
            Outcome::InFlight(pending_fetch) => {
                let queue = pending_fetch.life();
                let copying = Copying { fetcher, pending_fetch };
                let number = self.shared.in_flight.lock().add(queue, copying, start);
                self.shared.completion.copy_started();
                Ok(Some(number))
            }
        }
    }

    /// Copies a message that the MPI has brought to where it is received, and waits. A message from a peer
    /// that the processor copies is counted.
    ///
    /// # Safety
    /// As of [`copy`](Self::copy).
    ///
    /// # Errors
    /// As of `copy`.
    pub unsafe fn deliver(
        &self,
        peer: Option<u32>,
        to: u64,
        from: u64,
        bytes: usize,
    ) -> Result<(), CudaError> {
        // SAFETY: the caller has both addresses valid for `bytes` bytes until this returns.
        let is_eager = unsafe { self.copy(to, from, bytes) }?;
        if let Some(peer) = peer.filter(|_| is_eager) {
            self.shared.count(peer, MessagePath::Eager, bytes as u64);
        }
        Ok(())
    }

    /// State of a fetch that was not over at once; none while it is under way. It is forgotten with
    /// the answer.
    ///
    /// # Errors
    /// When the copy has failed.
    pub fn fetch_end(&self, number: u64) -> Option<Result<(), TransferError>> {
        let (now, in_flight) = (Instant::now(), &self.shared.in_flight);
        let ended = in_flight.lock().end(number, now, Copying::is_done, Copying::notify_sender);
        let (Copying { fetcher, pending_fetch: ended }, took) = ended?;
        let mut fetcher = fetcher.lock();
        let outcome = fetcher.end(&ended, took);
        if outcome.is_ok() {
            self.shared.count(fetcher.peer(), MessagePath::Fetched(ended.fetched), ended.bytes);
        }
        Some(outcome)
    }

    /// Opens the memory of another rank that a descriptor describes, for kernels that use this rank's own
    /// memory, too; none where no channel opens it there.
    ///
    /// # Errors
    /// When the other rank has gone.
    pub fn map_peer_memory(
        &self,
        descriptor: &Descriptor,
        driver: &'static Driver,
        own: DeviceMemory,
    ) -> Result<Option<MappedMemory>, TransferError> {
        self.with_fetcher(descriptor.from, |_, fetcher| fetcher.map_for_kernels(descriptor, driver, own))
    }

    /// Counts memory of a peer that a kernel has used in place.
    pub fn count_mapped(&self, peer: u32, channel: Channel, bytes: u64) {
        self.shared.count(peer, MessagePath::Mapped(channel), bytes);
    }

    /// # Safety
    /// As [`fetch`](Self::fetch).
    unsafe fn fetch_from_self(&self, operation: u64, to: u64, bytes: u64) -> Result<(), TransferError> {
        let rank = self.shared.rank;
        let offer = self.shared.offers.begin(operation, rank).ok_or(TransferError::NoConnection(rank))?;
        let copied = match &offer.copy {
            _ if bytes < offer.bytes => Ok(()),
            Some(copy) if !Driver::loaded().is_some_and(|driver| DeviceMemory::is_at(driver, to)) => {
                // SAFETY: the caller has `to` valid for so many bytes, and the copy is memory of this
                // process, which it does not overlap.
                unsafe { core::ptr::copy_nonoverlapping(copy.as_ptr(), to as *mut u8, copy.len()) };
                Ok(())
            }
            copy => {
                let from = copy.as_ref().map_or(offer.address, |copy| copy.as_ptr() as u64);
                // SAFETY: the caller has `to` valid for so many bytes; the offer's memory stays as it is
                // until the offer ends.
                unsafe { cuda::copy(to, from, bytes as usize) }
            }
        };
        let state = if copied.is_ok() { OfferState::Done } else { OfferState::Failed };
        self.shared.offers.end(operation, rank, state);
        Ok(copied?)
    }

    /// Does something with what this rank has of a peer that has sent word of a message: again, where one of
    /// both moves to another container meanwhile.
    fn with_fetcher<T>(
        &self,
        peer: u32,
        mut act: impl FnMut(&Arc<Mutex<rank::Fetcher, Fetcher>>, &mut Fetcher) -> Result<T, TransferError>,
    ) -> Result<T, TransferError> {
        self.follow_process();
        let until = Instant::now() + PEER_TIMEOUT;
        loop {
            let running = self.shared.gate.start();
            let fetcher = self.fetcher(peer)?;
            let mut locked = fetcher.lock();
            match act(&fetcher, &mut locked) {
                Err(TransferError::Moved(_)) if Instant::now() < until => {
                    drop(locked);
                    self.shared.retire(peer, &fetcher);
                    drop(running);
                }
                outcome => return outcome,
            }
        }
    }

    /// What this rank has of a peer that has sent word of a message: its connection may come in a moment.
    pub(super) fn fetcher(&self, peer: u32) -> Result<Arc<Mutex<rank::Fetcher, Fetcher>>, TransferError> {
        let arrived = self.shared.incoming.wait_for(ARRIVAL_TIMEOUT, |incoming| incoming.get(&peer).cloned());
        arrived.ok_or(TransferError::NoConnection(peer))
    }
}

impl Shared {
    /// A peer is not reached by this any more, and comes again.
    pub(super) fn retire(&self, peer: u32, fetcher: &Arc<Mutex<rank::Fetcher, Fetcher>>) {
        self.incoming.change(|incoming| {
            if incoming.get(&peer).is_some_and(|current| Arc::ptr_eq(current, fetcher)) {
                incoming.remove(&peer);
                self.retired.lock().insert(peer, Arc::clone(fetcher));
            }
        });
    }

    pub(super) fn keep_incoming(&self, connection: Connection) {
        let peer = connection.peer;
        if connection.set_timeout(Some(PEER_TIMEOUT)).is_err() {
            return;
        }
        let board = self.board.lock();
        let pair = if connection.is_network() {
            Pair::remote()
        } else {
            Pair::of(board.slot(), board.scan().get(peer), Ok(ConnectedPeer::by(&connection)))
        };
        drop(board);
        let allowed: Vec<Channel> = self.settings.channels.clone();
        let live = Arc::clone(&self.live);
        let profile = self.profile.lock().clone();
        let table = self.table.clone();
        // A peer that has moved has its words still.
        let before = [self.incoming.lock().get(&peer).cloned(), self.retired.lock().remove(&peer)];
        let state_words = before.iter().flatten().find_map(|before| before.lock().take_state_words());
        let fetcher =
            Arc::new(Mutex::new(Fetcher::new(connection, pair, allowed, live, table, profile, state_words)));
        let replaced = self.incoming.change(|incoming| incoming.insert(peer, fetcher));
        if let Some(replaced) = replaced {
            // Where the peer takes that for the connection of both it comes again.
            replaced.lock().give_up();
        }
    }
}

/// Times from one look to the next while copies are under way: it grows as long as none of them ends.
const MIN_POLL_INTERVAL: Duration = Duration::from_micros(50);
const MAX_POLL_INTERVAL: Duration = Duration::from_micros(500);

/// For how long the thread looks on when none is under way any more: whoever begins the next one soon need
/// not wake it.
const IDLE_TIME: Duration = Duration::from_millis(50);

impl World {
    /// Whether a thread looks at copies that are under way, which is started now if there is none. Where the
    /// system gives no thread, a copy must be waited for by whoever begins it.
    pub(super) fn watches_copies(&self) -> bool {
        *self.shared.completion.is_started.get_or_init(|| {
            let shared = Arc::clone(&self.shared);
            let node = Driver::loaded().and_then(cuda::current_node);
            let thread = threads::spawn("comm-copies", move || {
                cuda::bind_thread(node);
                watch(&shared);
            });
            thread.map(|thread| self.threads.lock().push((None, thread))).is_ok()
        })
    }
}

/// Completion thread: looks at copies in flight until the rank leaves.
///
/// A receiver that its program does not wait for begins its copy and returns. The sender waits for the end of
/// that copy, and the program may wait for the sender in any way: in a call of its MPI that knows nothing of
/// copies, at a lock of a file, at a socket. So a thread looks at the copies that are under way, and tells
/// senders of those that are over by their words. It is started with the first such copy, sleeps while there
/// are none, and never calls the MPI: it works whatever level of threads the program has asked its MPI for.
fn watch(shared: &Shared) {
    let completion = &shared.completion;
    let (mut interval, mut idle_since) = (MIN_POLL_INTERVAL, None::<Instant>);
    // The first copy follows.
    let mut is_running = completion.sleep();
    while is_running {
        is_running = completion.pause(interval);
        let mut in_flight = shared.in_flight.lock();
        let has_ended = in_flight.collect(Instant::now(), Copying::is_done, Copying::notify_sender);
        let is_idle = in_flight.is_idle();
        drop(in_flight);
        interval = if has_ended { MIN_POLL_INTERVAL } else { (interval * 2).min(MAX_POLL_INTERVAL) };
        idle_since = is_idle.then(|| idle_since.unwrap_or_else(Instant::now));
        if idle_since.is_some_and(|since| since.elapsed() >= IDLE_TIME) {
            is_running = is_running && completion.sleep();
            (interval, idle_since) = (MIN_POLL_INTERVAL, None);
        }
    }
}
