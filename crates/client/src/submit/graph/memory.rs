//! Backing of graph memory: addresses, and the memory there.

use crate::model::graph::reservation::{Addresses, Backing};
use crate::model::{context, device, handles};
use crate::remote::session;
use crate::submit::{address_window, allocation, blocks, send};
use causeway_api::calls;
use causeway_api::handle::{Allocation, Context, Handle};
use causeway_api::sys::{CUdevice, CUdeviceptr, CUresult};

/// Servers: addresses are taken from the session's window and so ask nobody; where there is none, they come
/// with memory.
#[derive(Debug)]
pub struct Servers;

impl Backing for Servers {
    fn reserve(&self, device: CUdevice, size: u64) -> Result<Addresses, CUresult> {
        let context = context::current_state()?.handle;
        session::of(context)?.faults().check()?;
        let Ok(window) = address_window::opened(context.server()) else {
            let base: CUdeviceptr = allocation::allocate(size as usize)?;
            return Ok(Addresses { base, size, device, context, is_of_window: false });
        };
        let rounded = size.checked_next_multiple_of(window.granularity());
        let size = rounded.ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
        let base = window.take(size, 0, 0).ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
        Ok(Addresses { base, size, device, context, is_of_window: true })
    }

    fn release_addresses(&self, addresses: &Addresses) {
        if !addresses.is_of_window {
            // An error of the work before is reported by the stream; the context may be gone, and its memory
            // with it.
            let _ = allocation::free(addresses.base);
        } else if let Ok(window) = address_window::opened(addresses.context.server()) {
            window.release(addresses.base, addresses.size);
        }
    }

    fn make(&self, addresses: &Addresses) -> Result<Handle<Allocation>, CUresult> {
        let block = handles::create::<Allocation>();
        let request = calls::memory_block_create {
            block,
            address: addresses.base,
            size: addresses.size as usize,
            device: device::on_server(addresses.device)?,
            accessors: blocks::peers_of(addresses.device).collect(),
        };
        send::call_in(device::without_context(addresses.device)?, &request).inspect_err(|_| {
            handles::drop_handle(block);
        })?;
        Ok(block)
    }

    fn release(&self, addresses: &Addresses, block: Handle<Allocation>) {
        handles::drop_handle(block);
        let (address, size) = (addresses.base, addresses.size as usize);
        let request = calls::memory_block_release { block, address, size };
        // An error means that the session is lost, and its memory with it.
        let _ =
            device::without_context(addresses.device).and_then(|nowhere| send::post_in(nowhere, &request));
    }

    fn finish(&self, context: Handle<Context>) {
        // The error of that work is its stream's.
        let _ = context::state(context).and_then(|context| context.synchronize());
    }
}
