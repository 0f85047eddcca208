//! Links to the proxies of ranks whose memory is not mapped here: on other hosts, or in containers.
//!
//! Proxies post to a link; one thread of the rank has all its links, and does what peers ask for as well.
//! Where a team has ranks of several hosts, changes of words of a GPU's memory that are to be atomic go by
//! the links of all ranks, of one host and of the rank to itself, too: the owner's thread makes one after the
//! other.
//!
//! | Module        | Question it answers                                                             |
//! |---------------|---------------------------------------------------------------------------------|
//! | [`frame`]     | What do two proxies say to each other? Pure.                                      |
//! | [`link`]      | What do proxies ask of a peer, and how far has it come?                           |
//! | [`parts`]     | Where does a range of this rank's part of a window lie, if there is one?         |
//! | [`lanes`]     | How do bytes come from the GPU, and to it?                                      |
//! | [`stream`]    | How are frames and payloads written and read without a wait?                      |
//! | [`initiator`] | What of this rank's requests is written, and what is answered?                   |
//! | [`target`]    | What of a peer's requests is done, and when?                                      |
//! | [`end`]       | What goes over one stream, in both directions?                                   |
//! | [`serving`]   | Who moves all links on?                                                         |

pub mod end;
pub mod frame;
pub mod initiator;
pub mod lanes;
pub mod link;
pub mod parts;
pub mod serving;
pub mod stream;
pub mod target;
