//! A matrix product, as the kernel's parameter.

/// Rows and columns of the part of the result that a block computes.
pub const TILE: u64 = 128;

/// Bytes of a [`Request`].
pub const REQUEST_BYTES: usize = size_of::<Request>();

/// Type of a matrix's elements. The numbers are passed to the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum ScalarType {
    /// Half precision.
    F16,
    /// bfloat16.
    Bf16,
    /// Single precision.
    F32,
    /// Double precision.
    F64,
    /// Complex, each part in single precision.
    C32,
    /// Complex, each part in double precision.
    C64,
    /// Signed integers of 8 bits.
    I8,
    /// Signed integers of 32 bits.
    I32,
    /// Signed integers of 64 bits, of which 53 are computed with.
    I64,
}

impl ScalarType {
    const ALL: [Self; 9] =
        [Self::F16, Self::Bf16, Self::F32, Self::F64, Self::C32, Self::C64, Self::I8, Self::I32, Self::I64];

    /// The type of this number.
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.get(number as usize).copied()
    }

    /// Bytes of an element.
    pub fn size(self) -> u64 {
        match self {
            Self::I8 => 1,
            Self::F16 | Self::Bf16 => 2,
            Self::F32 | Self::I32 => 4,
            Self::F64 | Self::C32 | Self::I64 => 8,
            Self::C64 => 16,
        }
    }

    /// Whether elements have two parts.
    pub fn is_complex(self) -> bool {
        matches!(self, Self::C32 | Self::C64)
    }
}

/// Type in which products are summed. The numbers are passed to the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Accumulator {
    /// Single precision; for complex elements, in each part.
    Single,
    /// Double precision; for complex elements, in each part. Integers are exact in it.
    Double,
}

impl Accumulator {
    /// The type of this number.
    pub fn from_number(number: u32) -> Option<Self> {
        [Self::Single, Self::Double].get(number as usize).copied()
    }
}

/// Function applied to each element of the result at the end. The numbers are passed to the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Activation {
    /// None.
    None,
    /// The larger of the value and 0.
    Relu,
    /// The Gaussian error linear unit by `tanh`.
    Gelu,
    /// The square root: makes the norm of a vector from its product with itself.
    SquareRoot,
}

impl Activation {
    /// The function of this number.
    pub fn from_number(number: u32) -> Option<Self> {
        [Self::None, Self::Relu, Self::Gelu, Self::SquareRoot].get(number as usize).copied()
    }
}

/// Where a matrix is. The numbers are passed to the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub enum Source {
    /// At the address.
    Memory,
    /// At the addresses in an array at the address, one for each product of a batch.
    Array,
    /// Nowhere: all elements are 1.
    Ones,
}

impl Source {
    /// The source of this number.
    pub fn from_number(number: u16) -> Option<Self> {
        [Self::Memory, Self::Array, Self::Ones].get(usize::from(number)).copied()
    }
}

/// Which elements of a matrix are in memory. The numbers are passed to the kernel. Of a result, the others are
/// not written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Structure {
    /// All.
    General,
    /// Diagonal and lower triangle; the upper one mirrors it.
    SymmetricLower,
    /// Diagonal and upper triangle.
    SymmetricUpper,
    /// As `SymmetricLower`, but the mirrored elements are conjugates, and the diagonal is real.
    HermitianLower,
    /// As `SymmetricUpper`, but the mirrored elements are conjugates, and the diagonal is real.
    HermitianUpper,
}

impl Structure {
    /// The structure of this number.
    pub fn from_number(number: u8) -> Option<Self> {
        [
            Self::General,
            Self::SymmetricLower,
            Self::SymmetricUpper,
            Self::HermitianLower,
            Self::HermitianUpper,
        ]
        .get(usize::from(number))
        .copied()
    }

    /// That of a symmetric or Hermitian matrix of which one triangle is stored.
    pub fn of_triangle(is_upper: bool, is_hermitian: bool) -> Self {
        match (is_hermitian, is_upper) {
            (false, false) => Self::SymmetricLower,
            (false, true) => Self::SymmetricUpper,
            (true, false) => Self::HermitianLower,
            (true, true) => Self::HermitianUpper,
        }
    }
}

/// A matrix, or one for each product of a batch. Strides are in elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Matrix {
    /// Address of the first element, or according to `source`.
    pub address: u64,
    /// Distance between rows.
    pub row_stride: i64,
    /// Distance between columns.
    pub column_stride: i64,
    /// Distance between the matrices of a batch; of no meaning in an array.
    pub batch_stride: i64,
    /// A [`ScalarType`].
    pub scalar_type: u32,
    /// A [`Source`].
    pub source: u16,
    /// 1 if the conjugates of the elements are meant.
    pub is_conjugate: u8,
    /// A [`Structure`].
    pub structure: u8,
}

/// A factor: a value, or where in device memory one is.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[repr(C)]
pub struct Scalar {
    /// Where it is; 0 if the value is given here.
    pub address: u64,
    /// The real part.
    pub real: f64,
    /// The imaginary part.
    pub imaginary: f64,
    /// The [`ScalarType`] of what lies at the address.
    pub scalar_type: u32,
    /// 1 if the conjugate of what lies there is meant.
    pub is_conjugate: u16,
    /// 1 if its negative is meant.
    pub is_negative: u16,
}

impl Scalar {
    /// A value.
    pub const fn value(real: f64) -> Self {
        Self { address: 0, real, imaginary: 0.0, scalar_type: 0, is_conjugate: 0, is_negative: 0 }
    }

    /// The conjugate of a factor.
    #[must_use]
    pub fn conjugate(self) -> Self {
        Self { imaginary: -self.imaginary, is_conjugate: 1 - self.is_conjugate, ..self }
    }

    /// The negative of a factor.
    #[must_use]
    pub fn negative(self) -> Self {
        Self { real: -self.real, imaginary: -self.imaginary, is_negative: 1 - self.is_negative, ..self }
    }
}

/// `D = activation(alpha * A * B + beta * C + bias)`, for each matrix of a batch.
///
/// It comes from a program, so that nothing in it is trusted.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(C)]
pub struct Request {
    /// Rows of the result.
    pub rows: u64,
    /// Columns of the result.
    pub columns: u64,
    /// Columns of A, which are as many as B has rows.
    pub depth: u64,
    /// Products of the batch.
    pub batch: u64,
    /// The left factor.
    pub a: Matrix,
    /// The right factor.
    pub b: Matrix,
    /// What is added; not read if `beta` is 0.
    pub c: Matrix,
    /// The result. It may be the same memory as C.
    pub d: Matrix,
    /// Factor of the product. If it is 0, A and B are not read.
    pub alpha: Scalar,
    /// Factor of C.
    pub beta: Scalar,
    /// Address of the vector that is added to each column, or 0.
    pub bias: u64,
    /// Distance between the vectors of a batch, in elements.
    pub bias_batch_stride: i64,
    /// The bias' [`ScalarType`].
    pub bias_type: u32,
    /// An [`Activation`].
    pub activation: u32,
    /// An [`Accumulator`].
    pub accumulator: u32,
    /// Always 0.
    pub reserved: u32,
}

impl Request {
    /// How many tiles the results of the batch have: as many blocks the kernel needs. None if they are more
    /// than can be counted.
    pub fn tiles(&self) -> Option<u64> {
        let of_one = self.rows.div_ceil(TILE).checked_mul(self.columns.div_ceil(TILE))?;
        of_one.checked_mul(self.batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_consists_of_whole_words_without_padding() {
        assert_eq!(size_of::<Matrix>(), 40);
        assert_eq!(size_of::<Scalar>(), 32);
        assert_eq!(REQUEST_BYTES, 4 * 8 + 4 * 40 + 2 * 32 + 2 * 8 + 4 * 4);
        assert_eq!(REQUEST_BYTES % 8, 0);
    }

    #[test]
    fn numbers_of_types_are_those_of_the_enumeration() {
        for (number, scalar_type) in ScalarType::ALL.into_iter().enumerate() {
            assert_eq!(scalar_type as usize, number);
        }
        assert_eq!(ScalarType::from_number(9), None);
        assert_eq!(Activation::from_number(3), Some(Activation::SquareRoot));
    }
}
