//! `cvt`: between all widths and kinds of numbers, pairs of 8-bit ones included, which registers of 16 bits hold.

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
        if from != Scalar::F32 || how.rounding != Rounding::NearestEven || how.integral.is_some() {
            return unsupported("packing anything but `.rn` and `.f32`");
        }
        let high = self.read(instruction, 1, from)?;
        let low = self.read(instruction, 2, from)?;
        let half = super::float::half_of(to);
        let halves = [low, high].map(|value| {
            let value = self.limit(value, how.saturate, how.relu);
            self.pack_half(half, value)
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
        let directed = how.rounding != Rounding::NearestEven && !(double && exact_in_double);
        if directed {
            if !single && !double {
                return unsupported("a rounding other than `.rn` to a half");
            }
            let integer = self.extend(from, integer, types::I64);
            let signed = self.constant(types::I32, i64::from(from.is_signed()));
            let mode = self.rounding_mode(how.rounding);
            let (function, ty) = if single {
                (rounding::integer_to_single as *const () as usize, types::F32)
            } else {
                (rounding::integer_to_double as *const () as usize, types::F64)
            };
            return Ok(self.call_value(function, &[integer, signed, mode], ty));
        }
        // Halves go through double precision, which `pack_half` rounds once.
        let ty = if single { types::F32 } else { types::F64 };
        let result = if from.is_signed() {
            self.b.ins().fcvt_from_sint(ty, integer)
        } else {
            self.b.ins().fcvt_from_uint(ty, integer)
        };
        let result = self.limit(result, how.saturate, false);
        Ok(if single || double { result } else { self.pack_half(to, result) })
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
        if wide == ty {
            return Ok(result);
        }
        let (lowest, highest) = limits(to);
        let highest = self.constant(types::I32, highest as i64);
        let result = if to.is_signed() {
            let lowest = self.constant(types::I32, lowest as i64);
            let raised = self.b.ins().smax(result, lowest);
            self.b.ins().smin(raised, highest)
        } else {
            self.b.ins().umin(result, highest)
        };
        Ok(self.b.ins().ireduce(ty, result))
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
            Scalar::F16 | Scalar::Bf16 if how.rounding == Rounding::Zero => {
                let limited = self.limit(value, how.saturate, how.relu);
                return self.truncate_to_half(to, limited);
            }
            Scalar::F16 | Scalar::Bf16 if !directed => {
                let limited = self.limit(value, how.saturate, how.relu);
                return Ok(self.pack_half(to, limited));
            }
            _ => return unsupported("this rounding to this type"),
        };
        let result = self.limit(result, how.saturate, how.relu);
        Ok(if how.ftz && to == Scalar::F32 { self.flush(result) } else { result })
    }

    fn truncate_to_half(&mut self, to: Scalar, value: Value) -> Result<Value, Refusal> {
        if self.b.func.dfg.value_type(value) != types::F32 {
            return unsupported("`.rz` from `.f64` to a half");
        }
        let function = crate::run::functions::truncate_to_half as *const () as usize;
        let brain = self.constant(types::I32, i64::from(to == Scalar::Bf16));
        let bits = self.call_value(function, &[value, brain], types::I32);
        Ok(self.b.ins().ireduce(types::I16, bits))
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
