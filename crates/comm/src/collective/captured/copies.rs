//! Kernel that copies several ranges. PTX text. Pure.
//!
//! Each range has blocks of its own, in the grid's second dimension, so that what comes from several ranks
//! comes at the same time.

use core::fmt::Write as _;

use crate::collective::kernels::{GUARD, GUARD_PARAMETER, Walk};

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
    let zeros = moves.iter().fold(4, |fewest, one| fewest.min((one.to | one.from).trailing_zeros()));
    1 << zeros
}

/// A kernel that copies so many ranges in units of so many bytes, and what is left behind the last unit of
/// each byte by byte. Its parameters, all of 8 bytes: for each range where it goes, where it is and its
/// bytes; and the address of a word: where that is not 0 nothing is copied.
pub fn text(moves: usize, unit: u64) -> String {
    let (kind, register) = match unit {
        1 => ("u8", "%word"),
        2 => ("u16", "%word"),
        4 => ("u32", "%word"),
        8 => ("u64", "%low"),
        _ => ("v2.u64", "{%low, %high}"),
    };
    let shift = unit.trailing_zeros();
    let mut parameters: Vec<String> = Vec::new();
    let mut choice = String::new();
    for at in 0..moves {
        parameters.extend(["to", "from", "bytes"].map(|name| format!(".param .u64 {name}{at}")));
        // Writing into a string does not fail.
        let _ = write!(
            choice,
            "    setp.ne.u32 %ends, %range, {at};
    @%ends bra other{at};
    ld.param.u64 %to, [to{at}];
    ld.param.u64 %from, [from{at}];
    ld.param.u64 %bytes, [bytes{at}];
    bra chosen;
other{at}:
"
        );
    }
    let parameters = parameters.join(", ");
    let copy = |kind: &str, register: &str| {
        format!(
            "    add.s64 %source, %from, %offset;
    ld.global.{kind} {register}, [%source];
    add.s64 %target, %to, %offset;
    st.global.{kind} [%target], {register};
"
        )
    };
    let (vector, single) = (copy(kind, register), copy("u8", "%word"));
    let walk = Walk {
        vectors: "%units",
        elements: "%bytes",
        lanes: unit,
        bytes: 1,
        vector: &vector,
        single: &single,
    };
    let walk = walk.text();
    format!(
        "\
.version 6.0
.target sm_52
.address_size 64
.visible .entry kernel({parameters}{GUARD_PARAMETER})
{{
    .reg .pred %ends;
    .reg .b32 %range, %word;
    .reg .b64 %to, %from, %bytes, %units, %source, %target, %low, %high;
{GUARD}    mov.u32 %range, %ctaid.y;
{choice}    bra end;
chosen:
    cvta.to.global.u64 %to, %to;
    cvta.to.global.u64 %from, %from;
    shr.u64 %units, %bytes, {shift};
{walk}end:
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
