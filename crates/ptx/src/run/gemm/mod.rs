//! Matrix product: one tile of it, for the library that stands in for cuBLAS.
//!
//! The calling block is of one thread. Elements are read and written on its coroutine, where an address
//! without access ends the kernel as it ends any other; nothing is owned there (see
//! [`functions`](super::functions)). The multiplication of what was read runs on the worker's own stack.

mod combine;
mod elements;
pub(super) mod memory;
mod scratch;
pub(super) mod sums;
mod tile;

use causeway_gemm::{Accumulator, Activation, Matrix, Request, ScalarType, TILE};

use super::context::{Raised, ThreadContext};
pub(super) use combine::compute_elements;
use memory::{INVALID, Operand, Range};
use scratch::{DEPTH, SCRATCH, Tiles};
use sums::Sum;
use tile::Tile;
pub(super) use tile::scalar;

/// Computes the tile of the calling block; gives what ends the kernel.
///
/// # Safety
/// `thread` is the context that compiled code was called with, on that code's own coroutine.
pub(super) unsafe fn multiply_tile(thread: *mut ThreadContext, request: &Request) -> Result<(), Raised> {
    let scalar_type = |number| ScalarType::from_number(number).ok_or(INVALID);
    let is_complex = scalar_type(request.d.scalar_type)?.is_complex();
    // SAFETY: the caller's context is that of the running thread, on whose coroutine this is.
    unsafe {
        match (Accumulator::from_number(request.accumulator).ok_or(INVALID)?, is_complex) {
            (Accumulator::Single, false) => multiply::<f32>(thread, request),
            (Accumulator::Double, false) => multiply::<f64>(thread, request),
            (Accumulator::Single, true) => multiply::<[f32; 2]>(thread, request),
            (Accumulator::Double, true) => multiply::<[f64; 2]>(thread, request),
        }
    }
}

unsafe fn multiply<T: Sum>(thread: *mut ThreadContext, request: &Request) -> Result<(), Raised> {
    // SAFETY: the context belongs to the running thread, and its launch lasts as long.
    let (launch, block, yielder) =
        unsafe { (&*(*thread).launch, u64::from((*thread).ctaid[0]), &*(*thread).yielder) };
    let Some(tile) = Tile::of_block([request.rows, request.columns], request.batch, block) else {
        return Ok(());
    };
    let activation = Activation::from_number(request.activation).ok_or(INVALID)?;
    let space = launch.space;
    let operand = |matrix: &Matrix| Operand::of(matrix, tile.batch, space);
    let alpha: T = scalar(&request.alpha, space)?;
    let beta: T = scalar(&request.beta, space)?;
    let mut tiles: Tiles<T> = yielder.on_parent_stack(|| SCRATCH.with(scratch::Scratch::tiles));
    let (rows, columns) = (tile.rows.len as usize, tile.columns.len as usize);
    tiles.clear_sums(columns);
    if !alpha.is_zero() {
        let (a, b) = (operand(&request.a)?, operand(&request.b)?);
        for first in (0..request.depth).step_by(DEPTH) {
            if launch.progress.is_stopped() {
                return Ok(());
            }
            let depth = Range { first, len: (DEPTH as u64).min(request.depth - first) };
            // SAFETY: a tile has so many elements at most, and this runs on a coroutine.
            unsafe {
                a.read(tile.rows, depth, tiles.left, TILE as usize)?;
                b.read(depth, tile.columns, tiles.right, DEPTH)?;
            }
            yielder.on_parent_stack(|| tiles.multiply(rows, depth.len as usize, columns));
        }
    }
    tiles.scale(columns, alpha);
    if !beta.is_zero() {
        // SAFETY: a tile has so many elements at most, and this runs on a coroutine; the left factor is not
        // needed any more.
        unsafe { operand(&request.c)?.read(tile.rows, tile.columns, tiles.left, TILE as usize)? };
        tiles.add_scaled(columns, beta);
    }
    if request.bias != 0 {
        let bias = Matrix {
            address: request.bias,
            row_stride: 1,
            batch_stride: request.bias_batch_stride,
            scalar_type: request.bias_type,
            ..Matrix::default()
        };
        let one = Range { first: 0, len: 1 };
        // SAFETY: a tile has so many elements at most, and this runs on a coroutine.
        unsafe { operand(&bias)?.read(tile.rows, one, tiles.left, TILE as usize)? };
        tiles.add_column(columns);
    }
    tiles.apply(columns, activation);
    // SAFETY: a tile has so many elements at most, and this runs on a coroutine.
    unsafe { operand(&request.d)?.write(tile.rows, tile.columns, tiles.sums, TILE as usize) }
}
