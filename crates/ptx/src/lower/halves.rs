//! Halves (`.f16` and `.bf16`) and pairs of them: to single precision and back.

use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{InstBuilder, MemFlagsData, Value, types};

use super::Translator;
use crate::parse::syntax::Scalar;
use crate::run::functions as runtime;

impl Translator<'_, '_> {
    /// A half (`.f16` or `.bf16`) as single precision; always exact.
    pub(super) fn unpack_half(&mut self, scalar: Scalar, half: Value) -> Value {
        let bits = self.b.ins().uextend(types::I32, half);
        if scalar == Scalar::Bf16 {
            let bits = self.b.ins().ishl_imm_u(bits, 16);
            return self.from_bits(bits, types::F32);
        }
        // Put exponent and fraction where single precision has them and correct the exponent's bias (112) by
        // a multiplication, which also normalises subnormal numbers. Infinities and NaNs get their exponent
        // by hand.
        let magnitude = self.b.ins().band_imm_u(bits, 0x7fff);
        let raised = self.b.ins().ishl_imm_u(magnitude, 13);
        let unbiased = self.from_bits(raised, types::F32);
        let scale = self.single(2_f32.powi(112).to_bits());
        let scaled = self.b.ins().fmul(unbiased, scale);
        let scaled = self.b.ins().bitcast(types::I32, MemFlagsData::new(), scaled);
        let special = self.b.ins().icmp_imm_s(IntCC::UnsignedGreaterThanOrEqual, magnitude, 0x7c00);
        let with_exponent = self.b.ins().bor_imm_u(raised, 0x7f80_0000);
        let value = self.b.ins().select(special, with_exponent, scaled);
        let sign = self.b.ins().band_imm_u(bits, 0x8000);
        let sign = self.b.ins().ishl_imm_u(sign, 16);
        let value = self.b.ins().bor(value, sign);
        self.from_bits(value, types::F32)
    }

    /// A single- or double-precision number rounded to the nearest half.
    pub(super) fn pack_half(&mut self, scalar: Scalar, value: Value) -> Value {
        let value = match self.b.func.dfg.value_type(value) {
            types::F64 => {
                // To odd first, so that rounding twice gives what rounding once would.
                self.call_value(runtime::double_to_single_odd as *const () as usize, &[value], types::F32)
            }
            _ => value,
        };
        if scalar == Scalar::F16 {
            let bits = self.call_value(runtime::single_to_half as *const () as usize, &[value], types::I32);
            return self.b.ins().ireduce(types::I16, bits);
        }
        let bits = self.bits_of(value);
        let odd = self.b.ins().ushr_imm_u(bits, 16);
        let odd = self.b.ins().band_imm_u(odd, 1);
        let rounded = self.b.ins().iadd_imm_s(bits, 0x7fff);
        let rounded = self.b.ins().iadd(rounded, odd);
        let rounded = self.b.ins().ushr_imm_u(rounded, 16);
        let not_a_number = self.b.ins().fcmp(FloatCC::Unordered, value, value);
        let canonical = self.constant(types::I32, 0x7fff);
        let result = self.b.ins().select(not_a_number, canonical, rounded);
        self.b.ins().ireduce(types::I16, result)
    }

    /// The low and the high half of a packed pair.
    pub(super) fn split_pair(&mut self, pair: Value) -> [Value; 2] {
        let low = self.b.ins().ireduce(types::I16, pair);
        let high = self.b.ins().ushr_imm_u(pair, 16);
        [low, self.b.ins().ireduce(types::I16, high)]
    }

    /// Packs a pair of halves.
    pub(super) fn join_pair(&mut self, [low, high]: [Value; 2]) -> Value {
        let low = self.b.ins().uextend(types::I32, low);
        let high = self.b.ins().uextend(types::I32, high);
        let high = self.b.ins().ishl_imm_u(high, 16);
        self.b.ins().bor(low, high)
    }
}

/// The type of one of the two halves.
pub(super) fn half_of(scalar: Scalar) -> Scalar {
    match scalar {
        Scalar::F16x2 => Scalar::F16,
        Scalar::Bf16x2 => Scalar::Bf16,
        other => other,
    }
}
