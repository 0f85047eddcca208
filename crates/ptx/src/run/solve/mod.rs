//! Solutions and factorizations of matrices, for the library that stands in for cuBLAS and cuSOLVER.
//!
//! As for products (see [`gemm`](super::gemm)), elements are read and written on the calling block's coroutine,
//! where nothing is owned; what is computed in between runs on the worker's own stack. All is complex, in double
//! precision: these are small beside products.

pub(super) mod complex;
mod factors;
mod general;
mod jacobi;

use std::cell::RefCell;

use causeway_gemm::{
    CONJUGATE, FROM_IDENTITY, MAX_ELEMENTS, Matrix, ScalarType, SolveRequest, Step, TRANSPOSE, UNIT_DIAGONAL,
    VALUES_ALONE,
};

use super::context::{Raised, ThreadContext};
use super::gemm::memory::{INVALID, Operand, Range};
use super::gemm::scalar;
use crate::memory::AddressSpace;
use complex::{Complex, Dense};

thread_local! {
    /// Elements of this thread's matrices. It stays until the next one, since a kernel that faults cannot give
    /// it back.
    static MEMORY: RefCell<Vec<Complex>> = const { RefCell::new(Vec::new()) };
}

/// The matrices of a step in the thread's memory, one behind another.
struct Parts {
    start: usize,
    /// Rows and columns of A, B, C, the values and the pivots.
    sizes: [(usize, usize); 5],
}

impl Parts {
    fn address(&self, part: usize) -> *mut Complex {
        let before: usize = self.sizes[..part].iter().map(|(rows, columns)| rows * columns).sum();
        (self.start as *mut Complex).wrapping_add(before)
    }

    /// A part, while nothing else uses it.
    unsafe fn dense<'a>(&self, part: usize) -> Dense<'a> {
        let (rows, columns) = self.sizes[part];
        // SAFETY: the memory has so many elements, which have been set.
        let elements = unsafe { std::slice::from_raw_parts_mut(self.address(part), rows * columns) };
        Dense { rows, elements }
    }
}

/// Takes the step on the matrices of the calling block; gives what ends the kernel.
///
/// # Safety
/// `thread` is the context that compiled code was called with, on that code's own coroutine.
pub(super) unsafe fn solve(thread: *mut ThreadContext, request: &SolveRequest) -> Result<(), Raised> {
    // SAFETY: the context belongs to the running thread, and its launch lasts as long.
    let (launch, block, yielder) =
        unsafe { (&*(*thread).launch, u64::from((*thread).ctaid[0]), &*(*thread).yielder) };
    if block >= request.batch {
        return Ok(());
    }
    let step = Step::from_number(request.step).ok_or(INVALID)?;
    let space = launch.space;
    let sizes = sizes(step, request)?;
    let start = yielder.on_parent_stack(|| allocate(&sizes)).ok_or(INVALID)?;
    let parts = Parts { start, sizes };
    let alpha = scalar(&request.alpha, space)?;
    let (reads, writes) = uses(step, request);
    let matrices = [request.a, request.b, request.c, request.values, request.pivots];
    for part in (0..5).filter(|part| reads[*part]) {
        // SAFETY: there is room for the part, and this runs on a coroutine.
        unsafe { transfer(&parts, part, &matrices[part], block, space, Direction::Read)? };
    }
    let is_stopped = || launch.progress.is_stopped();
    let info = yielder.on_parent_stack(|| {
        // SAFETY: the parts are used by this step alone.
        unsafe { compute(step, request, &parts, alpha, &is_stopped) }
    });
    for part in (0..5).filter(|part| writes[*part]) {
        // SAFETY: `allocate` made room for the part, and this runs on a coroutine.
        unsafe { transfer(&parts, part, &matrices[part], block, space, Direction::Write)? };
    }
    if request.info.address != 0 {
        let (mut value, one) = ([info as f64, 0.0], Range { first: 0, len: 1 });
        // SAFETY: `value` is a local, and this runs on a coroutine.
        unsafe { Operand::of(&request.info, block, space)?.write(one, one, &raw mut value, 1)? };
    }
    Ok(())
}

/// Rows and columns of the parts that a step uses, if they are not too large.
fn sizes(step: Step, request: &SolveRequest) -> Result<[(usize, usize); 5], Raised> {
    let (rows, columns) = (request.rows, request.columns);
    let is_square = !matches!(step, Step::Lu | Step::Qr | Step::MultiplyQ | Step::FormQ | Step::Singular);
    let has_vectors = request.flags & VALUES_ALONE == 0;
    let b = (request.b_rows, request.b_columns);
    let few = rows.min(columns);
    let (b, c, values, pivots, fits) = match step {
        Step::SolveLower | Step::SolveUpper | Step::MultiplyLower | Step::MultiplyUpper => {
            (b, (0, 0), 0, 0, b.0 == rows)
        }
        Step::Cholesky => ((0, 0), (0, 0), 0, 0, true),
        Step::Lu => ((0, 0), (0, 0), 0, few, true),
        Step::SolveLu => (b, (0, 0), 0, rows, b.0 == rows),
        Step::Qr => ((0, 0), (0, 0), few, 0, true),
        Step::MultiplyQ | Step::FormQ => (b, (0, 0), columns, 0, b.0 == rows && columns <= rows),
        Step::Eigen if has_vectors => ((rows, rows), (0, 0), rows, 0, true),
        Step::EigenGeneral => {
            let order = if has_vectors { rows } else { 0 };
            ((order, order), (request.c_rows, columns), rows, 0, request.c_rows <= 1)
        }
        Step::Eigen => ((0, 0), (0, 0), rows, 0, true),
        Step::Singular if has_vectors => {
            let c = request.c_rows;
            let fits = b.0 == rows && (few..=rows).contains(&b.1) && (few..=columns).contains(&c);
            (b, (c, columns), few, 0, fits)
        }
        Step::Singular => ((0, 0), (0, 0), few, 0, true),
    };
    let all = [(rows, columns), b, c, (values, 1), (pivots, 1)];
    let is_small =
        |(rows, columns): &(u64, u64)| rows.checked_mul(*columns).is_some_and(|all| all <= MAX_ELEMENTS);
    if !fits || is_square && rows != columns || !all.iter().all(is_small) {
        return Err(INVALID);
    }
    Ok(all.map(|(rows, columns)| (rows as usize, columns as usize)))
}

/// Which parts a step reads and writes.
fn uses(step: Step, request: &SolveRequest) -> ([bool; 5], [bool; 5]) {
    let pivots = request.pivots.address != 0;
    let b = request.flags & FROM_IDENTITY == 0;
    let vectors = request.flags & VALUES_ALONE == 0;
    match step {
        Step::SolveLower | Step::SolveUpper | Step::MultiplyLower | Step::MultiplyUpper => {
            ([true, b, false, false, false], [false, true, false, false, false])
        }
        Step::Cholesky => ([true, false, false, false, false], [true, false, false, false, false]),
        Step::Lu => ([true, false, false, false, false], [true, false, false, false, pivots]),
        Step::SolveLu => ([true, b, false, false, pivots], [false, true, false, false, false]),
        Step::Qr => ([true, false, false, false, false], [true, false, false, true, false]),
        Step::MultiplyQ => ([true, true, false, true, false], [false, true, false, false, false]),
        Step::FormQ => ([true, false, false, true, false], [false, true, false, false, false]),
        Step::Eigen => ([true, false, false, false, false], [false, vectors, false, true, false]),
        Step::EigenGeneral => {
            ([true, false, false, false, false], [false, vectors, request.c_rows > 0, true, false])
        }
        Step::Singular => ([true, false, false, false, false], [false, vectors, vectors, true, false]),
    }
}

/// Where the thread's memory is, with zeros for all parts; none if there is not so much.
fn allocate(sizes: &[(usize, usize); 5]) -> Option<usize> {
    let len = sizes.iter().map(|(rows, columns)| rows * columns).sum();
    MEMORY.with_borrow_mut(|memory| {
        // What a large matrix took does not stay for ever.
        *memory = Vec::new();
        memory.try_reserve_exact(len).ok()?;
        memory.resize(len, Complex::default());
        Some(memory.as_mut_ptr() as usize)
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Read,
    Write,
}

/// Copies a part from or to device memory.
///
/// # Safety
/// This runs on a coroutine, and nothing else uses the part.
unsafe fn transfer(
    parts: &Parts,
    part: usize,
    matrix: &Matrix,
    block: u64,
    space: &AddressSpace,
    direction: Direction,
) -> Result<(), Raised> {
    let ((rows, columns), address) = (parts.sizes[part], parts.address(part));
    if rows == 0 || columns == 0 {
        return Ok(());
    }
    let operand = Operand::of(matrix, block, space)?;
    let range = |len: usize| Range { first: 0, len: len as u64 };
    // SAFETY: nothing else uses the caller's part, which has so many elements.
    unsafe {
        if direction == Direction::Read {
            return operand.read(range(rows), range(columns), address, rows);
        }
        if matrix.is_conjugate != 0 {
            for element in 0..rows * columns {
                (*address.add(element))[1] *= -1.0;
            }
        }
        operand.write(range(rows), range(columns), address, rows)
    }
}

/// The step on what was read; gives what `info` says.
///
/// # Safety
/// Nothing else uses the parts.
unsafe fn compute(
    step: Step,
    request: &SolveRequest,
    parts: &Parts,
    alpha: Complex,
    is_stopped: &dyn Fn() -> bool,
) -> usize {
    // SAFETY: nothing else uses the caller's parts, which do not overlap.
    let [mut a, mut b, mut c, mut values, mut pivots] =
        unsafe { [parts.dense(0), parts.dense(1), parts.dense(2), parts.dense(3), parts.dense(4)] };
    let has = |flag| request.flags & flag != 0;
    if has(FROM_IDENTITY) || step == Step::FormQ {
        b.set_identity();
    }
    match step {
        Step::SolveLower | Step::SolveUpper => {
            b.elements.iter_mut().for_each(|element| *element = complex::times(*element, alpha));
            let order = a.rows;
            let is_upper = step == Step::SolveUpper;
            factors::substitute(|row, column| a.at(row, column), order, is_upper, has(UNIT_DIAGONAL), &mut b);
            0
        }
        Step::MultiplyLower | Step::MultiplyUpper => {
            b.elements.iter_mut().for_each(|element| *element = complex::times(*element, alpha));
            factors::multiply_triangle(&a, step == Step::MultiplyUpper, has(UNIT_DIAGONAL), &mut b);
            0
        }
        Step::Cholesky => factors::cholesky(&mut a, is_stopped),
        Step::Lu => {
            let pivots = (request.pivots.address != 0).then_some(&mut pivots);
            factors::lu(&mut a, pivots, is_stopped)
        }
        Step::SolveLu => {
            let pivots = (request.pivots.address != 0).then_some(&pivots);
            factors::solve_lu(&a, pivots, (has(TRANSPOSE), has(CONJUGATE)), &mut b);
            0
        }
        Step::Qr => {
            factors::qr(&mut a, &mut values, is_stopped);
            0
        }
        Step::MultiplyQ => {
            factors::multiply_q(&a, &values, has(TRANSPOSE), &mut b);
            0
        }
        Step::FormQ => {
            factors::multiply_q(&a, &values, false, &mut b);
            0
        }
        Step::Eigen => jacobi::eigen(&mut a, &mut values, &mut b, is_stopped),
        Step::EigenGeneral => {
            let is_real = |matrix: &Matrix| {
                !ScalarType::from_number(matrix.scalar_type).is_some_and(ScalarType::is_complex)
            };
            let results = general::Results {
                values: &mut values,
                imaginary: &mut c,
                vectors: &mut b,
                is_real: is_real(&request.a),
                has_real_vectors: is_real(&request.b),
            };
            general::eigen(&mut a, results, is_stopped)
        }
        Step::Singular => jacobi::singular(&a, &mut values, &mut b, &mut c, is_stopped),
    }
}
