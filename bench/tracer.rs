//! What counting an operation and choosing a channel cost a message.
//!
//! One thread counts for one peer, so that nobody else has the counts in its cache; periods of 64 operations
//! end as they do in a program. Not modelled: several threads that send to one peer.

// Criterion's macro makes a public function without a comment.
#![allow(missing_docs)]

use std::hint::black_box;

use causeway_comm::scheduler::Known;
use causeway_comm::tracer::{DEFAULT_THRESHOLD, Operation, Traffic};
use causeway_comm::{Channel, Scheduler, Tracer};
use criterion::{Criterion, criterion_group, criterion_main};

fn tracer(criterion: &mut Criterion) {
    let tracer = Tracer::new(DEFAULT_THRESHOLD);
    criterion.bench_function("tracer/count", |bencher| {
        bencher.iter(|| tracer.count(black_box(Operation::NonBlocking)));
    });
    let mut scheduler = Scheduler::new(Channel::ALL, &Known::default());
    criterion.bench_function("scheduler/choose", |bencher| {
        bencher.iter(|| scheduler.choose(black_box(4096), tracer.traffic()));
    });
}

/// A message of a job that has measured what there is: by the best channel, beside one that is so dear that it was never
/// measured to the end.
fn settled(criterion: &mut Criterion) {
    let channels = [(Channel::Ipc, 20e3), (Channel::Vmm, 55e3), (Channel::Staged, 55e3)];
    let mut scheduler = Scheduler::new(channels.map(|(channel, _)| channel), &Known::default());
    let mut message = |bytes: u64| {
        let choice = scheduler.choose(bytes, Traffic::Bandwidth).map(|choice| choice.channel);
        let cost =
            channels.iter().find(|(channel, _)| Some(*channel) == choice).map_or(1e3, |(_, cost)| *cost);
        scheduler.observe(
            choice.unwrap_or(Channel::Tcp),
            bytes,
            Traffic::Bandwidth,
            cost + bytes as f64 / 100.0,
        );
    };
    for bytes in (0..24).map(|power| 1 << power) {
        for _ in 0..2000 {
            message(bytes);
        }
    }
    criterion.bench_function("scheduler/choose and observe", |bencher| {
        bencher.iter(|| message(black_box(64 << 10)));
    });
}

criterion_group!(benches, tracer, settled);
criterion_main!(benches);
