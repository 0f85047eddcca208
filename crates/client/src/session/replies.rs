//! From a waiting call to its reply.
//!
//! A call number names a slot and one use of it, so a late or invented reply finds nobody waiting.

use causeway_api::sys::CUresult;
use causeway_fabric::awake;
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::thread::Thread;

/// Threads beyond this many that wait at once queue up for a slot.
const SLOTS: u32 = 1024;

#[derive(Default)]
struct Outcome {
    status: u32,
    payload: Vec<u8>,
    waiter: Option<Thread>,
}

#[derive(Default)]
struct Slot {
    /// The number of the call that waits here, 0 when there is none or its reply has come.
    waiting: AtomicU32,
    outcome: Mutex<Outcome>,
}

/// All calls that wait.
pub struct Replies {
    slots: Box<[Slot]>,
    free: Mutex<Free>,
    freed: Condvar,
    /// Calls that wait for their replies now, or are about to.
    awaited: AtomicUsize,
}

struct Free {
    slots: Vec<u32>,
    /// Distinguishes the uses of a slot; never 0 in its low 22 bits.
    generation: u32,
}

/// A call that waits, or could; dropping it gives its slot back.
pub struct Waiting<'a> {
    replies: &'a Replies,
    number: u32,
}

impl Replies {
    /// Nobody waits yet.
    pub fn new() -> Self {
        Self {
            slots: (0..SLOTS).map(|_| Slot::default()).collect(),
            free: Mutex::new(Free { slots: (0..SLOTS).rev().collect(), generation: 0 }),
            freed: Condvar::new(),
            awaited: AtomicUsize::new(0),
        }
    }

    /// Prepares to wait for a reply: take this before the command that asks for it is sent.
    pub fn expect(&self) -> Waiting<'_> {
        let mut free = self.free.lock();
        let slot = loop {
            match free.slots.pop() {
                Some(slot) => break slot,
                None => self.freed.wait(&mut free),
            }
        };
        free.generation = free.generation % ((1 << 22) - 1) + 1;
        let number = free.generation << 10 | slot;
        drop(free);
        self.awaited.fetch_add(1, Ordering::Relaxed);
        let slot = &self.slots[slot as usize];
        slot.outcome.lock().waiter = Some(std::thread::current());
        slot.waiting.store(number, Ordering::SeqCst);
        Waiting { replies: self, number }
    }

    /// Delivers a reply; false when nobody waits for it.
    pub fn deliver(&self, number: u32, status: u32, payload: &[u8]) -> bool {
        let slot = &self.slots[(number % SLOTS) as usize];
        let mut outcome = slot.outcome.lock();
        if number == 0 || slot.waiting.load(Ordering::SeqCst) != number {
            return false;
        }
        outcome.status = status;
        outcome.payload.clear();
        outcome.payload.extend_from_slice(payload);
        let waiter = outcome.waiter.take();
        slot.waiting.store(0, Ordering::SeqCst);
        drop(outcome);
        if let Some(waiter) = waiter {
            waiter.unpark();
        }
        true
    }

    /// Whether any call waits for its reply now, or is about to.
    pub fn are_awaited(&self) -> bool {
        self.awaited.load(Ordering::Relaxed) > 0
    }

    /// Ends every wait with `status`.
    pub fn fail_all(&self, status: CUresult) {
        for slot in &self.slots {
            let number = slot.waiting.load(Ordering::SeqCst);
            if number != 0 {
                self.deliver(number, status.0, &[]);
            }
        }
    }
}

impl Waiting<'_> {
    /// The number that the reply names.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Waits for the reply and reads it.
    pub fn wait<R>(self, read: impl FnOnce(CUresult, &[u8]) -> R) -> R {
        let slot = &self.replies.slots[(self.number % SLOTS) as usize];
        let is_waiting = || slot.waiting.load(Ordering::SeqCst) == self.number;
        awake::look(awake::while_waited_for(), || !is_waiting());
        while is_waiting() {
            std::thread::park();
        }
        let outcome = slot.outcome.lock();
        read(CUresult(outcome.status), &outcome.payload)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.replies.awaited.fetch_sub(1, Ordering::Relaxed);
        let slot = self.number % SLOTS;
        {
            let mut outcome = self.replies.slots[slot as usize].outcome.lock();
            self.replies.slots[slot as usize].waiting.store(0, Ordering::SeqCst);
            outcome.waiter = None;
            // A rare large reply must not stay allocated in every slot that ever had one.
            outcome.payload.shrink_to(64 * 1024);
        }
        self.replies.free.lock().slots.push(slot);
        self.replies.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_reply_reaches_the_thread_that_waits_for_it() {
        let replies = Arc::new(Replies::new());
        let threads: Vec<_> = (0..8_u32)
            .map(|value| {
                let replies = replies.clone();
                std::thread::spawn(move || {
                    let waiting = replies.expect();
                    let number = waiting.number();
                    let other = replies.clone();
                    let server = std::thread::spawn(move || {
                        assert!(other.deliver(number, value, &value.to_le_bytes()));
                    });
                    waiting.wait(|status, payload| {
                        assert_eq!((status.0, payload), (value, &value.to_le_bytes()[..]));
                    });
                    server.join().unwrap();
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }

    #[test]
    fn unknown_and_second_replies_find_nobody() {
        let replies = Replies::new();
        assert!(!replies.deliver(0, 0, &[]) && !replies.deliver(77, 0, &[]));
        let waiting = replies.expect();
        let number = waiting.number();
        assert!(replies.deliver(number, 0, &[]) && !replies.deliver(number, 1, &[]));
        waiting.wait(|status, _| assert_eq!(status.0, 0));
        assert_ne!(replies.expect().number(), number);
    }

    #[test]
    fn a_lost_link_ends_every_wait() {
        let replies = Replies::new();
        let (first, second) = (replies.expect(), replies.expect());
        replies.fail_all(CUresult(46));
        first.wait(|status, _| assert_eq!(status.0, 46));
        second.wait(|status, _| assert_eq!(status.0, 46));
    }
}
