//! Engine: threads that carry frames between sockets and memory, for all connections of the process.
//!
//! | module | contents |
//! | --- | --- |
//! | `frame` | Frame header |
//! | `socket` | Socket of a lane: reads and writes that do not wait, into and from memory of the program |
//! | `lane` | Lane: one socket of a connection, read and written by one worker |
//! | `worker` | Worker: thread that waits for its lanes, and carries what there is |
//!
//! A lane belongs to one worker alone, which neither waits for a peer nor takes a lock for longer than it takes to look
//! at a queue. What a connection does with frames is behind [`Connection`].

mod frame;
mod lane;
mod socket;
mod worker;

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use causeway_sync::spin;

pub use frame::{DIRECT, Frame, FrameKind, REFUSED, UNMAPPED};
pub use lane::{Connection, Destination, LaneEnd, NO_REQUEST, Output};
pub use socket::LaneSocket;
use worker::{Command, WorkerHandle};

/// Threads of a process: each moves some GB/s.
const MAX_WORKERS: usize = 4;

/// The process's threads.
pub struct Engine {
    workers: Vec<WorkerHandle>,
    next: AtomicUsize,
}

impl Engine {
    /// The one of this process, which is started when it is first needed.
    ///
    /// # Errors
    /// When the system gives no thread or descriptor; another call tries again.
    pub fn get() -> io::Result<&'static Self> {
        static ENGINE: OnceLock<Engine> = OnceLock::new();
        static STARTING: Mutex<()> = Mutex::new(());
        if let Some(engine) = ENGINE.get() {
            return Ok(engine);
        }
        let _starting = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(engine) = ENGINE.get() {
            return Ok(engine);
        }
        let count = spin::cores().clamp(1, MAX_WORKERS);
        let workers = (0..count).map(|_| WorkerHandle::start()).collect::<io::Result<_>>()?;
        Ok(ENGINE.get_or_init(|| Self { workers, next: AtomicUsize::new(0) }))
    }

    /// Lets workers carry the lanes of a connection. Those of one connection are different workers', as far as there are
    /// so many, and the first lanes of several connections, too.
    pub fn add(&self, sockets: Vec<LaneSocket>, connection: &Arc<dyn Connection>) -> Vec<LaneHandle> {
        let first = self.next.fetch_add(1, Ordering::Relaxed);
        let add = |(lane, socket)| {
            let worker = self.workers[first.wrapping_add(lane) % self.workers.len()].clone();
            let (id, connection) = (worker.new_id(), Arc::clone(connection));
            worker.push(Command::Add { id, socket, connection, lane });
            LaneHandle { worker, id }
        };
        sockets.into_iter().enumerate().map(add).collect()
    }
}

/// A lane that a worker carries.
pub struct LaneHandle {
    worker: WorkerHandle,
    id: u64,
}

impl LaneHandle {
    /// Something is there to be written.
    pub fn wake(&self) {
        self.worker.push(Command::Wake { id: self.id });
    }

    /// Ends the lane at once. When this returns no memory of the program is used for it any more.
    pub fn stop(&self) {
        self.worker.stop(self.id);
    }

    /// Ends the lane at once, some time soon.
    pub fn stop_later(&self) {
        self.worker.push(Command::Stop { id: self.id, stopped: None });
    }

    /// Ends the lane when what is queued is written and the peer has ended its side, or has not within some seconds. No
    /// memory of the program is used for what comes meanwhile.
    pub fn drain(&self) {
        self.worker.drain(self.id);
    }
}
