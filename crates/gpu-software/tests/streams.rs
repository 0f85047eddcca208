//! Streams, events, values and gates of the software GPU.

mod client;

use causeway_api::handle::{Native, Stream};
use causeway_api::sys::CUresult;
use causeway_gpu::Gpu;
use causeway_gpu::calls::*;
use client::{Client, LEGACY};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc;

const EQUAL: u32 = 1;
const DISABLE_TIMING: u32 = 2;
const NOT_READY: Result<(), CUresult> = Err(CUresult::CUDA_ERROR_NOT_READY);

/// Stops a stream; the stream goes on when the sender of the result is dropped.
fn stop(client: &Client, stream: Native<Stream>) -> Box<dyn causeway_gpu::Gate> {
    let (reached, wait) = mpsc::channel();
    let gate = client.gpu.gate(stream, Box::new(move || reached.send(()).unwrap())).unwrap();
    wait.recv().unwrap();
    gate
}

fn append(client: &Client, cell: u64, bit: i32, stream: Native<Stream>) {
    client.launch("append_bit", 1, stream, &parameters!(cell, bit)).unwrap();
}

#[test]
fn kernels_of_two_streams_run_at_the_same_time() {
    let client = Client::new();
    let (first, second) = (client.stream(), client.stream());
    let cells = client.upload(&[0, 0]);
    client.launch("wait_for_flag", 1, first, &parameters!(cells, cells + 4)).unwrap();
    client.launch("set_flag_slowly", 1, second, &parameters!(cells, 5_i32, 1_i64)).unwrap();
    assert_eq!(client.download::<i32>(cells + 4, 1, first), Ok(vec![5]));
}

#[test]
fn a_stream_keeps_its_order() {
    let client = Client::new();
    let stream = client.stream();
    let cell = client.upload(&[1]);
    for bit in [0, 1, 1, 0, 1] {
        append(&client, cell, bit, stream);
    }
    assert_eq!(client.download::<i32>(cell, 1, stream), Ok(vec![0b10_1101]));
}

#[test]
fn five_thousand_launches_wait_for_a_value_that_another_stream_writes() {
    let client = Client::new();
    let (waiting, writing) = (client.stream(), client.stream());
    let (flag, cell) = (client.upload(&[0]), client.upload(&[0]));
    client.gpu.cuStreamWaitValue32_v2(waiting, flag, 7, EQUAL).unwrap();
    for _ in 0..5000 {
        client.launch("add_to", 1, waiting, &parameters!(cell, 1_i32)).unwrap();
    }
    assert_eq!(client.gpu.stream_query(waiting), NOT_READY);
    assert_eq!(client.download::<i32>(cell, 1, writing), Ok(vec![0]));
    client.gpu.cuStreamWriteValue32_v2(writing, flag, 7, 0).unwrap();
    assert_eq!(client.download::<i32>(cell, 1, waiting), Ok(vec![5000]));
    assert_eq!(client.gpu.stream_query(waiting), Ok(()));
}

/// Another process, or the program, writes shared memory without any operation here.
#[test]
fn a_value_that_somebody_else_writes_to_shared_memory_is_seen() {
    const SIZE: usize = 2 << 20;
    let client = Client::new();
    let stream = client.stream();
    let address = client.gpu.snapshot().unwrap().device_window.address;
    let allocation = client.gpu.memory_block_create(address, SIZE, 0, &[0]).unwrap();
    let memory = std::fs::File::from(client.gpu.export_allocation(allocation).unwrap());
    client.gpu.cuStreamWaitValue32_v2(stream, address + 8, 7, EQUAL).unwrap();
    client.gpu.stream_memory_barrier(stream, 6, 0).unwrap();
    let invalid = Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    assert_eq!(client.gpu.stream_memory_barrier(stream, 6, 2), invalid);
    assert_eq!(client.gpu.stream_memory_barrier(stream, 1, 0), invalid);
    assert_eq!(client.gpu.stream_query(stream), NOT_READY);
    std::os::unix::fs::FileExt::write_all_at(&memory, &7_u32.to_le_bytes(), 8).unwrap();
    assert_eq!(client.wait(stream), Ok(()));
}

#[test]
fn a_value_that_a_running_kernel_writes_is_seen() {
    let client = Client::new();
    let (waiting, running, last) = (client.stream(), client.stream(), client.stream());
    let cells = client.upload(&[0, 0, 0]);
    let (first_flag, second_flag, seen) = (cells, cells + 4, cells + 8);
    client.gpu.cuStreamWaitValue32_v2(waiting, first_flag, 1, EQUAL).unwrap();
    client.gpu.cuStreamWriteValue32_v2(waiting, second_flag, 9, 0).unwrap();
    // This kernel runs until the waiting stream has gone on, which needs the flag of the other kernel.
    client.launch("wait_for_flag", 1, running, &parameters!(second_flag, seen)).unwrap();
    client.launch("set_flag_slowly", 1, last, &parameters!(first_flag, 1_i32, 100_000_i64)).unwrap();
    assert_eq!(client.download::<i32>(seen, 1, running), Ok(vec![9]));
}

#[test]
fn value_operations_check_their_arguments() {
    let client = Client::new();
    let stream = client.stream();
    let cell = client.upload(&[3_u64]);
    let invalid = Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    assert_eq!(client.gpu.cuStreamWaitValue32_v2(stream, cell, 0, 4), invalid);
    assert_eq!(client.gpu.cuStreamWaitValue32_v2(stream, cell + 2, 0, EQUAL), invalid);
    assert_eq!(client.gpu.cuStreamWaitValue64_v2(stream, cell + 4, 0, EQUAL), invalid);
    assert_eq!(client.gpu.cuStreamWriteValue64_v2(stream, cell + 8, 0, 0), invalid);
    assert_eq!(client.gpu.cuStreamWriteValue32_v2(stream, 64, 0, 0), invalid);
    for (flags, value) in [(0, 3), (EQUAL, 3), (2, 1), (3, 1)] {
        client.gpu.cuStreamWaitValue64_v2(stream, cell, value, flags).unwrap();
    }
    client.gpu.cuStreamWriteValue64_v2(stream, cell, u64::MAX, 0).unwrap();
    assert_eq!(client.download::<u64>(cell, 1, stream), Ok(vec![u64::MAX]));
}

#[test]
fn events_order_streams() {
    let client = Client::new();
    let (first, second) = (client.stream(), client.stream());
    let cell = client.upload(&[1]);
    let event = client.gpu.event_create(DISABLE_TIMING).unwrap();
    client.gpu.stream_wait_event(second, event, 0).unwrap();
    assert_eq!(client.gpu.event_query(event), Ok(()), "never recorded");
    let gate = stop(&client, first);
    append(&client, cell, 1, first);
    client.gpu.event_record(event, first, 0).unwrap();
    client.gpu.stream_wait_event(second, event, 0).unwrap();
    append(&client, cell, 0, second);
    // The wait means the record that it saw, not this later one.
    client.gpu.event_record(event, second, 0).unwrap();
    assert_eq!(client.gpu.event_query(event), NOT_READY);
    let (sender, done) = mpsc::channel();
    client.gpu.after_event(event, Box::new(move |outcome| sender.send(outcome).unwrap())).unwrap();
    assert!(done.try_recv().is_err());
    gate.open();
    assert_eq!(done.recv().unwrap(), Ok(()));
    assert_eq!(client.download::<i32>(cell, 1, first), Ok(vec![0b110]));
    client.gpu.event_destroy(event).unwrap();
    assert!(client.gpu.event_destroy(event).is_err());
}

#[test]
fn events_keep_time() {
    let client = Client::new();
    let stream = client.stream();
    let flag = client.upload(&[0]);
    let event = |flags| client.gpu.event_create(flags).unwrap();
    let (start, end, silent) = (event(0), event(0), event(DISABLE_TIMING));
    let elapsed = |start, end| client.gpu.event_elapsed(start, end);
    assert_eq!(elapsed(start, end), Err(CUresult::CUDA_ERROR_INVALID_HANDLE), "never recorded");
    client.gpu.event_record(start, stream, 0).unwrap();
    let gate = stop(&client, stream);
    client.launch("set_flag_slowly", 1, stream, &parameters!(flag, 1_i32, 1_000_000_i64)).unwrap();
    client.gpu.event_record(end, stream, 0).unwrap();
    client.gpu.event_record(silent, stream, 0).unwrap();
    assert_eq!(elapsed(start, end), Err(CUresult::CUDA_ERROR_NOT_READY));
    gate.open();
    client.wait(stream).unwrap();
    let forwards = elapsed(start, end).unwrap();
    assert!(forwards > 0.0);
    assert_eq!(elapsed(end, start), Ok(-forwards));
    assert_eq!(elapsed(start, silent), Err(CUresult::CUDA_ERROR_INVALID_HANDLE));
    assert!(client.gpu.event_create(64).is_err());
}

#[test]
fn the_legacy_stream_synchronises_with_blocking_streams_only() {
    let client = Client::new();
    let (blocking, free) = (client.blocking_stream(), client.stream());
    let cell = client.upload(&[1]);
    let gate = stop(&client, blocking);
    append(&client, cell, 0, blocking);
    append(&client, cell, 1, LEGACY);
    let late = client.blocking_stream();
    append(&client, cell, 1, late);
    assert_eq!(client.gpu.stream_query(late), NOT_READY, "it comes after the legacy stream's kernel");
    assert_eq!(
        client.download::<i32>(cell, 1, free),
        Ok(vec![1]),
        "the non-blocking stream waits for nobody"
    );
    gate.open();
    client.wait(late).unwrap();
    assert_eq!(client.download::<i32>(cell, 1, free), Ok(vec![0b1011]));
}

#[test]
fn a_gate_holds_one_stream_and_opens_when_it_is_dropped() {
    let client = Client::new();
    let (held, free) = (client.stream(), client.stream());
    let cell = client.upload(&[1]);
    let gate = stop(&client, held);
    append(&client, cell, 1, held);
    append(&client, cell, 0, free);
    assert_eq!(client.download::<i32>(cell, 1, free), Ok(vec![0b10]));
    drop(gate);
    assert_eq!(client.download::<i32>(cell, 1, held), Ok(vec![0b101]));
    // A gate may be opened before its stream gets there.
    let first = stop(&client, held);
    let reached = Arc::new(AtomicBool::new(false));
    let note = Arc::clone(&reached);
    let second = client.gpu.gate(held, Box::new(move || note.store(true, SeqCst))).unwrap();
    second.open();
    assert!(!reached.load(SeqCst));
    first.open();
    client.wait(held).unwrap();
    assert!(reached.load(SeqCst));
}

#[test]
fn two_streams_wait_for_each_others_events() {
    let client = Client::new();
    let streams = [client.stream(), client.stream()];
    let cell = client.upload(&[0]);
    let event = client.gpu.event_create(DISABLE_TIMING).unwrap();
    for round in 0..2000 {
        let (from, to) = (streams[round % 2], streams[(round + 1) % 2]);
        client.launch("add_to", 1, from, &parameters!(cell, 1_i32)).unwrap();
        client.gpu.event_record(event, from, 0).unwrap();
        client.gpu.stream_wait_event(to, event, 0).unwrap();
    }
    assert_eq!(client.download::<i32>(cell, 1, streams[0]), Ok(vec![2000]));
}

#[test]
fn a_destroyed_stream_finishes_its_work() {
    let client = Client::new();
    let stream = client.stream();
    let cell = client.upload(&[1]);
    let gate = stop(&client, stream);
    append(&client, cell, 1, stream);
    client.gpu.stream_destroy(stream).unwrap();
    assert_eq!(client.gpu.stream_query(stream), Err(CUresult::CUDA_ERROR_INVALID_HANDLE));
    let (sender, done) = mpsc::channel();
    client.gpu.after_context(Box::new(move |outcome| sender.send(outcome).unwrap())).unwrap();
    assert!(done.try_recv().is_err());
    gate.open();
    assert_eq!(done.recv().unwrap(), Ok(()));
    assert_eq!(client.download::<i32>(cell, 1, LEGACY), Ok(vec![0b11]));
}

#[test]
fn a_fault_reaches_every_stream_of_the_context() {
    let client = Client::new();
    let (faulty, waiting, gated) = (client.stream(), client.stream(), client.stream());
    let flag = client.upload(&[0]);
    client.gpu.cuStreamWaitValue32_v2(waiting, flag, 1, EQUAL).unwrap();
    let gate = stop(&client, gated);
    let (sender, done) = mpsc::channel();
    for stream in [waiting, gated] {
        let sender = sender.clone();
        client.gpu.after(stream, Box::new(move |outcome| sender.send(outcome).unwrap())).unwrap();
    }
    client.launch("write_far", 1, faulty, &parameters!(flag)).unwrap();
    let illegal = Err(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_eq!(done.recv().unwrap(), illegal);
    assert_eq!(done.recv().unwrap(), illegal);
    gate.open();
    assert_eq!(client.gpu.event_create(0).map(drop), illegal);
}

#[test]
fn many_streams_and_threads_do_not_disturb_each_other() {
    let client = Arc::new(Client::new());
    let context = client.gpu.primary_context_retain(0, 0).unwrap();
    let threads: Vec<_> = (0..4)
        .map(|thread| {
            let client = Arc::clone(&client);
            std::thread::spawn(move || {
                client.gpu.make_current(context).unwrap();
                for round in 0..50 {
                    let stream = client.stream();
                    let cell = client.gpu.memory_allocate_async(4, Native::NULL, stream).unwrap();
                    client.gpu.cuMemsetD32Async(cell, thread, 1, stream).unwrap();
                    for _ in 0..round {
                        client.launch("add_to", 1, stream, &parameters!(cell, 1_i32)).unwrap();
                    }
                    let sum = client.download::<u32>(cell, 1, stream).unwrap();
                    assert_eq!(sum, [thread + round]);
                    client.gpu.memory_free_async(cell, stream).unwrap();
                    client.gpu.stream_destroy(stream).unwrap();
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
}
