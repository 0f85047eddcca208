//! How does a heap get blocks from the server, how large are they, and how do they go back?

use super::{Heap, of_device};
use crate::log::info;
use crate::model::address::window::{self, Window};
use crate::model::{device, handles};
use crate::remote::session;
use crate::submit::loans;
use causeway_api::calls;
use causeway_api::handle::{Allocation, Context, Handle};
use causeway_api::sys::{CUdevice, CUmemAccess_flags, CUmemLocationType, CUresult};
use causeway_api::types::{AddressAccess, ExportToken};

/// Smaller allocations share blocks; larger ones have one of their own.
const LARGEST_SHARED: u64 = 8 << 20;
/// Blocks for small allocations grow from the first size to the second with what the heap holds.
const BLOCK_SIZES: (u64, u64) = (4 << 20, 32 << 20);

/// One block.
pub(super) struct Block {
    pub handle: Handle<Allocation>,
    pub size: u64,
    /// Under which the broker has it for other processes.
    pub token: Option<ExportToken>,
}

impl Heap {
    /// Has the server make a block for at least `size` bytes.
    pub(super) fn grow(&self, window: &Window, size: u64) -> Result<(), CUresult> {
        let granularity = window.granularity();
        let exact = size.checked_next_multiple_of(granularity).ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
        let held = self.state.lock().reserved.current;
        let shared = held.clamp(BLOCK_SIZES.0, BLOCK_SIZES.1).next_multiple_of(granularity);
        let out_of_memory = CUresult::CUDA_ERROR_OUT_OF_MEMORY;
        if size <= LARGEST_SHARED && shared > exact {
            match self.add_block(window, shared) {
                Err(error) if error == out_of_memory => {}
                outcome => return outcome,
            }
        }
        match self.add_block(window, exact) {
            Err(error) if error == out_of_memory => {}
            outcome => return outcome,
        }
        // What heaps of this device keep may be what is missing.
        info!("the device has no {exact} bytes left; memory that is kept for later goes back");
        let heaps = of_device(self.device);
        for stream in heaps.iter().flat_map(|heap| heap.state.lock().arena.streams()) {
            // An error of its work is no reason to give up; it is reported where the work is waited for.
            let _ = stream.synchronize();
        }
        heaps.iter().for_each(|heap| heap.trim(0));
        self.add_block(window, exact)
    }

    fn add_block(&self, window: &Window, size: u64) -> Result<(), CUresult> {
        let out_of_memory = CUresult::CUDA_ERROR_OUT_OF_MEMORY;
        let (reserved, accessors) = {
            let state = self.state.lock();
            (state.reserved.current, state.accessors.clone())
        };
        if self.limit != 0
            && reserved.saturating_add(size) > self.limit.next_multiple_of(window.granularity())
        {
            return Err(out_of_memory);
        }
        let nowhere = self.without_context()?;
        let base = window.take(size, 0, 0).ok_or(out_of_memory)?;
        let block = handles::create::<Allocation>();
        let read_and_write = CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        let request = calls::memory_block_create {
            block,
            address: base,
            size: size as usize,
            device: device::on_server(self.device)?,
            accessors: accessors
                .iter()
                .filter(|(_, flags)| *flags == read_and_write)
                .map(|(d, _)| *d)
                .collect(),
        };
        if let Err(error) = session::call_in(nowhere, &request) {
            handles::drop_handle(block);
            window.give_back(base, size);
            if error == CUresult::CUDA_ERROR_NOT_SUPPORTED {
                window::lose(nowhere.server());
            }
            return Err(error);
        }
        for (accessor, flags) in accessors.into_iter().filter(|(_, flags)| *flags != read_and_write) {
            set_access(nowhere, base, size, accessor, flags)?;
        }
        let mut state = self.state.lock();
        state.blocks.insert(base, Block { handle: block, size, token: None });
        state.arena.add_block(base, size);
        let held = state.arena.held_bytes();
        state.reserved.set(held);
        Ok(())
    }

    /// Gives blocks back to the server. No work uses them any more.
    pub(super) fn release(&self, blocks: Vec<(u64, Block)>) {
        // A heap is of a device that the program has.
        let Ok(nowhere) = self.without_context() else { return };
        for (base, Block { handle, size, token }) in blocks {
            handles::drop_handle(handle);
            loans::end(handle);
            if let Some(token) = token {
                // As below: an error means that the session is lost.
                let _ = session::post_in(nowhere, &calls::export_withdraw { token });
            }
            let request = calls::memory_block_release { block: handle, address: base, size: size as usize };
            // The addresses may be used again at once: the server carries commands out in order. An error means that
            // the session is lost, and its memory with it.
            let _ = session::post_in(nowhere, &request);
            if let Some(window) = window::window(nowhere.server()) {
                window.give_back(base, size);
            }
        }
    }
}

/// Lets a device use a block.
pub(super) fn set_access(
    nowhere: Handle<Context>,
    base: u64,
    size: u64,
    device: CUdevice,
    flags: CUmemAccess_flags,
) -> Result<(), CUresult> {
    let location = CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE.0;
    let access = vec![AddressAccess { location, location_id: device, flags: flags.0 }];
    session::call_in(nowhere, &calls::address_access { address: base, size: size as usize, access })
}
