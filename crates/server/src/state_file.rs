//! State file of a session: what another worker needs to go on with it.
//!
//! It is a stream of records, each a tag byte, a length (`u32`) and so many bytes, which are encoded as messages are. The
//! first one is the header, by which a broker starts a worker; the last one is the BLAKE3 hash of all bytes before it.
//! What is long travels in pieces of at most [`MAX_PIECE`] bytes, compressed where that helps. A file that is cut short or
//! damaged is refused, and no length that it names is believed before the bytes are there.

use std::io::{self, Read, Write};

use causeway_wire::codec::{Decode, DecodeError, Decoder, Encode};
use causeway_wire::compressed::{compress, decompress};
use causeway_wire::frame::{HEADER_SIZE, MAX_BODY};
use causeway_wire::handshake::{ClientHello, LaneToken, SessionId};
use causeway_wire::record;
use thiserror::Error;

/// The first bytes of a file; the last of them counts the formats.
pub const MAGIC: [u8; 8] = *b"CSWYSES2";

/// The longest piece of what is long, in bytes.
pub const MAX_PIECE: usize = 1 << 20;

/// The longest record: a frame of the link, and what stands around it.
const MAX_RECORD: usize = MAX_BODY + HEADER_SIZE + 64;

/// The longest header: a client's hello may have 64 KiB.
pub const MAX_HEADER: usize = 128 << 10;

/// Why a state file cannot be read; sentences for people.
#[derive(Debug, Error)]
pub enum StateFileError {
    /// The system says so.
    #[error("the state cannot be read or written: {0}")]
    Io(#[from] io::Error),
    /// It ends too early.
    #[error("the state is cut short: it ends before its end mark")]
    CutShort,
    /// It is something else.
    #[error("this is no session's state, or one in a format that this release does not know")]
    Foreign,
    /// Its bytes make no sense.
    #[error("the state is damaged: {0}")]
    Damaged(String),
}

impl From<DecodeError> for StateFileError {
    fn from(error: DecodeError) -> Self {
        Self::Damaged(error.to_string())
    }
}

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
    /// Where it lies.
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

mod tag {
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

/// Bytes, compressed where that helps.
fn pack(bytes: &[u8], out: &mut Vec<u8>) {
    let at = out.len();
    out.push(1);
    if !compress(bytes, out) {
        out[at] = 0;
        out.extend_from_slice(bytes);
    }
}

fn unpack(input: &mut Decoder<'_>) -> Result<Vec<u8>, StateFileError> {
    let is_packed = input.value::<bool>()?;
    let body = input.take(input.remaining())?;
    if !is_packed {
        return Ok(body.to_vec());
    }
    let mut bytes = Vec::new();
    decompress(body, &mut bytes).map_err(|error| StateFileError::Damaged(error.to_string()))?;
    if bytes.len() > MAX_PIECE {
        return Err(StateFileError::Damaged("a piece is longer than pieces are".to_owned()));
    }
    Ok(bytes)
}

/// Writes a state file.
pub struct StateWriter<W> {
    out: W,
    hasher: blake3::Hasher,
    written: u64,
    body: Vec<u8>,
}

impl<W: Write> StateWriter<W> {
    /// Begins a file.
    pub fn begin(out: W, header: &StateHeader) -> io::Result<Self> {
        let mut writer = Self { out, hasher: blake3::Hasher::new(), written: 0, body: Vec::new() };
        writer.put(&MAGIC)?;
        header.encode(&mut writer.body);
        writer.record(tag::HEADER)?;
        Ok(writer)
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.hasher.update(bytes);
        self.written += bytes.len() as u64;
        self.out.write_all(bytes)
    }

    fn record(&mut self, tag: u8) -> io::Result<()> {
        let body = core::mem::take(&mut self.body);
        self.put(&[tag])?;
        self.put(&(body.len() as u32).to_le_bytes())?;
        self.put(&body)?;
        self.body = body;
        self.body.clear();
        Ok(())
    }

    /// Appends a part.
    pub fn write(&mut self, record: &Record) -> io::Result<()> {
        let out = &mut self.body;
        let tag = match record {
            Record::Snapshot(bytes) => {
                out.extend_from_slice(bytes);
                tag::SNAPSHOT
            }
            Record::Link(bytes) => {
                out.extend_from_slice(bytes);
                tag::LINK
            }
            Record::Frame(bytes) => {
                out.extend_from_slice(bytes);
                tag::FRAME
            }
            Record::Image { number, bytes } => {
                number.encode(out);
                pack(bytes, out);
                tag::IMAGE
            }
            Record::Code(code) => {
                code.encode(out);
                tag::CODE
            }
            Record::Command(command) => {
                command.encode(out);
                tag::COMMAND
            }
            Record::Recorded { event, stream, flags, context } => {
                (*event, *stream, *flags).encode(out);
                context.encode(out);
                tag::RECORDED
            }
            Record::Taken(numbers) => {
                numbers.encode(out);
                tag::TAKEN
            }
            Record::Transfer { number, bytes } => {
                number.encode(out);
                pack(bytes, out);
                tag::TRANSFER
            }
            Record::Memory { context, address, bytes } => {
                (*context, *address).encode(out);
                pack(bytes, out);
                tag::MEMORY
            }
            Record::Mirror { address, at, bytes, agreed } => {
                (*address, *at).encode(out);
                agreed.encode(out);
                pack(bytes, out);
                tag::MIRROR
            }
        };
        self.record(tag)
    }

    /// Ends the file, and says how many bytes it has.
    pub fn finish(mut self) -> io::Result<u64> {
        let hash = *self.hasher.finalize().as_bytes();
        self.body.extend_from_slice(&hash);
        self.record(tag::END)?;
        self.out.flush()?;
        Ok(self.written)
    }
}

/// Reads a state file.
pub struct StateReader<R> {
    input: R,
    hasher: blake3::Hasher,
    body: Vec<u8>,
}

impl<R: Read> StateReader<R> {
    /// Begins to read.
    ///
    /// # Errors
    /// When there is no header.
    pub fn begin(input: R) -> Result<(Self, StateHeader), StateFileError> {
        let mut reader = Self { input, hasher: blake3::Hasher::new(), body: Vec::new() };
        let mut magic = [0; MAGIC.len()];
        reader.take(&mut magic)?;
        if magic != MAGIC {
            return Err(StateFileError::Foreign);
        }
        let (tag, _) = reader.next(MAX_HEADER)?;
        if tag != tag::HEADER {
            return Err(StateFileError::Foreign);
        }
        let header = Decoder::new(&reader.body).value()?;
        Ok((reader, header))
    }

    fn take(&mut self, into: &mut [u8]) -> Result<(), StateFileError> {
        self.input.read_exact(into).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => StateFileError::CutShort,
            _ => error.into(),
        })?;
        self.hasher.update(into);
        Ok(())
    }

    /// Reads a record into the body; gives its tag, and the hash of all before it.
    fn next(&mut self, limit: usize) -> Result<(u8, blake3::Hash), StateFileError> {
        let before = self.hasher.finalize();
        let mut head = [0; 5];
        self.take(&mut head)?;
        let [tag, length @ ..] = head;
        let length = u32::from_le_bytes(length) as usize;
        if length > limit {
            return Err(StateFileError::Damaged(format!(
                "a part announces {length} bytes, and may have {limit}"
            )));
        }
        self.body.clear();
        while self.body.len() < length {
            let start = self.body.len();
            let mut body = core::mem::take(&mut self.body);
            // Memory is taken as bytes come.
            body.resize((start + (256 << 10)).min(length), 0);
            let taken = self.take(&mut body[start..]);
            self.body = body;
            taken?;
        }
        Ok((tag, before))
    }

    /// The next part; nothing at the end, where everything has been found to be as it was written.
    ///
    /// # Errors
    /// When it is cut short or damaged.
    pub fn read(&mut self) -> Result<Option<Record>, StateFileError> {
        let (tag, before) = self.next(MAX_RECORD)?;
        let body = core::mem::take(&mut self.body);
        let mut input = Decoder::new(&body);
        let record = match tag {
            tag::SNAPSHOT => Record::Snapshot(input.take(input.remaining())?.to_vec()),
            tag::LINK => Record::Link(input.take(input.remaining())?.to_vec()),
            tag::FRAME => Record::Frame(input.take(input.remaining())?.to_vec()),
            tag::IMAGE => Record::Image { number: input.value()?, bytes: unpack(&mut input)? },
            tag::CODE => Record::Code(input.value()?),
            tag::COMMAND => Record::Command(input.value()?),
            tag::RECORDED => {
                let (event, stream, flags) = input.value()?;
                Record::Recorded { event, stream, flags, context: input.value()? }
            }
            tag::TAKEN => Record::Taken(input.value()?),
            tag::TRANSFER => Record::Transfer { number: input.value()?, bytes: unpack(&mut input)? },
            tag::MEMORY => {
                let (context, address) = input.value()?;
                Record::Memory { context, address, bytes: unpack(&mut input)? }
            }
            tag::MIRROR => {
                let (address, at) = input.value()?;
                let agreed = input.value()?;
                Record::Mirror { address, at, bytes: unpack(&mut input)?, agreed }
            }
            tag::END if body == before.as_bytes() => return Ok(None),
            tag::END => return Err(StateFileError::Damaged("its checksum is another one".to_owned())),
            other => return Err(StateFileError::Damaged(format!("there is no part of kind {other}"))),
        };
        input.finish()?;
        self.body = body;
        Ok(Some(record))
    }
}

/// The body of the fuzz target `state`: whatever can be read of a state is read as the same once it has been written again.
#[cfg(any(test, feature = "fuzzing"))]
pub fn fuzz(bytes: &[u8]) {
    let Ok((mut reader, header)) = StateReader::begin(bytes) else { return };
    let mut records = Vec::new();
    while let Ok(Some(record)) = reader.read() {
        records.push(record);
    }
    let mut again = Vec::new();
    let mut writer = StateWriter::begin(&mut again, &header).expect("memory takes what is written");
    records.iter().try_for_each(|record| writer.write(record)).expect("memory takes what is written");
    let length = writer.finish().expect("memory takes what is written");
    assert_eq!(length, again.len() as u64);
    let (mut reader, same) = StateReader::begin(&again[..]).expect("it was written just now");
    assert_eq!(format!("{same:?}"), format!("{header:?}"));
    for record in &records {
        assert_eq!(reader.read().expect("it was written just now").as_ref(), Some(record));
    }
    assert!(matches!(reader.read(), Ok(None)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_api::calls::COMMANDS;
    use causeway_wire::handshake::{Abilities, OwnVersion};
    use proptest::prelude::*;

    fn header() -> StateHeader {
        let hello = ClientHello {
            offer: OwnVersion::new(COMMANDS).offer,
            pid: 7,
            host: "host".into(),
            program: "program".into(),
            environment: vec![("A".to_owned(), "b".to_owned())],
            lanes: 3,
            abilities: Abilities::ours(&COMMANDS).resuming(60),
            user: "user".into(),
            job: "".into(),
        };
        StateHeader {
            release: "0.2.0".to_owned(),
            version: 5,
            session: SessionId([1; 16]),
            token: LaneToken([2; 32]),
            ticket: LaneToken([3; 32]),
            lanes: 3,
            seconds: 60,
            resume: 60,
            hello,
        }
    }

    fn records() -> Vec<Record> {
        vec![
            Record::Snapshot(vec![1, 2, 3]),
            Record::Link(vec![4]),
            Record::Frame(vec![5; 100]),
            Record::Image { number: 0, bytes: vec![0; MAX_PIECE] },
            Record::Image { number: 0, bytes: (0..=255).collect() },
            Record::Code(CodeRecord {
                owner: 1,
                is_library: true,
                context: 2,
                ranges: vec![(3, 4), (5, 6)],
                variables: vec![VariableRecord {
                    name: "v".to_owned(),
                    address: 3,
                    bytes: 4,
                    pointers: vec![(0, 7)],
                }],
            }),
            Record::Command(CommandRecord {
                context: 1,
                opcode: 2,
                arguments: vec![3; 10],
                image: Some(0),
                reply: Some(vec![4]),
            }),
            Record::Recorded { event: 1, stream: 2, flags: 3, context: 4 },
            Record::Taken(vec![1, 2, 3]),
            Record::Transfer { number: 9, bytes: vec![7; 5000] },
            Record::Memory { context: 1, address: 4096, bytes: vec![9; 4096] },
        ]
    }

    fn file() -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = StateWriter::begin(&mut bytes, &header()).unwrap();
        records().iter().for_each(|record| writer.write(record).unwrap());
        let written = writer.finish().unwrap();
        assert_eq!(written, bytes.len() as u64);
        bytes
    }

    fn read(bytes: &[u8]) -> Result<Vec<Record>, StateFileError> {
        let (mut reader, _) = StateReader::begin(bytes)?;
        let mut found = Vec::new();
        while let Some(record) = reader.read()? {
            found.push(record);
        }
        Ok(found)
    }

    #[test]
    fn what_was_written_is_read() {
        let bytes = file();
        assert_eq!(read(&bytes).unwrap(), records());
        let (_, found) = StateReader::begin(&bytes[..]).unwrap();
        assert_eq!((found.session, found.hello), (header().session, header().hello));
        assert!(bytes.len() < MAX_PIECE / 10, "zeros are compressed: {}", bytes.len());
    }

    #[test]
    fn a_file_that_is_cut_short_anywhere_is_refused() {
        let bytes = file();
        for length in (0..bytes.len()).step_by(7).chain([bytes.len() - 1]) {
            assert!(read(&bytes[..length]).is_err(), "{length} of {}", bytes.len());
        }
    }

    proptest! {
        #[test]
        fn a_file_that_is_damaged_anywhere_is_refused(at in 0_usize..1_000_000, flip in 1_u8..=255) {
            let mut bytes = file();
            let at = at % bytes.len();
            bytes[at] ^= flip;
            prop_assert!(read(&bytes).is_err(), "byte {}", at);
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = read(&[&MAGIC[..], &bytes].concat());
        }
    }
}
