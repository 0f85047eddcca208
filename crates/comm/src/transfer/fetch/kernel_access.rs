//! Peer memory mapped for kernels. A peer offers it, and this rank opens it as it does to
//! copy from it; but what happens there, and when it ends, is between the two ranks.

use super::choose::ends;
use super::fetcher::{Destination, Fetcher};
use super::order::Source;
use crate::channels::Channel;
use crate::channels::TransferError;
use crate::channels::message::Message;
use crate::cuda::{DeviceMemory, Driver, GpuAccess, Scope};
use crate::matching::Descriptor;

/// Memory of a peer that kernels here reach, while this lives.
#[derive(Debug)]
pub struct MappedMemory {
    /// Where it begins here.
    pub address: u64,
    /// By which channel it was opened.
    pub channel: Channel,
    _source: Source,
}

impl Fetcher {
    /// Opens the memory that a descriptor describes for kernels that use this rank's own memory, too; none
    /// where no channel opens it there.
    pub(crate) fn map_for_kernels(
        &mut self,
        descriptor: &Descriptor,
        driver: &'static Driver,
        own: DeviceMemory,
    ) -> Result<Option<MappedMemory>, TransferError> {
        let mapped = self.open_for_kernels(descriptor, driver, own);
        mapped.map_err(|error| self.connection.ended_by(error))
    }

    fn open_for_kernels(
        &mut self,
        descriptor: &Descriptor,
        driver: &'static Driver,
        own: DeviceMemory,
    ) -> Result<Option<MappedMemory>, TransferError> {
        self.receive_state_words()?;
        let memory = descriptor.memory;
        let destination = Destination::of(driver, own, memory.gpu);
        if let GpuAccess::Seen(_) = destination.access {
            // The driver copies between the two GPUs, but no kernel of the one reaches the other's memory.
            return Ok(None);
        }
        let context = Scope::context_of(driver, &own)?;
        for channel in self.chooser.channels(&ends(&destination, memory)) {
            let opens = channel == Channel::Ipc && memory.ipc || channel == Channel::Vmm && memory.direct;
            if !opens {
                continue;
            }
            let is_for_own = |source: &Source| source.is_for(context, own.device);
            // What is open in another context, or for another device, is of no use here.
            if !self.source(channel, memory.buffer, &destination).as_ref().is_some_and(is_for_own) {
                self.forget(channel, memory.buffer);
                match self.open_by(channel, descriptor, &destination) {
                    Ok(()) => {
                        self.connection.send_message(Message::Done { operation: descriptor.operation })?
                    }
                    Err(error) if error.ends_connection() => return Err(error),
                    Err(error) => {
                        self.chooser.failed(channel, &error);
                        continue;
                    }
                }
            }
            let found =
                self.source(channel, memory.buffer, &destination).filter(is_for_own).and_then(|source| {
                    let address = source.at(memory.offset, descriptor.bytes)?;
                    Some(MappedMemory { address, channel, _source: source })
                });
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    fn forget(&mut self, channel: Channel, buffer: u64) {
        match channel {
            Channel::Ipc => self.opened.remove(buffer),
            Channel::Vmm => self.mapped.remove(buffer),
            _ => {}
        }
    }

    /// Asks the peer for the buffer that a descriptor describes, so that it stays open.
    fn open_by(
        &mut self,
        channel: Channel,
        descriptor: &Descriptor,
        destination: &Destination,
    ) -> Result<(), TransferError> {
        self.connection.send_message(Message::Fetch { channel, operation: descriptor.operation })?;
        let (message, _) = self.receive_message(channel)?;
        if message != (Message::Region { buffer: descriptor.memory.buffer }) {
            return Err(self.connection.wrong("another buffer than it has offered"));
        }
        let Message::Offset { .. } = self.receive_message(channel)?.0 else {
            return Err(self.connection.wrong("a region without an offset"));
        };
        self.region(channel, descriptor.memory.buffer, destination).map(drop)
    }
}
