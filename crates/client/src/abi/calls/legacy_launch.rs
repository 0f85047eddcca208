//! Legacy launches, as they were before CUDA 4: block shape, shared memory and parameters are set one by one and
//! belong to the function.

use core::ffi::c_void;
use std::collections::HashMap;
use std::sync::LazyLock;

use causeway_api::sys::{CUfunction, CUresult, CUstream};
use causeway_api::types::LaunchShape;

use crate::abi::entry::Outcome;
use crate::locks::{Mutex, rank};
use crate::submit::launch::{self, Arguments};
use crate::submit::module;
use crate::submit::streams::DefaultStream;

/// No kernel has more bytes of parameters.
const MAX_PARAMETERS: usize = 32_764;

const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;

/// What has been set for the next launches of a function.
#[derive(Clone)]
struct Prepared {
    block: [u32; 3],
    shared_bytes: u32,
    parameters: Vec<u8>,
}

/// By the function's handle.
static PREPARED: LazyLock<Mutex<rank::PreparedLaunches, HashMap<u64, Prepared>>> =
    LazyLock::new(Mutex::default);

fn prepare<T>(
    function: CUfunction,
    change: impl FnOnce(&mut Prepared) -> Result<T, CUresult>,
) -> Result<T, CUresult> {
    let (handle, _) = module::resolve_function(function)?;
    let mut prepared = PREPARED.lock();
    let fresh = || Prepared { block: [1, 1, 1], shared_bytes: 0, parameters: Vec::new() };
    change(prepared.entry(handle.value()).or_insert_with(fresh))
}

pub unsafe fn cuFuncSetBlockShape(hfunc: CUfunction, x: i32, y: i32, z: i32) -> Outcome {
    if [x, y, z].iter().any(|size| *size < 1) {
        return Err(INVALID);
    }
    prepare(hfunc, |prepared| {
        prepared.block = [x, y, z].map(|size| size as u32);
        Ok(())
    })
}

pub unsafe fn cuFuncSetSharedSize(hfunc: CUfunction, bytes: u32) -> Outcome {
    prepare(hfunc, |prepared| {
        prepared.shared_bytes = bytes;
        Ok(())
    })
}

pub unsafe fn cuParamSetSize(hfunc: CUfunction, numbytes: u32) -> Outcome {
    if numbytes as usize > MAX_PARAMETERS {
        return Err(INVALID);
    }
    prepare(hfunc, |prepared| {
        prepared.parameters.resize(numbytes as usize, 0);
        Ok(())
    })
}

/// Puts bytes into the parameter buffer, which grows as it must.
fn set(function: CUfunction, offset: i32, bytes: &[u8]) -> Outcome {
    let start = usize::try_from(offset).map_err(|_| INVALID)?;
    let end = start.checked_add(bytes.len()).filter(|end| *end <= MAX_PARAMETERS).ok_or(INVALID)?;
    prepare(function, |prepared| {
        if prepared.parameters.len() < end {
            prepared.parameters.resize(end, 0);
        }
        prepared.parameters[start..end].copy_from_slice(bytes);
        Ok(())
    })
}

pub unsafe fn cuParamSeti(hfunc: CUfunction, offset: i32, value: u32) -> Outcome {
    set(hfunc, offset, &value.to_ne_bytes())
}

pub unsafe fn cuParamSetf(hfunc: CUfunction, offset: i32, value: f32) -> Outcome {
    set(hfunc, offset, &value.to_ne_bytes())
}

pub unsafe fn cuParamSetv(hfunc: CUfunction, offset: i32, ptr: *mut c_void, numbytes: u32) -> Outcome {
    // SAFETY: as many bytes as the program says.
    set(hfunc, offset, unsafe { crate::arguments::list(ptr.cast(), numbytes as usize) }?)
}

pub unsafe fn cuLaunch(f: CUfunction) -> Outcome {
    start(f, 1, 1, core::ptr::null_mut())
}

pub unsafe fn cuLaunchGrid(f: CUfunction, grid_width: i32, grid_height: i32) -> Outcome {
    start(f, grid_width, grid_height, core::ptr::null_mut())
}

pub unsafe fn cuLaunchGridAsync(
    f: CUfunction,
    grid_width: i32,
    grid_height: i32,
    stream: CUstream,
) -> Outcome {
    start(f, grid_width, grid_height, stream)
}

fn start(function: CUfunction, width: i32, height: i32, stream: CUstream) -> Outcome {
    if width < 1 || height < 1 {
        return Err(INVALID);
    }
    let prepared = prepare(function, |prepared| Ok(prepared.clone()))?;
    let shape = LaunchShape {
        grid: [width as u32, height as u32, 1],
        block: prepared.block,
        shared_bytes: prepared.shared_bytes,
    };
    let size = prepared.parameters.len();
    // CU_LAUNCH_PARAM_BUFFER_POINTER, CU_LAUNCH_PARAM_BUFFER_SIZE, CU_LAUNCH_PARAM_END.
    let extra: [*const c_void; 5] = [
        core::ptr::without_provenance(1),
        prepared.parameters.as_ptr().cast(),
        core::ptr::without_provenance(2),
        (&raw const size).cast(),
        core::ptr::null(),
    ];
    let arguments = Arguments { addresses: core::ptr::null(), extra: extra.as_ptr() };
    // SAFETY: the list names a buffer and its size, both alive during the call.
    unsafe { launch::launch(function, shape, (stream, DefaultStream::Legacy), arguments, Vec::new()) }
}
