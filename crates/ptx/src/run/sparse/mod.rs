//! Operations with sparse matrices, for the library that stands in for cuSPARSE.
//!
//! As for products (see [`gemm`](super::gemm)), device memory is read and written on the calling block's coroutine, where
//! nothing is owned; what is computed in between runs on the worker's own stack. All is complex, in double precision,
//! indices too.

mod eliminate;
mod entries;
mod incomplete;

use std::cell::RefCell;

use causeway_gemm::{
    Dense as DenseOperand, MAX_SPARSE, Matrix, SPARSE_COUNTS, SPARSE_THRESHOLD, SPARSE_UNIT_DIAGONAL,
    SPARSE_UPPER, SparseFormat, SparseMatrix, SparseRequest, SparseStep,
};

use super::context::{Raised, ThreadContext};
use super::gemm::memory::{INVALID, Operand, Range};
use super::gemm::scalar;
use super::solve::complex::{Complex, Dense, plus, square, times};
use crate::memory::AddressSpace;
use entries::Entry;
use incomplete::Boost;

/// What is read: arrays of A and B, then X and Y. What is written: arrays of C, then Y and the count.
const READ: usize = 8;
const WRITTEN: usize = 5;

thread_local! {
    /// Elements of this thread's operands. They stay until the next step, since a kernel that faults cannot give them
    /// back.
    static MEMORY: RefCell<[Vec<Complex>; READ]> = const { RefCell::new([const { Vec::new() }; READ]) };
    static RESULTS: RefCell<[Vec<Complex>; WRITTEN]> = const { RefCell::new([const { Vec::new() }; WRITTEN]) };
}

/// A matrix in device memory, of so many rows and columns.
#[derive(Clone, Copy, Default)]
struct Part {
    matrix: Matrix,
    rows: u64,
    columns: u64,
}

impl Part {
    fn of_array(address: u64, scalar_type: u32, len: u64) -> Self {
        let matrix = Matrix { address, row_stride: 1, scalar_type, ..Matrix::default() };
        Self { matrix, rows: len, columns: 1 }
    }

    fn of_dense(dense: &DenseOperand, is_used: bool) -> Self {
        if is_used {
            Self { matrix: dense.matrix, rows: dense.rows, columns: dense.columns }
        } else {
            Self::default()
        }
    }

    /// The arrays of a matrix with so many entries.
    fn of_sparse(matrix: &SparseMatrix, entries: u64, is_counts: bool) -> Option<[Self; 3]> {
        let lines = |count: u64| count.checked_add(u64::from(!is_counts));
        let (rows, columns) = match SparseFormat::from_number(matrix.format)? {
            SparseFormat::Rows => (lines(matrix.rows)?, entries),
            SparseFormat::Columns => (entries, lines(matrix.columns)?),
            SparseFormat::Pairs | SparseFormat::PairsByColumns => (entries, entries),
        };
        Some([
            Self::of_array(matrix.row_indices, matrix.row_type, rows),
            Self::of_array(matrix.column_indices, matrix.column_type, columns),
            Self::of_array(matrix.values, matrix.value_type, entries),
        ])
    }

    fn is_there(&self) -> bool {
        self.matrix.address != 0 && self.rows > 0 && self.columns > 0
    }

    fn elements(&self) -> Option<usize> {
        if !self.is_there() {
            return Some(0);
        }
        self.rows.checked_mul(self.columns).filter(|all| *all <= MAX_SPARSE).map(|all| all as usize)
    }

    /// # Safety
    /// There is room for the elements, which nothing else uses, and this runs on a coroutine.
    unsafe fn read(&self, space: &AddressSpace, to: usize) -> Result<(), Raised> {
        if !self.is_there() {
            return Ok(());
        }
        let (rows, columns) = self.ranges();
        // SAFETY: the caller has room for the elements, which nothing else uses, and this runs on a
        // coroutine.
        unsafe {
            Operand::of(&self.matrix, 0, space)?.read(rows, columns, to as *mut Complex, self.rows as usize)
        }
    }

    /// # Safety
    /// The elements are there, which nothing else uses, and this runs on a coroutine.
    unsafe fn write(&self, space: &AddressSpace, from: usize) -> Result<(), Raised> {
        if !self.is_there() {
            return Ok(());
        }
        let (rows, columns) = self.ranges();
        // SAFETY: the caller has the elements, which nothing else uses, and this runs on a coroutine.
        unsafe {
            Operand::of(&self.matrix, 0, space)?.write(
                rows,
                columns,
                from as *mut Complex,
                self.rows as usize,
            )
        }
    }

    fn ranges(&self) -> (Range, Range) {
        (Range { first: 0, len: self.rows }, Range { first: 0, len: self.columns })
    }
}

/// Takes the step; gives what ends the kernel.
///
/// # Safety
/// `thread` is the context that compiled code was called with, on that code's own coroutine.
pub(super) unsafe fn compute(thread: *mut ThreadContext, request: &SparseRequest) -> Result<(), Raised> {
    // SAFETY: the context belongs to the running thread, and its launch lasts as long.
    let (launch, block, yielder) = unsafe { (&*(*thread).launch, (*thread).ctaid[0], &*(*thread).yielder) };
    if block != 0 {
        return Ok(());
    }
    let space = launch.space;
    let step = SparseStep::from_number(request.step).ok_or(INVALID)?;
    let factors: [Complex; 2] = [scalar(&request.alpha, space)?, scalar(&request.beta, space)?];
    let read = operands(step, request, factors[1]).ok_or(INVALID)?;
    let to = yielder.on_parent_stack(|| allocate(&read)).ok_or(INVALID)?;
    for (part, to) in read.iter().zip(to) {
        // SAFETY: there is room for the part, and this runs on a coroutine.
        unsafe { part.read(space, to)? };
    }
    let is_stopped = || launch.progress.is_stopped();
    let results = yielder.on_parent_stack(|| {
        MEMORY.with_borrow_mut(|operands| {
            let results = results(step, request, factors, operands, &is_stopped)?;
            let lens = results.each_ref().map(Vec::len);
            let addresses = RESULTS.with_borrow_mut(|there| {
                *there = results;
                there.each_ref().map(|result| result.as_ptr() as usize)
            });
            Some((addresses, lens))
        })
    });
    let (from, lens) = results.ok_or(INVALID)?;
    for ((part, from), len) in written(request, lens[2]).ok_or(INVALID)?.iter().zip(from).zip(lens) {
        // A result that the step does not have stays as it is.
        if len > 0 {
            if part.elements() != Some(len) && part.is_there() {
                return Err(INVALID);
            }
            // SAFETY: the elements have been set, and this runs on a coroutine.
            unsafe { part.write(space, from)? };
        }
    }
    Ok(())
}

/// What a step reads.
fn operands(step: SparseStep, request: &SparseRequest, beta: Complex) -> Option<[Part; READ]> {
    let has_second = matches!(step, SparseStep::Product | SparseStep::Sum);
    let has_dense = matches!(
        step,
        SparseStep::MultiplyDense | SparseStep::FromDense | SparseStep::Solve | SparseStep::Eliminate
    );
    let mut parts = [Part::default(); READ];
    for (first, matrix, is_used) in
        [(0, &request.a, step != SparseStep::FromDense), (3, &request.b, has_second)]
    {
        if is_used {
            let sizes = [matrix.rows, matrix.columns, matrix.entries];
            if sizes.iter().any(|size| *size > MAX_SPARSE) {
                return None;
            }
            parts[first..first + 3].copy_from_slice(&Part::of_sparse(matrix, matrix.entries, false)?);
        }
    }
    parts[6] = Part::of_dense(&request.x, has_dense);
    parts[7] = Part::of_dense(&request.y, step == SparseStep::MultiplyDense && beta != [0.0; 2]);
    Some(parts)
}

/// What is written, if the result has so many entries.
fn written(request: &SparseRequest, entries: usize) -> Option<[Part; WRITTEN]> {
    let is_counts = request.flags & SPARSE_COUNTS != 0;
    let entries = entries as u64;
    let [rows, columns, values] = Part::of_sparse(&request.c, entries, is_counts)?;
    // There is no room for more entries than the request says, but there may be for their lines.
    let has_indices = match SparseFormat::from_number(request.c.format)? {
        SparseFormat::Rows => columns.is_there(),
        SparseFormat::Columns => rows.is_there(),
        SparseFormat::Pairs | SparseFormat::PairsByColumns => rows.is_there() || columns.is_there(),
    };
    if entries > request.c.entries && (has_indices || values.is_there()) {
        return None;
    }
    let count = Part { matrix: request.count, rows: 1, columns: 1 };
    Some([rows, columns, values, Part::of_dense(&request.y, true), count])
}

/// Makes room for what is read, and gives where; none if it is too much.
fn allocate(parts: &[Part; READ]) -> Option<[usize; READ]> {
    MEMORY.with_borrow_mut(|memory| {
        let mut addresses = [0; READ];
        for ((elements, part), address) in memory.iter_mut().zip(parts).zip(&mut addresses) {
            // What a large matrix took does not stay for ever.
            *elements = Vec::new();
            let len = part.elements()?;
            elements.try_reserve_exact(len).ok()?;
            elements.resize(len, Complex::default());
            *address = elements.as_mut_ptr() as usize;
        }
        Some(addresses)
    })
}

/// The step on what was read; none if the request is not valid.
fn results(
    step: SparseStep,
    request: &SparseRequest,
    factors: [Complex; 2],
    operands: &mut [Vec<Complex>; READ],
    is_stopped: &dyn Fn() -> bool,
) -> Option<[Vec<Complex>; WRITTEN]> {
    let [a_rows, a_columns, a_values, b_rows, b_columns, b_values, x, y] = operands;
    let left = || entries::entries(&request.a, [a_rows, a_columns, a_values]);
    let right = || entries::entries(&request.b, [b_rows, b_columns, b_values]);
    let (a, b, c) = (&request.a, &request.b, &request.c);
    let mut all: Vec<Entry> = match step {
        SparseStep::MultiplyDense | SparseStep::ToDense | SparseStep::Solve => {
            let result = dense_result(step, request, factors, left()?, x, std::mem::take(y))?;
            return Some([Vec::new(), Vec::new(), Vec::new(), result, Vec::new()]);
        }
        SparseStep::Eliminate => {
            let fits =
                a.rows == a.columns && (request.y.rows, request.y.columns) == (a.rows, request.x.columns);
            if !fits || a.rows.checked_mul(request.x.columns)? != x.len() as u64 {
                return None;
            }
            let mut result: Vec<Complex> = x.iter().map(|element| times(factors[0], *element)).collect();
            let mut to = Dense { rows: a.rows as usize, elements: &mut result };
            let singular = eliminate::solve(left()?, request.threshold, &mut to, is_stopped);
            let count = vec![[singular.map_or(0.0, |column| column as f64 + 1.0), 0.0]];
            return Some([Vec::new(), Vec::new(), Vec::new(), result, count]);
        }
        SparseStep::IncompleteLu | SparseStep::IncompleteCholesky => {
            if a.rows != a.columns {
                return None;
            }
            let mut factors_of = left()?;
            let missing = incomplete_factors(step, request, factors[0], &mut factors_of, is_stopped);
            let values = if request.flags & SPARSE_COUNTS == 0 {
                factors_of.iter().map(|entry| entry.value).collect()
            } else {
                Vec::new()
            };
            let count = vec![[missing.map_or(0.0, |row| row as f64 + 1.0), 0.0]];
            return Some([Vec::new(), Vec::new(), values, Vec::new(), count]);
        }
        SparseStep::FromDense => entries::from_dense(&Dense { rows: request.x.rows as usize, elements: x }),
        SparseStep::Convert => left()?,
        SparseStep::Product if a.columns == b.rows => {
            entries::product(left()?, right()?, b.columns as usize, factors[0], is_stopped)
        }
        SparseStep::Sum if (a.rows, a.columns) == (b.rows, b.columns) => {
            entries::sum(&left()?, factors[0], &right()?, factors[1])
        }
        SparseStep::Product | SparseStep::Sum => return None,
    };
    if request.flags & SPARSE_THRESHOLD != 0 {
        all.retain(|entry| square(entry.value).sqrt() > request.threshold);
    }
    let in_range = |entry: &Entry| (entry.row as u64) < c.rows && (entry.column as u64) < c.columns;
    if c.rows.max(c.columns) > MAX_SPARSE || !all.iter().all(in_range) {
        return None;
    }
    entries::sort(&mut all, SparseFormat::from_number(c.format)?);
    let count = vec![[all.len() as f64, 0.0]];
    let [rows, columns, values] = entries::arrays(c, &all, request.flags & SPARSE_COUNTS != 0)?;
    Some([rows, columns, values, Vec::new(), count])
}

/// Overwrites the entries of A with incomplete factors; gives the first row without a pivot.
fn incomplete_factors(
    step: SparseStep,
    request: &SparseRequest,
    alpha: Complex,
    entries: &mut [Entry],
    is_stopped: &dyn Fn() -> bool,
) -> Option<usize> {
    let (order, has) = (request.a.rows as usize, |flag| request.flags & flag != 0);
    if has(SPARSE_COUNTS) {
        return incomplete::missing_pivot(entries, order);
    }
    if step == SparseStep::IncompleteCholesky {
        return incomplete::cholesky(entries, order, is_stopped);
    }
    let boost = has(SPARSE_THRESHOLD).then_some(Boost { tolerance: request.threshold, value: alpha });
    incomplete::lu(entries, order, boost, is_stopped)
}

/// Y of a step whose result is dense; `y` is what it was, if it is used.
fn dense_result(
    step: SparseStep,
    request: &SparseRequest,
    [alpha, beta]: [Complex; 2],
    entries: Vec<Entry>,
    x: &mut [Complex],
    y: Vec<Complex>,
) -> Option<Vec<Complex>> {
    let (a, columns) = (&request.a, request.y.columns);
    let (x_rows, y_columns) = match step {
        SparseStep::ToDense => (0, a.columns),
        SparseStep::Solve if a.rows != a.columns => return None,
        _ => (a.columns, columns),
    };
    let elements = a.rows.checked_mul(columns).filter(|all| *all <= MAX_SPARSE)? as usize;
    if (request.y.rows, columns) != (a.rows, y_columns) || x_rows.checked_mul(columns)? != x.len() as u64 {
        return None;
    }
    let mut result = match step {
        SparseStep::Solve => x.to_vec(),
        _ if y.is_empty() => vec![Complex::default(); elements],
        _ => y,
    };
    if elements == 0 || result.len() != elements {
        return (elements == 0).then_some(result);
    }
    let factor = if step == SparseStep::Solve { alpha } else { beta };
    let mut to = Dense { rows: a.rows as usize, elements: &mut result };
    to.elements.iter_mut().for_each(|element| *element = times(*element, factor));
    match step {
        SparseStep::Solve => {
            let has = |flag| request.flags & flag != 0;
            entries::solve(entries, has(SPARSE_UPPER), has(SPARSE_UNIT_DIAGONAL), &mut to);
        }
        SparseStep::MultiplyDense => {
            let x = Dense { rows: a.columns as usize, elements: x };
            entries::multiply_dense(&entries, alpha, &x, &mut to);
        }
        _ => {
            for entry in entries {
                let sum = plus(to.at(entry.row, entry.column), entry.value);
                to.set(entry.row, entry.column, sum);
            }
        }
    }
    Some(result)
}
