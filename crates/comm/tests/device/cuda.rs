//! Ranks as streams of one process, whose kernels run on the GPU that the CUDA driver has, or on several in turn:
//! as many as `CAUSEWAY_DEVICE_GPUS` says.

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ffi::CString;
use std::sync::{Arc, OnceLock};

use causeway_comm::device::cuda::CudaGpu;
use causeway_comm::device::gpu::Gpu;

use super::machine::{Machine, Params, kernels};

/// The driver's first devices, with the kernels loaded.
pub struct CudaMachine {
    library: *mut c_void,
    devices: Vec<Device>,
}

struct Device {
    context: *mut c_void,
    module: *mut c_void,
}

// SAFETY: handles of the driver, which any thread may use.
unsafe impl Send for CudaMachine {}
// SAFETY: handles of the driver, which any thread may use.
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
            let mut machine = Self { library, devices: Vec::new() };
            call!(machine, c"cuInit" (0): (c_uint));
            let text = CString::new(kernels()).unwrap();
            for device in 0..devices() {
                let (mut context, mut module) = (core::ptr::null_mut(), core::ptr::null_mut());
                call!(machine, c"cuDevicePrimaryCtxRetain" (&raw mut context, device):
                    (*mut *mut c_void, c_int));
                call!(machine, c"cuCtxSetCurrent" (context): (*mut c_void));
                call!(machine, c"cuModuleLoadData" (&raw mut module, text.as_ptr()):
                    (*mut *mut c_void, *const c_char));
                machine.devices.push(Device { context, module });
            }
            machine
        });
        machine.enter(0);
        machine
    }

    fn find(&self, name: &CStr) -> *mut c_void {
        // SAFETY: the library is open, and the name ends with a zero.
        let found = unsafe { libc::dlsym(self.library, name.as_ptr()) };
        assert!(!found.is_null(), "{name:?}");
        found
    }

    /// Makes a device's context the calling thread's.
    fn enter(&self, device: usize) {
        call!(self, c"cuCtxSetCurrent" (self.devices[device].context): (*mut c_void));
    }
}

/// How many devices there are for the ranks.
fn devices() -> c_int {
    let wanted = std::env::var("CAUSEWAY_DEVICE_GPUS").ok();
    wanted.map_or(1, |count| count.parse().expect("CAUSEWAY_DEVICE_GPUS is a number"))
}

impl Machine for CudaMachine {
    fn gpus(&self) -> Vec<Arc<dyn Gpu>> {
        let numbers: Vec<i32> = (0..devices()).collect();
        let gpu = |number: &i32| -> Arc<dyn Gpu> {
            Arc::new(CudaGpu::of_device(*number).unwrap().with_devices(&numbers))
        };
        numbers.iter().map(gpu).collect()
    }

    fn launch(&self, kernel: &str, blocks: u32, threads: u32, parameters: &[Params]) {
        let null = core::ptr::null_mut::<c_void>();
        let name = CString::new(kernel).unwrap();
        let mut streams = Vec::new();
        for rank in 0..parameters.len() {
            let (mut function, mut stream) = (null, null);
            let device = rank % self.devices.len();
            self.enter(device);
            call!(self, c"cuModuleGetFunction"
                (&raw mut function, self.devices[device].module, name.as_ptr()):
                (*mut *mut c_void, *mut c_void, *const c_char));
            call!(self, c"cuStreamCreate" (&raw mut stream, 1): (*mut *mut c_void, c_uint));
            streams.push((device, function, stream));
        }
        for ((device, function, stream), Params(bytes)) in streams.iter().zip(parameters) {
            self.enter(*device);
            let mut size = bytes.len();
            let mut extra =
                [BUFFER_POINTER, bytes.as_ptr().cast_mut().cast(), BUFFER_SIZE, (&raw mut size).cast(), null];
            call!(self, c"cuLaunchKernel"
                (*function, blocks, 1, 1, threads, 1, 1, 0, *stream, core::ptr::null_mut(), extra.as_mut_ptr()):
                (*mut c_void, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, *mut c_void,
                 *mut *mut c_void, *mut *mut c_void));
        }
        for (device, _, stream) in streams {
            self.enter(device);
            call!(self, c"cuStreamSynchronize" (stream): (*mut c_void));
            call!(self, c"cuStreamDestroy_v2" (stream): (*mut c_void));
        }
        self.enter(0);
    }
}
