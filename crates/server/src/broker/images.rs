//! Image cache of a session: lookup and storage of module images on disk.
//!
//! Workers do not open the image cache: they ask here. One thread of a session looks for images and another
//! one writes those that are to be kept, both from the first such question on, so that the disk holds up
//! nothing else of the session.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::sync::{Arc, OnceLock};

use causeway_sync::threads;
use crossbeam_channel::{Sender, bounded};
use rustix::fs::{SealFlags, fcntl_get_seals};

use crate::cache::{CacheStart, ImageCache};
use crate::protocol::control::Control;
use crate::protocol::messages::{self, ToWorker};

/// Questions that wait. A worker asks a few at a time; one that asks more gets nothing.
const MAX_QUEUED: usize = 64;

/// The most bytes of an image that its worker need not have written: zeros may not have been.
const MAX_HOLE_BYTES: u64 = 16 << 20;

/// The images of one session's identity.
pub struct SessionImages {
    start: Option<CacheStart>,
    control: Arc<Control>,
    finding: OnceLock<Option<Sender<ImageRequest>>>,
    writer: OnceLock<Option<Sender<Left>>>,
}

/// An image that a worker asks for.
struct ImageRequest {
    number: u32,
    hash: [u8; 32],
    length: u64,
}

/// An image that a worker leaves.
struct Left {
    number: u32,
    /// Its hash, as the worker says.
    hash: [u8; 32],
    memory: OwnedFd,
}

impl SessionImages {
    /// Those in the cache that `start` names, for the worker at the other end of `control`.
    pub fn new(start: Option<CacheStart>, control: Arc<Control>) -> Self {
        Self { start, control, finding: OnceLock::new(), writer: OnceLock::new() }
    }

    /// Whether images are kept.
    pub fn is_cached(&self) -> bool {
        self.start.is_some()
    }

    /// Answers with the file of an image, or with nothing.
    pub fn find(&self, number: u32, hash: [u8; 32], length: u64) {
        let queue = self.finding.get_or_init(|| {
            self.thread("find-image", |cache, control, ImageRequest { number, hash, length }| {
                let file = cache.find(hash.into(), length);
                answer(control, number, file.map(OwnedFd::from).as_ref());
            })
        });
        if queue.as_ref().is_none_or(|queue| queue.try_send(ImageRequest { number, hash, length }).is_err()) {
            answer(&self.control, number, None);
        }
    }

    /// Keeps an image, and answers when that is done.
    pub fn keep(&self, number: u32, hash: [u8; 32], memory: OwnedFd) {
        let queue = self.writer.get_or_init(|| {
            self.thread("keep-image", |cache, control, Left { number, hash, memory }| {
                if let Err(error) = keep(cache, hash, memory) {
                    tracing::warn!("cannot cache an image from a worker: {error}");
                }
                answer(control, number, None);
            })
        });
        if queue.as_ref().is_none_or(|queue| queue.try_send(Left { number, hash, memory }).is_err()) {
            answer(&self.control, number, None);
        }
    }

    /// Starts a thread that does `work` for everything that comes, until these images are dropped; nothing
    /// where no images can be kept.
    fn thread<T: Send + 'static>(
        &self,
        name: &str,
        work: impl Fn(&ImageCache, &Control, T) + Send + 'static,
    ) -> Option<Sender<T>> {
        let (cache, control) = (self.start.clone().and_then(ImageCache::open)?, Arc::clone(&self.control));
        let (sender, queue) = bounded(MAX_QUEUED);
        let started =
            threads::spawn(name, move || queue.iter().for_each(|each| work(&cache, &control, each)));
        match started {
            Ok(_) => Some(sender),
            Err(error) => {
                tracing::warn!("image cache unavailable for this session: starting a thread failed: {error}");
                None
            }
        }
    }
}

/// Answers a worker; one that has ended is noticed by its process.
fn answer(control: &Control, number: u32, file: Option<&OwnedFd>) {
    let bytes = file.map(|_| Vec::new());
    let _ = messages::send(control, &ToWorker::Response { number, bytes }, file);
}

/// Keeps what is in a worker's memory, unless an image of that name is there.
fn keep(cache: &ImageCache, hash: [u8; 32], memory: OwnedFd) -> io::Result<()> {
    // What the worker could still change would be stored under a hash that is not its own.
    let needed = SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
    if !fcntl_get_seals(memory.as_fd())?.contains(needed) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "its memory is not sealed"));
    }
    if !cache.has(hash.into()) {
        let mut file = File::from(memory);
        io::Seek::rewind(&mut file)?;
        let (length, held) = {
            let data = file.metadata()?;
            (data.len(), data.blocks() * 512)
        };
        // Reading and hashing what was never written costs the worker nothing, and this process time.
        if length > held.saturating_add(MAX_HOLE_BYTES) {
            let text = format!("it claims {length} bytes and holds {held}");
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        // A failure is in the log already.
        let _ = cache.keep(file, length);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::messages::receive;
    use rustix::fs::{MemfdFlags, fcntl_add_seals, memfd_create};
    use std::io::{Read as _, Write as _};

    fn memory(bytes: &[u8], seals: SealFlags) -> OwnedFd {
        let memory = memfd_create("image", MemfdFlags::ALLOW_SEALING).unwrap();
        let mut file = File::from(memory);
        file.write_all(bytes).unwrap();
        fcntl_add_seals(&file, seals).unwrap();
        file.into()
    }

    fn answered(worker: &Control, expected: u32) -> Option<OwnedFd> {
        match receive(worker).unwrap() {
            (ToWorker::Response { number, bytes }, file) if number == expected => {
                assert_eq!(bytes.is_some(), file.is_some());
                file
            }
            other => panic!("another message: {other:?}"),
        }
    }

    #[test]
    fn what_one_session_leaves_the_next_one_finds() {
        let folder = tempfile::tempdir().unwrap();
        let start = CacheStart { folder: folder.path().to_owned(), capacity: 64 << 20, identity: "i".into() };
        let (broker, worker) = Control::pair().unwrap();
        let images = SessionImages::new(Some(start), Arc::new(broker));
        let (hash, all) =
            (*blake3::hash(b"image").as_bytes(), SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE);
        images.find(1, hash, 5);
        assert!(answered(&worker, 1).is_none());
        images.keep(2, hash, memory(b"image", SealFlags::SHRINK));
        assert!(answered(&worker, 2).is_none());
        images.find(3, hash, 5);
        assert!(answered(&worker, 3).is_none(), "memory that can change is not kept");
        images.keep(4, hash, memory(b"other", all));
        assert!(answered(&worker, 4).is_none());
        images.find(5, hash, 5);
        assert!(answered(&worker, 5).is_none(), "nobody gets what another name promised");
        let huge = File::from(memfd_create("image", MemfdFlags::ALLOW_SEALING).unwrap());
        huge.set_len(MAX_HOLE_BYTES + (64 << 10)).unwrap();
        fcntl_add_seals(&huge, all).unwrap();
        images.keep(8, hash, huge.into());
        assert!(answered(&worker, 8).is_none());
        let kept = std::fs::read_dir(folder.path().join("i")).unwrap().flatten();
        let longest = kept.map(|file| file.metadata().unwrap().len()).max();
        assert!(longest.is_some_and(|bytes| bytes < 1 << 10), "what was claimed and not written is not kept");
        images.keep(6, hash, memory(b"image", all));
        assert!(answered(&worker, 6).is_none());
        images.find(7, hash, 5);
        let mut content = String::new();
        File::from(answered(&worker, 7).unwrap()).read_to_string(&mut content).unwrap();
        assert_eq!(content, "image");
    }

    #[test]
    fn without_a_cache_nothing_is_found() {
        let (broker, worker) = Control::pair().unwrap();
        let images = SessionImages::new(None, Arc::new(broker));
        images.find(1, [0; 32], 5);
        assert!(answered(&worker, 1).is_none() && !images.is_cached());
    }
}
