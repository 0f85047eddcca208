//! Streams of HTTP/2: reading one to its end, and writing to one as fast as the peer reads.

use core::future::poll_fn;

use bytes::Bytes;
use h2::{Reason, RecvStream, SendStream};

use super::frame::{FrameError, MAX_BYTES, Messages};

/// Why a body is not read.
#[derive(Debug)]
pub enum BodyError {
    /// The peer has ended the stream, or broken a rule.
    Stream(h2::Error),
    /// It is longer than a message.
    TooLong,
}

/// Reads a stream to its end: as much as one message may have.
pub async fn read(body: &mut RecvStream) -> Result<Messages, BodyError> {
    let (mut messages, mut length) = (Messages::default(), 0);
    while let Some(piece) = body.data().await {
        let piece = piece.map_err(BodyError::Stream)?;
        length += piece.len();
        if length > 2 * MAX_BYTES {
            return Err(BodyError::TooLong);
        }
        messages.push(&piece);
        body.flow_control().release_capacity(piece.len()).map_err(BodyError::Stream)?;
    }
    Ok(messages)
}

/// Reads the one message of a stream.
pub async fn read_only(body: &mut RecvStream) -> Result<Bytes, String> {
    match read(body).await {
        Ok(messages) => messages.only().map_err(|error| error.to_string()),
        Err(BodyError::Stream(error)) => Err(error.to_string()),
        Err(BodyError::TooLong) => Err(FrameError::TooLong(2 * MAX_BYTES).to_string()),
    }
}

/// Writes to a stream, and waits while the peer has no capacity.
pub async fn write(stream: &mut SendStream<Bytes>, mut bytes: Bytes) -> Result<(), h2::Error> {
    while !bytes.is_empty() {
        stream.reserve_capacity(bytes.len());
        let capacity = poll_fn(|context| stream.poll_capacity(context)).await;
        let capacity = capacity.unwrap_or_else(|| Err(Reason::CANCEL.into()))?;
        stream.send_data(bytes.split_to(capacity.min(bytes.len())), false)?;
    }
    Ok(())
}
