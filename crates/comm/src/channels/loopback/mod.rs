//! By a card of this host, which reads one rank's memory and writes the other's.

use super::channel::{Ends, Missing};
use super::rdma;
use crate::pair::{Locality, Pair};

pub(super) fn probe(pair: &Pair, ends: &Ends) -> Result<(), Missing> {
    if pair.locality == Locality::OtherHost { Err(Missing::OtherHost) } else { rdma::probe_rdma(ends) }
}
