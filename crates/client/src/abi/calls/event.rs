//! Events.

use crate::abi::entry::Outcome;
use crate::arguments::write_out;
use crate::model::context;
use crate::model::handles::RawHandle as _;
use crate::submit::streams::DefaultStream;
use crate::submit::{capture, event, streams};
use causeway_api::sys::{CUevent, CUevent_record_flags, CUresult, CUstream};

pub unsafe fn cuEventCreate(phEvent: *mut CUevent, Flags: u32) -> Outcome {
    if phEvent.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: not null, so there is room for the result.
    unsafe { write_out(phEvent, event::create(Flags)?.as_raw()) }
}

pub unsafe fn cuEventRecord(hEvent: CUevent, hStream: CUstream, ds: DefaultStream) -> Outcome {
    // SAFETY: the handles are numbers, which are looked up and never followed.
    unsafe { cuEventRecordWithFlags(hEvent, hStream, 0, ds) }
}

pub unsafe fn cuEventRecordWithFlags(
    hEvent: CUevent,
    hStream: CUstream,
    flags: u32,
    ds: DefaultStream,
) -> Outcome {
    let stream = context::stream(streams::resolve(hStream, ds)?)?;
    let external = CUevent_record_flags::CU_EVENT_RECORD_EXTERNAL.0;
    let event = event::resolve(hEvent)?;
    if flags & !external != 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    if flags & external != 0 && capture::of(&stream) == 0 {
        return Err(CUresult::CUDA_ERROR_ILLEGAL_STATE);
    }
    event.record(&stream, flags)
}

pub unsafe fn cuEventQuery(hEvent: CUevent) -> Outcome {
    event::resolve(hEvent)?.query()
}

pub unsafe fn cuEventSynchronize(hEvent: CUevent) -> Outcome {
    event::resolve(hEvent)?.synchronize()
}

pub unsafe fn cuEventDestroy_v2(hEvent: CUevent) -> Outcome {
    event::destroy(hEvent)
}

pub unsafe fn cuEventElapsedTime(pMilliseconds: *mut f32, hStart: CUevent, hEnd: CUevent) -> Outcome {
    let (start, end) = (event::resolve(hStart)?, event::resolve(hEnd)?);
    // SAFETY: room for the result, or null.
    unsafe { write_out(pMilliseconds, start.elapsed(&end)?) }
}

pub unsafe fn cuEventElapsedTime_v2(pMilliseconds: *mut f32, hStart: CUevent, hEnd: CUevent) -> Outcome {
    // SAFETY: the program has room for a number at `pMilliseconds`, or passes null.
    unsafe { cuEventElapsedTime(pMilliseconds, hStart, hEnd) }
}
