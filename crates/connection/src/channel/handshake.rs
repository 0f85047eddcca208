//! Handshake frames: sending and receiving before there is a link.

use std::io;
use std::time::Instant;

use causeway_wire::frame::{FrameError, FrameHeader, FrameKind, HEADER_SIZE};
use thiserror::Error;

use super::connection::Connection;
use crate::record::MAX_RECORD;

impl Connection {
    /// Sends one handshake frame.
    pub fn send_handshake(&mut self, encode: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        let frame = handshake_frame(encode);
        self.outgoing.send(&frame)
    }

    /// Receives one handshake frame of at most `limit` bytes, and not a byte beyond it.
    pub fn receive_handshake(
        &mut self,
        limit: usize,
        deadline: Instant,
    ) -> Result<Vec<u8>, HandshakeReadError> {
        let mut header = [0; HEADER_SIZE];
        self.incoming.receive_exact(&mut header, deadline)?;
        let header = FrameHeader::parse(&header, limit)?;
        if header.kind != FrameKind::Handshake || header.sequence != 0 || header.acknowledgement != 0 {
            return Err(HandshakeReadError::NoHandshake);
        }
        // The body grows as its bytes arrive, so an announced length alone costs nothing.
        let mut body = Vec::new();
        while body.len() < header.length as usize {
            let start = body.len();
            body.resize((start + MAX_RECORD).min(header.length as usize), 0);
            self.incoming.receive_exact(&mut body[start..], deadline)?;
        }
        Ok(body)
    }
}

/// A handshake frame around what `encode` appends.
pub fn handshake_frame(encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut frame = vec![0; HEADER_SIZE];
    encode(&mut frame);
    let length = (frame.len() - HEADER_SIZE) as u32;
    let header = FrameHeader { kind: FrameKind::Handshake, length, sequence: 0, acknowledgement: 0 };
    frame[..HEADER_SIZE].copy_from_slice(&header.to_bytes());
    frame
}

/// Why a handshake frame could not be received.
#[derive(Debug, Error)]
pub enum HandshakeReadError {
    /// The connection failed or ended.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The bytes are no frame.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// A frame of another kind came.
    #[error("the peer sent a frame that does not belong to the handshake")]
    NoHandshake,
}
