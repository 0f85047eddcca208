//! Kernels that do what they must not: each ends in the right fault, and the device goes on.

mod common;

use causeway_ptx::{Fault, LaunchConfig, Pool};
use common::{Device, Output, Params, kernel, pool};

fn run(body: &str, p: u64, q: u64, block: u32) -> Result<(), Fault> {
    let device = Device::new(&[&kernel(body)]);
    device.try_launch("k", [1, 1, 1], [block, 1, 1], 0, &Params::default().with(p).with(q))
}

#[test]
fn accesses_outside_of_memory() {
    for address in [0, 8, 0x1000, 1 << 32, 1 << 47, !7, 0x8000_0000_0000_0000] {
        for body in [
            "ld.global.u32 %r1, [%rd0];",
            "st.global.u32 [%rd0], %r0;",
            "ld.u64 %rd2, [%rd0];",
            "atom.global.add.u32 %r1, [%rd0], 1;",
            "st.global.v4.f32 [%rd0], {%f0, %f0, %f0, %f0};",
        ] {
            let address = address & !15;
            match run(body, address, 0, 32) {
                Err(Fault::IllegalAddress { address: found, at }) => {
                    assert_eq!(found, address);
                    assert_eq!((at.thread, at.block, at.kernel.as_str()), ([0; 3], [0; 3], "k"));
                }
                other => panic!("{body} at {address:#x}: {other:?}"),
            }
        }
    }
}

#[test]
fn the_memory_of_the_process_itself_is_out_of_reach() {
    let mut precious = [7_u64; 4];
    let address = precious.as_mut_ptr() as u64;
    for body in ["st.global.u64 [%rd0], %rd1;", "st.u64 [%rd0], %rd1;", "atom.exch.b64 %rd2, [%rd0], %rd1;"] {
        assert!(matches!(run(body, address, 1, 1), Err(Fault::IllegalAddress { .. })));
    }
    assert_eq!(precious, [7; 4]);
}

#[test]
fn unmapped_pages_of_the_space_raise_signals_that_become_faults() {
    let device = Device::new(&[&kernel("st.global.u32 [%rd0], %r0;")]);
    let allocation = device.space.allocate(4096, 256).unwrap();
    for address in [allocation + 4096, allocation - 4, device.space.base(), device.space.base() + (1 << 30)] {
        for block in [1, 64] {
            let params = Params::default().with(address).with(0_u64);
            let fault = device.try_launch("k", [3, 1, 1], [block, 1, 1], 0, &params).unwrap_err();
            assert!(
                matches!(fault, Fault::IllegalAddress { address: found, .. } if found == address),
                "{fault}"
            );
        }
    }
    // The device still works.
    device.launch("k", 1, 1, Params::default().with(allocation).with(0_u64));
    device.space.free(allocation).unwrap();
    let params = Params::default().with(allocation).with(0_u64);
    assert!(device.try_launch("k", [1, 1, 1], [1, 1, 1], 0, &params).is_err());
}

#[test]
fn the_memory_of_blocks_is_far_from_every_allocation() {
    let device = Device::new(&[&kernel("st.global.u32 [%rd0], %r0; st.u32 [%rd0], %r0; bar.sync 0;")]);
    let store = |address: u64, grid: u32| {
        let params = Params::default().with(address).with(0_u64);
        device.try_launch("k", [grid, 1, 1], [64, 1, 1], 0, &params)
    };
    // Blocks run between the allocations, so that their memory would come to lie there.
    let size = 64 << 10;
    let buffers: Vec<u64> = (0..4)
        .map(|_| {
            let buffer = device.space.allocate(size, 256).unwrap();
            for _ in 0..8 {
                store(buffer, 64).unwrap();
            }
            buffer
        })
        .collect();
    for buffer in buffers {
        for overrun in [4 << 20, 64 << 20, 1 << 30] {
            let address = buffer + size + overrun;
            let result = store(address, 1);
            assert!(
                matches!(result, Err(Fault::IllegalAddress { address: found, .. }) if found == address),
                "{overrun} bytes past a buffer: {result:?}"
            );
        }
        store(buffer, 1).unwrap();
    }
}

#[test]
fn faults_while_other_threads_wait() {
    // Thread 5 faults while the others stand at a barrier.
    let body = "setp.ne.u32 %p0, %r0, 5;\n@%p0 bra wait;\nst.global.u32 [%rd0], %r0;\nwait: bar.sync 0;";
    let fault = run(body, 64, 0, 64).unwrap_err();
    let Fault::IllegalAddress { address: 64, at } = fault else { panic!("{fault}") };
    assert_eq!(at.thread, [5, 0, 0]);
}

#[test]
fn accesses_near_a_good_one() {
    let first = "ld.global.u32 %r1, [%rd0];";
    let device_and_result = |second: String| {
        let device = Device::new(&[&kernel(&format!("{first}\n{second}"))]);
        let allocation = device.space.allocate(4096, 256).unwrap();
        let params = Params::default().with(allocation).with(0_u64);
        let result = device.try_launch("k", [1, 1, 1], [1, 1, 1], 0, &params);
        (device, allocation, result)
    };
    for offset in [-4096_i64, -4, 4096, 8192, 1 << 16, -(1 << 16), 1 << 30, -(1 << 30), 1 << 36] {
        for second in ["st.global.u32 [%rd0+OFFSET], %r0;", "atom.global.add.u32 %r1, [%rd0+OFFSET], 1;"] {
            let (_device, allocation, result) =
                device_and_result(second.replace("OFFSET", &offset.to_string()));
            let address = allocation.wrapping_add_signed(offset);
            assert!(
                matches!(result, Err(Fault::IllegalAddress { address: found, .. }) if found == address),
                "{second} with {offset}: {result:?}"
            );
        }
    }
    for (second, misaligned) in [
        ("st.global.u32 [%rd0+2], %r0;", true),
        ("st.global.u32 [%rd0-1], %r0;", true),
        ("ld.global.u64 %rd2, [%rd0+4];", true),
        ("ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%rd0+8];", true),
        ("ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%rd0+16];", false),
        ("ld.global.u64 %rd2, [%rd0+4088];", false),
        ("st.global.u16 [%rd0+4094], 1;", false),
    ] {
        let (_device, _, result) = device_and_result(second.to_owned());
        assert_eq!(matches!(result, Err(Fault::Misaligned { .. })), misaligned, "{second}: {result:?}");
        assert_eq!(result.is_ok(), !misaligned, "{second}: {result:?}");
    }
}

#[test]
fn an_access_that_was_not_made_exempts_no_other() {
    let mut precious = [7_u64; 4];
    let address = precious.as_mut_ptr() as u64;
    for body in [
        "setp.ne.u32 %p0, %r0, %r0; @%p0 st.global.u64 [%rd0], %rd1; st.global.u64 [%rd0+8], %rd1;",
        "bra skip; st.global.u64 [%rd0], %rd1; skip: st.global.u64 [%rd0+8], %rd1;",
        "setp.eq.u32 %p0, %r0, 0; @%p0 bra skip; st.global.u64 [%rd0], %rd1; skip: st.global.u64 [%rd0+8], %rd1;",
    ] {
        assert!(matches!(run(body, address, 1, 1), Err(Fault::IllegalAddress { .. })), "{body}");
    }
    let device = Device::new(&[&kernel(
        "ld.global.u64 %rd2, [%rd0]; mov.u64 %rd0, %rd1; st.global.u64 [%rd0+8], %rd2;",
    )]);
    let params = Params::default().with(device.zeros::<u64>(2)).with(address);
    assert!(device.try_launch("k", [1, 1, 1], [1, 1, 1], 0, &params).is_err());
    assert_eq!(precious, [7; 4]);
}

#[test]
fn misaligned_accesses() {
    let device = Device::new(&[&kernel("ld.global.u32 %r1, [%rd0];")]);
    let address = device.zeros::<u32>(8) + 2;
    let fault = device
        .try_launch("k", [1, 1, 1], [1, 1, 1], 0, &Params::default().with(address).with(0_u64))
        .unwrap_err();
    assert!(
        matches!(fault, Fault::Misaligned { address: found, size: 4, .. } if found == address),
        "{fault}"
    );
    let body = "cvt.u32.u64 %r1, %rd0; ld.shared.v2.u32 {%r2, %r3}, [%r1];";
    assert!(matches!(run(body, 4, 0, 1), Err(Fault::Misaligned { address: 4, size: 8, .. })));
}

#[test]
fn shared_and_local_windows_have_ends() {
    for (offset, fine) in [(0_u64, true), (60, true), (64, false), (1 << 20, false), (!3, false)] {
        let shared = run("cvt.u32.u64 %r1, %rd0; st.shared.u32 [%r1], %r0;", offset, 0, 1);
        assert_eq!(shared.is_ok(), fine, "shared at {offset:#x}: {shared:?}");
        let local = run("st.local.u32 [%rd0], %r0;", offset, 0, 1);
        assert_eq!(local.is_ok(), fine, "local at {offset:#x}: {local:?}");
    }
    // Beyond the end by a constant offset from the symbol.
    assert!(run("st.shared.u32 [shared_bytes+64], %r0;", 0, 0, 1).is_err());
    assert!(run("ld.local.u32 %r1, [local_bytes+64];", 0, 0, 1).is_err());
    assert!(run("st.shared.u32 [shared_bytes+60], %r0;", 0, 0, 1).is_ok());
}

#[test]
fn traps_and_exits() {
    assert!(matches!(run("trap;", 0, 0, 32), Err(Fault::Trap { .. })));
    assert!(run("exit; trap;", 0, 0, 32).is_ok());
    assert!(run("setp.eq.u32 %p0, %r0, 99; @%p0 trap;", 0, 0, 64).is_ok());
}

#[test]
fn exit_inside_a_function_ends_the_thread_alone() {
    for waiting in ["", "bar.sync 0;"] {
        let source = format!(
            ".version 8.0\n.target sm_75\n.address_size 64\n\
             .func leave(.param .b32 number)\n{{ .reg .b32 %r<4>; .reg .pred %p;\n\
             ld.param.b32 %r1, [number]; and.b32 %r2, %r1, 1; setp.eq.b32 %p, %r2, 1; @%p exit; ret; }}\n\
             .visible .entry k(.param .u64 p)\n{{ .reg .b32 %r<4>; .reg .b64 %rd<4>;\n\
             ld.param.u64 %rd1, [p]; mov.u32 %r1, %tid.x;\n\
             {{ .param .b32 argument; st.param.b32 [argument], %r1; call leave, (argument); }}\n{waiting}\n\
             mul.wide.u32 %rd2, %r1, 4; add.u64 %rd3, %rd1, %rd2; mov.u32 %r2, 1; st.global.u32 [%rd3], %r2; ret; }}\n"
        );
        let device = Device::new(&[&source]);
        let output = device.zeros::<u32>(70);
        device.launch("k", 1, 70, Params::default().with(output));
        let expected: Vec<u32> = (0..70).map(|i| 1 - i % 2).collect();
        assert_eq!(device.download::<u32>(output, 70), expected);
    }
}

#[test]
fn threads_that_ended_are_not_waited_for() {
    let body = "setp.lt.u32 %p0, %r0, 40; @%p0 ret; bar.sync 0; bar.sync 0;";
    assert!(run(body, 0, 0, 100).is_ok());
    // A shuffle whose mask names threads that have left.
    let body = "setp.gt.u32 %p0, %r0, 7; @%p0 ret; shfl.sync.bfly.b32 %r1|%p1, %r0, 1, 31, -1;";
    assert!(run(body, 0, 0, 32).is_ok());
}

#[test]
fn waiting_for_ever_is_a_fault() {
    for body in [
        // A barrier of 64 threads in a block of 32.
        "bar.sync 1, 64;",
        // Half of the threads at one barrier, half at another.
        "setp.lt.u32 %p0, %r0, 16; @%p0 bra other; bar.sync 1; bra done; other: bar.sync 2; done:",
        // Two halves of a warp that name each other at different operations.
        "setp.lt.u32 %p0, %r0, 16; @%p0 bra other; bar.warp.sync -1; bra done; \
         other: shfl.sync.idx.b32 %r1, %r0, 0, 31, -1; done:",
    ] {
        let result = run(body, 0, 0, 32);
        assert!(matches!(result, Err(Fault::Deadlock { .. })), "{body}: {result:?}");
    }
}

#[test]
fn a_thread_may_poll_for_another() {
    let device = Device::new(&[&kernel(
        "setp.ne.u32 %p0, %r0, 0; @%p0 bra set;\n\
         poll: ld.volatile.global.u32 %r1, [%rd0]; setp.eq.u32 %p1, %r1, 0; @%p1 bra poll;\n\
         st.global.u32 [%rd0+4], %r1; bra done;\n\
         set: mov.u32 %r2, 9; st.volatile.global.u32 [%rd0], %r2;\n\
         done:",
    )]);
    let flags = device.zeros::<u32>(2);
    device.launch("k", 1, 2, Params::default().with(flags).with(0_u64));
    assert_eq!(device.download::<u32>(flags, 2), [9, 9]);
}

#[test]
fn endless_recursion_runs_out_of_stack() {
    for local in ["", ".local .b8 frame[256]; mov.u64 %rd2, frame; st.local.u32 [%rd2], %r1;"] {
        let source = format!(
            ".version 8.0\n.target sm_75\n.address_size 64\n.func deeper(.param .b32 n)\n{{\n\
             .reg .b32 %r<4>; .reg .b64 %rd<4>;\nld.param.b32 %r1, [n];\n{local}\nadd.s32 %r2, %r1, 1;\n\
             {{ .param .b32 next; st.param.b32 [next], %r2; call deeper, (next); }}\nret;\n}}\n\
             .visible .entry k()\n{{\n\
             {{ .param .b32 next; st.param.b32 [next], 0; call deeper, (next); }}\nret;\n}}\n"
        );
        let device = Device::new(&[&source]);
        let fault = device.try_launch("k", [4, 1, 1], [64, 1, 1], 0, &Params::default()).unwrap_err();
        assert!(matches!(fault, Fault::StackOverflow { .. }), "{fault}");
    }
}

#[test]
fn a_thread_has_stack_for_frames_that_are_large() {
    // Each of the two keeps 62 KiB of values over a call, and a thread usually has 80 KiB for both.
    const VALUES: usize = 8_000;
    let values = |given: &str, between: &str| {
        let mut text = format!(".reg .b64 %v<{VALUES}>; .reg .b64 %s, %a;\n{given}\n");
        (0..VALUES).for_each(|i| text += &format!("ld.global.u64 %v{i}, [%a+{}];\n", 8 * i));
        text += between;
        (0..VALUES).for_each(|i| text += &format!("mad.lo.u64 %s, %s, 3, %v{i};\n"));
        text
    };
    let source = format!(
        ".version 8.0\n.target sm_75\n.address_size 64\n\
         .func leaf() {{ ret; }}\n\
         .func (.param .b64 sum) callee(.param .b64 from)\n{{\n{}\nst.param.b64 [sum], %s;\nret;\n}}\n\
         .visible .entry k(.param .u64 from, .param .u64 to)\n{{\n.reg .b64 %o;\n{}\n\
         ld.param.u64 %o, [to]; st.global.u64 [%o], %s; ret;\n}}\n",
        values("ld.param.b64 %a, [from]; mov.u64 %s, 0;", "call leaf;\n"),
        values(
            "ld.param.u64 %a, [from];",
            "{ .param .b64 from; .param .b64 sum; st.param.b64 [from], %a; call (sum), callee, (from);\n\
             ld.param.b64 %s, [sum]; }\n"
        ),
    );
    let device = Device::new(&[&source]);
    let numbers: Vec<u64> = (0..VALUES as u64).map(|i| i * i + 1).collect();
    let (from, to) = (device.upload(&numbers), device.zeros::<u64>(1));
    device.launch("k", 1, 32, Params::default().with(from).with(to));
    let fold = |start: u64| numbers.iter().fold(start, |sum, &value| sum.wrapping_mul(3).wrapping_add(value));
    assert_eq!(device.download::<u64>(to, 1), [fold(fold(0))]);
}

#[test]
fn calls_through_bad_pointers() {
    let source = ".version 8.0\n.target sm_75\n.address_size 64\n\
         .func one(.param .b32 a) { ret; }\n.func two(.param .b32 a, .param .b32 b) { ret; }\n\
         .visible .global .u64 table[2] = {one, two};\n\
         .visible .entry k(.param .u64 target)\n{\n.reg .b64 %rd<4>;\nld.param.u64 %rd1, [target];\n\
         shape: .callprototype _ (.param .b32 _);\n\
         { .param .b32 a; st.param.b32 [a], 1; call %rd1, (a), shape; }\nret;\n}\n";
    let device = Device::new(&[source]);
    let (table, _) = device.loaded.global("table").unwrap();
    let targets = device.download::<u64>(table, 2);
    let run = |target: u64| device.try_launch("k", [1, 1, 1], [32, 1, 1], 0, &Params::default().with(target));
    assert!(run(targets[0]).is_ok());
    for bad in [targets[1], 0, targets[0] + 1, targets[0] + 32 * 16, u64::MAX] {
        assert!(matches!(run(bad), Err(Fault::IllegalInstruction { .. })), "{bad:#x}");
    }
}

#[test]
fn a_failed_assertion_says_where() {
    let source = ".version 8.0\n.target sm_75\n.address_size 64\n\
         .extern .func __assertfail(.param .b64 a, .param .b64 b, .param .b32 c, .param .b64 d, .param .b64 e);\n\
         .global .align 1 .b8 message[6] = {120, 32, 62, 32, 48, 0};\n.global .align 1 .b8 file[5] = {97, 46, 99, 117, 0};\n\
         .global .align 1 .b8 function[2] = {102, 0};\n\
         .visible .entry k()\n{\n.reg .b64 %rd<9>;\nmov.u64 %rd1, message; cvta.global.u64 %rd1, %rd1;\n\
         mov.u64 %rd2, file; cvta.global.u64 %rd2, %rd2; mov.u64 %rd3, function; cvta.global.u64 %rd3, %rd3;\n\
         { .param .b64 a; .param .b64 b; .param .b32 c; .param .b64 d; .param .b64 e;\n\
         st.param.b64 [a], %rd1; st.param.b64 [b], %rd2; st.param.b32 [c], 12; st.param.b64 [d], %rd3; st.param.b64 [e], 1;\n\
         call.uni __assertfail, (a, b, c, d, e); }\nret;\n}\n";
    let device = Device::new(&[source]);
    let fault = device.try_launch("k", [1, 1, 1], [1, 1, 1], 0, &Params::default()).unwrap_err();
    let Fault::Assert { message, .. } = fault else { panic!("{fault}") };
    assert_eq!(message, "a.cu:12: f: block: [0,0,0], thread: [0,0,0] Assertion `x > 0` failed.");
    assert_eq!(*device.output.assertions.lock().unwrap(), [message]);
}

#[test]
fn printing_from_a_bad_pointer_is_a_fault() {
    let source = ".version 8.0\n.target sm_75\n.address_size 64\n\
         .extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);\n\
         .visible .entry k(.param .u64 format)\n{\n.reg .b64 %rd<9>;\nld.param.u64 %rd1, [format];\n\
         { .param .b64 a; .param .b64 b; .param .b32 r; st.param.b64 [a], %rd1; st.param.b64 [b], 0;\n\
         call.uni (r), vprintf, (a, b); }\nret;\n}\n";
    let device = Device::new(&[source]);
    for address in [64, device.space.base() + (1 << 30)] {
        let params = Params::default().with(address);
        let fault = device.try_launch("k", [1, 1, 1], [1, 1, 1], 0, &params).unwrap_err();
        assert!(matches!(fault, Fault::IllegalAddress { address: found, .. } if found == address), "{fault}");
    }
}

#[test]
fn launches_are_checked_before_they_start() {
    let device = Device::new(&[&kernel(".reg .b32 %unused;")]);
    let launch = |grid, block, dynamic_shared, bytes: usize| {
        let params = vec![0; bytes];
        let config = LaunchConfig {
            grid,
            block,
            cluster: None,
            dynamic_shared,
            cooperative: false,
            priority: 0,
            params: &params,
        };
        device.loaded.launch("k", config, pool(), &Output::default())
    };
    assert!(launch([1, 1, 1], [1024, 1, 1], 0, 16).is_ok());
    for (grid, block, shared, bytes) in [
        ([0, 1, 1], [1, 1, 1], 0, 16),
        ([1, 65536, 1], [1, 1, 1], 0, 16),
        ([1, 1, 1], [1025, 1, 1], 0, 16),
        ([1, 1, 1], [32, 32, 2], 0, 16),
        ([1, 1, 1], [1, 1, 65], 0, 16),
        ([1, 1, 1], [1, 0, 1], 0, 16),
        ([1, 1, 1], [1, 1, 1], 1 << 20, 16),
        ([1, 1, 1], [1, 1, 1], u32::MAX, 16),
        ([1, 1, 1], [1, 1, 1], 0, 15),
    ] {
        assert!(matches!(launch(grid, block, shared, bytes), Err(Fault::InvalidConfiguration { .. })));
    }
    let config = LaunchConfig {
        grid: [1; 3],
        block: [1; 3],
        cluster: None,
        dynamic_shared: 0,
        cooperative: false,
        priority: 0,
        params: &[],
    };
    let missing = device.loaded.launch("missing", config, pool(), &Output::default());
    assert_eq!(missing, Err(Fault::UnknownKernel("missing".to_owned())));
}

#[test]
fn launches_from_many_threads_share_a_pool() {
    let device = Device::new(&[&kernel("atom.global.add.u32 %r1, [%rd0], 1; bar.sync 0;")]);
    let counter = device.zeros::<u32>(1);
    let pool = Pool::new(3);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..25 {
                    let params = Params::default().with(counter).with(0_u64);
                    let config = LaunchConfig {
                        grid: [7, 3, 2],
                        block: [8, 4, 1],
                        cluster: None,
                        dynamic_shared: 0,
                        cooperative: false,
                        priority: 0,
                        params: &params.0,
                    };
                    device.loaded.launch("k", config, &pool, &Output::default()).unwrap();
                }
            });
        }
    });
    assert_eq!(device.download::<u32>(counter, 1), [4 * 25 * 42 * 32]);
}

#[test]
fn a_little_before_the_device_window_there_is_memory_of_nobody() {
    let device = Device::new(&[&kernel(
        "st.global.u32 [%rd0], %r0; ld.global.u32 %r1, [%rd0]; st.global.u32 [%rd1], %r1;",
    )]);
    let (window, _) = device.space.device_window();
    let out = device.zeros::<u32>(1);
    for (distance, is_memory) in
        [(4, true), (256, true), (64 << 10, true), (2 << 20, true), ((2 << 20) + 4, false)]
    {
        let params = Params::default().with(window - distance).with(out);
        let ended = device.try_launch("k", [1; 3], [1; 3], 0, &params);
        assert_eq!(ended.is_ok(), is_memory, "{distance}: {ended:?}");
    }
    // It is no memory that a program could name otherwise.
    assert!(device.space.write(window - 4, &[1; 4]).is_err() && !device.space.covers(window - 4, 4));
}

/// A recursion as deep as the stack that it is given allows, and no deeper.
#[test]
fn a_larger_stack_allows_deeper_recursion() {
    let source = ".version 8.6\n.target sm_90\n.address_size 64\n
        .func (.param .b32 r) depth(.param .b32 n) {
            .local .align 4 .b8 l[256]; .reg .pred %p<2>; .reg .b32 %r<4>; ld.param.u32 %r1, [n];
            st.local.u32 [l], %r1; setp.eq.u32 %p1, %r1, 0; @%p1 bra E;
            { .param .b32 m; .param .b32 c; sub.u32 %r2, %r1, 1; st.param.b32 [m], %r2; call (c), depth, (m);
              ld.param.b32 %r3, [c]; add.u32 %r3, %r3, 1; st.param.b32 [r], %r3; ret; }
            E: ld.local.u32 %r2, [l]; st.param.b32 [r], %r2; ret;
        }
        .visible .entry k(.param .u64 out, .param .u32 n) {
            .reg .b32 %r<4>; .reg .b64 %rd<2>; ld.param.u64 %rd1, [out]; ld.param.u32 %r1, [n];
            .param .b32 m; .param .b32 c; st.param.b32 [m], %r1; call (c), depth, (m); ld.param.b32 %r2, [c];
            st.global.u32 [%rd1], %r2; ret;
        }";
    let device = Device::new(&[source]);
    let out = device.zeros::<u32>(1);
    let launch = |n: u32, stack: usize| {
        let params = Params::default().with(out).with(n);
        let config = LaunchConfig {
            grid: [1; 3],
            block: [1; 3],
            cluster: None,
            dynamic_shared: 0,
            cooperative: false,
            priority: 0,
            params: &params.0,
        };
        device.loaded.launch_with_stack("k", config, stack, pool(), &device.output)
    };
    assert_eq!(launch(20, 1024), Ok(()));
    assert!(launch(1000, 1024).is_err());
    assert_eq!(launch(1000, 400_000), Ok(()));
    assert_eq!(device.download::<u32>(out, 1), [1000]);
    assert!(launch(1000, 1024).is_err());
    assert!(launch(u32::MAX, usize::MAX).is_err());
}
