//! What must hold for any bytes from a peer: each function takes an input and panics when something does not.

use causeway_wire::chunk::{CHUNK_HEADER_SIZE, ChunkHeader, Spans};
use causeway_wire::codec::{Decode, Decoder, Encode};
use causeway_wire::frame::{FrameHeader, FrameReader, HEADER_SIZE};
use causeway_wire::handshake::{
    ClientHello, CommandTable, Opening, OwnVersion, PREFACE_SIZE, Preface, PrefaceResponse, Response,
};
use causeway_wire::message::{ClientMessage, Messages, WorkerMessage};
use causeway_wire::sequence::Sequencer;
use causeway_wire::status::{Reply, StatusRequest};

/// The frames of a stream are the same however its bytes come in, and no more memory is used than they need.
pub fn frames(bytes: &[u8]) {
    const LIMIT: usize = 1 << 20;
    let whole = read_frames(bytes, bytes.len().max(1), LIMIT);
    for piece in [1, 23, 24, 25, 1000] {
        assert_eq!(whole, read_frames(bytes, piece, LIMIT), "in pieces of {piece}");
    }
}

/// The bodies of all frames, and whether the stream ended in an error.
fn read_frames(bytes: &[u8], piece: usize, limit: usize) -> (Vec<(FrameHeader, Vec<u8>)>, bool) {
    let mut reader = FrameReader::new(limit);
    let mut sequencer = Sequencer::new();
    let mut frames = Vec::new();
    for mut rest in bytes.chunks(piece) {
        while !rest.is_empty() {
            let space = reader.space();
            assert!(!space.is_empty() && space.len() <= 2 * (limit + HEADER_SIZE));
            let count = space.len().min(rest.len());
            space[..count].copy_from_slice(&rest[..count]);
            reader.filled(count);
            rest = &rest[count..];
            loop {
                match reader.next_frame() {
                    Ok(Some(frame)) => {
                        assert_eq!(FrameHeader::parse(&frame.header.to_bytes(), limit), Ok(frame.header));
                        if sequencer.accept(&frame.header).is_err() {
                            return (frames, true);
                        }
                        frames.push((frame.header, reader.body(&frame).to_vec()));
                    }
                    Ok(None) => break,
                    Err(_) => return (frames, true),
                }
            }
        }
    }
    (frames, false)
}

/// What decodes as messages is encoded as the same bytes again, but for texts that were not printable: these are the same
/// from the second time on.
pub fn messages(bytes: &[u8]) {
    assert!(bytes.starts_with(&encoded_again::<ClientMessage>(bytes)));
    let printable = encoded_again::<WorkerMessage>(bytes);
    assert_eq!(encoded_again::<WorkerMessage>(&printable), printable);
}

/// The messages at the front of `bytes`, up to the first that cannot be decoded, as they are encoded.
fn encoded_again<'a, M: Decode<'a> + Encode>(bytes: &'a [u8]) -> Vec<u8> {
    let mut again = Vec::new();
    for message in Messages::<M>::new(bytes) {
        match message {
            Ok(message) => message.encode(&mut again),
            Err(error) => {
                assert!(!error.to_string().is_empty());
                break;
            }
        }
    }
    again
}

/// The first words of either end, and what is made of them.
pub fn handshake(bytes: &[u8]) {
    if let Some(first) = bytes.first_chunk::<PREFACE_SIZE>() {
        if let Ok(preface) = Preface::parse(first) {
            assert_eq!(preface.to_bytes(), *first);
        }
        if let Ok(answer) = PrefaceResponse::parse(first) {
            assert_eq!(PrefaceResponse::parse(&answer.to_bytes()), Ok(answer));
        }
    }
    let mut again = Vec::new();
    match Decoder::new(bytes).value::<Opening>() {
        Ok(
            ref opening @ (Opening::Session { ref offer, rest }
            | Opening::Monitor { ref offer, rest }
            | Opening::Diagnosis { ref offer, rest }
            | Opening::Status { ref offer, rest }),
        ) => {
            let encode = match opening {
                Opening::Monitor { .. } => Opening::encode_monitor,
                Opening::Diagnosis { .. } => Opening::encode_diagnosis,
                Opening::Status { .. } => Opening::encode_status,
                _ => Opening::encode_session,
            };
            let ours = OwnVersion::new(CommandTable::new(&[5, 6, 7]));
            if let Err(mismatch) = ours.negotiate(offer) {
                assert!(mismatch.to_string().contains("install the same release"));
            }
            if let Ok(hello) = ClientHello::decode_rest(offer.clone(), rest) {
                match ours.common_with_client(&hello) {
                    Ok(common) => assert!(common <= 2 && common <= hello.abilities.commands.count),
                    Err(mismatch) => assert!(mismatch.to_string().contains("contradict each other")),
                }
                encode(&hello, &mut again);
                // What was not printable in the hello is by now.
                let (Opening::Session { offer, rest }
                | Opening::Monitor { offer, rest }
                | Opening::Diagnosis { offer, rest }
                | Opening::Status { offer, rest }) = Decoder::new(&again).value().expect("it is a hello")
                else {
                    panic!("a hello was taken for something else")
                };
                assert_eq!(ClientHello::decode_rest(offer, rest), Ok(hello));
            }
        }
        Ok(Opening::Enrol { key, offer, rest }) => {
            if let Ok(hello) = ClientHello::decode_rest(offer, rest) {
                Opening::encode_enrol(&hello, &key, &mut again);
                let Opening::Enrol { key: found, offer, rest } =
                    Decoder::new(&again).value().expect("it is one")
                else {
                    panic!("an enrolment was taken for something else")
                };
                assert_eq!((found, ClientHello::decode_rest(offer, rest)), (key, Ok(hello)));
            }
        }
        Ok(Opening::Lane(hello)) => {
            Opening::encode_lane(&hello, &mut again);
            assert!(bytes.starts_with(&again));
        }
        Ok(Opening::Upgrade(hello)) => {
            Opening::encode_upgrade(&hello, &mut again);
            assert_eq!(Decoder::new(&again).value::<Opening>(), Ok(Opening::Upgrade(hello)));
        }
        Ok(Opening::Peer(hello)) => {
            Opening::encode_peer(&hello, &mut again);
            assert!(bytes.starts_with(&again));
        }
        Err(_) => {}
    }
    let mut again = Vec::new();
    if let Ok(answer) = Decoder::new(bytes).value::<Response>() {
        answer.encode(&mut again);
        assert_eq!(Decoder::new(&again).value::<Response>(), Ok(answer));
    }
}

/// Questions to a server and its answers, of which an end believes nothing.
pub fn status(bytes: &[u8]) {
    means_the_same::<StatusRequest>(bytes);
    means_the_same::<Reply>(bytes);
}

/// What decodes is encoded as bytes that mean the same.
fn means_the_same<M: for<'a> Decode<'a> + Encode + PartialEq + core::fmt::Debug>(bytes: &[u8]) {
    match Decoder::new(bytes).value::<M>() {
        Ok(message) => {
            let mut again = Vec::new();
            message.encode(&mut again);
            assert_eq!(Decoder::new(&again).value(), Ok(message));
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Chunks are claimed exactly when none of their bytes has been claimed before; the input is a row of
/// headers.
pub fn chunks(bytes: &[u8]) {
    const TOTAL: u64 = 4096;
    let mut spans = Spans::default();
    let mut claimed = [false; TOTAL as usize];
    let (headers, _) = bytes.as_chunks::<CHUNK_HEADER_SIZE>();
    for header in headers {
        let Ok(chunk) = ChunkHeader::parse(header) else { continue };
        assert_eq!(chunk.to_bytes(), *header);
        assert!(chunk.end() <= chunk.total);
        if chunk.total != TOTAL {
            continue;
        }
        let place = &mut claimed[chunk.offset as usize..chunk.end() as usize];
        let free = !place.contains(&true);
        assert_eq!(spans.claim(&chunk).is_ok(), free, "{chunk:?}");
        if free {
            place.fill(true);
        }
        assert_eq!(spans.covers(TOTAL), !claimed.contains(&false));
    }
}
