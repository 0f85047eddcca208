//! How is a large copy striped over several connections, the bulk lanes?
//!
//! A transfer is cut into chunks, and every lane that is free takes the next one: a slow lane takes fewer.
//! The calling thread sends on one lane itself and is joined by helper threads for the others, since one
//! thread can copy only about 7 GB/s into the kernel. At the other end each lane has a thread that receives
//! straight into the transfer's destination.

use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use causeway_wire::chunk::{CHUNK_HEADER_SIZE, ChunkHeader};
use crossbeam_channel::{Receiver as Queue, Sender as QueueEnd, unbounded};
use parking_lot::{Condvar, Mutex, RwLock};

use super::channel::{Connection, Incoming, Outgoing, Socket, shut_down};
use crate::connect::{LaneDialer, MOST_LANES};
use crate::link::{LinkError, Place, Shared, count, spawn_or_lose};
use crate::module::Memory;

/// The smallest chunk that a transfer is cut into, in bytes. Below this the work per chunk shows.
const SMALLEST_CHUNK: usize = 256 << 10;

/// The largest chunk, in bytes: small enough for lanes to share the end of a transfer evenly.
const LARGEST_CHUNK: usize = 1 << 20;

/// Where bytes of a transfer that nobody wants are put, this many at a time.
const DROP_SIZE: usize = 64 << 10;

/// The lanes of a link. Clones share them.
#[derive(Clone)]
pub(crate) struct Lanes(Arc<State>);

struct State {
    command_socket: Socket,
    /// Opens the lanes at the end that connects, once.
    dialer: Mutex<Option<LaneDialer>>,
    open: RwLock<Vec<Arc<Lane>>>,
    /// Lanes that came before the link was started, whose threads do not run yet.
    not_started: Mutex<NotStarted>,
    changed: Condvar,
    changed_lock: Mutex<()>,
    next: AtomicUsize,
    helpers: Mutex<Option<Helpers>>,
}

enum NotStarted {
    Waiting(Vec<Incoming>),
    Started,
}

struct Lane {
    outgoing: Mutex<Outgoing>,
    socket: Socket,
}

struct Helpers {
    jobs: QueueEnd<Arc<Job>>,
    waiting: Queue<Arc<Job>>,
    threads: usize,
}

/// A transfer being sent.
struct Job {
    lanes: Lanes,
    transfer: u64,
    start: *const u8,
    length: usize,
    chunk: usize,
    progress: Mutex<Progress>,
    finished: Condvar,
}

#[derive(Default)]
struct Progress {
    /// Where the next chunk begins.
    next: usize,
    /// Chunks being sent right now; the memory is in use while there are any.
    in_flight: usize,
    failed: bool,
}

// SAFETY: the pointer is only read through, and only between `take` and `done`; `send_transfer` does not
// return before all chunks taken are done, and its caller keeps the memory readable that long.
unsafe impl Send for Job {}
// SAFETY: as above; everything else in a job is shared through its lock.
unsafe impl Sync for Job {}

impl Job {
    /// The next chunk to send.
    fn take(&self) -> Option<ChunkHeader> {
        let mut progress = self.progress.lock();
        // An empty transfer is one empty chunk.
        if progress.failed || (progress.next >= self.length && progress.next > 0) {
            return None;
        }
        let offset = progress.next;
        let length = self.chunk.min(self.length - offset);
        progress.next = if self.length == 0 { 1 } else { offset + length };
        progress.in_flight += 1;
        Some(ChunkHeader {
            transfer: self.transfer,
            offset: offset as u64,
            total: self.length as u64,
            length: length as u32,
        })
    }

    fn done(&self, sent: bool) {
        let mut progress = self.progress.lock();
        progress.in_flight -= 1;
        progress.failed |= !sent;
        if progress.in_flight == 0 {
            self.finished.notify_all();
        }
    }

    /// Sends chunks until there are none left to take.
    fn work(&self, shared: &Shared) {
        while let Some(chunk) = self.take() {
            let sent = self.send(shared, &chunk);
            self.done(sent.is_ok());
            if let Err(error) = sent {
                shared.lose(LinkError::from_io(error));
            }
        }
    }

    fn send(&self, shared: &Shared, chunk: &ChunkHeader) -> std::io::Result<()> {
        let data = self.start.wrapping_add(chunk.offset as usize);
        let lanes = self.lanes.0.open.read();
        let first = self.lanes.0.next.fetch_add(1, Ordering::Relaxed);
        let lane = |i: usize| &lanes[(first + i) % lanes.len()];
        let free = (0..lanes.len()).find_map(|i| lane(i).outgoing.try_lock());
        let mut outgoing = match free {
            Some(outgoing) => outgoing,
            None => lane(0).outgoing.lock(),
        };
        // SAFETY: the chunk was taken and is not done, so the memory is still readable.
        unsafe { outgoing.send_with_data(&chunk.to_bytes(), data, chunk.length as usize)? };
        count(&shared.counters().transfer_bytes_sent, chunk.length as usize);
        Ok(())
    }
}

impl Memory for Lanes {
    fn start(&self, link: &Arc<Shared>) {
        if let Some(dialer) = self.0.dialer.lock().take() {
            self.open_in_background(link, dialer);
        }
        let waiting = core::mem::replace(&mut *self.0.not_started.lock(), NotStarted::Started);
        if let NotStarted::Waiting(lanes) = waiting {
            lanes.into_iter().for_each(|incoming| start_receiving(link, incoming));
        }
    }

    unsafe fn send(
        &self,
        link: &Arc<Shared>,
        transfer: u64,
        start: *const u8,
        length: usize,
    ) -> Result<(), LinkError> {
        let lanes = self.wait_for_one(link)?;
        let share = length.div_ceil(4 * lanes).next_multiple_of(SMALLEST_CHUNK);
        let job = Arc::new(Job {
            lanes: self.clone(),
            transfer,
            start,
            length,
            chunk: share.clamp(SMALLEST_CHUNK, LARGEST_CHUNK),
            progress: Mutex::default(),
            finished: Condvar::new(),
        });
        let chunks = length.div_ceil(job.chunk);
        let helpers = chunks.min(lanes).saturating_sub(1);
        if helpers > 0 {
            self.call_helpers(link, &job, helpers);
        }
        job.work(link);
        let mut progress = job.progress.lock();
        while progress.in_flight > 0 {
            job.finished.wait(&mut progress);
        }
        if progress.failed { Err(link.check().err().unwrap_or(LinkError::PeerGone)) } else { Ok(()) }
    }

    fn attach(&self, link: &Arc<Shared>, connection: Connection) {
        let socket = Arc::clone(connection.socket());
        let Connection { outgoing, incoming } = connection;
        {
            let mut open = self.0.open.write();
            if open.len() == MOST_LANES as usize {
                shut_down(&socket);
                return;
            }
            link.note_descriptor(socket.as_raw_fd());
            open.push(Arc::new(Lane { outgoing: Mutex::new(outgoing), socket: Arc::clone(&socket) }));
        }
        if link.check().is_err() {
            shut_down(&socket);
            return;
        }
        {
            let _guard = self.0.changed_lock.lock();
            self.0.changed.notify_all();
        }
        let mut not_started = self.0.not_started.lock();
        match &mut *not_started {
            NotStarted::Waiting(lanes) => lanes.push(incoming),
            NotStarted::Started => {
                drop(not_started);
                start_receiving(link, incoming);
            }
        }
    }

    fn end(&self) {
        shut_down(&self.0.command_socket);
        self.0.open.read().iter().for_each(|lane| shut_down(&lane.socket));
        if let NotStarted::Waiting(lanes) = &mut *self.0.not_started.lock() {
            lanes.clear();
        }
        *self.0.helpers.lock() = None;
        let _guard = self.0.changed_lock.lock();
        self.0.changed.notify_all();
    }
}

impl Lanes {
    /// No lanes yet, beside a link's command connection.
    pub(crate) fn new(command_socket: Socket, dialer: Option<LaneDialer>) -> Self {
        Self(Arc::new(State {
            command_socket,
            dialer: Mutex::new(dialer),
            open: RwLock::default(),
            not_started: Mutex::new(NotStarted::Waiting(Vec::new())),
            changed: Condvar::new(),
            changed_lock: Mutex::new(()),
            next: AtomicUsize::new(0),
            helpers: Mutex::new(None),
        }))
    }

    /// Waits until there is a lane; how many there are.
    fn wait_for_one(&self, shared: &Shared) -> Result<usize, LinkError> {
        let mut guard = self.0.changed_lock.lock();
        loop {
            shared.check()?;
            let count = self.0.open.read().len();
            if count > 0 {
                return Ok(count);
            }
            self.0.changed.wait(&mut guard);
        }
    }

    fn call_helpers(&self, shared: &Arc<Shared>, job: &Arc<Job>, wanted: usize) {
        let mut helpers = self.0.helpers.lock();
        let helpers = helpers.get_or_insert_with(|| {
            let (jobs, waiting) = unbounded();
            Helpers { jobs, waiting, threads: 0 }
        });
        while helpers.threads < wanted {
            helpers.threads += 1;
            let (waiting, weak) = (helpers.waiting.clone(), Arc::downgrade(shared));
            spawn_or_lose(shared, "lane-send", move |_| {
                // The queue ends with the link that holds its other end.
                while let Ok(job) = waiting.recv() {
                    match weak.upgrade() {
                        Some(shared) => Job::work(&job, &shared),
                        None => return,
                    }
                }
            });
        }
        for _ in 0..wanted {
            // The queue cannot be closed while its receiving end is kept beside it.
            let _ = helpers.jobs.send(Arc::clone(job));
        }
    }

    fn open_in_background(&self, link: &Arc<Shared>, dialer: LaneDialer) {
        let lanes = self.clone();
        spawn_or_lose(link, "lanes", move |link| {
            for lane in 0..dialer.lanes() {
                match dialer.open(lane) {
                    Ok(connection) => lanes.attach(link, connection),
                    Err(_) if link.check().is_err() => return,
                    Err(error) if lane == 0 => {
                        link.lose(LinkError::NoLane(error.to_string()));
                        return;
                    }
                    Err(error) => {
                        tracing::warn!("going on with {lane} bulk lanes: {error}");
                        return;
                    }
                }
            }
        });
    }
}

fn start_receiving(shared: &Arc<Shared>, mut incoming: Incoming) {
    spawn_or_lose(shared, "lane", move |shared| {
        let mut dropped = vec![0; DROP_SIZE];
        while shared.check().is_ok() {
            if let Err(error) = receive_chunk(shared, &mut incoming, &mut dropped) {
                shared.lose(error);
            }
        }
    });
}

fn receive_chunk(shared: &Shared, incoming: &mut Incoming, dropped: &mut [u8]) -> Result<(), LinkError> {
    let mut header = [0; CHUNK_HEADER_SIZE];
    if !incoming.receive_header(&mut header).map_err(LinkError::from_io)? {
        return Err(LinkError::PeerGone);
    }
    let chunk = ChunkHeader::parse(&header)?;
    let length = chunk.length as usize;
    let place = shared.transfers().claim(&chunk, shared.events())?;
    let received = match place {
        // SAFETY: the destination stays writable until its callback has run, which `landed` alone can cause
        // while this chunk is claimed; the claim lies inside the destination and overlaps no other.
        Place::Memory(start) => unsafe { incoming.receive_exact_raw(start, length) },
        Place::Nowhere => receive_and_drop(incoming, length, dropped),
    }
    .map_err(LinkError::from_io);
    // The owner hears of a lost link before it hears of a failed transfer.
    let failure = received.err().map(|error| shared.lose(error));
    shared.transfers().landed(&chunk, failure.as_ref());
    if let Some(failure) = failure {
        return Err(failure);
    }
    count(&shared.counters().transfer_bytes_received, length);
    Ok(())
}

fn receive_and_drop(incoming: &mut Incoming, length: usize, dropped: &mut [u8]) -> std::io::Result<()> {
    let mut left = length;
    while left > 0 {
        // Whole records, as the sender cut them.
        let count = left.min(dropped.len());
        // SAFETY: `dropped` is a live, exclusively borrowed buffer of at least `count` bytes.
        unsafe { incoming.receive_exact_raw(dropped.as_mut_ptr(), count)? };
        left -= count;
    }
    Ok(())
}
