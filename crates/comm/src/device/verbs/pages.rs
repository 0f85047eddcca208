//! Mapping of doorbell and queue pages for kernels. Each page is mapped once: doorbell
//! records of several queues lie in one.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::device::gpu::{Block, Gpu, GpuError, HostPages};

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
    mapped: Mutex<Vec<Weak<Mapped>>>,
}

impl Pages {
    pub(super) fn new(gpu: Arc<dyn Gpu>) -> Self {
        Self { gpu, mapped: Mutex::default() }
    }

    /// Lets kernels use the pages in which these bytes lie.
    pub(super) fn map(&self, address: u64, bytes: u64, kind: HostPages) -> Result<Arc<Mapped>, GpuError> {
        let start = address / PAGE * PAGE;
        let end = (address + bytes).next_multiple_of(PAGE);
        let mut mapped = self.mapped.lock().unwrap_or_else(PoisonError::into_inner);
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
