//! From a waiting call to its reply.
//!
//! A call number names a slot and one use of it, so a late or invented reply finds no waiter. A thread
//! that waits mostly [receives](causeway_link::SharedReceiver) its reply itself, and finds it in its slot.
//! Otherwise two threads meet at one, the one that receives and the one that waits. While both are awake all
//! that passes between them is the line of the processor's caches in which the slot lies, once each way: when
//! replies had memory of their own, and each slot a handle of the thread to be woken, a wait for a thread
//! that delivers at once took 860 ns, and takes 230 to 310 now (two processors of an AMD EPYC, 2026-11-23).
//!
//! Command support: which commands both ends of a session know.
//!
//! A server of an earlier release does not know the newest commands. What needs one of those is not supported
//! with that server, which is known before anything is sent.

use std::sync::atomic::{AtomicUsize, Ordering};

use causeway_access::Target;
use causeway_api::calls::Opcode;
use causeway_api::sys::CUresult;
use causeway_sync::WaitSlot;
use causeway_wire::text::Printable;
use smallvec::SmallVec;

use crate::locks::{Monitor, Mutex, rank};
use crate::log::error;

/// Threads beyond this many that wait at once queue up for a slot.
const SLOTS: u32 = 1024;

/// Replies of up to this many bytes lie in the slot itself.
const SHORT: usize = 16;

/// A reply that needed more memory than this leaves it.
const CACHED: usize = 64 << 10;

#[derive(Default)]
struct Outcome {
    status: u32,
    payload: SmallVec<[u8; SHORT]>,
}

#[derive(Default)]
#[repr(align(64))]
struct Slot {
    /// The call that waits here; none when its reply has come.
    waiting: WaitSlot,
    outcome: Mutex<rank::ReplyOutcome, Outcome>,
}

const _: () = assert!(size_of::<Slot>() == 64);

/// All calls that wait.
pub struct Replies {
    slots: Box<[Slot]>,
    free: Monitor<rank::ReplySlots, Free>,
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
            free: Monitor::new(Free { slots: (0..SLOTS).rev().collect(), generation: 0 }),
            awaited: AtomicUsize::new(0),
        }
    }

    fn slot(&self, number: u32) -> &Slot {
        &self.slots[(number % SLOTS) as usize]
    }

    /// Prepares to wait for a reply: take this before the command that asks for it is sent.
    pub fn expect(&self) -> Waiting<'_> {
        let number = self.free.wait(|free| {
            let slot = free.slots.pop()?;
            free.generation = free.generation % ((1 << 22) - 1) + 1;
            Some(free.generation << 10 | slot)
        });
        self.awaited.fetch_add(1, Ordering::Relaxed);
        self.slot(number).waiting.begin(number);
        Waiting { replies: self, number }
    }

    /// Delivers a reply; false when no thread waits for it.
    pub fn deliver(&self, number: u32, status: u32, payload: &[u8]) -> bool {
        let slot = self.slot(number);
        let mut outcome = slot.outcome.lock();
        if number == 0 || !slot.waiting.is_waiting(number) {
            return false;
        }
        outcome.status = status;
        outcome.payload.clear();
        outcome.payload.extend_from_slice(payload);
        // Unlocked first: who waits takes it at once. When the link ends meanwhile this call may be informed that
        // instead.
        drop(outcome);
        slot.waiting.end(number)
    }

    /// Whether any call waits for its reply now, or is about to.
    pub fn are_awaited(&self) -> bool {
        self.awaited.load(Ordering::Relaxed) > 0
    }

    /// Ends every wait with `status`.
    pub fn fail_all(&self, status: CUresult) {
        for slot in &self.slots {
            let number = slot.waiting.number();
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

    /// Whether the reply is there.
    pub fn is_answered(&self) -> bool {
        !self.replies.slot(self.number).waiting.is_waiting(self.number)
    }

    /// Sleeps until the reply is there, and reads it.
    pub fn wait<R>(self, read: impl FnOnce(CUresult, &[u8]) -> R) -> R {
        let slot = self.replies.slot(self.number);
        if slot.waiting.is_waiting(self.number) {
            slot.waiting.park(self.number);
        }
        let mut outcome = slot.outcome.lock();
        let result = read(CUresult(outcome.status), &outcome.payload);
        // A rare large reply must not stay allocated in every slot that ever had one.
        if outcome.payload.len() > CACHED {
            outcome.payload = SmallVec::new();
        }
        result
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.replies.awaited.fetch_sub(1, Ordering::Relaxed);
        let slot = self.replies.slot(self.number);
        if slot.waiting.is_waiting(self.number) {
            // Whoever delivers does so before or not at all.
            let _outcome = slot.outcome.lock();
            slot.waiting.end(self.number);
        }
        self.replies.free.change_for_one(|free| free.slots.push(self.number % SLOTS));
    }
}

/// The commands that client and server have in common.
pub struct CommonCommands {
    /// How many, from number 0 on.
    count: u16,
    /// The server's release.
    release: Printable,
    /// The numbers of those that were wanted and are not among them, each said once.
    logged: Mutex<rank::MissingCommands, Vec<u16>>,
}

impl CommonCommands {
    /// The first `count` commands, with a server of this release.
    pub fn new(count: u16, release: Printable) -> Self {
        Self { count, release, logged: Mutex::default() }
    }

    /// Whether the server knows a command.
    pub fn has(&self, opcode: Opcode) -> bool {
        (opcode as u16) < self.count
    }

    /// Refuses a command that the server at `target` does not know.
    #[inline]
    pub fn must_have(&self, opcode: Opcode, target: &Target) -> Result<(), CUresult> {
        if self.has(opcode) { Ok(()) } else { Err(self.missing(opcode, target)) }
    }

    /// Says once that the server does not know a command.
    #[cold]
    fn missing(&self, opcode: Opcode, target: &Target) -> CUresult {
        let mut logged = self.logged.lock();
        if !logged.contains(&(opcode as u16)) {
            logged.push(opcode as u16);
            error!(
                "{} is not supported by the server {target}: the server is Causeway {}, and this library is \
                 {}; update the server",
                opcode.name(),
                self.release,
                env!("CARGO_PKG_VERSION")
            );
        }
        CUresult::CUDA_ERROR_NOT_SUPPORTED
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

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

    /// A thread that falls asleep while its reply comes sleeps for ever if either side misses the other.
    #[test]
    fn replies_meet_their_waits_whenever_they_come() {
        const ROUNDS: u32 = if cfg!(miri) { 20 } else { 3000 };
        let replies = Replies::new();
        let (ask, asked) = crossbeam_channel::unbounded();
        std::thread::scope(|scope| {
            for _ in 0..3 {
                let (ask, replies) = (ask.clone(), &replies);
                scope.spawn(move || {
                    for _ in 0..ROUNDS {
                        let waiting = replies.expect();
                        let number = waiting.number();
                        ask.send(number).unwrap();
                        waiting.wait(|status, payload| {
                            let is_lost = status.0 == 46 && payload.is_empty();
                            assert!(is_lost || status.0 == 0 && payload == number.to_le_bytes().repeat(5));
                        });
                    }
                });
            }
            drop(ask);
            scope.spawn(|| {
                for (round, number) in asked.iter().enumerate() {
                    (0..round % 300).for_each(|_| core::hint::spin_loop());
                    replies.deliver(number, 0, &number.to_le_bytes().repeat(5));
                }
            });
            scope.spawn(|| {
                for _ in 0..ROUNDS / 10 {
                    replies.fail_all(CUresult(46));
                    std::thread::yield_now();
                }
            });
        });
        assert!(!replies.are_awaited());
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

    #[test]
    fn missing_command_is_refused_and_logged_once() {
        let target: Target = "causeway://host:1?insecure-no-key".parse().unwrap();
        let newest = *Opcode::ALL.last().unwrap();
        let common = CommonCommands::new(newest as u16, "0.1.9".into());
        assert_eq!(common.must_have(Opcode::ALL[0], &target), Ok(()));
        assert_eq!(common.must_have(Opcode::ALL[newest as usize - 1], &target), Ok(()));
        for _ in 0..2 {
            assert_eq!(common.must_have(newest, &target), Err(CUresult::CUDA_ERROR_NOT_SUPPORTED));
        }
        assert_eq!(*common.logged.lock(), [newest as u16]);
        assert_eq!(CommonCommands::new(newest as u16 + 1, "1".into()).must_have(newest, &target), Ok(()));
    }
}
