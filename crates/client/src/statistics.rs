//! Counts of what the program did, written as JSON to the file that `CAUSEWAY_STATS` names.

pub mod copies;

use crate::locks::{Mutex, rank};
use causeway_api::coverage::FUNCTIONS;
use causeway_fabric::{Counters, Reason, Via};
use causeway_pipeline::Direction;
use core::cell::Cell;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

/// How often one entry point was called, by how the call was carried out.
struct Counts([AtomicU64; 3]);

static CALLS: [Counts; FUNCTIONS.len()] =
    [const { Counts([const { AtomicU64::new(0) }; 3]) }; FUNCTIONS.len()];
/// The waits before the first launch; until then [`NONE_YET`].
static WAITS_BEFORE_LAUNCH: AtomicU64 = AtomicU64::new(NONE_YET);
const NONE_YET: u64 = u64::MAX;
static WAIT_NANOSECONDS: AtomicU64 = AtomicU64::new(0);
static MODULE_BYTES: AtomicU64 = AtomicU64::new(0);
static BYTES_NOT_SENT: AtomicU64 = AtomicU64::new(0);
static WAITS: AtomicU64 = AtomicU64::new(0);
/// What the program waited for, and how often.
static WAITED_FOR: Mutex<rank::WaitStatistics, BTreeMap<&str, Waited>> = Mutex::new(BTreeMap::new());

/// How often something was waited for.
#[derive(Clone, Copy, Default)]
struct Waited {
    before_first_launch: u64,
    all: u64,
}

const NAMES: [&str; 3] = ["local", "posted", "called"];

/// How a call was carried out; the later ones outweigh the earlier ones.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Carried {
    /// Without the server.
    Local,
    /// By commands that nobody waited for.
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
    CALLS[index].0[carried as usize].fetch_add(1, Relaxed);
}

/// A wait for the server; it ends when this is dropped.
pub struct Wait(Instant);

/// Counts a wait for the server's answer to `what`, a round trip at least, that begins now: while the server is at it, this
/// takes no time.
pub fn begin_wait(what: &'static str) -> Wait {
    WAITS.fetch_add(1, Relaxed);
    let mut waited_for = WAITED_FOR.lock();
    let waited = waited_for.entry(what).or_default();
    waited.all += 1;
    waited.before_first_launch += u64::from(WAITS_BEFORE_LAUNCH.load(Relaxed) == NONE_YET);
    drop(waited_for);
    Wait(Instant::now())
}

impl Drop for Wait {
    fn drop(&mut self) {
        let time = u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX);
        WAIT_NANOSECONDS.fetch_add(time, Relaxed);
    }
}

/// Notes a launch, of which the first is of interest: what came before it is the program's start.
#[inline]
pub fn note_launch() {
    if WAITS_BEFORE_LAUNCH.load(Relaxed) == NONE_YET {
        WAITS_BEFORE_LAUNCH.store(WAITS.load(Relaxed), Relaxed);
    }
}

/// Counts bytes of an image sent.
pub fn count_module(bytes: usize) {
    MODULE_BYTES.fetch_add(bytes as u64, Relaxed);
}

/// Counts bytes copied to a device that the server had already.
pub fn count_not_sent(bytes: usize) {
    BYTES_NOT_SENT.fetch_add(bytes as u64, Relaxed);
}

/// The waits by what was waited for, as a JSON object.
fn waits(count: impl Fn(&Waited) -> u64) -> String {
    let waited_for = WAITED_FOR.lock();
    let counted =
        waited_for.iter().map(|(what, waited)| (what, count(waited))).filter(|(_, count)| *count > 0);
    let fields: Vec<_> = counted.map(|(what, count)| format!("{}: {count}", quoted(what))).collect();
    format!("{{{}}}", fields.join(", "))
}

/// How calls and copies got to a server.
pub struct Way<'a> {
    /// What carried them.
    pub via: Via,
    /// Why nothing else did.
    pub reasons: &'a [Reason],
    /// What the link has carried.
    pub link: Counters,
    /// The round trips that opening the session took.
    pub opening: &'a [&'static str],
    /// What executed the calls, for people.
    pub backend: &'a str,
    /// Where the plans for copies came from.
    pub pipeline: &'a str,
    /// How network cards reach the devices' memory, or why not; nothing where the server has not said.
    pub gpudirect: String,
    /// When the session was opened.
    pub started: Instant,
}

impl Way<'_> {
    /// The fields that say it, for a JSON object.
    fn fields(&self) -> String {
        let not_via: Vec<_> = self
            .reasons
            .iter()
            .map(|reason| format!("\"{}\": {}", reason.via, quoted(&reason.text)))
            .collect();
        format!(
            "\"backend\": {}, \"via\": \"{}\", \"not_via\": {{{}}}, \"pipeline\": {}, \"gpudirect\": {}",
            quoted(self.backend),
            self.via,
            not_via.join(", "),
            quoted(self.pipeline),
            quoted(&self.gpudirect)
        )
    }
}

/// The report. `device` is for people; of several servers the first is the one whose fields stand alone. `between` is what was found
/// out about the ways between them.
pub fn report(device: &str, servers: &[Way<'_>], between: &[String]) -> String {
    let Some(first) = servers.first() else { return "{}\n".to_owned() };
    let mut totals = [0_u64; 3];
    let mut calls = String::new();
    for (function, counts) in FUNCTIONS.iter().zip(CALLS.iter()) {
        let counts = [0, 1, 2].map(|kind: usize| counts.0[kind].load(Relaxed));
        if counts.iter().all(|count| *count == 0) {
            continue;
        }
        let separator = if calls.is_empty() { "" } else { "," };
        let _ = write!(calls, "{separator}\n    {}: {{", quoted(function.symbol));
        let mut first = true;
        for ((name, count), total) in NAMES.iter().zip(counts).zip(&mut totals) {
            *total += count;
            if count > 0 {
                let _ = write!(calls, "{}\"{name}\": {count}", if first { "" } else { ", " });
                first = false;
            }
        }
        calls.push('}');
    }
    let [local, posted, called] = totals;
    let wait_seconds = WAIT_NANOSECONDS.load(Relaxed) as f64 / 1e9;
    format!(
        "{{\n  \"device\": {},\n  {},\n  \"servers\": [{}],\n  \"local\": {local},\n  \"posted\": {posted},\n  \
         \"called\": {called},\n  \"waits\": {},\n  \"waits_before_first_launch\": {},\n  \"round_trips\": {{\n    \"opening\": [{}],\n    \
         \"before_first_launch\": {},\n    \"all\": {}\n  }},\n  \"wait_seconds\": {wait_seconds:.6},\n  \
         \"bytes_to_device\": {},\n  \"bytes_not_sent\": {},\n  \"bytes_from_device\": {},\n  \"module_bytes\": {},\n  \"copies\": {},\n  \"between_servers\": [{}],\n  \
         \"seconds\": {:.6},\n  \"calls\": {{{calls}\n  }}\n}}\n",
        quoted(device),
        first.fields(),
        servers.iter().map(|way| format!("{{{}}}", way.fields())).collect::<Vec<_>>().join(", "),
        WAITS.load(Relaxed),
        WAITS_BEFORE_LAUNCH.load(Relaxed).min(WAITS.load(Relaxed)),
        first.opening.iter().map(|step| quoted(step)).collect::<Vec<_>>().join(", "),
        waits(|waited| waited.before_first_launch),
        waits(|waited| waited.all),
        copies::bytes(Direction::ToDevice),
        BYTES_NOT_SENT.load(Relaxed),
        copies::bytes(Direction::FromDevice),
        MODULE_BYTES.load(Relaxed),
        copies::report(first.via, &first.link),
        between.iter().map(|sentence| quoted(sentence)).collect::<Vec<_>>().join(", "),
        first.started.elapsed().as_secs_f64(),
    )
}

/// A JSON string.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => out.extend(['\\', letter]),
            control if control < ' ' => {
                let _ = write!(out, "\\u{:04x}", u32::from(control));
            }
            other => out.push(other),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_counts_by_how_calls_were_carried_out() {
        let index = FUNCTIONS.iter().position(|function| function.symbol == "cuProfilerStop").unwrap();
        count_call(index, Carried::Posted);
        count_call(index, Carried::Called);
        drop(begin_wait("cuCtxSynchronize"));
        note_launch();
        drop(begin_wait("cuCtxSynchronize"));
        let reasons = [Reason { via: Via::Shm, text: "far".into() }];
        let link = Counters { direct_bytes_sent: 7, ..Counters::default() };
        let (opening, started) = (&["connection", "hello"], Instant::now());
        let (via, backend) = (Via::Tcp, "none\n");
        let way = Way {
            via,
            reasons: &reasons,
            link,
            opening,
            backend,
            pipeline: "",
            gpudirect: String::new(),
            started,
        };
        let text = report("a \"device\"", &[way], &["device 1 \"far\"".to_owned()]);
        for part in [
            r#""opening": ["connection", "hello"]"#,
            r#""before_first_launch": {"cuCtxSynchronize": 1}"#,
            r#""all": {"cuCtxSynchronize": 2}"#,
            r#""via": "tcp""#,
            r#""to_device": {"gpudirect": {"bytes": 7}, "registered": {"bytes": 0}, "zero_copy": {"copies": 0, "bytes": 0}"#,
            r#""not_via": {"shm": "far"}"#,
            r#""between_servers": ["device 1 \"far\""]"#,
        ] {
            assert!(text.contains(part), "no {part} in {text}");
        }
        assert!(text.contains("\"cuProfilerStop\": {\"posted\": 1, \"called\": 1}"), "{text}");
        assert!(text.contains(r#""device": "a \"device\"""#) && text.contains(r#""none\u000a""#), "{text}");
    }
}
