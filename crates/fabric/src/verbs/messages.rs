//! How do the frames of a link travel over queue pairs?

use std::sync::Arc;

use super::Failure;
use super::credit::Class;
use super::look::AT_ONCE;
use super::state::State;
use super::waiting::InVain;
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

/// Bytes of frames that lie in a receive.
pub struct Filled {
    pub receive: usize,
    pub at: usize,
    pub end: usize,
}

/// The direction from the peer.
pub struct Receiving(pub Arc<State>);

impl ReceiveMessages for Receiving {
    fn receive(&mut self, _link: &Arc<Shared>, into: &mut [u8], wait: bool) -> Result<usize, LinkError> {
        let Self(state) = self;
        state.stand_in.attend();
        let mut in_vain = InVain::default();
        loop {
            let taken = state.take_frames(into)?;
            if taken > 0 {
                state.stand_in.leave();
                if state.paths[0].is_holding() {
                    // Nobody may look for a while.
                    state.pump_first()?;
                }
                return Ok(taken);
            }
            if state.look() {
                in_vain = InVain::default();
                continue;
            }
            // What came before the end still counts.
            state.check()?;
            if !wait {
                state.give_back_the_rest();
                return Ok(0);
            }
            if !in_vain.may_go_on(state.patience()) {
                state.give_back_the_rest();
                state.sleep()?;
            } else if in_vain.is_long() {
                state.give_back_the_rest();
            }
        }
    }
}

impl State {
    /// Bytes of frames that have come; `into` gets as many as it has room for.
    fn take_frames(&self, into: &mut [u8]) -> Result<usize, LinkError> {
        let mut taken = 0;
        let mut read = [self.receive(0, 0); AT_ONCE];
        let mut count = 0;
        {
            let mut incoming = self.incoming.lock();
            while let Some(filled) = incoming.front_mut() {
                let some = (filled.end - filled.at).min(into.len() - taken);
                // SAFETY: the bytes lie in the buffer, and are ours until their receive is posted again.
                let bytes =
                    unsafe { core::slice::from_raw_parts(self.receives.as_ptr().add(filled.at), some) };
                into[taken..taken + some].copy_from_slice(bytes);
                taken += some;
                filled.at += some;
                if filled.at < filled.end {
                    break;
                }
                read[count] = self.receive(0, filled.receive);
                count += 1;
                incoming.pop_front();
                if count == AT_ONCE {
                    break;
                }
            }
        }
        if count > 0 {
            let path = &self.paths[0];
            // SAFETY: what lay in these receives has been copied out.
            let posted = unsafe { path.pair().post_receives(&read[..count]) };
            posted.map_err(|error| Failure::Device(error.to_string()))?;
            if path.posted_again(Class::Frame, count) {
                self.pump_first()?;
            }
        }
        Ok(taken)
    }

    pub(super) fn has_frames(&self) -> bool {
        !self.incoming.lock().is_empty()
    }
}
