//! What a stream executes.
//!
//! What a graph does: nodes in their order, and the values that they begin with.

use std::sync::Arc;
use std::time::Instant;

use causeway_api::sys::CUresult;
use causeway_api::types::Region;
use causeway_gpu::CuResult;
use causeway_ptx::memory::{AddressSpace, MemoryError};

use crate::condition::{Choice, Condition as Steering};
use crate::launch::Launch;
use crate::machine::Machine;
use crate::pool::{BlockToken, Pool};
use crate::region;

/// Moving up to this many bytes takes less time than waking a thread: at 10 GB/s it is 3 microseconds.
const QUICK_BYTES: u64 = 32 << 10;

/// Host memory that a copy reads.
pub(super) struct HostSource(pub(super) *const u8);
/// Host memory that a copy writes.
pub(super) struct HostDestination(pub(super) *mut u8);

// SAFETY: `Gpu::start_copy_to_device` has its caller keep the memory readable and unchanged until the copy is
// done.
unsafe impl Send for HostSource {}
// SAFETY: the memory is only read, and stays readable and unchanged until the copy is done.
unsafe impl Sync for HostSource {}
// SAFETY: `Gpu::start_copy_from_device` has its caller keep the memory writable and untouched until the copy
// is done.
unsafe impl Send for HostDestination {}
// SAFETY: a copy is executed once, by one thread, and the memory is untouched by others until it is done.
unsafe impl Sync for HostDestination {}

/// A value that stream memory operations write or compare with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value {
    /// Four bytes.
    Bits32(u32),
    /// Eight bytes.
    Bits64(u64),
}

impl Value {
    /// Its size in memory.
    pub(super) fn bytes(self) -> u64 {
        match self {
            Self::Bits32(_) => 4,
            Self::Bits64(_) => 8,
        }
    }

    fn write(self, space: &AddressSpace, address: u64) -> Result<(), MemoryError> {
        match self {
            Self::Bits32(value) => space.write(address, &value.to_ne_bytes()),
            Self::Bits64(value) => space.write(address, &value.to_ne_bytes()),
        }
    }

    /// The value of the same width that memory holds.
    fn read(self, space: &AddressSpace, address: u64) -> Result<Self, MemoryError> {
        match self {
            Self::Bits32(_) => {
                let mut bytes = [0; 4];
                space.read(address, &mut bytes)?;
                Ok(Self::Bits32(u32::from_ne_bytes(bytes)))
            }
            Self::Bits64(_) => {
                let mut bytes = [0; 8];
                space.read(address, &mut bytes)?;
                Ok(Self::Bits64(u64::from_ne_bytes(bytes)))
            }
        }
    }
}

/// How a waiting stream compares memory with its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    /// Memory minus value, as a signed number, is not negative.
    GreaterOrEqual,
    /// They are equal.
    Equal,
    /// They have a bit in common.
    And,
    /// Some bit is clear in both.
    Nor,
}

/// What a stream waits for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Condition {
    pub(super) address: u64,
    pub(super) value: Value,
    pub(super) comparison: Comparison,
}

impl Condition {
    /// Whether memory fulfils it now.
    pub(super) fn holds(&self, space: &AddressSpace) -> Result<bool, MemoryError> {
        Ok(match (self.value.read(space, self.address)?, self.value) {
            (Value::Bits32(memory), Value::Bits32(value)) => match self.comparison {
                Comparison::GreaterOrEqual => memory.wrapping_sub(value).cast_signed() >= 0,
                Comparison::Equal => memory == value,
                Comparison::And => memory & value != 0,
                Comparison::Nor => !(memory | value) != 0,
            },
            (Value::Bits64(memory), Value::Bits64(value)) => match self.comparison {
                Comparison::GreaterOrEqual => memory.wrapping_sub(value).cast_signed() >= 0,
                Comparison::Equal => memory == value,
                Comparison::And => memory & value != 0,
                Comparison::Nor => !(memory | value) != 0,
            },
            _ => unreachable!("a value is read with its own width"),
        })
    }
}

/// The bytes that a fill repeats.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pattern {
    /// One byte.
    D8([u8; 1]),
    /// Two.
    D16([u8; 2]),
    /// Four.
    D32([u8; 4]),
}

impl Pattern {
    /// The element.
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::D8(bytes) => bytes,
            Self::D16(bytes) => bytes,
            Self::D32(bytes) => bytes,
        }
    }

    /// The memory that a fill of `height` rows of `width` elements, `pitch` bytes apart, writes.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for elements at addresses that are no multiples of their size, and for more
    /// bytes than a number can say.
    pub(super) fn region(&self, address: u64, pitch: u64, width: u64, height: u64) -> CuResult<Region> {
        let element = self.bytes().len() as u64;
        let row_pitch = if height > 1 { pitch } else { 0 };
        if !address.is_multiple_of(element) || !row_pitch.is_multiple_of(element) {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let width = width.checked_mul(element).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        Ok(Region { address, row_pitch, slice_pitch: 0, width, height, depth: 1 })
    }
}

/// A piece of work.
pub(super) enum Operation {
    /// A kernel.
    Launch(Launch),
    /// Fills a region, whose width is a multiple of the pattern.
    Fill { region: Region, pattern: Pattern },
    /// Copies within the device, between regions of equal width, height and depth.
    Copy { destination: Region, source: Region },
    /// Copies from contiguous host memory.
    CopyIn { destination: Region, source: HostSource },
    /// Copies to contiguous host memory.
    CopyOut { source: Region, destination: HostDestination },
    /// Writes a value.
    WriteValue { address: u64, value: Value },
    /// Frees an allocation.
    Free { address: u64 },
    /// Gives a block back to its pool.
    Release { pool: Arc<Pool>, block: BlockToken },
    /// The work of a graph's node, which every launch of the graph does again.
    Shared(Arc<Operation>),
}

impl Operation {
    /// Carries it out on the calling thread, for a stream of this priority.
    ///
    /// # Errors
    /// The error that ends the context.
    pub(super) fn execute(&self, machine: &Machine, priority: i32) -> CuResult<()> {
        let space = &*machine.space;
        let copied = match self {
            Self::Launch(launch) => {
                let started_at = Instant::now();
                let outcome = launch.execute(machine, priority);
                if let Some(timer) = &*machine.kernel_timer.read() {
                    timer(started_at.elapsed());
                }
                return outcome;
            }
            Self::Shared(operation) => return operation.execute(machine, priority),
            Self::Release { pool, block } => {
                pool.release(*block, space);
                Ok(())
            }
            Self::Free { address } => space.free(*address),
            Self::WriteValue { address, value } => value.write(space, *address),
            Self::Fill { region, pattern } => region::fill(space, region, pattern.bytes()),
            Self::Copy { destination, source } => region::copy(space, destination, source),
            // SAFETY: the memory is readable for the region's bytes by the contract of
            // `start_copy_to_device`.
            Self::CopyIn { destination, source } => unsafe { region::write(space, destination, source.0) },
            // SAFETY: the memory is writable for the region's bytes by the contract of
            // `start_copy_from_device`.
            Self::CopyOut { source, destination } => unsafe { region::read(space, source, destination.0) },
        };
        copied.map_err(|error| {
            tracing::error!("an operation in a stream failed: {error}");
            CUresult::CUDA_ERROR_ILLEGAL_ADDRESS
        })
    }

    /// Whether the operation takes less time than waking a thread for it.
    pub(super) fn is_quick(&self) -> bool {
        match self {
            Self::Launch(_) => false,
            Self::Shared(operation) => operation.is_quick(),
            Self::Free { .. } | Self::Release { .. } | Self::WriteValue { .. } => true,
            Self::Fill { region, .. } | Self::CopyIn { destination: region, .. } => is_small(region),
            Self::Copy { source: region, .. } | Self::CopyOut { source: region, .. } => is_small(region),
        }
    }

    /// Whether the operation may change memory that a stream waits on.
    pub(super) fn writes_memory(&self) -> bool {
        !matches!(self, Self::CopyOut { .. } | Self::Free { .. } | Self::Release { .. })
    }

    /// Whether the operation runs kernels, which change memory while they run.
    pub(super) fn runs_kernels(&self) -> bool {
        match self {
            Self::Launch(_) => true,
            Self::Shared(operation) => operation.runs_kernels(),
            _ => false,
        }
    }

    /// Whether the operation uses host memory that its owner may take back once this back end is gone.
    pub(super) fn uses_host_memory(&self) -> bool {
        matches!(self, Self::CopyIn { .. } | Self::CopyOut { .. })
    }

    /// Bytes of memory it refers to that nobody else holds.
    pub(super) fn bytes(&self) -> usize {
        if let Self::Launch(launch) = self { launch.parameter_bytes() } else { 0 }
    }
}

/// Whether moving a region's bytes takes a few microseconds at most.
fn is_small(region: &Region) -> bool {
    region.bytes().is_some_and(|bytes| bytes <= QUICK_BYTES)
        && region.height.saturating_mul(region.depth) <= 16
}

/// What a node does.
#[derive(Clone)]
pub(super) enum Node {
    /// Nothing.
    Empty,
    /// Work for an executor thread.
    Run(Arc<Operation>),
    /// A kernel; its attributes are those of its first launch.
    Kernel(Arc<Operation>),
    /// Records an event.
    Record(u64),
    /// Writes values and waits for values.
    Values(Arc<[ValueStep]>),
    /// Carries one of these graphs out as a value says.
    Conditional { condition: Arc<Steering>, choice: Choice, bodies: Arc<[u64]> },
    /// The same in an executable graph.
    Branch(Arc<Branch>),
}

/// One stream memory operation.
#[derive(Clone, Copy)]
pub(super) enum ValueStep {
    /// Writes a value.
    Write { address: u64, value: Value },
    /// Stops the stream until memory holds a value.
    Wait(Condition),
    /// Orders memory, which is in order here anyway.
    Barrier,
}

impl Node {
    /// Whether the other one is of the same kind.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        core::mem::discriminant(self) == core::mem::discriminant(other)
    }
}

/// What a graph does: values that it begins with, and its nodes in their order.
#[derive(Default)]
pub(super) struct Sequence {
    pub(super) conditions: Vec<Arc<Steering>>,
    pub(super) nodes: Vec<Node>,
}

/// A conditional node of an executable graph.
pub(super) struct Branch {
    pub(super) condition: Arc<Steering>,
    pub(super) choice: Choice,
    pub(super) bodies: Vec<Arc<Sequence>>,
}

impl Branch {
    /// What is to be carried out now, and whether the value is to be looked at again afterwards.
    pub(super) fn next(&self) -> Option<(Arc<Sequence>, bool)> {
        let body = self.bodies.get(self.choice.of(self.condition.value()))?;
        Some((Arc::clone(body), self.choice == Choice::While))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_compare_as_cuda_says() {
        let space = AddressSpace::new(1 << 20).unwrap();
        let address = space.allocate(8, 256).unwrap();
        let holds = |memory: u64, value: Value, comparison| {
            Value::Bits64(memory).write(&space, address).unwrap();
            Condition { address, value, comparison }.holds(&space).unwrap()
        };
        use Comparison::{And, Equal, GreaterOrEqual, Nor};
        assert!(holds(5, Value::Bits32(5), GreaterOrEqual));
        assert!(!holds(4, Value::Bits32(5), GreaterOrEqual));
        assert!(holds(2, Value::Bits32(u32::MAX), GreaterOrEqual), "the counter has wrapped");
        assert!(holds(7, Value::Bits64(7), Equal) && !holds(7, Value::Bits64(8), Equal));
        assert!(holds(6, Value::Bits32(2), And) && !holds(4, Value::Bits32(2), And));
        assert!(holds(0, Value::Bits32(1), Nor) && !holds(u64::MAX, Value::Bits32(0), Nor));
        let wrong = Condition { address: address + (1 << 16), value: Value::Bits32(0), comparison: Equal };
        assert!(wrong.holds(&space).is_err());
    }
}
