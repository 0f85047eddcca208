//! Transfers over a link: to their destinations, and those that nobody wants.

use core::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::time::Duration;

use causeway_link::{ChooseMemory, Destination, Direction, LinkError, LinkEvents, Pacer, TransferError};
use causeway_wire::codec::Encode as _;
use causeway_wire::handshake::Protection;
use causeway_wire::message::{ClientMessage, Messages};
use crossbeam_channel::unbounded;

use crate::common::{ALL, Joint, Pair, SCARCE_SHM, SHM, events, pair, pattern};

/// Memory for a transfer, and for how many bytes it was asked.
struct ChosenLate {
    memory: Vec<AtomicU8>,
    asked: AtomicUsize,
}

impl ChooseMemory for ChosenLate {
    fn memory(&self, part: Range<usize>) -> *mut u8 {
        self.asked.fetch_add(part.len(), Ordering::Relaxed);
        self.memory[part].as_ptr().cast_mut().cast()
    }
}

pub fn transfers_arrive(joint: Joint) {
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
    // To memory that is chosen when bytes come, once for each.
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
    assert_eq!(chosen.asked.load(Ordering::Relaxed), length);
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

pub fn a_transfer_of_another_size_fails(joint: Joint) {
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

pub fn a_cancelled_transfer_is_dropped(joint: Joint) {
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
    assert!(matches!(client.link.expect_transfer(2, again), Err(TransferError::AlreadyInFlight(2))));
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

/// Counts what has gone, and has the thread that carried it wait for so long.
struct Counting {
    gone: [AtomicUsize; 2],
    /// How often it was asked before anything had gone.
    asked_before: [AtomicUsize; 2],
    pause: Duration,
}

impl Pacer for Counting {
    fn pause(&self, direction: Direction, bytes: usize) -> Duration {
        let way = usize::from(direction == Direction::Sent);
        if self.gone[way].fetch_add(bytes, Ordering::Relaxed) == 0 && bytes == 0 {
            self.asked_before[way].fetch_add(1, Ordering::Relaxed);
            return Duration::ZERO;
        }
        self.pause
    }
}

#[test]
fn transfers_over_tcp_are_held_back_in_both_directions_and_messages_are_not() {
    // None that is short can be what the second round waits for.
    for pause in [Duration::from_millis(2), Duration::from_secs(100_000)] {
        let Pair { client, worker, mut worker_receiver } =
            pair(Joint::Tcp { lanes: 2, protection: Protection::Encrypted });
        let mut receiver = client.receiver;
        let pacer = Arc::new(Counting { gone: Default::default(), asked_before: Default::default(), pause });
        worker.set_pacer(Arc::clone(&pacer) as Arc<dyn Pacer>);
        let (worker_events, worker_reports) = events(true);
        worker.start(worker_events);
        client.link.start(events(false).0);
        let gone = |way: usize| pacer.gone[way].load(Ordering::Relaxed);
        let length = (5 << 20) + 12_345;
        let is_short = pause < Duration::from_secs(1);
        let (done, ended) = unbounded();
        let destination = Destination::buffer(vec![0; length], move |buffer| drop(done.send(buffer)));
        client.link.expect_transfer(7, destination).unwrap();
        let mut sending = Some(std::thread::spawn({
            let (link, worker) = (client.link.clone(), worker.clone());
            move || {
                let sent = link.send_transfer(1, &pattern(length, 1));
                sent.and(worker.send_transfer(7, &pattern(length, 7)))
            }
        }));
        if is_short {
            assert!(worker_reports.arrived.recv().unwrap().1 == pattern(length, 1));
            assert!(ended.recv().unwrap().unwrap() == pattern(length, 7));
            sending.take().unwrap().join().unwrap().unwrap();
            // The thread that has carried the last piece takes note of it at its own time.
            let all = || gone(0) == length && gone(1) == length;
            (0..1000).take_while(|_| !all()).for_each(|_| std::thread::sleep(Duration::from_millis(10)));
            assert!(all(), "{} and {} of {length} bytes", gone(0), gone(1));
            let asked = |way: usize| pacer.asked_before[way].load(Ordering::Relaxed);
            assert!(
                asked(0) > 0 && asked(1) > 0,
                "the first piece waits for what earlier links have carried"
            );
        } else {
            (0..1000)
                .take_while(|_| gone(0) == 0)
                .for_each(|_| std::thread::sleep(Duration::from_millis(10)));
            assert!(gone(0) > 0 && gone(0) < length, "two threads wait with a piece each: {}", gone(0));
        }
        // Messages go on meanwhile, both ways.
        client.link.send(|out| ClientMessage::HostDone { token: 5 }.encode(out)).unwrap();
        let body = worker_receiver.recv().unwrap();
        let found = Messages::<ClientMessage<'_>>::new(body).next().unwrap().unwrap();
        assert!(matches!(found, ClientMessage::HostDone { token: 5 }));
        worker.send(|out| out.extend([1])).unwrap();
        assert_eq!(receiver.recv().unwrap(), [1]);
        // The end of the link ends every pause.
        worker.close();
        client.link.close();
        if let Some(sending) = sending {
            assert!(sending.join().unwrap().is_err());
        }
    }
}
