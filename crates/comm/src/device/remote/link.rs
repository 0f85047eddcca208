//! Link to a peer's proxy: what this rank's proxies ask of it, and how far it has come.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::collections::VecDeque;

use causeway_sync::descriptors::EventFd;

use super::frame::{MAX_PAYLOAD, Position};
use super::stream::LinkError;
use crate::device::request::Atomic;
use crate::locks::{Mutex, MutexGuard, rank};

/// What a proxy asks for. Its ranges were checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Bytes of this rank's part go to the peer's.
    Put {
        /// There.
        to: Position,
        /// Here.
        from: Position,
        /// How many.
        bytes: u64,
    },
    /// Bytes of the peer's part come to this rank's.
    Get {
        /// There.
        from: Position,
        /// Here.
        to: Position,
        /// How many.
        bytes: u64,
    },
    /// A word is written.
    Store {
        /// There.
        to: Position,
        /// What.
        value: u64,
    },
    /// A word is written or counted up behind what was asked for before.
    Signal {
        /// There.
        to: Position,
        /// What.
        value: u64,
        /// Whether the value is added.
        adds: bool,
    },
    /// A word is read and perhaps changed.
    Atomic {
        /// There.
        to: Position,
        /// How.
        operation: Atomic,
        /// What is added, or written.
        value: u64,
        /// What is compared with.
        operand: u64,
        /// Address of the word here that gets what was there before: a response's, which the proxy reads when
        /// the operation is done.
        brought: u64,
    },
}

impl Operation {
    /// Requests of which it is made.
    pub fn frames(&self) -> u64 {
        match self {
            Self::Put { bytes, .. } | Self::Get { bytes, .. } => bytes.div_ceil(u64::from(MAX_PAYLOAD)),
            _ => 1,
        }
    }
}

/// What has been posted.
#[derive(Debug, Default)]
pub struct Inbox {
    /// In order. The first may have been sent in part.
    pub operations: VecDeque<Operation>,
    posted: u64,
}

/// A link.
#[derive(Debug, Default)]
pub struct Link {
    inbox: Mutex<rank::Leaf, Inbox>,
    completed: AtomicU64,
}

impl Link {
    /// What has been posted and not taken. Held for the time of a push or a pop.
    pub fn inbox(&self) -> MutexGuard<'_, rank::Leaf, Inbox> {
        self.inbox.lock()
    }

    /// Has `take_first` take the first operation up to `max` times. It returns what is left of that, or `None` where it
    /// can take no more now.
    ///
    /// # Errors
    /// Those of `take_first`; its operation stays.
    pub fn take_operations(
        &self,
        max: usize,
        mut take_first: impl FnMut(Operation) -> Result<Option<Option<Operation>>, LinkError>,
    ) -> Result<TakenOperations, LinkError> {
        for count in 0..max {
            // The caller's thread alone takes from there.
            let Some(operation) = self.inbox().operations.front().copied() else {
                return Ok(TakenOperations { count, is_blocked: false });
            };
            let Some(rest) = take_first(operation)? else {
                return Ok(TakenOperations { count, is_blocked: true });
            };
            let operations = &mut self.inbox().operations;
            match rest {
                Some(rest) => operations[0] = rest,
                None => drop(operations.pop_front()),
            }
        }
        Ok(TakenOperations { count: max, is_blocked: true })
    }

    /// Says that so many requests more are done.
    pub fn complete(&self, count: u64) {
        // Released: what was copied, and what was brought, is there when it is seen.
        self.completed.fetch_add(count, Ordering::Release);
    }
}

/// What was taken of the operations of a link.
#[derive(Debug, Clone, Copy)]
pub struct TakenOperations {
    /// The number of pieces.
    pub count: usize,
    /// Whether more may have been posted than could be taken.
    pub is_blocked: bool,
}

/// The links of a rank.
#[derive(Debug)]
pub struct Links {
    /// By the peer's rank.
    links: Vec<Link>,
    wake: EventFd,
    is_asleep: AtomicBool,
}

impl Links {
    /// To so many ranks.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    pub fn new(ranks: u32) -> std::io::Result<Self> {
        let links = (0..ranks).map(|_| Link::default()).collect();
        Ok(Self { links, wake: EventFd::new()?, is_asleep: AtomicBool::new(false) })
    }

    /// The link to a rank of the team.
    pub fn to(&self, peer: u32) -> &Link {
        &self.links[peer as usize]
    }

    /// Asks a peer for something. It is done when [`completed`](Self::completed) is the number that comes
    /// back.
    pub fn post(&self, peer: u32, operation: Operation) -> u64 {
        let mut inbox = self.to(peer).inbox();
        inbox.posted += operation.frames();
        inbox.operations.push_back(operation);
        let number = inbox.posted;
        drop(inbox);
        self.wake();
        number
    }

    /// How many requests to a peer are done.
    pub fn completed(&self, peer: u32) -> u64 {
        self.to(peer).completed.load(Ordering::Acquire)
    }

    /// The same of all peers.
    pub fn all_completed(&self) -> impl Iterator<Item = u64> {
        self.links.iter().map(|link| link.completed.load(Ordering::Acquire))
    }

    /// Wakes the thread of the links, where it sleeps.
    pub fn wake(&self) {
        // Sequential, with the one in `sleep`: either this one sees that the thread sleeps, or that one sees
        // what was posted.
        fence(Ordering::SeqCst);
        if self.is_asleep.load(Ordering::Relaxed) {
            self.wake.signal();
        }
    }

    /// Says that the thread is about to sleep: it has to look once more, and to wait for what comes back.
    pub fn sleep(&self) -> &EventFd {
        self.is_asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        &self.wake
    }

    /// Says that it does not any more.
    pub fn is_awake(&self) {
        self.is_asleep.store(false, Ordering::Relaxed);
        self.wake.clear();
    }
}
