//! IPC exchange with another process of the same server, so that it can use this one's memory: descriptors and
//! handles.
//!
//! A descriptor is a file in memory, so it is passed from process to process like the driver's own; what it
//! says is the token under which the broker has the real one. Handles of `cuIpc*` say the same in 64 bytes.

use crate::locks::{Mutex, rank};
use causeway_api::sys::CUresult;
use causeway_api::types::ExportToken;
use causeway_sync::descriptors::above_stdio;
use causeway_sync::threads;
use core::ffi::c_char;
use std::collections::HashSet;
use std::fs::File;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// What a descriptor or a handle stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Memory of `cuMemCreate`.
    Allocation = 1,
    /// A memory pool.
    Pool = 2,
    /// A piece of memory, inside a block.
    Piece = 3,
    /// An event.
    Event = 4,
}

/// Whether anything was given to another process, or taken from one.
static ANY: AtomicBool = AtomicBool::new(false);

const MAGIC: [u8; 8] = *b"causeway";
/// Bytes of a descriptor's contents, and of a handle.
const LENGTH: usize = 64;
const CONTENT: usize = LENGTH - MAGIC.len() - 1;

/// Blocks of this process's memory that others may open.
static OWN: LazyLock<Mutex<rank::OwnExports, HashSet<ExportToken>>> = LazyLock::new(Mutex::default);

/// Other processes may open a block of this one's memory.
pub fn exported(token: ExportToken) {
    OWN.lock().insert(token);
}

/// They may no more.
pub fn withdrawn(token: &ExportToken) {
    OWN.lock().remove(token);
}

/// Whether a token stands for a block of this process's memory.
pub fn is_own(token: &ExportToken) -> bool {
    OWN.lock().contains(token)
}

/// Whether another process may use memory or events of this one, or this one those of another.
pub fn is_used() -> bool {
    ANY.load(Ordering::Acquire)
}

/// The 64 bytes that tell what is meant; `content` has 55 bytes at most.
pub fn handle(kind: Kind, content: &[u8]) -> [c_char; LENGTH] {
    ANY.store(true, Ordering::Release);
    let mut bytes = [0; LENGTH];
    bytes[..MAGIC.len()].copy_from_slice(&MAGIC);
    bytes[MAGIC.len()] = kind as u8;
    bytes[MAGIC.len() + 1..][..content.len()].copy_from_slice(content);
    chars(bytes)
}

/// Bytes as C's characters, which have a sign on x86-64 and none on AArch64.
pub fn chars(bytes: [u8; LENGTH]) -> [c_char; LENGTH] {
    bytes.map(|byte| c_char::from_ne_bytes([byte]))
}

/// The bytes of C's characters.
pub fn bytes(chars: [c_char; LENGTH]) -> [u8; LENGTH] {
    chars.map(|char| u8::from_ne_bytes(char.to_ne_bytes()))
}

/// What 64 bytes of this kind tell; others are refused.
pub fn content(handle: &[c_char; LENGTH], kind: Kind) -> Result<[u8; CONTENT], CUresult> {
    let bytes = bytes(*handle);
    if bytes[..MAGIC.len()] != MAGIC || bytes[MAGIC.len()] != kind as u8 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    ANY.store(true, Ordering::Release);
    let mut content = [0; CONTENT];
    content.copy_from_slice(&bytes[MAGIC.len() + 1..]);
    Ok(content)
}

/// A new descriptor that says this.
pub fn descriptor(kind: Kind, content: &[u8]) -> Result<OwnedFd, CUresult> {
    let refused = CUresult::CUDA_ERROR_OPERATING_SYSTEM;
    let content = bytes(handle(kind, content));
    // SAFETY: the call takes text that lives for ever.
    let number = unsafe { libc::memfd_create(c"causeway export".as_ptr(), libc::MFD_CLOEXEC) };
    if number < 0 {
        return Err(refused);
    }
    // SAFETY: made just now, and owned by nobody else.
    let file = above_stdio(unsafe { File::from_raw_fd(number) }).map_err(|_| refused)?;
    threads::without_sigxfsz(|| file.write_all_at(&content, 0)).map_err(|_| refused)?;
    Ok(file.into())
}

/// The first bytes of what a descriptor of this kind says.
pub fn read<const N: usize>(descriptor: BorrowedFd<'_>, kind: Kind) -> Result<[u8; N], CUresult> {
    let mut bytes = [0; LENGTH];
    // SAFETY: there is room for as many bytes as the call is told.
    let read = unsafe { libc::pread(descriptor.as_raw_fd(), bytes.as_mut_ptr().cast(), LENGTH, 0) };
    if read != LENGTH as isize {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let content = content(&bytes, kind)?;
    Ok(core::array::from_fn(|index| content[index]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn descriptor_round_trips_and_foreign_ones_are_refused() {
        let made = descriptor(Kind::Allocation, &[7; 16]).unwrap();
        assert_eq!(read(made.as_fd(), Kind::Allocation), Ok([7_u8; 16]));
        assert!(read::<16>(made.as_fd(), Kind::Pool).is_err());
        let other = File::open("/dev/null").unwrap();
        assert!(read::<16>(other.as_fd(), Kind::Allocation).is_err());
        assert!(content(&[0; LENGTH], Kind::Event).is_err());
    }
}
