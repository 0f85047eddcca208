//! Runs programs on a driver.

mod buffers;
mod calls;
mod copies;
mod host_code;
mod machine;

use crate::driver::{Error, Handle};
use crate::interpret::{self, Expected, Origin};
use crate::order::HappensBefore;
use crate::program::{Call, Program, Region, StreamKind};
use buffers::Place;
use host_code::{Findings, HostCall, Mismatch};
pub use machine::Machine;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{Barrier, Mutex};

/// How a program ended.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// Everything was as the model says.
    Right,
    /// Memory held something else; what and where.
    Wrong(String),
    /// A call of the driver failed.
    Failed(String),
}

/// A program under way.
struct Run<'a> {
    machine: &'a Machine,
    program: &'a Program,
    order: &'a HappensBefore<'a>,
    expected: &'a Expected,
    streams: Vec<AtomicPtr<core::ffi::c_void>>,
    events: Vec<Handle>,
    places: Vec<Place>,
    executables: Vec<AtomicPtr<core::ffi::c_void>>,
    /// The words of streams that stand still.
    words: u64,
    findings: Findings,
    /// What host functions are given, until no stream can call them any more.
    #[expect(clippy::vec_box, reason = "streams hold their addresses")]
    host_calls: Mutex<Vec<Box<HostCall>>>,
    barrier: Barrier,
    has_failed: AtomicBool,
}

// SAFETY: handles of the driver may be used by all threads, and what the fields' cells hold is in order by
// the barrier.
unsafe impl Sync for Run<'_> {}

thread_local! {
    /// The device whose context is current, and one more; 0 for none.
    static CURRENT: Cell<usize> = const { Cell::new(0) };
}

/// Runs a program and compares what it gives with the model.
pub fn run(machine: &Machine, program: &Program) -> Outcome {
    let order = match HappensBefore::of(program) {
        Ok(order) => order,
        Err((op, refusal)) => return Outcome::Failed(format!("op {op} is not in order: {refusal:?}")),
    };
    let expected = interpret::interpret(program, &order);
    let mut run = match Run::new(machine, program, &order, &expected) {
        Ok(run) => run,
        Err(error) => return Outcome::Failed(format!("at the start: {error}")),
    };
    let ran = run.threads();
    let compared = if ran.is_ok() { run.compare() } else { Ok(()) };
    let ended = run.end();
    if let Err(error) = ran.and(compared.map_err(|error| error.to_string())) {
        return Outcome::Failed(error);
    }
    if let Err(error) = ended {
        return Outcome::Failed(format!("at the end: {error}"));
    }
    let mut found = run.findings.lock().map(|found| found.clone()).unwrap_or_default();
    found.sort_by_key(|mismatch| mismatch.op);
    match found.first() {
        None => Outcome::Right,
        Some(first) => Outcome::Wrong(describe(program, &order, first)),
    }
}

fn describe(program: &Program, order: &HappensBefore, mismatch: &Mismatch) -> String {
    let Mismatch { op, buffer, offset, expected, found, wrong } = mismatch;
    let kind = program.buffers[*buffer].kind;
    let when = if *op < program.ops.len() { format!("op {op}") } else { "the end".to_owned() };
    let of = |value: &[u8]| match interpret::origin(program, order, (*buffer, *offset), value, *op) {
        Origin::Op(op) => format!("of op {op}"),
        Origin::Start => "from the start".to_owned(),
        Origin::Source(buffer, Some(op)) => format!("of its source B{buffer} after op {op}"),
        Origin::Source(buffer, None) => format!("of its source B{buffer} from the start"),
        Origin::Nowhere => "of no op".to_owned(),
    };
    format!(
        "{when}: B{buffer} ({kind:?}) +{offset:#x}: expected {expected:02x?} ({}), found {found:02x?} ({}); {wrong} bytes wrong",
        of(expected),
        of(found),
    )
}

impl<'a> Run<'a> {
    fn new(
        machine: &'a Machine,
        program: &'a Program,
        order: &'a HappensBefore<'a>,
        expected: &'a Expected,
    ) -> Result<Self, Error> {
        let mut run = Self {
            machine,
            program,
            order,
            expected,
            streams: Vec::new(),
            events: Vec::new(),
            places: program.buffers.iter().map(|_| Place::default()).collect(),
            executables: program.graphs.iter().map(|_| AtomicPtr::default()).collect(),
            words: 0,
            findings: Findings::default(),
            host_calls: Mutex::default(),
            barrier: Barrier::new(program.threads),
            has_failed: AtomicBool::new(false),
        };
        for stream in &program.streams {
            run.enter(stream.device)?;
            let handle = match stream.kind {
                StreamKind::Legacy => core::ptr::null_mut(),
                StreamKind::PerThread(_) => {
                    core::ptr::without_provenance_mut(crate::driver::PER_THREAD_STREAM)
                }
                StreamKind::Blocking => machine.create_stream(0)?,
                StreamKind::NonBlocking => machine.create_stream(crate::driver::NON_BLOCKING)?,
            };
            run.streams.push(AtomicPtr::new(handle));
        }
        for &device in &program.events {
            run.enter(device)?;
            run.events.push(machine.create_event()?);
        }
        for buffer in 0..program.buffers.len() {
            if program.buffers[buffer].initial {
                run.make_initial(buffer)?;
            }
        }
        if program.words > 0 {
            run.enter(0)?;
            run.words = machine.make_words(program.words)?;
        }
        for device in 0..program.devices {
            run.enter(device)?;
            machine.synchronize()?;
        }
        Ok(run)
    }

    /// Makes a device's context current.
    fn enter(&self, device: usize) -> Result<(), Error> {
        if CURRENT.get() != device + 1 {
            self.machine.enter(device)?;
            CURRENT.set(device + 1);
        }
        Ok(())
    }

    fn stream(&self, stream: usize) -> Handle {
        self.streams[stream].load(Ordering::Relaxed)
    }

    /// Runs all threads to their ends.
    fn threads(&self) -> Result<(), String> {
        std::thread::scope(|scope| {
            let others: Vec<_> =
                (1..self.program.threads).map(|thread| scope.spawn(move || self.thread(thread))).collect();
            let mut result = self.thread(0);
            for other in others {
                let ended = other.join().unwrap_or_else(|_| Err("a thread panicked".to_owned()));
                result = result.and(ended);
            }
            result
        })
    }

    /// Issues the operations of a thread. After a failure of any, threads only meet at barriers.
    fn thread(&self, thread: usize) -> Result<(), String> {
        let mut result = Ok(());
        for (index, op) in self.program.ops.iter().enumerate() {
            if matches!(op.call, Call::Barrier) {
                self.barrier.wait();
            } else if op.thread == thread
                && !self.has_failed.load(Ordering::Relaxed)
                && let Err(error) = self.call(index, &op.call)
            {
                self.has_failed.store(true, Ordering::Relaxed);
                result = Err(format!("op {index}: {error}"));
            }
        }
        result
    }

    /// Waits for everything and compares all buffers.
    fn compare(&self) -> Result<(), Error> {
        for device in 0..self.program.devices {
            self.enter(device)?;
            self.machine.synchronize()?;
        }
        for (buffer, expected) in self.expected.buffers.iter().enumerate() {
            if expected.is_empty() {
                continue;
            }
            let made = &self.program.buffers[buffer];
            let whole = Region::linear(buffer, 0, made.size);
            let mut copy = Vec::new();
            let found: &[u8] = if made.kind.is_device() {
                self.enter(made.device)?;
                copy.resize(made.size, 0);
                self.machine.download(&mut copy, self.places[buffer].device())?;
                &copy
            } else {
                // SAFETY: all work is done, and the buffer is alive.
                unsafe { core::slice::from_raw_parts(self.places[buffer].host(), made.size) }
            };
            host_code::compare(&self.findings, self.program.ops.len(), &whole, found, expected);
        }
        Ok(())
    }

    /// Gives back all that the program has.
    fn end(&mut self) -> Result<(), Error> {
        for device in 0..self.program.devices {
            self.enter(device)?;
            self.machine.synchronize()?;
        }
        for executable in &self.executables {
            self.machine.destroy_executable(executable.load(Ordering::Relaxed))?;
        }
        for (stream, state) in self.program.streams.iter().enumerate() {
            if matches!(state.kind, StreamKind::Blocking | StreamKind::NonBlocking) {
                self.destroy_stream(stream)?;
            }
        }
        for event in core::mem::take(&mut self.events) {
            self.machine.destroy_event(event)?;
        }
        for buffer in 0..self.places.len() {
            self.release(buffer, None)?;
        }
        self.enter(0)?;
        self.machine.free_words(self.words)
    }

    fn destroy_stream(&self, stream: usize) -> Result<(), Error> {
        let handle = self.streams[stream].swap(core::ptr::null_mut(), Ordering::Relaxed);
        if handle.is_null() { Ok(()) } else { self.machine.destroy_stream(handle) }
    }
}
