//! Starting processes, watching what they print, and ending them when they take too long.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, kill_process_group, pidfd_open};
use std::fmt;
use std::io::{Read, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What a process did, once it has ended.
#[derive(Debug)]
pub struct Outcome {
    /// How it ended.
    pub status: ExitStatus,
    /// What it wrote to its standard output.
    pub stdout: String,
    /// What it wrote to its standard error.
    pub stderr: String,
    /// How long it ran.
    pub took: Duration,
    /// The process was killed because it ran longer than it may.
    pub timed_out: bool,
}

impl Outcome {
    /// The exit status, or none if a signal ended the process.
    pub fn code(&self) -> Option<i32> {
        self.status.code().filter(|_| !self.timed_out)
    }

    /// The signal that ended the process, if it was not killed for being slow.
    pub fn signal(&self) -> Option<i32> {
        self.status.signal().filter(|_| !self.timed_out)
    }

    /// Asserts that the process ended by itself with exit status 0.
    ///
    /// # Panics
    /// When it did not.
    #[track_caller]
    pub fn must_succeed(self) -> Self {
        assert_eq!(self.code(), Some(0), "{self}");
        self
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.took.as_secs_f64();
        if self.timed_out {
            write!(f, "killed, since it was still running after {seconds:.1} s")?;
        } else {
            write!(f, "{} after {seconds:.1} s", self.status)?;
        }
        write!(
            f,
            "\n-- standard output\n{}\n-- standard error\n{}",
            self.stdout.trim_end(),
            self.stderr.trim_end()
        )
    }
}

/// A process of its own process group, which ends with this value.
#[derive(Debug)]
pub struct Running {
    child: Child,
    exit: OwnedFd,
    started: Instant,
    stdout: Captured,
    stderr: Captured,
    reaped: bool,
}

impl Running {
    /// Starts a process with nothing on its standard input; everything it prints is kept.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn start(command: &mut Command) -> Self {
        Self::start_from(command, Stdio::null())
    }

    /// The same; [`say`](Self::say) writes to its standard input.
    pub fn start_to_talk(command: &mut Command) -> Self {
        Self::start_from(command, Stdio::piped())
    }

    fn start_from(command: &mut Command, input: Stdio) -> Self {
        command.stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let started = Instant::now();
        let mut child =
            command.spawn().unwrap_or_else(|error| panic!("{command:?} cannot be started: {error}"));
        let stdout = Captured::read(child.stdout.take().expect("the standard output is a pipe"));
        let stderr = Captured::read(child.stderr.take().expect("the standard error is a pipe"));
        let exit = pidfd_open(pid_of(&child), PidfdFlags::empty()).expect("a child has not been waited for");
        Self { child, exit, started, stdout, stderr, reaped: false }
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it has written to its standard output up to now.
    pub fn stdout(&self) -> String {
        self.stdout.text()
    }

    /// What it has written to its standard error up to now.
    pub fn stderr(&self) -> String {
        self.stderr.text()
    }

    /// Writes a line to its standard input. One that has ended does not read it.
    pub fn say(&mut self, line: &str) {
        if let Some(input) = &mut self.child.stdin {
            // Its end is for whoever waits for the answer to find out.
            let _ = writeln!(input, "{line}");
        }
    }

    /// Ends its standard input.
    pub fn end_input(&mut self) {
        self.child.stdin = None;
    }

    /// Waits until `found` finds what it looks for in the standard output or the standard error, which are
    /// looked at separately; none when both have ended without it, or after `limit`.
    pub fn find<T>(&self, limit: Duration, found: impl Fn(&str) -> Option<T>) -> Option<T> {
        let deadline = Instant::now() + limit;
        loop {
            // Asked before the texts are looked at, so that nothing printed in between is missed.
            let ended = self.has_exited() && self.stdout.has_ended() && self.stderr.has_ended();
            if let Some(value) = found(&self.stdout.text()).or_else(|| found(&self.stderr.text())) {
                return Some(value);
            }
            if ended || Instant::now() >= deadline {
                return None;
            }
            // The other stream, or the exit, is looked at again soon even when this one is silent.
            self.stdout.wait_for_more(Duration::from_millis(10));
        }
    }

    /// Waits until the process has printed `text`.
    ///
    /// # Panics
    /// When it ends without that, or takes longer than `limit`.
    #[track_caller]
    pub fn must_print(&self, text: &str, limit: Duration) {
        if self.find(limit, |printed| printed.contains(text).then_some(())).is_none() {
            panic!(
                "a process did not print {text:?}\n-- standard output\n{}\n-- standard error\n{}",
                self.stdout(),
                self.stderr()
            );
        }
    }

    /// Whether the process has ended.
    pub fn has_exited(&self) -> bool {
        self.exits_within(Duration::ZERO)
    }

    fn exits_within(&self, limit: Duration) -> bool {
        let timeout = Timespec::try_from(limit).expect("limits are short");
        let mut descriptors = [PollFd::new(&self.exit, PollFlags::IN)];
        let deadline = Instant::now() + limit;
        loop {
            match poll(&mut descriptors, Some(&timeout)) {
                Ok(count) => return count > 0,
                Err(rustix::io::Errno::INTR) if Instant::now() < deadline => {}
                Err(error) => panic!("the end of a process cannot be waited for: {error}"),
            }
        }
    }

    /// Sends a signal to the process alone, not to its group.
    pub fn signal(&self, signal: Signal) {
        // It may have ended already, which is for `finish` to find out.
        let _ = kill_process(pid_of(&self.child), signal);
    }

    /// Waits until the process ends, at most `limit` from now; then it is killed. What is left of its process
    /// group is killed either way.
    pub fn finish(&mut self, limit: Duration) -> Outcome {
        let timed_out = !self.exits_within(limit);
        let took = self.started.elapsed();
        let status = self.end();
        Outcome { status, stdout: self.stdout.finish(), stderr: self.stderr.finish(), took, timed_out }
    }

    fn end(&mut self) -> ExitStatus {
        // Before the process is reaped, so that no other group can have its number.
        let _ = kill_process_group(pid_of(&self.child), Signal::KILL);
        self.reaped = true;
        self.child.wait().expect("the process is a child of this one")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.reaped {
            self.end();
        }
    }
}

fn pid_of(child: &Child) -> Pid {
    Pid::from_child(child)
}

/// Runs a process to its end, at most `limit` long.
pub fn run(command: &mut Command, limit: Duration) -> Outcome {
    Running::start(command).finish(limit)
}

/// Waits until `condition` holds, looking every 10 ms.
///
/// # Panics
/// When it does not hold within `limit`; `what` says what was waited for.
#[track_caller]
pub fn eventually(what: &str, limit: Duration, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + limit;
    while !condition() {
        assert!(Instant::now() < deadline, "not within {:.0} s: {what}", limit.as_secs_f64());
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// What came out of a pipe up to now, gathered by a thread.
#[derive(Debug)]
struct Captured {
    shared: Arc<(Mutex<Text>, Condvar)>,
    reader: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Text {
    bytes: Vec<u8>,
    ended: bool,
}

impl Captured {
    fn read(mut pipe: impl Read + Send + 'static) -> Self {
        let shared = Arc::new((Mutex::new(Text::default()), Condvar::new()));
        let theirs = Arc::clone(&shared);
        let reader = std::thread::spawn(move || {
            let mut piece = [0; 4096];
            loop {
                let count = pipe.read(&mut piece).unwrap_or(0);
                let mut text = theirs.0.lock().expect("no reader panics");
                text.bytes.extend_from_slice(&piece[..count]);
                text.ended = count == 0;
                theirs.1.notify_all();
                if text.ended {
                    break;
                }
            }
        });
        Self { shared, reader: Some(reader) }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.shared.0.lock().expect("no reader panics").bytes).into_owned()
    }

    fn has_ended(&self) -> bool {
        self.shared.0.lock().expect("no reader panics").ended
    }

    fn wait_for_more(&self, limit: Duration) {
        let text = self.shared.0.lock().expect("no reader panics");
        drop(self.shared.1.wait_timeout(text, limit).expect("no reader panics"));
    }

    /// All of it; returns once every process that had the pipe has ended.
    fn finish(&mut self) -> String {
        if let Some(reader) = self.reader.take() {
            reader.join().expect("no reader panics");
        }
        self.text()
    }
}
