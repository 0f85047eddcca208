//! What the program sees: the exported symbols, the checks of their arguments, and the sequences that a call
//! consists of.
//!
//! | Module | Contents |
//! |---|---|
//! | `stubs` | Exported symbols |
//! | [`entry`] | What every exported symbol goes through on its way in and out |
//! | `tune` | What `causeway tune` and `causeway bench pipeline` ask of the library, beside CUDA |
//! | `counts` | What a program asks of the library that wants to know what it has done so far, beside CUDA |
//! | [`calls`] | The entry points that are written by hand, named and grouped as in the declaration list |

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
