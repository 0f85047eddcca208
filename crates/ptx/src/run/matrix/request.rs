//! What compiled code passes for a warp's operation on matrices, and finds there afterwards.
//!
//! A lane leaves the request in a slot of its own stack, passes its address and is suspended. Once all lanes
//! have come, the operation reads all requests and writes the results into them. Lanes of a program that is
//! wrong may come with different instructions: what such a lane did not write is never read, since it may hold
//! anything that was on the worker's stack.

use super::fragment::Registers;
use super::multiply::{Operands, multiply};
use super::tiles::{LaneTiles, MAX_TILES, TILE, TileLayout, rearrange};
use super::types::Multiplication;
use crate::run::context::WarpRequest;
use crate::run::warp::lanes_in;

/// `mma` and `wmma.mma`: as many registers are written as the multiplication's fragments have.
#[repr(C)]
pub(crate) struct MultiplyRequest {
    pub(crate) multiplication: Multiplication,
    pub(crate) a: Registers,
    pub(crate) b: Registers,
    /// `c`, and `d` afterwards.
    pub(crate) accumulator: Registers,
}

/// `ldmatrix`, `stmatrix` and `movmatrix`: lanes that have a row of a tile write all its registers, lanes that have
/// fragments a register for each tile.
#[repr(C)]
pub(crate) struct RearrangeRequest {
    pub(crate) from: TileLayout,
    pub(crate) to: TileLayout,
    pub(crate) tiles: u32,
    pub(crate) registers: LaneTiles,
}

/// Multiplies the matrices of the lanes in `lanes`. Fragments of other lanes count as zeros.
///
/// # Safety
/// The value of each of these lanes' requests is the address of a [`MultiplyRequest`] that compiled code has
/// filled, on the stack of a thread that is suspended.
pub(in crate::run) unsafe fn complete_multiply(requests: &[WarpRequest; 32], lanes: u32) {
    let at = |lane: usize| requests[lane].value as *mut MultiplyRequest;
    // SAFETY: the caller's requests of these lanes are addresses of a `MultiplyRequest` on the stack of a
    // suspended thread.
    let multiplication = unsafe { (*at(lanes.trailing_zeros() as usize & 31)).multiplication };
    // SAFETY: the caller's requests of these lanes are addresses of a `MultiplyRequest` on the stack of a
    // suspended thread.
    let agrees = |&lane: &usize| unsafe { (*at(lane)).multiplication == multiplication };
    let mut operands = [Operands::default(); 32];
    for lane in lanes_in(lanes).filter(agrees) {
        // SAFETY: the caller's requests of these lanes are addresses of a `MultiplyRequest` on the stack of a
        // suspended thread. What the fragments do not have is copied, but never looked at.
        let request = unsafe { &*at(lane) };
        operands[lane] = Operands { a: request.a, b: request.b, c: request.accumulator };
    }
    let results = multiply(&multiplication, &operands);
    for lane in lanes_in(lanes).filter(agrees) {
        // SAFETY: the caller's requests of these lanes are addresses of a `MultiplyRequest` on the stack of a
        // suspended thread.
        unsafe { (*at(lane)).accumulator = results[lane] };
    }
}

/// Rearranges the tiles of the lanes in `lanes`.
///
/// # Safety
/// As for [`complete_multiply`], of a [`RearrangeRequest`].
pub(in crate::run) unsafe fn complete_rearrange(requests: &[WarpRequest; 32], lanes: u32) {
    let at = |lane: usize| requests[lane].value as *mut RearrangeRequest;
    // SAFETY: the caller's requests of these lanes are addresses of a `RearrangeRequest` on the stack of a
    // suspended thread.
    let header = |lane: usize| unsafe { ((*at(lane)).from, (*at(lane)).to, (*at(lane)).tiles) };
    let (from, to, tiles) = header(lanes.trailing_zeros() as usize & 31);
    let tiles = (tiles as usize).min(MAX_TILES);
    let mut registers = [LaneTiles::default(); 32];
    for lane in lanes_in(lanes).filter(|&lane| header(lane) == (from, to, tiles as u32)) {
        // SAFETY: the caller's requests of these lanes are addresses of a `RearrangeRequest` on the stack of
        // a suspended thread.
        let passed = unsafe { (*at(lane)).registers };
        match from {
            TileLayout::Rows if lane < TILE * tiles => registers[lane] = passed,
            TileLayout::Rows => {}
            _ => registers[lane][..tiles].copy_from_slice(&passed[..tiles]),
        }
    }
    let results = rearrange(&registers, from, to);
    for lane in lanes_in(lanes).filter(|&lane| header(lane) == (from, to, tiles as u32)) {
        // SAFETY: the caller's requests of these lanes are addresses of a `RearrangeRequest` on the stack of
        // a suspended thread.
        unsafe { (*at(lane)).registers = results[lane] };
    }
}
