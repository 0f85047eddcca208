//! Element types and operations of reductions, as MPI has them. Pure.

/// A number, as memory has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Number {
    /// Whole numbers with a sign, of 1, 2, 4 or 8 bytes.
    Signed(u8),
    /// Whole numbers without one.
    Unsigned(u8),
    /// IEEE's half precision.
    Half,
    /// The upper half of a single.
    Bfloat16,
    /// IEEE's single precision.
    Single,
    /// IEEE's double precision.
    Double,
}

impl Number {
    /// Its bytes.
    pub fn bytes(self) -> u64 {
        match self {
            Self::Signed(bytes) | Self::Unsigned(bytes) => u64::from(bytes),
            Self::Half | Self::Bfloat16 => 2,
            Self::Single => 4,
            Self::Double => 8,
        }
    }

    fn is_whole(self) -> bool {
        matches!(self, Self::Signed(_) | Self::Unsigned(_))
    }
}

/// An element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Element {
    /// One number.
    One(Number),
    /// A real and an imaginary part.
    Complex(Number),
    /// A number and its place, an `int` at this offset, in so many bytes.
    Indexed {
        /// The number, which comes first.
        number: Number,
        /// Where the place is.
        index_at: u8,
        /// The distance from one element to the next.
        bytes: u8,
    },
}

impl Element {
    /// The element of a code of `causeway_comm.h`.
    pub fn of_code(code: i32) -> Option<Self> {
        use Number::{Bfloat16, Double, Half, Signed, Single, Unsigned};
        let placed = |number, index_at, bytes| Self::Indexed { number, index_at, bytes };
        Some(match code {
            1 => Self::One(Signed(1)),
            2 => Self::One(Signed(2)),
            3 => Self::One(Signed(4)),
            4 => Self::One(Signed(8)),
            5 => Self::One(Unsigned(1)),
            6 => Self::One(Unsigned(2)),
            7 => Self::One(Unsigned(4)),
            8 => Self::One(Unsigned(8)),
            9 => Self::One(Half),
            10 => Self::One(Bfloat16),
            11 => Self::One(Single),
            12 => Self::One(Double),
            13 => Self::Complex(Single),
            14 => Self::Complex(Double),
            15 => placed(Signed(2), 4, 8),
            16 => placed(Signed(4), 4, 8),
            17 => placed(Signed(8), 8, 16),
            18 => placed(Single, 4, 8),
            19 => placed(Double, 8, 16),
            _ => return None,
        })
    }

    /// The distance from one element to the next.
    pub fn bytes(self) -> u64 {
        match self {
            Self::One(number) => number.bytes(),
            Self::Complex(number) => 2 * number.bytes(),
            Self::Indexed { bytes, .. } => u64::from(bytes),
        }
    }

    /// What an address must be a multiple of for a kernel to load elements there.
    pub fn alignment(self) -> u64 {
        match self {
            Self::One(number) => number.bytes(),
            // Both parts are loaded at once.
            Self::Complex(number) => 2 * number.bytes(),
            Self::Indexed { number, .. } => number.bytes().max(4),
        }
    }

    /// Whether an operation is defined for it.
    pub fn supports(self, operation: Operation) -> bool {
        use Operation::{Max, MaxLoc, Min, MinLoc, Prod, Sum};
        match self {
            Self::One(number) if number.is_whole() => !matches!(operation, MinLoc | MaxLoc),
            Self::One(_) => matches!(operation, Max | Min | Sum | Prod),
            Self::Complex(_) => matches!(operation, Sum | Prod),
            Self::Indexed { .. } => matches!(operation, MinLoc | MaxLoc),
        }
    }
}

/// What is done with two elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// The larger one.
    Max,
    /// The smaller one.
    Min,
    /// The sum.
    Sum,
    /// The product.
    Prod,
    /// 1 where both are not 0, else 0.
    And,
    /// Bit by bit.
    BitAnd,
    /// 1 where one of them is not 0, else 0.
    Or,
    /// Bit by bit.
    BitOr,
    /// 1 where just one of them is not 0, else 0.
    Xor,
    /// Bit by bit.
    BitXor,
    /// The smaller number; of equal ones the one with the smaller place.
    MinLoc,
    /// The larger number; of equal ones the one with the smaller place.
    MaxLoc,
}

impl Operation {
    /// All of them, in the order of their codes in `causeway_comm.h`, which begin with 1.
    pub const ALL: [Self; 12] = [
        Self::Max,
        Self::Min,
        Self::Sum,
        Self::Prod,
        Self::And,
        Self::BitAnd,
        Self::Or,
        Self::BitOr,
        Self::Xor,
        Self::BitXor,
        Self::MinLoc,
        Self::MaxLoc,
    ];

    /// The operation of a code.
    pub fn of_code(code: i32) -> Option<Self> {
        usize::try_from(code).ok()?.checked_sub(1).and_then(|at| Self::ALL.get(at).copied())
    }
}
