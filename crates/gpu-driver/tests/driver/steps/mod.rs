//! The steps, in the order in which they are taken.

mod execution;
mod memory;
mod streams;

use crate::session::{Outcome, Session};

pub type Step = fn(&Session) -> Outcome;

pub const ALL: &[(&str, Step)] = &[
    ("snapshot", execution::snapshot),
    ("context: create, limits, destroy", execution::contexts),
    ("memory: allocate, pitch, fill", memory::allocate),
    ("memory: copies of one to three dimensions", memory::copies),
    ("memory: rate of pinned copies", memory::rate),
    ("memory: pools", memory::pools),
    ("memory: shared with this process", memory::shared),
    ("memory: block hashes", memory::block_hashes),
    ("memory: for network cards", memory::direct),
    ("code: a function adds vectors", execution::vector_add),
    ("code: a kernel of a library adds vectors", execution::kernel),
    ("code: launch attributes, occupancy", execution::attributes),
    ("code: two parts are linked", execution::linking),
    ("code: damaged images are refused", execution::damaged),
    ("streams: events, order, timing", streams::events),
    ("streams: completions come in order", streams::completions),
    ("streams: a gate holds one stream only", streams::gates),
    ("streams: launches behind a gate", streams::backlog),
    ("streams: graphs", streams::graphs),
    ("output: kernels print", execution::printing),
    ("faults: an illegal address reaches the completion", streams::fault),
];
