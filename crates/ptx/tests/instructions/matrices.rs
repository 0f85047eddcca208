//! Matrix instructions of a warp: small integers, whose products every type holds exactly.

use half::{bf16, f16};

use crate::common::{Device, Params};

const HEAD: &str = ".version 8.6\n.target sm_90\n.address_size 64\n";

/// A kernel of one warp with three pointers `%rd1`, `%rd2`, `%rd3`; `%r0` is the lane.
fn warp_kernel(body: &str) -> String {
    format!(
        "{HEAD}.visible .entry k(.param .u64 a, .param .u64 b, .param .u64 c)\n{{\n\
         .reg .b32 %r<40>; .reg .b64 %rd<40>; .reg .f32 %f<40>; .reg .f64 %fd<40>; .reg .pred %p<4>;\n\
         .shared .align 128 .b8 tile[4096];\n\
         ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b]; ld.param.u64 %rd3, [c]; mov.u32 %r0, %laneid;\n{body}\nret;\n}}\n"
    )
}

/// A small integer for each element of a matrix, another one for each seed.
fn number(seed: usize, element: usize) -> i32 {
    ((element * 7 + element / 5 + seed * 3) % 7) as i32 - 3
}

/// Row by row: `a` (m x k) times `b` (k x n) plus `c`, of the numbers with seeds 1, 2 and 3.
fn product(m: usize, n: usize, k: usize) -> Vec<i32> {
    let cell = |row: usize, column: usize| {
        (0..k).map(|i| number(1, row * k + i) * number(2, i * n + column)).sum::<i32>()
            + number(3, row * n + column)
    };
    (0..m * n).map(|element| cell(element / n, element % n)).collect()
}

fn halves(numbers: impl Iterator<Item = i32>) -> Vec<u16> {
    numbers.map(|number| f16::from_f32(number as f32).to_bits()).collect()
}

/// The transpose of a matrix that is given row by row.
fn transposed<T: Copy>(matrix: &[T], columns: usize) -> Vec<T> {
    let rows = matrix.len() / columns;
    (0..matrix.len()).map(|element| matrix[element % rows * columns + element / rows]).collect()
}

/// `ldmatrix` gives `mma` its fragments: `b` is stored row by row and transposed on the way.
#[test]
fn tiles_in_shared_memory_are_multiplied() {
    let source = warp_kernel(
        "// Copies a (16 x 16 halves) and b (16 x 8) to shared memory, 16 bytes for each lane and 8 more.
        shl.b32 %r1, %r0, 4; cvt.u64.u32 %rd4, %r1; add.u64 %rd5, %rd1, %rd4; add.u64 %rd6, %rd2, %rd4;
        mov.u32 %r2, tile; add.u32 %r3, %r2, %r1;
        ld.global.v4.b32 {%r4, %r5, %r6, %r7}, [%rd5]; st.shared.v4.b32 [%r3], {%r4, %r5, %r6, %r7};
        setp.lt.u32 %p1, %r0, 16;
        @%p1 ld.global.v4.b32 {%r4, %r5, %r6, %r7}, [%rd6]; @%p1 st.shared.v4.b32 [%r3+512], {%r4, %r5, %r6, %r7};
        // Row (lane % 16) of a, its second half for lanes from 16 on; row (lane % 16) of b.
        and.b32 %r8, %r0, 15; shl.b32 %r9, %r8, 5; shr.u32 %r10, %r0, 4; shl.b32 %r10, %r10, 4;
        add.u32 %r11, %r2, %r9; add.u32 %r11, %r11, %r10; shl.b32 %r12, %r8, 4; add.u32 %r12, %r12, %r2;
        ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r20, %r21, %r22, %r23}, [%r11];
        ldmatrix.sync.aligned.m8n8.x2.trans.shared::cta.b16 {%r24, %r25}, [%r12+512];
        // The fragment of c: rows (lane / 4) and 8 more, columns 2 * (lane % 4) and the next one.
        shr.u32 %r13, %r0, 2; shl.b32 %r13, %r13, 5; and.b32 %r14, %r0, 3; shl.b32 %r14, %r14, 3;
        add.u32 %r13, %r13, %r14; cvt.u64.u32 %rd7, %r13; add.u64 %rd7, %rd3, %rd7;
        ld.global.v2.f32 {%f1, %f2}, [%rd7]; ld.global.v2.f32 {%f3, %f4}, [%rd7+256];
        mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f5, %f6, %f7, %f8}, {%r20, %r21, %r22, %r23}, {%r24, %r25},
            {%f1, %f2, %f3, %f4};
        st.global.v2.f32 [%rd7], {%f5, %f6}; st.global.v2.f32 [%rd7+256], {%f7, %f8};",
    );
    let device = Device::new(&[&source]);
    let a = device.upload(&halves((0..256).map(|element| number(1, element))));
    let b = device.upload(&halves((0..128).map(|element| number(2, element))));
    let c = device.upload(&(0..128).map(|element| number(3, element) as f32).collect::<Vec<_>>());
    device.launch("k", 1, 32, Params::default().with(a).with(b).with(c));
    let expected: Vec<f32> = product(16, 8, 16).into_iter().map(|cell| cell as f32).collect();
    assert_eq!(device.download::<f32>(c, 128), expected);
}

#[test]
fn tiles_are_stored_as_they_were_loaded_and_transposed() {
    let source = warp_kernel(
        "mov.u32 %r2, tile; shl.b32 %r1, %r0, 4; add.u32 %r3, %r2, %r1; cvt.u64.u32 %rd4, %r1;
        add.u64 %rd5, %rd1, %rd4; add.u64 %rd6, %rd2, %rd4; add.u64 %rd7, %rd3, %rd4;
        ld.global.v4.b32 {%r4, %r5, %r6, %r7}, [%rd5]; st.shared.v4.b32 [%r3], {%r4, %r5, %r6, %r7};
        ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r10, %r11, %r12, %r13}, [%r3];
        stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%r3+1024], {%r10, %r11, %r12, %r13};
        bar.warp.sync 0xffffffff;
        ld.shared.v4.b32 {%r4, %r5, %r6, %r7}, [%r3+1024]; st.global.v4.b32 [%rd6], {%r4, %r5, %r6, %r7};
        // The first tile alone: lanes from 8 on give addresses that are not looked at.
        movmatrix.sync.aligned.m8n8.trans.b16 %r14, %r10; setp.ge.u32 %p1, %r0, 8; @%p1 mov.u32 %r3, 0x7ffffff1;
        stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r3], {%r14};
        bar.warp.sync 0xffffffff; add.u32 %r3, %r2, %r1;
        ld.shared.v4.b32 {%r4, %r5, %r6, %r7}, [%r3]; st.global.v4.b32 [%rd7], {%r4, %r5, %r6, %r7};",
    );
    let device = Device::new(&[&source]);
    let tiles: Vec<u16> = (0..256).collect();
    let input = device.upload(&tiles);
    let (output, first) = (device.zeros::<u16>(256), device.zeros::<u16>(256));
    device.launch("k", 1, 32, Params::default().with(input).with(output).with(first));
    let expected: Vec<u16> = tiles.chunks(64).flat_map(|tile| transposed(tile, 8)).collect();
    assert_eq!(device.download::<u16>(output, 256), expected);
    let first = device.download::<u16>(first, 256);
    assert_eq!((&first[..64], &first[64..]), (&expected[..64], &tiles[64..]));
}

/// Every shape and type of `wmma`, with each layout of the factors.
#[test]
fn fragments_of_wmma_are_loaded_multiplied_and_stored() {
    for (m, n, k) in [(16, 16, 16), (32, 8, 16), (8, 32, 16)] {
        for (by_rows_a, by_rows_b, by_rows_c) in [(true, false, true), (false, true, false)] {
            check_wmma("f16", "f32", (m, n, k), [8, 8, 8, 8], [by_rows_a, by_rows_b, by_rows_c]);
            check_wmma("f16", "f16", (m, n, k), [8, 8, 4, 4], [by_rows_a, by_rows_b, by_rows_c]);
            let (a, b) = (m * k / 64, k * n / 64);
            check_wmma("bf16", "f32", (m, n, k), [a, b, 8, 8], [by_rows_a, by_rows_b, by_rows_c]);
            check_wmma("s8", "s32", (m, n, k), [a / 2, b / 2, 8, 8], [by_rows_a, by_rows_b, by_rows_c]);
        }
    }
    check_wmma("tf32", "f32", (16, 16, 8), [4, 4, 8, 8], [true, true, true]);
    check_wmma("f64", "f64", (8, 8, 4), [1, 1, 2, 2], [false, false, true]);
}

/// The bytes of a number of a type.
fn bytes(ty: &str, number: i32) -> Vec<u8> {
    match ty {
        "f16" => f16::from_f32(number as f32).to_bits().to_le_bytes().to_vec(),
        "bf16" => bf16::from_f32(number as f32).to_bits().to_le_bytes().to_vec(),
        "tf32" | "f32" => (number as f32).to_le_bytes().to_vec(),
        "f64" => f64::from(number).to_le_bytes().to_vec(),
        "s8" => vec![number as u8],
        _ => number.to_le_bytes().to_vec(),
    }
}

fn check_wmma(
    factor: &str,
    sum: &str,
    (m, n, k): (usize, usize, usize),
    registers: [usize; 4],
    by_rows: [bool; 3],
) {
    let prefix = |ty: &str| match ty {
        "f64" => "%fd",
        "f32" => "%f",
        _ => "%r",
    };
    let vector = |ty: &str, first: usize, count: usize| {
        let names: Vec<String> =
            (first..first + count).map(|index| format!("{}{index}", prefix(ty))).collect();
        format!("{{{}}}", names.join(", "))
    };
    let layout = |by_rows: bool| if by_rows { "row" } else { "col" };
    let [la, lb, lc] = by_rows.map(layout);
    let shape = format!("m{m}n{n}k{k}");
    let (fa, fb) = (vector(factor, 0, registers[0]), vector(factor, 8, registers[1]));
    let (fc, fd) = (vector(sum, 16, registers[2]), vector(sum, 24, registers[3]));
    let types = match factor {
        "f16" => format!("{sum}.{sum}"),
        _ => format!("{sum}.{factor}.{factor}.{sum}"),
    };
    let rounding = if factor == "f64" { ".rn" } else { "" };
    // The matrices lie with 8 elements more between rows or columns than they have.
    let stride = |by_rows: bool, rows: usize, columns: usize| (if by_rows { columns } else { rows }) + 8;
    let [sa, sb, sc] = [stride(by_rows[0], m, k), stride(by_rows[1], k, n), stride(by_rows[2], m, n)];
    let source = warp_kernel(&format!(
        "mov.u32 %r36, {sa}; wmma.load.a.sync.aligned.{la}.{shape}.global.{factor} {fa}, [%rd1], %r36;
        wmma.load.b.sync.aligned.{lb}.{shape}.{factor} {fb}, [%rd2], {sb};
        wmma.load.c.sync.aligned.{lc}.{shape}.global.{sum} {fc}, [%rd3], {sc};
        wmma.mma.sync.aligned.{la}.{lb}.{shape}{rounding}.{types} {fd}, {fa}, {fb}, {fc};
        wmma.store.d.sync.aligned.{lc}.{shape}.global.{sum} [%rd3], {fd}, {sc};"
    ));
    let device = Device::new(&[&source]);
    let memory =
        |ty: &str, by_rows: bool, rows: usize, columns: usize, cell: &dyn Fn(usize) -> i32| -> Vec<u8> {
            let stride = stride(by_rows, rows, columns);
            let (lines, inner) = if by_rows { (rows, columns) } else { (columns, rows) };
            (0..lines * stride)
                .flat_map(|element| {
                    let (line, at) = (element / stride, element % stride);
                    let (row, column) = if by_rows { (line, at) } else { (at, line) };
                    bytes(ty, if at < inner { cell(row * columns + column) } else { 77 })
                })
                .collect()
        };
    let a = device.upload(&memory(factor, by_rows[0], m, k, &|element| number(1, element)));
    let b = device.upload(&memory(factor, by_rows[1], k, n, &|element| number(2, element)));
    let start = memory(sum, by_rows[2], m, n, &|element| number(3, element));
    let c = device.upload(&start);
    device.launch("k", 1, 32, Params::default().with(a).with(b).with(c));
    let product = product(m, n, k);
    let expected = memory(sum, by_rows[2], m, n, &|element| product[element]);
    assert!(device.download::<u8>(c, start.len()) == expected, "{shape} {factor} {sum} {by_rows:?}");
}

/// Lanes that have not come together have no part in each other's instructions: they see zeros, and nothing of
/// what lies on another thread's stack.
#[test]
fn lanes_at_different_instructions_see_nothing_of_each_other() {
    let source = warp_kernel(
        "mov.u32 %r1, 0x3c003c00; mov.f32 %f9, 0f00000000; setp.lt.u32 %p1, %r0, 16; @%p1 bra other;
        mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f1, %f2, %f3, %f4}, {%r1, %r1}, {%r1}, {%f9, %f9, %f9, %f9};
        bra end;
        other: mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1, %f2, %f3, %f4}, {%r1, %r1, %r1, %r1}, {%r1, %r1},
            {%f9, %f9, %f9, %f9};
        end: shl.b32 %r2, %r0, 4; cvt.u64.u32 %rd4, %r2; add.u64 %rd4, %rd1, %rd4;
        st.global.v4.f32 [%rd4], {%f1, %f2, %f3, %f4};",
    );
    let device = Device::new(&[&source]);
    let output = device.zeros::<f32>(128);
    device.launch("k", 1, 32, Params::default().with(output).with(output).with(output));
    for (element, value) in device.download::<f32>(output, 128).into_iter().enumerate() {
        assert!([0.0, 8.0, 16.0].contains(&value), "lane {} has {value}", element / 4);
    }
}

#[test]
fn what_is_no_row_of_shared_memory_is_a_fault() {
    let source = warp_kernel(
        "mov.u32 %r2, 8; ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r3}, [%r2];
        st.global.u32 [%rd1], %r3;",
    );
    let device = Device::new(&[&source]);
    let output = device.zeros::<u32>(1);
    let params = Params::default().with(output).with(output).with(output);
    let fault = device.try_launch("k", [1, 1, 1], [32, 1, 1], 0, &params).unwrap_err();
    assert!(matches!(fault, causeway_ptx::Fault::Misaligned { size: 16, .. }), "{fault}");
}
