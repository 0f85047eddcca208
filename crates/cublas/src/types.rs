//! Enumerations of the interface: types of elements and of computation, operations on matrices.

use causeway_gemm::{Accumulator, ScalarType};

/// The type of this number of `cudaDataType`, if it is one that is computed with.
pub fn scalar_type(number: u32) -> Option<ScalarType> {
    Some(match number {
        0 => ScalarType::F32,
        1 => ScalarType::F64,
        2 => ScalarType::F16,
        3 => ScalarType::I8,
        4 => ScalarType::C32,
        5 => ScalarType::C64,
        10 => ScalarType::I32,
        14 => ScalarType::Bf16,
        _ => return None,
    })
}

/// A `cublasComputeType_t`: in what is summed, and the type of alpha and beta. `is_complex` is
/// whether the elements are.
pub fn compute_type(number: u32, is_complex: bool) -> Option<(Accumulator, ScalarType)> {
    let (accumulator, real, complex) = match number {
        // CUBLAS_COMPUTE_16F: factors are half precision; sums are more exact than they have to be.
        64 | 65 if !is_complex => return Some((Accumulator::Single, ScalarType::F16)),
        // CUBLAS_COMPUTE_32F, and forms of it that may round more.
        68 | 69 | 74 | 75 | 77 | 78 => (Accumulator::Single, ScalarType::F32, ScalarType::C32),
        // CUBLAS_COMPUTE_64F
        70 | 71 | 79 => (Accumulator::Double, ScalarType::F64, ScalarType::C64),
        // CUBLAS_COMPUTE_32I
        72 | 73 if !is_complex => return Some((Accumulator::Double, ScalarType::I32)),
        _ => return None,
    };
    Some((accumulator, if is_complex { complex } else { real }))
}

/// `cublasOperation_t`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// The matrix itself.
    None,
    /// Its transpose.
    Transpose,
    /// Its conjugate transpose.
    ConjugateTranspose,
}

impl Operation {
    /// The operation of this number.
    pub fn from_number(number: u32) -> Option<Self> {
        Some(match number {
            0 => Self::None,
            1 => Self::Transpose,
            2 => Self::ConjugateTranspose,
            _ => return None,
        })
    }
}
