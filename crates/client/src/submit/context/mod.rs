//! How contexts begin, end and are waited for.
//!
//! | Module | Question it answers |
//! |---|---|
//! | `lifetime` | How do contexts begin and end? |
//! | `work` | Is the work of a context done, and who waits until it is? |
//! | `proxy_streams` | Which streams of ours in a context carry copies that concern several servers? |

pub mod lifetime;
pub mod proxy_streams;
pub mod work;
