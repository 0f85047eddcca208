//! Records of a state file.

use causeway_wire::codec::{Decode, DecodeError, Decoder, Encode};
use causeway_wire::frame::{HEADER_SIZE, MAX_BODY};
use causeway_wire::handshake::{ClientHello, LaneToken, SessionId};
use causeway_wire::record;

/// The first bytes of a file; the last of them counts the formats.
pub const MAGIC: [u8; 8] = *b"CSWYSES3";

/// The longest piece of what is long, in bytes.
pub const MAX_PIECE: usize = 1 << 20;

/// The longest record: a frame of the link, and what stands around it.
pub(super) const MAX_RECORD: usize = MAX_BODY + HEADER_SIZE + 64;

/// The longest header: a client's hello may have 64 KiB.
pub const MAX_HEADER: usize = 128 << 10;

/// What a broker needs to know of a session that it takes up.
#[derive(Debug, Clone)]
pub struct StateHeader {
    /// The release of the server that has written it.
    pub release: String,
    /// The protocol version that the client talks.
    pub version: u16,
    /// Names the session.
    pub session: SessionId,
    /// Proves that a connection belongs to it.
    pub token: LaneToken,
    /// By which the client may come instead of by a key.
    pub ticket: LaneToken,
    /// How many lanes the client may open.
    pub lanes: u32,
    /// For how many seconds the client is awaited at first.
    pub seconds: u32,
    /// For how many seconds a connection may be away later.
    pub resume: u32,
    /// What the client said of itself.
    pub hello: ClientHello,
}

impl Encode for StateHeader {
    fn encode(&self, out: &mut Vec<u8>) {
        self.release.encode(out);
        self.version.encode(out);
        self.session.encode(out);
        self.token.encode(out);
        self.ticket.encode(out);
        self.lanes.encode(out);
        self.seconds.encode(out);
        self.resume.encode(out);
        self.hello.encode(out);
    }
}

impl<'a> Decode<'a> for StateHeader {
    fn decode(input: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        Ok(Self {
            release: input.value()?,
            version: input.value()?,
            session: input.value()?,
            token: input.value()?,
            ticket: input.value()?,
            lanes: input.value()?,
            seconds: input.value()?,
            resume: input.value()?,
            // It comes last, since only its end tells its length.
            hello: {
                let offer = input.value()?;
                ClientHello::decode_rest(offer, input.take(input.remaining())?)?
            },
        })
    }
}

/// A command that is carried out again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandRecord {
    /// The context that it is carried out in.
    pub context: u64,
    /// Which command.
    pub opcode: u16,
    /// Its arguments.
    pub arguments: Vec<u8>,
    /// Which of the images belongs to it.
    pub image: Option<u32>,
    /// What it must answer.
    pub reply: Option<Vec<u8>>,
}

record!(CommandRecord { context, opcode, arguments, image, reply });

/// Where the variables of loaded code lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeRecord {
    /// The client's handle of the module or library.
    pub owner: u64,
    /// Whether it is a library.
    pub is_library: bool,
    /// The client's handle of the context.
    pub context: u64,
    /// Address and size of each range.
    pub ranges: Vec<(u64, u64)>,
    /// The variables, where they may lie elsewhere when the code is loaded anew.
    pub variables: Vec<VariableRecord>,
}

record!(CodeRecord { owner, is_library, context, ranges, variables });

impl CodeRecord {
    /// Whether another record is about the same code.
    pub fn is_of_the_same(&self, other: &Self) -> bool {
        (self.owner, self.is_library, self.context) == (other.owner, other.is_library, other.context)
    }
}

/// A variable of loaded code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VariableRecord {
    /// Its name.
    pub name: String,
    /// Its address.
    pub address: u64,
    /// How many bytes it has.
    pub bytes: u64,
    /// Words that held addresses when the code was loaded: where, from its beginning, and what they hold now.
    pub pointers: Vec<(u64, u64)>,
}

record!(VariableRecord { name, address, bytes, pointers });

/// A part of a session's state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// The devices as the client knows them.
    Snapshot(Vec<u8>),
    /// The link, without its frames.
    Link(Vec<u8>),
    /// A frame that the client may not have.
    Frame(Vec<u8>),
    /// Bytes of an image.
    Image { number: u32, bytes: Vec<u8> },
    /// Where variables lie.
    Code(CodeRecord),
    /// A command.
    Command(CommandRecord),
    /// The last record of an event: event, stream, flags, context.
    Recorded { event: u64, stream: u64, flags: u32, context: u64 },
    /// Transfers that have come and of which nothing is left.
    Taken(Vec<u64>),
    /// Bytes of a transfer that waits for its command.
    Transfer { number: u64, bytes: Vec<u8> },
    /// Bytes of device memory, as a context reads them. All other bytes are zero.
    Memory { context: u64, address: u64, bytes: Vec<u8> },
    /// A part of memory of the program that kernels reach: which, from where on, what kernels see, and what both ends
    /// agreed on, where that is something else.
    Mirror { address: u64, at: u64, bytes: Vec<u8>, agreed: Vec<u8> },
}

/// The first byte of a record.
pub(super) mod tag {
    pub const HEADER: u8 = 1;
    pub const SNAPSHOT: u8 = 2;
    pub const LINK: u8 = 3;
    pub const FRAME: u8 = 4;
    pub const IMAGE: u8 = 5;
    pub const CODE: u8 = 6;
    pub const COMMAND: u8 = 7;
    pub const RECORDED: u8 = 8;
    pub const TAKEN: u8 = 9;
    pub const TRANSFER: u8 = 10;
    pub const MEMORY: u8 = 11;
    pub const MIRROR: u8 = 12;
    pub const END: u8 = 255;
}
