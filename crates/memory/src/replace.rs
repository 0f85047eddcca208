//! Atomic replacement of mapped pages while other threads use them.
//!
//! The new pages get the bytes of the old ones and come in their place, and no write that anybody makes
//! meanwhile is lost: the kernel holds back who writes, programs as well as system calls, from before the
//! bytes are copied until the new pages are there (`userfaultfd`). That is done in parts, so that nobody waits
//! for more than one of them to be copied.
//!
//! Private pages are taken away for that (Linux 6.8), which the kernel refuses for those that a device or a
//! system call to come has pinned: they would go on using the old pages. Those of files are protected from
//! being written; of their being pinned the kernel says nothing.
//!
//! The kernel lets system calls wait only for processes that may watch others (`CAP_SYS_PTRACE`, or the right
//! to open `/dev/userfaultfd`, or `vm.unprivileged_userfaultfd`). Without that they would fail, which a
//! program cannot expect: then nothing is replaced.

use crate::userfaultfd::{Mode, Userfaultfd, last_error};
use std::io;
use std::mem::MaybeUninit;

/// Bytes that are replaced at a time: copied in about 0.2 ms.
const PART: usize = 1 << 20;

/// What is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Memory of this process alone.
    Private,
    /// Pages of a file in memory.
    File,
}

/// Holds back who writes to memory.
#[derive(Debug)]
pub struct WriteBarrier {
    faults: Userfaultfd,
}

impl WriteBarrier {
    /// Asks the kernel for one.
    ///
    /// # Errors
    /// When it is too old, or this process may not have one.
    pub fn new() -> io::Result<Self> {
        Userfaultfd::for_write_barriers().map(|faults| Self { faults })
    }

    /// Puts the `bytes` of memory at `new`, whole pages, in the place of those at `old`, with what these
    /// hold. Afterwards nothing is at `new`. On an error the first pages may have been replaced, which the
    /// result tells; all hold what they held.
    ///
    /// # Errors
    /// Of private memory: when some of it is pinned or shared with a forked child (`EBUSY`), for instance.
    ///
    /// # Safety
    /// Both must be mapped, `new` for writing, and nobody else may use what is at `new`. What is at `old` may
    /// not be the stack of this thread; if it is a file's, no device may write to it.
    pub unsafe fn replace(
        &self,
        old: *mut u8,
        new: *mut u8,
        bytes: usize,
        kind: Kind,
    ) -> Result<(), (usize, io::Error)> {
        let aside = match kind {
            Kind::Private => Some(Self::aside().map_err(|cause| (0, cause))?),
            Kind::File => None,
        };
        // A handler that ran now and wrote to the memory would hold back this very thread.
        let signals = BlockedSignals::new();
        let mut at = 0;
        let mut failed = None;
        // From here to the end of the loop this thread writes to nothing but its stack and the new pages: it
        // takes no lock and allocates nothing, since both may lie in the pages that are replaced.
        while at < bytes && failed.is_none() {
            let length = PART.min(bytes - at);
            // SAFETY: the caller has both ranges mapped, and nobody else uses what is at `new`; the part is
            // inside both.
            let replaced = unsafe {
                let (old, new) = (old.add(at), new.add(at));
                match &aside {
                    Some(aside) => self.replace_private(old, new, length, aside.0),
                    None => self.replace_file(old, new, length),
                }
            };
            failed = replaced.err();
            at += if failed.is_none() { length } else { 0 };
        }
        drop(signals);
        match failed {
            Some(code) => Err((at, io::Error::from_raw_os_error(code))),
            None => Ok(()),
        }
    }

    /// Addresses that pages are taken away to.
    fn aside() -> io::Result<Aside> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping at an address of the system's choice touches nothing that exists.
        let address = unsafe { libc::mmap(core::ptr::null_mut(), PART, access, flags, -1, 0) };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Aside(address.cast()))
    }

    /// As [`Self::replace`], for a part of private memory, whose pages go to `aside` meanwhile; the error is the
    /// system's number.
    ///
    /// # Safety
    /// As there.
    unsafe fn replace_private(
        &self,
        old: *mut u8,
        new: *mut u8,
        length: usize,
        aside: *mut u8,
    ) -> Result<(), i32> {
        let (start, bytes) = (old as u64, length as u64);
        // Whoever comes to a page that is not there waits.
        self.faults.register(start, bytes, Mode::Missing)?;
        let replaced = self.take_away(old, aside, length).and_then(|()| {
            // SAFETY: what was taken away is nobody else's now, and the new pages are the caller's; what they
            // replace is what this function is for.
            unsafe {
                new.copy_from_nonoverlapping(aside, length);
                replace_mapping(new, old, length)
            }
            .inspect_err(|_| {
                let _ = self.move_pages(aside, old, length);
            })
        });
        if replaced.is_err() {
            let _ = self.faults.unregister(start, bytes);
        }
        // Whoever waits goes on, with the new pages or the old ones. The end of this barrier wakes them, too.
        let _ = self.faults.wake(start, bytes);
        // SAFETY: memory of this barrier alone, which has been copied.
        unsafe { libc::madvise(aside.cast(), PART, libc::MADV_DONTNEED) };
        replaced
    }

    /// Moves all pages at `old` to `aside`, or none.
    fn take_away(&self, old: *mut u8, aside: *mut u8, length: usize) -> Result<(), i32> {
        let (start, bytes) = (aside as u64, length as u64);
        self.faults.register(start, bytes, Mode::Missing)?;
        let moved = self.move_pages(old, aside, length);
        // Where there was no page is none now. That reads as zeros, and nobody is to be waited for.
        let closed = self.faults.unregister(start, bytes);
        let (gone, code) = match (moved, closed) {
            (Ok(()), Ok(())) => return Ok(()),
            (Err(partly), _) => partly,
            (Ok(()), Err(code)) => (length, code),
        };
        let _ = self.move_pages(aside, old, gone);
        Err(code)
    }

    /// Moves pages; on an error says how many bytes of them.
    fn move_pages(&self, from: *mut u8, to: *mut u8, length: usize) -> Result<(), (usize, i32)> {
        self.faults
            .move_pages(from as u64, to as u64, length as u64)
            .map_err(|(moved, code)| (moved as usize, code))
    }

    /// As [`Self::replace`], for a part of a file's pages; the error is the system's number.
    ///
    /// # Safety
    /// As there.
    unsafe fn replace_file(&self, old: *mut u8, new: *mut u8, length: usize) -> Result<(), i32> {
        let (start, bytes) = (old as u64, length as u64);
        self.faults.register(start, bytes, Mode::WriteProtect)?;
        let replaced = self.faults.write_protect(start, bytes).and_then(|()| {
            // SAFETY: both have as many bytes, and nobody writes to either; what is replaced is what this
            // function is for.
            unsafe {
                new.copy_from_nonoverlapping(old, length);
                replace_mapping(new, old, length)
            }
        });
        if replaced.is_err() {
            // Ends the protection, too.
            let _ = self.faults.unregister(start, bytes);
        }
        // Whoever waits goes on, with the new pages or the old ones. The end of this barrier wakes them, too.
        let _ = self.faults.wake(start, bytes);
        replaced
    }
}

/// Puts the pages at `new` in the place of those at `old`, at once for everybody who uses them.
///
/// The kernel is asked directly: libraries for network cards hook `mremap` (UCX's hook hands on four of its
/// five arguments, so that the pages would be moved to the address 0).
///
/// # Errors
/// The kernel's number.
///
/// # Safety
/// What is replaced must be the caller's to replace, and the new pages the caller's own. Both have `length` bytes.
pub unsafe fn replace_mapping(new: *mut u8, old: *mut u8, length: usize) -> Result<(), i32> {
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    // SAFETY: the caller owns the pages at `new`, and what is at `old` is its to replace, `length` bytes
    // each.
    let moved = unsafe { libc::syscall(libc::SYS_mremap, new, length, length, flags, old) };
    if moved == old as libc::c_long { Ok(()) } else { Err(last_error()) }
}

/// Addresses that pages are taken away to.
struct Aside(*mut u8);

impl Drop for Aside {
    fn drop(&mut self) {
        // SAFETY: mapped with this size, and nobody has its address.
        unsafe { libc::munmap(self.0.cast(), PART) };
    }
}

/// This thread gets no signals while this lives.
struct BlockedSignals(libc::sigset_t);

impl BlockedSignals {
    fn new() -> Self {
        let mut all = MaybeUninit::<libc::sigset_t>::uninit();
        let mut before = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: both are locals, which the calls fill in.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr());
            Self(before.assume_init())
        }
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        // SAFETY: the set was filled in by `new`.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, core::ptr::null_mut()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pages::page_size;
    use std::io::Read as _;
    use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    /// Stands in for the one of the C library, in all tests of this crate, as a hook does: it hands on all but
    /// the new address.
    #[unsafe(no_mangle)]
    extern "C" fn mremap(old: *mut u8, old_size: usize, new_size: usize, flags: libc::c_int) -> *mut u8 {
        // SAFETY: what the caller says of the memory.
        unsafe { libc::syscall(libc::SYS_mremap, old, old_size, new_size, flags, 0) as *mut u8 }
    }

    /// New memory: shared with forked children, or private.
    fn map(bytes: usize, kind: libc::c_int) -> *mut u8 {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the system's choice.
        let memory =
            unsafe { libc::mmap(core::ptr::null_mut(), bytes, access, kind | libc::MAP_ANONYMOUS, -1, 0) };
        assert_ne!(memory, libc::MAP_FAILED);
        memory.cast()
    }

    #[test]
    fn no_write_is_lost_while_pages_are_replaced_to_and_fro() {
        let Ok(barrier) = WriteBarrier::new() else {
            // A kernel or a sandbox that gives none: nothing is replaced there.
            return;
        };
        let bytes = 3 * PART + page_size();
        let memory = map(bytes, libc::MAP_PRIVATE);
        let base = memory as usize;
        // SAFETY: words of the memory, which stays mapped to the end of the test.
        let word = |at: usize| unsafe { &*((base + at) as *const AtomicU64) };
        let is_over = AtomicBool::new(false);
        let places = [0, 8, PART - 8, PART, 2 * PART + 64, bytes - 8];
        word(4096).store(77, Ordering::Relaxed);
        std::thread::scope(|scope| {
            let counted: Vec<_> = places
                .into_iter()
                .map(|range| {
                    let (is_over, word) = (&is_over, &word);
                    scope.spawn(move || {
                        let mut count = 0;
                        while !is_over.load(Ordering::Relaxed) {
                            count += 1;
                            assert_eq!(word(range).fetch_add(1, Ordering::Relaxed) + 1, count);
                        }
                        count
                    })
                })
                .collect();
            let reading = scope.spawn(|| {
                // A system call that writes waits as a store does, and never fails.
                let mut zeros = std::fs::File::open("/dev/zero").unwrap();
                while !is_over.load(Ordering::Relaxed) {
                    // SAFETY: a page that nobody else uses, in the memory.
                    let page = unsafe {
                        core::slice::from_raw_parts_mut(
                            (base + PART + 2 * page_size()) as *mut u8,
                            page_size(),
                        )
                    };
                    zeros.read_exact(page).unwrap();
                }
            });
            for round in 0..6 {
                let (kind, replaced) = if round % 2 == 0 {
                    (libc::MAP_SHARED, Kind::Private)
                } else {
                    (libc::MAP_PRIVATE, Kind::File)
                };
                let barrier = WriteBarrier::new().unwrap();
                // SAFETY: mapped with these sizes, the new memory for this alone.
                unsafe { barrier.replace(memory, map(bytes, kind), bytes, replaced) }.unwrap();
            }
            is_over.store(true, Ordering::Relaxed);
            for (range, counted) in places.into_iter().zip(counted) {
                let counted = counted.join().unwrap();
                assert_eq!(word(range).load(Ordering::Relaxed), counted);
            }
            reading.join().unwrap();
        });
        assert_eq!(word(4096).load(Ordering::Relaxed), 77);
        drop(barrier);
        // SAFETY: mapped above, and not used any more.
        unsafe { libc::munmap(memory.cast(), bytes) };
    }

    #[test]
    fn memory_that_is_not_there_is_not_replaced() {
        let Ok(barrier) = WriteBarrier::new() else { return };
        let bytes = 2 * page_size();
        let (gone, new) = (map(bytes, libc::MAP_PRIVATE), map(bytes, libc::MAP_SHARED));
        // SAFETY: mapped just now, and used by nobody.
        unsafe { libc::munmap(gone.cast(), bytes) };
        // Nothing is at the first address, which the kernel says.
        for kind in [Kind::Private, Kind::File] {
            // SAFETY: nothing is mapped at `gone`, and `new` is a mapping of this test alone.
            let replaced = unsafe { barrier.replace(gone, new, bytes, kind) };
            assert!(replaced.is_err_and(|(replaced, _)| replaced == 0));
        }
        // SAFETY: mapped above, and not used any more.
        unsafe { libc::munmap(new.cast(), bytes) };
    }

    #[test]
    fn pinned_memory_is_not_replaced_and_stays_what_it_was() {
        let Ok(barrier) = WriteBarrier::new() else { return };
        let bytes = 4 * page_size();
        let (memory, new) = (map(bytes, libc::MAP_PRIVATE), map(bytes, libc::MAP_SHARED));
        // SAFETY: the memory was mapped just now.
        unsafe { memory.write_bytes(7, bytes) };
        let Some(_ring) = pin(memory as usize + 2 * page_size(), page_size()) else { return };
        // SAFETY: mapped above, the new memory for this alone.
        let replaced = unsafe { barrier.replace(memory, new, bytes, Kind::Private) };
        assert!(
            replaced
                .is_err_and(|(replaced, cause)| replaced == 0 && cause.raw_os_error() == Some(libc::EBUSY))
        );
        // SAFETY: mapped above.
        assert!(unsafe { core::slice::from_raw_parts(memory, bytes) }.iter().all(|byte| *byte == 7));
        // SAFETY: mapped above, and not used any more.
        unsafe { (libc::munmap(memory.cast(), bytes), libc::munmap(new.cast(), bytes)) };
    }

    /// Has an `io_uring` pin memory, where the system has one.
    fn pin(start: usize, bytes: usize) -> Option<OwnedFd> {
        const REGISTER_BUFFERS: libc::c_long = 0;
        let mut parameters = [0_u64; 15];
        // SAFETY: the call fills in its parameters, which have 120 bytes.
        let ring = unsafe { libc::syscall(libc::SYS_io_uring_setup, 1, parameters.as_mut_ptr()) };
        if ring < 0 {
            return None;
        }
        // SAFETY: a descriptor that was made just now.
        let ring = unsafe { OwnedFd::from_raw_fd(ring as RawFd) };
        let memory = libc::iovec { iov_base: start as *mut _, iov_len: bytes };
        // SAFETY: the call reads one record.
        let pinned = unsafe {
            libc::syscall(
                libc::SYS_io_uring_register,
                ring.as_raw_fd(),
                REGISTER_BUFFERS,
                &raw const memory,
                1,
            )
        };
        (pinned == 0).then_some(ring)
    }
}
