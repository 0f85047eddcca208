//! How do the frames of a link travel over queue pairs?

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::state::State;
use crate::link::{LinkError, Shared};
use crate::module::{ReceiveMessages, SendMessages};

/// The direction to the peer.
pub struct Sending(pub Arc<State>);

impl SendMessages for Sending {
    fn send(&mut self, bytes: &[u8]) -> Result<(), LinkError> {
        let Self(state) = self;
        let path = &state.paths[0];
        let mut rest = bytes;
        while !rest.is_empty() {
            let posted = state.wait_for(|| match path.post_frames(&state.messages, rest)? {
                0 => Ok(None),
                posted => Ok(Some(posted)),
            })?;
            rest = &rest[posted..];
        }
        Ok(())
    }
}

/// The direction from the peer.
pub struct Receiving(pub Arc<State>);

impl ReceiveMessages for Receiving {
    fn receive(&mut self, _link: &Arc<Shared>, into: &mut [u8], wait: bool) -> Result<usize, LinkError> {
        let Self(state) = self;
        state.is_attended.store(true, Ordering::Relaxed);
        let mut looked_since = Instant::now();
        loop {
            let taken = state.take_frames(into)?;
            if taken > 0 {
                state.is_attended.store(false, Ordering::Relaxed);
                return Ok(taken);
            }
            if state.look() {
                looked_since = Instant::now();
                continue;
            }
            // What came before the end still counts.
            state.check()?;
            if !wait {
                return Ok(0);
            }
            if looked_since.elapsed() < state.patience() {
                core::hint::spin_loop();
            } else {
                state.sleep()?;
            }
        }
    }
}
