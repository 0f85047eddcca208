//! Copies of detached messages. In memory of the host, of which a
//! rank takes no more than a certain number of bytes for that.
//!
//! A send that waits for ever, though its receiver would come to it only after that, would be a deadlock that the MPI
//! alone does not have. So a message of any length is taken back where there is no other, and any that has waited very
//! long.

use core::ops::Deref;
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

use memmap2::{MmapMut, MmapOptions};

use crate::cuda::{DeviceMemory, Driver, Pinned, Scope, synchronize};

/// Bytes that a rank has in such memory at most, of several messages.
const MAX_BYTES: u64 = 64 << 20;

/// A receiver that has fetched nothing for so long is late for a long message.
pub(crate) const LATE: Duration = Duration::from_secs(1);

/// After so long it is in spite of the limit.
const MAX_WAIT: Duration = Duration::from_secs(10);

/// Shorter ones are not worth being registered with the driver.
const MIN_PINNED: usize = 1 << 20;

/// How many bytes there are.
#[derive(Debug, Default, Clone)]
pub(super) struct Total(Arc<AtomicU64>);

/// A part of them, until it is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    total: Total,
    bytes: u64,
}

impl Total {
    /// Takes a share for a message of so many bytes that has waited so long, if there is one.
    pub(super) fn take(&self, bytes: u64, waited: Duration) -> Option<Share> {
        let limit = if waited > MAX_WAIT { u64::MAX } else { MAX_BYTES };
        let add = |total: u64| total.checked_add(bytes).filter(|sum| total == 0 || *sum <= limit);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).ok()?;
        Some(Share { total: self.clone(), bytes })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.total.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// What a program's memory held when it got it back.
#[derive(Debug)]
pub(crate) struct DetachedCopy {
    /// In front of the memory, so that it goes first. None where the driver refuses, or it is not worth it.
    _pinned: Option<Pinned>,
    memory: MmapMut,
    _share: Share,
}

impl DetachedCopy {
    /// A copy of so many bytes on a GPU; none where the memory for it cannot be had, or the driver fails.
    ///
    /// # Safety
    /// The bytes are there and do not change meanwhile.
    pub(crate) unsafe fn copy(address: u64, bytes: u64, share: Share) -> Option<Self> {
        let length = usize::try_from(bytes).ok()?;
        let memory = MmapOptions::new().len(length.max(1)).map_anon().ok()?;
        let driver = Driver::loaded()?;
        let source = DeviceMemory::at(driver, address)?;
        synchronize(driver, &source);
        let scope = Scope::of(driver, &source).ok()?;
        let to = memory.as_ptr() as u64;
        let is_pinned = length >= MIN_PINNED && !Driver::is_remote();
        // SAFETY: the mapping goes after what is registered.
        let pinned = is_pinned.then(|| unsafe { Pinned::new(&scope, to, length) }.ok()).flatten();
        // SAFETY: the mapping has so many bytes and is nobody else's; the source is there, as the caller promises.
        unsafe { scope.copy(to, address, length) }.ok()?;
        Some(Self { _pinned: pinned, memory, _share: share })
    }

    #[cfg(test)]
    pub(super) fn of(bytes: &[u8], share: Share) -> Self {
        let mut memory = MmapOptions::new().len(bytes.len()).map_anon().unwrap();
        memory.copy_from_slice(bytes);
        Self { _pinned: None, memory, _share: share }
    }
}

impl Deref for DetachedCopy {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_back_has_a_limit_until_a_send_has_waited_too_long() {
        let total = Total::default();
        let take = |bytes, waited| total.take(bytes, waited);
        let first = take(MAX_BYTES - 5, LATE).unwrap();
        assert!(take(6, LATE).is_none());
        let rest = take(5, LATE).unwrap();
        assert!(take(1, LATE).is_none());
        // A deadlock would be worse.
        let long = take(MAX_BYTES, MAX_WAIT + LATE).unwrap();
        drop((first, long));
        assert!(take(MAX_BYTES - 4, LATE).is_none() && take(MAX_BYTES - 5, LATE).is_some());
        drop(rest);
        // One that is longer than all of it goes alone.
        let longest = take(u64::MAX, LATE).unwrap();
        assert!(take(1, LATE).is_none() && take(1, MAX_WAIT * 2).is_none());
        drop(longest);
        assert!(take(1, LATE).is_some());
    }
}
