//! Frames of gRPC (a byte that says whether the message is compressed, its length, the message), and the
//! streams of HTTP/2 that carry them.

use core::future::poll_fn;

use bytes::{BufMut as _, Bytes, BytesMut};
use h2::{Reason, RecvStream, SendStream};
use thiserror::Error;

/// The longest message that is read: kubelets and gRPC's own libraries have the same limit.
pub const MAX_BYTES: usize = 4 << 20;

/// The bytes in front of a message.
const HEADER: usize = 5;

/// What is wrong with a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum FrameError {
    /// It says that it is longer than anything that is sent here.
    #[error("a message of {0} bytes is longer than {MAX_BYTES}")]
    TooLong(usize),
    /// Compression has not been agreed upon.
    #[error("a message is compressed, which was not agreed upon")]
    Compressed,
    /// The stream ends within a message.
    #[error("a message ends early")]
    Incomplete,
    /// There is not exactly one message.
    #[error("exactly one message was expected")]
    NotOne,
}

/// A message with what stands in front of it.
pub fn encode(message: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(HEADER + message.len());
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.len()).expect("messages of this process are short"));
    frame.put_slice(message);
    frame.freeze()
}

/// Messages out of the pieces in which they come.
#[derive(Debug, Default)]
pub struct Messages {
    received: BytesMut,
}

impl Messages {
    /// Takes a piece. What is kept never is longer than a message and a piece.
    pub fn push(&mut self, piece: &[u8]) {
        self.received.extend_from_slice(piece);
    }

    /// The next message, once it is there as a whole.
    pub fn take(&mut self) -> Result<Option<Bytes>, FrameError> {
        let Some(header) = self.received.first_chunk::<HEADER>() else { return Ok(None) };
        let [compressed, length @ ..] = *header;
        let length = u32::from_be_bytes(length) as usize;
        if length > MAX_BYTES {
            return Err(FrameError::TooLong(length));
        }
        if compressed != 0 {
            return Err(FrameError::Compressed);
        }
        if self.received.len() < HEADER + length {
            return Ok(None);
        }
        let mut frame = self.received.split_to(HEADER + length);
        Ok(Some(frame.split_off(HEADER).freeze()))
    }

    /// The only message of a stream that has ended.
    pub fn only(mut self) -> Result<Bytes, FrameError> {
        match (self.take()?, self.received.is_empty()) {
            (Some(message), true) => Ok(message),
            (None, false) => Err(FrameError::Incomplete),
            _ => Err(FrameError::NotOne),
        }
    }
}

/// Why a body is not read.
#[derive(Debug)]
pub(super) enum BodyError {
    /// The peer has ended the stream, or broken a rule.
    Stream(h2::Error),
    /// It is longer than a message.
    TooLong,
}

/// Reads a stream to its end: as much as one message may have.
pub(super) async fn read(body: &mut RecvStream) -> Result<Messages, BodyError> {
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
pub(super) async fn read_only(body: &mut RecvStream) -> Result<Bytes, String> {
    match read(body).await {
        Ok(messages) => messages.only().map_err(|error| error.to_string()),
        Err(BodyError::Stream(error)) => Err(error.to_string()),
        Err(BodyError::TooLong) => Err(FrameError::TooLong(2 * MAX_BYTES).to_string()),
    }
}

/// Writes to a stream, and waits while the peer has no capacity.
pub(super) async fn write(stream: &mut SendStream<Bytes>, mut bytes: Bytes) -> Result<(), h2::Error> {
    while !bytes.is_empty() {
        stream.reserve_capacity(bytes.len());
        let capacity = poll_fn(|context| stream.poll_capacity(context)).await;
        let capacity = capacity.unwrap_or_else(|| Err(Reason::CANCEL.into()))?;
        stream.send_data(bytes.split_to(capacity.min(bytes.len())), false)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_out_as_they_went_in_whatever_the_pieces() {
        let sent = [encode(b"one"), encode(b""), encode(&[7; 300])].concat();
        for size in [1, 2, 5, 7, sent.len()] {
            let (mut messages, mut found) = (Messages::default(), Vec::new());
            for piece in sent.chunks(size) {
                messages.push(piece);
                while let Some(message) = messages.take().unwrap() {
                    found.push(message);
                }
            }
            assert_eq!(
                found,
                [Bytes::from_static(b"one"), Bytes::new(), Bytes::from(vec![7; 300])],
                "{size}"
            );
        }
    }

    #[test]
    fn a_bad_length_is_refused_before_anything_is_waited_for() {
        let refused = |bytes: &[u8]| {
            let mut messages = Messages::default();
            messages.push(bytes);
            messages.take().unwrap_err()
        };
        assert_eq!(refused(&[0, 0xff, 0xff, 0xff, 0xff]), FrameError::TooLong(u32::MAX as usize));
        assert_eq!(refused(&[1, 0, 0, 0, 1, 5]), FrameError::Compressed);
    }

    #[test]
    fn a_call_has_one_message() {
        let only = |bytes: &[u8]| {
            let mut messages = Messages::default();
            messages.push(bytes);
            messages.only()
        };
        assert_eq!(only(&encode(b"x")), Ok(Bytes::from_static(b"x")));
        assert_eq!(only(&[0, 0, 0, 0, 2, 5]), Err(FrameError::Incomplete));
        assert_eq!(only(&[0, 0]), Err(FrameError::Incomplete));
        assert_eq!(only(&[]), Err(FrameError::NotOne));
        assert_eq!(only(&[encode(b"x"), encode(b"y")].concat()), Err(FrameError::NotOne));
    }
}
