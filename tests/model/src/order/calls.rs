//! What each call does to the order of things.

use super::{Contents, Effect, HappensBefore, Life, Refusal, Set, View};
use crate::program::{Await, BufferKind, Call, GraphPlan, Region, Step, Stream, StreamKind, Work};

/// The kinds of objects that one thread has to itself between two barriers.
const STREAM: usize = 0;
const EVENT: usize = 1;
const GRAPH: usize = 2;

impl HappensBefore<'_> {
    /// Takes a call into a thread's view. What it changes outside the view, it changes when nothing can be
    /// refused any more.
    pub(super) fn call(&mut self, thread: usize, call: &Call, view: &mut View) -> Result<(), Refusal> {
        let used = objects(call);
        for &(kind, object) in &used {
            self.check_use(thread, kind, object)?;
        }
        match call {
            Call::Enqueue { stream, work } => self.enqueue(thread, *stream, work, view)?,
            Call::Blocking { device, work } => self.blocking_call(thread, *device, work, view)?,
            Call::Host(work) => self.host_code(thread, work, view)?,
            Call::Record { event, stream } => self.record(*event, *stream, view)?,
            Call::WaitEvent { stream, event } => {
                let recorded =
                    view.events[*event].1.clone().ok_or(Refusal::Invalid("an event never recorded"))?;
                view.streams[*stream].add_all(&recorded);
                self.stand_still(*stream, view);
            }
            Call::Await(what) => self.wait(*what, view)?,
            Call::Capture { graph } => self.capture(*graph)?,
            Call::Launch { graph, stream } => self.launch(thread, *graph, *stream, view)?,
            Call::Allocate { buffer, stream, value } => {
                self.allocate(thread, *buffer, *stream, *value, view)?
            }
            Call::Release { buffer, stream } => self.release(thread, *buffer, *stream, view)?,
            Call::DestroyStream { stream } => {
                let kind = self.program.streams[*stream].kind;
                if self.stopped.is_some() || !matches!(kind, StreamKind::Blocking | StreamKind::NonBlocking) {
                    return Err(Refusal::Invalid("a stream that cannot be destroyed"));
                }
                self.streams[*stream] = Life::Gone;
            }
            Call::WaitValue { stream, word } => self.stop(thread, *stream, *word, view)?,
            Call::WriteValue { stream, word } => self.go(thread, *stream, *word, view)?,
            Call::Barrier => {}
        }
        for (kind, object) in used {
            self.owners[kind][object] = Some(thread);
        }
        Ok(())
    }

    fn check_use(&self, thread: usize, kind: usize, object: usize) -> Result<(), Refusal> {
        if self.owners[kind][object].is_some_and(|owner| owner != thread) {
            return Err(Refusal::Shared);
        }
        if kind == STREAM {
            if self.streams[object] == Life::Gone {
                return Err(Refusal::Invalid("a stream that is gone"));
            }
            if matches!(self.program.streams[object].kind, StreamKind::PerThread(owner) if owner != thread) {
                return Err(Refusal::Shared);
            }
        }
        Ok(())
    }

    /// What is complete before work that a stream is given now.
    fn base(&self, stream: usize, view: &View) -> Set {
        let mut before = self.end(stream, view);
        let state = &self.program.streams[stream];
        if self.is_blocking(stream) {
            before.add_all(&view.legacy[state.device]);
        }
        before
    }

    /// What is complete once a stream has done what it was given. A blocking stream that was given nothing
    /// since does not stand for the work of the legacy default stream, but that one does for the work of
    /// blocking streams.
    fn end(&self, stream: usize, view: &View) -> Set {
        let mut before = view.host.clone();
        before.add_all(&view.streams[stream]);
        if self.program.streams[stream].kind == StreamKind::Legacy {
            for other in self.blocking(self.program.streams[stream].device) {
                before.add_all(&view.streams[other]);
            }
        }
        before
    }

    /// Makes `done` the end of a stream's work.
    fn extend(&self, stream: usize, done: &Set, view: &mut View) {
        view.streams[stream].add_all(done);
        let Stream { device, kind } = self.program.streams[stream];
        if kind == StreamKind::Legacy {
            view.legacy[device].add_all(done);
        }
    }

    fn in_stream(
        &mut self,
        thread: usize,
        stream: usize,
        effect: Effect,
        view: &mut View,
    ) -> Result<Set, Refusal> {
        let mut done = self.base(stream, view);
        let action = self.act(thread, Some(stream), effect, done.clone(), &view.host, (0, 0))?;
        done.add(action);
        self.extend(stream, &done, view);
        Ok(done)
    }

    fn by_host(&mut self, thread: usize, effect: Effect, view: &mut View) -> Result<(), Refusal> {
        let action = self.act(thread, None, effect, view.host.clone(), &view.host, (0, 0))?;
        view.host.add(action);
        Ok(())
    }

    /// Refuses to wait for what only a later operation releases.
    fn check_end(&self, done: &Set) -> Result<(), Refusal> {
        if self.stopped.is_some_and(|(_, action)| done.has(action)) { Err(Refusal::Deadlock) } else { Ok(()) }
    }

    /// Lets the host know that all of a set is complete.
    fn learn(&self, done: &Set, view: &mut View) -> Result<(), Refusal> {
        self.check_end(done)?;
        view.host.add_all(done);
        Ok(())
    }

    pub(super) fn kind(&self, region: &Region) -> BufferKind {
        self.program.buffers[region.buffer].kind
    }

    fn enqueue(&mut self, thread: usize, stream: usize, work: &Work, view: &mut View) -> Result<(), Refusal> {
        self.check(work, self.program.streams[stream].device)?;
        if let Work::Copy { to, from, .. } = work {
            if self.kind(from) == BufferKind::Pageable {
                // The call may wait for the stream.
                self.check_end(&self.base(stream, view))?;
                self.by_host(thread, Effect::Stage(*from), view)?;
                return self.in_stream(thread, stream, Effect::Unstage(*to), view).map(drop);
            }
            if self.kind(to) == BufferKind::Pageable {
                let done = self.in_stream(thread, stream, Effect::Work(work.clone()), view)?;
                return self.learn(&done, view);
            }
            if self.kind(from).is_host() && self.kind(to).is_host() {
                // CUDA calls copies within the host synchronous, but the program does not count on it.
                self.check_end(&self.base(stream, view))?;
            }
        }
        self.in_stream(thread, stream, Effect::Work(work.clone()), view).map(drop)
    }

    fn blocking_call(
        &mut self,
        thread: usize,
        device: usize,
        work: &Work,
        view: &mut View,
    ) -> Result<(), Refusal> {
        self.check(work, device)?;
        let kinds = match work {
            Work::Copy { to, from, .. } => (self.kind(to), self.kind(from)),
            Work::Fill { to, .. } => (self.kind(to), self.kind(to)),
            _ => return Err(Refusal::Invalid("work without a synchronous entry point")),
        };
        if !kinds.0.is_device() && !kinds.1.is_device() && matches!(work, Work::Copy { .. }) {
            return Err(Refusal::Invalid("a synchronous copy within the host"));
        }
        // Whether or not CUDA says that the call waits, a driver may let it.
        self.check_end(&self.base(device, view))?;
        if kinds.1 == BufferKind::Pageable {
            let Work::Copy { to, from, .. } = work else {
                return Err(Refusal::Invalid("a fill of the host"));
            };
            self.by_host(thread, Effect::Stage(*from), view)?;
            return self.in_stream(thread, device, Effect::Unstage(*to), view).map(drop);
        }
        let is_down = kinds.0.is_locked() || kinds.0 == BufferKind::Pageable;
        let waits = is_down || (kinds.1.is_locked() && self.program.uploads_wait);
        let done = self.in_stream(thread, device, Effect::Work(work.clone()), view)?;
        if waits && matches!(work, Work::Copy { .. }) { self.learn(&done, view) } else { Ok(()) }
    }

    fn host_code(&mut self, thread: usize, work: &Work, view: &mut View) -> Result<(), Refusal> {
        if !work.is_host_code() {
            return Err(Refusal::Invalid("device work by the host"));
        }
        let region = work.source().or(work.target());
        let Some(region) = region.filter(|region| self.kind(region).is_host()) else {
            return Err(Refusal::Invalid("device memory in the hands of the host"));
        };
        if self.kind(region) == BufferKind::Managed {
            self.leave_managed_alone(self.program.buffers[region.buffer].device, view)?;
        }
        self.by_host(thread, Effect::Work(work.clone()), view)
    }

    /// While anything runs on a device, the host may not touch managed memory (`concurrentManagedAccess` is
    /// 0).
    fn leave_managed_alone(&self, device: usize, view: &View) -> Result<(), Refusal> {
        if self.program.threads > 1 {
            return Err(Refusal::Invalid("managed memory and several threads"));
        }
        let runs = |(index, action): &(usize, &super::Action)| {
            action.stream.is_some_and(|stream| self.program.streams[stream].device == device)
                && !view.host.has(*index)
        };
        let running: Vec<usize> =
            self.actions.iter().enumerate().filter(runs).map(|(index, _)| index).collect();
        if running.is_empty() { Ok(()) } else { Err(Refusal::Managed(running)) }
    }

    fn record(&mut self, event: usize, stream: usize, view: &mut View) -> Result<(), Refusal> {
        if self.program.events[event] != self.program.streams[stream].device {
            return Err(Refusal::Invalid("an event of another device"));
        }
        let mut recorded = self.end(stream, view);
        // A driver may let the event wait for the legacy default stream, too, which can stand still.
        if let Some((_, action)) = self.stopped.filter(|(_, action)| self.base(stream, view).has(*action)) {
            recorded.add(action);
        }
        self.records += 1;
        view.events[event] = (self.records, Some(recorded));
        self.stand_still(stream, view);
        Ok(())
    }

    /// A record or a wait in the legacy default stream is no work that others are in order with, but a driver
    /// may make blocking streams stand still behind it.
    fn stand_still(&self, stream: usize, view: &mut View) {
        let Stream { device, kind } = self.program.streams[stream];
        if let Some((_, action)) = self.stopped.filter(|_| kind == StreamKind::Legacy)
            && self.base(stream, view).has(action)
        {
            view.legacy[device].add(action);
        }
    }

    fn wait(&self, what: Await, view: &mut View) -> Result<(), Refusal> {
        let mut done = Set::default();
        match what {
            Await::Stream(stream) | Await::StreamQueries(stream) => {
                self.check_end(&self.base(stream, view))?;
                done.add_all(&view.streams[stream]);
            }
            Await::Event(event) | Await::EventQueries(event) => match &view.events[event].1 {
                Some(recorded) => done.add_all(recorded),
                None => return Err(Refusal::Invalid("an event never recorded")),
            },
            Await::Context(device) => {
                let streams = self.program.streams.iter().zip(&view.streams);
                streams.filter(|(stream, _)| stream.device == device).for_each(|(_, end)| done.add_all(end));
            }
        }
        self.learn(&done, view)
    }

    fn capture(&mut self, graph: usize) -> Result<(), Refusal> {
        if self.launches[graph].is_some() || self.stopped.is_some() {
            return Err(Refusal::Invalid("a graph that is captured already, or not now"));
        }
        let plan = &self.program.graphs[graph];
        for step in &plan.steps {
            if let Step::Work { work, .. } = step {
                self.check(work, plan.device)?;
                let mut regions = work.source().into_iter().chain(work.target());
                if regions.any(|region| {
                    let buffer = &self.program.buffers[region.buffer];
                    let is_of_one = buffer.kind.has_device_pointer();
                    buffer.kind == BufferKind::Pageable || (is_of_one && buffer.device != plan.device)
                }) {
                    return Err(Refusal::Invalid("memory that graphs do not have"));
                }
                if work.source().into_iter().chain(work.target()).any(|region| !self.is_alive(region.buffer))
                {
                    return Err(Refusal::Invalid("a buffer that is not there"));
                }
            }
        }
        self.launches[graph] = Some(0);
        Ok(())
    }

    fn launch(&mut self, thread: usize, graph: usize, stream: usize, view: &mut View) -> Result<(), Refusal> {
        let plan: &GraphPlan = &self.program.graphs[graph];
        if plan.device != self.program.streams[stream].device {
            return Err(Refusal::Invalid("a graph of another device"));
        }
        let round = self.launches[graph].ok_or(Refusal::Invalid("a graph that is not captured"))?;
        let mut base = self.base(stream, view);
        base.add_all(&view.graphs[graph]);
        let mut lanes = vec![base; plan.lanes];
        for (part, step) in plan.steps.iter().enumerate() {
            match step {
                Step::Work { lane, work } => {
                    let effect = Effect::Work(work.clone());
                    let before = lanes[*lane].clone();
                    let action = self.act(thread, Some(stream), effect, before, &view.host, (part, round))?;
                    lanes[*lane].add(action);
                }
                Step::Join { from, to } => {
                    let done = lanes[*from].clone();
                    lanes[*to].add_all(&done);
                }
            }
        }
        let mut done = Set::default();
        lanes.iter().for_each(|lane| done.add_all(lane));
        self.extend(stream, &done, view);
        view.graphs[graph] = done;
        self.launches[graph] = Some(round + 1);
        Ok(())
    }

    fn allocate(
        &mut self,
        thread: usize,
        buffer: usize,
        stream: usize,
        value: u32,
        view: &mut View,
    ) -> Result<(), Refusal> {
        let made = &self.program.buffers[buffer];
        if self.stopped.is_some() || made.device != self.program.streams[stream].device {
            return Err(Refusal::Invalid("an allocation for another device, or not now"));
        }
        let whole = Region::linear(buffer, 0, made.size);
        if made.kind.is_device() {
            self.in_stream(thread, stream, Effect::Allocate(whole, Contents::Value(value)), view)?;
        } else {
            if made.kind == BufferKind::Managed {
                self.leave_managed_alone(made.device, view)?;
            }
            self.by_host(thread, Effect::Allocate(whole, Contents::Key(value)), view)?;
        }
        self.buffers[buffer] = Life::Alive;
        Ok(())
    }

    fn release(
        &mut self,
        thread: usize,
        buffer: usize,
        stream: usize,
        view: &mut View,
    ) -> Result<(), Refusal> {
        let gone = &self.program.buffers[buffer];
        if self.stopped.is_some() || gone.device != self.program.streams[stream].device {
            return Err(Refusal::Invalid("a release by another device, or not now"));
        }
        let effect = Effect::Release(Region::linear(buffer, 0, gone.size));
        if gone.kind == BufferKind::Pool {
            self.in_stream(thread, stream, effect, view)?;
        } else {
            if gone.kind == BufferKind::Managed {
                self.leave_managed_alone(gone.device, view)?;
            }
            self.by_host(thread, effect, view)?;
        }
        self.buffers[buffer] = Life::Gone;
        Ok(())
    }

    fn stop(&mut self, thread: usize, stream: usize, word: usize, view: &mut View) -> Result<(), Refusal> {
        if self.program.threads > 1 || self.stopped.is_some() || self.words_used.contains(&word) {
            return Err(Refusal::Invalid("a second wait for a value"));
        }
        if self.program.streams[stream].device != 0 || word >= self.program.words {
            return Err(Refusal::Invalid("a word of another device"));
        }
        self.in_stream(thread, stream, Effect::Stop, view)?;
        self.stopped = Some((word, self.actions.len() - 1));
        self.words_used.push(word);
        Ok(())
    }

    fn go(&mut self, thread: usize, stream: usize, word: usize, view: &mut View) -> Result<(), Refusal> {
        if self.program.streams[stream].device != 0 || word >= self.program.words {
            return Err(Refusal::Invalid("a word of another device"));
        }
        self.check_end(&self.base(stream, view))?;
        self.in_stream(thread, stream, Effect::Go, view)?;
        self.stopped = self.stopped.filter(|(stopped, _)| *stopped != word);
        if !self.words_used.contains(&word) {
            self.words_used.push(word);
        }
        Ok(())
    }
}

/// The objects of a call that one thread has to itself.
fn objects(call: &Call) -> Vec<(usize, usize)> {
    match *call {
        Call::Enqueue { stream, .. }
        | Call::Allocate { stream, .. }
        | Call::Release { stream, .. }
        | Call::DestroyStream { stream }
        | Call::WaitValue { stream, .. }
        | Call::WriteValue { stream, .. } => vec![(STREAM, stream)],
        // The legacy default streams come first, in the order of the devices.
        Call::Blocking { device, .. } => vec![(STREAM, device)],
        Call::Record { event, stream } | Call::WaitEvent { stream, event } => {
            vec![(STREAM, stream), (EVENT, event)]
        }
        Call::Await(Await::Stream(stream) | Await::StreamQueries(stream)) => vec![(STREAM, stream)],
        Call::Await(Await::Event(event) | Await::EventQueries(event)) => vec![(EVENT, event)],
        Call::Launch { graph, stream } => vec![(STREAM, stream), (GRAPH, graph)],
        Call::Capture { graph } => vec![(GRAPH, graph)],
        Call::Host(_) | Call::Await(Await::Context(_)) | Call::Barrier => Vec::new(),
    }
}
