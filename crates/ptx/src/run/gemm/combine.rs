//! Operations on the elements of one or two matrices: sums of multiples, products, and reductions of a column.

use causeway_gemm::{ElementsRequest, ElementsStep, Matrix, TILE};

use super::memory::{INVALID, Operand, Range};
use super::scratch::{PART, SCRATCH, Scratch, Tiles};
use super::sums::Sum;
use super::tile::{Tile, scalar};
use crate::run::context::{Raised, ThreadContext};

/// Elements are complex, in double precision.
type Number = [f64; 2];

/// Computes the tile of the calling block, or all of a reduction; gives what ends the kernel.
///
/// # Safety
/// `thread` is the context that compiled code was called with, on that code's own coroutine.
pub(in crate::run) unsafe fn compute_elements(
    thread: *mut ThreadContext,
    request: &ElementsRequest,
) -> Result<(), Raised> {
    // SAFETY: the caller's context is that of the running thread, on whose coroutine this is.
    let (block, yielder) = unsafe { (u64::from((*thread).ctaid[0]), &*(*thread).yielder) };
    let step = ElementsStep::from_number(request.step).ok_or(INVALID)?;
    let tiles: Tiles<Number> = yielder.on_parent_stack(|| SCRATCH.with(Scratch::tiles));
    if step.is_reduction() {
        // SAFETY: the caller's context is that of the running thread, on whose coroutine this is.
        return if block == 0 { unsafe { reduce(thread, request, step, &tiles) } } else { Ok(()) };
    }
    let Some(tile) = Tile::of_block([request.rows, request.columns], 1, block) else { return Ok(()) };
    // SAFETY: the caller's context is that of the running thread, on whose coroutine this is.
    unsafe { compute_tile(thread, request, step, &tile, &tiles) }
}

unsafe fn compute_tile(
    thread: *mut ThreadContext,
    request: &ElementsRequest,
    step: ElementsStep,
    tile: &Tile,
    tiles: &Tiles<Number>,
) -> Result<(), Raised> {
    // SAFETY: the context belongs to the running thread, and its launch lasts as long.
    let space = unsafe { &*(*thread).launch }.space;
    let (x, y) = (tiles.left, tiles.right);
    let mut factors = [Number::default(); 4];
    for (value, factor) in factors.iter_mut().zip(&request.factors) {
        *value = scalar(factor, space)?;
    }
    let read = |matrix: &Matrix, to: *mut Number, is_used: bool| {
        if is_used {
            // SAFETY: a tile has so many elements at most, and this runs on a coroutine.
            unsafe { Operand::of(matrix, 0, space)?.read(tile.rows, tile.columns, to, TILE as usize)? };
        }
        Ok(is_used)
    };
    let has_second = request.y_result.address != 0;
    let is_product = step == ElementsStep::Multiply;
    let uses = |first: usize| {
        let second_uses = has_second && !factors[first + 2].is_zero();
        is_product || !factors[first].is_zero() || second_uses
    };
    let (has_x, has_y) = (read(&request.x, x, uses(0))?, read(&request.y, y, uses(1))?);
    for column in 0..tile.columns.len as usize {
        for row in 0..tile.rows.len as usize {
            let index = column * TILE as usize + row;
            // SAFETY: what is used has been read, and the thread's memory is its own.
            unsafe {
                let a = if has_x { *x.add(index) } else { Number::default() };
                let b = if has_y { *y.add(index) } else { Number::default() };
                let [first, second] = if is_product {
                    [a.times(b), b]
                } else {
                    [0, 2].map(|at| factors[at].times(a).plus(factors[at + 1].times(b)))
                };
                (*x.add(index), *y.add(index)) = (first, second);
            }
        }
    }
    let write = |matrix: &Matrix, from: *mut Number| {
        // SAFETY: the elements have been set, and this runs on a coroutine.
        unsafe { Operand::of(matrix, 0, space)?.write(tile.rows, tile.columns, from, TILE as usize) }
    };
    write(&request.x_result, x)?;
    if has_second { write(&request.y_result, y) } else { Ok(()) }
}

unsafe fn reduce(
    thread: *mut ThreadContext,
    request: &ElementsRequest,
    step: ElementsStep,
    tiles: &Tiles<Number>,
) -> Result<(), Raised> {
    // SAFETY: the context belongs to the running thread, and its launch lasts as long.
    let launch = unsafe { &*(*thread).launch };
    let one = Range { first: 0, len: 1 };
    let (mut sum, mut found) = (0.0, None::<(u64, f64)>);
    for first in (0..request.rows).step_by(PART) {
        if launch.progress.is_stopped() {
            return Ok(());
        }
        let rows = Range { first, len: (PART as u64).min(request.rows - first) };
        // SAFETY: a part has so many elements, and this runs on a coroutine.
        unsafe { Operand::of(&request.x, 0, launch.space)?.read(rows, one, tiles.left, PART)? };
        for offset in 0..rows.len {
            // SAFETY: the element has been read.
            let [real, imaginary]: Number = unsafe { *tiles.left.add(offset as usize) };
            let value = real.abs() + imaginary.abs();
            sum += value;
            let is_better = |best: f64| match step {
                ElementsStep::IndexOfMax => value > best,
                _ => value < best,
            };
            if found.is_none_or(|(_, best)| is_better(best)) {
                found = Some((first + offset, value));
            }
        }
    }
    let index = found.map_or(0, |(index, _)| index + 1);
    let mut result = [if step == ElementsStep::AbsoluteSum { sum } else { index as f64 }, 0.0];
    // SAFETY: there is one element, and this runs on a coroutine.
    unsafe { Operand::of(&request.x_result, 0, launch.space)?.write(one, one, &raw mut result, 1) }
}
