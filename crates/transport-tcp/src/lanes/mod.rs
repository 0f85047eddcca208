//! Bulk lanes: TCP connections over which large copies are striped.
//!
//! A transfer is cut into chunks, and every lane that is free takes the next one: a slow lane takes fewer.
//! Which one that is says the [`schedule`](super::schedule); here it is sent. As many threads send as there
//! are lanes, since one can copy only about 7 GB/s into the kernel, or [half as many](Schedule::senders)
//! where nothing is copied; a thread that waits for its transfer sends too, so that a short one needs no
//! other thread. As many other threads [receive](receiving) straight into the destinations of transfers, each
//! on whichever lane [has bytes](ready), and never send: so none of them waits for the other direction, and
//! no lane for a thread. One thread more [shows](keepalive) the peer that this end is there, and finds out when
//! nothing comes.

mod delayed_acks;
mod keepalive;
mod pacing;
mod ready;
mod receiving;
mod sender_pool;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd as _, RawFd};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use causeway_transport::TransportError;
use causeway_transport::shared::MAX_DESCRIPTORS;
use causeway_wire::chunk::LaneRecord;
use parking_lot::RwLock;
use thiserror::Error;

use delayed_acks::DelayedAcks;
use ready::Ready;
use sender_pool::SenderPool;

use super::commands::{CommandConnection, DialLanes, NotOpened};
use super::schedule::{OrderId, Schedule, Task};
use causeway_connection::channel::{Connection, Outgoing, Socket, shut_down};
use causeway_connection::keepalive::KeepaliveTimeouts;
use causeway_connection::socket::{is_within_a_host, limit_unsent, round_trip};
use causeway_pipeline::MAX_LANES;
use causeway_pipeline::lanes::is_long;
use causeway_sync::face::{Mutex, MutexGuard};
use causeway_sync::{EventfdWake, WaitQueue, delays, spin, threads};
use causeway_transport::TransportKind;
use causeway_transport::{Awaited, LinkError, Shared, count, spawn_or_lose};
use causeway_transport::{Direction, Memory, OutgoingTransfer, Pending, Sending};

/// No bulk lane could be opened.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("no bulk lane could be opened: {0}")]
pub struct NoLane(String);

/// A resumable link ends when so often in a row none of its lanes could be opened, though commands have a connection.
const MAX_FRUITLESS: u32 = 10;

/// Wait after that, since the network may be about to go again.
const FRUITLESS_PAUSE: Duration = Duration::from_secs(1);

/// The most lanes that a resumable link has had when it ends: each one's account is kept.
const MAX_LANES_EVER: usize = 1 << 14;

/// The connection for messages and what wakes its receiver, for each lane a connection and the two ends of a
/// pipe, and two that wait for all lanes.
const _: () = assert!(2 + 3 * MAX_LANES as usize + 2 <= MAX_DESCRIPTORS);

/// Whoever queues a long transfer wakes so many of the threads that send; each of these wakes
/// [`WAKE_AT_ONCE`], so that all are awake after the time of two wake-ups and none spends long on waking
/// others.
const WAKE_FIRST: usize = 4;

/// A thread that sends wakes so many others while there is work for them.
const WAKE_AT_ONCE: usize = 2;

/// The lanes of a link. Clones share them.
#[derive(Clone)]
pub(crate) struct Lanes(Arc<State>);

struct State {
    commands: Arc<CommandConnection>,
    /// Wakes the thread that receives messages on it.
    receiver_wake: Option<Arc<EventfdWake>>,
    /// Whether it is woken for messages, to look for them.
    looks_for_messages: bool,
    /// Whether the peer is on this host.
    is_within_a_host: bool,
    /// Opens the lanes at the end that connects.
    dialer: Option<Arc<dyn DialLanes>>,
    /// The number of the next one.
    next_number: AtomicU32,
    /// How often in a row no lane could be opened.
    fruitless: AtomicU32,
    /// The lanes that have not ended, by the schedule's numbers.
    open: RwLock<BTreeMap<usize, Arc<Lane>>>,
    /// Those that nobody receives on.
    ready: Ready,
    /// Threads that receive and do not sleep.
    receiving: AtomicUsize,
    /// Lanes that came before the link was started, for which no threads run yet.
    not_started: Mutex<NotStarted>,
    state: Mutex<LaneState>,
    /// There is something to send.
    work: WaitQueue,
    /// Changes whenever there is, for threads that stay awake.
    calls: AtomicUsize,
    /// The bytes of a transfer have left its memory.
    progress: WaitQueue,
    /// The link has ended.
    end: WaitQueue,
}

/// What the lock of the lanes protects.
#[derive(Default)]
struct LaneState {
    schedule: Schedule,
    /// What will be acknowledged to the peer.
    delayed_acks: DelayedAcks,
    /// Threads that send.
    pool: SenderPool,
    /// Whether a piece of a transfer may go without waiting for what earlier links have sent.
    may_send: bool,
    /// Threads that wait for the bytes of a transfer to leave.
    waiting: usize,
    /// Whether the link has ended.
    over: bool,
}

enum NotStarted {
    Waiting(Vec<usize>),
    Started,
}

struct Lane {
    /// Nothing once the connection has turned out to be the one for commands.
    outgoing: Mutex<Option<Outgoing>>,
    socket: Socket,
    /// What it holds open.
    descriptors: Vec<RawFd>,
    /// Why it was given up, though it has not ended.
    failure: OnceLock<LinkError>,
}

impl Lane {
    fn give_up(&self, cause: LinkError) {
        // The first cause is kept.
        let _ = self.failure.set(cause);
        // Whoever receives on it next notices.
        shut_down(&self.socket);
    }
}

/// A queued transfer whose memory belongs to whoever waits for it.
struct Posted {
    lanes: Lanes,
    link: Arc<Shared>,
    order: OrderId,
}

impl Memory for Lanes {
    fn kind(&self) -> TransportKind {
        TransportKind::Tcp
    }

    fn start(&self, link: &Arc<Shared>) {
        let descriptors = self
            .0
            .ready
            .descriptors()
            .into_iter()
            .chain(self.0.receiver_wake.iter().map(|receiver_wake| receiver_wake.descriptor()));
        descriptors.for_each(|descriptor| link.note_descriptor(descriptor));
        self.open_missing(link);
        let waiting = core::mem::replace(&mut *self.0.not_started.lock(), NotStarted::Started);
        if let NotStarted::Waiting(lanes) = waiting {
            lanes.into_iter().for_each(|lane| self.start_receiving(link, lane));
        }
    }

    fn keep_alive(&self, link: &Arc<Shared>, timeouts: KeepaliveTimeouts) {
        let lanes = self.clone();
        spawn_or_lose(link, "keepalive", move |link| lanes.keep_alive_until_end(link, timeouts));
    }

    unsafe fn send(&self, link: &Arc<Shared>, order: OutgoingTransfer) -> Result<Sending, LinkError> {
        link.check()?;
        let is_posted = order.guard.is_some();
        let mut state = self.0.state.lock();
        if state.over {
            drop(state);
            return Err(link.check().err().unwrap_or(LinkError::Closed));
        }
        let is_alone = !state.schedule.has_task();
        let (order, is_short) = state.schedule.post(order);
        // Whoever waits for a short transfer sends it, which is quicker than to wake somebody for it.
        if is_posted || !is_short || !is_alone {
            self.call(link, state, if is_short { 1 } else { WAKE_FIRST });
        } else {
            drop(state);
        }
        if is_posted {
            return Ok(Sending::done());
        }
        Ok(Sending::pending(Posted { lanes: self.clone(), link: Arc::clone(link), order }))
    }

    fn wake_receiver(&self, awaited: Awaited) {
        let Some(receiver_wake) = &self.0.receiver_wake else { return };
        match awaited {
            Awaited::Message if self.0.looks_for_messages => receiver_wake.wake_if_parked(),
            // Other threads receive transfers.
            Awaited::Message | Awaited::Transfer => {}
            // It must not be missed by one that is about to sleep.
            Awaited::Yield => receiver_wake.wake(),
        }
    }

    fn attach(&self, link: &Arc<Shared>, connection: Connection) {
        self.add(link, connection, None);
    }

    fn wait_for_connection(&self, timeout: Duration) {
        self.0.commands.wait_for_connection(timeout);
    }

    fn wait_for_end(&self, timeout: Duration) {
        self.0.commands.wait_for_end(timeout);
    }

    fn is_resumable(&self) -> bool {
        self.0.commands.is_resumable()
    }

    fn reconnect(&self) {
        if self.is_resumable() {
            // What is sent to where the peer was is lost, and is sent again.
            self.0.commands.break_off();
            self.0.open.read().values().for_each(|lane| shut_down(&lane.socket));
        }
    }

    fn unacknowledged_frames(&self) -> Option<(u64, u64, Vec<Vec<u8>>)> {
        self.0.commands.unacknowledged()
    }

    fn end(&self) {
        self.0.commands.end();
        self.0.open.read().values().for_each(|lane| shut_down(&lane.socket));
        if let NotStarted::Waiting(lanes) = &mut *self.0.not_started.lock() {
            lanes.clear();
        }
        self.0.ready.end();
        let mut state = self.0.state.lock();
        state.over = true;
        state.schedule.end();
        let finished = state.schedule.take_finished();
        drop(state);
        drop(finished);
        self.0.work.notify_all();
        self.0.progress.notify_all();
        self.0.end.notify_all();
    }
}

impl Pending for Posted {
    fn wait(&self) -> Result<(), LinkError> {
        self.lanes.send_until(&self.link, self.order, |state| state.schedule.is_consumed(self.order));
        self.link.check()
    }

    fn release(&self) {
        self.lanes.send_until(&self.link, self.order, |state| {
            let free = state.schedule.may_release(self.order);
            if free {
                state.schedule.release(self.order);
            }
            free
        });
    }

    fn on_response(&self) {
        let mut state = self.lanes.0.state.lock();
        // A thread may be about to take note that the last bytes have left.
        if state.schedule.is_consumed(self.order) {
            return state.schedule.release(self.order);
        }
        drop(state);
        self.release();
    }
}

impl Lanes {
    /// No lanes yet, beside a link's command connection.
    /// `receiver_wake` wakes the thread that receives messages, also for these if it looks for them then.
    pub(crate) fn new(
        commands: Arc<CommandConnection>,
        dialer: Option<Arc<dyn DialLanes>>,
        receiver_wake: Option<Arc<EventfdWake>>,
        looks_for_messages: bool,
    ) -> io::Result<Self> {
        let schedule = match (commands.is_taken_up(), commands.is_resumable()) {
            (true, _) => Schedule::taken_up(),
            (false, true) => Schedule::resumable(),
            (false, false) => Schedule::default(),
        };
        Ok(Self(Arc::new(State {
            is_within_a_host: is_within_a_host(&commands.socket()),
            commands,
            receiver_wake,
            looks_for_messages,
            dialer,
            next_number: AtomicU32::new(0),
            fruitless: AtomicU32::new(0),
            open: RwLock::default(),
            ready: Ready::new()?,
            receiving: AtomicUsize::new(0),
            not_started: Mutex::new(NotStarted::Waiting(Vec::new())),
            state: Mutex::new(LaneState { schedule, ..LaneState::default() }),
            work: WaitQueue::new(),
            calls: AtomicUsize::new(0),
            progress: WaitQueue::new(),
            end: WaitQueue::new(),
        })))
    }

    /// Takes in a lane; `number` is there at the end that opened it.
    fn add(&self, link: &Arc<Shared>, connection: Connection, number: Option<u32>) {
        let socket = Arc::clone(connection.socket());
        let (mut outgoing, incoming) = connection.into_directions();
        let pipe = outgoing.send_by_reference();
        let refers = pipe.is_some() && self.0.is_within_a_host;
        if round_trip(&*socket).is_some_and(is_long) {
            // Where it is refused the lane works as well.
            let _ = limit_unsent(&socket);
        }
        let lane = {
            let mut open = self.0.open.write();
            let mut state = self.0.state.lock();
            let is_last = state.schedule.lanes_ever() == MAX_LANES_EVER;
            if is_last || open.len() == MAX_LANES as usize {
                shut_down(&socket);
                drop((state, open));
                if is_last {
                    // Without new ones transfers would wait for ever.
                    let text = format!("the session has had {MAX_LANES_EVER} of them, one after another");
                    link.lose(TransportError::failed(NoLane(text)).into());
                }
                return;
            }
            let descriptors: Vec<_> = pipe.into_iter().flatten().chain([socket.as_raw_fd()]).collect();
            descriptors.iter().for_each(|descriptor| link.note_descriptor(*descriptor));
            let lane = state.schedule.add_lane(number, refers);
            let (outgoing, socket) = (Mutex::new(Some(outgoing)), Arc::clone(&socket));
            open.insert(lane, Arc::new(Lane { outgoing, socket, descriptors, failure: OnceLock::new() }));
            lane
        };
        if link.check().is_err() {
            shut_down(&socket);
            return;
        }
        self.call(link, self.0.state.lock(), 1);
        self.receive_on(link, lane, incoming);
    }

    /// Opens the lanes that are missing, at the end that connects: all at once, each on a thread of its own. One takes
    /// three round trips, two without a key.
    pub(crate) fn open_missing(&self, link: &Arc<Shared>) {
        let Some(dialer) = &self.0.dialer else { return };
        let there = self.0.open.read().len() as u32;
        let missing = there..dialer.lanes();
        let left = Arc::new(AtomicUsize::new(missing.len()));
        for lane in missing {
            let (lanes, dialer, left) = (self.clone(), Arc::clone(dialer), Arc::clone(&left));
            let number = self.0.next_number.fetch_add(1, Ordering::Relaxed);
            spawn_or_lose(link, "lanes", move |link| {
                let opened = dialer.open(lane).map(|connection| lanes.add(link, connection, Some(number)));
                let is_last = left.fetch_sub(1, Ordering::SeqCst) == 1;
                if link.check().is_err() {
                    return;
                }
                match opened {
                    // Whoever comes last knows whether there is one at all.
                    Err(error) if is_last && lanes.0.open.read().is_empty() => lanes.has_none(link, &error),
                    Err(error) => tracing::warn!("continuing without bulk lane {number}: {error}"),
                    Ok(()) => lanes.0.fruitless.store(0, Ordering::Relaxed),
                }
            });
        }
    }

    /// No lane could be opened.
    fn has_none(&self, link: &Arc<Shared>, cause: &NotOpened) {
        let fruitless = self.0.fruitless.fetch_add(1, Ordering::Relaxed);
        if self.is_resumable() && fruitless < MAX_FRUITLESS {
            tracing::warn!("cannot open a bulk lane, reconnecting: {cause}");
            std::thread::sleep(FRUITLESS_PAUSE);
            self.0.commands.break_off();
        } else {
            link.lose(TransportError::failed(NoLane(cause.to_string())).into());
        }
    }

    /// Wakes up to `max` threads if there is something to send, or starts one if all of them have work.
    fn call(&self, link: &Arc<Shared>, mut state: MutexGuard<'_, LaneState>, max: usize) {
        if state.over || !state.schedule.has_task() {
            return;
        }
        let (required, limit) = (state.schedule.senders(), state.schedule.live());
        let call = state.pool.call(max, required, limit);
        self.0.calls.fetch_add(1, Ordering::Relaxed);
        drop(state);
        self.0.work.notify(call.wake);
        if call.start {
            let (lanes, own) = (self.clone(), Arc::clone(link));
            if let Err(error) = threads::spawn("lane-send", move || lanes.send_for_ever(&own)) {
                // Those that are there look for work again before they sleep.
                if !self.0.state.lock().pool.not_started() {
                    link.lose(LinkError::local(&error));
                }
            }
        }
    }

    /// What a thread that sends does.
    fn send_for_ever(&self, link: &Arc<Shared>) {
        let spin_time = spin::between_copies(self.0.is_within_a_host);
        let mut has_carried = false;
        let mut state = self.0.state.lock();
        while !state.over {
            if self.waits_before_first(link, &mut state) {
                continue;
            }
            match state.schedule.take(None) {
                Some(task) => {
                    has_carried |= task.chunk.is_some();
                    self.call(link, state, WAKE_AT_ONCE);
                    state = self.perform(link, &task);
                    self.pace_sent(link, &mut state, &task);
                }
                None => {
                    state.pool.poll();
                    // Whoever has sent acknowledgements alone leaves its core to those who copy.
                    if has_carried && state.pool.polling() <= spin::senders() {
                        let before = self.0.calls.load(Ordering::Relaxed);
                        let called = || self.0.calls.load(Ordering::Relaxed) != before;
                        MutexGuard::unlocked(&mut state, || spin::until(spin_time, called));
                    }
                    if state.over || state.schedule.has_task() {
                        state.pool.found();
                    } else {
                        state.pool.sleep();
                        has_carried = false;
                        self.0.work.wait(&mut state);
                    }
                }
            }
        }
    }

    /// Helps to send a transfer until `is_done`, or until the link has ended and nothing reads its memory any
    /// more.
    fn send_until(
        &self,
        link: &Arc<Shared>,
        order: OrderId,
        mut is_done: impl FnMut(&mut LaneState) -> bool,
    ) {
        let mut state = self.0.state.lock();
        while !is_done(&mut state) && (!state.over || state.schedule.is_in_flight(order)) {
            if self.waits_before_first(link, &mut state) {
                continue;
            }
            match state.schedule.take(Some(order)) {
                Some(task) => {
                    self.call(link, state, WAKE_AT_ONCE);
                    state = self.perform(link, &task);
                    self.pace_sent(link, &mut state, &task);
                    // Others that wait may have been left without a lane, where no thread of ours sends for
                    // them.
                    if state.waiting > 0 && state.schedule.has_task() {
                        self.0.progress.notify_all();
                    }
                }
                None => {
                    state.waiting += 1;
                    self.0.progress.wait(&mut state);
                    state.waiting -= 1;
                }
            }
        }
    }

    /// Waits after what has been sent, if transfers are held back.
    fn pace_sent(&self, link: &Shared, state: &mut MutexGuard<'_, LaneState>, task: &Task) {
        if let Some(chunk) = &task.chunk {
            let bytes = chunk.header.length as usize;
            MutexGuard::unlocked(state, || self.pace(link, Direction::Sent, bytes, || false));
        }
    }

    /// Sends what the schedule says.
    fn perform(&self, link: &Arc<Shared>, task: &Task) -> MutexGuard<'_, LaneState> {
        delays::inject();
        let lane = self.0.open.read().get(&task.lane).map(Arc::clone);
        let header = task.chunk.map(|chunk| LaneRecord::Chunk(chunk.header));
        let records: Vec<_> = task.records.iter().chain(&header).map(LaneRecord::to_bytes).collect();
        let (start, length, steady) = task.chunk.map_or((core::ptr::null(), 0, false), |chunk| {
            (chunk.start.0, chunk.header.length as usize, chunk.steady)
        });
        let sent = lane.as_deref().and_then(|lane| {
            let mut outgoing = lane.outgoing.lock();
            // SAFETY: the chunk was taken from the schedule and is not released as sent, so its memory is still
            // readable; of steady memory the schedule says that it may be released when the peer has it.
            let sent = unsafe { outgoing.as_mut()?.send_with_data(&records, start, length, steady) };
            if sent.is_err() {
                // Its receiving thread notices, and says what came over it.
                shut_down(&lane.socket);
            }
            sent.ok()
        });
        if sent.is_some() {
            count(&link.counters().transfer_bytes_sent, length);
        }
        let mut state = self.0.state.lock();
        state.schedule.sent(task, sent.is_some());
        self.complete(state)
    }

    /// Notifies waiting threads, and releases what is not needed any more.
    fn complete<'a>(&'a self, mut state: MutexGuard<'a, LaneState>) -> MutexGuard<'a, LaneState> {
        if state.over {
            state.schedule.end();
        }
        if state.schedule.take_progress() | state.over && state.waiting > 0 {
            self.0.progress.notify_all();
        }
        let finished = state.schedule.take_finished();
        if !finished.is_empty() {
            MutexGuard::unlocked(&mut state, || drop(finished));
        }
        state
    }
}
