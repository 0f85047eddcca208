//! Reader of a state file.

use std::io::{self, Read};

use causeway_wire::codec::Decoder;
use causeway_wire::compressed::decompress;

use super::checksum::Checksum;
use super::error::StateFileError;
use super::record::{MAGIC, MAX_HEADER, MAX_PIECE, MAX_RECORD, Record, StateHeader, tag};

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

/// A record whose contents have not been looked at.
pub struct RawRecord {
    tag: u8,
    body: Vec<u8>,
}

impl RawRecord {
    /// Whether it is of device memory, which may be taken up in any order.
    pub fn is_memory(&self) -> bool {
        self.tag == tag::MEMORY
    }

    /// Whether it is the last one.
    pub fn is_end(&self) -> bool {
        self.tag == tag::END
    }

    /// Its part of the checksum.
    pub fn checksum(&self) -> Checksum {
        Checksum::of(self.tag, &self.body)
    }

    /// What it says.
    ///
    /// # Errors
    /// When it makes no sense.
    pub fn decode(&self) -> Result<Record, StateFileError> {
        let mut input = Decoder::new(&self.body);
        let record = match self.tag {
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
            other => return Err(StateFileError::Damaged(format!("there is no part of kind {other}"))),
        };
        input.finish()?;
        Ok(record)
    }
}

/// Reads a state file.
pub struct StateReader<R> {
    input: R,
    checksum: Checksum,
}

impl<R: Read> StateReader<R> {
    /// Begins to read.
    ///
    /// # Errors
    /// When there is no header.
    pub fn begin(input: R) -> Result<(Self, StateHeader), StateFileError> {
        let mut reader = Self { input, checksum: Checksum::default() };
        let mut magic = [0; MAGIC.len()];
        reader.take(&mut magic)?;
        if magic != MAGIC {
            return Err(StateFileError::Foreign);
        }
        let raw = reader.record(MAX_HEADER)?;
        if raw.tag != tag::HEADER {
            return Err(StateFileError::Foreign);
        }
        let header = Decoder::new(&raw.body).value()?;
        reader.add(&raw.checksum());
        Ok((reader, header))
    }

    fn take(&mut self, into: &mut [u8]) -> Result<(), StateFileError> {
        self.input.read_exact(into).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => StateFileError::CutShort,
            _ => error.into(),
        })
    }

    /// The next record, of which the checksum has not been taken.
    ///
    /// # Errors
    /// When there is none.
    pub fn next(&mut self) -> Result<RawRecord, StateFileError> {
        self.record(MAX_RECORD)
    }

    fn record(&mut self, limit: usize) -> Result<RawRecord, StateFileError> {
        /// Memory is taken as bytes come, so many at a time.
        const STEP: usize = MAX_PIECE + 256;
        let mut head = [0; 5];
        self.take(&mut head)?;
        let [tag, length @ ..] = head;
        let length = u32::from_le_bytes(length) as usize;
        if length > limit {
            return Err(StateFileError::Damaged(format!(
                "a part announces {length} bytes, and may have {limit}"
            )));
        }
        let mut body = Vec::new();
        while body.len() < length {
            let start = body.len();
            body.resize((start + STEP).min(length), 0);
            self.take(&mut body[start..])?;
        }
        Ok(RawRecord { tag, body })
    }

    /// Notes the checksum of records that have been read.
    pub fn add(&mut self, checksum: &Checksum) {
        self.checksum.add(checksum);
    }

    /// Compares the checksum of all records that were read with what the last one says.
    ///
    /// # Errors
    /// When the file is damaged.
    pub fn verify(&self, end: &RawRecord) -> Result<(), StateFileError> {
        debug_assert!(end.is_end(), "only the last record says so");
        self.checksum.verify(&end.body)
    }

    /// The next part; nothing at the end, where everything has been found to be as it was written.
    ///
    /// # Errors
    /// When it is cut short or damaged.
    pub fn read(&mut self) -> Result<Option<Record>, StateFileError> {
        let raw = self.next()?;
        if raw.is_end() {
            return self.verify(&raw).map(|()| None);
        }
        self.add(&raw.checksum());
        raw.decode().map(Some)
    }
}
