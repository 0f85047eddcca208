//! Stream callbacks in the client: host functions of the program, and
//! accesses to its memory for copies that must not be made earlier.
//!
//! Host functions run on one thread, one after the other, as CUDA runs them. Copies have a thread of their
//! own: a host function may wait for a stream whose next copy needs it. Either thread is there before a
//! server hears of what it is to do, so that a stream never stops for nobody.
//!
//! A stream that fails does not get as far. Then the server says so, and what was to be done is settled as
//! CUDA has it: a callback hears of the error, a host function is not called.
//!
//! Watches of events and streams call when the work before them is done.

use core::cell::Cell;
use core::ffi::c_void;
use std::collections::HashMap;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use causeway_api::calls;
use causeway_api::handle::{Context, Event, Handle};
use causeway_api::sys::{CUresult, CUstream};
use causeway_link::TransferOptions;
use causeway_sync::fork::in_background;
use causeway_sync::queue::Receiver;
use causeway_sync::{LazyThread, delays, threads};
use causeway_wire::codec::Encode;
use causeway_wire::message::{ClientMessage, HOST_DONE_TRANSFER};

use crate::arguments::Address;
use crate::locks::{Mutex, rank};
use crate::log::error;
use crate::model::completion::{self, Watermark};
use crate::model::context::PendingWrites;
use crate::model::stream::StreamState;
use crate::remote::session::faults::LOST;
use crate::remote::{mirrored, session};
use crate::submit::send;

thread_local! {
    /// Whether the calling thread carries out a function of the program for a stream, or a destructor. Without a
    /// destructor of its own, so that it can be asked for as long as the thread lives.
    static RUNS_PROGRAM: Cell<bool> = const { Cell::new(false) };
}

/// Whether the calling thread, one of this library, runs a function of the program that a stream waits for, or a
/// destructor. What would wait for a stream there could wait for itself.
#[inline]
pub fn is_in_function() -> bool {
    RUNS_PROGRAM.get()
}

/// Runs code of the program.
fn run_program(body: impl FnOnce()) {
    RUNS_PROGRAM.set(true);
    body();
    RUNS_PROGRAM.set(false);
}

/// Something to do when a stream reaches a point.
pub enum Task {
    /// Run the function of `cuLaunchHostFunc`; nothing if the stream fails before.
    Function {
        /// The function.
        function: unsafe extern "C" fn(*mut c_void),
        /// What it gets.
        data: Address,
        /// What lies ahead in the stream, whose bytes the function may read.
        after: PendingWrites,
    },
    /// Run the function of `cuStreamAddCallback`, which gets whether the stream has failed before.
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
    /// Do something of our own, in order with the program's functions; nothing if the stream fails before.
    Then {
        /// Does it.
        run: Box<dyn FnOnce() + Send>,
        /// What lies ahead in the stream, whose bytes may be needed.
        after: PendingWrites,
    },
    /// Nothing: the stream waits for something that is not here, and [`release_hold`] ends that.
    Hold,
    /// Access the program's memory for a copy: read pinned memory and send it as a transfer, or copy within
    /// the memory.
    Access {
        /// Does it. After an error the stream has failed before, and the memory may be the program's no more.
        run: Access,
        /// What lies ahead in the stream, whose bytes may be what is to be read, or belong where is to be
        /// written.
        after: PendingWrites,
    },
}

/// What is done for a copy when its stream gets there, or has failed before.
pub type Access = Box<dyn FnOnce(Result<(), CUresult>) + Send>;

/// By token: the server whose stream a task is about, and the task.
type Tasks = HashMap<u64, (usize, Task)>;

/// What is to be done here when streams reach points.
struct Callbacks {
    /// The next token.
    next: AtomicU64,
    tasks: LazyLock<Mutex<rank::Callbacks, Tasks>>,
    functions: LazyThread<ReadyTask>,
    accesses: LazyThread<ReadyTask>,
    /// Tasks that are done next, or are being done.
    queued: AtomicUsize,
}

static CALLBACKS: Callbacks = Callbacks {
    next: AtomicU64::new(1),
    tasks: LazyLock::new(Mutex::default),
    functions: LazyThread::new(),
    accesses: LazyThread::new(),
    queued: AtomicUsize::new(0),
};

/// A task whose stream has got there, or has failed before.
struct ReadyTask {
    task: Task,
    outcome: Result<(), CUresult>,
    /// The server whose stream waits for it, and by which token; nothing when none does.
    waiting: Option<(usize, u64)>,
}

/// Makes sure that there is a thread for functions of the program, before one may have to be called.
pub fn must_have_thread() -> Result<(), CUresult> {
    ensure(&CALLBACKS.functions, "host functions")
}

/// Whether anything is to be done now, or when a stream reaches its point.
pub fn is_any() -> bool {
    CALLBACKS.queued.load(Ordering::Acquire) != 0 || !CALLBACKS.tasks.lock().is_empty()
}

/// Forgets the threads in a forked child.
pub fn forget_threads() {
    CALLBACKS.functions.forget();
    CALLBACKS.accesses.forget();
}

fn ensure(thread: &LazyThread<ReadyTask>, name: &str) -> Result<(), CUresult> {
    let start = |queue| threads::spawn_for_program(name, move || serve(&queue));
    thread.ensure(start).map_err(|cause| {
        error!("cannot run host functions of a stream: starting a thread for {name} failed: {cause}");
        CUresult::CUDA_ERROR_OPERATING_SYSTEM
    })
}

/// Keeps a task until a server names the token that this returns.
pub fn register(server: usize, task: Task) -> Result<u64, CUresult> {
    match task {
        Task::Access { .. } | Task::Hold => ensure(&CALLBACKS.accesses, "host copies")?,
        Task::Function { .. } | Task::Callback { .. } | Task::Then { .. } => must_have_thread()?,
    }
    let token = CALLBACKS.next.fetch_add(1, Ordering::Relaxed);
    CALLBACKS.tasks.lock().insert(token, (server, task));
    Ok(token)
}

/// Forgets a task whose command could not be sent.
pub fn forget(token: u64) {
    // Dropped without the lock.
    let _task = CALLBACKS.tasks.lock().remove(&token);
}

/// Puts a task into a stream.
pub fn post(stream: &StreamState, task: Task) -> Result<(), CUresult> {
    let token = register(stream.context.server(), task)?;
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
    let task = Task::Access { run: Box::new(|_| ()), after };
    let token = register(stream.context.server(), task)?;
    let request = calls::host_function { stream: stream.handle, token };
    send::post_in(stream.context, &request).inspect_err(|_| forget(token))
}

/// Stops a stream here, until [`release_hold`] gets the token that this returns.
pub fn hold(stream: &StreamState) -> Result<u64, CUresult> {
    let token = register(stream.context.server(), Task::Hold)?;
    let request = calls::host_function { stream: stream.handle, token };
    send::post_in(stream.context, &request).inspect_err(|_| forget(token))?;
    Ok(token)
}

/// Lets a stream of a server go on that [`hold`] has stopped, or will. Never blocks.
pub fn release_hold(server: usize, token: u64) {
    static DONE: u8 = 0;
    let Ok(session) = session::with(server) else { return };
    let (transfer, options) = (HOST_DONE_TRANSFER | token, TransferOptions::default());
    // SAFETY: a static is readable for ever. An error means a lost link, which has been reported.
    let _ = unsafe { session.link().post_transfer(transfer, &raw const DONE, 1, options, ()) };
}

/// The same, once the bytes of copies before it are there and what kernels of another server have written to
/// the program's memory has come. So the stream finds it. Never blocks.
pub fn release_hold_after(server: usize, token: u64, after: PendingWrites, other: usize) {
    let run = Box::new(move |_| {
        // An error means a lost link, which has been reported.
        let _ = mirrored::fetch(other);
    });
    enqueue(Task::Access { run, after }, Ok(()), Some((server, token)));
}

/// Runs a function of the program soon, after those that wait to be run. There must be a
/// [thread](must_have_thread) for it.
pub fn run_later(function: unsafe extern "C" fn(*mut c_void), data: Address) {
    if crate::process::is_ready() {
        enqueue(Task::Function { function, data, after: PendingWrites::default() }, Ok(()), None);
    }
}

/// A stream of a server has reached the point of this token.
pub fn on_host_call(server: usize, token: u64) {
    match take(server, token) {
        Some(task) => enqueue(task, Ok(()), Some((server, token))),
        None => error!("the server names a host function that does not exist"),
    }
}

/// A stream of a server has failed before the point of this token, and waits for nobody there.
pub fn refused(server: usize, token: u64, status: CUresult) {
    // Nothing where the link was lost meanwhile.
    if let Some(task) = take(server, token) {
        enqueue(task, Err(status), None);
    }
}

/// A server is lost, and all its streams.
pub fn lost(server: usize) {
    let mut lost: Vec<_> = CALLBACKS.tasks.lock().extract_if(|_, (of, _)| *of == server).collect();
    lost.sort_unstable_by_key(|(token, _)| *token);
    lost.into_iter().for_each(|(_, (_, task))| enqueue(task, Err(LOST), None));
}

/// Takes out a task of a server's stream.
fn take(server: usize, token: u64) -> Option<Task> {
    let mut tasks = CALLBACKS.tasks.lock();
    tasks.get(&token).filter(|(of, _)| *of == server)?;
    tasks.remove(&token).map(|(_, task)| task)
}

/// Has a task done by its thread, or what is to be done instead when its stream has failed.
fn enqueue(task: Task, outcome: Result<(), CUresult>, waiting: Option<(usize, u64)>) {
    let thread = match task {
        Task::Hold => return,
        Task::Access { .. } => &CALLBACKS.accesses,
        Task::Function { .. } | Task::Callback { .. } | Task::Then { .. } => &CALLBACKS.functions,
    };
    CALLBACKS.queued.fetch_add(1, Ordering::Relaxed);
    if thread.send(ReadyTask { task, outcome, waiting }).is_err() {
        CALLBACKS.queued.fetch_sub(1, Ordering::Relaxed);
        error!("cannot run a host function of a stream: its thread has ended");
    }
}

/// Does what comes in a queue.
fn serve(queue: &Receiver<ReadyTask>) {
    while let Some(ReadyTask { task, outcome, waiting }) = queue.receive() {
        delays::inject();
        let _work = in_background();
        run(task, outcome, waiting.map(|(server, _)| server));
        delays::inject();
        if let Some((server, token)) = waiting {
            send_done(server, token);
        }
        CALLBACKS.queued.fetch_sub(1, Ordering::Release);
    }
}

/// Lets the stream of a task go on. An error means a lost link, which has been reported by the thread that
/// lost it.
fn send_done(server: usize, token: u64) {
    let Ok(session) = session::with(server) else { return };
    if mirrored::is_any() {
        // What comes next in the stream finds what the program's code has written: this stays behind that.
        let _ = mirrored::send(server);
        let _ = session.link().send(|out| ClientMessage::HostDone { token }.encode(out));
    } else {
        let _ = session.link().send_transfer(HOST_DONE_TRANSFER | token, &[0]);
    }
}

fn run(task: Task, outcome: Result<(), CUresult>, server: Option<usize>) {
    let (Task::Function { after, .. }
    | Task::Callback { after, .. }
    | Task::Then { after, .. }
    | Task::Access { after, .. }) = &task
    else {
        return;
    };
    if outcome.is_ok() {
        // An error is reported by the stream; the program's code runs all the same, as the stream has come this
        // far.
        let _ = after.wait().and_then(|()| server.map_or(Ok(()), mirrored::fetch));
    }
    match task {
        Task::Function { function, data, .. } if outcome.is_ok() => run_program(|| {
            // SAFETY: the program gave function and argument to be called once on a thread of the driver.
            unsafe { function(data.0) }
        }),
        Task::Callback { function, stream, data, .. } => {
            let status = outcome.err().unwrap_or(CUresult::CUDA_SUCCESS);
            run_program(|| {
                // SAFETY: the program gave function and argument to be called once on a thread of the driver.
                unsafe { function(stream.0.cast(), status, data.0) }
            });
        }
        Task::Then { run, .. } if outcome.is_ok() => run(),
        Task::Access { run, .. } => run(outcome),
        Task::Function { .. } | Task::Then { .. } | Task::Hold => {}
    }
}

impl Watermark {
    /// Gets what kernels wrote up to `sequence` to memory of the program, unless the program has it.
    /// Everything up to there must be done. `server` is where the work was done.
    pub fn fetch(&self, server: usize, sequence: u64) -> Result<(), CUresult> {
        if mirrored::is_any() && !self.has_fetched(sequence) {
            mirrored::fetch(server)?;
            self.note_fetched(sequence);
        }
        Ok(())
    }
}

impl StreamState {
    /// Gets what kernels wrote to memory of the program up to `sequence`, which must be done.
    pub fn fetch(&self, sequence: u64) -> Result<(), CUresult> {
        self.watermark.fetch(self.context.server(), sequence)
    }
}

/// Calls `call` when the last record of an event is done, or never will be, on a thread that must not be held
/// up.
pub fn when_recorded(
    context: Handle<Context>,
    event: Handle<Event>,
    call: impl FnOnce() + Send + 'static,
) -> Result<(), CUresult> {
    completion::watch(context.server(), call, |token| {
        send::post_in(context, &calls::event_watch { event, token })
    })
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};

    use super::*;

    /// What a function of the program says of its call.
    type Said = Sender<(CUresult, bool)>;

    unsafe extern "C" fn say_callback(_: CUstream, status: CUresult, said: *mut c_void) {
        // SAFETY: the tests give the address of a sender that lives until it has been used.
        let said = unsafe { &*said.cast::<Said>() };
        said.send((status, is_in_function())).unwrap();
    }

    unsafe extern "C" fn say_function(said: *mut c_void) {
        // SAFETY: the tests give the address of a sender that lives until it has been used.
        unsafe { say_callback(core::ptr::null_mut(), CUresult::CUDA_SUCCESS, said) };
    }

    fn callback(said: &Said) -> Task {
        let (data, after) = (Address((&raw const *said).cast_mut().cast()), PendingWrites::default());
        Task::Callback { function: say_callback, stream: Address(core::ptr::null_mut()), data, after }
    }

    fn function(said: &Said) -> Task {
        let (data, after) = (Address((&raw const *said).cast_mut().cast()), PendingWrites::default());
        Task::Function { function: say_function, data, after }
    }

    /// A server that no other test has anything to do with.
    const SERVER: usize = 5;

    #[test]
    fn a_stream_that_fails_settles_what_waits_behind_it() {
        const FAULT: CUresult = CUresult::CUDA_ERROR_ILLEGAL_ADDRESS;
        let (said, heard) = channel();
        let (tell, told) = channel();
        let access = || {
            let tell = tell.clone();
            let run: Access = Box::new(move |outcome| tell.send(outcome).unwrap());
            Task::Access { run, after: PendingWrites::default() }
        };
        let never = || Task::Then { run: Box::new(|| panic!()), after: PendingWrites::default() };
        let token = register(SERVER, callback(&said)).unwrap();
        refused(SERVER + 1, token, CUresult::CUDA_ERROR_UNKNOWN);
        for task in [function(&said), never(), access(), Task::Hold] {
            let token = register(SERVER, task).unwrap();
            refused(SERVER, token, FAULT);
        }
        refused(SERVER, token, FAULT);
        refused(SERVER, token, FAULT);
        assert_eq!(heard.recv().unwrap(), (FAULT, true), "the callback hears of it, the function nothing");
        assert_eq!(told.recv().unwrap(), Err(FAULT), "who waits for the bytes of a copy gets some");

        for task in [callback(&said), function(&said), access()] {
            register(SERVER, task).unwrap();
        }
        let of_other = register(SERVER + 1, Task::Hold).unwrap();
        lost(SERVER);
        assert_eq!((heard.recv().unwrap(), told.recv().unwrap()), ((LOST, true), Err(LOST)));
        assert!(heard.try_recv().is_err() && !is_in_function());
        assert!(take(SERVER + 1, of_other).is_some(), "another server's streams go on");
    }
}
