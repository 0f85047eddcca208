//! Messages: what a client and its worker say to each other once they are connected.
//!
//! A message is a tag byte and its fields as [`crate::codec`] writes them. Decoded messages borrow from the
//! frame's body. Commands and replies can be encoded straight into a batch with [`begin_command`] and
//! [`begin_reply`].

mod peer;

pub use peer::PeerMessage;

use crate::codec::{Decode, DecodeError, Decoder, Encode};
use crate::relocation::Relocation;
use crate::text::Printable;

/// The fields of a command in front of its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CommandHead {
    /// Number by which the reply names this call; 0 when the call is posted and has no reply.
    pub call: u32,
    /// Number of the client's thread that made the call.
    pub thread: u32,
    /// Handle of the context that the call works in.
    pub context: u64,
    /// Which function is called.
    pub opcode: u16,
}

crate::record!(CommandHead { call, thread, context, opcode });

/// A call to be carried out by the worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Command<'a> {
    /// Number by which the reply names this call; 0 when the call is posted and has no reply.
    pub call: u32,
    /// Number of the client's thread that made the call.
    pub thread: u32,
    /// Handle of the context that the call works in.
    pub context: u64,
    /// Which function is called.
    pub opcode: u16,
    /// The arguments, encoded as the function's declaration says.
    pub payload: &'a [u8],
}

impl Command<'_> {
    /// The fields in front of the payload.
    pub fn head(&self) -> CommandHead {
        CommandHead { call: self.call, thread: self.thread, context: self.context, opcode: self.opcode }
    }
}

/// The bit that makes a transfer's number the token of a host function that has returned: the transfer says
/// what [`ClientMessage::HostDone`] says, but does not stay behind commands that the worker is carrying out.
/// The driver may hold up one of those until streams are idle that wait for the host function. In
/// [`WorkerMessage::Reached`] it says that the token is one of a host function.
pub const HOST_DONE_TRANSFER: u64 = 1 << 63;

/// What a client says to its worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientMessage<'a> {
    /// Carry out a call.
    Command(Command<'a>),
    /// The host function of a [`WorkerMessage::HostCall`] has returned.
    HostDone {
        /// The token of that call.
        token: u64,
    },
    /// The bytes of an image that the worker has asked for, where they are few enough to travel with the
    /// messages.
    Image {
        /// The number of the transfer that the worker named.
        transfer: u64,
        /// The image.
        bytes: &'a [u8],
    },
    /// The client's process ends; nothing follows.
    Goodbye,
}

/// What a worker says to its client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkerMessage<'a> {
    /// The outcome of a call that waits.
    Reply {
        /// The number of the call, never 0.
        call: u32,
        /// The `CUresult`.
        status: u32,
        /// The results, encoded as the function's declaration says.
        payload: &'a [u8],
    },
    /// A posted call failed; the client reports it at its next call that waits.
    Failed {
        /// The function that failed.
        opcode: u16,
        /// The `CUresult`.
        status: u32,
    },
    /// A stream has reached a host function: run it, then send [`ClientMessage::HostDone`].
    HostCall {
        /// Names the function.
        token: u64,
    },
    /// Work that a query found unfinished is over; or a stream has failed before a host function, which it will not
    /// reach.
    Reached {
        /// The token of that query; or [`HOST_DONE_TRANSFER`] and the token of the function.
        token: u64,
        /// The `CUresult`.
        status: u32,
    },
    /// Bytes that kernels printed; they come before the reply of the call that synchronised.
    Output {
        /// What goes to the program's standard output.
        bytes: &'a [u8],
    },
    /// Bytes that kernels printed to standard error: assertions that failed.
    ErrorOutput {
        /// What goes to the program's standard error.
        bytes: &'a [u8],
    },
    /// The bytes of a device-to-host transfer will not come, or not all of them.
    TransferFailed {
        /// The number of the transfer.
        transfer: u64,
        /// The `CUresult`.
        status: u32,
    },
    /// The worker does not have the image that a command named: send its bytes as this transfer.
    ImageRequested {
        /// The number of the transfer.
        transfer: u64,
    },
    /// The worker has the image that a command named; its bytes are not needed.
    ImageKnown {
        /// The number of the transfer that the command offered.
        transfer: u64,
    },
    /// How copies of this session reach the devices' memory.
    Direct {
        /// Whether the server's network card reads what the client exposes straight into it.
        is_on: bool,
        /// By which way, or why not, for people.
        text: Printable,
    },
    /// The session goes on elsewhere, and nothing is carried out here any more: connect there. Where that is not
    /// possible the client comes back, and the session goes on here.
    Moving(Relocation),
    /// The session is here now, whatever [`Moving`](Self::Moving) has said before.
    Relocated,
    /// The worker cannot go on; nothing follows.
    Fatal {
        /// Why, as a sentence for the user.
        text: Printable,
    },
}

mod tag {
    pub const COMMAND: u8 = 1;
    pub const HOST_DONE: u8 = 2;
    pub const GOODBYE: u8 = 3;
    pub const IMAGE: u8 = 4;
    pub const REPLY: u8 = 1;
    pub const FAILED: u8 = 2;
    pub const HOST_CALL: u8 = 3;
    pub const OUTPUT: u8 = 4;
    pub const TRANSFER_FAILED: u8 = 5;
    pub const FATAL: u8 = 6;
    pub const REACHED: u8 = 7;
    pub const IMAGE_REQUESTED: u8 = 8;
    pub const IMAGE_KNOWN: u8 = 9;
    pub const ERROR_OUTPUT: u8 = 10;
    pub const DIRECT: u8 = 11;
    pub const MOVING: u8 = 12;
    pub const RELOCATED: u8 = 13;
}

/// A message whose payload is being appended to a batch.
///
/// Dropping it without [`finish`](Self::finish) leaves a message whose length is wrong, hence the attribute.
#[derive(Debug)]
#[must_use = "the message has no valid length until `finish` is called"]
pub struct OpenMessage {
    /// Where the payload begins; its `u64` length is right in front of it.
    payload: usize,
}

impl OpenMessage {
    fn begin(out: &mut Vec<u8>) -> Self {
        0_u64.encode(out);
        Self { payload: out.len() }
    }

    /// Ends the message: everything appended to `out` since it was begun is its payload.
    pub fn finish(self, out: &mut [u8]) {
        let length = (out.len() - self.payload) as u64;
        out[self.payload - 8..self.payload].copy_from_slice(&length.to_le_bytes());
    }
}

/// Begins a command in `out`; the caller appends the payload and calls [`OpenMessage::finish`].
#[inline]
pub fn begin_command(out: &mut Vec<u8>, head: &CommandHead) -> OpenMessage {
    // Tag, head and the length's place in one piece: a program that posts without end does little else.
    let mut bytes = [0; 1 + 18 + 8];
    bytes[0] = tag::COMMAND;
    bytes[1..5].copy_from_slice(&head.call.to_le_bytes());
    bytes[5..9].copy_from_slice(&head.thread.to_le_bytes());
    bytes[9..17].copy_from_slice(&head.context.to_le_bytes());
    bytes[17..19].copy_from_slice(&head.opcode.to_le_bytes());
    out.extend_from_slice(&bytes);
    OpenMessage { payload: out.len() }
}

/// Begins a reply in `out`; the caller appends the payload and calls [`OpenMessage::finish`].
#[inline]
pub fn begin_reply(out: &mut Vec<u8>, call: u32, status: u32) -> OpenMessage {
    tag::REPLY.encode(out);
    call.encode(out);
    status.encode(out);
    OpenMessage::begin(out)
}

impl Encode for ClientMessage<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Command(command) => {
                let open = begin_command(out, &command.head());
                out.extend_from_slice(command.payload);
                open.finish(out);
            }
            Self::HostDone { token } => {
                tag::HOST_DONE.encode(out);
                token.encode(out);
            }
            Self::Image { transfer, bytes } => {
                tag::IMAGE.encode(out);
                transfer.encode(out);
                bytes.encode(out);
            }
            Self::Goodbye => tag::GOODBYE.encode(out),
        }
    }
}

impl<'a> Decode<'a> for ClientMessage<'a> {
    fn decode(input: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        match input.value()? {
            tag::COMMAND => {
                let CommandHead { call, thread, context, opcode } = input.value()?;
                Ok(Self::Command(Command { call, thread, context, opcode, payload: input.value()? }))
            }
            tag::HOST_DONE => Ok(Self::HostDone { token: input.value()? }),
            tag::IMAGE => Ok(Self::Image { transfer: input.value()?, bytes: input.value()? }),
            tag::GOODBYE => Ok(Self::Goodbye),
            other => Err(DecodeError::UnknownTag { what: "message of a client", value: u64::from(other) }),
        }
    }
}

impl Encode for WorkerMessage<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Reply { call, status, payload } => {
                let open = begin_reply(out, *call, *status);
                out.extend_from_slice(payload);
                open.finish(out);
            }
            Self::Failed { opcode, status } => {
                tag::FAILED.encode(out);
                opcode.encode(out);
                status.encode(out);
            }
            Self::HostCall { token } => {
                tag::HOST_CALL.encode(out);
                token.encode(out);
            }
            Self::Output { bytes } => {
                tag::OUTPUT.encode(out);
                bytes.encode(out);
            }
            Self::Reached { token, status } => {
                tag::REACHED.encode(out);
                token.encode(out);
                status.encode(out);
            }
            Self::ErrorOutput { bytes } => {
                tag::ERROR_OUTPUT.encode(out);
                bytes.encode(out);
            }
            Self::TransferFailed { transfer, status } => {
                tag::TRANSFER_FAILED.encode(out);
                transfer.encode(out);
                status.encode(out);
            }
            Self::ImageRequested { transfer } => {
                tag::IMAGE_REQUESTED.encode(out);
                transfer.encode(out);
            }
            Self::ImageKnown { transfer } => {
                tag::IMAGE_KNOWN.encode(out);
                transfer.encode(out);
            }
            Self::Direct { is_on, text } => {
                tag::DIRECT.encode(out);
                is_on.encode(out);
                text.encode(out);
            }
            Self::Moving(relocation) => {
                tag::MOVING.encode(out);
                relocation.encode(out);
            }
            Self::Relocated => tag::RELOCATED.encode(out),
            Self::Fatal { text } => {
                tag::FATAL.encode(out);
                text.encode(out);
            }
        }
    }
}

impl<'a> Decode<'a> for WorkerMessage<'a> {
    fn decode(input: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        match input.value()? {
            tag::REPLY => {
                Ok(Self::Reply { call: input.value()?, status: input.value()?, payload: input.value()? })
            }
            tag::FAILED => Ok(Self::Failed { opcode: input.value()?, status: input.value()? }),
            tag::HOST_CALL => Ok(Self::HostCall { token: input.value()? }),
            tag::OUTPUT => Ok(Self::Output { bytes: input.value()? }),
            tag::REACHED => Ok(Self::Reached { token: input.value()?, status: input.value()? }),
            tag::ERROR_OUTPUT => Ok(Self::ErrorOutput { bytes: input.value()? }),
            tag::TRANSFER_FAILED => {
                Ok(Self::TransferFailed { transfer: input.value()?, status: input.value()? })
            }
            tag::IMAGE_REQUESTED => Ok(Self::ImageRequested { transfer: input.value()? }),
            tag::IMAGE_KNOWN => Ok(Self::ImageKnown { transfer: input.value()? }),
            tag::DIRECT => Ok(Self::Direct { is_on: input.value()?, text: input.value()? }),
            tag::MOVING => Ok(Self::Moving(input.value()?)),
            tag::RELOCATED => Ok(Self::Relocated),
            tag::FATAL => Ok(Self::Fatal { text: input.value()? }),
            other => Err(DecodeError::UnknownTag { what: "message of a worker", value: u64::from(other) }),
        }
    }
}

/// The messages in the body of a frame, in order; the first error is the last item.
#[derive(Debug, Clone)]
pub struct Messages<'a, M> {
    input: Decoder<'a>,
    message: core::marker::PhantomData<M>,
}

impl<'a, M: Decode<'a>> Messages<'a, M> {
    /// Starts at the front of `body`.
    pub fn new(body: &'a [u8]) -> Self {
        Self { input: Decoder::new(body), message: core::marker::PhantomData }
    }

    /// Bytes of the body that have not been read.
    pub fn remaining(&self) -> usize {
        self.input.remaining()
    }
}

impl<'a, M: Decode<'a>> Iterator for Messages<'a, M> {
    type Item = Result<M, DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.input.remaining() == 0 {
            return None;
        }
        let message = self.input.value();
        if message.is_err() {
            self.input = Decoder::new(&[]);
        }
        Some(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_encoded_in_place_decodes_like_any_other() {
        let head = CommandHead { call: 9, thread: 2, context: 77, opcode: 300 };
        let mut batch = Vec::new();
        ClientMessage::Goodbye.encode(&mut batch);
        let open = begin_command(&mut batch, &head);
        5_u64.encode(&mut batch);
        open.finish(&mut batch);
        ClientMessage::HostDone { token: 4 }.encode(&mut batch);
        let messages: Vec<_> = Messages::<ClientMessage>::new(&batch).collect::<Result<_, _>>().unwrap();
        let payload = &5_u64.to_le_bytes();
        let command = Command { call: 9, thread: 2, context: 77, opcode: 300, payload };
        assert_eq!(
            messages,
            [ClientMessage::Goodbye, ClientMessage::Command(command), ClientMessage::HostDone { token: 4 }]
        );
    }

    #[test]
    fn an_error_ends_the_messages_of_a_frame() {
        let mut messages = Messages::<ClientMessage>::new(&[3, 200, 3]);
        assert_eq!(messages.next(), Some(Ok(ClientMessage::Goodbye)));
        assert!(matches!(messages.next(), Some(Err(DecodeError::UnknownTag { value: 200, .. }))));
        assert_eq!(messages.next(), None);
    }
}
