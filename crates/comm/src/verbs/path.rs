//! RDMA reads over a connected queue pair.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use causeway_ibverbs::{
    Completion, Operation, ProtectionDomain, QueuePair, RemoteMemory, Segment, SendBatch, SendRequest,
};
use causeway_sync::spin::{self, BusyPoll};
use rustix::event::{PollFd, PollFlags, poll};

use super::error::RdmaError;
use super::queue_pair::{MAX_READS, Parts};

/// How long nothing may come while a read is under way. A dead path is told by the card after two seconds.
const COMPLETION_TIMEOUT: Duration = Duration::from_secs(8);

/// How long the descriptors are waited for at a time.
const LOOK: Duration = Duration::from_millis(500);

/// A queue pair that is joined with the peer's, and by which its memory is read.
#[derive(Debug)]
pub(crate) struct Path {
    /// In front of all else: when it has gone, no bytes come any more.
    pair: QueuePair,
    parts: Parts,
    batch: SendBatch,
    last: u64,
    /// Reads that have ended and were not asked for yet.
    ended: Vec<u64>,
    in_flight: usize,
    has_failed: bool,
}

impl Path {
    pub(super) fn new(pair: QueuePair, parts: Parts) -> Self {
        Self {
            pair,
            parts,
            batch: SendBatch::with_capacity(1),
            last: 0,
            ended: Vec::new(),
            in_flight: 0,
            has_failed: false,
        }
    }

    /// Where memory is registered into which bytes are read.
    pub(crate) fn domain(&self) -> &ProtectionDomain {
        &self.parts.domain
    }

    /// Begins to read memory of the peer, and gives the read's number. At most [`MAX_READS`] may be under
    /// way.
    ///
    /// # Safety
    /// The segment's bytes stay mapped, and are not shared, until [`wait`](Self::wait) has said that the
    /// read is done, or the path has been dropped.
    pub(crate) unsafe fn read(&mut self, from: RemoteMemory, into: Segment) -> Result<u64, RdmaError> {
        self.last += 1;
        self.batch.push(&SendRequest::new(self.last, Operation::Read { from }, into));
        // SAFETY: as promised by the caller; each read has a completion of its own.
        unsafe { self.pair.post(&mut self.batch) }.inspect_err(|_| self.has_failed = true)?;
        self.in_flight += 1;
        Ok(self.last)
    }

    /// Waits until a read is done. `peer` is the socket that joins the two ranks: it tells when the peer
    /// ends. After an error the path is of no use, and to be dropped: then nothing more is written.
    pub(crate) fn wait(&mut self, read: u64, peer: BorrowedFd<'_>) -> Result<(), RdmaError> {
        self.wait_for(read, peer).inspect_err(|_| self.has_failed = true)
    }

    /// Whether nothing is under way, and nothing has failed.
    pub(crate) fn is_idle(&self) -> bool {
        self.in_flight == 0 && !self.has_failed
    }

    fn wait_for(&mut self, read: u64, peer: BorrowedFd<'_>) -> Result<(), RdmaError> {
        let (mut busy, spin) = (BusyPoll::new(), spin::between_commands());
        let mut last_completion = Instant::now();
        loop {
            if let Some(at) = self.ended.iter().position(|ended| *ended == read) {
                self.ended.swap_remove(at);
                return Ok(());
            }
            if self.take()? {
                last_completion = Instant::now();
            } else if busy.pause() >= spin {
                if last_completion.elapsed() > COMPLETION_TIMEOUT {
                    return Err(RdmaError::Silent(COMPLETION_TIMEOUT.as_secs()));
                }
                self.sleep(peer)?;
            }
        }
    }

    /// Takes completions, if there are any.
    fn take(&mut self) -> Result<bool, RdmaError> {
        let mut completions = [Completion::default(); MAX_READS];
        let count = self.parts.completions.poll(&mut completions)?;
        for completion in &completions[..count] {
            if !completion.status().is_success() {
                return Err(RdmaError::Read(completion.status()));
            }
            self.ended.push(completion.id());
        }
        self.in_flight = self.in_flight.saturating_sub(count);
        Ok(count > 0)
    }

    /// Sleeps until a completion may be there.
    fn sleep(&mut self, peer: BorrowedFd<'_>) -> Result<(), RdmaError> {
        self.parts.completions.request_event()?;
        // It may have come before the question.
        if self.take()? {
            return Ok(());
        }
        let completions = self.parts.completions.descriptor();
        let mut polled = [
            PollFd::from_borrowed_fd(completions, PollFlags::IN),
            PollFd::from_borrowed_fd(peer, PollFlags::RDHUP),
        ];
        let look = LOOK.try_into().ok();
        match poll(&mut polled, look.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(RdmaError::System(error.into())),
        }
        let [completions, peer] = polled.map(|polled| polled.revents());
        if !completions.is_empty() {
            self.parts.completions.take_event()?;
        } else if !peer.is_empty() {
            return Err(RdmaError::PeerDisconnected);
        }
        Ok(())
    }
}
