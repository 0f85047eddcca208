//! Elements of matrices in device memory, and their conversion.

use half::{bf16, f16};

use super::sums::Sum;

/// An element as it is stored. Every pattern of bits is one.
pub(super) trait Element: Copy {
    /// The type in which it is summed.
    fn widen<T: Sum>(self) -> T;
    /// The nearest element.
    fn narrow<T: Sum>(sum: T) -> Self;
}

/// Half precision.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct Half(u16);

/// bfloat16
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct Bfloat16(u16);

impl Element for Half {
    fn widen<T: Sum>(self) -> T {
        T::of_single(f16::from_bits(self.0).to_f32())
    }

    fn narrow<T: Sum>(sum: T) -> Self {
        Self(f16::from_f32(sum.single()).to_bits())
    }
}

impl Element for Bfloat16 {
    fn widen<T: Sum>(self) -> T {
        T::of_single(bf16::from_bits(self.0).to_f32())
    }

    fn narrow<T: Sum>(sum: T) -> Self {
        Self(bf16::from_f32(sum.single()).to_bits())
    }
}

impl Element for f32 {
    fn widen<T: Sum>(self) -> T {
        T::of_single(self)
    }

    fn narrow<T: Sum>(sum: T) -> Self {
        sum.single()
    }
}

impl Element for f64 {
    fn widen<T: Sum>(self) -> T {
        T::of_parts(self, 0.0)
    }

    fn narrow<T: Sum>(sum: T) -> Self {
        sum.parts().0
    }
}

impl Element for [f32; 2] {
    fn widen<T: Sum>(self) -> T {
        T::of_parts(self[0].into(), self[1].into())
    }

    fn narrow<T: Sum>(sum: T) -> Self {
        let (real, imaginary) = sum.parts();
        [real as f32, imaginary as f32]
    }
}

impl Element for [f64; 2] {
    fn widen<T: Sum>(self) -> T {
        T::of_parts(self[0], self[1])
    }

    fn narrow<T: Sum>(sum: T) -> Self {
        sum.parts().into()
    }
}

impl Element for i8 {
    fn widen<T: Sum>(self) -> T {
        T::of_single(self.into())
    }

    fn narrow<T: Sum>(sum: T) -> Self {
        sum.parts().0.round_ties_even() as Self
    }
}

impl Element for i64 {
    fn widen<T: Sum>(self) -> T {
        T::of_parts(self as f64, 0.0)
    }

    fn narrow<T: Sum>(sum: T) -> Self {
        sum.parts().0.round_ties_even() as Self
    }
}

impl Element for i32 {
    fn widen<T: Sum>(self) -> T {
        T::of_parts(self.into(), 0.0)
    }

    fn narrow<T: Sum>(sum: T) -> Self {
        sum.parts().0.round_ties_even() as Self
    }
}
