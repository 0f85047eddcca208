//! Runs a few instructions on given values.

use crate::common::{Device, Params};

/// Runs instructions on registers %r1, %r2, %r3 (32 bits), %rd1, %rd2, %rd3 (64 bits), %f1..3 and %fd1..3
/// (the same bits as floating-point numbers) and returns the bits of %r9, %rd9, whichever `result` names, as
/// 64 bits.
pub fn evaluate(code: &str, result: &str, inputs: [u64; 3]) -> u64 {
    let declared = match result {
        "%r9" => "cvt.u64.u32 %rd0, %r9;",
        "%f9" => "mov.b32 %r0, %f9; cvt.u64.u32 %rd0, %r0;",
        "%fd9" => "mov.b64 %rd0, %fd9;",
        "%rs9" => "cvt.u64.u16 %rd0, %rs9;",
        "%p9" => "selp.u64 %rd0, 1, 0, %p9;",
        _ => "mov.u64 %rd0, %rd9;",
    };
    let source = format!(
        ".version 8.6\n.target sm_90\n.address_size 64\n\
         .visible .entry k(.param .u64 out, .param .u64 a, .param .u64 b, .param .u64 c)\n{{\n\
         .reg .pred %p<10>; .reg .b16 %rs<10>; .reg .b32 %r<10>; .reg .b64 %rd<12>; .reg .f32 %f<10>; .reg .f64 %fd<10>;\n\
         ld.param.u64 %rd10, [out];\nld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b]; ld.param.u64 %rd3, [c];\n\
         cvt.u32.u64 %r1, %rd1; cvt.u32.u64 %r2, %rd2; cvt.u32.u64 %r3, %rd3;\n\
         cvt.u16.u64 %rs1, %rd1; cvt.u16.u64 %rs2, %rd2; cvt.u16.u64 %rs3, %rd3;\n\
         mov.b32 %f1, %r1; mov.b32 %f2, %r2; mov.b32 %f3, %r3; mov.b64 %fd1, %rd1; mov.b64 %fd2, %rd2; mov.b64 %fd3, %rd3;\n\
         setp.ne.u32 %p1, %r1, 0; setp.ne.u32 %p2, %r2, 0;\n{code}\n{declared}\nst.global.u64 [%rd10], %rd0;\nret;\n}}\n"
    );
    let device = Device::new(&[&source]);
    let output = device.zeros::<u64>(1);
    let params = Params::default().with(output).with(inputs[0]).with(inputs[1]).with(inputs[2]);
    device.launch("k", 1, 1, params);
    device.download::<u64>(output, 1)[0]
}

pub fn check(rows: &[(&str, &str, [u64; 3], u64)]) {
    for &(code, result, inputs, expected) in rows {
        let got = evaluate(code, result, inputs);
        assert_eq!(got, expected, "{code} of {inputs:x?}: {got:#x}, not {expected:#x}");
    }
}

pub fn f(value: f32) -> u64 {
    u64::from(value.to_bits())
}

pub fn d(value: f64) -> u64 {
    value.to_bits()
}

pub fn i(value: i32) -> u64 {
    u64::from(value as u32)
}
