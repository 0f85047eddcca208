//! The protocols with threads of the system and its clock; all orders of their steps are loom's (`src/loom_tests.rs`).
#![cfg(not(any(loom, shuttle)))]

use std::os::fd::AsFd as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use causeway_sync::{
    Delegated, EventCount, EventfdWake, ForkJoinPool, Latch, Monitor, Parker, PollPause, WaitSlot,
    WakeReason, wake_flag,
};
use rustix::pipe::pipe;

const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(1);

/// Rounds in which a sleeper and a waker meet at random; a lost wake-up hangs or costs a second of the wake flag.
const ROUNDS: u64 = if cfg!(miri) { 50 } else { 20_000 };

#[test]
fn a_parker_meets_its_wakers_whenever_they_come() {
    let (parker, work) = (Parker::new(), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for round in 0..ROUNDS {
                    work.fetch_add(1, Ordering::Release);
                    parker.wake();
                    (0..round % 300).for_each(|_| core::hint::spin_loop());
                }
            });
        }
        let (mut seen, deadline) = (0, Instant::now() + 2 * LONG);
        while seen < 2 * ROUNDS {
            assert!(Instant::now() < deadline, "woken {seen} times only");
            parker.park_unless(|| work.load(Ordering::Acquire) != seen);
            seen = work.load(Ordering::Acquire);
        }
    });
    assert!(!parker.is_parked());
}

#[test]
fn a_slot_is_used_again_and_again() {
    let (slot, requested, value) = (WaitSlot::new(), AtomicU32::new(0), AtomicU32::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 1..=ROUNDS as u32 {
                let deadline = Instant::now() + LONG;
                while requested.load(Ordering::Acquire) != number {
                    assert!(Instant::now() < deadline, "slot {number} is never requested");
                    std::thread::yield_now();
                }
                value.store(number * 3, Ordering::Relaxed);
                assert!(!slot.end(number + 1) && slot.end(number) && !slot.end(number));
            }
        });
        for number in 1..=ROUNDS as u32 {
            slot.begin(number);
            requested.store(number, Ordering::Release);
            if number % 2 == 0 || slot.is_waiting(number) {
                slot.park(number);
            }
            assert_eq!((value.load(Ordering::Relaxed), slot.number()), (number * 3, 0));
        }
    });
}

#[test]
fn an_event_count_says_what_has_happened_and_when_nothing_has() {
    let events = EventCount::new();
    let key = events.key();
    assert!(!events.wait_for(key, SHORT), "nothing has happened");
    events.notify_all();
    assert!(events.wait_for(key, LONG), "it happened before the wait");
    let happened = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut seen = 0;
                while seen < ROUNDS as usize {
                    let key = events.key();
                    let now = happened.load(Ordering::Relaxed);
                    if now == seen {
                        assert!(events.wait_for(key, LONG), "a wake-up was lost");
                    }
                    seen = now;
                }
            });
        }
        for _ in 0..ROUNDS {
            happened.fetch_add(1, Ordering::Relaxed);
            events.notify_all();
        }
    });
}

#[test]
fn a_poller_is_woken_by_what_is_brought_when_it_is_idle_and_by_calls_in_a_pause() {
    let (pause, brought) = (PollPause::new(), AtomicU64::new(0));
    assert!(!pause.pause(pause.key(), SHORT), "nobody has called");
    let key = pause.key();
    pause.bring();
    assert!(!pause.pause(key, SHORT), "what is brought ends no pause");
    pause.call();
    assert!(pause.pause(key, LONG), "somebody called before the pause");
    std::thread::scope(|scope| {
        for call in [false, true] {
            let (pause, brought) = (&pause, &brought);
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    brought.fetch_add(1, Ordering::Relaxed);
                    if call {
                        pause.call()
                    } else {
                        pause.bring()
                    }
                    (0..round % 300).for_each(|_| core::hint::spin_loop());
                }
            });
        }
        let (mut seen, deadline) = (0, Instant::now() + 2 * LONG);
        while seen < 2 * ROUNDS {
            assert!(Instant::now() < deadline, "called {seen} times only");
            let key = pause.key();
            pause.idle_unless(key, || brought.load(Ordering::Relaxed) != seen);
            seen = brought.load(Ordering::Relaxed);
        }
    });
}

#[test]
fn a_monitor_gives_what_is_there_or_comes_and_nothing_when_time_is_over() {
    let monitor = Monitor::new(Vec::new());
    assert_eq!(monitor.wait_for(SHORT, Vec::pop), None);
    monitor.change(|things| things.push(1));
    assert_eq!(monitor.wait_for(Duration::ZERO, Vec::pop), Some(1), "looked at once in any case");
    let taken = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while monitor.wait(Vec::pop) != 0 {
                    taken.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for _ in 0..ROUNDS {
            monitor.change_for(1, |things| things.push(1));
        }
        monitor.change(|things| things.splice(0..0, [0; 3]).for_each(drop));
    });
    assert_eq!(taken.into_inner(), ROUNDS);
}

#[test]
fn a_pool_does_its_work_with_whoever_comes_and_without_a_helper_that_has_panicked() {
    let pool = ForkJoinPool::new(3, "helper", || {}).unwrap();
    let (caller, has_panicked) = (std::thread::current().id(), AtomicBool::new(false));
    for round in 0..ROUNDS / 10 {
        let (next, done) = (AtomicU64::new(0), AtomicU64::new(0));
        pool.run(9, &|| {
            if std::thread::current().id() != caller && !has_panicked.swap(true, Ordering::Relaxed) {
                panic!("for the test");
            }
            while next.fetch_add(1, Ordering::Relaxed) < 50 {
                done.fetch_add(1, Ordering::Relaxed);
            }
            // Long enough for some helpers to come.
            (0..round % 3000).for_each(|_| core::hint::spin_loop());
        });
        assert_eq!(done.into_inner(), 50);
    }
    let run = || pool.run(3, &|| panic!("for the test"));
    assert!(catch_unwind(AssertUnwindSafe(run)).is_err(), "the caller's own panic goes on");
}

#[test]
fn a_latch_lets_everybody_through_when_the_last_part_is_done() {
    assert!(Latch::new(0).is_open());
    Latch::new(0).wait();
    let (latch, done) = (Arc::new(Latch::new(40)), Arc::new(AtomicUsize::new(0)));
    let workers: Vec<_> = (0..8)
        .map(|_| {
            let (latch, done) = (Arc::clone(&latch), Arc::clone(&done));
            std::thread::spawn(move || {
                for parts in [2, 3] {
                    done.fetch_add(parts, Ordering::Relaxed);
                    latch.done(parts);
                }
            })
        })
        .collect();
    latch.wait();
    assert_eq!((done.load(Ordering::Relaxed), latch.is_open()), (40, true));
    workers.into_iter().for_each(|worker| worker.join().unwrap());
}

#[test]
#[should_panic(expected = "3 parts done of 2 that are left")]
fn a_latch_notices_parts_that_there_are_not() {
    Latch::new(2).done(3);
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no futex with a time limit")]
fn a_wake_flag_loses_no_wake_up() {
    let (word, counter) = (AtomicU32::new(wake_flag::BUSY), AtomicU64::new(0));
    let begun = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..ROUNDS {
                counter.fetch_add(1, Ordering::Release);
                wake_flag::wake(&word);
            }
        });
        let mut seen = 0;
        while seen < ROUNDS {
            wake_flag::park(&word, wake_flag::BUSY, || counter.load(Ordering::Acquire) > seen);
            seen = counter.load(Ordering::Acquire);
        }
    });
    // Every lost one would have cost a second.
    assert!(begun.elapsed() < LONG);
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no poll")]
fn a_sleeper_is_woken_by_its_descriptor_by_somebody_and_by_the_end_of_its_time() {
    let (wake, (reader, writer)) = (EventfdWake::new().unwrap(), pipe().unwrap());
    assert_eq!(wake.park(reader.as_fd(), SHORT), WakeReason::Time);
    wake.wake();
    assert_eq!(wake.park(reader.as_fd(), LONG), WakeReason::Woken);
    assert_eq!(wake.park(reader.as_fd(), SHORT), WakeReason::Time);
    rustix::io::write(&writer, &[1]).unwrap();
    wake.wake();
    assert_eq!(wake.park(reader.as_fd(), LONG), WakeReason::Descriptor);
    drop(writer);
    assert_eq!(wake.park(reader.as_fd(), LONG), WakeReason::Descriptor);
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no poll")]
fn who_is_awake_is_not_woken_and_who_sleeps_is() {
    let (wake, (reader, _writer)) = (EventfdWake::new().unwrap(), pipe().unwrap());
    wake.wake_if_parked();
    assert_eq!(wake.park(reader.as_fd(), SHORT), WakeReason::Time);
    std::thread::scope(|scope| {
        let sleeper = scope.spawn(|| wake.park(reader.as_fd(), LONG));
        let begun = Instant::now();
        while !sleeper.is_finished() && begun.elapsed() < Duration::from_secs(30) {
            wake.wake_if_parked();
            std::thread::yield_now();
        }
        assert_eq!(sleeper.join().unwrap(), WakeReason::Woken);
    });
}

#[test]
fn no_work_is_forgotten_whenever_a_thread_begins_and_ends_to_poll() {
    const THREADS: u64 = 3;
    let (work, left) = (Delegated::new(0), AtomicU64::new(0));
    let add_up = |done: &mut u64| *done += left.swap(0, Ordering::SeqCst);
    std::thread::scope(|scope| {
        let others = [(); THREADS as usize].map(|()| {
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    left.fetch_add(1, Ordering::SeqCst);
                    work.leave(add_up);
                }
            })
        });
        let mut looks = 0_usize;
        while others.iter().any(|other| !other.is_finished()) {
            work.begin_to_poll();
            (0..looks % 50).for_each(|_| work.poll(add_up));
            work.end_to_poll(add_up);
            looks += 1;
        }
    });
    assert_eq!(*work.lock(), THREADS * ROUNDS);
    assert_eq!(left.load(Ordering::SeqCst), 0);
}

#[test]
fn work_is_left_to_who_polls_and_to_who_holds_the_lock() {
    let work = Delegated::new(0);
    let count = |done: &mut u32| *done += 1;
    work.leave(count);
    assert_eq!(*work.lock(), 1, "nobody else was there");
    work.poll(count);
    assert_eq!(*work.lock(), 1, "nothing was left");
    work.begin_to_poll();
    work.leave(count);
    assert_eq!(*work.lock(), 1);
    work.end_to_poll(count);
    assert_eq!(*work.lock(), 2);
    work.end_to_poll(count);
    assert_eq!(*work.lock(), 2);
    let held = work.lock();
    work.leave(count);
    assert_eq!(*held, 2);
    work.release(held, count);
    assert_eq!(*work.lock(), 3);
}
