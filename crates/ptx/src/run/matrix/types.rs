//! Types and shapes of matrix multiplications. Compiled code passes the numbers of the enumerations.

/// The rows and columns of the three matrices: `a` is m x k, `b` k x n, the accumulators m x n.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Shape {
    pub(crate) m: u32,
    pub(crate) n: u32,
    pub(crate) k: u32,
}

impl Shape {
    /// The shape of a modifier like `m16n8k16`.
    pub(crate) fn named(name: &str) -> Option<Self> {
        let (m, rest) = name.strip_prefix('m')?.split_once('n')?;
        let (n, k) = rest.split_once('k')?;
        Some(Self { m: m.parse().ok()?, n: n.parse().ok()?, k: k.parse().ok()? })
    }
}

/// Which of the matrices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Matrix {
    A,
    B,
    Accumulator,
}

/// The type of an element of `a` or `b`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Element {
    F16,
    Bf16,
    Tf32,
    F64,
    E4m3,
    E5m2,
    S8,
    U8,
    S4,
    U4,
    B1,
}

impl Element {
    /// The type named by a modifier without its dot.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "f16" => Self::F16,
            "bf16" => Self::Bf16,
            "tf32" => Self::Tf32,
            "f64" => Self::F64,
            "e4m3" => Self::E4m3,
            "e5m2" => Self::E5m2,
            "s8" => Self::S8,
            "u8" => Self::U8,
            "s4" => Self::S4,
            "u4" => Self::U4,
            "b1" => Self::B1,
            _ => return None,
        })
    }

    pub(crate) fn bits(self) -> u32 {
        match self {
            Self::B1 => 1,
            Self::S4 | Self::U4 => 4,
            Self::E4m3 | Self::E5m2 | Self::S8 | Self::U8 => 8,
            Self::F16 | Self::Bf16 => 16,
            Self::Tf32 => 32,
            Self::F64 => 64,
        }
    }

    /// Whether two types may be multiplied with each other.
    fn mixes_with(self, other: Self) -> bool {
        self == other
            || matches!(
                (self, other),
                (Self::S8 | Self::U8, Self::S8 | Self::U8)
                    | (Self::S4 | Self::U4, Self::S4 | Self::U4)
                    | (Self::E4m3 | Self::E5m2, Self::E4m3 | Self::E5m2)
            )
    }

    fn accumulates_in(self, accumulator: Accumulator) -> bool {
        match self {
            Self::F16 | Self::E4m3 | Self::E5m2 => {
                matches!(accumulator, Accumulator::F16 | Accumulator::F32)
            }
            Self::Bf16 | Self::Tf32 => accumulator == Accumulator::F32,
            Self::F64 => accumulator == Accumulator::F64,
            Self::S8 | Self::U8 | Self::S4 | Self::U4 | Self::B1 => accumulator == Accumulator::S32,
        }
    }

    /// The shapes that there are for this type, as (m, n, k).
    fn shapes(self, layout: FragmentLayout) -> &'static [(u32, u32, u32)] {
        match (layout, self) {
            (FragmentLayout::Mma, Self::F16 | Self::Bf16) => &[(16, 8, 8), (16, 8, 16)],
            (FragmentLayout::Mma, Self::Tf32) => &[(16, 8, 4), (16, 8, 8)],
            (FragmentLayout::Mma, Self::F64) => &[(8, 8, 4), (16, 8, 4), (16, 8, 8), (16, 8, 16)],
            (FragmentLayout::Mma, Self::E4m3 | Self::E5m2) => &[(16, 8, 16), (16, 8, 32)],
            (FragmentLayout::Mma, Self::S8 | Self::U8) => &[(8, 8, 16), (16, 8, 16), (16, 8, 32)],
            (FragmentLayout::Mma, Self::S4 | Self::U4) => &[(8, 8, 32), (16, 8, 32), (16, 8, 64)],
            (FragmentLayout::Mma, Self::B1) => &[(8, 8, 128), (16, 8, 128), (16, 8, 256)],
            (FragmentLayout::Wmma, Self::F16 | Self::Bf16 | Self::S8 | Self::U8) => {
                &[(16, 16, 16), (32, 8, 16), (8, 32, 16)]
            }
            (FragmentLayout::Wmma, Self::Tf32) => &[(16, 16, 8)],
            (FragmentLayout::Wmma, Self::F64) => &[(8, 8, 4)],
            (FragmentLayout::Wmma, _) => &[],
        }
    }
}

/// The type of an element that is added to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Accumulator {
    F16,
    F32,
    F64,
    S32,
}

impl Accumulator {
    /// The type named by a modifier without its dot.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "f16" => Self::F16,
            "f32" => Self::F32,
            "f64" => Self::F64,
            "s32" => Self::S32,
            _ => return None,
        })
    }

    pub(crate) fn bits(self) -> u32 {
        match self {
            Self::F16 => 16,
            Self::F32 | Self::S32 => 32,
            Self::F64 => 64,
        }
    }
}

/// Who says which element lies in which register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum FragmentLayout {
    /// PTX does: fragments of `mma`.
    Mma,
    /// PTX leaves it open, and so it is this crate's: fragments of `wmma`.
    Wmma,
}

/// How two elements become one that is added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Combination {
    Product,
    /// Of single bits.
    Xor,
    /// Of single bits.
    And,
}

/// A multiplication `d = a * b + c` of a warp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Multiplication {
    pub(crate) layout: FragmentLayout,
    pub(crate) shape: Shape,
    pub(crate) a: Element,
    pub(crate) b: Element,
    pub(crate) c: Accumulator,
    pub(crate) d: Accumulator,
    pub(crate) combination: Combination,
    /// 1 if integers stop at the ends of their range, 0 if they wrap around.
    pub(crate) saturates: u32,
}

impl Multiplication {
    /// Whether PTX has it.
    pub(crate) fn exists(&self) -> bool {
        let Shape { m, n, k } = self.shape;
        self.a.mixes_with(self.b)
            && self.a.accumulates_in(self.c)
            && self.a.accumulates_in(self.d)
            && self.a.shapes(self.layout).contains(&(m, n, k))
            && (self.combination == Combination::Product) == (self.a != Element::B1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_read_and_what_ptx_does_not_have_does_not_exist() {
        let shape = Shape::named("m16n8k256").unwrap();
        assert_eq!((shape.m, shape.n, shape.k), (16, 8, 256));
        for wrong in ["16n8k256", "m16n8", "m16k8n8", "m-1n8k8", "m99999999999n8k8", ""] {
            assert_eq!(Shape::named(wrong), None, "{wrong}");
        }
        let halves = Multiplication {
            layout: FragmentLayout::Mma,
            shape: Shape { m: 16, n: 8, k: 16 },
            a: Element::F16,
            b: Element::F16,
            c: Accumulator::F32,
            d: Accumulator::F32,
            combination: Combination::Product,
            saturates: 0,
        };
        assert!(halves.exists());
        assert!(!Multiplication { b: Element::Bf16, ..halves }.exists());
        assert!(!Multiplication { layout: FragmentLayout::Wmma, ..halves }.exists());
        assert!(!Multiplication { c: Accumulator::S32, ..halves }.exists());
        assert!(!Multiplication { combination: Combination::Xor, ..halves }.exists());
        assert!(!Multiplication { shape: Shape { m: 16, n: 8, k: 32 }, ..halves }.exists());
    }
}
