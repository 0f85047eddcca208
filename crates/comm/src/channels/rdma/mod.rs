//! By network cards, between two hosts: the receiver's card reads the sender's memory. A card reaches a GPU's
//! memory where both drivers can (GPUDirect RDMA); otherwise bytes pass through memory of the host, at the
//! end where it does not.

pub(crate) mod regions;
pub(crate) mod staging;

use super::channel::{Ends, Missing};
use crate::pair::{Locality, Pair};

pub(super) fn probe(pair: &Pair, ends: &Ends) -> Result<(), Missing> {
    if pair.locality != Locality::OtherHost {
        return Err(Missing::SameHost);
    }
    probe_rdma(ends)
}

/// What two cards need.
pub(super) fn probe_rdma(ends: &Ends) -> Result<(), Missing> {
    ends.rdma.clone().map_err(Missing::NoRdmaDevice)
}
