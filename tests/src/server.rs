//! Starting servers and looking at their workers.

use crate::built;
use crate::process::{Outcome, Running, eventually};
use causeway_access::Target;
use causeway_access::keys::file;
use rustix::process::Signal;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// How long a server may take to start or to end. The machine may be busy with other tests.
const TIMEOUT: Duration = Duration::from_secs(60);

/// How long a worker may outlive its client.
pub const WORKER_TIMEOUT: Duration = Duration::from_secs(15);

/// A running `causeway serve`, which is killed with its workers when this value goes.
#[derive(Debug)]
pub struct Server {
    process: Running,
    target: Target,
}

impl Server {
    /// Starts a server with the software GPU on a free loopback port, which asks for no key and encrypts
    /// nothing.
    pub fn start() -> Self {
        Self::start_with(&OPEN)
    }

    /// Starts a server with the software GPU on a free loopback port, whose key is in this file.
    pub fn start_with_key(file: &Path) -> Self {
        let file = file.to_str().expect("temporary folders have ordinary names");
        Self::start_with(&["--listen", "127.0.0.1:0", "--key-file", file])
    }

    /// Starts a server with the software GPU and these arguments of `causeway serve`.
    ///
    /// # Panics
    /// When it does not come up.
    #[track_caller]
    pub fn start_with(arguments: &[&str]) -> Self {
        Self::start_command(Self::command(arguments))
    }

    /// The command line of a server with the software GPU, whose files go to no folder of the user.
    pub fn command(arguments: &[&str]) -> Command {
        let mut command = Command::new(built::causeway());
        command.args(["serve", "--gpu", "cpu"]).args(arguments);
        if !arguments.contains(&"--cache-dir") {
            command.arg("--no-cache");
        }
        forget_environment(&mut command);
        command
    }

    /// Starts a server by its command line.
    ///
    /// # Panics
    /// When it does not come up.
    #[track_caller]
    pub fn start_command(mut command: Command) -> Self {
        let mut process = Running::start(&mut command);
        match process.find(TIMEOUT, connect_string) {
            Some(target) => {
                // It prints no key where a log may keep it.
                let key =
                    key_file(&command).map(|path| file::load(&path).expect("the server has made its key"));
                Self { process, target: Target { key, ..target } }
            }
            None => panic!("the server did not come up: {}", process.finish(Duration::ZERO)),
        }
    }

    /// Where the server listens, with its key if it has one.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// The connect string with which a client is started.
    pub fn connect_string(&self) -> String {
        self.target.connect_string().to_string()
    }

    /// What the server has logged up to now.
    pub fn log(&self) -> String {
        self.process.stderr()
    }

    /// Waits until the server's log says `text`: lines come behind what the server's clients see.
    ///
    /// # Panics
    /// When it does not say so in time.
    #[track_caller]
    pub fn must_log(&self, text: &str) {
        eventually(&format!("the server's log says {text:?}"), TIMEOUT, || self.log().contains(text));
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// The process ids of the workers.
    pub fn workers(&self) -> Vec<u32> {
        children_of(self.process.pid())
    }

    /// Waits until the server has exactly `count` workers.
    ///
    /// # Panics
    /// When it does not get there in time.
    #[track_caller]
    pub fn must_have_workers(&self, count: usize) {
        let what = format!("the server has {count} workers");
        eventually(&what, WORKER_TIMEOUT, || self.workers().len() == count);
    }

    /// Asserts that the server is well: it still runs, and says nothing of a panic or of a worker that
    /// crashed.
    ///
    /// # Panics
    /// When it is not.
    #[track_caller]
    pub fn must_be_well(&self) {
        let log = self.log();
        assert!(!self.process.has_exited(), "the server has ended; its log:\n{log}");
        for word in ["panicked", "was ended by signal", "was killed, since"] {
            assert!(!log.contains(word), "the server's log says {word}:\n{log}");
        }
    }

    /// Sends a signal that ends servers, and waits for the end.
    pub fn end_by(mut self, signal: Signal) -> Outcome {
        self.process.signal(signal);
        self.process.finish(TIMEOUT)
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    /// Whether the server has ended.
    pub fn has_ended(&self) -> bool {
        self.process.has_exited()
    }

    /// Kills the server alone, without giving it a chance to do anything.
    pub fn kill(&self) {
        self.process.signal(Signal::KILL);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("-- log of the server at {}\n{}", self.target, self.log());
        }
    }
}

/// The arguments of a server on a free loopback port that lets everybody in.
pub const OPEN: [&str; 3] = ["--listen", "127.0.0.1:0", "--insecure-no-key"];

/// The file that `--key-file` names.
fn key_file(command: &Command) -> Option<PathBuf> {
    let mut arguments = command.get_args().skip_while(|argument| *argument != "--key-file");
    arguments.nth(1).map(PathBuf::from)
}

/// The first connect string in a text.
fn connect_string(text: &str) -> Option<Target> {
    // A line that is not complete may end in the middle of the port.
    let complete = &text[..text.rfind('\n')?];
    let is_end = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '`' | ',' | '\x1b');
    let is_address = |word: &&str| word.starts_with("causeway://") || word.starts_with("unix:");
    complete.split(is_end).filter(is_address).find_map(|word| word.parse().ok())
}

/// Takes every setting of the tests' own environment and user away from a command.
pub fn forget_environment(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        if let Some(text) = name.to_str()
            && (text.starts_with("CAUSEWAY_") || text.starts_with("CUDA_"))
        {
            command.env_remove(name);
        }
    }
    command.env("CAUSEWAY_CONFIG", "");
}

/// Has a server be one that no terminal ends: SIGHUP has it replaced by a new one.
pub fn leave_terminal(command: &mut Command) {
    // SAFETY: the calls between fork and exec are async-signal-safe, and concern the new process only.
    unsafe {
        command.pre_exec(|| {
            let terminal = libc::open(c"/dev/tty".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
            if terminal >= 0 {
                libc::ioctl(terminal, libc::TIOCNOTTY);
            }
            Ok(())
        });
    }
}

/// The processes whose parent is `parent` and that have not ended.
pub fn children_of(parent: u32) -> Vec<u32> {
    let Ok(processes) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| parent_and_state(*pid).is_some_and(|(found, state)| found == parent && state != 'Z'))
        .collect()
}

/// Whether a process runs.
pub fn is_alive(pid: u32) -> bool {
    parent_and_state(pid).is_some_and(|(_, state)| state != 'Z')
}

fn parent_and_state(pid: u32) -> Option<(u32, char)> {
    let text = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat")).ok()?;
    // The name, in parentheses, may contain anything.
    let (_, rest) = text.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((fields.next()?.parse().ok()?, state))
}
