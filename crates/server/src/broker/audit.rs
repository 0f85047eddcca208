//! The audit log: who has used the server for what, and who was refused, a line of JSON for each.
//!
//! It is for accounting (`causeway usage`) and for finding out afterwards who was connected. The broker alone
//! writes it, into a file that only its user can read, and opens that for each line, so that programs which rotate logs
//! need tell it nothing. Names of programs, hosts, users and jobs are what clients say of themselves; the rest is what
//! the server knows.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use causeway_access::ClientName;
use causeway_access::keys::groups::GroupName;
use causeway_wire::handshake::{ClientHello, SessionId};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::refusal::Refusal;
use super::totals::{Outcome, via_label};
use crate::activity::Counts;
use crate::admission::{Origin, Source};
use crate::locks::{Mutex, rank};

/// Lines about refused attempts in a period, of one source and of all: who needs no key to be refused must not fill the
/// disk. A line has some 250 bytes, so these are 90 MB a day at most.
const MAX_REFUSALS_PER_SOURCE: u32 = 30;
const MAX_REFUSALS: u32 = 240;
const REFUSAL_PERIOD: Duration = Duration::from_secs(60);

/// Where the audit log is written, if it is.
#[derive(Debug)]
pub struct AuditLog {
    path: Option<PathBuf>,
    refusals: Mutex<rank::Leaf, RefusalBudget>,
    /// Whether the last line could not be written, which the log says once.
    has_failed: AtomicBool,
}

/// How a session has ended.
#[derive(Debug, Clone, Copy)]
pub struct SessionEnd {
    /// How long it was open.
    pub open: Duration,
    /// In which way it has ended.
    pub outcome: Outcome,
    /// Why the broker has ended it, if it has.
    pub reason: Option<&'static str>,
}

/// Lines about refused attempts that may still be written, and how many were left out.
#[derive(Debug)]
struct RefusalBudget {
    since: Instant,
    written: u32,
    by_source: HashMap<Source, u32>,
    left_out: u64,
}

impl RefusalBudget {
    fn new(now: Instant) -> Self {
        Self { since: now, written: 0, by_source: HashMap::new(), left_out: 0 }
    }

    /// How many lines were left out in a period that is over; nothing if none were, or it is not over.
    fn end_period(&mut self, now: Instant) -> Option<u64> {
        if now.duration_since(self.since) < REFUSAL_PERIOD {
            return None;
        }
        let left_out = core::mem::replace(self, Self::new(now)).left_out;
        (left_out > 0).then_some(left_out)
    }

    /// Whether a line about a refused attempt of this source may be written.
    fn admit(&mut self, source: Source) -> bool {
        let of_source = self.by_source.get(&source).copied().unwrap_or(0);
        let is_admitted = self.written < MAX_REFUSALS && of_source < MAX_REFUSALS_PER_SOURCE;
        if is_admitted {
            self.written += 1;
            self.by_source.insert(source, of_source + 1);
        } else {
            self.left_out += 1;
        }
        is_admitted
    }
}

impl AuditLog {
    /// A log in this file, which is made if it is not there.
    ///
    /// # Errors
    /// When it cannot be made or written to.
    pub fn new(path: Option<PathBuf>) -> io::Result<Self> {
        let refusals = Mutex::new(RefusalBudget::new(Instant::now()));
        let log = Self { path, refusals, has_failed: AtomicBool::new(false) };
        log.append(b"")?;
        Ok(log)
    }

    /// A session starts, with the state of its `parent` if it is a fork of one.
    pub fn session_begins(
        &self,
        session: SessionId,
        (peer, group): (Origin, Option<GroupName>),
        hello: &ClientHello,
        parent: Option<SessionId>,
    ) {
        let parent = parent.map(|parent| parent.to_string());
        let group = group.map(|group| group.to_string());
        let fields = json!({ "session": session.to_string(), "group": group, "parent": parent });
        self.write("session-begins", peer, Some(hello), fields);
    }

    /// A session has ended, with what it has done.
    pub fn session_ends(
        &self,
        session: SessionId,
        (peer, group): (Origin, Option<GroupName>),
        hello: &ClientHello,
        end: SessionEnd,
        done: &Counts,
    ) {
        let fields = json!({
            "session": session.to_string(),
            "group": group.map(|group| group.to_string()),
            "seconds": end.open.as_secs_f64(),
            "outcome": end.outcome.label(),
            "reason": end.reason,
            "via": via_label(done),
            "commands": done.posted.saturating_add(done.called),
            "failed": done.failed,
            "launches": done.launches,
            "bytes_to_device": done.bytes_to_device,
            "bytes_from_device": done.bytes_from_device,
            "seconds_waited_for_gpu": done.waits.sum as f64 / 1e9,
            "kernel_seconds": done.kernel_time.map(|time| time as f64 / 1e9),
            "peak_device_memory": done.peak_device_memory,
        });
        self.write("session-ends", peer, Some(hello), fields);
    }

    /// Device memory of an idle session has gone to the host, which took so long.
    pub fn memory_released(&self, session: SessionId, peer: Origin, bytes: u64, time: Duration) {
        let seconds = time.as_secs_f64();
        let fields = json!({ "session": session.to_string(), "bytes": bytes, "seconds": seconds });
        self.write("memory-released", peer, None, fields);
    }

    /// It has come back after it was there for `away`.
    pub fn memory_returned(
        &self,
        session: SessionId,
        peer: Origin,
        bytes: u64,
        time: Duration,
        away: Duration,
    ) {
        let (seconds, away) = (time.as_secs_f64(), away.as_secs_f64());
        let fields = json!({ "session": session.to_string(), "bytes": bytes, "seconds": seconds, "seconds_away": away });
        self.write("memory-returned", peer, None, fields);
    }

    /// An invited client has enrolled its key.
    pub fn key_enrolled(&self, peer: Origin, name: ClientName, hello: &ClientHello) {
        self.write("key-enrolled", peer, Some(hello), json!({ "client": name.as_str() }));
    }

    /// A client was refused.
    pub fn refused(&self, peer: Origin, hello: Option<&ClientHello>, why: Refusal, text: &str) {
        self.report_left_out();
        if self.refusals.lock().admit(Source::of(peer)) {
            self.write("refused", peer, hello, json!({ "why": why.label(), "text": text }));
        }
    }

    fn write(&self, event: &str, peer: Origin, hello: Option<&ClientHello>, fields: Value) {
        if self.path.is_none() {
            return;
        }
        self.report_left_out();
        let mut line = json!({ "time": Timestamp::now().to_string(), "event": event });
        let (user, address) = match peer {
            Origin::Network(address) | Origin::Client { address, .. } => (None, Some(address.machine())),
            Origin::Host { user, .. } => (Some(user), None),
        };
        let from = json!({
            "client": peer.client().map(|client| client.to_string()),
            "local_user": user,
            "address": address,
        });
        let details = hello.map(|hello| {
            json!({
                "program": &*hello.program,
                "process": hello.pid,
                "host": &*hello.host,
                "user": &*hello.user,
                "job": &*hello.job,
            })
        });
        for more in [Some(from), details, Some(fields)].into_iter().flatten() {
            if let (Value::Object(line), Value::Object(more)) = (&mut line, more) {
                line.extend(more);
            }
        }
        self.append_or_report(&line);
    }

    /// Writes how many lines about refused attempts were left out, once their period is over.
    fn report_left_out(&self) {
        let left_out = self.refusals.lock().end_period(Instant::now());
        if let Some(count) = left_out {
            let time = Timestamp::now().to_string();
            self.append_or_report(&json!({ "time": time, "event": "refused-more", "count": count }));
        }
    }

    fn append_or_report(&self, line: &Value) {
        let written = self.append(format!("{line}\n").as_bytes());
        let fails = written.is_err();
        if let Err(error) = written
            && !self.has_failed.load(Ordering::Relaxed)
        {
            tracing::error!("cannot write the audit log, which is incomplete from now on: {error}");
        }
        self.has_failed.store(fails, Ordering::Relaxed);
    }

    /// Appends a line by one write, so that lines of an old and a new broker do not mix. Where the line before has no
    /// end, because the disk was full or the machine failed, it gets one first.
    fn append(&self, line: &[u8]) -> io::Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        let opened = OpenOptions::new().append(true).create(true).mode(0o600).open(path);
        let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        let is_torn = !line.is_empty() && ends_within_a_line(path);
        let line = if is_torn { [b"\n", line].concat().into() } else { Cow::Borrowed(line) };
        opened.and_then(|mut file| file.write_all(&line)).map_err(named)
    }
}

/// Whether a file ends in a line without its end. What is no file, or may not be read, has none.
fn ends_within_a_line(path: &Path) -> bool {
    let last_byte = || {
        if !fs::metadata(path).ok()?.is_file() {
            return None;
        }
        let mut file = fs::File::open(path).ok()?;
        file.seek(SeekFrom::End(-1)).ok()?;
        let mut last = [0];
        file.read_exact(&mut last).ok().map(|()| last[0])
    };
    last_byte().is_some_and(|last| last != b'\n')
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_link::describe_process;
    use causeway_wire::handshake::KeyId;

    #[test]
    fn refusals_are_counted_beyond_what_is_written() {
        let start = Instant::now();
        let source = |last: u32| Source::of(Origin::Host { process: 1, user: last, group: 0 });
        let mut budget = RefusalBudget::new(start);
        let admitted =
            |budget: &mut RefusalBudget, user| (0..100).filter(|_| budget.admit(source(user))).count() as u32;
        assert_eq!(admitted(&mut budget, 1), MAX_REFUSALS_PER_SOURCE);
        // Others are not hidden by one.
        let others: u32 = (2..100).map(|user| admitted(&mut budget, user)).sum();
        assert_eq!(others, MAX_REFUSALS - MAX_REFUSALS_PER_SOURCE);
        assert_eq!(budget.end_period(start + REFUSAL_PERIOD / 2), None);
        assert_eq!(budget.end_period(start + REFUSAL_PERIOD), Some(99 * 100 - u64::from(MAX_REFUSALS)));
        assert_eq!(admitted(&mut budget, 1), MAX_REFUSALS_PER_SOURCE);
    }

    #[test]
    fn each_event_is_a_line_that_only_the_owner_reads() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        let log = AuditLog::new(Some(path.clone())).unwrap();
        let hello = ClientHello {
            program: "a\nb\u{1b}[2J\"".into(),
            job: "slurm 7".into(),
            ..describe_process(causeway_api::calls::COMMANDS, Vec::new())
        };
        let address = crate::admission::NetworkAddress::Ip("10.0.0.1:5".parse().unwrap());
        let ada = Origin::Client { name: "ada".parse().unwrap(), key: KeyId([0; 8]), address };
        let session = SessionId([7; 16]);
        log.session_begins(session, (ada, None), &hello, Some(SessionId([8; 16])));
        let kernel_time = Some(2_500_000_000);
        let done = Counts { launches: 3, peak_device_memory: 7, kernel_time, ..Counts::default() };
        let open = Duration::from_millis(1500);
        let end = SessionEnd { open, outcome: Outcome::Killed, reason: Some("it hangs") };
        log.session_ends(session, (ada, Some("staff".parse().unwrap())), &hello, end, &done);
        log.refused(Origin::Network(address), None, Refusal::NotProved, "it has a different key");
        let text = fs::read_to_string(&path).unwrap();
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert_eq!((&lines[0]["event"], &lines[0]["job"]), (&json!("session-begins"), &json!("slurm 7")));
        assert_eq!(lines[0]["parent"], json!("08080808"));
        assert_eq!((&lines[1]["client"], &lines[1]["launches"]), (&json!("ada"), &json!(3)));
        assert_eq!((&lines[1]["outcome"], &lines[1]["seconds"]), (&json!("killed"), &json!(1.5)));
        assert_eq!((&lines[1]["peak_device_memory"], &lines[1]["kernel_seconds"]), (&json!(7), &json!(2.5)));
        assert_eq!((&lines[2]["why"], &lines[2]["address"]), (&json!("not_proved"), &json!("10.0.0.1")));
        use std::os::unix::fs::PermissionsExt as _;
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        // Rotated away: the next line begins a new file.
        fs::rename(&path, folder.path().join("audit.jsonl.1")).unwrap();
        log.refused(ada, Some(&hello), Refusal::Full, "full");
        assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 1);
        // The disk was full within a line: the next one is whole all the same.
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"{\"time\":\"20").unwrap();
        log.refused(ada, Some(&hello), Refusal::Full, "full");
        log.refused(ada, Some(&hello), Refusal::Full, "full");
        let text = fs::read_to_string(&path).unwrap();
        let are_whole: Vec<_> =
            text.lines().map(|line| serde_json::from_str::<Value>(line).is_ok()).collect();
        assert_eq!(are_whole, [true, false, true, true], "{text}");
        assert!(AuditLog::new(Some(folder.path().join("none/audit"))).is_err());
    }
}
