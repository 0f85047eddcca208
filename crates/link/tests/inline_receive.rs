//! Messages that a thread whose task it is and threads that wait for some of them take in turns.

mod common;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use causeway_link::{IdleHook, Link, SharedReceiver};
use causeway_wire::codec::Encode as _;
use causeway_wire::message::{ClientMessage, Messages};
use common::{ALL, Pair, pair};
use parking_lot::Mutex;

const TIMEOUT: Duration = Duration::from_secs(30);

/// Nobody waits.
struct Idle;

impl IdleHook for Idle {
    fn is_waited_for(&self) -> bool {
        false
    }
}

/// A message with a number. Guests want the even ones.
fn say(worker: &Link, token: u64) {
    worker.send(|out| ClientMessage::HostDone { token }.encode(out)).unwrap();
}

/// Takes the numbers at the front of a frame that are `wanted`; how many bytes they are.
fn take(body: &[u8], wanted: impl Fn(u64) -> bool, mut each: impl FnMut(u64)) -> usize {
    let mut messages = Messages::<ClientMessage<'_>>::new(body);
    loop {
        let rest = messages.remaining();
        match messages.next() {
            Some(Ok(ClientMessage::HostDone { token })) if wanted(token) => each(token),
            None | Some(Ok(ClientMessage::HostDone { .. })) => return body.len() - rest,
            Some(other) => panic!("not what was sent: {other:?}"),
        }
    }
}

fn is_even(token: u64) -> bool {
    token.is_multiple_of(2)
}

fn wait_until(is_so: impl Fn() -> bool, meanwhile: impl Fn()) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < TIMEOUT, "it takes too long");
        meanwhile();
        std::thread::yield_now();
    }
}

#[test]
fn every_message_is_dealt_with_once_and_in_order_whoever_receives() {
    const MESSAGES: u64 = 3000;
    for joint in ALL {
        let Pair { client, worker, worker_receiver: _receiver } = pair(joint);
        let receiver = SharedReceiver::new(client.receiver);
        let (seen, by_inline) = (Mutex::new(Vec::new()), AtomicUsize::new(0));
        let is_over = || seen.lock().len() as u64 == MESSAGES;
        std::thread::scope(|scope| {
            // An inline receiver is there before the receiving thread, so that it is one that begins.
            let first = receiver.receive_inline();
            scope.spawn(|| {
                receiver.receive(&mut Idle, |body| {
                    take(body, |_| true, |token| seen.lock().push(token));
                    !is_over()
                });
            });
            for stays in [1, 40] {
                let (receiver, seen, by_inline, is_over) = (&receiver, &seen, &by_inline, &is_over);
                scope.spawn(move || {
                    let begun = Instant::now();
                    while !is_over() && begun.elapsed() < TIMEOUT {
                        let inline = receiver.receive_inline();
                        for _ in 0..stays {
                            inline.poll(|body| {
                                take(body, is_even, |token| {
                                    seen.lock().push(token);
                                    by_inline.fetch_add(1, Ordering::Relaxed);
                                })
                            });
                        }
                        drop(inline);
                        // It sleeps where it does not poll.
                        std::thread::sleep(Duration::from_micros(10));
                    }
                });
            }
            for token in 0..MESSAGES {
                // Some frames have several.
                if token % 7 < 3 {
                    worker.append(|out| ClientMessage::HostDone { token }.encode(out)).unwrap();
                } else {
                    say(&worker, token);
                }
            }
            worker.flush().unwrap();
            wait_until(|| by_inline.load(Ordering::Relaxed) > 0 || is_over(), || ());
            drop(first);
            wait_until(is_over, || ());
            // The receiving thread may wait for another message.
            worker.close();
        });
        assert!(seen.into_inner().into_iter().eq(0..MESSAGES), "over {joint:?}");
        assert!(by_inline.into_inner() > 0, "over {joint:?} no inline receiver received anything");
    }
}

#[test]
fn what_an_inline_receiver_leaves_the_receiving_thread_deals_with() {
    for joint in ALL {
        let Pair { client, worker, worker_receiver: _receiver } = pair(joint);
        let receiver = SharedReceiver::new(client.receiver);
        let (by_inline, by_other) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
        std::thread::scope(|scope| {
            let inline = receiver.receive_inline();
            let poll = || inline.poll(|body| take(body, is_even, |token| by_inline.lock().push(token)));
            scope.spawn(|| {
                receiver.receive(&mut Idle, |body| {
                    take(body, |_| true, |token| by_other.lock().push(token));
                    true
                });
            });
            // All in one frame: behind what is left nothing is the inline receiver's.
            for token in [2, 3, 4] {
                worker.append(|out| ClientMessage::HostDone { token }.encode(out)).unwrap();
            }
            worker.flush().unwrap();
            wait_until(|| by_other.lock().len() == 2, poll);
            say(&worker, 6);
            wait_until(|| by_inline.lock().len() == 2, poll);
            worker.close();
        });
        assert_eq!(
            (by_inline.into_inner(), by_other.into_inner()),
            (vec![2, 6], vec![3, 4]),
            "over {joint:?}"
        );
    }
}

#[test]
fn the_end_of_the_link_ends_the_receiving_thread_whoever_notices_and_its_end_the_link() {
    for joint in ALL {
        let Pair { client, worker, worker_receiver: _receiver } = pair(joint);
        let receiver = SharedReceiver::new(client.receiver);
        std::thread::scope(|scope| {
            let inline = receiver.receive_inline();
            let receiving = scope.spawn(|| receiver.receive(&mut Idle, |_| true));
            worker.close();
            wait_until(|| receiving.is_finished(), || inline.poll(<[u8]>::len));
        });
        assert!(client.link.is_lost());

        let Pair { client, worker, worker_receiver: _receiver } = pair(joint);
        let receiver = SharedReceiver::new(client.receiver);
        say(&worker, 1);
        receiver.receive(&mut Idle, |_| false);
        assert!(client.link.is_lost(), "nobody receives from it any more");
        receiver.receive_inline().poll(|_| panic!("nothing comes any more"));
    }
}
