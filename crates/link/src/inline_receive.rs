//! Inline receive: a thread that waits for a reply receives it itself.
//!
//! A thread that waits and spins receives its answer itself, *inline*: what another thread receives comes by
//! way of that one's caches, and is later by 0.3 to 0.5 us (a virtual machine with an H200, 2026-11-23). What
//! an inline receiver has no business with it leaves, with all that comes behind, to the receiving thread,
//! which yields its role while there are inline receivers. Whoever sleeps is none: so when all others sleep
//! that thread receives.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::receiver::{IdleHook, Receiver};
use causeway_sync::spin::BusyPoll;

/// The receiving end of a link, for a thread that receives and for inline receivers.
#[derive(Debug)]
pub struct SharedReceiver {
    /// Without a rank: who has it reads for all, and calls the link's owner.
    inbox: Mutex<Inbox>,
    /// Threads that receive inline now.
    inline_receivers: AtomicUsize,
    /// Whether one of them has left something, or has found that the link has ended.
    has_rest: AtomicBool,
    /// Whether one of them has received anything since the receiving thread yielded its role last.
    has_received: AtomicBool,
}

#[derive(Debug)]
struct Inbox {
    /// None when nobody receives any more.
    receiver: Option<Receiver>,
    /// Bytes at the end of the frame at hand that an inline receiver has left.
    rest: usize,
}

/// A thread that polls for what it waits for. While there is one, the receiving thread leaves that to it.
#[derive(Debug)]
pub struct InlineReceiver<'a>(&'a SharedReceiver);

/// Ends the link, since nobody receives any more.
struct End<'a>(&'a SharedReceiver);

/// What the receiving thread does while nothing comes. When it has yielded its role in vain, whoever waited
/// sleeps by now, and it is not to spin for that one.
struct StandbyHook<'a, M> {
    hook: &'a mut M,
    was_idle: bool,
}

impl SharedReceiver {
    /// Nobody receives yet.
    pub fn new(receiver: Receiver) -> Self {
        Self {
            inbox: Mutex::new(Inbox { receiver: Some(receiver), rest: 0 }),
            inline_receivers: AtomicUsize::new(0),
            has_rest: AtomicBool::new(false),
            has_received: AtomicBool::new(false),
        }
    }

    /// What the receiving thread does until the link ends, which it does at the latest when this returns.
    /// `deal_with` gets the bodies of frames, or what inline receivers have left of them; it ends the link by
    /// saying false.
    pub fn receive(&self, hook: &mut impl IdleHook, mut deal_with: impl FnMut(&[u8]) -> bool) {
        let _end = End(self);
        loop {
            let was_idle = self.yield_role();
            let mut inbox = self.inbox.lock();
            let Inbox { receiver: Some(receiver), rest } = &mut *inbox else { return };
            let body = match core::mem::take(rest) {
                0 => receiver
                    .recv_or_yield(&mut StandbyHook { hook, was_idle }, || self.has_inline_receivers()),
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

    /// Waits while inline receivers poll and leave nothing. Whether they did so in vain.
    fn yield_role(&self) -> bool {
        if !self.has_inline_receivers() {
            return false;
        }
        let mut polling = BusyPoll::new();
        while self.has_inline_receivers() && !self.has_rest.load(Ordering::Relaxed) {
            polling.pause();
        }
        !self.has_received.swap(false, Ordering::Relaxed)
    }

    /// The calling thread begins to poll, in place of the receiving one.
    pub fn receive_inline(&self) -> InlineReceiver<'_> {
        self.inline_receivers.fetch_add(1, Ordering::Relaxed);
        InlineReceiver(self)
    }

    fn has_inline_receivers(&self) -> bool {
        self.inline_receivers.load(Ordering::Relaxed) > 0
    }
}

impl InlineReceiver<'_> {
    /// Polls once, unless somebody else receives at the moment. `deal_with` gets the body of a frame, and
    /// says how many of its first bytes it has dealt with. It must be short, and may not block.
    pub fn poll(&self, deal_with: impl FnOnce(&[u8]) -> usize) {
        let SharedReceiver { inbox, has_rest, has_received, .. } = self.0;
        // Not to be in the way of the receiving thread, which wants the lock then.
        if has_rest.load(Ordering::Relaxed) {
            return;
        }
        let Some(mut inbox) = inbox.try_lock() else { return };
        let Inbox { receiver: Some(receiver), rest: rest @ 0 } = &mut *inbox else { return };
        match receiver.poll() {
            Ok(None) => {}
            Ok(Some(body)) => {
                has_received.store(true, Ordering::Relaxed);
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

impl Drop for InlineReceiver<'_> {
    fn drop(&mut self) {
        self.0.inline_receivers.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.inbox.lock().receiver = None;
    }
}

impl<M: IdleHook> IdleHook for StandbyHook<'_, M> {
    fn is_waited_for(&self) -> bool {
        !self.was_idle && self.hook.is_waited_for()
    }

    fn poll(&mut self) {
        self.hook.poll();
    }

    fn leave(&mut self) {
        self.hook.leave();
    }

    fn asleep<R>(&mut self, sleep: impl FnOnce() -> R) -> R {
        self.hook.asleep(sleep)
    }
}
