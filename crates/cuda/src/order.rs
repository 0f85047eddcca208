//! Synchronisation with earlier copies of the program.
//!
//! A program takes a synchronous copy that has returned for done. NVIDIA's driver has then only read the
//! source: of 64 KiB and less that come from pageable memory, and of copies within a GPU, the rest may be
//! under way in a default stream ("API synchronization behavior" in the CUDA driver API manual). Copies in
//! streams of ours and reads by other processes wait for no default stream, so they would find old bytes, or
//! would be written over (seen on an H100, driver 580: some of a hundred random messages below 64 KiB).

use core::ffi::{c_int, c_void};

use super::functions::Driver;
use super::memory::DeviceMemory;
use super::scope::Scope;

/// `CU_POINTER_ATTRIBUTE_SYNC_MEMOPS`.
const SYNC_MEMOPS: c_int = 6;

/// `CU_STREAM_LEGACY` and `CU_STREAM_PER_THREAD`.
const DEFAULT_STREAMS: [usize; 2] = [1, 2];

/// Waits until what the calling thread has had copied to or from memory by calls that have returned is done,
/// and has the driver keep that order itself from now on, for memory where it can: then later calls wait for
/// nothing.
///
/// A default stream that is part of a capture is not waited for: nothing runs there.
pub fn synchronize(driver: &Driver, memory: &DeviceMemory) {
    if !memory.is_ordered {
        order(driver, memory);
        wait(driver, memory);
    }
}

/// Waits until all that is pending in the default streams when a call is made is done: in the context that an address is
/// of, if it is one of a GPU, and in the calling thread's. So a call that reads and writes memory comes after the program's
/// kernels there, as `cudaMemcpy` does.
pub fn synchronize_call(driver: &Driver, address: u64) {
    let mut current = core::ptr::null_mut();
    // SAFETY: room for the answer.
    if unsafe { driver.current_context(&raw mut current) }.is_err() {
        current = core::ptr::null_mut();
    }
    let memory = DeviceMemory::at(driver, address);
    if let Some(memory) = memory {
        if !memory.is_ordered {
            order(driver, &memory);
        }
        wait(driver, &memory);
    }
    if !current.is_null()
        && memory.is_none_or(|memory| memory.context != current as u64)
        && let Ok(scope) = Scope::of_context(driver, current as u64)
    {
        wait_in(&scope);
    }
}

/// The same for two allocations: there is one wait for them where they are of one context.
pub fn synchronize_both(driver: &Driver, one: &DeviceMemory, other: &DeviceMemory) {
    if one.is_ordered || other.is_ordered || one.context != other.context || one.device != other.device {
        synchronize(driver, one);
        synchronize(driver, other);
        return;
    }
    order(driver, one);
    if one.start != other.start {
        order(driver, other);
    }
    wait(driver, one);
}

/// Has the driver keep the order of memory itself. That of a kind that has none (pools, virtual memory
/// management) is waited for each time.
fn order(driver: &Driver, memory: &DeviceMemory) {
    let yes: c_int = 1;
    // SAFETY: the driver reads the flag.
    let _ = unsafe { driver.set_pointer_attribute((&raw const yes).cast(), SYNC_MEMOPS, memory.start) };
}

/// Waits for the default streams of memory's context.
fn wait(driver: &Driver, memory: &DeviceMemory) {
    // The scope's mode lets the wait be while the thread captures. Without it the memory's context is gone,
    // and all its work with it.
    if let Ok(scope) = Scope::of(driver, memory) {
        wait_in(&scope);
    }
}

/// Waits for the default streams of a scope's context.
fn wait_in(scope: &Scope<'_>) {
    let driver = scope.driver;
    for stream in DEFAULT_STREAMS {
        let stream = stream as *mut c_void;
        let mut is_capturing: c_int = 0;
        // SAFETY: a handle that every context has, and room for the answer.
        let known = unsafe { driver.stream_is_capturing(stream, &raw mut is_capturing) };
        // To ask costs less than to wait for nothing.
        // SAFETY: a handle that every context has.
        if known.is_ok() && is_capturing == 0 && unsafe { driver.query_stream(stream) }.is_err() {
            // SAFETY: a handle that every context has. An error of the program's work is told by the copy
            // that comes next.
            let _ = unsafe { driver.synchronize_stream(stream) };
        }
    }
}
