//! Stream capture and graphs on the software GPU.

mod cpu_client;

use causeway_api::handle::{Native, Stream};
use causeway_api::sys::{CUresult, CUstreamCaptureMode};
use causeway_api::types::Region;
use causeway_gpu::{Calls, Gpu};
use cpu_client::{Client, LEGACY};

const GLOBAL: CUstreamCaptureMode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;

fn append(client: &Client, cell: u64, bit: i32, stream: Native<Stream>) {
    client.launch("append_bit", 1, stream, &parameters!(cell, bit)).unwrap();
}

#[test]
fn a_captured_stream_is_launched_a_hundred_times() {
    let client = Client::new();
    let stream = client.stream();
    let (cell, copy) = (client.upload(&[5]), client.upload(&[0]));
    client.gpu.capture_begin(stream, GLOBAL).unwrap();
    client.launch("add_to", 1, stream, &parameters!(cell, 1_i32)).unwrap();
    client.launch("add_to", 1, stream, &parameters!(cell, 2_i32)).unwrap();
    client
        .gpu
        .copy_within_device(Region::linear(copy, 4).into(), Region::linear(cell, 4).into(), stream)
        .unwrap();
    let graph = client.gpu.capture_end(stream).unwrap();
    assert_eq!(client.gpu.graph_node_count(graph), Ok(3));
    assert_eq!(client.download::<i32>(cell, 1, stream), Ok(vec![5]), "capturing executes nothing");
    let executable = client.gpu.graph_instantiate(graph, 0).unwrap();
    client.gpu.cuGraphDestroy(graph).unwrap();
    client.gpu.cuGraphUpload(executable, stream).unwrap();
    for _ in 0..100 {
        client.gpu.graph_launch(executable, stream).unwrap();
    }
    client.gpu.cuGraphExecDestroy(executable).unwrap();
    assert_eq!(client.download::<i32>(copy, 1, stream), Ok(vec![305]));
    assert!(client.gpu.graph_launch(executable, stream).is_err());
    assert!(client.gpu.graph_node_count(graph).is_err());
}

#[test]
fn branches_fork_and_join_through_events() {
    let client = Client::new();
    let (main, side) = (client.stream(), client.stream());
    let (cell, other) = (client.upload(&[1]), client.upload(&[1]));
    let (fork, join) = (client.gpu.event_create(2).unwrap(), client.gpu.event_create(2).unwrap());
    client.gpu.capture_begin(main, GLOBAL).unwrap();
    append(&client, cell, 0, main);
    client.gpu.event_record(fork, main, 0).unwrap();
    client.gpu.stream_wait_event(side, fork, 0).unwrap();
    append(&client, other, 1, side);
    client.gpu.event_record(join, side, 0).unwrap();
    append(&client, cell, 1, main);
    client.gpu.stream_wait_event(main, join, 0).unwrap();
    append(&client, other, 0, main);
    assert_eq!(client.gpu.event_query(join), Err(CUresult::CUDA_ERROR_CAPTURED_EVENT));
    assert_eq!(client.gpu.capture_end(side), Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNMATCHED));
    assert_eq!(client.gpu.capture_end(main), Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED));

    client.gpu.capture_begin(main, GLOBAL).unwrap();
    append(&client, cell, 0, main);
    client.gpu.event_record(fork, main, 0).unwrap();
    client.gpu.stream_wait_event(side, fork, 0).unwrap();
    append(&client, other, 1, side);
    client.gpu.event_record(join, side, 0).unwrap();
    append(&client, cell, 1, main);
    client.gpu.stream_wait_event(main, join, 0).unwrap();
    append(&client, other, 0, main);
    let graph = client.gpu.capture_end(main).unwrap();
    let copy = client.gpu.cuGraphClone(graph).unwrap();
    client.gpu.cuGraphDestroy(graph).unwrap();
    let executable = client.gpu.graph_instantiate(copy, 2).unwrap();
    assert_eq!(client.gpu.cuGraphExecGetFlags(executable), Ok(2));
    client.gpu.graph_launch(executable, side).unwrap();
    assert_eq!(client.download::<i32>(cell, 1, side), Ok(vec![0b101]));
    assert_eq!(client.download::<i32>(other, 1, side), Ok(vec![0b110]));
    client.gpu.event_record(join, side, 0).unwrap();
    client.wait(side).unwrap();
    assert_eq!(client.gpu.event_query(join), Ok(()), "recorded outside of a capture again");
}

#[test]
fn calls_that_no_capture_allows_make_it_invalid() {
    let client = Client::new();
    let stream = client.stream();
    let cell = client.upload(&[1]);
    let unsupported = CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    let invalidated = CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    type Forbidden = fn(&Client, Native<Stream>, u64) -> Result<(), CUresult>;
    let forbidden: [Forbidden; 6] = [
        |client, stream, _| client.gpu.stream_query(stream),
        |client, stream, _| client.wait(stream),
        |client, stream, cell| client.gpu.memory_free_async(cell, stream),
        |client, stream, cell| client.download::<i32>(cell, 1, stream).map(drop),
        |client, stream, cell| client.gpu.cuStreamWaitValue32_v2(stream, cell, 1, 0),
        |client, _, _| client.gpu.after_context(Box::new(|_| ())),
    ];
    for (index, call) in forbidden.into_iter().enumerate() {
        client.gpu.capture_begin(stream, GLOBAL).unwrap();
        assert_eq!(call(&client, stream, cell), Err(unsupported), "call {index}");
        let add = client.launch("add_to", 1, stream, &parameters!(cell, 1_i32));
        assert_eq!(add, Err(invalidated), "call {index}");
        assert_eq!(client.gpu.capture_end(stream).map(drop), Err(invalidated), "call {index}");
    }
    assert_eq!(client.gpu.capture_end(stream).map(drop), Err(CUresult::CUDA_ERROR_ILLEGAL_STATE));
    assert_eq!(client.gpu.capture_begin(LEGACY, GLOBAL), Err(unsupported));
    assert_eq!(client.download::<i32>(cell, 1, stream), Ok(vec![1]));
}

#[test]
fn captures_are_kept_apart_from_everything_else() {
    let client = Client::new();
    let (first, second, blocking) = (client.stream(), client.stream(), client.blocking_stream());
    let cell = client.upload(&[1]);
    let event = client.gpu.event_create(2).unwrap();

    client.gpu.event_record(event, second, 0).unwrap();
    client.gpu.capture_begin(first, GLOBAL).unwrap();
    let outside = client.gpu.stream_wait_event(first, event, 0);
    assert_eq!(outside, Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_ISOLATION));
    assert!(client.gpu.capture_end(first).is_err());

    client.gpu.capture_begin(first, GLOBAL).unwrap();
    client.gpu.event_record(event, first, 0).unwrap();
    client.gpu.stream_wait_event(second, event, 0).unwrap();
    append(&client, cell, 1, second);
    let unjoined = client.gpu.capture_end(first).map(drop);
    assert_eq!(unjoined, Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNJOINED));
    assert_eq!(client.gpu.stream_query(second), Ok(()), "it takes part no more");
    let stale = client.gpu.stream_wait_event(second, event, 0);
    assert_eq!(stale, Err(CUresult::CUDA_ERROR_CAPTURED_EVENT));

    client.gpu.capture_begin(blocking, GLOBAL).unwrap();
    let legacy = client.launch("append_bit", 1, LEGACY, &parameters!(cell, 1_i32));
    assert_eq!(legacy, Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT));
    assert!(client.gpu.capture_end(blocking).is_err());
    append(&client, cell, 0, LEGACY);
    assert_eq!(client.download::<i32>(cell, 1, LEGACY), Ok(vec![0b10]));
}

#[test]
fn an_empty_graph_does_nothing() {
    let client = Client::new();
    let graph = client.gpu.cuGraphCreate(0).unwrap();
    assert_eq!(client.gpu.graph_node_count(graph), Ok(0));
    let executable = client.gpu.graph_instantiate(graph, 0).unwrap();
    client.gpu.graph_launch(executable, LEGACY).unwrap();
    client.wait(LEGACY).unwrap();
    assert!(client.gpu.graph_instantiate(graph, 4).is_err(), "no launches from the device");
    assert!(client.gpu.graph_instantiate(graph, 1 << 40).is_err());
}
