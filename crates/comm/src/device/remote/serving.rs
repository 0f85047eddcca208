//! Thread of a rank's links.

use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::end::{LinkEnd, STAGING_BYTES, Shared};
use super::joining;
use super::lanes::Copies;
use super::link::Links;
use super::parts::Parts;
use crate::bootstrap::ByteStream;
use crate::device::failure::Failure;
use crate::device::gpu::{Block, Gpu, GpuError};
use crate::device::peers::{PeerError, Peers};
use crate::device::remote::rdma::RDMA_STAGING_BYTES;
use crate::device::remote::stream::LinkError;
use crate::verbs::LinkNic;

/// How long the thread polls, on a machine with cores enough, before it sleeps.
const AWAKE: Duration = Duration::from_millis(50);

/// How long a sleep is at most: what ends the thread wakes it, too.
const MAX_SLEEP: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// How long a rank that leaves waits for others to take its last answers.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(2);

/// Bytes in front of the staging memory of links: the word of [`Copies`].
const WORD_BYTES: u64 = 64;

/// A peer, and why its link has no network card, if so.
pub(crate) type LinkNicResult = (u32, Result<(), String>);

/// The ends of a rank's links.
pub struct Service {
    rank: u32,
    links: Arc<Links>,
    parts: Arc<Parts>,
    copies: Copies,
    ends: Vec<LinkEnd>,
    /// The card of the ends that have one, which go first.
    nic: Option<Arc<LinkNic>>,
    /// What the card has ended, before the ends get it.
    ended: Vec<crate::verbs::Ended>,
    /// Where staging memory of links with a card begins, by peer.
    staging_of: Vec<(u32, u64)>,
    is_crowded: bool,
    last: Option<Instant>,
    /// Freed behind all that uses it.
    _staging: Block,
}

impl Service {
    /// Over streams to peers, for a rank's GPU. A rank that has a link to itself has both of its ends. Those
    /// to peers for which `has_nic` get memory for a card.
    ///
    /// # Errors
    /// When there is no memory.
    pub fn new(
        rank: u32,
        gpu: &dyn Gpu,
        streams: Vec<(u32, ByteStream)>,
        links: Arc<Links>,
        parts: Arc<Parts>,
        is_crowded: bool,
        has_nic: impl Fn(u32) -> bool,
    ) -> Result<Self, GpuError> {
        let bytes_of = |peer| STAGING_BYTES + if has_nic(peer) { RDMA_STAGING_BYTES } else { 0 };
        let all: u64 = streams.iter().map(|(peer, _)| bytes_of(*peer)).sum();
        let staging = gpu.host_memory(WORD_BYTES + all)?;
        let copies = Copies::new(gpu.link_lane()?, staging.address);
        let mut address = staging.address + WORD_BYTES;
        let (mut ends, mut staging_of): (Vec<LinkEnd>, _) = (Vec::new(), Vec::new());
        for (peer, stream) in streams {
            let initiates = ends.iter().all(|other| other.peer != peer);
            ends.push(LinkEnd::new(peer, initiates, stream, address));
            if has_nic(peer) {
                staging_of.push((peer, address));
            }
            address += bytes_of(peer);
        }
        let (nic, ended, last) = (None, Vec::new(), None);
        Ok(Self {
            rank,
            links,
            parts,
            copies,
            ends,
            nic,
            ended,
            staging_of,
            is_crowded,
            last,
            _staging: staging,
        })
    }

    /// Joins the card with those of peers: of each why its link has none, if so. All ranks call it at the same
    /// time, before the thread serves.
    ///
    /// # Errors
    /// When a peer has gone.
    pub(crate) fn join_nics(
        &mut self,
        nic: &Arc<LinkNic>,
        peers: &Peers,
    ) -> Result<Vec<LinkNicResult>, PeerError> {
        // SAFETY: the staging memory is dropped behind the ends.
        let joined = unsafe { joining::join(nic, peers, &self.staging_of) }?;
        let mut joined_nics = Vec::new();
        for ((peer, path), (_, staging)) in joined.into_iter().zip(&self.staging_of) {
            joined_nics.push((peer, path.as_ref().map(|_| ()).map_err(Clone::clone)));
            let at = self.ends.iter().position(|end| end.peer == peer);
            if let (Ok(path), Some(at)) = (path, at) {
                let end = self.ends.remove(at).with_rdma(path, *staging);
                self.ends.insert(at, end);
                self.nic = Some(Arc::clone(nic));
            }
        }
        Ok(joined_nics)
    }

    /// Tells ends what the card has ended.
    fn poll_nic(&mut self) -> Result<(), Failure> {
        let Some(nic) = &self.nic else { return Ok(()) };
        let failed = |error: crate::verbs::RdmaError| {
            LinkError::Nic(error.to_string()).into_failure(self.rank, self.rank)
        };
        nic.poll(&mut self.ended).map_err(failed)?;
        for (number, event) in self.ended.drain(..) {
            let mut paths = self.ends.iter_mut().filter_map(LinkEnd::rdma_path);
            // Of a queue pair that was not joined nothing is said.
            if let Some(path) = paths.find(|path| path.number() == number) {
                path.push(event);
            }
        }
        Ok(())
    }

    /// To be called first by the thread that serves.
    pub fn enter(&mut self) {
        self.copies.enter();
    }

    /// Moves everything on that can be. Whether there was anything.
    ///
    /// # Errors
    /// What ends the team.
    pub fn step(&mut self) -> Result<bool, Failure> {
        let mut did = false;
        self.copies.look();
        self.poll_nic()?;
        for (at, end) in self.ends.iter_mut().enumerate() {
            let link = self.links.to(end.peer);
            let mut shared = Shared { link, parts: &self.parts, copies: &mut self.copies };
            match end.step(&mut shared) {
                Ok(worked) => did |= worked,
                Err(LinkError::Lost(cause)) => return Err(self.lost(at, cause)),
                Err(error) => return Err(error.into_failure(self.rank, end.peer)),
            }
        }
        if did {
            self.last = None;
        }
        Ok(did)
    }

    /// Why the team ends when an end's stream has: a card that has refused something says more.
    fn lost(&mut self, at: usize, cause: std::io::Error) -> Failure {
        let polled = self.poll_nic();
        let end = &mut self.ends[at];
        let refused = polled.ok().and_then(|()| end.rdma_path()?.refusal());
        refused.unwrap_or(LinkError::Lost(cause)).into_failure(self.rank, end.peer)
    }

    /// To be called when there was nothing to do: waits until there may be.
    pub fn rest(&mut self) {
        if !self.copies.is_idle() {
            // The lane wakes no thread.
            std::thread::yield_now();
        } else if !self.is_crowded && self.last.get_or_insert_with(Instant::now).elapsed() < AWAKE {
            core::hint::spin_loop();
        } else {
            self.sleep();
        }
    }

    /// Has the card say when something ends; whether something has ended already, or it cannot say so.
    fn has_ended_requests(&mut self) -> bool {
        let Some(nic) = self.nic.clone() else { return false };
        let is_asked = nic.completions().request_event().is_ok();
        // It may have come before the question.
        !is_asked || self.poll_nic().is_err() || self.ends.iter_mut().any(LinkEnd::has_events)
    }

    fn sleep(&mut self) {
        let has_ended = self.has_ended_requests();
        let wake = self.links.sleep();
        // Where all that was posted waits for peers, their streams wake the thread.
        if !has_ended && !self.ends.iter().any(|end| end.has_news(self.links.to(end.peer))) {
            let streams = self.ends.iter().filter_map(|end| {
                let flags = if end.waits()? { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
                Some(PollFd::from_borrowed_fd(end.as_fd(), flags))
            });
            let wake = PollFd::from_borrowed_fd(wake.as_fd(), PollFlags::IN);
            let nic = self.nic.iter().map(|nic| PollFd::from_borrowed_fd(nic.descriptor(), PollFlags::IN));
            let mut all: Vec<PollFd<'_>> = core::iter::once(wake).chain(streams).chain(nic).collect();
            // Whatever came of it, all are looked at next.
            let _ = poll(&mut all, Some(&MAX_SLEEP));
        }
        if let Some(nic) = &self.nic {
            // As above.
            let _ = nic.completions().take_event();
        }
        self.links.is_awake();
    }

    /// Answers what has come, says goodbye, and ends the streams behind that.
    pub fn leave(&mut self) {
        let until = Instant::now() + LEAVE_TIMEOUT;
        let mut has_announced = false;
        loop {
            // Who has gone takes no answer.
            let Ok(did) = self.step() else { return self.shut() };
            if !did && self.ends.iter().all(LinkEnd::is_idle) {
                if !has_announced {
                    self.ends.iter_mut().for_each(LinkEnd::leave);
                    has_announced = true;
                    continue;
                }
                if self.ends.iter().all(LinkEnd::is_released) {
                    break;
                }
            }
            if Instant::now() > until {
                return self.shut();
            }
            if !did {
                std::thread::yield_now();
            }
        }
        self.ends.iter().for_each(LinkEnd::end_writing);
    }

    /// Ends all streams, whatever is under way.
    pub fn shut(&self) {
        self.ends.iter().for_each(LinkEnd::shut);
    }
}
