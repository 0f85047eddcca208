//! Commands: opcodes, requests and their replies, made from the declaration list.

use crate::handle::{Handle, Stream};
use crate::order::{Access, Capture, Order};
use causeway_wire::codec::{Decode, Encode};

/// A command with its request's and its reply's type.
pub trait Call: Encode {
    /// The command's number on the wire.
    const OPCODE: Opcode;
    /// What a called command answers; the unit type for a posted one.
    type Reply: Encode + for<'a> Decode<'a>;

    /// The stream in whose order the command belongs, if it names one.
    fn stream(&self) -> Option<Handle<Stream>>;
}

impl Opcode {
    /// The opcode of this number, if there is one.
    pub fn from_number(number: u16) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// Whether the command's reply waits until the device has done something.
    pub const fn waits_for_gpu(self) -> bool {
        matches!(
            self,
            Self::stream_synchronize
                | Self::event_synchronize
                | Self::context_synchronize
                | Self::stream_synchronize_mirrored
                | Self::event_synchronize_mirrored
                | Self::context_synchronize_mirrored
        )
    }

    /// Whether a capture of the stream that the command names has a say.
    pub const fn concerns_captures(self) -> bool {
        !matches!(self.capture(), Capture::Passes)
    }
}

/// Who carries out a command in the worker.
#[derive(Clone, Copy, Debug)]
pub enum Executor<'r, 'a> {
    /// The engine's own code.
    Engine(EngineRequest<'r, 'a>),
    /// The back end, on the engine's thread.
    BackEnd,
    /// The back end, on another thread, because the command is slow.
    Background {
        /// Whether the back end wants all such commands one after the other on one thread.
        is_serial: bool,
    },
}

causeway_api_macros::requests!();
