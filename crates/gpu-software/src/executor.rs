//! The threads that carry out what streams hold.
//!
//! A thread serves one stream until that has to stop or is empty, then takes the next ready one. There are as
//! many threads as streams have work at the same time, so that a kernel which waits for another stream's
//! kernel gets it; threads without work end after a while.

use super::action::Action;
use super::context::Context;
use super::operation::Operation;
use super::scheduler::{Scheduler, State};
use super::stream::{Activity, Command, Done, Fired, Waiter};
use crate::handles::StreamId;
use causeway_api::sys::CUresult;
use causeway_sync::face::{self, MutexGuard};
use std::cmp::Reverse;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::Acquire;
use std::time::{Duration, Instant};
use std::{io, thread};

/// How many streams can run at the same time, as on NVIDIA's devices.
const MAX_THREADS: usize = 128;
/// How long a thread waits for work before it ends.
const IDLE_LIFE: Duration = Duration::from_secs(10);
/// How often memory is compared with the values that streams wait for while kernels run, which may write
/// them, and at first in any case.
const VALUE_INTERVAL: Duration = Duration::from_micros(100);
/// How seldom at most where nothing but another process can write them: each time twice as long as before.
const MAX_VALUE_INTERVAL: Duration = Duration::from_millis(1);

/// What the front of a stream's queue asks for.
enum Step {
    /// Nothing that can be done now.
    Stop,
    /// A callback at a gate, after which the front is looked at again.
    Call(Box<dyn FnOnce() + Send>),
    /// The command is done without further work; its action is only to be dropped.
    Pass { action: Action, done: Done },
    /// An operation.
    Run { operation: Operation, done: Done, context: Arc<Context>, priority: i32 },
    /// The front has been replaced by what is to be done first.
    Again,
}

impl Scheduler {
    /// Starts the first thread, which stays.
    pub(super) fn start(self: &Arc<Self>) -> io::Result<()> {
        let mut state = self.state.lock();
        self.add_thread(&mut state)
    }

    /// Sees to it that threads come for the streams that have become ready.
    pub(super) fn call_threads(self: &Arc<Self>, state: &mut State) {
        self.work.notify(core::mem::take(&mut state.unannounced));
        while state.ready.len() > state.idle + state.starting && state.threads < MAX_THREADS {
            if let Err(error) = self.add_thread(state) {
                tracing::warn!("cannot start another thread for streams, so fewer run at once: {error}");
                break;
            }
        }
    }

    fn add_thread(self: &Arc<Self>, state: &mut State) -> io::Result<()> {
        let scheduler = Arc::clone(self);
        face::spawn("gpu stream", move || scheduler.run())?;
        state.threads += 1;
        state.starting += 1;
        Ok(())
    }

    fn run(self: Arc<Self>) {
        let mut state = self.state.lock();
        state.starting -= 1;
        while !state.stopped {
            if let Some(Reverse((_, _, stream))) = state.ready.pop() {
                self.serve(&mut state, stream);
                continue;
            }
            state.idle += 1;
            let is_called = self.work.wait_for(&mut state, IDLE_LIFE);
            state.idle -= 1;
            if !is_called && state.ready.is_empty() && state.threads > 1 {
                break;
            }
        }
        state.threads -= 1;
    }

    /// Carries out a stream's commands for as long as it can.
    fn serve(self: &Arc<Self>, state: &mut MutexGuard<'_, State>, id: StreamId) {
        while !state.stopped && self.advance(state, id) {}
    }

    /// Carries out the one command that an idle stream has just been given, on the calling thread.
    pub(super) fn serve_front(self: &Arc<Self>, state: &mut MutexGuard<'_, State>, id: StreamId) {
        if state.stopped || !self.advance(state, id) {
            return;
        }
        let Some(stream) = state.streams.get_mut(&id) else { return };
        if !stream.queue.is_empty() {
            state.make_ready(id);
        } else if stream.closing {
            state.streams.remove(&id);
        } else {
            stream.activity = Activity::Idle;
        }
    }

    /// Does what the front of a stream's queue asks for; says whether the stream can go on.
    fn advance(self: &Arc<Self>, state: &mut MutexGuard<'_, State>, id: StreamId) -> bool {
        match state.step(id, self) {
            Step::Stop => return false,
            Step::Call(callback) => MutexGuard::unlocked(state, callback),
            // Whoever waits for the lock gets it, as a loop may have nothing in it.
            Step::Again => MutexGuard::bump(state),
            Step::Pass { action, done } => {
                self.finish(state, id, done);
                if !matches!(action, Action::Pass) {
                    MutexGuard::unlocked(state, || drop(action));
                }
            }
            Step::Run { operation, done, context, priority } => {
                let writes = operation.writes_memory();
                self.execute(state, operation, &context, priority);
                if context.outcome().is_err() {
                    state.wake_all_of(context.id);
                } else if writes {
                    state.wake_value_waits(self);
                }
                self.finish(state, id, done);
            }
        }
        true
    }

    fn finish(self: &Arc<Self>, state: &mut MutexGuard<'_, State>, id: StreamId, done: Done) {
        let fired = state.complete(id, done);
        self.call_threads(state);
        if !fired.is_empty() {
            MutexGuard::unlocked(state, || fired.into_iter().for_each(Fired::call));
        }
    }

    /// Runs an operation without the lock; its error ends the context.
    fn execute(
        self: &Arc<Self>,
        state: &mut MutexGuard<'_, State>,
        operation: Operation,
        context: &Context,
        priority: i32,
    ) {
        let (kernels, host) =
            (usize::from(operation.runs_kernels()), usize::from(operation.uses_host_memory()));
        state.kernels += kernels;
        state.host_copies += host;
        self.watch_values(state);
        let outcome = MutexGuard::unlocked(state, || {
            // A fault inside the engine itself must not take the stream's thread with it: the client would
            // wait for ever.
            let outcome = catch_unwind(AssertUnwindSafe(|| operation.execute(&self.machine, priority)));
            drop(operation);
            outcome.unwrap_or(Err(CUresult::CUDA_ERROR_LAUNCH_FAILED))
        });
        state.kernels -= kernels;
        state.host_copies -= host;
        if state.stopped && state.host_copies == 0 {
            self.quiet.notify_all();
        }
        if let Err(error) = outcome {
            context.fail(error);
        }
    }

    /// Has a thread compare values, if streams wait for some and no thread does yet. Operations of this
    /// process wake them when they have written memory, but running kernels do not, nor do the program and
    /// other processes, which share memory.
    pub(super) fn watch_values(self: &Arc<Self>, state: &mut State) {
        if state.watched || state.value_waits.is_empty() {
            return;
        }
        let scheduler = Arc::clone(self);
        match face::spawn("gpu values", move || scheduler.compare_values()) {
            Ok(_) => state.watched = true,
            Err(error) => {
                tracing::warn!(
                    "values in memory are checked only when an operation of this session ends: \
                    {error}"
                );
            }
        }
    }

    fn compare_values(self: Arc<Self>) {
        let mut interval = VALUE_INTERVAL;
        loop {
            thread::sleep(interval);
            let mut state = self.state.lock();
            let waiting = state.value_waits.len();
            state.wake_value_waits(&self);
            self.call_threads(&mut state);
            if state.value_waits.is_empty() || state.stopped {
                state.watched = false;
                return;
            }
            let is_busy = state.kernels > 0 || state.value_waits.len() < waiting;
            interval = if is_busy { VALUE_INTERVAL } else { (2 * interval).min(MAX_VALUE_INTERVAL) };
        }
    }

    /// Ends all threads; returns when no operation uses host memory any more. Commands that have not begun
    /// are dropped, and kernels that run are left to themselves.
    pub(super) fn stop(&self) {
        let mut state = self.state.lock();
        state.stopped = true;
        self.work.notify_all();
        while state.host_copies > 0 {
            self.quiet.wait(&mut state);
        }
        // Commands and completions may hold what holds this scheduler, so they go now, and without the lock.
        let streams = core::mem::take(&mut state.streams);
        drop(state);
        drop(streams);
    }
}

impl State {
    /// Looks at the front of a stream's queue.
    fn step(&mut self, id: StreamId, scheduler: &Arc<Scheduler>) -> Step {
        let Some(stream) = self.streams.get_mut(&id) else { return Step::Stop };
        stream.activity = Activity::Running;
        if stream.queue.is_empty() {
            stream.activity = Activity::Idle;
            if stream.closing {
                self.streams.remove(&id);
            }
            return Step::Stop;
        }
        if stream.context.outcome().is_err() {
            return self.take(id, true);
        }
        while let Some(point) = self.front(id).and_then(|command| command.after.last().copied()) {
            if !self.has_passed(point) {
                self.wait_for(point, Waiter::Stream(id));
                return self.stop_stream(id);
            }
            if let Some(command) = self.front(id) {
                command.after.pop();
            }
        }
        match self.front(id).map(|command| &mut command.action) {
            Some(Action::Gate { reached, open }) => {
                if let Some(reached) = reached.take() {
                    return Step::Call(reached);
                }
                if !open.load(Acquire) {
                    return self.stop_stream(id);
                }
            }
            Some(Action::Begin(sequence)) => {
                sequence.conditions.iter().for_each(|condition| condition.begin())
            }
            Some(action @ Action::Branch(_)) => {
                let Action::Branch(branch) = action else { return Step::Stop };
                if let Some((body, again)) = branch.next() {
                    if !again {
                        *action = Action::Pass;
                    }
                    self.put_in_front(id, body.actions());
                    return Step::Again;
                }
            }
            Some(Action::WaitValue(condition)) => match condition.holds(&scheduler.machine.space) {
                Ok(true) => {}
                Ok(false) => {
                    if !self.value_waits.contains(&id) {
                        self.value_waits.push(id);
                    }
                    scheduler.watch_values(self);
                    return self.stop_stream(id);
                }
                Err(error) => {
                    tracing::error!("a stream waits for a value in memory that has been freed: {error}");
                    if let Some(stream) = self.streams.get(&id) {
                        let context = Arc::clone(&stream.context);
                        context.fail(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
                        self.wake_all_of(context.id);
                    }
                }
            },
            _ => {}
        }
        self.take(id, false)
    }

    fn front(&mut self, id: StreamId) -> Option<&mut Command> {
        self.streams.get_mut(&id)?.queue.front_mut()
    }

    fn stop_stream(&mut self, id: StreamId) -> Step {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.activity = Activity::Stopped;
        }
        Step::Stop
    }

    /// Takes the front command out, to be carried out unless `skip`.
    fn take(&mut self, id: StreamId, skip: bool) -> Step {
        let Some(stream) = self.streams.get_mut(&id) else { return Step::Stop };
        let Some(command) = stream.queue.pop_front() else { return Step::Stop };
        let done = Done { bytes: command.bytes, counts: command.counts };
        match command.action {
            Action::Run(operation) if !skip => {
                let (context, priority) = (Arc::clone(&stream.context), stream.priority);
                Step::Run { operation, done, context, priority }
            }
            Action::Record { event, record } => {
                if let Some(event) = self.events.get_mut(&event).filter(|event| event.record == record) {
                    event.time = Some(Instant::now());
                }
                Step::Pass { action: Action::Pass, done }
            }
            action => Step::Pass { action, done },
        }
    }

    /// Has the streams whose values have come go on.
    fn wake_value_waits(&mut self, scheduler: &Arc<Scheduler>) {
        if self.value_waits.is_empty() {
            return;
        }
        let waiting = core::mem::take(&mut self.value_waits);
        for id in waiting {
            let still = match self.front(id).map(|command| &command.action) {
                Some(Action::WaitValue(condition)) => {
                    matches!(condition.holds(&scheduler.machine.space), Ok(false))
                }
                _ => false,
            };
            if still {
                self.value_waits.push(id);
            } else {
                self.wake(id);
            }
        }
    }

    /// Has all stopped streams of a context that has failed go on: nothing that they wait for will come.
    fn wake_all_of(&mut self, context: u64) {
        let streams: Vec<_> = self.streams_of(context).map(|(id, _)| id).collect();
        self.value_waits.retain(|id| !streams.contains(id));
        for stream in streams {
            self.wake(stream);
        }
    }
}
