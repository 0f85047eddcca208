//! What counting an operation and choosing a channel cost a message.
//!
//! One thread counts for one peer, so that nobody else has the counts in its cache; periods of 64 operations
//! end as they do in a program. Not modelled: several threads that send to one peer.

// Criterion's macro makes a public function without a comment.
#![allow(missing_docs)]

use std::hint::black_box;

use causeway_comm::scheduler::Known;
use causeway_comm::tracer::{Operation, USUAL_THRESHOLD};
use causeway_comm::{Channel, Scheduler, Tracer};
use criterion::{Criterion, criterion_group, criterion_main};

fn tracer(criterion: &mut Criterion) {
    let tracer = Tracer::new(USUAL_THRESHOLD);
    criterion.bench_function("tracer/count", |bencher| {
        bencher.iter(|| tracer.count(black_box(Operation::NonBlocking)));
    });
    let mut scheduler = Scheduler::new(Channel::ALL, &Known::default());
    criterion.bench_function("scheduler/choose", |bencher| {
        bencher.iter(|| scheduler.choose(black_box(4096), tracer.traffic()));
    });
}

criterion_group!(benches, tracer);
criterion_main!(benches);
