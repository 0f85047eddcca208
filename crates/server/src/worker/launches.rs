//! Launches of a session that shares the time of GPUs with others: they are issued while it has a slot at the device, and a
//! few milliseconds of them at a time.
//!
//! A slot ends when the kernels have ended that were issued in it: the device says when, by a mark in each stream behind
//! what it holds. A stream has one mark at a time, so that many short kernels cost few. How long a kernel takes is known from
//! the marks before, and a stream gets so many as take [`WINDOW`]: the device does not run dry, and who waits for it does not
//! wait for all that a program has launched ahead. Streams count one by one, since a kernel may wait for one of another
//! stream, but for none behind it in its own.

use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_api::calls::Request;
use causeway_api::handle::{Context, Handle};
use causeway_gpu::Completion;
use rustc_hash::FxHashMap;

use super::order::{self, CommandOrder};
use super::session::Session;
use crate::locks::{Mutex, rank};
use crate::worker_process::Slots;

/// How long the device works on what a stream holds, as far as is known.
const WINDOW: Duration = Duration::from_millis(10);

/// The most launches that a stream holds, however short they are.
const MAX_LAUNCHES: u32 = 512;

/// The end of launches may be noticed late by a good part of this: what took less says nothing of longer ones.
const MIN_MEASURED: Duration = Duration::from_millis(1);

/// What one stream holds.
#[derive(Debug)]
struct Window {
    launches: u32,
    /// Those behind the last mark.
    unmarked: u32,
    /// Marks that the device has not come to.
    marks: u32,
    /// Since when the device works on what the stream holds.
    busy_since: Instant,
    /// How long a launch takes.
    duration: Option<Duration>,
}

impl Window {
    fn new(now: Instant) -> Self {
        Self { launches: 0, unmarked: 0, marks: 0, busy_since: now, duration: None }
    }

    /// Whether the stream may get one more. Alone it has the next one while the device works on one.
    fn has_room(&self, is_contended: bool) -> bool {
        let min = if is_contended { 1 } else { 2 };
        let fitting = self.duration.map_or(0, |duration| WINDOW.as_nanos() / duration.as_nanos().max(1));
        let limit = u32::try_from(fitting + 1).unwrap_or(u32::MAX).clamp(min, MAX_LAUNCHES);
        self.launches < limit
    }

    /// The stream has got one; whether a mark is to follow.
    fn add(&mut self, now: Instant) -> bool {
        if self.launches == 0 {
            self.busy_since = now;
        }
        self.launches += 1;
        self.unmarked += 1;
        self.marks == 0
    }

    /// How many launches the mark stands for that follows now.
    fn mark(&mut self) -> u32 {
        self.marks += u32::from(self.unmarked > 0);
        core::mem::take(&mut self.unmarked)
    }

    /// The launches of a mark have ended; whether another mark is to follow.
    fn complete(&mut self, launches: u32, now: Instant) -> bool {
        let took = now.saturating_duration_since(self.busy_since);
        let each = took / launches.max(1);
        self.busy_since = now;
        // Longer ones are believed at once, shorter ones bit by bit.
        self.duration = Some(match self.duration {
            Some(known) if each > known && took < MIN_MEASURED => known,
            Some(known) => each.max((known + each) / 2),
            None => each,
        });
        self.drop_mark(launches)
    }

    /// As [`complete`](Self::complete), where nothing is known of the time.
    fn drop_mark(&mut self, launches: u32) -> bool {
        self.launches = self.launches.saturating_sub(launches);
        self.marks = self.marks.saturating_sub(1);
        self.unmarked > 0 && self.marks == 0
    }
}

struct Stream {
    context: Handle<Context>,
    device: u32,
    window: Window,
    /// It is forgotten when nothing of it is under way.
    has_ended: bool,
}

#[derive(Default)]
struct State {
    /// By their [keys](order::key).
    streams: FxHashMap<u64, Stream>,
    /// Streams that are to get a mark.
    unmarked: Vec<u64>,
    /// Whether a launch waits for room.
    is_awaited: bool,
    /// The devices of contexts.
    devices: FxHashMap<Handle<Context>, u32>,
}

struct Shared {
    slots: Arc<Slots>,
    state: Mutex<rank::Leaf, State>,
}

impl Shared {
    /// The launches of a mark have ended, or it cannot be known.
    fn complete(&self, session: &Session, key: u64, launches: u32, is_known: bool) {
        let mut state = self.state.lock();
        let Some(stream) = state.streams.get_mut(&key) else { return };
        let device = stream.device;
        let needs_mark = match is_known {
            true => stream.window.complete(launches, Instant::now()),
            false => stream.window.drop_mark(launches),
        };
        if stream.has_ended && stream.window.launches == 0 {
            state.streams.remove(&key);
        }
        if needs_mark {
            state.unmarked.push(key);
        }
        let wakes = needs_mark | core::mem::take(&mut state.is_awaited);
        drop(state);
        self.slots.end(device, launches as usize);
        if wakes {
            session.wake();
        }
    }
}

/// The launches of a session; nothing is asked where it shares no device's time.
#[derive(Default)]
pub struct Launches(Option<Arc<Shared>>);

impl Launches {
    /// Those of a session, which has slots if it shares the time of devices.
    pub fn new(session: &Arc<Session>) -> Self {
        Self(session.exchange().slots().map(|slots| {
            let waker = Arc::downgrade(session);
            slots.set_retry(move || {
                if let Some(session) = waker.upgrade() {
                    session.wake();
                }
            });
            Arc::new(Shared { slots: Arc::clone(slots), state: Mutex::default() })
        }))
    }

    /// The stream into which a request launches kernels, if it does.
    pub fn stream_of(request: &Request<'_>, order: CommandOrder) -> Option<u64> {
        match (request, order) {
            (Request::launch(_) | Request::graph_launch(_), CommandOrder::InStream { stream, .. }) => {
                Some(stream)
            }
            _ => None,
        }
    }

    /// Whether a launch of `context` may be issued into a stream, and [is](Self::issued) then; else the session is woken when
    /// it is worth to ask again.
    pub fn try_begin(&self, session: &Session, context: Handle<Context>, key: u64) -> bool {
        let Some(shared) = &self.0 else { return true };
        let device = shared.device_of(session, context);
        let is_contended = shared.slots.is_contended(device);
        let mut state = shared.state.lock();
        let window = state.streams.get(&key).map(|stream| &stream.window);
        let is_first = window.is_none_or(|window| window.launches == 0);
        if window.is_some_and(|window| !window.has_room(is_contended)) {
            state.is_awaited = true;
            return false;
        }
        drop(state);
        shared.slots.try_begin(device, is_first)
    }

    /// A launch was issued for which [`try_begin`](Self::try_begin) said yes, or has failed.
    pub fn issued(&self, session: &Arc<Session>, context: Handle<Context>, key: u64) {
        let Some(shared) = &self.0 else { return };
        let device = shared.device_of(session, context);
        let now = Instant::now();
        let needs_mark = {
            let mut state = shared.state.lock();
            let new = || Stream { context, device, window: Window::new(now), has_ended: false };
            state.streams.entry(key).or_insert_with(new).window.add(now)
        };
        if needs_mark {
            shared.mark(session, key);
        }
    }

    /// Marks the streams that are to be marked by now.
    pub fn mark_streams(&self, session: &Arc<Session>) {
        let Some(shared) = &self.0 else { return };
        let streams = core::mem::take(&mut shared.state.lock().unmarked);
        streams.into_iter().for_each(|key| shared.mark(session, key));
    }

    /// A command is about to be issued that ends a stream or a context, perhaps.
    pub fn before(&self, session: &Arc<Session>, request: &Request<'_>, context: Handle<Context>) {
        let Some(shared) = &self.0 else { return };
        let ended = match request {
            Request::stream_destroy(destroy) => vec![order::key(destroy.stream, context)],
            _ => match request.ended_context() {
                Some(ended) => shared.state.lock().context_ends(ended),
                None => return,
            },
        };
        for key in ended {
            // Behind the rest of what it holds: there is no other chance.
            shared.mark(session, key);
            let mut state = shared.state.lock();
            if let Some(stream) = state.streams.get_mut(&key) {
                stream.has_ended = true;
                if stream.window.launches == 0 {
                    state.streams.remove(&key);
                }
            }
        }
    }

    /// Whether kernels are under way.
    pub fn are_any(&self) -> bool {
        self.0.as_ref().is_some_and(|shared| shared.slots.are_any_running())
    }
}

impl State {
    /// The streams of a context, which is to end.
    fn context_ends(&mut self, context: Handle<Context>) -> Vec<u64> {
        self.devices.remove(&context);
        let of_context = self.streams.iter().filter(|(_, stream)| stream.context == context);
        of_context.map(|(key, _)| *key).collect()
    }
}

impl Shared {
    /// The device of a context. Where the back end does not say, the launch fails, and it does not matter which.
    fn device_of(&self, session: &Session, context: Handle<Context>) -> u32 {
        if let Some(device) = self.state.lock().devices.get(&context) {
            return *device;
        }
        let Ok(device) = session.enter_context(context).and_then(|()| session.gpu().time_shared_device())
        else {
            return 0;
        };
        self.state.lock().devices.insert(context, device);
        device
    }

    /// Has the device say when it is through with what a stream holds.
    fn mark(self: &Arc<Self>, session: &Arc<Session>, key: u64) {
        let (context, device, launches) = {
            let mut state = self.state.lock();
            let Some(stream) = state.streams.get_mut(&key) else { return };
            (stream.context, stream.device, stream.window.mark())
        };
        if launches == 0 {
            return;
        }
        let (shared, owner) = (Arc::clone(self), Arc::clone(session));
        let done: Completion = Box::new(move |_| shared.complete(&owner, key, launches, true));
        let gpu = session.gpu();
        let marked = session.enter_context(context).and_then(|()| {
            let stream = session.objects().native(order::handle(key))?;
            // Alone nobody waits for it.
            if self.slots.is_contended(device) {
                gpu.after(stream, done)
            } else {
                gpu.after_a_while(stream, done)
            }
        });
        if marked.is_err() {
            // The stream has failed or ended, and its kernels with it.
            self.complete(session, key, launches, false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLISECOND: Duration = Duration::from_millis(1);

    /// Launches kernels that take so long each until the window is full, and lets the device run until it is through with
    /// the first mark; how many launches the stream held at most, and how many marks there were.
    fn simulate(window: &mut Window, kernel: Duration, kernels: u32, is_contended: bool) -> (u32, u32) {
        let mut now = window.busy_since + MILLISECOND;
        let (mut left, mut most, mut marks) = (kernels, 0, 0);
        let mut marked = Vec::new();
        while left > 0 || window.launches > 0 {
            while left > 0 && window.has_room(is_contended) {
                left -= 1;
                if window.add(now) {
                    marked.push(window.mark());
                    marks += 1;
                }
            }
            most = most.max(window.launches);
            let launches = marked.remove(0);
            now += kernel * launches + Duration::from_micros(100);
            if window.complete(launches, now) {
                marked.push(window.mark());
                marks += 1;
            }
        }
        (most, marks)
    }

    #[test]
    fn a_stream_holds_what_takes_a_few_milliseconds() {
        let now = Instant::now();
        for (kernel, alone, contended) in [(100, 2, 1), (30, 2, 1), (4, 3, 3), (1, 10, 10)] {
            let most = |is_contended| {
                let mut window = Window::new(now);
                // What is not known yet is held as if it took long.
                assert!(window.has_room(is_contended));
                simulate(&mut window, kernel * MILLISECOND, 100, is_contended).0
            };
            assert_eq!((most(false), most(true)), (alone, contended), "kernels of {kernel} ms");
        }
        let mut window = Window::new(now);
        let (most, marks) = simulate(&mut window, Duration::from_micros(5), 100_000, false);
        assert_eq!(most, MAX_LAUNCHES);
        assert!(marks < 1000, "{marks} marks of many short kernels");
        // Longer ones after these are known by the next mark.
        simulate(&mut window, 50 * MILLISECOND, 2, false);
        assert!(window.add(now) && window.has_room(false));
        window.add(now);
        assert!(!window.has_room(false));
    }

    #[test]
    fn marks_that_are_refused_count_as_the_end_of_their_launches() {
        let mut window = Window::new(Instant::now());
        let now = window.busy_since;
        assert!(window.add(now) && window.mark() == 1 && !window.add(now));
        assert!(window.drop_mark(1), "the other one is to be marked");
        assert_eq!((window.mark(), window.mark()), (1, 0));
        assert!(!window.drop_mark(1) && window.launches == 0 && window.duration.is_none());
    }
}
