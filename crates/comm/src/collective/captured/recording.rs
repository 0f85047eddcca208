//! Kernels of a captured call.

use core::any::Any;
use core::fmt;

use super::super::kernels::Kernel;
use super::barrier;
use super::copies::{self, Move};

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
            Self::Copies { moves, unit } => copies::text(*moves, *unit),
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
        let unit = copies::unit(&moves);
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
    use super::super::super::element::{Element, Number, Operation};
    use super::super::super::kernels::Makes;
    use super::*;

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
