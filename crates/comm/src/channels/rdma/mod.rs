//! By network cards, between two hosts: the receiver's card reads the sender's memory. A card reaches a GPU's
//! memory where both drivers can (GPUDirect RDMA); otherwise bytes pass through memory of the host, at the
//! end where it does not.

use super::ends::{Ends, Missing};
use crate::pair::{Pair, Place};

pub(super) fn probe(pair: &Pair, ends: &Ends) -> Result<(), Missing> {
    if pair.place != Place::OtherHost {
        return Err(Missing::SameHost);
    }
    through_cards(ends)
}

/// What two cards need.
pub(super) fn through_cards(ends: &Ends) -> Result<(), Missing> {
    ends.cards.clone().map_err(Missing::NoCard)
}
