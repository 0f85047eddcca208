//! Integer arithmetic.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Type, Value, types};

use super::form::Form;
use super::registers::machine_type;
use super::{Lowered, Translator, invalid, unsupported};
use crate::parse::syntax::{Instruction, Scalar};

/// Builds the result of a two-operand instruction.
pub(super) type Binary = fn(&mut Translator<'_, '_>, Scalar, Value, Value) -> Value;
/// Builds the result of a one-operand instruction.
pub(super) type Unary = fn(&mut Translator<'_, '_>, Scalar, Value) -> Value;

/// Which half of a product is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Half {
    Low,
    High,
    /// Both, in a result of twice the width.
    Wide,
}

fn widened(scalar: Scalar) -> Option<Scalar> {
    Some(match scalar {
        Scalar::U16 => Scalar::U32,
        Scalar::S16 => Scalar::S32,
        Scalar::U32 => Scalar::U64,
        Scalar::S32 => Scalar::S64,
        _ => return None,
    })
}

impl Translator<'_, '_> {
    /// `op.type d, a, b` on integers or bits.
    pub(super) fn integer_binary(&mut self, instruction: &Instruction, build: Binary) -> Lowered {
        let mut form = Form::of(instruction);
        let scalar = form.scalar()?;
        form.finish()?;
        self.expect_operands(instruction, 3)?;
        let a = self.read(instruction, 1, scalar)?;
        let b = self.read(instruction, 2, scalar)?;
        let result = build(self, scalar, a, b);
        self.write(instruction, scalar, result)
    }

    /// `op.type d, a` on integers or bits.
    pub(super) fn integer_unary(&mut self, instruction: &Instruction, build: Unary) -> Lowered {
        let mut form = Form::of(instruction);
        let scalar = form.scalar()?;
        form.finish()?;
        self.expect_operands(instruction, 2)?;
        let a = self.read(instruction, 1, scalar)?;
        let result = build(self, scalar, a);
        self.write(instruction, scalar, result)
    }

    /// `op.type d, a` whose result is 32 bits wide whatever the operand's type: counts and positions.
    pub(super) fn count(&mut self, instruction: &Instruction, build: Unary) -> Lowered {
        let mut form = Form::of(instruction);
        let scalar = form.scalar()?;
        form.finish()?;
        self.expect_operands(instruction, 2)?;
        let a = self.read(instruction, 1, scalar)?;
        let count = build(self, scalar, a);
        let count = self.narrow(count, types::I32)?;
        self.write(instruction, Scalar::U32, count)
    }

    /// `add`, `sub`: integers with `.sat` and `.cc`.
    pub(super) fn integer_sum(
        &mut self,
        instruction: &Instruction,
        subtract: bool,
        with_carry: bool,
    ) -> Lowered {
        let mut form = Form::of(instruction);
        let saturate = form.flag("sat");
        let set_carry = form.flag("cc");
        let scalar = form.scalar()?;
        form.finish()?;
        self.expect_operands(instruction, 3)?;
        let a = self.read(instruction, 1, scalar)?;
        let b = self.read(instruction, 2, scalar)?;
        let result = if matches!(scalar, Scalar::U16x2 | Scalar::S16x2) {
            let (a, b) = (self.split_pair(a), self.split_pair(b));
            let lanes = [0, 1].map(|lane| {
                if subtract {
                    self.b.ins().isub(a[lane], b[lane])
                } else {
                    self.b.ins().iadd(a[lane], b[lane])
                }
            });
            self.join_pair(lanes)
        } else if set_carry || with_carry {
            self.sum_with_carry(a, b, subtract, with_carry, set_carry)
        } else if saturate {
            if scalar != Scalar::S32 {
                return invalid("`.sat` needs `.s32`");
            }
            self.saturated_sum(a, b, subtract)
        } else if subtract {
            self.b.ins().isub(a, b)
        } else {
            self.b.ins().iadd(a, b)
        };
        self.write(instruction, scalar, result)
    }

    fn saturated_sum(&mut self, a: Value, b: Value, subtract: bool) -> Value {
        let a = self.b.ins().sextend(types::I64, a);
        let b = self.b.ins().sextend(types::I64, b);
        let sum = if subtract { self.b.ins().isub(a, b) } else { self.b.ins().iadd(a, b) };
        let highest = self.b.ins().iconst(types::I64, i64::from(i32::MAX));
        let lowest = self.b.ins().iconst(types::I64, i64::from(i32::MIN));
        let sum = self.b.ins().smin(sum, highest);
        let sum = self.b.ins().smax(sum, lowest);
        self.b.ins().ireduce(types::I32, sum)
    }

    /// The sum or difference with the carry (or borrow) flag taken in, given out, or both.
    pub(super) fn sum_with_carry(
        &mut self,
        a: Value,
        b: Value,
        subtract: bool,
        take: bool,
        give: bool,
    ) -> Value {
        let ty = self.b.func.dfg.value_type(a);
        let carry = if take {
            let carry = self.b.use_var(self.carry);
            self.b.ins().uextend(ty, carry)
        } else {
            self.b.ins().iconst(ty, 0)
        };
        let (result, carry_out) = if subtract {
            let partial = self.b.ins().isub(a, b);
            let borrow_one = self.b.ins().icmp(IntCC::UnsignedLessThan, a, b);
            let result = self.b.ins().isub(partial, carry);
            let borrow_two = self.b.ins().icmp(IntCC::UnsignedLessThan, partial, carry);
            (result, self.b.ins().bor(borrow_one, borrow_two))
        } else {
            let partial = self.b.ins().iadd(a, b);
            let carry_one = self.b.ins().icmp(IntCC::UnsignedLessThan, partial, a);
            let result = self.b.ins().iadd(partial, carry);
            let carry_two = self.b.ins().icmp(IntCC::UnsignedLessThan, result, partial);
            (result, self.b.ins().bor(carry_one, carry_two))
        };
        if give {
            self.b.def_var(self.carry, carry_out);
        }
        result
    }

    /// `mul` and `mad` (with `addend`) on integers: `.lo`, `.hi` or `.wide`.
    pub(super) fn integer_product(
        &mut self,
        instruction: &Instruction,
        addend: bool,
        with_carry: bool,
    ) -> Lowered {
        let mut form = Form::of(instruction);
        let half = match form.choice(&["lo", "hi", "wide"]) {
            Some("hi") => Half::High,
            Some("wide") => Half::Wide,
            Some(_) => Half::Low,
            None => return invalid("one of `.lo`, `.hi` and `.wide` is missing"),
        };
        let saturate = form.flag("sat");
        let set_carry = form.flag("cc");
        let scalar = form.scalar()?;
        form.finish()?;
        self.expect_operands(instruction, if addend { 4 } else { 3 })?;
        let a = self.read(instruction, 1, scalar)?;
        let b = self.read(instruction, 2, scalar)?;
        let (product, result_scalar) = match half {
            Half::Low => (self.b.ins().imul(a, b), scalar),
            Half::High => (self.high_product(scalar, a, b), scalar),
            Half::Wide => {
                let Some(wide) = widened(scalar) else { return invalid("`.wide` needs 16 or 32 bits") };
                let a = self.extend(scalar, a, machine_type(wide));
                let b = self.extend(scalar, b, machine_type(wide));
                (self.b.ins().imul(a, b), wide)
            }
        };
        let result = if !addend {
            product
        } else {
            let c = self.read(instruction, 3, result_scalar)?;
            if saturate {
                if scalar != Scalar::S32 || half != Half::High {
                    return invalid("`.sat` needs `.hi.s32`");
                }
                self.saturated_sum(product, c, false)
            } else if set_carry || with_carry {
                self.sum_with_carry(product, c, false, with_carry, set_carry)
            } else {
                self.b.ins().iadd(product, c)
            }
        };
        self.write(instruction, result_scalar, result)
    }

    fn high_product(&mut self, scalar: Scalar, a: Value, b: Value) -> Value {
        let ty = machine_type(scalar);
        if ty == types::I64 {
            return if scalar.is_signed() { self.b.ins().smulhi(a, b) } else { self.b.ins().umulhi(a, b) };
        }
        let a = self.extend(scalar, a, types::I64);
        let b = self.extend(scalar, b, types::I64);
        let product = self.b.ins().imul(a, b);
        let high = self.b.ins().ushr_imm_u(product, i64::from(ty.bits()));
        self.b.ins().ireduce(ty, high)
    }

    /// `mul24` and `mad24`.
    pub(super) fn product_of_24_bits(&mut self, instruction: &Instruction, addend: bool) -> Lowered {
        let mut form = Form::of(instruction);
        let high = match form.choice(&["lo", "hi"]) {
            Some(half) => half == "hi",
            None => return invalid("one of `.lo` and `.hi` is missing"),
        };
        let scalar = form.scalar()?;
        form.finish()?;
        self.expect_operands(instruction, if addend { 4 } else { 3 })?;
        let mut factors = [1, 2].map(|index| self.read(instruction, index, scalar));
        let mut wide = [None; 2];
        for (factor, wide) in factors.iter_mut().zip(&mut wide) {
            let factor = factor.clone()?;
            let shifted = self.b.ins().ishl_imm_u(factor, 8);
            let low = if scalar.is_signed() {
                self.b.ins().sshr_imm_u(shifted, 8)
            } else {
                self.b.ins().ushr_imm_u(shifted, 8)
            };
            *wide = Some(self.extend(scalar, low, types::I64));
        }
        let [Some(a), Some(b)] = wide else { return invalid("an operand is missing") };
        let product = self.b.ins().imul(a, b);
        // The product has 48 bits: `.hi` keeps bits 16 to 47.
        let product = if high { self.b.ins().ushr_imm_u(product, 16) } else { product };
        let mut result = self.b.ins().ireduce(types::I32, product);
        if addend {
            let c = self.read(instruction, 3, scalar)?;
            result = self.b.ins().iadd(result, c);
        }
        self.write(instruction, scalar, result)
    }

    /// Extends an integer to `ty`, with its sign when the type has one.
    pub(super) fn extend(&mut self, scalar: Scalar, value: Value, ty: Type) -> Value {
        let from = self.b.func.dfg.value_type(value);
        if from == ty {
            value
        } else if scalar.is_signed() {
            self.b.ins().sextend(ty, value)
        } else {
            self.b.ins().uextend(ty, value)
        }
    }

    /// Quotient or remainder. As on the hardware, dividing by zero gives all ones, and the smallest number
    /// divided by -1 wraps around.
    pub(super) fn quotient(&mut self, scalar: Scalar, a: Value, b: Value, remainder: bool) -> Value {
        let ty = machine_type(scalar);
        if ty == types::I16 {
            let wide = if scalar.is_signed() { Scalar::S32 } else { Scalar::U32 };
            let a = self.extend(scalar, a, types::I32);
            let b = self.extend(scalar, b, types::I32);
            let result = self.quotient(wide, a, b, remainder);
            return self.b.ins().ireduce(types::I16, result);
        }
        let zero = self.b.ins().icmp_imm_s(IntCC::Equal, b, 0);
        let one = self.b.ins().iconst(ty, 1);
        let mut unsafe_divisor = zero;
        if scalar.is_signed() {
            // Any number divided by -1 is its negative, and the remainder 0, which multiplication gives
            // without the trap.
            let minus_one = self.b.ins().icmp_imm_s(IntCC::Equal, b, -1);
            unsafe_divisor = self.b.ins().bor(zero, minus_one);
        }
        let divisor = self.b.ins().select(unsafe_divisor, one, b);
        let result = match (scalar.is_signed(), remainder) {
            (true, false) => {
                let quotient = self.b.ins().sdiv(a, divisor);
                let negative = self.b.ins().ineg(a);
                let minus_one = self.b.ins().icmp_imm_s(IntCC::Equal, b, -1);
                self.b.ins().select(minus_one, negative, quotient)
            }
            (true, true) => self.b.ins().srem(a, divisor),
            (false, false) => self.b.ins().udiv(a, divisor),
            (false, true) => self.b.ins().urem(a, divisor),
        };
        let ones = self.constant(ty, -1);
        self.b.ins().select(zero, ones, result)
    }

    /// `sad`: |a - b| + c.
    pub(super) fn sum_of_difference(&mut self, instruction: &Instruction) -> Lowered {
        let mut form = Form::of(instruction);
        let scalar = form.scalar()?;
        form.finish()?;
        self.expect_operands(instruction, 4)?;
        let a = self.read(instruction, 1, scalar)?;
        let b = self.read(instruction, 2, scalar)?;
        let c = self.read(instruction, 3, scalar)?;
        let condition = if scalar.is_signed() { IntCC::SignedLessThan } else { IntCC::UnsignedLessThan };
        let less = self.b.ins().icmp(condition, a, b);
        let forward = self.b.ins().isub(a, b);
        let backward = self.b.ins().isub(b, a);
        let difference = self.b.ins().select(less, backward, forward);
        let result = self.b.ins().iadd(difference, c);
        self.write(instruction, scalar, result)
    }

    /// `dp4a` and `dp2a`: dot products of packed bytes, or of 16-bit halves with bytes.
    pub(super) fn dot_product(&mut self, instruction: &Instruction, lanes: i64) -> Lowered {
        let mut form = Form::of(instruction);
        let upper = if lanes == 2 { form.choice(&["lo", "hi"]) == Some("hi") } else { false };
        let first = form.scalar()?;
        let second = form.scalar()?;
        form.finish()?;
        self.expect_operands(instruction, 4)?;
        if !matches!(first, Scalar::U32 | Scalar::S32) || !matches!(second, Scalar::U32 | Scalar::S32) {
            return unsupported("types other than `.u32` and `.s32`");
        }
        let a = self.read(instruction, 1, first)?;
        let b = self.read(instruction, 2, second)?;
        let mut sum = self.read(instruction, 3, first)?;
        let a_bits = 32 / lanes;
        for lane in 0..lanes {
            let x = self.packed_lane(first, a, lane * a_bits, a_bits);
            let y = self.packed_lane(second, b, lane * 8 + if upper { 16 } else { 0 }, 8);
            let product = self.b.ins().imul(x, y);
            sum = self.b.ins().iadd(sum, product);
        }
        let result = if first.is_signed() || second.is_signed() { Scalar::S32 } else { Scalar::U32 };
        self.write(instruction, result, sum)
    }

    fn packed_lane(&mut self, scalar: Scalar, value: Value, start: i64, bits: i64) -> Value {
        let raised = self.b.ins().ishl_imm_u(value, 32 - start - bits);
        if scalar.is_signed() {
            self.b.ins().sshr_imm_u(raised, 32 - bits)
        } else {
            self.b.ins().ushr_imm_u(raised, 32 - bits)
        }
    }

    /// `abs` on integers; the smallest number is its own absolute value.
    pub(super) fn absolute(&mut self, _scalar: Scalar, a: Value) -> Value {
        self.b.ins().iabs(a)
    }
}
