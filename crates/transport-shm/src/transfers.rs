//! How do the bytes of a transfer travel over shared memory?
//!
//! The sender fills a piece of its half of the arena and announces it. The receiver's own thread looks for
//! announcements whenever it looks for frames, and after it has read frames, so a command that was sent after
//! an announcement finds the transfer there. While that thread is busy with a command, which may take as long
//! as the GPU does, another one takes announcements in its place: transfers overtake commands, as they do on
//! TCP's lanes.
//!
//! Whoever owns the link may take a transfer where it lies (`LinkEvents::open_in_place`). Otherwise it is
//! copied to its destination, by a thread for that unless it is short.

use std::io;
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::Violation;
use super::arena::{Borrower, Lender, region};
use super::layout::{Direction, Word};
use super::messages::{Receiving, Sending};
use super::segment::Segment;
use super::side::{Message, Peer, Said};
use causeway_connection::channel::Connection;
use causeway_memory::sealed::{SealedMemory, SealedMemoryError};
use causeway_sync::threads;
use causeway_sync::wake_flag::{self, BUSY, PARKED};
use causeway_transport::TransportKind;
use causeway_transport::line::{self, Line, Staged};
use causeway_transport::staging::{Piece, Region, deliver};
use causeway_transport::{Awaited, DescriptorError, LinkError, Shared, count, spawn_or_lose};
use causeway_transport::{Memory, Order, Parts, Sending as Sent};

/// How long the receiver of frames may be busy before another thread takes announcements in its place.
const BUSY_FOR: Duration = Duration::from_micros(100);

/// Descriptors that may come before the link is started.
const MOST_EARLY: usize = 64;

/// Which end of the session this process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Client,
    Worker,
}

impl Role {
    fn sends(self) -> Direction {
        match self {
            Self::Client => Direction::Up,
            Self::Worker => Direction::Down,
        }
    }

    fn receives(self) -> Direction {
        match self {
            Self::Client => Direction::Down,
            Self::Worker => Direction::Up,
        }
    }
}

/// What the threads of a link over shared memory have in common.
pub(super) struct State {
    segment: Arc<Segment>,
    role: Role,
    lender: Arc<Lender>,
    borrower: Arc<Borrower>,
    peer: Peer,
    /// The connection over which the session was asked for; it ends with the session.
    command: TcpStream,
    over: AtomicBool,
    /// Whether the link's owner can be asked.
    started: AtomicBool,
    /// Whether the receiver of frames was woken because somebody waits.
    called: AtomicBool,
    line: Line,
    descriptors: Mutex<Descriptors>,
}

/// What the peer has handed over, by its number, or why it cannot be used.
enum Arrived {
    Memory(u64, Result<SealedMemory, DescriptorError>),
    Allocation(u64, Result<OwnedFd, DescriptorError>),
}

impl Arrived {
    fn tell(self, link: &Shared) {
        match (link.events(), self) {
            (Some(events), Self::Memory(number, memory)) => events.descriptor(number, memory),
            (Some(events), Self::Allocation(number, allocation)) => events.allocation(number, allocation),
            (None, _) => {}
        }
    }
}

/// Where descriptors of the peer go.
enum Descriptors {
    /// Nobody can be told yet.
    Early(Vec<Arrived>),
    ToOwner(Arc<Shared>),
    Nowhere,
}

/// A link's parts over memory that both processes have mapped. `command` is the connection over which the
/// session was asked for.
pub(super) fn parts(
    role: Role,
    segment: Arc<Segment>,
    peer: Peer,
    command: &Connection,
) -> io::Result<Parts> {
    let command = command.socket().try_clone()?;
    let descriptors = vec![peer.descriptor(), command.as_raw_fd()];
    let state = Arc::new(State {
        role,
        lender: Lender::new(Arc::clone(&segment), role.sends()),
        borrower: Borrower::new(Arc::clone(&segment), role.receives()),
        segment: Arc::clone(&segment),
        peer,
        command,
        over: AtomicBool::new(false),
        started: AtomicBool::new(false),
        called: AtomicBool::new(false),
        line: Line::default(),
        descriptors: Mutex::new(Descriptors::Early(Vec::new())),
    });
    threads::spawn("shm-watch", {
        let state = Arc::clone(&state);
        move || state.watch()
    })?;
    let sender = Sending::new(Arc::clone(&state), Arc::clone(&segment), role.sends());
    let receiver = Receiving::new(Arc::clone(&state), segment, role.receives());
    let memory = Box::new(Arena(state));
    Ok(Parts { sender: Box::new(sender), receiver: Box::new(receiver), memory, descriptors })
}

impl State {
    /// Whether the peer has gone, or this side has ended the link.
    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    /// Whether the receiver of frames was woken because somebody waits, once.
    pub(super) fn take_call(&self) -> bool {
        self.called.load(Ordering::Relaxed) && self.called.swap(false, Ordering::Relaxed)
    }

    /// Whether there are announcements that can be dealt with.
    pub(super) fn has_pieces(&self) -> bool {
        self.started.load(Ordering::Relaxed) && self.borrower.is_pending()
    }

    /// Deals with every piece that has been announced.
    pub(super) fn deliver_all(&self, link: &Arc<Shared>) -> Result<(), LinkError> {
        while self.has_pieces() {
            match self.borrower.next()? {
                Some((chunk, lease)) => deliver(link, chunk, lease, self.line.copies())?,
                None => break,
            }
        }
        Ok(())
    }

    /// Takes announcements while the receiver of frames is busy.
    fn stand_in(&self, link: &Arc<Shared>) {
        let direction = self.role.receives();
        let receiver = self.segment.futex(direction, Word::Receiver);
        let is_wanted = || self.has_pieces() && receiver.load(Ordering::Relaxed) == BUSY;
        while !self.is_over() {
            let bell = self.segment.futex(direction, Word::Aside);
            wake_flag::park(bell, BUSY, || is_wanted() || self.is_over());
            if is_wanted() {
                std::thread::sleep(BUSY_FOR);
                if let Err(error) = self.deliver_all(link) {
                    link.lose(error);
                }
            }
        }
    }

    /// Takes in descriptors until the peer has gone.
    fn watch(&self) {
        loop {
            match self.peer.receive() {
                Ok(Some((Message { said: Said::Descriptor, number, bytes }, descriptor))) => {
                    if let Err(error) = self.arrived(Arrived::Memory(number, checked(descriptor, bytes))) {
                        self.ended_because(error);
                        break;
                    }
                }
                Ok(Some((Message { said: Said::Allocation, number, .. }, descriptor))) => {
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
        *self.descriptors.lock() = Descriptors::Nowhere;
    }

    fn arrived(&self, descriptor: Arrived) -> Result<(), LinkError> {
        let link = match &mut *self.descriptors.lock() {
            Descriptors::Early(early) if early.len() < MOST_EARLY => {
                early.push(descriptor);
                return Ok(());
            }
            Descriptors::Early(_) => return Err(Violation::TooManyDescriptors.into()),
            Descriptors::ToOwner(link) => Arc::clone(link),
            Descriptors::Nowhere => return Ok(()),
        };
        descriptor.tell(&link);
        Ok(())
    }

    fn hand_over(
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
            None => tracing::debug!("shared memory is given up: {error}"),
        }
    }

    /// Frees everybody in this process who waits for the peer.
    fn finish(&self) {
        self.over.store(true, Ordering::SeqCst);
        let (sends, receives) = (self.role.sends(), self.role.receives());
        wake_flag::wake(self.segment.futex(receives, Word::Receiver));
        wake_flag::wake(self.segment.futex(receives, Word::Aside));
        wake_flag::wake(self.segment.futex(sends, Word::Sender));
        self.lender.wake();
    }
}

impl Staged for State {
    fn line(&self) -> &Line {
        &self.line
    }

    fn longest_piece(&self) -> usize {
        self.lender.longest()
    }

    fn wait_for_piece(&self, length: usize) -> Result<Piece, LinkError> {
        self.lender.take(length, &self.over)
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
        self.lender.announce(piece, transfer, offset, total)?;
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

/// The memory of the peer as the link has it.
struct Arena(Arc<State>);

impl Memory for Arena {
    fn kind(&self) -> TransportKind {
        TransportKind::Shm
    }

    fn start(&self, link: &Arc<Shared>) {
        let state = Arc::clone(&self.0);
        let early = match core::mem::replace(
            &mut *state.descriptors.lock(),
            Descriptors::ToOwner(Arc::clone(link)),
        ) {
            Descriptors::Early(early) => early,
            _ => Vec::new(),
        };
        if state.is_over() {
            // The watching thread may have looked before.
            *state.descriptors.lock() = Descriptors::Nowhere;
        }
        early.into_iter().for_each(|descriptor| descriptor.tell(link));
        state.line.start(link, Arc::clone(&state), "shm-send");
        state.started.store(true, Ordering::SeqCst);
        wake_flag::wake(state.segment.futex(state.role.receives(), Word::Receiver));
        if state.is_over() {
            return state.line.end();
        }
        spawn_or_lose(link, "shm-aside", move |link| state.stand_in(link));
    }

    unsafe fn send(&self, link: &Arc<Shared>, order: Order) -> Result<Sent, LinkError> {
        line::send(&*self.0, link, order)
    }

    fn rouse(&self, _: Awaited) {
        let doing = self.0.segment.futex(self.0.role.receives(), Word::Receiver);
        if doing.load(Ordering::Relaxed) == PARKED {
            self.0.called.store(true, Ordering::Relaxed);
            wake_flag::wake(doing);
        }
    }

    fn piece(&self, link: &Arc<Shared>, length: usize) -> Option<Piece> {
        match self.0.lender.try_take(length) {
            Ok(piece) => piece,
            Err(violation) => {
                link.lose(violation.into());
                None
            }
        }
    }

    fn send_piece(&self, link: &Arc<Shared>, transfer: u64, piece: Piece) -> Result<(), LinkError> {
        link.check()?;
        let total = piece.len() as u64;
        self.0.send_part(link, piece, transfer, 0, total).map_err(|error| link.lose(error))
    }

    fn regions(&self) -> Option<[Region; 2]> {
        let State { role, segment, .. } = &*self.0;
        Some([role.sends(), role.receives()].map(|half| region(segment, half)))
    }

    fn passes_descriptors(&self) -> bool {
        true
    }

    fn send_descriptor(
        &self,
        link: &Arc<Shared>,
        number: u64,
        memory: &SealedMemory,
    ) -> Result<(), LinkError> {
        let message = Message { said: Said::Descriptor, number, bytes: memory.bytes() };
        self.0.hand_over(link, &message, memory.descriptor())
    }

    fn send_allocation(
        &self,
        link: &Arc<Shared>,
        number: u64,
        allocation: BorrowedFd<'_>,
    ) -> Result<(), LinkError> {
        self.0.hand_over(link, &Message { said: Said::Allocation, number, bytes: 0 }, allocation)
    }

    fn end(&self) {
        let state = &self.0;
        state.peer.end();
        // An error means that it has ended already, which is what is wanted.
        let _ = state.command.shutdown(Shutdown::Both);
        state.finish();
        state.line.end();
    }
}
