//! Shared memory file (memfd) that others may write and truncate.
//!
//! Only files of tmpfs and hugetlbfs (`memfd_create`, `/dev/shm`, System V shared memory) are taken: their
//! pages are always there, while those of another user's file system can block whatever thread touches
//! them waiting for ever, and devices cannot write to those of a disk. What is cut short later raises SIGBUS
//! in whoever uses it.

use crate::mappings::Mapping;
use crate::pages::page_size;
use std::fs::{OpenOptions, read_dir};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{OFlags, Stat, fcntl_get_seals, fcntl_getfl, fstat, major, minor};
use rustix::io::fcntl_dupfd_cloexec;
use thiserror::Error;

/// Why a file is not shared.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum SharedFileError {
    /// It lies on a disk, or is no file at all.
    #[error("it is not a memory file (memfd, /dev/shm)")]
    NotInMemory,
    /// The program may not write to it.
    #[error("it is read-only")]
    ReadOnly,
    /// It ends before the memory does.
    #[error("the file has {found} bytes, and {needed} are needed")]
    TooShort {
        /// Bytes that it must have.
        needed: u64,
        /// Bytes that it has.
        found: u64,
    },
    /// The program has closed it, and it cannot be opened again.
    #[error("its file is closed, and this process may not open it again")]
    Closed,
}

/// A file in memory, open for reading and writing.
#[derive(Debug)]
pub struct SharedFile {
    descriptor: OwnedFd,
}

impl SharedFile {
    /// Takes a descriptor of a file that has `bytes` from `offset` on, now.
    ///
    /// # Errors
    /// When it is no file in memory, may not be written, or is shorter.
    pub fn check(descriptor: OwnedFd, offset: u64, bytes: usize) -> Result<Self, SharedFileError> {
        // Files in memory have seals, if only the one against more of them; others have none.
        if fcntl_get_seals(&descriptor).is_err() {
            return Err(SharedFileError::NotInMemory);
        }
        if !fcntl_getfl(&descriptor).is_ok_and(|flags| flags & OFlags::ACCMODE == OFlags::RDWR) {
            return Err(SharedFileError::ReadOnly);
        }
        let page = page_size() as u64;
        let needed = offset.checked_add(bytes as u64).filter(|_| offset.is_multiple_of(page));
        let needed = needed.unwrap_or(u64::MAX);
        let size = fstat(&descriptor).map_or(0, |stat| stat.st_size as u64);
        // The last page of a file is whole for whoever maps it.
        if size.checked_next_multiple_of(page).is_none_or(|whole| whole < needed) {
            return Err(SharedFileError::TooShort { needed, found: size });
        }
        Ok(Self { descriptor })
    }

    /// Finds the file of a mapping of this process: among its descriptors, or by what the kernel says of the
    /// mapping.
    ///
    /// # Errors
    /// When it is no file in memory, or cannot be had.
    pub fn of_mapping(mapping: &Mapping) -> Result<Self, SharedFileError> {
        let check = |descriptor| Self::check(descriptor, mapping.offset, mapping.range.len());
        let mut closed = SharedFileError::Closed;
        for candidate in open_descriptors().filter_map(Result::ok) {
            if !is_of(mapping, candidate.as_fd()) {
                continue;
            }
            match check(candidate) {
                // Another descriptor of the same file may be open for writing.
                Err(SharedFileError::ReadOnly) => closed = SharedFileError::ReadOnly,
                found => return found,
            }
        }
        let range = &mapping.range;
        let by_kernel = format!("/proc/self/map_files/{:x}-{:x}", range.start, range.end);
        let by_name = Path::new(std::ffi::OsStr::from_bytes(&mapping.path));
        for path in [Path::new(&by_kernel), by_name] {
            let opened = OpenOptions::new().read(true).write(true).open(path).map(OwnedFd::from);
            if let Ok(file) = opened
                && is_of(mapping, file.as_fd())
            {
                return check(file);
            }
        }
        Err(closed)
    }

    /// Its descriptor.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// Copies of the descriptors of this process, one after the other. What another thread closes meanwhile is
/// passed over, and what it opens under the same number is what the copy then means.
fn open_descriptors() -> impl Iterator<Item = io::Result<OwnedFd>> {
    let directory = read_dir("/proc/self/fd").into_iter().flatten().flatten();
    directory.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).map(|number| {
        // SAFETY: the number is only copied from, in this call, which fails when nothing is open under it.
        let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
        Ok(fcntl_dupfd_cloexec(borrowed, 3)?)
    })
}

/// Whether a descriptor is of the file of a mapping.
fn is_of(mapping: &Mapping, descriptor: BorrowedFd<'_>) -> bool {
    let is_same = |stat: &Stat| {
        (major(stat.st_dev), minor(stat.st_dev)) == mapping.device && stat.st_ino == mapping.inode
    };
    fstat(descriptor).is_ok_and(|stat| is_same(&stat))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mappings;
    use memmap2::MmapOptions;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    use std::fs::File;

    fn memory(bytes: u64) -> OwnedFd {
        let file = memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, bytes).unwrap();
        file
    }

    #[test]
    fn only_files_in_memory_that_have_the_bytes_are_taken() {
        let page = page_size();
        let check = |offset, bytes| SharedFile::check(memory(page as u64 + 1), offset, bytes);
        assert!(check(0, 2 * page).is_ok() && check(page as u64, page).is_ok());
        let short = |result: Result<SharedFile, _>| matches!(result, Err(SharedFileError::TooShort { .. }));
        assert!(short(check(0, 2 * page + 1)) && short(check(page as u64, page + 1)));
        assert!(short(check(1, 1)) && short(check(u64::MAX - page as u64 + 1, page)));
        let zero = OpenOptions::new().read(true).write(true).open("/dev/zero").unwrap();
        assert_eq!(SharedFile::check(zero.into(), 0, 1).unwrap_err(), SharedFileError::NotInMemory);
        let readable = File::open("/proc/self/exe").unwrap();
        assert!(SharedFile::check(readable.into(), 0, 1).is_err());
    }

    #[test]
    fn the_file_of_a_mapping_is_found_while_it_is_open() {
        let page = page_size();
        let file = memory(4 * page as u64);
        // SAFETY: the file is this test's own, and stays as long as it is.
        let map = unsafe { MmapOptions::new().offset(page as u64).len(2 * page).map_mut(&file) };
        let map = map.unwrap();
        let base = map.as_ptr() as usize;
        let found = || mappings::within(base..base + 2 * page).unwrap().remove(0);
        let same = SharedFile::of_mapping(&found()).unwrap();
        assert_eq!(fstat(&same.descriptor).unwrap().st_ino, fstat(&file).unwrap().st_ino);
        drop((same, file));
        // Where the system lets this process open what it has mapped, that is the same file again.
        match SharedFile::of_mapping(&found()) {
            Ok(again) => assert_eq!(fstat(&again.descriptor).unwrap().st_size, 4 * page as i64),
            Err(cause) => assert_eq!(cause, SharedFileError::Closed),
        }
    }
}
