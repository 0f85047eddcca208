//! Memory of the host that processes share: a file without a name, which each of them maps.
//!
//! Its length is sealed, so that no process takes pages away from under another one that has it mapped.

use core::ffi::c_int;
use std::fs::File;
use std::io::{Error, ErrorKind, Result};
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

use causeway_sync::descriptors::above_stdio;
use causeway_sync::threads;

/// What the file may not do any more.
const SEALS: c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

/// Files and mappings have whole pages.
const PAGE: u64 = 4096;

/// The file.
#[derive(Debug)]
pub struct SharedFile {
    file: File,
    bytes: u64,
}

/// The file's memory in this process.
#[derive(Debug)]
pub struct MappedFile {
    /// Its address.
    pub address: u64,
    /// Whole pages.
    pub bytes: usize,
}

fn is_ok(status: c_int) -> Result<c_int> {
    if status < 0 { Err(Error::last_os_error()) } else { Ok(status) }
}

impl SharedFile {
    /// A new one of so many bytes, all zero.
    ///
    /// # Errors
    /// What the system says.
    pub fn new(bytes: u64) -> Result<Self> {
        let bytes = bytes.next_multiple_of(PAGE);
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: the name ends with a zero.
        let descriptor = is_ok(unsafe { libc::memfd_create(c"causeway-window".as_ptr(), flags) })?;
        // SAFETY: it is new, and nobody else's.
        let file = above_stdio(unsafe { File::from_raw_fd(descriptor) })?;
        threads::without_sigxfsz(|| file.set_len(bytes))?;
        // SAFETY: a call on a descriptor that is open.
        is_ok(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, SEALS) })?;
        Ok(Self { file, bytes })
    }

    /// Another process's, which is to have so many bytes.
    ///
    /// # Errors
    /// When it is shorter, or may become so.
    pub fn of(descriptor: BorrowedFd<'_>, bytes: u64) -> Result<Self> {
        let file = File::from(descriptor.try_clone_to_owned()?);
        let bytes = bytes.next_multiple_of(PAGE);
        // SAFETY: a call on a descriptor that is open.
        let seals = is_ok(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) })?;
        if seals & SEALS != SEALS || file.metadata()?.len() < bytes {
            return Err(Error::new(
                ErrorKind::InvalidData,
                "the other process's file is too short, or may become so",
            ));
        }
        Ok(Self { file, bytes })
    }

    /// Maps it.
    ///
    /// # Errors
    /// What the system says.
    pub fn map(&self) -> Result<MappedFile> {
        let bytes = self.bytes as usize;
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a new mapping, wherever there is room.
        let address =
            unsafe { libc::mmap(core::ptr::null_mut(), bytes, protection, flags, self.file.as_raw_fd(), 0) };
        if address == libc::MAP_FAILED {
            return Err(Error::last_os_error());
        }
        Ok(MappedFile { address: address as u64, bytes })
    }

    /// Its descriptor, for other processes.
    pub fn into_descriptor(self) -> OwnedFd {
        self.file.into()
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `map`, and nobody uses it any more.
        unsafe { libc::munmap(self.address as *mut libc::c_void, self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use super::*;

    fn read(mapped: &MappedFile, at: usize) -> u8 {
        assert!(at < mapped.bytes);
        // SAFETY: so much is mapped, as long as the mapping lives.
        unsafe { (mapped.address as *const u8).add(at).read_volatile() }
    }

    fn write(mapped: &MappedFile, at: usize, byte: u8) {
        assert!(at < mapped.bytes);
        // SAFETY: so much is mapped, as long as the mapping lives, and nobody else uses it.
        unsafe { (mapped.address as *mut u8).add(at).write_volatile(byte) };
    }

    #[test]
    fn both_ends_have_the_same_memory() {
        let file = SharedFile::new(5000).unwrap();
        let ours = file.map().unwrap();
        assert_eq!((ours.bytes, read(&ours, 8191)), (8192, 0));
        let descriptor = file.into_descriptor();
        let theirs = SharedFile::of(descriptor.as_fd(), 5000).unwrap().map().unwrap();
        let drawn = (std::process::id() % 251) as u8 + 1;
        write(&theirs, 4999, drawn);
        assert_eq!(read(&ours, 4999), drawn);
        write(&ours, 0, drawn ^ 0xff);
        assert_eq!(read(&theirs, 0), drawn ^ 0xff);
    }

    #[test]
    fn a_file_that_is_short_or_may_become_so_is_refused() {
        let descriptor = SharedFile::new(4096).unwrap().into_descriptor();
        assert!(SharedFile::of(descriptor.as_fd(), 4097).is_err());
        assert!(File::from(descriptor.try_clone().unwrap()).set_len(0).is_err(), "its length is sealed");
        let (folder, other) = (tempfile::tempdir().unwrap(), "file");
        let file = File::create(folder.path().join(other)).unwrap();
        file.set_len(8192).unwrap();
        assert!(SharedFile::of(file.as_fd(), 4096).is_err());
    }
}
