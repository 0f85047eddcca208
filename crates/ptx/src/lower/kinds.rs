//! Sets of PTX types, by what a machine register of each holds.

use crate::parse::syntax::Scalar;

/// A set of types, a bit for each kind.
pub(crate) type Kinds = u16;

pub(super) const NONE: Kinds = 0;
pub(super) const PREDICATE: Kinds = 1 << 0;
pub(super) const BYTE: Kinds = 1 << 1;
pub(super) const HALFWORD: Kinds = 1 << 2;
/// 32 bits.
pub(crate) const WORD: Kinds = 1 << 3;
pub(super) const LONG: Kinds = 1 << 4;
pub(super) const HALF: Kinds = 1 << 5;
pub(super) const PACKED_HALVES: Kinds = 1 << 6;
pub(super) const PACKED_INTEGERS: Kinds = 1 << 7;
pub(super) const SINGLE: Kinds = 1 << 8;
pub(super) const DOUBLE: Kinds = 1 << 9;
/// Two numbers of single precision in 64 bits.
pub(super) const PACKED_SINGLES: Kinds = 1 << 10;

pub(super) const INTEGER: Kinds = BYTE | HALFWORD | WORD | LONG;
pub(super) const FLOAT: Kinds = HALF | PACKED_HALVES | SINGLE | DOUBLE;
/// What fits one register and is no predicate.
pub(super) const NUMBER: Kinds = INTEGER | PACKED_INTEGERS | FLOAT;
/// The translator takes no operand's type from what is named.
pub(super) const ANY: Kinds = Kinds::MAX;

/// The set that holds this type alone.
pub(crate) fn kind(scalar: Scalar) -> Kinds {
    match scalar {
        Scalar::Pred => PREDICATE,
        Scalar::B8 | Scalar::U8 | Scalar::S8 => BYTE,
        Scalar::B16 | Scalar::U16 | Scalar::S16 => HALFWORD,
        Scalar::B32 | Scalar::U32 | Scalar::S32 => WORD,
        Scalar::B64 | Scalar::U64 | Scalar::S64 => LONG,
        Scalar::F16 | Scalar::Bf16 => HALF,
        Scalar::F16x2 | Scalar::Bf16x2 => PACKED_HALVES,
        Scalar::U16x2 | Scalar::S16x2 => PACKED_INTEGERS,
        Scalar::F32 => SINGLE,
        Scalar::F32x2 => PACKED_SINGLES,
        Scalar::F64 => DOUBLE,
        // The translator refuses it by itself, as something that it lacks.
        Scalar::B128 => Kinds::MAX,
    }
}
