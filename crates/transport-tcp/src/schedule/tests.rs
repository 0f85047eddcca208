use super::in_flight_chunks::CHUNKS_PER_ACKNOWLEDGEMENT;
use super::*;
use causeway_transport::{Address, TransferOptions};
use causeway_wire::chunk::ChunkHeader;
use proptest::prelude::*;
use std::collections::HashMap;
use std::sync::Arc;

const K: usize = 1 << 10;

fn order(transfer: u64, length: usize, flow: u64, lanes: usize) -> OutgoingTransfer {
    let options = TransferOptions { flow, lanes, ..TransferOptions::default() };
    OutgoingTransfer { transfer, start: Address(core::ptr::null()), length, options, guard: None }
}

/// A schedule whose lanes have told their numbers.
fn with_lanes(count: u32) -> Schedule {
    with_lanes_that(false, count)
}

fn with_lanes_that(refers: bool, count: u32) -> Schedule {
    let mut schedule = Schedule::default();
    for number in 0..count {
        schedule.add_lane(Some(number), refers);
    }
    for _ in 0..count {
        let task = schedule.take(None).unwrap();
        assert_eq!(task.records, [LaneRecord::Number(task.lane as u32)]);
        schedule.sent(&task, true);
    }
    schedule
}

fn chunk(task: &Task) -> ChunkHeader {
    task.chunk.unwrap_or_else(|| panic!("{task:?} has no chunk")).header
}

#[test]
fn flows_take_turns_and_begin_in_order() {
    let mut schedule = with_lanes(1);
    for (transfer, flow) in [(1, 10), (2, 10), (3, 20)] {
        schedule.post(order(transfer, 512 * K, flow, 8));
    }
    let mut sent = Vec::new();
    while let Some(task) = schedule.take(None) {
        sent.push((chunk(&task).transfer, chunk(&task).offset as usize / K));
        assert!(schedule.take(None).is_none() && !schedule.has_task(), "the lane is busy");
        schedule.sent(&task, true);
    }
    assert_eq!(sent, [(1, 0), (3, 0), (1, 256), (3, 256), (2, 0), (2, 256)]);
}

#[test]
fn a_transfer_takes_no_more_lanes_than_it_may_and_the_next_one_takes_the_rest() {
    let mut schedule = with_lanes(4);
    let (first, _) = schedule.post(order(1, 4096 * K, 0, 2));
    schedule.post(order(2, 4096 * K, 0, 8));
    let tasks: Vec<_> = core::iter::from_fn(|| schedule.take(None)).collect();
    let transfers: Vec<_> = tasks.iter().map(|task| chunk(task).transfer).collect();
    assert_eq!(transfers, [1, 1, 2, 2]);
    let lanes: std::collections::HashSet<_> = tasks.iter().map(|task| task.lane).collect();
    assert_eq!(lanes.len(), 4);
    assert!(schedule.take(Some(first)).is_none());
    schedule.sent(&tasks[3], true);
    assert!(schedule.take(Some(first)).is_none(), "two lanes have it already");
    assert!(schedule.take(None).is_some());
}

#[test]
fn a_lane_shows_that_it_works_when_it_has_carried_nothing_else() {
    let mut schedule = Schedule::default();
    schedule.add_lane(Some(5), false);
    schedule.add_lane(None, false);
    assert_eq!(schedule.take_keepalive(0), None, "its number comes first");
    assert_eq!(schedule.take_keepalive(1), None, "it has no number");
    assert_eq!(schedule.take_keepalive(2), None, "there is no such lane");
    let number = schedule.take(None).unwrap();
    assert_eq!(schedule.take_keepalive(0), None, "the lane is busy");
    schedule.sent(&number, true);
    assert_eq!(schedule.take_keepalive(0), None, "its number says as much");
    for received in 0..3 {
        let keepalive = schedule.take_keepalive(0).unwrap();
        assert_eq!(keepalive.records, [LaneRecord::Received { lane: 5, received }]);
        schedule.post(order(received, K, 0, 8));
        assert!(schedule.take(None).is_none(), "the lane is busy");
        schedule.sent(&keepalive, true);
        let task = schedule.take(None).unwrap();
        schedule.sent(&task, true);
        assert_eq!(schedule.take_keepalive(0), None, "it has carried a chunk");
        schedule.received(0);
    }
    let last = schedule.take_keepalive(0).unwrap();
    schedule.sent(&last, false);
    assert_eq!(schedule.take_keepalive(0), None, "it has failed");
}

#[test]
fn a_lane_that_is_free_at_once_does_not_get_everything() {
    let mut schedule = with_lanes_that(true, 4);
    schedule.post(order(1, 2048 * K, 0, 2));
    let mut lanes = Vec::new();
    while let Some(task) = schedule.take(None) {
        lanes.push(task.lane);
        schedule.sent(&task, true);
        if lanes.len() == 4 {
            schedule.acknowledged(1, 2).unwrap();
        }
    }
    assert_eq!(lanes, [0, 1, 0, 1], "512 KiB each, on the two lanes that it may have");
    schedule.post(order(2, 768 * K, 0, 8));
    let next: Vec<_> = core::iter::from_fn(|| schedule.take(None)).map(|task| task.lane).collect();
    assert_eq!(next, [1, 2, 3], "what is on lane 0 has not arrived");
}

#[test]
fn fewer_threads_send_what_is_not_copied() {
    for (refers, steady, senders) in [(true, true, 2), (true, false, 4), (false, true, 4)] {
        let mut schedule = with_lanes_that(refers, 4);
        let OutgoingTransfer { options, .. } = order(1, 1024 * K, 0, 8);
        schedule.post(OutgoingTransfer {
            options: TransferOptions { steady, ..options },
            ..order(1, 1024 * K, 0, 8)
        });
        assert_eq!(schedule.senders(), senders, "{refers} {steady}");
    }
}

#[test]
fn those_who_wait_hear_of_what_they_wait_for_and_of_nothing_else() {
    let mut schedule = with_lanes(2);
    schedule.post(order(1, 512 * K, 0, 8));
    let tasks = [schedule.take(None).unwrap(), schedule.take(None).unwrap()];
    schedule.sent(&tasks[0], true);
    assert!(!schedule.take_progress(), "half of it is being sent");
    schedule.sent(&tasks[1], true);
    assert!(schedule.take_progress() && !schedule.take_progress(), "its memory is not read any more");
    schedule.acknowledged(0, 1).unwrap();
    assert!(!schedule.take_progress());
    schedule.acknowledged(1, 1).unwrap();
    assert!(schedule.take_progress(), "the peer has it");
    schedule.peer_report(1, 1, 8).unwrap();
    assert!(schedule.take_progress(), "nothing is at risk on a lane whose end is known");
}

#[test]
fn memory_is_kept_until_the_peer_has_it() {
    let mut schedule = with_lanes(2);
    let kept = Arc::new(());
    let guard: Option<BufferGuard> = Some(Box::new(Arc::clone(&kept)));
    let (id, is_short) = schedule.post(OutgoingTransfer { guard, ..order(1, 300 * K, 0, 8) });
    assert!(!is_short && !schedule.is_consumed(id));
    let tasks = [schedule.take(None).unwrap(), schedule.take(None).unwrap()];
    assert!(schedule.is_in_flight(id) && schedule.take(None).is_none());
    tasks.iter().for_each(|task| schedule.sent(task, true));
    assert!(schedule.is_consumed(id) && !schedule.is_in_flight(id));
    schedule.acknowledged(0, 1).unwrap();
    assert!(schedule.take_finished().is_empty());
    schedule.acknowledged(1, 1).unwrap();
    drop(schedule.take_finished());
    assert_eq!(Arc::strong_count(&kept), 1);
    assert_eq!(schedule.acknowledged(1, 0), Ok(()), "old news");
    assert_eq!(schedule.acknowledged(1, 2), Err(LaneError::Count { found: 2, sent: 1 }));
    assert_eq!(schedule.acknowledged(2, 0), Err(LaneError::Number(2)));
}

#[test]
fn an_empty_transfer_is_one_empty_chunk() {
    let mut schedule = with_lanes(1);
    let (id, is_short) = schedule.post(order(1, 0, 0, 8));
    let task = schedule.take(None).unwrap();
    assert!(is_short && (chunk(&task).length, chunk(&task).total) == (0, 0));
    schedule.sent(&task, true);
    assert!(schedule.is_consumed(id) && schedule.take(None).is_none());
}

#[test]
fn exactly_what_a_lane_lost_is_sent_again() {
    let mut schedule = with_lanes(2);
    let (id, _) = schedule.post(order(1, 1024 * K, 0, 8));
    let mut of_first = Vec::new();
    for _ in 0..2 {
        let both = [0, 1].map(|lane| schedule.take(None).filter(|task| task.lane == lane).unwrap());
        of_first.push(chunk(&both[0]));
        both.iter().for_each(|task| schedule.sent(task, true));
    }
    assert!(schedule.is_consumed(id) && schedule.may_release(id));
    // The peer has one of the two.
    assert_eq!(schedule.peer_report(0, 1, 8), Ok(Some(0)));
    assert!(!schedule.is_consumed(id));
    let again = schedule.take(None).unwrap();
    assert_eq!((again.lane, chunk(&again)), (1, of_first[1]));
    schedule.sent(&again, true);
    assert!(schedule.is_consumed(id) && schedule.take(None).is_none());
    // A second report of the same lane says nothing new.
    assert_eq!(schedule.peer_report(0, 0, 8), Ok(None));
    schedule.acknowledged(1, 3).unwrap();
    assert!(schedule.orders.is_empty());
}

#[test]
fn memory_is_not_given_back_while_a_dead_lane_may_have_lost_it_and_not_repaired_afterwards() {
    let mut schedule = with_lanes(2);
    let (id, _) = schedule.post(order(1, 10, 0, 8));
    let task = schedule.take(None).unwrap();
    schedule.sent(&task, true);
    schedule.ended(task.lane);
    assert!(schedule.is_consumed(id) && !schedule.may_release(id));
    let (id, _) = schedule.post(order(2, 10, 0, 8));
    let other = schedule.take(None).unwrap();
    assert_eq!(other.records[0], LaneRecord::Ended { lane: task.lane as u32, received: 0 });
    assert_eq!(chunk(&other).transfer, 2);
    schedule.sent(&other, true);
    schedule.release(id);
    assert_eq!(schedule.peer_report(other.lane as u32, 0, 8), Err(LaneError::Unrepeatable));
    assert_eq!(schedule.peer_report(9, 0, 8), Err(LaneError::Number(9)));
}

#[test]
fn what_came_is_told_at_once_for_all_lanes_and_again_when_a_lane_ends() {
    let mut schedule = with_lanes(2);
    let ack = |lane, received| LaneRecord::Received { lane, received };
    schedule.received(0);
    schedule.received(1);
    assert!(schedule.take(None).is_none());
    schedule.acknowledge();
    let task = schedule.take(None).unwrap();
    assert_eq!(task.records, [ack(0, 1), ack(1, 1)]);
    assert!(schedule.take(None).is_none());
    schedule.sent(&task, true);
    for _ in 1..CHUNKS_PER_ACKNOWLEDGEMENT {
        schedule.received(0);
        assert!(!schedule.has_task());
    }
    schedule.received(0);
    assert!(schedule.has_task());
    schedule.ended(0);
    let report = schedule.take(None).unwrap();
    let received = 1 + CHUNKS_PER_ACKNOWLEDGEMENT;
    // What lane 1 got may have been told on the lane that has ended.
    assert_eq!(report.records, [LaneRecord::Ended { lane: 0, received }, ack(0, received), ack(1, 1)]);
    assert_eq!((report.lane, schedule.live()), (1, 1));
}

#[test]
fn what_came_is_told_along_with_a_chunk() {
    let mut schedule = with_lanes(1);
    schedule.received(0);
    schedule.acknowledge();
    schedule.post(order(1, 10, 0, 8));
    let task = schedule.take(None).unwrap();
    assert_eq!(task.records[0], LaneRecord::Received { lane: 0, received: 1 });
    assert_eq!((task.records.len(), chunk(&task).length), (1, 10));
}

#[test]
fn memory_that_the_kernel_may_read_is_kept_until_the_peer_has_it() {
    let mut schedule = with_lanes(1);
    let steady = |transfer| {
        let plain = order(transfer, 10, 0, 8);
        OutgoingTransfer { options: TransferOptions { steady: true, ..plain.options }, ..plain }
    };
    let (id, _) = schedule.post(steady(1));
    let task = schedule.take(None).unwrap();
    assert!(task.chunk.unwrap().steady);
    schedule.sent(&task, true);
    assert!(schedule.is_consumed(id) && !schedule.may_release(id));
    schedule.acknowledged(0, 1).unwrap();
    assert!(schedule.may_release(id));
}

#[test]
fn a_lane_that_died_before_its_number_came_has_carried_nothing() {
    let mut schedule = with_lanes(1);
    let late = schedule.add_lane(None, false);
    assert_eq!(schedule.peer_report(5, 0, 8), Ok(None));
    let response = schedule.take(None).unwrap();
    assert_eq!(response.records, [LaneRecord::Ended { lane: 5, received: 0 }]);
    assert_eq!(schedule.number(late, 5, 8), Ok(false));
    let other = schedule.add_lane(None, false);
    for wrong in [0, 5, 8] {
        assert_eq!(schedule.number(other, wrong, 8), Err(LaneError::Number(wrong)));
    }
    assert_eq!(schedule.number(other, 6, 8), Ok(true));
}

/// What happens to a pair of ends next.
#[derive(Debug, Clone)]
enum Step {
    Post(usize, u64),
    /// A chunk leaves, and comes at once.
    Move,
    /// A chunk leaves, and is on its way.
    Delay,
    /// A lane dies with what is on its way.
    Kill(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (0..2000 * K, 0_u64..3).prop_map(|(length, flow)| Step::Post(length, flow)),
        6 => Just(Step::Move),
        4 => Just(Step::Delay),
        1 => (0_usize..4).prop_map(Step::Kill),
    ]
}

proptest! {
    /// Whatever lanes die, as long as one lives every byte comes exactly once.
    #[test]
    fn every_byte_comes_exactly_once(steps in proptest::collection::vec(step(), 1..120)) {
        let mut schedule = with_lanes(4);
        let mut lengths = HashMap::new();
        let mut arrived: HashMap<u64, Vec<(u64, u64)>> = HashMap::new();
        let mut received = [0_u64; 4];
        let mut on_the_way: Vec<(usize, ChunkHeader)> = Vec::new();
        let mut dead = [false; 4];
        let finish = (0..4).map(|_| Step::Move).cycle().take(4000);
        for step in steps.into_iter().chain(finish) {
            match step {
                Step::Post(length, flow) => {
                    let transfer = lengths.len() as u64;
                    lengths.insert(transfer, length as u64);
                    schedule.post(order(transfer, length, flow, 3));
                }
                Step::Kill(lane) if !dead[lane] && dead.iter().filter(|dead| !**dead).count() > 1 => {
                    dead[lane] = true;
                    on_the_way.retain(|(on, _)| *on != lane);
                    schedule.peer_report(lane as u32, received[lane], 8).unwrap();
                }
                Step::Kill(_) => {}
                Step::Move | Step::Delay => {
                    let task = schedule.take(None);
                    if let Some(task) = &task {
                        on_the_way.push((task.lane, chunk(task)));
                        schedule.sent(task, true);
                    }
                    if matches!(step, Step::Move) {
                        for (lane, chunk) in on_the_way.drain(..) {
                            received[lane] += 1;
                            arrived.entry(chunk.transfer).or_default().push((chunk.offset, chunk.end()));
                        }
                    }
                }
            }
        }
        prop_assert!(!schedule.has_task());
        for (transfer, length) in lengths {
            let mut spans = arrived.remove(&transfer).unwrap_or_default();
            spans.sort_unstable();
            let mut next = 0;
            for (start, end) in &spans {
                prop_assert_eq!(*start, next);
                next = *end;
            }
            prop_assert!(next == length && !spans.is_empty());
        }
    }
}
