//! Launches, and calls that wait.

use core::ffi::c_void;
use std::ffi::CString;

use super::clock::{Measured, Stopwatch};
use super::copies::Copies;
use super::driver::{DriverError, Gpu, Handle, cuda};
use super::error::CaseError;
use super::memory::DeviceMemory;
use crate::case::{ROW_OF_LAUNCHES, SMALL_COPY, Wait};

/// A kernel with some bytes of arguments.
#[derive(Debug)]
pub struct Kernel {
    gpu: &'static Gpu,
    module: Handle,
    function: Handle,
    /// The bytes, of which the first eight are an address or zero.
    arguments: Vec<u64>,
}

/// PTX of a kernel with this many bytes of arguments. Without arguments it does nothing. Else it stores the
/// last eight of them where the first eight point to, and nothing where these are zero.
fn source(arguments: u64) -> String {
    let head = ".version 7.0\n.target sm_52\n.address_size 64\n";
    if arguments == 0 {
        return format!("{head}.visible .entry kernel() {{ ret; }}\n");
    }
    format!(
        "{head}.visible .entry kernel(.param .align 8 .b8 arguments[{arguments}]) {{\n\
         .reg .pred %p;\n.reg .b64 %place;\n.reg .b64 %last;\n\
         ld.param.b64 %place, [arguments];\n\
         setp.eq.b64 %p, %place, 0;\n@%p bra end;\n\
         ld.param.b64 %last, [arguments+{}];\n\
         st.b64 [%place], %last;\nend:\nret;\n}}\n",
        arguments - 8
    )
}

impl Kernel {
    /// Loads the kernel; `arguments` is 0, or at least 16 and a multiple of 8.
    pub fn new(gpu: &'static Gpu, arguments: u64) -> Result<Self, DriverError> {
        let source = CString::new(source(arguments)).expect("the text has no zero byte");
        let mut module = core::ptr::null_mut();
        cuda!(gpu, cuModuleLoadData(&mut module, source.as_ptr().cast()))?;
        let function = core::ptr::null_mut();
        let mut kernel = Self { gpu, module, function, arguments: vec![0; arguments as usize / 8] };
        cuda!(gpu, cuModuleGetFunction(&mut kernel.function, module, c"kernel".as_ptr()))?;
        Ok(kernel)
    }

    fn launch(&mut self) -> Result<(), DriverError> {
        let null: Handle = core::ptr::null_mut();
        let mut parameters: [*mut c_void; 1] = [self.arguments.as_mut_ptr().cast()];
        let parameters = if self.arguments.is_empty() { null.cast() } else { parameters.as_mut_ptr() };
        cuda!(
            self.gpu,
            cuLaunchKernel(self.function, 1, 1, 1, 1, 1, 1, 0, null, parameters, core::ptr::null_mut())
        )
    }

    /// Launches many in a row, and says how long one took.
    pub fn measure_row(&mut self) -> Result<Measured, DriverError> {
        self.gpu.synchronize()?;
        let watch = Stopwatch::start();
        for _ in 0..ROW_OF_LAUNCHES {
            self.launch()?;
        }
        let returned = watch.lap();
        self.gpu.synchronize()?;
        Ok(watch.stop(returned, ROW_OF_LAUNCHES))
    }

    /// Checks that the last of the arguments arrives.
    pub fn verify(&mut self) -> Result<(), CaseError> {
        let gpu = self.gpu;
        let [.., last] = self.arguments.as_mut_slice() else { return Ok(()) };
        *last = 0x0123_4567_89ab_cdef;
        let expected = *last;
        let result = DeviceMemory::new(gpu, gpu.context, 8)?;
        self.arguments[0] = result.address();
        self.launch()?;
        self.arguments[0] = 0;
        let mut found = 0_u64;
        cuda!(gpu, cuMemcpyDtoH_v2((&raw mut found).cast(), result.address(), 8))?;
        if found == expected {
            return Ok(());
        }
        Err(CaseError::Wrong(format!(
            "the kernel got {found:#x} as its last argument and must get {expected:#x}"
        )))
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        // A failure has nobody to be told to, and the module goes with the process anyway.
        let _ = cuda!(self.gpu, cuModuleUnload(self.module));
    }
}

/// One of the calls that wait, with what it needs.
#[derive(Debug)]
pub enum Waiting {
    /// A copy of a few bytes.
    Copy(Copies),
    /// A launch and the wait for it.
    Launch(Kernel),
    /// An event, recorded in the stream and waited for.
    Event(&'static Gpu, Handle),
    /// A question about the idle stream.
    Query(&'static Gpu),
    /// A wait for the idle stream.
    Synchronize(&'static Gpu),
}

impl Waiting {
    /// Gets ready.
    pub fn new(gpu: &'static Gpu, wait: Wait) -> Result<Self, CaseError> {
        Ok(match wait {
            Wait::CopyPageableToDevice
            | Wait::CopyPageableFromDevice
            | Wait::CopyPinnedToDevice
            | Wait::CopyPinnedFromDevice => {
                let path = wait.copy().expect("these are the copies");
                Self::Copy(Copies::new(gpu, path, SMALL_COPY as usize)?)
            }
            Wait::LaunchAndSynchronize => Self::Launch(Kernel::new(gpu, 0)?),
            Wait::RecordAndSynchronize => {
                let mut event = core::ptr::null_mut();
                cuda!(gpu, cuEventCreate(&mut event, 0))?;
                Self::Event(gpu, event)
            }
            Wait::QueryIdle => Self::Query(gpu),
            Wait::SynchronizeIdle => Self::Synchronize(gpu),
        })
    }

    /// Does it once.
    pub fn measure(&mut self) -> Result<Measured, DriverError> {
        let watch = match self {
            Self::Copy(copies) => return copies.measure(),
            Self::Launch(kernel) => {
                kernel.gpu.synchronize()?;
                let watch = Stopwatch::start();
                kernel.launch()?;
                kernel.gpu.synchronize()?;
                watch
            }
            Self::Event(gpu, event) => {
                let watch = Stopwatch::start();
                cuda!(gpu, cuEventRecord(*event, gpu.stream))?;
                cuda!(gpu, cuEventSynchronize(*event))?;
                watch
            }
            Self::Query(gpu) => {
                let watch = Stopwatch::start();
                cuda!(gpu, cuStreamQuery(gpu.stream))?;
                watch
            }
            Self::Synchronize(gpu) => {
                let watch = Stopwatch::start();
                cuda!(gpu, cuStreamSynchronize(gpu.stream))?;
                watch
            }
        };
        let done = watch.lap();
        Ok(watch.stop(done, 1))
    }

    /// Checks what it copies, if it does.
    pub fn verify(&mut self) -> Result<(), CaseError> {
        match self {
            Self::Copy(copies) => copies.verify(),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::source;

    #[test]
    fn the_kernel_reads_its_last_argument() {
        assert!(source(0).contains("kernel()"));
        let text = source(4096);
        assert!(text.contains("arguments[4096]") && text.contains("[arguments+4088]"), "{text}");
    }
}
