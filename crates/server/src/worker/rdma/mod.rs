//! Copies that network cards make by themselves, between device memory and memory that the client has
//! exposed.
//!
//! A copy to the device reads the client's memory when its stream gets there, and the stream goes on when the
//! bytes are in the device's memory; a copy from the device writes them, to memory that the client has
//! exposed or to the client's arena. Where the card does not reach the device's memory, bytes go through
//! staging.
//!
//! | module | contents |
//! | --- | --- |
//! | `gpudirect` | GPUDirect RDMA: device memory that is registered with the links' network cards |

mod gpudirect;

pub use gpudirect::{DeviceBlocks, GpuDirect};

use super::arena::{Arena, ArenaBytes};
use super::incoming::{Buffer, Incoming};
use super::session::{Head, Session};
use super::stream_task;
use causeway_api::calls::{Request, copy_from_device, copy_to_device};
use causeway_api::sys::CUresult;
use causeway_api::types::{Payload, RemoteRegion};
use causeway_gpu::CuResult;
use causeway_link::{DeviceUse, Piece};
use causeway_wire::codec::Encode;
use causeway_wire::message::WorkerMessage;
use std::sync::Arc;

/// The most bytes that are exposed for one copy; a client that names more gets an error.
const MAX_EXPOSED_BYTES: u64 = 256 << 20;

/// Where a card writes a copy to the client.
enum Target {
    /// To memory that the client has exposed for it.
    Memory(RemoteRegion),
    /// To the client's arena, in the slots of a piece, and what it counts for there.
    Arena(Piece, Option<ArenaBytes>),
}

/// The session's part in copies that network cards make.
pub struct RdmaCopies {
    /// Device memory that the card of the client's link reaches, or why there is none.
    direct: Result<GpuDirect, String>,
    blocks: Arc<DeviceBlocks>,
}

impl RdmaCopies {
    /// For the client's link, which may have no card.
    pub fn new(session: &Session) -> Self {
        let blocks = Arc::default();
        let direct = GpuDirect::new(session.link(), session.gpu(), &blocks, DeviceUse::Own);
        if direct.is_ok() {
            session.exchange().activity().has_gpudirect();
        }
        Self { direct, blocks }
    }

    /// Blocks of device memory that cards of any link may come to reach.
    pub fn blocks(&self) -> &Arc<DeviceBlocks> {
        &self.blocks
    }

    /// Whether network cards may have registered memory of the devices.
    pub fn has_registrations(&self) -> bool {
        self.direct.is_ok()
    }

    /// Tells the client whether network cards reach the devices' memory.
    pub fn announce(&self, session: &Session) {
        let (is_on, text) = match &self.direct {
            Ok(direct) => {
                let text = direct.explain();
                tracing::info!("copies of this session: {text}");
                (true, text)
            }
            Err(why) => (false, why.clone()),
        };
        let message = WorkerMessage::Direct { is_on, text: text.into() };
        // A lost link is noticed by the receiving thread.
        let _ = session.link().append(|out| message.encode(out));
    }

    /// Looks whether the card can bring exposed bytes to where a command wants them. If it cannot, they are
    /// brought to staging, in the background, and the command waits for them as for a transfer.
    pub fn complete_exposed_copy(
        &self,
        session: &Arc<Session>,
        incoming: &Incoming,
        copy: &copy_to_device<'_>,
    ) {
        let Payload::Region { number, length, memory } = copy.data else { return };
        // Decided once for each copy: one whose bytes are not brought to staging is written by the card,
        // also if the owner switches GPUDirect off before its turn.
        let direct = self.direct.as_ref().ok().filter(|_| session.exchange().allows_gpudirect());
        if direct.is_some_and(|direct| direct.map_window(session.gpu(), &copy.destination).is_some())
            || !incoming.seek(number)
        {
            return;
        }
        let (incoming, bringer) = (incoming.clone(), Arc::clone(session));
        session.in_background(move || {
            let brought = bring_to_staging(&bringer, &incoming, memory, length);
            bringer.link().decline(memory);
            incoming.brought(number, brought);
            bringer.wake();
        });
    }

    /// Has the card read exposed memory straight into the device's.
    pub fn read_exposed(&self, session: &Session, head: Head, request: &copy_to_device<'_>) -> CuResult<()> {
        let Payload::Region { length, memory, .. } = request.data else {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        };
        let prepared = || {
            let objects = session.objects();
            let (stream, context) = (objects.native(request.stream)?, objects.native(head.context)?);
            let direct = self.direct.as_ref().map_err(|_| CUresult::CUDA_ERROR_INVALID_VALUE)?;
            let window = direct.map_window(session.gpu(), &request.destination);
            let (device, address, bytes) = window.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
            if bytes as u64 == length {
                Ok((stream, context, device, address, bytes))
            } else {
                Err(CUresult::CUDA_ERROR_INVALID_VALUE)
            }
        };
        let link = session.link().clone();
        let (stream, context, device, address, bytes) = prepared().inspect_err(|_| link.decline(memory))?;
        let (gpu, refused) = (session.shared_gpu(), link.clone());
        let exchange = Arc::clone(session.exchange());
        stream_task::enqueue(
            session.gpu(),
            stream,
            move |stop| {
                let then = Box::new(move |outcome: Result<(), _>| {
                    if outcome.is_ok() {
                        exchange.activity().gpudirect_to_device(length);
                        if let Err(error) = gpu.finish_direct_writes(context) {
                            tracing::warn!(
                                status = error.0,
                                "writes of a network card to device memory may become visible late"
                            );
                        }
                    }
                    stop.open();
                });
                link.read_to_device(memory, &device, address, bytes, then);
            },
            move |_| refused.decline(memory),
        )?;
        Ok(())
    }

    /// Has the card take a copy to the client straight out of the device's memory. False where it does not
    /// reach that, or nothing is free that it could write to: of `arena` no more than streams may have that
    /// perhaps stand still.
    pub fn send(
        &self,
        session: &Arc<Session>,
        request: &copy_from_device,
        arena: Option<&Arc<Arena>>,
    ) -> CuResult<bool> {
        let is_used = session.exchange().allows_gpudirect() && GpuDirect::is_worth_while(&request.source);
        let direct = self.direct.as_ref().ok().filter(|_| is_used);
        let Some(direct) = direct else { return Ok(false) };
        let Some((device, address, bytes)) = direct.map_window(session.gpu(), &request.source) else {
            return Ok(false);
        };
        let stream = session.objects().native(request.stream)?;
        let (link, transfer) = (session.link().clone(), request.transfer);
        let to = match request.into {
            Some(memory) => Target::Memory(memory),
            None => {
                let share = arena.map(|arena| arena.lease_for_download(bytes));
                match share.as_ref().is_none_or(Option::is_some).then(|| link.piece(bytes)).flatten() {
                    Some(piece) => Target::Arena(piece, share.flatten()),
                    None => return Ok(false),
                }
            }
        };
        let (refused, exchange) = (Arc::clone(session), Arc::clone(session.exchange()));
        stream_task::enqueue(
            session.gpu(),
            stream,
            move |stop| {
                let then = Box::new(move |outcome: Result<(), _>| {
                    if outcome.is_ok() {
                        exchange.activity().gpudirect_from_device(bytes as u64);
                    }
                    stop.open();
                });
                match to {
                    Target::Memory(to) => link.put_from_device(transfer, &device, address, bytes, to, then),
                    Target::Arena(piece, _share) => {
                        link.send_from_device(transfer, &device, address, piece, then);
                    }
                }
            },
            move |error| refused.transfer_failed(transfer, error),
        )?;
        Ok(true)
    }
}

/// A command that names exposed memory will not be carried out. Where the bytes were brought to staging,
/// whoever did that has given the memory back.
pub fn release_exposed(session: &Session, request: &Request<'_>) {
    if let Some(Payload::Region { memory, .. }) = request.payload() {
        session.link().decline(memory);
    }
}

fn bring_to_staging(
    session: &Session,
    incoming: &Incoming,
    memory: RemoteRegion,
    length: u64,
) -> CuResult<Buffer> {
    if length > MAX_EXPOSED_BYTES || !incoming.has_capacity(length) {
        return Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY);
    }
    let staging = session.gpu().staging(length as usize)?;
    // SAFETY: the staging is ours and has as many bytes.
    let read = unsafe { session.link().read_to_host(memory, staging.as_ptr(), staging.len()) };
    read.map_err(|_| CUresult::CUDA_ERROR_UNKNOWN)?;
    Ok(Buffer::Staged(staging))
}
