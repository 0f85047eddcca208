//! Command loop of one client's session.

use super::engine::{Engine, Events, IdleWork, ProtocolError};
use super::idle_release;
use super::session::describe;
use super::suspension;
use super::uploads::CachedImages;
use crate::back_end::{self, GpuChoice};
use crate::handover::{Exchange, Prepared, WorkerStart};
use causeway_gpu::{Gpu, OutputStream};
use causeway_link::{Direction, Link, LinkError, Receiver};
use causeway_sync::delays;
use causeway_wire::codec::Encode;
use causeway_wire::message::{ClientMessage, Messages, WorkerMessage};
use std::process::ExitCode;
use std::sync::Arc;

/// Starts the GPU and looks at it. No context is made.
pub fn prepare(choice: GpuChoice) -> Prepared {
    let gpu = back_end::open_gpu(choice)?;
    match gpu.snapshot() {
        Ok(snapshot) => Ok((gpu, snapshot)),
        Err(error) => Err(format!("the server's GPUs cannot be listed: {}", describe(error))),
    }
}

/// Serves one client until it goes. The broker calls this in the worker's own process.
pub fn run(start: WorkerStart, prepared: Option<Prepared>) -> ExitCode {
    let (gpu, snapshot) = match prepared.unwrap_or_else(|| prepare(start.gpu)) {
        Ok(prepared) => prepared,
        Err(text) => return start.refuse(&text),
    };
    tracing::info!(backend = %snapshot.backend, devices = snapshot.devices.len(), "session open");
    let mut blob = Vec::new();
    snapshot.encode(&mut blob);
    let keeps_images = start.keeps_images;
    match start.welcome(blob) {
        Ok((link, receiver, exchange)) => {
            let images = keeps_images.then(|| CachedImages::new(Arc::clone(&exchange)));
            serve(gpu, link, receiver, images, exchange)
        }
        Err(error) => {
            tracing::warn!("the session does not open: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Handles messages until the client goes or breaks the protocol.
fn serve(
    gpu: Arc<dyn Gpu>,
    link: Link,
    mut receiver: Receiver,
    images: Option<CachedImages>,
    exchange: Arc<Exchange>,
) -> ExitCode {
    let output = link.clone();
    gpu.set_output(Box::new(move |stream, bytes| {
        let message = match stream {
            OutputStream::Standard => WorkerMessage::Output { bytes },
            OutputStream::Error => WorkerMessage::ErrorOutput { bytes },
        };
        // A lost link is noticed by the receiving thread; what kernels print has no reader then.
        let _ = output.append(|out| message.encode(out));
    }));
    let counted = Arc::clone(&exchange);
    if gpu.set_kernel_timer(Box::new(move |time| counted.activity().kernel(time))) {
        exchange.activity().measure_kernels();
    }
    let watched = Arc::clone(&gpu);
    let engine = Engine::new(gpu, link.clone(), images, Arc::clone(&exchange));
    let mut idle = IdleWork::new(watched.idle_poller(), Arc::clone(&engine));
    link.start(Arc::new(Events(Arc::clone(&engine))));
    if let Some(shortage) = link.shortage() {
        tracing::warn!("copies are slower than they could be: {shortage}");
    }
    engine.announce_direct();
    idle_release::start(&engine);
    let code = loop {
        let body = match receiver.recv_with_hook(&mut idle) {
            Ok(body) => body,
            Err(LinkError::Closed) => break ExitCode::SUCCESS,
            Err(error) => {
                tracing::info!("the client is gone: {error}");
                break ExitCode::SUCCESS;
            }
        };
        exchange.count_inline(Direction::Received, body.len() as u64);
        // A client that says goodbye does not need its memory once more.
        if engine.session().residency().is_away() && is_goodbye(body) {
            break ExitCode::SUCCESS;
        }
        // That may take seconds, in which no command is carried out.
        let _entered = match suspension::enter(engine.session()) {
            Ok(entered) => entered,
            Err(lost) => {
                tracing::warn!("the session ends: {}", lost.0);
                let text = lost.0.to_string();
                let _ = link.send(|out| WorkerMessage::Fatal { text: text.into() }.encode(out));
                break ExitCode::FAILURE;
            }
        };
        match exchange.progress().at_work(|| handle(&engine, body)) {
            Ok(true) => exchange.pace_messages(),
            Ok(false) => break ExitCode::SUCCESS,
            Err(error) => {
                tracing::warn!("the session ends: {error}");
                let text = error.to_string();
                let _ = link.send(|out| WorkerMessage::Fatal { text: text.into() }.encode(out));
                break ExitCode::FAILURE;
            }
        }
    };
    // From here on device memory stays where it is.
    let on_device = engine.session().residency().enter_if_there();
    // Nobody looks for the end of what the end of the session asks for.
    drop(idle);
    engine.close();
    if on_device.is_none() {
        end_without_device(code);
    }
    code
}

/// Ends the process here, with its device memory on the host: the driver's calls block then, those at the end of a process
/// included, and nothing has to be freed.
fn end_without_device(code: ExitCode) -> ! {
    let status = i32::from(code != ExitCode::SUCCESS);
    // SAFETY: the process ends; nothing of it is relied on afterwards.
    unsafe { libc::_exit(status) }
}

/// Whether a frame only says goodbye.
fn is_goodbye(body: &[u8]) -> bool {
    matches!(Messages::<ClientMessage<'_>>::new(body).next(), Some(Ok(ClientMessage::Goodbye)))
}

/// Handles the messages of one frame; `false` when the client said goodbye.
pub(super) fn handle(engine: &Arc<Engine>, body: &[u8]) -> Result<bool, ProtocolError> {
    for message in Messages::<ClientMessage<'_>>::new(body) {
        match message? {
            ClientMessage::Command(command) => {
                delays::inject();
                engine.command(&command)?;
            }
            ClientMessage::HostDone { token } => engine.host_functions().returned(token),
            ClientMessage::Image { transfer, bytes } => {
                engine.uploads().image_received(engine.session(), transfer, bytes)
            }
            ClientMessage::Goodbye => return Ok(false),
        }
    }
    Ok(true)
}
