//! Clusters of blocks: their numbers, distributed shared memory and its barrier.

use causeway_ptx::{Fault, LaunchConfig};

use crate::common::{self, Device, Params};

const HEAD: &str = ".version 8.6\n.target sm_90\n.address_size 64\n";

/// Launches the kernel `k` in clusters of this size along x.
fn launch(device: &Device, grid: u32, block: u32, cluster: u32, params: &Params) -> Result<(), Fault> {
    launch_3d(device, [grid, 1, 1], block, [cluster, 1, 1], params)
}

fn launch_3d(
    device: &Device,
    grid: [u32; 3],
    block: u32,
    cluster: [u32; 3],
    params: &Params,
) -> Result<(), Fault> {
    let config = LaunchConfig {
        grid,
        block: [block, 1, 1],
        cluster: Some(cluster),
        dynamic_shared: 0,
        cooperative: false,
        priority: 0,
        params: &params.0,
    };
    device.loaded.launch("k", config, common::pool(), &device.output)
}

/// A kernel `k(u64 out)` in which `t` is the thread, `b` the block, `rank` its number in the cluster, `n` the
/// cluster's blocks and `peer` the next one's rank.
fn kernel(declarations: &str, body: &str) -> Device {
    Device::new(&[&format!(
        "{HEAD}.visible .entry k(.param .u64 p) {{
        .reg .b64 out, %a<9>; .reg .b32 t, b, n, rank, peer, %r<9>; .reg .pred %p<9>; {declarations}
        ld.param.u64 out, [p]; mov.u32 t, %tid.x; mov.u32 b, %ctaid.x; mov.u32 n, %cluster_nctarank;
        mov.u32 rank, %cluster_ctarank; add.u32 peer, rank, 1; rem.u32 peer, peer, n;
        {body}
        ret; }}"
    )])
}

const SYNC: &str = "barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;";

#[test]
fn blocks_know_their_cluster() {
    let names = ["clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid", "ctaid"];
    let mut body = String::new();
    for (index, name) in names.iter().enumerate() {
        for (axis, letter) in "xyz".chars().enumerate() {
            let at = 4 * (3 * index + axis);
            body += &format!("mov.u32 %r1, %{name}.{letter}; st.global.u32 [%a1+{at}], %r1;\n");
        }
    }
    let device = kernel(
        "",
        &format!(
            "mov.u32 %r2, %ctaid.y; mov.u32 %r3, %nctaid.x; mad.lo.u32 b, %r2, %r3, b;
             mad.wide.u32 %a1, b, 72, out; {body}
             st.global.u32 [%a1+60], rank; st.global.u32 [%a1+64], n;
             mov.pred %p1, %is_explicit_cluster; selp.u32 %r1, 1, 0, %p1; st.global.u32 [%a1+68], %r1;"
        ),
    );
    let out = device.zeros::<u32>(8 * 4 * 18);
    launch_3d(&device, [8, 4, 1], 1, [4, 2, 1], &Params::default().with(out)).unwrap();
    let words = device.download::<u32>(out, 8 * 4 * 18);
    for (block, words) in (0..).zip(words.chunks(18)) {
        let (x, y) = (block % 8, block / 8);
        let expected = [x / 4, y / 2, 0, 2, 2, 1, x % 4, y % 2, 0, 4, 2, 1, x, y, 0, x % 4 + y % 2 * 4, 8, 1];
        assert_eq!(words, expected, "block {x}, {y}");
    }
    // Each block is a cluster of its own where nobody asks for more.
    device.launch("k", 2, 1, Params::default().with(out));
    let words = device.download::<u32>(out, 2 * 18);
    assert_eq!(words[18..], [1, 0, 0, 2, 1, 1, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 1, 0]);
}

#[test]
fn blocks_write_to_each_others_shared_memory() {
    // The number of the block and thread goes to the next block in one of several ways, then into global memory.
    let ways = [
        "mapa.shared::cluster.u32 %r3, %r2, peer; st.shared::cluster.u32 [%r3], %r1;",
        "mapa.shared::cluster.u64 %a2, %a1, peer; st.shared::cluster.u32 [%a2], %r1;",
        "cvta.shared.u64 %a2, %a1; mapa.u64 %a2, %a2, peer; st.u32 [%a2], %r1;",
        "cvta.shared.u64 %a2, %a1; mapa.u64 %a2, %a2, peer; cvta.to.shared.u64 %a2, %a2; cvt.u32.u64 %r3, %a2;
         st.shared::cluster.u32 [%r3], %r1;",
        "mapa.shared::cluster.u64 %a2, %a1, peer; cvta.shared::cluster.u64 %a2, %a2; st.u32 [%a2], %r1;",
        "mapa.shared::cluster.u32 %r3, %r2, peer; atom.shared::cluster.add.u32 %r4, [%r3], %r1;",
        "mapa.shared::cluster.u32 %r3, %r2, peer; atom.shared::cluster.cas.b32 %r4, [%r3], 0, %r1;",
        "mapa.shared::cluster.u32 %r3, %r2, peer; red.shared::cluster.or.b32 [%r3], %r1;",
        "cvta.shared.u64 %a2, %a1; mapa.u64 %a2, %a2, peer; red.relaxed.cluster.max.u32 [%a2], %r1;",
        // By way of another one, and of its own address in the cluster.
        "mapa.shared::cluster.u32 %r3, %r2, 0; mapa.shared::cluster.u32 %r3, %r3, peer; st.shared::cluster.u32 [%r3], %r1;",
        "mapa.shared::cluster.u32 %r3, %r2, rank; ld.shared.u32 %r4, [%r3]; and.b32 %r4, %r4, 0; add.u32 %r4, %r4, %r1;
         mapa.shared::cluster.u32 %r3, %r3, peer; st.shared::cluster.u32 [%r3], %r4;",
    ];
    for way in ways {
        let device = kernel(
            ".shared .align 4 .b32 s[64];",
            &format!(
                "shl.b32 %r2, t, 2; mov.u32 %r5, s; add.u32 %r2, %r2, %r5; cvt.u64.u32 %a1, %r2;
                 st.shared.u32 [%r2], 0; {SYNC}
                 mad.lo.u32 %r1, b, 100, t; {way}
                 {SYNC} ld.shared.u32 %r6, [%r2]; mad.lo.u32 %r7, b, 64, t; mad.wide.u32 %a3, %r7, 4, out;
                 st.global.u32 [%a3], %r6;"
            ),
        );
        for size in [1, 2, 8, 16] {
            let out = device.zeros::<u32>(32 * 64);
            launch(&device, 32, 64, size, &Params::default().with(out)).unwrap();
            let expected: Vec<u32> = (0..32 * 64)
                .map(|index| {
                    let (block, thread) = (index / 64, index % 64);
                    (block / size * size + (block % size + size - 1) % size) * 100 + thread
                })
                .collect();
            let found = device.download::<u32>(out, 32 * 64);
            let wrong = (0..found.len()).find(|&index| found[index] != expected[index]);
            assert_eq!(wrong, None, "{size} blocks: {way}");
        }
    }
}

#[test]
fn addresses_tell_the_rank_of_their_block() {
    let device = kernel(
        ".shared .align 4 .b32 s; .local .b32 l;",
        "mad.wide.u32 %a3, b, 40, out; mov.u32 %r2, s; cvt.u64.u32 %a1, %r2; cvta.shared.u64 %a2, %a1;
         getctarank.shared::cluster.u32 %r3, %r2; st.global.u32 [%a3], %r3;
         mapa.shared::cluster.u32 %r4, %r2, peer; getctarank.shared::cluster.u32 %r3, %r4; st.global.u32 [%a3+4], %r3;
         getctarank.u64 %r3, %a2; st.global.u32 [%a3+8], %r3;
         mapa.u64 %a4, %a2, peer; getctarank.u64 %r3, %a4; st.global.u32 [%a3+12], %r3;
         isspacep.shared::cluster %p1, %a4; selp.u32 %r3, 1, 0, %p1; st.global.u32 [%a3+16], %r3;
         isspacep.shared::cta %p1, %a4; selp.u32 %r3, 1, 0, %p1; st.global.u32 [%a3+20], %r3;
         isspacep.global %p1, %a4; selp.u32 %r3, 1, 0, %p1; st.global.u32 [%a3+24], %r3;
         isspacep.shared::cluster %p1, %a2; selp.u32 %r3, 1, 0, %p1; st.global.u32 [%a3+28], %r3;
         mov.u64 %a5, l; cvta.local.u64 %a5, %a5;
         isspacep.shared::cluster %p1, %a5; selp.u32 %r3, 1, 0, %p1; st.global.u32 [%a3+32], %r3;
         isspacep.global %p1, out; selp.u32 %r3, 1, 0, %p1; st.global.u32 [%a3+36], %r3;",
    );
    let out = device.zeros::<u32>(40);
    launch(&device, 4, 1, 4, &Params::default().with(out)).unwrap();
    for (rank, words) in (0..).zip(device.download::<u32>(out, 40).chunks(10)) {
        let peer = (rank + 1) % 4;
        assert_eq!(words, [rank, peer, rank, peer, 1, 0, 0, 1, 0, 1], "rank {rank}");
    }
}

#[test]
fn a_thread_may_work_between_arrival_and_wait() {
    // The first block polls, between the two, for what the last one writes when it has passed the barrier.
    let device = kernel(
        ".shared .align 4 .b32 s;",
        &format!(
            "mov.u32 %r2, s; st.shared.u32 [%r2], 0; {SYNC}
             barrier.cluster.arrive.relaxed;
             setp.ne.u32 %p1, rank, 0; @%p1 bra WAIT;
             POLL: ld.volatile.shared.u32 %r3, [%r2]; setp.eq.u32 %p2, %r3, 0; @%p2 bra POLL;
             WAIT: barrier.cluster.wait;
             sub.u32 %r4, n, 1; setp.ne.u32 %p1, rank, %r4; setp.ne.or.u32 %p1, t, 0, %p1;
             mapa.shared::cluster.u32 %r5, %r2, 0; @!%p1 st.shared::cluster.u32 [%r5], 7;
             {SYNC} mad.wide.u32 %a1, b, 4, out; ld.shared.u32 %r3, [%r2]; st.global.u32 [%a1], %r3;"
        ),
    );
    for cluster in [2, 4] {
        let out = device.zeros::<u32>(8);
        launch(&device, 8, 40, cluster, &Params::default().with(out)).unwrap();
        let expected: Vec<u32> = (0..8).map(|block| if block % cluster == 0 { 7 } else { 0 }).collect();
        assert_eq!(device.download::<u32>(out, 8), expected);
    }
}

#[test]
fn blocks_wait_for_a_word_in_another_ones_memory() {
    // A token goes around three times; each block waits for its turn, and all look by loads of their own kind.
    let loads = [
        "ld.acquire.cluster.shared::cluster.u32 %r3, [%r2];",
        "ld.volatile.shared.u32 %r3, [%r2];",
        "atom.shared.add.u32 %r3, [%r2], 0;",
        "ld.relaxed.cluster.u32 %r3, [%a2];",
    ];
    for load in loads {
        let device = kernel(
            ".shared .align 4 .b32 s;",
            &format!(
                "mov.u32 %r2, s; st.shared.u32 [%r2], 0; cvt.u64.u32 %a1, %r2; cvta.shared.u64 %a2, %a1; {SYNC}
                 setp.ne.u32 %p1, t, 0; @%p1 bra END;
                 mov.u32 %r4, 0; mapa.shared::cluster.u32 %r5, %r2, peer;
                 setp.ne.u32 %p2, rank, 0; selp.u32 %r7, 1, 0, %p2;
                 ROUND: add.u32 %r8, %r4, %r7;
                 AGAIN: {load} setp.lt.u32 %p3, %r3, %r8; @%p3 bra AGAIN;
                 mad.lo.u32 %r6, %r4, n, rank; mul.wide.u32 %a3, %r6, 4; add.u64 %a3, %a3, out;
                 st.global.u32 [%a3], %r3; add.u32 %r4, %r4, 1;
                 st.release.cluster.shared::cluster.u32 [%r5], %r4;
                 setp.lt.u32 %p2, %r4, 3; @%p2 bra ROUND;
                 END: {SYNC}"
            ),
        );
        let out = device.zeros::<u32>(24);
        launch(&device, 8, 33, 8, &Params::default().with(out)).unwrap();
        let words = device.download::<u32>(out, 24);
        let expected: Vec<u32> = (0..24).map(|index| index / 8 + u32::from(index % 8 != 0)).collect();
        assert_eq!(words, expected, "{load}");
    }
}

#[test]
fn threads_that_have_ended_are_not_waited_for() {
    // Whole blocks end, before and after they arrive, and single threads.
    let device = kernel(
        ".shared .align 4 .b32 s;",
        &format!(
            "setp.eq.u32 %p1, rank, 1; @%p1 exit;
             setp.ne.u32 %p1, rank, 2; @%p1 bra STAY; barrier.cluster.arrive; exit;
             STAY: setp.gt.u32 %p1, t, 40; @%p1 exit;
             mov.u32 %r2, s; st.shared.u32 [%r2], 0; {SYNC}
             mapa.shared::cluster.u32 %r3, %r2, 0; red.shared::cluster.add.u32 [%r3], 1;
             {SYNC} ld.shared.u32 %r4, [%r2]; mad.wide.u32 %a1, b, 4, out; st.global.u32 [%a1], %r4;"
        ),
    );
    let out = device.zeros::<u32>(8);
    launch(&device, 8, 64, 4, &Params::default().with(out)).unwrap();
    assert_eq!(device.download::<u32>(out, 8), [82, 0, 0, 0, 82, 0, 0, 0]);
}

#[test]
fn threads_that_can_never_go_on_are_reported() {
    for body in [
        // One that waits without having arrived, one that another block's barrier holds up.
        "setp.eq.u32 %p1, rank, 0; @%p1 bra W; barrier.cluster.arrive; W: barrier.cluster.wait;",
        "setp.eq.u32 %p1, rank, 0; @%p1 bar.sync 1, 64; barrier.cluster.arrive; barrier.cluster.wait;",
    ] {
        let device = kernel("", body);
        let fault = launch(&device, 2, 32, 2, &Params::default().with(0_u64)).unwrap_err();
        assert!(matches!(fault, Fault::Deadlock { .. }), "{fault}");
    }
}

#[test]
fn arrivals_and_bytes_come_from_other_blocks() {
    // Each block sends to the next one, whose barrier object counts what comes.
    let sends = [
        // A store and an arrival.
        (
            "st.shared::cluster.u32 [%r4], %r1; mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r5];",
            0,
        ),
        (
            "cvta.shared::cluster.u64 %a4, %a5; st.shared::cluster.u32 [%r4], %r1;
          mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r5], 1;",
            0,
        ),
        ("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r4], %r1, [%r5];", 4),
        (
            "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%r4], {%r1, %r1, %r1, %r1}, [%r5];",
            16,
        ),
        (
            "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%r4], %r1, [%r5];",
            4,
        ),
        (
            "st.shared.v4.u32 [%r7], {%r1, %r1, %r1, %r1}; fence.proxy.async;
          cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r4], [%r7], 16, [%r5];",
            16,
        ),
        (
            "st.global.v4.u32 [%a1], {%r1, %r1, %r1, %r1};
          cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r4], [%a1], 16, [%r5];",
            16,
        ),
    ];
    for (send, bytes) in sends {
        let arrive = if bytes == 0 {
            String::new()
        } else {
            format!("@!%p1 mbarrier.arrive.expect_tx.shared.b64 %a3, [%r3], {bytes};")
        };
        let device = kernel(
            ".shared .align 16 .b8 s[16]; .shared .align 16 .b8 from[16]; .shared .align 8 .b64 object;",
            &format!(
                "setp.ne.u32 %p1, t, 0; mov.u32 %r2, s; mov.u32 %r3, object; mov.u32 %r7, from;
                 mad.wide.u32 %a1, b, 16, out; add.u32 %r1, b, 500; cvt.u64.u32 %a5, %r3;
                 @!%p1 st.shared.u32 [%r2], 0; @!%p1 mbarrier.init.shared.b64 [%r3], 1;
                 fence.mbarrier_init.release.cluster; {SYNC}
                 mapa.shared::cluster.u32 %r4, %r2, peer; mapa.shared::cluster.u32 %r5, %r3, peer;
                 {arrive} @%p1 bra WAIT; {send}
                 WAIT: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p2, [%r3], 0; @!%p2 bra WAIT;
                 {SYNC} @%p1 bra END;
                 ld.shared.u32 %r6, [%r2]; st.global.u32 [%a1], %r6;
                 END:"
            ),
        );
        let out = device.zeros::<u32>(16 * 4);
        launch(&device, 16, 34, 4, &Params::default().with(out)).unwrap();
        let words = device.download::<u32>(out, 16 * 4);
        let found: Vec<u32> = words.iter().step_by(4).copied().collect();
        let expected: Vec<u32> = (0..16).map(|block| 500 + block / 4 * 4 + (block % 4 + 3) % 4).collect();
        assert_eq!(found, expected, "{send}");
    }
}

#[test]
fn a_copy_goes_to_several_blocks() {
    let device = kernel(
        ".shared .align 16 .b8 s[64]; .shared .align 8 .b64 object;",
        &format!(
            "mov.u32 %r2, s; mov.u32 %r3, object; mbarrier.init.shared.b64 [%r3], 1; st.shared.u32 [%r2+12], 1;
             mad.wide.u32 %a2, b, 4, out; add.u64 %a1, out, 64; mov.u32 %r6, 1;
             setp.eq.u32 %p1, rank, 3; selp.u32 %r5, 0, 16, %p1;
             mbarrier.arrive.expect_tx.shared.b64 %a3, [%r3], %r5; {SYNC}
             setp.ne.u32 %p1, rank, 1; @%p1 bra WAIT;
             .reg .b16 mask; mov.u16 mask, 7;
             cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r2], [%a1], 16, [%r3], mask;
             WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r3], 0; @!%p2 bra WAIT;
             {SYNC} ld.shared.u32 %r6, [%r2+12]; st.global.u32 [%a2], %r6;"
        ),
    );
    let out = device.upload(&(0..20_u32).map(|word| word + 100).collect::<Vec<_>>());
    launch(&device, 4, 1, 4, &Params::default().with(out)).unwrap();
    assert_eq!(device.download::<u32>(out, 4), [119, 119, 119, 1]);
}

#[test]
fn addresses_outside_of_the_clusters_memory_are_faults() {
    // A block has 64 bytes; the last three addresses have ranks that there are not.
    let addresses =
        ["64", "0x01000040", "0x02000040", "0x02fffff0", "0x03000000", "0xff000000", "0xfffffff0"];
    let accesses = [
        "ld.shared::cluster.u32 %r1, [%r2];",
        "st.shared::cluster.u32 [%r2], 1;",
        "st.shared.v4.u32 [%r2], {t, t, t, t};",
        "ld.shared::cluster.u32 %r1, [%a1];",
        "atom.shared::cluster.add.u32 %r1, [%r2], 1;",
        "red.shared::cluster.add.u32 [%r2], 1;",
        "mbarrier.arrive.shared::cluster.b64 _, [%r2];",
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r3], 1, [%r2];",
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r2], 1, [%r3];",
        "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r2], [%r3], 16, [%r3];",
        "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r3], [%r2], 16, [%r3];",
        "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r3], [%r3], 16, [%r2];",
    ];
    for address in addresses {
        for access in accesses {
            let device = kernel(
                ".shared .align 16 .b8 s[64];",
                &format!(
                    "mapa.shared::cluster.u32 %r3, 0, peer; mov.u32 %r2, {address}; cvt.u64.u32 %a1, %r2; {access}"
                ),
            );
            let fault = launch(&device, 2, 1, 2, &Params::default().with(0_u64)).unwrap_err();
            assert!(matches!(fault, Fault::IllegalAddress { .. }), "{address}: {access}: {fault}");
        }
    }
    for (body, misaligned) in [
        ("mapa.shared::cluster.u32 %r2, 60, 2; ld.shared::cluster.u32 %r1, [%r2];", false),
        ("mapa.shared::cluster.u32 %r2, 0, 0x7fffffff; ld.shared::cluster.u32 %r1, [%r2];", false),
        ("mov.u64 %a1, 0; cvta.shared.u64 %a1, %a1; mapa.u64 %a1, %a1, 2; ld.u32 %r1, [%a1];", false),
        ("mapa.u64 %a1, out, 1; ld.u32 %r1, [%a1];", false),
        ("mapa.shared::cluster.u32 %r2, 58, 1; ld.shared::cluster.u32 %r1, [%r2];", true),
        ("mapa.shared::cluster.u64 %a1, -16, 1; ld.shared::cluster.u32 %r1, [%a1];", false),
        (
            ".reg .b16 m; mov.u16 m, 7; mov.u32 %r2, 0; cvta.shared.u64 %a1, 0;
             cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r2], [%a1], 16, [%r2], m;",
            false,
        ),
    ] {
        let device = kernel(".shared .align 16 .b8 s[64];", body);
        let fault = launch(&device, 2, 1, 2, &Params::default().with(0_u64)).unwrap_err();
        let expected = match fault {
            Fault::IllegalAddress { .. } => !misaligned,
            Fault::Misaligned { .. } => misaligned,
            _ => false,
        };
        assert!(expected, "{body}: {fault}");
    }
}

#[test]
fn the_kernel_may_say_how_large_clusters_are() {
    let device = Device::new(&[&format!(
        "{HEAD}.visible .entry k(.param .u64 p) .explicitcluster .reqnctapercluster 2, 2 {{ ret; }}
        .visible .entry own(.param .u64 p) .maxclusterrank 4 {{ ret; }}"
    )]);
    let kernels = device.loaded.program().kernels();
    assert_eq!((kernels[0].cluster, kernels[0].explicit_cluster), (Some([2, 2, 1]), true));
    assert_eq!((kernels[1].cluster, kernels[1].max_cluster_blocks), (None, Some(4)));
    let params = Params::default().with(0_u64);
    device.try_launch("k", [2, 4, 1], [1; 3], 0, &params).unwrap();
    let refused = |fault: Result<(), Fault>, text: &str| {
        let fault = fault.unwrap_err();
        assert!(
            matches!(fault, Fault::InvalidConfiguration { .. }) && fault.to_string().contains(text),
            "{fault}"
        );
    };
    refused(
        device.try_launch("k", [2, 3, 1], [1; 3], 0, &params),
        "3 blocks along y, which is no multiple of the 2",
    );
    refused(
        launch(&device, 4, 1, 4, &params),
        "clusters of [4, 1, 1] blocks, and the kernel was compiled for",
    );
    let plain = kernel("", "");
    refused(launch(&plain, 17, 1, 17, &params), "a cluster has 17 blocks; 1 to 16 are possible");
    refused(launch(&plain, 4, 1, 0, &params), "a cluster has 0 blocks");
    refused(launch_3d(&plain, [4, 4, 4], 1, [1 << 31, 1 << 31, 4], &params), "a cluster has");
}

#[test]
fn the_barrier_waits_for_the_last_block() {
    // The second block lets others run many times before it writes and arrives.
    let device = kernel(
        ".shared .align 4 .b32 s;",
        &format!(
            "mov.u32 %r2, s; st.shared.u32 [%r2], 0; mov.u32 %r4, 0; setp.eq.u32 %p1, rank, 0; @%p1 bra WAIT;
             AGAIN: nanosleep.u32 1; add.u32 %r4, %r4, 1; setp.lt.u32 %p2, %r4, 100; @%p2 bra AGAIN;
             st.shared.u32 [%r2], 7;
             WAIT: {SYNC} mapa.shared::cluster.u32 %r3, %r2, peer; ld.shared::cluster.u32 %r5, [%r3];
             mad.wide.u32 %a1, b, 4, out; st.global.u32 [%a1], %r5; {SYNC}"
        ),
    );
    let out = device.zeros::<u32>(2);
    launch(&device, 2, 1, 2, &Params::default().with(out)).unwrap();
    assert_eq!(device.download::<u32>(out, 2), [7, 0]);
}
