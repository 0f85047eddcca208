//! What does a round trip over a link cost, in shared memory and over TCP, with receivers that look and with ones that
//! sleep?
//!
//! `cargo run --release -p causeway-fabric --example link_latency`. Both ends are threads of this process, so what is
//! measured is the link alone. Looking needs two cores that nobody else uses.

#[path = "../tests/common/mod.rs"]
mod common;

use std::time::Instant;

use causeway_fabric::{LinkError, Meanwhile, Receiver};
use causeway_wire::codec::Encode as _;
use causeway_wire::message::ClientMessage;
use common::{ENCRYPTED, PLAIN, Pair, SHM, pair};

const ROUNDS: usize = 20_000;

/// Somebody waits all the time.
struct Waiting;

impl Meanwhile for Waiting {
    fn is_waited_for(&self) -> bool {
        true
    }
}

fn receive(receiver: &mut Receiver, looks: bool) -> Result<&[u8], LinkError> {
    if looks { receiver.recv_meanwhile(&mut Waiting) } else { receiver.recv() }
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
}
