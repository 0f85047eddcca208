//! `cvt`: between all widths and kinds of numbers, pairs of 8-bit ones included, which registers of 16 bits hold.

use cranelift_codegen::ir::condcodes::FloatCC;
use cranelift_codegen::ir::{InstBuilder, Value, types};

use super::form::{Form, Rounding};
use super::registers::machine_type;
use super::{Lowered, Refusal, Translator, invalid, unsupported};
use crate::parse::syntax::{Instruction, Scalar};
use crate::run::eight_bits::{self, RELU};
use crate::run::rounding;

/// The modifiers of `cvt`.
struct Conversion {
    /// `.rni` and its kin: to an integral value.
    integral: Option<Rounding>,
    rounding: Rounding,
    ftz: bool,
    saturate: bool,
    relu: bool,
}

impl Translator<'_, '_> {
    pub(super) fn convert(&mut self, instruction: &Instruction) -> Lowered {
        if Self::converts_eight_bits(instruction) {
            return self.convert_eight_bits(instruction);
        }
        match instruction.modifiers.first().map(String::as_str) {
            Some("pack") => return self.convert_and_pack(instruction),
            _ if instruction.modifiers.iter().any(|modifier| modifier == "tf32") => {
                return self.convert_to_tf32(instruction);
            }
            _ => {}
        }
        let mut form = Form::of(instruction);
        let integral = form.choice(&["rni", "rzi", "rmi", "rpi"]).map(|name| match name {
            "rni" => Rounding::NearestEven,
            "rzi" => Rounding::Zero,
            "rmi" => Rounding::Down,
            _ => Rounding::Up,
        });
        let conversion = Conversion {
            integral,
            rounding: form.rounding(),
            ftz: form.flag("ftz"),
            saturate: form.flag("sat"),
            relu: form.flag("relu"),
        };
        let to = form.scalar()?;
        let from = form.scalar()?;
        form.finish()?;
        if matches!(to, Scalar::F16x2 | Scalar::Bf16x2) {
            return self.convert_pair(instruction, to, from, &conversion);
        }
        self.expect_operands(instruction, 2)?;
        let value = self.read(instruction, 1, from)?;
        let result = match (from.is_float(), to.is_float()) {
            (false, false) => self.integer_to_integer(from, to, value, conversion.saturate),
            (false, true) => self.integer_to_float(from, to, value, &conversion)?,
            (true, false) => self.float_to_integer(from, to, value, &conversion)?,
            (true, true) => self.float_to_float(from, to, value, &conversion)?,
        };
        self.write(instruction, to, result)
    }

    /// `cvt.rn.f16x2.f32 d, a, b`: `a` becomes the upper half.
    fn convert_pair(
        &mut self,
        instruction: &Instruction,
        to: Scalar,
        from: Scalar,
        how: &Conversion,
    ) -> Lowered {
        self.expect_operands(instruction, 3)?;
        if from != Scalar::F32 || how.integral.is_some() {
            return unsupported("packing anything but `.f32`");
        }
        let high = self.read(instruction, 1, from)?;
        let low = self.read(instruction, 2, from)?;
        let half = super::halves::half_of(to);
        let halves = [low, high].map(|value| {
            let value = self.limit(value, how.saturate, how.relu);
            self.round_to_half(half, value, how.rounding)
        });
        let pair = self.join_pair(halves);
        self.write(instruction, to, pair)
    }

    fn integer_to_integer(&mut self, from: Scalar, to: Scalar, value: Value, saturate: bool) -> Value {
        let ty = machine_type(to);
        if saturate {
            // Both ranges fit 65 bits: clamp as signed 64-bit numbers where possible, as unsigned ones
            // otherwise.
            let wide = self.extend(from, value, types::I64);
            let (lowest, highest) = limits(to);
            let clamped = if from == Scalar::U64 {
                let highest = self.constant(types::I64, highest as i64);
                self.b.ins().umin(wide, highest)
            } else {
                let lowest = self.constant(types::I64, lowest.max(i128::from(i64::MIN)) as i64);
                let highest = self.constant(types::I64, highest.min(i128::from(i64::MAX)) as i64);
                let raised = self.b.ins().smax(wide, lowest);
                self.b.ins().smin(raised, highest)
            };
            return if ty == types::I64 { clamped } else { self.b.ins().ireduce(ty, clamped) };
        }
        let from_ty = machine_type(from);
        if from_ty.bytes() > ty.bytes() {
            self.b.ins().ireduce(ty, value)
        } else {
            self.extend(from, value, ty)
        }
    }

    fn integer_to_float(
        &mut self,
        from: Scalar,
        to: Scalar,
        value: Value,
        how: &Conversion,
    ) -> Result<Value, Refusal> {
        let wide = if machine_type(from).bytes() < 4 { types::I32 } else { machine_type(from) };
        let integer = self.extend(from, value, wide);
        let exact_in_double = wide == types::I32;
        let (single, double) = (to == Scalar::F32, to == Scalar::F64);
        let is_nearest = how.rounding == Rounding::NearestEven;
        // Halves go through double precision if that holds the number, and `pack_half` rounds it once.
        let natively =
            if double { is_nearest || exact_in_double } else { is_nearest && (single || exact_in_double) };
        if natively {
            let ty = if single { types::F32 } else { types::F64 };
            let result = if from.is_signed() {
                self.b.ins().fcvt_from_sint(ty, integer)
            } else {
                self.b.ins().fcvt_from_uint(ty, integer)
            };
            let result = self.limit(result, how.saturate, false);
            return Ok(if single || double { result } else { self.pack_half(to, result) });
        }
        let mut integer = self.extend(from, integer, types::I64);
        if how.saturate {
            // Of integers, only 0 and 1 lie in the range.
            let (zero, one) = (self.constant(types::I64, 0), self.constant(types::I64, 1));
            if from.is_signed() {
                integer = self.b.ins().smax(integer, zero);
            }
            integer = self.b.ins().umin(integer, one);
        }
        let signed = self.constant(types::I32, i64::from(from.is_signed()));
        let mode = self.rounding_mode(how.rounding);
        if single || double {
            let (function, ty) = if single {
                (rounding::integer_to_single as *const () as usize, types::F32)
            } else {
                (rounding::integer_to_double as *const () as usize, types::F64)
            };
            return Ok(self.call_value(function, &[integer, signed, mode], ty));
        }
        let brain = self.constant(types::I32, i64::from(to == Scalar::Bf16));
        let function = rounding::integer_to_half as *const () as usize;
        let bits = self.call_value(function, &[integer, signed, brain, mode], types::I32);
        Ok(self.b.ins().ireduce(types::I16, bits))
    }

    fn float_to_integer(
        &mut self,
        from: Scalar,
        to: Scalar,
        value: Value,
        how: &Conversion,
    ) -> Result<Value, Refusal> {
        let Some(integral) = how.integral else { return invalid("a rounding to an integer is missing") };
        let value = match from {
            Scalar::F32 if how.ftz => self.flush(value),
            Scalar::F16 | Scalar::Bf16 => self.unpack_half(from, value),
            _ => value,
        };
        let rounded = self.round_to_integral(value, integral);
        let ty = machine_type(to);
        let wide = if ty.bytes() < 4 { types::I32 } else { ty };
        let result = if to.is_signed() {
            self.b.ins().fcvt_to_sint_sat(wide, rounded)
        } else {
            self.b.ins().fcvt_to_uint_sat(wide, rounded)
        };
        let result = if wide == ty {
            result
        } else {
            let (lowest, highest) = limits(to);
            let highest = self.constant(types::I32, highest as i64);
            let result = if to.is_signed() {
                let lowest = self.constant(types::I32, lowest as i64);
                let raised = self.b.ins().smax(result, lowest);
                self.b.ins().smin(raised, highest)
            } else {
                self.b.ins().umin(result, highest)
            };
            self.b.ins().ireduce(ty, result)
        };
        // NaN gives zero, but the highest bit alone where one of the types has 64 bits.
        if from != Scalar::F64 && to.size() != 8 {
            return Ok(result);
        }
        let not_a_number = self.b.ins().fcmp(FloatCC::Unordered, value, value);
        let highest_bit = self.constant(ty, i64::MIN >> (64 - to.size() * 8));
        Ok(self.b.ins().select(not_a_number, highest_bit, result))
    }

    fn round_to_integral(&mut self, value: Value, rounding: Rounding) -> Value {
        match rounding {
            Rounding::NearestEven => self.b.ins().nearest(value),
            Rounding::Zero => self.b.ins().trunc(value),
            Rounding::Down => self.b.ins().floor(value),
            Rounding::Up => self.b.ins().ceil(value),
        }
    }

    fn float_to_float(
        &mut self,
        from: Scalar,
        to: Scalar,
        value: Value,
        how: &Conversion,
    ) -> Result<Value, Refusal> {
        let mut value = match from {
            Scalar::F32 if how.ftz => self.flush(value),
            Scalar::F16 | Scalar::Bf16 => self.unpack_half(from, value),
            Scalar::F32 | Scalar::F64 => value,
            _ => return unsupported("converting packed halves"),
        };
        if let Some(integral) = how.integral {
            value = self.round_to_integral(value, integral);
        }
        let held = self.b.func.dfg.value_type(value);
        let directed = how.rounding != Rounding::NearestEven;
        let result = match to {
            Scalar::F64 if held == types::F32 => self.b.ins().fpromote(types::F64, value),
            Scalar::F32 if held == types::F64 && directed => {
                let mode = self.rounding_mode(how.rounding);
                self.call_value(rounding::double_to_single as *const () as usize, &[value, mode], types::F32)
            }
            Scalar::F32 if held == types::F64 => self.b.ins().fdemote(types::F32, value),
            Scalar::F32 | Scalar::F64 => value,
            Scalar::F16 | Scalar::Bf16 => {
                let limited = self.limit(value, how.saturate, how.relu);
                return Ok(self.round_to_half(to, limited, how.rounding));
            }
            _ => return unsupported("this rounding to this type"),
        };
        let result = self.limit(result, how.saturate, how.relu);
        Ok(if how.ftz && to == Scalar::F32 { self.flush(result) } else { result })
    }

    /// `cvt.rnd{.satfinite}{.relu}.tf32.f32`: single precision with 10 bits of fraction.
    fn convert_to_tf32(&mut self, instruction: &Instruction) -> Lowered {
        let mut form = Form::of(instruction);
        let Some(rounding) = form.choice(&["rna", "rn", "rz"]) else {
            return invalid("the rounding is missing");
        };
        let (saturates, relu) = (form.flag("satfinite"), form.flag("relu"));
        if !form.flag("tf32") || form.scalar()? != Scalar::F32 {
            return unsupported("conversions of `.tf32` other than from `.f32`");
        }
        form.finish()?;
        self.expect_operands(instruction, 2)?;
        let value = self.read(instruction, 1, Scalar::F32)?;
        let bits = self.bits_of(value);
        let sign = self.b.ins().band_imm_u(bits, 0x8000_0000);
        let magnitude = self.b.ins().band_imm_u(bits, 0x7fff_ffff);
        let raised = match rounding {
            // Ties go away from zero.
            "rna" => self.b.ins().iadd_imm_s(magnitude, 0x1000),
            "rn" => {
                let odd = self.b.ins().ushr_imm_u(magnitude, 13);
                let odd = self.b.ins().band_imm_u(odd, 1);
                let raised = self.b.ins().iadd_imm_s(magnitude, 0xfff);
                self.b.ins().iadd(raised, odd)
            }
            _ => magnitude,
        };
        let mut rounded = self.b.ins().band_imm_u(raised, 0x7fff_e000);
        if saturates {
            let max_tf32 = self.constant(types::I32, 0x7f7f_e000);
            rounded = self.b.ins().umin(rounded, max_tf32);
        }
        let mut result = self.b.ins().bor(rounded, sign);
        if relu {
            let zero = self.constant(types::I32, 0);
            result = self.b.ins().select(sign, zero, result);
        }
        let not_a_number = self.b.ins().fcmp(FloatCC::Unordered, value, value);
        let canonical = self.constant(types::I32, 0x7fff_ffff);
        let result = self.b.ins().select(not_a_number, canonical, result);
        self.write(instruction, Scalar::B32, result)
    }

    /// `cvt.pack.sat.type.s32{.b32} d, a, b{, c}`: two integers saturated and packed, `b` into the lowest
    /// bits, with bits of `c` above.
    fn convert_and_pack(&mut self, instruction: &Instruction) -> Lowered {
        let mut form = Form::of(instruction);
        let has_saturation = form.flag("pack") && form.flag("sat");
        let types = ["u2", "s2", "u4", "s4", "u8", "s8", "u16", "s16"];
        let Some(name) = form.choice(&types) else { return invalid("the packed type is missing") };
        let from = form.scalar()?;
        let has_rest = form.flag("b32");
        form.finish()?;
        if !has_saturation || from != Scalar::S32 {
            return invalid("`cvt.pack` is `.sat` and of `.s32`");
        }
        self.expect_operands(instruction, if has_rest { 4 } else { 3 })?;
        let bits: u32 = name[1..].parse().unwrap_or(16);
        let (lowest, highest) = if name.starts_with('s') {
            (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
        } else {
            (0, (1 << bits) - 1)
        };
        let (lowest, highest) = (self.constant(types::I32, lowest), self.constant(types::I32, highest));
        let mut packed = match has_rest {
            true => {
                let rest = self.read(instruction, 3, Scalar::B32)?;
                if bits == 16 {
                    self.constant(types::I32, 0)
                } else {
                    self.b.ins().ishl_imm_u(rest, i64::from(2 * bits))
                }
            }
            false => self.constant(types::I32, 0),
        };
        for (operand, shift) in [(1, bits), (2, 0)] {
            let value = self.read(instruction, operand, Scalar::S32)?;
            let value = self.b.ins().smax(value, lowest);
            let value = self.b.ins().smin(value, highest);
            let value = self.b.ins().band_imm_u(value, (1 << bits) - 1);
            let value = self.b.ins().ishl_imm_u(value, i64::from(shift));
            packed = self.b.ins().bor(packed, value);
        }
        self.write(instruction, Scalar::B32, packed)
    }

    /// A number as the half that its rounding gives.
    fn round_to_half(&mut self, to: Scalar, value: Value, rounding: Rounding) -> Value {
        if rounding == Rounding::NearestEven {
            return self.pack_half(to, value);
        }
        let is_single = self.b.func.dfg.value_type(value) == types::F32;
        let value = if is_single { self.b.ins().fpromote(types::F64, value) } else { value };
        let brain = self.constant(types::I32, i64::from(to == Scalar::Bf16));
        let mode = self.rounding_mode(rounding);
        let function = rounding::double_to_half as *const () as usize;
        let bits = self.call_value(function, &[value, brain, mode], types::I32);
        self.b.ins().ireduce(types::I16, bits)
    }
}

/// The smallest and greatest number of an integer type.
fn limits(scalar: Scalar) -> (i128, i128) {
    let bits = scalar.size() * 8;
    if scalar.is_signed() { (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) } else { (0, (1 << bits) - 1) }
}

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
