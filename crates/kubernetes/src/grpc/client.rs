//! Calls of another process's procedures.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use thiserror::Error;
use tokio::net::UnixStream;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::{Status, frame, stream};

/// Why there is no response.
#[derive(Debug, Error)]
pub enum CallError {
    /// No process listens there.
    #[error("no process listens at {socket}: {cause}")]
    Connect {
        /// Where.
        socket: String,
        /// What the system said.
        cause: std::io::Error,
    },
    /// The connection failed.
    #[error("the connection to {socket} failed: {cause}")]
    Connection {
        /// Where.
        socket: String,
        /// What happened.
        cause: String,
    },
    /// The other process takes too long.
    #[error("{socket} does not response_message within {} s", .limit.as_secs())]
    TimedOut {
        /// Where.
        socket: String,
        /// For how long was waited.
        limit: Duration,
    },
    /// The other process does not do it.
    #[error("{socket} refuses {method}: {status}")]
    Refused {
        /// Where.
        socket: String,
        /// What it was asked for.
        method: String,
        /// What it said.
        status: Status,
    },
}

/// Ends a task with this value.
struct Ending(AbortHandle);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Calls a procedure, such as `/v1beta1.Registration/Register`, of the process that listens at a socket.
pub async fn call(socket: &Path, method: &str, message: &[u8], limit: Duration) -> Result<Bytes, CallError> {
    let name = socket.display().to_string();
    match timeout(limit, call_without_limit(socket, method, message)).await {
        Ok(outcome) => outcome,
        Err(_) => Err(CallError::TimedOut { socket: name, limit }),
    }
}

async fn call_without_limit(socket: &Path, method: &str, message: &[u8]) -> Result<Bytes, CallError> {
    let name = || socket.display().to_string();
    let failed = |cause: h2::Error| CallError::Connection { socket: name(), cause: cause.to_string() };
    let connected = UnixStream::connect(socket).await;
    let connected = connected.map_err(|cause| CallError::Connect { socket: name(), cause })?;
    let (requests, connection) = h2::client::handshake(connected).await.map_err(failed)?;
    let _ending = Ending(tokio::spawn(connection).abort_handle());

    let request = Request::builder()
        .method(Method::POST)
        .uri(format!("http://localhost{method}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(())
        .expect("names of procedures are paths");
    let mut requests = requests.ready().await.map_err(failed)?;
    let (response, mut sending) = requests.send_request(request, false).map_err(failed)?;
    stream::write(&mut sending, frame::encode(message)).await.map_err(failed)?;
    sending.send_data(Bytes::new(), true).map_err(failed)?;

    let (head, mut body) = response.await.map_err(failed)?.into_parts();
    if head.status != StatusCode::OK {
        let cause = format!("it answers with status {} of HTTP", head.status.as_u16());
        return Err(CallError::Connection { socket: name(), cause });
    }
    let refused = |status| CallError::Refused { socket: name(), method: method.to_owned(), status };
    // A call that fails at once has its status in front of the message, of which there is none then.
    if head.headers.contains_key("grpc-status") {
        Status::of_peer(&head.headers).map_err(refused)?;
    }
    let response_message = stream::read_only(&mut body).await;
    let trailers = body.trailers().await.map_err(failed)?;
    if let Some(trailers) = trailers {
        Status::of_peer(&trailers).map_err(refused)?;
    }
    response_message.map_err(|cause| CallError::Connection { socket: name(), cause })
}
