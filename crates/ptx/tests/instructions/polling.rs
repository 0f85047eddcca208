//! Polling threads: their turns beside the threads that they wait for, in a warp, a block and a grid.

use causeway_ptx::{Fault, LaunchConfig};

use crate::common::{Device, Params, kernel, pool};

fn launch(
    device: &Device,
    blocks: u32,
    threads: u32,
    cooperative: bool,
    params: &Params,
) -> Result<(), Fault> {
    let (grid, block) = ([blocks, 1, 1], [threads, 1, 1]);
    let config = LaunchConfig {
        grid,
        block,
        cluster: None,
        dynamic_shared: 0,
        cooperative,
        priority: 0,
        params: &params.0,
    };
    device.loaded.launch("k", config, pool(), &device.output)
}

/// What a thread may poll with, and gets into `%r1`: the flag is at `[%rd0]`, and at `[flag]` in shared memory.
const POLLS: [&str; 17] = [
    "atom.global.add.u32 %r1, [%rd0], 0;",
    "atom.acquire.gpu.global.add.u32 %r1, [%rd0], 0;",
    "atom.global.cas.b32 %r1, [%rd0], 7, 7;",
    "atom.global.exch.b32 %r1, [%rd0], 0;",
    "atom.global.or.b32 %r1, [%rd0], 0;",
    "atom.global.and.b32 %r1, [%rd0], -1;",
    "atom.global.max.u32 %r1, [%rd0], 0;",
    "atom.relaxed.sys.global.xor.b32 %r1, [%rd0], 0;",
    "atom.shared.add.u32 %r1, [flag], 0;",
    "ld.volatile.global.u32 %r1, [%rd0];",
    "ld.acquire.gpu.global.u32 %r1, [%rd0];",
    "ld.relaxed.sys.global.u32 %r1, [%rd0];",
    "ld.global.cv.u32 %r1, [%rd0];",
    "ld.volatile.shared.u32 %r1, [flag];",
    "ld.global.u32 %r1, [%rd0]; membar.gl;",
    "ld.global.u32 %r1, [%rd0]; fence.acq_rel.gpu;",
    "ld.global.u32 %r1, [%rd0]; nanosleep.u32 20;",
];

/// A kernel whose thread 0 polls, a bounded number of times, for what the others set, and says what it has seen.
fn polling_kernel(poll: &str) -> String {
    kernel(&format!(
        ".shared .align 4 .b32 flag; setp.ne.u32 %p1, %r0, 0; mov.u32 %r2, 0;
         @!%p1 st.shared.u32 [flag], 0; bar.sync 0;
         @%p1 bra SET;
         POLL: {poll}
         add.u32 %r2, %r2, 1; setp.lt.u32 %p2, %r2, 1000000; setp.eq.and.u32 %p3, %r1, 0, %p2;
         @%p3 bra POLL;
         st.global.u32 [%rd1], %r1;
         bra DONE;
         SET: st.global.u32 [%rd0], 1; st.shared.u32 [flag], 1;
         DONE:"
    ))
}

#[test]
fn a_thread_that_polls_by_any_atomic_or_ordered_access_lets_the_others_run() {
    for poll in POLLS {
        // Once with a barrier, which gives every thread a coroutine by itself, and once without.
        let with_barrier = polling_kernel(poll);
        let without = with_barrier.replace("bar.sync 0;", "");
        let is_shared = poll.contains("[flag]");
        for source in [Some(with_barrier), (!is_shared).then_some(without)].into_iter().flatten() {
            let device = Device::new(&[&source]);
            let (flag, seen) = (device.zeros::<u32>(1), device.zeros::<u32>(1));
            device.launch("k", 1, 64, Params::default().with(flag).with(seen));
            assert_ne!(device.download::<u32>(seen, 1), [0], "{poll}");
        }
    }
}

#[test]
fn a_block_that_polls_for_another_one_gets_its_turn() {
    // All blocks but one wait for it, in their first thread: the first, the last, and one between. There are more
    // blocks than the pool has threads.
    let polls = POLLS.iter().filter(|poll| !poll.contains("[flag]") && !poll.contains("exch"));
    for (poll, setter) in polls.flat_map(|poll| [(poll, 0), (poll, 5), (poll, 8)]) {
        let device = Device::new(&[&kernel(&format!(
            "mov.u32 %r3, %ctaid.x; setp.eq.u32 %p1, %r3, {setter}; mov.u32 %r2, 0; @%p1 bra SET; setp.ne.u32 %p4, %r0, 0;
             @%p4 bra DONE;
             POLL: {poll}
             add.u32 %r2, %r2, 1; setp.lt.u32 %p2, %r2, 100000000; setp.eq.and.u32 %p3, %r1, 0, %p2;
             @%p3 bra POLL;
             setp.ne.u32 %p1, %r1, 0; @%p1 red.global.add.u32 [%rd1], 1;
             bra DONE;
             SET: st.global.u32 [%rd0], 1;
             DONE:"
        ))]);
        let (flag, seen) = (device.zeros::<u32>(1), device.zeros::<u32>(1));
        device.launch("k", 9, 32, Params::default().with(flag).with(seen));
        assert_eq!(device.download::<u32>(seen, 1), [8], "{poll}, set by block {setter}");
    }
}

#[test]
fn blocks_of_a_grid_find_a_barrier_if_they_are_one_or_the_grid_is_cooperative() {
    let device = Device::new(&[".version 9.0\n.target sm_90\n.address_size 64\n
        .visible .entry k(.param .u64 p) {
            .reg .b64 out, address, low; .reg .b32 high, word; .reg .pred none;
            ld.param.u64 out, [p];
            mov.u32 high, %envreg1; mov.u32 word, %envreg2;
            cvt.u64.u32 address, high; shl.b64 address, address, 32; cvt.u64.u32 low, word; or.b64 address, address, low;
            st.global.u64 [out], address;
            setp.eq.u64 none, address, 0;
            @none bra END;
            atom.add.release.gpu.u32 word, [address+4], 0x80000000;
            st.global.u32 [out+8], word;
            ld.acquire.gpu.u32 word, [address+4];
            st.global.u32 [out+12], word;
            END: ret; }"]);
    for (blocks, cooperative, found) in [(1, false, true), (2, false, false), (2, true, true)] {
        let out = device.zeros::<u32>(4);
        launch(&device, blocks, 1, cooperative, &Params::default().with(out)).unwrap();
        let words = device.download::<u32>(out, 4);
        assert_eq!(words[0] | words[1] != 0, found, "{blocks} blocks");
        if blocks == 1 {
            assert_eq!(words[2..], [0, 0x8000_0000]);
        }
    }
}

#[test]
fn a_cooperative_grid_of_more_blocks_than_run_at_once_is_refused() {
    let device = Device::new(&[&kernel("")]);
    let most = 2048 / 256 * pool().size() as u32;
    let params = Params::default().with(0_u64).with(0_u64);
    assert_eq!(launch(&device, most, 256, true, &params), Ok(()));
    let refused = launch(&device, most + 1, 256, true, &params);
    assert!(matches!(refused, Err(Fault::OutOfResources { .. })), "{refused:?}");
    assert_eq!(launch(&device, most + 1, 256, false, &params), Ok(()));
}

/// All threads come to the barrier of the grid that cooperative groups have, five times, and see what the other
/// blocks have written before.
#[test]
fn the_blocks_of_a_cooperative_grid_meet_at_its_barrier() {
    let device = Device::new(&[".version 8.0\n.target sm_90\n.address_size 64\n
        .visible .entry k(.param .u64 p, .param .u64 q) {
            .reg .b64 sums, failures, at, low; .reg .b32 t, b, n, r, old, now, add; .reg .pred first, more, wrong;
            ld.param.u64 sums, [p]; ld.param.u64 failures, [q];
            mov.u32 t, %tid.x; mov.u32 b, %ctaid.x; mov.u32 n, %nctaid.x;
            mov.u32 r, %envreg1; cvt.u64.u32 at, r; shl.b64 at, at, 32; mov.u32 r, %envreg2; cvt.u64.u32 low, r; or.b64 at, at, low;
            mov.u32 r, 0; setp.eq.u32 first, t, 0;
            ROUND:
            @first red.global.add.u32 [sums], 1;
            bar.sync 0;
            @!first bra JOIN;
            sub.u32 add, n, 1; sub.u32 add, 0x80000000, add; setp.eq.u32 more, b, 0; selp.u32 add, add, 1, more;
            atom.add.release.gpu.u32 old, [at+4], add;
            POLL: ld.acquire.gpu.u32 now, [at+4]; xor.b32 now, now, old; setp.ge.s32 more, now, 0;
            @more bra POLL;
            JOIN: bar.sync 0;
            add.u32 r, r, 1; mul.lo.u32 add, r, n; ld.global.u32 now, [sums]; setp.lt.u32 wrong, now, add;
            @wrong red.global.add.u32 [failures], 1;
            setp.lt.u32 more, r, 5;
            @more bra ROUND;
            ret; }"]);
    for blocks in [2, 9, 32] {
        let (sums, failures) = (device.zeros::<u32>(1), device.zeros::<u32>(1));
        launch(&device, blocks, 64, true, &Params::default().with(sums).with(failures)).unwrap();
        let found = (device.download::<u32>(sums, 1)[0], device.download::<u32>(failures, 1)[0]);
        assert_eq!(found, (5 * blocks, 0));
    }
}

/// A lock that every thread takes by itself (in which a thread of a warp waits for another one), held while a
/// number is changed that is not changed atomically.
#[test]
fn all_threads_of_a_grid_take_a_lock_in_turn() {
    let take = [
        "TRY: atom.global.cas.b32 %r1, [%rd0], 0, 1; setp.ne.u32 %p1, %r1, 0; @%p1 bra TRY;",
        "TRY: atom.acquire.gpu.global.exch.b32 %r1, [%rd0], 1; setp.ne.u32 %p1, %r1, 0; @%p1 bra TRY;",
        // It looks first, and tries where the lock is free.
        "TRY: ld.volatile.global.u32 %r1, [%rd0]; setp.ne.u32 %p1, %r1, 0; @%p1 bra TRY;
         atom.global.cas.b32 %r1, [%rd0], 0, 1; setp.ne.u32 %p1, %r1, 0; @%p1 bra TRY;",
        "TRY: nanosleep.u32 1; atom.global.cas.b64 %rd3, [%rd0], 0, 1; setp.ne.u64 %p1, %rd3, 0; @%p1 bra TRY;",
        "{ .param .b64 a; st.param.b64 [a], %rd0; call acquire, (a); }",
    ];
    for (number, take) in take.iter().enumerate() {
        let body = format!(
            "{take} ld.global.u32 %r2, [%rd1]; nanosleep.u32 5; add.u32 %r2, %r2, 1; st.global.u32 [%rd1], %r2; membar.gl;
             st.volatile.global.u32 [%rd0], 0;"
        );
        let function = ".func acquire(.param .b64 a) { .reg .b64 at; .reg .b32 old; .reg .pred held; ld.param.b64 at, [a];
             TRY: atom.global.cas.b32 old, [at], 0, 1; setp.ne.u32 held, old, 0; @held bra TRY; ret; }\n.visible .entry";
        let device = Device::new(&[&kernel(&body).replace(".visible .entry", function)]);
        let (lock, count) = (device.zeros::<u64>(1), device.zeros::<u32>(1));
        device.launch("k", 12, 40, Params::default().with(lock).with(count));
        assert_eq!(device.download::<u32>(count, 1), [480], "lock {number}");
    }
}

/// What is waited for comes from threads of the same warp, between which operations of the warp lie.
#[test]
fn lanes_that_poll_meet_in_operations_of_their_warp() {
    for meeting in [
        "bar.warp.sync 0xffffffff;",
        "activemask.b32 %r7;",
        "shfl.sync.idx.b32 %r7, %r0, 0, 31, 0xffffffff;",
        "vote.sync.any.pred %p7, %p1, 0xffffffff;",
    ] {
        // Lane after lane counts on when it is its turn; all come to the meeting in each round.
        let device = Device::new(&[&kernel(&format!(
            "ROUND: ld.volatile.global.u32 %r1, [%rd0]; setp.eq.u32 %p1, %r1, %r0;
             @%p1 red.global.add.u32 [%rd0], 1;
             {meeting}
             ld.volatile.global.u32 %r1, [%rd0]; setp.lt.u32 %p2, %r1, 32;
             vote.sync.any.pred %p2, %p2, 0xffffffff;
             @%p2 bra ROUND;
             st.global.u32 [%rd1], %r1;"
        ))]);
        let (turn, seen) = (device.zeros::<u32>(1), device.zeros::<u32>(1));
        device.launch("k", 1, 32, Params::default().with(turn).with(seen));
        assert_eq!(device.download::<u32>(seen, 1), [32], "{meeting}");
    }
}
