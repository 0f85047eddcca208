//! Triangular systems, factorizations and decompositions as LAPACK's arguments have them, made requests.

use causeway_gemm::{
    CONJUGATE, FROM_IDENTITY, Matrix, ScalarType, SolveRequest, Source, Step, TRANSPOSE, UNIT_DIAGONAL,
    VALUES_ALONE,
};

use crate::handle::Handle;
use crate::launch::launch_solve;
use crate::operation::{Argument, ONE};
use crate::status::{Done, Status};
use crate::types::Operation;

/// `cublasFillMode_t`: whether the upper triangle is meant.
pub fn is_upper(number: u32) -> Result<bool, Status> {
    match number {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Status::InvalidValue),
    }
}

/// A number of rows, columns or matrices.
pub fn size(count: i64) -> Result<u64, Status> {
    u64::try_from(count).map_err(|_| Status::InvalidValue)
}

/// The matrix that is stored, or nothing at all where it is empty.
pub fn stored(argument: Argument, rows: i64, columns: i64) -> Result<Matrix, Status> {
    let matrix = argument.matrix(Operation::None, rows, columns)?;
    if rows > 0 && columns > 0 && matrix.address == 0 {
        return Err(Status::InvalidValue);
    }
    Ok(matrix)
}

/// The conjugate transpose of a matrix.
pub fn adjoint(matrix: Matrix) -> Matrix {
    let is_complex = ScalarType::from_number(matrix.scalar_type).is_some_and(ScalarType::is_complex);
    Matrix {
        row_stride: matrix.column_stride,
        column_stride: matrix.row_stride,
        is_conjugate: u8::from(is_complex && matrix.is_conjugate == 0),
        ..matrix
    }
}

/// A vector of so many elements for each matrix of a batch, one behind the other.
pub fn vector(address: *const u8, scalar_type: ScalarType, len: u64) -> Matrix {
    Matrix {
        address: address as u64,
        row_stride: 1,
        batch_stride: len as i64,
        scalar_type: scalar_type as u32,
        ..Matrix::default()
    }
}

/// The type of real numbers of this precision.
pub fn real(scalar_type: ScalarType) -> ScalarType {
    match scalar_type {
        ScalarType::C32 => ScalarType::F32,
        ScalarType::C64 => ScalarType::F64,
        other => other,
    }
}

/// Vectors at the addresses in an array, one for each matrix of a batch.
pub fn vectors(addresses: *const u8, scalar_type: ScalarType) -> Matrix {
    Matrix { source: Source::Array as u16, ..vector(addresses, scalar_type, 0) }
}

/// Where `info` goes.
pub fn info(address: *const u8) -> Matrix {
    vector(address, ScalarType::I32, 1)
}

/// Launches a request in the handle's stream.
///
/// # Safety
/// The handle is null or valid.
pub unsafe fn run(handle: *const Handle, request: &SolveRequest) -> Done {
    // SAFETY: the caller's handle is null or valid.
    let settings = unsafe { Handle::settings(handle)? };
    launch_solve(request, settings.stream)
}

/// Arguments of a triangular system or product after the handle: `cublas<t>trsm`, `trmm`.
#[derive(Debug, Clone, Copy)]
pub struct Triangular {
    /// `cublasSideMode_t`, `cublasFillMode_t`, `cublasOperation_t`, `cublasDiagType_t`.
    pub modes: [u32; 4],
    /// Rows and columns of B.
    pub sizes: [i64; 2],
    /// Factor of B; without one it is 1.
    pub alpha: Option<*const u8>,
    /// The triangle.
    pub a: Argument,
    /// The right sides, which become the solutions or products.
    pub b: Matrix,
    /// Systems.
    pub batch: i64,
    /// The step with a lower triangle, and that with an upper one.
    pub steps: [Step; 2],
}

impl Triangular {
    /// Launches it.
    ///
    /// # Safety
    /// The handle is null or valid, and the factor is in the memory of the pointer mode.
    pub unsafe fn run(self, handle: *const Handle) -> Done {
        let [side, fill, operation, diagonal] = self.modes;
        let operation = Operation::from_number(operation).ok_or(Status::InvalidValue)?;
        if side > 1 || diagonal > 1 {
            return Err(Status::InvalidValue);
        }
        let [rows, columns] = self.sizes;
        let is_right = side == 1;
        let (order, others) = if is_right { (columns, rows) } else { (rows, columns) };
        let batch = size(self.batch)?;
        if rows < 0 || columns < 0 {
            return Err(Status::InvalidValue);
        }
        let (a, b) = (stored(self.a, order, order)?, self.b);
        if rows == 0 || columns == 0 || batch == 0 {
            return Ok(());
        }
        let upper = is_upper(fill)?;
        // X * op(A) = B is the transpose of transpose(op(A)) * transpose(X) = transpose(B).
        let is_transposed = (operation != Operation::None) != is_right;
        let (a, b) = (if is_transposed { transpose(a) } else { a }, if is_right { transpose(b) } else { b });
        let conjugates = operation == Operation::ConjugateTranspose && self.a.scalar_type.is_complex();
        // SAFETY: the caller's handle is null or valid.
        let settings = unsafe { Handle::settings(handle)? };
        let alpha = match self.alpha {
            // SAFETY: the caller's factor is a value of this type in the memory of the pointer mode.
            Some(alpha) => unsafe { settings.scalar(alpha, self.a.scalar_type)? },
            None => ONE,
        };
        let request = SolveRequest {
            rows: order.unsigned_abs(),
            columns: order.unsigned_abs(),
            b_rows: order.unsigned_abs(),
            b_columns: others.unsigned_abs(),
            batch,
            a: Matrix { is_conjugate: conjugates.into(), ..a },
            b,
            alpha,
            step: self.steps[usize::from(upper != is_transposed)] as u32,
            flags: if diagonal == 1 { UNIT_DIAGONAL } else { 0 },
            ..SolveRequest::default()
        };
        launch_solve(&request, settings.stream)
    }
}

/// Steps of triangular systems.
pub const SOLVE: [Step; 2] = [Step::SolveLower, Step::SolveUpper];
/// Steps of triangular products.
pub const MULTIPLY: [Step; 2] = [Step::MultiplyLower, Step::MultiplyUpper];

fn transpose(matrix: Matrix) -> Matrix {
    Matrix { row_stride: matrix.column_stride, column_stride: matrix.row_stride, ..matrix }
}

/// The factor of Cholesky, for each matrix of a batch.
///
/// # Safety
/// The handle is null or valid.
pub unsafe fn cholesky(
    handle: *const Handle,
    fill: u32,
    order: i64,
    a: Argument,
    info_address: *const u8,
    batch: i64,
) -> Done {
    let (matrix, count) = (stored(a, order, order)?, size(order)?);
    // The upper triangle is the conjugate transpose of a lower one.
    let matrix = if is_upper(fill)? { adjoint(matrix) } else { matrix };
    let request = SolveRequest {
        rows: count,
        columns: count,
        batch: size(batch)?,
        a: matrix,
        info: info(info_address),
        step: Step::Cholesky as u32,
        ..SolveRequest::default()
    };
    // SAFETY: the caller's handle is null or valid.
    unsafe { run(handle, &request) }
}

/// Solves with the factor of Cholesky: two triangular systems.
///
/// # Safety
/// The handle is null or valid.
pub unsafe fn solve_cholesky(
    handle: *const Handle,
    fill: u32,
    [order, columns]: [i64; 2],
    [a, b]: [Argument; 2],
    batch: i64,
) -> Done {
    let (triangle, right) = (stored(a, order, order)?, stored(b, order, columns)?);
    let upper = is_upper(fill)?;
    let steps = if upper {
        [(adjoint(triangle), Step::SolveLower), (triangle, Step::SolveUpper)]
    } else {
        [(triangle, Step::SolveLower), (adjoint(triangle), Step::SolveUpper)]
    };
    for (matrix, step) in steps {
        let request = SolveRequest {
            rows: size(order)?,
            columns: size(order)?,
            b_rows: size(order)?,
            b_columns: size(columns)?,
            batch: size(batch)?,
            a: matrix,
            b: right,
            alpha: ONE,
            step: step as u32,
            ..SolveRequest::default()
        };
        // SAFETY: the caller's handle is null or valid.
        unsafe { run(handle, &request)? };
    }
    Ok(())
}

/// The factors of LU, for each matrix of a batch; without exchanges of rows where there is no room for pivots.
///
/// # Safety
/// The handle is null or valid.
pub unsafe fn lu(
    handle: *const Handle,
    [rows, columns]: [i64; 2],
    a: Argument,
    [pivots, info_address]: [*const u8; 2],
    batch: i64,
) -> Done {
    let request = SolveRequest {
        rows: size(rows)?,
        columns: size(columns)?,
        batch: size(batch)?,
        a: stored(a, rows, columns)?,
        pivots: vector(pivots, ScalarType::I32, size(rows.min(columns))?),
        info: info(info_address),
        step: Step::Lu as u32,
        ..SolveRequest::default()
    };
    // SAFETY: the caller's handle is null or valid.
    unsafe { run(handle, &request) }
}

/// Solves with the factors of LU, for each matrix of a batch; of the identity if `inverts`.
///
/// # Safety
/// The handle is null or valid.
pub unsafe fn solve_lu(
    handle: *const Handle,
    (operation, inverts): (u32, bool),
    [order, columns]: [i64; 2],
    [a, b]: [Argument; 2],
    [pivots, info_address]: [*const u8; 2],
    batch: i64,
) -> Done {
    let flags = match Operation::from_number(operation).ok_or(Status::InvalidValue)? {
        Operation::None => 0,
        Operation::Transpose => TRANSPOSE,
        Operation::ConjugateTranspose => TRANSPOSE | CONJUGATE,
    };
    let request = SolveRequest {
        rows: size(order)?,
        columns: size(order)?,
        b_rows: size(order)?,
        b_columns: size(columns)?,
        batch: size(batch)?,
        a: stored(a, order, order)?,
        b: stored(b, order, columns)?,
        pivots: vector(pivots, ScalarType::I32, size(order)?),
        info: info(info_address),
        step: Step::SolveLu as u32,
        flags: flags | if inverts { FROM_IDENTITY } else { 0 },
        ..SolveRequest::default()
    };
    // SAFETY: the caller's handle is null or valid.
    unsafe { run(handle, &request) }
}

/// The factors of QR, for each matrix of a batch.
///
/// # Safety
/// The handle is null or valid.
pub unsafe fn qr(
    handle: *const Handle,
    [rows, columns]: [i64; 2],
    a: Argument,
    factors: Matrix,
    info_address: *const u8,
    batch: i64,
) -> Done {
    let request = SolveRequest {
        rows: size(rows)?,
        columns: size(columns)?,
        batch: size(batch)?,
        a: stored(a, rows, columns)?,
        values: factors,
        info: info(info_address),
        step: Step::Qr as u32,
        ..SolveRequest::default()
    };
    // SAFETY: the caller's handle is null or valid.
    unsafe { run(handle, &request) }
}

/// The first columns of Q in place of the reflections.
///
/// # Safety
/// The handle is null or valid.
pub unsafe fn form_q(
    handle: *const Handle,
    [rows, columns, reflections]: [i64; 3],
    a: Argument,
    [factors, info_address]: [*const u8; 2],
) -> Done {
    if columns > rows || reflections > columns {
        return Err(Status::InvalidValue);
    }
    let request = SolveRequest {
        rows: size(rows)?,
        columns: size(reflections)?,
        b_rows: size(rows)?,
        b_columns: size(columns)?,
        batch: 1,
        a: stored(a, rows, reflections)?,
        b: stored(a, rows, columns)?,
        values: vector(factors, a.scalar_type, 0),
        info: info(info_address),
        step: Step::FormQ as u32,
        ..SolveRequest::default()
    };
    // SAFETY: the caller's handle is null or valid.
    unsafe { run(handle, &request) }
}

/// Multiplies C by Q or its conjugate transpose, from a side.
///
/// # Safety
/// The handle is null or valid.
pub unsafe fn multiply_q(
    handle: *const Handle,
    [side, operation]: [u32; 2],
    [rows, columns, reflections]: [i64; 3],
    [a, c]: [Argument; 2],
    [factors, info_address]: [*const u8; 2],
) -> Done {
    let operation = Operation::from_number(operation).ok_or(Status::InvalidValue)?;
    let is_transposed_alone = operation == Operation::Transpose && a.scalar_type.is_complex();
    if side > 1 || is_transposed_alone {
        return Err(Status::InvalidValue);
    }
    let is_right = side == 1;
    let (order, others) = if is_right { (columns, rows) } else { (rows, columns) };
    if reflections > order {
        return Err(Status::InvalidValue);
    }
    // C * op(Q) is the conjugate transpose of the other operation on the conjugate transpose of C.
    let c = stored(c, rows, columns)?;
    let request = SolveRequest {
        rows: size(order)?,
        columns: size(reflections)?,
        b_rows: size(order)?,
        b_columns: size(others)?,
        batch: 1,
        a: stored(a, order, reflections)?,
        b: if is_right { adjoint(c) } else { c },
        values: vector(factors, a.scalar_type, 0),
        info: info(info_address),
        step: Step::MultiplyQ as u32,
        flags: if (operation != Operation::None) != is_right { TRANSPOSE } else { 0 },
        ..SolveRequest::default()
    };
    // SAFETY: the caller's handle is null or valid.
    unsafe { run(handle, &request) }
}

/// Eigenvalues, and in place of the matrix the vectors if `job` is 1: `cusolverEigMode_t`.
///
/// # Safety
/// The handle is null or valid.
pub unsafe fn eigen(
    handle: *const Handle,
    [job, fill]: [u32; 2],
    order: i64,
    a: Argument,
    [values, info_address]: [*const u8; 2],
    batch: i64,
) -> Done {
    if job > 1 {
        return Err(Status::InvalidValue);
    }
    let (matrix, count) = (stored(a, order, order)?, size(order)?);
    let request = SolveRequest {
        rows: count,
        columns: count,
        batch: size(batch)?,
        a: if is_upper(fill)? { adjoint(matrix) } else { matrix },
        b: matrix,
        values: vector(values, real(a.scalar_type), count),
        info: info(info_address),
        step: Step::Eigen as u32,
        flags: if job == 0 { VALUES_ALONE } else { 0 },
        ..SolveRequest::default()
    };
    // SAFETY: the caller's handle is null or valid.
    unsafe { run(handle, &request) }
}

/// Eigenvalues of a general matrix, and if there is an argument for them the vectors. Where eigenvalues have a real
/// type, all their imaginary parts follow the real ones.
///
/// # Safety
/// The handle is null or valid.
pub unsafe fn eigen_general(
    handle: *const Handle,
    order: i64,
    a: Argument,
    vectors: Option<Argument>,
    (values, value_type): (*const u8, ScalarType),
    info_address: *const u8,
) -> Done {
    let count = size(order)?;
    let is_split = !value_type.is_complex();
    if is_split && a.scalar_type.is_complex() {
        return Err(Status::InvalidValue);
    }
    let values = vector(values, value_type, count);
    let imaginary = Matrix {
        address: values.address.wrapping_add(count.wrapping_mul(value_type.size())),
        row_stride: 0,
        column_stride: 1,
        ..values
    };
    let request = SolveRequest {
        rows: count,
        columns: count,
        c_rows: is_split.into(),
        batch: 1,
        a: stored(a, order, order)?,
        b: vectors.map_or(Ok(Matrix::default()), |vectors| stored(vectors, order, order))?,
        c: imaginary,
        values,
        info: info(info_address),
        step: Step::EigenGeneral as u32,
        flags: if vectors.is_none() { VALUES_ALONE } else { 0 },
        ..SolveRequest::default()
    };
    // SAFETY: the caller's handle is null or valid.
    unsafe { run(handle, &request) }
}

/// Where singular vectors go: columns of U, and rows of the conjugate transpose of V.
#[derive(Debug, Clone, Copy)]
pub struct Vectors {
    /// U.
    pub left: Argument,
    /// V, or its conjugate transpose.
    pub right: Argument,
    /// Whether it is V itself.
    pub is_right_adjoint: bool,
    /// Whether all vectors of a side are wanted, not as many as there are values.
    pub is_full: [bool; 2],
}

/// Singular values and vectors; of a batch, one matrix's values behind another's.
///
/// # Safety
/// The handle is null or valid.
pub unsafe fn singular(
    handle: *const Handle,
    sizes: [i64; 2],
    a: Argument,
    vectors: Option<Vectors>,
    [values, info_address]: [*const u8; 2],
    batch: i64,
) -> Done {
    let values = vector(values, real(a.scalar_type), size(sizes[0].min(sizes[1]))?);
    // SAFETY: the caller's handle is null or valid.
    unsafe { singular_strided(handle, sizes, a, vectors, values, info_address, batch) }
}

/// As [`singular`], with the values of a batch where `values` says.
///
/// # Safety
/// The handle is null or valid.
pub unsafe fn singular_strided(
    handle: *const Handle,
    [rows, columns]: [i64; 2],
    a: Argument,
    vectors: Option<Vectors>,
    values: Matrix,
    info_address: *const u8,
    batch: i64,
) -> Done {
    let few = rows.min(columns);
    let mut request = SolveRequest {
        rows: size(rows)?,
        columns: size(columns)?,
        batch: size(batch)?,
        a: stored(a, rows, columns)?,
        values,
        info: info(info_address),
        step: Step::Singular as u32,
        flags: VALUES_ALONE,
        ..SolveRequest::default()
    };
    if let Some(vectors) = vectors {
        let [left, right] =
            [(0, rows), (1, columns)].map(|(side, all)| if vectors.is_full[side] { all } else { few });
        request.flags = 0;
        (request.b_rows, request.b_columns, request.c_rows) = (size(rows)?, size(left)?, size(right)?);
        request.b = stored(vectors.left, rows, left)?;
        request.c = if vectors.is_right_adjoint {
            adjoint(stored(vectors.right, columns, right)?)
        } else {
            stored(vectors.right, right, columns)?
        };
    }
    // SAFETY: the caller's handle is null or valid.
    unsafe { run(handle, &request) }
}

/// Sets `info` to 0: B of no elements is solved with a triangle of none.
///
/// # Safety
/// The handle is null or valid.
pub unsafe fn set_info(handle: *const Handle, info_address: *const u8) -> Done {
    let none =
        Matrix { source: Source::Ones as u16, scalar_type: ScalarType::F32 as u32, ..Matrix::default() };
    let request = SolveRequest {
        batch: 1,
        a: none,
        b: none,
        info: info(info_address),
        alpha: ONE,
        step: Step::SolveLower as u32,
        ..SolveRequest::default()
    };
    // SAFETY: the caller's handle is null or valid.
    unsafe { run(handle, &request) }
}
