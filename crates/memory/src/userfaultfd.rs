//! userfaultfd: the kernel holds back who writes to a range of memory, or notes which pages are written to.
//!
//! The numbers are those of `linux/userfaultfd.h`.

use causeway_sync::descriptors::above_stdio;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};

/// `UFFD_API`, and `UFFD_USER_MODE_ONLY`.
const API: u64 = 0xaa;
const USER_MODE_ONLY: i32 = 1;

/// `UFFD_FEATURE_*`.
mod feature {
    pub const PAGEFAULT_FLAG_WP: u64 = 1;
    pub const WP_HUGETLBFS_SHMEM: u64 = 1 << 12;
    pub const WP_UNPOPULATED: u64 = 1 << 13;
    pub const WP_ASYNC: u64 = 1 << 15;
    pub const MOVE: u64 = 1 << 16;
}

/// `UFFDIO_*`. `NEW` is that of `/dev/userfaultfd`.
mod request {
    pub const NEW: libc::c_ulong = 0xaa00;
    pub const SET_API: libc::c_ulong = 0xc018_aa3f;
    pub const REGISTER: libc::c_ulong = 0xc020_aa00;
    pub const UNREGISTER: libc::c_ulong = 0x8010_aa01;
    pub const WAKE: libc::c_ulong = 0x8010_aa02;
    pub const MOVE: libc::c_ulong = 0xc028_aa05;
    pub const WRITEPROTECT: libc::c_ulong = 0xc018_aa06;
}

/// `UFFDIO_WRITEPROTECT_MODE_WP`, and `UFFDIO_MOVE_MODE_ALLOW_SRC_HOLES`.
const WRITEPROTECT_MODE_WP: u64 = 1;
const MOVE_MODE_ALLOW_SRC_HOLES: u64 = 1 << 1;

/// What a range is registered for (`UFFDIO_REGISTER_MODE_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Whoever comes to a page that is not there.
    Missing = 1,
    /// Whoever writes.
    WriteProtect = 1 << 1,
}

/// A userfaultfd. A range that is registered with it stays so until it is unregistered or unmapped, or the
/// descriptor is closed, which also wakes who waits. Errors of its requests are the kernel's numbers: they are made
/// where nothing may be allocated.
#[derive(Debug)]
pub struct Userfaultfd(OwnedFd);

impl Userfaultfd {
    /// One that holds back programs and system calls, moves pages and protects those of files from being written
    /// (Linux 6.8).
    ///
    /// # Errors
    /// When the kernel is too old, or this process may not have one: it needs `CAP_SYS_PTRACE`, or the right to open
    /// `/dev/userfaultfd`, or `vm.unprivileged_userfaultfd`.
    pub fn for_write_barriers() -> io::Result<Self> {
        let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
        let faults = by_system_call(flags).or_else(|_| {
            let device = OpenOptions::new().read(true).write(true).open("/dev/userfaultfd")?;
            // SAFETY: the request takes a number and makes a descriptor.
            owned(unsafe { libc::ioctl(device.as_raw_fd(), request::NEW, flags) })
        })?;
        let features = feature::PAGEFAULT_FLAG_WP
            | feature::WP_HUGETLBFS_SHMEM
            | feature::WP_UNPOPULATED
            | feature::MOVE;
        Self::enabled(faults, features)
    }

    /// One that only has the kernel note which pages are written to (Linux 6.7):
    /// [`Pagemap`](crate::pagemap::Pagemap) says which. It needs no privilege.
    ///
    /// # Errors
    /// When the kernel is too old, or a seccomp filter refuses the call.
    pub fn for_tracking_writes() -> io::Result<Self> {
        let faults = by_system_call(libc::O_CLOEXEC | libc::O_NONBLOCK | USER_MODE_ONLY)?;
        Self::enabled(faults, feature::PAGEFAULT_FLAG_WP | feature::WP_UNPOPULATED | feature::WP_ASYNC)
    }

    fn enabled(faults: OwnedFd, features: u64) -> io::Result<Self> {
        let faults = Self(faults);
        faults.request(request::SET_API, &mut [API, features, 0]).map_err(io::Error::from_raw_os_error)?;
        Ok(faults)
    }

    /// Registers `bytes` of memory from `start` on, whole pages.
    ///
    /// # Errors
    /// The kernel's number.
    pub fn register(&self, start: u64, bytes: u64, mode: Mode) -> Result<(), i32> {
        self.request(request::REGISTER, &mut [start, bytes, mode as u64, 0])
    }

    /// Ends that, and the protection of the range.
    ///
    /// # Errors
    /// The kernel's number: for memory that the program has unmapped, for instance.
    pub fn unregister(&self, start: u64, bytes: u64) -> Result<(), i32> {
        self.request(request::UNREGISTER, &mut [start, bytes])
    }

    /// Wakes who waits for pages of a range.
    ///
    /// # Errors
    /// The kernel's number.
    pub fn wake(&self, start: u64, bytes: u64) -> Result<(), i32> {
        self.request(request::WAKE, &mut [start, bytes])
    }

    /// Protects a registered range from being written.
    ///
    /// # Errors
    /// The kernel's number.
    pub fn write_protect(&self, start: u64, bytes: u64) -> Result<(), i32> {
        self.request(request::WRITEPROTECT, &mut [start, bytes, WRITEPROTECT_MODE_WP])
    }

    /// Moves the pages of private memory to a registered range where there are none.
    ///
    /// # Errors
    /// How many bytes have been moved, and the kernel's number.
    pub fn move_pages(&self, from: u64, to: u64, bytes: u64) -> Result<(), (u64, i32)> {
        let mut moved = 0;
        while moved < bytes {
            let mut request = [to + moved, from + moved, bytes - moved, MOVE_MODE_ALLOW_SRC_HOLES, 0];
            match self.request(request::MOVE, &mut request) {
                Ok(()) => return Ok(()),
                // The last word is how far it has come, or why it has not.
                Err(libc::EAGAIN) => moved += u64::try_from(request[4].cast_signed()).unwrap_or(0),
                Err(code) => return Err((moved, code)),
            }
        }
        Ok(())
    }

    fn request<const N: usize>(&self, request: libc::c_ulong, argument: &mut [u64; N]) -> Result<(), i32> {
        // SAFETY: every request here comes with the structure of numbers that the kernel reads and writes.
        let result = unsafe { libc::ioctl(self.0.as_raw_fd(), request, argument.as_mut_ptr()) };
        if result < 0 { Err(last_error()) } else { Ok(()) }
    }
}

fn by_system_call(flags: i32) -> io::Result<OwnedFd> {
    // SAFETY: the call takes a number and makes a descriptor.
    owned(unsafe { libc::syscall(libc::SYS_userfaultfd, flags) } as RawFd)
}

/// The descriptor that a call has just made, or the call's error.
fn owned(made: RawFd) -> io::Result<OwnedFd> {
    if made < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has just made it, so it is owned by no other value.
    above_stdio(unsafe { OwnedFd::from_raw_fd(made) })
}

/// The number of this thread's last error, without an allocation.
pub(crate) fn last_error() -> i32 {
    // SAFETY: the address is this thread's own.
    unsafe { *libc::__errno_location() }
}
