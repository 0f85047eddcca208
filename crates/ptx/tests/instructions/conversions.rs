//! Conversions between numbers of all types: rounding, saturation, and what not a number becomes.

use crate::evaluate::{check, d, f, i};

#[test]
fn conversions_saturate_and_round() {
    check(&[
        ("cvt.rzi.s32.f32 %r9, %f1;", "%r9", [f(1e10), 0, 0], 0x7fff_ffff),
        ("cvt.rzi.s32.f32 %r9, %f1;", "%r9", [f(-1e10), 0, 0], 0x8000_0000),
        ("cvt.rzi.s32.f32 %r9, %f1;", "%r9", [f(f32::NAN), 0, 0], 0),
        ("cvt.rzi.u32.f32 %r9, %f1;", "%r9", [f(-1.0), 0, 0], 0),
        ("cvt.rzi.u64.f64 %rd9, %fd1;", "%rd9", [d(1e30), 0, 0], u64::MAX),
        ("cvt.rni.s32.f32 %r9, %f1;", "%r9", [f(2.5), 0, 0], 2),
        ("cvt.rmi.s32.f32 %r9, %f1;", "%r9", [f(-2.5), 0, 0], i(-3)),
        ("cvt.rpi.s32.f32 %r9, %f1;", "%r9", [f(-2.5), 0, 0], i(-2)),
        ("cvt.rzi.s16.f32 %rs9, %f1;", "%rs9", [f(1e6), 0, 0], 0x7fff),
        ("cvt.rzi.u8.f32 %rs9, %f1;", "%rs9", [f(300.0), 0, 0], 255),
        ("cvt.rzi.f32.f32 %f9, %f1;", "%f9", [f(-2.7), 0, 0], f(-2.0)),
        ("cvt.rn.f32.s32 %f9, %r1;", "%f9", [i(-16_777_217), 0, 0], f(-16_777_216.0)),
        ("cvt.rp.f32.s32 %f9, %r1;", "%f9", [16_777_217, 0, 0], f(16_777_218.0)),
        ("cvt.rn.f32.u64 %f9, %rd1;", "%f9", [u64::MAX, 0, 0], f(18_446_744_073_709_551_615.0)),
        ("cvt.rn.f64.u32 %fd9, %r1;", "%fd9", [0xffff_ffff, 0, 0], d(4_294_967_295.0)),
        ("cvt.rz.f32.f64 %f9, %fd1;", "%f9", [d(1.0 - 1e-12), 0, 0], f(1_f32.next_down())),
        ("cvt.rn.f32.f64 %f9, %fd1;", "%f9", [d(1e300), 0, 0], f(f32::INFINITY)),
        ("cvt.sat.f32.f32 %f9, %f1;", "%f9", [f(-3.0), 0, 0], f(0.0)),
        ("cvt.s64.s32 %rd9, %r1;", "%rd9", [i(-1), 0, 0], u64::MAX),
        ("cvt.u64.u32 %rd9, %r1;", "%rd9", [i(-1), 0, 0], 0xffff_ffff),
        ("cvt.s32.s8 %r9, %r1;", "%r9", [0x180, 0, 0], 0xffff_ff80),
        ("cvt.u32.u8 %r9, %r1;", "%r9", [0x180, 0, 0], 0x80),
        ("cvt.sat.u8.s32 %r9, %r1;", "%r9", [i(-5), 0, 0], 0),
        ("cvt.sat.s8.s32 %r9, %r1;", "%r9", [1000, 0, 0], 127),
        ("cvt.sat.s32.u64 %r9, %rd1;", "%r9", [u64::MAX, 0, 0], 0x7fff_ffff),
        ("cvt.rn.f16.f32 %rs9, %f1;", "%rs9", [f(1.0), 0, 0], 0x3c00),
        ("cvt.rn.f16.f32 %rs9, %f1;", "%rs9", [f(65520.0), 0, 0], 0x7c00),
        ("cvt.rz.f16.f32 %rs9, %f1;", "%rs9", [f(65519.9), 0, 0], 0x7bff),
        ("cvt.rn.f16.f32 %rs9, %f1;", "%rs9", [f(5.960_464_5e-8), 0, 0], 1),
        ("cvt.rn.f16.f64 %rs9, %fd1;", "%rs9", [d(1.000_488_281_25 + 1e-15), 0, 0], 0x3c01),
        ("cvt.f32.f16 %f9, %rs1;", "%f9", [1, 0, 0], f(5.960_464_5e-8)),
        ("cvt.f32.f16 %f9, %rs1;", "%f9", [0xfc00, 0, 0], f(f32::NEG_INFINITY)),
        ("cvt.rn.bf16.f32 %rs9, %f1;", "%rs9", [f(1.003_906_3), 0, 0], 0x3f80),
        ("cvt.rn.bf16x2.f32 %r9, %f1, %f2;", "%r9", [f(1.0), f(-2.0), 0], 0x3f80_c000),
        ("add.rn.f32.f16 %f9, %rs1, %f2;", "%f9", [0x3c01, f(0.5), 0], f(1.500_976_6)),
        ("add.rp.f32.f16 %f9, %rs1, %f2;", "%f9", [0x3c00, f(1e-10), 0], f(1.000_000_1)),
        ("sub.f32.bf16 %f9, %rs1, %f2;", "%f9", [0xc040, f(1.0), 0], f(-4.0)),
        ("fma.rn.f32.bf16 %f9, %rs1, %rs2, %f3;", "%f9", [0x3f81, 0x3f81, f(-1.0)], f(0.015_686_035)),
        ("fma.rz.sat.f32.f16 %f9, %rs1, %rs2, %f3;", "%f9", [0x3800, 0x4000, f(0.25)], f(1.0)),
        ("cvt.rn.f16x2.f32 %r9, %f1, %f2;", "%r9", [f(1.0), f(-2.0), 0], 0x3c00_c000),
    ]);
    // Pairs of 8-bit numbers: of two operands the first is the upper half.
    check(&[
        ("cvt.rn.satfinite.e4m3x2.f32 %rs9, %f1, %f2;", "%rs9", [f(1.0), f(-448.0), 0], 0x38fe),
        ("cvt.rn.satfinite.e4m3x2.f32 %rs9, %f1, %f2;", "%rs9", [f(f32::NAN), f(1e9), 0], 0x7f7e),
        ("cvt.rn.satfinite.e4m3x2.f32 %rs9, %f1, %f2;", "%rs9", [f(17.0), f(19.0), 0], 0x585a),
        ("cvt.rn.satfinite.relu.e5m2x2.f32 %rs9, %f1, %f2;", "%rs9", [f(-3.0), f(f32::INFINITY), 0], 0x007b),
        ("cvt.rn.satfinite.e5m2x2.f16x2 %rs9, %r1;", "%rs9", [0x3c00_c000, 0, 0], 0x3cc0),
        ("cvt.rn.satfinite.relu.e4m3x2.f16x2 %rs9, %r1;", "%rs9", [0x7e00_bc00, 0, 0], 0x7f00),
        ("cvt.rn.f16x2.e4m3x2 %r9, %rs1;", "%r9", [0x3881, 0, 0], 0x3c00_9800),
        ("cvt.rn.relu.f16x2.e5m2x2 %r9, %rs1;", "%r9", [0xbc7f, 0, 0], 0x7fff),
    ]);
    for half in (0..=0xffff_u16).step_by(37) {
        let expected = half::f16::from_bits(half);
        if !expected.is_nan() {
            check(&[("cvt.f32.f16 %f9, %rs1;", "%f9", [u64::from(half), 0, 0], f(expected.to_f32()))]);
        }
    }
}

/// Not a number becomes an integer: the highest bit alone where one of the types has 64 bits, else zero.
#[test]
fn not_a_number_becomes_an_integer() {
    let (single, double) = (0x7fc0_0000, 0x7ff8_0000_0000_0000);
    check(&[
        ("cvt.rzi.s32.f32 %r9, %f1;", "%r9", [single, 0, 0], 0),
        ("cvt.rni.u64.f32 %rd9, %f1;", "%rd9", [single, 0, 0], 1 << 63),
        ("cvt.rzi.s64.f32 %rd9, %f1;", "%rd9", [single, 0, 0], 1 << 63),
        ("cvt.rzi.s64.f16 %rd9, %rs1;", "%rd9", [0x7e00, 0, 0], 1 << 63),
        ("cvt.rzi.s32.f16 %r9, %rs1;", "%r9", [0x7e00, 0, 0], 0),
        ("cvt.rzi.s32.f64 %r9, %fd1;", "%r9", [double, 0, 0], 1 << 31),
        ("cvt.rzi.u32.f64 %r9, %fd1;", "%r9", [double, 0, 0], 1 << 31),
        ("cvt.rzi.u16.f64 %rs9, %fd1;", "%rs9", [double, 0, 0], 1 << 15),
        ("cvt.rzi.s8.f64 %r9, %fd1;", "%r9", [double, 0, 0], 0xffff_ff80),
        ("cvt.rzi.s8.f64 %r9, %fd1;", "%r9", [d(-3.5), 0, 0], i(-3)),
    ]);
}

#[test]
fn conversions_round_and_saturate_in_any_direction() {
    check(&[
        ("cvt.rz.sat.f32.u32 %f9, %r1;", "%f9", [7, 0, 0], f(1.0)),
        ("cvt.rp.sat.f64.s64 %fd9, %rd1;", "%fd9", [-5_i64 as u64, 0, 0], d(0.0)),
        ("cvt.rm.sat.f64.u64 %fd9, %rd1;", "%fd9", [u64::MAX, 0, 0], d(1.0)),
        ("cvt.rz.f16.s32 %rs9, %r1;", "%rs9", [65_535, 0, 0], 0x7bff),
        ("cvt.rp.f16.u32 %rs9, %r1;", "%rs9", [65_535, 0, 0], 0x7c00),
        ("cvt.rm.bf16.s64 %rs9, %rd1;", "%rs9", [-257_i64 as u64, 0, 0], 0xc381),
        ("cvt.rn.bf16.u64 %rs9, %rd1;", "%rs9", [0x8080_0000_0000_0001, 0, 0], 0x5f01),
        ("cvt.rm.f16.f32 %rs9, %f1;", "%rs9", [f(-1e-30), 0, 0], 0x8001),
        ("cvt.rz.f16.f64 %rs9, %fd1;", "%rs9", [d(1.9999), 0, 0], 0x3fff),
        ("cvt.rz.f16x2.f32 %r9, %f1, %f2;", "%r9", [f(1.9999), f(-1e30), 0], 0x3fff_fbff),
    ]);
}

#[test]
fn tf32_has_ten_bits_of_fraction() {
    let tie = 0x3f80_1000;
    check(&[
        ("cvt.rna.tf32.f32 %r9, %f1;", "%r9", [tie, 0, 0], 0x3f80_2000),
        ("cvt.rn.tf32.f32 %r9, %f1;", "%r9", [tie, 0, 0], 0x3f80_0000),
        ("cvt.rn.tf32.f32 %r9, %f1;", "%r9", [tie + 0x2000, 0, 0], 0x3f80_4000),
        ("cvt.rz.tf32.f32 %r9, %f1;", "%r9", [0xbf80_1fff, 0, 0], 0xbf80_0000),
        ("cvt.rz.relu.tf32.f32 %r9, %f1;", "%r9", [f(-1.0), 0, 0], 0),
        ("cvt.rna.satfinite.tf32.f32 %r9, %f1;", "%r9", [f(f32::NEG_INFINITY), 0, 0], 0xff7f_e000),
        ("cvt.rna.tf32.f32 %r9, %f1;", "%r9", [f(f32::MAX), 0, 0], 0x7f80_0000),
        ("cvt.rna.tf32.f32 %r9, %f1;", "%r9", [0xffc0_0000, 0, 0], 0x7fff_ffff),
    ]);
}
