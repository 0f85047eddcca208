//! Pending operation: waiting for its completion.

use std::sync::Arc;

use causeway_transport::{LinkError, Pending, Shared};

use crate::operation::Operation;
use crate::state::State;

/// Longer transfers of registered memory go in pieces of this many bytes, so that the peer can go on with the
/// first.
pub const LONG_STEP: usize = 4 << 20;

/// Ends an operation when nothing holds it any more.
pub struct Ends(pub Arc<Operation>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.done();
    }
}

/// An operation that reads memory of somebody who waits for its end.
pub struct PendingOperation {
    pub link: Arc<Shared>,
    pub state: Arc<State>,
    pub operation: Arc<Operation>,
}

impl Pending for PendingOperation {
    fn wait(&self) -> Result<(), LinkError> {
        let waited = self.state.wait_for(|| Ok(self.operation.is_over().then_some(())));
        // Whoever waits hears of the loss of the link after its owner has.
        waited.map_err(|error| self.link.lose(error))
    }

    fn release(&self) {
        // After the end of the link nothing reads the memory any more.
        let _ = self.wait();
    }
}
