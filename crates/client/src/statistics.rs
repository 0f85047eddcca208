//! Counts of what the program did, written as JSON to the file that `CAUSEWAY_STATS` names.

pub mod copies;
pub mod device_time;
pub mod host_memory;

use crate::locks::{Mutex, rank};
use causeway_api::coverage::FUNCTIONS;
use causeway_link::{Counters, Reason, TransportKind};
use causeway_pipeline::Direction;
use core::cell::Cell;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Instant;

/// How often one entry point was called, by how the call was carried out.
struct Counts([AtomicU64; 3]);

/// What has been counted.
struct AllCounts {
    calls: [Counts; FUNCTIONS.len()],
    /// The waits before the first launch; until then [`NONE_YET`].
    waits_before_launch: AtomicU64,
    wait_nanoseconds: AtomicU64,
    /// Whether the program has ended, and what is waited for is not its own any more.
    is_over: AtomicBool,
    module_bytes: AtomicU64,
    bytes_not_sent: AtomicU64,
    waits: AtomicU64,
    /// What the program waited for, and how often.
    waited_for: Mutex<rank::WaitStatistics, BTreeMap<&'static str, Waited>>,
    /// What has been found out about ways between servers, a sentence each.
    between_servers: Mutex<rank::PeerAddresses, Vec<String>>,
}

static COUNTS: AllCounts = AllCounts {
    calls: [const { Counts([const { AtomicU64::new(0) }; 3]) }; FUNCTIONS.len()],
    waits_before_launch: AtomicU64::new(NONE_YET),
    wait_nanoseconds: AtomicU64::new(0),
    is_over: AtomicBool::new(false),
    module_bytes: AtomicU64::new(0),
    bytes_not_sent: AtomicU64::new(0),
    waits: AtomicU64::new(0),
    waited_for: Mutex::new(BTreeMap::new()),
    between_servers: Mutex::new(Vec::new()),
};

const NONE_YET: u64 = u64::MAX;
/// How often something was waited for.
#[derive(Clone, Copy, Default)]
struct Waited {
    before_first_launch: u64,
    all: u64,
}

const NAMES: [&str; 3] = ["local", "posted", "called"];

/// Notes what has been found out about a way between servers, for the report.
pub fn note_between_servers(sentence: String) {
    COUNTS.between_servers.lock().push(sentence);
}

/// What has been noted so far of ways between servers.
pub fn between_servers() -> Vec<String> {
    COUNTS.between_servers.lock().clone()
}

/// How a call was carried out; the later ones outweigh the earlier ones.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Carried {
    /// Without the server.
    Local,
    /// By posted commands.
    Posted,
    /// By waiting for the server.
    Called,
}

thread_local! {
    static CARRIED: Cell<Carried> = const { Cell::new(Carried::Local) };
}

/// A call begins. Gives what was noted of the call in which a callback of the program makes it.
#[inline]
pub fn begin_call() -> Carried {
    CARRIED.replace(Carried::Local)
}

/// Counts the running call, the entry point `index`; `outer` is what [`begin_call`] gave.
#[inline]
pub fn end_call(index: usize, outer: Carried) {
    count_call(index, CARRIED.replace(outer));
}

/// Notes how the running call is being carried out.
#[inline]
pub fn mark(carried: Carried) {
    CARRIED.set(CARRIED.get().max(carried));
}

/// Counts a call of the entry point with this index.
#[inline]
pub fn count_call(index: usize, carried: Carried) {
    COUNTS.calls[index].0[carried as usize].fetch_add(1, Relaxed);
}

/// The program has ended: what is waited for from here on is not counted.
pub fn end_program() {
    COUNTS.is_over.store(true, Relaxed);
}

/// A wait for the server; it ends when this is dropped.
pub struct Wait(Option<Instant>);

/// Counts a wait for the server's answer to `what`, a round trip at least, that begins now: while the server
/// is at it, this takes no time.
pub fn begin_wait(what: &'static str) -> Wait {
    if COUNTS.is_over.load(Relaxed) {
        return Wait(None);
    }
    COUNTS.waits.fetch_add(1, Relaxed);
    let mut waited_for = COUNTS.waited_for.lock();
    let waited = waited_for.entry(what).or_default();
    waited.all += 1;
    waited.before_first_launch += u64::from(COUNTS.waits_before_launch.load(Relaxed) == NONE_YET);
    drop(waited_for);
    Wait(Some(Instant::now()))
}

impl Drop for Wait {
    fn drop(&mut self) {
        let Some(started) = self.0 else { return };
        let time = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        COUNTS.wait_nanoseconds.fetch_add(time, Relaxed);
    }
}

/// Notes a launch, of which the first is of interest: what came before it is the program's start.
#[inline]
pub fn note_launch() {
    if COUNTS.waits_before_launch.load(Relaxed) == NONE_YET {
        COUNTS.waits_before_launch.store(COUNTS.waits.load(Relaxed), Relaxed);
    }
}

/// Counts bytes of an image sent.
pub fn count_module(bytes: usize) {
    COUNTS.module_bytes.fetch_add(bytes as u64, Relaxed);
}

/// Counts bytes copied to a device that the server had already.
pub fn count_not_sent(bytes: usize) {
    COUNTS.bytes_not_sent.fetch_add(bytes as u64, Relaxed);
}

/// The waits by what was waited for, without those that there were none of.
fn waits(count: impl Fn(&Waited) -> u64) -> BTreeMap<&'static str, u64> {
    let waited_for = COUNTS.waited_for.lock();
    let counted = waited_for.iter().map(|(what, waited)| (*what, count(waited)));
    counted.filter(|(_, count)| *count > 0).collect()
}

/// How calls and copies got to a server.
#[derive(Serialize)]
pub struct ServerPath<'a> {
    /// What executed the calls, for people.
    pub backend: &'a str,
    /// What carried them.
    #[serde(serialize_with = "as_text")]
    pub via: TransportKind,
    /// Why nothing else did.
    #[serde(rename = "not_via", serialize_with = "by_module")]
    pub reasons: &'a [Reason],
    /// Where the plans for copies came from.
    pub pipeline: &'a str,
    /// How network cards reach the devices' memory, or why not; nothing where the server has not said.
    pub gpudirect: String,
    /// What the link has carried.
    #[serde(skip)]
    pub link: Counters,
    /// The round trips that opening the session took.
    #[serde(skip)]
    pub opening: &'a [&'static str],
    /// When the session was opened.
    #[serde(skip)]
    pub started: Instant,
}

fn as_text<S: Serializer>(via: &TransportKind, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(via)
}

fn by_module<S: Serializer>(reasons: &[Reason], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(reasons.iter().map(|reason| (reason.kind.to_string(), &reason.text)))
}

/// The report, as it is written.
#[derive(Serialize)]
struct Report<'a> {
    /// For people.
    device: &'a str,
    /// Of several servers the first is the one whose fields stand alone.
    #[serde(flatten)]
    first: &'a ServerPath<'a>,
    servers: &'a [ServerPath<'a>],
    local: u64,
    posted: u64,
    called: u64,
    waits: u64,
    waits_before_first_launch: u64,
    round_trips: RoundTrips<'a>,
    wait_seconds: f64,
    bytes_to_device: u64,
    bytes_not_sent: u64,
    bytes_from_device: u64,
    module_bytes: u64,
    copies: copies::Copies,
    /// What was found out about the ways between servers.
    between_servers: &'a [String],
    /// What of it kernels got the address of.
    registered_memory: host_memory::RegisteredMemory,
    /// What devices did when, if it was wanted.
    #[serde(skip_serializing_if = "Option::is_none")]
    device_time: Option<device_time::DeviceTime>,
    /// Since the session was opened.
    seconds: f64,
    /// By entry point, how often it was carried out in which way.
    calls: BTreeMap<&'static str, BTreeMap<&'static str, u64>>,
}

#[derive(Serialize)]
struct RoundTrips<'a> {
    opening: &'a [&'static str],
    before_first_launch: BTreeMap<&'static str, u64>,
    all: BTreeMap<&'static str, u64>,
}

/// The file of the process `pid`, where a user has named `path`: `%p` in its last part is the process's
/// number, as in the names of core files, so that programs that start others leave a report each.
pub fn file_of(path: &Path, pid: u32) -> PathBuf {
    match path.file_name() {
        Some(name) if name.as_bytes().windows(2).any(|two| two == b"%p") => {
            path.with_file_name(name.to_string_lossy().replace("%p", &pid.to_string()))
        }
        _ => path.to_owned(),
    }
}

/// The report. `device` is for people; `between` is what was found out about the ways between servers.
pub fn report(device: &str, servers: &[ServerPath<'_>], between: &[String]) -> String {
    let Some(first) = servers.first() else { return "{}\n".to_owned() };
    let mut totals = [0_u64; 3];
    let mut calls = BTreeMap::new();
    for (function, counts) in FUNCTIONS.iter().zip(COUNTS.calls.iter()) {
        let mut by_kind = BTreeMap::new();
        for ((name, count), total) in NAMES.into_iter().zip(&counts.0).zip(&mut totals) {
            let count = count.load(Relaxed);
            *total += count;
            if count > 0 {
                by_kind.insert(name, count);
            }
        }
        if !by_kind.is_empty() {
            calls.insert(function.symbol, by_kind);
        }
    }
    let [local, posted, called] = totals;
    let report = Report {
        device,
        first,
        servers,
        local,
        posted,
        called,
        waits: COUNTS.waits.load(Relaxed),
        waits_before_first_launch: COUNTS.waits_before_launch.load(Relaxed).min(COUNTS.waits.load(Relaxed)),
        round_trips: RoundTrips {
            opening: first.opening,
            before_first_launch: waits(|waited| waited.before_first_launch),
            all: waits(|waited| waited.all),
        },
        wait_seconds: COUNTS.wait_nanoseconds.load(Relaxed) as f64 / 1e9,
        bytes_to_device: copies::bytes(Direction::ToDevice),
        bytes_not_sent: COUNTS.bytes_not_sent.load(Relaxed),
        bytes_from_device: copies::bytes(Direction::FromDevice),
        module_bytes: COUNTS.module_bytes.load(Relaxed),
        copies: copies::report(first.via, &first.link),
        between_servers: between,
        registered_memory: host_memory::report(),
        device_time: device_time::report(),
        seconds: first.started.elapsed().as_secs_f64(),
        calls,
    };
    serde_json::to_string_pretty(&report).expect("a report has no maps with keys that are not text") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_name_with_pid_is_per_process() {
        let of = |path: &str| file_of(Path::new(path), 42);
        assert_eq!(of("/tmp/%p/a-%p.%p"), Path::new("/tmp/%p/a-42.42"));
        assert_eq!(of("/tmp/100%.json"), Path::new("/tmp/100%.json"));
    }

    #[test]
    fn the_report_counts_by_how_calls_were_carried_out() {
        let index = FUNCTIONS.iter().position(|function| function.symbol == "cuProfilerStop").unwrap();
        count_call(index, Carried::Posted);
        count_call(index, Carried::Called);
        drop(begin_wait("cuCtxSynchronize"));
        note_launch();
        drop(begin_wait("cuCtxSynchronize"));
        let reasons = [Reason { kind: TransportKind::Shm, text: "far".into() }];
        let link = Counters { direct_bytes_sent: 7, ..Counters::default() };
        let (opening, started) = (&["connection", "hello"], Instant::now());
        let (via, backend) = (TransportKind::Tcp, "none\n");
        let path = ServerPath {
            via,
            reasons: &reasons,
            link,
            opening,
            backend,
            pipeline: "",
            gpudirect: String::new(),
            started,
        };
        let text = report("a \"device\"", &[path], &["device 1 \"far\"".to_owned()]);
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        let zero = serde_json::json!({"copies": 0, "bytes": 0});
        assert_eq!(value["round_trips"]["opening"], serde_json::json!(["connection", "hello"]));
        assert_eq!(value["round_trips"]["before_first_launch"]["cuCtxSynchronize"], 1);
        assert_eq!(value["round_trips"]["all"]["cuCtxSynchronize"], 2);
        assert_eq!((&value["via"], &value["servers"][0]["via"]), (&"tcp".into(), &"tcp".into()));
        assert_eq!(value["copies"]["to_device"]["gpudirect"]["bytes"], 7);
        assert_eq!(value["copies"]["to_device"]["zero_copy"], zero);
        assert_eq!(value["copies"]["to_device"]["tcp"], zero);
        assert_eq!(value["copies"]["between_servers"]["client"], zero);
        assert_eq!(value["not_via"]["shm"], "far");
        assert_eq!(value["between_servers"][0], "device 1 \"far\"");
        assert_eq!(value["calls"]["cuProfilerStop"], serde_json::json!({"posted": 1, "called": 1}));
        assert_eq!((&value["device"], &value["backend"]), (&"a \"device\"".into(), &"none\n".into()));
    }
}
