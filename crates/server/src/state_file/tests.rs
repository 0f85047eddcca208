//! State files: what was written is read, and nothing else.

use super::record::MAGIC;
use super::*;
use causeway_api::calls::COMMANDS;
use causeway_wire::handshake::{Abilities, OwnVersion};
use causeway_wire::handshake::{ClientHello, LaneToken, SessionId};
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
        fork: None,
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

/// Records as they are read.
pub fn records_of(records: impl Iterator<Item = Record>) -> Vec<RawRecord> {
    let mut bytes = Vec::new();
    let mut writer = StateWriter::begin(&mut bytes, &header()).unwrap();
    let count = records.map(|record| writer.write(&record).unwrap()).count();
    writer.finish().unwrap();
    let mut reader = StateReader::begin(&bytes[..]).unwrap().0;
    (0..count).map(|_| reader.next().unwrap()).collect()
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
