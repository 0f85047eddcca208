//! Both ends of a link, over loopback sockets and over shared memory: messages, transfers, and how a link
//! ends.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use causeway_link::{
    Awaited, ChooseMemory, Destination, LinkError, LinkEvents, Meanwhile, Receiver, TransferError,
};
use causeway_sync::awake;
use causeway_wire::codec::Encode as _;
use causeway_wire::handshake::Protection;
use causeway_wire::message::{ClientMessage, CommandHead, Messages, begin_command};
use common::{ALL, ENCRYPTED, Joint, PLAIN, Pair, SCARCE_SHM, SHM, events, has_rdma_device, pair, pattern};
use crossbeam_channel::unbounded;

fn command(call: u32, thread: u32, payload: &[u8]) -> impl FnOnce(&mut Vec<u8>) + '_ {
    move |out| {
        let open = begin_command(out, &CommandHead { call, thread, context: 0, opcode: 1 });
        out.extend_from_slice(payload);
        open.finish(out);
    }
}

/// Receives until `Goodbye`; the thread and call number of every command, in order.
fn receive_commands(receiver: &mut Receiver) -> Vec<(u32, u32)> {
    let mut commands = Vec::new();
    loop {
        for message in Messages::<ClientMessage>::new(receiver.recv().unwrap()) {
            match message.unwrap() {
                ClientMessage::Command(command) => commands.push((command.thread, command.call)),
                ClientMessage::Goodbye => return commands,
                ClientMessage::HostDone { .. } | ClientMessage::Image { .. } => {
                    panic!("nobody sends this here")
                }
            }
        }
    }
}

fn messages_keep_their_order(joint: Joint) {
    const THREADS: u32 = 4;
    const CALLS: u32 = 20_000;
    let Pair { client, mut worker_receiver, .. } = pair(joint);
    assert_eq!(client.welcome.snapshot, std::env::args().next().unwrap().into_bytes());
    let received = std::thread::spawn(move || receive_commands(&mut worker_receiver));
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let link = &client.link;
            scope.spawn(move || {
                for call in 1..=CALLS {
                    let payload = &[0; 100][..(call % 100) as usize];
                    if call % 64 == 0 {
                        link.send(command(call, thread, payload)).unwrap();
                    } else {
                        link.append(command(call, thread, payload)).unwrap();
                    }
                }
            });
        }
    });
    client.link.append(|out| ClientMessage::Goodbye.encode(out)).unwrap();
    let received = received.join().unwrap();
    for thread in 0..THREADS {
        let calls: Vec<u32> = received.iter().filter(|(t, _)| *t == thread).map(|(_, call)| *call).collect();
        assert_eq!(calls, (1..=CALLS).collect::<Vec<_>>());
    }
    let counters = client.link.counters();
    assert!(
        counters.frames_sent < u64::from(THREADS * CALLS) / 8,
        "messages are sent in batches: {counters:?}"
    );
}

#[test]
fn plain_messages_keep_their_order() {
    messages_keep_their_order(PLAIN);
}

#[test]
fn encrypted_messages_keep_their_order() {
    messages_keep_their_order(ENCRYPTED);
}

#[test]
fn messages_in_shared_memory_keep_their_order() {
    messages_keep_their_order(SHM);
}

#[test]
fn a_posted_message_leaves_by_itself_also_after_a_pause() {
    for joint in ALL {
        let Pair { client, mut worker_receiver, .. } = pair(joint);
        for call in [1, 2, 3] {
            client.link.append(command(call, 0, &[])).unwrap();
            let body = worker_receiver.recv().unwrap();
            assert_eq!(Messages::<ClientMessage>::new(body).count(), 1);
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn large_messages_pass_and_too_large_ones_are_refused() {
    for joint in ALL {
        let Pair { client, mut worker_receiver, .. } = pair(joint);
        let payload = pattern(14 << 20, 1);
        let sender = std::thread::spawn({
            let (link, payload) = (client.link.clone(), payload.clone());
            move || {
                link.append(command(1, 0, b"small")).unwrap();
                link.append(command(2, 0, &payload)).unwrap();
                let error = link.append(|out| out.resize(out.len() + (16 << 20), 0)).unwrap_err();
                assert!(matches!(error, LinkError::MessageTooLong { .. }));
                link.send(|out| ClientMessage::Goodbye.encode(out)).unwrap();
            }
        });
        assert_eq!(receive_commands(&mut worker_receiver), [(0, 1), (0, 2)]);
        sender.join().unwrap();
    }
}

/// Long frames may travel in other ways than short ones, and share memory with transfers.
fn messages_of_all_lengths_keep_their_order_and_their_bytes(joint: Joint) {
    const CALLS: u32 = 160;
    let length = |call: u32| {
        let spread = (call as usize).wrapping_mul(2_654_435_761) % 1_000_003;
        match call % 5 {
            0 => spread % 100,
            1 => 60_000 + spread % 10_000,
            2 => spread % 300_000,
            3 => spread,
            _ => (3 * spread) % 3_000_000,
        }
    };
    let Pair { client, worker, mut worker_receiver } = pair(joint);
    let (worker_events, reports) = events(true);
    worker.start(worker_events);
    client.link.start(events(false).0);
    let received = std::thread::spawn(move || {
        let mut calls = 0;
        loop {
            for message in Messages::<ClientMessage>::new(worker_receiver.recv().unwrap()) {
                let ClientMessage::Command(command) = message.unwrap() else { return calls };
                calls += 1;
                assert!(command.call == calls && command.payload == pattern(length(calls), calls.into()));
            }
        }
    });
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..CALLS.into() {
                client.link.send_transfer(number, &pattern(200_000, number)).unwrap();
                assert_eq!(reports.arrived.recv().unwrap(), (number, pattern(200_000, number)));
            }
        });
        for call in 1..=CALLS {
            client.link.send(command(call, 0, &pattern(length(call), call.into()))).unwrap();
        }
    });
    client.link.send(|out| ClientMessage::Goodbye.encode(out)).unwrap();
    assert_eq!(received.join().unwrap(), CALLS);
}

#[test]
fn messages_of_all_lengths_arrive() {
    for joint in ALL {
        messages_of_all_lengths_keep_their_order_and_their_bytes(joint);
    }
}

/// Memory for a transfer, and how often it was asked for.
struct ChosenLate {
    memory: Vec<AtomicU8>,
    asked: AtomicUsize,
}

impl ChooseMemory for ChosenLate {
    fn memory(&self) -> *mut u8 {
        self.asked.fetch_add(1, Ordering::Relaxed);
        self.memory.as_ptr().cast_mut().cast()
    }
}

fn transfers_arrive(joint: Joint) {
    let Pair { client, worker, worker_receiver } = pair(joint);
    let mut receiver = client.receiver;
    // The threads that receive frames see to transfers, too.
    let receiving = [
        std::thread::spawn(move || while receiver.recv().is_ok() {}),
        std::thread::spawn({
            let mut receiver = worker_receiver;
            move || while receiver.recv().is_ok() {}
        }),
    ];
    let (worker_events, worker_reports) = events(true);
    let (client_events, client_reports) = events(false);
    worker.start(worker_events);
    client.link.start(client_events);
    // To the worker, which takes what comes.
    let lengths = [0, 1, 65_535, 65_536, 300_001, 5 << 20, (9 << 20) + 12_345];
    std::thread::scope(|scope| {
        for (number, length) in lengths.into_iter().enumerate() {
            let link = &client.link;
            scope.spawn(move || link.send_transfer(number as u64, &pattern(length, number as u64)).unwrap());
        }
    });
    for _ in lengths {
        let (number, bytes) = worker_reports.arrived.recv().unwrap();
        assert!(bytes == pattern(lengths[number as usize], number));
    }
    // To the client, which says before where it wants it.
    let length = (7 << 20) + 3;
    let (done, ended) = unbounded();
    let destination = Destination::buffer(vec![0; length], move |buffer| done.send(buffer).unwrap());
    client.link.expect_transfer(77, destination).unwrap();
    worker.send_transfer(77, &pattern(length, 77)).unwrap();
    assert!(ended.recv().unwrap().unwrap() == pattern(length, 77));
    // To memory that is chosen when the first bytes come.
    let chosen = Arc::new(ChosenLate {
        memory: (0..length).map(|_| AtomicU8::new(0)).collect(),
        asked: AtomicUsize::new(0),
    });
    let (done, ended) = unbounded();
    // SAFETY: the callback holds the memory, which the test reads only behind it.
    let destination = unsafe {
        let held = chosen.clone();
        Destination::chosen(chosen.clone(), length, move |outcome| {
            drop(held);
            done.send(outcome).unwrap();
        })
    };
    client.link.expect_transfer(76, destination).unwrap();
    assert_eq!(chosen.asked.load(Ordering::Relaxed), 0);
    worker.send_transfer(76, &pattern(length, 76)).unwrap();
    ended.recv().unwrap().unwrap();
    assert!(chosen.asked.load(Ordering::Relaxed) > 0);
    let expected = pattern(length, 76);
    assert!(chosen.memory.iter().zip(&expected).all(|(found, byte)| found.load(Ordering::Relaxed) == *byte));
    // What the client does not expect is dropped, and the lanes go on.
    worker.send_transfer(78, &pattern(3 << 20, 78)).unwrap();
    let (done, ended) = unbounded();
    client
        .link
        .expect_transfer(79, Destination::buffer(vec![0; 10], move |buffer| done.send(buffer).unwrap()))
        .unwrap();
    worker.send_transfer(79, &pattern(10, 79)).unwrap();
    assert_eq!(ended.recv().unwrap().unwrap(), pattern(10, 79));
    assert!(client_reports.lost.is_empty() && worker_reports.lost.is_empty());
    client.link.close();
    receiving.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn transfers_arrive_in_shared_memory() {
    transfers_arrive(SHM);
}

/// One test, so that it can be run by itself with many settings where there is a device.
#[test]
fn verbs_keep_what_links_promise() {
    if has_rdma_device() {
        for promise in [
            messages_keep_their_order,
            messages_of_all_lengths_keep_their_order_and_their_bytes,
            transfers_arrive,
            a_transfer_of_another_size_fails,
            a_cancelled_transfer_is_dropped,
            closing_sends_the_last_words,
            a_blocked_sender_is_freed,
        ] {
            promise(Joint::Verbs);
        }
    }
}

#[test]
fn transfers_arrive_in_scarce_shared_memory() {
    transfers_arrive(SCARCE_SHM);
}

#[test]
fn plain_transfers_arrive_over_one_lane() {
    transfers_arrive(Joint::Tcp { lanes: 1, protection: Protection::Unprotected });
}

#[test]
fn plain_transfers_arrive_over_four_lanes() {
    transfers_arrive(Joint::Tcp { lanes: 4, protection: Protection::Unprotected });
}

#[test]
fn encrypted_transfers_arrive_over_one_lane() {
    transfers_arrive(Joint::Tcp { lanes: 1, protection: Protection::Encrypted });
}

#[test]
fn encrypted_transfers_arrive_over_three_lanes() {
    transfers_arrive(Joint::Tcp { lanes: 3, protection: Protection::Encrypted });
}

#[test]
fn a_transfer_of_another_size_fails_and_the_lane_goes_on() {
    ALL.into_iter().for_each(a_transfer_of_another_size_fails);
}

fn a_transfer_of_another_size_fails(joint: Joint) {
    let Pair { client, worker, worker_receiver: _receiver } = pair(joint);
    let (client_events, _reports) = events(false);
    client.link.start(client_events);
    worker.start(events(true).0);
    for (number, expected) in [(1, 10), (2, 2 << 20)] {
        let (done, ended) = unbounded();
        let destination = Destination::buffer(vec![0; expected], move |buffer| done.send(buffer).unwrap());
        client.link.expect_transfer(number, destination).unwrap();
        worker.send_transfer(number, &pattern(1 << 20, 5)).unwrap();
        let error = ended.recv().unwrap().unwrap_err();
        assert!(matches!(error, TransferError::WrongSize { found: 0x10_0000, .. }), "{error}");
    }
    assert!(!client.link.is_lost());
}

#[test]
fn a_cancelled_transfer_is_dropped_when_it_comes() {
    ALL.into_iter().for_each(a_cancelled_transfer_is_dropped);
}

fn a_cancelled_transfer_is_dropped(joint: Joint) {
    let Pair { client, worker, worker_receiver: _receiver } = pair(joint);
    client.link.start(events(false).0);
    worker.start(events(true).0);
    let (done, ended) = unbounded();
    for number in [1, 2] {
        let done = done.clone();
        let destination =
            Destination::buffer(vec![0; 1 << 20], move |buffer| done.send((number, buffer)).unwrap());
        client.link.expect_transfer(number, destination).unwrap();
    }
    let again = Destination::buffer(Vec::new(), |_| {});
    assert!(matches!(client.link.expect_transfer(2, again), Err(TransferError::AlreadyUnderWay(2))));
    client.link.cancel_transfer(1);
    let (number, ending) = ended.recv().unwrap();
    assert!(number == 1 && matches!(ending, Err(TransferError::Cancelled)));
    worker.send_transfer(1, &pattern(1 << 20, 1)).unwrap();
    worker.send_transfer(2, &pattern(1 << 20, 2)).unwrap();
    let (number, ending) = ended.recv().unwrap();
    assert!(number == 2 && ending.unwrap() == pattern(1 << 20, 2));
    client.link.cancel_transfer(2);
}

#[test]
fn a_lost_peer_fails_transfers_and_is_told_once() {
    for joint in ALL {
        let Pair { mut client, worker, worker_receiver } = pair(joint);
        let (client_events, reports) = events(false);
        client.link.start(client_events);
        worker.start(events(true).0);
        let (done, ended) = unbounded();
        let destination = Destination::buffer(vec![0; 100], move |buffer| done.send(buffer).unwrap());
        client.link.expect_transfer(1, destination).unwrap();
        client.link.send_transfer(2, &[0; 100]).unwrap();
        drop(worker_receiver);
        assert!(matches!(client.receiver.recv(), Err(LinkError::PeerGone)));
        assert!(matches!(ended.recv().unwrap(), Err(TransferError::Link(LinkError::PeerGone))));
        assert!(matches!(reports.lost.recv().unwrap(), LinkError::PeerGone));
        assert!(client.link.is_lost());
        assert!(matches!(client.link.send(command(1, 0, &[])), Err(LinkError::PeerGone)));
        assert!(client.link.send_transfer(3, &[0; 100]).is_err());
        let late = Destination::buffer(Vec::new(), |_| panic!("it was refused"));
        assert!(client.link.expect_transfer(4, late).is_err());
        std::thread::sleep(Duration::from_millis(20));
        assert!(reports.lost.is_empty());
    }
}

#[test]
fn a_loss_before_the_start_is_told_at_the_start() {
    for joint in ALL {
        let Pair { mut client, worker_receiver, .. } = pair(joint);
        drop(worker_receiver);
        assert!(client.receiver.recv().is_err());
        let (client_events, reports) = events(false);
        client.link.start(client_events);
        assert!(matches!(reports.lost.recv().unwrap(), LinkError::PeerGone));
    }
}

#[test]
fn closing_sends_the_last_words_and_tells_only_the_peer() {
    ALL.into_iter().for_each(closing_sends_the_last_words);
}

fn closing_sends_the_last_words(joint: Joint) {
    let Pair { mut client, worker, mut worker_receiver } = pair(joint);
    let (client_events, client_reports) = events(false);
    let (worker_events, worker_reports) = events(true);
    client.link.start(client_events);
    worker.start(worker_events);
    client.link.append(command(1, 5, b"last")).unwrap();
    client.link.append(|out| ClientMessage::Goodbye.encode(out)).unwrap();
    client.link.close();
    assert_eq!(receive_commands(&mut worker_receiver), [(5, 1)]);
    assert!(matches!(worker_receiver.recv(), Err(LinkError::PeerGone)));
    assert!(matches!(worker_reports.lost.recv().unwrap(), LinkError::PeerGone));
    assert!(matches!(client.receiver.recv(), Err(LinkError::Closed)));
    assert!(client_reports.lost.is_empty());
}

#[test]
fn a_blocked_sender_is_freed_when_the_peer_goes() {
    ALL.into_iter().for_each(a_blocked_sender_is_freed);
}

fn a_blocked_sender_is_freed(joint: Joint) {
    let Pair { client, worker, worker_receiver } = pair(joint);
    client.link.start(events(false).0);
    worker.start(events(true).0);
    let link = client.link.clone();
    let sender = std::thread::spawn(move || {
        // Nobody receives, so the kernel's buffers fill up and this blocks.
        while link.append(command(0, 0, &[0; 50_000])).is_ok() {}
    });
    // It blocks earlier where less may be under way.
    let begun = Instant::now();
    while client.link.counters().frames_sent < 10 && begun.elapsed() < Duration::from_secs(1) {
        std::thread::yield_now();
    }
    drop(worker_receiver);
    sender.join().unwrap();
}

#[test]
fn events_may_use_the_link() {
    /// Answers every transfer with a message.
    struct Echo(std::sync::OnceLock<causeway_link::Link>);
    impl LinkEvents for Echo {
        fn open_transfer(&self, transfer: u64, total: u64) -> Option<Destination> {
            let link = self.0.get().unwrap().clone();
            Some(Destination::buffer(vec![0; total as usize], move |_| {
                link.send(|out| ClientMessage::HostDone { token: transfer }.encode(out)).unwrap();
            }))
        }
        fn lost(&self, _cause: &LinkError) {}
    }
    for joint in ALL {
        let Pair { mut client, worker, worker_receiver: _receiver } = pair(joint);
        let echo = Arc::new(Echo(std::sync::OnceLock::new()));
        assert!(echo.0.set(worker.clone()).is_ok());
        worker.start(echo);
        client.link.start(events(false).0);
        client.link.send_transfer(42, &[1; 4 << 20]).unwrap();
        let body = client.receiver.recv().unwrap();
        let message = Messages::<ClientMessage>::new(body).next();
        assert_eq!(message, Some(Ok(ClientMessage::HostDone { token: 42 })));
    }
}

/// Counts how often a receiving thread has gone to sleep, while nobody waits for it.
struct Sleeper(Arc<AtomicUsize>);

impl Meanwhile for Sleeper {
    fn is_waited_for(&self) -> bool {
        false
    }

    fn asleep<R>(&mut self, sleep: impl FnOnce() -> R) -> R {
        self.0.fetch_add(1, Ordering::SeqCst);
        sleep()
    }
}

#[test]
fn a_receiver_that_sleeps_is_woken_when_somebody_begins_to_wait() {
    for joint in ALL {
        if matches!(joint, Joint::Tcp { .. }) && awake::while_waited_for().is_zero() {
            // Threads never look on this machine, and nothing wakes them to.
            continue;
        }
        let Pair { mut client, worker, worker_receiver: _receiver } = pair(joint);
        let sleeps = Arc::new(AtomicUsize::new(0));
        let wait_for_sleep = |number: usize, meanwhile: &dyn Fn()| {
            let begun = Instant::now();
            while sleeps.load(Ordering::SeqCst) < number {
                assert!(begun.elapsed() < Duration::from_secs(30), "it has not gone to sleep again");
                meanwhile();
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        std::thread::scope(|scope| {
            let receiving = scope.spawn(|| {
                let body = client.receiver.recv_meanwhile(&mut Sleeper(Arc::clone(&sleeps)));
                Messages::<ClientMessage>::new(body.unwrap()).count()
            });
            wait_for_sleep(1, &|| {});
            if matches!(joint, Joint::Tcp { .. }) {
                // Others receive transfers there.
                std::thread::sleep(Duration::from_millis(20));
                client.link.rouse(Awaited::Transfer);
                std::thread::sleep(Duration::from_millis(20));
                assert_eq!(sleeps.load(Ordering::SeqCst), 1);
            }
            // One that is only about to sleep may be missed.
            wait_for_sleep(2, &|| client.link.rouse(Awaited::Message));
            worker.send(command(1, 0, b"what was waited for")).unwrap();
            assert_eq!(receiving.join().unwrap(), 1);
        });
    }
}
