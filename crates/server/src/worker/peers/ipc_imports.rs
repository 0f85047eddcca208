//! IPC imports between workers: memory that one worker's device exports to another's.
//!
//! The exporter sends a descriptor of the allocation over the link, the importer maps it. From then on a copy
//! from it is a command in a stream like any other, which the device carries out by itself.

use super::destination::Reader;
use crate::locks::{Mutex, rank};
use crate::worker::peers::accept::Links;
use crate::worker::session::{Head, Session};
use causeway_api::calls::{peer_copy_imported, peer_export, peer_import};
use causeway_api::handle::{Allocation, Context, Handle, Native, Stream};
use causeway_api::sys::CUresult;
use causeway_api::types::{DeviceLocation, Region};
use causeway_gpu::CuResult;
use causeway_gpu::device_memory::ImportedMemory;
use causeway_gpu::in_flight::InFlight;
use causeway_gpu::objects::Translate as _;
use causeway_wire::codec::Encode;
use causeway_wire::handshake::LaneToken;
use rustc_hash::{FxHashMap, FxHashSet};
use std::os::fd::AsFd as _;
use std::sync::Arc;

/// Memory of other workers' devices, by the client's numbers.
#[derive(Clone, Default)]
pub struct IpcImports(Arc<Mutex<rank::IpcImports, FxHashMap<u64, IpcImport>>>);

/// Memory of another worker's device that copies read.
struct IpcImport {
    memory: Arc<Mapped>,
    /// Streams that have got copies from it, each with the context that the command named.
    streams: FxHashSet<(Handle<Stream>, Handle<Context>)>,
}

/// Mapped memory, which goes when nothing copies from it any more.
struct Mapped {
    session: Arc<Session>,
    imported: Option<ImportedMemory>,
}

impl Drop for Mapped {
    fn drop(&mut self) {
        if let Some(imported) = self.imported.take() {
            self.session.retire(imported);
        }
    }
}

/// A part of an import's memory where that lies here; nothing when it is not inside.
fn placed(source: &DeviceLocation, memory: &ImportedMemory) -> Option<Region> {
    let DeviceLocation::Memory(part) = source else { return None };
    part.moved(0, memory.size, memory.address)
}

/// Hands an allocation to the worker that has come with a ticket.
pub fn export(session: &Arc<Session>, links: &Arc<Links>, head: Head, request: &peer_export) -> CuResult<()> {
    let allocation = session.objects().native(request.allocation)?;
    let (exporter, links) = (Arc::clone(session), Arc::clone(links));
    let (ticket, import) = (LaneToken(request.ticket.secret), request.import);
    session.in_background(move || {
        let failure = hand_out(&exporter, &links, ticket, import, allocation).err().unwrap_or_default();
        exporter.reply_with(head, |out| failure.encode(out));
    });
    Ok(())
}

fn hand_out(
    session: &Session,
    links: &Links,
    ticket: LaneToken,
    import: u64,
    allocation: Native<Allocation>,
) -> Result<(), String> {
    let descriptor = session
        .gpu()
        .export_allocation(allocation)
        .map_err(|status| format!("the driver does not export this allocation (error {})", status.0))?;
    let link = links.wait_for(ticket).ok_or("the other worker has gone")?;
    link.send_allocation(import, descriptor.as_fd()).map_err(|cause| cause.to_string())
}

impl IpcImports {
    /// Maps what another worker has exported, for copies to a device.
    pub fn import(&self, session: &Arc<Session>, reader: Arc<Reader>, head: Head, request: &peer_import) {
        let (imports, importer) = (self.clone(), Arc::clone(session));
        let (import, size, device) = (request.import, request.size as u64, request.device);
        // The descriptor may be on its way.
        session.in_background(move || {
            let descriptor = reader.exported().take(import).ok_or("its descriptor did not come".to_owned());
            let imported = descriptor.and_then(|descriptor| {
                importer.gpu().import_memory(descriptor, size, device).map_err(|cause| cause.to_string())
            });
            let failure = match imported {
                Ok(imported) => {
                    tracing::debug!(import, size, "mapped memory of another server's device");
                    let memory =
                        Arc::new(Mapped { session: Arc::clone(&importer), imported: Some(imported) });
                    imports.0.lock().insert(import, IpcImport { memory, streams: FxHashSet::default() });
                    String::new()
                }
                Err(failure) => {
                    tracing::info!("cannot map memory of another server's device: {failure}");
                    failure
                }
            };
            importer.reply_with(head, |out| failure.encode(out));
        });
    }

    /// Puts a copy from imported memory into a stream.
    pub fn copy(&self, session: &Session, head: Head, copy: &peer_copy_imported) -> CuResult<()> {
        let stream = session.objects().native(copy.stream)?;
        let destination = copy.destination.natives(session.objects())?;
        let mut imports = self.0.lock();
        let import = imports.get_mut(&copy.import).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
        let source = import.memory.imported.as_ref().and_then(|memory| placed(&copy.source, memory));
        let source = source.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        import.streams.insert((copy.stream, head.context));
        session.gpu().copy_within_device(destination, source.into(), stream)
    }

    /// Ends an import; its memory stays mapped until the copies that were put into streams are done.
    pub fn release(&self, session: &Session, import: u64) {
        let Some(IpcImport { memory, streams }) = self.0.lock().remove(&import) else { return };
        for (stream, context) in streams {
            // With a context its work has ended.
            if session.enter_context(context).is_err() {
                continue;
            }
            let held = Arc::clone(&memory);
            // Of a stream that was destroyed the copies may still be under way, somewhere in its context.
            let in_flight = match session.objects().native(stream) {
                Ok(stream) => InFlight::in_stream(session.gpu(), held, 0, stream),
                Err(_) => InFlight::in_context(session.gpu(), held, 0),
            };
            // Where no completion comes the memory stays mapped.
            let _ = in_flight.drop_after_a_while(session.gpu());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_parts_of_the_memory_that_was_lent_are_copied() {
        let memory = ImportedMemory { address: 0x1000, size: 100 };
        let placed = |region: Region| placed(&region.into(), &memory);
        assert_eq!(placed(Region::linear(10, 90)).unwrap().address, 0x100a);
        assert_eq!(placed(Region::linear(10, 91)), None);
    }
}
