//! Memory that has a handle, and for how long it is there.

use super::host::HostPages;
use crate::locks::{Mutex, rank};
use crate::model::handles;
use crate::submit::ipc_imports;
use crate::submit::send;
use causeway_api::calls;
use causeway_api::handle::{Allocation, Context, Handle};
use causeway_api::sys::{CUdevice, CUmemLocation, CUmemLocationType, CUresult};
use causeway_api::types::{AllocationProperties, ExportToken};

const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;

/// Memory that `cuMemCreate` made or that came from another process.
pub struct AllocationState {
    /// Its handle.
    pub handle: Handle<Allocation>,
    /// Where commands about it go: the null context of its server.
    pub(super) nowhere: Handle<Context>,
    /// Its size in bytes.
    pub size: u64,
    /// What the program asked for; devices have the server's numbers.
    pub properties: AllocationProperties,
    /// The program's number of its device; of memory of the host, that of a device that may be given access.
    pub device: CUdevice,
    /// Its pages in this process, if it is memory of the host.
    pub(super) host: Option<HostPages>,
    pub(super) uses: Mutex<rank::AllocationUses, Uses>,
}

/// The server releases memory when nothing of this is left.
#[derive(Default)]
pub(super) struct Uses {
    /// How often the program has to release it.
    pub(super) references: usize,
    pub(super) mappings: usize,
    pub(super) token: Option<ExportToken>,
}

impl handles::Object for AllocationState {
    type Kind = Allocation;
}

impl AllocationState {
    /// Where it is, as the program hears it. Memory of the host without a wish is that of node 0, with
    /// NVIDIA's driver, too.
    pub fn location(&self) -> CUmemLocation {
        let location_type = CUmemLocationType(self.properties.location);
        match location_type {
            CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST => {
                CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA, id: 0 }
            }
            _ if self.host.is_some() => {
                CUmemLocation { type_: location_type, id: self.properties.location_id }
            }
            _ => CUmemLocation { type_: location_type, id: self.device },
        }
    }

    /// Takes one use away; the last one releases the memory.
    pub(super) fn drop_use(&self, count: impl FnOnce(&mut Uses) -> &mut usize) -> Result<(), CUresult> {
        let mut uses = self.uses.lock();
        let count = count(&mut uses);
        *count = count.checked_sub(1).ok_or(INVALID)?;
        if uses.references > 0 || uses.mappings > 0 {
            return Ok(());
        }
        if let Some(token) = uses.token.take() {
            send::post_in(self.nowhere, &calls::export_withdraw { token })?;
        }
        handles::remove::<AllocationState>(self.handle);
        handles::drop_handle(self.handle);
        // Nobody finds it any more, and imports have a lock of their own, which comes before this one.
        drop(uses);
        ipc_imports::end(self.handle);
        let ended = self.host.as_ref().map_or(Ok(()), HostPages::end);
        send::post_in(self.nowhere, &calls::allocation_release { allocation: self.handle }).and(ended)
    }
}
