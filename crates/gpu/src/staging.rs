//! Host memory for copies.

/// A piece of host memory for copies; freed or reused when dropped.
pub struct Staging {
    address: *mut u8,
    bytes: usize,
    release: Option<Box<dyn FnOnce(*mut u8, usize) + Send>>,
}

// SAFETY: a `Staging` owns its memory like a `Box<[u8]>` does.
unsafe impl Send for Staging {}
// SAFETY: shared references give out only the address; bytes are reached through `&mut` or by unsafe code.
unsafe impl Sync for Staging {}

impl Staging {
    /// Wraps memory of a back end.
    ///
    /// # Safety
    /// `address` must be valid for reads and writes of `bytes` initialised bytes until `release` is called.
    pub unsafe fn new(
        address: *mut u8,
        bytes: usize,
        release: impl FnOnce(*mut u8, usize) + Send + 'static,
    ) -> Self {
        Self { address, bytes, release: Some(Box::new(release)) }
    }

    /// The memory's address.
    pub fn as_ptr(&self) -> *mut u8 {
        self.address
    }

    /// Its size in bytes.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether the staging memory has no bytes.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Its bytes.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: valid and initialised by the contract of `new`; nobody writes while `self` is borrowed.
        unsafe { core::slice::from_raw_parts(self.address, self.bytes) }
    }

    /// Its bytes for writing.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: valid and initialised by the contract of `new`, and borrowed exclusively.
        unsafe { core::slice::from_raw_parts_mut(self.address, self.bytes) }
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        if let Some(release) = self.release.take() {
            release(self.address, self.bytes);
        }
    }
}
