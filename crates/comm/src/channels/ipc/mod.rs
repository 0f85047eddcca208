//! The peer's memory, opened by a handle of cudaIPC.

use super::channel::{Ends, Missing};
use crate::pair::{Locality, Pair, Visibility};

/// The driver opens a handle only where the exporter's process has an id in one of the two PID namespaces.
/// Between two H200 in containers with their own ones `cuIpcOpenMemHandle` ended with
/// `CUDA_ERROR_INVALID_CONTEXT` (driver 580.159.04, 2026-11-21); an ancestor's namespace did no harm.
pub(super) fn probe(pair: &Pair, ends: &Ends) -> Result<(), Missing> {
    match pair.locality {
        Locality::OtherHost => return Err(Missing::OtherHost),
        Locality::SameProcess => return Err(Missing::SameProcess),
        Locality::SameContainer | Locality::SameHost => {}
    }
    let gpus = ends.gpus()?;
    if gpus.iter().any(|gpu| !gpu.ipc) {
        return Err(Missing::NoHandles);
    }
    ends.check_gpu_access()?;
    if pair.processes == Visibility::Hidden { Err(Missing::Hidden) } else { Ok(()) }
}
