//! RDMA queue pairs for C programs, whose work requests kernels write themselves.
//! `device/include/causeway/verbs.h` declares and describes the functions.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr;
use std::sync::Arc;
use std::time::Duration;

use causeway_config::read::PROCESS;
use causeway_config::table::VERBS_DEVICE;
use causeway_ibverbs::Access;

use super::{FAILED, fail, guard};
use crate::cuda::Driver;
use crate::device::cuda::CudaGpu;
use crate::device::verbs::queue_pair::ADDRESS_BYTES;
use crate::device::verbs::{
    CompletionQueue, Doorbell, Nic, NicOptions, QueuePair, QueuePairOptions, Registered, VerbsError,
    completion,
};

/// `causeway_nic_options` of the header.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct RequestedNicOptions {
    limit_milliseconds: u32,
    doorbell: u32,
}

/// `causeway_qp_options` of the header.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct RequestedQueuePairOptions {
    sends: u32,
    receives: u32,
    inline_bytes: u32,
    memory: u32,
}

/// `CAUSEWAY_IN_HOST`.
const IN_HOST: u32 = 1;

fn into_handle<T>(into_handle: Result<T, impl ToString>) -> *mut T {
    match into_handle {
        Ok(into_handle) => Box::into_raw(Box::new(into_handle)),
        Err(error) => {
            fail(error);
            ptr::null_mut()
        }
    }
}

/// # Safety
/// It is null, or [`into_handle`] made it and nothing uses it any more.
unsafe fn drop_handle<T>(into_handle: *mut T) {
    if !into_handle.is_null() {
        // SAFETY: the handle is what `Box::into_raw` gave for this type, and the caller uses it no more.
        drop(unsafe { Box::from_raw(into_handle) });
    }
}

fn nic_options(requested: Option<&RequestedNicOptions>) -> Result<NicOptions, String> {
    let default = NicOptions::default();
    let Some(requested) = requested else { return Ok(default) };
    let doorbell = match requested.doorbell {
        0 => Doorbell::Auto,
        1 => Doorbell::Direct,
        2 => Doorbell::Assisted,
        other => {
            return Err(format!(
                "the doorbell mode must be 0 (auto), 1 (direct) or 2 (assisted), not {other}"
            ));
        }
    };
    let limit = match requested.limit_milliseconds {
        0 => default.limit,
        limit => Duration::from_millis(limit.into()),
    };
    Ok(NicOptions { limit, doorbell })
}

fn open(name: Option<&str>, requested: Option<&RequestedNicOptions>) -> Result<Nic, String> {
    let options = nic_options(requested)?;
    let configured = PROCESS.text(&VERBS_DEVICE);
    if Driver::is_remote() {
        return Err(VerbsError::Remote.to_string());
    }
    let gpu = CudaGpu::current().map_err(|error| error.to_string())?;
    Nic::open(name.or(configured.as_deref()), Arc::new(gpu), options).map_err(|error| error.to_string())
}

/// Opens an RDMA device for the GPU of the calling thread's context; null if there is none.
///
/// # Safety
/// `name` is null or text, and `requested` is null or options.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_nic_open(
    name: *const c_char,
    requested: *const RequestedNicOptions,
) -> *mut Nic {
    guard(ptr::null_mut(), || {
        // SAFETY: `name` is a C string of the caller, which stays until the call returns.
        let name = (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) }.to_str().unwrap_or_default());
        // SAFETY: what is not null are options and open handles of the caller, which stay until the call returns.
        into_handle(open(name, unsafe { requested.as_ref() }))
    })
}

/// Closes it, when all its objects have been destroyed.
///
/// # Safety
/// It is null, or of [`causeway_nic_open`] and not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_nic_close(nic: *mut Nic) {
    guard((), || {
        // SAFETY: `nic` is null or of this library, and the caller uses it no more.
        unsafe { drop_handle(nic) };
    })
}

/// Ends all waits of kernels for its queues.
///
/// # Safety
/// The device is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_nic_abort(nic: *const Nic) {
    guard((), || {
        // SAFETY: `nic` is of this library, and the caller has not closed it.
        unsafe { (*nic).abort() };
    })
}

/// Enables waits of kernels again.
///
/// # Safety
/// The device is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_nic_resume(nic: *const Nic) {
    guard((), || {
        // SAFETY: `nic` is of this library, and the caller has not closed it.
        unsafe { (*nic).resume() };
    })
}

fn access(bits: u32) -> Access {
    let all = [Access::REMOTE_WRITE, Access::REMOTE_READ, Access::REMOTE_ATOMIC];
    let requested = all.into_iter().enumerate().filter(|(bit, _)| bits & 1 << bit != 0);
    requested.fold(Access::LOCAL_WRITE, |access, (_, more)| access | more)
}

/// Registers memory with the RDMA device, and writes its keys; null for an error.
///
/// # Safety
/// The device is open, the memory stays until it is deregistered, and there is capacity for two keys.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_mr_register(
    nic: *const Nic,
    address: *mut c_void,
    bytes: u64,
    access_bits: u32,
    lkey: *mut u32,
    rkey: *mut u32,
) -> *mut Registered {
    guard(ptr::null_mut(), || {
        if bytes == 0 || access_bits > 7 {
            return into_handle(Err::<Registered, _>(format!(
                "memory for a card must have at least 1 byte and an access of CAUSEWAY_REMOTE_*: {bytes} bytes \
             with access {access_bits} were requested"
            )));
        }
        // SAFETY: the caller has not closed `nic`, and keeps the memory until it is deregistered.
        let registered = unsafe { (*nic).register(address as u64, bytes as usize, access(access_bits)) };
        if let Ok(registered) = &registered {
            // SAFETY: the caller has room for the result there; the handle is alive.
            unsafe {
                lkey.write(registered.lkey());
                rkey.write(registered.rkey());
            }
        }
        into_handle(registered)
    })
}

/// Deregisters memory.
///
/// # Safety
/// It is null, or of [`causeway_mr_register`] and not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_mr_deregister(mr: *mut Registered) {
    guard((), || {
        // SAFETY: `mr` is null or of this library, and the caller uses it no more.
        unsafe { drop_handle(mr) };
    })
}

/// Makes a completion queue; null if it cannot be made.
///
/// # Safety
/// The device is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_cq_create(
    nic: *const Nic,
    entries: u32,
    memory: u32,
) -> *mut CompletionQueue {
    guard(ptr::null_mut(), || {
        if memory != IN_HOST {
            return into_handle(Err::<CompletionQueue, _>(VerbsError::RingsOnDevice));
        }
        // SAFETY: `nic` is of this library, and the caller has not closed it.
        into_handle(CompletionQueue::new(unsafe { &*nic }, entries))
    })
}

/// The address of the handle for kernels.
///
/// # Safety
/// The queue is alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_cq_handle(cq: *const CompletionQueue) -> u64 {
    guard(0, || {
        // SAFETY: `cq` is of this library, and the caller has not destroyed it.
        unsafe { (*cq).handle() }
    })
}

/// Destroys it, when its queue pairs have been destroyed.
///
/// # Safety
/// It is null, or of [`causeway_cq_create`] and not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_cq_destroy(cq: *mut CompletionQueue) {
    guard((), || {
        // SAFETY: `cq` is null or of this library, and the caller uses it no more.
        unsafe { drop_handle(cq) };
    })
}

fn queue_pair_options(requested: Option<&RequestedQueuePairOptions>) -> Result<QueuePairOptions, VerbsError> {
    let default = QueuePairOptions::default();
    let Some(requested) = requested else { return Ok(default) };
    if requested.memory != 0 && requested.memory != IN_HOST {
        return Err(VerbsError::RingsOnDevice);
    }
    let or = |value: u32, default: u32| if value == 0 { default } else { value };
    Ok(QueuePairOptions {
        sends: or(requested.sends, default.sends),
        receives: or(requested.receives, default.receives),
        inline: or(requested.inline_bytes, default.inline),
    })
}

/// Makes a queue pair; null if it cannot be made.
///
/// # Safety
/// The device is open, the queues are alive, and `requested` is null or options.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_qp_create(
    nic: *const Nic,
    sends: *const CompletionQueue,
    receives: *const CompletionQueue,
    requested: *const RequestedQueuePairOptions,
) -> *mut QueuePair {
    guard(ptr::null_mut(), || {
        // SAFETY: `nic` is of this library, and the caller has not closed it.
        let (nic, sends, receives, requested) = unsafe { (&*nic, &*sends, &*receives, requested.as_ref()) };
        into_handle(
            queue_pair_options(requested).and_then(|options| QueuePair::new(nic, sends, receives, options)),
        )
    })
}

/// Destroys it.
///
/// # Safety
/// It is null, or of [`causeway_qp_create`] and not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_qp_destroy(qp: *mut QueuePair) {
    guard((), || {
        // SAFETY: `qp` is null or of this library, and the caller uses it no more.
        unsafe { drop_handle(qp) };
    })
}

/// The address of the handle for kernels.
///
/// # Safety
/// The queue pair is alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_qp_handle(qp: *const QueuePair) -> u64 {
    guard(0, || {
        // SAFETY: `qp` is of this library, and the caller has not destroyed it.
        unsafe { (*qp).handle() }
    })
}

/// Its number.
///
/// # Safety
/// The queue pair is alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_qp_number(qp: *const QueuePair) -> u32 {
    guard(0, || {
        // SAFETY: `qp` is of this library, and the caller has not destroyed it.
        unsafe { (*qp).number() }
    })
}

/// Which side rings its doorbell: 1 the kernel, 2 a thread of the host.
///
/// # Safety
/// The queue pair is alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_qp_doorbell(qp: *const QueuePair) -> u32 {
    guard(0, || {
        // SAFETY: `qp` is of this library, and the caller has not destroyed it.
        if unsafe { (*qp).doorbell() } == Doorbell::Assisted { 2 } else { 1 }
    })
}

/// Writes the address for the peer.
///
/// # Safety
/// The queue pair is alive, and there is capacity for 32 bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_qp_address(qp: *const QueuePair, address: *mut [u8; ADDRESS_BYTES]) {
    guard((), || {
        // SAFETY: the caller has room for the result there; the handle is alive.
        unsafe { address.write((*qp).address()) };
    })
}

/// Connects it with the peer's. 0 or -1.
///
/// # Safety
/// The queue pair is alive, and the address has 32 bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_qp_connect(
    qp: *const QueuePair,
    address: *const [u8; ADDRESS_BYTES],
) -> c_int {
    guard(FAILED, || {
        // SAFETY: the caller has not destroyed `qp`, and has a whole address of a queue pair there.
        unsafe { (*qp).connect(&*address) }.map_or_else(fail, |()| 0)
    })
}

/// Flushes it: all its requests complete with an error. 0 or -1.
///
/// # Safety
/// The queue pair is alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_qp_flush(qp: *const QueuePair) -> c_int {
    guard(FAILED, || {
        // SAFETY: `qp` is of this library, and the caller has not destroyed it.
        unsafe { (*qp).flush() }.map_or_else(fail, |()| 0)
    })
}

/// Resets it, to be connected again. 0 or -1.
///
/// # Safety
/// The queue pair is alive, and no kernel uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_qp_reset(qp: *const QueuePair) -> c_int {
    guard(FAILED, || {
        // SAFETY: the caller has not destroyed `qp`, and runs no kernel that uses it.
        unsafe { (*qp).reset() }.map_or_else(fail, |()| 0)
    })
}

/// The text of a syndrome.
#[unsafe(no_mangle)]
pub extern "C" fn causeway_syndrome_text(code: u32) -> *const c_char {
    guard(ptr::null(), || completion::text(code).as_ptr())
}

#[cfg(test)]
mod tests {
    use super::super::causeway_comm_error;
    use super::*;

    const HEADER: &str = include_str!("../../../../device/include/causeway/verbs.h");

    fn message() -> String {
        // SAFETY: the message is a C string of this thread.
        unsafe { CStr::from_ptr(causeway_comm_error()) }.to_string_lossy().into_owned()
    }

    #[test]
    fn every_function_of_the_header_is_here() {
        let code = HEADER.lines().map(|line| line.split("//").next().unwrap_or_default());
        let declared: Vec<&str> = code
            .filter_map(|line| line.split_once('('))
            .filter_map(|(before, _)| before.rsplit([' ', '*']).next())
            .filter(|name| name.starts_with("causeway_"))
            .collect();
        assert!(declared.len() > 15, "{declared:?}");
        let source = include_str!("verbs.rs");
        for name in declared {
            assert!(source.contains(&format!("extern \"C\" fn {name}(")), "{name}");
        }
    }

    #[test]
    fn invalid_options_are_rejected() {
        // SAFETY: the options are good for the call. There is no driver, which is found out after them.
        let nic = unsafe {
            causeway_nic_open(ptr::null(), &RequestedNicOptions { limit_milliseconds: 0, doorbell: 3 })
        };
        assert!(nic.is_null() && message().contains("not 3"), "{}", message());
        // SAFETY: null pointers are allowed: there is no driver, which is found out first.
        let nic = unsafe { causeway_nic_open(ptr::null(), ptr::null()) };
        assert!(nic.is_null() && message().contains("CUDA driver"), "{}", message());
        // SAFETY: rings on the device are refused before the device is opened.
        let queue = unsafe { causeway_cq_create(ptr::null(), 16, 0) };
        assert!(queue.is_null() && message().contains("DEVX"), "{}", message());
        let requested = RequestedQueuePairOptions { sends: 0, receives: 0, inline_bytes: 0, memory: 2 };
        assert!(matches!(queue_pair_options(Some(&requested)), Err(VerbsError::RingsOnDevice)));
        let (mut lkey, mut rkey) = (0, 0);
        // SAFETY: no bytes are refused before the device is opened.
        let region =
            unsafe { causeway_mr_register(ptr::null(), ptr::null_mut(), 0, 0, &mut lkey, &mut rkey) };
        assert!(region.is_null() && message().contains("0 bytes"), "{}", message());
    }
}
