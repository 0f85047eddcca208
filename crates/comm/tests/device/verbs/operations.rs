//! Every operation does what it says: bytes arrive, completions name them.

use causeway_comm::device::verbs::layout::{WorkCompletion, operation, send_flags};
use causeway_comm::device::verbs::{Doorbell, QueuePairOptions};

use crate::machine::Params;

use super::pair::{AGAIN, MEMORY, OK, Pair, TRY, WAIT};

fn small() -> QueuePairOptions {
    QueuePairOptions { sends: 16, receives: 8, inline: 60 }
}

fn pattern(seed: u64, count: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u8
    };
    (0..count).map(|_| next()).collect()
}

#[test]
fn writes_and_reads_bring_bytes_by_either_doorbell() {
    for (doorbell, is) in [(Doorbell::Auto, Doorbell::Direct), (Doorbell::Assisted, Doorbell::Assisted)] {
        let pair = Pair::new(small(), doorbell);
        assert_eq!(pair.ends[0].queue_pair.doorbell(), is);
        for (at, (from, to, bytes)) in
            [(0, 0, 1), (3, 5, 7), (8, 64, 4096), (1, 2, 0), (100, 33, 60_000)].into_iter().enumerate()
        {
            let sent = pattern(at as u64, MEMORY);
            pair.write(0, 0, &sent);
            pair.write(1, 0, &vec![0xee; MEMORY]);
            let write = pair.request(0, operation::RDMA_WRITE, from, to, bytes);
            assert_eq!(pair.post(0, &[write], TRY), [OK]);
            let done = pair.completions(&pair.ends[0].sends, 1)[0];
            assert_eq!((done.syndrome, done.operation), (0, operation::RDMA_WRITE));
            let mut expected = vec![0xee; MEMORY];
            expected[to as usize..][..bytes as usize]
                .copy_from_slice(&sent[from as usize..][..bytes as usize]);
            assert!(pair.bytes(1, 0, MEMORY as u64) == expected, "{bytes} bytes are written");
            // And back to where they were, by a read of the other end.
            pair.write(0, 0, &vec![0; MEMORY]);
            let read = pair.request(0, operation::RDMA_READ, from, to, bytes);
            assert_eq!(pair.post(0, &[read], WAIT), [OK]);
            let done = pair.completions(&pair.ends[0].sends, 1)[0];
            assert_eq!((done.syndrome, done.operation, done.bytes), (0, operation::RDMA_READ, bytes));
            let found = pair.bytes(0, from, u64::from(bytes));
            assert!(found == sent[from as usize..][..bytes as usize], "{bytes} bytes are read");
        }
    }
}

#[test]
fn the_names_for_other_languages_do_the_same() {
    const THREADS: u32 = 64;
    let pair = Pair::new(small(), Doorbell::Auto);
    let write = pair.request(0, operation::RDMA_WRITE, 64, 128, 8);
    let request = causeway_comm::device::verbs::layout::SendRequest { wr_id: 0x1234_5678_9abc, ..write };
    let receive = pair.receives(0, 2, 64)[1];
    // Room for the completion, and behind it for one that does not come.
    let completions = pair.gpu.filled(&vec![0xee; 2 * size_of::<WorkCompletion>()]);
    let answers = pair.gpu.filled(&vec![0xff; 4 * THREADS as usize]);
    let [queue_pair, sends, receives] =
        [pair.ends[0].queue_pair.handle(), pair.ends[0].sends.handle(), pair.ends[0].receives.handle()];
    let params = Params::default().long(queue_pair).long(sends).long(receives);
    let params = params.request(request).receive(receive);
    pair.gpu.launch_one("verbs_by_name", THREADS, params.long(completions.address).long(answers.address));
    assert_eq!(pair.gpu.bytes(answers.address, 4 * u64::from(THREADS)), vec![0; 4 * THREADS as usize]);
    assert_eq!(pair.bytes(1, 128, 8), (!request.wr_id).to_le_bytes());
    let rest = pair.gpu.bytes(completions.address + size_of::<WorkCompletion>() as u64, 40);
    assert_eq!(rest, vec![0xee; 40], "none was polled");
    // The receive was posted: a message finds it.
    pair.write(1, 0, &pattern(3, 64));
    let message = pair.request(1, operation::SEND, 0, 0, 64);
    assert_eq!(pair.post(1, &[message], TRY), [OK]);
    let received = pair.completions(&pair.ends[0].receives, 1)[0];
    assert_eq!((received.wr_id, received.bytes, received.syndrome), (receive.wr_id, 64, 0));
    assert_eq!(pair.bytes(0, 64, 64), pattern(3, 64));
    pair.completions(&pair.ends[1].sends, 1);
}

#[test]
fn messages_take_receives_and_bring_immediate_data() {
    let pair = Pair::new(small(), Doorbell::Auto);
    let sent = pattern(7, 1024);
    pair.write(0, 0, &sent);
    assert_eq!(pair.post_receives(1, &pair.receives(1, 5, 256), TRY), [OK; 5]);
    let with =
        |request, immediate| causeway_comm::device::verbs::layout::SendRequest { immediate, ..request };
    let requests = [
        pair.request(0, operation::SEND, 10, 0, 256),
        with(pair.request(0, operation::SEND_WITH_IMM, 20, 0, 100), 0x1234_5678),
        with(pair.request(0, operation::RDMA_WRITE_WITH_IMM, 30, 4096, 300), 0x9abc_def0),
        pair.request(0, operation::SEND, 0, 0, 0),
    ];
    assert_eq!(pair.post(0, &requests, WAIT), [OK; 4]);
    let sends = pair.completions(&pair.ends[0].sends, 4);
    assert!(sends.iter().all(|done| done.syndrome == 0), "{sends:?}");
    let came = pair.completions(&pair.ends[1].receives, 4);
    let told: Vec<_> =
        came.iter().map(|done| (done.wr_id, done.operation, done.bytes, done.has_immediate)).collect();
    assert_eq!(
        told,
        [
            (0, operation::RECEIVE, 256, 0),
            (1, operation::RECEIVE, 100, 1),
            (2, operation::RECEIVE_RDMA_WITH_IMM, 300, 1),
            (3, operation::RECEIVE, 0, 0),
        ]
    );
    assert_eq!([came[1].immediate, came[2].immediate], [0x1234_5678, 0x9abc_def0]);
    assert_eq!(pair.bytes(1, 0, 256), sent[10..266]);
    assert_eq!(pair.bytes(1, 256, 100), sent[20..120]);
    assert_eq!(pair.bytes(1, 4096, 300), sent[30..330]);
    // A message for which there is no receive waits for one.
    assert_eq!(pair.post(0, &[pair.request(0, operation::SEND, 1, 0, 8); 2], TRY), [OK; 2]);
    assert_eq!(pair.completions(&pair.ends[0].sends, 1)[0].syndrome, 0);
    assert_eq!(pair.post_receives(1, &pair.receives(1, 1, 64), TRY), [OK]);
    assert_eq!(pair.completions(&pair.ends[0].sends, 1)[0].syndrome, 0);
    assert_eq!(pair.completions(&pair.ends[1].receives, 2).len(), 2);
}

#[test]
fn inline_bytes_are_taken_when_posting() {
    let pair = Pair::new(small(), Doorbell::Auto);
    let sent = pattern(11, 64);
    for bytes in [1, 7, 8, 12, 28, 29, 44, 60] {
        pair.write(0, 0, &sent);
        let mut request = pair.request(0, operation::RDMA_WRITE, 3, 5, bytes);
        request.flags |= send_flags::INLINE;
        // Inline requests have no key.
        request.lkey = 0xdead;
        assert_eq!(pair.post(0, &[request; 3], WAIT), [OK; 3]);
        let done = pair.completions(&pair.ends[0].sends, 3);
        assert!(done.iter().all(|one| one.syndrome == 0), "{done:?}");
        assert_eq!(pair.bytes(1, 5, u64::from(bytes)), sent[3..][..bytes as usize], "{bytes} bytes");
    }
}

#[test]
fn atomic_operations_bring_back_what_was_there() {
    let pair = Pair::new(small(), Doorbell::Auto);
    let word = |end, offset| u64::from_le_bytes(pair.bytes(end, offset, 8).try_into().unwrap());
    pair.write(1, 64, &100_u64.to_le_bytes());
    let mut add = pair.request(0, operation::FETCH_AND_ADD, 8, 64, 8);
    add.compare_add = 11;
    assert_eq!(pair.post(0, &[add], TRY), [OK]);
    assert_eq!(pair.completions(&pair.ends[0].sends, 1)[0].operation, operation::FETCH_AND_ADD);
    assert_eq!((word(0, 8), word(1, 64)), (100, 111));
    let mut swap = pair.request(0, operation::COMPARE_AND_SWAP, 16, 64, 8);
    (swap.compare_add, swap.swap) = (110, 5);
    assert_eq!(pair.post(0, &[swap], TRY), [OK]);
    assert_eq!(pair.completions(&pair.ends[0].sends, 1)[0].syndrome, 0);
    assert_eq!((word(0, 16), word(1, 64)), (111, 111), "it is not what was compared with");
    swap.compare_add = 111;
    assert_eq!(pair.post(0, &[swap], TRY), [OK]);
    assert_eq!(pair.completions(&pair.ends[0].sends, 1)[0].operation, operation::COMPARE_AND_SWAP);
    assert_eq!((word(0, 16), word(1, 64)), (111, 5));
}

#[test]
fn a_full_queue_takes_requests_again_when_completions_are_polled() {
    let pair = Pair::new(small(), Doorbell::Auto);
    let slots = pair.ends[0].queue_pair.send_slots() as usize;
    let write = pair.request(0, operation::RDMA_WRITE, 0, 0, 8);
    // Ten times around the ring. The last of each round alone has a completion, which ends the others, too.
    for round in 0..10_u64 {
        let mut requests = vec![write; slots];
        for (at, request) in requests.iter_mut().enumerate() {
            request.wr_id = round * 1000 + at as u64;
            request.flags = if at + 1 == slots { send_flags::SIGNALED } else { 0 };
        }
        assert_eq!(pair.post(0, &requests, TRY), vec![OK; slots], "round {round}");
        assert_eq!(pair.post(0, &[write], TRY), [AGAIN]);
        let done = pair.completions(&pair.ends[0].sends, 1)[0];
        assert_eq!((done.wr_id, done.syndrome), (round * 1000 + slots as u64 - 1, 0));
    }
    let slots = pair.ends[1].queue_pair.receive_slots() as usize;
    for _ in 0..3 {
        let receives = pair.receives(1, slots as u64, 16);
        assert_eq!(pair.post_receives(1, &receives, TRY), vec![OK; slots]);
        assert_eq!(pair.post_receives(1, &receives[..1], TRY), [AGAIN]);
        let send = pair.request(0, operation::SEND, 0, 0, 16);
        assert_eq!(pair.post(0, &vec![send; slots], WAIT), vec![OK; slots]);
        pair.completions(&pair.ends[0].sends, slots);
        let came = pair.completions(&pair.ends[1].receives, slots);
        assert!(came.iter().zip(0..).all(|(done, at)| done.wr_id == at), "{came:?}");
    }
}
