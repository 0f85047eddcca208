//! Threads that wait and have no stacks of their own: what they know is still there when they go on.

use causeway_ptx::Fault;

use crate::common::{Device, Params, kernel};

const THREADS: u32 = 80;

#[test]
fn values_of_every_type_survive_a_barrier() {
    let device = Device::new(&[&kernel(
        ".reg .b16 %h<2>; .reg .f64 %d<2>; .reg .b32 %a, %b;
         cvt.u16.u32 %h0, %r0; cvt.rn.f32.u32 %f0, %r0; cvt.rn.f64.u32 %d0, %r0; setp.gt.u32 %p0, %r0, 40;
         mul.wide.u32 %rd3, %r0, 3; mov.u64 %rd4, %rd0; st.local.u32 [local_bytes+4], %r0;
         add.cc.u32 %a, %r0, 0xffffffc0;
         bar.sync 0;
         addc.u32 %b, 0, 0;
         mov.u32 %r9, %r0; cvt.u32.u16 %r1, %h0; add.u32 %r9, %r9, %r1; cvt.rzi.u32.f32 %r1, %f0; add.u32 %r9, %r9, %r1;
         cvt.rzi.u32.f64 %r1, %d0; add.u32 %r9, %r9, %r1; ld.local.u32 %r1, [local_bytes+4]; add.u32 %r9, %r9, %r1;
         cvt.u32.u64 %r1, %rd3; add.u32 %r9, %r9, %r1; @%p0 add.u32 %r9, %r9, 1000;
         mad.lo.u32 %r9, %b, 10000, %r9; setp.ne.u64 %p1, %rd4, %rd0; @%p1 mov.u32 %r9, 0;
         mul.wide.u32 %rd5, %r0, 4; add.u64 %rd5, %rd0, %rd5; st.global.u32 [%rd5], %r9;",
    )]);
    let output = device.zeros::<u32>(THREADS as usize);
    device.launch("k", 1, THREADS, Params::default().with(output).with(0_u64));
    let expected = |index: u32| 8 * index + 1000 * u32::from(index > 40) + 10000 * u32::from(index >= 64);
    assert_eq!(
        device.download::<u32>(output, THREADS as usize),
        (0..THREADS).map(expected).collect::<Vec<_>>()
    );
}

#[test]
fn lanes_that_part_go_on_where_each_waits() {
    // Rounds of a loop, as many as the number of the thread, with one barrier or shuffle in each; then all meet.
    let device = Device::new(&[&kernel(
        "mov.u32 %r1, 0; mov.u32 %r2, 0; and.b32 %r3, %r0, 3;
         again: bar.sync 1; setp.ge.u32 %p0, %r1, %r3; @%p0 bra skip; add.u32 %r2, %r2, %r0; bra join;
         skip: add.u32 %r2, %r2, 1000;
         join: shfl.sync.bfly.b32 %r4, %r2, 1, 31, -1; add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 4; @%p1 bra again;
         add.u32 %r2, %r2, %r4; mul.wide.u32 %rd5, %r0, 4; add.u64 %rd5, %rd0, %rd5; st.global.u32 [%rd5], %r2;",
    )]);
    let output = device.zeros::<u32>(64);
    device.launch("k", 1, 64, Params::default().with(output).with(0_u64));
    let own = |index: u32| (index % 4) * index + 1000 * (4 - index % 4);
    let expected: Vec<u32> = (0..64).map(|index| own(index) + own(index ^ 1)).collect();
    assert_eq!(device.download::<u32>(output, 64), expected);
}

#[test]
fn threads_that_exit_or_fault_behind_a_barrier_are_told_apart() {
    let source = format!(
        ".version 8.0\n.target sm_75\n.address_size 64\n
         .func leave(.param .b32 n) {{ .reg .b32 %n; .reg .pred %p; ld.param.u32 %n, [n]; and.b32 %n, %n, 3;
             setp.eq.u32 %p, %n, 1; @%p exit; ret; }}
         {}",
        kernel(
            "bar.sync 0; { .param .b32 n; st.param.b32 [n], %r0; call leave, (n); }
             mul.wide.u32 %rd5, %r0, 4; add.u64 %rd5, %rd0, %rd5; st.global.u32 [%rd5], 7; bar.sync 0;
             setp.eq.u64 %p0, %rd1, 0; setp.eq.u32 %p1, %r0, 38; @%p0 bra end; @%p1 st.global.u32 [%rd1], %r0; end:"
        )
        .split_once(".visible")
        .map_or_else(String::new, |(_, kernel)| format!(".visible{kernel}"))
    );
    let device = Device::new(&[&source]);
    let output = device.zeros::<u32>(64);
    device.launch("k", 3, 64, Params::default().with(output).with(0_u64));
    let expected: Vec<u32> = (0..64).map(|index| if index % 4 == 1 { 0 } else { 7 }).collect();
    assert_eq!(device.download::<u32>(output, 64), expected);
    for address in [8_u64, 1 << 50] {
        let params = Params::default().with(output).with(address);
        match device.try_launch("k", [1; 3], [64, 1, 1], 0, &params) {
            Err(Fault::IllegalAddress { address: found, at }) => {
                assert_eq!((found, at.thread), (address, [38, 0, 0]));
            }
            other => panic!("{other:?}"),
        }
    }
    // The pool is as good as before.
    device.launch("k", 3, 64, Params::default().with(output).with(0_u64));
}
