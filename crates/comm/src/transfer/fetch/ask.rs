//! Fetch requests to the sender.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use super::super::network;
use super::fetcher::{Destination, Fetcher};
use super::order::Order;
use crate::bootstrap::MESSAGE_BYTES;
use crate::channels::Channel;
use crate::channels::TransferError;
use crate::channels::message::Message;
use crate::channels::staging::{HOST_SLOTS, HostSlots, Ring};
use crate::cuda::{IPC_HANDLE_BYTES, Mapping, Opened};

impl Fetcher {
    pub(super) fn fetch_by(
        &mut self,
        channel: Channel,
        order: &Order,
        destination: &Destination,
    ) -> Result<(), TransferError> {
        if channel == Channel::Tcp {
            return self.fetch_over_network(order, destination);
        }
        if matches!(channel, Channel::Rdma | Channel::Loopback) {
            return self.fetch_by_rdma(channel, order, destination);
        }
        if matches!(channel, Channel::Staged | Channel::Bar) && self.slots.is_none() {
            let (slots, memory) = HostSlots::new(HOST_SLOTS).map_err(TransferError::Memory)?;
            let Ring { count, bytes, .. } = slots.ring;
            self.connection
                .send_with_descriptor(Message::Slots { count, bytes }, Some(memory.descriptor()))?;
            self.slots = Some(slots);
            self.openings.open();
        }
        let scope = destination.scope();
        // Before the peer writes to them.
        if let (Channel::Staged, Ok(Some(scope)), Some(slots)) = (channel, &scope, &mut self.slots) {
            slots.pin(scope);
        }
        self.connection.send_message(Message::Fetch { channel, operation: order.operation })?;
        let (message, descriptor) = self.receive_message(channel)?;
        match message {
            Message::Piece { .. } if channel == Channel::Staged => {
                let slots = self.slots.as_ref().ok_or_else(|| self.connection.wrong("slots"))?;
                self.pass(Some(message), order, scope, slots.ring, channel, |slot| slots.address(slot))
            }
            Message::Piece { .. } if channel == Channel::Bar => self.pass_to_bar(message, order, destination),
            Message::Bounce { count, bytes, total, is_new } if channel == Channel::Vmm => {
                let ring =
                    Ring::checked(count, bytes).filter(|ring| ring.total() <= total).map(Ring::growing);
                let ring = ring.ok_or_else(|| self.connection.wrong("a bounce buffer of such a size"))?;
                let mapped = self.map_bounce(is_new, descriptor, total, destination);
                if is_new {
                    self.connection.send_message(Message::Need { needed: mapped.is_ok() })?;
                }
                let start = mapped?;
                self.pass(None, order, scope, ring, channel, |slot| start + ring.offset(slot))
            }
            Message::Region { buffer } if matches!(channel, Channel::Ipc | Channel::Vmm) => {
                let Message::Offset { offset } = self.receive_message(channel)?.0 else {
                    return Err(self.connection.wrong("a region without an offset"));
                };
                let start = self.region(channel, buffer, destination)?;
                match scope? {
                    // SAFETY: the receive's memory is this function's until the receive ends, and the
                    // sender's stays as it is until it hears of the end.
                    Some(scope) => Ok(unsafe {
                        scope.copy(order.to, start.saturating_add(offset), order.bytes as usize)
                    }?),
                    None => Err(self.connection.wrong("a region for a rank without a GPU")),
                }
            }
            _ => Err(self.connection.wrong("another answer than the channel has")),
        }
    }

    fn fetch_over_network(&mut self, order: &Order, destination: &Destination) -> Result<(), TransferError> {
        // Memory of the host is received into as it is.
        let scope = destination.memory.and_then(|_| destination.scope().transpose()).transpose()?;
        let slots = match self.slots.take() {
            Some(slots) => slots,
            None => {
                self.openings.open();
                HostSlots::new(HOST_SLOTS).map_err(TransferError::Memory)?.0
            }
        };
        let slots = self.slots.insert(slots);
        if let Some(scope) = &scope {
            slots.pin(scope);
        }
        self.connection.send_message(Message::Fetch { channel: Channel::Tcp, operation: order.operation })?;
        let (slots, scope) =
            (self.slots.as_ref().ok_or_else(|| self.connection.wrong("slots"))?, scope.as_ref());
        let receive_message = || self.receive_message(Channel::Tcp).map(|(message, _)| message);
        // SAFETY: the receive's memory is this function's until the receive ends.
        unsafe { network::receive(&self.connection, slots, order.bytes, order.to, scope, receive_message) }
    }

    /// Opens the peer's buffer, unless it is open. Says where it begins here.
    pub(super) fn region(
        &mut self,
        channel: Channel,
        buffer: u64,
        destination: &Destination,
    ) -> Result<u64, TransferError> {
        let known = self.source(channel, buffer, destination).map(|source| source.start());
        self.connection.send_message(Message::Need { needed: known.is_none() })?;
        if let Some(start) = known {
            return Ok(start);
        }
        self.openings.open();
        let (message, descriptor) = self.receive_message(channel)?;
        let handle = match message {
            Message::Handle => Some(self.receive_ipc_handle()?),
            _ => None,
        };
        // What was to be heard has been; what fails from here on leaves the connection in order.
        let scope = destination.opening_scope()?;
        let (driver, device) =
            destination.opener().ok_or_else(|| self.connection.wrong("a region for no GPU"))?;
        match (message, handle, descriptor) {
            (Message::Handle, Some(handle), _) => {
                let scope =
                    scope.ok_or_else(|| self.connection.wrong("a region for a rank without a GPU"))?;
                let opened = self.opened.open(|| Opened::new(&scope, &handle).map(Arc::new))?;
                let start = opened.address;
                self.opened.insert(buffer, opened);
                Ok(start)
            }
            (Message::Export { bytes }, _, Some(descriptor)) => {
                let bytes =
                    usize::try_from(bytes).map_err(|_| self.connection.wrong("memory of such a size"))?;
                let import = || Mapping::import(driver, descriptor.as_fd(), bytes, device).map(Arc::new);
                let mapping = self.mapped.open(import)?;
                let start = mapping.address;
                self.mapped.insert(buffer, mapping);
                Ok(start)
            }
            (Message::Export { .. }, _, None) => Err(TransferError::NoDescriptor(self.connection.peer)),
            _ => Err(self.connection.wrong("a region without a way to it")),
        }
    }

    fn receive_ipc_handle(&self) -> Result<[u8; IPC_HANDLE_BYTES], TransferError> {
        let mut handle = [0; IPC_HANDLE_BYTES];
        for part in handle.as_chunks_mut::<MESSAGE_BYTES>().0 {
            *part = self.connection.receive_message_bytes()?.0;
        }
        Ok(handle)
    }

    fn map_bounce(
        &mut self,
        is_new: bool,
        descriptor: Option<OwnedFd>,
        total: u64,
        destination: &Destination,
    ) -> Result<u64, TransferError> {
        if is_new {
            self.openings.open();
            self.bounce = None;
            let (driver, device) =
                destination.opener().ok_or_else(|| self.connection.wrong("a bounce buffer for no GPU"))?;
            let _scope = destination.opening_scope()?;
            let descriptor = descriptor.ok_or(TransferError::NoDescriptor(self.connection.peer))?;
            let bytes = usize::try_from(total)
                .map_err(|_| self.connection.wrong("a bounce buffer of such a size"))?;
            self.bounce = Some(Mapping::import(driver, descriptor.as_fd(), bytes, device)?);
        }
        let mapping =
            self.bounce.as_ref().ok_or_else(|| self.connection.wrong("a bounce buffer that is not there"))?;
        destination.let_use(mapping)?;
        Ok(mapping.address)
    }
}
