//! Matrices that the threads of a warp hold together: tensor cores, and what loads and stores their registers.
//!
//! The source for shapes, types and fragments is the PTX ISA, "Warp Level Matrix Multiply-Accumulate
//! Instructions".
//!
//! | question | module |
//! | --- | --- |
//! | which types and shapes are there | `types` |
//! | which element lies in which register of which lane | `fragment` |
//! | what does a multiplication give | `multiply` |
//! | what do `ldmatrix`, `stmatrix` and `movmatrix` move | `tiles` |
//! | what do lanes pass and get | `request` |

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
