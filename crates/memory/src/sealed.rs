//! Sealed memfd: memory of another process that is safe to map.
//!
//! One whose size is sealed. Of any other the owner could take pages away, which would end the processes that have mapped
//! it.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};

use causeway_sync::descriptors::above_stdio;
use causeway_sync::threads;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create};
use thiserror::Error;

/// Why memory of another process is not taken, or none can be made for it.
#[derive(Debug, Error)]
pub enum SealedMemoryError {
    /// The other process could take pages away, which would end this one.
    #[error("the memory is not sealed against truncation")]
    NotSealed,
    /// It is smaller or larger than was said.
    #[error("the memory has {found} bytes instead of {expected}")]
    WrongSize {
        /// Bytes that were announced.
        expected: u64,
        /// Bytes that there are.
        found: u64,
    },
    /// The system refuses it.
    #[error("cannot share memory of {bytes} bytes: {cause}")]
    System {
        /// How large it is.
        bytes: u64,
        /// What the system said.
        cause: io::Error,
    },
}

/// Memory of another process that stays as long as it is: a memfd whose size is sealed.
#[derive(Debug)]
pub struct SealedMemory {
    descriptor: OwnedFd,
    bytes: u64,
}

impl SealedMemory {
    /// Makes such memory.
    pub fn new(name: &str, bytes: u64) -> Result<Self, SealedMemoryError> {
        let make = || -> io::Result<OwnedFd> {
            let made = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
            let descriptor = above_stdio(made)?;
            threads::without_sigxfsz(|| Ok(ftruncate(&descriptor, bytes)?))?;
            fcntl_add_seals(&descriptor, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
            Ok(descriptor)
        };
        let descriptor = make().map_err(|cause| SealedMemoryError::System { bytes, cause })?;
        Ok(Self { descriptor, bytes })
    }

    /// Makes such memory with the bytes that lie at `start`. The kernel copies them: the new memory is mapped nowhere.
    ///
    /// # Safety
    /// There must be so many bytes at `start`, which may be read. Who writes to them meanwhile finds any mixture of
    /// what was there before and after.
    pub unsafe fn copy_of(name: &str, start: *const u8, bytes: usize) -> Result<Self, SealedMemoryError> {
        let memory = Self::new(name, bytes as u64)?;
        let mut written = 0;
        while written < bytes {
            let descriptor = memory.descriptor.as_raw_fd();
            // SAFETY: the caller has the bytes, of which only the kernel sees any.
            let count = unsafe {
                libc::pwrite(descriptor, start.add(written).cast(), bytes - written, written as libc::off_t)
            };
            match count {
                1.. => written += count as usize,
                0 => return Err(memory.refused(io::ErrorKind::WriteZero.into())),
                _ => match io::Error::last_os_error() {
                    cause if cause.kind() == io::ErrorKind::Interrupted => {}
                    cause => return Err(memory.refused(cause)),
                },
            }
        }
        Ok(memory)
    }

    fn refused(&self, cause: io::Error) -> SealedMemoryError {
        SealedMemoryError::System { bytes: self.bytes, cause }
    }

    /// Checks what another process has sent: only a sealed descriptor of exactly `bytes` is taken.
    pub fn check(descriptor: OwnedFd, bytes: u64) -> Result<Self, SealedMemoryError> {
        let needed = SealFlags::SHRINK | SealFlags::GROW;
        // What cannot be sealed at all says so with an error.
        if !fcntl_get_seals(&descriptor).is_ok_and(|seals| seals.contains(needed)) {
            return Err(SealedMemoryError::NotSealed);
        }
        let system = |cause: rustix::io::Errno| SealedMemoryError::System { bytes, cause: cause.into() };
        let found = fstat(&descriptor).map_err(system)?.st_size as u64;
        if found == bytes {
            Ok(Self { descriptor, bytes })
        } else {
            Err(SealedMemoryError::WrongSize { expected: bytes, found })
        }
    }

    /// Its size in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Its descriptor.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        use std::os::fd::AsFd as _;
        self.descriptor.as_fd()
    }
}

impl From<SealedMemory> for OwnedFd {
    fn from(memory: SealedMemory) -> Self {
        memory.descriptor
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sealed_memory_of_the_right_size_is_taken() {
        let memory = SealedMemory::new("test", 8192).unwrap();
        let copy = || memory.descriptor.try_clone().unwrap();
        let bytes = memory.bytes();
        assert!(SealedMemory::check(copy(), bytes).is_ok());
        let other = SealedMemory::check(copy(), bytes + 1);
        assert!(matches!(other, Err(SealedMemoryError::WrongSize { .. })));
        let unsealed = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&unsealed, bytes).unwrap();
        assert!(matches!(SealedMemory::check(unsealed, bytes), Err(SealedMemoryError::NotSealed)));
        let file = OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        assert!(matches!(SealedMemory::check(file, bytes), Err(SealedMemoryError::NotSealed)));
        assert!(ftruncate(&memory.descriptor, 0).is_err(), "what is sealed cannot be cut short");
    }

    #[test]
    fn a_copy_has_the_bytes_and_may_be_too_large() {
        let bytes: Vec<u8> = (0..100_003_u32).map(|at| (at % 251) as u8).collect();
        // SAFETY: the bytes of a vector.
        let copy = unsafe { SealedMemory::copy_of("test", bytes.as_ptr(), bytes.len()) }.unwrap();
        let mut found = vec![0; bytes.len()];
        rustix::io::pread(copy.descriptor(), &mut found, 0).unwrap();
        assert_eq!((found, copy.bytes()), (bytes, 100_003));
        // SAFETY: what cannot be read is refused by the kernel, and nothing is read here.
        let refused = unsafe { SealedMemory::copy_of("test", core::ptr::without_provenance(8), 4096) };
        assert!(matches!(refused, Err(SealedMemoryError::System { bytes: 4096, .. })));
    }
}
