//! Images of earlier sessions, which the broker keeps: a worker opens no files of its own.

use crate::handover::Exchange;
use blake3::Hash;
use memmap2::Mmap;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// The way to them. Its calls wait for the broker, and so for its disk.
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
                tracing::warn!("an image is not kept, for there is no memory to hand it over: {error}")
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
