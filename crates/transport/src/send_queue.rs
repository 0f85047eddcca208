//! Send queue and worker threads: background sends, and copies of received pieces.
//!
//! Where transfers pass through staging memory, each link has two threads beside the one that receives
//! frames: one sends the orders that were queued, in their order, and one copies pieces that are too
//! long for the thread that finds them.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::delivery::Copy;
use crate::error::LinkError;
use crate::sending::{Address, OutgoingTransfer, Sending};
use crate::shared::{Shared, spawn_or_lose};
use crate::staging::Piece;
use causeway_sync::queue::{Sender as QueueEnd, queue};
use causeway_sync::{delays, spin};

/// A transfer longer than the longest piece goes in pieces of this many bytes, so that filling, carrying and
/// emptying overlap.
const LONG_STEP: usize = 4 << 20;

/// A transport whose transfers pass through pieces of staging memory.
pub trait Staged: Send + Sync + 'static {
    /// Its queue of orders.
    fn queue(&self) -> &TransferQueue;

    /// The longest piece that it has, in bytes.
    fn max_piece(&self) -> usize;

    /// A piece of `length` bytes, at most the longest; waits until there is one. An error when the link ends
    /// first.
    fn wait_for_piece(&self, length: usize) -> Result<Piece, LinkError>;

    /// Lets a filled piece go to the peer: the bytes from `offset` on of a transfer that has `total` of them.
    fn send_part(
        &self,
        link: &Shared,
        piece: Piece,
        transfer: u64,
        offset: u64,
        total: u64,
    ) -> Result<(), LinkError>;

    /// Sends an order whose memory needs no staging, or returns it. Waits for pieces, not for the bytes.
    fn send_known(
        &self,
        link: &Arc<Shared>,
        order: OutgoingTransfer,
    ) -> Result<Result<Sending, LinkError>, OutgoingTransfer> {
        let _ = link;
        Err(order)
    }
}

/// The ends of the two threads' queues, as long as the threads are there.
#[derive(Default)]
pub struct TransferQueue {
    orders: Mutex<Option<QueueEnd<OutgoingTransfer>>>,
    copies: Mutex<Option<QueueEnd<Copy>>>,
}

impl TransferQueue {
    /// Starts both threads; the one that sends is called after the transport, by `name`.
    pub fn start(&self, link: &Arc<Shared>, transport: Arc<impl Staged>, name: &str) {
        let (copies, waiting) = queue::<Copy>();
        spawn_or_lose(link, "copy", move |_| {
            while let Some(copy) = spin::receive(&waiting) {
                copy.carry_out();
            }
        });
        *self.copies.lock() = Some(copies);
        let (orders, waiting) = queue();
        spawn_or_lose(link, name, move |link| {
            while let Some(order) = spin::receive(&waiting) {
                delays::inject();
                // A lost link is noticed by the thread that receives frames.
                drop(carry_out(&*transport, link, order));
            }
        });
        *self.orders.lock() = Some(orders);
    }

    /// Ends both threads, once they have done what is in their queues.
    pub fn end(&self) {
        *self.copies.lock() = None;
        *self.orders.lock() = None;
    }

    /// The queue of the thread that copies, if it is there.
    pub fn copies(&self) -> Option<QueueEnd<Copy>> {
        self.copies.lock().clone()
    }
}

/// Queues an order, if it keeps its memory itself; otherwise, and where nobody stands ready, carries it
/// out.
pub fn send(
    transport: &impl Staged,
    link: &Arc<Shared>,
    order: OutgoingTransfer,
) -> Result<Sending, LinkError> {
    let orders = if order.guard.is_some() { transport.queue().orders.lock().clone() } else { None };
    match orders {
        Some(orders) => match orders.send(order) {
            Ok(()) => Ok(Sending::done()),
            Err(refused) => carry_out(transport, link, refused),
        },
        None => carry_out(transport, link, order),
    }
}

/// Copies the bytes of a transfer into staging memory, as far as there is room, and waits for more; whoever
/// gave the order keeps its memory readable until then.
fn carry_out(
    transport: &impl Staged,
    link: &Arc<Shared>,
    order: OutgoingTransfer,
) -> Result<Sending, LinkError> {
    let order = match transport.send_known(link, order) {
        Ok(sent) => return sent,
        Err(order) => order,
    };
    let OutgoingTransfer { transfer, start: Address(start), length, options, guard } = order;
    let max_piece = transport.max_piece();
    let step = if length <= max_piece { length } else { LONG_STEP.min(max_piece) };
    let mut offset = 0;
    loop {
        link.check()?;
        let part = step.min(length - offset);
        let sent = transport.wait_for_piece(part).and_then(|mut piece| {
            // SAFETY: the part lies in memory that is readable until the order has been carried out.
            unsafe { piece.fill(start.wrapping_add(offset), options.threads) };
            transport.send_part(link, piece, transfer, offset as u64, length as u64)
        });
        sent.map_err(|error| link.lose(error))?;
        offset += part;
        if offset >= length {
            break;
        }
    }
    // The bytes have left the memory.
    drop(guard);
    Ok(Sending::done())
}
