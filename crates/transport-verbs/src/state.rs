//! State shared by the threads of a link over verbs, and its shutdown: goodbye, and flushing of its queue
//! pairs.
//!
//! Locks, in the order in which they may be taken: `poll_state`; a path's, `returns`; `incoming`, `slots`,
//! `exposed_regions`, `registrations`. Owners of the link are notified of transfers under none of them.

use std::collections::VecDeque;
use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use causeway_ibverbs::{Buffer, CompletionQueue, MemoryRegion, ProtectionDomain, Receive, RemoteMemory};
use causeway_sync::{EventCount, EventfdWake};
use causeway_transport::send_queue::TransferQueue;
use causeway_transport::slots::{SLOT, Slots};
use causeway_transport::staging::Lease;
use causeway_transport::{LinkError, Shared};
use causeway_wire::chunk::ChunkHeader;
use parking_lot::{Mutex, RwLock};

use crate::endpoint::{RECEIVE_MARK, ReceiveLayout};
use crate::error::Failure;
use crate::message::Released;
use crate::path::Path;
use crate::poll_state::{FallbackPoller, Filled, PollState};
use crate::registered_memory::{ExposedRegions, RegistrationCache};
use crate::settings::Preference;

/// What the threads of a link over verbs have in common. The paths stand first, so that their queue pairs end
/// before the memory does.
pub struct State {
    pub(super) paths: Vec<Path>,
    pub(super) completions: CompletionQueue,
    pub(super) receives: Buffer,
    pub(super) messages: Buffer,
    /// Where the peer writes to.
    pub(super) arena: Arc<Buffer>,
    /// The slots of it that the peer uses.
    pub(super) arena_slots: u32,
    /// Where this side fills what it sends; its slots are those of the peer's arena.
    pub(super) staging: Arc<Buffer>,
    pub(super) staging_slots: u32,
    pub(super) peer_arena: RemoteMemory,
    /// Whose memory can be registered for these queue pairs.
    pub(super) domain: ProtectionDomain,
    /// Memory of this side's owner that the card knows.
    pub(super) registrations: RwLock<RegistrationCache<MemoryRegion>>,
    /// What is exposed to the peer for reading.
    pub(super) exposed_regions: Mutex<ExposedRegions>,
    pub(super) prefers: Preference,
    /// Why there is less staging than there should be.
    pub shortage: Option<String>,
    pub(super) depth: u32,
    me: Weak<State>,
    pub(super) poll_state: Mutex<PollState>,
    pub(super) incoming: Mutex<VecDeque<Filled>>,
    /// Ranges of the peer's arena that are leased to this side.
    pub(super) slots: Mutex<Slots>,
    /// What must be released to the peer.
    pub(super) returns: Mutex<Vec<Released>>,
    /// Pieces of the peer that have not been released.
    pub(super) leases: AtomicU32,
    pub(super) owner: Mutex<Owner>,
    pub(super) queue: TransferQueue,
    /// Which of equally loaded queue pairs gets the next piece first.
    pub(super) next_path: AtomicUsize,
    pub(super) hellos: AtomicU32,
    /// Receives that queue pairs have released because they have ended.
    pub(super) flushed: AtomicU32,
    pub(super) over: AtomicBool,
    failure: OnceLock<LinkError>,
    /// Polls that have found something, and the end of the link.
    pub(super) polled: EventCount,
    /// Wakes the receiver of frames.
    pub(super) receiver_wake: EventfdWake,
    /// The connection over which the session was asked for, and the one on which verbs were set up.
    sockets: OnceLock<[TcpStream; 2]>,
    pub(super) poll: Duration,
    pub(super) fallback_poller: FallbackPoller,
}

/// Who is notified of pieces.
pub enum Owner {
    /// Nobody yet.
    Pending(Vec<(ChunkHeader, Lease)>),
    Known(Weak<Shared>),
}

/// What a state is made of.
pub struct LinkResources {
    pub paths: Vec<Path>,
    pub completions: CompletionQueue,
    pub receives: Buffer,
    pub messages: Buffer,
    pub arena: Buffer,
    pub staging: Buffer,
    pub peer_arena: RemoteMemory,
    pub peer_slots: u32,
    pub domain: ProtectionDomain,
    pub prefers: Preference,
    pub shortage: Option<String>,
    pub depth: u32,
    pub poll: Duration,
}

impl State {
    pub fn new(materials: LinkResources) -> io::Result<Arc<Self>> {
        let LinkResources { paths, completions, receives, messages, arena, staging, .. } = materials;
        let LinkResources { peer_arena, peer_slots, domain, prefers, shortage, depth, poll, .. } = materials;
        // Either end has as much staging as arena, so neither uses more of the other's arena than it has
        // itself.
        let slots_of = |buffer: &Buffer| peer_slots.min((buffer.len() / SLOT) as u32);
        let (arena_slots, staging_slots) = (slots_of(&arena), slots_of(&staging));
        let receiver_wake = EventfdWake::new()?;
        Ok(Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            poll_state: Mutex::new(PollState::new(paths.len())),
            slots: Mutex::new(Slots::new(staging_slots)),
            paths,
            completions,
            receives,
            messages,
            arena_slots,
            arena: Arc::new(arena),
            staging: Arc::new(staging),
            staging_slots,
            peer_arena,
            domain,
            registrations: RwLock::default(),
            exposed_regions: Mutex::default(),
            prefers,
            shortage,
            depth,
            incoming: Mutex::default(),
            returns: Mutex::default(),
            leases: AtomicU32::new(0),
            owner: Mutex::new(Owner::Pending(Vec::new())),
            queue: TransferQueue::default(),
            next_path: AtomicUsize::new(0),
            hellos: AtomicU32::new(0),
            flushed: AtomicU32::new(0),
            over: AtomicBool::new(false),
            failure: OnceLock::new(),
            polled: EventCount::new(),
            receiver_wake,
            sockets: OnceLock::new(),
            poll,
            fallback_poller: FallbackPoller::default(),
        }))
    }

    /// For what is exposed from here and released here.
    pub(super) fn myself(&self) -> Arc<Self> {
        self.me.upgrade().expect("whoever calls holds the state")
    }

    /// From here on these connections end with the link: until then the session may still stay on one of
    /// them.
    pub fn ends_with(&self, sockets: [TcpStream; 2]) {
        // It is said once, by whoever makes the link.
        let _ = self.sockets.set(sockets);
    }

    /// Whether the link has ended.
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    /// Why the link has ended, if it has.
    pub fn check(&self) -> Result<(), LinkError> {
        if self.is_over() { Err(self.cause()) } else { Ok(()) }
    }

    pub(super) fn cause(&self) -> LinkError {
        self.failure.get().cloned().unwrap_or(LinkError::PeerDisconnected)
    }

    /// Ends the link because of `error`; the first one counts.
    pub fn fail(&self, error: LinkError) {
        if !self.is_over() {
            // Another thread may have been first.
            let _ = self.failure.set(error);
        }
        self.finish();
    }

    /// Ends the link: whoever waits in any part of it returns.
    pub fn finish(&self) {
        if self.over.swap(true, Ordering::SeqCst) {
            return;
        }
        for path in &self.paths {
            // The device stops touching our memory; one that has failed has stopped already.
            let _ = path.pair().end();
        }
        for socket in self.sockets.get().into_iter().flatten() {
            // An error means that it has ended already, which is what is wanted.
            let _ = socket.shutdown(Shutdown::Both);
        }
        self.queue.end();
        self.abandon();
        self.receiver_wake.wake();
        self.fallback_poller.wake();
        self.polled.notify_all();
    }

    /// Posts what waits for room on all paths.
    pub fn pump(&self) {
        self.pump_with(true);
    }

    /// The same, with or without what is released to the peer.
    pub(super) fn pump_with(&self, with_returns: bool) {
        for (index, path) in self.paths.iter().enumerate() {
            let returns = (index == 0 && with_returns).then_some(&self.returns);
            if let Err(failure) = path.pump(&self.messages, returns, self.fallback_poller.is_attended()) {
                return self.fail(failure.into());
            }
        }
    }

    /// The same on the first path, which carries frames, with what is released.
    pub(super) fn pump_first(&self) -> Result<(), Failure> {
        let Some(path) = self.paths.first() else { return Ok(()) };
        path.pump(&self.messages, Some(&self.returns), self.fallback_poller.is_attended())
    }

    /// Ends every operation, and lets go of all that is exposed to the peer: the link has ended.
    pub(super) fn abandon(&self) {
        let cause = self.cause();
        for path in &self.paths {
            path.abandon().iter().for_each(|operation| operation.fail(&cause));
        }
        let guards = self.exposed_regions.lock().end_all();
        drop(guards);
    }

    /// A receive, to be posted again.
    pub(super) fn receive(&self, path: usize, receive: usize) -> Receive {
        let offset = ReceiveLayout::new(self.depth).offset(path, receive);
        let segment = self.receives.region().segment(offset, ReceiveLayout::size(path));
        Receive { id: RECEIVE_MARK | receive as u64, segment }
    }

    /// Whether bytes of frames have come that nobody has read.
    pub(super) fn has_frames(&self) -> bool {
        !self.incoming.lock().is_empty()
    }
}

/// How long the end of a link waits for what has been posted.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(500);
/// How long queue pairs that have ended may take to give their requests back before they are destroyed all
/// the same.
const FLUSH_TIMEOUT: Duration = Duration::from_millis(200);

/// How much later than the end of the connection beside them the end of queue pairs may be noticed, to be its
/// cause.
const CLOSE_POLL_INTERVAL: Duration = Duration::from_millis(20);

impl State {
    /// Waits until what has been posted is known to be with the peer, for a while.
    pub fn send_goodbye(&self) {
        let deadline = Instant::now() + CLOSE_TIMEOUT;
        let Some(path) = self.paths.first().filter(|_| !self.is_over()) else { return };
        let mut marker = None;
        while !self.is_over() && Instant::now() < deadline {
            match marker {
                None => match path.post_marker(self.peer_arena) {
                    Ok(posted) => marker = posted,
                    Err(_) => return,
                },
                Some(id) if path.completed() >= id => return,
                Some(_) => {}
            }
            if !self.poll() {
                std::thread::sleep(Duration::from_micros(50));
            }
        }
    }

    /// Ends the link because the connection beside it has ended, unless a completion says within a moment
    /// why: what a device refuses it may tell later than TCP tells that the other end is gone.
    pub fn end_behind_completions(&self, error: LinkError) {
        let deadline = Instant::now() + CLOSE_POLL_INTERVAL;
        while !self.is_over() && Instant::now() < deadline {
            if !self.poll() {
                std::thread::sleep(CLOSE_POLL_INTERVAL / 20);
            }
        }
        self.fail(error);
    }
}

impl Drop for State {
    /// Queue pairs are destroyed when they are idle: a device that is still at work for one that is going
    /// away has more to get wrong (Soft-RoCE of Linux 6.1 waits for itself then, on a machine with one
    /// processor).
    fn drop(&mut self) {
        for path in &self.paths {
            // One that has failed has ended already.
            let _ = path.pair().end();
        }
        self.over.store(true, Ordering::SeqCst);
        let posted = self.paths.len() * ReceiveLayout::new(self.depth).count();
        let deadline = Instant::now() + FLUSH_TIMEOUT;
        while Instant::now() < deadline {
            let held = self.incoming.lock().iter().filter(|filled| filled.is_in_receive()).count();
            let back = self.flushed.load(Ordering::Relaxed) as usize + held;
            if back >= posted {
                break;
            }
            if !self.poll() {
                std::thread::sleep(Duration::from_micros(100));
            }
        }
    }
}
