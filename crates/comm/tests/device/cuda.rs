//! Ranks as streams of one process, whose kernels run on the GPU that the CUDA driver has.

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ffi::CString;
use std::sync::{Arc, OnceLock};

use causeway_comm::device::cuda::CudaGpu;
use causeway_comm::device::gpu::Gpu;

use super::machine::{Machine, Params, kernels};

/// The driver's first device, with the kernels loaded.
pub struct CudaMachine {
    library: *mut c_void,
    context: *mut c_void,
    module: *mut c_void,
}

// SAFETY: handles of the driver, which any thread may use.
unsafe impl Send for CudaMachine {}
// SAFETY: likewise.
unsafe impl Sync for CudaMachine {}

/// Room for all parameters behind each other: `CU_LAUNCH_PARAM_*`.
const BUFFER_POINTER: *mut c_void = core::ptr::without_provenance_mut(1);
const BUFFER_SIZE: *mut c_void = core::ptr::without_provenance_mut(2);

macro_rules! call {
    ($self:expr, $name:literal ($($argument:expr),*) : ($($type:ty),*)) => {{
        let function = $self.find($name);
        // SAFETY: the driver's function of this name has these types, and what is passed is as it wants it.
        let status = unsafe {
            type Function = unsafe extern "C" fn($($type),*) -> c_int;
            core::mem::transmute::<*mut c_void, Function>(function)($($argument),*)
        };
        assert_eq!(status, 0, "{:?}", $name);
    }};
}

impl CudaMachine {
    pub fn get() -> &'static Self {
        static MACHINE: OnceLock<CudaMachine> = OnceLock::new();
        let machine = MACHINE.get_or_init(|| {
            // SAFETY: the name ends with a zero.
            let library = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW) };
            assert!(!library.is_null(), "there is no libcuda.so.1");
            let null = core::ptr::null_mut();
            let mut machine = Self { library, context: null, module: null };
            call!(machine, c"cuInit" (0): (c_uint));
            let mut context: *mut c_void = null;
            call!(machine, c"cuDevicePrimaryCtxRetain" (&raw mut context, 0): (*mut *mut c_void, c_int));
            machine.context = context;
            machine.enter();
            let text = CString::new(kernels()).unwrap();
            let mut module: *mut c_void = null;
            call!(machine, c"cuModuleLoadData" (&raw mut module, text.as_ptr()):
                (*mut *mut c_void, *const c_char));
            machine.module = module;
            machine
        });
        machine.enter();
        machine
    }

    fn find(&self, name: &CStr) -> *mut c_void {
        // SAFETY: the library is open, and the name ends with a zero.
        let found = unsafe { libc::dlsym(self.library, name.as_ptr()) };
        assert!(!found.is_null(), "{name:?}");
        found
    }

    fn enter(&self) {
        call!(self, c"cuCtxSetCurrent" (self.context): (*mut c_void));
    }
}

impl Machine for CudaMachine {
    fn gpu(&self) -> Arc<dyn Gpu> {
        Arc::new(CudaGpu::current().unwrap())
    }

    fn launch(&self, kernel: &str, blocks: u32, threads: u32, parameters: &[Params]) {
        self.enter();
        let null = core::ptr::null_mut::<c_void>();
        let (mut function, name) = (null, CString::new(kernel).unwrap());
        call!(self, c"cuModuleGetFunction" (&raw mut function, self.module, name.as_ptr()):
            (*mut *mut c_void, *mut c_void, *const c_char));
        let mut streams = Vec::new();
        for _ in parameters {
            let mut stream = null;
            call!(self, c"cuStreamCreate" (&raw mut stream, 1): (*mut *mut c_void, c_uint));
            streams.push(stream);
        }
        for (stream, Params(bytes)) in streams.iter().zip(parameters) {
            let mut size = bytes.len();
            let mut extra =
                [BUFFER_POINTER, bytes.as_ptr().cast_mut().cast(), BUFFER_SIZE, (&raw mut size).cast(), null];
            call!(self, c"cuLaunchKernel"
                (function, blocks, 1, 1, threads, 1, 1, 0, *stream, core::ptr::null_mut(), extra.as_mut_ptr()):
                (*mut c_void, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, *mut c_void,
                 *mut *mut c_void, *mut *mut c_void));
        }
        for stream in streams {
            call!(self, c"cuStreamSynchronize" (stream): (*mut c_void));
            call!(self, c"cuStreamDestroy_v2" (stream): (*mut c_void));
        }
    }
}
