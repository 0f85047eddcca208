//! `cvt` to and from pairs of floating-point numbers of 8 bits, which registers of 16 bits hold.

use cranelift_codegen::ir::{InstBuilder, Value, types};

use super::form::Form;
use super::{Lowered, Translator, invalid, unsupported};
use crate::parse::syntax::{Instruction, Scalar};
use crate::run::eight_bits::{self, RELU};

/// The formats: four bits of exponent, or five.
const PAIRS: [&str; 2] = ["e4m3x2", "e5m2x2"];

impl Translator<'_, '_> {
    /// Whether a conversion is from or to a pair of 8-bit numbers.
    pub(super) fn converts_eight_bits(instruction: &Instruction) -> bool {
        instruction.modifiers.iter().any(|modifier| PAIRS.contains(&modifier.as_str()))
    }

    /// `cvt.rn.satfinite{.relu}.f8x2.f32 d, a, b`, `cvt.rn.satfinite{.relu}.f8x2.f16x2 d, a` and
    /// `cvt.rn{.relu}.f16x2.f8x2 d, a`. Of two operands the first becomes the upper half.
    pub(super) fn convert_eight_bits(&mut self, instruction: &Instruction) -> Lowered {
        let mut form = Form::of(instruction);
        let types: Vec<&str> = instruction.modifiers.iter().map(String::as_str).collect();
        if !form.flag("rn") {
            return unsupported("rounding other than `.rn` of 8-bit numbers");
        }
        let saturates = form.flag("satfinite");
        let flags = if form.flag("relu") { RELU } else { 0 };
        let Some(format) = form.choice(&PAIRS) else { return invalid("a type is missing") };
        let other = form.scalar()?;
        form.finish()?;
        let mantissa = self.constant(types::I32, if format == "e4m3x2" { 3 } else { 2 });
        let flags = self.constant(types::I32, flags);
        if types.last() == Some(&format) {
            if other != Scalar::F16x2 || saturates {
                return unsupported("conversions of 8-bit numbers other than `cvt.rn.f16x2`");
            }
            self.expect_operands(instruction, 2)?;
            let pair = self.read(instruction, 1, Scalar::B16)?;
            let pair = self.b.ins().uextend(types::I32, pair);
            let arguments = [pair, mantissa, flags];
            let halves = self.call_value(eight_bits::to_halves as *const () as usize, &arguments, types::I32);
            return self.write(instruction, Scalar::B32, halves);
        }
        if !saturates {
            return invalid("`.satfinite` is missing");
        }
        let [low, high]: [Value; 2] = match other {
            Scalar::F32 => {
                self.expect_operands(instruction, 3)?;
                [self.read(instruction, 2, other)?, self.read(instruction, 1, other)?]
            }
            Scalar::F16x2 => {
                self.expect_operands(instruction, 2)?;
                let pair = self.read(instruction, 1, other)?;
                let [low, high] = self.split_pair(pair);
                [self.unpack_half(Scalar::F16, low), self.unpack_half(Scalar::F16, high)]
            }
            _ => return unsupported("8-bit numbers from other types than `.f32` and `.f16x2`"),
        };
        let arguments = [low, high, mantissa, flags];
        let pair = self.call_value(eight_bits::from_singles as *const () as usize, &arguments, types::I32);
        let pair = self.b.ins().ireduce(types::I16, pair);
        self.write(instruction, Scalar::B16, pair)
    }
}
