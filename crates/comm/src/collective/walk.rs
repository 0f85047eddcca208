//! Grid-stride loop. PTX text. Pure.
//!
//! In vectors first, and then one by one over what is left behind the last of them: the threads of the grid's
//! first dimension take turns.

/// What a kernel has besides that does nothing where a word is not 0: a parameter, and its first
/// instructions. The word is written by kernels before it in its stream.
pub(super) const GUARD_PARAMETER: &str = ", .param .u64 guard";
pub(super) const GUARD: &str = "    .reg .b64 %guard;
    ld.param.u64 %guard, [guard];
    cvta.to.global.u64 %guard, %guard;
    ld.global.u64 %guard, [%guard];
    setp.ne.u64 %ends, %guard, 0;
    @%ends bra end;
";

/// Which way the threads go. Around it the kernel declares the predicate `%ends`, and has the label `end`
/// behind it.
pub(super) struct Walk<'a> {
    /// The register of 64 bits that has the count of vectors.
    pub vectors: &'a str,
    /// The register of 64 bits that has the count of elements, with those of vectors.
    pub elements: &'a str,
    /// The elements of a vector.
    pub lanes: u64,
    /// The bytes of an element.
    pub bytes: u64,
    /// What is done with a vector, whose first byte's place is in `%offset`.
    pub vector: &'a str,
    /// What is done with an element, whose first byte's place is in `%offset`.
    pub single: &'a str,
}

impl Walk<'_> {
    /// Its text.
    pub fn text(&self) -> String {
        let Self { vectors, elements, lanes, bytes, vector, single } = self;
        let vector_bytes = lanes * bytes;
        format!(
            "    .reg .b64 %first, %at, %step, %offset, %thread;
    .reg .b32 %block, %blocks, %threads, %own;
    mov.u32 %block, %ctaid.x;
    mov.u32 %blocks, %nctaid.x;
    mov.u32 %threads, %ntid.x;
    mov.u32 %own, %tid.x;
    mul.wide.u32 %first, %block, %threads;
    cvt.u64.u32 %thread, %own;
    add.s64 %first, %first, %thread;
    mul.wide.u32 %step, %blocks, %threads;
    mov.u64 %at, %first;
next_vector:
    setp.ge.u64 %ends, %at, {vectors};
    @%ends bra singles;
    mul.lo.s64 %offset, %at, {vector_bytes};
{vector}    add.s64 %at, %at, %step;
    bra next_vector;
singles:
    mul.lo.s64 %at, {vectors}, {lanes};
    add.s64 %at, %at, %first;
next_single:
    setp.ge.u64 %ends, %at, {elements};
    @%ends bra end;
    mul.lo.s64 %offset, %at, {bytes};
{single}    add.s64 %at, %at, %step;
    bra next_single;
"
        )
    }
}
