//! Video instructions: what compiled code calls for those on one word and for those on its bytes or halves.
//!
//! The scalar ones compute with more bits than a word has. Modifiers and selectors reach these functions as one
//! number, which [`WordForm`] and [`PackedForm`] make and read.

/// What a video instruction computes of two numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum VideoOperation {
    Add,
    Subtract,
    Average,
    AbsoluteDifference,
    Minimum,
    Maximum,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    ShiftLeft,
    ShiftRight,
}

impl VideoOperation {
    /// In the order of their numbers.
    const ALL: [Self; 14] = [
        Self::Add,
        Self::Subtract,
        Self::Average,
        Self::AbsoluteDifference,
        Self::Minimum,
        Self::Maximum,
        Self::Equal,
        Self::NotEqual,
        Self::Less,
        Self::LessOrEqual,
        Self::Greater,
        Self::GreaterOrEqual,
        Self::ShiftLeft,
        Self::ShiftRight,
    ];

    /// That with this number; compiled code passes no other ones.
    fn numbered(number: u8) -> Self {
        Self::ALL[usize::from(number) % Self::ALL.len()]
    }

    fn apply(self, x: i64, y: i64) -> i128 {
        let (x, y) = (i128::from(x), i128::from(y));
        match self {
            Self::Add => x + y,
            Self::Subtract => x - y,
            Self::Average => (x + y + i128::from(x + y >= 0)) >> 1,
            Self::AbsoluteDifference => (x - y).abs(),
            Self::Minimum => x.min(y),
            Self::Maximum => x.max(y),
            Self::Equal => i128::from(x == y),
            Self::NotEqual => i128::from(x != y),
            Self::Less => i128::from(x < y),
            Self::LessOrEqual => i128::from(x <= y),
            Self::Greater => i128::from(x > y),
            Self::GreaterOrEqual => i128::from(x >= y),
            // The caller has limited the amount to 32.
            Self::ShiftLeft => x << y,
            Self::ShiftRight => x >> y,
        }
    }
}

/// What happens to the result of a scalar video instruction and its third operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Secondary {
    None,
    Add,
    Minimum,
    Maximum,
}

/// A byte or half of a word, or all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WordPart {
    /// 8, 16 or 32.
    pub(crate) bits: u8,
    /// The first of them is this one times `bits`.
    pub(crate) index: u8,
}

impl WordPart {
    pub(crate) const WHOLE: Self = Self { bits: 32, index: 0 };

    fn read(self, word: u32, signed: bool) -> i64 {
        extract(u64::from(word), u32::from(self.bits), u32::from(self.index), signed)
    }

    fn to_byte(self) -> u8 {
        self.bits | self.index
    }

    fn from_byte(byte: u8) -> Self {
        Self { bits: byte & 0x38, index: byte & 3 }
    }
}

/// The part with this index of those that have so many bits.
fn extract(word: u64, bits: u32, index: u32, signed: bool) -> i64 {
    let raised = word << (64 - bits * (index + 1));
    if signed { raised.cast_signed() >> (64 - bits) } else { (raised >> (64 - bits)).cast_signed() }
}

/// The smallest and the greatest number of so many bits.
fn range(bits: u32, signed: bool) -> (i128, i128) {
    if signed { (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) } else { (0, (1 << bits) - 1) }
}

/// Whether result, `a` and `b` are signed.
pub(crate) type Signs = [bool; 3];

fn signs_to_bits(signs: Signs) -> u8 {
    signs.iter().enumerate().map(|(bit, &signed)| u8::from(signed) << bit).sum()
}

fn signs_from_bits(bits: u8) -> Signs {
    [0, 1, 2].map(|bit| bits >> bit & 1 != 0)
}

const SATURATES: u8 = 1 << 3;
const ACCUMULATES: u8 = 1 << 4;
const WRAPS: u8 = 1 << 5;

/// A scalar video instruction, without its operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WordForm {
    pub(crate) operation: VideoOperation,
    pub(crate) signs: Signs,
    pub(crate) saturates: bool,
    /// Whether only the low five bits of an amount count.
    pub(crate) wraps: bool,
    pub(crate) secondary: Secondary,
    pub(crate) a: WordPart,
    pub(crate) b: WordPart,
    /// What is written of the result; the rest is that of `c`.
    pub(crate) target: WordPart,
}

impl WordForm {
    pub(crate) fn to_bits(self) -> u64 {
        let flags = signs_to_bits(self.signs)
            | if self.saturates { SATURATES } else { 0 }
            | if self.wraps { WRAPS } else { 0 };
        let parts = [self.a, self.b, self.target].map(WordPart::to_byte);
        u64::from_le_bytes([
            self.operation as u8,
            flags,
            self.secondary as u8,
            parts[0],
            parts[1],
            parts[2],
            0,
            0,
        ])
    }

    fn from_bits(bits: u64) -> Self {
        let [operation, flags, secondary, a, b, target, ..] = bits.to_le_bytes();
        let [a, b, target] = [a, b, target].map(WordPart::from_byte);
        Self {
            operation: VideoOperation::numbered(operation),
            signs: signs_from_bits(flags),
            saturates: flags & SATURATES != 0,
            wraps: flags & WRAPS != 0,
            secondary: match secondary {
                0 => Secondary::None,
                1 => Secondary::Add,
                2 => Secondary::Minimum,
                _ => Secondary::Maximum,
            },
            a,
            b,
            target,
        }
    }
}

/// One scalar video instruction of the form that [`WordForm::to_bits`] gives.
///
/// In the manual, the sign of an intermediate result is that of the result's type: where that is unsigned, one
/// below zero is greater than any third operand.
pub(crate) extern "C" fn word(a: u32, b: u32, c: u32, form: u64) -> u32 {
    let form = WordForm::from_bits(form);
    let [signed, a_signed, b_signed] = form.signs;
    let (x, mut y) = (form.a.read(a, a_signed), form.b.read(b, b_signed));
    if matches!(form.operation, VideoOperation::ShiftLeft | VideoOperation::ShiftRight) {
        y = if form.wraps { y & 31 } else { y.min(32) };
    }
    let mut result = form.operation.apply(x, y);
    if form.saturates {
        let (lowest, highest) = range(u32::from(form.target.bits), signed);
        result = result.clamp(lowest, highest);
    }
    let third = i128::from(WordPart::WHOLE.read(c, signed));
    let is_greater = if signed { result > third } else { result.cast_unsigned() > third.cast_unsigned() };
    let result = match form.secondary {
        Secondary::None => result,
        Secondary::Add => result + third,
        Secondary::Minimum => {
            if is_greater {
                third
            } else {
                result
            }
        }
        Secondary::Maximum => {
            if is_greater {
                result
            } else {
                third
            }
        }
    };
    let shift = u32::from(form.target.bits) * u32::from(form.target.index);
    let mask = (u32::MAX >> (32 - u32::from(form.target.bits))) << shift;
    (result as u32) << shift & mask | c & !mask
}

/// `vmad`, without its operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProductForm {
    pub(crate) a: WordPart,
    pub(crate) b: WordPart,
    /// Whether `a` and `b` are signed.
    pub(crate) signs: [bool; 2],
    /// Whether the product is subtracted from `c`, or `c` from the product.
    pub(crate) negates_product: bool,
    pub(crate) negates_addend: bool,
    /// Whether one more is added.
    pub(crate) adds_one: bool,
    pub(crate) saturates: bool,
    /// Bits that the sum is shifted right.
    pub(crate) shift: u8,
}

impl ProductForm {
    pub(crate) fn to_bits(self) -> u64 {
        let flags = [
            self.signs[0],
            self.signs[1],
            self.negates_product,
            self.negates_addend,
            self.adds_one,
            self.saturates,
        ];
        let flags = flags.iter().enumerate().map(|(bit, &flag)| u8::from(flag) << bit).sum();
        u64::from_le_bytes([flags, self.a.to_byte(), self.b.to_byte(), self.shift, 0, 0, 0, 0])
    }

    fn from_bits(bits: u64) -> Self {
        let [flags, a, b, shift, ..] = bits.to_le_bytes();
        let flag = |bit: u32| flags >> bit & 1 != 0;
        Self {
            a: WordPart::from_byte(a),
            b: WordPart::from_byte(b),
            signs: [flag(0), flag(1)],
            negates_product: flag(2),
            negates_addend: flag(3),
            adds_one: flag(4),
            saturates: flag(5),
            shift,
        }
    }
}

/// One `vmad` of the form that [`ProductForm::to_bits`] gives.
pub(crate) extern "C" fn multiply_add(a: u32, b: u32, c: u32, form: u64) -> u32 {
    let form = ProductForm::from_bits(form);
    let signed = form.signs.contains(&true) || form.negates_product || form.negates_addend;
    let (x, y) = (form.a.read(a, form.signs[0]), form.b.read(b, form.signs[1]));
    let product = i128::from(x) * i128::from(y);
    let product = if form.negates_product { -product } else { product };
    // As in the manual, all bits of the addend are inverted before its sign is extended.
    let addend = if form.negates_addend { !c } else { c };
    let addend = i128::from(WordPart::WHOLE.read(addend, signed)) + i128::from(form.negates_addend);
    let mut result = (product + addend + i128::from(form.adds_one)) >> form.shift;
    if form.saturates {
        let (lowest, highest) = range(32, signed);
        result = result.clamp(lowest, highest);
    }
    result as u32
}

/// A SIMD video instruction, without its operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PackedForm {
    pub(crate) operation: VideoOperation,
    pub(crate) signs: Signs,
    pub(crate) saturates: bool,
    /// Whether the lanes' sum is added to `c`.
    pub(crate) accumulates: bool,
    /// 2 or 4.
    pub(crate) lanes: u8,
    /// The lanes that have results, a bit for each; the others are those of `c`.
    pub(crate) mask: u8,
    /// For each lane, from the lowest four bits on, which part it is of the two words: `a` has the lower ones.
    pub(crate) a: u16,
    pub(crate) b: u16,
}

impl PackedForm {
    pub(crate) fn to_bits(self) -> u64 {
        let flags = signs_to_bits(self.signs)
            | if self.saturates { SATURATES } else { 0 }
            | if self.accumulates { ACCUMULATES } else { 0 };
        let ([a_low, a_high], [b_low, b_high]) = (self.a.to_le_bytes(), self.b.to_le_bytes());
        u64::from_le_bytes([self.operation as u8, flags, self.lanes, self.mask, a_low, a_high, b_low, b_high])
    }

    fn from_bits(bits: u64) -> Self {
        let [operation, flags, lanes, mask, a_low, a_high, b_low, b_high] = bits.to_le_bytes();
        Self {
            operation: VideoOperation::numbered(operation),
            signs: signs_from_bits(flags),
            saturates: flags & SATURATES != 0,
            accumulates: flags & ACCUMULATES != 0,
            lanes,
            mask,
            a: u16::from_le_bytes([a_low, a_high]),
            b: u16::from_le_bytes([b_low, b_high]),
        }
    }
}

/// One SIMD video instruction of the form that [`PackedForm::to_bits`] gives.
pub(crate) extern "C" fn packed(a: u32, b: u32, c: u32, form: u64) -> u32 {
    let form = PackedForm::from_bits(form);
    let bits = 32 / u32::from(form.lanes);
    let pair = u64::from(b) << 32 | u64::from(a);
    let part = |selector: u16, lane: u32, signed: bool| {
        extract(pair, bits, u32::from(selector >> (4 * lane) & 7), signed)
    };
    let (lowest, highest) = range(bits, form.signs[0]);
    let (mut merged, mut sum) = (c, c);
    for lane in (0..u32::from(form.lanes)).filter(|lane| form.mask >> lane & 1 != 0) {
        let (x, y) = (part(form.a, lane, form.signs[1]), part(form.b, lane, form.signs[2]));
        let mut result = form.operation.apply(x, y);
        if form.saturates {
            result = result.clamp(lowest, highest);
        }
        let mask = (u32::MAX >> (32 - bits)) << (bits * lane);
        merged = (result as u32) << (bits * lane) & mask | merged & !mask;
        sum = sum.wrapping_add(result as u32);
    }
    if form.accumulates { sum } else { merged }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_operation_has_its_number() {
        for (number, operation) in VideoOperation::ALL.into_iter().enumerate() {
            assert_eq!(operation as usize, number);
        }
    }

    #[test]
    fn forms_survive_being_a_number() {
        let part = WordPart { bits: 8, index: 3 };
        let form = WordForm {
            operation: VideoOperation::ShiftRight,
            signs: [true, false, true],
            saturates: true,
            wraps: false,
            secondary: Secondary::Maximum,
            a: part,
            b: WordPart::WHOLE,
            target: WordPart { bits: 16, index: 1 },
        };
        assert_eq!(WordForm::from_bits(form.to_bits()), form);
        let form = ProductForm {
            a: part,
            b: WordPart::WHOLE,
            signs: [false, true],
            negates_product: true,
            negates_addend: false,
            adds_one: true,
            saturates: false,
            shift: 15,
        };
        assert_eq!(ProductForm::from_bits(form.to_bits()), form);
        let form = PackedForm {
            operation: VideoOperation::Less,
            signs: [false, true, true],
            saturates: false,
            accumulates: true,
            lanes: 4,
            mask: 0b1011,
            a: 0x3210,
            b: 0x7654,
        };
        assert_eq!(PackedForm::from_bits(form.to_bits()), form);
    }
}
