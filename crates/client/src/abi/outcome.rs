//! What an entry point gives back.

use causeway_api::sys::CUresult;

/// The outcome of an entry point.
pub type Outcome = Result<(), CUresult>;
