//! Bulk payload of a command: inline or by a transfer.

use causeway_wire::codec::{Decode, DecodeError, Decoder, Encode};
use causeway_wire::remote_region::RemoteRegion;

/// Bulk data of a command: inside the command, sent over the lanes as a numbered transfer, or named by its
/// content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload<'a> {
    /// The bytes themselves.
    Inline(&'a [u8]),
    /// The bytes come as transfer `number`, `length` in all.
    Transfer {
        /// The transfer's number, chosen by the client and never used again in the session.
        number: u64,
        /// How many bytes it has.
        length: u64,
    },
    /// The bytes are a module's image that the server may have kept from an earlier session. If it has not,
    /// it asks for them, and they come as transfer `number`.
    Image {
        /// The transfer's number, chosen by the client and never used again in the session.
        number: u64,
        /// How many bytes it has.
        length: u64,
        /// The BLAKE3 hash of the bytes.
        hash: [u8; 32],
    },
    /// The bytes of a copy lie in memory of the client, which the server's network card reads when it is the
    /// copy's turn.
    Region {
        /// A number that no transfer of the session has.
        number: u64,
        /// How many bytes there are.
        length: u64,
        /// Where they are.
        memory: RemoteRegion,
    },
}

impl Encode for Payload<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Inline(bytes) => {
                0u8.encode(out);
                bytes.encode(out);
            }
            Self::Transfer { number, length } => {
                1u8.encode(out);
                number.encode(out);
                length.encode(out);
            }
            Self::Image { number, length, hash } => {
                2u8.encode(out);
                number.encode(out);
                length.encode(out);
                hash.encode(out);
            }
            Self::Region { number, length, memory } => {
                3u8.encode(out);
                number.encode(out);
                length.encode(out);
                memory.encode(out);
            }
        }
    }
}

impl<'a> Decode<'a> for Payload<'a> {
    fn decode(input: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        match input.value::<u8>()? {
            0 => Ok(Self::Inline(input.value()?)),
            1 => Ok(Self::Transfer { number: input.value()?, length: input.value()? }),
            2 => Ok(Self::Image { number: input.value()?, length: input.value()?, hash: input.value()? }),
            3 => Ok(Self::Region { number: input.value()?, length: input.value()?, memory: input.value()? }),
            other => Err(DecodeError::UnknownTag { what: "payload", value: u64::from(other) }),
        }
    }
}
