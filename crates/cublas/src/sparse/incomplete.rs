//! Incomplete factors of matrices by rows: `csrilu02` and `csric02`.
//!
//! Callers wait for a factorization, since what it says of its pivots is kept in the `Info` that they pass.

use core::ffi::c_int;

use causeway_gemm::{
    SPARSE_COUNTS, SPARSE_THRESHOLD, Scalar, ScalarType, SparseFormat, SparseMatrix, SparseRequest,
    SparseStep,
};

use super::descriptors::{change, create, destroy, object};
use super::objects::MatDescr;
use super::request::{WORKSPACE, compressed, count};
use super::status::sparse_functions;
use crate::handle::Handle;
use crate::operation::ONE;
use crate::status::{Done, Status, write_value};

use ScalarType::{C32, C64, F32, F64};

/// `csrilu02Info_t` and `csric02Info_t`: what the newest analysis or factorization found, and what is done with small
/// pivots.
#[derive(Debug, Clone, Copy, Default)]
pub struct Info {
    /// The first row without a pivot.
    zero_pivot: Option<c_int>,
    /// The size of a pivot that is small, and what stands in its place.
    boost: Option<(f64, Scalar)>,
}

/// What a call names: the matrix, by order and entries, descriptor and arrays.
struct Call {
    handle: *const Handle,
    sizes: [c_int; 2],
    elements: ScalarType,
    matrix: *const MatDescr,
    /// Offsets, indices and values.
    arrays: [*const u8; 3],
    info: *mut Info,
}

impl Call {
    /// Takes a step and notes the row that it found.
    ///
    /// # Safety
    /// The handle, the descriptor and the info are null or valid.
    unsafe fn run(self, step: SparseStep, is_analysis: bool) -> Done {
        let [order, entries] = self.sizes;
        // SAFETY: the caller's descriptor and info are null or valid.
        let (base, info) = unsafe { (object(self.matrix)?.base, object(self.info.cast_const())?) };
        let sizes = [order, order, entries];
        let a = compressed(SparseFormat::Rows, sizes, self.arrays, self.elements, base)?;
        let mut request = SparseRequest { a, alpha: ONE, ..SparseRequest::default() };
        if is_analysis {
            request.flags |= SPARSE_COUNTS;
        } else {
            // Indices stay as they are.
            request.c = SparseMatrix { row_indices: 0, column_indices: 0, ..a };
            if let Some((tolerance, value)) = info.boost {
                request.flags |= SPARSE_THRESHOLD;
                (request.threshold, request.alpha) = (tolerance, value);
            }
        }
        // SAFETY: the caller's handle and info are null or valid. The number of the row counts from 1 on, with 0
        // for none.
        unsafe {
            let found = count(self.handle, step, request)?;
            let row = c_int::try_from(found).map_err(|_| Status::InvalidValue)?;
            change(self.info, |info| {
                info.zero_pivot = (row > 0).then_some(row - 1);
                Ok(())
            })
        }
    }
}

/// Says where the pivot is missing that was found last.
unsafe fn zero_pivot(handle: *const Handle, info: *const Info, position: *mut c_int) -> Done {
    // SAFETY: the program passes a handle and an info that are null or valid.
    let (settings, info) = unsafe { (Handle::settings(handle)?, object(info)?) };
    if settings.is_device_mode {
        return Err(Status::NotSupported);
    }
    // SAFETY: the program has room for the number in host memory, by the pointer mode.
    unsafe { write_value(position, info.zero_pivot.unwrap_or(-1))? };
    if info.zero_pivot.is_some() { Err(Status::ZeroPivot) } else { Ok(()) }
}

sparse_functions! {
    /// Makes what belongs to an incomplete LU factorization.
    fn cusparseCreateCsrilu02Info(info: *mut *mut Info) { create(info, Info::default()) }

    /// Ends what belongs to an incomplete LU factorization.
    fn cusparseDestroyCsrilu02Info(info: *const Info) { destroy(info) }

    /// The first row without a pivot, or -1.
    fn cusparseXcsrilu02_zeroPivot(handle: *const Handle, info: *const Info, position: *mut c_int) {
        zero_pivot(handle, info, position)
    }

    /// Makes what belongs to an incomplete Cholesky factorization.
    fn cusparseCreateCsric02Info(info: *mut *mut Info) { create(info, Info::default()) }

    /// Ends what belongs to an incomplete Cholesky factorization.
    fn cusparseDestroyCsric02Info(info: *const Info) { destroy(info) }

    /// The first row without a positive pivot, or -1.
    fn cusparseXcsric02_zeroPivot(handle: *const Handle, info: *const Info, position: *mut c_int) {
        zero_pivot(handle, info, position)
    }
}

/// Exports the functions of one element type and one factorization.
macro_rules! factorization {
    ($elements:expr, $step:expr, $size:ident $analysis:ident $factor:ident) => {
        sparse_functions! {
            /// The workspace.
            fn $size(
                _handle: *const Handle, _order: c_int, _entries: c_int, _matrix: *const MatDescr,
                _values: *const u8, _offsets: *const u8, _indices: *const u8, _info: *const Info, size: *mut c_int
            ) {
                write_value(size, WORKSPACE as c_int)
            }

            /// Looks for pivots that are missing.
            fn $analysis(
                handle: *const Handle, order: c_int, entries: c_int, matrix: *const MatDescr, values: *const u8,
                offsets: *const u8, indices: *const u8, info: *mut Info, _policy: u32, _buffer: *const u8
            ) {
                let (sizes, arrays) = ([order, entries], [offsets, indices, values]);
                let call = Call { handle, sizes, elements: $elements, matrix, arrays, info };
                call.run($step, true)
            }

            /// Overwrites the values with those of the factors.
            fn $factor(
                handle: *const Handle, order: c_int, entries: c_int, matrix: *const MatDescr, values: *const u8,
                offsets: *const u8, indices: *const u8, info: *mut Info, _policy: u32, _buffer: *const u8
            ) {
                let (sizes, arrays) = ([order, entries], [offsets, indices, values]);
                let call = Call { handle, sizes, elements: $elements, matrix, arrays, info };
                call.run($step, false)
            }
        }
    };
}

/// Exports the functions of one element type.
macro_rules! factorizations {
    (
        $elements:expr, $lu_size:ident $lu_analysis:ident $lu:ident $boost:ident
        $cholesky_size:ident $cholesky_analysis:ident $cholesky:ident
    ) => {
        factorization! { $elements, SparseStep::IncompleteLu, $lu_size $lu_analysis $lu }
        factorization! {
            $elements, SparseStep::IncompleteCholesky, $cholesky_size $cholesky_analysis $cholesky
        }

        sparse_functions! {
            /// Sets whether small pivots are replaced, which these are, and what by.
            fn $boost(
                handle: *const Handle, info: *mut Info, is_on: c_int, tolerance: *const f64, value: *const u8
            ) {
                let settings = Handle::settings(handle)?;
                if is_on != 0 && (settings.is_device_mode || tolerance.is_null()) {
                    return Err(if tolerance.is_null() { Status::InvalidValue } else { Status::NotSupported });
                }
                let boost = match is_on {
                    0 => None,
                    _ => Some((tolerance.read(), settings.scalar(value, $elements)?)),
                };
                change(info, |info| {
                    info.boost = boost;
                    Ok(())
                })
            }
        }
    };
}

factorizations! {
    F32, cusparseScsrilu02_bufferSize cusparseScsrilu02_analysis cusparseScsrilu02 cusparseScsrilu02_numericBoost
    cusparseScsric02_bufferSize cusparseScsric02_analysis cusparseScsric02
}

factorizations! {
    F64, cusparseDcsrilu02_bufferSize cusparseDcsrilu02_analysis cusparseDcsrilu02 cusparseDcsrilu02_numericBoost
    cusparseDcsric02_bufferSize cusparseDcsric02_analysis cusparseDcsric02
}

factorizations! {
    C32, cusparseCcsrilu02_bufferSize cusparseCcsrilu02_analysis cusparseCcsrilu02 cusparseCcsrilu02_numericBoost
    cusparseCcsric02_bufferSize cusparseCcsric02_analysis cusparseCcsric02
}

factorizations! {
    C64, cusparseZcsrilu02_bufferSize cusparseZcsrilu02_analysis cusparseZcsrilu02 cusparseZcsrilu02_numericBoost
    cusparseZcsric02_bufferSize cusparseZcsric02_analysis cusparseZcsric02
}
