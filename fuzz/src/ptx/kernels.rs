//! Kernels around instructions that try to leave their memory.

use super::accesses::instruction;
use super::choices::Choices;

pub const HEADER: &str = ".version 8.6\n.target sm_90\n.address_size 64\n";
pub const REGISTERS: &str = ".reg .pred %p<4>; .reg .b16 %h<8>; .reg .b32 %r<16>; .reg .b64 %d<24>; .reg .f32 %f<8>; .reg .f64 %e<8>;";

/// A kernel, and how to launch it.
pub struct Kernel {
    /// Instructions, each with what belongs to it.
    pub steps: Vec<String>,
    pub threads: u32,
    /// In clusters.
    pub blocks: u32,
    /// Blocks of a cluster.
    pub cluster: u32,
    pub dynamic_shared: u32,
}

/// What every source declares: variables of every space, functions of several signatures, and pointers to them.
const DECLARATIONS: &str = "
.extern .func (.param .b32 r) vprintf (.param .b64 f, .param .b64 a);
.extern .func __assertfail (.param .b64 m, .param .b64 f, .param .b32 l, .param .b64 n, .param .b64 c);
.extern .func (.param .b64 r) malloc (.param .b64 s);
.extern .func free (.param .b64 p);
.global .align 16 .b8 g[64];
.const .align 16 .b8 c[64];
.shared .align 16 .b8 s[128];
.extern .shared .align 16 .b8 dyn[];
.global .align 8 .b8 text[24] = {37, 115, 32, 37, 110, 32, 37, 42, 46, 42, 102, 37, 108, 108, 120, 37, 112, 10, 0};
.func (.param .b64 r) f0(.param .b64 a) { .reg .b64 %d; ld.param.b64 %d, [a]; st.param.b64 [r], %d; ret; }
.func (.param .b32 r) f1(.param .b32 a) { .reg .b32 %r; ld.param.b32 %r, [a]; st.param.b32 [r], %r; ret; }
.func f2(.param .align 16 .b8 a[4096]) {
    .reg .b64 %d; mov.b64 %d, -1; st.param.b64 [a+4088], %d; ld.param.b64 %d, [a]; ret; }
.func (.param .align 16 .b8 r[256]) f3() { .reg .b64 %d; mov.b64 %d, -1; st.param.b64 [r+248], %d; ret; }
.func deep(.param .b64 a) {
    .reg .b64 %d; .reg .pred %p; .local .align 16 .b8 l[32];
    .param .align 16 .b8 big[512]; .param .b64 p;
    ld.param.b64 %d, [a]; setp.eq.u64 %p, %d, 0; @%p ret;
    sub.u64 %d, %d, 1; st.param.b64 [p], %d; call deep, (p); ret; }
.global .align 8 .b64 table[6] = {f0, f1, f2, f3, deep, g};
";

/// What every kernel starts with. Registers that later instructions take addresses from:
/// %d0 device memory, %d1 to %d3 the worker's memory, %d4 to %d9 variables of every space by generic address, %d10 to
/// %d12 offsets from the windows of shared and local memory to the worker's, %d13 a function.
const PROLOGUE: &str = "
    .local .align 16 .b8 l[64];
    .param .align 16 .b8 slot[64]; .param .b64 slot8; .param .b32 slot4; .param .align 16 .b8 slot4096[4096];
    .param .align 16 .b8 slot256[256];
    ld.param.u64 %d0, [a]; ld.param.u64 %d1, [a+8]; ld.param.u64 %d2, [b]; ld.param.u64 %d3, [b+8];
    mov.u64 %d4, g; mov.u64 %d5, c; mov.u64 %d6, s; cvta.shared.u64 %d6, %d6; mov.u64 %d7, l;
    cvta.local.u64 %d7, %d7; mov.u64 %d8, b; mov.u64 %d9, dyn; cvta.shared.u64 %d9, %d9;
    cvta.to.shared.u64 %d10, %d1; cvta.to.local.u64 %d11, %d2; cvta.to.shared.u64 %d12, %d3;
    ld.global.u64 %d13, [table];
    mov.u32 %r0, %tid.x; mov.u32 %r1, -1; mov.u32 %r2, 0x80000000; mov.u32 %r3, 33;
    mov.f32 %f0, 0f7FC00000; mov.f32 %f1, 0f7F800000; mov.f64 %e0, 0dFFF0000000000000; mov.f64 %e1, 0d7FF8000000000000;
    setp.eq.u32 %p0, %r0, 0; setp.ne.u32 %p1, %r0, 0;
";

impl Kernel {
    /// The kernel that the bytes choose.
    pub fn choose(choices: &mut Choices<'_>) -> Self {
        let threads = choices.of(&[1, 2, 33, 64]);
        let blocks = choices.of(&[1, 2]);
        let cluster = choices.of(&[1, 1, 2, 3]);
        let dynamic_shared = choices.of(&[0, 16, 1000, 65536]);
        let count = 1 + choices.below(6);
        let mut label = 0;
        let steps = (0..count).map(|_| {
            let guard =
                if choices.once_in(4) { choices.of(&["@%p0 ", "@%p1 ", "@!%p0 ", "@%p3 "]) } else { "" };
            guard.to_owned() + &instruction(choices, &mut label)
        });
        Self { steps: steps.collect(), threads, blocks, cluster, dynamic_shared }
    }

    /// The source with the kernel as `k`.
    pub fn source(&self) -> String {
        source(&self.steps)
    }

    /// Takes away the instructions that `refused` says of a source with each alone.
    pub fn drop_refused(&mut self, refused: impl Fn(&str) -> bool) {
        self.steps.retain(|step| !refused(&source(std::slice::from_ref(step))));
    }
}

fn source(steps: &[String]) -> String {
    let body = steps.join("\n    ");
    format!(
        "{HEADER}{DECLARATIONS}.visible .entry k(.param .align 16 .b8 a[16], .param .align 16 .b8 b[48]) {{
    {REGISTERS}{PROLOGUE}    {body}\n    ret;\n}}\n"
    )
}
