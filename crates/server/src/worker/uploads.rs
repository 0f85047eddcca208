//! Host-to-device copies.
//!
//! They come as transfers, are brought by the network card, or are found among the images of earlier sessions
//! ([`CachedImages`]), and wait for the command that names them.

use super::arena::Arena;
use super::incoming::{Buffer, Incoming};
use super::pool::Pool;
use super::rdma::RdmaCopies;
use super::session::{Head, Session};
use super::uploads_in_flight::UploadsInFlight;
use crate::worker_process::Exchange;
use blake3::Hash;
use causeway_api::calls::{Request, copy_to_device};
use causeway_api::types::Payload;
use causeway_gpu::CuResult;
use causeway_gpu::in_flight::InFlight;
use causeway_gpu::objects::Translate;
use causeway_link::{Destination, Lease};
use causeway_memory::nontemporal;
use causeway_wire::codec::Encode;
use causeway_wire::message::WorkerMessage;
use memmap2::Mmap;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Bytes of copies that may wait for being written to the cache.
const MAX_CACHING_BYTES: usize = 512 << 20;

/// The session's part in copies to the device.
pub struct Uploads {
    incoming: Incoming,
    /// Memory shared with the client, where the link has any.
    arena: Option<Arc<Arena>>,
    /// Images of earlier sessions, if they are kept.
    images: Option<Arc<CachedImages>>,
    /// The thread that hands images over.
    cache_writer: Pool,
    /// Bytes of copies that it has still to write.
    retained_bytes: Arc<AtomicUsize>,
}

impl Uploads {
    /// With memory shared with the client, and images, where there are any.
    pub fn new(arena: Option<Arc<Arena>>, images: Option<CachedImages>) -> Self {
        Self {
            incoming: Incoming::default(),
            arena,
            images: images.map(Arc::new),
            cache_writer: Pool::new("causeway-keep", 1),
            retained_bytes: Arc::default(),
        }
    }

    /// The bytes that have come and wait for their commands.
    pub fn incoming(&self) -> &Incoming {
        &self.incoming
    }

    /// Has the device forget memory that is shared with the client, of which it uses none now. It is registered again when
    /// it is used next.
    pub fn forget_registrations(&self) {
        if let Some(arena) = &self.arena {
            arena.forget_registrations();
        }
    }

    /// Waits until images are with the broker, but no longer than `timeout`.
    pub fn finish(&self, timeout: Duration) {
        self.cache_writer.finish(timeout);
    }

    /// Where a transfer goes whose first chunk has come.
    pub fn open(&self, session: &Arc<Session>, transfer: u64, total: u64) -> Option<Destination> {
        let arrived = {
            let session = Arc::clone(session);
            move || session.wake()
        };
        self.incoming.open(session.gpu(), transfer, total, arrived)
    }

    /// Takes in a transfer that lies in memory shared with the client.
    pub fn open_in_place(&self, session: &Session, transfer: u64, lease: Lease) -> Result<(), Lease> {
        let Some(arena) = &self.arena else { return Err(lease) };
        self.incoming.open_in_place(arena, transfer, lease)?;
        session.wake();
        Ok(())
    }

    /// Looks for the image that a command names, or for the bytes of a copy. The command can be issued when
    /// it is found, or else when the client, which is asked for it, has sent it.
    pub fn seek_image(
        &self,
        session: &Arc<Session>,
        number: u64,
        length: u64,
        hash: [u8; 32],
        is_copy: bool,
    ) {
        if !self.incoming.seek(number) {
            return;
        }
        let (images, incoming) = (self.images.clone(), self.incoming.clone());
        let asker = Arc::clone(session);
        // Opening a file may take long where folders are on a network.
        session.in_background(move || {
            let found = images.and_then(|images| images.find(hash.into(), length));
            let message = match &found {
                Some(_) => WorkerMessage::ImageKnown { transfer: number },
                None => WorkerMessage::ImageRequested { transfer: number },
            };
            incoming.sought(number, found, is_copy);
            // A lost link is noticed by the receiving thread.
            let _ = asker.link().send(|out| message.encode(out));
            asker.wake();
        });
    }

    /// The client has sent an image that it was asked for among its messages.
    pub fn image_received(&self, session: &Session, number: u64, bytes: &[u8]) {
        if self.incoming.put(number, bytes) {
            session.wake();
        } else {
            tracing::warn!("the client sent an image that was not requested");
        }
    }

    /// Whether the bytes that a command names are there, or never will be.
    pub fn are_complete(&self, request: &Request<'_>) -> bool {
        match request.payload() {
            Some(Payload::Transfer { number, .. } | Payload::Image { number, .. }) => {
                self.incoming.is_complete(number)
            }
            Some(Payload::Region { number, .. }) => {
                !self.incoming.knows(number) || self.incoming.is_complete(number)
            }
            _ => true,
        }
    }

    /// The bytes of a command that came on their own, or were brought; nothing where it has others or none.
    pub fn take(&self, request: &Request<'_>) -> CuResult<Option<Buffer>> {
        match request.payload() {
            Some(Payload::Transfer { number, length } | Payload::Image { number, length, .. }) => {
                self.incoming.take(number, length).map(Some)
            }
            Some(Payload::Region { number, length, .. }) if self.incoming.knows(number) => {
                self.incoming.take(number, length).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Leaves an image that has just come to later sessions.
    pub fn keep(&self, buffer: Buffer, named: [u8; 32]) {
        let is_plain = match &buffer {
            Buffer::Plain(_) => true,
            Buffer::Shared(shared) => matches!(**shared, Buffer::Plain(_)),
            _ => false,
        };
        let (true, Some(images)) = (is_plain, &self.images) else { return };
        let images = Arc::clone(images);
        self.cache_writer.run(move || {
            if images.keep(&buffer.contents()) != named {
                tracing::warn!(
                    "the client sent a different image than announced; it is cached by its own \
                    hash"
                );
            }
        });
    }

    /// Starts a copy of the client's bytes into device memory. `payload` is what the command has taken of
    /// those that came, or were brought.
    pub fn copy(
        &self,
        session: &Session,
        in_flight: &mut UploadsInFlight,
        rdma: &RdmaCopies,
        head: Head,
        request: &copy_to_device<'_>,
        payload: Option<Buffer>,
    ) -> CuResult<()> {
        let buffer = match (payload, request.data) {
            (Some(buffer), Payload::Image { hash, .. }) => self.keep_copied(buffer, hash),
            (Some(buffer), _) => buffer,
            (None, Payload::Inline(bytes)) => {
                let mut staging = session.gpu().staging(bytes.len())?;
                nontemporal::copy_slice(staging.as_mut_slice(), bytes);
                Buffer::Staged(staging)
            }
            (None, _) => return rdma.read_exposed(session, head, request),
        };
        let stream = session.objects().native(request.stream)?;
        let destination = request.destination.natives(session.objects())?;
        let buffer = self.ready_for_gpu(session, buffer)?;
        // Nobody but the client changes what is shared with it, to its own loss.
        let copy = InFlight::copy_to_device(session.gpu(), &destination, buffer, stream)?;
        let is_scarce = self.arena.as_ref().is_some_and(|arena| arena.is_scarce());
        in_flight.add(session.gpu(), head.context, stream, copy, is_scarce)
    }

    /// Keeps the bytes of a copy for later ones that name the same content, if they have just come. What
    /// would have to wait too long for the disk is not kept.
    fn keep_copied(&self, buffer: Buffer, named: [u8; 32]) -> Buffer {
        let Some(images) = self.images.as_ref().filter(|_| !matches!(buffer, Buffer::Mapped(_))) else {
            return buffer;
        };
        let bytes = buffer.len();
        if self.retained_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes > MAX_CACHING_BYTES {
            self.retained_bytes.fetch_sub(bytes, Ordering::Relaxed);
            return buffer;
        }
        let (images, retained_bytes) = (Arc::clone(images), Arc::clone(&self.retained_bytes));
        let shared = Arc::new(buffer);
        let retained = Arc::clone(&shared);
        self.cache_writer.run(move || {
            // Stored under the hash that is computed here: nobody gets what another name promised.
            if images.keep(&retained.contents()) != named {
                tracing::warn!(
                    "the client sent different bytes than announced; they are cached by their own hash"
                );
            }
            drop(retained);
            retained_bytes.fetch_sub(bytes, Ordering::Relaxed);
        });
        Buffer::Shared(shared)
    }

    /// Makes sure that the GPU can take the bytes where they are, or moves them to where it can.
    fn ready_for_gpu(&self, session: &Session, buffer: Buffer) -> CuResult<Buffer> {
        let Some(arena) = &self.arena else { return Ok(buffer) };
        let leased = match buffer {
            Buffer::Leased(leased) => leased,
            other => return Ok(other),
        };
        match arena.lease_for_gpu(leased) {
            Ok(leased) => {
                arena.prepare(session.gpu(), leased.as_ptr(), leased.len());
                Ok(Buffer::Leased(leased))
            }
            Err(leased) => {
                let staging = session.gpu().staging(leased.len())?;
                // SAFETY: the staging has as many bytes.
                unsafe { leased.empty_into(staging.as_ptr()) };
                Ok(Buffer::Staged(staging))
            }
        }
    }
}

/// Images of earlier sessions, which the broker keeps: a worker opens no files of its own. Calls wait for the broker, and so for its disk.
pub struct CachedImages {
    exchange: Arc<Exchange>,
}

impl CachedImages {
    /// Those that the broker at the other end of `exchange` keeps.
    pub fn new(exchange: Arc<Exchange>) -> Self {
        Self { exchange }
    }

    /// The image with this hash and length, mapped, if the broker has it.
    pub fn find(&self, hash: Hash, length: u64) -> Option<Mmap> {
        let file = self.exchange.find_image(*hash.as_bytes(), length)?;
        // SAFETY: files of the cache are replaced and removed, never written to or cut off. Whoever can break
        // that runs as the server's own user, outside a worker.
        let map = unsafe { Mmap::map(&File::from(file)) };
        map.ok().filter(|map| map.len() as u64 == length)
    }

    /// Leaves an image to later sessions, under the hash of its content, which is returned.
    pub fn keep(&self, bytes: &[u8]) -> Hash {
        let hash = blake3::hash(bytes);
        match sealed(bytes) {
            Ok(memory) => self.exchange.keep_image(*hash.as_bytes(), &memory),
            Err(error) => {
                tracing::warn!("cannot cache an image: allocating memory to hand it over failed: {error}")
            }
        }
        hash
    }
}

/// A copy that nobody can change any more.
fn sealed(bytes: &[u8]) -> io::Result<OwnedFd> {
    let memory = memfd_create("causeway-image", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let mut file = File::from(memory);
    file.write_all(bytes)?;
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE | SealFlags::SEAL)?;
    Ok(file.into())
}
