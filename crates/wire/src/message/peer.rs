//! Messages between workers of two servers.

use crate::codec::{Decode, DecodeError, Decoder, Encode};
use crate::remote_region::RemoteRegion;

/// What workers of two servers say to each other about copies from the one's devices to the other's. The
/// destination's worker reads, the source's worker answers each reading with a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerMessage {
    /// Send a part of what the client has offered.
    Read {
        /// The offer, by the number that the client gave it.
        offer: u64,
        /// Bytes of a row, rows and slices before the part.
        at: [u64; 3],
        /// Its width in bytes, its height and its depth.
        size: [u64; 3],
        /// The number of the transfer as which its bytes are to come.
        transfer: u64,
        /// Whether they may be [exposed](Self::Region) instead, since the reader's network card can put them
        /// into its device's memory.
        by_rdma: bool,
    },
    /// The bytes of a transfer lie here, for the reader's network card to fetch. They are released after
    /// that.
    Region {
        /// The number of the transfer, which does not come otherwise then.
        transfer: u64,
        /// Where they lie.
        memory: RemoteRegion,
    },
    /// Nothing more will be read of an offer.
    Done {
        /// The offer.
        offer: u64,
    },
    /// A transfer that was asked for will not come.
    Failed {
        /// Its number.
        transfer: u64,
        /// The `CUresult` that says why.
        status: u32,
    },
}

mod tag {
    pub const READ: u8 = 1;
    pub const DONE: u8 = 2;
    pub const FAILED: u8 = 3;
    pub const REGION: u8 = 4;
}

impl Encode for PeerMessage {
    fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Read { offer, at, size, transfer, by_rdma } => {
                tag::READ.encode(out);
                (offer, at, size, transfer).encode(out);
                by_rdma.encode(out);
            }
            Self::Region { transfer, memory } => {
                tag::REGION.encode(out);
                transfer.encode(out);
                memory.encode(out);
            }
            Self::Done { offer } => {
                tag::DONE.encode(out);
                offer.encode(out);
            }
            Self::Failed { transfer, status } => {
                tag::FAILED.encode(out);
                (transfer, status).encode(out);
            }
        }
    }
}

impl<'a> Decode<'a> for PeerMessage {
    fn decode(input: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        match input.value()? {
            tag::READ => Ok(Self::Read {
                offer: input.value()?,
                at: input.value()?,
                size: input.value()?,
                transfer: input.value()?,
                by_rdma: input.value()?,
            }),
            tag::REGION => Ok(Self::Region { transfer: input.value()?, memory: input.value()? }),
            tag::DONE => Ok(Self::Done { offer: input.value()? }),
            tag::FAILED => Ok(Self::Failed { transfer: input.value()?, status: input.value()? }),
            other => {
                Err(DecodeError::UnknownTag { what: "message of another worker", value: u64::from(other) })
            }
        }
    }
}
