//! What goes wrong reaches the program: with queue pair, operation and cause. Then the queue pairs work again.

use std::time::Duration;

use causeway_comm::device::verbs::layout::{SendRequest, operation};
use causeway_comm::device::verbs::{
    CompletionQueue, Doorbell, QueuePair, QueuePairOptions, VerbsError, completion,
};

use super::pair::cause::{
    FLUSHED, LOCAL_LENGTH, LOCAL_PROTECTION, REMOTE_ACCESS, REMOTE_INVALID_REQUEST, REMOTE_OPERATION,
    RETRY_EXCEEDED, RNR_RETRY_EXCEEDED,
};
use super::pair::{ABORTED, AGAIN, FAILED, MEMORY, OK, Pair, TIMED_OUT, TRY, WAIT};

fn options() -> QueuePairOptions {
    QueuePairOptions { sends: 16, receives: 8, inline: 28 }
}

/// Empties both ends as a program does, and sees that they work again.
fn drain_and_reset(pair: &Pair, unread: [usize; 2]) {
    for (end, count) in pair.ends.iter().zip(unread) {
        end.queue_pair.flush().unwrap();
        if count != 0 {
            let error = end.queue_pair.reset().unwrap_err();
            assert!(matches!(error, VerbsError::NotDrained(_)), "{error}");
            let flushed = pair.completions(&end.receives, count);
            assert!(flushed.iter().all(|done| done.syndrome == FLUSHED), "{flushed:?}");
        }
    }
    for end in &pair.ends {
        end.queue_pair.reset().unwrap();
    }
    pair.connect();
    pair.write(0, 0, b"once more");
    let write = pair.request(0, operation::RDMA_WRITE, 0, 100, 9);
    // Once around the ring.
    assert_eq!(pair.post(0, &[write; 16], WAIT), [OK; 16]);
    let done = pair.completions(&pair.ends[0].sends, 16);
    assert!(done.iter().all(|one| one.syndrome == 0), "{done:?}");
    assert_eq!(pair.bytes(1, 100, 9), b"once more");
}

/// After the failure of a request, with one behind it: what the completions say.
fn fails(pair: &Pair, request: SendRequest, expected: u32) {
    let good = pair.request(0, operation::RDMA_WRITE, 0, 0, 8);
    let requests = [
        SendRequest { wr_id: 1, ..good },
        SendRequest { wr_id: 2, ..request },
        SendRequest { wr_id: 3, flags: 0, ..good },
    ];
    // The last one may find that the queue pair has failed only where somebody has polled: nobody has.
    assert_eq!(pair.post(0, &requests, TRY), [OK; 3]);
    let number = pair.ends[0].queue_pair.number();
    let told: Vec<_> = pair
        .completions(&pair.ends[0].sends, 3)
        .iter()
        .map(|done| (done.wr_id, done.syndrome, done.operation, done.queue_pair))
        .collect();
    let write = operation::RDMA_WRITE;
    assert_eq!(
        told,
        [(1, 0, write, number), (2, expected, request.operation, number), (3, FLUSHED, write, number)],
        "{:?}",
        completion::text(expected)
    );
    assert_eq!(pair.post(0, &[good], TRY), [FAILED]);
    assert_eq!(pair.post(0, &[good], WAIT), [FAILED]);
}

#[test]
fn wrong_keys_and_bounds_come_back_as_errors_and_the_queue_pair_works_again() {
    let pair = Pair::new(options(), Doorbell::Auto);
    let write = pair.request(0, operation::RDMA_WRITE, 0, 0, 16);
    let read = pair.request(0, operation::RDMA_READ, 0, 0, 16);
    let add = pair.request(0, operation::FETCH_AND_ADD, 0, 0, 8);
    let beyond = MEMORY as u64 - 8;
    let cases = [
        (SendRequest { lkey: write.lkey ^ 2, ..write }, LOCAL_PROTECTION),
        (SendRequest { address: write.address + beyond, ..write }, LOCAL_PROTECTION),
        (SendRequest { lkey: write.rkey, ..write }, LOCAL_PROTECTION),
        (SendRequest { rkey: write.rkey ^ 2, ..write }, REMOTE_ACCESS),
        (SendRequest { rkey: write.lkey, ..write }, REMOTE_ACCESS),
        (SendRequest { remote_address: write.remote_address + beyond, ..write }, REMOTE_ACCESS),
        (SendRequest { remote_address: write.remote_address - 1, ..write }, REMOTE_ACCESS),
        (SendRequest { rkey: read.rkey ^ 2, ..read }, REMOTE_ACCESS),
        (SendRequest { remote_address: read.remote_address + beyond, ..read }, REMOTE_ACCESS),
        (SendRequest { rkey: add.rkey ^ 2, ..add }, REMOTE_ACCESS),
    ];
    for (request, expected) in cases {
        fails(&pair, request, expected);
        drain_and_reset(&pair, [0, 0]);
    }
}

#[test]
fn what_a_card_reports_reaches_the_program() {
    let pair = Pair::new(options(), Doorbell::Assisted);
    for expected in [RETRY_EXCEEDED, RNR_RETRY_EXCEEDED, REMOTE_OPERATION] {
        pair.card.fail(pair.ends[0].queue_pair.number(), 1, expected);
        fails(&pair, pair.request(0, operation::RDMA_READ, 0, 0, 16), expected);
        drain_and_reset(&pair, [0, 0]);
    }
}

#[test]
fn a_message_too_long_for_its_receive_ends_both_ends() {
    let pair = Pair::new(options(), Doorbell::Auto);
    assert_eq!(pair.post_receives(1, &pair.receives(1, 3, 16), TRY), [OK; 3]);
    assert_eq!(pair.post(0, &[pair.request(0, operation::SEND, 0, 0, 17)], TRY), [OK]);
    let done = pair.completions(&pair.ends[0].sends, 1)[0];
    assert_eq!((done.syndrome, done.operation), (REMOTE_INVALID_REQUEST, operation::SEND));
    let number = pair.ends[1].queue_pair.number();
    let told: Vec<_> = pair
        .completions(&pair.ends[1].receives, 3)
        .iter()
        .map(|done| (done.wr_id, done.syndrome, done.operation, done.queue_pair))
        .collect();
    let receive = operation::RECEIVE;
    assert_eq!(
        told,
        [(0, LOCAL_LENGTH, receive, number), (1, FLUSHED, receive, number), (2, FLUSHED, receive, number)]
    );
    assert_eq!(pair.post_receives(1, &pair.receives(1, 1, 16), TRY), [FAILED]);
}

#[test]
fn receives_come_back_when_a_queue_pair_is_flushed() {
    let pair = Pair::new(options(), Doorbell::Auto);
    assert_eq!(pair.post_receives(0, &pair.receives(0, 2, 16), TRY), [OK; 2]);
    assert_eq!(pair.post_receives(1, &pair.receives(1, 3, 16), TRY), [OK; 3]);
    drain_and_reset(&pair, [2, 3]);
}

#[test]
fn a_peer_that_is_gone_does_not_answer() {
    let pair = Pair::new(options(), Doorbell::Auto);
    pair.ends[1].queue_pair.reset().unwrap();
    fails_at_once(&pair, RETRY_EXCEEDED);
}

fn fails_at_once(pair: &Pair, expected: u32) {
    assert_eq!(pair.post(0, &[pair.request(0, operation::RDMA_WRITE, 0, 0, 8)], TRY), [OK]);
    assert_eq!(pair.completions(&pair.ends[0].sends, 1)[0].syndrome, expected);
}

#[test]
fn waits_end_by_the_limit_and_by_the_host() {
    let pair = Pair::with_limit(options(), Doorbell::Auto, Duration::from_millis(200));
    let write = pair.request(0, operation::RDMA_WRITE, 0, 0, 8);
    assert_eq!(pair.wait(&pair.ends[0].sends, 1)[0].0, TIMED_OUT);
    let slots = pair.ends[0].queue_pair.send_slots() as usize;
    assert_eq!(pair.post(0, &vec![write; slots], TRY), vec![OK; slots]);
    assert_eq!(pair.post(0, &[write], TRY), [AGAIN]);
    assert_eq!(pair.post(0, &[write], WAIT), [TIMED_OUT]);
    pair.ends[0].nic.abort();
    assert_eq!(pair.post(0, &[write], WAIT), [ABORTED]);
    assert_eq!(pair.wait(&pair.ends[0].receives, 1)[0].0, ABORTED);
    pair.ends[0].nic.resume();
    assert_eq!(pair.completions(&pair.ends[0].sends, slots).len(), slots);
    assert_eq!(pair.post(0, &[write], WAIT), [OK]);
}

#[test]
fn the_host_refuses_what_cannot_work() {
    let pair = Pair::new(options(), Doorbell::Auto);
    let end = &pair.ends[0];
    let small = CompletionQueue::new(&end.nic, 8).unwrap();
    let error = QueuePair::new(&end.nic, &small, &small, options()).unwrap_err();
    assert!(matches!(error, VerbsError::Overrun { entries: 16, needed: 24 }), "{error}");
    let error = QueuePair::new(&end.nic, &pair.ends[1].sends, &end.receives, options()).unwrap_err();
    assert!(matches!(error, VerbsError::OtherNic), "{error}");
    let none = QueuePairOptions { sends: 0, ..options() };
    let error = QueuePair::new(&end.nic, &end.sends, &end.receives, none).unwrap_err();
    assert!(matches!(error, VerbsError::Size { .. }), "{error}");
    let mut address = pair.ends[1].queue_pair.address();
    address[0] ^= 1;
    assert!(matches!(end.queue_pair.connect(&address).unwrap_err(), VerbsError::Address));
}
