//! What is this process's part in a job? Its place on the boards, its socket, what it offers, and what it has
//! of each peer.
//!
//! | Module    | Question it answers                                                    |
//! |-----------|------------------------------------------------------------------------|
//! | `state`   | What does a rank keep of its job?                                      |
//! | `join`    | How does a rank take part in its job, and what does it tell at the end? |
//! | `reach`   | How does a rank come to the peers to which it hands messages over?     |
//! | `departures` | Who hears at once that a peer has gone?                              |
//! | `mailboxes` | Which mailboxes have two ranks of one host for collective calls?     |
//! | `moves`   | How does a rank go on in another container?                            |
//! | `send`    | What does a rank offer to others, and until when?                      |
//! | `receive` | How does a rank get what others have sent it word of?                  |
//! | `traffic` | What is the traffic with each peer bound by, as far as this rank has seen it? |
//! | `watch`   | Who sees that a copy is over, whatever the program does meanwhile?     |
//! | `completion` | How do those who begin copies and that thread wait for each other?  |

mod completion;
mod departures;
mod join;
mod mailboxes;
mod moves;
mod reach;
mod receive;
mod send;
mod state;
mod traffic;
mod watch;

pub use departures::Listener;
pub use join::WorldError;
pub use mailboxes::Mailboxes;
pub use moves::MoveFailed;
pub use reach::Presence;
pub use state::World;
