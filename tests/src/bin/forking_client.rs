//! A driver-API program that forks a sleeping child once it uses the device, and then sleeps itself.
//!
//! It prints `child PID` and then waits to be killed; the child lives on.

use core::ffi::{c_int, c_uint, c_void};
use libloading::{Library, Symbol};

type Init = unsafe extern "C" fn(c_uint) -> c_int;
type Retain = unsafe extern "C" fn(*mut *mut c_void, c_int) -> c_int;
type SetCurrent = unsafe extern "C" fn(*mut c_void) -> c_int;
type Allocate = unsafe extern "C" fn(*mut u64, usize) -> c_int;

/// Bytes of device memory that are held.
const BYTES: usize = 1 << 20;

fn main() {
    let mut memory = 0;
    let mut context = core::ptr::null_mut();
    // SAFETY: the library is the driver, whose functions have these types; the results outlive the calls.
    unsafe {
        let driver = Library::new("libcuda.so.1").expect("the driver is in the library path");
        let init: Symbol<'_, Init> = driver.get("cuInit").expect("every driver has it");
        let retain: Symbol<'_, Retain> = driver.get("cuDevicePrimaryCtxRetain").expect("every driver has it");
        let set_current: Symbol<'_, SetCurrent> = driver.get("cuCtxSetCurrent").expect("every driver has it");
        let allocate: Symbol<'_, Allocate> = driver.get("cuMemAlloc_v2").expect("every driver has it");
        assert_eq!(init(0), 0, "cuInit");
        assert_eq!(retain(&mut context, 0), 0, "cuDevicePrimaryCtxRetain");
        assert_eq!(set_current(context), 0, "cuCtxSetCurrent");
        assert_eq!(allocate(&mut memory, BYTES), 0, "cuMemAlloc");
    }
    // SAFETY: the child calls nothing but what is safe after fork.
    let child = unsafe { libc::fork() };
    if child != 0 {
        println!("child {child}");
    }
    loop {
        // SAFETY: it takes no arguments.
        unsafe { libc::pause() };
    }
}
