//! `causeway top`, `sessions` and `drain`: servers, and what their sessions do.
//!
//! | Module     | Question it answers                                              |
//! |------------|------------------------------------------------------------------|
//! | `query`   | How is a server asked, and which servers are meant?              |
//! | `ranks`    | `causeway ranks`: what do the ranks of MPI jobs here send, and how?  |
//! | `rates`    | What has been done a second, between two answers?                |
//! | `table`    | Which columns are shown in so many places?                       |
//! | `sessions` | `causeway sessions`: which sessions has a server?                |
//! | `top`      | `causeway top`: what do they do now?                             |
//! | `screen`   | What stands where on a terminal?                                 |
//! | `by`       | What have the sessions of a user or a job done together?         |
//! | `drain`    | `causeway drain`: how does a server end without ending sessions? |
//! | `moves`    | `causeway move`, `checkpoint`, `restore`: how does a session get elsewhere? |
//! | `json`     | How do scripts read all that?                                    |

mod by;
pub mod drain;
mod json;
pub mod moves;
mod query;
pub mod ranks;
mod rates;
mod screen;
pub mod sessions;
mod table;
pub mod top;

pub use table::{bytes, short};
