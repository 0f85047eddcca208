//! Memory in which a thread of the pool multiplies: parts of both factors, and the tile of sums.

use std::cell::RefCell;

use causeway_gemm::{Activation, TILE};

use super::sums::Sum;

/// Columns of the left factor, and rows of the right one, that are multiplied at a time.
pub(super) const DEPTH: usize = 256;

/// Elements of the part of a factor.
pub(super) const PART: usize = TILE as usize * DEPTH;
/// Elements of a tile.
const SUMS: usize = (TILE * TILE) as usize;

thread_local! {
    /// That of this thread. It stays until the thread ends, since a kernel that faults cannot release it.
    pub(super) static SCRATCH: Scratch = const { Scratch { memory: RefCell::new(Vec::new()) } };
}

/// See [`SCRATCH`].
pub(super) struct Scratch {
    /// As large as the largest elements need, and aligned for all.
    memory: RefCell<Vec<[f64; 2]>>,
}

/// The scratch memory, for elements of one type. All are stored by columns.
pub(super) struct Tiles<T> {
    /// Of the left factor: a column has `TILE` elements.
    pub(super) left: *mut T,
    /// Of the right factor: a column has `DEPTH` elements.
    pub(super) right: *mut T,
    /// The tile of the result: a column has `TILE` elements.
    pub(super) sums: *mut T,
}

// SAFETY: the pointers are used on the thread whose memory it is, also where the worker's own stack is called
// another one.
unsafe impl<T> Send for Tiles<T> {}
// SAFETY: a shared reference gives out the pointers alone, which are used on the thread whose memory it is.
unsafe impl<T> Sync for Tiles<T> {}

impl Scratch {
    /// The memory; the first call of a thread takes it from the system.
    pub(super) fn tiles<T: Sum>(&self) -> Tiles<T> {
        const { assert!(size_of::<T>() <= size_of::<[f64; 2]>()) };
        const { assert!(align_of::<T>() <= align_of::<[f64; 2]>()) };
        let mut memory = self.memory.borrow_mut();
        memory.resize(2 * PART + SUMS, [0.0; 2]);
        let start: *mut [f64; 2] = memory.as_mut_ptr();
        // SAFETY: the three parts lie in the memory one behind another.
        let [left, right, sums] = unsafe { [start, start.add(PART), start.add(2 * PART)] };
        Tiles { left: left.cast(), right: right.cast(), sums: sums.cast() }
    }
}

impl<T: Sum> Tiles<T> {
    /// The first columns of the tile of sums, and of what was read over the left factor. Rows beyond the tile's
    /// hold what was there before.
    fn columns(&mut self, columns: usize) -> (&mut [T], &[T]) {
        let len = columns.min(TILE as usize) * TILE as usize;
        // SAFETY: the memory is this thread's alone and initialised, both parts have so many elements and do not
        // overlap, and the slices live only within the methods below.
        unsafe {
            (std::slice::from_raw_parts_mut(self.sums, len), std::slice::from_raw_parts(self.left, len))
        }
    }

    pub(super) fn clear_sums(&mut self, columns: usize) {
        self.columns(columns).0.fill(T::default());
    }

    /// Adds the product of the parts of the factors.
    pub(super) fn multiply(&mut self, rows: usize, depth: usize, columns: usize) {
        debug_assert!(rows <= TILE as usize && columns <= TILE as usize && depth <= DEPTH);
        // SAFETY: the parts have so many elements, which have been read.
        unsafe {
            T::multiply_add(
                [rows, depth, columns],
                (self.left, TILE as isize),
                (self.right, DEPTH as isize),
                (self.sums, TILE as isize),
            )
        };
    }

    pub(super) fn scale(&mut self, columns: usize, factor: T) {
        for sum in self.columns(columns).0 {
            *sum = sum.times(factor);
        }
    }

    /// Adds a multiple of what was read.
    pub(super) fn add_scaled(&mut self, columns: usize, factor: T) {
        let (sums, read) = self.columns(columns);
        for (sum, &added) in sums.iter_mut().zip(read) {
            *sum = sum.plus(added.times(factor));
        }
    }

    /// Adds the column that was read to each.
    pub(super) fn add_column(&mut self, columns: usize) {
        let (sums, read) = self.columns(columns);
        for column in sums.chunks_exact_mut(TILE as usize) {
            for (sum, &added) in column.iter_mut().zip(read) {
                *sum = sum.plus(added);
            }
        }
    }

    pub(super) fn apply(&mut self, columns: usize, activation: Activation) {
        if activation != Activation::None {
            for sum in self.columns(columns).0 {
                *sum = sum.activated(activation);
            }
        }
    }
}
