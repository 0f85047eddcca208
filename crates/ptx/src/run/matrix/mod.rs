//! Matrices that the threads of a warp hold together: tensor cores, and what loads and stores their registers.
//!
//! The source for shapes, types and fragments is the PTX ISA, "Warp Level Matrix Multiply-Accumulate
//! Instructions".
//!
//! | module | contents |
//! | --- | --- |
//! | `types` | Types and shapes of matrix multiplications |
//! | `fragment` | Fragments: the part of a matrix that a lane holds in its registers |
//! | `multiply` | The product of two matrices whose elements the lanes of a warp hold, added to a third one |
//! | `tiles` | Tiles of 8 rows of 16 bytes, as `ldmatrix`, `stmatrix` and `movmatrix` move them |
//! | `request` | What compiled code passes for a warp's operation on matrices, and finds there afterwards |

mod fragment;
mod multiply;
mod request;
mod tiles;
mod types;

pub(crate) use fragment::Fragment;
pub(crate) use request::{MultiplyRequest, RearrangeRequest};
pub(super) use request::{complete_multiply, complete_rearrange};
pub(crate) use tiles::{MAX_TILES, TILE, TileLayout};
pub(crate) use types::{Accumulator, Combination, Element, FragmentLayout, Matrix, Multiplication, Shape};
