//! The rules of CUDA, one by one.

use super::{HappensBefore, Refusal};
use crate::program::{
    Await, Buffer, BufferKind, Call, CopyForm, Op, Program, Region, Stream, StreamKind, Work,
};

const LEGACY: usize = 0;
const BLOCKING: usize = 1;
const FREE: usize = 2;
const OTHER: usize = 3;

fn program() -> Program {
    let stream = |kind| Stream { device: 0, kind };
    let buffer = |kind| Buffer { kind, size: 64, device: 0, initial: true };
    Program {
        seed: 0,
        kind: "by hand",
        devices: 1,
        threads: 1,
        events: vec![0],
        streams: [StreamKind::Legacy, StreamKind::Blocking, StreamKind::NonBlocking, StreamKind::NonBlocking]
            .map(stream)
            .to_vec(),
        buffers: [BufferKind::Device, BufferKind::Pinned, BufferKind::Pageable].map(buffer).to_vec(),
        graphs: Vec::new(),
        words: 1,
        uploads_wait: true,
        host_order: true,
        host_sources: true,
        ops: Vec::new(),
    }
}

fn copy(to: usize, from: usize) -> Work {
    let whole = |buffer| Region::linear(buffer, 0, 64);
    Work::Copy { to: whole(to), from: whole(from), form: CopyForm::Directed }
}

fn down(stream: usize) -> Call {
    Call::Enqueue { stream, work: copy(1, 0) }
}

fn read() -> Call {
    Call::Host(Work::HostRead { from: Region::linear(1, 0, 64) })
}

/// Issues calls of which all but the last are in order, and says what becomes of the last.
fn last_of(calls: &[Call]) -> Result<(), Refusal> {
    let program = program();
    let mut order = HappensBefore::new(&program);
    let mut results: Vec<_> =
        calls.iter().map(|call| order.push(&Op { thread: 0, call: call.clone() })).collect();
    let last = results.pop().unwrap_or(Ok(()));
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    last
}

fn is_race(result: Result<(), Refusal>) -> bool {
    matches!(result, Err(Refusal::Race(_)))
}

#[test]
fn a_stream_is_in_order_and_two_are_not() {
    assert_eq!(last_of(&[down(FREE), down(FREE)]), Ok(()));
    assert!(is_race(last_of(&[down(FREE), down(OTHER)])));
}

#[test]
fn an_event_stands_for_what_came_before_its_record() {
    let (record, wait) =
        (Call::Record { event: 0, stream: FREE }, Call::WaitEvent { stream: OTHER, event: 0 });
    assert_eq!(last_of(&[down(FREE), record.clone(), wait.clone(), down(OTHER)]), Ok(()));
    assert!(is_race(last_of(&[record, down(FREE), wait, down(OTHER)])));
}

#[test]
fn the_legacy_default_stream_is_in_order_with_blocking_streams() {
    assert_eq!(last_of(&[down(BLOCKING), down(LEGACY)]), Ok(()));
    assert_eq!(last_of(&[down(LEGACY), down(BLOCKING)]), Ok(()));
    assert!(is_race(last_of(&[down(FREE), down(LEGACY)])));
    assert!(is_race(last_of(&[down(LEGACY), down(FREE)])));
    // A blocking stream without work of its own does not stand for it.
    assert!(is_race(last_of(&[down(LEGACY), Call::Await(Await::Stream(BLOCKING)), read()])));
}

#[test]
fn the_host_has_to_wait() {
    assert!(is_race(last_of(&[down(FREE), read()])));
    assert_eq!(last_of(&[down(FREE), Call::Await(Await::Stream(FREE)), read()]), Ok(()));
    assert_eq!(last_of(&[down(FREE), Call::Await(Await::Context(0)), read()]), Ok(()));
    assert_eq!(last_of(&[Call::Blocking { device: 0, work: copy(1, 0) }, read()]), Ok(()));
}

#[test]
fn pageable_memory_is_read_in_the_call() {
    let write = Call::Host(Work::HostWrite { to: Region::linear(2, 0, 64), key: 1 });
    assert_eq!(last_of(&[Call::Enqueue { stream: FREE, work: copy(0, 2) }, write.clone()]), Ok(()));
    let write_pinned = Call::Host(Work::HostWrite { to: Region::linear(1, 0, 64), key: 1 });
    assert!(is_race(last_of(&[Call::Enqueue { stream: FREE, work: copy(0, 1) }, write_pinned])));
}

#[test]
fn nobody_waits_for_a_stream_that_only_a_later_call_releases() {
    let (stop, go) = (Call::WaitValue { stream: FREE, word: 0 }, Call::WriteValue { stream: OTHER, word: 0 });
    let wait = |stream| Call::Await(Await::Stream(stream));
    assert_eq!(last_of(&[stop.clone(), wait(FREE)]), Err(Refusal::Deadlock));
    assert_eq!(last_of(&[stop.clone(), wait(OTHER)]), Ok(()));
    assert_eq!(last_of(&[stop.clone(), go.clone(), wait(FREE)]), Ok(()));
    let join = [Call::Record { event: 0, stream: FREE }, Call::WaitEvent { stream: OTHER, event: 0 }];
    assert_eq!(last_of(&[&[stop][..], &join, &[go]].concat()), Err(Refusal::Deadlock));
}
