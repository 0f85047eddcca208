//! Types in which products are summed: single and double precision, real and complex.

use causeway_gemm::Activation;

/// A type in which products are summed.
pub(in crate::run) trait Sum: Copy + Default + PartialEq {
    fn of_single(value: f32) -> Self;
    fn of_parts(real: f64, imaginary: f64) -> Self;
    /// The real part, to be rounded to less than single precision.
    fn single(self) -> f32;
    fn parts(self) -> (f64, f64);
    fn plus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;

    /// Adds the product of two matrices of `[rows, depth, columns]`. Each is stored by columns, which are so
    /// many elements apart.
    ///
    /// # Safety
    /// The matrices lie where the pointers say, and nothing else uses the last meanwhile.
    unsafe fn multiply_add(
        sizes: [usize; 3],
        left: (*const Self, isize),
        right: (*const Self, isize),
        sums: (*mut Self, isize),
    );

    fn is_zero(self) -> bool {
        self == Self::default()
    }

    fn real(self) -> Self {
        Self::of_parts(self.parts().0, 0.0)
    }

    fn conjugate(self) -> Self {
        let (real, imaginary) = self.parts();
        Self::of_parts(real, -imaginary)
    }

    /// The function of its real part.
    fn activated(self, activation: Activation) -> Self {
        let value = self.parts().0;
        let result = match activation {
            Activation::None => return self,
            // Keeps what is not a number.
            Activation::Relu => {
                if value < 0.0 {
                    0.0
                } else {
                    value
                }
            }
            Activation::Gelu => gelu(value),
            Activation::SquareRoot => value.sqrt(),
        };
        Self::of_parts(result, 0.0)
    }
}

/// The approximation of the Gaussian error linear unit by `tanh`.
fn gelu(value: f64) -> f64 {
    let inner = (2.0 / std::f64::consts::PI).sqrt() * (value + 0.044715 * value * value * value);
    0.5 * value * (1.0 + inner.tanh())
}

macro_rules! real {
    ($ty:ty, $multiply:ident) => {
        impl Sum for $ty {
            fn of_single(value: f32) -> Self {
                value as Self
            }

            fn of_parts(real: f64, _: f64) -> Self {
                real as Self
            }

            fn single(self) -> f32 {
                self as f32
            }

            fn parts(self) -> (f64, f64) {
                (self as f64, 0.0)
            }

            fn plus(self, other: Self) -> Self {
                self + other
            }

            fn times(self, other: Self) -> Self {
                self * other
            }

            unsafe fn multiply_add(
                [rows, depth, columns]: [usize; 3],
                (left, left_stride): (*const Self, isize),
                (right, right_stride): (*const Self, isize),
                (sums, stride): (*mut Self, isize),
            ) {
                // SAFETY: the caller has `rows` by `depth`, `depth` by `columns` and `rows` by `columns`
                // elements at these strides, and nothing else uses the sums.
                unsafe {
                    matrixmultiply::$multiply(
                        rows,
                        depth,
                        columns,
                        1.0,
                        left,
                        1,
                        left_stride,
                        right,
                        1,
                        right_stride,
                        1.0,
                        sums,
                        1,
                        stride,
                    );
                }
            }
        }
    };
}

real!(f32, sgemm);
real!(f64, dgemm);

macro_rules! complex {
    ($part:ty, $multiply:ident) => {
        impl Sum for [$part; 2] {
            fn of_single(value: f32) -> Self {
                [value as $part, 0.0]
            }

            fn of_parts(real: f64, imaginary: f64) -> Self {
                [real as $part, imaginary as $part]
            }

            fn single(self) -> f32 {
                self[0] as f32
            }

            fn parts(self) -> (f64, f64) {
                (self[0] as f64, self[1] as f64)
            }

            fn plus(self, other: Self) -> Self {
                [self[0] + other[0], self[1] + other[1]]
            }

            fn times(self, other: Self) -> Self {
                [self[0] * other[0] - self[1] * other[1], self[0] * other[1] + self[1] * other[0]]
            }

            unsafe fn multiply_add(
                [rows, depth, columns]: [usize; 3],
                (left, left_stride): (*const Self, isize),
                (right, right_stride): (*const Self, isize),
                (sums, stride): (*mut Self, isize),
            ) {
                use matrixmultiply::CGemmOption::Standard;
                let one = [1.0, 0.0];
                // SAFETY: the caller has `rows` by `depth`, `depth` by `columns` and `rows` by `columns`
                // elements at these strides, and nothing else uses the sums.
                unsafe {
                    matrixmultiply::$multiply(
                        Standard,
                        Standard,
                        rows,
                        depth,
                        columns,
                        one,
                        left,
                        1,
                        left_stride,
                        right,
                        1,
                        right_stride,
                        one,
                        sums,
                        1,
                        stride,
                    );
                }
            }
        }
    };
}

complex!(f32, cgemm);
complex!(f64, zgemm);
