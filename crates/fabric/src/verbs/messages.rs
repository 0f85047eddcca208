//! How do the frames of a link travel over queue pairs?

use std::sync::Arc;
use std::sync::atomic::Ordering;

use causeway_verbs::Receive;

use super::Failure;
use super::credit::Class;
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
pub struct Receiving {
    state: Arc<State>,
    /// Receives whose frames have been read. They are posted again when the thread comes back, and not before what came in
    /// them has been dealt with, which somebody may wait for.
    read: Vec<Receive>,
}

impl Receiving {
    pub fn new(state: Arc<State>) -> Self {
        Self { state, read: Vec::new() }
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        // Nobody waits for the device to give back what it does not have.
        self.state.flushed.fetch_add(self.read.len() as u32, Ordering::Relaxed);
    }
}

impl ReceiveMessages for Receiving {
    fn receive(&mut self, _link: &Arc<Shared>, into: &mut [u8], wait: bool) -> Result<usize, LinkError> {
        let Self { state, read } = self;
        state.post_frames_again(read)?;
        state.stand_in.attend();
        let mut in_vain = InVain::default();
        loop {
            let taken = state.take_frames(into, read);
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
                if state.sleep()? {
                    return Ok(0);
                }
            } else if in_vain.is_long() {
                state.give_back_the_rest();
            }
        }
    }
}

impl State {
    /// Bytes of frames that have come; `into` gets as many as it has room for. Receives that hold none any more go to `read`.
    fn take_frames(&self, into: &mut [u8], read: &mut Vec<Receive>) -> usize {
        let mut taken = 0;
        let mut incoming = self.incoming.lock();
        while let Some(filled) = incoming.front_mut() {
            let some = (filled.end - filled.at).min(into.len() - taken);
            // SAFETY: the bytes lie in the buffer, and are ours until their receive is posted again.
            let bytes = unsafe { core::slice::from_raw_parts(self.receives.as_ptr().add(filled.at), some) };
            into[taken..taken + some].copy_from_slice(bytes);
            taken += some;
            filled.at += some;
            if filled.at < filled.end {
                break;
            }
            read.push(self.receive(0, filled.receive));
            incoming.pop_front();
        }
        taken
    }

    /// Posts receives again whose frames have been read.
    fn post_frames_again(&self, read: &mut Vec<Receive>) -> Result<(), LinkError> {
        if read.is_empty() {
            return Ok(());
        }
        let path = &self.paths[0];
        // SAFETY: what lay in these receives has been copied out.
        let posted = unsafe { path.pair().post_receives(read) };
        posted.map_err(|error| Failure::Device(error.to_string()))?;
        if path.posted_again(Class::Frame, read.len()) {
            self.pump_first()?;
        }
        read.clear();
        Ok(())
    }

    pub(super) fn has_frames(&self) -> bool {
        !self.incoming.lock().is_empty()
    }
}
