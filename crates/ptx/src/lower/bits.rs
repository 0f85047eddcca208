//! Logic, shifts and bit fields.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value, types};

use super::form::Form;
use super::registers::machine_type;
use super::{Lowered, Translator, invalid};
use crate::parse::syntax::{Instruction, Operand, Scalar};
use crate::run::functions as runtime;

impl Translator<'_, '_> {
    /// `shl` and `shr`: amounts beyond the width shift everything out.
    pub(super) fn shift(&mut self, instruction: &Instruction, left: bool) -> Lowered {
        let mut form = Form::of(instruction);
        let scalar = form.scalar()?;
        form.finish()?;
        self.expect_operands(instruction, 3)?;
        let ty = machine_type(scalar);
        let width = i64::from(ty.bits());
        let a = self.read(instruction, 1, scalar)?;
        if let Operand::Integer(amount) = self.operand(instruction, 2)? {
            let amount = i64::from(*amount as u32);
            let result = match (left, scalar.is_signed()) {
                (false, true) => self.b.ins().sshr_imm_u(a, amount.min(width - 1)),
                _ if amount >= width => self.constant(ty, 0),
                (true, _) => self.b.ins().ishl_imm_u(a, amount),
                (false, false) => self.b.ins().ushr_imm_u(a, amount),
            };
            return self.write(instruction, scalar, result);
        }
        let amount = self.read(instruction, 2, Scalar::U32)?;
        let result = if !left && scalar.is_signed() {
            let most = self.constant(types::I32, width - 1);
            let amount = self.b.ins().umin(amount, most);
            self.b.ins().sshr(a, amount)
        } else {
            let shifted = if left { self.b.ins().ishl(a, amount) } else { self.b.ins().ushr(a, amount) };
            let beyond = self.b.ins().icmp_imm_s(IntCC::UnsignedGreaterThanOrEqual, amount, width);
            let zero = self.constant(ty, 0);
            self.b.ins().select(beyond, zero, shifted)
        };
        self.write(instruction, scalar, result)
    }

    /// `shf`: 32 bits of a 64-bit shift of `b:a`.
    pub(super) fn funnel_shift(&mut self, instruction: &Instruction) -> Lowered {
        let mut form = Form::of(instruction);
        let left = form.choice(&["l", "r"]) == Some("l");
        let wrap = form.choice(&["wrap", "clamp"]) == Some("wrap");
        let scalar = form.scalar()?;
        form.finish()?;
        self.expect_operands(instruction, 4)?;
        let low = self.read(instruction, 1, scalar)?;
        let high = self.read(instruction, 2, scalar)?;
        let amount = self.read(instruction, 3, Scalar::U32)?;
        let amount = if wrap {
            self.b.ins().band_imm_u(amount, 31)
        } else {
            let most = self.constant(types::I32, 32);
            self.b.ins().umin(amount, most)
        };
        let both = self.concatenate(low, high);
        let result = if left {
            let shifted = self.b.ins().ishl(both, amount);
            self.b.ins().ushr_imm_u(shifted, 32)
        } else {
            self.b.ins().ushr(both, amount)
        };
        let result = self.b.ins().ireduce(types::I32, result);
        self.write(instruction, scalar, result)
    }

    /// Two 32-bit halves as one number.
    pub(super) fn concatenate(&mut self, low: Value, high: Value) -> Value {
        let low = self.b.ins().uextend(types::I64, low);
        let high = self.b.ins().uextend(types::I64, high);
        let high = self.b.ins().ishl_imm_u(high, 32);
        self.b.ins().bor(low, high)
    }

    /// `lop3`: any function of three bits, given as its truth table. With `.or` or `.and` also a predicate:
    /// whether the result is not zero, combined with another one.
    pub(super) fn logic_of_three(&mut self, instruction: &Instruction) -> Lowered {
        let mut form = Form::of(instruction);
        let combination = form.choice(&["or", "and"]);
        let scalar = form.scalar()?;
        form.finish()?;
        self.expect_operands(instruction, if combination.is_some() { 6 } else { 5 })?;
        let a = self.read(instruction, 1, scalar)?;
        let b = self.read(instruction, 2, scalar)?;
        let c = self.read(instruction, 3, scalar)?;
        let Operand::Integer(table) = self.operand(instruction, 4)? else {
            return invalid("the truth table is not a constant");
        };
        // Bit 4a + 2b + c of the table is the result for (a, b, c).
        let result = self.lookup_bits(*table as u8, &[a, b, c]);
        let Some(combination) = combination else { return self.write(instruction, scalar, result) };
        let Operand::Pair(word, predicate) = self.operand(instruction, 0)? else {
            return invalid("the destination is not `d|p`");
        };
        let other = self.read(instruction, 5, Scalar::Pred)?;
        let some = self.b.ins().icmp_imm_s(IntCC::NotEqual, result, 0);
        let combined =
            if combination == "or" { self.b.ins().bor(some, other) } else { self.b.ins().band(some, other) };
        self.assign(word, scalar, result)?;
        self.assign(predicate, Scalar::Pred, combined)
    }

    /// Splits the truth table by its first input until a half is constant or an input itself.
    fn lookup_bits(&mut self, table: u8, inputs: &[Value]) -> Value {
        let ty = self.b.func.dfg.value_type(inputs[0]);
        let width = 1 << inputs.len();
        let mask = ((1_u16 << width) - 1) as u8;
        let table = table & mask;
        if table == 0 || table == mask {
            return self.constant(ty, if table == 0 { 0 } else { -1 });
        }
        let first = inputs[0];
        let half = width / 2;
        let (when_clear, when_set) = (table & ((1 << half) - 1), table >> half);
        let rest = &inputs[1..];
        if rest.is_empty() {
            return if when_set == 1 { first } else { self.b.ins().bnot(first) };
        }
        let ones = (1 << half) - 1;
        if when_clear == when_set {
            return self.lookup_bits(when_set, rest);
        }
        if when_clear == !when_set & ones {
            let other = self.lookup_bits(when_clear, rest);
            return self.b.ins().bxor(first, other);
        }
        let set = self.lookup_bits(when_set, rest);
        let clear = self.lookup_bits(when_clear, rest);
        let set = self.b.ins().band(first, set);
        let clear = self.b.ins().band_not(clear, first);
        self.b.ins().bor(set, clear)
    }

    /// `bfe`: a field of bits, zero- or sign-extended.
    pub(super) fn extract_field(&mut self, instruction: &Instruction) -> Lowered {
        let mut form = Form::of(instruction);
        let scalar = form.scalar()?;
        form.finish()?;
        self.expect_operands(instruction, 4)?;
        let a = self.read(instruction, 1, scalar)?;
        let wide = self.extend(scalar, a, types::I64);
        let start = self.read(instruction, 2, Scalar::U32)?;
        let length = self.read(instruction, 3, Scalar::U32)?;
        let width = self.constant(types::I32, i64::from(machine_type(scalar).bits()));
        let signed = self.constant(types::I32, i64::from(scalar.is_signed()));
        let arguments = [wide, start, length, width, signed];
        let field = self.call_value(runtime::extract_field as *const () as usize, &arguments, types::I64);
        let field = self.narrow(field, machine_type(scalar))?;
        self.write(instruction, scalar, field)
    }

    /// `bfi`: a field of bits put into another number.
    pub(super) fn insert_field(&mut self, instruction: &Instruction) -> Lowered {
        let mut form = Form::of(instruction);
        let scalar = form.scalar()?;
        form.finish()?;
        self.expect_operands(instruction, 5)?;
        let field = self.read(instruction, 1, scalar)?;
        let into = self.read(instruction, 2, scalar)?;
        let field = self.extend(scalar, field, types::I64);
        let into = self.extend(scalar, into, types::I64);
        let start = self.read(instruction, 3, Scalar::U32)?;
        let length = self.read(instruction, 4, Scalar::U32)?;
        let arguments = [field, into, start, length];
        let result = self.call_value(runtime::insert_field as *const () as usize, &arguments, types::I64);
        let result = self.narrow(result, machine_type(scalar))?;
        self.write(instruction, scalar, result)
    }

    /// `bmsk`: a mask of `b` ones from bit `a` on.
    pub(super) fn mask_of_bits(&mut self, instruction: &Instruction) -> Lowered {
        let mut form = Form::of(instruction);
        let wrap = form.choice(&["clamp", "wrap"]) == Some("wrap");
        let scalar = form.scalar()?;
        form.finish()?;
        self.expect_operands(instruction, 3)?;
        let start = self.read(instruction, 1, scalar)?;
        let length = self.read(instruction, 2, scalar)?;
        let (start, length) = if wrap {
            (self.b.ins().band_imm_u(start, 31), self.b.ins().band_imm_u(length, 31))
        } else {
            // Of which `insert_field` takes the lowest byte.
            let limit = self.constant(types::I32, 64);
            (self.b.ins().umin(start, limit), self.b.ins().umin(length, limit))
        };
        let ones = self.constant(types::I64, -1);
        let zero = self.constant(types::I64, 0);
        let result = self.call_value(
            runtime::insert_field as *const () as usize,
            &[ones, zero, start, length],
            types::I64,
        );
        let result = self.b.ins().ireduce(types::I32, result);
        self.write(instruction, scalar, result)
    }

    /// `fns`: the position of the bit that is the n-th one set, counted from a base up or down.
    pub(super) fn find_nth_set(&mut self, instruction: &Instruction) -> Lowered {
        let mut form = Form::of(instruction);
        let scalar = form.scalar()?;
        form.finish()?;
        self.expect_operands(instruction, 4)?;
        let arguments = [
            self.read(instruction, 1, scalar)?,
            self.read(instruction, 2, Scalar::U32)?,
            self.read(instruction, 3, Scalar::S32)?,
        ];
        let found = self.call_value(runtime::find_nth_set as *const () as usize, &arguments, types::I32);
        self.write(instruction, Scalar::U32, found)
    }

    /// `bfind`: the position of the highest bit that differs from the sign.
    pub(super) fn find_bit(&mut self, instruction: &Instruction) -> Lowered {
        let mut form = Form::of(instruction);
        let amount = form.flag("shiftamt");
        let scalar = form.scalar()?;
        form.finish()?;
        self.expect_operands(instruction, 2)?;
        let ty = machine_type(scalar);
        let mut a = self.read(instruction, 1, scalar)?;
        if scalar.is_signed() {
            let sign = self.b.ins().sshr_imm_u(a, i64::from(ty.bits()) - 1);
            a = self.b.ins().bxor(a, sign);
        }
        let zeros = self.b.ins().clz(a);
        let zeros = self.narrow(zeros, types::I32)?;
        let found = if amount {
            zeros
        } else {
            let highest = self.constant(types::I32, i64::from(ty.bits()) - 1);
            self.b.ins().isub(highest, zeros)
        };
        let none = self.b.ins().icmp_imm_s(IntCC::Equal, a, 0);
        let ones = self.constant(types::I32, -1);
        let result = self.b.ins().select(none, ones, found);
        self.write(instruction, Scalar::U32, result)
    }

    /// `prmt`: four bytes picked from eight.
    pub(super) fn permute_bytes(&mut self, instruction: &Instruction) -> Lowered {
        let mut form = Form::of(instruction);
        let mode = form.choice(&["f4e", "b4e", "rc8", "ecl", "ecr", "rc16"]);
        let scalar = form.scalar()?;
        form.finish()?;
        self.expect_operands(instruction, 4)?;
        let a = self.read(instruction, 1, scalar)?;
        let b = self.read(instruction, 2, scalar)?;
        let result = match (self.operand(instruction, 3)?, mode) {
            (Operand::Integer(selector), None) => self.picked_bytes(a, b, *selector as u32),
            _ => {
                let selector = self.read(instruction, 3, scalar)?;
                let mode = match mode {
                    None => 0,
                    Some("f4e") => 1,
                    Some("b4e") => 2,
                    Some("rc8") => 3,
                    Some("ecl") => 4,
                    Some("ecr") => 5,
                    Some(_) => 6,
                };
                let mode = self.constant(types::I32, mode);
                let function = runtime::permute_bytes as *const () as usize;
                self.call_value(function, &[a, b, selector, mode], types::I32)
            }
        };
        self.write(instruction, scalar, result)
    }

    /// `cnot`: 1 for zero, 0 for anything else.
    pub(super) fn logical_not(&mut self, scalar: Scalar, a: Value) -> Value {
        let zero = self.b.ins().icmp_imm_s(IntCC::Equal, a, 0);
        match machine_type(scalar) {
            types::I8 => zero,
            ty => self.b.ins().uextend(ty, zero),
        }
    }

    /// `szext`: extends a number from bit `b` on, with its sign or with zeros.
    pub(super) fn extend_from_position(&mut self, instruction: &Instruction) -> Lowered {
        let mut form = Form::of(instruction);
        let wrap = form.choice(&["clamp", "wrap"]) == Some("wrap");
        let scalar = form.scalar()?;
        form.finish()?;
        self.expect_operands(instruction, 3)?;
        let a = self.read(instruction, 1, scalar)?;
        let length = self.read(instruction, 2, Scalar::U32)?;
        let length = if wrap {
            self.b.ins().band_imm_u(length, 31)
        } else {
            // Of which `extract_field` takes the lowest byte.
            let limit = self.constant(types::I32, 32);
            self.b.ins().umin(length, limit)
        };
        let wide = self.extend(scalar, a, types::I64);
        let start = self.constant(types::I32, 0);
        let width = self.constant(types::I32, 32);
        let signed = self.constant(types::I32, i64::from(scalar.is_signed()));
        let arguments = [wide, start, length, width, signed];
        let field = self.call_value(runtime::extract_field as *const () as usize, &arguments, types::I64);
        let field = self.b.ins().ireduce(types::I32, field);
        self.write(instruction, scalar, field)
    }

    fn picked_bytes(&mut self, a: Value, b: Value, selector: u32) -> Value {
        let both = self.concatenate(a, b);
        let mut result = self.constant(types::I64, 0);
        for byte in 0..4 {
            let pick = (selector >> (4 * byte)) & 15;
            // Move the byte to the top, then down to its place: with its sign when only that is wanted.
            let top = self.b.ins().ishl_imm_u(both, i64::from(56 - 8 * (pick & 7)));
            let value = if pick & 8 != 0 {
                self.b.ins().sshr_imm_u(top, 63)
            } else {
                self.b.ins().ushr_imm_u(top, 56)
            };
            let value = self.b.ins().band_imm_u(value, 0xff);
            let value = self.b.ins().ishl_imm_u(value, 8 * byte);
            result = self.b.ins().bor(result, value);
        }
        self.b.ins().ireduce(types::I32, result)
    }
}
