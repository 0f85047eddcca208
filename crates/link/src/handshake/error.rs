//! Why a client got no session.

use std::io;

use causeway_config::ValueError;
use causeway_wire::handshake::Response;
use causeway_wire::text::Printable;
use thiserror::Error;

use super::options::ConnectOptions;
use causeway_access::target::Target;
use causeway_connection::channel::HandshakeReadError;
use causeway_connection::socket::DialError;
use causeway_pipeline::TransportKind;

/// What to say of keys where this user's files are not looked for.
fn unread_files_advice() -> &'static str {
    match causeway_access::keys::file::list_path() {
        Ok(_) => "",
        Err(_) => ". Neither HOME nor XDG_CONFIG_HOME is set, so no file of this user was read",
    }
}

/// Why a client got no session.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// There is no TCP connection.
    #[error(transparent)]
    Dial(#[from] DialError),
    /// A variable cannot be used.
    #[error(transparent)]
    Value(#[from] ValueError),
    /// The server's key is needed and not known.
    #[error(
        "there is no key for the server at {target}: give its connect string (`causeway key show` prints it there), save \
         that here with `causeway key add`, or name a file with the key (--key-file, CAUSEWAY_KEY_FILE); a server \
         that was started with --insecure-no-key is reached at 'causeway://{address}?insecure-no-key'{}",
        unread_files_advice()
    )]
    NoKey {
        /// The server, by its name too.
        target: String,
        /// Its address alone.
        address: String,
    },
    /// Another kind of server listens there.
    #[error("{target} is not a Causeway server (received \"{found}\"): is the port right?")]
    NotCauseway {
        /// The server.
        target: String,
        /// What it said.
        found: Printable,
    },
    /// The server says no.
    #[error("the server at {target} refused the session: {text}")]
    Refused {
        /// The server.
        target: String,
        /// The server's own sentence.
        text: Printable,
    },
    /// The connection ended in the middle of the handshake.
    #[error("the server at {target} ended the connection during the handshake: its log says why")]
    Ended {
        /// The server.
        target: String,
    },
    /// What listens there says nothing at all.
    #[error(
        "{target} accepted the connection and sent nothing for {seconds:.0} s: it is not a Causeway server \
         (is the port right?), or it is stopped or overloaded"
    )]
    NoPrefaceResponse {
        /// The server.
        target: String,
        /// How long was waited.
        seconds: f64,
    },
    /// The handshake took too long.
    #[error(
        "the server at {target} accepted the connection but did not answer within {seconds:.0} s: is it \
         overloaded or stopped?"
    )]
    Silent {
        /// The server.
        target: String,
        /// How long was waited.
        seconds: f64,
    },
    /// Both ends must hold the key.
    #[error(
        "the server at {target} could not prove that it has the key: the connection may be intercepted, or \
         the key belongs to another server"
    )]
    ServerNotAuthentic {
        /// The server.
        target: String,
    },
    /// The transport that was asked for cannot be had.
    #[error("cannot connect to {target} via {via}: {text}")]
    Via {
        /// The server.
        target: String,
        /// The transport.
        via: TransportKind,
        /// Why not.
        text: String,
    },
    /// Something else.
    #[error("the handshake with {target} failed: {text}")]
    Failed {
        /// The server.
        target: String,
        /// What happened.
        text: String,
    },
}

/// The transport that was asked for cannot be had.
pub(crate) fn not_via(target: &Target, via: TransportKind, text: String) -> ConnectError {
    ConnectError::Via { target: target.to_string(), via, text }
}

/// The server granted something that it was not asked for.
pub(crate) fn misunderstood(target: &Target, request: &str, response: &Response) -> ConnectError {
    let granted = match response {
        Response::Welcome(_) => "a session",
        Response::LaneReady => "a bulk lane",
        Response::MonitorReady => "a monitoring session",
        Response::DiagnosisReady => "a diagnosis",
        Response::StatusReady => "a status session",
        Response::Enrolled => "an enrolment",
        Response::SharedMemory(_) => "shared memory",
        Response::Verbs(_) | Response::VerbsReady => "verbs",
        Response::Refused { .. } => "nothing",
    };
    let text = format!("it was asked for {request} and granted {granted}");
    ConnectError::Failed { target: target.to_string(), text }
}

/// What it means that something could not be read or written in the handshake.
pub(crate) fn explain(target: &Target, options: &ConnectOptions, error: HandshakeReadError) -> ConnectError {
    let target = target.to_string();
    match error {
        HandshakeReadError::Io(error) => match error.kind() {
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => {
                ConnectError::Silent { target, seconds: options.response_timeout.as_secs_f64() }
            }
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionAborted => ConnectError::Ended { target },
            _ => ConnectError::Failed { target, text: error.to_string() },
        },
        other => ConnectError::Failed { target, text: other.to_string() },
    }
}
