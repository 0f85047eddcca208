//! Waiting for the GPU without blocking threads that have other things to do.
//!
//! What is waited for is an event of the driver; one thread asks for all of them and calls the completions,
//! in the order in which they were asked for as far as the work was done in that order. The thread asks
//! without pause at first, then ever more rarely (`poll_interval`), and sleeps when nothing is waited for
//! (`causeway_sync::PollPause`). It leaves the asking to a thread with an [`IdlePoller`], the session's
//! receiving one, as long as that one has nothing to receive: then no thread has to be woken. What nobody waits
//! for is asked about rarely, since each question is a lock that launches need, too. What is waited for, and
//! by whom, is in this file; the polling is in `completion_poll`.

mod completion_poll;
mod join;
mod poll_interval;

pub(crate) use join::Join;
pub(crate) use poll_interval::poll_interval;

use super::events::Events;
use super::functions::Functions;
use super::output::Output;
use crate::locks::{Mutex, rank};
use causeway_api::handle::{Context, Event, Native, Stream};
use causeway_api::sys::CUresult;
use causeway_gpu::idle_poller::{self, IdlePoller, Pollable};
use causeway_gpu::{Completion, CuResult};
use causeway_sync::PollPause;
use causeway_sync::face::{self, AtomicBool, AtomicUsize, JoinHandle};
use core::sync::atomic::Ordering;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::sync::Arc;

/// Whose end is waited for; what comes from one source is done in the order in which it was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Source {
    Stream(Native<Stream>),
    Event(Native<Event>),
    Context,
}

/// The event that tells.
enum CompletionEvent {
    /// One of ours, to be released.
    Own(Native<Event>),
    /// The program's.
    Program(Native<Event>),
}

struct Wait {
    /// The how-manieth wait it is.
    number: usize,
    context: Native<Context>,
    source: Source,
    sign: CompletionEvent,
    /// Whether somebody waits for the completion.
    urgent: bool,
    done: Completion,
}

/// A wait that has ended and needs its event no more.
struct Ended {
    number: usize,
    urgent: bool,
    done: Completion,
    status: CuResult<()>,
}

type Lanes = FxHashMap<(Native<Context>, Source), VecDeque<Wait>>;

struct Shared {
    functions: &'static Functions,
    output: Arc<Output>,
    events: Arc<Events>,
    /// What was asked for and the thread has not seen yet.
    arrivals: Mutex<rank::Leaf, Arrivals>,
    /// Where the thread sleeps between two looks.
    pause: PollPause,
    /// Held by who looks and delivers, so that completions keep their order. It has no rank: completions take locks of the worker
    /// under it, and no thread waits for it.
    turn: face::Mutex<()>,
    /// What is waited for. Locked before `arrivals` when both are.
    lanes: Mutex<rank::Waits, Lanes>,
    /// Urgent waits whose completion has not been called.
    pending: AtomicUsize,
    /// An urgent wait has come from a thread with an idle poller, and the thread of the waits has not been
    /// called for it.
    unannounced: AtomicBool,
    stopping: AtomicBool,
}

#[derive(Default)]
struct Arrivals {
    waits: Vec<Wait>,
    count: usize,
}

/// The waits of a session, and the thread that sees to them.
pub(crate) struct Waits {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Waits {
    /// Starts the thread.
    pub(crate) fn new(
        functions: &'static Functions,
        output: Arc<Output>,
        events: Arc<Events>,
    ) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            functions,
            output,
            events,
            arrivals: Mutex::default(),
            pause: PollPause::new(),
            turn: face::Mutex::default(),
            lanes: Mutex::default(),
            pending: AtomicUsize::new(0),
            unannounced: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
        });
        let for_thread = Arc::clone(&shared);
        let thread = face::spawn("completions", move || for_thread.run())?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Whether a wait that is over may be answered on the spot: no earlier one is overtaken, and nothing that
    /// was printed has to be fetched.
    pub(crate) fn may_complete_at_once(&self) -> bool {
        !self.shared.are_urgent() && !self.shared.output.expected()
    }

    /// Whether nothing is waited for, and every completion has returned.
    pub(crate) fn is_idle(&self) -> bool {
        self.shared.is_idle()
    }

    /// Records an event of ours by `record`, which is to put it where the mark is wanted.
    pub(crate) fn mark(
        &self,
        context: Native<Context>,
        record: impl FnOnce(Native<Event>) -> CuResult<()>,
    ) -> CuResult<Native<Event>> {
        let event = self.shared.events.take(self.shared.functions, context)?;
        record(event).inspect_err(|_| self.shared.events.release(context, event))?;
        Ok(event)
    }

    /// Calls `done` when everything before a mark is done; on the spot when it is and nothing is overtaken.
    pub(crate) fn after_mark(
        &self,
        context: Native<Context>,
        source: Source,
        mark: Native<Event>,
        done: Completion,
    ) {
        if source == Source::Context && self.may_complete_at_once() {
            // SAFETY: the event is ours.
            match unsafe { self.shared.functions.cuEventQuery(mark.as_raw()) } {
                Err(CUresult::CUDA_ERROR_NOT_READY) => {}
                ended => {
                    self.shared.events.release(context, mark);
                    return done(ended);
                }
            }
        }
        self.shared.push(context, source, CompletionEvent::Own(mark), true, done);
    }

    /// Calls `done` some time after everything before a mark is done.
    pub(crate) fn some_time_after_mark(
        &self,
        context: Native<Context>,
        source: Source,
        mark: Native<Event>,
        done: Completion,
    ) {
        self.shared.push(context, source, CompletionEvent::Own(mark), false, done);
    }

    /// The calling thread's idle poller of the waits.
    pub(crate) fn idle_poller(&self) -> IdlePoller<'_> {
        IdlePoller::over(&*self.shared)
    }

    /// Calls `done` when an event of the program is done.
    pub(crate) fn after_event(&self, context: Native<Context>, event: Native<Event>, done: Completion) {
        self.shared.events.watch(event);
        self.shared.push(context, Source::Event(event), CompletionEvent::Program(event), true, done);
    }

    /// Before an event of the program is recorded anew: what waits for its last record goes on waiting for
    /// that one. The driver's own event would tell of the new record, which may well depend on what waits
    /// here.
    pub(crate) fn keep_record(&self, event: Native<Event>) {
        let failed = {
            let mut lanes = self.shared.lanes.lock();
            self.shared.sort_in(&mut lanes);
            let waits: Vec<Wait> = lanes
                .extract_if(|(_, source), _| *source == Source::Event(event))
                .flat_map(|(_, lane)| lane)
                .collect();
            waits.into_iter().filter_map(|wait| self.shared.keep_record(&mut lanes, event, wait)).collect()
        };
        self.shared.deliver(failed);
    }

    /// Ends all waits in a context that is about to end.
    pub(crate) fn abandon(&self, context: Native<Context>) {
        let ended = {
            let mut lanes = self.shared.lanes.lock();
            self.shared.sort_in(&mut lanes);
            let mut abandoned: Vec<Wait> = Vec::new();
            lanes.extract_if(|(other, _), _| *other == context).for_each(|(_, lane)| abandoned.extend(lane));
            let ended = self.shared.end_all(abandoned, CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED);
            self.shared.events.forget(context);
            ended
        };
        self.shared.deliver(ended);
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::Release);
        self.shared.pause.call();
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != face::current().id()
            && thread.join().is_err()
        {
            tracing::error!("the thread that waits for the GPU panicked");
        }
    }
}

impl Pollable for Shared {
    fn is_waited_for(&self) -> bool {
        self.are_urgent()
    }

    fn poll(&self) {
        if self.are_urgent() {
            self.poll_once();
        }
    }

    fn hand_on(&self) {
        if self.unannounced.load(Ordering::Acquire)
            && self.unannounced.swap(false, Ordering::AcqRel)
            && self.are_urgent()
        {
            self.pause.call();
        }
    }
}

impl Shared {
    /// Whether there are waits that somebody waits for.
    fn are_urgent(&self) -> bool {
        self.pending.load(Ordering::Acquire) > 0
    }

    fn push(
        &self,
        context: Native<Context>,
        source: Source,
        sign: CompletionEvent,
        urgent: bool,
        done: Completion,
    ) {
        if urgent {
            self.pending.fetch_add(1, Ordering::AcqRel);
        }
        {
            let mut arrivals = self.arrivals.lock();
            let number = arrivals.count;
            arrivals.count += 1;
            arrivals.waits.push(Wait { number, context, source, sign, urgent, done });
        }
        if !urgent {
            self.pause.bring();
        } else if idle_poller::is_ours(self) {
            self.unannounced.store(true, Ordering::Release);
        } else {
            self.pause.call();
        }
    }

    /// Lets a wait for an event of the program wait for one of ours; it has ended where the driver does not
    /// let it.
    fn keep_record(&self, lanes: &mut Lanes, event: Native<Event>, wait: Wait) -> Option<Ended> {
        match self.events.keep_record(self.functions, wait.context, event) {
            Ok(own) => {
                self.events.unwatch(self.functions, event);
                let source = Source::Event(own);
                let wait = Wait { source, sign: CompletionEvent::Own(own), ..wait };
                lanes.entry((wait.context, source)).or_default().push_back(wait);
                None
            }
            Err(status) => Some(self.end(wait, Err(status))),
        }
    }
}
