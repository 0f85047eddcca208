//! Lane benchmark: throughput of transfers over the TCP lanes of a link, memory to memory.
//!
//! `cargo run --release -p causeway-link --example lane_rate -- [LANES [MIB...]]`: so many lanes, 8 if not
//! given, and the pieces of a copy, 8, 4, 2 and 2 MiB if not given, as one of 16 MiB to a device has them.
//! Both ends are threads of this process; the memory that is sent stays as it is, so that it goes to the
//! kernel by reference.

#[path = "../tests/common/mod.rs"]
mod common;

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use causeway_link::{Destination, LinkError, LinkEvents, TransferOptions};
use causeway_wire::handshake::Protection;
use common::{Joint, Pair, pair};

const ROUNDS: usize = 400;

struct Quiet;

impl LinkEvents for Quiet {
    fn lost(&self, _: &LinkError) {}
}

/// Says when the memory of a transfer is not read any more.
struct Left(Sender<()>);

impl Drop for Left {
    fn drop(&mut self) {
        // Nobody listens after the last round.
        let _ = self.0.send(());
    }
}

fn main() {
    let numbers: Vec<usize> = std::env::args()
        .skip(1)
        .map(|word| word.parse().expect("the arguments are numbers: lanes, then MiB"))
        .collect();
    let lanes = numbers.first().copied().unwrap_or(8);
    let pieces = numbers.get(1..).filter(|pieces| !pieces.is_empty()).unwrap_or(&[8, 4, 2, 2]);
    let pieces: Vec<usize> = pieces.iter().map(|piece| piece << 20).collect();
    let total: usize = pieces.iter().sum();
    let Pair { client, worker, worker_receiver: _receiver } =
        pair(Joint::Tcp { lanes: lanes as u32, protection: Protection::Unprotected });
    client.link.start(Arc::new(Quiet));
    worker.start(Arc::new(Quiet));
    // Until all lanes are open.
    std::thread::sleep(Duration::from_millis(300));

    let source = vec![7_u8; total];
    let mut destination = vec![1_u8; total];
    let options = TransferOptions { flow: 1, lanes, ..TransferOptions::default() };
    let mut times: Vec<f64> = Vec::with_capacity(ROUNDS);
    let mut firsts = times.clone();
    for round in 0..ROUNDS {
        let ((come, comes), (left, leaves)) = (channel(), channel());
        let numbered = || {
            pieces.iter().scan(0, |end, piece| {
                *end += piece;
                Some((*end - piece, *piece))
            })
        };
        let number = |at: usize| (round * total + at) as u64;
        let begun = Instant::now();
        for (at, piece) in numbered() {
            let come = come.clone();
            // SAFETY: the place lies inside `destination`, which nobody uses before all pieces have come.
            let place = unsafe {
                Destination::raw(destination.as_mut_ptr().add(at), piece, move |ended| {
                    come.send(ended).expect("they are waited for");
                })
            };
            worker.expect_transfer(number(at), place).expect("the link is open");
        }
        for (at, piece) in numbered() {
            let start = source[at..].as_ptr();
            // SAFETY: `source` outlives the round, which waits until all memory has been left.
            unsafe { client.link.post_transfer(number(at), start, piece, options, Left(left.clone())) }
                .expect("the link is open");
        }
        for piece in 0..pieces.len() {
            while comes.try_recv().map(|ended| ended.expect("the bytes come")).is_err() {
                std::thread::yield_now();
            }
            if piece == 0 {
                firsts.push(begun.elapsed().as_secs_f64() * 1e6);
            }
        }
        times.push(begun.elapsed().as_secs_f64() * 1e6);
        pieces.iter().for_each(|_| leaves.recv().expect("the memory is left"));
    }
    assert!(destination == source, "other bytes have come");
    for times in [&mut times, &mut firsts] {
        times.sort_by(f64::total_cmp);
    }
    let at = |part: usize| times[ROUNDS * part / 100];
    println!(
        "{} MiB over {lanes} lanes: {:.0} us (p10 {:.0}, p90 {:.0}), {:.2} GB/s; the first piece after {:.0} us",
        total >> 20,
        at(50),
        at(10),
        at(90),
        total as f64 / at(50) / 1e3,
        firsts[ROUNDS / 2]
    );
    client.link.close();
}
