//! Through the GPU's BAR, which the processor writes and reads like memory (GDRCOPY): for the shortest
//! messages.

use super::ends::{Ends, Missing};
use crate::pair::{Locality, Pair};

pub(super) fn probe(pair: &Pair, ends: &Ends) -> Result<(), Missing> {
    if pair.locality == Locality::OtherHost {
        return Err(Missing::OtherHost);
    }
    ends.gpus()?;
    ends.bar.clone().map_err(Missing::NoBar)?;
    // Between the two BARs bytes pass through memory of the host.
    pair.memory.as_ref().map(drop).map_err(|why| Missing::NoMemory(why.clone()))
}
