//! Memory registration (memory regions, lkey and rkey).

use core::ffi::{c_int, c_void};
use core::ops::BitOr;
use core::ptr::NonNull;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;

use thiserror::Error;

use crate::device::{Device, DeviceError, last_error, made};
use crate::sys::*;
use crate::work::{RemoteMemory, Segment};

/// Why memory cannot be registered.
#[derive(Debug, Error)]
pub enum RegisterError {
    /// No memory of the process could be had.
    #[error("cannot allocate {bytes} bytes of memory for the RDMA device `{device}`: {source}")]
    NoMemory {
        /// Which device.
        device: String,
        /// How many bytes were wanted.
        bytes: usize,
        /// What the system answered.
        source: io::Error,
    },
    /// The device, or the kernel on its behalf, refuses.
    #[error("the RDMA device `{device}` cannot register {bytes} bytes of memory: {source}{}", advice(source))]
    Refused {
        /// Which device.
        device: String,
        /// How many bytes there were.
        bytes: usize,
        /// What the system answered.
        source: io::Error,
    },
    /// libibverbs is too old for dma-bufs.
    #[error(
        "this libibverbs cannot register memory of other devices (dma-buf): that came with rdma-core 34 (2021)"
    )]
    NoDmaBuf,
}

fn advice(source: &io::Error) -> &'static str {
    match source.raw_os_error() {
        Some(libc::ENOMEM) => {
            ". The limit of locked memory (ulimit -l, or memlock in /etc/security/limits.conf) may be too low for this user, \
             or the device has no regions left"
        }
        Some(libc::EFAULT) => ". The memory is not mapped, or not writable though writing was asked for",
        Some(libc::EOPNOTSUPP) => ". The device or its driver does not support this kind of memory",
        _ => "",
    }
}

/// What a device may do with a memory region, beyond reading it for its own requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access(pub(crate) c_int);

impl Access {
    /// Receive into it, and read from the peer into it.
    pub const LOCAL_WRITE: Self = Self(IBV_ACCESS_LOCAL_WRITE);
    /// The peer may write to it. Implies [`LOCAL_WRITE`](Self::LOCAL_WRITE), which devices demand.
    pub const REMOTE_WRITE: Self = Self(IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_LOCAL_WRITE);
    /// The peer may read it.
    pub const REMOTE_READ: Self = Self(IBV_ACCESS_REMOTE_READ);
    /// The peer may use it by atomic operations. Implies [`LOCAL_WRITE`](Self::LOCAL_WRITE).
    pub const REMOTE_ATOMIC: Self = Self(IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_LOCAL_WRITE);
}

impl BitOr for Access {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

#[derive(Debug)]
struct DomainInner {
    raw: NonNull<ibv_pd>,
    device: Device,
}

// SAFETY: libibverbs allows all calls from any thread.
unsafe impl Send for DomainInner {}
// SAFETY: libibverbs allows all calls from any thread.
unsafe impl Sync for DomainInner {}

impl Drop for DomainInner {
    fn drop(&mut self) {
        // SAFETY: regions and queue pairs of the domain hold it, so they have gone.
        unsafe { (self.device.libraries().verbs.ibv_dealloc_pd)(self.raw.as_ptr()) };
    }
}

/// Queue pairs and memory that belong together: a queue pair reaches the regions of its own domain only.
/// Clones are the same domain.
#[derive(Clone, Debug)]
pub struct ProtectionDomain(Arc<DomainInner>);

impl ProtectionDomain {
    /// A new domain.
    pub fn new(device: &Device) -> Result<Self, DeviceError> {
        // SAFETY: the context is open.
        let raw = unsafe { (device.libraries().verbs.ibv_alloc_pd)(device.0.raw) };
        let raw = made(raw, device, "a protection domain")?;
        Ok(Self(Arc::new(DomainInner { raw, device: device.clone() })))
    }

    /// Its device.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    pub(crate) fn raw(&self) -> *mut ibv_pd {
        self.0.raw.as_ptr()
    }
}

/// Memory that a device can reach. It is pinned as long as this lives.
#[derive(Debug)]
pub struct MemoryRegion {
    raw: NonNull<ibv_mr>,
    address: u64,
    length: usize,
    domain: ProtectionDomain,
}

// SAFETY: libibverbs allows all calls from any thread; the region gives out only numbers.
unsafe impl Send for MemoryRegion {}
// SAFETY: libibverbs allows all calls from any thread; the region gives out only numbers.
unsafe impl Sync for MemoryRegion {}

impl Drop for MemoryRegion {
    fn drop(&mut self) {
        // SAFETY: registered by us, and deregistered once. Requests that still name it fail in the device.
        unsafe { (self.domain.device().libraries().verbs.ibv_dereg_mr)(self.raw.as_ptr()) };
    }
}

impl MemoryRegion {
    /// Registers memory of this process.
    ///
    /// # Safety
    /// The memory must stay mapped as long as the region lives. With [`Access::LOCAL_WRITE`] the device
    /// writes to it whenever a request that this process has posted says so, with [`Access::REMOTE_WRITE`]
    /// whenever the peer of a queue pair of the domain does.
    pub unsafe fn register(
        domain: &ProtectionDomain,
        address: *mut u8,
        length: usize,
        access: Access,
    ) -> Result<Self, RegisterError> {
        let verbs = domain.device().libraries().verbs;
        // SAFETY: the domain lives; what the memory must be is the caller's duty.
        let raw = unsafe { (verbs.ibv_reg_mr)(domain.raw(), address.cast::<c_void>(), length, access.0) };
        Self::registered(raw, domain, address as u64, length)
    }

    /// Registers memory of another device, such as a GPU, by its dma-buf: `length` bytes from `offset` on.
    /// Requests name its bytes by addresses that begin at `address`, which nothing needs to be mapped at.
    ///
    /// # Safety
    /// As for [`register`](Self::register): the memory belongs to the exporter, and the device writes to it
    /// when requests say so.
    pub unsafe fn register_dma_buf(
        domain: &ProtectionDomain,
        descriptor: BorrowedFd<'_>,
        offset: u64,
        length: usize,
        address: u64,
        access: Access,
    ) -> Result<Self, RegisterError> {
        let register = domain.device().libraries().verbs.ibv_reg_dmabuf_mr.ok_or(RegisterError::NoDmaBuf)?;
        // SAFETY: the domain lives and the descriptor is open; the rest is the caller's duty.
        let raw =
            unsafe { register(domain.raw(), offset, length, address, descriptor.as_raw_fd(), access.0) };
        Self::registered(raw, domain, address, length)
    }

    fn registered(
        raw: *mut ibv_mr,
        domain: &ProtectionDomain,
        address: u64,
        length: usize,
    ) -> Result<Self, RegisterError> {
        let raw = NonNull::new(raw).ok_or_else(|| RegisterError::Refused {
            device: domain.device().name().to_owned(),
            bytes: length,
            source: last_error(),
        })?;
        Ok(Self { raw, address, length, domain: domain.clone() })
    }

    /// The address of its first byte, as requests name it.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Bytes in it.
    pub fn len(&self) -> usize {
        self.length
    }

    /// The memory has no bytes.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The key by which requests of this process name it.
    pub fn local_key(&self) -> u32 {
        // SAFETY: the region is registered.
        unsafe { self.raw.as_ref().lkey }
    }

    /// The key by which the peer names it.
    pub fn remote_key(&self) -> u32 {
        // SAFETY: the region is registered.
        unsafe { self.raw.as_ref().rkey }
    }

    /// Some of its bytes, for a request of this process.
    ///
    /// # Panics
    /// If they do not lie in the region.
    pub fn segment(&self, offset: usize, length: usize) -> Segment {
        assert!(
            offset <= self.length && length <= self.length - offset,
            "the segment does not lie in the region"
        );
        Segment {
            address: self.address + offset as u64,
            length: u32::try_from(length).expect("a request moves less than 4 GiB"),
            key: self.local_key(),
        }
    }

    /// Its bytes from `offset` on, as a request of the peer names them.
    pub fn remote(&self, offset: usize) -> RemoteMemory {
        RemoteMemory { address: self.address + offset as u64, key: self.remote_key() }
    }
}

/// Memory of our own that is registered: zeroed, on whole pages.
#[derive(Debug)]
pub struct Buffer {
    /// Dropped before the memory goes.
    region: Option<MemoryRegion>,
    address: NonNull<u8>,
    length: usize,
}

// SAFETY: a buffer gives out its address and no references.
unsafe impl Send for Buffer {}
// SAFETY: a buffer gives out its address and no references.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Maps and registers `length` bytes, which must not be 0.
    pub fn new(domain: &ProtectionDomain, length: usize, access: Access) -> Result<Self, RegisterError> {
        // SAFETY: a new mapping at an address of the kernel's choice.
        let address = unsafe {
            libc::mmap(
                core::ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        let no_memory = || RegisterError::NoMemory {
            device: domain.device().name().to_owned(),
            bytes: length,
            source: last_error(),
        };
        if address == libc::MAP_FAILED {
            return Err(no_memory());
        }
        // A child that the program forks must not make the pages copies of themselves: the device would go on
        // with the old ones. SAFETY: the range was mapped above.
        unsafe { libc::madvise(address, length, libc::MADV_DONTFORK) };
        let address = NonNull::new(address.cast::<u8>()).ok_or_else(no_memory)?;
        let mut buffer = Self { region: None, address, length };
        // SAFETY: the mapping lives until the buffer is dropped, which drops the region first.
        let region = unsafe { MemoryRegion::register(domain, address.as_ptr(), length, access) }?;
        buffer.region = Some(region);
        Ok(buffer)
    }

    /// Its first byte. Who accesses the bytes agrees with the requests that name them.
    pub fn as_ptr(&self) -> *mut u8 {
        self.address.as_ptr()
    }

    /// Bytes in it.
    pub fn len(&self) -> usize {
        self.length
    }

    /// The memory has no bytes.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// It as the device knows it.
    pub fn region(&self) -> &MemoryRegion {
        self.region.as_ref().expect("a buffer is registered from its making to its end")
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.region = None;
        // SAFETY: mapped by us, and no longer known to the device.
        unsafe { libc::munmap(self.address.as_ptr().cast(), self.length) };
    }
}
