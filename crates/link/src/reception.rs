//! Who receives: the thread whose task it is, or one that waits for what comes?
//!
//! A thread that waits and is awake looks for its answer itself, as a *guest*: what another thread receives
//! comes by way of that one's caches, and is later by 0.3 to 0.5 us (a virtual machine with an H200,
//! 2026-11-23). What a guest has no business with it leaves, with all that comes behind, to the receiving
//! thread, which stands by while there are guests. Whoever sleeps is no guest: so when all others sleep that
//! thread receives.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::receiver::{Meanwhile, Receiver};
use causeway_sync::awake::Looking;

/// The receiving end of a link, for a thread that receives and for guests.
#[derive(Debug)]
pub struct Reception {
    inbox: Mutex<Inbox>,
    /// Threads that look now.
    guests: AtomicUsize,
    /// Whether one of them has left something, or has found that the link has ended.
    has_rest: AtomicBool,
    /// Whether one of them has received anything since the receiving thread stood by last.
    was_useful: AtomicBool,
}

#[derive(Debug)]
struct Inbox {
    /// None when nobody receives any more.
    receiver: Option<Receiver>,
    /// Bytes at the end of the frame at hand that a guest has left.
    rest: usize,
}

/// A thread that looks for what it waits for. While there is one, the receiving thread leaves that to it.
#[derive(Debug)]
pub struct Guest<'a>(&'a Reception);

/// Ends the link, since nobody receives any more.
struct End<'a>(&'a Reception);

/// What the receiving thread does meanwhile. When it has stood by in vain, whoever waited sleeps by now, and
/// it is not to stay awake for that one.
struct Patience<'a, M> {
    meanwhile: &'a mut M,
    was_in_vain: bool,
}

impl Reception {
    /// Nobody receives yet.
    pub fn new(receiver: Receiver) -> Self {
        Self {
            inbox: Mutex::new(Inbox { receiver: Some(receiver), rest: 0 }),
            guests: AtomicUsize::new(0),
            has_rest: AtomicBool::new(false),
            was_useful: AtomicBool::new(false),
        }
    }

    /// What the receiving thread does until the link ends, which it does at the latest when this returns.
    /// `deal_with` gets the bodies of frames, or what guests have left of them; it ends the link by saying
    /// false.
    pub fn receive(&self, meanwhile: &mut impl Meanwhile, mut deal_with: impl FnMut(&[u8]) -> bool) {
        let _end = End(self);
        loop {
            let was_in_vain = self.stand_by();
            let mut inbox = self.inbox.lock();
            let Inbox { receiver: Some(receiver), rest } = &mut *inbox else { return };
            let body = match core::mem::take(rest) {
                0 => {
                    receiver.recv_or_give_way(&mut Patience { meanwhile, was_in_vain }, || self.has_guests())
                }
                rest => {
                    self.has_rest.store(false, Ordering::Relaxed);
                    let body = receiver.at_hand();
                    Ok(Some(&body[body.len() - rest..]))
                }
            };
            match body {
                Ok(None) => {}
                Ok(Some(body)) if deal_with(body) => {}
                Ok(Some(_)) | Err(_) => return,
            }
        }
    }

    /// Waits while guests look and leave nothing. Whether they did so in vain.
    fn stand_by(&self) -> bool {
        if !self.has_guests() {
            return false;
        }
        let mut looking = Looking::new();
        while self.has_guests() && !self.has_rest.load(Ordering::Relaxed) {
            looking.pause();
        }
        !self.was_useful.swap(false, Ordering::Relaxed)
    }

    /// The calling thread begins to look, in place of the receiving one.
    pub fn visit(&self) -> Guest<'_> {
        self.guests.fetch_add(1, Ordering::Relaxed);
        Guest(self)
    }

    fn has_guests(&self) -> bool {
        self.guests.load(Ordering::Relaxed) > 0
    }
}

impl Guest<'_> {
    /// Looks once, unless somebody else receives at the moment. `deal_with` gets the body of a frame, and
    /// says how many of its first bytes it has dealt with. It must be short, and may not block.
    pub fn look(&self, deal_with: impl FnOnce(&[u8]) -> usize) {
        let Reception { inbox, has_rest, was_useful, .. } = self.0;
        // Not to be in the way of the receiving thread, which wants the lock then.
        if has_rest.load(Ordering::Relaxed) {
            return;
        }
        let Some(mut inbox) = inbox.try_lock() else { return };
        let Inbox { receiver: Some(receiver), rest: rest @ 0 } = &mut *inbox else { return };
        match receiver.look() {
            Ok(None) => {}
            Ok(Some(body)) => {
                was_useful.store(true, Ordering::Relaxed);
                *rest = body.len().saturating_sub(deal_with(body));
                has_rest.store(*rest > 0, Ordering::Relaxed);
            }
            Err(_) => {
                inbox.receiver = None;
                has_rest.store(true, Ordering::Relaxed);
            }
        }
    }
}

impl Drop for Guest<'_> {
    fn drop(&mut self) {
        self.0.guests.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.inbox.lock().receiver = None;
    }
}

impl<M: Meanwhile> Meanwhile for Patience<'_, M> {
    fn is_waited_for(&self) -> bool {
        !self.was_in_vain && self.meanwhile.is_waited_for()
    }

    fn look(&mut self) {
        self.meanwhile.look();
    }

    fn turn_away(&mut self) {
        self.meanwhile.turn_away();
    }

    fn asleep<R>(&mut self, sleep: impl FnOnce() -> R) -> R {
        self.meanwhile.asleep(sleep)
    }
}
