//! Comparisons and selections.

use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{InstBuilder, Value, types};

use super::form::Form;
use super::halves::half_of;
use super::{Lowered, Refusal, Translator, invalid};
use crate::parse::syntax::{Instruction, Operand, Scalar};

const COMPARISONS: [&str; 18] = [
    "eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs", "equ", "neu", "ltu", "leu", "gtu", "geu",
    "num", "nan",
];
const COMBINATIONS: [&str; 3] = ["and", "or", "xor"];

fn integer_condition(name: &str, signed: bool) -> Option<IntCC> {
    Some(match (name, signed) {
        ("eq", _) => IntCC::Equal,
        ("ne", _) => IntCC::NotEqual,
        ("lt", true) => IntCC::SignedLessThan,
        ("le", true) => IntCC::SignedLessThanOrEqual,
        ("gt", true) => IntCC::SignedGreaterThan,
        ("ge", true) => IntCC::SignedGreaterThanOrEqual,
        ("lt" | "lo", _) => IntCC::UnsignedLessThan,
        ("le" | "ls", _) => IntCC::UnsignedLessThanOrEqual,
        ("gt" | "hi", _) => IntCC::UnsignedGreaterThan,
        ("ge" | "hs", _) => IntCC::UnsignedGreaterThanOrEqual,
        _ => return None,
    })
}

fn float_condition(name: &str) -> Option<FloatCC> {
    Some(match name {
        "eq" => FloatCC::Equal,
        "ne" => FloatCC::OrderedNotEqual,
        "lt" => FloatCC::LessThan,
        "le" => FloatCC::LessThanOrEqual,
        "gt" => FloatCC::GreaterThan,
        "ge" => FloatCC::GreaterThanOrEqual,
        "equ" => FloatCC::UnorderedOrEqual,
        "neu" => FloatCC::NotEqual,
        "ltu" => FloatCC::UnorderedOrLessThan,
        "leu" => FloatCC::UnorderedOrLessThanOrEqual,
        "gtu" => FloatCC::UnorderedOrGreaterThan,
        "geu" => FloatCC::UnorderedOrGreaterThanOrEqual,
        "num" => FloatCC::Ordered,
        "nan" => FloatCC::Unordered,
        _ => return None,
    })
}

impl Translator<'_, '_> {
    /// Compares two values; the result is 0 or 1.
    fn compare(
        &mut self,
        name: &str,
        scalar: Scalar,
        ftz: bool,
        a: Value,
        b: Value,
    ) -> Result<Value, Refusal> {
        let wrong = || Refusal::Invalid(format!("`.{name}` does not compare this type"));
        if !scalar.is_float() {
            let condition = integer_condition(name, scalar.is_signed()).ok_or_else(wrong)?;
            return Ok(self.b.ins().icmp(condition, a, b));
        }
        let condition = float_condition(name).ok_or_else(wrong)?;
        let (a, b) = match scalar {
            Scalar::F32 | Scalar::F64 => (a, b),
            Scalar::F16 | Scalar::Bf16 => {
                let [a, b] = [a, b].map(|half| {
                    let half = if ftz { self.flush_half(scalar, half) } else { half };
                    self.unpack_half(scalar, half)
                });
                (a, b)
            }
            _ => return super::unsupported("comparing packed halves"),
        };
        let (a, b) = if ftz && scalar == Scalar::F32 { (self.flush(a), self.flush(b)) } else { (a, b) };
        Ok(self.b.ins().fcmp(condition, a, b))
    }

    /// Compares the halves of two packed values, the lower ones first, and combines each result with operand 3 if
    /// there is one.
    fn compare_pairs(
        &mut self,
        instruction: &Instruction,
        comparison: &str,
        combination: Option<&str>,
        scalar: Scalar,
        ftz: bool,
    ) -> Result<[Value; 2], Refusal> {
        let (a, b) = (self.read(instruction, 1, scalar)?, self.read(instruction, 2, scalar)?);
        let (a, b) = (self.split_pair(a), self.split_pair(b));
        let half = half_of(scalar);
        let mut results = [a[0]; 2];
        for (lane, result) in results.iter_mut().enumerate() {
            *result = self.compare(comparison, half, ftz, a[lane], b[lane])?;
            if let Some(combination) = combination {
                let c = self.read(instruction, 3, Scalar::Pred)?;
                *result = self.combine(combination, *result, c);
            }
        }
        Ok(results)
    }

    /// `setp.cmp[.bool].type p[|q], a, b[, c]`
    pub(super) fn set_predicate(&mut self, instruction: &Instruction) -> Lowered {
        let mut form = Form::of(instruction);
        let Some(comparison) = form.choice(&COMPARISONS) else { return invalid("the comparison is missing") };
        let combination = form.choice(&COMBINATIONS);
        let ftz = form.flag("ftz");
        let scalar = form.scalar()?;
        form.finish()?;
        self.expect_operands(instruction, if combination.is_some() { 4 } else { 3 })?;
        if matches!(scalar, Scalar::F16x2 | Scalar::Bf16x2) {
            let [low, high] = self.compare_pairs(instruction, comparison, combination, scalar, ftz)?;
            let Operand::Pair(first, second) = self.operand(instruction, 0)? else {
                return invalid("the destination is not `p|q`, one for each half");
            };
            self.assign(first, Scalar::Pred, low)?;
            return self.assign(second, Scalar::Pred, high);
        }
        let a = self.read(instruction, 1, scalar)?;
        let b = self.read(instruction, 2, scalar)?;
        let result = self.compare(comparison, scalar, ftz, a, b)?;
        let opposite = self.b.ins().bxor_imm_u(result, 1);
        let (result, opposite) = match combination {
            None => (result, opposite),
            Some(combination) => {
                let c = self.read(instruction, 3, Scalar::Pred)?;
                (self.combine(combination, result, c), self.combine(combination, opposite, c))
            }
        };
        match self.operand(instruction, 0)? {
            Operand::Pair(first, second) => {
                self.assign(first, Scalar::Pred, result)?;
                self.assign(second, Scalar::Pred, opposite)
            }
            single => self.assign(single, Scalar::Pred, result),
        }
    }

    fn combine(&mut self, combination: &str, a: Value, b: Value) -> Value {
        match combination {
            "and" => self.b.ins().band(a, b),
            "or" => self.b.ins().bor(a, b),
            _ => self.b.ins().bxor(a, b),
        }
    }

    /// `set.cmp[.bool].dtype.stype d, a, b[, c]`: all ones or 1.0 where the comparison holds.
    pub(super) fn set(&mut self, instruction: &Instruction) -> Lowered {
        let mut form = Form::of(instruction);
        let Some(comparison) = form.choice(&COMPARISONS) else { return invalid("the comparison is missing") };
        let combination = form.choice(&COMBINATIONS);
        let ftz = form.flag("ftz");
        let to = form.scalar()?;
        let from = form.scalar()?;
        form.finish()?;
        self.expect_operands(instruction, if combination.is_some() { 4 } else { 3 })?;
        if matches!(from, Scalar::F16x2 | Scalar::Bf16x2) {
            let yes = match to {
                Scalar::F16x2 if from == to => 0x3c00,
                Scalar::Bf16x2 if from == to => 0x3f80,
                Scalar::U32 | Scalar::S32 => -1,
                _ => return invalid("the result is neither of that type nor `.u32` or `.s32`"),
            };
            let results = self.compare_pairs(instruction, comparison, combination, from, ftz)?;
            let (yes, no) = (self.constant(types::I16, yes), self.constant(types::I16, 0));
            let halves = results.map(|holds| self.b.ins().select(holds, yes, no));
            let pair = self.join_pair(halves);
            return self.write(instruction, Scalar::B32, pair);
        }
        let a = self.read(instruction, 1, from)?;
        let b = self.read(instruction, 2, from)?;
        let mut holds = self.compare(comparison, from, ftz, a, b)?;
        if let Some(combination) = combination {
            let c = self.read(instruction, 3, Scalar::Pred)?;
            holds = self.combine(combination, holds, c);
        }
        let (yes, no) = match to {
            Scalar::F32 => (self.single(1_f32.to_bits()), self.single(0)),
            Scalar::U32 | Scalar::S32 | Scalar::B32 => {
                (self.constant(types::I32, -1), self.constant(types::I32, 0))
            }
            Scalar::F16 => (self.constant(types::I16, 0x3c00), self.constant(types::I16, 0)),
            Scalar::Bf16 => (self.constant(types::I16, 0x3f80), self.constant(types::I16, 0)),
            Scalar::U16 | Scalar::S16 | Scalar::B16 => {
                (self.constant(types::I16, -1), self.constant(types::I16, 0))
            }
            _ => return super::unsupported("a result of this type"),
        };
        let result = self.b.ins().select(holds, yes, no);
        self.write(instruction, to, result)
    }

    /// `selp.type d, a, b, p`
    pub(super) fn select_by_predicate(&mut self, instruction: &Instruction) -> Lowered {
        let mut form = Form::of(instruction);
        let scalar = form.scalar()?;
        form.finish()?;
        self.expect_operands(instruction, 4)?;
        let a = self.read(instruction, 1, scalar)?;
        let b = self.read(instruction, 2, scalar)?;
        let condition = self.read(instruction, 3, Scalar::Pred)?;
        let result = self.b.ins().select(condition, a, b);
        self.write(instruction, scalar, result)
    }

    /// `slct.dtype.ctype d, a, b, c`: `a` where `c` is not negative.
    pub(super) fn select_by_sign(&mut self, instruction: &Instruction) -> Lowered {
        let mut form = Form::of(instruction);
        let ftz = form.flag("ftz");
        let scalar = form.scalar()?;
        let selector = form.scalar()?;
        form.finish()?;
        self.expect_operands(instruction, 4)?;
        let a = self.read(instruction, 1, scalar)?;
        let b = self.read(instruction, 2, scalar)?;
        let c = self.read(instruction, 3, selector)?;
        let zero = match selector {
            Scalar::S32 => self.constant(types::I32, 0),
            Scalar::F32 => self.single(0),
            _ => return invalid("the selector is neither `.s32` nor `.f32`"),
        };
        let condition = self.compare("ge", selector, ftz, c, zero)?;
        let result = self.b.ins().select(condition, a, b);
        self.write(instruction, scalar, result)
    }

    /// `testp`: what kind of number it is.
    pub(super) fn test_property(&mut self, instruction: &Instruction) -> Lowered {
        let mut form = Form::of(instruction);
        let properties = ["finite", "infinite", "number", "notanumber", "normal", "subnormal"];
        let Some(property) = form.choice(&properties) else { return invalid("the property is missing") };
        let scalar = form.scalar()?;
        form.finish()?;
        self.expect_operands(instruction, 2)?;
        let value = self.read(instruction, 1, scalar)?;
        let magnitude = self.b.ins().fabs(value);
        let (infinity, smallest_normal) = match scalar {
            Scalar::F32 => (self.single(f32::INFINITY.to_bits()), self.single(f32::MIN_POSITIVE.to_bits())),
            Scalar::F64 => (self.double(f64::INFINITY.to_bits()), self.double(f64::MIN_POSITIVE.to_bits())),
            _ => return invalid("the type is neither `.f32` nor `.f64`"),
        };
        let finite = self.b.ins().fcmp(FloatCC::LessThan, magnitude, infinity);
        let small = self.b.ins().fcmp(FloatCC::LessThan, magnitude, smallest_normal);
        let result = match property {
            "finite" => finite,
            "infinite" => self.b.ins().fcmp(FloatCC::Equal, magnitude, infinity),
            "number" => self.b.ins().fcmp(FloatCC::Ordered, value, value),
            "notanumber" => self.b.ins().fcmp(FloatCC::Unordered, value, value),
            "normal" => self.b.ins().band_not(finite, small),
            _ => {
                // Zero is neither normal nor subnormal.
                let bits = self.bits_of(magnitude);
                let nonzero = self.b.ins().icmp_imm_s(IntCC::NotEqual, bits, 0);
                self.b.ins().band(small, nonzero)
            }
        };
        self.write(instruction, Scalar::Pred, result)
    }
}
