//! Messages over a link: whole, in order, and waking a receiver that sleeps.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use causeway_link::{Awaited, IdleHook, LinkError};
use causeway_sync::spin;
use causeway_wire::codec::Encode as _;
use causeway_wire::message::{ClientMessage, Messages};

use crate::commands::{command, receive_commands};
use crate::common::{ALL, ENCRYPTED, Joint, PLAIN, Pair, SHM, events, pair, pattern};

pub fn messages_keep_their_order(joint: Joint) {
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
pub fn messages_of_all_lengths_keep_their_order_and_their_bytes(joint: Joint) {
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

/// Counts how often a receiving thread has gone to sleep, while nobody waits for it.
struct Sleeper(Arc<AtomicUsize>);

impl IdleHook for Sleeper {
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
        if matches!(joint, Joint::Tcp { .. }) && spin::while_waited_for().is_zero() {
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
                let body = client.receiver.recv_with_hook(&mut Sleeper(Arc::clone(&sleeps)));
                Messages::<ClientMessage>::new(body.unwrap()).count()
            });
            wait_for_sleep(1, &|| {});
            if matches!(joint, Joint::Tcp { .. }) {
                // Others receive transfers there.
                std::thread::sleep(Duration::from_millis(20));
                client.link.wake_receiver(Awaited::Transfer);
                std::thread::sleep(Duration::from_millis(20));
                assert_eq!(sleeps.load(Ordering::SeqCst), 1);
            }
            // One that is only about to sleep may be missed.
            wait_for_sleep(2, &|| client.link.wake_receiver(Awaited::Message));
            worker.send(command(1, 0, b"what was waited for")).unwrap();
            assert_eq!(receiving.join().unwrap(), 1);
        });
    }
}
