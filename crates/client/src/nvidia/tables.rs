//! The tables, entry by entry. All are arrays of words; word 0 is the size in bytes, except where it is said.
//!
//! Their addresses are the same for all callers and for ever: the integrity check hashes two of them, and
//! programs keep them beyond `main`. An entry whose use is unknown leads to a function that refuses.

use super::compile_cache::table::COMPILED;
use super::context_storage::{self, Destructor};
use super::integrity;
use super::table::{Table, Word, guarded, memory_with};
use crate::arguments::write_out;
use crate::log::debug;
use crate::model::handles::RawHandle as _;
use crate::model::{context, device};
use crate::process;
use crate::remote::{image, session};
use crate::submit::streams::DefaultStream;
use crate::submit::{module, send, streams};
use causeway_api::calls;
use causeway_api::sys::{CUcontext, CUdevice, CUdevice_attribute, CUfunction, CUmodule, CUresult, CUstream};
use core::ffi::c_void;
use core::ptr;
use std::sync::atomic::AtomicU64;

/// Under `CUDART_INTERFACE`: devices and modules for the runtime.
static CUDART_INTERFACE: Table<13> = Table::<13>::new()
    .with(1, load_module as Word)
    .with(2, primary_context as Word)
    .with(6, load_module as Word)
    .with(7, unregister_module as Word)
    .with(8, load_module_from_header as Word)
    .with(12, load_compilers as Word);

/// Under `TOOLS_RUNTIME_CALLBACK_HOOKS`: which runtime calls a profiler wants to hear of; none.
static CALLBACK_HOOKS: Table<7> = Table::<7>::new()
    .with(1, runtime_callback as Word)
    .with(2, runtime_callback_flags as Word)
    .with(4, context_id as Word)
    .with(6, more_callback_flags as Word);

/// Under `TOOLS_TLS`.
static TOOLS_TLS: Table<3> = Table::<3>::new().with(2, current_context as Word);

/// Under `CONTEXT_LOCAL_STORAGE`; it has no size, and its last word is null.
static CONTEXT_LOCAL_STORAGE: Table<4> =
    Table([storage_put as Word, storage_delete as Word, storage_get as Word, ptr::null()]);

/// Under `CONTEXT_CHECKS`.
static CONTEXT_CHECKS: Table<4> = Table::<4>::new().with(2, check_context as Word).with(3, zero as Word);

/// Under `TOOLS_CONTEXT`: numbers of contexts and streams. The size is a real driver's.
static TOOLS_CONTEXT: Table<93> = Table::<93>::new()
    .with(4, context_id as Word)
    .with(39, stream_object_id as Word)
    .with(51, stream_object as Word);

/// Under `TOOLS_MODULE`.
static TOOLS_MODULE: Table<8> = Table::<8>::new().with(7, each_function as Word);

/// Under an identifier whose name nobody has published: how the multiprocessors are laid out. cuBLASLt 13.1
/// calls entry 4, and 13 for what that gave; it needs the table, but does without an answer. Seen on an H200,
/// driver 580.159.04 (17 words), 2026-11-21.
static LAYOUT: Table<17> = Table::<17>::new().with(4, layout as Word).with(13, release_layout as Word);

/// Under `INTEGRITY_CHECK`.
static INTEGRITY_CHECK: Table<3> = Table::<3>::new().with(1, check_integrity as Word);

/// The table with this identifier. The driver's other tables are optional for everybody seen so far.
pub fn find(identifier: &[u8; 16]) -> Option<Word> {
    const fn id(text: u128) -> [u8; 16] {
        text.to_be_bytes()
    }
    const CUDART_INTERFACE_ID: [u8; 16] = id(0x6bd5fb6c_5bf4_e74a_8987_d93912fd9df9);
    const CALLBACK_HOOKS_ID: [u8; 16] = id(0xa094798c_2e74_2e74_93f2_0800200c0a66);
    const TOOLS_TLS_ID: [u8; 16] = id(0x42d85a81_23f6_cb47_8298_f6e78a3aecdc);
    const CONTEXT_LOCAL_STORAGE_ID: [u8; 16] = id(0xc693336e_1121_df11_a8c3_68f355d89593);
    const INTEGRITY_CHECK_ID: [u8; 16] = id(0xd4082055_bde6_704b_8d34_ba123c66e1f2);
    const CONTEXT_CHECKS_ID: [u8; 16] = id(0x263e8860_7cd2_6143_92f6_bbd5006dfa7e);
    const TOOLS_CONTEXT_ID: [u8; 16] = id(0x21318c60_9714_3248_8ca6_41ff7324c8f2);
    const LAYOUT_ID: [u8; 16] = id(0x1734dc26_800d_4745_8726_c0f1e7dd8bca);
    const COMPILED_ID: [u8; 16] = id(0xda9151d3_3ae6_cc41_a5c0_4f26d533e328);
    const TOOLS_MODULE_ID: [u8; 16] = id(0x6e163fbe_b958_444d_835c_e182aff1991e);
    let table: Word = match *identifier {
        CUDART_INTERFACE_ID => (&raw const CUDART_INTERFACE).cast(),
        CALLBACK_HOOKS_ID => (&raw const CALLBACK_HOOKS).cast(),
        TOOLS_TLS_ID => (&raw const TOOLS_TLS).cast(),
        CONTEXT_LOCAL_STORAGE_ID => (&raw const CONTEXT_LOCAL_STORAGE).cast(),
        INTEGRITY_CHECK_ID => (&raw const INTEGRITY_CHECK).cast(),
        CONTEXT_CHECKS_ID => (&raw const CONTEXT_CHECKS).cast(),
        TOOLS_CONTEXT_ID => (&raw const TOOLS_CONTEXT).cast(),
        LAYOUT_ID => (&raw const LAYOUT).cast(),
        COMPILED_ID => (&raw const COMPILED).cast(),
        TOOLS_MODULE_ID => (&raw const TOOLS_MODULE).cast(),
        _ => {
            debug!("the table {identifier:02x?} is refused");
            return None;
        }
    };
    Some(table)
}

/// As [`guarded`], for entries that need an open session.
fn in_session(body: impl FnOnce() -> Result<(), CUresult>) -> CUresult {
    guarded(|| {
        if !process::accepts_calls() {
            process::admit("")?;
        }
        body()
    })
}

/// Loads the module in a wrapper; only runtimes before 12 do it this way.
unsafe extern "C" fn load_module(out: *mut CUmodule, wrapper: *const c_void) -> CUresult {
    // SAFETY: the runtime passes a wrapper of an image, and room for the result.
    in_session(|| unsafe {
        write_out(
            out,
            module::load(&image::at(wrapper)?, &causeway_api::types::JitOptions::default())?.as_raw(),
        )
    })
}

/// Loads the module of a fat binary; no runtime was seen to call it.
unsafe extern "C" fn load_module_from_header(header: *const c_void, out: *mut CUmodule) -> CUresult {
    // SAFETY: the runtime passes a wrapper of an image, and room for the result.
    unsafe { load_module(out, header) }
}

/// The runtime no longer knows the wrapper; we never did.
extern "C" fn unregister_module(_wrapper: *const c_void) -> CUresult {
    CUresult::CUDA_SUCCESS
}

/// Compilers run on the server.
extern "C" fn load_compilers() -> CUresult {
    CUresult::CUDA_SUCCESS
}

/// The handle of a device's primary context. Asked for every device at the start, long before any is
/// retained.
unsafe extern "C" fn primary_context(out: *mut CUcontext, device: CUdevice) -> CUresult {
    // SAFETY: room for the result, or null.
    in_session(|| unsafe { write_out(out, context::primary(device)?.handle.as_raw()) })
}

/// One 32-bit flag for each runtime call, all of them off. A runtime reads the flag of every call that it
/// makes.
static CALLBACK_FLAGS: [AtomicU64; 512] = [const { AtomicU64::new(0) }; 512];
static MORE_CALLBACK_FLAGS: [AtomicU64; 14] = [const { AtomicU64::new(0) }; 14];

extern "C" fn runtime_callback(_identifier: u32, _record: *mut c_void) {}

unsafe extern "C" fn runtime_callback_flags(flags: *mut *const u32, count: *mut usize) {
    // SAFETY: room for both results, or null. The count is of 32-bit flags.
    let _ = unsafe {
        write_out(flags, CALLBACK_FLAGS.as_ptr().cast::<u32>())
            .and_then(|()| write_out(count, CALLBACK_FLAGS.len() * 2))
    };
}

unsafe extern "C" fn more_callback_flags(flags: *mut *const c_void, count: *mut usize) {
    // SAFETY: room for both results, or null.
    let _ = unsafe {
        write_out(flags, MORE_CALLBACK_FLAGS.as_ptr().cast::<c_void>())
            .and_then(|()| write_out(count, MORE_CALLBACK_FLAGS.len()))
    };
}

/// The number of a context, as `cuCtxGetId` gives it; 0 for none.
unsafe extern "C" fn context_id(of: CUcontext, id: *mut u64) -> CUresult {
    in_session(|| {
        let number = if of.is_null() { 0 } else { context::resolve(of)?.id() };
        // SAFETY: room for the result, or null.
        unsafe { write_out(id, number) }
    })
}

unsafe extern "C" fn current_context(out: *mut CUcontext) -> CUresult {
    // SAFETY: room for the result, or null.
    in_session(|| unsafe { write_out(out, context::current_or_none().as_raw()) })
}

unsafe extern "C" fn storage_put(
    of: CUcontext,
    key: *mut c_void,
    value: *mut c_void,
    destructor: Destructor,
) -> CUresult {
    in_session(|| match context_storage::put(of, key, value, destructor) {
        CUresult::CUDA_SUCCESS => Ok(()),
        status => Err(status),
    })
}

unsafe extern "C" fn storage_delete(of: CUcontext, key: *mut c_void) -> CUresult {
    in_session(|| match context_storage::delete(of, key) {
        CUresult::CUDA_SUCCESS => Ok(()),
        status => Err(status),
    })
}

unsafe extern "C" fn storage_get(value: *mut *mut c_void, of: CUcontext, key: *mut c_void) -> CUresult {
    // SAFETY: room for the result, or null.
    in_session(|| unsafe { write_out(value, context_storage::get(of, key)?) })
}

/// Whether something is wrong with a context; never.
unsafe extern "C" fn check_context(_of: CUcontext, flag: *mut u32, _other: *mut *mut c_void) -> CUresult {
    // SAFETY: room for the result, or null.
    guarded(|| unsafe { write_out(flag, 0) })
}

extern "C" fn zero() -> u32 {
    0
}

/// An object for a stream, of which only the number is ever asked: so it is the number.
unsafe extern "C" fn stream_object(
    _of: CUcontext,
    raw: CUstream,
    object: *mut *mut c_void,
    per_thread: i32,
) -> CUresult {
    in_session(|| {
        let default = if per_thread != 0 { DefaultStream::PerThread } else { DefaultStream::Legacy };
        let id = context::stream(streams::named(raw, default)?)?.id;
        // SAFETY: room for the result, or null.
        unsafe { write_out(object, ptr::without_provenance_mut(id as usize)) }
    })
}

/// The number of a stream's object. No two streams ever have the same one: cuBLAS keeps a workspace for each.
unsafe extern "C" fn stream_object_id(_of: CUcontext, object: *mut c_void, id: *mut u64) -> CUresult {
    // SAFETY: room for the result, or null.
    in_session(|| unsafe { write_out(id, object.addr() as u64) })
}

/// Calls back for each function of a module and returns how many there are.
unsafe extern "C" fn each_function(
    _of: CUcontext,
    raw: CUmodule,
    callback: Option<unsafe extern "C" fn(*mut c_void, CUfunction, ...)>,
    user: *mut c_void,
) -> i32 {
    let mut count = 0;
    let outcome = in_session(|| {
        let module = module::resolve(raw)?;
        let callback = callback.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        for name in module.function_names()? {
            let function = module.function(&name)?;
            // SAFETY: the library gave the function to be called like this.
            unsafe { callback(user, function.as_raw()) };
            count += 1;
        }
        Ok(())
    });
    if outcome != CUresult::CUDA_SUCCESS {
        debug!("cannot list the functions of a module: error {}", outcome.0);
    }
    count
}

/// For each pair of multiprocessors of the current context's device, the number of its partition: a list of
/// bytes that [`release_layout`] frees. The second list is one that nobody was seen to read.
unsafe extern "C" fn layout(partitions: *mut *mut c_void, other: *mut *mut c_void) -> CUresult {
    in_session(|| {
        let layout = send::call(&calls::context_layout {})?;
        let memory = memory_with(&layout)?;
        // SAFETY: there is room for both results, or null.
        unsafe {
            write_out(partitions, memory)?;
            write_out(other, ptr::null_mut())
        }
    })
}

unsafe extern "C" fn release_layout(partitions: *mut c_void, other: *mut c_void) -> CUresult {
    // SAFETY: both came from `layout`, or are null.
    unsafe {
        libc::free(partitions);
        libc::free(other);
    }
    CUresult::CUDA_SUCCESS
}

/// Answers the runtime's question whether this is a driver; see [`integrity`].
unsafe extern "C" fn check_integrity(version: u32, seconds: u64, out: *mut [u64; 2]) -> CUresult {
    in_session(|| {
        let pci = [
            CUdevice_attribute::CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID,
            CUdevice_attribute::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID,
            CUdevice_attribute::CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID,
        ];
        let devices: Vec<_> = device::all()
            .iter()
            .map(|device| (device.info.uuid, pci.map(|attribute| device.attribute(attribute).unwrap_or(0))))
            .collect();
        // SAFETY: neither call has requirements.
        let (process, thread) = unsafe { (libc::getpid() as u32, libc::pthread_self() as u32) };
        let response = integrity::response(&integrity::Challenge {
            driver_version: session::connect::reported_driver_version() as u32,
            version,
            process,
            thread,
            runtime_table: (&raw const CUDART_INTERFACE).addr() as u64,
            check_table: (&raw const INTEGRITY_CHECK).addr() as u64,
            check_function: INTEGRITY_CHECK.0[1].addr() as u64,
            seconds,
            devices: &devices,
        });
        // SAFETY: room for the result, or null.
        unsafe { write_out(out, response) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_start_with_their_size_and_have_no_null() {
        assert_eq!(CUDART_INTERFACE.0[0].addr(), 104);
        assert_eq!(TOOLS_CONTEXT.0[0].addr(), 744);
        assert!(CONTEXT_LOCAL_STORAGE.0[3].is_null());
        assert!(TOOLS_CONTEXT.0.iter().chain(&CALLBACK_HOOKS.0).all(|word| !word.is_null()));
    }

    #[test]
    fn identifiers_are_bytes_in_order_and_others_are_refused() {
        let identifier =
            [0x42, 0xd8, 0x5a, 0x81, 0x23, 0xf6, 0xcb, 0x47, 0x82, 0x98, 0xf6, 0xe7, 0x8a, 0x3a, 0xec, 0xdc];
        assert_eq!(find(&identifier), Some((&raw const TOOLS_TLS).cast()));
        assert_eq!(find(&[7; 16]), None);
    }

    #[test]
    fn the_runtime_gets_1024_flags_that_are_off() {
        let (mut flags, mut count) = (ptr::null(), 0);
        // SAFETY: room for both results; then as many flags as were promised are read.
        let off = unsafe {
            runtime_callback_flags(&mut flags, &mut count);
            core::slice::from_raw_parts(flags, count).iter().all(|flag| *flag == 0)
        };
        assert!(off && count == 1024);
    }
}
