//! Thread of a rank's links.

use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::end::{LinkEnd, STAGING_BYTES, Shared};
use super::lanes::Copies;
use super::link::Links;
use super::parts::Parts;
use crate::bootstrap::ByteStream;
use crate::device::failure::Failure;
use crate::device::gpu::{Block, Gpu, GpuError};

/// How long the thread polls, on a machine with cores enough, before it sleeps.
const AWAKE: Duration = Duration::from_millis(50);

/// How long a sleep is at most: what ends the thread wakes it, too.
const MAX_SLEEP: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// How long a rank that leaves waits for others to take its last answers.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(2);

/// Bytes in front of the staging memory of links: the word of [`Copies`].
const WORD_BYTES: u64 = 64;

/// The ends of a rank's links.
pub struct Service {
    rank: u32,
    links: Arc<Links>,
    parts: Arc<Parts>,
    copies: Copies,
    ends: Vec<LinkEnd>,
    is_crowded: bool,
    last: Option<Instant>,
    /// Freed behind all that uses it.
    _staging: Block,
}

impl Service {
    /// Over streams to peers, for a rank's GPU. A rank that has a link to itself has both of its ends.
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
    ) -> Result<Self, GpuError> {
        let staging = gpu.host_memory(WORD_BYTES + STAGING_BYTES * streams.len() as u64)?;
        let copies = Copies::new(gpu.link_lane()?, staging.address);
        let addresses = (0..).map(|number| staging.address + WORD_BYTES + STAGING_BYTES * number);
        let mut ends: Vec<LinkEnd> = Vec::new();
        for ((peer, stream), address) in streams.into_iter().zip(addresses) {
            let initiates = ends.iter().all(|other| other.peer != peer);
            ends.push(LinkEnd::new(peer, initiates, stream, address));
        }
        Ok(Self { rank, links, parts, copies, ends, is_crowded, last: None, _staging: staging })
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
        for end in &mut self.ends {
            let link = self.links.to(end.peer);
            let mut shared = Shared { link, parts: &self.parts, copies: &mut self.copies };
            did |= end.step(&mut shared).map_err(|error| error.into_failure(self.rank, end.peer))?;
        }
        if did {
            self.last = None;
        }
        Ok(did)
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

    fn sleep(&self) {
        let wake = self.links.sleep();
        // Where all that was posted waits for peers, their streams wake the thread.
        if !self.ends.iter().any(|end| end.has_news(self.links.to(end.peer))) {
            let streams = self.ends.iter().filter_map(|end| {
                let flags = if end.waits()? { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
                Some(PollFd::from_borrowed_fd(end.as_fd(), flags))
            });
            let wake = PollFd::from_borrowed_fd(wake.as_fd(), PollFlags::IN);
            let mut all: Vec<PollFd<'_>> = core::iter::once(wake).chain(streams).collect();
            // Whatever came of it, all are looked at next.
            let _ = poll(&mut all, Some(&MAX_SLEEP));
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
                if has_announced {
                    break;
                }
                self.ends.iter_mut().for_each(LinkEnd::leave);
                has_announced = true;
                continue;
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
