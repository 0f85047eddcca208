//! Command loop of one client's session.

use super::checkpoint::{self, Held, NotRestored};
use super::engine::{Engine, Events, IdleWork, handle};
use super::session::describe;
use super::uploads::CachedImages;
use super::{idle_release, suspension};
use crate::back_end::{self, GpuChoice};
use crate::protocol::messages::NotTakenUp;
use crate::state_file::{Record, StateHeader, StateReader};
use crate::worker_process::{Exchange, Prepared, WorkerStart};
use causeway_api::snapshot::Snapshot;
use causeway_gpu::{Gpu, OutputStream};
use causeway_link::{Direction, Link, LinkError, Receiver};
use causeway_wire::codec::Encode;
use causeway_wire::message::{ClientMessage, Messages, WorkerMessage};
use causeway_wire::relocation::LinkState;
use std::fs::File;
use std::io::BufReader;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Starts the GPU and looks at it. No context is made.
pub fn prepare(choice: GpuChoice) -> Prepared {
    let gpu = back_end::open_gpu(choice)?;
    match gpu.snapshot() {
        Ok(snapshot) => Ok((gpu, snapshot)),
        Err(error) => Err(format!("the server's GPUs cannot be listed: {}", describe(error))),
    }
}

/// Serves one client until it goes. The broker calls this in the worker's own process.
pub fn run(mut start: WorkerStart, prepared: Option<Prepared>) -> ExitCode {
    let state = start.take_state();
    let (gpu, snapshot) = match prepared.unwrap_or_else(|| prepare(start.gpu())) {
        Ok(prepared) => prepared,
        Err(text) if state.is_some() => return start.refuse_state(&text),
        Err(text) => return start.refuse(&text),
    };
    match state {
        Some(state) if start.hello().fork.is_some() => return serve_fork(start, gpu, &snapshot, state),
        Some(state) => return take_up(start, gpu, &snapshot, state),
        None => {}
    }
    tracing::info!(backend = %snapshot.backend, devices = snapshot.devices.len(), "session opened");
    match welcome(start, gpu, &snapshot) {
        Some((engine, link, receiver)) => {
            link.start(Arc::new(Events(Arc::clone(&engine))));
            serve(&engine, &link, receiver, None)
        }
        None => ExitCode::FAILURE,
    }
}

/// Grants the client its session; nothing where it has gone meanwhile, which is logged.
fn welcome(
    start: WorkerStart,
    gpu: Arc<dyn Gpu>,
    snapshot: &Snapshot,
) -> Option<(Arc<Engine>, Link, Receiver)> {
    let mut blob = Vec::new();
    snapshot.encode(&mut blob);
    let keeps_images = start.keeps_images();
    match start.welcome(blob) {
        Ok((link, receiver, exchange)) => {
            Some((engine_of(gpu, &link, keeps_images, &exchange), link, receiver))
        }
        Err(error) => {
            tracing::warn!("cannot open the session: {error}");
            None
        }
    }
}

/// The beginning of a session's state, which another worker has written, and the reader of the rest.
struct SavedSession {
    reader: StateReader<BufReader<File>>,
    header: StateHeader,
    link: LinkState,
    next: Option<Record>,
}

impl SavedSession {
    /// Reads it, if the machine on which it was written is like this one.
    fn read(state: File, snapshot: &Snapshot) -> Result<Self, NotRestored> {
        let (mut reader, header) = StateReader::begin(BufReader::with_capacity(1 << 20, state))?;
        let (link, before, next) = checkpoint::read_link(&mut reader)?.into_parts();
        checkpoint::compare(&before, snapshot)?;
        Ok(Self { reader, header, link, next })
    }
}

/// Serves a client that is the fork of another one, whose session's state comes from that one's worker.
fn serve_fork(start: WorkerStart, gpu: Arc<dyn Gpu>, snapshot: &Snapshot, state: File) -> ExitCode {
    let started_at = Instant::now();
    // Its link is the other one's.
    let SavedSession { mut reader, next, .. } = match SavedSession::read(state, snapshot) {
        Ok(saved) => saved,
        Err(why) => return start.refuse(&format!("cannot fork the session: {why}")),
    };
    let Some((engine, link, mut receiver)) = welcome(start, gpu, snapshot) else {
        return ExitCode::FAILURE;
    };
    // Memory that the program shares with its worker comes by this link.
    let restoring = engine.client_memory().restore();
    link.start(Arc::new(Events(Arc::clone(&engine))));
    let restored = checkpoint::restore(&engine, &mut reader, next);
    drop(restoring);
    if let Err(why) = restored {
        tracing::warn!("cannot fork the session: {why}");
        // The other worker writes no further.
        drop(reader);
        let text = format!("it cannot be forked: {why}");
        let _ = link.send(|out| WorkerMessage::Fatal { text: text.into() }.encode(out));
        // A connection that is closed with commands unread takes the message along.
        receiver.await_goodbye(GOODBYE_TIMEOUT);
        end_without_device(ExitCode::FAILURE);
    }
    let milliseconds = started_at.elapsed().as_millis() as u64;
    tracing::info!(milliseconds, "the fork has the session's state");
    serve(&engine, &link, receiver, None)
}

/// The longest that a session waits for its client where it is taken up: as long as `causeway checkpoint --wait` can say.
const MAX_WAIT_SECONDS: u32 = 86_400;

/// Serves a client of which another worker has left the session in this state.
fn take_up(start: WorkerStart, gpu: Arc<dyn Gpu>, snapshot: &Snapshot, state: File) -> ExitCode {
    let SavedSession { mut reader, header, link, next } = match SavedSession::read(state, snapshot) {
        Ok(saved) => saved,
        Err(why) => return start.refuse_state(&why.to_string()),
    };
    let accepted = link.received;
    // The file is not to say how long a server keeps memory for it.
    let first_window = Duration::from_secs(header.seconds.min(MAX_WAIT_SECONDS).into());
    let keeps_images = start.keeps_images();
    let (link, receiver, exchange) = match start.take_up(link, first_window) {
        Ok(taken_up) => taken_up,
        Err(error) => {
            tracing::warn!("cannot restore the session: {error}");
            return ExitCode::FAILURE;
        }
    };
    let engine = engine_of(gpu, &link, keeps_images, &exchange);
    if let Err(why) = checkpoint::restore(&engine, &mut reader, next) {
        tracing::warn!("cannot restore the session: {why}");
        let refused = NotTakenUp { text: why.to_string(), lacks_memory: why.lacks_memory() };
        exchange.report_restored(Some(refused));
        end_without_device(ExitCode::FAILURE);
    }
    // Behind the frame that led the client here.
    let _ = link.send(|out| out.extend_from_slice(&checkpoint::relocated()));
    exchange.report_restored(None);
    link.start(Arc::new(Events(Arc::clone(&engine))));
    serve(&engine, &link, receiver, Some(accepted))
}

/// How long the end of the link may take to follow the message that says so.
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(2);

/// The engine of a session.
fn engine_of(gpu: Arc<dyn Gpu>, link: &Link, keeps_images: bool, exchange: &Arc<Exchange>) -> Arc<Engine> {
    let output = link.clone();
    gpu.set_output(Box::new(move |stream, bytes| {
        let message = match stream {
            OutputStream::Standard => WorkerMessage::Output { bytes },
            OutputStream::Error => WorkerMessage::ErrorOutput { bytes },
        };
        // A lost link is noticed by the receiving thread; what kernels print has no reader then.
        let _ = output.append(|out| message.encode(out));
    }));
    let counted = Arc::clone(exchange);
    if gpu.set_kernel_timer(Box::new(move |time| counted.activity().kernel(time))) {
        exchange.activity().measure_kernels();
    }
    let images = keeps_images.then(|| CachedImages::new(Arc::clone(exchange)));
    Engine::new(gpu, link.clone(), images, Arc::clone(exchange))
}

/// Handles messages of a link that has started, until the client goes or breaks the protocol. Of a session that was taken
/// up the client has sent so many frames before.
fn serve(engine: &Arc<Engine>, link: &Link, mut receiver: Receiver, mut taken_up: Option<u64>) -> ExitCode {
    let exchange = Arc::clone(engine.session().exchange());
    let watched = engine.session().shared_gpu();
    let mut idle = IdleWork::new(watched.idle_poller(), Arc::clone(engine));
    if let Some(shortage) = link.shortage() {
        tracing::warn!("copies are slower than they could be: {shortage}");
    }
    engine.announce_direct();
    idle_release::start(engine);
    let mut awaits_goodbye = false;
    let code = loop {
        if let Some(request) = exchange.take_checkpoint_request() {
            match checkpoint::hold(engine, &mut receiver, &mut idle, request) {
                Held::Continues => {}
                Held::Leaves => end_without_device(ExitCode::SUCCESS),
                Held::Ended => {
                    awaits_goodbye = true;
                    break ExitCode::SUCCESS;
                }
            }
        }
        // By a frame, though it may be an empty one, the client shows that it is here and goes nowhere else.
        let has_arrived = || taken_up.is_some_and(|before| link.frames_accepted() > before);
        if has_arrived() {
            taken_up = None;
            exchange.report_arrival();
            continue;
        }
        let yields = || exchange.has_checkpoint_request() || has_arrived();
        let body = match receiver.recv_or_yield(&mut idle, yields) {
            Ok(Some(body)) => body,
            Ok(None) => continue,
            Err(LinkError::Closed) => break ExitCode::SUCCESS,
            Err(error) => {
                tracing::info!("the client has disconnected: {error}");
                break ExitCode::SUCCESS;
            }
        };
        exchange.count_inline(Direction::Received, body.len() as u64);
        // A client that says goodbye does not need its memory once more.
        if engine.session().residency().is_away() && is_goodbye(body) {
            awaits_goodbye = true;
            break ExitCode::SUCCESS;
        }
        // That may take seconds, in which no command is carried out.
        let entered = match suspension::enter(engine.session()) {
            Ok(entered) => entered,
            Err(lost) => {
                tracing::warn!("the session ends: {}", lost.0);
                let text = lost.0.to_string();
                let _ = link.send(|out| WorkerMessage::Fatal { text: text.into() }.encode(out));
                break ExitCode::FAILURE;
            }
        };
        let handled = exchange.progress().at_work(|| handle(engine, body));
        // Memory may go while the session only waits.
        drop(entered);
        match handled {
            Ok(true) => exchange.pace_messages(|| link.is_lost() || exchange.has_checkpoint_request()),
            Ok(false) => {
                awaits_goodbye = true;
                break ExitCode::SUCCESS;
            }
            Err(error) => {
                tracing::warn!("the session ends: {error}");
                let text = error.to_string();
                let _ = link.send(|out| WorkerMessage::Fatal { text: text.into() }.encode(out));
                break ExitCode::FAILURE;
            }
        }
    };
    if awaits_goodbye && link.is_resumable() {
        // The program waits for the answer, and would come back for it.
        receiver.await_goodbye(GOODBYE_TIMEOUT);
    }
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
