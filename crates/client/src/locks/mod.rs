//! The locks of this library, in the order in which a thread may take them.
//!
//! A thread that holds a lock takes only locks that stand below it in the list of [`ranks`], so no two
//! threads can wait for each other. Debug builds check it each time a lock is taken and panic at the wrong
//! one; release builds keep nothing of it: a rank is a type without a size. A lock may not be taken while
//! another one of the same rank is held either: of two heaps, say, neither comes first.

mod guards;
mod ranks;

pub use guards::{Monitor, Mutex, MutexGuard, RwLock, must_be_free, must_be_free_from};
pub use ranks::rank;
