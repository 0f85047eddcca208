//! Kernels that try to leave the memory that is theirs: each must end in a fault or be refused.

mod common;

use causeway_ptx::Fault;
use common::{Device, Params};

const HEAD: &str = ".version 8.0\n.target sm_75\n.address_size 64\n";

/// Runs the kernel `k` of a source with one thread.
fn run(body: &str) -> Result<(), Fault> {
    let device = Device::new(&[&format!("{HEAD}{body}")]);
    device.try_launch("k", [1; 3], [1; 3], 0, &Params::default())
}

/// Parameters of these sizes, as a declaration lists them.
fn byte_arrays(sizes: &[u32]) -> String {
    let parameters = sizes.iter().enumerate().map(|(index, size)| format!(".param .b8 p{index}[{size}]"));
    parameters.collect::<Vec<_>>().join(", ")
}

#[test]
fn indirect_calls_compare_signatures_and_not_their_hashes() {
    // The 64-bit FNV-1a hashes of these two lists are the same.
    const CALLER: [u32; 5] = [2541, 1618, 146, 1326, 8];
    const CALLEE: [u32; 5] = [252, 3216, 1733, 2868, 206];
    let parameters = byte_arrays(&CALLEE);
    let arguments: String =
        CALLER.iter().enumerate().map(|(index, size)| format!(".param .b8 a{index}[{size}];\n")).collect();
    let fault = run(&format!(
        ".func f({parameters}) {{ .reg .b64 r; mov.b64 r, -1; st.param.b64 [p1+3200], r; ret; }}
        .visible .entry k() {{
            .reg .b64 f;
            ld.global.b64 f, [f_pointer];
            {arguments}
            shape: .callprototype _ ({parameters});
            call f, (a0, a1, a2, a3, a4), shape;
            ret;
        }}
        .global .b64 f_pointer = f;"
    ));
    assert!(matches!(fault, Err(Fault::IllegalInstruction { .. })), "{fault:?}");
}

#[test]
fn an_indirect_call_of_the_same_signature_goes_through() {
    run(".func (.param .b32 r) f(.param .b64 a, .param .b32 b) {
            .reg .b32 %r; ld.param.b32 %r, [b]; st.param.b32 [r], %r; ret;
        }
        .global .b64 f_pointer = f;
        .visible .entry k() {
            .reg .b64 f; .reg .b32 %r; .reg .pred p;
            ld.global.b64 f, [f_pointer];
            .param .b64 a; .param .b32 b; .param .b32 r;
            st.param.b64 [a], 1;
            st.param.b32 [b], 7;
            shape: .callprototype (.param .b32 r) _ (.param .b64 a, .param .b32 b);
            call (r), f, (a, b), shape;
            ld.param.b32 %r, [r];
            setp.ne.s32 p, %r, 7;
            @p trap;
            ret;
        }")
    .unwrap();
}
