//! Session context of a worker: GPU, objects, link, and replies.

use super::device_memory::DeviceMemory;
use super::pool::Pool;
use super::residency::Residency;
use crate::locks::{Mutex, MutexGuard, rank};
use crate::worker_process::Exchange;
use causeway_api::calls::Opcode;
use causeway_api::handle::{Context, Handle};
use causeway_api::sys::CUresult;
use causeway_gpu::device_memory::ImportedMemory;
use causeway_gpu::objects::Objects;
use causeway_gpu::{CuResult, Gpu};
use causeway_link::Link;
use causeway_wire::codec::Encode;
use causeway_wire::message::{WorkerMessage, begin_reply};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Instant;

/// Threads for slow driver calls. The driver may let such a call wait for a stream that stands still, as it
/// would the program's own thread: as many may as a program is likely to have threads, and the next one goes
/// on all the same.
const MAX_BACKGROUND_TASKS: usize = 64;

/// Whom to answer, and in whose context a command runs.
#[derive(Clone, Copy, Debug)]
pub struct Head {
    /// Number of the call, 0 when no reply is expected.
    pub call: u32,
    /// The client's handle of the context, null when the command needs none.
    pub context: Handle<Context>,
    /// The command.
    pub opcode: Opcode,
    /// When a command came that is answered.
    pub received_at: Option<Instant>,
}

/// When a command that was carried out is answered.
pub enum ReplyTime {
    /// The command is done; its results are in the engine's reply buffer.
    Now,
    /// A completion answers.
    Later,
}

/// What issues commands that could not be issued when they came.
pub trait Wake: Send + Sync {
    /// Something that such a command may wait for has come.
    fn wake(self: Arc<Self>);
    /// Unmaps [retired](Session::retire) memory when no work is under way.
    fn unmap_retired(self: Arc<Self>);
}

/// The GPU, the objects, and the ways to the client and the broker. Completions hold on to it, and not to
/// those who asked for them.
pub struct Session {
    gpu: Arc<dyn Gpu>,
    objects: Objects,
    link: Link,
    exchange: Arc<Exchange>,
    device_memory: DeviceMemory,
    /// Threads for slow driver calls.
    background: Pool,
    residency: Residency,
    queue: OnceLock<Weak<dyn Wake>>,
    retired: Mutex<rank::Leaf, Vec<ImportedMemory>>,
}

impl Session {
    /// A session that executes on `gpu`, answers over `link`, and shares with other sessions by `exchange`.
    pub fn new(gpu: Arc<dyn Gpu>, link: Link, exchange: Arc<Exchange>) -> Arc<Self> {
        let device_memory = DeviceMemory::new(Arc::clone(&exchange), gpu.shared_capacity());
        Arc::new(Self {
            gpu,
            objects: Objects::default(),
            link,
            exchange,
            device_memory,
            background: Pool::new("causeway-aside", MAX_BACKGROUND_TASKS),
            residency: Residency::default(),
            queue: OnceLock::new(),
            retired: Mutex::default(),
        })
    }

    /// Names what is woken from now on; to be called once.
    pub fn set_queue(&self, queue: Weak<dyn Wake>) {
        assert!(self.queue.set(queue).is_ok(), "a session has one queue of commands");
    }

    /// What executes.
    pub fn gpu(&self) -> &dyn Gpu {
        &*self.gpu
    }

    /// The same, to hold on to.
    pub fn shared_gpu(&self) -> Arc<dyn Gpu> {
        Arc::clone(&self.gpu)
    }

    /// The client's objects.
    pub fn objects(&self) -> &Objects {
        &self.objects
    }

    /// The way to the client.
    pub fn link(&self) -> &Link {
        &self.link
    }

    /// The way to the broker.
    pub fn exchange(&self) -> &Arc<Exchange> {
        &self.exchange
    }

    /// The device memory that it has.
    pub fn device_memory(&self) -> &DeviceMemory {
        &self.device_memory
    }

    /// Where its device memory is, and who uses it.
    pub fn residency(&self) -> &Residency {
        &self.residency
    }

    /// The threads for what takes long.
    pub fn background(&self) -> &Pool {
        &self.background
    }

    /// Runs what takes long on another thread.
    pub fn in_background(&self, job: impl FnOnce() + Send + 'static) {
        self.background.run(job);
    }

    /// Something has become ready that a command may wait for.
    pub fn wake(&self) {
        if let Some(queue) = self.queue.get().and_then(Weak::upgrade) {
            queue.wake();
        }
    }

    /// Memory of another server that nothing copies from any more is to be unmapped, when no work is under way.
    pub fn retire(&self, imported: ImportedMemory) {
        self.retired.lock().push(imported);
        if let Some(queue) = self.queue.get().and_then(Weak::upgrade) {
            self.in_background(move || queue.unmap_retired());
        }
    }

    /// Memory that is to be unmapped.
    pub fn retired(&self) -> MutexGuard<'_, rank::Leaf, Vec<ImportedMemory>> {
        self.retired.lock()
    }

    /// Makes the context of a command current on this thread.
    pub fn enter_context(&self, context: Handle<Context>) -> CuResult<()> {
        if context.is_null() {
            return Ok(());
        }
        self.gpu.make_current(self.objects.native(context)?)
    }

    /// Answers a call, or reports the failure of a posted one.
    pub fn reply(&self, head: Head, outcome: CuResult<()>, payload: &[u8]) {
        let status = status(&outcome);
        let activity = self.exchange.activity();
        if outcome.is_err() {
            activity.failure();
        }
        self.count_reply(head);
        // A lost link is noticed by the receiving thread.
        let _ = match (head.call, outcome) {
            (0, Ok(())) => return,
            (0, Err(_)) => {
                tracing::debug!(command = head.opcode.name(), status, "a posted call failed");
                let opcode = head.opcode as u16;
                self.link.append(|out| WorkerMessage::Failed { opcode, status }.encode(out))
            }
            (call, _) => self.link.send(|out| {
                let open = begin_reply(out, call, status);
                out.extend_from_slice(payload);
                open.finish(out);
            }),
        };
    }

    fn count_reply(&self, head: Head) {
        if let Some(received_at) = head.received_at {
            self.exchange.activity().reply(received_at, head.opcode.waits_for_gpu());
        }
    }

    /// Answers a call with success and what `encode` appends.
    pub fn reply_with(&self, head: Head, encode: impl FnOnce(&mut Vec<u8>)) {
        self.count_reply(head);
        let _ = self.link.send(|out| {
            let open = begin_reply(out, head.call, 0);
            encode(out);
            open.finish(out);
        });
    }

    /// Tells the client that a transfer to it will not come.
    pub fn transfer_failed(&self, transfer: u64, error: CUresult) {
        let status = error.0;
        // A lost link is noticed by the receiving thread.
        let _ = self.link.send(|out| WorkerMessage::TransferFailed { transfer, status }.encode(out));
    }
}

/// The status of a result, as replies carry it.
pub fn status<T>(result: &CuResult<T>) -> u32 {
    result.as_ref().err().map_or(0, |error| error.0)
}

/// The name of a driver error, for people.
pub fn describe(error: CUresult) -> String {
    match causeway_api::errors::name(error) {
        Some(name) => name.to_string_lossy().into_owned(),
        None => format!("driver error {}", error.0),
    }
}
