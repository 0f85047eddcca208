//! Device-initiated communication. The host's side of the headers in `device/include/causeway`: teams, their
//! windows, the proxies that move what kernels ask for, and the choice of who moves a message.
//!
//! | module | contents |
//! | --- | --- |
//! | `layout` | Layout of the memory that kernels, proxy and host share |
//! | `request` | Decoding of 16-byte requests |
//! | `queue` | Request queue, the proxy's side: taking of requests, merging of adjacent transfers of a batch, and the order of signals |
//! | `windows` | Windows: the table of them, by which the proxy checks what kernels have written into a queue, and the announcement of one to the other ranks, in messages of 16 bytes |
//! | `gpu` | Interface of a team to its GPU |
//! | `shared` | Memory of the host that processes share: a file without a name, which each of them maps |
//! | `cuda` | GPU of a team by the CUDA driver |
//! | `proxy` | Proxy thread: executes device-posted requests |
//! | `choice` | Cost model of the initiators |
//! | `measuring` | Measurement of a lane's copies |
//! | `failure` | Failure of a team |
//! | `peers` | Bootstrap of a team's processes: connections and window memory |
//! | `remote` | Links to the proxies of ranks whose memory is not mapped here: on other hosts, or in containers |
//! | `team` | Team: creation, members, end |
//! | `verbs` | Device-initiated RDMA |
//! | `correction` | Correction of a rank's table of initiators while its kernels run, by the thread of its first proxy |
//! | `costs` | Costs of the initiators, corrected by what messages take |
//! | `explain` | Report of the choice of initiators: what `CAUSEWAY_DEVICE_EXPLAIN=1` prints at the end of a team, and the sizes at which the choice changes |

pub mod choice;
pub mod correction;
pub mod costs;
pub mod cuda;
pub mod explain;
pub mod failure;
pub mod gpu;
#[cfg(test)]
mod late_lane;
pub mod layout;
pub mod measuring;
pub mod peers;
pub mod proxy;
pub mod queue;
pub mod remote;
pub mod request;
pub mod shared;
pub mod team;
pub mod verbs;
pub mod windows;
