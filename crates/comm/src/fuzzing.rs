//! What must hold for any bytes from another rank, of its processes as of its GPUs. They have proved that they are
//! of the job, and may be wrong all the same.

use crate::board::{SLOT_BYTES, Slot};
use crate::device::peers::Announcement;
use crate::device::request::Request;
use crate::job::Job;
use crate::matching::{DESCRIPTOR_BYTES, Descriptor, Source};
use crate::meeting::MESSAGE_BYTES;
use crate::transfer::message::Message;
use crate::verbs::{END_BYTES, End};

/// The first byte says which decoder gets the others: what can be decoded is encoded as bytes that mean the same.
pub fn ranks(bytes: &[u8]) {
    let Some((which, rest)) = bytes.split_first() else { return };
    match which % 6 {
        0 => rest.first_chunk().into_iter().for_each(message),
        1 => rest.first_chunk().into_iter().for_each(end),
        2 => rest.first_chunk().into_iter().for_each(announcement),
        3 => rest.first_chunk().into_iter().for_each(request),
        4 => rest.first_chunk().into_iter().for_each(slot),
        _ => descriptor(rest),
    }
}

fn message(bytes: &[u8; MESSAGE_BYTES]) {
    if let Some(message) = Message::decode(bytes) {
        assert_eq!(Message::decode(&message.encode()), Some(message));
    }
}

fn end(bytes: &[u8; END_BYTES]) {
    if let Some(end) = End::decode(bytes) {
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

/// Whatever lies on the board is a slot or an error.
fn slot(bytes: &[u8; SLOT_BYTES]) {
    let tag = u64::from_le_bytes(core::array::from_fn(|at| bytes[12 + at]));
    if let Ok(slot) = Slot::decode(bytes, 0, tag) {
        assert_eq!(Slot::decode(&slot.encode(tag), 0, tag), Ok(slot));
    }
}

/// A descriptor with these numbers is read as it was, and one of which a byte is another is none.
fn descriptor(bytes: &[u8]) {
    const NUMBERS: usize = 48;
    let (Some(numbers), Ok(job)) = (bytes.first_chunk::<NUMBERS>(), Job::new([7; 16], 2)) else { return };
    let long = |at: usize| u64::from_le_bytes(core::array::from_fn(|index| numbers[at + index]));
    let flag = |bit: u32| numbers[40] >> bit & 1 == 1;
    let memory = Source {
        ipc: flag(0),
        export: flag(1),
        direct: flag(2),
        card: flag(3),
        gpudirect: flag(4),
        bar: flag(5),
        gpu: long(0),
        buffer: long(8),
        offset: long(16),
    };
    let word = (numbers[41] != 0).then_some(u16::from(numbers[42]));
    let told = Descriptor { from: 1, to: 0, operation: long(24), bytes: long(32), memory, word };
    let mut encoded = told.encode(&job);
    assert_eq!(Descriptor::decode(&encoded, &job), Some(told));
    let (at, change) = (usize::from(numbers[43]) % DESCRIPTOR_BYTES, numbers[44]);
    encoded[at] ^= change;
    assert_eq!(Descriptor::decode(&encoded, &job).is_some(), change == 0);
}

#[cfg(test)]
mod tests {
    /// The seeds of the fuzz target.
    #[test]
    fn the_seeds_hold() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/ranks");
        let mut count = 0;
        for seed in std::fs::read_dir(folder).expect("there are seeds") {
            super::ranks(&std::fs::read(seed.expect("a file").path()).expect("it can be read"));
            count += 1;
        }
        assert!(count >= 6, "{count}");
    }
}
