//! Responses to calls of other processes.

use core::future::poll_fn;
use core::pin::pin;
use core::task::Poll;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{RecvStream, SendStream};
use http::{Request, Response};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::status::trailers;
use super::{Code, Status, frame, stream};

/// The most calls of a connection at a time.
const MAX_CALLS: u32 = 64;

/// What responds to calls.
pub trait Service: Send + Sync + 'static {
    /// The response to a message for a procedure, such as `/v1beta1.DevicePlugin/Allocate`. It is not waited for, so
    /// it must be there at once.
    fn call(&self, method: &str, message: &[u8]) -> Result<Reply, Status>;
}

/// The response to a call.
#[derive(Debug)]
pub enum Reply {
    /// One message.
    Message(Vec<u8>),
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
        Err(error) => return tracing::debug!("a process that connects does not speak HTTP/2: {error}"),
    };
    let mut calls = JoinSet::new();
    while let Some(accepted) = connection.accept().await {
        match accepted {
            Ok((request, respond)) => {
                calls.spawn(respond_to(request, respond, Arc::clone(&service)));
            }
            Err(error) => return tracing::debug!("a connection has failed: {error}"),
        }
        while calls.try_join_next().is_some() {}
    }
}

async fn respond_to(request: Request<RecvStream>, respond: SendResponse<Bytes>, service: Arc<dyn Service>) {
    let method = request.uri().path().to_owned();
    if let Err(error) = try_to_respond(request, respond, &*service).await {
        tracing::debug!("the response to {method} does not reach the caller: {error}");
    }
}

async fn try_to_respond(
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    service: &dyn Service,
) -> Result<(), h2::Error> {
    let (head, mut body) = request.into_parts();
    let reply = match stream::read_only(&mut body).await {
        Ok(message) => service.call(head.uri.path(), &message),
        Err(cause) => Err(Status::new(Code::InvalidArgument, format!("the message cannot be read: {cause}"))),
    };
    let begin = Response::builder().header("content-type", "application/grpc").body(());
    let mut sending = respond.send_response(begin.expect("its parts are constants"), false)?;
    let outcome = match reply {
        Ok(Reply::Message(message)) => {
            stream::write(&mut sending, frame::encode(&message)).await?;
            Ok(())
        }
        Ok(Reply::State(state)) => {
            send_states(&mut sending, state).await?;
            Ok(())
        }
        Err(status) => {
            tracing::warn!(method = head.uri.path(), "a call is refused: {}", status.message);
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
        stream::write(sending, message).await?;
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
