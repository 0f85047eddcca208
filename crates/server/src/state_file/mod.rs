//! State file of a session: what another worker needs to go on with it.
//!
//! It is a stream of records, each a tag byte, a length (`u32`) and so many bytes, which are encoded as messages are. The
//! first one is the header, by which a broker starts a worker; the last one is the [`Checksum`] of all before it. What is
//! long travels in pieces of at most [`MAX_PIECE`] bytes, compressed where that helps. A file that is cut short or
//! damaged is refused, and no length that it names is believed before the bytes are there.
//!
//! Device memory is most of a state. Its pieces may come in any order, so that several threads make them
//! ([`PackedRecord`]) and take them up ([`RawRecord`]).

mod checksum;
mod error;
mod reader;
mod record;
mod writer;

pub use checksum::Checksum;
pub use error::StateFileError;
pub use reader::{RawRecord, StateReader};
pub use record::{CodeRecord, CommandRecord, MAX_HEADER, MAX_PIECE, Record, StateHeader, VariableRecord};
pub use writer::{PackedRecord, StateWriter};

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
pub use tests::records_of;

#[cfg(test)]
mod tests;
