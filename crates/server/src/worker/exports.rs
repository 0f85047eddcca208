//! Commands that share memory and events with other sessions of the server: each exports something through
//! the broker, or takes it from there. They wait for the broker, so they run in the background.

use super::device_memory::is_on_device;
use super::session::{Head, Session};
use causeway_access::target::random_bytes;
use causeway_api::calls::{allocation_export, allocation_import, event_export, event_import};
use causeway_api::sys::CUresult;
use causeway_api::types::{AllocationProperties, ExportToken};
use causeway_gpu::CuResult;
use causeway_wire::codec::{Decoder, Encode};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// What goes in front of what an export is, so that a token of one kind is not taken for another.
const MEMORY: u8 = 1;
const EVENT: u8 = 2;

/// Exports an allocation.
pub fn export_allocation(session: &Arc<Session>, head: Head, request: &allocation_export) -> CuResult<()> {
    let allocation = session.objects().native(request.allocation)?;
    let mut bytes = vec![MEMORY];
    request.size.encode(&mut bytes);
    request.properties.encode(&mut bytes);
    export(session, head, move |exporter| Ok((bytes, Some(exporter.gpu().export_allocation(allocation)?))))
}

/// Exports an event.
pub fn export_event(session: &Arc<Session>, head: Head, request: &event_export) -> CuResult<()> {
    let event = session.objects().native(request.event)?;
    let context = session.objects().native(head.context)?;
    export(session, head, move |exporter| {
        exporter.gpu().make_current(context)?;
        let mut bytes = vec![EVENT];
        bytes.extend(exporter.gpu().export_event(event)?);
        Ok((bytes, None))
    })
}

fn export(
    session: &Arc<Session>,
    head: Head,
    make: impl FnOnce(&Session) -> CuResult<(Vec<u8>, Option<OwnedFd>)> + Send + 'static,
) -> CuResult<()> {
    let exporter = Arc::clone(session);
    session.in_background(move || match make(&exporter) {
        Ok((bytes, descriptor)) => {
            let token = ExportToken(random_bytes());
            if exporter.exchange().export(token.0, bytes, descriptor) {
                exporter.reply_with(head, |out| token.encode(out));
            } else {
                tracing::warn!("the broker accepts no more exports of this session");
                exporter.reply(head, Err(CUresult::CUDA_ERROR_OPERATING_SYSTEM), &[]);
            }
        }
        Err(error) => exporter.reply(head, Err(error), &[]),
    });
    Ok(())
}

/// Makes an allocation of what a session has exported.
pub fn import_allocation(session: &Arc<Session>, head: Head, request: &allocation_import) {
    let (importer, handle, token) = (Arc::clone(session), request.allocation, request.token);
    session.in_background(move || {
        let imported = find(&importer, token, MEMORY).and_then(|(bytes, descriptor)| {
            let (size, properties): (usize, AllocationProperties) =
                Decoder::new(&bytes).value().map_err(|_| CUresult::CUDA_ERROR_INVALID_VALUE)?;
            let descriptor = descriptor.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
            // It outlives the session that has exported it.
            let on_device = is_on_device(&properties);
            let reservation = on_device.then(|| importer.device_memory().reserve(size as u64)).transpose()?;
            importer.objects().insert(handle, importer.gpu().import_allocation(descriptor)?)?;
            if let Some(reservation) = reservation {
                importer.device_memory().imported(handle.value(), reservation);
            }
            Ok((size, properties))
        });
        match imported {
            Ok(known) => importer.reply_with(head, |out| known.encode(out)),
            Err(error) => importer.reply(head, Err(error), &[]),
        }
    });
}

/// Opens an event that a session has exported.
pub fn import_event(session: &Arc<Session>, head: Head, request: &event_import) -> CuResult<()> {
    let (importer, handle, token) = (Arc::clone(session), request.event, request.token);
    let context = session.objects().native(head.context)?;
    session.in_background(move || {
        let imported = find(&importer, token, EVENT).and_then(|(bytes, _)| {
            importer.gpu().make_current(context)?;
            importer.objects().insert(handle, importer.gpu().import_event(&bytes)?)
        });
        importer.reply(head, imported, &[]);
    });
    Ok(())
}

/// What is there under a token, without the mark of its kind.
fn find(session: &Session, token: ExportToken, kind: u8) -> CuResult<(Vec<u8>, Option<OwnedFd>)> {
    let (mut bytes, descriptor) =
        session.exchange().find(token.0).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
    if bytes.first() != Some(&kind) {
        return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
    }
    bytes.remove(0);
    Ok((bytes, descriptor))
}
