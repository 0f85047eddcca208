//! Control channels of one host: random words and lengths, several groups at once, mailboxes that are used
//! again, ranks that are late, that make another call, and that end.

use std::ffi::OsString;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use causeway_comm::collective::control::{ControlChannel, ControlError};
use causeway_comm::settings::Settings;
use causeway_comm::{Job, World};
use causeway_config::Environment;

/// The longest that a rank waits for words.
const LIMIT: Duration = Duration::from_secs(60);

/// A job of so many ranks, all of this process.
fn job(ranks: u32) -> Vec<World> {
    let nonce = Job::random_nonce().unwrap();
    let set = |asked: &str| (asked == "CAUSEWAY_CACHE_DIR").then(OsString::new);
    let settings = || Settings::read(Environment::of(&set)).unwrap();
    let worlds: Vec<_> =
        (0..ranks).map(|rank| World::join(nonce, rank, ranks, settings()).unwrap()).collect();
    // All reach each other, as before a communicator's first exchange.
    for (one, other) in worlds.iter().flat_map(|one| (0..ranks).map(move |other| (one, other))) {
        assert!(one.is_local(other), "rank {} reaches rank {other}", one.rank());
    }
    worlds
}

/// The words that a rank gives another one in an exchange.
fn words(from: u64, to: u64, exchange: u64, bytes: usize) -> Vec<u8> {
    (0..bytes as u64).map(|at| (exchange * 131 + from * 29 + to * 7 + at * at) as u8).collect()
}

/// The bytes of an exchange: none, few, and as many as there may be.
fn bytes(seed: u64, exchange: u64) -> usize {
    let mixed = (seed ^ exchange).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    if mixed.is_multiple_of(9) { 496 } else { (mixed % 200) as usize }
}

fn exchange(mail: &mut ControlChannel, words: &[u8], bytes: usize) -> Result<Vec<u8>, ControlError> {
    let (mut heard, until) = (vec![0; words.len()], Instant::now() + LIMIT);
    while !mail.exchange(words, &mut heard, bytes)? {
        assert!(Instant::now() < until, "words do not come");
        std::thread::yield_now();
    }
    Ok(heard)
}

/// Many exchanges of a rank in a group, each compared.
fn exchange_often(mail: &mut ControlChannel, me: u64, seed: u64, exchanges: u64) {
    let ranks = mail.ranks() as u64;
    for at in 0..exchanges {
        let bytes = bytes(seed, at);
        let out: Vec<u8> = (0..ranks).flat_map(|to| words(me, to, at ^ seed, bytes)).collect();
        if (at * 7 + me * 3 + seed).is_multiple_of(61) {
            std::thread::sleep(Duration::from_micros(300));
        }
        let heard = exchange(mail, &out, bytes).unwrap();
        let expected: Vec<u8> = (0..ranks).flat_map(|from| words(from, me, at ^ seed, bytes)).collect();
        assert_eq!(heard, expected, "exchange {at} of {bytes} bytes at rank {me}, seed {seed}");
    }
}

#[test]
fn groups_exchange_words_at_the_same_time_and_one_after_the_other() {
    const RANKS: u32 = 3;
    let seed = u64::from_le_bytes(*Job::random_nonce().unwrap().first_chunk().unwrap()) >> 40;
    println!("seed {seed}");
    let worlds = job(RANKS);
    // Mailbox 4 is used by a group of all, and then by one of two, when both have closed the first one.
    let (all, two, both_closed) = ([0, 1, 2], [2, 0], Barrier::new(2));
    std::thread::scope(|scope| {
        for world in &worlds {
            let (me, both_closed) = (world.rank() as usize, &both_closed);
            for control_slot in [0, 15] {
                scope.spawn(move || {
                    let mut mail = ControlChannel::open(world, &all, me, control_slot, 1).unwrap();
                    exchange_often(&mut mail, me as u64, seed + u64::from(control_slot), 2000);
                });
            }
            scope.spawn(move || {
                let mut mail = ControlChannel::open(world, &all, me, 4, 2).unwrap();
                exchange_often(&mut mail, me as u64, seed + 4, 501);
                drop(mail);
                if let Some(inside) = two.iter().position(|rank| *rank as usize == me) {
                    both_closed.wait();
                    let mut mail = ControlChannel::open(world, &two, inside, 4, 3).unwrap();
                    exchange_often(&mut mail, inside as u64, seed + 5, 500);
                }
            });
        }
    });
}

#[test]
fn another_length_is_an_error_and_ends_the_mail() {
    let worlds = job(2);
    let both = Barrier::new(2);
    std::thread::scope(|scope| {
        for world in &worlds {
            let (me, both) = (world.rank() as usize, &both);
            scope.spawn(move || {
                let mut mail = ControlChannel::open(world, &[0, 1], me, 0, 1).unwrap();
                let bytes = 16 + 8 * me;
                let outcome = exchange(&mut mail, &vec![1; 2 * bytes], bytes);
                let theirs = 16 + 8 * (1 - me as u64);
                assert_eq!(outcome, Err(ControlError::Length { rank: 1 - me, theirs, ours: bytes }));
                assert_eq!(exchange(&mut mail, &[0; 2], 1), Err(ControlError::Broken));
                // The words of a rank that has gone could not be told from none.
                both.wait();
            });
        }
    });
    let mut mail = ControlChannel::open(&worlds[0], &[0, 1], 0, 1, 1).unwrap();
    assert_eq!(exchange(&mut mail, &[0; 2 * 497], 497), Err(ControlError::TooLong(497)));
}

#[test]
fn a_rank_that_ends_is_noticed_by_those_that_wait_for_it() {
    let mut worlds = job(3);
    let last = worlds.pop().unwrap();
    let all = [0, 1, 2];
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut mail = ControlChannel::open(&last, &all, 2, 7, 1).unwrap();
            exchange_often(&mut mail, 2, 1, 10);
            // It gives its words for one more, and ends without the others'.
            let done = mail.exchange(&[9; 3], &mut [0; 3], 1);
            assert!(done.is_ok());
            drop(mail);
            drop(last);
        });
        for world in &worlds {
            scope.spawn(move || {
                let me = world.rank() as usize;
                let mut mail = ControlChannel::open(world, &all, me, 7, 1).unwrap();
                exchange_often(&mut mail, me as u64, 1, 10);
                let heard = exchange(&mut mail, &[me as u8; 3], 1).unwrap();
                assert_eq!(heard, [0, 1, 9]);
                assert_eq!(exchange(&mut mail, &[0; 3], 1), Err(ControlError::Disconnected(2)));
            });
        }
    });
}
