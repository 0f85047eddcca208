//! RDMA path of a sender to one receiver.

use causeway_ibverbs::RemoteMemory;

use super::error::TransferError;
use super::message::{Message, Refusal};
use super::rdma_staging::RdmaStaging;
use super::regions::Regions;
use crate::bootstrap::Connection;
use crate::cuda::{DeviceMemory, Scope};
use crate::verbs::{EndpointAddress, RdmaError, ReadTarget, Use};

/// A path to the receiver's card.
#[derive(Debug)]
pub(super) struct RdmaPath {
    /// In front of the memory, so that nobody reads it any more when it goes.
    target: ReadTarget,
    regions: Regions,
    pub(super) slots: RdmaStaging,
}

impl RdmaPath {
    /// Joins the receiver's card with one here: the answer to `Join`. None where that cannot be, which the
    /// receiver has been told then, or knows.
    pub(super) fn join(connection: &Connection) -> Result<Option<Self>, TransferError> {
        let peer = connection.receive_endpoint()?;
        let Ok((mut rdma_path, own)) = Self::prepare(connection, &peer) else {
            connection.send_message(Message::Refused(Refusal::Rdma))?;
            return Ok(None);
        };
        connection.send_message(Message::Joined)?;
        connection.send_endpoint(&own)?;
        // Where rdma_cm does not join the two, it tells the receiver, too.
        Ok(rdma_path.target.finish().is_ok().then_some(rdma_path))
    }

    fn prepare(
        connection: &Connection,
        peer: &EndpointAddress,
    ) -> Result<(Self, EndpointAddress), RdmaError> {
        let target = ReadTarget::new(peer, connection.local_address())?;
        let slots = RdmaStaging::new(target.domain(), Use::Exposed)?;
        let own = target.end(slots.endpoint_slots());
        Ok((Self { target, regions: Regions::new(), slots }, own))
    }

    /// Where the receiver's card may read an address of an allocation; none where no card reaches that.
    pub(super) fn expose(
        &mut self,
        scope: &Scope<'static>,
        memory: &DeviceMemory,
        address: u64,
    ) -> Option<RemoteMemory> {
        let region = self.regions.of(self.target.domain(), scope, memory, Use::Exposed)?;
        Some(RemoteMemory { address, key: region.remote_key() })
    }
}
