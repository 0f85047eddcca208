//! Control flow and synchronization of threads: branches, calls, atomics, barriers.

use crate::common::{Device, Params, kernel};
use crate::evaluate::{check, d, f, i};

#[test]
fn control_flow() {
    check(&[
        (
            "mov.u32 %r9, 0; loop: add.u32 %r9, %r9, %r1; sub.u32 %r2, %r2, 1; setp.ne.u32 %p3, %r2, 0; @%p3 bra loop;",
            "%r9",
            [3, 5, 0],
            15,
        ),
        (
            "table: .branchtargets zero, one, two; brx.idx %r1, table;\n\
             zero: mov.u32 %r9, 10; bra.uni end; one: mov.u32 %r9, 11; bra end; two: mov.u32 %r9, 12; end:",
            "%r9",
            [1, 0, 0],
            11,
        ),
        (
            "{ .reg .b32 %r1; mov.u32 %r1, 77; { .reg .b32 %r1; mov.u32 %r1, 5; bra L; L: } mov.u32 %r9, %r1; }",
            "%r9",
            [1, 0, 0],
            77,
        ),
        ("mov.u32 %r9, %laneid; add.u32 %r9, %r9, %ntid.x; add.u32 %r9, %r9, WARP_SZ;", "%r9", [0, 0, 0], 33),
        ("mov.u32 %r9, %lanemask_le;", "%r9", [0, 0, 0], 1),
        ("mov.u32 %r9, %lanemask_gt;", "%r9", [0, 0, 0], 0xffff_fffe),
        (
            "mov.u64 %rd8, %clock64; mov.u64 %rd9, %globaltimer; setp.gt.u64 %p9, %rd9, 0;",
            "%p9",
            [0, 0, 0],
            1,
        ),
        ("isspacep.global %p9, %rd10;", "%p9", [0, 0, 0], 1),
        (
            ".shared .b8 s[16]; mov.u32 %r8, s; cvt.u64.u32 %rd8, %r8; cvta.shared.u64 %rd8, %rd8; isspacep.shared %p9, %rd8;",
            "%p9",
            [0, 0, 0],
            1,
        ),
        (
            ".shared .b8 s[16]; mov.u64 %rd8, s; cvta.shared.u64 %rd8, %rd8; st.u32 [%rd8+8], %r1; ld.shared.u32 %r9, [s+8];",
            "%r9",
            [99, 0, 0],
            99,
        ),
        (
            ".local .b8 l[16]; mov.u64 %rd8, l; cvta.local.u64 %rd8, %rd8; st.u32 [%rd8+8], %r1; ld.local.u32 %r9, [l+8];",
            "%r9",
            [98, 0, 0],
            98,
        ),
        (
            "fence.acq_rel.gpu; membar.cta; prefetch.global.L2 [%rd10]; nanosleep.u32 10; mov.u32 %r9, 1;",
            "%r9",
            [0, 0, 0],
            1,
        ),
    ]);
}

#[test]
fn atomics_return_the_old_value() {
    // %rd10 is the output buffer, which serves as the memory here; `result` overwrites it at the end.
    check(&[
        (
            "st.global.u32 [%rd10], %r1; atom.global.inc.u32 %r8, [%rd10], %r2; ld.global.u32 %r9, [%rd10];",
            "%r9",
            [5, 5, 0],
            0,
        ),
        (
            "st.global.u32 [%rd10], %r1; atom.global.dec.u32 %r8, [%rd10], %r2; ld.global.u32 %r9, [%rd10];",
            "%r9",
            [0, 5, 0],
            5,
        ),
        ("st.global.u32 [%rd10], %r1; atom.global.cas.b32 %r9, [%rd10], %r1, %r2;", "%r9", [4, 5, 0], 4),
        (
            "st.global.u32 [%rd10], %r1; atom.global.min.s32 %r8, [%rd10], %r2; ld.global.u32 %r9, [%rd10];",
            "%r9",
            [1, i(-5), 0],
            i(-5),
        ),
        (
            "st.global.f32 [%rd10], %f1; atom.global.add.f32 %f9, [%rd10], %f2;",
            "%f9",
            [f(1.5), f(2.0), 0],
            f(1.5),
        ),
        (
            "st.global.f64 [%rd10], %fd1; red.global.add.f64 [%rd10], %fd2; ld.global.f64 %fd9, [%rd10];",
            "%fd9",
            [d(1.5), d(2.0), 0],
            d(3.5),
        ),
        (
            "st.global.u32 [%rd10], %r1; atom.global.add.noftz.f16x2 %r8, [%rd10], %r2; ld.global.u32 %r9, [%rd10];",
            "%r9",
            [0x3c00_4000, 0x3c00_3c00, 0],
            0x4000_4200,
        ),
        (
            "st.global.u64 [%rd10], %rd1; atom.global.max.u64 %rd8, [%rd10], %rd2; ld.global.u64 %rd9, [%rd10];",
            "%rd9",
            [1, 1 << 40, 0],
            1 << 40,
        ),
        (
            ".shared .align 4 .b32 s; st.shared.u32 [s], %r1; atom.shared.exch.b32 %r9, [s], %r2;",
            "%r9",
            [7, 8, 0],
            7,
        ),
        (
            ".shared .align 4 .b32 s; st.shared.u32 [s], %r1; atom.shared.cas.b32 %r8, [s], 7, %r2; ld.shared.u32 %r9, [s];",
            "%r9",
            [7, 8, 0],
            8,
        ),
        (
            ".shared .align 8 .b64 s; st.shared.u64 [s], %rd1; atom.acquire.cta.shared::cta.add.u64 %rd8, [s], %rd2; ld.shared.u64 %rd9, [s];",
            "%rd9",
            [7, 8, 0],
            15,
        ),
    ]);
}

#[test]
fn reserved_shared_memory_lies_outside_of_what_a_block_has() {
    let device = Device::new(&[".version 9.0\n.target sm_90\n.address_size 64\n
        .extern .shared .align 16 .b8 dynamic[];
        .visible .entry k(.param .u64 p) {
            .reg .b64 out, address; .reg .b32 begin, end, word; .reg .pred last;
            ld.param.u64 out, [p];
            mov.u32 begin, %reserved_smem_offset_begin; mov.u32 end, %reserved_smem_offset_end;
            st.global.u32 [out], begin; st.global.u32 [out+4], end;
            mov.u32 word, %reserved_smem_offset_cap; st.global.u32 [out+8], word;
            mov.u32 word, %reserved_smem_offset_1; cvt.u64.u32 address, word; cvta.shared.u64 address, address;
            st.u32 [address], 77;
            mov.u32 word, dynamic; add.u32 word, word, 232444; st.shared.u32 [word], 5;
            ld.shared.u32 word, [word]; st.global.u32 [out+12], word;
            ld.u32 word, [address]; st.global.u32 [out+16], word;
            ret; }"]);
    let out = device.zeros::<u32>(5);
    let shared = causeway_ptx::MAX_SHARED_PER_BLOCK;
    device.try_launch("k", [1; 3], [1; 3], shared, &Params::default().with(out)).unwrap();
    let words = device.download::<u32>(out, 5);
    assert!(words[0] >= shared && words[1] > words[0], "{words:?}");
    assert_eq!(words[2..], [words[1] - words[0], 5, 77]);
}

#[test]
fn barrier_objects_count_arrivals_and_bytes() {
    const OBJECT: &str =
        ".shared .align 8 .b64 object; mov.u64 %rd4, object; mbarrier.init.shared.b64 [object], %r1;";
    let rows: [(&str, &str, [u64; 3], u64); 14] = [
        ("mbarrier.arrive.shared.b64 %rd5, [object]; mbarrier.pending_count.b64 %r9, %rd5;", "%r9", [3, 0, 0], 3),
        ("mbarrier.arrive.shared.b64 _, [%rd4]; mbarrier.arrive.release.cta.shared::cta.b64 %rd5, [object];
          mbarrier.pending_count.b64 %r9, %rd5;", "%r9", [3, 0, 0], 2),
        ("mbarrier.arrive.shared.b64 %rd5, [object]; mbarrier.test_wait.shared.b64 %p9, [object], %rd5;", "%p9", [2, 0, 0], 0),
        ("mbarrier.arrive.shared.b64 %rd5, [object]; mbarrier.test_wait.shared.b64 %p9, [object], %rd5;", "%p9", [1, 0, 0], 1),
        ("mbarrier.arrive.shared.b64 %rd5, [object], 2; mbarrier.try_wait.acquire.cta.shared::cta.b64 %p9, [object], %rd5, 99;",
            "%p9", [2, 0, 0], 1),
        ("mbarrier.arrive.shared.b64 %rd5, [object]; mbarrier.test_wait.parity.shared.b64 %p9, [object], 0;", "%p9", [1, 0, 0], 1),
        ("mbarrier.arrive.shared.b64 %rd5, [object]; mbarrier.try_wait.parity.shared.b64 %p9, [object], 1;", "%p9", [1, 0, 0], 0),
        // The phase before the first counts as over.
        ("mbarrier.test_wait.parity.shared.b64 %p9, [object], 1;", "%p9", [1, 0, 0], 1),
        ("mbarrier.arrive.expect_tx.shared.b64 %rd5, [object], %r2; mbarrier.test_wait.shared.b64 %p9, [object], %rd5;",
            "%p9", [1, 16, 0], 0),
        ("mbarrier.arrive.expect_tx.release.cta.shared::cluster.b64 _, [object], 16;
          mbarrier.complete_tx.relaxed.cta.shared.b64 [object], %r2; mbarrier.test_wait.parity.shared.b64 %p9, [object], 0;",
            "%p9", [1, 16, 0], 1),
        ("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [object], 8; mbarrier.arrive.shared.b64 %rd5, [object];
          mbarrier.test_wait.shared.b64 %p9, [object], %rd5;", "%p9", [1, 0, 0], 0),
        ("mbarrier.arrive_drop.shared.b64 %rd5, [object]; mbarrier.arrive.noComplete.shared.b64 %rd5, [object], 1;
          mbarrier.arrive.shared.b64 %rd5, [object]; mbarrier.arrive.shared.b64 %rd5, [object];
          mbarrier.pending_count.b64 %r9, %rd5;", "%r9", [3, 0, 0], 2),
        ("cp.async.mbarrier.arrive.noinc.shared.b64 [object]; mbarrier.test_wait.parity.shared.b64 %p9, [object], 0;",
            "%p9", [1, 0, 0], 1),
        ("cp.async.mbarrier.arrive.shared::cta.b64 [object]; fence.mbarrier_init.release.cluster; fence.proxy.async;
          mbarrier.test_wait.parity.shared.b64 %p9, [object], 0; mbarrier.inval.shared.b64 [object];", "%p9", [1, 0, 0], 0),
    ];
    for (code, result, inputs, expected) in rows {
        check(&[(&format!("{OBJECT}\n{code}"), result, inputs, expected)]);
    }
}

#[test]
fn threads_that_ask_a_barrier_object_let_others_arrive() {
    // Each thread writes its number, waits for all, and reads its neighbour's; three phases.
    let device = Device::new(&[".version 8.0\n.target sm_90
        .visible .entry k(.param .u64 p) {
            .shared .align 8 .b64 object; .shared .align 4 .b8 words[512];
            .reg .b64 out, state; .reg .b32 t, n, at, next, word, round; .reg .pred first, done, more;
            ld.param.u64 out, [p];
            mov.u32 t, %tid.x; mov.u32 n, %ntid.x;
            setp.eq.u32 first, t, 0;
            @first mbarrier.init.shared.b64 [object], n;
            barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;
            shl.b32 at, t, 2; add.u32 next, t, 1; rem.u32 next, next, n; shl.b32 next, next, 2;
            mov.u32 word, words; add.u32 at, at, word; add.u32 next, next, word; mov.u32 round, 0;
            ROUND: mad.lo.u32 word, round, 1000, t; st.shared.u32 [at], word;
            mbarrier.arrive.shared.b64 state, [object];
            WAIT: mbarrier.try_wait.shared.b64 done, [object], state;
            @!done bra WAIT;
            ld.shared.u32 word, [next];
            mbarrier.arrive.shared.b64 state, [object];
            AGAIN: mbarrier.test_wait.shared.b64 done, [object], state;
            @!done bra AGAIN;
            add.u32 round, round, 1; setp.lt.u32 more, round, 3;
            @more bra ROUND;
            mad.wide.u32 out, t, 4, out; st.global.u32 [out], word; ret; }"]);
    const THREADS: u32 = 100;
    let out = device.zeros::<u32>(THREADS as usize);
    device.launch("k", 1, THREADS, Params::default().with(out));
    let expected: Vec<u32> = (0..THREADS).map(|thread| 2000 + (thread + 1) % THREADS).collect();
    assert_eq!(device.download::<u32>(out, THREADS as usize), expected);
}

#[test]
fn the_address_of_an_element_is_that_of_its_array_and_its_index() {
    let device = Device::new(&[".version 8.0\n.target sm_75\n.address_size 64
        .global .align 8 .u32 table[4] = {10, 11, 12, 13};
        .global .align 16 .v2 .u64 pairs[3];
        .visible .entry k(.param .u64 p) {
            .reg .b64 out, a, b; .reg .b32 x; .shared .align 4 .b32 words[8];
            ld.param.u64 out, [p];
            mov.u64 a, table[3]; ld.global.u32 x, [a]; st.global.u32 [out], x;
            mov.u64 a, table+8; ld.global.u32 x, [a]; st.global.u32 [out+4], x;
            ld.global.u32 x, table[1]; st.global.u32 [out+8], x;
            mov.u64 a, pairs[2]; mov.u64 b, pairs; sub.u64 a, a, b; st.global.u32 [out+12], a;
            st.shared.u32 words[5], 99; mov.u32 x, words[5]; ld.shared.u32 x, [x]; st.global.u32 [out+16], x;
            ret; }"]);
    let out = device.zeros::<u32>(5);
    device.launch("k", 1, 1, Params::default().with(out));
    assert_eq!(device.download::<u32>(out, 5), [13, 12, 11, 32, 99]);
}

/// As ptxas lays them out (13.0: constants, initialised and other variables in sections of their own, the last by
/// alignment), and arrays where vectors of 16 bytes can be read from them.
#[test]
fn variables_lie_where_vectors_can_be_read_from_them() {
    let device = Device::new(&[".version 8.0\n.target sm_75\n.address_size 64
        .visible .global .align 1 .b8 flag;
        .visible .global .align 4 .b8 marks[12] = {1};
        .visible .const .align 4 .b8 limits[20];
        .visible .global .align 4 .b8 tensor[1024];
        .visible .global .align 1 .b8 text[17];
        .visible .global .align 8 .b8 pair[8];
        .visible .entry k(.param .u64 p, .param .u64 q) {
            .reg .b64 out; .reg .b32 x; .shared .align 1 .b8 one; .shared .align 4 .b8 array[64];
            ld.param.u64 out, [p];
            mov.u32 x, array; st.global.u32 [out], x; mov.u32 x, one; st.global.u32 [out+4], x; ret; }"]);
    let at = |name| device.loaded.global(name).unwrap().0;
    let base = at("limits");
    let offsets = ["limits", "marks", "pair", "tensor", "text", "flag"].map(|name| at(name) - base);
    assert_eq!((base % 256, offsets), (0, [0, 256, 512, 528, 1568, 1552]));
    let out = device.zeros::<u32>(2);
    device.launch("k", 1, 1, Params::default().with(out).with(out));
    let shared = device.download::<u32>(out, 2);
    assert_eq!((shared[0] % 16, shared[1]), (0, 0));
}

#[test]
fn a_call_may_name_its_targets() {
    let device = Device::new(&[".version 8.0\n.target sm_75\n.address_size 64
        .func (.param .b32 r) one(.param .b32 a) { .reg .b32 x; ld.param.b32 x, [a]; add.u32 x, x, 1; st.param.b32 [r], x; ret; }
        .func (.param .b32 r) two(.param .b32 a) { .reg .b32 x; ld.param.b32 x, [a]; add.u32 x, x, 2; st.param.b32 [r], x; ret; }
        .visible .global .u64 table[2] = {one, two};
        .visible .entry k(.param .u64 p) {
            .reg .b64 out, f; .reg .b32 x;
            ld.param.u64 out, [p]; ld.global.u64 f, [table+8];
            targets: .calltargets one, two;
            { .param .b32 a; .param .b32 r; st.param.b32 [a], 40; call (r), f, (a), targets; ld.param.b32 x, [r]; }
            st.global.u32 [out], x; ret; }"]);
    let out = device.zeros::<u32>(1);
    device.launch("k", 1, 1, Params::default().with(out));
    assert_eq!(device.download::<u32>(out, 1), [42]);
}

#[test]
fn a_block_is_a_cluster_of_its_own() {
    check(&[
        (
            ".shared .align 4 .b32 s; mov.u32 %r8, s; mapa.shared::cluster.u32 %r7, %r8, 0; st.shared::cluster.u32 [%r7], %r1;\n\
             atom.shared::cluster.add.u32 %r6, [%r7], 2; ld.shared.u32 %r9, [s];",
            "%r9",
            [40, 0, 0],
            42,
        ),
        (
            ".shared .align 4 .b32 s; mov.u64 %rd8, s; cvta.shared.u64 %rd8, %rd8; mapa.u64 %rd7, %rd8, 0; sub.u64 %rd9, %rd7, %rd8;",
            "%rd9",
            [0, 0, 0],
            0,
        ),
        (
            ".shared .align 4 .b32 s; mov.u32 %r8, s; getctarank.shared::cluster.u32 %r9, %r8; add.u32 %r9, %r9, %cluster_nctarank;",
            "%r9",
            [0, 0, 0],
            1,
        ),
    ]);
}

#[test]
fn bulk_copies_bring_bytes_to_a_barrier_object() {
    let source = "\
        .version 8.6\n.target sm_90\n.address_size 64\n\
        .visible .entry k(.param .u64 from, .param .u64 to, .param .u32 size) {
        .reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .pred %p<3>;
        .shared .align 16 .b8 buffer[256]; .shared .align 8 .b64 object;
        ld.param.u64 %rd1, [from]; ld.param.u64 %rd2, [to]; ld.param.u32 %r1, [size];
        mov.u32 %r2, %tid.x; mov.u32 %r3, buffer; mov.u32 %r4, object;
        setp.ne.u32 %p1, %r2, 0; @%p1 bra wait;
        mbarrier.init.shared::cta.b64 [%r4], 1; fence.proxy.async;
        mbarrier.arrive.expect_tx.shared::cta.b64 %rd3, [%r4], %r1;
        cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r3], [%rd1], %r1, [%r4];
        wait: bar.sync 0;
        again: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r4], 0; @!%p2 bra again;
        @%p1 bra end;
        cp.async.bulk.global.shared::cta.bulk_group [%rd2], [%r3], %r1;
        cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0;
        end: ret; }";
    let device = Device::new(&[source]);
    let bytes: Vec<u8> = (0..=255).collect();
    let (from, to) = (device.upload(&bytes), device.zeros::<u8>(256));
    device.launch("k", 1, 64, Params::default().with(from).with(to).with(208_u32));
    let copied = device.download::<u8>(to, 256);
    assert_eq!((&copied[..208], &copied[208..]), (&bytes[..208], [0; 48].as_slice()));
    // A copy ends at the end of the block's memory, whatever it was asked for.
    for size in [1_u32 << 20, u32::MAX] {
        let params = Params::default().with(from).with(to).with(size);
        let fault = device.try_launch("k", [1, 1, 1], [64, 1, 1], 0, &params).unwrap_err();
        assert!(matches!(fault, causeway_ptx::Fault::IllegalAddress { .. }), "{fault}");
    }
}

/// Barriers with a number of threads count whole warps, whose lanes that have ended are not waited for (H200,
/// driver 580, 29 November 2026: all of these end).
#[test]
fn barriers_of_some_threads_count_warps() {
    for (name, threads, code) in [
        ("a warp with fewer lanes", 40, "bar.sync 1, 64;"),
        ("lanes that end before", 64, "setp.lt.u32 %p1, %r1, 4; @%p1 exit; bar.sync 1, 64;"),
        (
            "lanes that end meanwhile",
            64,
            "setp.ne.u32 %p1, %r1, 5; @%p1 bra L; nanosleep.u32 1; nanosleep.u32 1; exit; L: barrier.sync 1, 64;",
        ),
        (
            "a warp that arrives and ends",
            64,
            "setp.lt.u32 %p1, %r1, 32; @%p1 bra L; bar.arrive 3, 64; exit; L: bar.sync 3, 64;",
        ),
        (
            "a warp that arrives twice",
            64,
            "setp.lt.u32 %p1, %r1, 32; @%p1 bra L; bar.arrive 3, 96; bar.arrive 3, 96; exit; L: bar.sync 3, 96;",
        ),
        ("all", 40, "setp.lt.u32 %p1, %r1, 35; @%p1 exit; bar.sync 0;"),
    ] {
        let source = format!(
            ".version 8.6\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 out) {{\n\
             .reg .pred %p<4>; .reg .b32 %r<4>; .reg .b64 %rd<4>; mov.u32 %r1, %tid.x;\n{code}\n\
             ld.param.u64 %rd1, [out]; mov.u32 %r2, 1; st.global.u32 [%rd1], %r2; ret; }}"
        );
        let device = Device::new(&[&source]);
        let out = device.zeros::<u32>(1);
        let launched = device.try_launch("k", [1, 1, 1], [threads, 1, 1], 0, &Params::default().with(out));
        launched.unwrap_or_else(|fault| panic!("{name}: {fault}"));
        assert_eq!(device.download::<u32>(out, 1), [1], "{name}");
    }
    // Too few come: nobody may go on.
    let source =
        ".version 8.6\n.target sm_90\n.address_size 64\n.visible .entry k() { bar.sync 1, 96; ret; }";
    let device = Device::new(&[source]);
    assert!(device.try_launch("k", [1, 1, 1], [64, 1, 1], 0, &Params::default()).is_err());
}

/// A function's own copy of a structure that it is passed: indexed, changed, and given on.
#[test]
fn parameters_whose_address_is_taken_are_local_copies() {
    let source = ".version 8.6\n.target sm_90\n.address_size 64\n
        .func (.param .b32 r) change(.param .align 4 .b8 s[16], .param .b32 i) {
            .reg .b32 %r<8>; .reg .b64 %rd<8>;
            mov.b64 %rd1, s; cvta.local.u64 %rd2, %rd1;
            ld.param.u32 %r1, [i]; mul.wide.u32 %rd3, %r1, 4; add.s64 %rd4, %rd2, %rd3;
            ld.u32 %r2, [%rd4]; add.u32 %r3, %r2, 100; st.u32 [%rd4], %r3;
            cvta.to.local.u64 %rd5, %rd2; ld.local.u32 %r4, [%rd5+4]; ld.param.u32 %r5, [s+4];
            add.u32 %r6, %r4, %r5; st.param.b32 [r], %r6; ret;
        }
        .visible .entry k(.param .u64 out) {
            .reg .b32 %r<8>; .reg .b64 %rd<4>; ld.param.u64 %rd1, [out]; mov.u32 %r1, %tid.x;
            .param .align 4 .b8 a[16]; .param .b32 b; .param .b32 c;
            st.param.b32 [a], 1; st.param.b32 [a+4], 2; st.param.b32 [a+8], 3; st.param.b32 [a+12], 4;
            st.param.b32 [b], %r1; call (c), change, (a, b); ld.param.b32 %r2, [c]; ld.param.b32 %r3, [a+4];
            mul.wide.u32 %rd2, %r1, 8; add.u64 %rd1, %rd1, %rd2; st.global.v2.u32 [%rd1], {%r2, %r3}; ret;
        }";
    let device = Device::new(&[source]);
    let out = device.zeros::<u32>(8);
    device.launch("k", 1, 4, Params::default().with(out));
    assert_eq!(device.download::<u32>(out, 8), [4, 2, 204, 2, 4, 2, 4, 2]);
}

/// What a function is passed beyond its parameters, by each caller as much as it likes, in local memory.
#[test]
fn variadic_functions_find_what_they_are_passed() {
    let source = ".version 8.6\n.target sm_90\n.address_size 64\n
        .func (.param .b32 r) sum(.param .b32 count, .param .align 8 .b8 %VAParam[]) {
            .reg .pred %p<2>; .reg .b32 %r<8>; .reg .b64 %rd<4>;
            mov.u64 %rd1, %VAParam; ld.param.u32 %r1, [count]; mov.u32 %r2, 0;
            L: setp.eq.u32 %p1, %r1, 0; @%p1 bra E; ld.local.u32 %r3, [%rd1]; add.u32 %r2, %r2, %r3;
            add.u64 %rd1, %rd1, 4; sub.u32 %r1, %r1, 1; bra L; E: st.param.b32 [r], %r2; ret;
        }
        .visible .entry k(.param .u64 out) {
            .reg .b32 %r<8>; .reg .b64 %rd<4>; ld.param.u64 %rd1, [out];
            { .param .b32 n; .param .align 8 .b8 v[12]; .param .b32 c; st.param.b32 [n], 3; st.param.b32 [v], 1;
              st.param.b32 [v+4], 2; st.param.b32 [v+8], 3; call (c), sum, (n, v); ld.param.b32 %r1, [c]; }
            { .param .b32 n; .param .align 8 .b8 v[8]; .param .b32 c; st.param.b32 [n], 2; st.param.b32 [v], 10;
              st.param.b32 [v+4], 20; call (c), sum, (n, v); ld.param.b32 %r2, [c]; }
            st.global.v2.u32 [%rd1], {%r1, %r2}; ret;
        }";
    let device = Device::new(&[source]);
    let out = device.zeros::<u32>(2);
    device.launch("k", 1, 1, Params::default().with(out));
    assert_eq!(device.download::<u32>(out, 2), [6, 30]);
}

#[test]
fn the_stack_grows_by_what_is_asked_for_and_ends() {
    let allocate =
        "stacksave.u64 %rd6; alloca.u64 %rd7, %rd1; alloca.u64 %rd8, %rd1; st.local.u32 [%rd7], %r2;
        st.local.u32 [%rd8], %r3; ld.local.u32 %r9, [%rd7]; sub.u64 %rd5, %rd8, %rd7; stackrestore.u64 %rd6;
        alloca.u64 %rd4, 8;";
    check(&[
        (allocate, "%r9", [40, 7, 8], 7),
        (&format!("{allocate} mov.u64 %rd9, %rd5;"), "%rd9", [40, 7, 8], 48),
        (&format!("{allocate} sub.u64 %rd9, %rd4, %rd6;"), "%rd9", [40, 7, 8], 0),
    ]);
    for size in [1_u64 << 20, u64::MAX, u64::MAX - 8] {
        let source = ".version 8.6\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 size) {
            .reg .b64 %rd<4>; ld.param.u64 %rd1, [size]; alloca.u64 %rd2, %rd1; st.local.b64 [%rd2], %rd1; ret; }";
        let device = Device::new(&[source]);
        assert!(device.try_launch("k", [1; 3], [1; 3], 0, &Params::default().with(size)).is_err(), "{size}");
    }
}

#[test]
fn a_barrier_object_may_be_initialised_anew_by_the_first_thread_that_leaves_it() {
    // The thread that does so is the first, one between, and the last that arrives. The memory may also be used for
    // something else, once the thread has waited for the others.
    let init = "mbarrier.init.shared.b64 [object], %r6;";
    let store = "@%p4 mbarrier.init.shared.b64 [object], %r6; @%p4 ld.shared.b64 %rd3, [object];
                 @!%p4 st.shared.b64 [object], %rd3;";
    for (leader, code) in [(0, init), (17, init), (63, init), (0, store), (17, store)] {
        let device = Device::new(&[&kernel(&format!(
            ".shared .align 8 .b64 object; mov.u32 %r5, 0; mov.u32 %r6, %ntid.x;
             ROUND: setp.ne.u32 %p1, %r0, {leader}; setp.eq.u32 %p4, %r5, 0; @%p1 bra SYNC;
             {code}
             SYNC: bar.sync 0;
             mbarrier.arrive.shared.b64 %rd2, [object];
             mov.u32 %r7, 0;
             WAIT: mbarrier.try_wait.shared.b64 %p2, [object], %rd2;
             add.u32 %r7, %r7, 1; setp.gt.u32 %p5, %r7, 1000; @%p5 trap; @!%p2 bra WAIT;
             add.u32 %r5, %r5, 1; setp.lt.u32 %p3, %r5, 3; @%p3 bra ROUND;
             red.global.add.u32 [%rd0], %r5;"
        ))
        .replace("sm_75", "sm_90")]);
        let out = device.zeros::<u32>(1);
        device.launch("k", 1, 64, Params::default().with(out).with(out));
        assert_eq!(device.download::<u32>(out, 1), [192], "{leader}: {code}");
    }
}

/// Threads of blocks of three dimensions, that wait for each other or not, and of which some end within a function.
#[test]
fn every_thread_finds_its_own_index() {
    for wait in ["", "bar.sync 0;"] {
        let source = format!(
            ".version 8.0\n.target sm_75\n.address_size 64\n\
             .func maybe(.param .b32 a) {{ .reg .pred %p; .reg .b32 %r; ld.param.b32 %r, [a]; setp.eq.u32 %p, %r, 7; @%p exit; ret; }}\n\
             .visible .entry k(.param .u64 p) {{ .reg .b32 %r<9>; .reg .b64 %rd<3>; ld.param.u64 %rd1, [p];\n\
             mov.u32 %r1, %tid.x; mov.u32 %r2, %tid.y; mov.u32 %r3, %tid.z; mov.u32 %r4, %laneid; mov.u32 %r5, %warpid;\n\
             mad.lo.u32 %r6, %r3, 5, %r2; mad.lo.u32 %r6, %r6, 3, %r1; mad.wide.u32 %rd2, %r6, 20, %rd1;\n\
             {{ .param .b32 a; st.param.b32 [a], %r4; call maybe, (a); }} {wait}\n\
             st.global.u32 [%rd2], %r1; st.global.u32 [%rd2+4], %r2; st.global.u32 [%rd2+8], %r3; st.global.u32 [%rd2+12], %r4;\n\
             st.global.u32 [%rd2+16], %r5; ret; }}\n"
        );
        let device = Device::new(&[&source]);
        let output = device.upload(&vec![u32::MAX; 300]);
        device.try_launch("k", [3, 1, 1], [3, 5, 4], 0, &Params::default().with(output)).unwrap();
        let expected: Vec<u32> = (0..60)
            .flat_map(|index| {
                let lane = index % 32;
                if lane == 7 {
                    [u32::MAX; 5]
                } else {
                    [index % 3, index / 3 % 5, index / 15, lane, index / 32]
                }
            })
            .collect();
        assert_eq!(device.download::<u32>(output, 300), expected, "{wait}");
    }
}

/// Two groups of warps pass values on at barriers of their own, again and again, which the second one comes to with
/// lanes that branched apart.
#[test]
fn groups_of_warps_have_barriers_of_their_own() {
    let source = ".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry k(.param .u64 p) {\n\
        .reg .b32 %r<12>; .reg .b64 %rd<3>; .reg .pred %p<4>; .shared .align 4 .b8 s[512];\n\
        ld.param.u64 %rd1, [p]; mov.u32 %r1, %tid.x; mov.u32 %r2, s; shl.b32 %r3, %r1, 2; add.u32 %r4, %r2, %r3;\n\
        xor.b32 %r5, %r3, 128; add.u32 %r5, %r2, %r5; mov.u32 %r6, %r1; mov.u32 %r7, 0; shr.u32 %r8, %r1, 6;\n\
        setp.ne.u32 %p1, %r8, 0; and.b32 %r9, %r1, 1; setp.eq.u32 %p2, %r9, 0;\n\
        AGAIN: st.shared.u32 [%r4], %r6; @%p1 bra SECOND; bar.sync 1, 64; ld.shared.u32 %r10, [%r5]; bar.sync 1, 64; bra NEXT;\n\
        SECOND: @%p2 bra EVEN; bar.sync 2, 64; bra BOTH;\n\
        EVEN: bar.sync 2, 64;\n\
        BOTH: ld.shared.u32 %r10, [%r5]; bar.sync 2, 64;\n\
        NEXT: mad.lo.u32 %r6, %r10, 3, 1; add.u32 %r7, %r7, 1; setp.lt.u32 %p3, %r7, 9; @%p3 bra AGAIN;\n\
        mad.wide.u32 %rd2, %r1, 4, %rd1; st.global.u32 [%rd2], %r6; ret; }\n";
    let device = Device::new(&[source]);
    let output = device.zeros::<u32>(128);
    device.launch("k", 1, 128, Params::default().with(output));
    let mut expected: Vec<u32> = (0..128).collect();
    for _ in 0..9 {
        expected = (0..128).map(|thread| expected[thread ^ 32].wrapping_mul(3).wrapping_add(1)).collect();
    }
    assert_eq!(device.download::<u32>(output, 128), expected);
}

/// A register that a thread does not write is zero, whatever the thread before it left there, and so is the carry flag.
#[test]
fn no_thread_finds_what_another_one_left_in_registers() {
    let source = kernel(
        ".reg .b16 %h; .reg .f64 %d; setp.eq.u32 %p1, %r0, 2; @!%p1 bra REST;\n\
         mov.u32 %r1, 5; mov.f32 %f1, 0f3f800000; mov.u16 %h, 9; mov.f64 %d, 0d4000000000000000; mov.pred %p2, -1;\n\
         add.cc.u32 %r2, -1, 1;\n\
         REST: addc.u32 %r3, 0, 0; mov.b32 %r4, %f1; mov.b64 %rd3, %d; cvt.u32.u16 %r5, %h; cvt.u32.u64 %r7, %rd3;\n\
         shr.u64 %rd3, %rd3, 32; cvt.u32.u64 %r6, %rd3; selp.u32 %r8, 1, 0, %p2; mad.wide.u32 %rd2, %r0, 28, %rd0;\n\
         st.global.u32 [%rd2], %r1; st.global.u32 [%rd2+4], %r4; st.global.u32 [%rd2+8], %r5; st.global.u32 [%rd2+12], %r6;\n\
         st.global.u32 [%rd2+16], %r7; st.global.u32 [%rd2+20], %r8; st.global.u32 [%rd2+24], %r3;",
    );
    let device = Device::new(&[&source]);
    let output = device.zeros::<u32>(28);
    device.launch("k", 1, 4, Params::default().with(output).with(0_u64));
    let third = [5, 0x3f80_0000, 9, 0x4000_0000, 0, 1, 1];
    let expected = [[0; 7], [0; 7], third, [0; 7]].concat();
    assert_eq!(device.download::<u32>(output, 28), expected);
}
