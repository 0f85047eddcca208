//! Writer of a state file.

use std::io::{self, Write};

use causeway_wire::codec::Encode as _;
use causeway_wire::compressed::compress;

use super::checksum::Checksum;
use super::record::{MAGIC, Record, StateHeader, tag};

/// From this length on a piece's beginning is compressed first, in bytes: where that does not help, the rest does not either
/// as a rule, and trying takes longer than all else that is done with it.
const SAMPLE: usize = 32 << 10;

/// Bytes, compressed where that helps.
fn pack(bytes: &[u8], out: &mut Vec<u8>) {
    let at = out.len();
    out.push(1);
    let is_hopeless = bytes.len() > 2 * SAMPLE && {
        let helps = compress(&bytes[..SAMPLE], out);
        out.truncate(at + 1);
        !helps
    };
    if is_hopeless || !compress(bytes, out) {
        out[at] = 0;
        out.extend_from_slice(bytes);
    }
}

/// A record as it stands in a file.
pub struct PackedRecord {
    bytes: Vec<u8>,
    checksum: Checksum,
}

/// Bytes in front of a record's body: the tag and its length.
const HEAD_SIZE: usize = 5;

impl PackedRecord {
    fn new(tag: u8, capacity: usize, encode: impl FnOnce(&mut Vec<u8>)) -> Self {
        let mut bytes = Vec::with_capacity(HEAD_SIZE + capacity);
        bytes.resize(HEAD_SIZE, 0);
        encode(&mut bytes);
        let (head, body) = bytes.split_at_mut(HEAD_SIZE);
        head[0] = tag;
        head[1..].copy_from_slice(&(body.len() as u32).to_le_bytes());
        let checksum = Checksum::of(tag, body);
        Self { bytes, checksum }
    }

    /// Bytes of device memory, as a context reads them.
    pub fn memory(context: u64, address: u64, bytes: &[u8]) -> Self {
        Self::new(tag::MEMORY, bytes.len() + 64, |out| {
            (context, address).encode(out);
            pack(bytes, out);
        })
    }

    fn of(record: &Record) -> Self {
        let plain = |tag, bytes: &[u8]| Self::new(tag, bytes.len(), |out| out.extend_from_slice(bytes));
        match record {
            Record::Snapshot(bytes) => plain(tag::SNAPSHOT, bytes),
            Record::Link(bytes) => plain(tag::LINK, bytes),
            Record::Frame(bytes) => plain(tag::FRAME, bytes),
            Record::Image { number, bytes } => Self::new(tag::IMAGE, bytes.len(), |out| {
                number.encode(out);
                pack(bytes, out);
            }),
            Record::Code(code) => Self::new(tag::CODE, 0, |out| code.encode(out)),
            Record::Command(command) => Self::new(tag::COMMAND, 0, |out| command.encode(out)),
            Record::Recorded { event, stream, flags, context } => Self::new(tag::RECORDED, 0, |out| {
                (*event, *stream, *flags).encode(out);
                context.encode(out);
            }),
            Record::Taken(numbers) => Self::new(tag::TAKEN, 0, |out| numbers.encode(out)),
            Record::Transfer { number, bytes } => Self::new(tag::TRANSFER, bytes.len(), |out| {
                number.encode(out);
                pack(bytes, out);
            }),
            Record::Memory { context, address, bytes } => Self::memory(*context, *address, bytes),
            Record::Mirror { address, at, bytes, agreed } => Self::new(tag::MIRROR, bytes.len(), |out| {
                (*address, *at).encode(out);
                agreed.encode(out);
                pack(bytes, out);
            }),
        }
    }
}

/// Writes a state file.
pub struct StateWriter<W> {
    out: W,
    checksum: Checksum,
    written: u64,
}

impl<W: Write> StateWriter<W> {
    /// Begins a file.
    pub fn begin(mut out: W, header: &StateHeader) -> io::Result<Self> {
        out.write_all(&MAGIC)?;
        let mut writer = Self { out, checksum: Checksum::default(), written: MAGIC.len() as u64 };
        writer.append(&PackedRecord::new(tag::HEADER, 0, |out| header.encode(out)))?;
        Ok(writer)
    }

    /// Appends a part.
    pub fn write(&mut self, record: &Record) -> io::Result<()> {
        self.append(&PackedRecord::of(record))
    }

    /// Appends a part that was made before.
    pub fn append(&mut self, record: &PackedRecord) -> io::Result<()> {
        self.checksum.add(&record.checksum);
        self.put(&record.bytes)
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.written += bytes.len() as u64;
        self.out.write_all(bytes)
    }

    /// Has what was written so far arrive, so that others can begin with it.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// Ends the file, and says how many bytes it has.
    pub fn finish(mut self) -> io::Result<u64> {
        let checksum = self.checksum.to_bytes();
        let last = PackedRecord::new(tag::END, checksum.len(), |out| out.extend_from_slice(&checksum));
        self.put(&last.bytes)?;
        self.out.flush()?;
        Ok(self.written)
    }
}
