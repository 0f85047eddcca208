//! Attributes of streams, memory barriers in streams, and the driver's log.

use super::Driver;
use super::launch::{attribute, is_plain};
use crate::CuResult;
use causeway_api::handle::{Native, Stream};
use causeway_api::sys::{
    CUlaunchAttributeID, CUlaunchAttributeValue, CUlogIterator, CUresult, CUstreamBatchMemOpParams,
    CUstreamBatchMemOpType,
};
use causeway_api::types::LaunchAttribute;

/// The longest piece of the log that is asked for at once; the driver keeps about a hundred lines.
const MOST_LOG_BYTES: usize = 1 << 20;

impl Driver {
    pub(super) fn stream_attribute(&self, stream: Native<Stream>, id: u32) -> CuResult<LaunchAttribute> {
        if !is_plain(id) {
            return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
        }
        let mut value = CUlaunchAttributeValue::default();
        // SAFETY: the value is a local with room for any attribute.
        unsafe {
            self.functions.cuStreamGetAttribute(stream.as_raw(), CUlaunchAttributeID(id), &mut value)?;
        }
        // SAFETY: every byte of the union belongs to its `pad`, and any byte is a valid number.
        Ok(LaunchAttribute { id, value: unsafe { value.pad }.map(|byte| byte as u8) })
    }

    pub(super) fn set_stream_attribute(
        &self,
        stream: Native<Stream>,
        wanted: &LaunchAttribute,
    ) -> CuResult<()> {
        let wanted = attribute(wanted)?;
        // SAFETY: the value is a local, and the attribute one without handles or addresses of the program.
        unsafe { self.functions.cuStreamSetAttribute(stream.as_raw(), wanted.id, &wanted.value) }
    }

    /// A barrier between the stream's memory operations, or the completion of writes from other devices.
    pub(super) fn stream_barrier(&self, stream: Native<Stream>, operation: u32, flags: u32) -> CuResult<()> {
        let mut params = CUstreamBatchMemOpParams::default();
        match CUstreamBatchMemOpType(operation) {
            kind @ CUstreamBatchMemOpType::CU_STREAM_MEM_OP_BARRIER => {
                params.memoryBarrier.operation = kind;
                params.memoryBarrier.flags = flags;
            }
            kind @ CUstreamBatchMemOpType::CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES => {
                params.flushRemoteWrites.operation = kind;
                params.flushRemoteWrites.flags = flags;
            }
            _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        }
        // SAFETY: a list of one, which the driver reads during the call.
        unsafe { self.functions.cuStreamBatchMemOp_v2(stream.as_raw(), 1, &params, 0) }
    }

    /// The log from `start` on, at most `size` bytes, and where it goes on.
    pub(super) fn dump_logs(
        &self,
        start: Option<&CUlogIterator>,
        size: usize,
    ) -> CuResult<(Vec<u8>, CUlogIterator)> {
        let mut text = vec![0; size.min(MOST_LOG_BYTES)];
        let (mut length, mut next) = (text.len(), start.copied().unwrap_or_default());
        let iterator = if start.is_some() { &raw mut next } else { core::ptr::null_mut() };
        // SAFETY: the buffer has `length` bytes; the driver writes no more and says how many.
        unsafe {
            self.functions.cuLogsDumpToMemory(iterator, text.as_mut_ptr().cast(), &mut length, 0)?;
        }
        text.truncate(length);
        Ok((text, next))
    }
}
