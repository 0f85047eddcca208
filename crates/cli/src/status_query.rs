//! Status queries: a connection to a server that is asked how it is.

use std::time::Duration;

use causeway_access::Target;
use causeway_api::calls::COMMANDS;
use causeway_connection::exchange::{Exchange, ExchangeError};
use causeway_link::{ConnectError, ConnectOptions, connect_status, describe_process};
use causeway_wire::codec::{DecodeError, Decoder, Encode as _};
use causeway_wire::handshake::SessionId;
use causeway_wire::moves::{MoveReply, MoveRequest};
use causeway_wire::status::{RELEASE_TIMEOUT, Reply, ServerStatus, StatusRequest};
use causeway_wire::text::Printable;
use thiserror::Error;

use crate::waiting;

/// How long a server may take to answer; it may have to start the library that lists its devices.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(20);

/// How long a server may take to move the memory of a GPU, or to load code: longer than its own time-out, so that its
/// error arrives.
const RELEASE_REPLY_TIMEOUT: Duration = RELEASE_TIMEOUT.saturating_add(Duration::from_secs(60));

/// Why a server does not answer.
#[derive(Debug, Error)]
pub enum QueryError {
    /// The server gives no answers.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The connection failed.
    #[error("{server} no longer responds: {cause}")]
    Lost {
        /// The server.
        server: String,
        /// What happened.
        cause: ExchangeError,
    },
    /// The server has ended the connection.
    #[error("{0} has ended the connection")]
    Ended(String),
    /// The answer makes no sense.
    #[error("malformed response from {server}: {cause}; compare `causeway --version` on both machines")]
    Damaged {
        /// The server.
        server: String,
        /// What is wrong with it.
        cause: DecodeError,
    },
    /// The server refuses to answer.
    #[error("{server} refuses: {text}")]
    Refused {
        /// The server.
        server: String,
        /// In its words.
        text: Printable,
    },
    /// The server answers something else.
    #[error("{0} sent a response to a different request")]
    Confused(String),
}

/// A server that answers.
pub struct ServerConnection {
    name: String,
    exchange: Exchange,
}

impl ServerConnection {
    /// Connects to a server.
    pub fn connect(target: &Target) -> Result<Self, QueryError> {
        let hello = describe_process(COMMANDS, Vec::new());
        let exchange =
            waiting::with_notice(target, || connect_status(target, &hello, &ConnectOptions::default()))?;
        Ok(Self { name: target.to_string(), exchange })
    }

    /// The same server under the address that the user knows it by.
    pub fn named(self, target: &Target) -> Self {
        Self { name: target.to_string(), ..self }
    }

    /// The server's address without its key.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How the server is.
    pub fn status(&mut self) -> Result<ServerStatus, QueryError> {
        match self.request(StatusRequest::Status)? {
            Reply::Status(status) => Ok(*status),
            other => Err(self.unwanted(other)),
        }
    }

    /// Has the server take no new sessions; returns how many it waits for, and whether it did already.
    pub fn drain(&mut self, seconds: u32) -> Result<(u32, bool), QueryError> {
        match self.request(StatusRequest::Drain { seconds })? {
            Reply::Draining { sessions, already } => Ok((sessions, already)),
            other => Err(self.unwanted(other)),
        }
    }

    /// Has the server release the device memory of a session, which may take as long as the memory is large.
    pub fn release(&mut self, session: SessionId) -> Result<(), QueryError> {
        match self.request_within(StatusRequest::Release { session }, RELEASE_REPLY_TIMEOUT)? {
            Reply::Released => Ok(()),
            other => Err(self.unwanted(other)),
        }
    }

    /// Has the server use GPUDirect for copies of a session from the next one on, or staging.
    pub fn set_gpudirect(&mut self, session: SessionId, is_on: bool) -> Result<(), QueryError> {
        match self.request(StatusRequest::GpuDirect { session, is_on })? {
            Reply::GpuDirectSet => Ok(()),
            other => Err(self.unwanted(other)),
        }
    }

    /// How many bytes of device memory this client's sessions may have together, if there is a limit.
    pub fn device_memory_limit(&mut self) -> Result<Option<u64>, QueryError> {
        match self.request(StatusRequest::Limits)? {
            Reply::Limits { device_memory } => Ok(device_memory),
            other => Err(self.unwanted(other)),
        }
    }

    /// Asks something about a session that goes to another server, or comes from there.
    pub fn about_move(&mut self, request: MoveRequest) -> Result<MoveReply, QueryError> {
        match self.request(StatusRequest::Move(request))? {
            Reply::Move(reply) => Ok(reply),
            other => Err(self.unwanted(other)),
        }
    }

    /// Asks something about a move without waiting for a reply.
    pub fn post_about_move(&mut self, request: MoveRequest) -> Result<(), QueryError> {
        let request = StatusRequest::Move(request);
        let sent = self.exchange.send(|out| request.encode(out));
        sent.map_err(|cause| QueryError::Lost { server: self.name.clone(), cause })
    }

    /// The reply to the oldest question that was posted, which may take as long as a server takes to load code.
    pub fn receive_about_move(&mut self) -> Result<MoveReply, QueryError> {
        match self.receive(RELEASE_REPLY_TIMEOUT)? {
            Reply::Move(reply) => Ok(reply),
            other => Err(self.unwanted(other)),
        }
    }

    fn unwanted(&self, reply: Reply) -> QueryError {
        let server = self.name.clone();
        match reply {
            Reply::Refused { text } => QueryError::Refused { server, text },
            Reply::Status(_)
            | Reply::Draining { .. }
            | Reply::Released
            | Reply::Move(_)
            | Reply::GpuDirectSet
            | Reply::Limits { .. } => QueryError::Confused(server),
        }
    }

    fn request(&mut self, request: StatusRequest) -> Result<Reply, QueryError> {
        self.request_within(request, RESPONSE_TIMEOUT)
    }

    fn request_within(&mut self, request: StatusRequest, timeout: Duration) -> Result<Reply, QueryError> {
        let sent = self.exchange.send(|out| request.encode(out));
        sent.map_err(|cause| QueryError::Lost { server: self.name.clone(), cause })?;
        self.receive(timeout)
    }

    fn receive(&mut self, timeout: Duration) -> Result<Reply, QueryError> {
        let server = || self.name.clone();
        let reply = self.exchange.receive(Some(timeout));
        let reply = reply.map_err(|cause| QueryError::Lost { server: server(), cause })?;
        let reply = reply.ok_or_else(|| QueryError::Ended(server()))?;
        // What is left over is a later release's.
        Decoder::new(&reply).value().map_err(|cause| QueryError::Damaged { server: server(), cause })
    }
}

/// The status of a server, over a connection that is made anew where the last one has failed.
pub fn status_over(
    connection: &mut Option<ServerConnection>,
    target: &Target,
) -> Result<ServerStatus, QueryError> {
    let mut open = match connection.take() {
        Some(open) => open,
        None => ServerConnection::connect(target)?,
    };
    let status = open.status()?;
    *connection = Some(open);
    Ok(status)
}
