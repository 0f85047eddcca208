//! What the program sees: the exported symbols, the checks of their arguments, and the sequences that a call
//! consists of.
//!
//! | module | contents |
//! | --- | --- |
//! | `entry` | Entry and exit of every exported symbol: readiness, trace, statistics |
//! | `causeway` | Entry points of Causeway beside CUDA's: for `causeway tune` and `causeway bench pipeline`, and for programs that ask for the library's statistics (`causeway_statistics`) |
//! | `calls` | The entry points that are written by hand, named and grouped as in the declaration list |

pub mod calls;
mod causeway;
pub mod entry;

/// The exported symbols, made from the declaration list.
#[allow(clippy::undocumented_unsafe_blocks)]
pub mod stubs {
    causeway_api_macros::stubs!();
}
