//! Client of GDRCOPY's kernel module, and the errors of a BAR. Numbers and structures are those of the
//! module's header (`gdrdrv.h`, version 2).

use core::ffi::{c_int, c_ulong, c_void};
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

use causeway_sync::descriptors::above_stdio;
use thiserror::Error;

use crate::cuda::CudaError;

/// `ENOTSUPP` of the kernel, which has no name for programs.
const ENOTSUPP: i32 = 524;

/// Why a GPU's memory cannot be reached through its BAR.
#[derive(Debug, Error)]
pub enum BarError {
    /// There is no module.
    #[error(
        "there is no /dev/gdrdrv: the kernel module gdrdrv (GDRCOPY) is not loaded, or its device is not in \
         this container"
    )]
    NoModule,
    /// It may not be used.
    #[error("cannot open /dev/gdrdrv: {0}")]
    Open(#[source] io::Error),
    /// It is another version.
    #[error("the kernel module gdrdrv has version {major}.{minor}, and 2.0 or a later 2.x is needed")]
    Version {
        /// The part before the point.
        major: u32,
        /// The part behind it.
        minor: u32,
    },
    /// It does not say its version.
    #[error("the kernel module gdrdrv does not report its version, so it is older than 2.0: {0}")]
    NoVersion(#[source] io::Error),
    /// Memory is not pinned.
    #[error("gdrdrv cannot pin {bytes} bytes of the GPU's memory: {cause}")]
    Pin {
        /// How many there were.
        bytes: usize,
        /// What the system answered.
        cause: io::Error,
    },
    /// Memory is not mapped.
    #[error("cannot map {bytes} bytes of the GPU's memory: {cause}{}", advice(cause))]
    Map {
        /// How many there were.
        bytes: usize,
        /// What the system answered.
        cause: io::Error,
    },
    /// The driver makes no dma-buf.
    #[error("the GPU's driver cannot export its memory as a dma-buf: {0}")]
    NoDmaBuf(#[source] CudaError),
    /// The GPU is elsewhere.
    #[error("the GPU is on a server, and its BAR is not on this host")]
    Remote,
    /// It cannot be reached, as was found out before.
    #[error("{0}")]
    Unusable(&'static str),
    /// Not in the allocation.
    #[error("the bytes are not in one allocation")]
    Outside,
}

fn advice(cause: &io::Error) -> &'static str {
    match cause.raw_os_error() {
        Some(ENOTSUPP | libc::ENODEV | libc::EOPNOTSUPP) => {
            ". This NVIDIA driver cannot map a dma-buf of GPU memory (those of CUDA 13.3 and later can)"
        }
        Some(libc::ENOMEM) => ". The BAR may be full",
        _ => "",
    }
}

/// `GDRDRV_IOC_PIN_BUFFER`, `..._UNPIN_BUFFER` and `..._GET_VERSION`: both ways, the length of what is passed
/// (of the last two, of a pointer to it), the letter 0xda and a number.
const PIN: c_ulong = 0xc028_da01;
const UNPIN: c_ulong = 0xc008_da02;
const VERSION: c_ulong = 0xc008_daff;

/// The number in front of the point that this speaks with.
const MAJOR: u32 = 2;

/// `GDRDRV_IOC_PIN_BUFFER_PARAMS`. The token and the space are of drivers before the first that this
/// supports.
#[repr(C)]
#[derive(Debug, Default)]
struct PinBuffer {
    address: u64,
    bytes: u64,
    token: u64,
    space: u32,
    handle: u64,
}

/// `GDRDRV_IOC_GET_VERSION_PARAMS`.
#[repr(C)]
#[derive(Debug, Default)]
struct GetVersion {
    module: u32,
    oldest_interface: u32,
}

const _: () = assert!(size_of::<PinBuffer>() == 40 && size_of::<GetVersion>() == 8);

/// The module's device, opened by this process: what is pinned belongs to who has opened it.
#[derive(Debug)]
pub(super) struct Gdrdrv(OwnedFd);

/// Memory that is pinned: its number.
#[derive(Debug, Clone, Copy)]
pub(super) struct Handle(pub(super) u64);

impl Gdrdrv {
    pub(super) fn open() -> Result<Self, BarError> {
        // SAFETY: the name ends with a zero.
        let opened = unsafe { libc::open(c"/dev/gdrdrv".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
        if opened < 0 {
            let error = io::Error::last_os_error();
            return Err(match error.raw_os_error() {
                Some(libc::ENOENT | libc::ENXIO | libc::ENODEV) => BarError::NoModule,
                _ => BarError::Open(error),
            });
        }
        // SAFETY: the descriptor is new and nobody else's.
        let opened = unsafe { OwnedFd::from_raw_fd(opened) };
        let module = Self(above_stdio(opened).map_err(BarError::Open)?);
        let mut version = GetVersion::default();
        // SAFETY: the structure is that of the request.
        unsafe { module.ioctl(VERSION, (&raw mut version).cast()) }.map_err(BarError::NoVersion)?;
        let (major, minor) = (version.module >> 16, version.module & 0xffff);
        if major == MAJOR { Ok(module) } else { Err(BarError::Version { major, minor }) }
    }

    /// # Safety
    /// The structure is the request's.
    unsafe fn ioctl(&self, request: c_ulong, argument: *mut c_void) -> io::Result<()> {
        // SAFETY: the caller passes the structure that this request reads and writes.
        let status: c_int = unsafe { libc::ioctl(self.0.as_raw_fd(), request, argument) };
        if status < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Pins whole pages of a GPU's memory.
    pub(super) fn pin(&self, address: u64, bytes: usize) -> Result<Handle, BarError> {
        let mut request = PinBuffer { address, bytes: bytes as u64, ..PinBuffer::default() };
        // SAFETY: the structure is that of the request; the driver checks the address.
        unsafe { self.ioctl(PIN, (&raw mut request).cast()) }
            .map_err(|cause| BarError::Pin { bytes, cause })?;
        Ok(Handle(request.handle))
    }

    /// Gives it back.
    pub(super) fn unpin(&self, handle: Handle) {
        let mut number = handle.0;
        // SAFETY: the structure of the request is one number. An error says that the memory was freed, which
        // has given it back.
        let _ = unsafe { self.ioctl(UNPIN, (&raw mut number).cast()) };
    }

    /// What is mapped, and where in it pinned memory begins.
    pub(super) fn mapping_offset(&self, handle: Handle) -> (c_int, i64) {
        /// Handles stand for pages of 4 KiB.
        const SHIFT: u32 = 12;
        (self.0.as_raw_fd(), (handle.0 << SHIFT).cast_signed())
    }
}
