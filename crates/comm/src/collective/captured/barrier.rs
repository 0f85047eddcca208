//! Device-side barrier of a collective in a CUDA graph: where its words lie, and its PTX text. Pure.
//!
//! Each rank has a cell for each other one in memory that all have mapped, and a count of its meetings in
//! memory of its own. Its kernel counts up, writes the count into its cell at each other rank, and waits
//! until each of its own cells has come to it. The count lies in memory, and no launch brings one along: the
//! same graph is launched again and again, and different ones in turn, as long as all ranks launch them in
//! the same order. A rank is at most one meeting ahead, so a cell never passes a count that is still waited
//! for.
//!
//! Order, in the words of the PTX memory consistency model ("Causality order", PTX ISA 6.0 and later): what
//! kernels before this one in its stream have written happens before it begins. A fence of system scope and a
//! relaxed store behind it are a release pattern, which is cumulative: a thread that sees the store sees all that
//! came before, also what other blocks and other GPUs had written and was seen here. The other end is an
//! acquire pattern: a relaxed load that has seen the count, and a fence behind it. Kernels behind this one in
//! its stream begin when all its threads have passed that. Without the fences a count may come, on another
//! way through the machine, before the bytes that it announces.
//!
//! A wait that has lasted too long, or that the host has ended, is a failure. It stays, later meetings wait
//! for no rank, and all others are notified in their cells, so that they need not wait for their own limit. The
//! kernels between meetings look at it first, and then leave all memory alone.

/// Ranks that meet at most.
pub const MAX_RANKS: usize = super::super::kernels::MAX_SOURCES;

/// From one cell to the next: no two lie in one line of a cache.
const CELL_BYTES: u64 = 128;

/// Bytes of all cells of a rank.
pub const CELLS_BYTES: u64 = CELL_BYTES * MAX_RANKS as u64;

/// Where a rank's own words lie, which no other one has mapped. How many meetings there were.
pub const COUNT_AT: u64 = 0;
/// Not 0 where one has failed: a code of [`Failure`], and in the upper half the rank's number in the group.
pub const FAILED_AT: u64 = 8;
/// The host ends all waits: 0, or 1 and the number of the rank that has ended. The word lies here for a GPU
/// that is elsewhere, and else in memory of the host.
pub const ENDED_AT: u64 = 16;
/// Nanoseconds that a wait takes at most.
pub const LIMIT_AT: u64 = 24;
/// Where that word lies.
pub const ENDED_ADDRESS_AT: u64 = 32;
/// Where the cells of each rank lie for this one.
pub const PEERS_AT: u64 = 64;
/// Bytes of all that.
pub const OWN_BYTES: u64 = PEERS_AT + 8 * MAX_RANKS as u64;

/// Threads of the kernel's one block: one for each rank. More blocks might not run at the same time as those
/// of other ranks on the same GPU.
pub const THREADS: u32 = 32;

/// How often a thread looks at its cell before it looks at the clock and at what the host says.
const POLLS: u64 = 64;

/// Why a meeting has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// A rank has not come in time.
    Late(usize),
    /// A rank has ended.
    Ended(usize),
    /// A meeting of that rank has failed before.
    Passed(usize),
    /// Words that no kernel of this library writes.
    Unknown(u64),
}

impl Failure {
    /// What a kernel has written, if it has.
    pub fn of(word: u64) -> Option<Self> {
        let rank = (word >> 32) as usize;
        Some(match word & 0xffff_ffff {
            0 if word == 0 => return None,
            1 => Self::Late(rank),
            2 => Self::Ended(rank),
            3 => Self::Passed(rank),
            _ => Self::Unknown(word),
        })
    }
}

/// The kernel. Its parameters, all of 8 bytes: where this rank's own words lie, where its cells do, its
/// number, and how many ranks there are.
pub fn text() -> String {
    format!(
        "\
.version 6.0
.target sm_70
.address_size 64
.visible .entry kernel(.param .u64 own, .param .u64 cells, .param .u64 me, .param .u64 ranks)
{{
    .reg .pred %p<8>;
    .reg .b32 %r<2>;
    .reg .b64 %own, %cells, %me, %ranks, %rank, %count, %peer, %cell, %failed;
    .reg .b64 %seen, %polls, %start, %now, %limit, %ended, %end_word, %code;
    ld.param.u64 %own, [own];
    cvta.to.global.u64 %own, %own;
    ld.param.u64 %cells, [cells];
    cvta.to.global.u64 %cells, %cells;
    ld.param.u64 %me, [me];
    ld.param.u64 %ranks, [ranks];
    mov.u32 %r1, %tid.x;
    cvt.u64.u32 %rank, %r1;
    ld.relaxed.sys.global.u64 %count, [%own+{COUNT_AT}];
    ld.relaxed.sys.global.u64 %failed, [%own+{FAILED_AT}];
    add.s64 %count, %count, 1;
    bar.sync 0;
    setp.ne.u64 %p1, %rank, 0;
    @%p1 bra counted;
    st.relaxed.sys.global.u64 [%own+{COUNT_AT}], %count;
counted:
    setp.ge.u64 %p2, %rank, %ranks;
    setp.eq.u64 %p3, %rank, %me;
    or.pred %p2, %p2, %p3;
    @%p2 bra met;
    mul.lo.s64 %peer, %rank, 8;
    add.s64 %peer, %own, %peer;
    ld.global.u64 %peer, [%peer+{PEERS_AT}];
    mul.lo.s64 %cell, %me, {CELL_BYTES};
    add.s64 %peer, %peer, %cell;
    mul.lo.s64 %cell, %rank, {CELL_BYTES};
    add.s64 %cell, %cells, %cell;
    setp.ne.u64 %p4, %failed, 0;
    @%p4 bra met;
    fence.acq_rel.sys;
    st.relaxed.sys.global.u64 [%peer], %count;
    ld.relaxed.sys.global.u64 %limit, [%own+{LIMIT_AT}];
    ld.global.u64 %end_word, [%own+{ENDED_ADDRESS_AT}];
    mov.u64 %start, %globaltimer;
    mov.u64 %polls, 0;
look:
    ld.relaxed.sys.global.u64 %seen, [%cell];
    setp.ge.u64 %p5, %seen, %count;
    @%p5 bra come;
    add.s64 %polls, %polls, 1;
    setp.lt.u64 %p6, %polls, {POLLS};
    @%p6 bra look;
    mov.u64 %polls, 0;
    mov.u64 %code, 1;
    mov.u64 %now, %globaltimer;
    sub.s64 %now, %now, %start;
    setp.gt.u64 %p6, %now, %limit;
    @%p6 bra fail;
    ld.relaxed.sys.global.u64 %ended, [%end_word];
    setp.eq.u64 %p6, %ended, 0;
    @%p6 bra look;
    // It may have come before its rank ended.
    ld.relaxed.sys.global.u64 %seen, [%cell];
    setp.ge.u64 %p5, %seen, %count;
    @%p5 bra come;
    mov.u64 %code, 2;
    sub.s64 %rank, %ended, 1;
    bra fail;
come:
    fence.acq_rel.sys;
    mov.u64 %code, 3;
    setp.ne.u64 %p6, %seen, -1;
    @%p6 bra met;
fail:
    shl.b64 %rank, %rank, 32;
    or.b64 %code, %code, %rank;
    st.relaxed.sys.global.u64 [%own+{FAILED_AT}], %code;
met:
    bar.sync 0;
    @%p2 bra end;
    ld.relaxed.sys.global.u64 %failed, [%own+{FAILED_AT}];
    setp.eq.u64 %p4, %failed, 0;
    @%p4 bra end;
    st.relaxed.sys.global.u64 [%peer], -1;
end:
    ret;
}}
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_kernel_has_written_is_read() {
        assert_eq!(Failure::of(0), None);
        assert_eq!(Failure::of(1 | 5 << 32), Some(Failure::Late(5)));
        assert_eq!(Failure::of(2), Some(Failure::Ended(0)));
        assert_eq!(Failure::of(3 | 1 << 32), Some(Failure::Passed(1)));
        assert_eq!(Failure::of(9), Some(Failure::Unknown(9)));
        assert_eq!(Failure::of(1 << 32), Some(Failure::Unknown(1 << 32)));
    }
}
