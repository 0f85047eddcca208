//! Target: a measuring process that is started, asked for samples and ended.

use std::cell::RefCell;
use std::io::{self, BufReader};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::rc::Rc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use thiserror::Error;

use crate::protocol::{self, Introduction, MessageError, Reply, Request};

/// How long a target may take for one answer: the largest copy, made and checked by a software GPU on a busy
/// machine.
const WORKER_TIMEOUT: Duration = Duration::from_secs(120);

/// How long a process gets to end its session.
const END: Duration = Duration::from_secs(5);

/// Where a target's GPU is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "place")]
pub enum TargetLocation {
    /// In this machine, by NVIDIA's driver.
    Native,
    /// At a server.
    Server {
        /// Its address, without the key.
        address: String,
        /// The transport that was asked for; none where it was left to choose.
        via: Option<String>,
        /// The fixed plan of its copies, in the language of `CAUSEWAY_PIPELINE`; none where it is left to
        /// Causeway.
        pipeline: Option<String>,
    },
}

/// What is measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Target {
    /// What tables and plots call it.
    pub name: String,
    /// Where it is.
    #[serde(flatten)]
    pub location: TargetLocation,
}

/// Why a target is no longer measured.
#[derive(Debug, Error)]
pub enum TargetError {
    /// No process can be started.
    #[error("cannot start the measuring process: {0}")]
    NotStarted(io::Error),
    /// It has ended.
    #[error("the measuring process ended unexpectedly ({0})")]
    Ended(String),
    /// It does not answer.
    #[error("the measuring process has not responded for {} s", WORKER_TIMEOUT.as_secs())]
    Silent,
    /// It talks nonsense.
    #[error(transparent)]
    Message(#[from] MessageError),
    /// It cannot measure.
    #[error("{0}")]
    Unable(String),
}

/// Who answers requests.
pub trait Measurer {
    /// Carries out one request.
    fn ask(&mut self, request: &Request) -> Result<Reply, TargetError>;
}

/// A measuring process; it ends with this value.
#[derive(Debug)]
pub struct Process {
    child: Child,
    /// Closed, it tells the process to end.
    requests: Option<ChildStdin>,
    replies: Receiver<Result<Reply, MessageError>>,
    introduction: Introduction,
}

impl Process {
    /// Starts the process and waits until it has a GPU.
    pub fn start(mut command: Command) -> Result<Self, TargetError> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(TargetError::NotStarted)?;
        let requests = child.stdin.take();
        let mut from = BufReader::new(child.stdout.take().expect("its standard output is a pipe"));
        let (sender, replies) = channel();
        // It ends when the process does, or says something that makes no sense.
        thread::spawn(move || {
            while let Some(reply) = protocol::read_reply(&mut from).transpose() {
                let damaged = reply.is_err();
                if sender.send(reply).is_err() || damaged {
                    return;
                }
            }
        });
        let introduction =
            Introduction { library: String::new(), device: String::new(), devices: 0, driver_version: 0 };
        let mut process = Self { child, requests, replies, introduction };
        match process.reply()? {
            Reply::Ready(introduction) => process.introduction = introduction,
            Reply::Unable { reason } => return Err(TargetError::Unable(reason)),
            other => return Err(TargetError::Unable(format!("its first line was {other:?}"))),
        }
        Ok(process)
    }

    /// What it measures with.
    pub fn introduction(&self) -> &Introduction {
        &self.introduction
    }

    /// Tells it to end, and waits until it has done so.
    pub fn end(&mut self) {
        drop(self.requests.take());
        let deadline = Instant::now() + END;
        while self.exit_status().is_none() {
            if Instant::now() > deadline {
                // It has had its time; whatever becomes of these calls, nothing more can be done.
                let _ = self.child.kill();
                let _ = self.child.wait();
                return;
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

    fn exit_status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    fn reply(&mut self) -> Result<Reply, TargetError> {
        match self.replies.recv_timeout(WORKER_TIMEOUT) {
            Ok(reply) => Ok(reply?),
            Err(RecvTimeoutError::Timeout) => Err(TargetError::Silent),
            Err(RecvTimeoutError::Disconnected) => {
                self.end();
                let status =
                    self.exit_status().map_or_else(|| "killed".to_owned(), |status| status.to_string());
                Err(TargetError::Ended(status))
            }
        }
    }
}

impl Measurer for Process {
    fn ask(&mut self, request: &Request) -> Result<Reply, TargetError> {
        if let Some(requests) = &mut self.requests {
            // That it has ended is noticed, and told better, when its reply does not come.
            let _ = protocol::write(requests, request);
        }
        self.reply()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

/// A target that is measured by a process together with others, in one session, from which it differs in its
/// plans alone.
#[derive(Debug)]
pub struct Sharing {
    shared: Rc<RefCell<SharedProcess>>,
    number: usize,
    plans: Option<String>,
}

/// A process, and the number of the target whose plans it uses.
#[derive(Debug)]
struct SharedProcess {
    process: Process,
    chosen: usize,
}

impl Sharing {
    /// Lets a process measure as many targets as there are plans. It must use the first ones already.
    pub fn between(process: Process, plans: Vec<Option<String>>) -> Vec<Self> {
        let shared = Rc::new(RefCell::new(SharedProcess { process, chosen: 0 }));
        let target = |(number, plans)| Self { shared: Rc::clone(&shared), number, plans };
        plans.into_iter().enumerate().map(target).collect()
    }
}

impl Measurer for Sharing {
    fn ask(&mut self, request: &Request) -> Result<Reply, TargetError> {
        let mut shared = self.shared.borrow_mut();
        if shared.chosen != self.number {
            match shared.process.ask(&Request::UsePlans { plans: self.plans.clone() })? {
                Reply::Prepared => shared.chosen = self.number,
                Reply::Unable { reason } => return Err(TargetError::Unable(reason)),
                other => return Err(TargetError::Unable(format!("it answered {other:?}"))),
            }
        }
        shared.process.ask(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    const READY: &str = r#"echo '{"ready":{"library":"l","device":"d","devices":1,"driver_version":13000}}'"#;

    #[test]
    fn a_process_is_asked_and_answers() {
        let mut process =
            Process::start(shell(&format!("{READY}; read line; echo '\"prepared\"'; cat"))).unwrap();
        assert_eq!(process.introduction().driver_version, 13000);
        let reply = process.ask(&Request::Measure { untimed: 0, timed: 1 }).unwrap();
        assert_eq!(reply, Reply::Prepared);
    }

    #[test]
    fn plans_are_chosen_when_another_target_has_its_turn() {
        let log = tempfile::NamedTempFile::new().unwrap();
        let answer =
            format!("while read line; do echo $line >>{}; echo '\"prepared\"'; done", log.path().display());
        let process = Process::start(shell(&format!("{READY}; {answer}"))).unwrap();
        let mut targets = Sharing::between(process, vec![None, Some("1x1M".into())]);
        let request = Request::Measure { untimed: 0, timed: 1 };
        for turn in [0, 1, 1, 0] {
            assert_eq!(targets[turn].ask(&request).unwrap(), Reply::Prepared);
        }
        drop(targets);
        let said = std::fs::read_to_string(log.path()).unwrap();
        let said: Vec<Request> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let plans = |plans: Option<&str>| Request::UsePlans { plans: plans.map(str::to_owned) };
        let measure = || request.clone();
        assert_eq!(said, [measure(), plans(Some("1x1M")), measure(), measure(), plans(None), measure()]);
    }

    #[test]
    fn trouble_of_a_process_is_told() {
        let missing = Process::start(Command::new("/no/such/program")).unwrap_err();
        assert!(matches!(missing, TargetError::NotStarted(_)), "{missing}");
        let unable = Process::start(shell(r#"echo '{"unable":{"reason":"no GPU"}}'"#)).unwrap_err();
        assert_eq!(unable.to_string(), "no GPU");
        assert!(matches!(Process::start(shell("echo what")).unwrap_err(), TargetError::Message(_)));
        let ended = Process::start(shell("exit 3")).unwrap_err();
        assert!(ended.to_string().contains("exit status: 3"), "{ended}");
        // It ends in the middle.
        let mut process = Process::start(shell(&format!("{READY}; read line; kill -9 $$"))).unwrap();
        let error = process.ask(&Request::Measure { untimed: 0, timed: 1 }).unwrap_err();
        assert!(error.to_string().contains("signal: 9"), "{error}");
        assert!(process.ask(&Request::Measure { untimed: 0, timed: 1 }).is_err());
    }
}
