//! Lanes of a warp: what they execute together without `__syncwarp`, and in turn.

use crate::common::{Device, Params, kernel};

/// PTX leaves this undefined. GPUs have the lanes of a warp that did not branch apart execute it together.
#[test]
fn lanes_that_their_own_mask_does_not_name_take_part() {
    type Expected = fn(u32) -> u32;
    let rows: [(&str, Expected); 6] = [
        ("shfl.sync.up.b32 %r2, %r0, 16, 0, 0x0000ffff;", |lane| if lane < 16 { lane } else { lane - 16 }),
        ("match.all.sync.b32 %r2|%p1, 7, 0x00ff;", |_| 0xff),
        ("vote.sync.ballot.b32 %r2, %p1, 0x00f0;", |_| 0xa0),
        // Each lane has a mask of its own: the lanes below it, none for lane 0.
        ("vote.sync.ballot.b32 %r2, %p1, %r3;", |lane| 0xaaaa_aaaa & ((1_u64 << lane) - 1) as u32),
        ("redux.sync.add.u32 %r2, %r0, %r3;", |lane| (0..lane).sum()),
        ("bar.warp.sync %r3; mov.u32 %r2, 5;", |_| 5),
    ];
    for (code, expected) in rows {
        let device = Device::new(&[&kernel(&format!(
            "mov.u32 %r3, %lanemask_lt; and.b32 %r4, %r0, 1; setp.ne.u32 %p1, %r4, 0; bar.sync 0;
             {code}
             shfl.sync.idx.b32 %r2, %r2, %r0, 0x1f, -1;
             mad.wide.u32 %rd0, %r0, 4, %rd0; st.global.u32 [%rd0], %r2;"
        ))
        .replace("sm_75", "sm_80")]);
        let out = device.zeros::<u32>(64);
        device.launch("k", 1, 64, Params::default().with(out).with(out));
        let found = device.download::<u32>(out, 64);
        // A sum over no lanes is left open.
        for thread in (0..64).filter(|thread| thread % 32 != 0 || !code.starts_with("redux")) {
            let lane = thread % 32;
            let upper = if thread < 32 || !code.contains("%r0") { 0 } else { 32 };
            let offset = if code.starts_with("redux") { upper * lane } else { upper };
            assert_eq!(found[thread as usize], expected(lane) + offset, "{code}, thread {thread}");
        }
    }
}

/// The classic scan and reduction of a warp, from before `__syncwarp`: GPUs have the lanes make each access together.
#[test]
fn lanes_make_volatile_accesses_to_shared_memory_together() {
    let scan: String = [1, 2, 4, 8, 16]
        .map(|distance| {
            let offset = 4 * distance;
            format!("ld.volatile.shared.u32 %r4, [%r2-{offset}]; add.u32 %r3, %r3, %r4; st.volatile.shared.u32 [%r2], %r3;")
        })
        .concat();
    // Fewer lanes in each step; the others go on to the end and read the sum.
    let reduction: String = [16, 8, 4, 2, 1]
        .map(|lanes| {
            let offset = 4 * lanes;
            format!(
                "setp.ge.u32 %p1, %r0, {lanes}; @%p1 bra L{lanes};
                 ld.volatile.shared.u32 %r4, [%r2+{offset}]; ld.volatile.shared.u32 %r3, [%r2];
                 add.u32 %r3, %r3, %r4; st.volatile.shared.u32 [%r2], %r3; L{lanes}:"
            )
        })
        .concat();
    let reduction = reduction + "ld.volatile.shared.u32 %r3, [array+128];";
    for (code, expected) in [(scan, (1..=32).collect::<Vec<u32>>()), (reduction, vec![32; 32])] {
        let device = Device::new(&[&kernel(&format!(
            ".shared .align 4 .b8 array[256]; mov.u32 %r2, array; mad.lo.u32 %r2, %r0, 4, %r2; mov.u32 %r3, 1;
             st.volatile.shared.u32 [%r2], 0; add.u32 %r2, %r2, 128; st.volatile.shared.u32 [%r2], %r3;
             {code}
             mad.wide.u32 %rd0, %r0, 4, %rd0; st.global.u32 [%rd0], %r3;"
        ))]);
        let out = device.zeros::<u32>(32);
        device.launch("k", 1, 32, Params::default().with(out).with(out));
        assert_eq!(device.download::<u32>(out, 32), expected, "{code}");
    }
}

/// Scans of warps in memory without `__syncwarp`, by plain accesses: in one warp, and where the code computes lanes.
#[test]
fn lanes_that_exchange_values_without_synchronization_make_accesses_together() {
    let straight: String = [1, 2, 4, 8, 16]
        .map(|distance| {
            let offset = 4 * distance;
            format!("LOAD %r4, [%rd2-{offset}]; add.u32 %r3, %r3, %r4; STORE [%rd2], %r3;")
        })
        .concat();
    let looped = "mov.u32 %r5, 4;
        ROUND: cvt.u64.u32 %rd3, %r5; sub.u64 %rd3, %rd2, %rd3; LOAD %r4, [%rd3]; add.u32 %r3, %r3, %r4; STORE [%rd2], %r3;
        add.u32 %r5, %r5, %r5; setp.lt.u32 %p1, %r5, 128; @%p1 bra ROUND;";
    // Half of the lanes change nothing in each step: those with a bit of their number, as in a sorting network.
    let divergent = "mov.u32 %r5, 1;
        ROUND: and.b32 %r6, %r0, %r5; setp.ne.u32 %p2, %r6, 0; @%p2 bra NEXT;
        shl.b32 %r6, %r5, 2; cvt.u64.u32 %rd3, %r6; add.u64 %rd3, %rd2, %rd3;
        LOAD %r4, [%rd3]; LOAD %r3, [%rd2]; add.u32 %r3, %r3, %r4; STORE [%rd2], %r3; STORE [%rd3], %r3;
        NEXT: add.u32 %r5, %r5, %r5; setp.lt.u32 %p1, %r5, 32; @%p1 bra ROUND; LOAD %r3, [%rd2];";
    let counts: Vec<u32> = (1..=32).collect();
    let codes = [(&*straight, counts.clone()), (looped, counts), (divergent, vec![32; 32])];
    for (code, expected) in codes {
        for (load, store) in [
            ("ld.global.u32", "st.global.u32"),
            ("ld.u32", "st.u32"),
            ("ld.volatile.global.u32", "st.volatile.global.u32"),
            ("ld.shared.u32", "st.shared.u32"),
        ] {
            for warps in [1, 3] {
                // Each warp has 32 zeros and then its numbers. Lanes of several warps are computed.
                let row = if warps == 1 {
                    "mov.u32 %r7, %r0;"
                } else {
                    "shr.u32 %r7, %r0, 5; mul.lo.u32 %r7, %r7, 32; add.u32 %r7, %r7, %r0;"
                };
                let base =
                    if load.contains("shared") { "mov.u64 %rd2, array;" } else { "mov.u64 %rd2, %rd1;" };
                let code = code.replace("LOAD", load).replace("STORE", store);
                let device = Device::new(&[&kernel(&format!(
                    ".shared .align 4 .b8 array[768]; {base} {row}
                     mad.wide.u32 %rd2, %r7, 4, %rd2; mov.u32 %r3, 0; {store} [%rd2], %r3;
                     mov.u32 %r3, 1; {store} [%rd2+128], %r3; add.u64 %rd2, %rd2, 128;
                     {code}
                     mad.wide.u32 %rd0, %r0, 4, %rd0; st.global.u32 [%rd0], %r3;"
                ))]);
                let (out, array) = (device.zeros::<u32>(96), device.zeros::<u32>(192));
                device.launch("k", 1, 32 * warps, Params::default().with(out).with(array));
                let found = device.download::<u32>(out, 32 * warps as usize);
                assert_eq!(found, expected.repeat(warps as usize), "{warps} warps: {code}");
            }
        }
    }
}

/// A lock by which one lane after the other changes a number: whoever waits for it does not keep its owner from going on.
#[test]
fn lanes_that_poll_for_a_lock_let_its_owner_go_on() {
    let device = Device::new(&[&kernel(
        "POLL: atom.global.cas.b32 %r1, [%rd0], 0, 1; setp.ne.u32 %p1, %r1, 0; @%p1 bra POLL;
         ld.global.u32 %r2, [%rd1]; add.u32 %r2, %r2, 1; st.global.u32 [%rd1], %r2;
         ld.global.u32 %r3, [%rd1+4]; add.u32 %r3, %r3, %r2; st.global.u32 [%rd1+4], %r3;
         atom.global.exch.b32 %r1, [%rd0], 0;",
    )]);
    let (lock, numbers) = (device.zeros::<u32>(1), device.zeros::<u32>(2));
    device.launch("k", 1, 32, Params::default().with(lock).with(numbers));
    assert_eq!(device.download::<u32>(numbers, 2), [32, 32 * 33 / 2]);
}
