//! What messages and frames cost without a network: encoding posted commands into a batch, and reading them back.
//!
//! Models a stream of launches of 64 bytes of payload, 100 to a frame, as a program with many small kernels sends
//! them. Not modelled: the locks of a link, system calls, and the work of a call itself.

// Criterion's macro makes a public function without a comment.
#![allow(missing_docs)]

use std::hint::black_box;

use causeway_wire::codec::Encode as _;
use causeway_wire::frame::{FrameReader, HEADER_SIZE, MAX_BODY};
use causeway_wire::message::{ClientMessage, CommandHead, Messages, begin_command};
use causeway_wire::sequence::Sequencer;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

const COMMANDS: u32 = 100;
const PAYLOAD: [u8; 64] = [7; 64];

fn append_commands(out: &mut Vec<u8>) {
    for _ in 0..COMMANDS {
        let open = begin_command(out, &CommandHead { call: 0, thread: 1, context: 2, opcode: 3 });
        black_box(&PAYLOAD).iter().as_slice().encode(out);
        open.finish(out);
    }
}

/// A stream of `count` frames of commands.
fn frames(count: usize) -> Vec<u8> {
    let mut sequencer = Sequencer::new();
    let mut body = Vec::new();
    append_commands(&mut body);
    let mut stream = Vec::new();
    for _ in 0..count {
        stream.extend_from_slice(&sequencer.number(body.len() as u32).to_bytes());
        stream.extend_from_slice(&body);
    }
    stream
}

fn encode(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("encode");
    group.throughput(Throughput::Elements(COMMANDS.into()));
    let mut batch = Vec::new();
    let mut sequencer = Sequencer::new();
    group.bench_function("commands into a frame", |bencher| {
        bencher.iter(|| {
            batch.clear();
            batch.resize(HEADER_SIZE, 0);
            append_commands(&mut batch);
            let header = sequencer.number((batch.len() - HEADER_SIZE) as u32);
            batch[..HEADER_SIZE].copy_from_slice(&header.to_bytes());
            black_box(&batch);
        });
    });
    group.finish();
}

fn decode(criterion: &mut Criterion) {
    const FRAMES: usize = 64;
    let stream = frames(FRAMES);
    let mut group = criterion.benchmark_group("decode");
    group.throughput(Throughput::Elements(FRAMES as u64));
    group.bench_function("frames of 100 commands", |bencher| {
        bencher.iter(|| {
            read(&stream, |body| assert!(Messages::<ClientMessage>::new(body).all(|message| message.is_ok())))
        });
    });
    group.bench_function("frames, bodies untouched", |bencher| {
        bencher.iter(|| {
            read(&stream, |body| {
                black_box(body);
            })
        });
    });
    group.finish();
}

/// Feeds a stream to a reader as a connection does, and hands every body to `deal`.
fn read(stream: &[u8], deal: impl Fn(&[u8])) {
    let mut reader = FrameReader::new(MAX_BODY);
    let mut sequencer = Sequencer::new();
    let mut rest = stream;
    while !rest.is_empty() {
        let space = reader.space();
        let count = space.len().min(rest.len());
        space[..count].copy_from_slice(&rest[..count]);
        reader.filled(count);
        rest = &rest[count..];
        while let Some(frame) = reader.next_frame().expect("the stream is valid") {
            sequencer.accept(&frame.header).expect("the frames are in order");
            deal(reader.body(&frame));
            sequencer.processed_all();
        }
    }
}

criterion_group!(benches, encode, decode);
criterion_main!(benches);
