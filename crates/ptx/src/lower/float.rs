//! Floating-point arithmetic. 16-bit numbers are computed in single precision, which rounds the same way after
//! one operation.

use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{InstBuilder, Value, types};

use super::form::{Form, Rounding};
use super::halves::half_of;
use super::{Lowered, Refusal, Translator, invalid, unsupported};
use crate::parse::syntax::{Instruction, Scalar};
use crate::run::rounding;

/// An operation on numbers of one type; all operands have it.
pub(super) type FloatOperation = fn(&mut Translator<'_, '_>, &[Value]) -> Value;

/// An operation whose result depends on the rounding, with what computes it when that is not to nearest.
#[derive(Clone, Copy)]
pub(super) struct Rounded {
    pub(super) nearest: FloatOperation,
    /// `fn(operands.., mode) -> result` for single and for double precision.
    pub(super) directed: [usize; 2],
}

impl Rounded {
    /// With the functions for single and for double precision.
    fn new(nearest: FloatOperation, [single, double]: [*const (); 2]) -> Self {
        Self { nearest, directed: [single as usize, double as usize] }
    }
}

pub(super) fn addition() -> Rounded {
    Rounded::new(
        |t, v| t.b.ins().fadd(v[0], v[1]),
        [rounding::add_single as *const (), rounding::add_double as *const ()],
    )
}

pub(super) fn subtraction() -> Rounded {
    Rounded::new(
        |t, v| t.b.ins().fsub(v[0], v[1]),
        [rounding::subtract_single as *const (), rounding::subtract_double as *const ()],
    )
}

pub(super) fn multiplication() -> Rounded {
    Rounded::new(
        |t, v| t.b.ins().fmul(v[0], v[1]),
        [rounding::multiply_single as *const (), rounding::multiply_double as *const ()],
    )
}

pub(super) fn division() -> Rounded {
    Rounded::new(
        |t, v| t.b.ins().fdiv(v[0], v[1]),
        [rounding::divide_single as *const (), rounding::divide_double as *const ()],
    )
}

/// `div.approx`, which multiplies by a reciprocal: for the greatest divisors that is flushed to zero.
pub(super) fn approximate_division() -> Rounded {
    Rounded {
        nearest: |t, v| {
            let quotient = t.b.ins().fdiv(v[0], v[1]);
            if t.b.func.dfg.value_type(v[1]) != types::F32 {
                return quotient;
            }
            let magnitude = t.b.ins().fabs(v[1]);
            let (great, infinity) = (t.single(0x7e80_0000), t.single(0x7f80_0000));
            let is_great = t.b.ins().fcmp(FloatCC::GreaterThan, magnitude, great);
            let is_finite = t.b.ins().fcmp(FloatCC::LessThan, magnitude, infinity);
            let zero = t.single(0);
            let zero = t.b.ins().fcopysign(zero, v[1]);
            let product = t.b.ins().fmul(v[0], zero);
            let applies = t.b.ins().band(is_great, is_finite);
            t.b.ins().select(applies, product, quotient)
        },
        directed: [0; 2],
    }
}

pub(super) fn fused() -> Rounded {
    Rounded::new(
        |t, v| t.b.ins().fma(v[0], v[1], v[2]),
        [rounding::fused_single as *const (), rounding::fused_double as *const ()],
    )
}

pub(super) fn square_root() -> Rounded {
    Rounded::new(
        |t, v| t.b.ins().sqrt(v[0]),
        [rounding::root_single as *const (), rounding::root_double as *const ()],
    )
}

pub(super) fn reciprocal() -> Rounded {
    Rounded::new(
        |t, v| {
            let one = t.one_like(v[0]);
            t.b.ins().fdiv(one, v[0])
        },
        [rounding::reciprocal_single as *const (), rounding::reciprocal_double as *const ()],
    )
}

/// The modifiers that change a floating-point result.
struct Options {
    rounding: Rounding,
    ftz: bool,
    saturate: bool,
    relu: bool,
    /// `.approx`: allows any result close to the exact one, and in double precision gives its upper half
    /// alone.
    approx: bool,
}

impl Translator<'_, '_> {
    pub(super) fn one_like(&mut self, value: Value) -> Value {
        if self.b.func.dfg.value_type(value) == types::F32 {
            self.single(1_f32.to_bits())
        } else {
            self.double(1_f64.to_bits())
        }
    }

    fn zero_like(&mut self, value: Value) -> Value {
        if self.b.func.dfg.value_type(value) == types::F32 { self.single(0) } else { self.double(0) }
    }

    /// `op[.rnd][.ftz][.sat][.relu].type d, a, ...` with `arity` operands.
    pub(super) fn float_rounded(
        &mut self,
        instruction: &Instruction,
        arity: usize,
        operation: Rounded,
    ) -> Lowered {
        let mut form = Form::of(instruction);
        // `.approx` and `.full` allow any result close to the exact one: the nearest is among them.
        form.ignore(&["full"]);
        let options = Options {
            rounding: form.rounding(),
            ftz: form.flag("ftz"),
            saturate: form.flag("sat"),
            relu: form.flag("relu"),
            approx: form.flag("approx"),
        };
        let scalar = form.scalar()?;
        let factors = if scalar == Scalar::F32 && ["add", "sub", "fma"].contains(&instruction.opcode.as_str())
        {
            form.choice(&["f16", "bf16"]).and_then(Scalar::named)
        } else {
            None
        };
        form.finish()?;
        self.expect_operands(instruction, arity + 1)?;
        match factors {
            Some(factors) => self.float_mixed(instruction, factors, &options, operation),
            None => self.float_operation(instruction, scalar, &options, operation),
        }
    }

    /// `op[.rnd][.sat].f32.half d, a, ..., c`: all operands but the last are of half precision.
    fn float_mixed(
        &mut self,
        instruction: &Instruction,
        half: Scalar,
        options: &Options,
        operation: Rounded,
    ) -> Lowered {
        let last = instruction.operands.len() - 1;
        let mut operands = Vec::new();
        for index in 1..last {
            let operand = self.read(instruction, index, half)?;
            operands.push(self.unpack_half(half, operand));
        }
        operands.push(self.read(instruction, last, Scalar::F32)?);
        let result = self.float_scalar(&operands, Scalar::F32, options, operation)?;
        self.write(instruction, Scalar::F32, result)
    }

    /// `op[.ftz].type d, a, ...` without a rounding.
    pub(super) fn float_plain(
        &mut self,
        instruction: &Instruction,
        arity: usize,
        operation: FloatOperation,
    ) -> Lowered {
        let mut form = Form::of(instruction);
        let options = Options {
            rounding: Rounding::NearestEven,
            ftz: form.flag("ftz"),
            saturate: false,
            relu: false,
            approx: form.flag("approx"),
        };
        let scalar = form.scalar()?;
        form.finish()?;
        self.expect_operands(instruction, arity + 1)?;
        self.float_operation(instruction, scalar, &options, Rounded { nearest: operation, directed: [0; 2] })
    }

    /// An operation computed by a function of the runtime, given for single and double precision.
    pub(super) fn float_function(
        &mut self,
        instruction: &Instruction,
        single: usize,
        double: usize,
    ) -> Lowered {
        let mut form = Form::of(instruction);
        form.ignore(&["approx"]);
        let ftz = form.flag("ftz");
        let scalar = form.scalar()?;
        form.finish()?;
        self.expect_operands(instruction, 2)?;
        let operand = self.read(instruction, 1, scalar)?;
        let result = match scalar {
            Scalar::F32 => {
                let operand = if ftz { self.flush(operand) } else { operand };
                let result = self.call_value(single, &[operand], types::F32);
                if ftz { self.flush(result) } else { result }
            }
            Scalar::F64 if double != 0 => self.call_value(double, &[operand], types::F64),
            Scalar::F16 | Scalar::Bf16 => self.half_function(scalar, operand, single, ftz),
            Scalar::F16x2 | Scalar::Bf16x2 => {
                let half = half_of(scalar);
                let results =
                    self.split_pair(operand).map(|lane| self.half_function(half, lane, single, ftz));
                self.join_pair(results)
            }
            _ => return unsupported("this type"),
        };
        self.write(instruction, scalar, result)
    }

    /// A function of the runtime for single precision, of a half.
    fn half_function(&mut self, scalar: Scalar, half: Value, single: usize, ftz: bool) -> Value {
        let half = if ftz { self.flush_half(scalar, half) } else { half };
        let operand = self.unpack_half(scalar, half);
        let result = self.call_value(single, &[operand], types::F32);
        let result = self.pack_half(scalar, result);
        if ftz { self.flush_half(scalar, result) } else { result }
    }

    fn float_operation(
        &mut self,
        instruction: &Instruction,
        scalar: Scalar,
        options: &Options,
        operation: Rounded,
    ) -> Lowered {
        let operands: Vec<Value> = (1..instruction.operands.len())
            .map(|index| self.read(instruction, index, scalar))
            .collect::<Result<_, Refusal>>()?;
        let result = match scalar {
            Scalar::F32 | Scalar::F64 => self.float_scalar(&operands, scalar, options, operation)?,
            Scalar::F16 | Scalar::Bf16 => self.float_half(&operands, scalar, options, operation)?,
            Scalar::F16x2 | Scalar::Bf16x2 => {
                let half = half_of(scalar);
                let pairs: Vec<[Value; 2]> = operands.iter().map(|&pair| self.split_pair(pair)).collect();
                let mut lanes = [operands[0]; 2];
                for (index, lane) in lanes.iter_mut().enumerate() {
                    let operands: Vec<Value> = pairs.iter().map(|pair| pair[index]).collect();
                    *lane = self.float_half(&operands, half, options, operation)?;
                }
                self.join_pair(lanes)
            }
            Scalar::F32x2 => {
                let pairs: Vec<[Value; 2]> = operands.iter().map(|&pair| self.split_singles(pair)).collect();
                let mut lanes = [operands[0]; 2];
                for (index, lane) in lanes.iter_mut().enumerate() {
                    let operands: Vec<Value> = pairs.iter().map(|pair| pair[index]).collect();
                    *lane = self.float_scalar(&operands, Scalar::F32, options, operation)?;
                }
                self.join_singles(lanes)
            }
            _ => return unsupported("this type"),
        };
        self.write(instruction, scalar, result)
    }

    /// The low and the high number of a packed pair.
    fn split_singles(&mut self, pair: Value) -> [Value; 2] {
        let high = self.b.ins().ushr_imm_u(pair, 32);
        [pair, high].map(|bits| {
            let bits = self.b.ins().ireduce(types::I32, bits);
            self.from_bits(bits, types::F32)
        })
    }

    /// Packs a pair of numbers.
    fn join_singles(&mut self, singles: [Value; 2]) -> Value {
        let [low, high] = singles.map(|single| {
            let bits = self.bits_of(single);
            self.b.ins().uextend(types::I64, bits)
        });
        let high = self.b.ins().ishl_imm_u(high, 32);
        self.b.ins().bor(low, high)
    }

    fn float_scalar(
        &mut self,
        operands: &[Value],
        scalar: Scalar,
        options: &Options,
        operation: Rounded,
    ) -> Result<Value, Refusal> {
        let ftz = options.ftz && scalar == Scalar::F32;
        // `rcp` and `rsqrt` with `.approx.ftz.f64`.
        let coarse = options.ftz && options.approx && scalar == Scalar::F64;
        let mut operands = operands.to_vec();
        if ftz {
            operands.iter_mut().for_each(|operand| *operand = self.flush(*operand));
        }
        if coarse {
            operands.iter_mut().for_each(|operand| *operand = self.upper_half(*operand));
        }
        let mut result = if options.rounding == Rounding::NearestEven {
            (operation.nearest)(self, &operands)
        } else {
            let function = operation.directed[usize::from(scalar == Scalar::F64)];
            if function == 0 {
                return unsupported("a rounding other than `.rn`");
            }
            let mode = self.rounding_mode(options.rounding);
            operands.push(mode);
            let ty = self.b.func.dfg.value_type(operands[0]);
            self.call_value(function, &operands, ty)
        };
        if ftz {
            result = self.flush(result);
        }
        if coarse {
            result = self.upper_half(result);
        }
        Ok(self.limit(result, options.saturate, options.relu))
    }

    fn float_half(
        &mut self,
        operands: &[Value],
        scalar: Scalar,
        options: &Options,
        operation: Rounded,
    ) -> Result<Value, Refusal> {
        if options.rounding != Rounding::NearestEven {
            return unsupported("halves with a rounding other than `.rn`");
        }
        // A product of halves is exact in double precision.
        let fused = operands.len() == 3;
        let operands: Vec<Value> = operands
            .iter()
            .map(|&operand| {
                let operand = if options.ftz { self.flush_half(scalar, operand) } else { operand };
                let operand = self.unpack_half(scalar, operand);
                if fused { self.b.ins().fpromote(types::F64, operand) } else { operand }
            })
            .collect();
        // The sum of product and term has more bits than double precision where they are far apart.
        let result = if fused && operation.directed[0] != 0 {
            self.call_value(rounding::fused_odd as *const () as usize, &operands, types::F64)
        } else {
            (operation.nearest)(self, &operands)
        };
        let result = self.limit(result, options.saturate, options.relu);
        let result = self.pack_half(scalar, result);
        Ok(if options.ftz { self.flush_half(scalar, result) } else { result })
    }

    /// The number that the runtime's rounding functions take for a rounding.
    pub(super) fn rounding_mode(&mut self, rounding: Rounding) -> Value {
        let mode = match rounding {
            Rounding::NearestEven => rounding::NEAREST,
            Rounding::Zero => rounding::ZERO,
            Rounding::Down => rounding::DOWN,
            Rounding::Up => rounding::UP,
        };
        self.constant(types::I32, i64::from(mode))
    }

    /// Limits a result: `.sat` to [0, 1] with NaN giving 0, `.relu` to at minimum 0 with NaN kept.
    pub(super) fn limit(&mut self, value: Value, saturate: bool, relu: bool) -> Value {
        if saturate {
            let (zero, one) = (self.zero_like(value), self.one_like(value));
            let positive = self.b.ins().fcmp(FloatCC::GreaterThan, value, zero);
            let value = self.b.ins().select(positive, value, zero);
            let small = self.b.ins().fcmp(FloatCC::LessThan, value, one);
            return self.b.ins().select(small, value, one);
        }
        if relu {
            let zero = self.zero_like(value);
            let negative = self.b.ins().fcmp(FloatCC::LessThanOrEqual, value, zero);
            return self.b.ins().select(negative, zero, value);
        }
        value
    }

    /// Replaces a subnormal single-precision number by zero with its sign.
    pub(super) fn flush(&mut self, value: Value) -> Value {
        let bits = self.bits_of(value);
        let exponent = self.b.ins().band_imm_u(bits, 0x7f80_0000);
        let small = self.b.ins().icmp_imm_s(IntCC::Equal, exponent, 0);
        let sign = self.b.ins().band_imm_u(bits, 0x8000_0000);
        let flushed = self.b.ins().select(small, sign, bits);
        self.from_bits(flushed, types::F32)
    }

    /// A double-precision number with the lower half of its bits cleared, a subnormal one all but its sign.
    fn upper_half(&mut self, value: Value) -> Value {
        let bits = self.bits_of(value);
        let exponent = self.b.ins().band_imm_u(bits, 0x7ff0_0000_0000_0000);
        let small = self.b.ins().icmp_imm_s(IntCC::Equal, exponent, 0);
        let sign = self.b.ins().band_imm_u(bits, i64::MIN);
        let upper = self.b.ins().band_imm_u(bits, 0xffff_ffff_0000_0000_u64.cast_signed());
        let flushed = self.b.ins().select(small, sign, upper);
        self.from_bits(flushed, types::F64)
    }

    /// Replaces a subnormal half by zero with its sign.
    pub(super) fn flush_half(&mut self, scalar: Scalar, half: Value) -> Value {
        let exponent = self.b.ins().band_imm_u(half, if scalar == Scalar::Bf16 { 0x7f80 } else { 0x7c00 });
        let small = self.b.ins().icmp_imm_s(IntCC::Equal, exponent, 0);
        let sign = self.b.ins().band_imm_u(half, 0x8000);
        self.b.ins().select(small, sign, half)
    }

    /// `min` and `max`: a NaN loses against a number, unless `.NaN` asks that it wins.
    pub(super) fn extremum(&mut self, instruction: &Instruction, maximum: bool) -> Lowered {
        let mut form = Form::of(instruction);
        let ftz = form.flag("ftz");
        let keep_nan = form.flag("NaN");
        let relu = form.flag("relu");
        let xors_signs = form.flag("xorsign");
        if xors_signs != form.flag("abs") {
            return invalid("`.xorsign` and `.abs` belong together");
        }
        let scalar = form.scalar()?;
        form.finish()?;
        if !scalar.is_float() {
            if xors_signs {
                return invalid("integers have no `.xorsign`");
            }
            self.expect_operands(instruction, 3)?;
            let a = self.read(instruction, 1, scalar)?;
            let b = self.read(instruction, 2, scalar)?;
            let result = self.integer_extremum(scalar, maximum, a, b);
            let result = if relu && scalar == Scalar::S16x2 {
                let zero = self.constant(types::I32, 0);
                self.integer_extremum(scalar, true, result, zero)
            } else if relu {
                let zero = self.constant(super::registers::machine_type(scalar), 0);
                self.b.ins().smax(result, zero)
            } else {
                result
            };
            return self.write(instruction, scalar, result);
        }
        if !matches!(instruction.operands.len(), 3 | 4) {
            return invalid("it has neither two nor three operands");
        }
        let options = Options { rounding: Rounding::NearestEven, ftz, saturate: false, relu, approx: false };
        let nearest: FloatOperation = match (maximum, keep_nan) {
            (false, false) if xors_signs => {
                |t, v| t.signed_extremum(v, |t, a, b| t.lesser_number(a, b, false))
            }
            (true, false) if xors_signs => |t, v| t.signed_extremum(v, |t, a, b| t.lesser_number(a, b, true)),
            (false, true) if xors_signs => |t, v| t.signed_extremum(v, |t, a, b| t.b.ins().fmin(a, b)),
            (true, true) if xors_signs => |t, v| t.signed_extremum(v, |t, a, b| t.b.ins().fmax(a, b)),
            (false, false) => |t, v| v[1..].iter().fold(v[0], |a, &b| t.lesser_number(a, b, false)),
            (true, false) => |t, v| v[1..].iter().fold(v[0], |a, &b| t.lesser_number(a, b, true)),
            (false, true) => |t, v| {
                let minimum = v[1..].iter().fold(v[0], |a, &b| t.b.ins().fmin(a, b));
                t.canonical(minimum)
            },
            (true, true) => |t, v| {
                let maximum = v[1..].iter().fold(v[0], |a, &b| t.b.ins().fmax(a, b));
                t.canonical(maximum)
            },
        };
        self.float_operation(instruction, scalar, &options, Rounded { nearest, directed: [0; 2] })
    }

    /// The smaller or greater magnitude of numbers, with the product of their signs.
    fn signed_extremum(&mut self, values: &[Value], choose: fn(&mut Self, Value, Value) -> Value) -> Value {
        let ty = self.b.func.dfg.value_type(values[0]);
        let mut sign = self.bits_of(values[0]);
        let mut chosen = self.b.ins().fabs(values[0]);
        for &value in &values[1..] {
            let bits = self.bits_of(value);
            sign = self.b.ins().bxor(sign, bits);
            let magnitude = self.b.ins().fabs(value);
            chosen = choose(self, chosen, magnitude);
        }
        let sign = self.from_bits(sign, ty);
        let signed = self.b.ins().fcopysign(chosen, sign);
        self.canonical(signed)
    }

    pub(super) fn integer_extremum(&mut self, scalar: Scalar, maximum: bool, a: Value, b: Value) -> Value {
        if matches!(scalar, Scalar::U16x2 | Scalar::S16x2) {
            let lane_scalar = if scalar == Scalar::S16x2 { Scalar::S16 } else { Scalar::U16 };
            let (a, b) = (self.split_pair(a), self.split_pair(b));
            let lanes = [0, 1].map(|lane| self.integer_extremum(lane_scalar, maximum, a[lane], b[lane]));
            return self.join_pair(lanes);
        }
        match (scalar.is_signed(), maximum) {
            (true, false) => self.b.ins().smin(a, b),
            (true, true) => self.b.ins().smax(a, b),
            (false, false) => self.b.ins().umin(a, b),
            (false, true) => self.b.ins().umax(a, b),
        }
    }

    /// The smaller (or greater) of two numbers; a number if only one is.
    pub(super) fn lesser_number(&mut self, a: Value, b: Value, greater: bool) -> Value {
        let chosen = if greater { self.b.ins().fmax(a, b) } else { self.b.ins().fmin(a, b) };
        let a_is_nan = self.b.ins().fcmp(FloatCC::Unordered, a, a);
        let b_is_nan = self.b.ins().fcmp(FloatCC::Unordered, b, b);
        let chosen = self.b.ins().select(b_is_nan, a, chosen);
        let chosen = self.b.ins().select(a_is_nan, b, chosen);
        self.canonical(chosen)
    }

    /// In single precision, any NaN as the one that GPUs make.
    fn canonical(&mut self, value: Value) -> Value {
        if self.b.func.dfg.value_type(value) != types::F32 {
            return value;
        }
        let not_a_number = self.b.ins().fcmp(FloatCC::Unordered, value, value);
        let canonical = self.single(0x7fff_ffff);
        self.b.ins().select(not_a_number, canonical, value)
    }
}
