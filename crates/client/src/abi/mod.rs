//! What the program sees: the exported symbols, the checks of their arguments, and the sequences that a call
//! consists of.
//!
//! | Module | Contents |
//! |---|---|
//! | `stubs` | Exported symbols |
//! | [`entry`] | What every exported symbol goes through on its way in and out |
//! | `causeway` | Entry points of Causeway beside CUDA: for `causeway tune`, and the statistics of the library |
//! | [`calls`] | The entry points that are written by hand, named and grouped as in the declaration list |

pub mod calls;
mod causeway;
pub mod entry;

/// The exported symbols, made from the declaration list.
#[allow(clippy::undocumented_unsafe_blocks)]
pub mod stubs {
    causeway_api_macros::stubs!();
}
