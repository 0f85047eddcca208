//! Completion watermarks of streams and contexts, so that queries and idle waits need no
//! server.
//!
//! Every command that may put work into a stream gets a *sequence number*: its number among all such commands
//! of its session, in the order in which they travel. Streams and contexts remember the sequence number of
//! their newest command and the newest sequence number up to which their work is known to be done. That
//! knowledge comes from waits that have ended and from *watches*: a query that finds work unfinished leaves a
//! token with the worker, which reports once when that work is over. So a loop of queries costs one round
//! trip, and a wait for a stream without new work costs none.

use crate::locks::{Mutex, rank};
use crate::log::info;
use crate::model::{device, handles};
use causeway_api::calls::Call;
use causeway_api::handle::{Context, Handle, MAX_SERVERS};
use causeway_api::sys::CUresult;
use core::cell::Cell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

thread_local! {
    /// The sequence number of the calling thread's newest command.
    static OF_THREAD: Cell<u64> = const { Cell::new(0) };
}

/// What a call gets whose server is lost.
pub const LOST: CUresult = CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE;

/// The sequence numbers of the session with each server.
static SEQUENCES: [SequenceNumbers; MAX_SERVERS] =
    [const { SequenceNumbers { newest: AtomicU64::new(0) } }; MAX_SERVERS];

/// The sequence numbers of the session with a server.
#[inline]
pub fn sequence_numbers(server: usize) -> &'static SequenceNumbers {
    &SEQUENCES[server]
}

/// The sequence numbers of one session.
pub struct SequenceNumbers {
    /// Written only by [`SequenceNumbers::note`], whose callers hold the lock under which commands are put in
    /// order.
    newest: AtomicU64,
}

impl SequenceNumbers {
    /// Gives a command its sequence number. To be called while the command is being appended to the link's
    /// batch: the batch's lock makes the order of sequence numbers the order of travel.
    #[inline]
    pub fn note<C: Call>(&self, context: Handle<Context>, request: &C, is_posted: bool) {
        let stream = request.stream();
        if C::OPCODE.is_inert() || (!is_posted && stream.is_none()) {
            return;
        }
        let sequence = self.newest.load(Ordering::Relaxed) + 1;
        OF_THREAD.set(sequence);
        handles::set_last_sequence(context, sequence);
        if let Some(stream) = stream {
            handles::set_last_sequence(stream, sequence);
        }
        // Whoever reads it finds it in its context, too.
        self.newest.store(sequence, Ordering::Release);
        if stream.is_some_and(Handle::is_null) {
            // Whoever reads this one finds the session's as new.
            handles::set_last_legacy_sequence(context, sequence);
        }
    }

    /// The session's newest one.
    pub fn newest(&self) -> u64 {
        self.newest.load(Ordering::Acquire)
    }
}

/// The sequence number of the calling thread's newest command.
pub fn of_thread() -> u64 {
    OF_THREAD.get()
}

/// Up to which sequence number something is done; only grows.
#[derive(Default)]
pub struct Watermark {
    done: AtomicU64,
    /// The newest sequence number that is being watched.
    watched: AtomicU64,
    /// The newest sequence number up to which the program has what kernels wrote to its memory.
    fetched: AtomicU64,
}

impl Watermark {
    /// The newest sequence number up to which everything is known to be done.
    #[inline]
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Acquire)
    }

    /// Everything up to `sequence` is done.
    pub fn advance(&self, sequence: u64) {
        self.done.fetch_max(sequence, Ordering::AcqRel);
    }

    /// Whether the program has what kernels wrote to its memory up to `sequence`.
    pub fn has_fetched(&self, sequence: u64) -> bool {
        self.fetched.load(Ordering::Acquire) >= sequence
    }

    /// The program has what kernels wrote to its memory up to `sequence`.
    pub fn note_fetched(&self, sequence: u64) {
        self.fetched.fetch_max(sequence, Ordering::AcqRel);
    }

    /// Everything up to `sequence` is done, and the program may have what kernels wrote to its memory before.
    pub fn note_done(&self, sequence: u64, is_fetched: bool) {
        if is_fetched {
            self.note_fetched(sequence);
        }
        self.advance(sequence);
    }

    /// Whether the worker will report when the work up to `sequence` is done.
    pub fn is_watched(&self, sequence: u64) -> bool {
        self.watched.load(Ordering::Acquire) >= sequence
    }

    /// Asks whether the work up to `sequence` is done; when it is not, its end is watched. `query` sends the
    /// command with a token to `server` and gives whether work is pending.
    pub fn query_or_watch(
        self: &Arc<Self>,
        server: usize,
        sequence: u64,
        query: impl FnOnce(u64) -> Result<bool, CUresult>,
    ) -> Result<bool, CUresult> {
        let token = device::fresh();
        // The report may come before the reply is read, and `query` refuse that reply: it is about other work then.
        let on_complete = OnComplete::Advance(self.clone(), sequence);
        WATCHES.lock().insert(token, Watch { server, on_complete, reply: Reply::Awaited(None) });
        match query(token) {
            Ok(true) => {
                self.watched.fetch_max(sequence, Ordering::AcqRel);
                if !reply_received(token) {
                    // The server is lost.
                    self.forget_watch();
                }
                Ok(self.done() >= sequence)
            }
            other => {
                WATCHES.lock().remove(&token);
                other?;
                self.advance(sequence);
                Ok(true)
            }
        }
    }

    fn forget_watch(&self) {
        self.watched.store(0, Ordering::Release);
    }
}

/// What happens when something is over.
enum OnComplete {
    /// Everything up to a sequence number is done.
    Advance(Arc<Watermark>, u64),
    /// This is called.
    Call(Box<dyn FnOnce() + Send>),
}

struct Watch {
    server: usize,
    on_complete: OnComplete,
    reply: Reply,
}

/// The reply to the command that watches.
enum Reply {
    /// It has not been read; the report may have come before it.
    Awaited(Option<CUresult>),
    /// It says that work is pending.
    Received,
}

impl Watch {
    fn end(self, status: CUresult) {
        match self.on_complete {
            OnComplete::Advance(watermark, sequence) if status == CUresult::CUDA_SUCCESS => {
                watermark.advance(sequence)
            }
            // The next query asks again, and gets the error from the driver.
            OnComplete::Advance(watermark, _) => watermark.forget_watch(),
            OnComplete::Call(call) => call(),
        }
    }
}

static WATCHES: LazyLock<Mutex<rank::Watches, HashMap<u64, Watch>>> = LazyLock::new(Mutex::default);

/// The worker reports that what a query found unfinished is over.
pub fn report_received(token: u64, status: CUresult) {
    let mut watches = WATCHES.lock();
    if let Some(Watch { reply: Reply::Awaited(report), .. }) = watches.get_mut(&token) {
        *report = Some(status);
        return;
    }
    let watch = watches.remove(&token);
    drop(watches);
    match watch {
        Some(watch) => watch.end(status),
        None => info!("the server reports the end of work that is not watched"),
    }
}

/// The reply has come: the report may now come, or has its effect if it came first. `false` if nothing is watched any more.
fn reply_received(token: u64) -> bool {
    let mut watches = WATCHES.lock();
    let Some(watch) = watches.get_mut(&token) else { return false };
    if let Reply::Awaited(Some(status)) = core::mem::replace(&mut watch.reply, Reply::Received) {
        let watch = watches.remove(&token);
        drop(watches);
        watch.into_iter().for_each(|watch| watch.end(status));
    }
    true
}

/// Has `call` called when a server reports what is being watched, or never will report it, on a thread that
/// must not be held up. `send` sends the command that watches, with a token.
pub fn watch(
    server: usize,
    call: impl FnOnce() + Send + 'static,
    send: impl FnOnce(u64) -> Result<(), CUresult>,
) -> Result<(), CUresult> {
    let token = device::fresh();
    let on_complete = OnComplete::Call(Box::new(call));
    WATCHES.lock().insert(token, Watch { server, on_complete, reply: Reply::Received });
    send(token).inspect_err(|_| {
        WATCHES.lock().remove(&token);
    })
}

/// Whether the report of a server is awaited.
pub fn is_any_awaited() -> bool {
    !WATCHES.lock().is_empty()
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
        let mut token_sent = 0;
        assert_eq!(
            watermark.query_or_watch(0, 5, |token| {
                token_sent = token;
                Ok(true)
            }),
            Ok(false)
        );
        assert!(watermark.is_watched(5) && !watermark.is_watched(6) && watermark.done() < 5);
        report_received(token_sent, CUresult::CUDA_SUCCESS);
        assert_eq!(watermark.done(), 5);
    }

    #[test]
    fn a_report_that_overtakes_its_reply_counts() {
        let watermark = Arc::new(Watermark::default());
        let outcome = watermark.query_or_watch(0, 7, |token| {
            report_received(token, CUresult::CUDA_SUCCESS);
            Ok(true)
        });
        assert_eq!(outcome, Ok(true));
    }

    #[test]
    fn a_report_that_overtakes_a_reply_about_other_work_does_not_count() {
        let watermark = Arc::new(Watermark::default());
        let outcome = watermark.query_or_watch(0, 7, |token| {
            report_received(token, CUresult::CUDA_SUCCESS);
            // Another thread has recorded the event in another stream, of which the server spoke.
            Err(CUresult::CUDA_ERROR_NOT_READY)
        });
        assert_eq!((outcome, watermark.done()), (Err(CUresult::CUDA_ERROR_NOT_READY), 0));
    }

    #[test]
    fn a_query_whose_server_is_lost_watches_nothing() {
        let watermark = Arc::new(Watermark::default());
        let outcome = watermark.query_or_watch(MAX_SERVERS - 1, 7, |_| {
            server_lost(MAX_SERVERS - 1);
            Ok(true)
        });
        assert_eq!((outcome, watermark.is_watched(7)), (Ok(false), false));
    }

    #[test]
    fn after_a_failure_the_next_query_asks_again() {
        let watermark = Arc::new(Watermark::default());
        let outcome = watermark.query_or_watch(0, 7, |token| {
            report_received(token, CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
            Ok(true)
        });
        assert_eq!(outcome, Ok(false));
        assert!(!watermark.is_watched(7));
        assert_eq!(watermark.query_or_watch(0, 8, |_| Ok(false)), Ok(true));
        assert_eq!(watermark.done(), 8);
    }

    #[test]
    fn watermarks_only_grow() {
        let watermark = Watermark::default();
        watermark.advance(9);
        watermark.advance(4);
        assert_eq!(watermark.done(), 9);
    }
}
