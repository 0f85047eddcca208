//! Channel `ipc`: the peer's memory, opened by a handle of cudaIPC.

use std::sync::Arc;

use super::channel::{Channel, Ends, Missing};
use super::ops::{CHOOSE_OTHER_GPUS, ChannelOps};
use super::peer_memory::{OpenMemory, PeerMemoryOps, copy_from_region, is_needed};
use super::protocol::{Message, Refusal, TransferError};
use super::receiver::{Destination, FetchRequest, Receiver};
use super::sender::{Payload, PayloadSender};
use crate::bootstrap::{Connection, MESSAGE_BYTES};
use crate::cuda::{self, DeviceMemory, IPC_HANDLE_BYTES, Opened};
use crate::matching::Source;
use crate::pair::{Locality, Pair, Visibility};

/// The channel.
pub(super) struct Ipc;

impl ChannelOps for Ipc {
    /// The driver opens a handle only where the exporter's process has an id in one of the two PID
    /// namespaces. Between two H200 in containers with their own ones `cuIpcOpenMemHandle` ended with
    /// `CUDA_ERROR_INVALID_CONTEXT` (driver 580.159.04, 2026-11-21); an ancestor's namespace did no harm.
    fn probe(&self, pair: &Pair, ends: &Ends) -> Result<(), Missing> {
        match pair.locality {
            Locality::OtherHost => return Err(Missing::OtherHost),
            Locality::SameProcess => return Err(Missing::SameProcess),
            Locality::SameContainer | Locality::SameHost => {}
        }
        let gpus = ends.gpus()?;
        if gpus.iter().any(|gpu| !gpu.ipc) {
            return Err(Missing::NoHandles);
        }
        ends.check_gpu_access()?;
        if pair.processes == Visibility::Hidden { Err(Missing::Hidden) } else { Ok(()) }
    }

    /// Copies within GPUs and between them have no bound here.
    fn max_rate(&self) -> f64 {
        f64::INFINITY
    }

    fn advice(&self, missing: &Missing) -> Option<&'static str> {
        match missing {
            Missing::Hidden => Some(
                "Memory of cudaMalloc is sent through a buffer on the GPU (`vmm`), which costs one more \
                 copy. Allocate it so that it can be exported (PyTorch: \
                 PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True), or give both containers one PID \
                 namespace: podman run --pid host, or --pid container:NAME.",
            ),
            Missing::PeerAccess => Some(CHOOSE_OTHER_GPUS),
            _ => None,
        }
    }

    fn accepts(&self, source: &Source) -> bool {
        source.ipc
    }

    fn peer_memory(&self) -> Option<&dyn PeerMemoryOps> {
        Some(self)
    }

    /// Says where the payload lies, and sends the handle where the peer has not opened that yet.
    fn send(&self, sender: &mut PayloadSender<'_>, payload: &Payload<'_>) -> Result<(), TransferError> {
        if !payload.memory.ipc || !payload.is_within() {
            return Err(sender.refused(Channel::Ipc, Refusal::Channel));
        }
        let connection = sender.connection;
        let handle = cuda::ipc_handle(payload.scope.driver(), payload.memory)?;
        if is_needed(connection, payload)? {
            connection.send_message(Message::Handle)?;
            for part in handle.as_chunks::<MESSAGE_BYTES>().0 {
                connection.send_message_bytes(part, None)?;
            }
        }
        Ok(())
    }

    fn receive(
        &self,
        receiver: &mut Receiver,
        request: &FetchRequest,
        destination: &Destination,
    ) -> Result<(), TransferError> {
        let scope = destination.scope();
        receiver.request(Channel::Ipc, request)?;
        match receiver.receive_message(Channel::Ipc)?.0 {
            Message::Region { buffer } => {
                copy_from_region(self, receiver, buffer, request, destination, scope)
            }
            _ => Err(receiver.connection.wrong("another answer than the channel has")),
        }
    }
}

impl PeerMemoryOps for Ipc {
    fn channel(&self) -> Channel {
        Channel::Ipc
    }

    fn opens(&self, source: &Source) -> bool {
        source.ipc
    }

    fn exports(&self, memory: &DeviceMemory) -> bool {
        memory.ipc
    }

    fn find(&self, receiver: &mut Receiver, buffer: u64, _: &Destination) -> Option<OpenMemory> {
        let opened = receiver.opened.get(buffer).cloned()?;
        if !opened.is_open() {
            receiver.opened.remove(buffer);
            return None;
        }
        Some(OpenMemory::Opened(opened))
    }

    fn open(
        &self,
        receiver: &mut Receiver,
        buffer: u64,
        destination: &Destination,
    ) -> Result<u64, TransferError> {
        let Message::Handle = receiver.receive_message(Channel::Ipc)?.0 else {
            return Err(receiver.connection.wrong("a region without a way to it"));
        };
        let handle = receive_handle(&receiver.connection)?;
        // All that the peer sends has been received: what fails from here on leaves the connection in order.
        let scope = destination.opening_scope()?;
        let scope = scope.ok_or_else(|| receiver.connection.wrong("a region for a rank without a GPU"))?;
        let opened = receiver.opened.open(|| Opened::new(&scope, &handle).map(Arc::new))?;
        let start = opened.address;
        receiver.opened.insert(buffer, opened);
        Ok(start)
    }

    fn forget(&self, receiver: &mut Receiver, buffer: u64) {
        receiver.opened.remove(buffer);
    }
}

fn receive_handle(connection: &Connection) -> Result<[u8; IPC_HANDLE_BYTES], TransferError> {
    let mut handle = [0; IPC_HANDLE_BYTES];
    for part in handle.as_chunks_mut::<MESSAGE_BYTES>().0 {
        *part = connection.receive_message_bytes()?.0;
    }
    Ok(handle)
}
