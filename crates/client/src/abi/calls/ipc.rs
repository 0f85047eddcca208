//! Memory and events that processes of the same server share (`cuIpc*`).

use crate::abi::entry::Outcome;
use crate::arguments::write_out;
use crate::model::context;
use crate::model::handles::RawHandle as _;
use crate::model::memory::Origin;
use crate::submit::{event, ipc};
use causeway_api::sys::{CUdeviceptr, CUevent, CUipcEventHandle, CUipcMemHandle, CUresult};

pub unsafe fn cuIpcGetMemHandle(pHandle: *mut CUipcMemHandle, dptr: CUdeviceptr) -> Outcome {
    context::current()?;
    // SAFETY: room for the result, or null.
    unsafe { write_out(pHandle, CUipcMemHandle { reserved: ipc::export(dptr, Origin::Allocation)? }) }
}

pub unsafe fn cuIpcOpenMemHandle_v2(pdptr: *mut CUdeviceptr, handle: CUipcMemHandle, Flags: u32) -> Outcome {
    /// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`, the only flag there is, and which has to be given.
    const LAZY_PEER_ACCESS: u32 = 1;
    context::current()?;
    if pdptr.is_null() || Flags != LAZY_PEER_ACCESS {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: not null, so there is room for the result.
    unsafe { write_out(pdptr, ipc::open(&handle.reserved, Origin::Imported)?) }
}

pub unsafe fn cuIpcCloseMemHandle(dptr: CUdeviceptr) -> Outcome {
    context::current()?;
    ipc::close(dptr, Origin::Imported)
}

pub unsafe fn cuIpcGetEventHandle(pHandle: *mut CUipcEventHandle, event: CUevent) -> Outcome {
    let reserved = event::resolve(event)?.export()?;
    // SAFETY: room for the result, or null.
    unsafe { write_out(pHandle, CUipcEventHandle { reserved }) }
}

pub unsafe fn cuIpcOpenEventHandle(phEvent: *mut CUevent, handle: CUipcEventHandle) -> Outcome {
    if phEvent.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: not null, so there is room for the result.
    unsafe { write_out(phEvent, event::import(&handle.reserved)?.as_raw()) }
}
