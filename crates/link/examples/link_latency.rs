//! What does a round trip over a link cost, in shared memory and over TCP, with receivers that look and with
//! ones that sleep?
//!
//! `cargo run --release -p causeway-link --example link_latency`. Both ends are threads of this process, so
//! what is measured is the link alone. Polling needs two otherwise idle cores.
//!
//! The last rows say how late a message is for a thread that waits for it, when the link was at rest before
//! and the message comes after as long as a copy takes: with and without a
//! [call](causeway_link::Link::wake_receiver) at the beginning of the wait.

#[path = "../tests/common/mod.rs"]
mod common;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use causeway_link::{Awaited, IdleHook, LinkError, Receiver};
use causeway_wire::codec::Encode as _;
use causeway_wire::message::ClientMessage;
use common::{ENCRYPTED, Joint, PLAIN, Pair, SHM, pair};

const ROUNDS: usize = 20_000;

/// Rounds of waits after a rest, how long the link rests, and when the message comes.
const RESTS: usize = 200;
const REST: Duration = Duration::from_millis(5);
const COPY: Duration = Duration::from_micros(1200);

/// Somebody waits all the time.
struct Waiting;

impl IdleHook for Waiting {
    fn is_waited_for(&self) -> bool {
        true
    }
}

fn receive(receiver: &mut Receiver, looks: bool) -> Result<&[u8], LinkError> {
    if looks { receiver.recv_with_hook(&mut Waiting) } else { receiver.recv() }
}

/// Somebody waits now and then.
struct Sometimes<'a>(&'a AtomicBool);

impl IdleHook for Sometimes<'_> {
    fn is_waited_for(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

/// How late messages are, in microseconds, in order.
fn lateness(joint: Joint, calls: bool) -> Vec<f64> {
    let Pair { mut client, worker, worker_receiver: _receiver } = pair(joint);
    let (is_awaited, come) = (AtomicBool::new(false), AtomicUsize::new(0));
    let mut late = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while client.receiver.recv_with_hook(&mut Sometimes(&is_awaited)).is_ok() {
                come.fetch_add(1, Ordering::SeqCst);
            }
        });
        for round in 0..RESTS {
            std::thread::sleep(REST);
            is_awaited.store(true, Ordering::SeqCst);
            if calls {
                client.link.wake_receiver(Awaited::Message);
            }
            std::thread::sleep(COPY);
            let due = Instant::now();
            worker.send(|out| ClientMessage::HostDone { token: 1 }.encode(out)).expect("the link is open");
            while come.load(Ordering::SeqCst) == round {
                std::thread::yield_now();
            }
            late.push(due.elapsed().as_secs_f64() * 1e6);
            is_awaited.store(false, Ordering::SeqCst);
        }
        client.link.close();
    });
    late.sort_by(f64::total_cmp);
    late
}

fn main() {
    println!("{:<12} {:>10} {:>10} {:>10}", "link", "min us", "p50 us", "p95 us");
    for (name, joint) in [("shm", SHM), ("tcp", PLAIN), ("tcp, noise", ENCRYPTED)] {
        for (how, looks) in [("looking", true), ("sleeping", false)] {
            let Pair { client, worker, mut worker_receiver } = pair(joint);
            let mut receiver = client.receiver;
            let link = client.link;
            let echo = std::thread::spawn(move || {
                while let Ok(body) = receive(&mut worker_receiver, looks) {
                    let body = body.to_vec();
                    if worker.send(|out| out.extend_from_slice(&body)).is_err() {
                        break;
                    }
                }
            });
            let mut times: Vec<f64> = (0..ROUNDS)
                .map(|_| {
                    let begun = Instant::now();
                    link.send(|out| ClientMessage::HostDone { token: 1 }.encode(out))
                        .expect("the link is open");
                    receive(&mut receiver, looks).expect("the peer answers");
                    begun.elapsed().as_secs_f64() * 1e6
                })
                .collect();
            times.sort_by(f64::total_cmp);
            let at = |part: usize| times[ROUNDS * part / 100];
            println!("{name:<12} {:>10.2} {:>10.2} {:>10.2}  {how}", times[0], at(50), at(95));
            link.close();
            echo.join().expect("the other end ends with the link");
        }
    }
    for (name, joint) in [("shm", SHM), ("tcp", PLAIN)] {
        for (how, calls) in [("late after a rest", false), ("late after a rest, called", true)] {
            let late = lateness(joint, calls);
            let at = |part: usize| late[RESTS * part / 100];
            println!("{name:<12} {:>10.2} {:>10.2} {:>10.2}  {how}", late[0], at(50), at(95));
        }
    }
}
