//! What the client does when a stream of the server reaches a point: host functions of the program, and
//! accesses to its memory for copies that must not be made earlier.
//!
//! Host functions run on one thread, one after the other, as CUDA runs them. Copies have a thread of their
//! own: a host function may wait for a stream whose next copy needs it.

use crate::arguments::Address;
use crate::locks::{Mutex, rank};
use crate::log::error;
use crate::model::context::PendingWrites;
use crate::model::stream::StreamState;
use crate::remote::mirrored;
use crate::remote::session;
use crate::submit::send;
use causeway_api::calls;
use causeway_api::sys::{CUresult, CUstream};
use causeway_link::TransferOptions;
use causeway_sync::{delays, threads};
use causeway_wire::codec::Encode;
use causeway_wire::message::{ClientMessage, HOST_DONE_TRANSFER};
use core::ffi::c_void;
use crossbeam_channel::{Sender, unbounded};
use std::collections::HashMap;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Something to do when a stream reaches a point.
pub enum Task {
    /// Run the function of `cuLaunchHostFunc`.
    Function {
        /// The function.
        function: unsafe extern "C" fn(*mut c_void),
        /// What it gets.
        data: Address,
        /// What lies ahead in the stream, whose bytes the function may read.
        after: PendingWrites,
    },
    /// Run the function of `cuStreamAddCallback`.
    Callback {
        /// The function.
        function: unsafe extern "C" fn(CUstream, CUresult, *mut c_void),
        /// The stream as the program named it.
        stream: Address,
        /// What it gets.
        data: Address,
        /// What lies ahead in the stream, whose bytes the function may read.
        after: PendingWrites,
    },
    /// Do something of our own, in order with the program's functions.
    Then {
        /// Does it.
        run: Box<dyn FnOnce() + Send>,
        /// What lies ahead in the stream, whose bytes may be needed.
        after: PendingWrites,
    },
    /// Nothing: the stream waits for something that is not here, and [`let_go`] ends that.
    Hold,
    /// Access the program's memory for a copy: read pinned memory and send it as a transfer, or copy within
    /// the memory.
    Access {
        /// Does it.
        run: Box<dyn FnOnce() + Send>,
        /// What lies ahead in the stream, whose bytes may be what is to be read, or belong where is to be
        /// written.
        after: PendingWrites,
    },
}

/// What is to be done here when streams reach points.
struct Callbacks {
    /// The next token.
    next: AtomicU64,
    tasks: LazyLock<Mutex<rank::Callbacks, HashMap<u64, Task>>>,
    functions: LazyLock<Sender<ReadyTask>>,
    accesses: LazyLock<Sender<ReadyTask>>,
}

static CALLBACKS: Callbacks = Callbacks {
    next: AtomicU64::new(1),
    tasks: LazyLock::new(Mutex::default),
    functions: LazyLock::new(|| start("host functions")),
    accesses: LazyLock::new(|| start("host copies")),
};

/// A task whose time has come.
struct ReadyTask {
    task: Task,
    /// The server whose stream waits for it, and by which token; nothing when none does.
    waiting: Option<(usize, u64)>,
}

/// Keeps a task until a server names the token that this returns.
pub fn register(task: Task) -> u64 {
    let token = CALLBACKS.next.fetch_add(1, Ordering::Relaxed);
    CALLBACKS.tasks.lock().insert(token, task);
    token
}

/// Forgets a task whose command could not be sent.
pub fn forget(token: u64) {
    CALLBACKS.tasks.lock().remove(&token);
}

/// Puts a task into a stream.
pub fn post(stream: &StreamState, task: Task) -> Result<(), CUresult> {
    let token = register(task);
    let request = calls::host_function { stream: stream.handle, token };
    send::post_in(stream.context, &request).inspect_err(|_| forget(token))?;
    stream.add_hazard();
    Ok(())
}

/// Has a stream wait for the bytes of copies that lie before its next command, if some are still on their
/// way: the device writes by itself to memory that it shares with the program, and a thread that polls must
/// not find that first.
pub fn hold_for_writes(stream: &StreamState) -> Result<(), CUresult> {
    let after = stream.pending_writes();
    if after.is_done() {
        return Ok(());
    }
    let token = register(Task::Access { run: Box::new(|| ()), after });
    let request = calls::host_function { stream: stream.handle, token };
    send::post_in(stream.context, &request).inspect_err(|_| forget(token))
}

/// Stops a stream here, until [`let_go`] gets the token that this returns.
pub fn hold(stream: &StreamState) -> Result<u64, CUresult> {
    let token = register(Task::Hold);
    let request = calls::host_function { stream: stream.handle, token };
    send::post_in(stream.context, &request).inspect_err(|_| forget(token))?;
    Ok(token)
}

/// Lets a stream of a server go on that [`hold`] has stopped, or will. Never blocks.
pub fn let_go(server: usize, token: u64) {
    static DONE: u8 = 0;
    let Ok(session) = session::with(server) else { return };
    let (transfer, options) = (HOST_DONE_TRANSFER | token, TransferOptions::default());
    // SAFETY: a static is readable for ever. An error means a lost link, which has been reported.
    let _ = unsafe { session.link().post_transfer(transfer, &raw const DONE, 1, options, ()) };
}

/// The same, once the bytes of copies before it are there and what kernels of another server have written to
/// the program's memory has come. So the stream finds it. Never blocks.
pub fn let_go_behind(server: usize, token: u64, after: PendingWrites, other: usize) {
    let run = Box::new(move || {
        // An error means a lost link, which has been reported.
        let _ = mirrored::fetch(other);
    });
    if CALLBACKS
        .accesses
        .send(ReadyTask { task: Task::Access { run, after }, waiting: Some((server, token)) })
        .is_err()
    {
        error!("a stream cannot go on, because no thread for copies could be started");
    }
}

/// Runs a function of the program soon, after those that wait to be run.
pub fn run_later(function: unsafe extern "C" fn(*mut c_void), data: Address) {
    if crate::process::is_ready()
        && CALLBACKS
            .functions
            .send(ReadyTask {
                task: Task::Function { function, data, after: PendingWrites::default() },
                waiting: None,
            })
            .is_err()
    {
        error!("a destructor of the program cannot run, because its thread could not be started");
    }
}

/// A stream of a server has reached the point of this token.
pub fn reached(server: usize, token: u64) {
    let Some(task) = CALLBACKS.tasks.lock().remove(&token) else {
        error!("the server names a host function that does not exist");
        return;
    };
    if matches!(task, Task::Hold) {
        return;
    }
    let queue = if matches!(task, Task::Access { .. }) { &CALLBACKS.accesses } else { &CALLBACKS.functions };
    if queue.send(ReadyTask { task, waiting: Some((server, token)) }).is_err() {
        error!("a host function cannot run, because its thread could not be started");
    }
}

fn start(name: &'static str) -> Sender<ReadyTask> {
    let (sender, receiver) = unbounded::<ReadyTask>();
    let started = threads::spawn_for_program(name, move || {
        for ReadyTask { task, waiting } in receiver {
            delays::inject();
            run(task, waiting.map(|(server, _)| server));
            delays::inject();
            if let Some((server, token)) = waiting {
                say_done(server, token);
            }
        }
    });
    if let Err(cause) = started {
        error!("no thread for {name} could be started: {cause}");
    }
    sender
}

/// Lets the stream of a task go on. An error means a lost link, which has been reported by the thread that
/// lost it.
fn say_done(server: usize, token: u64) {
    let Ok(session) = session::with(server) else { return };
    if mirrored::is_any() {
        // What comes next in the stream finds what the program's code has written: this stays behind that.
        let _ = mirrored::send(server);
        let _ = session.link().send(|out| ClientMessage::HostDone { token }.encode(out));
    } else {
        let _ = session.link().send_transfer(HOST_DONE_TRANSFER | token, &[0]);
    }
}

fn run(task: Task, server: Option<usize>) {
    let (Task::Function { after, .. }
    | Task::Callback { after, .. }
    | Task::Then { after, .. }
    | Task::Access { after, .. }) = &task
    else {
        return;
    };
    // An error is reported by the stream; the program's code runs all the same, as the stream has come this
    // far.
    let _ = after.wait().and_then(|()| server.map_or(Ok(()), mirrored::fetch));
    match task {
        // SAFETY: the program gave function and argument to be called once on a thread of the driver.
        Task::Function { function, data, .. } => unsafe { function(data.0) },
        // SAFETY: as above.
        Task::Callback { function, stream, data, .. } => unsafe {
            function(stream.0.cast(), CUresult::CUDA_SUCCESS, data.0);
        },
        Task::Then { run, .. } => run(),
        Task::Hold => {}
        Task::Access { run, .. } => run(),
    }
}
