//! Open RDMA devices of the process, and how many of them this library opened.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What descriptors of RDMA devices lead to.
pub const FOLDER: &str = "/dev/infiniband/";

/// How many were opened for sessions.
static OWN: AtomicUsize = AtomicUsize::new(0);

/// Opens sessions. RDMA devices that are open afterwards and were not before are this library's.
pub fn while_opening<T>(open: impl FnOnce() -> T) -> T {
    let before = count();
    let opened = open();
    OWN.fetch_add(count().unwrap_or(0).saturating_sub(before.unwrap_or(usize::MAX)), Ordering::Relaxed);
    opened
}

/// Whether sessions have any open.
pub fn are_ours_open() -> bool {
    OWN.load(Ordering::Relaxed) != 0
}

/// Whether the program has any open; `true` where that is unknown.
pub fn are_others_open() -> bool {
    count().is_none_or(|count| count > OWN.load(Ordering::Relaxed))
}

/// The process's descriptors of such devices; nothing where the system does not say.
fn count() -> Option<usize> {
    let is_rdma_device =
        |entry: &fs::DirEntry| fs::read_link(entry.path()).is_ok_and(|target| target.starts_with(FOLDER));
    Some(fs::read_dir("/proc/self/fd").ok()?.flatten().filter(is_rdma_device).count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_without_cards_has_none() {
        assert_eq!(while_opening(|| 7), 7);
        assert!(!are_ours_open());
        assert_eq!(are_others_open(), count() != Some(0));
    }
}
