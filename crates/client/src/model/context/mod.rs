//! Context state.
//!
//! The handle of a device's primary context is fixed, so it is known before anyone retains the context; on
//! the server the context exists from the first retain to the last release. The stack of current contexts is
//! the thread's own and never leaves the client: every command names its context.
//!
//! | Module | Contents |
//! |---|---|
//! | `proxy_streams` | Proxy streams: streams of ours in a context for copies between servers |
//! | `current` | Context stack of a thread (`cuCtxPushCurrent`), and its current context |
//! | `contexts` | Context table: the state of each context |
//! | [`pending_writes`] | Pending writes before a point of a stream to the program's memory |
//! | `barrier` | Barrier: one entry that stands for all transfers before a stream's next command |
//! | [`before`] | Order of device-to-host copies: the unfinished transfers before a copy |
//! | `work` | Completion state of a context and its streams |

mod barrier;
pub mod before;
mod contexts;
pub mod current;
pub mod pending_writes;
pub mod proxy_streams;
mod work;

pub(crate) use contexts::active;
pub use contexts::{ContextKind, ContextState, prepare, primary, resolve, state};
pub use current::{anywhere, anywhere_on, current, current_or_none, current_state, pop, push, set_current};
pub use pending_writes::{PendingWrites, pending_writes_of_all};
pub use work::stream;
