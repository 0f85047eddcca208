//! Result of an entry point.

use causeway_api::sys::CUresult;

/// The outcome of an entry point.
pub type Outcome = Result<(), CUresult>;
