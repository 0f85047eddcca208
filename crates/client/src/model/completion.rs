//! How far the work of streams and contexts is known to be done, so that queries and idle waits need no
//! server.
//!
//! Every command that may put work into a stream gets a *ticket*: its number among all such commands of its
//! session, in the order in which they travel. Streams and contexts remember the ticket of their newest
//! command and the newest ticket up to which their work is known to be done. That knowledge comes from waits
//! that have ended and from *watches*: a query that finds work unfinished leaves a token with the worker,
//! which reports once when that work is over. So a loop of queries costs one round trip, and a wait for a
//! stream without new work costs none.

use crate::locks::{Mutex, rank};
use crate::log::info;
use crate::model::handles;
use crate::model::numbers;
use causeway_api::calls::Call;
use causeway_api::handle::{Context, Handle, MOST_SERVERS};
use causeway_api::sys::CUresult;
use core::cell::Cell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

thread_local! {
    /// The ticket of the calling thread's newest command.
    static OF_THREAD: Cell<u64> = const { Cell::new(0) };
}

/// What a call gets whose server is lost.
pub const LOST: CUresult = CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE;

/// The tickets of the session with each server.
static TICKETS: [Tickets; MOST_SERVERS] = [const { Tickets { newest: AtomicU64::new(0) } }; MOST_SERVERS];

/// The tickets of the session with a server.
#[inline]
pub fn tickets(server: usize) -> &'static Tickets {
    &TICKETS[server]
}

/// The tickets of one session.
pub struct Tickets {
    /// Written only by [`Tickets::note`], whose callers hold the lock under which commands are put in order.
    newest: AtomicU64,
}

impl Tickets {
    /// Gives a command its ticket. To be called while the command is being appended to the link's batch: the
    /// batch's lock makes the order of tickets the order of travel.
    #[inline]
    pub fn note<C: Call>(&self, context: Handle<Context>, request: &C, is_posted: bool) {
        let stream = request.stream();
        if C::OPCODE.is_inert() || (!is_posted && stream.is_none()) {
            return;
        }
        let ticket = self.newest.load(Ordering::Relaxed) + 1;
        OF_THREAD.set(ticket);
        handles::set_ticket(context, ticket);
        if let Some(stream) = stream {
            handles::set_ticket(stream, ticket);
        }
        // Whoever reads it finds it in its context, too.
        self.newest.store(ticket, Ordering::Release);
        if stream.is_some_and(Handle::is_null) {
            // Whoever reads this one finds the session's as new.
            handles::set_legacy_ticket(context, ticket);
        }
    }

    /// The session's newest one.
    pub fn newest(&self) -> u64 {
        self.newest.load(Ordering::Acquire)
    }
}

/// The ticket of the calling thread's newest command.
pub fn of_thread() -> u64 {
    OF_THREAD.get()
}

/// Up to which ticket something is done; only grows.
#[derive(Default)]
pub struct Watermark {
    done: AtomicU64,
    /// The newest ticket that is being watched.
    watched: AtomicU64,
    /// The newest ticket up to which the program has what kernels wrote to its memory.
    fetched: AtomicU64,
}

impl Watermark {
    /// The newest ticket up to which everything is known to be done.
    #[inline]
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Acquire)
    }

    /// Everything up to `ticket` is done.
    pub fn reach(&self, ticket: u64) {
        self.done.fetch_max(ticket, Ordering::AcqRel);
    }

    /// Whether the program has what kernels wrote to its memory up to `ticket`.
    pub fn has_fetched(&self, ticket: u64) -> bool {
        self.fetched.load(Ordering::Acquire) >= ticket
    }

    /// The program has what kernels wrote to its memory up to `ticket`.
    pub fn note_fetched(&self, ticket: u64) {
        self.fetched.fetch_max(ticket, Ordering::AcqRel);
    }

    /// Whether the worker will report when the work up to `ticket` is done.
    pub fn is_watched(&self, ticket: u64) -> bool {
        self.watched.load(Ordering::Acquire) >= ticket
    }

    /// Asks whether the work up to `ticket` is done; when it is not, its end is watched. `query` sends the
    /// command with a token to `server` and gives whether work is pending.
    pub fn ask(
        self: &Arc<Self>,
        server: usize,
        ticket: u64,
        query: impl FnOnce(u64) -> Result<bool, CUresult>,
    ) -> Result<bool, CUresult> {
        let token = numbers::fresh();
        // The report may come before the reply is read.
        WATCHES.lock().insert(token, Watch { server, then: Then::Reach(self.clone(), ticket) });
        match query(token) {
            Ok(true) => {
                // Unless the report has come already: then what is stored here changes nothing.
                self.watched.fetch_max(ticket, Ordering::AcqRel);
                if !WATCHES.lock().contains_key(&token) && self.done() < ticket {
                    self.forget_watch();
                }
                Ok(self.done() >= ticket)
            }
            other => {
                WATCHES.lock().remove(&token);
                other?;
                self.reach(ticket);
                Ok(true)
            }
        }
    }

    fn forget_watch(&self) {
        self.watched.store(0, Ordering::Release);
    }
}

/// What happens when something is over.
enum Then {
    /// Everything up to a ticket is done.
    Reach(Arc<Watermark>, u64),
    /// This is called.
    Call(Box<dyn FnOnce() + Send>),
}

struct Watch {
    server: usize,
    then: Then,
}

impl Watch {
    fn end(self, status: CUresult) {
        match self.then {
            Then::Reach(watermark, ticket) if status == CUresult::CUDA_SUCCESS => watermark.reach(ticket),
            // The next query asks again, and gets the error from the driver.
            Then::Reach(watermark, _) => watermark.forget_watch(),
            Then::Call(call) => call(),
        }
    }
}

static WATCHES: LazyLock<Mutex<rank::Watches, HashMap<u64, Watch>>> = LazyLock::new(Mutex::default);

/// The worker reports that what a query found unfinished is over.
pub fn reached(token: u64, status: CUresult) {
    let Some(watch) = WATCHES.lock().remove(&token) else {
        info!("the server reports the end of work that nobody asked about");
        return;
    };
    watch.end(status);
}

/// Has `call` called when a server reports what is being watched, or never will report it, on a thread that
/// must not be held up. `send` sends the command that watches, with a token.
pub fn watch(
    server: usize,
    call: impl FnOnce() + Send + 'static,
    send: impl FnOnce(u64) -> Result<(), CUresult>,
) -> Result<(), CUresult> {
    let token = numbers::fresh();
    WATCHES.lock().insert(token, Watch { server, then: Then::Call(Box::new(call)) });
    send(token).inspect_err(|_| {
        WATCHES.lock().remove(&token);
    })
}

/// A server is lost, and will report nothing any more.
pub fn server_lost(server: usize) {
    let lost: Vec<_> = WATCHES.lock().extract_if(|_, watch| watch.server == server).collect();
    lost.into_iter().for_each(|(_, watch)| watch.end(LOST));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_that_finds_work_is_answered_by_the_report() {
        let watermark = Arc::new(Watermark::default());
        let mut asked = 0;
        assert_eq!(
            watermark.ask(0, 5, |token| {
                asked = token;
                Ok(true)
            }),
            Ok(false)
        );
        assert!(watermark.is_watched(5) && !watermark.is_watched(6) && watermark.done() < 5);
        reached(asked, CUresult::CUDA_SUCCESS);
        assert_eq!(watermark.done(), 5);
    }

    #[test]
    fn a_report_that_overtakes_its_reply_counts() {
        let watermark = Arc::new(Watermark::default());
        let outcome = watermark.ask(0, 7, |token| {
            reached(token, CUresult::CUDA_SUCCESS);
            Ok(true)
        });
        assert_eq!(outcome, Ok(true));
    }

    #[test]
    fn after_a_failure_the_next_query_asks_again() {
        let watermark = Arc::new(Watermark::default());
        let outcome = watermark.ask(0, 7, |token| {
            reached(token, CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
            Ok(true)
        });
        assert_eq!(outcome, Ok(false));
        assert!(!watermark.is_watched(7));
        assert_eq!(watermark.ask(0, 8, |_| Ok(false)), Ok(true));
        assert_eq!(watermark.done(), 8);
    }

    #[test]
    fn watermarks_only_grow() {
        let watermark = Watermark::default();
        watermark.reach(9);
        watermark.reach(4);
        assert_eq!(watermark.done(), 9);
    }
}
