//! How does a kernel copy several ranges that other ranks' memory has, too? PTX text. Pure.
//!
//! Each range has blocks of its own, in the grid's second dimension, so that what comes from several ranks comes at
//! the same time.

use core::fmt::Write as _;

use super::super::kernels::{GUARD, GUARD_PARAMETER};

/// A range that is copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Move {
    /// Where it goes.
    pub to: u64,
    /// Where it is.
    pub from: u64,
    /// Its bytes.
    pub bytes: u64,
}

/// The most bytes that divide all addresses, of 1, 2, 4, 8 and 16: what a thread copies at once.
pub fn unit(moves: &[Move]) -> u64 {
    let zeros = moves.iter().fold(4, |least, one| least.min((one.to | one.from).trailing_zeros()));
    1 << zeros
}

/// A kernel that copies so many ranges in units of so many bytes, and what is left behind the last unit of each
/// byte by byte. Its parameters, all of 8 bytes: for each range where it goes, where it is and its bytes; and the
/// address of a word: where that is not 0 nothing is copied.
pub fn text(moves: usize, unit: u64) -> String {
    let (kind, register) = match unit {
        1 => ("u8", "%r9"),
        2 => ("u16", "%r9"),
        4 => ("u32", "%r9"),
        8 => ("u64", "%rd9"),
        _ => ("v2.u64", "{%rd9, %rd10}"),
    };
    let shift = unit.trailing_zeros();
    let mut parameters: Vec<String> = Vec::new();
    let mut choice = String::new();
    for at in 0..moves {
        parameters.extend(["to", "from", "bytes"].map(|name| format!(".param .u64 {name}{at}")));
        // Writing into a string does not fail.
        let _ = write!(
            choice,
            "    setp.ne.u32 %ends, %r5, {at};
    @%ends bra other{at};
    ld.param.u64 %rd1, [to{at}];
    ld.param.u64 %rd2, [from{at}];
    ld.param.u64 %rd3, [bytes{at}];
    bra chosen;
other{at}:
"
        );
    }
    let parameters = parameters.join(", ");
    format!(
        "\
.version 6.0
.target sm_52
.address_size 64
.visible .entry kernel({parameters}{GUARD_PARAMETER})
{{
    .reg .pred %ends;
    .reg .b32 %r<10>;
    .reg .b64 %rd<16>;
{GUARD}    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mov.u32 %r4, %nctaid.x;
    mov.u32 %r5, %ctaid.y;
    mul.wide.u32 %rd4, %r1, %r2;
    cvt.u64.u32 %rd5, %r3;
    add.s64 %rd4, %rd4, %rd5;
    mul.wide.u32 %rd5, %r4, %r2;
{choice}    bra end;
chosen:
    cvta.to.global.u64 %rd1, %rd1;
    cvta.to.global.u64 %rd2, %rd2;
    shr.u64 %rd6, %rd3, {shift};
    mov.u64 %rd7, %rd4;
next_unit:
    setp.ge.u64 %ends, %rd7, %rd6;
    @%ends bra rest;
    shl.b64 %rd8, %rd7, {shift};
    add.s64 %rd11, %rd2, %rd8;
    ld.global.{kind} {register}, [%rd11];
    add.s64 %rd12, %rd1, %rd8;
    st.global.{kind} [%rd12], {register};
    add.s64 %rd7, %rd7, %rd5;
    bra next_unit;
rest:
    shl.b64 %rd7, %rd6, {shift};
    add.s64 %rd7, %rd7, %rd4;
next_byte:
    setp.ge.u64 %ends, %rd7, %rd3;
    @%ends bra end;
    add.s64 %rd11, %rd2, %rd7;
    ld.global.u8 %r9, [%rd11];
    add.s64 %rd12, %rd1, %rd7;
    st.global.u8 [%rd12], %r9;
    add.s64 %rd7, %rd7, %rd5;
    bra next_byte;
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
    fn units_divide_all_addresses() {
        let one = |to, from| Move { to, from, bytes: 5 };
        assert_eq!(unit(&[one(4096, 32)]), 16);
        assert_eq!(unit(&[one(4096, 32), one(24, 16)]), 8);
        assert_eq!(unit(&[one(4096, 33)]), 1);
    }
}
