//! Descriptors of matrices and vectors: how they are made, asked and changed.

use causeway_gemm::{ScalarType, SparseFormat, SparseMatrix};

use super::objects::{
    Dn, MatDescr, SpMat, SpVec, index_base, index_number, index_type, size, value_number, value_type,
};
use super::status::sparse_functions;
use crate::status::{Done, Status, write_value};

/// What a descriptor points at.
///
/// # Safety
/// It is null or one that was made here, of this type.
pub unsafe fn object<T: Copy>(descriptor: *const T) -> Result<T, Status> {
    // SAFETY: the caller passes null or a descriptor of this type that was made here and not destroyed.
    unsafe { descriptor.as_ref() }.copied().ok_or(Status::InvalidValue)
}

/// Changes what a descriptor points at.
///
/// # Safety
/// As for [`object`], and nothing else uses it meanwhile.
pub unsafe fn change<T>(descriptor: *mut T, change: impl FnOnce(&mut T) -> Done) -> Done {
    // SAFETY: the caller passes null or a descriptor of this type that was made here and that nothing else
    // uses meanwhile.
    change(unsafe { descriptor.as_mut() }.ok_or(Status::InvalidValue)?)
}

/// Makes a descriptor, in memory that [`destroy`] releases.
///
/// # Safety
/// `to` is null or has room for a pointer.
pub(super) unsafe fn create<T>(to: *mut *mut T, object: T) -> Done {
    if to.is_null() {
        return Err(Status::InvalidValue);
    }
    // SAFETY: `to` is not null, so the program has room for a pointer there.
    unsafe { to.write(Box::into_raw(Box::new(object))) };
    Ok(())
}

/// Ends a descriptor.
///
/// # Safety
/// As for [`object`], and nobody uses it any more.
pub(super) unsafe fn destroy<T>(descriptor: *const T) -> Done {
    if !descriptor.is_null() {
        // SAFETY: the program passes one that `create` made with `Box::into_raw` for this type, and uses it
        // no more.
        drop(unsafe { Box::from_raw(descriptor.cast_mut()) });
    }
    Ok(())
}

/// Writes values to those of the pointers that are not null.
macro_rules! write_values {
    ($($to:ident = $value:expr),* $(,)?) => {
        $(
            if !$to.is_null() {
                $to.write($value);
            }
        )*
    };
}

/// A sparse matrix of the interface: arrays of rows and columns, with their types.
unsafe fn create_sparse(
    to: *mut *mut SpMat,
    format: SparseFormat,
    [rows, columns, entries]: [i64; 3],
    [row_indices, column_indices, values]: [u64; 3],
    [row_type, column_type, base, kind]: [u32; 4],
) -> Done {
    let matrix = SparseMatrix {
        rows: size(rows)?,
        columns: size(columns)?,
        entries: size(entries)?,
        row_indices,
        column_indices,
        values,
        row_type: index_type(row_type)?,
        column_type: index_type(column_type)?,
        value_type: value_type(kind)? as u32,
        format: format as u16,
        base: index_base(base)?,
        is_conjugate: 0,
    };
    // SAFETY: the program passes null or room for a pointer.
    unsafe { create(to, SpMat { matrix, ..SpMat::default() }) }
}

/// Exports a constructor under two names: of matrices that may be written, and of others.
macro_rules! constructors {
    (@one $name:ident ($($argument:ident: $ty:ty),* $(,)?) $body:block) => {
        sparse_functions! {
            /// Makes a descriptor.
            fn $name($($argument: $ty),*) $body
        }
    };
    ($($name:ident $constant:ident $arguments:tt $body:block)*) => {
        $(
            constructors! { @one $name $arguments $body }
            constructors! { @one $constant $arguments $body }
        )*
    };
}

constructors! {
    cusparseCreateCsr cusparseCreateConstCsr (
        to: *mut *mut SpMat, rows: i64, columns: i64, entries: i64, offsets: u64, indices: u64, values: u64,
        offset_type: u32, index_type: u32, base: u32, kind: u32,
    ) {
        let (sizes, types) = ([rows, columns, entries], [offset_type, index_type, base, kind]);
        create_sparse(to, SparseFormat::Rows, sizes, [offsets, indices, values], types)
    }

    cusparseCreateCsc cusparseCreateConstCsc (
        to: *mut *mut SpMat, rows: i64, columns: i64, entries: i64, offsets: u64, indices: u64, values: u64,
        offset_type: u32, index_type: u32, base: u32, kind: u32,
    ) {
        let (sizes, types) = ([rows, columns, entries], [index_type, offset_type, base, kind]);
        create_sparse(to, SparseFormat::Columns, sizes, [indices, offsets, values], types)
    }

    cusparseCreateCoo cusparseCreateConstCoo (
        to: *mut *mut SpMat, rows: i64, columns: i64, entries: i64, row_indices: u64, column_indices: u64,
        values: u64, index_type: u32, base: u32, kind: u32,
    ) {
        let (sizes, types) = ([rows, columns, entries], [index_type, index_type, base, kind]);
        create_sparse(to, SparseFormat::Pairs, sizes, [row_indices, column_indices, values], types)
    }

    cusparseCreateDnVec cusparseCreateConstDnVec (to: *mut *mut Dn, len: i64, values: u64, kind: u32) {
        size(len)?;
        create(to, Dn { rows: len, columns: 1, leading: len, values, value_type: kind, is_by_rows: false })
    }

    cusparseCreateDnMat cusparseCreateConstDnMat (
        to: *mut *mut Dn, rows: i64, columns: i64, leading: i64, values: u64, kind: u32, order: u32,
    ) {
        let (is_by_rows, line) = match order {
            1 => (false, rows),
            2 => (true, columns),
            _ => return Err(Status::InvalidValue),
        };
        if rows < 0 || columns < 0 || leading < line {
            return Err(Status::InvalidValue);
        }
        create(to, Dn { rows, columns, leading, values, value_type: kind, is_by_rows })
    }

    cusparseCreateSpVec cusparseCreateConstSpVec (
        to: *mut *mut SpVec, len: i64, entries: i64, indices: u64, values: u64, index_type: u32, base: u32,
        kind: u32,
    ) {
        let (_, _) = (size(len)?, size(entries)?);
        create(to, SpVec { len, entries, indices, values, index_type, base, value_type: kind })
    }
}

sparse_functions! {
    /// Ends a descriptor.
    fn cusparseDestroySpMat(descriptor: *const SpMat) { destroy(descriptor) }
    /// Ends a descriptor.
    fn cusparseDestroyDnMat(descriptor: *const Dn) { destroy(descriptor) }
    /// Ends a descriptor.
    fn cusparseDestroyDnVec(descriptor: *const Dn) { destroy(descriptor) }
    /// Ends a descriptor.
    fn cusparseDestroySpVec(descriptor: *const SpVec) { destroy(descriptor) }

    /// Makes a descriptor.
    fn cusparseCreateMatDescr(to: *mut *mut MatDescr) { create(to, MatDescr::default()) }
    /// Ends a descriptor.
    fn cusparseDestroyMatDescr(descriptor: *const MatDescr) { destroy(descriptor) }
    /// Sets the type: `cusparseMatrixType_t`.
    fn cusparseSetMatType(descriptor: *mut MatDescr, kind: u32) {
        change(descriptor, |matrix| { matrix.kind = kind; Ok(()) })
    }
    /// Sets the triangle that is stored.
    fn cusparseSetMatFillMode(descriptor: *mut MatDescr, fill: u32) {
        change(descriptor, |matrix| { matrix.fill = fill; Ok(()) })
    }
    /// Sets whether the diagonal is one.
    fn cusparseSetMatDiagType(descriptor: *mut MatDescr, diagonal: u32) {
        change(descriptor, |matrix| { matrix.diagonal = diagonal; Ok(()) })
    }
    /// Sets with what indices begin.
    fn cusparseSetMatIndexBase(descriptor: *mut MatDescr, base: u32) {
        index_base(base)?;
        change(descriptor, |matrix| { matrix.base = base; Ok(()) })
    }

    /// Sizes of a sparse matrix.
    fn cusparseSpMatGetSize(descriptor: *const SpMat, rows: *mut u64, columns: *mut u64, entries: *mut u64) {
        let matrix = object(descriptor)?.matrix;
        write_values! { rows = matrix.rows, columns = matrix.columns, entries = matrix.entries }
        Ok(())
    }

    /// The format of a sparse matrix.
    fn cusparseSpMatGetFormat(descriptor: *const SpMat, format: *mut u32) {
        let found = SparseFormat::from_number(object(descriptor)?.matrix.format);
        write_value(format, match found {
            Some(SparseFormat::Rows) => 1,
            Some(SparseFormat::Columns) => 2,
            _ => 3,
        })
    }

    /// With what indices begin.
    fn cusparseSpMatGetIndexBase(descriptor: *const SpMat, base: *mut u32) {
        write_value(base, object(descriptor)?.matrix.base.into())
    }

    /// Where values are.
    fn cusparseSpMatGetValues(descriptor: *const SpMat, values: *mut u64) {
        write_value(values, object(descriptor)?.matrix.values)
    }

    /// Sets where values are.
    fn cusparseSpMatSetValues(descriptor: *mut SpMat, values: u64) {
        change(descriptor, |sparse| { sparse.matrix.values = values; Ok(()) })
    }

    /// How many matrices there are: one.
    fn cusparseSpMatGetStridedBatch(descriptor: *const SpMat, count: *mut i32) {
        object(descriptor)?;
        write_value(count, 1)
    }

    /// All of a matrix by rows.
    fn cusparseCsrGet(
        descriptor: *const SpMat, rows: *mut u64, columns: *mut u64, entries: *mut u64, offsets: *mut u64,
        indices: *mut u64, values: *mut u64, offset_type: *mut u32, kind: *mut u32, base: *mut u32,
        value_type: *mut u32
    ) {
        let matrix = object(descriptor)?.matrix;
        write_values! {
            rows = matrix.rows, columns = matrix.columns, entries = matrix.entries, offsets = matrix.row_indices,
            indices = matrix.column_indices, values = matrix.values, offset_type = index_number(matrix.row_type),
            kind = index_number(matrix.column_type), base = matrix.base.into(),
            value_type = value_number(matrix.value_type),
        }
        Ok(())
    }

    /// All of a matrix by pairs.
    fn cusparseCooGet(
        descriptor: *const SpMat, rows: *mut u64, columns: *mut u64, entries: *mut u64, row_indices: *mut u64,
        column_indices: *mut u64, values: *mut u64, kind: *mut u32, base: *mut u32, value_type: *mut u32
    ) {
        let matrix = object(descriptor)?.matrix;
        write_values! {
            rows = matrix.rows, columns = matrix.columns, entries = matrix.entries,
            row_indices = matrix.row_indices, column_indices = matrix.column_indices, values = matrix.values,
            kind = index_number(matrix.row_type), base = matrix.base.into(),
            value_type = value_number(matrix.value_type),
        }
        Ok(())
    }

    /// Sets where the arrays of a matrix by rows are.
    fn cusparseCsrSetPointers(descriptor: *mut SpMat, offsets: u64, indices: u64, values: u64) {
        change(descriptor, |sparse| {
            let matrix = sparse.matrix;
            sparse.matrix =
                SparseMatrix { row_indices: offsets, column_indices: indices, values, ..matrix };
            Ok(())
        })
    }

    /// Sets where the arrays of a matrix by columns are.
    fn cusparseCscSetPointers(descriptor: *mut SpMat, offsets: u64, indices: u64, values: u64) {
        change(descriptor, |sparse| {
            let matrix = sparse.matrix;
            sparse.matrix =
                SparseMatrix { row_indices: indices, column_indices: offsets, values, ..matrix };
            Ok(())
        })
    }

    /// Sets where the arrays of a matrix by pairs are.
    fn cusparseCooSetPointers(descriptor: *mut SpMat, rows: u64, columns: u64, values: u64) {
        change(descriptor, |sparse| {
            let matrix = sparse.matrix;
            sparse.matrix =
                SparseMatrix { row_indices: rows, column_indices: columns, values, ..matrix };
            Ok(())
        })
    }

    /// Sets which triangle is meant, or whether its diagonal is one: `cusparseSpMatAttribute_t`.
    fn cusparseSpMatSetAttribute(descriptor: *mut SpMat, attribute: u32, data: *const u32, bytes: usize) {
        if data.is_null() || bytes != size_of::<u32>() || data.read() > 1 {
            return Err(Status::InvalidValue);
        }
        change(descriptor, |sparse| {
            match attribute {
                0 => sparse.fill = data.read(),
                1 => sparse.diagonal = data.read(),
                _ => return Err(Status::InvalidValue),
            }
            Ok(())
        })
    }

    /// Which triangle is meant, or whether its diagonal is one.
    fn cusparseSpMatGetAttribute(descriptor: *const SpMat, attribute: u32, data: *mut u32, bytes: usize) {
        let sparse = object(descriptor)?;
        match (attribute, bytes) {
            (0, 4) => write_value(data, sparse.fill),
            (1, 4) => write_value(data, sparse.diagonal),
            _ => Err(Status::InvalidValue),
        }
    }

    /// All of a dense vector.
    fn cusparseDnVecGet(descriptor: *const Dn, len: *mut i64, values: *mut u64, value_type: *mut u32) {
        let dense = object(descriptor)?;
        write_values! { len = dense.rows, values = dense.values, value_type = dense.value_type }
        Ok(())
    }

    /// Where values are.
    fn cusparseDnVecGetValues(descriptor: *const Dn, values: *mut u64) {
        write_value(values, object(descriptor)?.values)
    }

    /// Sets where values are.
    fn cusparseDnVecSetValues(descriptor: *mut Dn, values: u64) {
        change(descriptor, |dense| { dense.values = values; Ok(()) })
    }

    /// All of a dense matrix.
    fn cusparseDnMatGet(
        descriptor: *const Dn, rows: *mut i64, columns: *mut i64, leading: *mut i64, values: *mut u64,
        value_type: *mut u32, order: *mut u32
    ) {
        let dense = object(descriptor)?;
        write_values! {
            rows = dense.rows, columns = dense.columns, leading = dense.leading, values = dense.values,
            value_type = dense.value_type, order = if dense.is_by_rows { 2 } else { 1 },
        }
        Ok(())
    }

    /// Where values are.
    fn cusparseDnMatGetValues(descriptor: *const Dn, values: *mut u64) {
        write_value(values, object(descriptor)?.values)
    }

    /// Sets where values are.
    fn cusparseDnMatSetValues(descriptor: *mut Dn, values: u64) {
        change(descriptor, |dense| { dense.values = values; Ok(()) })
    }

    /// Sets how many matrices there are. There is one.
    fn cusparseDnMatSetStridedBatch(descriptor: *const Dn, count: i32, _stride: i64) {
        object(descriptor)?;
        if count == 1 { Ok(()) } else { Err(Status::NotSupported) }
    }

    /// How many matrices there are: one.
    fn cusparseDnMatGetStridedBatch(descriptor: *const Dn, count: *mut i32, stride: *mut i64) {
        object(descriptor)?;
        write_value(count, 1)?;
        write_value(stride, 0)
    }

    /// All of a sparse vector.
    fn cusparseSpVecGet(
        descriptor: *const SpVec, len: *mut i64, entries: *mut i64, indices: *mut u64, values: *mut u64,
        kind: *mut u32, base: *mut u32, value_type: *mut u32
    ) {
        let vector = object(descriptor)?;
        write_values! {
            len = vector.len, entries = vector.entries, indices = vector.indices, values = vector.values,
            kind = vector.index_type, base = vector.base, value_type = vector.value_type,
        }
        Ok(())
    }

    /// With what indices begin.
    fn cusparseSpVecGetIndexBase(descriptor: *const SpVec, base: *mut u32) {
        write_value(base, object(descriptor)?.base)
    }

    /// Where values are.
    fn cusparseSpVecGetValues(descriptor: *const SpVec, values: *mut u64) {
        write_value(values, object(descriptor)?.values)
    }

    /// Sets where values are.
    fn cusparseSpVecSetValues(descriptor: *mut SpVec, values: u64) {
        change(descriptor, |vector| { vector.values = values; Ok(()) })
    }
}

/// The matrix that takes the indexed elements of a vector.
///
/// # Safety
/// The descriptor is null or one that was made here.
pub unsafe fn selection(descriptor: *const SpVec) -> Result<(SparseMatrix, SpVec), Status> {
    // SAFETY: the caller's descriptor is null or valid.
    let vector = unsafe { object(descriptor)? };
    let entries = size(vector.entries)?;
    let matrix = SparseMatrix {
        rows: entries,
        columns: size(vector.len)?,
        entries,
        column_indices: vector.indices,
        row_type: ScalarType::I32 as u32,
        column_type: index_type(vector.index_type)?,
        value_type: value_type(vector.value_type)? as u32,
        format: SparseFormat::Pairs as u16,
        base: index_base(vector.base)?,
        ..SparseMatrix::default()
    };
    Ok((matrix, vector))
}
