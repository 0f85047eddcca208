//! What is kept of a context?
//!
//! The handle of a device's primary context is fixed, so it is known before anyone retains the context; on
//! the server the context exists from the first retain to the last release. The stack of current contexts is
//! the thread's own and never leaves the client: every command names its context.
//!
//! | Module | Question it answers |
//! |---|---|
//! | `proxy_streams` | Which streams of ours carry copies that concern several servers? |
//! | `current` | Which context is current to a thread? |
//! | `contexts` | Which contexts are there, and what is kept of each? |
//! | [`pending_writes`] | What lies before a point of a stream, as far as the program's memory is concerned? |
//! | `barrier` | What stands for all transfers that lie before a stream's next command? |
//! | [`before`] | Behind which unfinished transfers does a copy from a device come? |
//! | `work` | Is its work, and that of its streams, known to be done? |

mod barrier;
pub mod before;
mod contexts;
pub mod current;
pub mod pending_writes;
pub mod proxy_streams;
mod work;

pub(crate) use contexts::active;
pub use contexts::{ContextState, prepare, primary, resolve, state};
pub use current::{anywhere, anywhere_on, current, current_or_none, current_state, pop, push, set_current};
pub use pending_writes::{PendingWrites, pending_writes_of_all};
pub use work::stream;
