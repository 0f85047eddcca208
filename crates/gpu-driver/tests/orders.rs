//! The waits of the real driver's back end in orders of threads that shuttle takes by chance (`make check-concurrency`),
//! against the stand-in for the driver: a wait that nobody looks for any more is a thread that sleeps for ever, which
//! shuttle reports as a deadlock.
#![cfg(shuttle)]

use causeway_api::handle::{Native, Stream};
use causeway_gpu::{Completion, CuResult, Gpu};
use causeway_sync::Monitor;
use std::sync::Arc;

#[expect(dead_code, reason = "other tests need more of it")]
#[path = "driver_fake/fake.rs"]
mod fake;

use fake::{BUSY, Fake};

/// How many orders are tried.
const ORDERS: usize = 300;

/// Which waits are over, in the order in which that was told: of which thread, and the how-manieth of it.
#[derive(Clone, Default)]
struct Told(Arc<Monitor<Vec<(u64, u32)>>>);

impl Told {
    fn completion(&self, thread: u64, number: u32) -> Completion {
        let told = Arc::clone(&self.0);
        Box::new(move |outcome: CuResult<()>| {
            outcome.unwrap();
            told.change(|waits| waits.push((thread, number)));
        })
    }

    fn wait_for(&self, count: usize) -> Vec<(u64, u32)> {
        self.0.wait(|waits| (waits.len() == count).then(|| waits.clone()))
    }
}

/// Asks in a stream of the thread's own for what is urgent or is not.
fn ask(fake: &Fake, told: &Told, thread: u64, urgent: [bool; 2]) {
    fake.driver.make_current(fake.context).unwrap();
    let stream = Native::<Stream>::from_value(0x100 + thread);
    for (number, urgent) in (0..).zip(urgent) {
        let done = told.completion(thread, number);
        if urgent { fake.driver.after(stream, done) } else { fake.driver.after_a_while(stream, done) }
            .unwrap();
    }
}

/// What a thread asks for first is told first.
fn is_in_order(told: &[(u64, u32)], thread: u64) -> bool {
    told.iter().filter(|(of, _)| *of == thread).is_sorted()
}

#[test]
fn every_wait_is_told_whoever_asks_and_whenever_the_work_ends() {
    for urgent in [[false, false], [true, true], [true, false]] {
        let order = move || {
            let (fake, told) = (Fake::new(), Told::default());
            fake.set_busy(BUSY);
            shuttle::thread::scope(|scope| {
                let asking = [1, 2].map(|thread| {
                    let (fake, told) = (&fake, &told);
                    scope.spawn(move || ask(fake, told, thread, urgent))
                });
                scope.spawn(|| fake.set_busy(0));
                for thread in asking {
                    thread.join().unwrap();
                }
            });
            let waits = told.wait_for(4);
            assert!([1, 2].iter().all(|&thread| is_in_order(&waits, thread)), "{waits:?}");
        };
        shuttle::check_random(order, ORDERS);
    }
}

#[test]
fn what_a_thread_with_an_idle_poller_asks_for_is_told_while_it_sleeps() {
    let order = || {
        let (fake, told) = (Fake::new(), Told::default());
        fake.set_busy(BUSY);
        shuttle::thread::scope(|scope| {
            scope.spawn(|| ask(&fake, &told, 1, [true, false]));
            // Not this thread itself: whatever it waits for, shuttle wakes it when the last one of a scope ends.
            scope.spawn(|| {
                let mut poller = fake.driver.idle_poller();
                ask(&fake, &told, 2, [true, true]);
                poller.poll();
                scope.spawn(|| fake.set_busy(0));
                poller.poll();
                let waits = poller.asleep(|| told.wait_for(4));
                assert!([1, 2].iter().all(|&thread| is_in_order(&waits, thread)), "{waits:?}");
            });
        });
    };
    shuttle::check_random(order, ORDERS);
}

#[test]
fn waits_that_are_left_when_the_driver_goes_are_told_of_that() {
    let order = || {
        let fake = Fake::new();
        fake.set_busy(BUSY);
        let told = Arc::new(Monitor::new(Vec::new()));
        for urgent in [true, false] {
            let told = Arc::clone(&told);
            let done: Completion = Box::new(move |outcome| told.change(|outcomes| outcomes.push(outcome)));
            let stream = Native::<Stream>::from_value(0x101);
            if urgent { fake.driver.after(stream, done) } else { fake.driver.after_a_while(stream, done) }
                .unwrap();
        }
        drop(fake);
        let ended = Err(causeway_api::sys::CUresult::CUDA_ERROR_DEINITIALIZED);
        assert_eq!(*told.lock(), [ended; 2]);
    };
    shuttle::check_random(order, ORDERS);
}
