//! A session in which a test sends commands as it likes, well formed or not.

use crate::hostile::{self, TIMEOUT};
use causeway_access::Target;
use causeway_api::calls::Call;
use causeway_connection::channel::Connection;
use causeway_wire::codec::{Decode as _, Decoder, Encode as _};
use causeway_wire::frame::{FrameReader, MAX_BODY};
use causeway_wire::message::{ClientMessage, Command, Messages, WorkerMessage};
use std::time::Instant;

/// What a worker answered to a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The `CUresult`.
    pub status: u32,
    /// The results.
    pub payload: Vec<u8>,
}

/// A session without bulk lanes.
#[derive(Debug)]
pub struct RawSession {
    connection: Connection,
    reader: FrameReader,
    frames: u64,
    calls: u32,
    /// Handle of the context that commands name.
    pub context: u64,
}

impl RawSession {
    /// Opens a session.
    ///
    /// # Panics
    /// When the server refuses.
    #[track_caller]
    pub fn open(target: &Target) -> Self {
        let (connection, _) = hostile::session(target);
        Self { connection, reader: FrameReader::new(MAX_BODY), frames: 0, calls: 0, context: 0 }
    }

    /// Sends a command in a frame of its own and returns the number under which its reply comes. An error of
    /// the connection shows when the reply is waited for.
    pub fn send(&mut self, opcode: u16, payload: &[u8]) -> u32 {
        self.frames += 1;
        self.calls += 1;
        let command = Command { call: self.calls, thread: 0, context: self.context, opcode, payload };
        let mut body = Vec::new();
        ClientMessage::Command(command).encode(&mut body);
        let _ = self.connection.outgoing.send(&hostile::frame(self.frames, &body));
        self.calls
    }

    /// Sends a call and returns the number under which its reply comes.
    pub fn begin<C: Call>(&mut self, request: &C) -> u32 {
        let mut payload = Vec::new();
        request.encode(&mut payload);
        self.send(C::OPCODE as u16, &payload)
    }

    /// Waits for the reply to a call, passing over everything else; none if the worker ends the session
    /// instead, or takes longer than [`TIMEOUT`].
    pub fn reply(&mut self, call: u32) -> Option<Reply> {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            while let Some(frame) = self.reader.next_frame().ok()? {
                for message in Messages::<WorkerMessage<'_>>::new(self.reader.body(&frame)) {
                    if let WorkerMessage::Reply { call: found, status, payload } = message.ok()?
                        && found == call
                    {
                        return Some(Reply { status, payload: payload.to_vec() });
                    }
                }
            }
            let left = deadline.saturating_duration_since(Instant::now());
            self.connection.socket().set_read_timeout(Some(left)).ok()?;
            match self.connection.incoming.receive(self.reader.space(), true) {
                Ok(count @ 1..) => self.reader.filled(count),
                _ => return None,
            }
        }
    }

    /// Makes a call that must succeed.
    ///
    /// # Panics
    /// When it does not.
    #[track_caller]
    pub fn call<C: Call>(&mut self, request: &C) -> C::Reply {
        let call = self.begin(request);
        let reply = self.reply(call);
        let Some(Reply { status: 0, payload }) = reply else {
            panic!("{} was answered with {reply:?}", C::OPCODE.name());
        };
        C::Reply::decode(&mut Decoder::new(&payload)).expect("the reply can be decoded")
    }
}
