//! Values of instructions: arithmetic, bits, conversions, comparisons.

use crate::evaluate::{check, d, f, i};

#[test]
fn integer_division_never_traps() {
    check(&[
        ("div.u32 %r9, %r1, %r2;", "%r9", [7, 0, 0], 0xffff_ffff),
        ("rem.u32 %r9, %r1, %r2;", "%r9", [7, 0, 0], 0xffff_ffff),
        ("div.s32 %r9, %r1, %r2;", "%r9", [i(-7), 0, 0], 0xffff_ffff),
        ("div.s32 %r9, %r1, %r2;", "%r9", [i(i32::MIN), i(-1), 0], i(i32::MIN)),
        ("rem.s32 %r9, %r1, %r2;", "%r9", [i(i32::MIN), i(-1), 0], 0),
        ("div.s32 %r9, %r1, %r2;", "%r9", [i(-7), i(2), 0], i(-3)),
        ("rem.s32 %r9, %r1, %r2;", "%r9", [i(-7), i(2), 0], i(-1)),
        ("div.s64 %rd9, %rd1, %rd2;", "%rd9", [1 << 63, u64::MAX, 0], 1 << 63),
        ("div.u64 %rd9, %rd1, %rd2;", "%rd9", [5, 0, 0], u64::MAX),
        ("rem.s64 %rd9, %rd1, %rd2;", "%rd9", [5, 0, 0], u64::MAX),
        ("div.s16 %rs9, %rs1, %rs2;", "%rs9", [0x8000, 0xffff, 0], 0x8000),
        ("div.u16 %rs9, %rs1, %rs2;", "%rs9", [9, 0, 0], 0xffff),
        ("div.u32 %r9, %r1, 0;", "%r9", [7, 0, 0], 0xffff_ffff),
    ]);
}

#[test]
fn shifts_clamp_or_wrap() {
    check(&[
        ("shl.b32 %r9, %r1, %r2;", "%r9", [1, 32, 0], 0),
        ("shl.b32 %r9, %r1, %r2;", "%r9", [1, 0xffff_ffff, 0], 0),
        ("shl.b32 %r9, %r1, 31;", "%r9", [1, 0, 0], 1 << 31),
        ("shl.b32 %r9, %r1, 40;", "%r9", [1, 0, 0], 0),
        ("shr.u32 %r9, %r1, %r2;", "%r9", [0x8000_0000, 33, 0], 0),
        ("shr.s32 %r9, %r1, %r2;", "%r9", [0x8000_0000, 33, 0], 0xffff_ffff),
        ("shr.s32 %r9, %r1, 99;", "%r9", [0x8000_0000, 0, 0], 0xffff_ffff),
        ("shr.s64 %rd9, %rd1, %r2;", "%rd9", [1 << 63, 64, 0], u64::MAX),
        ("shr.u64 %rd9, %rd1, %r2;", "%rd9", [1 << 63, 64, 0], 0),
        ("shl.b64 %rd9, %rd1, %r2;", "%rd9", [1, 63, 0], 1 << 63),
        ("shl.b16 %rs9, %rs1, %r2;", "%rs9", [1, 16, 0], 0),
        ("shr.s16 %rs9, %rs1, %r2;", "%rs9", [0x8000, 20, 0], 0xffff),
        ("shf.l.wrap.b32 %r9, %r1, %r2, %r3;", "%r9", [0x8000_0001, 2, 33], 5),
        ("shf.l.clamp.b32 %r9, %r1, %r2, %r3;", "%r9", [0x1234, 2, 40], 0x1234),
        ("shf.r.clamp.b32 %r9, %r1, %r2, %r3;", "%r9", [0x1234, 2, 40], 2),
        ("shf.r.wrap.b32 %r9, %r1, %r2, %r3;", "%r9", [0x10, 3, 4], 0x3000_0001),
    ]);
}

#[test]
fn bit_fields_and_permutations() {
    check(&[
        ("bfe.u32 %r9, %r1, 4, 8;", "%r9", [0xabcd, 0, 0], 0xbc),
        ("bfe.s32 %r9, %r1, 4, 8;", "%r9", [0xabcd, 0, 0], 0xffff_ffbc),
        ("bfe.u32 %r9, %r1, 40, 8;", "%r9", [0xffff_ffff, 0, 0], 0),
        ("bfe.s32 %r9, %r1, 40, 8;", "%r9", [0x8000_0000, 0, 0], 0xffff_ffff),
        ("bfe.s32 %r9, %r1, 28, 8;", "%r9", [0x9000_0000, 0, 0], 0xffff_fff9),
        ("bfe.u32 %r9, %r1, 0, 0;", "%r9", [0xffff_ffff, 0, 0], 0),
        ("bfe.u64 %rd9, %rd1, 4, 60;", "%rd9", [u64::MAX, 0, 0], u64::MAX >> 4),
        ("bfi.b32 %r9, %r1, %r2, 8, 4;", "%r9", [0xff, 0, 0], 0xf00),
        ("bfi.b32 %r9, %r1, %r2, 28, 8;", "%r9", [0xff, 1, 0], 0xf000_0001),
        ("bfi.b32 %r9, %r1, %r2, 32, 8;", "%r9", [0xff, 1, 0], 1),
        ("bfi.b64 %rd9, %rd1, %rd2, 60, 8;", "%rd9", [0xff, 1, 0], 0xf000_0000_0000_0001),
        ("bfind.u32 %r9, %r1;", "%r9", [0, 0, 0], 0xffff_ffff),
        ("bfind.u32 %r9, %r1;", "%r9", [0x100, 0, 0], 8),
        ("bfind.s32 %r9, %r1;", "%r9", [i(-5), 0, 0], 2),
        ("bfind.shiftamt.u32 %r9, %r1;", "%r9", [0x100, 0, 0], 23),
        ("bfind.u64 %r9, %rd1;", "%r9", [1 << 40, 0, 0], 40),
        ("popc.b64 %r9, %rd1;", "%r9", [u64::MAX, 0, 0], 64),
        ("clz.b32 %r9, %r1;", "%r9", [0, 0, 0], 32),
        ("clz.b64 %r9, %rd1;", "%r9", [0, 0, 0], 64),
        ("brev.b32 %r9, %r1;", "%r9", [1, 0, 0], 0x8000_0000),
        ("cnot.b32 %r9, %r1;", "%r9", [0, 0, 0], 1),
        ("cnot.b32 %r9, %r1;", "%r9", [5, 0, 0], 0),
        ("prmt.b32 %r9, %r1, %r2, 0x7531;", "%r9", [0x4433_2211, 0x8877_6655, 0], 0x8866_4422),
        ("prmt.b32 %r9, %r1, %r2, 0x9bf8;", "%r9", [0x8811_7780, 0x8000_0000, 0], 0x00ff_ffff),
        ("prmt.b32 %r9, %r1, %r2, %r3;", "%r9", [0x4433_2211, 0x8877_6655, 0x4567], 0x5566_7788),
        ("prmt.b32.f4e %r9, %r1, %r2, %r3;", "%r9", [0x4433_2211, 0x8877_6655, 2], 0x6655_4433),
        ("prmt.b32.rc8 %r9, %r1, %r2, %r3;", "%r9", [0x4433_2211, 0, 2], 0x3333_3333),
        ("prmt.b32.rc16 %r9, %r1, %r2, %r3;", "%r9", [0x4433_2211, 0, 1], 0x4433_4433),
        ("prmt.b32.ecl %r9, %r1, %r2, %r3;", "%r9", [0x4433_2211, 0, 2], 0x4433_3333),
        ("prmt.b32.ecr %r9, %r1, %r2, %r3;", "%r9", [0x4433_2211, 0, 1], 0x2222_2211),
        ("bmsk.clamp.b32 %r9, %r1, %r2;", "%r9", [4, 8, 0], 0xff0),
        ("szext.clamp.s32 %r9, %r1, %r2;", "%r9", [0xff, 8, 0], 0xffff_ffff),
    ]);
    for table in 0..=255_u64 {
        let (a, b, c) = (0xf0_u64, 0xcc_u64, 0xaa_u64);
        let code = format!("lop3.b32 %r9, %r1, %r2, %r3, {table}; and.b32 %r9, %r9, 255;");
        check(&[(&code, "%r9", [a, b, c], table)]);
    }
}

#[test]
fn products_and_carries() {
    check(&[
        ("mul.hi.u32 %r9, %r1, %r2;", "%r9", [0xffff_ffff, 0xffff_ffff, 0], 0xffff_fffe),
        ("mul.hi.s32 %r9, %r1, %r2;", "%r9", [i(-1), 2, 0], 0xffff_ffff),
        ("mul.hi.u64 %rd9, %rd1, %rd2;", "%rd9", [u64::MAX, u64::MAX, 0], u64::MAX - 1),
        ("mul.wide.s16 %r9, %rs1, %rs2;", "%r9", [0xffff, 3, 0], i(-3)),
        ("mul.wide.u32 %rd9, %r1, %r2;", "%rd9", [0xffff_ffff, 2, 0], 0x1_ffff_fffe),
        ("mad.wide.s32 %rd9, %r1, %r2, %rd3;", "%rd9", [i(-2), 3, 10], 4),
        ("mad.hi.sat.s32 %r9, %r1, %r2, %r3;", "%r9", [0x7fff_ffff, 0x7fff_ffff, 0x7fff_ffff], 0x7fff_ffff),
        ("mul24.lo.s32 %r9, %r1, %r2;", "%r9", [0xff_ffff, 3, 0], i(-3)),
        ("mul24.hi.u32 %r9, %r1, %r2;", "%r9", [0xff_ffff, 0xff_ffff, 0], 0xffff_fe00),
        ("mad24.lo.u32 %r9, %r1, %r2, %r3;", "%r9", [0xff00_0002, 3, 4], 10),
        ("add.sat.s32 %r9, %r1, %r2;", "%r9", [0x7fff_ffff, 1, 0], 0x7fff_ffff),
        ("sub.sat.s32 %r9, %r1, %r2;", "%r9", [0x8000_0000, 1, 0], 0x8000_0000),
        ("add.cc.u32 %r4, %r1, %r2; addc.u32 %r9, 0, 0;", "%r9", [0xffff_ffff, 1, 0], 1),
        (
            "add.cc.u64 %rd4, %rd1, %rd2; addc.cc.u64 %rd5, -1, 0; addc.u64 %rd9, 0, 0;",
            "%rd9",
            [u64::MAX, 1, 0],
            1,
        ),
        ("sub.cc.u32 %r4, %r1, %r2; subc.u32 %r9, %r3, 0;", "%r9", [0, 1, 10], 9),
        (
            "mad.lo.cc.u32 %r4, %r1, %r2, %r3; madc.hi.u32 %r9, %r1, %r2, 0;",
            "%r9",
            [0xffff_ffff, 0xffff_ffff, 0xffff_ffff],
            0xffff_ffff,
        ),
        ("sad.s32 %r9, %r1, %r2, %r3;", "%r9", [i(-5), 5, 1], 11),
        ("sad.u32 %r9, %r1, %r2, %r3;", "%r9", [0xffff_fffb, 5, 1], 0xffff_fff7),
        ("dp4a.s32.s32 %r9, %r1, %r2, %r3;", "%r9", [0xff01_02fe, 0x0102_0304, 100], i(-1 + 2 + 6 - 8 + 100)),
        // -1 >= 1, 2 >= 2, 3 >= 4 and 127 >= -128 as signed bytes; the same as unsigned ones.
        ("vset4.s32.s32.ge %r9, %r1, %r2, %r3;", "%r9", [0xff02_037f, 0x0102_0480, 0], 0x0001_0001),
        ("vset4.u32.u32.ge %r9, %r1, %r2, %r3;", "%r9", [0xff02_037f, 0x0102_0480, 0], 0x0101_0000),
        ("vset4.u32.u32.ne.add %r9, %r1, %r2, %r3;", "%r9", [0xff02_037f, 0x0102_0480, 100], 103),
        ("vset4.s32.u32.lt %r9, %r1, %r2, %r3;", "%r9", [0xff02_037f, 0x0102_0480, 0], 0x0100_0101),
        ("vset2.u32.u32.eq %r9, %r1, %r2, %r3;", "%r9", [0x1234_5678, 0x1234_5679, 0], 0x0001_0000),
        ("vset2.s32.s32.gt %r9, %r1, %r2, %r3;", "%r9", [0xffff_0001, 0x0000_ffff, 0], 0x0000_0001),
        ("vset2.u32.u32.le %r9, %r1, %r2, %r3;", "%r9", [0xffff_0001, 0x0000_ffff, 0], 0x0000_0001),
        ("dp4a.u32.u32 %r9, %r1, %r2, %r3;", "%r9", [0xff01_0203, 0x0101_0101, 0], 0xff + 1 + 2 + 3),
        ("dp2a.lo.u32.u32 %r9, %r1, %r2, %r3;", "%r9", [0x0002_0003, 0x0403_0205, 1], 3 * 5 + 2 * 2 + 1),
        ("dp2a.hi.u32.u32 %r9, %r1, %r2, %r3;", "%r9", [0x0002_0003, 0x0403_0205, 1], 3 * 3 + 2 * 4 + 1),
        ("abs.s32 %r9, %r1;", "%r9", [0x8000_0000, 0, 0], 0x8000_0000),
        ("neg.s64 %rd9, %rd1;", "%rd9", [1, 0, 0], u64::MAX),
        ("min.s32 %r9, %r1, %r2;", "%r9", [i(-1), 1, 0], i(-1)),
        ("min.u32 %r9, %r1, %r2;", "%r9", [i(-1), 1, 0], 1),
        ("max.s16x2 %r9, %r1, %r2;", "%r9", [0xffff_0001, 0x0002_ffff, 0], 0x0002_0001),
        ("add.u16x2 %r9, %r1, %r2;", "%r9", [0xffff_ffff, 0x0002_0001, 0], 0x0001_0000),
        ("vabsdiff4.u32.u32.u32.add %r9, %r1, %r2, %r3;", "%r9", [0x01ff_0502, 0x0300_0502, 1], 2 + 255 + 1),
    ]);
}

#[test]
fn extremes_of_floating_point() {
    let nan = f(f32::NAN);
    check(&[
        ("min.f32 %f9, %f1, %f2;", "%f9", [nan, f(1.0), 0], f(1.0)),
        ("max.f32 %f9, %f1, %f2;", "%f9", [f(1.0), nan, 0], f(1.0)),
        ("min.f32 %f9, %f1, %f2;", "%f9", [f(0.0), f(-0.0), 0], f(-0.0)),
        ("max.f32 %f9, %f1, %f2;", "%f9", [f(-0.0), f(0.0), 0], f(0.0)),
        ("min.f64 %fd9, %fd1, %fd2;", "%fd9", [d(f64::NAN), d(2.0), 0], d(2.0)),
        ("max.NaN.f32 %f9, %f1, %f2; testp.notanumber.f32 %p9, %f9;", "%p9", [nan, f(1.0), 0], 1),
        (
            "fma.rn.f32 %f9, %f1, %f2, %f3;",
            "%f9",
            [f(1.0 + f32::EPSILON), f(1.0 - f32::EPSILON), f(-1.0)],
            f(-f32::EPSILON * f32::EPSILON),
        ),
        ("fma.rm.f32 %f9, %f1, %f2, %f3;", "%f9", [f(1.0), f(1.0), f(-1e-30)], f(1_f32.next_down())),
        ("add.rz.f32 %f9, %f1, %f2;", "%f9", [f(1.0), f(-1e-30), 0], f(1_f32.next_down())),
        ("add.rp.f64 %fd9, %fd1, %fd2;", "%fd9", [d(1.0), d(1e-300), 0], d(1_f64.next_up())),
        ("div.rm.f32 %f9, %f1, %f2;", "%f9", [f(1.0), f(3.0), 0], 0x3eaa_aaaa),
        ("add.sat.f32 %f9, %f1, %f2;", "%f9", [f(0.7), f(0.7), 0], f(1.0)),
        ("add.sat.f32 %f9, %f1, %f2;", "%f9", [nan, f(0.7), 0], f(0.0)),
        ("add.ftz.f32 %f9, %f1, %f2;", "%f9", [1, 0x8000_0000, 0], 0),
        ("add.f32 %f9, %f1, %f2;", "%f9", [1, 0x8000_0000, 0], 1),
        ("mul.ftz.f32 %f9, %f1, %f2;", "%f9", [f(-f32::MIN_POSITIVE), f(0.5), 0], 0x8000_0000),
        ("rcp.rn.f32 %f9, %f1;", "%f9", [f(-0.0), 0, 0], f(f32::NEG_INFINITY)),
        ("rsqrt.approx.f32 %f9, %f1;", "%f9", [f(4.0), 0, 0], f(0.5)),
        ("sqrt.rn.f64 %fd9, %fd1;", "%fd9", [d(2.0), 0, 0], d(2_f64.sqrt())),
        ("ex2.approx.ftz.f32 %f9, %f1;", "%f9", [f(-3.0), 0, 0], f(0.125)),
        ("lg2.approx.f32 %f9, %f1;", "%f9", [f(0.0), 0, 0], f(f32::NEG_INFINITY)),
        ("copysign.f32 %f9, %f1, %f2;", "%f9", [f(-1.0), f(3.0), 0], f(-3.0)),
        ("neg.f32 %f9, %f1;", "%f9", [f(0.0), 0, 0], f(-0.0)),
        ("abs.ftz.f32 %f9, %f1;", "%f9", [0x8000_0001, 0, 0], 0),
        ("testp.subnormal.f32 %p9, %f1;", "%p9", [1, 0, 0], 1),
        ("testp.subnormal.f32 %p9, %f1;", "%p9", [0, 0, 0], 0),
        ("testp.normal.f64 %p9, %fd1;", "%p9", [d(1.0), 0, 0], 1),
        ("testp.infinite.f64 %p9, %fd1;", "%p9", [d(f64::NEG_INFINITY), 0, 0], 1),
        ("testp.finite.f32 %p9, %f1;", "%p9", [nan, 0, 0], 0),
        ("tanh.approx.f32 %f9, %f1;", "%f9", [f(0.0), 0, 0], f(0.0)),
    ]);
}

#[test]
fn comparisons_and_selections() {
    let nan = f(f32::NAN);
    check(&[
        ("setp.lt.s32 %p9, %r1, %r2;", "%p9", [i(-1), 1, 0], 1),
        ("setp.lt.u32 %p9, %r1, %r2;", "%p9", [i(-1), 1, 0], 0),
        ("setp.lo.u32 %p9, %r1, %r2;", "%p9", [1, i(-1), 0], 1),
        ("setp.ne.f32 %p9, %f1, %f2;", "%p9", [nan, nan, 0], 0),
        ("setp.neu.f32 %p9, %f1, %f2;", "%p9", [nan, nan, 0], 1),
        ("setp.eq.f32 %p9, %f1, %f2;", "%p9", [f(0.0), f(-0.0), 0], 1),
        ("setp.ltu.f32 %p9, %f1, %f2;", "%p9", [nan, f(1.0), 0], 1),
        ("setp.nan.f32 %p9, %f1, %f2;", "%p9", [nan, f(1.0), 0], 1),
        ("setp.num.f32 %p9, %f1, %f2;", "%p9", [nan, f(1.0), 0], 0),
        ("setp.gt.and.s32 %p9, %r1, %r2, !%p1;", "%p9", [0, i(-1), 0], 1),
        ("setp.eq.s32 %p8|%p9, %r1, %r2;", "%p9", [1, 2, 0], 1),
        ("setp.gt.ftz.f32 %p9, %f1, 0f00000000;", "%p9", [1, 0, 0], 0),
        ("set.gt.u32.f32 %r9, %f1, %f2;", "%r9", [f(2.0), f(1.0), 0], 0xffff_ffff),
        ("set.lt.f32.s32 %f9, %r1, %r2;", "%f9", [i(-1), 1, 0], f(1.0)),
        ("set.eq.f16x2.f16x2 %r9, %r1, %r2;", "%r9", [0x3c00_8000, 0x4000_0000, 0], 0x0000_3c00),
        ("set.gtu.bf16x2.bf16x2 %r9, %r1, %r2;", "%r9", [0x4000_7fff, 0x3f80_3f80, 0], 0x3f80_3f80),
        ("set.gt.u32.f16x2 %r9, %r1, %r2;", "%r9", [0x4000_7e00, 0x3c00_3c00, 0], 0xffff_0000),
        ("set.lt.and.f16x2.f16x2 %r9, %r1, %r2, !%p1;", "%r9", [0x3c00_3c00, 0x4000_4000, 0], 0),
        ("setp.lt.f16x2 %p9|%p8, %r1, %r2;", "%p9", [0x4000_3c00, 0x3c00_4000, 0], 1),
        ("setp.lt.f16x2 %p8|%p9, %r1, %r2;", "%p9", [0x4000_3c00, 0x3c00_4000, 0], 0),
        ("setp.ne.or.bf16x2 %p8|%p9, %r1, %r2, %p1;", "%p9", [0x3f80_0000, 0x3f80_3f80, 0], 1),
        ("selp.b32 %r9, %r2, %r3, %p1;", "%r9", [1, 5, 6], 5),
        ("selp.f64 %fd9, %fd2, %fd3, %p1;", "%fd9", [0, d(5.0), d(6.0)], d(6.0)),
        ("slct.u32.s32 %r9, %r1, %r2, %r3;", "%r9", [5, 6, i(-1)], 6),
        ("slct.u32.f32 %r9, %r1, %r2, %f3;", "%r9", [5, 6, f(-0.0)], 5),
        ("not.pred %p9, %p1;", "%p9", [0, 0, 0], 1),
        ("xor.pred %p9, %p1, %p2;", "%p9", [1, 0, 0], 1),
        ("mov.u32 %r9, 1; @!%p1 mov.u32 %r9, 2;", "%r9", [0, 0, 0], 2),
        ("mov.pred %p9, -1; xor.pred %p9, %p9, %p1;", "%p9", [1, 0, 0], 0),
        ("mov.b64 {%r8, %r9}, %rd1;", "%r9", [0x0123_4567_89ab_cdef, 0, 0], 0x0123_4567),
        ("mov.b64 %rd9, {%r2, %r1};", "%rd9", [1, 2, 0], 0x1_0000_0002),
        ("mov.b32 {%rs8, %rs9}, %r1;", "%rs9", [0x1234_5678, 0, 0], 0x1234),
    ]);
}

#[test]
fn pairs_of_singles() {
    let pair = |low: f32, high: f32| f(high) << 32 | f(low);
    check(&[
        ("add.rn.f32x2 %rd9, %rd1, %rd2;", "%rd9", [pair(1.5, -2.0), pair(0.25, 2.0), 0], pair(1.75, 0.0)),
        (
            "sub.rz.ftz.f32x2 %rd9, %rd1, %rd2;",
            "%rd9",
            [pair(1.0, 1e-40), pair(2.0, 0.0), 0],
            pair(-1.0, 0.0),
        ),
        ("mul.f32x2 %rd9, %rd1, %rd2;", "%rd9", [pair(3.0, -0.5), pair(2.0, 8.0), 0], pair(6.0, -4.0)),
        (
            "fma.rn.f32x2 %rd9, %rd1, %rd2, %rd3;",
            "%rd9",
            [pair(3.0, 1.0), pair(2.0, f32::MAX), pair(-6.0, f32::MAX)],
            pair(0.0, f32::INFINITY),
        ),
    ]);
}

/// Product and term are so far apart that double precision has not all bits of their sum.
#[test]
fn fused_halves_are_rounded_once() {
    check(&[
        ("fma.rn.bf16 %rs9, %rs1, %rs2, %rs3;", "%rs9", [0xed40, 0x4436, 0xd6f9], 0xf209),
        ("fma.rn.bf16 %rs9, %rs1, %rs2, %rs3;", "%rs9", [0x3f80, 0x7f80, 0x3f80], 0x7f80),
        ("fma.rn.f16 %rs9, %rs1, %rs2, %rs3;", "%rs9", [0x3c00, 0x3c00, 0xbc00], 0),
    ]);
}

#[test]
fn subnormal_numbers_are_flushed_where_that_is_asked_for() {
    check(&[
        ("add.ftz.f16 %rs9, %rs1, %rs2;", "%rs9", [0x8001, 0x8001, 0], 0x8000),
        ("add.f16 %rs9, %rs1, %rs2;", "%rs9", [0x8001, 0x8001, 0], 0x8002),
        ("mul.rn.ftz.f16x2 %r9, %r1, %r2;", "%r9", [0x0400_3c00, 0x3800_3c00, 0], 0x3c00),
        ("min.ftz.f16 %rs9, %rs1, %rs2;", "%rs9", [0x0001, 0x3c00, 0], 0),
        ("abs.ftz.f16 %rs9, %rs1;", "%rs9", [0x8001, 0, 0], 0),
        ("setp.eq.ftz.f16 %p9, %rs1, %rs2;", "%p9", [0x0001, 0, 0], 1),
        ("setp.eq.f16 %p9, %rs1, %rs2;", "%p9", [0x0001, 0, 0], 0),
        ("setp.eq.ftz.f16x2 %p9|%p8, %r1, %r2;", "%p9", [0x0001, 0, 0], 1),
        // Sums in global memory are without subnormal numbers, those in shared memory are not.
        (
            "st.global.u32 [%rd10], %r1; atom.global.add.f32 %f8, [%rd10], %f2; ld.global.u32 %r9, [%rd10];",
            "%r9",
            [1, 2, 0],
            0,
        ),
        (
            "st.global.u32 [%rd10], %r1; atom.add.f32 %f8, [%rd10], %f2; ld.global.u32 %r9, [%rd10];",
            "%r9",
            [1, 0x8000_0002, 0],
            0,
        ),
        (
            ".shared .b32 s; st.shared.u32 [s], %r1; atom.shared.add.f32 %f8, [s], %f2; ld.shared.u32 %r9, [s];",
            "%r9",
            [1, 2, 0],
            3,
        ),
        (
            ".shared .b32 s; st.shared.u32 [s], %r1; mov.u64 %rd8, s; cvta.shared.u64 %rd8, %rd8;
            atom.add.f32 %f8, [%rd8], %f2; ld.shared.u32 %r9, [s];",
            "%r9",
            [1, 2, 0],
            3,
        ),
    ]);
}

#[test]
fn approximations_end_where_those_of_a_gpu_do() {
    let great = 0x7f00_0000;
    check(&[
        ("div.approx.f32 %f9, %f1, %f2;", "%f9", [f(1.0), great, 0], 0),
        ("div.approx.f32 %f9, %f1, %f2;", "%f9", [f(-1.0), great, 0], f(-0.0)),
        (
            "div.approx.f32 %f9, %f1, %f2; testp.notanumber.f32 %p9, %f9;",
            "%p9",
            [f(f32::INFINITY), great, 0],
            1,
        ),
        ("div.approx.f32 %f9, %f1, %f2;", "%f9", [f(6.0), f(2.0), 0], f(3.0)),
        ("div.rn.f32 %f9, %f1, %f2;", "%f9", [great, great, 0], f(1.0)),
        (
            "rcp.approx.ftz.f64 %fd9, %fd1; mov.b64 %rd9, %fd9; and.b64 %rd9, %rd9, 0xffffffff;",
            "%rd9",
            [d(3.0), 0, 0],
            0,
        ),
        ("rcp.approx.ftz.f64 %fd9, %fd1;", "%fd9", [1, 0, 0], d(f64::INFINITY)),
        ("rsqrt.approx.ftz.f64 %fd9, %fd1;", "%fd9", [d(4.0), 0, 0], d(0.5)),
        ("min.f32 %f9, %f1, %f2;", "%f9", [0x7fc0_0001, 0xffc0_0000, 0], 0x7fff_ffff),
        ("max.NaN.f32 %f9, %f1, %f2;", "%f9", [0x7fc0_0001, f(1.0), 0], 0x7fff_ffff),
    ]);
}

#[test]
fn positions_beyond_a_byte_are_clamped() {
    check(&[
        ("szext.clamp.s32 %r9, %r1, %r2;", "%r9", [0xff, 256, 0], 0xff),
        ("szext.clamp.u32 %r9, %r1, %r2;", "%r9", [0xff, 4, 0], 0xf),
        ("bmsk.clamp.b32 %r9, %r1, %r2;", "%r9", [256, 8, 0], 0),
        ("bmsk.clamp.b32 %r9, %r1, %r2;", "%r9", [4, 256, 0], 0xffff_fff0),
    ]);
}

#[test]
fn constants_are_in_their_own_space_and_shared_memory_comes_in_units() {
    let source = ".version 8.6\n.target sm_90\n.address_size 64\n.const .b32 c[4];\n.global .b32 g;\n\
        .visible .entry k(.param .u64 out) { .reg .pred %p<5>; .reg .b32 %r<9>; .reg .b64 %rd<9>;\n\
        ld.param.u64 %rd1, [out]; mov.u64 %rd2, c; cvta.const.u64 %rd2, %rd2; mov.u64 %rd3, g;\n\
        isspacep.const %p1, %rd2; isspacep.global %p2, %rd2; isspacep.const %p3, %rd3; isspacep.global %p4, %rd3;\n\
        selp.u32 %r1, 1, 0, %p1; selp.u32 %r2, 1, 0, %p2; selp.u32 %r3, 1, 0, %p3; selp.u32 %r4, 1, 0, %p4;\n\
        st.global.v4.b32 [%rd1], {%r1, %r2, %r3, %r4}; mov.u32 %r5, %total_smem_size;\n\
        st.global.b32 [%rd1+16], %r5; ret; }\n";
    let device = crate::common::Device::new(&[source]);
    let out = device.zeros::<u32>(5);
    let params = crate::common::Params::default().with(out);
    device.try_launch("k", [1, 1, 1], [1, 1, 1], 100, &params).unwrap();
    assert_eq!(device.download::<u32>(out, 5), [1, 0, 0, 1, 128]);
}

/// Copies of a part of a word, of nothing from nowhere, and of what a predicate lets through.
#[test]
fn asynchronous_copies_fill_with_zeros() {
    let copy = |operands: &str, word: u32| {
        format!(
            ".shared .align 16 .b8 s[16]; mov.b64 %rd8, -1; st.shared.v2.b64 [s], {{%rd8, %rd8}};
            st.global.b64 [%rd10], %rd1; mov.u64 %rd7, 0; cp.async.ca.shared.global [s], {operands};
            cp.async.wait_all; ld.shared.b32 %r9, [s+{word}];"
        )
    };
    let bytes = [0x8877_6655_4433_2211, 0, 3];
    for (operands, word, expected) in [
        ("[%rd10], 8, 6", 0, 0x4433_2211),
        ("[%rd10], 8, 6", 4, 0x6655),
        ("[%rd10], 8, %r3", 0, 0x0033_2211),
        ("[%rd10], 8, %r3", 4, 0),
        ("[%rd7], 8, %r2", 0, 0),
        ("[%rd10], 8, 0", 4, 0),
        ("[%rd10], 8, %p1", 4, 0),
        ("[%rd10], 8, %p2", 4, 0x8877_6655),
        ("[%rd10], 8", 4, 0x8877_6655),
        ("[%rd10], 4, 1", 4, 0xffff_ffff),
    ] {
        check(&[(&copy(operands, word), "%r9", bytes, expected)]);
    }
}

#[test]
fn constants_may_be_expressions() {
    let of = |text: &str, value: u64| check(&[(&format!("mov.u64 %rd9, {text};"), "%rd9", [0; 3], value)]);
    of("(3+4)*2", 14);
    of("3+4*2", 11);
    of("1<<4|3", 19);
    of("~5", !5);
    of("-7%3", -1_i64 as u64);
    of("2 * 7 % 4 + 1", 3);
    of("!0 + !7", 1);
    of("7/2 - - 1", 4);
    of("(1==1)?9:8", 9);
    of("2 > 3 ? 1 : WARP_SZ >= 32 && 1", 1);
    of("(.s64)5 - (.u64)6", -1_i64 as u64);
    of("-7/3", -2_i64 as u64);
    of("-7/3U", 0x5555_5555_5555_5553);
    of("(-7)%3U", 0);
    of("-1 < 1", 1);
    of("-1 < 1U", 0);
    of("0xffffffffffffffff > 1", 1);
    of("(.s64)0xffffffffffffffff > 1", 0);
    of("(0 ? 1U : -1) > 0", 1);
    of("-8 >> 1", -4_i64 as u64);
    of("(.u64)-8 >> 60", 15);
    of("-8 >> 1U", -4_i64 as u64);
    of("1U << 64", 0);
    of("0x8000000000000000 / -1", 0);
    of("(.s64)0x8000000000000000 / -1", 1 << 63);
    of("(1U == 1) - 2 < 0", 1);
    check(&[
        ("st.global.u32 [%rd10+4*2], %r1; ld.global.u32 %r9, [%rd10+(2+2)*2];", "%r9", [7, 0, 0], 7),
        ("add.s32 %r9, %r1, (3+4)*2;", "%r9", [1, 0, 0], 15),
        ("add.f32 %f9, %f1, -0f3F800000;", "%f9", [f(3.0), 0, 0], f(2.0)),
    ]);
}

#[test]
fn positions_of_set_bits_are_counted_up_and_down() {
    check(&[
        ("fns.b32 %r9, %r1, %r2, 1;", "%r9", [0b1010_0100, 0, 0], 2),
        ("fns.b32 %r9, %r1, %r2, 2;", "%r9", [0b1010_0100, 3, 0], 7),
        ("fns.b32 %r9, %r1, %r2, %r3;", "%r9", [0b1010_0100, 7, i(-3)], 2),
        ("fns.b32 %r9, %r1, %r2, 4;", "%r9", [0b1010_0100, 0, 0], 0xffff_ffff),
        ("fns.b32 %r9, %r1, %r2, 0;", "%r9", [0b1010_0100, 5, 0], 5),
        ("fns.b32 %r9, %r1, %r2, 0;", "%r9", [0b1010_0100, 4, 0], 0xffff_ffff),
        ("fns.b32 %r9, %r1, %r2, -1;", "%r9", [0b1010_0100, 40, 0], 0xffff_ffff),
    ]);
}

#[test]
fn packed_signed_and_combined_results() {
    check(&[
        ("cvt.pack.sat.u8.s32.b32 %r9, %r1, %r2, %r3;", "%r9", [300, i(-5), 0x1234], 0x1234_ff00),
        ("cvt.pack.sat.s16.s32 %r9, %r1, %r2;", "%r9", [40_000, i(-40_000), 0], 0x7fff_8000),
        ("cvt.pack.sat.s4.s32.b32 %r9, %r1, %r2, %r3;", "%r9", [i(-9), 9, 0xab], 0xab87),
        ("min.xorsign.abs.f32 %f9, %f1, %f2;", "%f9", [f(-2.0), f(3.0), 0], f(-2.0)),
        ("max.xorsign.abs.f32 %f9, %f1, %f2;", "%f9", [f(-2.0), f(-3.0), 0], f(3.0)),
        ("max.relu.s16x2 %r9, %r1, %r2;", "%r9", [0xfffe_0005, 0xffff_0003, 0], 5),
        ("lop3.or.b32 %r9|%p9, %r1, %r2, %r3, 0x80, %p3;", "%p9", [3, 1, 2], 0),
        ("setp.eq.u32 %p3, %r1, %r1; lop3.or.b32 %r9|%p9, %r1, %r2, %r3, 0x80, %p3;", "%p9", [3, 1, 2], 1),
        ("setp.eq.u32 %p3, %r1, %r1; lop3.and.b32 %r9|%p9, %r1, %r2, %r3, 0x80, %p3;", "%p9", [3, 1, 1], 1),
        ("setp.eq.u32 %p3, %r1, %r1; lop3.and.b32 %r9|%p9, %r1, %r2, %r3, 0x80, %p3;", "%r9", [3, 1, 1], 1),
        (
            "createpolicy.fractional.L2::evict_last.b64 %rd8, 0f3F800000; pmevent 3; mov.u32 %r9, 1;
            applypriority.global.L2::evict_normal [%rd10], 128;",
            "%r9",
            [0; 3],
            1,
        ),
    ]);
}

#[test]
fn vectors_of_atomic_sums() {
    let start = "st.global.v2.b32 [%rd10], {%r1, %r2};";
    let end = "ld.global.v2.b32 {%r7, %r8}, [%rd10];";
    check(&[
        (
            &format!(
                "{start} atom.global.add.v2.f32 {{%f7, %f8}}, [%rd10], {{%f3, %f2}}; {end} mov.b32 %f9, %r7;"
            ),
            "%f9",
            [f(1.0), f(2.0), f(4.0)],
            f(5.0),
        ),
        (
            &format!(
                "{start} atom.global.v2.f32.add {{%f7, %f8}}, [%rd10], {{%f3, %f2}}; {end} mov.b32 %f9, %r8;"
            ),
            "%f9",
            [f(1.0), f(2.0), f(4.0)],
            f(4.0),
        ),
        (
            &format!("{start} atom.global.add.v2.f32 {{%f9, %f8}}, [%rd10], {{%f3, %f2}};"),
            "%f9",
            [f(1.0), f(2.0), f(4.0)],
            f(1.0),
        ),
        (
            &format!("{start} red.add.v2.f32 [%rd10], {{%f3, %f2}}; {end} mov.b32 %f9, %r7;"),
            "%f9",
            [f(1.0), f(2.0), f(4.0)],
            f(5.0),
        ),
        // A cache policy is one operand more, which has no effect.
        (
            &format!(
                "{start} red.global.add.L2::cache_hint.v2.f32 [%rd10], {{%f3, %f2}}, %rd10; {end} mov.b32 %f9, %r7;"
            ),
            "%f9",
            [f(1.0), f(2.0), f(4.0)],
            f(5.0),
        ),
        (
            &format!("{start} atom.global.add.L2::cache_hint.f32 %f9, [%rd10], %f3, %rd10;"),
            "%f9",
            [f(1.0), f(2.0), f(4.0)],
            f(1.0),
        ),
    ]);
}
