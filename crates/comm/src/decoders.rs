//! Property tests of all decoders of bytes from other ranks. They have proved that they are of the
//! job, and may be wrong all the same: what can be decoded is encoded as bytes that mean the same.

use crate::board::{SLOT_BYTES, Slot};
use crate::bootstrap::MESSAGE_BYTES;
use crate::channels::protocol::Message;
use crate::device::remote::frame::{FRAME_BYTES, Frame};
use crate::device::request::Request;
use crate::device::windows::Announcement;
use crate::job::Job;
use crate::matching::{DESCRIPTOR_BYTES, Descriptor, Source};
use crate::tracer::Traffic;
use crate::verbs::{ENDPOINT_BYTES, EndpointAddress};
use proptest::prelude::*;

/// Bytes of the numbers of which a descriptor is made.
const NUMBERS: usize = 48;

fn message(bytes: &[u8; MESSAGE_BYTES]) {
    if let Some(message) = Message::decode(bytes) {
        assert_eq!(Message::decode(&message.encode()), Some(message));
    }
}

fn end(bytes: &[u8; ENDPOINT_BYTES]) {
    if let Some(end) = EndpointAddress::decode(bytes) {
        assert_eq!(end.encode(), *bytes);
        let slots = end.slots;
        let length = u64::from(slots.count) * u64::from(slots.bytes);
        assert!(slots.memory.address.checked_add(length).is_some(), "{end:?}");
    }
}

fn announcement(bytes: &[u8; MESSAGE_BYTES]) {
    if let Some(announcement) = Announcement::decode(bytes) {
        assert_eq!(announcement.encode(), *bytes);
    }
}

fn request(bytes: &[u8; 16]) {
    let words = bytes.as_chunks::<8>().0;
    let words = core::array::from_fn(|at| u64::from_le_bytes(words[at]));
    if let Ok(request) = Request::decode(words) {
        assert_eq!(Request::decode(request.encode()), Ok(request));
    }
}

fn frame(bytes: &[u8; FRAME_BYTES]) {
    if let Some(frame) = Frame::decode(bytes) {
        assert_eq!(frame.encode(), *bytes);
    }
}

/// Whatever lies on the board is a slot or an error.
fn slot(bytes: &[u8; SLOT_BYTES]) {
    let tag = u64::from_le_bytes(core::array::from_fn(|at| bytes[12 + at]));
    if let Ok(slot) = Slot::decode(bytes, 0, tag) {
        assert_eq!(Slot::decode(&slot.encode(tag), 0, tag), Ok(slot));
    }
}

/// A descriptor with these numbers is read as it was, and one of which a byte is another is none.
fn descriptor(numbers: &[u8; NUMBERS]) {
    let job = Job::new([7; 16], 2).unwrap();
    let long = |at: usize| u64::from_le_bytes(core::array::from_fn(|index| numbers[at + index]));
    let flag = |bit: u32| numbers[40] >> bit & 1 == 1;
    let memory = Source {
        ipc: flag(0),
        export: flag(1),
        direct: flag(2),
        rdma: flag(3),
        gpudirect: flag(4),
        bar: flag(5),
        gpu: long(0),
        buffer: long(8),
        offset: long(16),
    };
    let word = (numbers[41] != 0).then_some(u16::from(numbers[42]));
    let traffic = if flag(6) { Traffic::Bandwidth } else { Traffic::Latency };
    let descriptor =
        Descriptor { from: 1, to: 0, operation: long(24), bytes: long(32), memory, word, traffic };
    let mut encoded = descriptor.encode(&job);
    assert_eq!(Descriptor::decode(&encoded, &job), Some(descriptor));
    let (at, change) = (usize::from(numbers[43]) % DESCRIPTOR_BYTES, numbers[44]);
    encoded[at] ^= change;
    assert_eq!(Descriptor::decode(&encoded, &job).is_some(), change == 0);
}

/// Bytes at random, or those of something valid of which some are others.
fn bytes<const N: usize>(valid: Vec<[u8; N]>) -> impl Strategy<Value = [u8; N]> {
    let changes = proptest::collection::vec((0..N, any::<u8>()), 0..4);
    let changed = (proptest::sample::select(valid), changes).prop_map(|(mut bytes, changes)| {
        changes.into_iter().for_each(|(at, byte)| bytes[at] = byte);
        bytes
    });
    prop_oneof![1 => proptest::array::uniform(any::<u8>()), 3 => changed]
}

fn valid_end() -> [u8; ENDPOINT_BYTES] {
    let mut bytes = [0; ENDPOINT_BYTES];
    bytes[0] = 17;
    bytes[26..28].copy_from_slice(&[5, 16]);
    bytes[40..48].copy_from_slice(&0x7f00_0000_0000_u64.to_le_bytes());
    bytes[52] = 3;
    bytes[58] = 16;
    bytes
}

/// Messages of all kinds that have a number in the first word.
fn valid_messages() -> Vec<[u8; MESSAGE_BYTES]> {
    let kinds = 0..32_u8;
    kinds.map(|kind| core::array::from_fn(|at| if at == 0 { kind } else { 0 })).collect()
}

fn valid_requests() -> Vec<[u8; 16]> {
    let verbs = 0..16_u64;
    verbs
        .map(|verb| core::array::from_fn(|at| if at < 8 { (verb << 59).to_le_bytes()[at] } else { 1 }))
        .collect()
}

fn valid_frames() -> Vec<[u8; FRAME_BYTES]> {
    let kinds = 0..16_u8;
    kinds.map(|kind| core::array::from_fn(|at| if at == 0 { kind } else { u8::from(at == 16) * 8 })).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn messages_mean_the_same_again(bytes in bytes(valid_messages())) {
        message(&bytes);
        announcement(&bytes);
    }

    #[test]
    fn ends_have_one_form_and_slots_that_can_be(bytes in bytes(vec![valid_end()])) {
        end(&bytes);
    }

    #[test]
    fn frames_of_links_have_one_form(bytes in bytes(valid_frames())) {
        frame(&bytes);
    }

    #[test]
    fn requests_mean_the_same_again(bytes in bytes(valid_requests())) {
        request(&bytes);
    }

    #[test]
    fn board_slot_decodes_or_is_an_error(bytes in bytes(vec![[0; SLOT_BYTES]])) {
        slot(&bytes);
    }

    #[test]
    fn descriptor_round_trips_or_is_refused(numbers in proptest::array::uniform::<_, NUMBERS>(any::<u8>())) {
        descriptor(&numbers);
    }
}

#[test]
fn what_is_taken_for_valid_is() {
    assert!(EndpointAddress::decode(&valid_end()).is_some());
    assert!(valid_messages().iter().any(|bytes| Message::decode(bytes).is_some()));
}
