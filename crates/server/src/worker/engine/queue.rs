//! Deferred commands by stream, and the progress of each stream.

use crate::worker::engine::event_renewal::{EarlierEvent, renamed};
use crate::worker::order::{self, Blockers, CommandOrder, ObjectKinds};
use crate::worker::session::{Head, Session};
use causeway_api::calls::Request;
use causeway_api::handle::{Context, Event, Handle, Stream};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of deferred commands. A client that has more waiting for streams that do not move is cut off.
const MAX_PARKED_BYTES: usize = 1 << 30;

/// A stream's progress is asked for once in so many commands: an event each would double the cost of a
/// launch.
const COMMANDS_PER_MARK: u64 = 64;

/// A command that waits.
pub(super) struct Deferred {
    /// Whom to answer.
    pub head: Head,
    /// How it takes part in the order.
    pub order: CommandOrder,
    /// Its arguments, encoded.
    pub payload: Box<[u8]>,
    /// Whether it makes objects.
    pub makes: bool,
    /// Events that have been renewed since it came, which it names.
    pub earlier_events: Vec<Arc<EarlierEvent>>,
}

/// The commands that wait and name an event, by their index in the queue, with the arguments that name another.
pub(super) struct Renaming(Vec<(usize, Box<[u8]>)>);

/// More bytes of commands wait than may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TooMuch(pub usize);

/// How far a stream is, in commands.
#[derive(Default)]
struct Progress {
    issued: u64,
    marked: u64,
    completed: Arc<AtomicU64>,
}

/// The commands that wait, what holds others up, and what streams there are.
#[derive(Default)]
pub(super) struct CommandQueue {
    deferred: VecDeque<Deferred>,
    deferred_bytes: usize,
    blockers: Blockers,
    kinds: ObjectKinds,
    progress: FxHashMap<u64, Progress>,
}

impl CommandQueue {
    /// What is known of the objects.
    pub fn kinds(&self) -> &ObjectKinds {
        &self.kinds
    }

    /// A command has been received, and may make what the order has to know of.
    pub fn note_made(&mut self, request: &Request<'_>, context: Handle<Context>) {
        self.kinds.note_made(request, context);
    }

    /// A stream has been destroyed.
    pub fn stream_destroyed(&mut self, stream: Handle<Stream>) {
        self.kinds.destroyed(stream);
        self.progress.remove(&stream.value());
    }

    /// Whether commands wait, or objects are being made.
    pub fn holds_any(&self) -> bool {
        !self.deferred.is_empty() || self.blockers.are_any_made()
    }

    /// Whether a command that waits, or an object that is being made, holds this one up.
    pub fn holds_up(&self, order: CommandOrder, request: &Request<'_>) -> bool {
        self.blockers.holds_up(order, request, &self.kinds)
    }

    /// What the command makes is being made in the background: what names it is held up until
    /// [`end_making`](Self::end_making).
    pub fn begin_making(&mut self, request: &Request<'_>) {
        self.blockers.begin_making(request);
    }

    /// An object has been made, or will not be.
    pub fn end_making(&mut self, handle: u64) {
        self.blockers.end_making(handle);
    }

    /// Lets a command wait with so many bytes of arguments, which holds up others from now on;
    /// [`push`](Self::push) is to follow.
    ///
    /// # Errors
    /// When too much waits already.
    pub fn admit(
        &mut self,
        head: Head,
        order: CommandOrder,
        bytes: usize,
        request: &Request<'_>,
    ) -> Result<(), TooMuch> {
        self.deferred_bytes += bytes + size_of::<Deferred>();
        if self.deferred_bytes > MAX_PARKED_BYTES {
            return Err(TooMuch(self.deferred_bytes));
        }
        self.blockers.add(order, head.context, request, &self.kinds);
        Ok(())
    }

    /// Whether a command that waits is still behind others, and makes nothing; it counts as waiting then, as after
    /// [`admit`](Self::admit). That is known without its arguments: there may be a hundred thousand behind a stream that
    /// goes on bit by bit.
    pub fn readmit_held(&mut self, deferred: &Deferred) -> bool {
        let is_held = !deferred.makes
            && self.event_that_holds_up(deferred.order).is_none()
            && self.blockers.holds_up_command(deferred.order, &self.kinds);
        if is_held {
            self.deferred_bytes += deferred.payload.len() + size_of::<Deferred>();
            self.blockers.add_command(deferred.order, deferred.head.context, &self.kinds);
        }
        is_held
    }

    /// Has a command wait behind all others that do.
    pub fn push(&mut self, deferred: Deferred) {
        self.deferred.push_back(deferred);
    }

    /// The event that a command records, if only commands that wait and name it hold that up.
    pub fn event_that_holds_up(&self, order: CommandOrder) -> Option<Handle<Event>> {
        self.blockers.event_that_holds_up(order, &self.kinds)
    }

    /// What is to be done for the commands that wait to name the event `to` in place of `from`; none where one of them
    /// cannot.
    pub fn renaming(&self, from: Handle<Event>, to: Handle<Event>) -> Option<Renaming> {
        let mut arguments = Vec::new();
        for (index, deferred) in self.deferred.iter().enumerate() {
            if deferred.order.names_event(from) {
                let request = Request::decode(deferred.head.opcode, &deferred.payload).ok()?;
                arguments.push((index, renamed(&request, from, to)?.into()));
            }
        }
        Some(Renaming(arguments))
    }

    /// Has the commands that wait name the event `to` in place of `from`.
    pub fn rename(&mut self, renaming: Renaming, from: Handle<Event>, to: &Arc<EarlierEvent>) {
        for (index, arguments) in renaming.0 {
            let deferred = &mut self.deferred[index];
            deferred.payload = arguments;
            deferred.order.rename_event(from, to.handle());
            deferred.earlier_events.push(Arc::clone(to));
        }
        self.blockers.rename_event(from, to.handle());
    }

    /// Takes out all commands that wait, in order; whoever takes them defers again what must wait longer.
    pub fn take_deferred(&mut self) -> VecDeque<Deferred> {
        if !self.deferred.is_empty() {
            self.blockers.forget_parked();
            self.deferred_bytes = 0;
        }
        core::mem::take(&mut self.deferred)
    }

    /// Whether the stream of a command can take one more without blocking.
    pub fn has_capacity(&self, session: &Session, order: CommandOrder) -> bool {
        match (session.gpu().queue_limit(), order) {
            (Some(limit), CommandOrder::InStream { stream, .. }) => {
                self.progress.get(&stream).is_none_or(|progress| {
                    progress.issued - progress.completed.load(Ordering::Acquire) < limit as u64
                })
            }
            _ => true,
        }
    }

    /// Counts a command of a stream, and asks for the stream's progress now and then.
    pub fn count(&mut self, session: &Arc<Session>, stream: u64) {
        if session.gpu().queue_limit().is_none() {
            return;
        }
        let progress = self.progress.entry(stream).or_default();
        progress.issued += 1;
        if progress.issued - progress.marked < COMMANDS_PER_MARK {
            return;
        }
        progress.marked = progress.issued;
        let (mark, completed) = (progress.issued, Arc::clone(&progress.completed));
        let Ok(native) = session.objects().native(order::handle(stream)) else { return };
        let waker = Arc::clone(session);
        let registered = session.gpu().after_a_while(
            native,
            Box::new(move |_| {
                completed.store(mark, Ordering::Release);
                waker.wake();
            }),
        );
        if registered.is_err() {
            // The stream has failed; so will every command in it, and none of them will block.
            progress.completed.store(mark, Ordering::Release);
        }
    }
}
