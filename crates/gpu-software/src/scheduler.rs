//! Orders the commands of all streams and moves the streams on.
//!
//! Every stream is a queue; a command carries the points of other streams that it comes after. That one
//! relation expresses events, the legacy default stream and joins. A stream whose front command must wait is
//! *stopped*: no thread is held by it; the thread that reaches the point, opens the gate or writes the value makes it
//! *ready* again, and a thread of the [`executor`](super::executor) takes it from there.
//!
//! All of it is behind one lock, which is never held while an operation runs or a callback is called.

use super::action::Action;
use super::attributes;
use super::context::Context;
use super::event::Event;
use super::machine::Machine;
use super::operation::Operation;
use super::stream::{Activity, Command, Done, Fired, Stream, StreamKind, Waiter, Watch, WatchProgress};
use crate::handles::{Point, StreamId};
use causeway_api::sys::CUresult;
use causeway_api::types::LaunchAttribute;
use causeway_gpu::{Completion, CuResult};
use causeway_sync::WaitQueue;
use causeway_sync::face::{Mutex, MutexGuard};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;

/// Memory that queued commands may take before another one is refused.
const MAX_QUEUED_BYTES: usize = 1 << 30;

/// The streams and events of a device and the threads that work on them.
pub(super) struct Scheduler {
    pub(super) state: Mutex<State>,
    /// Signalled when a stream is ready, and when the scheduler stops.
    pub(super) work: WaitQueue,
    /// Signalled when the last operation that uses host memory has ended after a stop.
    pub(super) quiet: WaitQueue,
    pub(super) machine: Machine,
}

/// What the lock protects.
#[derive(Default)]
pub(super) struct State {
    pub(super) streams: HashMap<StreamId, Stream>,
    pub(super) events: HashMap<u64, Event>,
    /// Ready streams: the smallest priority number first, then the one that has been ready for longest.
    pub(super) ready: BinaryHeap<Reverse<(i32, u64, StreamId)>>,
    /// How many streams have become ready so far.
    readied: u64,
    /// Streams that became ready and for which no thread has been called yet.
    pub(super) unannounced: usize,
    /// Streams stopped at a value.
    pub(super) value_waits: Vec<StreamId>,
    queued_bytes: usize,
    /// Threads of the executor, those of them that wait for work, and those that have not begun yet.
    pub(super) threads: usize,
    pub(super) idle: usize,
    pub(super) starting: usize,
    /// Operations under way that run kernels, and that use host memory.
    pub(super) kernels: usize,
    pub(super) host_copies: usize,
    /// Whether a thread looks after [`Self::value_waits`].
    pub(super) watched: bool,
    pub(super) stopped: bool,
}

impl Scheduler {
    /// A scheduler without streams.
    pub(super) fn new(machine: Machine) -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), work: WaitQueue::new(), quiet: WaitQueue::new(), machine })
    }

    /// The value of a stream's attribute.
    pub(super) fn attribute(&self, id: StreamId, attribute: u32) -> CuResult<LaunchAttribute> {
        let state = self.state.lock();
        let stream = state.usable(id)?;
        match stream.attributes.get(&attribute) {
            Some(value) => Ok(*value),
            None => attributes::of_stream(attribute, stream.priority),
        }
    }

    /// Sets an attribute of a stream. Only the priority has a meaning here; the others are remembered.
    pub(super) fn set_attribute(&self, id: StreamId, attribute: LaunchAttribute) -> CuResult<()> {
        let mut state = self.state.lock();
        let stream = state.usable_mut(id)?;
        // Whether streams have it at all.
        attributes::of_stream(attribute.id, stream.priority)?;
        match attributes::priority(&attribute) {
            Some(priority) => stream.priority = priority,
            None => drop(stream.attributes.insert(attribute.id, attribute)),
        }
        Ok(())
    }

    /// Gives a stream the attributes of another one.
    pub(super) fn copy_attributes(&self, destination: StreamId, source: StreamId) -> CuResult<()> {
        let mut state = self.state.lock();
        let source = state.usable(source)?;
        let (attributes, priority) = (source.attributes.clone(), source.priority);
        let destination = state.usable_mut(destination)?;
        (destination.attributes, destination.priority) = (attributes, priority);
        Ok(())
    }

    /// Adds a stream.
    pub(super) fn add_stream(&self, id: StreamId, context: &Arc<Context>, kind: StreamKind, priority: i32) {
        self.state.lock().streams.insert(id, Stream::new(context, kind, priority));
    }

    /// Removes a stream; what it holds is still done.
    pub(super) fn remove_stream(&self, id: StreamId) -> CuResult<()> {
        let mut state = self.state.lock();
        if !state.streams.contains_key(&id) {
            return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
        }
        state.close_stream(id);
        Ok(())
    }

    /// Appends an operation to a stream.
    pub(super) fn issue(self: &Arc<Self>, stream: StreamId, operation: Operation) -> CuResult<()> {
        self.issue_action(stream, Action::Run(operation)).map(drop)
    }

    /// Appends an action to a stream; gives the point after it.
    pub(super) fn issue_action(self: &Arc<Self>, stream: StreamId, action: Action) -> CuResult<Point> {
        self.issue_after(stream, Vec::new(), action)
    }

    /// Appends an action that also comes after points of other streams; gives the point after it.
    pub(super) fn issue_after(
        self: &Arc<Self>,
        stream: StreamId,
        after: Vec<Point>,
        action: Action,
    ) -> CuResult<Point> {
        let mut state = self.state.lock();
        state.usable(stream)?;
        self.submit(&mut state, stream, after, action)
    }

    /// Appends a command and sees to it that it is carried out.
    pub(super) fn submit(
        self: &Arc<Self>,
        state: &mut MutexGuard<'_, State>,
        stream: StreamId,
        after: Vec<Point>,
        action: Action,
    ) -> CuResult<Point> {
        let quick = action.is_quick();
        let (point, was_idle) = state.push(stream, after, action)?;
        if was_idle && quick {
            // Another thread would take longer to wake up than this takes.
            self.serve_front(state, stream);
        } else if was_idle {
            state.make_ready(stream);
        }
        self.call_threads(state);
        Ok(point)
    }

    /// Whether everything that a stream holds is done.
    pub(super) fn is_done(&self, stream: StreamId) -> CuResult<bool> {
        let state = self.state.lock();
        state.usable(stream)?;
        Ok(state.held(stream).is_empty())
    }

    /// Whether all streams are empty, and no thread carries anything out.
    pub(super) fn is_quiet(&self) -> bool {
        let state = self.state.lock();
        let is_idle = |stream: &Stream| {
            !stream.is_busy() && stream.activity == Activity::Idle && stream.context.check().is_ok()
        };
        state.kernels == 0 && state.host_copies == 0 && state.streams.values().all(is_idle)
    }

    /// Calls `done` when everything that a stream holds now is done.
    pub(super) fn after_stream(&self, stream: StreamId, done: Completion) -> CuResult<()> {
        let mut state = self.state.lock();
        let waited = state.streams.get(&stream).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
        let context = Arc::clone(&waited.context);
        let points = state.held(stream);
        let fired = state.watch(&points, context, done);
        drop(state);
        fired.into_iter().for_each(Fired::call);
        Ok(())
    }

    /// Calls `done` when everything that the streams of `context` hold now is done.
    pub(super) fn after_context(&self, context: &Arc<Context>, done: Completion) -> CuResult<()> {
        let mut state = self.state.lock();
        let points = state.held_in(context);
        let fired = state.watch(&points, Arc::clone(context), done);
        drop(state);
        fired.into_iter().for_each(Fired::call);
        Ok(())
    }

    /// Removes all streams and events of a context and calls `done` when the streams are through.
    pub(super) fn close_context(&self, context: &Arc<Context>, done: Completion) {
        let mut state = self.state.lock();
        let points = state.held_in(context);
        let fired = state.watch(&points, Arc::clone(context), done);
        let streams: Vec<_> = state.streams_of(context.id).map(|(id, _)| id).collect();
        for stream in streams {
            state.close_stream(stream);
        }
        state.events.retain(|_, event| event.context != context.id);
        drop(state);
        fired.into_iter().for_each(Fired::call);
    }

    /// Whether a stream has come to a point.
    pub(super) fn has_passed(&self, point: Point) -> bool {
        self.state.lock().has_passed(point)
    }
}

impl State {
    /// The stream of this number, if calls in its context can still succeed.
    pub(super) fn usable(&self, stream: StreamId) -> CuResult<&Stream> {
        let open = self.streams.get(&stream).filter(|stream| !stream.closing);
        let stream = open.ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
        stream.context.check()?;
        Ok(stream)
    }

    /// Likewise, to change it.
    fn usable_mut(&mut self, id: StreamId) -> CuResult<&mut Stream> {
        self.usable(id)?;
        self.streams.get_mut(&id).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
    }

    /// Appends a command to a stream's queue. Also tells whether the stream was idle, in which case it has to
    /// be served now or made ready.
    fn push(&mut self, id: StreamId, mut after: Vec<Point>, action: Action) -> CuResult<(Point, bool)> {
        if self.queued_bytes >= MAX_QUEUED_BYTES {
            return Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY);
        }
        self.order_with_legacy(id, &mut after);
        let command = Command::new(after, action);
        self.queued_bytes += command.bytes;
        let stream = self.streams.get_mut(&id).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
        stream.queue.push_back(command);
        stream.issued += 1;
        let point = Point { stream: id, sequence: stream.issued };
        Ok((point, stream.activity == Activity::Idle))
    }

    /// Puts actions before everything else that a stream holds, without being counted as its commands.
    pub(super) fn put_in_front(&mut self, id: StreamId, actions: Vec<Action>) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        for action in actions.into_iter().rev() {
            let command = Command { counts: false, ..Command::new(Vec::new(), action) };
            self.queued_bytes += command.bytes;
            stream.queue.push_front(command);
        }
    }

    /// Adds the points that a new command of `id` comes after because of the legacy default stream: its
    /// commands wait for everything in the blocking streams of the context, and theirs for everything in it.
    fn order_with_legacy(&mut self, id: StreamId, after: &mut Vec<Point>) {
        let Some(stream) = self.streams.get(&id) else { return };
        let (context, legacy) = (stream.context.id, stream.context.legacy);
        match stream.kind {
            StreamKind::NonBlocking => {}
            StreamKind::Legacy => {
                for (&other, stream) in &mut self.streams {
                    let waits = stream.is_busy() && stream.awaited_by_legacy < stream.issued;
                    if waits && stream.kind == StreamKind::Blocking && stream.context.id == context {
                        stream.awaited_by_legacy = stream.issued;
                        after.push(Point { stream: other, sequence: stream.issued });
                    }
                }
            }
            StreamKind::Blocking => {
                let Some(issued) = self.streams.get(&legacy).filter(|s| s.is_busy()).map(|s| s.issued) else {
                    return;
                };
                if let Some(stream) =
                    self.streams.get_mut(&id).filter(|stream| stream.legacy_awaited < issued)
                {
                    stream.legacy_awaited = issued;
                    after.push(Point { stream: legacy, sequence: issued });
                }
            }
        }
    }

    /// Hands a stream to the executor.
    pub(super) fn make_ready(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        stream.activity = Activity::Ready;
        self.ready.push(Reverse((stream.priority, self.readied, id)));
        self.readied += 1;
        self.unannounced += 1;
    }

    /// Has a stopped stream look again at what it waits for.
    pub(super) fn wake(&mut self, id: StreamId) {
        if self.streams.get(&id).is_some_and(|stream| stream.activity == Activity::Stopped) {
            self.make_ready(id);
        }
    }

    /// Whether a stream has come to a point; one that is gone has come to all of its points.
    pub(super) fn has_passed(&self, point: Point) -> bool {
        self.streams.get(&point.stream).is_none_or(|stream| stream.completed >= point.sequence)
    }

    /// Has `waiter` told when a point is reached that is not yet.
    pub(super) fn wait_for(&mut self, point: Point, waiter: Waiter) {
        if let Some(stream) = self.streams.get_mut(&point.stream) {
            stream.waiters.entry(point.sequence).or_default().push(waiter);
        }
    }

    /// Calls `done` when all points are reached; returns it when they are now.
    pub(super) fn watch(
        &mut self,
        points: &[Point],
        context: Arc<Context>,
        done: Completion,
    ) -> Option<Fired> {
        let missing: Vec<_> = points.iter().filter(|point| !self.has_passed(**point)).copied().collect();
        if missing.is_empty() {
            return Some(Fired { done, outcome: context.outcome() });
        }
        let progress = WatchProgress { missing: missing.len(), done: Some(done) };
        let watch = Arc::new(Watch { context, progress: Mutex::new(progress) });
        for point in missing {
            self.wait_for(point, Waiter::Watch(Arc::clone(&watch)));
        }
        None
    }

    /// Takes note that a stream has completed the command it took last; gives the completions due for that.
    pub(super) fn complete(&mut self, id: StreamId, done: Done) -> Vec<Fired> {
        self.queued_bytes = self.queued_bytes.saturating_sub(done.bytes);
        let mut fired = Vec::new();
        let Some(stream) = self.streams.get_mut(&id).filter(|_| done.counts) else { return fired };
        stream.completed += 1;
        let completed = stream.completed;
        while let Some(entry) = self.streams.get_mut(&id).and_then(|stream| stream.waiters.first_entry()) {
            if *entry.key() > completed {
                break;
            }
            for waiter in entry.remove() {
                match waiter {
                    Waiter::Stream(other) => self.wake(other),
                    Waiter::Watch(watch) => fired.extend(watch.count_down()),
                }
            }
        }
        fired
    }

    /// The points at which everything is done that a synchronisation with a stream waits for: for the legacy
    /// default stream that includes the blocking streams.
    fn held(&self, id: StreamId) -> Vec<Point> {
        let Some(stream) = self.streams.get(&id) else { return Vec::new() };
        let point = |id, stream: &Stream| Point { stream: id, sequence: stream.issued };
        let mut points: Vec<_> = stream.is_busy().then(|| point(id, stream)).into_iter().collect();
        if stream.kind == StreamKind::Legacy {
            let others = self.streams_of(stream.context.id);
            let blocking = others.filter(|(_, other)| other.kind == StreamKind::Blocking && other.is_busy());
            points.extend(blocking.map(|(id, stream)| point(id, stream)));
        }
        points
    }

    fn held_in(&self, context: &Context) -> Vec<Point> {
        let busy = self.streams_of(context.id).filter(|(_, stream)| stream.is_busy());
        busy.map(|(id, stream)| Point { stream: id, sequence: stream.issued }).collect()
    }

    /// The streams of a context.
    pub(super) fn streams_of(&self, context: u64) -> impl Iterator<Item = (StreamId, &Stream)> {
        self.streams
            .iter()
            .filter(move |(_, stream)| stream.context.id == context)
            .map(|(&id, stream)| (id, stream))
    }

    /// Lets a stream go away as soon as its queue is empty.
    fn close_stream(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        stream.closing = true;
        if stream.activity == Activity::Idle {
            self.streams.remove(&id);
        }
    }
}
