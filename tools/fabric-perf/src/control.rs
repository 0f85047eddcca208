//! Control connection between the two ends, over TCP, beside the one that is measured.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use causeway_ibverbs::{Gid, RemoteEnd, RemoteMemory};
use causeway_wire::text::printable;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::case::{Case, Setting};
use crate::results;

/// The port of `fabric-perf --listen`, when none is named.
pub const DEFAULT_PORT: u16 = 7691;

/// What both ends must agree on.
pub const VERSION: u32 = 4;

/// Bytes of the longest line: a list of 64 queue pairs takes some 8 KiB.
const MAX_LINE_BYTES: u64 = 64 << 10;

/// How long an end may work before it answers.
const CONTROL_TIMEOUT: Duration = Duration::from_secs(120);

/// A queue pair as its peer needs to know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueuePairEnd {
    queue_pair: u32,
    packet: u32,
    lid: u16,
    gid: [u8; 16],
    /// Reads that it answers at a time.
    pub answered_reads: u8,
}

impl QueuePairEnd {
    /// An end that answers so many reads at a time.
    pub fn new(end: RemoteEnd, answered_reads: u8) -> Self {
        let RemoteEnd { queue_pair, packet, lid, gid } = end;
        Self { queue_pair, packet, lid, gid: gid.0, answered_reads }
    }
}

impl From<QueuePairEnd> for RemoteEnd {
    fn from(end: QueuePairEnd) -> Self {
        Self { queue_pair: end.queue_pair, packet: end.packet, lid: end.lid, gid: Gid(end.gid) }
    }
}

/// Memory of an end: where its peer reads, followed by where its peer writes, each as long as the longest
/// message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryEnd {
    address: u64,
    key: u32,
}

impl From<RemoteMemory> for MemoryEnd {
    fn from(memory: RemoteMemory) -> Self {
        Self { address: memory.address, key: memory.key }
    }
}

impl From<MemoryEnd> for RemoteMemory {
    fn from(memory: MemoryEnd) -> Self {
        Self { address: memory.address, key: memory.key }
    }
}

/// What the initiator asks of the responder.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Who are you?
    Hello {
        /// [`VERSION`].
        version: u32,
    },
    /// Make queue pairs with this setting and join them with these.
    Join {
        /// The setting.
        setting: Setting,
        /// This end's queue pairs.
        queue_pairs: Vec<QueuePairEnd>,
        /// This end's memory.
        memory: MemoryEnd,
    },
    /// Take your part in one repetition over the queue pairs that were joined as the so manieth.
    Work {
        /// Which of them, from 0.
        joined: usize,
        /// What is measured.
        case: Case,
        /// Whether this is one message whose bytes are compared, and no time is taken.
        is_check: bool,
    },
    /// This end's part in a repetition is done.
    Finished,
    /// Make a link over verbs with this setting with whoever connects next: two connections, the session's
    /// and the one on which verbs are set up.
    Link {
        /// The setting.
        setting: Setting,
        /// Whether rdma_cm is to join the queue pairs.
        by_rdma_cm: bool,
    },
    /// Start perftest's program for this case as a server.
    Perftest {
        /// What is measured.
        case: Case,
        /// With which setting.
        setting: Setting,
    },
}

/// What the other end answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// To [`Request::Hello`].
    Hello {
        /// [`VERSION`].
        version: u32,
        /// This end, for people.
        end: results::End,
        /// The largest path MTU of its port, in bytes.
        mtu: u32,
    },
    /// To [`Request::Join`]; messages may come from now on.
    Joined {
        /// This end's queue pairs.
        queue_pairs: Vec<QueuePairEnd>,
        /// This end's memory.
        memory: MemoryEnd,
    },
    /// To [`Request::Work`]: begin. For a check of a read, with the digest of what is there to be read.
    Ready {
        /// The digest.
        digest: Option<u64>,
    },
    /// To [`Request::Finished`]. For a check of a send or a write, with the digest of what has come.
    Done {
        /// The digest.
        digest: Option<u64>,
    },
    /// To [`Request::Perftest`]: the server listens at this port; to [`Request::Link`]: this end does.
    Listening {
        /// The port.
        port: u16,
    },
    /// It cannot be done, for this reason.
    Refused {
        /// A sentence.
        #[serde(deserialize_with = "results::printable")]
        reason: String,
    },
}

/// Why the other end is not understood.
#[derive(Debug, Error)]
pub enum ControlError {
    /// The connection failed.
    #[error("the connection to the other end of the benchmark failed: {0}")]
    Connection(#[from] io::Error),
    /// It was closed.
    #[error("the other end of the benchmark has ended")]
    Ended,
    /// It says something else than was asked.
    #[error(
        "unexpected message from the other end of the benchmark: {0}; is it another version of fabric-perf, or another program?"
    )]
    Unexpected(String),
    /// It cannot do what was asked.
    #[error("the other end of the benchmark: {0}")]
    Refused(String),
}

/// The connection: lines of JSON.
#[derive(Debug)]
pub struct Control {
    reader: BufReader<TcpStream>,
}

impl Control {
    /// Over a connection that has just been made.
    pub fn new(connection: TcpStream) -> io::Result<Self> {
        connection.set_nodelay(true)?;
        connection.set_read_timeout(Some(CONTROL_TIMEOUT))?;
        connection.set_write_timeout(Some(CONTROL_TIMEOUT))?;
        Ok(Self { reader: BufReader::new(connection) })
    }

    /// The TCP connection.
    pub fn connection(&self) -> &TcpStream {
        self.reader.get_ref()
    }

    /// Sends a request or an answer.
    pub fn send(&mut self, message: &impl Serialize) -> Result<(), ControlError> {
        let mut line = serde_json::to_string(message).map_err(io::Error::other)?;
        line.push('\n');
        Ok(self.reader.get_mut().write_all(line.as_bytes())?)
    }

    /// The next request or answer. A line that is too long counts as one that means nothing.
    pub fn receive<T: DeserializeOwned>(&mut self) -> Result<T, ControlError> {
        let mut line = String::new();
        if (&mut self.reader).take(MAX_LINE_BYTES).read_line(&mut line)? == 0 {
            return Err(ControlError::Ended);
        }
        serde_json::from_str(&line)
            .map_err(|_| ControlError::Unexpected(format!("`{}`", printable(line.trim_end(), 60))))
    }

    /// Asks, and waits for the answer; a refusal is an error.
    pub fn ask(&mut self, request: &Request) -> Result<Reply, ControlError> {
        self.send(request)?;
        match self.receive()? {
            Reply::Refused { reason } => Err(ControlError::Refused(reason)),
            reply => Ok(reply),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn pair() -> (Control, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (Control::new(listener.accept().unwrap().0).unwrap(), near)
    }

    #[test]
    fn what_is_sent_is_received() {
        let (mut far, near) = pair();
        let mut near = Control::new(near).unwrap();
        near.send(&Request::Hello { version: 7 }).unwrap();
        near.send(&Request::Finished).unwrap();
        assert!(matches!(far.receive().unwrap(), Request::Hello { version: 7 }));
        assert!(matches!(far.receive().unwrap(), Request::Finished));
        far.send(&Reply::Refused { reason: "no card\u{1b}[2J".into() }).unwrap();
        let error = near.ask(&Request::Finished).unwrap_err().to_string();
        assert!(error.ends_with("no card\\u001b[2J"), "{error}");
        assert!(matches!(far.receive().unwrap(), Request::Finished));
        drop(near);
        assert!(matches!(far.receive::<Request>(), Err(ControlError::Ended)));
    }

    #[test]
    fn a_stranger_is_told_apart_and_cannot_fill_the_memory() {
        let (mut far, mut near) = pair();
        near.write_all(b"GET / HTTP/1.1\r\n").unwrap();
        let error = far.receive::<Request>().unwrap_err().to_string();
        assert!(error.contains("GET / HTTP/1.1"), "{error}");
        let flood = std::thread::spawn(move || near.write_all(&vec![b'x'; 1 << 20]));
        assert!(matches!(far.receive::<Request>(), Err(ControlError::Unexpected(_))));
        drop(far);
        let _ = flood.join().unwrap();
    }
}
