//! Graphs on the software GPU.

mod client;

use causeway_api::handle::{Graph, Native};
use causeway_api::sys::{CUresult, CUstreamBatchMemOpType};
use causeway_api::types::{Fill, Region, ValueOperation};
use causeway_gpu::calls::*;
use causeway_gpu::{CuResult, Gpu};
use client::{Client, LEGACY, shape};

const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;

fn add_kernel(client: &Client, graph: Native<Graph>, name: &str, parameters: &[u8]) -> CuResult<()> {
    let function = client.function(name);
    client.gpu.graph_add_kernel(graph, &[], function, false, shape(1, 1), &[], parameters)
}

#[test]
fn nodes_are_carried_out_in_order_at_every_launch() {
    let client = Client::new();
    let stream = client.stream();
    let (cell, copy) = (client.upload(&[5]), client.upload(&[0]));
    let graph = client.gpu.graph_create().unwrap();
    add_kernel(&client, graph, "add_to", &parameters!(cell, 1_i32)).unwrap();
    client.gpu.graph_add_empty(graph, &[]).unwrap();
    add_kernel(&client, graph, "add_to", &parameters!(cell, 2_i32)).unwrap();
    client
        .gpu
        .graph_add_copy(graph, &[], Region::linear(copy, 4).into(), Region::linear(cell, 4).into())
        .unwrap();
    let executable = client.gpu.graph_instantiate(graph, 4, 0).unwrap();
    client.gpu.graph_destroy(graph).unwrap();
    assert_eq!(client.download::<i32>(cell, 1, stream), Ok(vec![5]), "making it executes nothing");
    client.gpu.graph_upload(executable, stream).unwrap();
    for _ in 0..100 {
        client.gpu.graph_launch(executable, stream).unwrap();
    }
    client.gpu.graph_exec_destroy(executable).unwrap();
    assert_eq!(client.download::<i32>(copy, 1, stream), Ok(vec![305]));
    assert!(client.gpu.graph_launch(executable, stream).is_err());
    assert!(client.gpu.graph_destroy(graph).is_err());
}

#[test]
fn a_node_is_changed_and_switched_off_for_the_launches_to_come() {
    let client = Client::new();
    let cell = client.upload(&[0]);
    let graph = client.gpu.graph_create().unwrap();
    let fill = |value| Fill { address: cell, pitch: 0, value, element: 4, width: 1, height: 1 };
    client.gpu.graph_add_fill(graph, &[], fill(10)).unwrap();
    add_kernel(&client, graph, "add_to", &parameters!(cell, 1_i32)).unwrap();
    let executable = client.gpu.graph_instantiate(graph, 2, 8).unwrap();
    client.gpu.graph_launch(executable, LEGACY).unwrap();
    client.gpu.graph_exec_fill(executable, graph, 0, fill(20)).unwrap();
    assert_eq!(client.download::<i32>(cell, 1, LEGACY), Ok(vec![11]));
    let add = client.function("add_to");
    let parameters = parameters!(cell, 3_i32);
    client.gpu.graph_exec_kernel(executable, graph, 1, add, false, shape(1, 1), &parameters).unwrap();
    client.gpu.graph_launch(executable, LEGACY).unwrap();
    assert_eq!(client.download::<i32>(cell, 1, LEGACY), Ok(vec![23]));
    client.gpu.graph_exec_enable(executable, graph, 0, 0).unwrap();
    client.gpu.graph_launch(executable, LEGACY).unwrap();
    assert_eq!(client.download::<i32>(cell, 1, LEGACY), Ok(vec![26]));
    // A node stays what it is, and has a number of its own graph.
    let kernel_for_fill =
        client.gpu.graph_exec_kernel(executable, graph, 0, add, false, shape(1, 1), &parameters);
    assert_eq!(kernel_for_fill, Err(INVALID));
    assert_eq!(client.gpu.graph_exec_enable(executable, graph, 2, 0), Err(INVALID));
    let other = client.gpu.graph_create().unwrap();
    assert_eq!(client.gpu.graph_exec_enable(executable, other, 0, 0), Err(INVALID));
}

#[test]
fn launches_of_one_graph_come_one_after_the_other_in_whatever_stream() {
    let client = Client::new();
    let (first, second) = (client.stream(), client.stream());
    let (cell, gate) = (client.upload(&[0]), client.upload(&[0_u32]));
    let graph = client.gpu.graph_create().unwrap();
    let kind = CUstreamBatchMemOpType::CU_STREAM_MEM_OP_WAIT_VALUE_32.0;
    let wait = ValueOperation { kind, address: gate, value: 1, flags: 0 };
    client.gpu.graph_add_values(graph, &[], &[wait]).unwrap();
    add_kernel(&client, graph, "append_bit", &parameters!(cell, 1_i32)).unwrap();
    let executable = client.gpu.graph_instantiate(graph, 2, 0).unwrap();
    client.gpu.graph_launch(executable, first).unwrap();
    client.gpu.graph_launch(executable, second).unwrap();
    assert_eq!(client.gpu.stream_query(second), Err(CUresult::CUDA_ERROR_NOT_READY));
    client.gpu.cuStreamWriteValue32_v2(client.stream(), gate, 1, 0).unwrap();
    assert_eq!(client.download::<i32>(cell, 1, second), Ok(vec![0b11]));
}

#[test]
fn an_event_is_recorded_where_its_node_is() {
    let client = Client::new();
    let stream = client.stream();
    let (start, end) = (client.gpu.event_create(0).unwrap(), client.gpu.event_create(0).unwrap());
    let cell = client.upload(&[0]);
    let graph = client.gpu.graph_create().unwrap();
    client.gpu.graph_add_record(graph, &[], start).unwrap();
    add_kernel(&client, graph, "add_to", &parameters!(cell, 1_i32)).unwrap();
    client.gpu.graph_add_record(graph, &[], end).unwrap();
    let executable = client.gpu.graph_instantiate(graph, 3, 0).unwrap();
    assert!(client.gpu.event_elapsed(start, end).is_err(), "not launched yet");
    client.gpu.graph_launch(executable, stream).unwrap();
    client.wait(stream).unwrap();
    assert!(client.gpu.event_elapsed(start, end).unwrap() >= 0.0);
}

#[test]
fn nodes_that_make_no_sense_are_refused_and_then_the_graph_is() {
    let client = Client::new();
    let cell = client.upload(&[0]);
    let graph = client.gpu.graph_create().unwrap();
    let fill = |element, address| Fill { address, pitch: 0, value: 0, element, width: 1, height: 1 };
    assert_eq!(client.gpu.graph_add_fill(graph, &[], fill(3, cell)), Err(INVALID));
    assert_eq!(client.gpu.graph_add_fill(graph, &[], fill(4, cell + 1)), Err(INVALID));
    assert!(client.gpu.graph_add_fill(graph, &[], fill(4, 64)).is_err());
    assert_eq!(add_kernel(&client, graph, "add_to", &[]), Err(INVALID));
    let copy =
        client.gpu.graph_add_copy(graph, &[], Region::linear(cell, 4).into(), Region::linear(cell, 2).into());
    assert_eq!(copy, Err(INVALID));
    let barrier = ValueOperation { kind: 99, address: cell, value: 0, flags: 0 };
    assert!(client.gpu.graph_add_values(graph, &[], &[barrier]).is_err());
    assert_eq!(client.gpu.graph_instantiate(graph, 1, 0).map(drop), Err(INVALID));
    let executable = client.gpu.graph_instantiate(graph, 0, 0).unwrap();
    client.gpu.graph_launch(executable, LEGACY).unwrap();
    client.wait(LEGACY).unwrap();
    assert!(client.gpu.graph_instantiate(graph, 0, 4).is_err(), "no launches from the device");
    assert!(client.gpu.graph_instantiate(graph, 0, 1 << 40).is_err());
}
