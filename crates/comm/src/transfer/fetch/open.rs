//! Copy out of peer memory that is open here.

use std::sync::Arc;

use super::super::state_words::StateWords;
use super::fetcher::{Destination, Fetcher};
use super::order::{Order, Source, Wait};
use crate::channels::Channel;
use crate::cuda::PendingCopy;

/// What came of the attempt to copy without asking the sender.
pub(super) enum Open {
    No,
    There,
    Started(PendingCopy, Source, Arc<StateWords>, u16),
}

impl Fetcher {
    /// Fetches a payload from memory that is open here already, without a message to the sender.
    pub(super) fn fetch_open(
        &mut self,
        channel: Channel,
        order: &Order,
        destination: &Destination,
        wait: Wait,
    ) -> Open {
        let state_words = self.state_words.as_ref().and_then(Option::as_ref).cloned();
        let Some((state_words, word)) = state_words.zip(order.word) else { return Open::No };
        let Some(source) = self.source(channel, order.source.buffer, destination) else { return Open::No };
        let Ok(Some(scope)) = destination.scope() else { return Open::No };
        if !state_words.take(word, order.operation) {
            // The sender has it back, and gives a copy.
            return Open::No;
        }
        let (from, bytes) = (source.start().saturating_add(order.source.offset), order.bytes as usize);
        if wait == Wait::ForNothing {
            // SAFETY: the receive's memory is this function's until the receive ends, and the sender's stays
            // as it is until its word says that this is done. The peer's buffer stays open with the copy.
            let pending = unsafe { PendingCopy::begin(&scope, order.to, from, bytes) };
            return pending.map_or(Open::No, |copy| Open::Started(copy, source, state_words, word));
        }
        // SAFETY: as above.
        if unsafe { scope.copy(order.to, from, bytes) }.is_err() {
            // The sender is asked, and whatever is wrong is told then.
            return Open::No;
        }
        state_words.finish(word, order.operation);
        Open::There
    }

    /// A buffer of the peer's, if it is open for the GPU that copies.
    pub(super) fn source(
        &mut self,
        channel: Channel,
        buffer: u64,
        destination: &Destination,
    ) -> Option<Source> {
        match channel {
            Channel::Ipc => {
                let opened = self.opened.get(buffer).cloned()?;
                if !opened.is_open() {
                    self.opened.remove(buffer);
                    return None;
                }
                Some(Source::Opened(opened))
            }
            Channel::Vmm => {
                let mapping = self.mapped.get(buffer)?;
                destination.let_use(mapping).ok()?;
                Some(Source::Mapped(Arc::clone(mapping)))
            }
            _ => None,
        }
    }
}
