//! The rule of matching (`docs/src/concepts/messages.md`), over all interleavings of small programs.
//!
//! A world is one rank that receives, up to two that send to it, and between them an MPI as the standard
//! describes it: a queue a sender, receives that are posted, messages that nobody has asked for yet. Above it
//! the rule, made of the functions that the interposer uses. Every state that any order of arrivals and calls
//! leads to is visited once, and in each the results so far are held against the standard: a message of one
//! rank never overtakes another that would match as well, the receive that was posted first gets the first
//! message, counts and truncation are the payload's, a descriptor is never what a user gets, and nothing that
//! could match waits at the end.
//!
//! Each part of the rule is also left out once, and the model must find that something breaks.

mod state;
mod world;

use state::{Without, message_lists, programs, threads};
use world::{Broken, World};

#[test]
fn messages_match_in_the_order_of_the_standard() {
    let mut states = 0;
    for (at, program) in programs().enumerate() {
        for messages in message_lists(at) {
            let world = World::new(&messages, &[&program], Without::Nothing);
            match world.check() {
                Ok(count) => states += count,
                Err(broken) => panic!("{broken}\n{messages:?}\n{program:?}"),
            }
        }
    }
    // So many that a change which leaves most of them out is noticed.
    assert!(states > 300_000, "only {states} states were visited");
}

#[test]
fn two_threads_share_the_queue() {
    for (one, other) in threads() {
        for messages in message_lists(3) {
            let world = World::new(&messages, &[&one, &other], Without::Nothing);
            if let Err(broken) = world.check() {
                panic!("{broken}\n{messages:?}\n{one:?}\n{other:?}");
            }
        }
    }
}

/// The first way in which a rule without one of its parts breaks.
fn breakage(without: Without) -> Option<Broken> {
    let of_one = programs().enumerate().step_by(7).flat_map(|(at, program)| {
        message_lists(at).into_iter().map(move |messages| World::new(&messages, &[&program], without))
    });
    let of_two = threads().into_iter().flat_map(|(one, other)| {
        message_lists(3).into_iter().map(move |messages| World::new(&messages, &[&one, &other], without))
    });
    of_one.chain(of_two).find_map(|world| world.check().err())
}

#[test]
fn every_part_of_the_rule_is_needed() {
    for without in [Without::Room, Without::Order, Without::List, Without::Lock, Without::Proof] {
        let Some(broken) = breakage(without) else { panic!("the rule holds without {without:?}") };
        eprintln!("without {without:?}: {broken}");
    }
}
