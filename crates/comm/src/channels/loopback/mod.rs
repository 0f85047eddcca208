//! By a card of this host, which reads one rank's memory and writes the other's.

use super::ends::{Ends, Missing};
use super::rdma;
use crate::pair::{Pair, Place};

pub(super) fn probe(pair: &Pair, ends: &Ends) -> Result<(), Missing> {
    if pair.place == Place::OtherHost { Err(Missing::OtherHost) } else { rdma::through_cards(ends) }
}
