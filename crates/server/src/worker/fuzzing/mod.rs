//! Properties of a worker for any messages of a client.
//!
//! The body of the fuzz target `commands`. A session with a little memory and one object of every common kind
//! gets the messages that the input chooses (`script`), as they come from its connection. Then its client
//! goes. Nothing panics, all work ends, what was answered can be read, and what belongs to another session,
//! and to nobody, is as it was before.

mod script;

use super::engine::{Engine, handle};
use super::incoming::Buffer;
use crate::worker_process::Exchange;
use causeway_api::handle::{
    Context, Event, Function, Graph, Handle, Kernel, Library, MemoryPool, Module, Native, Stream,
};
use causeway_api::image::Form;
use causeway_api::types::JitOptions;
use causeway_connection::channel::Connection;
use causeway_gpu::Gpu as _;
use causeway_gpu::calls::*;
use causeway_gpu_software::{Options, SoftwareGpu};
use causeway_link::{Link, Receiver};
use causeway_wire::frame::{FrameReader, MAX_BODY};
use causeway_wire::message::{Messages, WorkerMessage};
use script::{ClientEvent, script};
use std::io::Read as _;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, LazyLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Memory of a session's device in bytes, and how much of it is allocated before the first message.
const MEMORY: u64 = 1 << 20;
const ALLOCATED: usize = 4096;

/// What memory is filled with that no message may reach.
const SECRET: u8 = 0x5e;

/// How long work that a session has left behind may take: a hang, if it is not over by then.
const STEP_TIMEOUT: Duration = Duration::from_secs(30);

/// Stores a number at the address that it is given.
const PTX: &str = ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry store(.param .u64 where) {\n\
    .reg .u64 %address;\nld.param.u64 %address, [where];\nst.global.u64 [%address], %address;\nret;\n}\n";

/// Has a session do what `input` chooses.
pub fn commands(input: &[u8]) {
    static OTHERS: LazyLock<Others> = LazyLock::new(Others::new);
    let session = Session::new();
    let addresses = [session.address, session.address + MEMORY, OTHERS.address, OTHERS.heap.as_ptr() as u64]
        .into_iter()
        .chain(session.windows)
        .collect::<Vec<_>>();
    for event in script(input, &addresses) {
        match event {
            ClientEvent::Frame(body) => {
                // After a goodbye, or nonsense, nothing more is read.
                if !matches!(handle(&session.engine, &body), Ok(true)) {
                    break;
                }
            }
            ClientEvent::Transfer { number, bytes } => {
                let incoming = session.engine.uploads().incoming();
                if incoming.knows(number) || incoming.seek(number) {
                    incoming.brought(number, Ok(Buffer::Plain(bytes)));
                    session.engine.session().wake();
                }
            }
        }
    }
    session.end();
    OTHERS.must_be_untouched();
}

/// A session that a client has just opened, and used a little.
struct Session {
    engine: Arc<Engine>,
    /// Device memory of [`ALLOCATED`] bytes.
    address: u64,
    /// Where the windows of addresses begin that client and worker share.
    windows: [u64; 2],
    _receiver: Receiver,
    client: JoinHandle<()>,
}

impl Session {
    fn new() -> Self {
        let (worker, client) = UnixStream::pair().expect("there are sockets");
        // The connection's type is TCP's, which serves for any stream.
        let connection = Connection::new(TcpStream::from(OwnedFd::from(worker)), None);
        let (link, receiver) = Link::accepted(connection).expect("a link can be made");
        let options = Options { memory: MEMORY, devices: 2, ..Options::default() };
        let gpu = Arc::new(SoftwareGpu::with_options(&options).expect("addresses can be reserved"));
        let snapshot = gpu.snapshot().expect("a software GPU describes itself");
        let engine = Engine::new(Arc::<SoftwareGpu>::clone(&gpu), link, None, Exchange::alone());
        let address = furnish(&engine, &gpu).expect("the first objects can be made");
        let client = std::thread::spawn(move || read_replies(client));
        let windows = [snapshot.host_window.0, snapshot.device_window.address];
        Self { engine, address, windows, _receiver: receiver, client }
    }

    /// The client goes. All work that is left comes to its end, and lets go of the engine.
    fn end(self) {
        let begun = Instant::now();
        let Self { engine, client, .. } = self;
        engine.close();
        engine.session().link().close();
        client.join().expect("the answers can be read");
        // The engine itself has one of the session.
        while Arc::strong_count(&engine) > 1 || Arc::strong_count(engine.session()) > 1 {
            // Commands that were deferred may have stopped streams since.
            engine.host_functions().open_all();
            assert!(begun.elapsed() < STEP_TIMEOUT, "the work of a session has no end");
            std::thread::yield_now();
        }
    }
}

/// Makes one object of each common kind, and some memory, whose address is returned.
fn furnish(engine: &Engine, gpu: &SoftwareGpu) -> causeway_gpu::CuResult<u64> {
    let context = gpu.primary_context_retain(0, 0)?;
    gpu.make_current(context)?;
    engine.session().objects().insert(Handle::<Context>::new(1, 0), context)?;
    engine.session().objects().insert(Handle::<Stream>::new(1, 0), gpu.stream_create(0, 0)?)?;
    engine.session().objects().insert(Handle::<Event>::new(1, 0), gpu.event_create(0)?)?;
    let (form, options) = (Form::Single.number(), JitOptions::default());
    let module = gpu.module_load(form, &options, PTX.as_bytes())?;
    engine.session().objects().insert(Handle::<Module>::new(1, 0), module)?;
    engine
        .session()
        .objects()
        .insert(Handle::<Function>::new(1, 0), gpu.module_function(module, "store")?.0)?;
    let library = gpu.library_load(form, &options, PTX.as_bytes())?;
    engine.session().objects().insert(Handle::<Library>::new(1, 0), library)?;
    engine
        .session()
        .objects()
        .insert(Handle::<Kernel>::new(1, 0), gpu.library_kernel(library, "store")?.0)?;
    engine.session().objects().insert(Handle::<Graph>::new(1, 0), gpu.graph_create()?)?;
    engine.session().objects().insert(Handle::<MemoryPool>::new(1, 0), gpu.memory_pool_default(0)?)?;
    gpu.memory_allocate(ALLOCATED)
}

/// Reads what a worker says until it has no more to say.
fn read_replies(mut connection: UnixStream) {
    let mut reader = FrameReader::new(MAX_BODY);
    while let Ok(count @ 1..) = connection.read(reader.space()) {
        reader.filled(count);
        while let Some(frame) = reader.next_frame().expect("a worker sends frames") {
            for message in Messages::<WorkerMessage<'_>>::new(reader.body(&frame)) {
                message.expect("a worker sends messages that can be decoded");
            }
        }
    }
}

/// What no message of the session may reach: the memory of another one, and of the worker itself.
struct Others {
    /// Keeps the memory.
    _gpu: SoftwareGpu,
    /// Device memory of [`ALLOCATED`] bytes.
    address: u64,
    heap: Box<[u8; ALLOCATED]>,
    context: Native<Context>,
}

impl Others {
    fn new() -> Self {
        let options = Options { memory: MEMORY, ..Options::default() };
        let gpu = SoftwareGpu::with_options(&options).expect("addresses can be reserved");
        let context = gpu.primary_context_retain(0, 0).expect("there is a device");
        gpu.make_current(context).expect("the context was made");
        let address = gpu.memory_allocate(ALLOCATED).expect("there is memory");
        // SAFETY: the software GPU's memory lies at the same addresses in this process, and no work uses it.
        unsafe { core::ptr::write_bytes(address as *mut u8, SECRET, ALLOCATED) };
        Self { _gpu: gpu, address, heap: Box::new([SECRET; ALLOCATED]), context }
    }

    fn must_be_untouched(&self) {
        // SAFETY: the software GPU's memory lies at the same addresses in this process, no work uses it, and
        // `_gpu` keeps it allocated.
        let memory = unsafe { core::slice::from_raw_parts(self.address as *const u8, ALLOCATED) };
        assert!(memory.iter().all(|byte| *byte == SECRET), "memory of another session was written");
        assert!(self.heap.iter().all(|byte| *byte == SECRET), "memory of the worker was written");
        assert!(self._gpu.make_current(self.context).is_ok(), "another session lost its context");
    }
}
