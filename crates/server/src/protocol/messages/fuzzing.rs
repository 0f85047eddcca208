//! Properties of a worker's control socket for any bytes, in either direction.
//!
//! The body of the fuzz target `control`. A worker runs what its client sent it, so that its broker takes
//! nothing for granted.

use super::{ToBroker, ToMonitor, ToWorker};
use causeway_wire::codec::{Decode, Decoder, Encode};

/// Whatever can be decoded as a message is encoded as bytes that mean the same.
pub fn control(bytes: &[u8]) {
    must_mean_the_same::<ToBroker>(bytes);
    must_mean_the_same::<ToWorker>(bytes);
    must_mean_the_same::<ToMonitor>(bytes);
}

fn must_mean_the_same<M: for<'a> Decode<'a> + Encode>(bytes: &[u8]) {
    match decode::<M>(bytes) {
        Ok(again) => {
            // Texts that were not printable are by now, so these bytes stay as they are.
            assert_eq!(decode::<M>(&again).as_ref(), Ok(&again));
        }
        Err(why) => assert!(!why.is_empty()),
    }
}

/// The message that `bytes` are, as it is encoded; or why they are none.
fn decode<M: for<'a> Decode<'a> + Encode>(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let mut input = Decoder::new(bytes);
    let message = input.value::<M>().map_err(|error| error.to_string())?;
    input.finish().map_err(|error| error.to_string())?;
    let mut again = Vec::new();
    message.encode(&mut again);
    Ok(again)
}
