//! Transports: the table, their cost, and why one is unavailable.
//!
//! One table, [`TRANSPORTS`], with a row for each. A row's *probe* is pure: from facts about both ends it
//! says what the transport can be expected to cost, or why it cannot be used. Its *dial* joins the two ends.
//! Whoever wants a session tries the rows in the order of their costs; nothing else here knows one transport
//! from another.
//!
//! | module | contents |
//! | --- | --- |
//! | `table` | Transport table: the one place that names them all |
//! | `order` | Order in which transports are tried |
//! | `row` | Row of the transport table |
//! | `facts` | Facts about both ends, known before a transport is tried |
//! | `shm` | Shared memory: for a server on this host, however names and namespaces look |
//! | `verbs` | Verbs: for two ends whose RDMA devices reach each other |
//! | `tcp` | TCP: the connection on which the session was granted, and bulk lanes beside it |

mod facts;
mod order;
mod row;
mod shm;
mod table;
mod tcp;
mod verbs;

pub use facts::{Facts, Rdma};
pub(crate) use order::{NotEstablished, cannot_be_had, establish};
pub use row::{Accept, Cost, Dialling, NotJoined, Transport, Upgrade, upgrade_kind};
pub use table::TRANSPORTS;
