//! Links to the proxies of ranks whose memory is not mapped here: on other hosts, or in containers.
//!
//! Proxies post to a link; one thread of the rank has all its links, and does what peers ask for as well.
//! Where a team has ranks of several hosts, changes of words of a GPU's memory that are to be atomic go by
//! the links of all ranks, of one host and of the rank to itself, too: the owner's thread makes one after the
//! other.
//!
//! | module | contents |
//! | --- | --- |
//! | `frame` | Frames between the proxies of two ranks |
//! | `link` | Link to a peer's proxy: what this rank's proxies ask of it, and how far it has come |
//! | `parts` | This rank's own parts of windows, as other ranks' proxies reach them |
//! | `lanes` | Copies between this rank's GPU and staging memory: a ring, whose ranges are freed in the order in which they were allocated |
//! | `stream` | Stream of frames and payloads over a byte stream, on which nothing waits, and the errors of a link |
//! | `initiator` | Initiator of a link: sends what this rank's proxies ask of a peer, and takes the answers |
//! | `target` | Target of a link: does what a peer's proxies ask of this rank, and answers |
//! | `rdma` | Network cards of a team's links: the device that a rank's links share, and of each link the queue pair, the memory into which the peer's card writes, and what is known of the peer's windows |
//! | `rdma_end` | Requests of a link over a network card: what this rank's proxies ask of a peer, and what is answered |
//! | `joining` | Joining of two ranks' network cards, before the links begin: each end makes a queue pair, tells the other one of it by their connection, and both say whether it worked |
//! | `end` | This rank's end of a link: a stream, and what goes over it in both directions |
//! | `serving` | Thread of a rank's links |

pub mod end;
pub mod frame;
pub mod initiator;
pub(crate) mod joining;
pub mod lanes;
pub mod link;
pub mod parts;
pub mod rdma;
pub mod rdma_end;
pub mod serving;
pub mod stream;
pub mod target;
