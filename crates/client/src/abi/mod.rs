//! What the program sees: the exported symbols, the checks of their arguments, and the sequences that a call
//! consists of.
//!
//! | Module | Question it answers |
//! |---|---|
//! | `stubs` | Which symbols are exported? |
//! | [`entry`] | What does every call go through? |
//! | `tune` | What do `causeway tune` and `causeway bench pipeline` ask? |
//! | `counts` | What has the program done so far? |
//! | [`calls`] | What does a call do that is not simply sent? |

pub mod calls;
mod counts;
pub mod entry;
mod outcome;
mod tune;

/// The exported symbols, made from the declaration list.
#[allow(clippy::undocumented_unsafe_blocks)]
pub mod stubs {
    causeway_api_macros::stubs!();
}
