//! Hello messages: the test that queue pairs carry messages.

use std::sync::atomic::Ordering;
use std::time::Instant;

use causeway_transport::LinkError;

use crate::state::State;

impl State {
    /// Sends the first message on each path.
    pub fn send_hellos(&self) -> Result<(), LinkError> {
        Ok(self.paths.iter().try_for_each(|path| path.post_hello(&self.messages))?)
    }

    /// Waits until the first message of the peer has come on each path.
    pub fn wait_for_hellos(&self, deadline: Instant) -> Result<(), LinkError> {
        let all = self.paths.len() as u32;
        self.wait_for(|| match self.hellos.load(Ordering::Relaxed) {
            received if received >= all => Ok(Some(())),
            _ if Instant::now() < deadline => Ok(None),
            _ => Err(LinkError::PeerSilent),
        })
    }
}
