//! Who looks for completions, and what follows from them?
//!
//! All queue pairs of a link have one completion queue. Whoever waits for something looks there: the thread that receives frames, a
//! sender that has no credits, and, while the receiver is busy with a command, a thread of ours now and then. Looking is
//! done by one of them at a time; what the others find, they find in what that one has put down.
//!
//! Locks, in the order in which they may be taken: `looking`; a path's, `returns`; `incoming`, `lent`. Owners of the link are
//! told of transfers under none of them.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use causeway_verbs::{Buffer, Completion, CompletionQueue, Outcome, Receive, RemoteMemory};
use causeway_wire::chunk::{ChunkError, ChunkHeader};
use crossbeam_channel::Sender as QueueEnd;
use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::credit::Class;
use super::ends::{RECEIVE_MARK, ReceiveLayout};
use super::message::{Announcement, HEADER, Header, Kind, parse_returns};
use super::parts::Joins;
use super::path::Path;
use super::{Failure, Violation};
use crate::link::{LinkError, Shared};
use crate::module::Order;
use crate::shm::layout::{LARGEST_PIECE, SLOT};
use crate::shm::slots::Slots;
use crate::staging::{Copy, Lease, Lends, Owns, Piece, deliver};

/// Completions that are taken at a time.
const AT_ONCE: usize = 32;
/// How long a thread that waits for credits sleeps before it looks by itself: usually another one looks, and wakes it.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// How long the receiver of frames sleeps before it looks whether the link still is there.
const LONGEST_SLEEP: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
/// How long the end of a link waits for what has been posted.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// How long queue pairs that have ended may take to give their requests back before they are destroyed all the same.
const GIVING_BACK: Duration = Duration::from_millis(200);

/// Bytes of frames that lie in a receive.
pub struct Filled {
    pub receive: usize,
    pub at: usize,
    pub end: usize,
}

/// The one who looks.
struct Looking {
    completions: [Completion; AT_ONCE],
    joins: Joins,
    /// For each path: receives to be posted again, and of what they were.
    again: Vec<Vec<(Receive, Was)>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Was {
    Control,
    Extra,
    Hello,
}

/// What a look has found that is dealt with outside of all locks.
#[derive(Default)]
struct Found {
    pieces: Vec<(ChunkHeader, Lease)>,
    keepers: Vec<crate::link::Keeper>,
}

/// Runs of the peer's arena that are lent to this side, and what must be kept until they come back.
struct Lent {
    slots: Slots,
    keepers: HashMap<u32, crate::link::Keeper>,
}

/// Who is told of pieces.
enum Owner {
    /// Nobody yet.
    Early(Vec<(ChunkHeader, Lease)>),
    Known(Weak<Shared>),
}

/// What the threads of a link over verbs have in common. The paths stand first, so that their queue pairs end before the
/// memory does.
pub struct State {
    pub(super) paths: Vec<Path>,
    completions: CompletionQueue,
    receives: Buffer,
    pub(super) messages: Buffer,
    /// Where the peer writes to.
    pub(super) arena: Arc<Buffer>,
    arena_slots: u32,
    /// Where this side fills what it sends; its slots are those of the peer's arena.
    pub(super) staging: Arc<Buffer>,
    pub(super) staging_slots: u32,
    pub(super) peer_arena: RemoteMemory,
    depth: u32,
    me: Weak<State>,
    looking: Mutex<Looking>,
    incoming: Mutex<VecDeque<Filled>>,
    lent: Mutex<Lent>,
    returns: Mutex<Vec<u32>>,
    leases: AtomicU32,
    owner: Mutex<Owner>,
    pub(super) copies: Mutex<Option<QueueEnd<Copy>>>,
    pub(super) line: Mutex<Option<QueueEnd<Order>>>,
    hellos: AtomicU32,
    /// Receives that queue pairs have given back because they have ended.
    flushed: AtomicU32,
    over: AtomicBool,
    failure: OnceLock<LinkError>,
    waiting: AtomicU32,
    changed: (Mutex<()>, Condvar),
    wake: OwnedFd,
    /// The connection over which the session was asked for, and the one on which verbs were set up.
    sockets: OnceLock<[TcpStream; 2]>,
    poll: Duration,
    /// Whether the receiver of frames is looking, or will before it sleeps.
    pub(super) is_attended: AtomicBool,
}

/// What a state is made of.
pub struct Materials {
    pub paths: Vec<Path>,
    pub completions: CompletionQueue,
    pub receives: Buffer,
    pub messages: Buffer,
    pub arena: Buffer,
    pub staging: Buffer,
    pub peer_arena: RemoteMemory,
    pub peer_slots: u32,
    pub depth: u32,
    pub poll: Duration,
}

impl State {
    pub fn new(materials: Materials) -> io::Result<Arc<Self>> {
        let Materials { paths, completions, receives, messages, arena, staging, .. } = materials;
        let Materials { peer_arena, peer_slots, depth, poll, .. } = materials;
        let again = paths.iter().map(|_| Vec::new()).collect();
        let staging_slots = peer_slots.min((staging.len() / SLOT) as u32);
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            looking: Mutex::new(Looking {
                completions: [Completion::default(); AT_ONCE],
                joins: Joins::default(),
                again,
            }),
            lent: Mutex::new(Lent { slots: Slots::new(staging_slots), keepers: HashMap::new() }),
            paths,
            completions,
            receives,
            messages,
            arena_slots: (arena.len() / SLOT) as u32,
            arena: Arc::new(arena),
            staging: Arc::new(staging),
            staging_slots,
            peer_arena,
            depth,
            incoming: Mutex::default(),
            returns: Mutex::default(),
            leases: AtomicU32::new(0),
            owner: Mutex::new(Owner::Early(Vec::new())),
            copies: Mutex::new(None),
            line: Mutex::new(None),
            hellos: AtomicU32::new(0),
            flushed: AtomicU32::new(0),
            over: AtomicBool::new(false),
            failure: OnceLock::new(),
            waiting: AtomicU32::new(0),
            changed: (Mutex::new(()), Condvar::new()),
            wake,
            sockets: OnceLock::new(),
            poll,
            is_attended: AtomicBool::new(false),
        }))
    }

    /// For what is lent from here and given back here.
    fn myself(&self) -> Arc<Self> {
        self.me.upgrade().expect("whoever calls holds the state")
    }

    /// From here on these connections end with the link: until then the session may still stay on one of them.
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

    fn cause(&self) -> LinkError {
        self.failure.get().cloned().unwrap_or(LinkError::PeerGone)
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
        *self.copies.lock() = None;
        *self.line.lock() = None;
        self.wake_receiver();
        let _held = self.changed.0.lock();
        self.changed.1.notify_all();
    }

    fn wake_receiver(&self) {
        // A counter that is full wakes all the same.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    /// Waits until what has been posted is known to be with the peer, for a while.
    pub fn say_last_words(&self) {
        let deadline = Instant::now() + LAST_WORDS;
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
            if !self.look() {
                std::thread::sleep(Duration::from_micros(50));
            }
        }
    }

    /// Looks for completions, unless somebody does. Whether there were any.
    pub fn look(&self) -> bool {
        self.looking.try_lock().is_some_and(|looking| self.look_as(looking))
    }

    /// Looks for completions, after whoever does. Whether there were any.
    fn look_in_turn(&self) -> bool {
        self.look_as(self.looking.lock())
    }

    fn look_as(&self, mut looking: MutexGuard<'_, Looking>) -> bool {
        let Looking { completions, joins, again } = &mut *looking;
        let count = match self.completions.poll(completions) {
            Ok(0) => return false,
            Ok(count) => count,
            Err(error) => {
                self.fail(Failure::Device(error.to_string()).into());
                return true;
            }
        };
        let is_flushed = |completion: &&Completion| {
            completion.id() & RECEIVE_MARK != 0 && !completion.status().is_success()
        };
        let flushed = completions[..count].iter().filter(is_flushed).count();
        self.flushed.fetch_add(flushed as u32, Ordering::Relaxed);
        let mut found = Found::default();
        for completion in &completions[..count] {
            if let Err(error) = self.deal_with(completion, joins, again, &mut found) {
                drop(looking);
                self.fail(error);
                return true;
            }
        }
        let posted =
            again.iter_mut().zip(&self.paths).try_for_each(|(again, path)| self.post_again(path, again));
        drop(looking);
        if let Err(failure) = posted {
            self.fail(failure.into());
        }
        drop(found.keepers);
        for (chunk, lease) in found.pieces {
            if let Err(error) = self.hand_over(chunk, lease) {
                self.fail(error);
            }
        }
        self.pump();
        if self.waiting.load(Ordering::SeqCst) > 0 {
            let _held = self.changed.0.lock();
            self.changed.1.notify_all();
        }
        true
    }

    fn deal_with(
        &self,
        completion: &Completion,
        joins: &mut Joins,
        again: &mut [Vec<(Receive, Was)>],
        found: &mut Found,
    ) -> Result<(), LinkError> {
        if !completion.status().is_success() {
            return Err(Failure::Request(completion.status()).into());
        }
        let number = completion.queue_pair();
        let index = self.paths.iter().position(|path| path.pair().number() == number);
        let index = index.ok_or(Failure::Violation(Violation::Completion))?;
        let path = &self.paths[index];
        if completion.id() & RECEIVE_MARK == 0 {
            return Ok(path.complete(completion.id())?);
        }
        // A write with an immediate number would take up a receive, too; no honest peer makes one.
        if completion.outcome() != Outcome::Received {
            return Err(Failure::Violation(Violation::Message).into());
        }
        let receive = (completion.id() & !RECEIVE_MARK) as usize;
        let start = ReceiveLayout::new(self.depth).offset(index, receive);
        let length = (completion.length() as usize).min(ReceiveLayout::size(index));
        // SAFETY: the receive lies in the buffer, and its bytes are ours from its completion until it is posted again.
        let bytes = unsafe { core::slice::from_raw_parts(self.receives.as_ptr().add(start), length) };
        let (header, content) = Header::parse(bytes).map_err(Failure::from)?;
        path.accept(&header)?;
        let was = match header.kind {
            Kind::Frame if index == 0 => {
                let filled = Filled { receive, at: start + HEADER, end: start + length };
                self.incoming.lock().push_back(filled);
                return Ok(());
            }
            Kind::Frame => return Err(Failure::Violation(Violation::Message).into()),
            Kind::Announcement => {
                let announcement = Announcement::parse(content).map_err(Failure::from)?;
                found.pieces.extend(self.announced(announcement, joins)?);
                Was::Control
            }
            Kind::Returns => {
                let mut lent = self.lent.lock();
                for first in parse_returns(content).map_err(Failure::from)? {
                    let taken = lent.slots.take_back(first.into());
                    taken.map_err(|_| Failure::Violation(Violation::NotLent(first)))?;
                    found.keepers.extend(lent.keepers.remove(&first));
                }
                Was::Control
            }
            Kind::Credits => Was::Extra,
            Kind::Hello => {
                self.hellos.fetch_add(1, Ordering::Relaxed);
                Was::Hello
            }
        };
        again[index].push((self.receive(index, receive), was));
        Ok(())
    }

    /// A receive, to be posted again.
    fn receive(&self, path: usize, receive: usize) -> Receive {
        let offset = ReceiveLayout::new(self.depth).offset(path, receive);
        let segment = self.receives.region().segment(offset, ReceiveLayout::size(path));
        Receive { id: RECEIVE_MARK | receive as u64, segment }
    }

    fn post_again(&self, path: &Path, again: &mut Vec<(Receive, Was)>) -> Result<(), Failure> {
        if again.is_empty() {
            return Ok(());
        }
        let mut receives = [self.receive(0, 0); AT_ONCE];
        for (place, (receive, _)) in receives.iter_mut().zip(&*again) {
            *place = *receive;
        }
        // SAFETY: what lay in these receives has been dealt with.
        let posted = unsafe { path.pair().post_receives(&receives[..again.len()]) };
        posted.map_err(|error| Failure::Device(error.to_string()))?;
        for (_, was) in again.drain(..) {
            match was {
                Was::Control => {
                    path.posted_again(Class::Control, 1);
                }
                Was::Extra => path.extra_came(),
                Was::Hello => {}
            }
        }
        Ok(())
    }

    /// A part of a piece has come: the piece, when all of it has.
    fn announced(
        &self,
        announcement: Announcement,
        joins: &mut Joins,
    ) -> Result<Option<(ChunkHeader, Lease)>, LinkError> {
        let Announcement { chunk: ChunkHeader { length, total, offset, transfer }, first, .. } = announcement;
        let slots = slots_for(length as usize);
        let is_inside =
            first < self.arena_slots && slots <= self.arena_slots - first && length as usize <= LARGEST_PIECE;
        if !is_inside {
            return Err(Failure::Violation(Violation::Piece { slot: first, length }).into());
        }
        if offset.checked_add(length.into()).is_none_or(|end| end > total) {
            return Err(ChunkError::BeyondEnd { offset, length, total }.into());
        }
        if length == 0 && total > 0 {
            return Err(ChunkError::Empty(transfer).into());
        }
        match joins.came(announcement).map_err(Failure::from)? {
            Some(chunk) => Ok(Some((chunk, self.lease(first, length)?))),
            None => Ok(None),
        }
    }

    fn lease(&self, first: u32, length: u32) -> Result<Lease, LinkError> {
        if self.leases.fetch_add(1, Ordering::Relaxed) >= self.arena_slots {
            self.leases.fetch_sub(1, Ordering::Relaxed);
            return Err(Failure::Violation(Violation::TooManyPieces).into());
        }
        let address = self.arena.as_ptr().wrapping_add(first as usize * SLOT);
        Ok(Lease::new(self.myself(), first, address, length as usize))
    }

    /// Gives a piece to the link's owner, once there is one.
    fn hand_over(&self, chunk: ChunkHeader, lease: Lease) -> Result<(), LinkError> {
        let link = match &mut *self.owner.lock() {
            Owner::Early(early) => {
                early.push((chunk, lease));
                return Ok(());
            }
            Owner::Known(link) => link.upgrade(),
        };
        let Some(link) = link else { return Ok(()) };
        deliver(&link, chunk, lease, self.copies.lock().clone())
    }

    /// The link's owner can be told of pieces from now on.
    pub fn start(&self, link: &Arc<Shared>) {
        let before = core::mem::replace(&mut *self.owner.lock(), Owner::Known(Arc::downgrade(link)));
        if let Owner::Early(early) = before {
            for (chunk, lease) in early {
                if let Err(error) = self.hand_over(chunk, lease) {
                    self.fail(error);
                }
            }
        }
    }

    /// Posts what waits for room on all paths.
    pub fn pump(&self) {
        for (index, path) in self.paths.iter().enumerate() {
            let returns = (index == 0).then_some(&self.returns);
            if let Err(failure) = path.pump(&self.messages, returns) {
                return self.fail(failure.into());
            }
        }
    }

    /// Waits until `ready` finds something, looking for completions meanwhile. An error when the link ends first.
    pub fn wait_for<T>(
        &self,
        mut ready: impl FnMut() -> Result<Option<T>, LinkError>,
    ) -> Result<T, LinkError> {
        let mut begun = Instant::now();
        loop {
            self.check()?;
            if let Some(found) = ready()? {
                return Ok(found);
            }
            if self.look() {
                begun = Instant::now();
            } else if begun.elapsed() < self.poll {
                core::hint::spin_loop();
            } else {
                self.waiting.fetch_add(1, Ordering::SeqCst);
                let mut held = self.changed.0.lock();
                if !self.is_over() {
                    self.changed.1.wait_for(&mut held, LOOK_EVERY);
                }
                drop(held);
                self.waiting.fetch_sub(1, Ordering::SeqCst);
            }
        }
    }

    /// Sends the first message on each path.
    pub fn greet(&self) -> Result<(), LinkError> {
        Ok(self.paths.iter().try_for_each(|path| path.post_hello(&self.messages))?)
    }

    /// Waits until the first message of the peer has come on each path.
    pub fn wait_for_greetings(&self, deadline: Instant) -> Result<(), LinkError> {
        let all = self.paths.len() as u32;
        self.wait_for(|| match self.hellos.load(Ordering::Relaxed) {
            come if come >= all => Ok(Some(())),
            _ if Instant::now() < deadline => Ok(None),
            _ => Err(LinkError::PeerSilent),
        })
    }

    /// Bytes of frames that have come; `into` gets as many as it has room for.
    pub fn take_frames(&self, into: &mut [u8]) -> Result<usize, LinkError> {
        let mut taken = 0;
        let mut read = [self.receive(0, 0); AT_ONCE];
        let mut count = 0;
        {
            let mut incoming = self.incoming.lock();
            while let Some(filled) = incoming.front_mut() {
                let some = (filled.end - filled.at).min(into.len() - taken);
                // SAFETY: the bytes lie in the buffer, and are ours until their receive is posted again.
                let bytes =
                    unsafe { core::slice::from_raw_parts(self.receives.as_ptr().add(filled.at), some) };
                into[taken..taken + some].copy_from_slice(bytes);
                taken += some;
                filled.at += some;
                if filled.at < filled.end {
                    break;
                }
                read[count] = self.receive(0, filled.receive);
                count += 1;
                incoming.pop_front();
                if count == AT_ONCE {
                    break;
                }
            }
        }
        if count > 0 {
            let path = &self.paths[0];
            // SAFETY: what lay in these receives has been copied out.
            let posted = unsafe { path.pair().post_receives(&read[..count]) };
            posted.map_err(|error| Failure::Device(error.to_string()))?;
            if path.posted_again(Class::Frame, count) {
                path.pump(&self.messages, Some(&self.returns))?;
            }
        }
        Ok(taken)
    }

    fn has_frames(&self) -> bool {
        !self.incoming.lock().is_empty()
    }

    /// How long the receiver looks before it sleeps.
    pub fn patience(&self) -> Duration {
        self.poll
    }

    /// Sleeps until a completion comes, or the link ends, or for no reason.
    pub fn sleep(&self) -> Result<(), LinkError> {
        let failed = |error: io::Error| LinkError::from(Failure::Device(error.to_string()));
        self.completions.request_event().map_err(failed)?;
        // A completion that came before the question causes no event, and another thread may hold some that it has taken out.
        if self.look_in_turn() || self.has_frames() || self.is_over() {
            return Ok(());
        }
        let descriptor = self.completions.descriptor();
        let mut waited = [
            PollFd::from_borrowed_fd(descriptor, PollFlags::IN),
            PollFd::from_borrowed_fd(self.wake.as_fd(), PollFlags::IN),
        ];
        // An interrupted wait is only a reason to look again.
        let _ = poll(&mut waited, Some(&LONGEST_SLEEP));
        while self.completions.take_event().map_err(failed)? {}
        Ok(())
    }

    /// A piece of `length` bytes, if there is one now.
    pub fn try_piece(&self, length: usize) -> Option<Piece> {
        if length > self.longest_piece() {
            return None;
        }
        let first = self.lent.lock().slots.lend(slots_for(length))?;
        let address = self.staging.as_ptr().wrapping_add(first as usize * SLOT);
        Some(Piece::new(self.myself(), first, address, length))
    }

    /// The longest piece that is lent: two fit into the peer's arena.
    pub fn longest_piece(&self) -> usize {
        LARGEST_PIECE.min(self.staging_slots as usize / 2 * SLOT).max(SLOT)
    }
}

/// How many slots hold `bytes`; one for none, so that there are never more pieces than slots.
pub fn slots_for(bytes: usize) -> u32 {
    bytes.div_ceil(SLOT).max(1) as u32
}

impl Drop for State {
    /// Queue pairs are destroyed when they are idle: a device that is still at work for one that is going away
    /// has more to get wrong (Soft-RoCE of Linux 6.1 waits for itself then, on a machine with one processor).
    fn drop(&mut self) {
        for path in &self.paths {
            // One that has failed has ended already.
            let _ = path.pair().end();
        }
        self.over.store(true, Ordering::SeqCst);
        let posted = self.paths.len() * ReceiveLayout::new(self.depth).count();
        let deadline = Instant::now() + GIVING_BACK;
        while Instant::now() < deadline {
            let back = self.flushed.load(Ordering::Relaxed) as usize + self.incoming.lock().len();
            if back >= posted {
                break;
            }
            if !self.look() {
                std::thread::sleep(Duration::from_micros(100));
            }
        }
    }
}

impl Lends for State {
    fn give_up(&self, first: u32) {
        let given_up = self.lent.lock().slots.take_back(first.into());
        debug_assert!(given_up.is_ok(), "a piece holds slots that are lent");
    }
}

impl Owns for State {
    fn give_back(&self, first: u32) {
        self.returns.lock().push(first);
        self.leases.fetch_sub(1, Ordering::Relaxed);
        if self.is_over() {
            return;
        }
        if let Some(Err(failure)) =
            self.paths.first().map(|path| path.pump(&self.messages, Some(&self.returns)))
        {
            self.fail(failure.into());
        }
    }
}
