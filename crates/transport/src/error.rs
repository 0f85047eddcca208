//! What can go wrong on a link.

use core::fmt;
use std::error::Error as StdError;
use std::io;
use std::sync::Arc;

use causeway_wire::chunk::ChunkError;
use causeway_wire::compressed::CompressionError;
use causeway_wire::frame::FrameError;
use causeway_wire::sequence::SequenceError;
use thiserror::Error;

use causeway_pipeline::TransportKind;

/// Why a link ended, or could not take a message.
#[derive(Debug, Clone, Error)]
pub enum LinkError {
    /// The peer's process ended or closed the connection.
    #[error("the other end has disconnected: its process has ended or was killed")]
    PeerDisconnected,
    /// The peer's machine does not answer any more.
    #[error(
        "the other end of the connection has not answered for several seconds: its machine is down or the \
         network is cut"
    )]
    PeerSilent,
    /// Nothing has come from the peer for too long, though its machine, or one on the way, answers.
    #[error(
        "nothing was received from the other end for {seconds} s, although it sends something every second: \
         either its process is stopped, or something in between (a proxy, a port forward, a NAT) no longer \
         forwards data. CAUSEWAY_KEEPALIVE_TIMEOUT sets how long a program waits, `causeway serve \
         --client-timeout` how long a server does"
    )]
    KeepaliveTimeout {
        /// How long nothing has come.
        seconds: u64,
    },
    /// The same of one connection of the link, while something comes on others.
    #[error(
        "nothing was received over its {connection} for {seconds} s, while other connections of the session \
         work: something in between (a proxy, a port forward, a NAT) no longer forwards data on it. \
         CAUSEWAY_KEEPALIVE_TIMEOUT sets how long a program waits, `causeway serve --keepalive-timeout` how \
         long a server does"
    )]
    SilentConnection {
        /// Which connection.
        connection: &'static str,
        /// How long nothing has come.
        seconds: u64,
    },
    /// The connection was lost, and no other one took its place.
    #[error("{cause}. The session could not be resumed{}: {why}", within(*seconds))]
    NotResumed {
        /// How long was tried; nothing where that would have been in vain.
        seconds: Option<u64>,
        /// Why the connection was lost.
        cause: String,
        /// Why there is no other one.
        why: String,
    },
    /// The connection failed otherwise.
    #[error("the connection failed: {0}")]
    Io(Arc<io::Error>),
    /// The peer sent something that is no frame.
    #[error("the other end violated the protocol: {0}")]
    Frame(#[from] FrameError),
    /// The peer sent a compressed frame that is none.
    #[error("the other end violated the protocol: {0}")]
    Compression(#[from] CompressionError),
    /// The peer's frames do not follow one another.
    #[error("the other end violated the protocol: {0}")]
    Sequence(#[from] SequenceError),
    /// The peer sent something that is no chunk, or one that does not fit.
    #[error("the other end violated the protocol: {0}")]
    Chunk(#[from] ChunkError),
    /// The transport cannot go on.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// The link's transport cannot do this; the link goes on.
    #[error("a link over {0} cannot do this")]
    NotWithThisTransport(TransportKind),
    /// The peer has more transfers under way than this end keeps account of.
    #[error("the other end has more than {0} transfers in progress")]
    TooManyTransfers(usize),
    /// The message is too long for a frame; the link goes on.
    #[error("a message of {length} bytes is too long: at most {limit} fit into a frame")]
    MessageTooLong {
        /// Bytes in the message.
        length: usize,
        /// Bytes that a message may have.
        limit: usize,
    },
    /// This end closed the link.
    #[error("the session has been closed")]
    Closed,
}

/// The time that was tried, for people.
fn within(seconds: Option<u64>) -> String {
    seconds.map(|seconds| format!(" within {seconds} s")).unwrap_or_default()
}

impl LinkError {
    /// What a failed system call on a connection says about the peer.
    pub fn from_io(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::NotConnected => Self::PeerDisconnected,
            io::ErrorKind::TimedOut | io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
                Self::PeerSilent
            }
            _ => Self::Io(Arc::new(error)),
        }
    }

    /// A failure of this machine.
    pub fn local(error: &io::Error) -> Self {
        Self::Io(Arc::new(io::Error::new(error.kind(), format!("no thread could be started: {error}"))))
    }
}

/// Why a transport cannot go on, in its own words.
#[derive(Debug, Clone)]
pub struct TransportError {
    is_violation: bool,
    source: Arc<dyn StdError + Send + Sync>,
}

impl TransportError {
    /// The peer broke the rules of the transport; `source` says how.
    pub fn violation(source: impl StdError + Send + Sync + 'static) -> Self {
        Self { is_violation: true, source: Arc::new(source) }
    }

    /// The transport has failed; `source` is the whole sentence.
    pub fn failed(source: impl StdError + Send + Sync + 'static) -> Self {
        Self { is_violation: false, source: Arc::new(source) }
    }

    /// Whether the peer broke the rules.
    pub fn is_violation(&self) -> bool {
        self.is_violation
    }

    /// The transport's own error, if it is of this type.
    pub fn downcast_ref<E: StdError + 'static>(&self) -> Option<&E> {
        self.source.downcast_ref()
    }
}

impl fmt::Display for TransportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_violation {
            f.write_str("the other end broke the protocol: ")?;
        }
        self.source.fmt(f)
    }
}

impl StdError for TransportError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&*self.source)
    }
}

/// Why a transfer of the peer did not arrive.
#[derive(Debug, Clone, Error)]
pub enum TransferError {
    /// It was given up with `cancel_transfer`.
    #[error("the transfer was cancelled")]
    Cancelled,
    /// The peer sends another number of bytes than the destination holds.
    #[error("the other end sends {found} bytes for a destination of {expected}")]
    WrongSize {
        /// Bytes that the destination holds.
        expected: u64,
        /// Bytes that the peer sends.
        found: u64,
    },
    /// The number is in use.
    #[error("transfer {0} is already in progress")]
    AlreadyInFlight(u64),
    /// The link ended first.
    #[error(transparent)]
    Link(#[from] LinkError),
}

/// Why memory that the peer has handed over cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum DescriptorError {
    /// This process has too many descriptors open, or none was sent.
    #[error("its descriptor did not arrive: this process has too many open descriptors")]
    NotReceived,
    /// The peer could cut it short, which would end this process.
    #[error("it is not sealed against truncation")]
    NotSealed,
    /// It is not as large as was said.
    #[error("it does not have the announced size")]
    WrongSize,
}
