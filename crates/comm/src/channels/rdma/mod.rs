//! By network cards that reach the GPUs' memory, between two hosts.

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
    let gpus = ends.gpus()?;
    ends.cards.clone().map_err(Missing::NoCard)?;
    if gpus.iter().all(|gpu| gpu.gpudirect) { Ok(()) } else { Err(Missing::NoGpudirect) }
}
