//! What is too large for loom, in orders taken by chance (`make check-concurrency`).

use core::sync::atomic::Ordering::SeqCst;
use std::sync::Arc;

use shuttle::thread;

use crate::face::AtomicU32;
use crate::{Delegated, ForkJoinPool, Monitor, PollPause};

/// How many orders are tried.
const ORDERS: usize = 3000;

#[test]
fn launches_that_share_a_pool_each_have_all_their_parts_done_when_they_return() {
    const PARTS: u32 = 4;
    let order = || {
        let pool = ForkJoinPool::new(2, "helper", || {}).unwrap();
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let (next, done, inside) = (AtomicU32::new(0), AtomicU32::new(0), AtomicU32::new(0));
                    pool.run(3, &|| {
                        inside.fetch_add(1, SeqCst);
                        while next.fetch_add(1, SeqCst) < PARTS {
                            done.fetch_add(1, SeqCst);
                        }
                        inside.fetch_sub(1, SeqCst);
                    });
                    assert_eq!((done.load(SeqCst), inside.load(SeqCst)), (PARTS, 0));
                });
            }
        });
    };
    shuttle::check_random(order, ORDERS);
}

#[test]
fn a_pool_does_one_piece_of_work_after_the_other() {
    let order = || {
        let pool = ForkJoinPool::new(2, "helper", || {}).unwrap();
        let calls = AtomicU32::new(0);
        let work = || {
            calls.fetch_add(1, SeqCst);
        };
        pool.run(2, &work);
        pool.run(1, &work);
        assert!((2..=5).contains(&calls.load(SeqCst)));
    };
    shuttle::check_random(order, ORDERS);
}

#[test]
fn a_poller_finds_all_that_three_threads_bring_and_hears_that_it_is_to_end() {
    let order = || {
        let (pause, brought, ends) = (PollPause::new(), AtomicU32::new(0), AtomicU32::new(0));
        let found = thread::scope(|scope| {
            let poller = scope.spawn(|| {
                let mut found = 0;
                loop {
                    let key = pause.key();
                    found += brought.swap(0, SeqCst);
                    if ends.load(SeqCst) == 1 {
                        return found + brought.swap(0, SeqCst);
                    }
                    pause.idle_unless(key, || brought.load(SeqCst) > 0);
                }
            });
            let bring = || {
                brought.fetch_add(1, SeqCst);
                pause.bring();
            };
            let bringing = [scope.spawn(bring), scope.spawn(bring), scope.spawn(bring)];
            for thread in bringing {
                thread.join().unwrap();
            }
            ends.store(1, SeqCst);
            pause.call();
            poller.join().unwrap()
        });
        assert_eq!(found, 3);
    };
    shuttle::check_random(order, ORDERS);
}

#[test]
fn three_who_take_from_a_monitor_and_two_who_bring_meet() {
    let order = || {
        let monitor = Arc::new(Monitor::new(0_u32));
        let takers: Vec<_> = (0..3)
            .map(|_| {
                let monitor = Arc::clone(&monitor);
                thread::spawn(move || monitor.wait(|left| left.checked_sub(1).map(|rest| *left = rest)))
            })
            .collect();
        let bringing = {
            let monitor = Arc::clone(&monitor);
            thread::spawn(move || monitor.change_for(2, |left| *left += 2))
        };
        monitor.change_for(1, |left| *left += 1);
        bringing.join().unwrap();
        for taker in takers {
            taker.join().unwrap();
        }
        assert_eq!(*monitor.lock(), 0);
    };
    shuttle::check_random(order, ORDERS);
}

#[test]
fn work_that_three_leave_while_one_polls_and_one_holds_the_lock_is_done() {
    let order = || {
        let (delegated, left) = (Delegated::new(0_u32), AtomicU32::new(0));
        let add_up = |done: &mut u32| *done += left.swap(0, SeqCst);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    left.fetch_add(1, SeqCst);
                    delegated.leave(add_up);
                });
            }
            scope.spawn(|| {
                delegated.begin_to_poll();
                delegated.poll(add_up);
                delegated.end_to_poll(add_up);
            });
            delegated.release(delegated.lock(), add_up);
        });
        assert_eq!(*delegated.lock(), 3);
    };
    shuttle::check_random(order, ORDERS);
}
