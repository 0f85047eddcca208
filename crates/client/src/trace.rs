//! Trace recorder. Written to the file that `CAUSEWAY_TRACE` names, as the trace events that
//! Chrome, Perfetto and speedscope read.
//!
//! All times are of the kernel's monotonic clock, so that the traces of several processes of one machine fit
//! together. Times on devices come from their events; `submit::device_times` finds out where those lie on
//! this clock.

use crate::files;
use crate::locks::{Mutex, rank};
use crate::log::error;
use crate::statistics::file_of;
use causeway_config::read::PROCESS;
use causeway_config::table::TRACE;
use core::cell::Cell;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// The most spans that are kept; what comes after them is counted.
const MAX_SPANS: usize = 1 << 20;

/// What a span is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Category {
    /// A call of the program.
    Call,
    /// A reply of the server that a call waits for.
    Wait,
    /// Work of a device.
    Device,
}

/// Where a span is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Row {
    /// A thread of the program.
    Thread(u32),
    /// A stream of a server, by its handle.
    Stream {
        /// The server's place among those that the program names.
        server: usize,
        /// The stream's handle.
        stream: u64,
    },
}

/// Something that took a while.
#[derive(Debug, Clone)]
struct Span {
    name: Cow<'static, str>,
    category: Category,
    row: Row,
    /// When it began, in ns.
    started: u64,
    /// How long it took, in ns.
    took: u64,
}

/// What has been kept.
struct Recorder {
    spans: Mutex<rank::TraceSpans, Vec<Span>>,
    lost: AtomicU64,
}

static RECORDER: Recorder = Recorder { spans: Mutex::new(Vec::new()), lost: AtomicU64::new(0) };

/// Whether a trace is wanted.
#[inline]
pub fn is_on() -> bool {
    static ON: LazyLock<bool> = LazyLock::new(|| PROCESS.path(&TRACE).is_some());
    *ON
}

/// The time now in ns.
pub fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes to `time`. This clock is always there.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}

/// Something begins on this thread; nothing where no trace is wanted.
#[inline]
pub fn begin() -> Option<u64> {
    if is_on() { Some(now()) } else { None }
}

/// What has [started](begin) on this thread is over.
#[inline]
pub fn end(name: &'static str, category: Category, started: Option<u64>) {
    if let Some(started) = started {
        let row = Row::Thread(thread());
        keep(Span { name: Cow::Borrowed(name), category, row, started, took: now().saturating_sub(started) });
    }
}

/// A device has done something.
pub fn device(name: String, server: usize, stream: u64, started: u64, took: u64) {
    let row = Row::Stream { server, stream };
    keep(Span { name: Cow::Owned(name), category: Category::Device, row, started, took });
}

/// Counts what could not be kept.
pub fn lose(count: u64) {
    RECORDER.lost.fetch_add(count, Ordering::Relaxed);
}

fn keep(span: Span) {
    let mut spans = RECORDER.spans.lock();
    if spans.len() < MAX_SPANS {
        spans.push(span);
    } else {
        lose(1);
    }
}

fn thread() -> u32 {
    thread_local! {
        static NUMBER: Cell<u32> = const { Cell::new(0) };
    }
    if NUMBER.get() == 0 {
        // Not `libc::gettid`, which glibc has from 2.30 on.
        // SAFETY: the call takes nothing and cannot fail.
        NUMBER.set(unsafe { libc::syscall(libc::SYS_gettid) } as u32);
    }
    NUMBER.get()
}

/// Writes what has been kept.
pub fn write(servers: &[String]) {
    let Some(path) = PROCESS.path(&TRACE) else { return };
    let pid = std::process::id();
    let path = file_of(&path, pid);
    let spans = core::mem::take(&mut *RECORDER.spans.lock());
    let trace = events(&spans, pid, &program(), servers, RECORDER.lost.load(Ordering::Relaxed));
    if let Err(cause) = files::write(&path, &format!("{trace}\n")) {
        error!("cannot write the trace to {} (CAUSEWAY_TRACE): {cause}", path.display());
    }
}

fn program() -> String {
    std::env::args().next().unwrap_or_default()
}

/// The trace: a process for the program, and one for the streams of each server.
fn events(spans: &[Span], pid: u32, program: &str, servers: &[String], lost: u64) -> Value {
    let rows: BTreeSet<Row> = spans.iter().map(|span| span.row).collect();
    let track = |row: Row| match row {
        Row::Thread(thread) => (u64::from(pid), u64::from(thread)),
        // Apart from every process's number, and the same for all programs of a trace never.
        Row::Stream { server, .. } => {
            let row = rows.iter().position(|found| *found == row).unwrap_or(0);
            (u64::from(pid) * 1000 + 10_000_000_000 + server as u64, row as u64 + 1)
        }
    };
    let named = |kind: &str, (pid, tid): (u64, u64), name: String| json!({ "name": kind, "ph": "M", "pid": pid, "tid": tid, "args": { "name": name } });
    let mut all = vec![named("process_name", (pid.into(), 0), program.to_owned())];
    for row in &rows {
        match *row {
            Row::Thread(thread) => all.push(named("thread_name", track(*row), format!("thread {thread}"))),
            Row::Stream { server, stream } => {
                let name = servers.get(server).map_or("server", String::as_str);
                all.push(named("process_name", track(*row), format!("devices of {name}")));
                all.push(named("thread_name", track(*row), format!("stream {stream:#x}")));
            }
        }
    }
    all.extend(spans.iter().map(|span| {
        let (pid, tid) = track(span.row);
        let category = match span.category {
            Category::Call => "call",
            Category::Wait => "wait",
            Category::Device => "device",
        };
        json!({
            "name": span.name, "cat": category, "ph": "X", "pid": pid, "tid": tid,
            "ts": span.started as f64 / 1e3, "dur": span.took as f64 / 1e3,
        })
    }));
    json!({ "traceEvents": all, "displayTimeUnit": "ns", "otherData": { "lost": lost } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_has_a_row_for_each_thread_and_stream() {
        let span = |name, category, row, started| Span {
            name: Cow::Borrowed(name),
            category,
            row,
            started,
            took: 500,
        };
        let stream = |stream| Row::Stream { server: 0, stream };
        let spans = [
            span("cuLaunchKernel", Category::Call, Row::Thread(9), 1000),
            span("stream_synchronize", Category::Wait, Row::Thread(9), 2000),
            span("add", Category::Device, stream(1), 1500),
            span("add", Category::Device, stream(2), 1500),
        ];
        let trace = events(&spans, 77, "program", &["gpu-box:1".to_owned()], 3);
        let all = trace["traceEvents"].as_array().unwrap();
        let complete: Vec<_> = all.iter().filter(|event| event["ph"] == "X").collect();
        assert_eq!(complete.len(), 4);
        assert_eq!((&complete[0]["ts"], &complete[0]["dur"]), (&json!(1.0), &json!(0.5)));
        assert_eq!((&complete[0]["pid"], &complete[0]["tid"]), (&json!(77), &json!(9)));
        assert_eq!(complete[2]["pid"], complete[3]["pid"]);
        assert_ne!(complete[2]["tid"], complete[3]["tid"]);
        let names: Vec<_> =
            all.iter().filter(|event| event["ph"] == "M").map(|event| &event["args"]["name"]).collect();
        assert!(names.contains(&&json!("devices of gpu-box:1")) && names.contains(&&json!("program")));
        assert_eq!(trace["otherData"]["lost"], 3);
    }
}
