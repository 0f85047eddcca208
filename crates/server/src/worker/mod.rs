//! The worker: one process for each client process, which executes that client's commands.
//!
//! `order` decides what may be issued; `engine` issues it and answers; `execute` carries it out, with `copies`, `waits` and
//! `gates` for what is the engine's own business; `looking` is what the receiving thread does meanwhile; `fences` puts what follows a synchronous copy behind it; `incoming` keeps bulk
//! data until its command comes; `kept` are images of earlier sessions; `lent` and `stops` are copies that network cards make, to and from the memory that `direct`
//! registers with them; `arena` is memory shared with a client of the same host; `mirrors` and `client_memory` are
//! memory of the client that kernels reach; `peers` copies from and to the devices of other servers; `aside` carries out what is slow, on the threads of `pool`. A GPU fault, a crash or
//! a leak ends with its owner.

mod arena;
mod aside;
mod client_memory;
mod copies;
mod direct;
mod engine;
mod execute;
mod exports;
mod fences;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod gates;
mod incoming;
mod kept;
mod lent;
mod looking;
mod mirrors;
mod order;
mod peers;
mod pool;
mod stops;
mod waits;

pub use peers::Arrival;

use crate::back_end::{self, GpuChoice};
use crate::broker::Exchange;
use crate::broker::handover::WorkerStart;
use causeway_api::snapshot::Snapshot;
use causeway_gpu::{CuResult, Gpu, OutputStream};
use causeway_link::{Link, LinkError, Receiver};
use causeway_sync::delays;
use causeway_wire::codec::Encode;
use causeway_wire::message::{ClientMessage, Messages, WorkerMessage};
use engine::{Engine, Events, ProtocolError};
use kept::KeptImages;
use looking::Looking;
use std::process::ExitCode;
use std::sync::Arc;

/// A GPU that has been started and what is known of it, or why there is none, as a sentence for the client's user.
pub type Prepared = Result<(Arc<dyn Gpu>, Snapshot), String>;

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
            let images = keeps_images.then(|| KeptImages::new(Arc::clone(&exchange)));
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
    images: Option<KeptImages>,
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
    let watched = Arc::clone(&gpu);
    let engine = Engine::new(gpu, link.clone(), images, Arc::clone(&exchange));
    let mut looking = Looking::new(watched.watch(), Arc::clone(&engine));
    link.start(Arc::new(Events(Arc::clone(&engine))));
    if let Some(shortage) = link.shortage() {
        tracing::warn!("copies are slower than they could be: {shortage}");
    }
    engine.tell_of_direct();
    let code = loop {
        let body = match receiver.recv_meanwhile(&mut looking) {
            Ok(body) => body,
            Err(LinkError::Closed) => break ExitCode::SUCCESS,
            Err(error) => {
                tracing::info!("the client is gone: {error}");
                break ExitCode::SUCCESS;
            }
        };
        match exchange.pulse().at_work(|| handle(&engine, body)) {
            Ok(true) => {}
            Ok(false) => break ExitCode::SUCCESS,
            Err(error) => {
                tracing::warn!("the session ends: {error}");
                let text = error.to_string();
                let _ = link.send(|out| WorkerMessage::Fatal { text: text.into() }.encode(out));
                break ExitCode::FAILURE;
            }
        }
    };
    // Nobody looks for the end of what the end of the session asks for.
    drop(looking);
    engine.close();
    code
}

/// Handles the messages of one frame; `false` when the client said goodbye.
fn handle(engine: &Arc<Engine>, body: &[u8]) -> Result<bool, ProtocolError> {
    for message in Messages::<ClientMessage<'_>>::new(body) {
        match message? {
            ClientMessage::Command(command) => {
                delays::inject();
                engine.command(&command)?;
            }
            ClientMessage::HostDone { token } => engine.host_done(token),
            ClientMessage::Image { transfer, bytes } => engine.image_came(transfer, bytes),
            ClientMessage::Goodbye => return Ok(false),
        }
    }
    Ok(true)
}

/// The name of a driver error, for people.
fn describe(error: causeway_api::sys::CUresult) -> String {
    match causeway_api::errors::name(error) {
        Some(name) => name.to_string_lossy().into_owned(),
        None => format!("driver error {}", error.0),
    }
}

/// The status of a result, as replies carry it.
fn status<T>(result: &CuResult<T>) -> u32 {
    result.as_ref().err().map_or(0, |error| error.0)
}
