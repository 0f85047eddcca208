//! Products with symmetric and Hermitian matrices, of which one triangle is stored: `symm`, `symv`, `syrk`, `syr2k`,
//! `syrkx`, `syr`, `syr2`, and the same of Hermitian ones.

use causeway_gemm::{Accumulator, Matrix, Request, Scalar, ScalarType, Structure};

use crate::exports::typed_functions;
use crate::handle::Handle;
use crate::launch::launch;
use crate::operation::{Argument, ONE, column, plain, transposed};
use crate::solve::{adjoint, is_upper, real, size, stored};
use crate::status::{Done, Status};
use crate::types::Operation;

use Form::{Hermitian, Symmetric};
use ScalarType::{C32, C64, F32, F64};

/// How one triangle of a matrix follows from the other one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Symmetric,
    Hermitian,
}

/// A form, and the type of the elements.
type Kind = (Form, ScalarType);

/// A factor where the caller has it, and its type.
type Factor = (*const u8, ScalarType);

fn accumulator(elements: ScalarType) -> Accumulator {
    if matches!(elements, F64 | C64) { Accumulator::Double } else { Accumulator::Single }
}

/// The type of a factor that must be real where the result is to stay Hermitian.
fn real_if_hermitian((form, elements): Kind) -> ScalarType {
    if form == Hermitian { real(elements) } else { elements }
}

/// A matrix of which one triangle is stored.
fn triangle((form, _): Kind, fill: u32, order: i64, a: Argument) -> Result<Matrix, Status> {
    let structure = Structure::of_triangle(is_upper(fill)?, form == Hermitian) as u8;
    Ok(Matrix { structure, ..stored(a, order, order)? })
}

/// `C = alpha * A * B + beta * C`, or `B * A` if it is on the right.
unsafe fn multiply(
    handle: *const Handle,
    kind: Kind,
    (side, fill): (u32, u32),
    [m, n]: [i64; 2],
    a: Argument,
    [b, c]: [Matrix; 2],
    [alpha, beta]: [*const u8; 2],
) -> Done {
    if side > 1 {
        return Err(Status::InvalidValue);
    }
    let (rows, columns) = (size(m)?, size(n)?);
    let order = if side == 1 { n } else { m };
    let a = triangle(kind, fill, order, a)?;
    if rows == 0 || columns == 0 {
        return Ok(());
    }
    let [left, right] = if side == 1 { [b, a] } else { [a, b] };
    // SAFETY: the caller's handle is null or valid, and the factors are values of their type in the memory of
    // the pointer mode.
    unsafe {
        let settings = Handle::settings(handle)?;
        let [alpha, beta] = [settings.scalar(alpha, kind.1)?, settings.scalar(beta, kind.1)?];
        let request = plain(left, right, c, accumulator(kind.1), alpha, beta);
        launch(&Request { rows, columns, depth: size(order)?, ..request }, settings.stream)
    }
}

/// `C = alpha * A * B^T + beta * C`, of which one triangle is computed; with the conjugate of B if C is Hermitian.
struct Update {
    fill: u32,
    /// Rows of C, and columns of A.
    sizes: [i64; 2],
    /// A and B, after their operations.
    factors: [Matrix; 2],
    alpha: Factor,
    /// Without it, what there is stays.
    beta: Option<Factor>,
    /// Whether `B * A^T` is added, too, with the conjugate of alpha if C is Hermitian.
    is_twofold: bool,
    result: Argument,
}

impl Update {
    unsafe fn run(self, handle: *const Handle, kind: Kind) -> Done {
        let [order, depth] = self.sizes;
        let (rows, depth) = (size(order)?, size(depth)?);
        let c = triangle(kind, self.fill, order, self.result)?;
        if rows == 0 {
            return Ok(());
        }
        let is_hermitian = kind.0 == Hermitian;
        let turned = |matrix| if is_hermitian { adjoint(matrix) } else { transposed(matrix) };
        let [a, b] = self.factors;
        // SAFETY: the caller's handle is null or valid, and the factors are values of their type in the
        // memory of the pointer mode.
        let (settings, alpha, beta) = unsafe {
            let settings = Handle::settings(handle)?;
            let beta = self.beta.map_or(Ok(ONE), |(factor, kind)| settings.scalar(factor, kind))?;
            (settings, settings.scalar(self.alpha.0, self.alpha.1)?, beta)
        };
        let add = |a, b, alpha: Scalar, beta| {
            let request = plain(a, turned(b), c, accumulator(kind.1), alpha, beta);
            launch(&Request { rows, columns: rows, depth, ..request }, settings.stream)
        };
        add(a, b, alpha, beta)?;
        if !self.is_twofold {
            return Ok(());
        }
        add(b, a, if is_hermitian { alpha.conjugate() } else { alpha }, ONE)
    }
}

/// The factors of an update by matrices.
fn factors(
    (form, _): Kind,
    operation: u32,
    [n, k]: [i64; 2],
    matrices: [Argument; 2],
) -> Result<[Matrix; 2], Status> {
    let operation = match (Operation::from_number(operation).ok_or(Status::InvalidValue)?, form) {
        (Operation::Transpose, Hermitian) => return Err(Status::InvalidValue),
        (Operation::ConjugateTranspose, Symmetric) if matrices[0].scalar_type.is_complex() => {
            return Err(Status::InvalidValue);
        }
        (operation, _) => operation,
    };
    let [a, b] = matrices;
    if n > 0 && k > 0 && (a.address == 0 || b.address == 0) {
        return Err(Status::InvalidValue);
    }
    Ok([a.matrix(operation, n, k)?, b.matrix(operation, n, k)?])
}

/// The factors of an update by vectors.
fn columns(elements: ScalarType, n: i64, vectors: [(*const u8, i64); 2]) -> Result<[Matrix; 2], Status> {
    if n <= 0 {
        return Ok([Matrix::default(); 2]);
    }
    let [x, y] = vectors.map(|(address, increment)| column(address, elements, n, increment));
    Ok([x?, y?])
}

typed_functions! {
    "The product of a symmetric or Hermitian matrix and another one."
    (
        handle: *const Handle, side: u32, fill: u32, m: Int, n: Int, alpha: *const u8, a: *const u8, lda: Int,
        b: *const u8, ldb: Int, beta: *const u8, c: *mut u8, ldc: Int,
    )
    |kind| {
        let matrix = |address, leading: Int| Argument::new(address, kind.1, leading.into());
        let (b, c) = (matrix(b, ldb), matrix(c.cast_const(), ldc));
        let others = [stored(b, m.into(), n.into())?, stored(c, m.into(), n.into())?];
        multiply(handle, kind, (side, fill), [m.into(), n.into()], matrix(a, lda), others, [alpha, beta])
    }
    cublasSsymm_v2 cublasSsymm_v2_64 (Symmetric, F32);
    cublasDsymm_v2 cublasDsymm_v2_64 (Symmetric, F64);
    cublasCsymm_v2 cublasCsymm_v2_64 (Symmetric, C32);
    cublasZsymm_v2 cublasZsymm_v2_64 (Symmetric, C64);
    cublasChemm_v2 cublasChemm_v2_64 (Hermitian, C32);
    cublasZhemm_v2 cublasZhemm_v2_64 (Hermitian, C64);
}

typed_functions! {
    "The product of a symmetric or Hermitian matrix and a vector."
    (
        handle: *const Handle, fill: u32, n: Int, alpha: *const u8, a: *const u8, lda: Int, x: *const u8,
        incx: Int, beta: *const u8, y: *mut u8, incy: Int,
    )
    |kind| {
        let vectors = columns(kind.1, n.into(), [(x, incx.into()), (y.cast_const(), incy.into())])?;
        let a = Argument::new(a, kind.1, lda.into());
        multiply(handle, kind, (0, fill), [n.into(), 1], a, vectors, [alpha, beta])
    }
    cublasSsymv_v2 cublasSsymv_v2_64 (Symmetric, F32);
    cublasDsymv_v2 cublasDsymv_v2_64 (Symmetric, F64);
    cublasCsymv_v2 cublasCsymv_v2_64 (Symmetric, C32);
    cublasZsymv_v2 cublasZsymv_v2_64 (Symmetric, C64);
    cublasChemv_v2 cublasChemv_v2_64 (Hermitian, C32);
    cublasZhemv_v2 cublasZhemv_v2_64 (Hermitian, C64);
}

typed_functions! {
    "The product of a matrix and its transpose, to one triangle."
    (
        handle: *const Handle, fill: u32, operation: u32, n: Int, k: Int, alpha: *const u8, a: *const u8,
        lda: Int, beta: *const u8, c: *mut u8, ldc: Int,
    )
    |kind| {
        let (a, sizes) = (Argument::new(a, kind.1, lda.into()), [n.into(), k.into()]);
        Update {
            fill,
            sizes,
            factors: factors(kind, operation, sizes, [a; 2])?,
            alpha: (alpha, real_if_hermitian(kind)),
            beta: Some((beta, real_if_hermitian(kind))),
            is_twofold: false,
            result: Argument::new(c.cast_const(), kind.1, ldc.into()),
        }
        .run(handle, kind)
    }
    cublasSsyrk_v2 cublasSsyrk_v2_64 (Symmetric, F32);
    cublasDsyrk_v2 cublasDsyrk_v2_64 (Symmetric, F64);
    cublasCsyrk_v2 cublasCsyrk_v2_64 (Symmetric, C32);
    cublasZsyrk_v2 cublasZsyrk_v2_64 (Symmetric, C64);
    cublasCherk_v2 cublasCherk_v2_64 (Hermitian, C32);
    cublasZherk_v2 cublasZherk_v2_64 (Hermitian, C64);
}

typed_functions! {
    "The product of a matrix and the transpose of another one, to one triangle; or both such products."
    (
        handle: *const Handle, fill: u32, operation: u32, n: Int, k: Int, alpha: *const u8, a: *const u8,
        lda: Int, b: *const u8, ldb: Int, beta: *const u8, c: *mut u8, ldc: Int,
    )
    |form| {
        let (kind, is_twofold): (Kind, bool) = form;
        let sizes = [n.into(), k.into()];
        let matrices =
            [(a, lda), (b, ldb)].map(|(matrix, leading)| Argument::new(matrix, kind.1, leading.into()));
        Update {
            fill,
            sizes,
            factors: factors(kind, operation, sizes, matrices)?,
            alpha: (alpha, kind.1),
            beta: Some((beta, real_if_hermitian(kind))),
            is_twofold,
            result: Argument::new(c.cast_const(), kind.1, ldc.into()),
        }
        .run(handle, kind)
    }
    cublasSsyrkx cublasSsyrkx_64 ((Symmetric, F32), false);
    cublasDsyrkx cublasDsyrkx_64 ((Symmetric, F64), false);
    cublasCsyrkx cublasCsyrkx_64 ((Symmetric, C32), false);
    cublasZsyrkx cublasZsyrkx_64 ((Symmetric, C64), false);
    cublasCherkx cublasCherkx_64 ((Hermitian, C32), false);
    cublasZherkx cublasZherkx_64 ((Hermitian, C64), false);
    cublasSsyr2k_v2 cublasSsyr2k_v2_64 ((Symmetric, F32), true);
    cublasDsyr2k_v2 cublasDsyr2k_v2_64 ((Symmetric, F64), true);
    cublasCsyr2k_v2 cublasCsyr2k_v2_64 ((Symmetric, C32), true);
    cublasZsyr2k_v2 cublasZsyr2k_v2_64 ((Symmetric, C64), true);
    cublasCher2k_v2 cublasCher2k_v2_64 ((Hermitian, C32), true);
    cublasZher2k_v2 cublasZher2k_v2_64 ((Hermitian, C64), true);
}

typed_functions! {
    "Adds the product of a vector and its transpose to one triangle."
    (
        handle: *const Handle, fill: u32, n: Int, alpha: *const u8, x: *const u8, incx: Int, a: *mut u8,
        lda: Int,
    )
    |kind| {
        Update {
            fill,
            sizes: [n.into(), 1],
            factors: columns(kind.1, n.into(), [(x, incx.into()); 2])?,
            alpha: (alpha, real_if_hermitian(kind)),
            beta: None,
            is_twofold: false,
            result: Argument::new(a.cast_const(), kind.1, lda.into()),
        }
        .run(handle, kind)
    }
    cublasSsyr_v2 cublasSsyr_v2_64 (Symmetric, F32);
    cublasDsyr_v2 cublasDsyr_v2_64 (Symmetric, F64);
    cublasCsyr_v2 cublasCsyr_v2_64 (Symmetric, C32);
    cublasZsyr_v2 cublasZsyr_v2_64 (Symmetric, C64);
    cublasCher_v2 cublasCher_v2_64 (Hermitian, C32);
    cublasZher_v2 cublasZher_v2_64 (Hermitian, C64);
}

typed_functions! {
    "Adds the products of two vectors and each other's transposes to one triangle."
    (
        handle: *const Handle, fill: u32, n: Int, alpha: *const u8, x: *const u8, incx: Int, y: *const u8,
        incy: Int, a: *mut u8, lda: Int,
    )
    |kind| {
        Update {
            fill,
            sizes: [n.into(), 1],
            factors: columns(kind.1, n.into(), [(x, incx.into()), (y, incy.into())])?,
            alpha: (alpha, kind.1),
            beta: None,
            is_twofold: true,
            result: Argument::new(a.cast_const(), kind.1, lda.into()),
        }
        .run(handle, kind)
    }
    cublasSsyr2_v2 cublasSsyr2_v2_64 (Symmetric, F32);
    cublasDsyr2_v2 cublasDsyr2_v2_64 (Symmetric, F64);
    cublasCsyr2_v2 cublasCsyr2_v2_64 (Symmetric, C32);
    cublasZsyr2_v2 cublasZsyr2_v2_64 (Symmetric, C64);
    cublasCher2_v2 cublasCher2_v2_64 (Hermitian, C32);
    cublasZher2_v2 cublasZher2_v2_64 (Hermitian, C64);
}
