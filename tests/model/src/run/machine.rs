//! A driver, its devices, and calls without conditions.

use crate::driver::{self, Driver, Error, Handle};
use core::ffi::{CStr, c_int, c_void};
use std::path::Path;
use std::ptr::null_mut;
use std::time::Duration;

const KERNELS: &str = concat!(include_str!("../kernels.ptx"), "\0");

/// A driver with the contexts and kernels of its devices, at most two.
pub struct Machine {
    /// The driver.
    pub driver: Driver,
    /// The primary context of each device.
    pub contexts: Vec<Handle>,
    /// The kernels in each context.
    pub kernels: Vec<Kernels>,
    /// Whether managed memory can be had.
    pub managed: bool,
    /// Whether memory pools can be had.
    pub pools: bool,
    /// Whether streams can wait for values.
    pub values: bool,
}

/// The kernels of a context.
pub struct Kernels {
    /// Stores words made from a key.
    pub generate: Handle,
    /// Copies words and adds to them.
    pub copy: Handle,
}

/// Calls an entry point that gives a result through its first argument.
macro_rules! give {
    ($first:expr, $driver:expr, $call:ident($($argument:expr),*)) => {{
        let mut result = $first;
        // SAFETY: there is room for the result, and other arguments are values and handles that are alive.
        unsafe { $driver.$call(&raw mut result, $($argument),*) }?;
        Ok(result)
    }};
}

impl Machine {
    /// Opens a driver.
    pub fn open(library: &Path) -> Result<Self, String> {
        let driver = Driver::open(library).map_err(|error| {
            let cause =
                core::error::Error::source(&error).map_or(String::new(), |cause| format!(": {cause}"));
            format!("{}: {error}{cause}", library.display())
        })?;
        let mut machine = Self {
            driver,
            contexts: Vec::new(),
            kernels: Vec::new(),
            managed: true,
            pools: true,
            values: true,
        };
        machine.start().map_err(|error| error.to_string())?;
        Ok(machine)
    }

    fn start(&mut self) -> Result<(), Error> {
        // SAFETY: no arguments but flags.
        unsafe { self.driver.cuInit(0) }?;
        let count: Result<c_int, Error> = give!(0, self.driver, cuDeviceGetCount());
        for ordinal in 0..count?.min(2) {
            let device: Result<c_int, Error> = give!(0, self.driver, cuDeviceGet(ordinal));
            let device = device?;
            let context: Result<Handle, Error> =
                give!(null_mut(), self.driver, cuDevicePrimaryCtxRetain(device));
            self.contexts.push(context?);
            self.enter(self.contexts.len() - 1)?;
            let module: Result<Handle, Error> =
                give!(null_mut(), self.driver, cuModuleLoadData(KERNELS.as_ptr().cast()));
            let module = module?;
            let function = |name: &CStr| -> Result<Handle, Error> {
                give!(null_mut(), self.driver, cuModuleGetFunction(module, name.as_ptr()))
            };
            let kernels = Kernels { generate: function(c"generate")?, copy: function(c"move")? };
            self.kernels.push(kernels);
            let attribute = |attribute| -> Result<c_int, Error> {
                give!(0, self.driver, cuDeviceGetAttribute(attribute, device))
            };
            self.managed &= attribute(driver::ATTRIBUTE_MANAGED)? != 0;
            self.pools &= attribute(driver::ATTRIBUTE_POOLS)? != 0;
            self.warm_up()?;
        }
        self.enter(0)
    }

    /// Launches each kernel, since a driver may load it then and wait for the device, and tries stream memory
    /// operations.
    fn warm_up(&mut self) -> Result<(), Error> {
        let words = self.make_words(4)?;
        let kernels = &self.kernels[self.kernels.len() - 1];
        self.launch_generate(kernels.generate, words, 1, 0, 0, null_mut())?;
        self.launch_move(kernels.copy, (words + 4, words), 1, 0, 0, null_mut())?;
        self.synchronize()?;
        let stream = self.create_stream(driver::NON_BLOCKING)?;
        // SAFETY: the word is device memory and the stream alive.
        let written = unsafe { self.driver.cuStreamWriteValue32_v2(stream, words, 1, 0) };
        self.values &= written.is_ok();
        self.synchronize()?;
        self.destroy_stream(stream)?;
        self.free_words(words)
    }

    /// Makes a device's context current.
    pub fn enter(&self, device: usize) -> Result<(), Error> {
        // SAFETY: the context is retained.
        unsafe { self.driver.cuCtxSetCurrent(self.contexts[device]) }
    }

    /// Waits for the current context, once no thread captures a stream of it: that is an error otherwise, and
    /// spoils the capture.
    pub fn synchronize(&self) -> Result<(), Error> {
        loop {
            // SAFETY: no arguments.
            match unsafe { self.driver.cuCtxSynchronize() } {
                // Longer than a capture takes, which begins anew.
                Err(Error { code: driver::CAPTURE_UNSUPPORTED, .. }) => {
                    std::thread::sleep(Duration::from_millis(2));
                }
                other => return other,
            }
        }
    }

    pub(super) fn create_stream(&self, flags: u32) -> Result<Handle, Error> {
        give!(null_mut(), self.driver, cuStreamCreate(flags))
    }

    pub(super) fn destroy_stream(&self, stream: Handle) -> Result<(), Error> {
        // SAFETY: a stream that is alive.
        unsafe { self.driver.cuStreamDestroy_v2(stream) }
    }

    pub(super) fn create_event(&self) -> Result<Handle, Error> {
        give!(null_mut(), self.driver, cuEventCreate(driver::DISABLE_TIMING))
    }

    pub(super) fn destroy_event(&self, event: Handle) -> Result<(), Error> {
        // SAFETY: an event that is alive.
        unsafe { self.driver.cuEventDestroy_v2(event) }
    }

    pub(super) fn destroy_executable(&self, executable: Handle) -> Result<(), Error> {
        if executable.is_null() {
            return Ok(());
        }
        // SAFETY: an executable graph that is alive.
        unsafe { self.driver.cuGraphExecDestroy(executable) }
    }

    pub(super) fn allocate(&self, size: usize) -> Result<u64, Error> {
        give!(0, self.driver, cuMemAlloc_v2(size))
    }

    pub(super) fn allocate_async(&self, size: usize, stream: Handle) -> Result<u64, Error> {
        give!(0, self.driver, cuMemAllocAsync(size, stream))
    }

    pub(super) fn allocate_managed(&self, size: usize) -> Result<u64, Error> {
        give!(0, self.driver, cuMemAllocManaged(size, driver::ATTACH_GLOBAL))
    }

    pub(super) fn allocate_host(&self, size: usize, mapped: bool) -> Result<*mut u8, Error> {
        let flags = driver::PORTABLE | if mapped { driver::DEVICE_MAP } else { 0 };
        let address: Result<*mut c_void, Error> = give!(null_mut(), self.driver, cuMemHostAlloc(size, flags));
        address.map(<*mut c_void>::cast)
    }

    pub(super) fn device_pointer(&self, host: *mut u8) -> Result<u64, Error> {
        give!(0, self.driver, cuMemHostGetDevicePointer_v2(host.cast(), 0))
    }

    pub(super) fn register(&self, host: *mut u8, size: usize) -> Result<(), Error> {
        // SAFETY: the memory is there until it is unregistered.
        unsafe { self.driver.cuMemHostRegister_v2(host.cast(), size, driver::PORTABLE) }
    }

    pub(super) fn unregister(&self, host: *mut u8) -> Result<(), Error> {
        // SAFETY: it was registered.
        unsafe { self.driver.cuMemHostUnregister(host.cast()) }
    }

    pub(super) fn free(&self, device: u64) -> Result<(), Error> {
        // SAFETY: allocated, and used no more.
        unsafe { self.driver.cuMemFree_v2(device) }
    }

    pub(super) fn free_async(&self, device: u64, stream: Handle) -> Result<(), Error> {
        // SAFETY: allocated, and used no more by what comes later in the stream.
        unsafe { self.driver.cuMemFreeAsync(device, stream) }
    }

    pub(super) fn free_host(&self, host: *mut u8) -> Result<(), Error> {
        // SAFETY: allocated, and used no more.
        unsafe { self.driver.cuMemFreeHost(host.cast()) }
    }

    pub(super) fn upload(&self, to: u64, bytes: &[u8]) -> Result<(), Error> {
        // SAFETY: both sides have that many bytes.
        unsafe { self.driver.cuMemcpyHtoD_v2(to, bytes.as_ptr().cast(), bytes.len()) }
    }

    pub(super) fn download(&self, bytes: &mut [u8], from: u64) -> Result<(), Error> {
        // SAFETY: both sides have that many bytes.
        unsafe { self.driver.cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), from, bytes.len()) }
    }

    pub(super) fn make_words(&self, words: usize) -> Result<u64, Error> {
        let address = self.allocate(words * 4)?;
        // SAFETY: it has that many words.
        unsafe { self.driver.cuMemsetD32_v2(address, 0, words) }?;
        Ok(address)
    }

    pub(super) fn free_words(&self, words: u64) -> Result<(), Error> {
        if words == 0 { Ok(()) } else { self.free(words) }
    }

    pub(super) fn launch_generate(
        &self,
        kernel: Handle,
        mut to: u64,
        mut words: u32,
        mut key: u32,
        mut delay: u32,
        stream: Handle,
    ) -> Result<(), Error> {
        let mut parameters: [*mut c_void; 4] =
            [(&raw mut to).cast(), (&raw mut words).cast(), (&raw mut key).cast(), (&raw mut delay).cast()];
        self.launch(kernel, stream, &mut parameters)
    }

    pub(super) fn launch_move(
        &self,
        kernel: Handle,
        (mut to, mut from): (u64, u64),
        mut words: u32,
        mut constant: u32,
        mut delay: u32,
        stream: Handle,
    ) -> Result<(), Error> {
        let mut parameters: [*mut c_void; 5] = [
            (&raw mut to).cast(),
            (&raw mut from).cast(),
            (&raw mut words).cast(),
            (&raw mut constant).cast(),
            (&raw mut delay).cast(),
        ];
        self.launch(kernel, stream, &mut parameters)
    }

    fn launch(&self, kernel: Handle, stream: Handle, parameters: &mut [*mut c_void]) -> Result<(), Error> {
        let parameters = parameters.as_mut_ptr();
        // SAFETY: the parameters are those of the kernel, which are read in the call.
        unsafe { self.driver.cuLaunchKernel(kernel, 1, 1, 1, 64, 1, 1, 0, stream, parameters, null_mut()) }
    }
}
