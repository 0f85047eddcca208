//! Start of a worker process: its task, its client, and its control connection to the broker.
//!
//! | module | contents |
//! | --- | --- |
//! | `task` | Task of a started process: session, monitor or diagnosis |
//! | `confined` | Confinement of a process that the broker has started |
//! | `start` | Admission of a waiting client |
//! | `serve` | Control loop of a worker: messages of the broker while a session runs |
//! | `exchange` | Broker requests of a worker: exports, imports of other sessions, and tickets for workers of other servers |
//! | `callers` | Incoming connections from the worker of another server |
//! | `error` | Errors of a worker's start |
//! | `slots` | Slots of a session at the GPUs: leases of the broker, by which it issues kernels |

mod callers;
mod confined;
mod error;
mod exchange;
mod serve;
mod slots;
mod start;
mod task;

pub use callers::{Arrival, IncomingPeer};
pub use error::WorkerError;
pub use exchange::{Decision, Exchange};
pub use slots::Slots;
pub use start::WorkerStart;
pub use task::Prepared;
pub(crate) use task::Task;
