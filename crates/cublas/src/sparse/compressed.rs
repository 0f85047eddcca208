//! Older functions, on matrices by rows or columns with indices of 32 bits: conversions, sorting, sums, and what leaves
//! out small entries.

use core::ffi::c_int;

use causeway_gemm::{
    Dense, Matrix, SPARSE_COUNTS, SPARSE_THRESHOLD, ScalarType, SparseFormat, SparseMatrix, SparseRequest,
    SparseStep,
};

use super::descriptors::object;
use super::objects::{MatDescr, size, value_type};
use super::request::{WORKSPACE, compressed, count, run};
use super::status::sparse_functions;
use crate::driver;
use crate::handle::{Handle, deliver};
use crate::status::{Done, Status, write_value};

use ScalarType::{C32, C64, F32, F64, I32};
use SparseFormat::{Columns, Pairs, PairsByColumns, Rows};

/// An array that is not there.
const NONE: *const u8 = core::ptr::null();

/// Another format, or another order.
unsafe fn convert(handle: *const Handle, a: SparseMatrix, c: SparseMatrix) -> Done {
    // SAFETY: the caller's handle is null or valid.
    unsafe { run(handle, SparseStep::Convert, SparseRequest { a, c, ..SparseRequest::default() }) }
}

/// Sorts pairs, or the entries of each line, and moves the numbers of a permutation with them.
unsafe fn sort(
    handle: *const Handle,
    [format, order]: [SparseFormat; 2],
    sizes: [c_int; 3],
    [lines, indices, permutation]: [*const u8; 3],
    base: u32,
) -> Done {
    let a = compressed(format, sizes, [lines, indices, permutation], I32, base)?;
    // Where lines begin stays as it is.
    let c = match format {
        Rows => SparseMatrix { row_indices: 0, ..a },
        Columns => SparseMatrix { column_indices: 0, ..a },
        Pairs | PairsByColumns => SparseMatrix { format: order as u16, ..a },
    };
    // SAFETY: the caller's handle is null or valid.
    unsafe { convert(handle, a, c) }
}

sparse_functions! {
    /// The row of each entry.
    fn cusparseXcsr2coo(
        handle: *const Handle, offsets: *const u8, entries: c_int, rows: c_int, row_indices: *const u8, base: u32
    ) {
        let a = compressed(Rows, [rows, 1, entries], [offsets, NONE, NONE], I32, base)?;
        convert(handle, a, compressed(Pairs, [rows, 1, entries], [row_indices, NONE, NONE], I32, base)?)
    }

    /// Where rows begin, of the sorted row of each entry.
    fn cusparseXcoo2csr(
        handle: *const Handle, row_indices: *const u8, entries: c_int, rows: c_int, offsets: *const u8, base: u32
    ) {
        let sizes = [rows, entries.max(1), entries];
        let a = compressed(Pairs, sizes, [row_indices, NONE, NONE], I32, base)?;
        convert(handle, a, compressed(Rows, sizes, [offsets, NONE, NONE], I32, base)?)
    }

    /// The workspace of `Csr2cscEx2`.
    fn cusparseCsr2cscEx2_bufferSize(
        _handle: *const Handle, _m: c_int, _n: c_int, _entries: c_int, _values: *const u8, _offsets: *const u8,
        _indices: *const u8, _csc_values: *const u8, _csc_offsets: *const u8, _csc_indices: *const u8,
        _kind: u32, _action: u32, _base: u32, _algorithm: u32, size: *mut usize
    ) {
        write_value(size, WORKSPACE)
    }

    /// A matrix by columns, of one by rows.
    fn cusparseCsr2cscEx2(
        handle: *const Handle, m: c_int, n: c_int, entries: c_int, values: *const u8, offsets: *const u8,
        indices: *const u8, csc_values: *const u8, csc_offsets: *const u8, csc_indices: *const u8, kind: u32,
        action: u32, base: u32, _algorithm: u32, _buffer: *const u8
    ) {
        let (sizes, elements) = ([m, n, entries], value_type(kind)?);
        let [from, to] = if action == 1 { [values, csc_values] } else { [NONE; 2] };
        let a = compressed(Rows, sizes, [offsets, indices, from], elements, base)?;
        convert(handle, a, compressed(Columns, sizes, [csc_offsets, csc_indices, to], elements, base)?)
    }

    /// The workspace of `csrsort`.
    fn cusparseXcsrsort_bufferSizeExt(
        _handle: *const Handle, _m: c_int, _n: c_int, _entries: c_int, _offsets: *const u8, _indices: *const u8,
        size: *mut usize
    ) {
        write_value(size, WORKSPACE)
    }

    /// Sorts the entries of each row.
    fn cusparseXcsrsort(
        handle: *const Handle, m: c_int, n: c_int, entries: c_int, matrix: *const MatDescr, offsets: *const u8,
        indices: *const u8, permutation: *const u8, _buffer: *const u8
    ) {
        let (arrays, base) = ([offsets, indices, permutation], object(matrix)?.base);
        sort(handle, [Rows; 2], [m, n, entries], arrays, base)
    }

    /// The workspace of `cscsort`.
    fn cusparseXcscsort_bufferSizeExt(
        _handle: *const Handle, _m: c_int, _n: c_int, _entries: c_int, _offsets: *const u8, _indices: *const u8,
        size: *mut usize
    ) {
        write_value(size, WORKSPACE)
    }

    /// Sorts the entries of each column.
    fn cusparseXcscsort(
        handle: *const Handle, m: c_int, n: c_int, entries: c_int, matrix: *const MatDescr, offsets: *const u8,
        indices: *const u8, permutation: *const u8, _buffer: *const u8
    ) {
        let (arrays, base) = ([offsets, indices, permutation], object(matrix)?.base);
        sort(handle, [Columns; 2], [m, n, entries], arrays, base)
    }

    /// The workspace of `coosort`.
    fn cusparseXcoosort_bufferSizeExt(
        _handle: *const Handle, _m: c_int, _n: c_int, _entries: c_int, _rows: *const u8, _columns: *const u8,
        size: *mut usize
    ) {
        write_value(size, WORKSPACE)
    }

    /// Sorts pairs by rows.
    fn cusparseXcoosortByRow(
        handle: *const Handle, m: c_int, n: c_int, entries: c_int, rows: *const u8, columns: *const u8,
        permutation: *const u8, _buffer: *const u8
    ) {
        sort(handle, [Pairs; 2], [m, n, entries], [rows, columns, permutation], 0)
    }

    /// Sorts pairs by columns.
    fn cusparseXcoosortByColumn(
        handle: *const Handle, m: c_int, n: c_int, entries: c_int, rows: *const u8, columns: *const u8,
        permutation: *const u8, _buffer: *const u8
    ) {
        sort(handle, [Pairs, PairsByColumns], [m, n, entries], [rows, columns, permutation], 0)
    }

    /// Where the rows of a sum begin, and how many entries it has.
    fn cusparseXcsrgeam2Nnz(
        handle: *const Handle, m: c_int, n: c_int, a: *const MatDescr, a_entries: c_int, a_offsets: *const u8,
        a_indices: *const u8, b: *const MatDescr, b_entries: c_int, b_offsets: *const u8, b_indices: *const u8,
        c: *const MatDescr, c_offsets: *const u8, total: *mut u8, _buffer: *const u8
    ) {
        let matrix = |descriptor, entries, offsets, indices| {
            compressed(Rows, [m, n, entries], [offsets, indices, NONE], I32, object::<MatDescr>(descriptor)?.base)
        };
        let request = SparseRequest {
            a: matrix(a, a_entries, a_offsets, a_indices)?,
            b: matrix(b, b_entries, b_offsets, b_indices)?,
            c: matrix(c, 0, c_offsets, NONE)?,
            ..SparseRequest::default()
        };
        deliver(handle, total, size_of::<i32>(), |address, _| {
            let count = Matrix { address, scalar_type: I32 as u32, ..Matrix::default() };
            run(handle, SparseStep::Sum, SparseRequest { count, ..request })
        })
    }
}

/// Exports the functions of one element type; a threshold is passed as one of its values.
macro_rules! typed {
    (
        $elements:expr, $threshold:ty, $magnitude:expr, $geam_size:ident $geam:ident $nnz:ident $nnz_compress:ident
        $compress:ident
    ) => {
        sparse_functions! {
            /// The workspace of a sum.
            fn $geam_size(
                _handle: *const Handle, _m: c_int, _n: c_int, _alpha: *const u8, _a: *const MatDescr,
                _a_entries: c_int, _a_values: *const u8, _a_offsets: *const u8, _a_indices: *const u8,
                _beta: *const u8, _b: *const MatDescr, _b_entries: c_int, _b_values: *const u8,
                _b_offsets: *const u8, _b_indices: *const u8, _c: *const MatDescr, _c_values: *const u8,
                _c_offsets: *const u8, _c_indices: *const u8, size: *mut usize
            ) {
                write_value(size, WORKSPACE)
            }

            /// The sum of multiples of two matrices by rows.
            fn $geam(
                handle: *const Handle, m: c_int, n: c_int, alpha: *const u8, a: *const MatDescr,
                a_entries: c_int, a_values: *const u8, a_offsets: *const u8, a_indices: *const u8,
                beta: *const u8, b: *const MatDescr, b_entries: c_int, b_values: *const u8,
                b_offsets: *const u8, b_indices: *const u8, c: *const MatDescr, c_values: *const u8,
                c_offsets: *const u8, c_indices: *const u8, _buffer: *const u8
            ) {
                let settings = Handle::settings(handle)?;
                let matrix = |descriptor, entries, arrays| {
                    compressed(Rows, [m, n, entries], arrays, $elements, object::<MatDescr>(descriptor)?.base)
                };
                // The caller has room for as many as the count said.
                let capacity = a_entries.saturating_add(b_entries);
                let request = SparseRequest {
                    a: matrix(a, a_entries, [a_offsets, a_indices, a_values])?,
                    b: matrix(b, b_entries, [b_offsets, b_indices, b_values])?,
                    c: matrix(c, capacity, [c_offsets, c_indices, c_values])?,
                    alpha: settings.scalar(alpha, $elements)?,
                    beta: settings.scalar(beta, $elements)?,
                    ..SparseRequest::default()
                };
                run(handle, SparseStep::Sum, request)
            }

            /// How many elements of each row or column of a dense matrix, and of all of it, are not zero.
            fn $nnz(
                handle: *const Handle, direction: u32, m: c_int, n: c_int, matrix: *const MatDescr, a: *const u8,
                leading: c_int, counts: *const u8, total: *mut u8
            ) {
                object(matrix)?;
                let format = if direction == 0 { Rows } else { Columns };
                let dense = Matrix {
                    address: a as u64,
                    row_stride: 1,
                    column_stride: leading.into(),
                    scalar_type: $elements as u32,
                    ..Matrix::default()
                };
                let request = SparseRequest {
                    c: compressed(format, [m, n, 0], [counts, NONE, NONE], $elements, 0)?,
                    x: Dense { rows: size(m.into())?, columns: size(n.into())?, matrix: dense },
                    flags: SPARSE_COUNTS,
                    ..SparseRequest::default()
                };
                deliver(handle, total, size_of::<i32>(), |address, _| {
                    let count = Matrix { address, scalar_type: I32 as u32, ..Matrix::default() };
                    run(handle, SparseStep::FromDense, SparseRequest { count, ..request })
                })
            }

            /// How many entries of each row, and of the matrix, are above a threshold.
            fn $nnz_compress(
                handle: *const Handle, m: c_int, matrix: *const MatDescr, values: *const u8,
                offsets: *const u8, counts: *const u8, total: *mut c_int, threshold: $threshold
            ) {
                let base = object(matrix)?.base;
                let entries = last_offset(handle, offsets, m, base)?;
                let threshold: f64 = $magnitude(threshold);
                let request = SparseRequest {
                    a: compressed(Rows, [m, 1, entries], [offsets, NONE, values], $elements, base)?,
                    c: compressed(Rows, [m, 1, 0], [counts, NONE, NONE], $elements, 0)?,
                    flags: SPARSE_COUNTS | SPARSE_THRESHOLD,
                    threshold,
                    ..SparseRequest::default()
                };
                let found = count(handle, SparseStep::Convert, request)?;
                write_value(total, c_int::try_from(found).map_err(|_| Status::InvalidValue)?)
            }

            /// The entries that are above a threshold.
            fn $compress(
                handle: *const Handle, m: c_int, n: c_int, matrix: *const MatDescr, values: *const u8,
                indices: *const u8, offsets: *const u8, entries: c_int, _counts: *const u8,
                c_values: *const u8, c_indices: *const u8, c_offsets: *const u8, threshold: $threshold
            ) {
                let (sizes, base) = ([m, n, entries], object(matrix)?.base);
                let request = SparseRequest {
                    a: compressed(Rows, sizes, [offsets, indices, values], $elements, base)?,
                    c: compressed(Rows, sizes, [c_offsets, c_indices, c_values], $elements, base)?,
                    flags: SPARSE_THRESHOLD,
                    threshold: $magnitude(threshold),
                    ..SparseRequest::default()
                };
                run(handle, SparseStep::Convert, request)
            }
        }
    };
}

/// Entries of a matrix by rows, which its last offset says.
unsafe fn last_offset(
    handle: *const Handle,
    offsets: *const u8,
    rows: c_int,
    base: u32,
) -> Result<c_int, Status> {
    let at = size(rows.into())? * size_of::<c_int>() as u64;
    let mut end: c_int = 0;
    // SAFETY: the caller's handle is null or valid; `end` has room for the number.
    unsafe {
        let stream = Handle::settings(handle)?.stream;
        let bytes = size_of::<c_int>();
        driver::functions()?.copy_to_host((&raw mut end).cast(), offsets as u64 + at, bytes, stream)?;
    }
    end.checked_sub(base as c_int).ok_or(Status::InvalidValue)
}

/// `cuComplex` and `cuDoubleComplex`, as they are passed.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ComplexValue<T> {
    real: T,
    imaginary: T,
}

fn magnitude<T: Into<f64>>(value: ComplexValue<T>) -> f64 {
    value.real.into().hypot(value.imaginary.into())
}

typed! {
    F32, f32, f64::from, cusparseScsrgeam2_bufferSizeExt cusparseScsrgeam2 cusparseSnnz cusparseSnnz_compress
    cusparseScsr2csr_compress
}

typed! {
    F64, f64, f64::from, cusparseDcsrgeam2_bufferSizeExt cusparseDcsrgeam2 cusparseDnnz cusparseDnnz_compress
    cusparseDcsr2csr_compress
}

typed! {
    C32, ComplexValue<f32>, magnitude, cusparseCcsrgeam2_bufferSizeExt cusparseCcsrgeam2 cusparseCnnz
    cusparseCnnz_compress cusparseCcsr2csr_compress
}

typed! {
    C64, ComplexValue<f64>, magnitude, cusparseZcsrgeam2_bufferSizeExt cusparseZcsrgeam2 cusparseZnnz
    cusparseZnnz_compress cusparseZcsr2csr_compress
}
