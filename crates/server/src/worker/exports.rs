//! Commands that share memory and events with other sessions of the server: each leaves something with the broker, or
//! takes it from there. They wait for the broker, so they run aside.

use super::engine::{Engine, Head};
use causeway_access::target::random_bytes;
use causeway_api::calls::{allocation_export, allocation_import, event_export, event_import};
use causeway_api::sys::CUresult;
use causeway_api::types::{AllocationProperties, ExportToken};
use causeway_gpu::CuResult;
use causeway_wire::codec::{Decoder, Encode};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// What goes in front of what a thing is, so that a token of one kind is not taken for another.
const MEMORY: u8 = 1;
const EVENT: u8 = 2;

impl Engine {
    /// Leaves an allocation with the broker.
    pub(super) fn export_allocation(
        self: &Arc<Self>,
        head: Head,
        request: &allocation_export,
    ) -> CuResult<()> {
        let allocation = self.objects.native(request.allocation)?;
        let mut bytes = vec![MEMORY];
        request.size.encode(&mut bytes);
        request.properties.encode(&mut bytes);
        self.export(head, move |engine| Ok((bytes, Some(engine.gpu.export_allocation(allocation)?))))
    }

    /// Leaves an event with the broker.
    pub(super) fn export_event(self: &Arc<Self>, head: Head, request: &event_export) -> CuResult<()> {
        let event = self.objects.native(request.event)?;
        let context = self.objects.native(head.context)?;
        self.export(head, move |engine| {
            engine.gpu.make_current(context)?;
            let mut bytes = vec![EVENT];
            bytes.extend(engine.gpu.export_event(event)?);
            Ok((bytes, None))
        })
    }

    fn export(
        self: &Arc<Self>,
        head: Head,
        make: impl FnOnce(&Self) -> CuResult<(Vec<u8>, Option<OwnedFd>)> + Send + 'static,
    ) -> CuResult<()> {
        let engine = Arc::clone(self);
        self.aside.run(move || match make(&engine) {
            Ok((bytes, descriptor)) => {
                let token = ExportToken(random_bytes());
                if engine.exchange.leave(token.0, bytes, descriptor) {
                    engine.answer_with(head, |out| token.encode(out));
                } else {
                    tracing::warn!("the broker takes no more exports of this session");
                    engine.answer(head, Err(CUresult::CUDA_ERROR_OPERATING_SYSTEM), &[]);
                }
            }
            Err(error) => engine.answer(head, Err(error), &[]),
        });
        Ok(())
    }

    /// Makes an allocation of what a session has left with the broker.
    pub(super) fn import_allocation(self: &Arc<Self>, head: Head, request: &allocation_import) {
        let (engine, handle, token) = (Arc::clone(self), request.allocation, request.token);
        self.aside.run(move || {
            let imported = engine.find(token, MEMORY).and_then(|(bytes, descriptor)| {
                let (size, properties): (usize, AllocationProperties) =
                    Decoder::new(&bytes).value().map_err(|_| CUresult::CUDA_ERROR_INVALID_VALUE)?;
                let descriptor = descriptor.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
                engine.objects.insert(handle, engine.gpu.import_allocation(descriptor)?)?;
                Ok((size, properties))
            });
            match imported {
                Ok(known) => engine.answer_with(head, |out| known.encode(out)),
                Err(error) => engine.answer(head, Err(error), &[]),
            }
        });
    }

    /// Opens an event that a session has left with the broker.
    pub(super) fn import_event(self: &Arc<Self>, head: Head, request: &event_import) -> CuResult<()> {
        let (engine, handle, token) = (Arc::clone(self), request.event, request.token);
        let context = self.objects.native(head.context)?;
        self.aside.run(move || {
            let imported = engine.find(token, EVENT).and_then(|(bytes, _)| {
                engine.gpu.make_current(context)?;
                engine.objects.insert(handle, engine.gpu.import_event(&bytes)?)
            });
            engine.answer(head, imported, &[]);
        });
        Ok(())
    }

    /// What is there under a token, without the mark of its kind.
    fn find(&self, token: ExportToken, kind: u8) -> CuResult<(Vec<u8>, Option<OwnedFd>)> {
        let (mut bytes, descriptor) =
            self.exchange.find(token.0).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
        if bytes.first() != Some(&kind) {
            return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
        }
        bytes.remove(0);
        Ok((bytes, descriptor))
    }
}
