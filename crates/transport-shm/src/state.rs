//! State shared by the threads of a link over shared memory, and its shutdown.

use std::net::TcpStream;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use causeway_memory::sealed::{SealedMemory, SealedMemoryError};
use causeway_sync::wake_flag::{self, BUSY};
use causeway_transport::delivery::deliver;
use causeway_transport::send_queue::{Staged, TransferQueue};
use causeway_transport::staging::Piece;
use causeway_transport::{DescriptorError, LinkError, Shared, count};
use parking_lot::Mutex;

use super::arena::{SlotAllocator, SlotConsumer};
use super::layout::{Direction, Word};
use super::segment::Segment;
use super::side::{Message, MessageKind, Peer};
use super::violation::Violation;

/// How long the receiver of frames may be busy before another thread takes announcements in its place.
const BUSY_FOR: Duration = Duration::from_micros(100);

/// Descriptors that may come before the link is started.
const MAX_UNEXPECTED: usize = 64;

/// Which end of the session this process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Client,
    Worker,
}

impl Role {
    pub(super) fn sends(self) -> Direction {
        match self {
            Self::Client => Direction::Up,
            Self::Worker => Direction::Down,
        }
    }

    pub(super) fn receives(self) -> Direction {
        match self {
            Self::Client => Direction::Down,
            Self::Worker => Direction::Up,
        }
    }
}

/// What the threads of a link over shared memory have in common.
pub(super) struct State {
    pub(super) segment: Arc<Segment>,
    pub(super) role: Role,
    pub(super) allocator: Arc<SlotAllocator>,
    consumer: Arc<SlotConsumer>,
    pub(super) peer: Peer,
    /// The connection over which the session was asked for; it ends with the session.
    pub(super) command: TcpStream,
    over: AtomicBool,
    /// Whether the link's owner can be asked.
    started: AtomicBool,
    /// Whether the receiver of frames was woken because somebody waits.
    pub(super) called: AtomicBool,
    pub(super) queue: TransferQueue,
    descriptors: Mutex<Descriptors>,
}

/// What the peer has handed over, by its number, or why it cannot be used.
enum Arrived {
    Memory(u64, Result<SealedMemory, DescriptorError>),
    Allocation(u64, Result<OwnedFd, DescriptorError>),
}

impl Arrived {
    fn dispatch(self, link: &Shared) {
        match (link.events(), self) {
            (Some(events), Self::Memory(number, memory)) => events.descriptor(number, memory),
            (Some(events), Self::Allocation(number, allocation)) => events.allocation(number, allocation),
            (None, _) => {}
        }
    }
}

/// Where descriptors of the peer go.
enum Descriptors {
    /// There is no owner to notify yet.
    Pending(Vec<Arrived>),
    ToOwner(Arc<Shared>),
    Nowhere,
}

impl State {
    /// For an end that plays `role`. `command` is the connection over which the session was asked for.
    pub(super) fn new(role: Role, segment: Arc<Segment>, peer: Peer, command: TcpStream) -> Self {
        Self {
            role,
            allocator: SlotAllocator::new(Arc::clone(&segment), role.sends()),
            consumer: SlotConsumer::new(Arc::clone(&segment), role.receives()),
            segment,
            peer,
            command,
            over: AtomicBool::new(false),
            started: AtomicBool::new(false),
            called: AtomicBool::new(false),
            queue: TransferQueue::default(),
            descriptors: Mutex::new(Descriptors::Pending(Vec::new())),
        }
    }

    /// From here on descriptors go to the link's owner, who gets those that came before at once.
    pub(super) fn notify_owner(&self, link: &Arc<Shared>) {
        let to_owner = Descriptors::ToOwner(Arc::clone(link));
        let pending = match core::mem::replace(&mut *self.descriptors.lock(), to_owner) {
            Descriptors::Pending(pending) => pending,
            _ => Vec::new(),
        };
        pending.into_iter().for_each(|descriptor| descriptor.dispatch(link));
        if self.is_over() {
            // The watching thread may have looked before.
            self.end_descriptors();
        }
    }

    /// The link's owner can be asked from here on where pieces go.
    pub(super) fn begin_delivery(&self) {
        self.started.store(true, Ordering::SeqCst);
        wake_flag::wake(self.segment.futex(self.role.receives(), Word::Receiver));
    }

    /// Whether the peer has gone, or this side has ended the link.
    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    /// Whether the receiver of frames is to return though nothing has come.
    pub(super) fn is_called(&self) -> bool {
        self.called.load(Ordering::Relaxed)
    }

    /// Whether the receiver of frames was woken because somebody waits, once.
    pub(super) fn take_call(&self) -> bool {
        self.called.load(Ordering::Relaxed) && self.called.swap(false, Ordering::Relaxed)
    }

    /// Whether there are announcements that can be dealt with.
    pub(super) fn has_pieces(&self) -> bool {
        self.started.load(Ordering::Relaxed) && self.consumer.is_pending()
    }

    /// Deals with every piece that has been announced.
    pub(super) fn deliver_all(&self, link: &Arc<Shared>) -> Result<(), LinkError> {
        while self.has_pieces() {
            match self.consumer.next()? {
                Some((chunk, lease)) => deliver(link, chunk, lease, self.queue.copies())?,
                None => break,
            }
        }
        Ok(())
    }

    /// Takes announcements while the receiver of frames is busy.
    pub(super) fn stand_in(&self, link: &Arc<Shared>) {
        let direction = self.role.receives();
        let receiver = self.segment.futex(direction, Word::Receiver);
        let is_needed = || self.has_pieces() && receiver.load(Ordering::Relaxed) == BUSY;
        while !self.is_over() {
            let bell = self.segment.futex(direction, Word::Aside);
            wake_flag::park(bell, BUSY, || is_needed() || self.is_over());
            if is_needed() {
                std::thread::sleep(BUSY_FOR);
                if let Err(error) = self.deliver_all(link) {
                    link.lose(error);
                }
            }
        }
    }

    /// Takes in descriptors until the peer has gone.
    pub(super) fn watch(&self) {
        loop {
            match self.peer.receive() {
                Ok(Some((Message { kind: MessageKind::Descriptor, number, bytes }, descriptor))) => {
                    if let Err(error) = self.arrived(Arrived::Memory(number, checked(descriptor, bytes))) {
                        self.ended_because(error);
                        break;
                    }
                }
                Ok(Some((Message { kind: MessageKind::Allocation, number, .. }, descriptor))) => {
                    let descriptor = descriptor.ok_or(DescriptorError::NotReceived);
                    if let Err(error) = self.arrived(Arrived::Allocation(number, descriptor)) {
                        self.ended_because(error);
                        break;
                    }
                }
                Ok(None) => break,
                Ok(Some(_)) => {
                    self.ended_because(Violation::Side.into());
                    break;
                }
                Err(error) => {
                    self.ended_because(error);
                    break;
                }
            }
        }
        self.finish();
        self.end_descriptors();
    }

    /// Lets the owner know, if there is one, that there are no more.
    fn end_descriptors(&self) {
        let before = core::mem::replace(&mut *self.descriptors.lock(), Descriptors::Nowhere);
        if let Descriptors::ToOwner(link) = before
            && let Some(events) = link.events()
        {
            events.descriptors_end();
        }
    }

    fn arrived(&self, descriptor: Arrived) -> Result<(), LinkError> {
        let link = match &mut *self.descriptors.lock() {
            Descriptors::Pending(pending) if pending.len() < MAX_UNEXPECTED => {
                pending.push(descriptor);
                return Ok(());
            }
            Descriptors::Pending(_) => return Err(Violation::TooManyDescriptors.into()),
            Descriptors::ToOwner(link) => Arc::clone(link),
            Descriptors::Nowhere => return Ok(()),
        };
        descriptor.dispatch(&link);
        Ok(())
    }

    pub(super) fn hand_over(
        &self,
        link: &Shared,
        message: &Message,
        descriptor: BorrowedFd<'_>,
    ) -> Result<(), LinkError> {
        link.check()?;
        self.peer.send(message, Some(descriptor)).map_err(|error| match error.raw_os_error() {
            // This process has too many descriptors under way, or none left; the link goes on.
            Some(libc::ETOOMANYREFS | libc::EMFILE | libc::ENOBUFS | libc::ENOMEM) => {
                LinkError::Io(Arc::new(error))
            }
            _ => link.lose(LinkError::from_io(error)),
        })
    }

    /// Says why the link ends, where there is a link to say it to.
    fn ended_because(&self, error: LinkError) {
        let link = match &*self.descriptors.lock() {
            Descriptors::ToOwner(link) => Some(Arc::clone(link)),
            _ => None,
        };
        match link {
            Some(link) => {
                link.lose(error);
            }
            None => tracing::debug!("no longer using shared memory: {error}"),
        }
    }

    /// Frees everybody in this process who waits for the peer.
    pub(super) fn finish(&self) {
        self.over.store(true, Ordering::SeqCst);
        let (sends, receives) = (self.role.sends(), self.role.receives());
        wake_flag::wake(self.segment.futex(receives, Word::Receiver));
        wake_flag::wake(self.segment.futex(receives, Word::Aside));
        wake_flag::wake(self.segment.futex(sends, Word::Sender));
        self.allocator.wake();
    }
}

impl Staged for State {
    fn queue(&self) -> &TransferQueue {
        &self.queue
    }

    fn max_piece(&self) -> usize {
        self.allocator.max_piece()
    }

    fn wait_for_piece(&self, length: usize) -> Result<Piece, LinkError> {
        self.allocator.take(length, &self.over)
    }

    fn send_part(
        &self,
        link: &Shared,
        piece: Piece,
        transfer: u64,
        offset: u64,
        total: u64,
    ) -> Result<(), LinkError> {
        let length = piece.len();
        self.allocator.announce(piece, transfer, offset, total)?;
        let direction = self.role.sends();
        if wake_flag::wake(self.segment.futex(direction, Word::Receiver)) == BUSY {
            wake_flag::wake(self.segment.futex(direction, Word::Aside));
        }
        count(&link.counters().transfer_bytes_sent, length);
        Ok(())
    }
}

fn checked(descriptor: Option<OwnedFd>, bytes: u64) -> Result<SealedMemory, DescriptorError> {
    let descriptor = descriptor.ok_or(DescriptorError::NotReceived)?;
    SealedMemory::check(descriptor, bytes).map_err(|error| match error {
        SealedMemoryError::NotSealed => DescriptorError::NotSealed,
        _ => DescriptorError::WrongSize,
    })
}
