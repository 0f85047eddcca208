//! The smallest race of each protocol, in every order that the memory model allows (`make check-concurrency`).
//!
//! A wake-up that is lost is a thread that sleeps for ever, which loom reports as a deadlock.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Duration;

use loom::sync::Arc;
use loom::sync::atomic::AtomicU32;
use loom::thread;

use crate::face::Mutex;
use crate::queue::{Receiver, queue};
use crate::{
    Delegated, EventCount, EventfdWake, ForkJoinPool, Gate, Latch, LazyThread, Monitor, Offers, Parker,
    PollPause, WaitQueue, WaitSlot, WakeReason, wake_flag,
};

const LONG: Duration = Duration::from_secs(3600);

/// Runs `work` in a thread of its own.
fn in_thread<S: Send + Sync + 'static, R: Send + 'static>(
    shared: &Arc<S>,
    work: impl FnOnce(&S) -> R + Send + 'static,
) -> thread::JoinHandle<R> {
    let shared = shared.clone();
    thread::spawn(move || work(&shared))
}

#[test]
fn a_parker_misses_no_work() {
    loom::model(|| {
        let shared = Arc::new((Parker::new(), AtomicU32::new(0)));
        let parked = in_thread(&shared, |(parker, work)| {
            while work.load(Acquire) == 0 {
                parker.park_unless(|| work.load(Acquire) != 0);
            }
        });
        shared.1.store(1, Release);
        shared.0.wake();
        parked.join().unwrap();
    });
}

#[test]
fn a_parker_with_two_wakers_sees_the_work_of_both() {
    loom::model(|| {
        let shared = Arc::new((Parker::new(), AtomicU32::new(0)));
        let bring = |work: u32| {
            move |shared: &(Parker, AtomicU32)| {
                shared.1.fetch_or(work, Release);
                shared.0.wake();
            }
        };
        let parked = in_thread(&shared, |(parker, work)| {
            let mut seen = 0;
            while seen != 3 {
                parker.park_unless(|| work.load(Acquire) != seen);
                seen = work.load(Acquire);
            }
        });
        let other = in_thread(&shared, bring(1));
        bring(2)(&shared);
        other.join().unwrap();
        parked.join().unwrap();
    });
}

#[test]
fn a_slot_ends_its_use_once_and_what_was_written_before_is_there() {
    loom::model(|| {
        let shared = Arc::new((WaitSlot::new(), AtomicU32::new(0)));
        shared.0.begin(7);
        let waiter = in_thread(&shared, |(slot, written)| {
            if slot.is_waiting(7) {
                slot.park(7);
            }
            assert_eq!(written.load(Relaxed), 5);
        });
        assert!(!shared.0.end(6), "another use's end");
        shared.1.store(5, Relaxed);
        assert!(shared.0.end(7) && !shared.0.end(7));
        waiter.join().unwrap();
    });
}

#[test]
fn a_slot_serves_its_next_use_whatever_is_left_of_the_last() {
    loom::model(|| {
        let slot = Arc::new(WaitSlot::new());
        slot.begin(7);
        let ender = in_thread(&slot, |slot| {
            assert!(slot.end(7));
            // The waiter may begin its next use before this one's wake-up.
            while !slot.end(8) {
                thread::yield_now();
            }
        });
        slot.park(7);
        slot.begin(8);
        slot.park(8);
        ender.join().unwrap();
        assert_eq!(slot.number(), 0);
    });
}

#[test]
fn each_item_of_a_queue_goes_to_one_and_its_end_to_all() {
    loom::model(|| {
        let (sender, receiver) = queue();
        let receiver = Arc::new(receiver);
        let other = in_thread(&receiver, Receiver::receive);
        let sending = thread::spawn(move || sender.send(1).unwrap());
        let own = receiver.receive();
        let got = [own, other.join().unwrap()];
        sending.join().unwrap();
        assert!(got == [Some(1), None] || got == [None, Some(1)]);
    });
}

/// What a stream is to have done on a thread that two streams need first, of which the system gives one at the
/// second try: who was refused hands nothing over, and what is handed over is done.
#[test]
fn what_is_handed_to_a_thread_that_starts_late_is_done() {
    loom::model(|| {
        let shared = Arc::new((LazyThread::<u32>::new(), AtomicU32::new(0), AtomicU32::new(0)));
        let hand_over = {
            let all = shared.clone();
            move |(thread, tries, _): &(LazyThread<u32>, AtomicU32, AtomicU32)| {
                let start = |queue: Receiver<u32>| {
                    if tries.fetch_add(1, Relaxed) == 0 {
                        return Err(std::io::ErrorKind::WouldBlock.into());
                    }
                    let all = all.clone();
                    Ok(thread::spawn(move || {
                        if let Some(item) = queue.receive() {
                            all.2.fetch_add(item, Relaxed);
                        }
                    }))
                };
                match thread.ensure(start) {
                    Ok(()) => thread.send(1).map_or(0, |()| 1),
                    Err(_) => 0,
                }
            }
        };
        let other = in_thread(&shared, hand_over.clone());
        let handed_over = hand_over(&*shared) + other.join().unwrap();
        assert_eq!(handed_over, 1, "one of two was refused");
        while shared.2.load(Relaxed) == 0 {
            thread::yield_now();
        }
    });
}

/// The bytes of an image: their owner frees them when it has withdrawn the offer, and nobody reads them afterwards.
#[test]
fn what_was_offered_is_not_used_after_it_was_withdrawn() {
    loom::model(|| {
        let shared = Arc::new((Offers::new(), AtomicU32::new(0)));
        shared.0.offer(1, ());
        let taker = in_thread(&shared, |(offers, freed)| {
            if offers.take(1).is_some() {
                assert_eq!(freed.load(Relaxed), 0);
            }
            offers.complete(1);
        });
        shared.0.withdraw(1);
        shared.1.store(1, Relaxed);
        taker.join().unwrap();
    });
}

#[test]
fn a_slot_that_two_end_is_ended_by_one() {
    loom::model(|| {
        let slot = Arc::new(WaitSlot::new());
        slot.begin(7);
        let waiter = in_thread(&slot, |slot| slot.park(7));
        let other = in_thread(&slot, |slot| slot.end(7));
        let ended = [slot.end(7), other.join().unwrap()];
        waiter.join().unwrap();
        assert!(ended[0] != ended[1]);
    });
}

#[test]
fn an_event_count_sleeps_over_no_event() {
    loom::model(|| {
        let shared = Arc::new((EventCount::new(), AtomicU32::new(0)));
        let waiter = in_thread(&shared, |(events, happened)| {
            loop {
                let key = events.key();
                if happened.load(Relaxed) == 1 {
                    break;
                }
                events.wait(key);
            }
        });
        shared.1.store(1, Relaxed);
        shared.0.notify_all();
        waiter.join().unwrap();
    });
}

#[test]
fn an_event_wakes_all_who_wait() {
    loom::model(|| {
        let shared = Arc::new((EventCount::new(), AtomicU32::new(0)));
        let wait = |(events, happened): &(EventCount, AtomicU32)| {
            let key = events.key();
            if happened.load(Relaxed) == 0 {
                events.wait(key);
            }
        };
        let waiters = [in_thread(&shared, wait), in_thread(&shared, wait)];
        shared.1.store(1, Relaxed);
        shared.0.notify_all();
        for waiter in waiters {
            waiter.join().unwrap();
        }
    });
}

#[test]
fn what_is_brought_while_a_poller_goes_idle_is_looked_for() {
    loom::model(|| {
        let shared = Arc::new((PollPause::new(), AtomicU32::new(0)));
        let poller = in_thread(&shared, |(pause, brought)| {
            let key = pause.key();
            if brought.load(Relaxed) == 0 {
                pause.idle_unless(key, || brought.load(Relaxed) == 1);
                assert_eq!(brought.load(Relaxed), 1);
            }
        });
        shared.1.store(1, Relaxed);
        shared.0.bring();
        poller.join().unwrap();
    });
}

#[test]
fn a_poller_that_is_called_sleeps_over_it_neither_in_a_pause_nor_idle() {
    for is_idle in [false, true] {
        loom::model(move || {
            let shared = Arc::new((PollPause::new(), AtomicU32::new(0)));
            let poller = in_thread(&shared, move |(pause, ends)| {
                let key = pause.key();
                if ends.load(Relaxed) == 0 {
                    if is_idle {
                        pause.idle_unless(key, || false);
                    } else {
                        assert!(pause.pause(key, LONG));
                    }
                    assert_eq!(ends.load(Relaxed), 1);
                }
            });
            shared.1.store(1, Relaxed);
            shared.0.call();
            poller.join().unwrap();
        });
    }
}

#[test]
fn a_poller_that_two_bring_something_looks_for_both() {
    loom::model(|| {
        let shared = Arc::new((PollPause::new(), AtomicU32::new(0)));
        let bring = |what: u32| {
            move |shared: &(PollPause, AtomicU32)| {
                shared.1.fetch_or(what, Relaxed);
                shared.0.bring();
            }
        };
        let poller = in_thread(&shared, |(pause, brought)| {
            let mut seen = 0;
            while seen != 3 {
                let key = pause.key();
                pause.idle_unless(key, || brought.load(Relaxed) != seen);
                seen = brought.load(Relaxed);
            }
        });
        let other = in_thread(&shared, bring(1));
        bring(2)(&shared);
        other.join().unwrap();
        poller.join().unwrap();
    });
}

#[test]
fn a_monitor_gives_each_who_waits_something_of_its_own() {
    loom::model(|| {
        let monitor = Arc::new(Monitor::new(0_u32));
        let take = |monitor: &Monitor<u32>| monitor.wait(|left| left.checked_sub(1).map(|rest| *left = rest));
        let waiters = [in_thread(&monitor, take), in_thread(&monitor, take)];
        monitor.change_for(2, |left| *left += 2);
        for waiter in waiters {
            waiter.join().unwrap();
        }
        assert_eq!(*monitor.lock(), 0);
    });
}

#[test]
fn a_change_of_a_monitor_is_seen_by_all_who_wait() {
    loom::model(|| {
        let monitor = Arc::new(Monitor::new(false));
        let see = |monitor: &Monitor<bool>| monitor.wait(|is_over| is_over.then_some(()));
        let waits =
            |monitor: &Monitor<bool>| monitor.wait_for(LONG, |is_over| is_over.then_some(())).unwrap();
        let waiters = [in_thread(&monitor, see), in_thread(&monitor, waits)];
        monitor.change(|is_over| *is_over = true);
        for waiter in waiters {
            waiter.join().unwrap();
        }
    });
}

/// What is done behind one lock, and who sleeps until there is more.
#[derive(Default)]
struct Crew {
    work: u32,
    asleep: usize,
}

#[test]
fn each_sleeper_that_is_counted_is_notified_of_work_of_its_own() {
    loom::model(|| {
        let shared = Arc::new((Mutex::new(Crew::default()), WaitQueue::new()));
        let take = |(crew, more): &(Mutex<Crew>, WaitQueue)| {
            let mut crew = crew.lock();
            while crew.work == 0 {
                // Who brings work takes it back.
                crew.asleep += 1;
                more.wait(&mut crew);
            }
            crew.work -= 1;
        };
        let workers = [in_thread(&shared, take), in_thread(&shared, take)];
        for _ in 0..2 {
            let mut crew = shared.0.lock();
            crew.work += 1;
            let called = crew.asleep.min(1);
            crew.asleep -= called;
            drop(crew);
            shared.1.notify(called);
        }
        for worker in workers {
            worker.join().unwrap();
        }
        assert_eq!(shared.0.lock().work, 0);
    });
}

#[test]
fn a_notification_of_one_queue_is_not_taken_by_who_sleeps_for_another() {
    loom::model(|| {
        let shared = Arc::new((Mutex::new([false; 2]), [WaitQueue::new(), WaitQueue::new()]));
        let sleepers = [0, 1].map(|which| {
            in_thread(&shared, move |(has_come, queues)| {
                let mut has_come = has_come.lock();
                while !has_come[which] {
                    queues[which].wait(&mut has_come);
                }
            })
        });
        for which in [1, 0] {
            shared.0.lock()[which] = true;
            shared.1[which].notify(1);
        }
        for sleeper in sleepers {
            sleeper.join().unwrap();
        }
    });
}

#[test]
fn a_latch_opens_with_its_last_part_and_shows_what_all_have_written() {
    loom::model(|| {
        let shared = Arc::new((Latch::new(2), [AtomicU32::new(0), AtomicU32::new(0)]));
        let workers = [0, 1].map(|part| {
            in_thread(&shared, move |(latch, written)| {
                written[part].store(1, Relaxed);
                latch.done(1);
            })
        });
        if !shared.0.is_open() {
            shared.0.wait();
        }
        assert!(shared.0.is_open());
        assert!(shared.1.iter().all(|written| written.load(Relaxed) == 1));
        for worker in workers {
            worker.join().unwrap();
        }
    });
}

#[test]
fn nobody_is_in_the_work_of_a_pool_that_has_returned_from_it() {
    loom::model(|| {
        let pool = ForkJoinPool::new(1, "helper", || {}).unwrap();
        let (calls, inside) = (AtomicU32::new(0), AtomicU32::new(0));
        pool.run(1, &|| {
            inside.fetch_add(1, Relaxed);
            calls.fetch_add(1, Relaxed);
            inside.fetch_sub(1, Relaxed);
        });
        assert_eq!(inside.load(Relaxed), 0);
        assert!((1..=2).contains(&calls.load(Relaxed)));
    });
}

#[test]
fn a_wake_flag_loses_no_wake_up() {
    loom::model(|| {
        let shared = Arc::new((AtomicU32::new(wake_flag::BUSY), AtomicU32::new(0)));
        let sleeper = in_thread(&shared, |(word, work)| {
            while work.load(Acquire) == 0 {
                wake_flag::park(word, wake_flag::BUSY, || work.load(Acquire) != 0);
            }
        });
        shared.1.store(1, Release);
        wake_flag::wake(&shared.0);
        sleeper.join().unwrap();
    });
}

#[test]
fn an_eventfd_wakes_now_or_before_the_next_sleep() {
    loom::model(|| {
        // The second one stands for a descriptor that never has anything.
        let shared = Arc::new((EventfdWake::new().unwrap(), EventfdWake::new().unwrap()));
        let sleeper = in_thread(&shared, |(wake, descriptor)| wake.park(descriptor.readable(), LONG));
        shared.0.wake();
        assert_eq!(sleeper.join().unwrap(), WakeReason::Woken);
    });
}

#[test]
fn a_thread_that_a_waker_misses_is_woken_by_its_descriptor() {
    loom::model(|| {
        let shared = Arc::new((EventfdWake::new().unwrap(), EventfdWake::new().unwrap()));
        let sleeper =
            in_thread(
                &shared,
                |(wake, descriptor)| {
                    while wake.park(descriptor.readable(), LONG) != WakeReason::Descriptor {}
                },
            );
        shared.0.wake_if_parked();
        shared.1.wake();
        sleeper.join().unwrap();
    });
}

/// Adds what is left to the state.
fn add_up(left: &AtomicU32) -> impl FnMut(&mut u32) {
    |done| *done += left.swap(0, Relaxed)
}

#[test]
fn work_that_two_leave_and_a_holder_releases_is_done() {
    loom::model(|| {
        let shared = Arc::new((Delegated::new(0), AtomicU32::new(0)));
        let leave = |(delegated, left): &(Delegated<u32>, AtomicU32)| {
            left.fetch_add(1, Relaxed);
            delegated.leave(add_up(left));
        };
        let others = [in_thread(&shared, leave), in_thread(&shared, leave)];
        shared.0.release(shared.0.lock(), add_up(&shared.1));
        for other in others {
            other.join().unwrap();
        }
        assert_eq!(*shared.0.lock(), 2);
    });
}

#[test]
fn work_that_is_left_to_who_polls_is_done_when_that_ends() {
    loom::model(|| {
        let shared = Arc::new((Delegated::new(0), AtomicU32::new(0)));
        shared.0.begin_to_poll();
        let other = in_thread(&shared, |(delegated, left)| {
            left.fetch_add(1, Relaxed);
            delegated.leave(add_up(left));
        });
        shared.0.poll(add_up(&shared.1));
        shared.0.end_to_poll(add_up(&shared.1));
        other.join().unwrap();
        assert_eq!(*shared.0.lock(), 1);
    });
}

/// Something that only one thread may touch at a time, which loom checks.
#[derive(Default)]
struct Touched(loom::cell::UnsafeCell<u32>);

// SAFETY: the gate's protocol, which is what the tests check, has one thread touch it at a time.
unsafe impl Sync for Touched {}
// SAFETY: the gate's protocol, which is what the tests check, has one thread touch it at a time.
unsafe impl Send for Touched {}

impl Touched {
    fn touch(&self) -> u32 {
        // SAFETY: the caller is alone with it, or loom reports that it is not.
        self.0.with_mut(|value| unsafe {
            *value += 1;
            *value
        })
    }
}

#[test]
fn a_thread_that_has_closed_a_gate_is_alone() {
    loom::model(|| {
        let shared = Arc::new((Gate::new(), Touched::default()));
        let entering = in_thread(&shared, |(gate, touched)| {
            for _ in 0..2 {
                let _section = gate.enter_by(1);
                touched.touch();
            }
        });
        shared.0.close_by(0, LONG).unwrap();
        // The closing thread passes, and it alone.
        let section = shared.0.enter_by(0);
        let value = shared.1.touch();
        drop(section);
        assert_eq!(shared.1.touch(), value + 1);
        shared.0.open();
        entering.join().unwrap();
        shared.0.close_by(0, LONG).unwrap();
        assert_eq!(shared.1.touch(), 5);
    });
}

#[test]
fn a_thread_that_enters_again_does_not_wait() {
    loom::model(|| {
        let shared = Arc::new((Gate::new(), Touched::default()));
        let entering = in_thread(&shared, |(gate, touched)| {
            let _outer = gate.enter_by(1);
            let _inner = gate.enter_by(1);
            touched.touch();
        });
        shared.0.close_by(0, LONG).unwrap();
        shared.1.touch();
        shared.0.open();
        entering.join().unwrap();
    });
}

#[test]
fn threads_that_share_a_slot_are_all_waited_for() {
    loom::model(|| {
        let shared = Arc::new((Gate::new(), [Touched::default(), Touched::default()]));
        let enter = |which: usize| {
            move |(gate, touched): &(Gate, [Touched; 2])| {
                let _section = gate.enter_by(2);
                touched[which].touch();
            }
        };
        let others = [in_thread(&shared, enter(0)), in_thread(&shared, enter(1))];
        shared.0.close_by(0, LONG).unwrap();
        shared.1.iter().for_each(|touched| {
            touched.touch();
        });
        shared.0.open();
        for other in others {
            other.join().unwrap();
        }
    });
}
