//! Completions: when the end of work is reported, and what stops a stream.

use super::{BUSY, Fake};
use causeway_api::handle::{Native, Stream};
use causeway_api::image::Form;
use causeway_api::sys::CUresult;
use causeway_api::types::JitOptions;
use causeway_gpu::calls::*;
use causeway_gpu::{Completion, Gpu};
use std::ffi::c_int;
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

/// How long a test waits for what must come.
const TIMEOUT: Duration = Duration::from_secs(60);

#[test]
fn completions_come_at_once_or_later_and_in_order() {
    let fake = Fake::new();
    let stream = fake.driver.stream_create(1, -3).unwrap();
    assert_eq!(fake.log(), "stream flags 1 priority -3\n");
    let (sender, results) = mpsc::channel();
    let done = |label: &'static str| -> Completion {
        let sender = sender.clone();
        Box::new(move |status| sender.send((label, status)).unwrap())
    };
    fake.driver.after(stream, done("at once")).unwrap();
    assert_eq!(results.try_recv(), Ok(("at once", Ok(()))));
    assert_eq!(fake.log(), "", "an idle stream needs no event");

    fake.set_busy(BUSY);
    let event = fake.driver.event_create(0).unwrap();
    fake.driver.after(stream, done("first")).unwrap();
    fake.driver.after_event(event, done("second")).unwrap();
    fake.driver.after_context(done("third")).unwrap();
    fake.driver.after(Native::NULL, done("fourth")).unwrap();
    fake.driver.event_destroy(event).unwrap();
    assert!(!fake.log().contains("destroyed"), "an event that is waited for stays");
    assert!(results.try_recv().is_err());
    fake.set_busy(0);
    for label in ["first", "second", "third", "fourth"] {
        assert_eq!(results.recv().unwrap(), (label, Ok(())));
    }
    assert!(fake.log().contains("event destroyed"));

    fake.set_busy(BUSY);
    fake.driver.after(stream, done("fails")).unwrap();
    fake.set_busy(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS.0 as c_int);
    assert_eq!(results.recv().unwrap(), ("fails", Err(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS)));

    fake.set_busy(BUSY);
    fake.driver.after(stream, done("abandoned")).unwrap();
    fake.driver.primary_context_release(fake.context, 1).unwrap();
    assert_eq!(results.recv().unwrap(), ("abandoned", Err(CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED)));
}

#[test]
fn who_waits_for_a_record_does_not_wait_for_the_next_one() {
    let fake = Fake::new();
    let (sender, results) = mpsc::channel();
    let done = |label: &'static str| -> Completion {
        let sender = sender.clone();
        Box::new(move |status| sender.send((label, status)).unwrap())
    };
    let event = fake.driver.event_create(0).unwrap();
    fake.set_busy(BUSY);
    fake.driver.after_event(event, done("first")).unwrap();
    fake.log();
    fake.driver.event_record(event, Native::NULL, 0).unwrap();
    let log = fake.log();
    assert!(log.contains(&format!("waits for {:p} flags 0\nrecord\nrecord\n", event.as_raw())), "{log}");
    fake.driver.after_event(event, done("second")).unwrap();
    fake.set_unfinished(event);
    fake.set_busy(0);
    assert_eq!(results.recv().unwrap(), ("first", Ok(())));
    assert!(results.try_recv().is_err());
    fake.set_unfinished(Native::NULL);
    assert_eq!(results.recv().unwrap(), ("second", Ok(())));
    fake.driver.event_record(event, Native::NULL, 0).unwrap();
    assert_eq!(fake.log().matches("record").count(), 1, "nobody waits any more");
}

#[test]
fn a_thread_that_looks_gets_the_completions_until_it_stops() {
    let fake = Fake::new();
    let (sender, results) = mpsc::channel();
    let wait = |urgent: bool| {
        let sender = sender.clone();
        let done: Completion = Box::new(move |_| sender.send(std::thread::current().id()).unwrap());
        let stream = Native::<Stream>::NULL;
        if urgent { fake.driver.after(stream, done) } else { fake.driver.after_a_while(stream, done) }
            .unwrap();
    };
    let mut poller = fake.driver.idle_poller();
    let finds_the_end = || {
        fake.set_busy(BUSY);
        wait(true);
        assert!(poller.is_waited_for());
        poller.poll();
        assert!(results.try_recv().is_err());
        fake.set_busy(0);
        let deadline = Instant::now() + TIMEOUT;
        while poller.is_waited_for() {
            assert!(Instant::now() < deadline, "nobody finds the end of the work");
            poller.poll();
            std::thread::yield_now();
        }
        results.try_recv() == Ok(std::thread::current().id())
    };
    // The thread of the waits may be awake at first, and sooner; nobody wakes it once it sleeps.
    assert!((0..1000).any(|_| finds_the_end()));

    fake.set_busy(BUSY);
    wait(true);
    poller.leave();
    fake.set_busy(0);
    assert_ne!(results.recv().unwrap(), std::thread::current().id());

    // What was asked for before the thread sleeps, and while it does, others look for.
    fake.set_busy(BUSY);
    wait(true);
    poller.asleep(|| {
        fake.set_busy(0);
        assert_ne!(results.recv().unwrap(), std::thread::current().id());
        fake.set_busy(BUSY);
        wait(true);
        fake.set_busy(0);
        assert_ne!(results.recv().unwrap(), std::thread::current().id());
    });

    // So they do when it stops.
    fake.set_busy(BUSY);
    wait(true);
    drop(poller);
    fake.set_busy(0);
    assert_ne!(results.recv().unwrap(), std::thread::current().id());
    let poller = fake.driver.idle_poller();

    // Nobody looks for the end of what nobody waits for, and still it is told.
    fake.set_busy(BUSY);
    wait(false);
    let deadline = Instant::now() + TIMEOUT;
    while poller.is_waited_for() {
        // The completion of the wait before was called a moment ago.
        assert!(Instant::now() < deadline, "the wait before is not forgotten");
        std::thread::yield_now();
    }
    fake.set_busy(0);
    results.recv().unwrap();
}

#[test]
fn gates_count_upwards_and_open_when_dropped() {
    let fake = Fake::new();
    let (sender, reached) = mpsc::channel();
    let stop = || {
        let sender = sender.clone();
        fake.driver.gate(Native::NULL, Box::new(move || sender.send(()).unwrap())).unwrap()
    };
    let gate = stop();
    reached.try_recv().unwrap();
    let log = fake.log();
    assert!(log.contains("register 4096 flags 3 in 0xc1\n"), "{log}");
    assert!(log.ends_with("host function in (nil)\nwait in (nil) for 1 now 0 flags 0\n"), "{log}");
    gate.open();
    drop(stop());
    assert!(fake.log().ends_with("wait in (nil) for 2 now 1 flags 0\n"));
    let (_one, _other) = (stop(), stop());
    let log = fake.log();
    assert!(log.contains("for 3 now 2") && log.contains("for 1 now 0"), "two gates have two words: {log}");
}

#[test]
fn what_kernels_print_comes_before_the_completion() {
    let fake = Fake::new();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let output = Arc::clone(&seen);
    fake.driver.set_output(Box::new(move |_, bytes| output.lock().unwrap().extend_from_slice(bytes)));
    fake.driver.module_load(Form::Single.number(), &JitOptions::default(), b".extern .func vprintf").unwrap();
    fake.print(c"a line from a kernel\n");
    let (sender, result) = mpsc::channel();
    let at_completion = Arc::clone(&seen);
    let done = Box::new(move |_| sender.send(at_completion.lock().unwrap().clone()).unwrap());
    fake.driver.after(Native::NULL, done).unwrap();
    let text = String::from_utf8(result.recv().unwrap()).unwrap();
    assert!(text.contains("a line from a kernel\n"), "{text}");
}
