//! Pack and unpack of strided memory, by a kernel that copies runs.
//!
//! What is copied is a number of elements. Each has the same runs: so many bytes, from an offset on. Long
//! runs are cut into pieces, so that enough threads work on them; as many threads work on a piece as it has
//! units.

use core::fmt::Write as _;
use std::collections::HashMap;
use std::sync::Arc;

use crate::collective::kernels::{self, Name, memory_at};
use crate::collective::memory::Temporary;
use crate::cuda::{self, CudaError, Scope};
use crate::locks::{Mutex, MutexGuard, rank};

/// The longest piece.
const CHUNK_BYTES: u64 = 4096;

/// Threads that work on one piece at most.
const MAX_LANES: u64 = 32;

/// Tables of runs that stay on GPUs.
const MAX_TABLES: usize = 64;

/// Bytes of an element that lie one behind the other, from this offset on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Run {
    /// From where the element begins.
    pub offset: i64,
    /// How many.
    pub bytes: u64,
}

/// What is copied, and which way.
#[derive(Debug, Clone, Copy)]
pub struct Elements<'a> {
    /// A number that no other list of runs has, now or later.
    pub id: u64,
    /// The runs of one element.
    pub runs: &'a [Run],
    /// From one element to the next.
    pub extent: i64,
    /// Where the first element begins.
    pub typed: u64,
    /// Where its bytes lie one behind the other.
    pub packed: u64,
    /// How many of those are copied. Of the last element there may be a part.
    pub bytes: u64,
    /// Whether they go to the packed place.
    pub is_pack: bool,
}

/// The pieces of a list of runs, as the kernel reads them: offset, place among the packed bytes, length.
fn pieces(runs: &[Run]) -> Vec<[u64; 3]> {
    let mut pieces = Vec::with_capacity(runs.len());
    let mut packed = 0;
    for run in runs {
        let mut at = 0;
        while at < run.bytes {
            let bytes = (run.bytes - at).min(CHUNK_BYTES);
            pieces.push([run.offset.wrapping_add_unsigned(at) as u64, packed, bytes]);
            at += bytes;
            packed += bytes;
        }
    }
    pieces
}

/// The most bytes that divide all numbers, of 1, 2, 4, 8 and 16.
fn unit(numbers: impl Iterator<Item = u64>) -> u64 {
    let zeros = numbers.fold(4, |fewest, number| fewest.min(number.trailing_zeros()));
    1 << zeros
}

/// A kernel that copies runs in units of so many bytes. Its parameters: the typed place, the packed place,
/// the table of pieces, how many there are, how many elements, the extent and the size of one, how many
/// packed bytes there are, and the logarithm of the threads of a piece.
fn text(unit: u64, is_pack: bool) -> String {
    let (kind, register) = match unit {
        1 => ("u8", "%r9"),
        2 => ("u16", "%r9"),
        4 => ("u32", "%r9"),
        8 => ("u64", "%rd30"),
        _ => ("v2.u64", "{%rd30, %rd31}"),
    };
    let (from, to) = if is_pack { ("%rd22", "%rd23") } else { ("%rd23", "%rd22") };
    let names = ["typed", "packed", "table", "pieces", "elements", "extent", "size", "limit", "lanes"];
    let parameters: Vec<String> = names.iter().map(|name| format!(".param .u64 {name}")).collect();
    let mut text = format!(
        ".version 6.0\n.target sm_52\n.address_size 64\n.visible .entry kernel({})\n{{\n",
        parameters.join(", ")
    );
    text.push_str("    .reg .pred %p<8>;\n    .reg .b32 %r<16>;\n    .reg .b64 %rd<40>;\n");
    for (at, name) in names.iter().enumerate() {
        // Writing into a string does not fail.
        let _ = writeln!(text, "    ld.param.u64 %rd{}, [{name}];", at + 1);
    }
    let _ = write!(
        text,
        "    cvta.to.global.u64 %rd1, %rd1;
    cvta.to.global.u64 %rd2, %rd2;
    cvta.to.global.u64 %rd3, %rd3;
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mov.u32 %r4, %nctaid.x;
    cvt.u32.u64 %r5, %rd9;
    mul.wide.u32 %rd10, %r1, %r2;
    cvt.u64.u32 %rd11, %r3;
    add.s64 %rd10, %rd10, %rd11;
    mul.wide.u32 %rd12, %r4, %r2;
    mov.u64 %rd13, 1;
    shl.b64 %rd13, %rd13, %r5;
    sub.s64 %rd14, %rd13, 1;
    and.b64 %rd14, %rd10, %rd14;
    mul.lo.s64 %rd14, %rd14, {unit};
    mul.lo.s64 %rd13, %rd13, {unit};
    shr.u64 %rd10, %rd10, %r5;
    shr.u64 %rd12, %rd12, %r5;
    mul.lo.s64 %rd15, %rd4, %rd5;
piece:
    setp.ge.u64 %p1, %rd10, %rd15;
    @%p1 bra end;
    div.u64 %rd16, %rd10, %rd4;
    mul.lo.s64 %rd17, %rd16, %rd4;
    sub.s64 %rd17, %rd10, %rd17;
    mul.lo.s64 %rd17, %rd17, 24;
    add.s64 %rd17, %rd3, %rd17;
    ld.global.u64 %rd18, [%rd17];
    ld.global.u64 %rd19, [%rd17+8];
    ld.global.u64 %rd20, [%rd17+16];
    mul.lo.s64 %rd21, %rd16, %rd6;
    add.s64 %rd21, %rd21, %rd18;
    add.s64 %rd21, %rd1, %rd21;
    mul.lo.s64 %rd24, %rd16, %rd7;
    add.s64 %rd24, %rd24, %rd19;
    setp.ge.u64 %p2, %rd24, %rd8;
    @%p2 bra next;
    sub.s64 %rd25, %rd8, %rd24;
    min.u64 %rd20, %rd20, %rd25;
    add.s64 %rd24, %rd2, %rd24;
    mov.u64 %rd26, %rd14;
unit:
    setp.ge.u64 %p3, %rd26, %rd20;
    @%p3 bra next;
    add.s64 %rd22, %rd21, %rd26;
    add.s64 %rd23, %rd24, %rd26;
    ld.global.{kind} {register}, [{from}];
    st.global.{kind} [{to}], {register};
    add.s64 %rd26, %rd26, %rd13;
    bra unit;
next:
    add.s64 %rd10, %rd10, %rd12;
    bra piece;
end:
    ret;
}}
"
    );
    text
}

/// The pieces of a list of runs, on a GPU.
#[derive(Debug)]
struct Table {
    memory: Temporary,
    pieces: u64,
    max_run: u64,
    /// The bytes of an element.
    size: u64,
    /// The most bytes that divide all offsets and lengths.
    unit: u64,
}

impl Table {
    fn new(scope: &Scope<'static>, device: i32, runs: &[Run]) -> Result<Self, CudaError> {
        let pieces = pieces(runs);
        let bytes = size_of_val(pieces.as_slice());
        let memory = Temporary::new(scope.driver(), device, bytes as u64)?;
        // SAFETY: the memory has so many bytes, and so have the pieces.
        unsafe { scope.copy(memory.address(), pieces.as_ptr() as u64, bytes) }?;
        Ok(Self {
            memory,
            pieces: pieces.len() as u64,
            max_run: pieces.iter().map(|piece| piece[2]).max().unwrap_or(1),
            size: runs.iter().map(|run| run.bytes).sum(),
            unit: unit(pieces.iter().flatten().copied()),
        })
    }
}

type Tables = HashMap<(u64, u64), Arc<Table>>;

/// Tables that are on GPUs, by list and context (`Scope::life`).
static TABLES: Mutex<rank::ElementTables, Option<Tables>> = Mutex::new(None);

fn tables() -> MutexGuard<'static, rank::ElementTables, Option<Tables>> {
    TABLES.lock()
}

/// Forgets the tables of a list of runs that will not be used any more.
pub fn forget(id: u64) {
    if let Some(tables) = tables().as_mut() {
        tables.retain(|(list, _), _| *list != id);
    }
}

fn table(scope: &Scope<'static>, device: i32, what: &Elements<'_>) -> Result<Arc<Table>, CudaError> {
    let key = (what.id, scope.life());
    if let Some(known) = tables().get_or_insert_default().get(&key) {
        return Ok(Arc::clone(known));
    }
    let made = Arc::new(Table::new(scope, device, what.runs)?);
    let mut tables = tables();
    let known = tables.get_or_insert_default();
    if known.len() >= MAX_TABLES {
        known.clear();
    }
    known.insert(key, Arc::clone(&made));
    Ok(made)
}

/// Copies elements, at least one place of which is on a GPU, and waits until they are there.
///
/// # Safety
/// Both places are valid for all runs of the elements, and nobody else writes there.
///
/// # Errors
/// What the driver says, or that it knows neither of the two places.
pub unsafe fn copy(what: &Elements<'_>) -> Result<(), CudaError> {
    let Some(run) = what.runs.first().filter(|_| what.bytes > 0) else { return Ok(()) };
    let first = what.typed.wrapping_add_signed(run.offset);
    let (driver, memory) = memory_at(first).ok_or(CudaError::UNKNOWN_MEMORY)?;
    cuda::synchronize(driver, &memory);
    let scope = Scope::of(driver, &memory)?;
    if memory_at(what.packed).is_some() {
        // SAFETY: both are on GPUs, and the caller has them valid for all runs of the elements.
        return unsafe { copy_on_gpu(&scope, memory.device, what) };
    }
    // Memory of the host is reached through some on the GPU.
    let between = Temporary::new(driver, memory.device, what.bytes)?;
    let there = Elements { packed: between.address(), ..*what };
    // SAFETY: the caller has both valid for all runs of the elements; the memory in between has so many
    // bytes.
    unsafe {
        if !what.is_pack {
            scope.copy(between.address(), what.packed, what.bytes as usize)?;
        }
        copy_on_gpu(&scope, memory.device, &there)?;
        if what.is_pack {
            scope.copy(what.packed, between.address(), what.bytes as usize)?;
        }
    }
    Ok(())
}

/// # Safety
/// As [`copy`], with both places on GPUs that the scope reaches.
unsafe fn copy_on_gpu(scope: &Scope<'static>, device: i32, what: &Elements<'_>) -> Result<(), CudaError> {
    let table = table(scope, device, what)?;
    let elements = what.bytes.div_ceil(table.size.max(1));
    let numbers = [table.unit, what.extent as u64, table.size, what.typed, what.packed, what.bytes];
    let unit = unit(numbers.into_iter());
    let lanes = (table.max_run / unit).clamp(1, MAX_LANES).next_power_of_two();
    let parameters = [
        what.typed,
        what.packed,
        table.memory.address(),
        table.pieces,
        elements,
        what.extent as u64,
        table.size,
        what.bytes,
        u64::from(lanes.trailing_zeros()),
    ];
    let name = Name::Runs { unit, is_pack: what.is_pack };
    let work = elements.saturating_mul(table.pieces).saturating_mul(lanes);
    // SAFETY: the caller has both valid for all runs of the elements on GPUs that the scope reaches; the
    // table lives until the kernel has ended.
    unsafe { kernels::run(scope, name, || text(unit, what.is_pack), work, &parameters) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_runs_are_cut_and_short_ones_follow_each_other() {
        let runs = [Run { offset: -8, bytes: 8 }, Run { offset: 100, bytes: 2 * CHUNK_BYTES + 4 }];
        let cut = pieces(&runs);
        assert_eq!(cut[0], [(-8_i64) as u64, 0, 8]);
        assert_eq!(cut[1], [100, 8, CHUNK_BYTES]);
        assert_eq!(cut[3], [100 + 2 * CHUNK_BYTES, 8 + 2 * CHUNK_BYTES, 4]);
        assert_eq!(cut.len(), 4);
    }

    #[test]
    fn units_divide_everything() {
        assert_eq!(unit([16, 32, 0].into_iter()), 16);
        assert_eq!(unit([16, 24].into_iter()), 8);
        assert_eq!(unit([(-4_i64) as u64, 16].into_iter()), 4);
        assert_eq!(unit([7].into_iter()), 1);
    }
}
