//! Sharing of registered memory (`cuMemHostRegister`) with the worker.
//!
//! Memory that the program shares with others is a file in memory: its descriptor goes to the worker, which
//! maps the same part of it at an address of the host window. That is kept free in this process, too, so that
//! it means nothing else. Other processes, other mappings of the file and devices of this machine that write
//! to its pages are then seen by kernels as by the program. Memory of the program alone is moved into such a
//! file first (`moved`).
//!
//! What cannot be shared has a mirror, and the report of the session says why.

use super::moved::Move;
use super::{Backing, Piece, device_address, note, release};
use crate::locks::{Monitor, rank};
use crate::log::info;
use crate::model::host_memory::Range;
use crate::model::{device, host_window, transfers};
use crate::remote::mirrored::shared::moved::NotShared;
use crate::remote::session;
use crate::statistics;
use causeway_api::calls::{self, Opcode};
use causeway_api::sys::CUresult;
use causeway_memory::SharedFile;
use causeway_memory::mappings::{self, Mapping};
use causeway_memory::pages::page_size;
use core::ops;
use std::collections::BTreeSet;
use std::sync::LazyLock;

/// What is being shared, by its first address.
static SHARING: LazyLock<Monitor<rank::SharingMemory, BTreeSet<usize>>> =
    LazyLock::new(|| Monitor::new(BTreeSet::new()));

/// Held by the one thread that shares a range.
struct RegistrationGuard(usize);

impl RegistrationGuard {
    /// Waits until no other thread shares what begins at `base`.
    fn begin(base: usize) -> Self {
        SHARING.wait(|sharing| sharing.insert(base).then_some(()));
        Self(base)
    }
}

impl Drop for RegistrationGuard {
    fn drop(&mut self) {
        SHARING.change(|sharing| sharing.remove(&self.0));
    }
}

/// Lets the worker have memory that the program has registered, and returns its address for kernels; nothing
/// where it needs a mirror.
pub fn share(range: &Range) -> Option<u64> {
    let _alone = RegistrationGuard::begin(range.base);
    if let Some(address) = device_address(range.base) {
        return Some(address);
    }
    // What is on its way into the memory is waited for, as before it gets a mirror.
    transfers::wait_for_writes(range.base, range.base + range.size);
    match try_to_share(range) {
        Ok(address) => {
            statistics::host_memory::note_shared(range.size);
            Some(address)
        }
        Err(cause) => {
            info!("{} bytes of registered memory at {:#x} have a mirror: {cause}", range.size, range.base);
            statistics::host_memory::note_mirrored(range.size, cause.to_string());
            None
        }
    }
}

fn try_to_share(range: &Range) -> Result<u64, NotShared> {
    let session = session::of(range.context).map_err(NotShared::Refused)?;
    if !session.shares_memory() {
        return Err(NotShared::Transport);
    }
    let pages = pages_of(range.base, range.size);
    let mapping = one_mapping(mappings::within(pages.clone()).map_err(NotShared::Unknown)?, &pages)?;
    if mapping.is_shared {
        let file = SharedFile::of_mapping(&mapping).map_err(NotShared::File)?;
        if !session.knows(Opcode::client_file_map) {
            return Err(NotShared::OldServer);
        }
        let piece = map_in_worker(range, &pages, Backing::File, |address, size, number| {
            let offset = mapping.offset;
            session.hand_over_file(number, file.descriptor())?;
            session::call_in(range.context, &calls::client_file_map { address, size, offset, number })
        })?;
        return Ok(note(piece));
    }
    let moving = Move::prepare(range.base, &mapping)?;
    let piece = map_in_worker(range, &pages, Backing::Moved, |address, size, number| {
        session.hand_over(number, moving.file())?;
        session::call_in(range.context, &calls::client_memory_map { address, size, number })
    })?;
    if let Err(cause) = moving.carry_out() {
        release(piece).map_err(NotShared::Refused)?;
        return Err(cause);
    }
    Ok(note(piece))
}

/// The whole pages in which memory lies.
pub(super) fn pages_of(base: usize, size: usize) -> ops::Range<usize> {
    let page = page_size();
    base / page * page..(base + size).next_multiple_of(page)
}

/// The mapping that `pages` are a part of, if it can be shared.
pub(super) fn one_mapping(found: Vec<Mapping>, pages: &ops::Range<usize>) -> Result<Mapping, NotShared> {
    let [mapping] = <[Mapping; 1]>::try_from(found).map_err(|_| NotShared::NotOne)?;
    if mapping.range != *pages {
        return Err(NotShared::NotOne);
    }
    let [reads, writes, _] = mapping.access;
    if !reads || !writes {
        return Err(NotShared::ReadOnly);
    }
    Ok(mapping)
}

/// Has the worker map the pages in which the memory lies at an address of the window, under a number that names
/// what is handed over, and says where it then is.
fn map_in_worker(
    range: &Range,
    pages: &ops::Range<usize>,
    backing: Backing,
    map: impl FnOnce(u64, usize, u64) -> Result<(), CUresult>,
) -> Result<Piece, NotShared> {
    let size = pages.len();
    let reserved = host_window::reserve(size).ok_or(NotShared::NoAddresses)?;
    let (address, number) = (reserved.address, device::fresh());
    map(address as u64, size, number).map_err(NotShared::Refused)?;
    Ok(Piece {
        context: range.context,
        host: range.base,
        device: (address + range.base - pages.start) as u64,
        size: range.size,
        pages: address as u64,
        reserved: Some(reserved),
        number,
        backing,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(range: ops::Range<usize>) -> Mapping {
        let access = [true, true, false];
        let path = b"/memfd:test".to_vec();
        Mapping { range, access, is_shared: true, offset: 0, device: (0, 1), inode: 7, path }
    }

    #[test]
    fn what_is_whole_and_writable_is_shared() {
        let pages = 0x1000..0x3000;
        let check = |found| one_mapping(found, &pages);
        assert!(check(vec![mapping(pages.clone())]).is_ok());
        let readable = Mapping { access: [true, false, false], ..mapping(pages.clone()) };
        assert!(matches!(check(vec![readable]), Err(NotShared::ReadOnly)));
        for found in
            [vec![], vec![mapping(0x1000..0x2000)], vec![mapping(pages.clone()), mapping(pages.clone())]]
        {
            assert!(matches!(check(found), Err(NotShared::NotOne)));
        }
    }
}
