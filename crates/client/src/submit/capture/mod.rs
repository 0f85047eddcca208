//! Stream capture: work that is put into a captured stream becomes nodes of a graph, here in the client.
//!
//! A command that reaches the session for a captured stream is turned into a node by [`take`], whoever sent
//! it; one that cannot be a node is refused. So the server never hears of a capture, and the threads of a
//! program are the only ones to which the modes of capture apply.

mod commands;
mod info;
mod lifetime;
mod nodes;
mod refusals;
mod table;

pub use commands::{add_copy, refuse_called, take};
pub use info::{Info, capture_point, info, update_dependencies};
pub use lifetime::{begin, context_ends, end, refuse_to_remove, stream_ends};
pub use nodes::{add, join, record, wait_outside};
pub use refusals::{
    exchange_mode, invalidate_if_error, refuse_context_wait, refuse_implicit, refuse_invalid, refuse_unsafe,
    refuse_wait,
};
pub use table::{invalidate, is_good, of};
