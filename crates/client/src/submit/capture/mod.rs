//! Stream capture: work that is put into a captured stream becomes nodes of a graph, here in the client.
//!
//! A command that reaches the session for a captured stream is turned into a node by [`take`], whoever sent
//! it; one that cannot be a node is refused. So the server never hears of a capture, and the threads of a
//! program are the only ones to which the modes of capture apply.

mod commands;
mod lifetime;
mod table;

pub use commands::{add, join, record, wait_outside};
pub use commands::{add_copy, refuse_called, take};
pub use lifetime::{Info, capture_point, info, update_dependencies};
pub use lifetime::{begin, context_ends, end, refuse_to_remove, stream_ends};
pub use table::{
    exchange_mode, invalidate_if_error, refuse_context_wait, refuse_implicit, refuse_invalid, refuse_unsafe,
    refuse_wait,
};
pub use table::{invalidate, is_good, of};
