//! Recording of a captured call: the kernels that it becomes in a graph, and the text of the one that copies.

use core::any::Any;
use core::fmt::{self, Write as _};

use super::barrier;
use crate::collective::kernels::{GUARD, GUARD_PARAMETER, Kernel, Walk};

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
pub fn copy_unit(moves: &[Move]) -> u64 {
    let zeros = moves.iter().fold(4, |fewest, one| fewest.min((one.to | one.from).trailing_zeros()));
    1 << zeros
}

/// A kernel that copies so many ranges in units of so many bytes, and what is left behind the last unit of
/// each byte by byte. Its parameters, all of 8 bytes: for each range where it goes, where it is and its
/// bytes; and the address of a word: where that is not 0 nothing is copied.
///
/// PTX text. Pure.
///
/// Each range has blocks of its own, in the grid's second dimension, so that what comes from several ranks
/// comes at the same time.
pub fn copy_text(moves: usize, unit: u64) -> String {
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

/// Threads of a block of a kernel that works.
const THREADS: u32 = 256;

/// Blocks of a kernel at most: each thread then takes several elements.
const MAX_BLOCKS: u64 = 1024;

/// A kernel that becomes a part of a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The ranks' GPUs meet.
    Barrier,
    /// It puts elements together.
    Elements(Kernel),
    /// It copies so many ranges, in units of so many bytes.
    Copies {
        /// The ranges.
        moves: usize,
        /// Bytes of a unit.
        unit: u64,
    },
}

impl Kind {
    /// Its text. That of kernels that work has one more parameter, behind those of [`Step`]: the word that
    /// says whether a meeting has failed.
    pub fn text(&self) -> String {
        match self {
            Self::Barrier => barrier::text(),
            Self::Elements(kernel) => kernel.guarded_text().unwrap_or_default(),
            Self::Copies { moves, unit } => copy_text(*moves, *unit),
        }
    }
}

/// A launch that becomes a part of a graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Which kernel.
    pub kind: Kind,
    /// Blocks in two dimensions.
    pub blocks: [u32; 2],
    /// Threads of each.
    pub threads: u32,
    /// Its parameters.
    pub parameters: Vec<u64>,
}

fn blocks(work: u64, concurrent: usize) -> u32 {
    work.div_ceil(u64::from(THREADS)).clamp(1, (MAX_BLOCKS / concurrent.max(1) as u64).max(1)) as u32
}

impl Step {
    /// Puts so many elements of all sources together; none where there is nothing to do. One source is
    /// copied.
    pub fn elements(kernel: &Kernel, targets: &[u64], sources: &[u64], count: u64) -> Option<Self> {
        if count == 0 {
            return None;
        }
        if let [only] = sources {
            let bytes = count.saturating_mul(kernel.element.bytes());
            let moves: Vec<Move> = targets.iter().map(|to| Move { to: *to, from: *only, bytes }).collect();
            return if kernel.copies_single_source() { Self::copies(&moves) } else { None };
        }
        let addresses = [targets, sources].concat();
        let (work, vectors) = kernel.work(count, &addresses);
        let parameters = [&[count, vectors], addresses.as_slice()].concat();
        let blocks = [blocks(work, 1), 1];
        Some(Self { kind: Kind::Elements(*kernel), blocks, threads: THREADS, parameters })
    }

    /// Copies ranges; none where there is nothing to do.
    pub fn copies(moves: &[Move]) -> Option<Self> {
        let moves: Vec<Move> =
            moves.iter().copied().filter(|one| one.bytes > 0 && one.to != one.from).collect();
        let max_bytes = moves.iter().map(|one| one.bytes).max()?;
        let unit = copy_unit(&moves);
        let kind = Kind::Copies { moves: moves.len(), unit };
        let blocks = [blocks(max_bytes / unit, moves.len()), moves.len() as u32];
        let parameters = moves.iter().flat_map(|one| [one.to, one.from, one.bytes]).collect();
        Some(Self { kind, blocks, threads: THREADS, parameters })
    }
}

/// A call in a stream that is being captured.
pub struct Recording {
    /// The stream.
    pub stream: u64,
    /// Its context.
    pub context: u64,
    /// The context's device.
    pub device: i32,
    /// The same number for two calls of one caller's group, as far as this rank knows.
    pub caller: [u64; 2],
    /// A number that all ranks have which make the same call.
    pub call: u32,
    /// What runs between the meetings.
    pub steps: Vec<Step>,
    /// What runs behind the last one.
    pub last: Vec<Step>,
    /// What has to stay as long as the graph is launched.
    pub held: Vec<Box<dyn Any + Send + Sync>>,
}

impl fmt::Debug for Recording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recording")
            .field("stream", &self.stream)
            .field("steps", &self.steps)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collective::element::{Element, Number, Operation};
    use crate::collective::kernels::Makes;

    #[test]
    fn units_divide_all_addresses() {
        let one = |to, from| Move { to, from, bytes: 5 };
        assert_eq!(copy_unit(&[one(4096, 32)]), 16);
        assert_eq!(copy_unit(&[one(4096, 32), one(24, 16)]), 8);
        assert_eq!(copy_unit(&[one(4096, 33)]), 1);
    }

    #[test]
    fn what_moves_nothing_is_no_step() {
        let one = Move { to: 4096, from: 8192, bytes: 0 };
        assert_eq!(Step::copies(&[one, Move { to: 4096, from: 4096, bytes: 8 }]), None);
        let step = Step::copies(&[one, Move { bytes: 1 << 30, ..one }]).unwrap();
        assert_eq!((step.kind, step.blocks), (Kind::Copies { moves: 1, unit: 16 }, [1024, 1]));
        assert_eq!(step.parameters, [4096, 8192, 1 << 30]);
    }

    #[test]
    fn one_rank_alone_copies() {
        let kernel = |makes| Kernel {
            element: Element::One(Number::Single),
            operation: Operation::Sum,
            sources: 1,
            makes,
        };
        let step = Step::elements(&kernel(Makes::Whole(1)), &[64], &[128], 3).unwrap();
        assert_eq!((step.kind, step.parameters), (Kind::Copies { moves: 1, unit: 16 }, vec![64, 128, 12]));
        assert_eq!(Step::elements(&kernel(Makes::Prefixes { with_own: false }), &[64], &[128], 3), None);
    }
}
