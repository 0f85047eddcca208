//! Whatever is encoded decodes as the same, and any bytes at all are decoded or refused.

#[path = "../../../fuzz/src/lib.rs"]
mod targets;

use causeway_wire::chunk::{ChunkHeader, MAX_CHUNK};
use causeway_wire::codec::{Decoder, Encode};
use causeway_wire::frame::{FrameHeader, FrameKind, MAX_BODY};
use causeway_wire::handshake::{
    Abilities, ClientHello, Features, JoinHello, KnownCommands, LaneHello, LaneToken, Locality, NewKey,
    Offer, Opening, Response, SessionId, SharedMemory, UpgradeHello, VersionRange, Welcome,
};
use causeway_wire::message::{ClientMessage, Command, Messages, WorkerMessage};
use proptest::collection::vec;
use proptest::prelude::*;

/// A message of a client that owns its payload: the fields of a command, a token, an image, or the end.
#[derive(Debug, Clone)]
enum FromClient {
    Command(u32, u32, u64, u16, Vec<u8>),
    HostDone(u64),
    Image(u64, Vec<u8>),
    Goodbye,
}

impl FromClient {
    fn borrow(&self) -> ClientMessage<'_> {
        match self {
            Self::Command(call, thread, context, opcode, payload) => ClientMessage::Command(Command {
                call: *call,
                thread: *thread,
                context: *context,
                opcode: *opcode,
                payload,
            }),
            Self::HostDone(token) => ClientMessage::HostDone { token: *token },
            Self::Image(transfer, bytes) => ClientMessage::Image { transfer: *transfer, bytes },
            Self::Goodbye => ClientMessage::Goodbye,
        }
    }
}

fn from_client() -> impl Strategy<Value = FromClient> {
    prop_oneof![
        (any::<u32>(), any::<u32>(), any::<u64>(), any::<u16>(), vec(any::<u8>(), 0..200)).prop_map(
            |(call, thread, context, opcode, payload)| {
                FromClient::Command(call, thread, context, opcode, payload)
            }
        ),
        any::<u64>().prop_map(FromClient::HostDone),
        (any::<u64>(), vec(any::<u8>(), 0..200))
            .prop_map(|(transfer, bytes)| FromClient::Image(transfer, bytes)),
        Just(FromClient::Goodbye),
    ]
}

fn text() -> impl Strategy<Value = String> {
    vec(any::<char>(), 0..20).prop_map(|letters| letters.into_iter().collect())
}

fn offer() -> impl Strategy<Value = Offer> {
    (any::<u16>(), any::<u16>(), any::<u64>(), text()).prop_map(|(oldest, newest, fingerprint, release)| {
        Offer { versions: VersionRange { oldest, newest }, fingerprint, release: release.into() }
    })
}

fn abilities() -> impl Strategy<Value = Abilities> {
    (any::<u16>(), any::<u64>(), any::<u64>(), any::<u32>()).prop_map(
        |(count, fingerprint, features, resume_seconds)| Abilities {
            commands: KnownCommands { count, fingerprint },
            features: Features(features),
            resume_seconds,
        },
    )
}

fn client_hello() -> impl Strategy<Value = ClientHello> {
    let of_whom = (text(), text());
    let parts = (
        offer(),
        any::<u32>(),
        text(),
        text(),
        vec((text(), text()), 0..5),
        any::<u32>(),
        abilities(),
        of_whom,
    );
    parts.prop_map(|(offer, pid, host, program, environment, lanes, abilities, (user, job))| ClientHello {
        offer,
        pid,
        host: host.into(),
        program: program.into(),
        environment,
        lanes,
        abilities,
        user: user.into(),
        job: job.into(),
        fork: (pid % 2 == 1).then_some(LaneToken([pid as u8; 32])),
    })
}

proptest! {
    #[test]
    fn messages_of_clients(messages in vec(from_client(), 0..20)) {
        let mut body = Vec::new();
        messages.iter().for_each(|message| message.borrow().encode(&mut body));
        let decoded: Vec<_> = Messages::<ClientMessage>::new(&body).collect::<Result<_, _>>().unwrap();
        prop_assert_eq!(decoded, messages.iter().map(FromClient::borrow).collect::<Vec<_>>());
    }

    #[test]
    fn messages_of_workers(call: u32, status: u32, opcode: u16, number: u64, payload in vec(any::<u8>(), 0..99), text in text()) {
        let messages = [
            WorkerMessage::Reply { call, status, payload: &payload },
            WorkerMessage::Failed { opcode, status },
            WorkerMessage::HostCall { token: number },
            WorkerMessage::Output { bytes: &payload },
            WorkerMessage::Reached { token: number, status },
            WorkerMessage::TransferFailed { transfer: number, status },
            WorkerMessage::Fatal { text: text.into() },
        ];
        let mut body = Vec::new();
        messages.iter().for_each(|message| message.encode(&mut body));
        let decoded: Vec<_> = Messages::<WorkerMessage>::new(&body).collect::<Result<_, _>>().unwrap();
        prop_assert_eq!(decoded, messages);
    }

    #[test]
    fn headers_of_frames(length in 0..=MAX_BODY as u32, sequence: u64, acknowledgement: u64) {
        let header = FrameHeader { kind: FrameKind::Messages, length, sequence, acknowledgement };
        prop_assert_eq!(FrameHeader::parse(&header.to_bytes(), MAX_BODY), Ok(header));
    }

    #[test]
    fn headers_of_chunks(transfer: u64, offset in 0..1_u64 << 50, length in 1..=MAX_CHUNK, after in 0..1_u64 << 50) {
        let chunk = ChunkHeader { transfer, offset, total: offset + u64::from(length) + after, length };
        prop_assert_eq!(ChunkHeader::parse(&chunk.to_bytes()), Ok(chunk));
    }

    #[test]
    fn openings(hello in client_hello(), session: [u8; 16], token: [u8; 32], lane: u32) {
        let mut bytes = Vec::new();
        Opening::encode_session(&hello, &mut bytes);
        match Decoder::new(&bytes).value().unwrap() {
            Opening::Session { offer, rest } => {
                prop_assert_eq!(&ClientHello::decode_rest(offer, rest).unwrap(), &hello);
            }
            other => prop_assert!(false, "a session was taken for {other:?}"),
        }
        let mut bytes = Vec::new();
        Opening::encode_monitor(&hello, &mut bytes);
        match Decoder::new(&bytes).value().unwrap() {
            Opening::Monitor { offer, rest } => {
                prop_assert_eq!(&ClientHello::decode_rest(offer, rest).unwrap(), &hello);
            }
            other => prop_assert!(false, "a monitoring session was taken for {other:?}"),
        }
        let mut bytes = Vec::new();
        Opening::encode_diagnosis(&hello, &mut bytes);
        match Decoder::new(&bytes).value().unwrap() {
            Opening::Diagnosis { offer, rest } => {
                prop_assert_eq!(&ClientHello::decode_rest(offer, rest).unwrap(), &hello);
            }
            other => prop_assert!(false, "a diagnosis was taken for {other:?}"),
        }
        let mut bytes = Vec::new();
        Opening::encode_enrol(&hello, &NewKey(token), &mut bytes);
        match Decoder::new(&bytes).value().unwrap() {
            Opening::Enrol { key, offer, rest } => {
                prop_assert_eq!(key, NewKey(token));
                prop_assert_eq!(&ClientHello::decode_rest(offer, rest).unwrap(), &hello);
            }
            other => prop_assert!(false, "an enrolment was taken for {other:?}"),
        }
        let lane = LaneHello { session: SessionId(session), token: LaneToken(token), lane };
        let mut bytes = Vec::new();
        Opening::encode_lane(&lane, &mut bytes);
        prop_assert_eq!(Decoder::new(&bytes).value(), Ok(Opening::Lane(lane)));
        let join = JoinHello { session: lane.session, token: lane.token };
        bytes.clear();
        Opening::encode_upgrade(&UpgradeHello::Join(join), &mut bytes);
        prop_assert_eq!(Decoder::new(&bytes).value(), Ok(Opening::Upgrade(UpgradeHello::Join(join))));
    }

    #[test]
    fn answers(version: u16, session: [u8; 16], token: [u8; 32], lanes: u32, release in text(), boot_id in text(), sockets in vec(text(), 0..4), abilities in abilities(), snapshot in vec(any::<u8>(), 0..300)) {
        let welcome = Welcome { version, session: SessionId(session), token: LaneToken(token), lanes, release: release.as_str().into(), locality: Locality { boot_id, sockets }, abilities, snapshot };
        let memory = Response::SharedMemory(SharedMemory { upload_slots: version.into(), download_slots: lanes });
        for answer in [Response::Welcome(welcome), memory, Response::LaneReady, Response::MonitorReady, Response::DiagnosisReady, Response::Enrolled, Response::Refused { text: release.into() }] {
            let mut bytes = Vec::new();
            answer.encode(&mut bytes);
            prop_assert_eq!(Decoder::new(&bytes).value(), Ok(answer));
        }
    }

    #[test]
    fn any_bytes_at_all(bytes in vec(any::<u8>(), 0..300)) {
        targets::frames(&bytes);
        targets::messages(&bytes);
        targets::handshake(&bytes);
        targets::status(&bytes);
        targets::chunks(&bytes);
    }

    /// Random headers are hardly ever valid, so these are made of small numbers.
    #[test]
    fn chunks_in_any_order(chunks in vec((0..64_u64, 1..16_u32), 0..60)) {
        let mut bytes = Vec::new();
        for (offset, length) in chunks {
            let (offset, length) = (offset * 64, (length * 64).min(4096 - offset as u32 * 64));
            bytes.extend(ChunkHeader { transfer: 1, offset, total: 4096, length }.to_bytes());
        }
        targets::chunks(&bytes);
    }
}
