//! Images that a command has named, and that the server may still ask for.
//!
//! A load is posted with the hash of its image before anybody knows whether the server has it. Until the
//! server has said so, the bytes must stay: they are the program's own where it promises to keep them, else a
//! copy.

use super::{Image, hashes};
use crate::locks::{Mutex, rank};
use crate::log::error;
use crate::model::numbers;
use crate::remote::session::{self, INLINE_BYTES, Session};
use crate::statistics;
use causeway_api::sys::CUresult;
use causeway_api::types::Payload;
use causeway_sync::threads;
use causeway_wire::codec::Encode;
use causeway_wire::message::ClientMessage;
use crossbeam_channel::{Sender, unbounded};
use parking_lot::Condvar;
use std::collections::HashMap;
use std::sync::LazyLock;
use std::time::Duration;

/// How long a wait for the server goes on before it looks whether the session is lost.
const PATIENCE: Duration = Duration::from_millis(100);

/// Where the bytes of an offered image are.
enum Bytes {
    /// In the program's memory: address and length. Whoever offers them withdraws them before they go.
    Lent(usize, usize),
    /// A copy of ours.
    Kept(Vec<u8>),
    /// In the program's memory, as `Lent`: not an image but what a copy brings to a device.
    Data(usize, usize),
}

/// The offers of the process.
struct Offers {
    /// Offers by the number of the transfer as which the bytes would be sent, which no two of the program
    /// have in common.
    by_number: LazyLock<Mutex<rank::ImageOffers, HashMap<u64, Option<Bytes>>>>,
    settled: Condvar,
    sender: LazyLock<Sender<(usize, u64)>>,
}

static OFFERS: Offers = Offers {
    by_number: LazyLock::new(Mutex::default),
    settled: Condvar::new(),
    sender: LazyLock::new(start_sender),
};

/// An image that has been offered to a server.
#[derive(Clone, Copy, Debug)]
pub struct Offer {
    server: usize,
    number: u64,
    length: u64,
    hash: [u8; 32],
}

impl Offer {
    /// What a command says of the image.
    pub fn payload(&self) -> Payload<'static> {
        Payload::Image { number: self.number, length: self.length, hash: self.hash }
    }

    /// Waits until the server has the image or has been told everything of it: its bytes may go then.
    pub fn wait(&self) {
        let mut offers = OFFERS.by_number.lock();
        while offers.contains_key(&self.number) {
            offers.wait_for(&OFFERS.settled, PATIENCE);
            let lost = session::with(self.server).map_or(true, |session| session.faults().check().is_err());
            // One that is being sent is waited for all the same: sending ends with the link.
            if lost && offers.get(&self.number).is_some_and(Option::is_some) {
                offers.remove(&self.number);
            }
        }
    }

    /// Takes back an offer whose command was not sent, or was answered.
    pub fn withdraw(&self) {
        let mut offers = OFFERS.by_number.lock();
        while let Some(bytes) = offers.get(&self.number) {
            if bytes.is_some() {
                offers.remove(&self.number);
            } else {
                offers.wait_for(&OFFERS.settled, PATIENCE);
            }
        }
    }
}

/// Offers an image whose bytes the program leaves as they are until the offer is settled.
pub fn lend(server: usize, image: &Image<'_>) -> Offer {
    let bytes = image.bytes();
    insert(server, bytes, Bytes::Lent(bytes.as_ptr() as usize, bytes.len()))
}

/// Offers what a copy brings to a device, whose bytes the program leaves as they are until the offer is
/// settled.
pub fn lend_data(server: usize, bytes: &[u8]) -> Offer {
    let data = Bytes::Data(bytes.as_ptr() as usize, bytes.len());
    insert_named(server, bytes.len(), blake3::hash(bytes), data)
}

/// Offers a copy of an image.
pub fn keep(server: usize, image: &Image<'_>) -> Offer {
    insert(server, image.bytes(), Bytes::Kept(image.bytes().to_vec()))
}

fn insert(server: usize, bytes: &[u8], kept: Bytes) -> Offer {
    insert_named(server, bytes.len(), hashes::of(bytes), kept)
}

fn insert_named(server: usize, length: usize, hash: blake3::Hash, kept: Bytes) -> Offer {
    let offer = Offer { server, number: numbers::fresh(), length: length as u64, hash: hash.into() };
    OFFERS.by_number.lock().insert(offer.number, Some(kept));
    offer
}

/// The server has the image.
pub fn known(number: u64) {
    // Its bytes are freed here, after the lock.
    let settled = OFFERS.by_number.lock().remove(&number);
    OFFERS.settled.notify_all();
    if let Some(Some(Bytes::Data(_, length))) = settled {
        statistics::count_not_sent(length);
    }
}

/// A server wants the image. Sending takes long, and the thread that calls this must not.
pub fn wanted(server: usize, number: u64) {
    if OFFERS.sender.send((server, number)).is_err() {
        error!("an image cannot be sent, because the thread for it could not be started");
    }
}

fn start_sender() -> Sender<(usize, u64)> {
    let (sender, numbers) = unbounded();
    let started = threads::spawn("images", move || {
        for (server, number) in numbers {
            // The entry stays while its bytes are being read, so that whoever lent them waits.
            let taken = OFFERS.by_number.lock().get_mut(&number).and_then(Option::take);
            match taken {
                Some(bytes) => send(server, number, &bytes),
                None => error!("the server asks for image {number}, which it was not offered"),
            }
            known(number);
        }
    });
    if let Err(cause) = started {
        error!("no thread for sending images could be started: {cause}");
    }
    sender
}

fn send(server: usize, number: u64, bytes: &Bytes) {
    let (address, length) = match bytes {
        Bytes::Lent(address, length) | Bytes::Data(address, length) => (*address as *const u8, *length),
        Bytes::Kept(bytes) => (bytes.as_ptr(), bytes.len()),
    };
    let Ok(session) = session::with(server) else { return };
    let is_image = !matches!(bytes, Bytes::Data(..));
    if is_image {
        statistics::count_module(length);
    }
    if is_image && length <= INLINE_BYTES {
        // SAFETY: ours, or lent by a caller who waits until the offer is settled.
        let bytes = unsafe { core::slice::from_raw_parts(address, length) };
        // The lanes may not be open yet, and one that has been quiet starts slowly.
        let _ = session.link().send(|out| ClientMessage::Image { transfer: number, bytes }.encode(out));
        return;
    }
    let _bar = session.watch_upload(length);
    // A lost link has been reported by the thread that lost it.
    // SAFETY: ours, or lent by a caller who waits until the offer is settled.
    let _ = unsafe { session.send_transfer(number, address, length) };
}

/// What a command says of an image that is sent with it, not offered: input of the linker.
pub fn send_along<'a>(session: &Session, bytes: &'a [u8]) -> Result<Payload<'a>, CUresult> {
    statistics::count_module(bytes.len());
    if bytes.len() <= INLINE_BYTES {
        return Ok(Payload::Inline(bytes));
    }
    let _bar = session.watch_upload(bytes.len());
    let number = numbers::fresh();
    // SAFETY: the bytes are borrowed for the duration of the call.
    unsafe { session.send_transfer(number, bytes.as_ptr(), bytes.len()) }?;
    Ok(Payload::Transfer { number, length: bytes.len() as u64 })
}
