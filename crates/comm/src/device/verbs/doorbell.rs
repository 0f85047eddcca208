//! Doorbell by a thread of the host. Where kernels cannot write a card's registers, each queue pair has a
//! word in pinned memory instead: kernels write there what the register is to get, and a thread forwards it.
//!
//! A value that is written over before the thread has seen it is not missed: the card reads the doorbell
//! record, which counts all requests, at the next one.
//!
//! Doorbell and queue pages are mapped for kernels, each once: doorbell records of several queues lie in one.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

use crate::device::gpu::{Block, Gpu, GpuError, HostPages};
use crate::device::verbs::error::VerbsError;
use crate::locks::{Mutex, MutexGuard, rank};

/// Who rings the doorbell of a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Doorbell {
    /// The kernel, where the GPU's driver maps the card's register; else a thread of the host.
    #[default]
    Auto,
    /// The kernel.
    Direct,
    /// A thread of the host.
    Assisted,
}

/// A word, and the register that gets what is written there.
struct Forwarded {
    word: u64,
    register: u64,
    last: u64,
}

#[derive(Default)]
struct Shared {
    list: Mutex<rank::Leaf, Vec<Forwarded>>,
    stop: AtomicBool,
}

impl Shared {
    fn list(&self) -> MutexGuard<'_, rank::Leaf, Vec<Forwarded>> {
        self.list.lock()
    }

    fn forward(&self) -> bool {
        let mut has_forwarded = false;
        for one in self.list().iter_mut() {
            // SAFETY: the word lives until it is taken out of the list, under whose lock this is.
            let value = unsafe { &*(one.word as *const AtomicU64) }.load(Ordering::Acquire);
            if value != one.last {
                one.last = value;
                // What the kernel wrote before the word is there before the card is told.
                fence(Ordering::SeqCst);
                // SAFETY: the register is mapped as long as the queue pair lives, which takes the word out of
                // the list first.
                unsafe { (one.register as *mut u64).write_volatile(value) };
                fence(Ordering::SeqCst);
                has_forwarded = true;
            }
        }
        has_forwarded
    }
}

/// The thread that rings doorbells, which is started for the first queue pair that needs it.
#[derive(Default)]
pub(super) struct Forwarder {
    shared: Arc<Shared>,
    thread: Mutex<rank::DoorbellThread, Option<JoinHandle<()>>>,
}

impl Forwarder {
    /// Forwards a word, which is 0 now, to a register from now on.
    pub(super) fn add(&self, word: u64, register: u64) -> Result<(), VerbsError> {
        /// Looks without anything to do, after which the processor is somebody else's.
        const LOOKS: u32 = 256;
        let mut thread = self.thread.lock();
        if thread.is_none() {
            let shared = Arc::clone(&self.shared);
            let run = move || {
                let mut idle = 0;
                while !shared.stop.load(Ordering::Acquire) {
                    if shared.forward() {
                        idle = 0;
                    }
                    idle += 1;
                    if idle < LOOKS { core::hint::spin_loop() } else { std::thread::yield_now() }
                }
            };
            let name = "causeway-doorbell".to_owned();
            let started = std::thread::Builder::new().name(name).spawn(run).map_err(VerbsError::Thread)?;
            *thread = Some(started);
        }
        self.shared.list().push(Forwarded { word, register, last: 0 });
        Ok(())
    }

    /// Forwards it no more. When this returns the thread uses neither.
    pub(super) fn remove(&self, word: u64) {
        self.shared.list().retain(|one| one.word != word);
    }

    /// The word is 0 again.
    pub(super) fn restart(&self, word: u64) {
        let mut list = self.shared.list();
        list.iter_mut().filter(|one| one.word == word).for_each(|one| one.last = 0);
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        let thread = self.thread.get_mut().take();
        // It does not panic; if it did there would be nothing left to end.
        let _ = thread.map(JoinHandle::join);
    }
}

/// Bytes of a page.
const PAGE: u64 = 4096;

/// Pages that kernels use, as long as this lives.
pub(super) struct Mapped {
    start: u64,
    end: u64,
    block: Block,
}

impl Mapped {
    /// Where kernels find an address of this process that lies in the pages.
    pub(super) fn on_gpu(&self, address: u64) -> u64 {
        self.block.address + (address - self.start)
    }
}

/// The pages of a card's library that kernels use.
pub(super) struct Pages {
    gpu: Arc<dyn Gpu>,
    mapped: Mutex<rank::Leaf, Vec<Weak<Mapped>>>,
}

impl Pages {
    pub(super) fn new(gpu: Arc<dyn Gpu>) -> Self {
        Self { gpu, mapped: Mutex::default() }
    }

    /// Lets kernels use the pages in which these bytes lie.
    pub(super) fn map(&self, address: u64, bytes: u64, kind: HostPages) -> Result<Arc<Mapped>, GpuError> {
        let start = address / PAGE * PAGE;
        let end = (address + bytes).next_multiple_of(PAGE);
        let mut mapped = self.mapped.lock();
        mapped.retain(|one| one.strong_count() != 0);
        let known = mapped.iter().filter_map(Weak::upgrade);
        if let Some(found) = known.into_iter().find(|one| one.start <= start && end <= one.end) {
            return Ok(found);
        }
        let block = self.gpu.map_pages(start, end - start, kind)?;
        let pages = Arc::new(Mapped { start, end, block });
        mapped.push(Arc::downgrade(&pages));
        Ok(pages)
    }
}
