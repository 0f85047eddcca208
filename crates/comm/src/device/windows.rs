//! Windows: the table of them, by which the proxy checks what kernels have written into a queue, and the
//! announcement of one to the other ranks, in messages of 16 bytes. Pure.

use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use crate::bootstrap::MESSAGE_BYTES;
use crate::device::failure::Status;
use crate::device::remote::frame::Position;
use crate::device::request::RemoteRange;
use crate::locks::{RwLock, rank};

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
    list: RwLock<rank::Leaf, Arc<Vec<Option<MappedWindow>>>>,
    changes: AtomicU64,
}

impl Windows {
    /// Adds or takes away a window.
    pub fn set(&self, id: usize, window: Option<MappedWindow>) {
        let mut list = self.list.write();
        let list = Arc::make_mut(&mut list);
        if list.len() <= id {
            list.resize(id + 1, None);
        }
        list[id] = window;
        self.changes.fetch_add(1, Ordering::Release);
    }

    fn list(&self) -> Arc<Vec<Option<MappedWindow>>> {
        Arc::clone(&self.list.read())
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

/// What a rank says of its part of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Announcement {
    /// Which one, counted from 0.
    pub number: u32,
    /// Whether the part lies in the host.
    pub in_host: bool,
    /// Bytes of the part.
    pub bytes: u64,
}

impl core::fmt::Display for Announcement {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let location = if self.in_host { "in the host" } else { "on the device" };
        write!(f, "number {}, {} bytes {location}", self.number, self.bytes)
    }
}

/// What the second word of a message says: where a part lies, that there is none, that the rank leaves, which
/// GPU it has, for what a connection is, whether it has a queue pair for the other one, and has joined it.
const ON_DEVICE: u32 = 0;
const IN_HOST: u32 = 1;
pub(super) const NONE: u32 = 2;
pub(super) const GOODBYE: u32 = 3;
pub(super) const GPU: u32 = 4;
pub(super) const CONTROL: u32 = 5;
pub(super) const LINK: u32 = 6;
pub(super) const NIC: u32 = 7;
pub(super) const JOINED: u32 = 8;
/// Whether its kernels have one for the other one's, and whether those of all ranks have; the key of a part, or none.
pub(super) const VERBS: u32 = 9;
pub(super) const ALL_VERBS: u32 = 10;
pub(super) const KEY: u32 = 11;
pub(super) const NO_KEY: u32 = 12;

impl Announcement {
    /// As 16 bytes: the number, where, and the bytes, little-endian.
    pub fn encode(&self) -> [u8; MESSAGE_BYTES] {
        message(self.number, if self.in_host { IN_HOST } else { ON_DEVICE }, self.bytes)
    }

    /// Reads them; none where they announce nothing.
    pub fn decode(message: &[u8; MESSAGE_BYTES]) -> Option<Self> {
        let word = |at: usize| message[at..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        let bytes = message[8..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let in_host = match word(4) {
            ON_DEVICE => false,
            IN_HOST => true,
            _ => return None,
        };
        Some(Self { number: word(0), in_host, bytes })
    }
}

/// A message of a number, what it says, and more about that.
pub(super) fn message(number: u32, what: u32, bytes: u64) -> [u8; MESSAGE_BYTES] {
    let mut message = [0; MESSAGE_BYTES];
    message[..4].copy_from_slice(&number.to_le_bytes());
    message[4..8].copy_from_slice(&what.to_le_bytes());
    message[8..].copy_from_slice(&bytes.to_le_bytes());
    message
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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

    proptest! {
        #[test]
        fn announcements_are_what_was_written(number: u32, in_host: bool, bytes: u64) {
            let said = Announcement { number, in_host, bytes };
            prop_assert_eq!(Announcement::decode(&said.encode()), Some(said));
        }

        #[test]
        fn no_bytes_do_harm(message: [u8; MESSAGE_BYTES]) {
            if let Some(read) = Announcement::decode(&message) {
                prop_assert_eq!(read.encode(), message);
            }
        }
    }
}
