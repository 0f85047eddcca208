//! Calls of procedures: of another process, and the responses to calls of others.

use core::future::poll_fn;
use core::pin::pin;
use core::task::Poll;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{RecvStream, SendStream};
use http::{Method, Request, Response, StatusCode};
use thiserror::Error;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{oneshot, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;

use crate::grpc::status::trailers;
use crate::grpc::{Code, Status, frame};

/// Why there is no response.
#[derive(Debug, Error)]
pub enum CallError {
    /// No process listens there.
    #[error("no process listens at {socket}: {cause}")]
    Connect {
        /// Where.
        socket: String,
        /// What the system said.
        cause: io::Error,
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
    #[error("{socket} does not respond within {} s", .limit.as_secs())]
    TimedOut {
        /// Where.
        socket: String,
        /// For how long was waited.
        limit: Duration,
    },
    /// The other process does not do it.
    #[error("{socket} refused {method}: {status}")]
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
    frame::write(&mut sending, frame::encode(message)).await.map_err(failed)?;
    sending.send_data(Bytes::new(), true).map_err(failed)?;

    let (head, mut body) = response.await.map_err(failed)?.into_parts();
    if head.status != StatusCode::OK {
        let cause = format!("it responded with HTTP status {}", head.status.as_u16());
        return Err(CallError::Connection { socket: name(), cause });
    }
    let refused = |status| CallError::Refused { socket: name(), method: method.to_owned(), status };
    // A call that fails at once has its status in front of the message, of which there is none then.
    if head.headers.contains_key("grpc-status") {
        Status::of_peer(&head.headers).map_err(refused)?;
    }
    let response_message = frame::read_only(&mut body).await;
    let trailers = body.trailers().await.map_err(failed)?;
    if let Some(trailers) = trailers {
        Status::of_peer(&trailers).map_err(refused)?;
    }
    response_message.map_err(|cause| CallError::Connection { socket: name(), cause })
}

/// The most calls of a connection at a time.
const MAX_CALLS: u32 = 64;

/// What responds to calls.
pub trait Service: Send + Sync + 'static {
    /// The response to a message for a procedure, such as `/v1beta1.DevicePlugin/Allocate`. It is not waited for, so
    /// it must be there at once, or be promised.
    fn call(&self, method: &str, message: &[u8]) -> Result<Reply, Status>;
}

/// The response to a call.
#[derive(Debug)]
pub enum Reply {
    /// One message.
    Message(Vec<u8>),
    /// One message, which another thread sends when it is there.
    Later(oneshot::Receiver<Vec<u8>>),
    /// The state as it is, and again whenever it has changed. What changes faster than the caller reads is skipped.
    State(watch::Receiver<Vec<u8>>),
}

/// Serves those who connect, until accepting fails or this is dropped, which ends all connections.
pub async fn serve(listener: UnixListener, service: Arc<dyn Service>) -> io::Error {
    let mut connections = JoinSet::new();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                connections.spawn(serve_connection(stream, Arc::clone(&service)));
            }
            Err(error) => return error,
        }
        // Those that have ended.
        while connections.try_join_next().is_some() {}
    }
}

async fn serve_connection(stream: UnixStream, service: Arc<dyn Service>) {
    let mut settings = h2::server::Builder::new();
    let accepted = settings.max_concurrent_streams(MAX_CALLS).handshake::<_, Bytes>(stream).await;
    let mut connection = match accepted {
        Ok(connection) => connection,
        Err(error) => return tracing::debug!("a connecting process does not speak HTTP/2: {error}"),
    };
    let mut calls = JoinSet::new();
    while let Some(accepted) = connection.accept().await {
        match accepted {
            Ok((request, respond)) => {
                calls.spawn(respond_to(request, respond, Arc::clone(&service)));
            }
            Err(error) => return tracing::debug!("connection failed: {error}"),
        }
        while calls.try_join_next().is_some() {}
    }
}

async fn respond_to(request: Request<RecvStream>, respond: SendResponse<Bytes>, service: Arc<dyn Service>) {
    let method = request.uri().path().to_owned();
    if let Err(error) = try_to_respond(request, respond, &*service).await {
        tracing::debug!("cannot send the response to {method}: {error}");
    }
}

async fn try_to_respond(
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    service: &dyn Service,
) -> Result<(), h2::Error> {
    let (head, mut body) = request.into_parts();
    let reply = match frame::read_only(&mut body).await {
        Ok(message) => service.call(head.uri.path(), &message),
        Err(cause) => Err(Status::new(Code::InvalidArgument, format!("cannot read the message: {cause}"))),
    };
    let begin = Response::builder().header("content-type", "application/grpc").body(());
    let mut sending = respond.send_response(begin.expect("its parts are constants"), false)?;
    let outcome = match reply {
        Ok(Reply::Message(message)) => {
            frame::write(&mut sending, frame::encode(&message)).await?;
            Ok(())
        }
        Ok(Reply::Later(message)) => match message.await {
            Ok(message) => {
                frame::write(&mut sending, frame::encode(&message)).await?;
                Ok(())
            }
            Err(_) => Err(Status::new(Code::Internal, "the call was abandoned")),
        },
        Ok(Reply::State(state)) => {
            send_states(&mut sending, state).await?;
            Ok(())
        }
        Err(status) => {
            tracing::warn!(method = head.uri.path(), "call refused: {}", status.message);
            Err(status)
        }
    };
    sending.send_trailers(trailers(&outcome))
}

/// Sends a state and its changes, until its maker or its reader has ended.
async fn send_states(
    sending: &mut SendStream<Bytes>,
    mut state: watch::Receiver<Vec<u8>>,
) -> Result<(), h2::Error> {
    loop {
        let message = frame::encode(&state.borrow_and_update());
        frame::write(sending, message).await?;
        let mut changed = pin!(state.changed());
        let has_changed = poll_fn(|context| {
            if let Poll::Ready(reason) = sending.poll_reset(context) {
                return Poll::Ready(reason.and_then(|reason| Err(reason.into())));
            }
            changed.as_mut().poll(context).map(|changed| Ok(changed.is_ok()))
        });
        if !has_changed.await? {
            return Ok(());
        }
    }
}
