//! Tests of the journal: what is left of commands that undo each other.

use super::*;
use causeway_api::calls::{Opcode, Request};
use causeway_api::handle::{Context, Event, Handle, Kind, Stream};
use causeway_wire::codec::Encode;

const CONTEXT: u64 = 0x77;

fn handle<K: Kind>(number: u32) -> u64 {
    Handle::<K>::new(number, 1).value()
}

/// Notes a command that has these arguments, and answered with `reply`.
fn note(journal: &Journal, opcode: Opcode, context: u64, arguments: &impl Encode, reply: u64) {
    let (mut bytes, mut answer) = (Vec::new(), Vec::new());
    arguments.encode(&mut bytes);
    reply.encode(&mut answer);
    let request = Request::decode(opcode, &bytes).unwrap();
    let command =
        Executed { request: &request, opcode, context, arguments: &bytes, reply: &answer, image: None };
    journal.record(&command);
}

fn opcodes(journal: &Journal) -> Vec<Opcode> {
    journal.entries().iter().map(|entry| entry.opcode).collect()
}

#[test]
fn what_is_destroyed_leaves_nothing_and_what_is_recorded_last_counts() {
    let journal = Journal::recording();
    let (stream, event) = (handle::<Stream>(1), handle::<Event>(2));
    note(&journal, Opcode::stream_create, CONTEXT, &(stream, 1_u32, 0_i32), 0);
    note(&journal, Opcode::event_create, CONTEXT, &(event, 0_u32), 0);
    for flags in [0_u32, 1] {
        note(&journal, Opcode::event_record, CONTEXT, &(event, stream, flags), 0);
    }
    note(&journal, Opcode::stream_synchronize, CONTEXT, &stream, 0);
    assert_eq!(opcodes(&journal), [Opcode::stream_create, Opcode::event_create]);
    let recorded = Recorded { event, stream, flags: 1, context: CONTEXT };
    assert_eq!(journal.recorded(), [recorded]);
    // What was recorded in a stream that has ended is done.
    note(&journal, Opcode::stream_destroy, CONTEXT, &stream, 0);
    assert_eq!(journal.recorded(), [Recorded { stream: 0, ..recorded }]);
    note(&journal, Opcode::event_destroy, CONTEXT, &event, 0);
    assert!(journal.entries().is_empty() && journal.recorded().is_empty());
}

#[test]
fn what_was_made_in_a_context_ends_with_it() {
    let journal = Journal::recording();
    let context = handle::<Context>(1);
    note(&journal, Opcode::context_create, 0, &(context, 0_i32, 0_u32), 0);
    note(&journal, Opcode::stream_create, context, &(handle::<Stream>(1), 1_u32, 0_i32), 0);
    note(&journal, Opcode::mirror_create, context, &(0x1000_u64, 64_usize, 0_u32), 0x1000);
    note(&journal, Opcode::mirror_create, CONTEXT, &(0x2000_u64, 64_usize, 0_u32), 0x2000);
    let mirrors: Vec<_> = journal.entries().into_iter().filter_map(|entry| entry.reply).collect();
    assert_eq!(mirrors, [0x1000_u64, 0x2000].map(|address| Box::from(address.to_le_bytes())));
    note(&journal, Opcode::context_destroy, 0, &context, 0);
    assert_eq!(opcodes(&journal), [Opcode::mirror_create]);
    note(&journal, Opcode::mirror_free, CONTEXT, &0x2000_u64, 0);
    assert!(journal.entries().is_empty());
}

#[test]
fn what_cannot_be_done_again_is_a_hindrance_while_it_lasts() {
    let journal = Journal::recording();
    assert_eq!(journal.hindrance(), None);
    note(&journal, Opcode::memory_allocate, CONTEXT, &64_usize, 0x5000);
    note(&journal, Opcode::memory_allocate, CONTEXT, &64_usize, 0x6000);
    let hindrance = journal.hindrance().unwrap();
    assert!(hindrance.contains("0x5000") && hindrance.contains("1 thing(s) more"), "{hindrance}");
    for address in [0x5000_u64, 0x6000] {
        note(&journal, Opcode::memory_free, CONTEXT, &address, 0);
    }
    assert_eq!(journal.hindrance(), None);
    assert!(journal.entries().is_empty());
}

#[test]
fn where_none_is_kept_nothing_is() {
    let journal = Journal::default();
    note(&journal, Opcode::event_create, CONTEXT, &(handle::<Event>(2), 0_u32), 0);
    assert!(!journal.is_recording() && journal.entries().is_empty() && journal.hindrance().is_none());
}
