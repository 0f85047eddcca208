//! Context state.
//!
//! The handle of a device's primary context is fixed, so it is known before anyone retains the context; on
//! the server the context exists from the first retain to the last release. The stack of current contexts is
//! the thread's own and never leaves the client: every command names its context.
//!
//! | module | contents |
//! | --- | --- |
//! | `current` | Context stack of a thread (`cuCtxPushCurrent`), its current context, and completion of the work of contexts and streams |
//! | `contexts` | Context table: the state of each context, and its proxy streams: streams of ours for copies between servers |
//! | `pending_writes` | Pending writes before a point of a stream to the program's memory |

mod contexts;
pub mod current;
pub mod pending_writes;

pub(crate) use contexts::active;
pub use contexts::{ContextKind, ContextState, StreamKey, prepare, primary, resolve, state};
pub use current::{
    anywhere, anywhere_on, current, current_or_none, current_state, pop, push, set_current, stream,
};
pub use pending_writes::{PendingWrites, pending_writes_of_all};
