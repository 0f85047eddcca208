//! What does a sender have for a receiver that reads by a card?

use causeway_ibverbs::RemoteMemory;

use super::card_slots::CardSlots;
use super::error::TransferError;
use super::message::{Message, Refusal};
use super::regions::Regions;
use crate::bootstrap::Connection;
use crate::cuda::{DeviceMemory, Scope};
use crate::verbs::{CardError, End, Lender, Use};

/// A path to the receiver's card.
#[derive(Debug)]
pub(super) struct Lending {
    /// In front of the memory, so that nobody reads it any more when it goes.
    lender: Lender,
    regions: Regions,
    pub(super) slots: CardSlots,
}

impl Lending {
    /// Joins the receiver's card with one here: the answer to `Join`. None where that cannot be, which the
    /// receiver has been told then, or knows.
    pub(super) fn join(connection: &Connection) -> Result<Option<Self>, TransferError> {
        let peer = connection.hear_end()?;
        let Ok((mut lending, own)) = Self::prepare(connection, &peer) else {
            connection.say(Message::Refused(Refusal::Card))?;
            return Ok(None);
        };
        connection.say(Message::Joined)?;
        connection.say_end(&own)?;
        // Where rdma_cm does not join the two, it tells the receiver, too.
        Ok(lending.lender.finish().is_ok().then_some(lending))
    }

    fn prepare(connection: &Connection, peer: &End) -> Result<(Self, End), CardError> {
        let lender = Lender::new(peer, connection.local_address())?;
        let slots = CardSlots::new(lender.domain(), Use::Lent)?;
        let own = lender.end(slots.told());
        Ok((Self { lender, regions: Regions::new(), slots }, own))
    }

    /// Where the receiver's card may read an address of an allocation; none where no card reaches that.
    pub(super) fn lend(
        &mut self,
        scope: &Scope<'static>,
        memory: &DeviceMemory,
        address: u64,
    ) -> Option<RemoteMemory> {
        let region = self.regions.of(self.lender.domain(), scope, memory, Use::Lent)?;
        Some(RemoteMemory { address, key: region.remote_key() })
    }
}
