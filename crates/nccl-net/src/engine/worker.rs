//! Worker: thread that waits for its lanes, and carries what there is.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use causeway_sync::descriptors::{EventFd, above_stdio};
use causeway_sync::fork::CloseOnFork;
use causeway_sync::{Latch, spin, threads};
use rustix::event::epoll;

use super::lane::{Connection, Lane, LaneEnd, Stays};
use super::socket::LaneSocket;
use crate::log;

/// The number of the worker's own event among those of lanes.
const WAKE: u64 = 0;

/// Events that are taken at once.
const EVENTS: usize = 64;

/// How often lanes that are to end are looked at.
const SWEEP_INTERVAL: Duration = Duration::from_millis(500);

/// Commands of a worker.
pub(super) enum Command {
    Add { id: u64, socket: LaneSocket, connection: Arc<dyn Connection>, lane: usize },
    Wake { id: u64 },
    Stop { id: u64, stopped: Option<Arc<Latch>> },
    Drain { id: u64, stopped: Arc<Latch> },
}

/// What others share with a worker's thread.
struct Shared {
    commands: Mutex<Vec<Command>>,
    event: EventFd,
    is_asleep: AtomicBool,
    next_id: AtomicU64,
    _close_on_fork: CloseOnFork,
}

/// A worker.
#[derive(Clone)]
pub(super) struct WorkerHandle(Arc<Shared>);

impl WorkerHandle {
    /// Starts one, which runs until the process ends.
    pub(super) fn start() -> io::Result<Self> {
        let event = EventFd::new()?;
        let shared = Arc::new(Shared {
            commands: Mutex::new(Vec::new()),
            _close_on_fork: CloseOnFork::new(&event),
            event,
            is_asleep: AtomicBool::new(false),
            next_id: AtomicU64::new(WAKE + 1),
        });
        let epoll = above_stdio(epoll::create(epoll::CreateFlags::CLOEXEC)?)?;
        let wake = epoll::EventData::new_u64(WAKE);
        epoll::add(&epoll, shared.event.readable(), wake, epoll::EventFlags::IN)?;
        let _close_on_fork = CloseOnFork::new(&epoll);
        let worker = Worker {
            shared: Arc::clone(&shared),
            _close_on_fork,
            epoll,
            lanes: HashMap::new(),
            busy: Vec::new(),
            swept_at: Instant::now(),
        };
        threads::spawn("nccl-net", move || worker.run_or_abort())?;
        Ok(Self(shared))
    }

    /// A number for a lane.
    pub(super) fn new_id(&self) -> u64 {
        self.0.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Tells it something.
    pub(super) fn push(&self, command: Command) {
        self.0.commands.lock().unwrap_or_else(PoisonError::into_inner).push(command);
        // Who is about to sleep says so and looks once more; with the two fences one of both sees the other.
        fence(Ordering::SeqCst);
        if self.0.is_asleep.load(Ordering::Relaxed) && self.0.is_asleep.swap(false, Ordering::Relaxed) {
            self.0.event.signal();
        }
    }

    /// Stops a lane, and waits until it is.
    pub(super) fn stop(&self, id: u64) {
        let stopped = Arc::new(Latch::new(1));
        self.push(Command::Stop { id, stopped: Some(Arc::clone(&stopped)) });
        stopped.wait();
    }

    /// Lets a lane end by itself, and waits until no memory of the program is used for it.
    pub(super) fn drain(&self, id: u64) {
        let stopped = Arc::new(Latch::new(1));
        self.push(Command::Drain { id, stopped: Arc::clone(&stopped) });
        stopped.wait();
    }
}

/// A worker's thread.
struct Worker {
    shared: Arc<Shared>,
    _close_on_fork: CloseOnFork,
    epoll: OwnedFd,
    lanes: HashMap<u64, Carried>,
    /// Lanes whose connections have something going on beside them.
    busy: Vec<u64>,
    swept_at: Instant,
}

/// A lane, and what the system reports of it.
struct Carried {
    lane: Lane,
    reported: epoll::EventFlags,
}

impl Worker {
    /// Runs for good. An error of this library here would leave every connection of the process standing still, and
    /// NCCL with it: the process ends instead, and says why.
    fn run_or_abort(self) {
        if catch_unwind(AssertUnwindSafe(|| self.run())).is_err() {
            log::warn("a thread of the plugin panicked: this is a bug in the plugin, please report it");
            std::process::abort();
        }
    }

    fn run(mut self) {
        causeway_cuda::forbid_setup_calls();
        let mut events = Vec::with_capacity(EVENTS);
        let mut last_active = Instant::now();
        loop {
            let is_polling = last_active.elapsed() < spin::between_work();
            let has_commands = self.obey();
            let is_busy = self.poll_busy();
            let timeout = if has_commands || is_polling || is_busy { Duration::ZERO } else { self.timeout() };
            if !timeout.is_zero() {
                self.shared.is_asleep.store(true, Ordering::Relaxed);
                fence(Ordering::SeqCst);
                if self.has_commands() {
                    self.shared.is_asleep.store(false, Ordering::Relaxed);
                    continue;
                }
            }
            events.clear();
            let waited = self.wait(&mut events, timeout);
            self.shared.is_asleep.store(false, Ordering::Relaxed);
            if has_commands || waited > 0 {
                last_active = Instant::now();
            } else if is_polling || is_busy {
                std::thread::yield_now();
            }
            for event in &events {
                match event.data.u64() {
                    WAKE => {
                        if !self.shared.event.clear() {
                            // The program has closed it: what it polls instead may be readable for ever.
                            std::thread::sleep(Duration::from_millis(1));
                        }
                    }
                    id => self.serve(id, event.flags),
                }
            }
            self.sweep();
        }
    }

    fn wait(&self, events: &mut Vec<epoll::Event>, timeout: Duration) -> usize {
        let timeout = rustix::event::Timespec::try_from(timeout).ok();
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(events), timeout.as_ref()) {
            Ok(count) => count,
            Err(rustix::io::Errno::INTR) => 0,
            // The program has closed the descriptor: lanes are only looked at when somebody wakes the worker.
            Err(_) => {
                std::thread::sleep(Duration::from_millis(1));
                0
            }
        }
    }

    fn timeout(&self) -> Duration {
        let is_ending = self.lanes.values().any(|carried| carried.lane.deadline().is_some());
        if is_ending { SWEEP_INTERVAL } else { Duration::from_secs(3600) }
    }

    fn has_commands(&self) -> bool {
        !self.shared.commands.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Executes its commands; false where there are none.
    fn obey(&mut self) -> bool {
        let commands =
            core::mem::take(&mut *self.shared.commands.lock().unwrap_or_else(PoisonError::into_inner));
        let any = !commands.is_empty();
        for command in commands {
            match command {
                Command::Add { id, socket, connection, lane } => self.add(id, socket, connection, lane),
                Command::Wake { id } => {
                    self.write(id);
                    self.poll(id);
                }
                Command::Stop { id, stopped } => {
                    self.remove(id);
                    if let Some(stopped) = stopped {
                        stopped.done(1);
                    }
                }
                Command::Drain { id, stopped } => {
                    if let Some(carried) = self.lanes.get_mut(&id) {
                        carried.lane.drain();
                    }
                    stopped.done(1);
                    self.write(id);
                }
            }
        }
        any
    }

    /// Looks at what goes on beside a lane's connection, from now on until nothing does.
    fn poll(&mut self, id: u64) {
        let is_pending = self.lanes.get(&id).is_some_and(|carried| carried.lane.poll());
        if is_pending && !self.busy.contains(&id) {
            self.busy.push(id);
        }
    }

    /// The same for all of which something goes on; whether anything still does.
    fn poll_busy(&mut self) -> bool {
        let mut busy = core::mem::take(&mut self.busy);
        busy.retain(|id| self.lanes.get(id).is_some_and(|carried| carried.lane.poll()));
        self.busy = busy;
        !self.busy.is_empty()
    }

    fn add(&mut self, id: u64, socket: LaneSocket, connection: Arc<dyn Connection>, lane: usize) {
        let added = epoll::add(&self.epoll, &socket, epoll::EventData::new_u64(id), epoll::EventFlags::IN);
        if let Err(error) = added {
            connection.ended(lane, LaneEnd::Failed(error.into()));
            return;
        }
        let lane = Lane::new(socket, connection, lane);
        self.lanes.insert(id, Carried { lane, reported: epoll::EventFlags::IN });
        // Something may have been queued before the lane was there.
        self.write(id);
    }

    fn write(&mut self, id: u64) {
        let Some(carried) = self.lanes.get_mut(&id) else { return };
        let stays = carried.lane.write();
        self.keep(id, stays);
    }

    fn serve(&mut self, id: u64, flags: epoll::EventFlags) {
        let Some(Carried { lane, .. }) = self.lanes.get_mut(&id) else { return };
        let mut stays = Stays::Yes;
        if flags.intersects(epoll::EventFlags::OUT | epoll::EventFlags::ERR) {
            stays = lane.write();
        }
        if stays == Stays::Yes {
            stays = lane.read();
        }
        // A side that has ended for good and a socket that has failed are reported for ever.
        let is_dead = flags.intersects(epoll::EventFlags::ERR | epoll::EventFlags::HUP) && !lane.needs_read();
        self.keep(id, if is_dead { Stays::No } else { stays });
    }

    /// Has the system report what the lane waits for, or lets it go.
    fn keep(&mut self, id: u64, stays: Stays) {
        if stays == Stays::No {
            self.remove(id);
            return;
        }
        let Some(Carried { lane, reported }) = self.lanes.get_mut(&id) else { return };
        let mut flags = epoll::EventFlags::empty();
        flags.set(epoll::EventFlags::IN, lane.needs_read());
        flags.set(epoll::EventFlags::OUT, lane.needs_write());
        if core::mem::replace(reported, flags) == flags {
            return;
        }
        // A lane that is not reported any more is one that its peer's end is not seen of; there is no way to go on.
        let _ = epoll::modify(&self.epoll, &lane.socket, epoll::EventData::new_u64(id), flags);
    }

    fn remove(&mut self, id: u64) {
        if let Some(carried) = self.lanes.remove(&id) {
            let _ = epoll::delete(&self.epoll, &carried.lane.socket);
        }
    }

    /// Lets lanes go that have waited for their peers long enough.
    fn sweep(&mut self) {
        if self.swept_at.elapsed() < SWEEP_INTERVAL {
            return;
        }
        self.swept_at = Instant::now();
        let is_over = |carried: &Carried| carried.lane.deadline().is_some_and(|end| end < self.swept_at);
        let over: Vec<u64> =
            self.lanes.iter().filter(|(_, carried)| is_over(carried)).map(|(id, _)| *id).collect();
        over.into_iter().for_each(|id| self.remove(id));
    }
}
