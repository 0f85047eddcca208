//! Images that a command has named, and that the server may still ask for.
//!
//! A load is posted with the hash of its image before it is known whether the server has it. Until the
//! server has said so, the bytes must stay: they are the program's own where it promises to keep them, else a
//! copy.

use super::Image;
use crate::log::{error, info};
use crate::model::device;
use crate::remote::image::origin;
use crate::remote::session::{self, Session};
use crate::statistics;
use causeway_api::sys::CUresult;
use causeway_api::types::Payload;
use causeway_pipeline::INLINE_BYTES;
use causeway_sync::fork::in_background;
use causeway_sync::queue::Receiver;
use causeway_sync::{LazyThread, Offers, threads};
use causeway_wire::codec::Encode;
use causeway_wire::message::ClientMessage;
use std::sync::LazyLock;
use std::time::Duration;

/// How long a wait for the server goes on before it looks whether the session is lost.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Where the bytes of an offered image are.
enum Bytes {
    /// In the program's memory: address and length. Whoever offers them withdraws them before they go.
    Referenced(usize, usize),
    /// A copy of ours.
    Copied(Vec<u8>),
    /// In the program's memory, as `Referenced`: not an image but what a copy brings to a device.
    Data(usize, usize),
}

/// The pending images of the process.
struct Pending {
    /// By the number of the transfer as which the bytes would be sent, which no two of the program have in
    /// common.
    offers: LazyLock<Offers<Bytes>>,
    /// The thread that sends what servers ask for. It is there before anything is offered.
    sender: LazyThread<(usize, u64)>,
}

static PENDING: Pending = Pending { offers: LazyLock::new(Offers::default), sender: LazyThread::new() };

/// An image that has been offered to a server.
#[derive(Clone, Copy, Debug)]
pub struct PendingImage {
    server: usize,
    number: u64,
    length: u64,
    hash: [u8; 32],
}

impl PendingImage {
    /// What a command says of the image.
    pub fn payload(&self) -> Payload<'static> {
        Payload::Image { number: self.number, length: self.length, hash: self.hash }
    }

    /// Waits until the server has the image or has been told everything of it: its bytes may go then.
    pub fn wait(&self) {
        // One that is being sent is waited for though the session is lost: sending ends with the link.
        let is_lost = || session::with(self.server).map_or(true, |session| session.faults().check().is_err());
        PENDING.offers.wait(self.number, CHECK_INTERVAL, is_lost);
    }

    /// Takes back a pending image whose command was not sent, or was answered.
    pub fn withdraw(&self) {
        PENDING.offers.withdraw(self.number);
    }
}

/// Offers an image whose bytes the program leaves as they are until the pending image is settled.
pub fn refer_to(server: usize, image: &Image<'_>) -> Result<PendingImage, CUresult> {
    let bytes = image.bytes();
    insert(server, bytes, Bytes::Referenced(bytes.as_ptr() as usize, bytes.len()))
}

/// Offers what a copy brings to a device, whose bytes the program leaves as they are until the pending image
/// is settled.
pub fn refer_to_data(server: usize, bytes: &[u8]) -> Result<PendingImage, CUresult> {
    let data = Bytes::Data(bytes.as_ptr() as usize, bytes.len());
    insert_named(server, bytes.len(), blake3::hash(bytes), data)
}

/// Offers a copy of an image.
pub fn copy_of(server: usize, image: &Image<'_>) -> Result<PendingImage, CUresult> {
    insert(server, image.bytes(), Bytes::Copied(image.bytes().to_vec()))
}

fn insert(server: usize, bytes: &[u8], data: Bytes) -> Result<PendingImage, CUresult> {
    insert_named(server, bytes.len(), origin::hash_of(bytes), data)
}

fn insert_named(
    server: usize,
    length: usize,
    hash: blake3::Hash,
    data: Bytes,
) -> Result<PendingImage, CUresult> {
    let start = |queue| threads::spawn("images", move || serve(&queue));
    PENDING.sender.ensure(start).map_err(|cause| {
        info!("cannot offer an image to the server: starting a thread to send it failed: {cause}");
        CUresult::CUDA_ERROR_OPERATING_SYSTEM
    })?;
    let image = PendingImage { server, number: device::fresh(), length: length as u64, hash: hash.into() };
    PENDING.offers.offer(image.number, data);
    Ok(image)
}

/// Forgets the thread in a forked child.
pub fn forget_thread() {
    PENDING.sender.forget();
}

/// Whether a server may still ask for an image.
pub fn is_any() -> bool {
    PENDING.offers.is_any()
}

/// The server has the image.
pub fn known(number: u64) {
    if let Some(Bytes::Data(_, length)) = PENDING.offers.complete(number) {
        statistics::count_not_sent(length);
    }
}

/// A server wants the image. Sending takes long, and the thread that calls this must not.
pub fn requested(server: usize, number: u64) {
    // Without the thread nothing was ever offered.
    if PENDING.sender.send((server, number)).is_err() {
        error!("the server requests image {number}, which was not offered");
    }
}

/// Sends what servers ask for.
fn serve(numbers: &Receiver<(usize, u64)>) {
    while let Some((server, number)) = numbers.receive() {
        let _work = in_background();
        // The entry stays while its bytes are being read, so that whoever they belong to waits.
        match PENDING.offers.take(number) {
            Some(bytes) => send(server, number, &bytes),
            None => error!("the server requests image {number}, which was not offered"),
        }
        known(number);
    }
}

fn send(server: usize, number: u64, bytes: &Bytes) {
    let (address, length) = match bytes {
        Bytes::Referenced(address, length) | Bytes::Data(address, length) => (*address as *const u8, *length),
        Bytes::Copied(bytes) => (bytes.as_ptr(), bytes.len()),
    };
    let Ok(session) = session::with(server) else { return };
    let is_image = !matches!(bytes, Bytes::Data(..));
    if is_image {
        statistics::count_module(length);
    }
    if is_image && length <= INLINE_BYTES {
        // SAFETY: ours, or those of a caller who waits until the pending image is settled.
        let bytes = unsafe { core::slice::from_raw_parts(address, length) };
        // The lanes may not be open yet, and one that has been quiet starts slowly.
        let _ = session.link().send(|out| ClientMessage::Image { transfer: number, bytes }.encode(out));
        return;
    }
    let _bar = session.watch_upload(length);
    // A lost link has been reported by the thread that lost it.
    // SAFETY: ours, or those of a caller who waits until the pending image is settled.
    let _ = unsafe { session.send_transfer(number, address, length) };
}

/// What a command says of an image that is sent with it, not offered: input of the linker.
pub fn send_inline<'a>(session: &Session, bytes: &'a [u8]) -> Result<Payload<'a>, CUresult> {
    statistics::count_module(bytes.len());
    if bytes.len() <= INLINE_BYTES {
        return Ok(Payload::Inline(bytes));
    }
    let _bar = session.watch_upload(bytes.len());
    let number = device::fresh();
    // SAFETY: the bytes are borrowed for the duration of the call.
    unsafe { session.send_transfer(number, bytes.as_ptr(), bytes.len()) }?;
    Ok(Payload::Transfer { number, length: bytes.len() as u64 })
}
