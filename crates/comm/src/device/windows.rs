//! Table of windows: bounds check of the proxy. The proxy's own check: kernels may have
//! written anything into a queue.

use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use super::failure::Status;
use super::remote::frame::Position;
use super::request::RemoteRange;

/// A window as one rank's proxy reaches it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MappedWindow {
    /// How many windows the team had made before: what other ranks call it.
    pub number: u32,
    /// Bytes of each rank's part.
    pub bytes: u64,
    /// Whether the window is memory of the host, which threads of the host read and write.
    pub in_host: bool,
    /// Where each rank's part lies for this rank's GPU (and for this process, in the host); 0 where nothing
    /// reaches it.
    pub parts: Vec<u64>,
}

/// The windows of a rank, by number. They come and go while the proxy runs.
#[derive(Debug, Default)]
pub struct Windows {
    list: RwLock<Arc<Vec<Option<MappedWindow>>>>,
    changes: AtomicU64,
}

impl Windows {
    /// Adds or takes away a window.
    pub fn set(&self, id: usize, window: Option<MappedWindow>) {
        let mut list = self.list.write().unwrap_or_else(PoisonError::into_inner);
        let list = Arc::make_mut(&mut list);
        if list.len() <= id {
            list.resize(id + 1, None);
        }
        list[id] = window;
        self.changes.fetch_add(1, Ordering::Release);
    }

    fn list(&self) -> Arc<Vec<Option<MappedWindow>>> {
        Arc::clone(&self.list.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Where a range of a window is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Located {
    /// Its address here, where the part is mapped.
    pub address: Option<u64>,
    /// Whether it is memory of the host.
    pub in_host: bool,
    /// What its owner calls it.
    pub position: Position,
}

/// What a proxy knows of them: it looks at a number, and takes no lock, for each request.
#[derive(Debug)]
pub struct KnownWindows {
    windows: Arc<Windows>,
    seen: u64,
    list: Arc<Vec<Option<MappedWindow>>>,
}

impl KnownWindows {
    /// Those of a rank.
    pub fn new(windows: Arc<Windows>) -> Self {
        let seen = windows.changes.load(Ordering::Acquire);
        let list = windows.list();
        Self { windows, seen, list }
    }

    /// A range, which lies in a window.
    ///
    /// # Errors
    /// When there is no such range.
    pub fn locate(&mut self, remote: &RemoteRange, bytes: u64) -> Result<Located, Status> {
        let changes = self.windows.changes.load(Ordering::Acquire);
        if changes != self.seen {
            self.list = self.windows.list();
            self.seen = changes;
        }
        let window = self.list.get(remote.window as usize).and_then(Option::as_ref);
        let window = window.ok_or(Status::OtherTeam)?;
        let part = *window.parts.get(remote.peer as usize).ok_or(Status::NoSuchRank)?;
        if remote.offset > window.bytes || bytes > window.bytes - remote.offset {
            return Err(Status::OutOfBounds);
        }
        let address = (part != 0).then_some(part + remote.offset);
        let position = Position { window: window.number, offset: remote.offset };
        Ok(Located { address, in_host: window.in_host, position })
    }

    /// The same for a word.
    ///
    /// # Errors
    /// Also when it does not lie at a multiple of 8.
    pub fn locate_word(&mut self, remote: &RemoteRange) -> Result<Located, Status> {
        if !remote.offset.is_multiple_of(8) {
            return Err(Status::Misaligned);
        }
        self.locate(remote, 8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_found_or_refused() {
        let windows = Arc::new(Windows::default());
        let mut known = KnownWindows::new(Arc::clone(&windows));
        let remote = |peer, window, offset| RemoteRange { peer, window, offset };
        assert_eq!(known.locate(&remote(0, 2, 0), 1), Err(Status::OtherTeam));
        windows.set(2, Some(MappedWindow { number: 7, bytes: 64, in_host: true, parts: vec![4096, 0] }));
        let found = |address, offset| {
            Ok(Located { address, in_host: true, position: Position { window: 7, offset } })
        };
        assert_eq!(known.locate(&remote(0, 2, 8), 56), found(Some(4104), 8));
        assert_eq!(known.locate(&remote(0, 2, 64), 0), found(Some(4160), 64));
        assert_eq!(known.locate(&remote(0, 2, 8), 57), Err(Status::OutOfBounds));
        assert_eq!(known.locate(&remote(0, 2, u64::MAX >> 28), u64::MAX), Err(Status::OutOfBounds));
        assert_eq!(known.locate(&remote(1, 2, 0), 1), found(None, 0));
        assert_eq!(known.locate(&remote(2, 2, 0), 1), Err(Status::NoSuchRank));
        assert_eq!(known.locate_word(&remote(0, 2, 4)), Err(Status::Misaligned));
        windows.set(2, None);
        assert_eq!(known.locate(&remote(0, 2, 0), 1), Err(Status::OtherTeam));
    }
}
