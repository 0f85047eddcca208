//! Reduction kernels: their PTX text, and their launch.
//!
//! A kernel is for a type, an operation and a number of sources. Its threads take elements in vectors of up
//! to 16 bytes, since that takes fewest instructions and has most bytes under way, which memory of another
//! GPU needs; what is left behind the last vector they take one by one. Everything that is read of an
//! element, or of a vector, is read before anything of it is written: a source may be a target, too.

use core::ffi::CStr;
use std::collections::HashMap;

use crate::collective::element::{Element, Number, Operation};
use crate::collective::ptx::{Value, Writer};
use crate::cuda::{CudaError, DeviceMemory, Driver, Function, Scope};
use crate::locks::{Mutex, rank};

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
///
/// PTX text. Pure.
///
/// In vectors first, and then one by one over what is left behind the last of them: the threads of the grid's
/// first dimension take turns.
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

/// The most sources of one kernel.
pub const MAX_SOURCES: usize = 16;

/// The name of a kernel's entry.
pub const ENTRY: &CStr = c"kernel";

/// Bytes of the longest vector.
const VECTOR_BYTES: u64 = 16;

/// The most 32-bit registers for what is loaded of all sources at once.
const MAX_LOAD_REGISTERS: u64 = 96;

/// What a kernel makes of its sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Makes {
    /// All of them put together, which goes to so many targets.
    Whole(usize),
    /// For each source a target, which gets all sources up to it. With or without the source itself; without
    /// it the first target gets nothing.
    Prefixes {
        /// Whether the source itself belongs to it.
        with_own: bool,
    },
}

/// A kernel that puts elements together, in the order of their sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Kernel {
    /// The elements.
    pub element: Element,
    /// What is done with them.
    pub operation: Operation,
    /// How many sources there are.
    pub sources: usize,
    /// What it makes of them.
    pub makes: Makes,
}

impl Kernel {
    /// How many targets it has.
    pub fn targets(&self) -> usize {
        match self.makes {
            Makes::Whole(targets) => targets,
            Makes::Prefixes { .. } => self.sources,
        }
    }

    /// Whether of one source alone it makes that source.
    pub fn copies_single_source(&self) -> bool {
        self.makes != (Makes::Prefixes { with_own: false })
    }

    /// How many elements a vector has; 1 where there are none.
    fn lanes(&self) -> u64 {
        if matches!(self.element, Element::Indexed { .. }) {
            return 1;
        }
        let mut lanes = (VECTOR_BYTES / self.element.bytes()).max(1);
        let load_registers = |lanes: u64| {
            lanes * self.sources as u64 * (self.parts().len() as u64) * self.registers_per_number()
        };
        while lanes > 1 && load_registers(lanes) > MAX_LOAD_REGISTERS {
            lanes /= 2;
        }
        lanes
    }

    /// 32-bit registers of a number.
    fn registers_per_number(&self) -> u64 {
        self.parts().iter().map(|(number, _)| number.bytes().div_ceil(4)).max().unwrap_or(1)
    }

    /// The numbers of an element, and their addresses in it.
    fn parts(&self) -> Vec<(Number, u64)> {
        match self.element {
            Element::One(number) => vec![(number, 0)],
            Element::Complex(number) => vec![(number, 0), (number, number.bytes())],
            Element::Indexed { number, index_at, .. } => {
                vec![(number, 0), (Number::Signed(4), u64::from(index_at))]
            }
        }
    }

    /// How many items of work there are for so many elements, and how many of them are vectors: none where an
    /// address is not a multiple of a vector's bytes.
    pub fn work(&self, count: u64, addresses: &[u64]) -> (u64, u64) {
        let lanes = self.lanes();
        let bytes = lanes * self.element.bytes();
        if lanes == 1 || addresses.iter().any(|address| address % bytes != 0) {
            return (count, 0);
        }
        let vectors = count / lanes;
        (vectors.max(count % lanes), vectors)
    }

    /// Whether there is such a kernel: not where the operation is not defined for the element, or there are
    /// too many sources or targets, no target, or less than two sources.
    pub fn is_one(&self) -> bool {
        self.element.supports(self.operation)
            && (2..=MAX_SOURCES).contains(&self.sources)
            && (1..=MAX_SOURCES).contains(&self.targets())
    }

    /// Its text, if there is such a kernel. The parameters, all of 8 bytes: the count of elements, that of
    /// vectors, the targets and the sources.
    pub fn text(&self) -> Option<String> {
        self.text_with("", "")
    }

    /// The same for a kernel that does nothing where a word is not 0, whose address is one more parameter,
    /// the last.
    pub fn guarded_text(&self) -> Option<String> {
        self.text_with(GUARD_PARAMETER, GUARD)
    }

    fn text_with(&self, parameter: &str, guard: &str) -> Option<String> {
        if !self.is_one() {
            return None;
        }
        let mut vectors = Writer::default();
        if self.lanes() > 1 {
            self.write(&mut vectors, self.lanes());
        }
        let mut singles = Writer { registers: vectors.registers, ..Writer::default() };
        self.write(&mut singles, 1);
        Some(self.around(&vectors.body, &singles, parameter, guard))
    }

    /// What a thread does with so many elements at an offset.
    fn write(&self, writer: &mut Writer, lanes: u64) {
        let loaded: Vec<Vec<Value>> = (0..self.sources).map(|at| self.load(writer, at, lanes)).collect();
        let mut whole: Option<Vec<Value>> = None;
        for (at, values) in loaded.into_iter().enumerate() {
            if let (Makes::Prefixes { with_own: false }, Some(whole)) = (self.makes, &whole) {
                self.store(writer, whole, &[at], lanes);
            }
            let reduced = match &whole {
                None => values,
                Some(whole) => {
                    let each = self.parts().len();
                    let elements = whole.chunks(each).zip(values.chunks(each));
                    elements.flat_map(|(a, b)| writer.reduce(self.element, self.operation, a, b)).collect()
                }
            };
            if self.makes == (Makes::Prefixes { with_own: true }) {
                self.store(writer, &reduced, &[at], lanes);
            }
            whole = Some(reduced);
        }
        if let (Makes::Whole(targets), Some(whole)) = (self.makes, &whole) {
            let all: Vec<usize> = (0..targets).collect();
            self.store(writer, whole, &all, lanes);
        }
    }

    /// The numbers of so many elements of a source, in their order.
    fn load(&self, writer: &mut Writer, source: usize, lanes: u64) -> Vec<Value> {
        let address = writer.register("rd");
        writer.line(&format!("add.s64 {address}, %source{source}, %offset;"));
        let mut values = Vec::new();
        for (number, offset, many) in self.accesses(lanes) {
            values.extend(writer.load(number, &address, offset, many));
        }
        values
    }

    fn store(&self, writer: &mut Writer, values: &[Value], targets: &[usize], lanes: u64) {
        let registers = writer.finish(values);
        for target in targets {
            let address = writer.register("rd");
            writer.line(&format!("add.s64 {address}, %target{target}, %offset;"));
            let mut left = registers.as_slice();
            for (number, offset, many) in self.accesses(lanes) {
                let (these, others) = left.split_at(many);
                writer.store(number, these, &address, offset);
                left = others;
            }
        }
    }

    /// The loads or stores of so many elements: of which number, where, and how many of them at once.
    fn accesses(&self, lanes: u64) -> Vec<(Number, u64, usize)> {
        if lanes == 1 {
            return self.parts().into_iter().map(|(number, offset)| (number, offset, 1)).collect();
        }
        // All numbers are of one kind.
        let (number, _) = self.parts()[0];
        let all = lanes * self.parts().len() as u64;
        let many = all.min(4).min(VECTOR_BYTES / number.bytes());
        (0..all / many).map(|at| (number, at * many * number.bytes(), many as usize)).collect()
    }

    /// The loops over vectors, and over the elements behind them.
    fn around(&self, vectors: &str, singles: &Writer, parameter: &str, guard: &str) -> String {
        let Writer { body: singles, registers } = singles;
        let (sources, targets, past_last) = (self.sources, self.targets(), registers + 1);
        let names = || {
            let targets = (0..targets).map(|at| format!("target{at}"));
            targets.chain((0..sources).map(|at| format!("source{at}")))
        };
        let parameters: String = names().map(|name| format!(", .param .u64 {name}")).collect();
        let loads: String = names()
            .map(|name| {
                format!("    ld.param.u64 %{name}, [{name}];\n    cvta.to.global.u64 %{name}, %{name};\n")
            })
            .collect();
        let walk = Walk {
            vectors: "%vectors",
            elements: "%count",
            lanes: self.lanes(),
            bytes: self.element.bytes(),
            vector: vectors,
            single: singles,
        };
        let walk = walk.text();
        format!(
            "\
.version 6.0
.target sm_52
.address_size 64
.visible .entry kernel(.param .u64 count, .param .u64 vectors{parameters}{parameter})
{{
    .reg .pred %p<{past_last}>;
    .reg .b16 %h<{past_last}>;
    .reg .b32 %r<{past_last}>;
    .reg .b64 %rd<{past_last}>;
    .reg .f32 %f<{past_last}>;
    .reg .f64 %d<{past_last}>;
    .reg .b64 %source<{sources}>;
    .reg .b64 %target<{targets}>;
    .reg .b64 %count, %vectors;
    .reg .pred %ends;
{guard}    ld.param.u64 %count, [count];
    ld.param.u64 %vectors, [vectors];
{loads}{walk}end:
    ret;
}}
"
        )
    }
}

/// Threads of a block.
const THREADS: u32 = 256;

/// Blocks of a kernel at most: each thread then takes several elements.
const MAX_BLOCKS: u64 = 1024;

/// The most sources of a reduction by one kernel; more are reduced by several, one after another.
const MAX_CONCURRENT: usize = 8;

/// A kernel of this room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Name {
    /// It puts elements together.
    Elements(Kernel),
    /// It copies runs of bytes, in units of so many, to or from where they lie one behind the other.
    Runs {
        /// Bytes of a unit.
        unit: u64,
        /// Whether they go there.
        is_pack: bool,
    },
}

type Loaded = HashMap<(u64, Name), Function>;

/// Kernels that are loaded, by context (`Scope::life`) and name. Modules go with their context, and not every
/// driver says that it has ended: a launch that fails is tried again with a module that is loaded anew.
static LOADED: Mutex<rank::Leaf, Option<Loaded>> = Mutex::new(None);

/// Runs a kernel with one thread for each of `work` items, as far as there are so many, and waits for its
/// end.
///
/// # Safety
/// The parameters are what the kernel takes, and it stays within memory that is not shared.
///
/// # Errors
/// What the driver says.
pub unsafe fn run(
    scope: &Scope<'_>,
    name: Name,
    text: impl Fn() -> String,
    work: u64,
    parameters: &[u64],
) -> Result<(), CudaError> {
    let blocks = work.div_ceil(u64::from(THREADS)).clamp(1, MAX_BLOCKS) as u32;
    let key = (scope.life(), name);
    let lock = || LOADED.lock();
    let known = lock().get_or_insert_default().get(&key).copied();
    if let Some(function) = known {
        // SAFETY: the caller passes the kernel's parameters, with which it stays within memory that is not
        // shared.
        if unsafe { scope.launch(function, blocks, THREADS, parameters) }.is_ok() {
            return Ok(());
        }
    }
    let function = scope.load(&text(), ENTRY)?;
    lock().get_or_insert_default().insert(key, function);
    // SAFETY: the caller passes the kernel's parameters, with which it stays within memory that is not
    // shared.
    unsafe { scope.launch(function, blocks, THREADS, parameters) }
}

/// Runs a kernel on so many elements of all its sources, and waits for its end.
///
/// # Safety
/// All addresses are of memory that the GPU of the scope reaches, with so many elements, as many as the
/// kernel has of each. Targets are not shared; each of them may be a source, and overlaps none in part.
///
/// # Errors
/// What the driver says, or that there is no such kernel.
pub unsafe fn run_kernel(
    scope: &Scope<'_>,
    kernel: &Kernel,
    targets: &[u64],
    sources: &[u64],
    count: u64,
) -> Result<(), CudaError> {
    if kernel.sources != sources.len() || kernel.targets() != targets.len() || !kernel.is_one() {
        return Err(CudaError { call: "a reduction that is not defined", code: 1 });
    }
    let addresses = [targets, sources].concat();
    let (work, vectors) = kernel.work(count, &addresses);
    let text = || kernel.text().unwrap_or_default();
    let parameters = [&[count, vectors], addresses.as_slice()].concat();
    // SAFETY: these are the kernel's parameters, and the caller's addresses have as many elements as it
    // accesses.
    unsafe { run(scope, Name::Elements(*kernel), text, work, &parameters) }
}

/// Puts elements of several sources together, in their order. Each of them may be the target, too. What the
/// first kernel of several makes goes to `partial`, which is one of the first two sources, or the target.
///
/// # Safety
/// All addresses are of memory on the GPU of the scope with so many elements; the target and `partial` are
/// nobody else's. No source overlaps the target in part. With more than `MAX_CONCURRENT` of them, `partial`
/// is the target only where no source is.
///
/// # Errors
/// What the driver says.
pub unsafe fn reduce(
    scope: &Scope<'_>,
    element: Element,
    operation: Operation,
    (target, partial): (u64, u64),
    count: u64,
    sources: &[u64],
) -> Result<(), CudaError> {
    if let [only] = sources {
        let bytes = (count * element.bytes()) as usize;
        // SAFETY: the caller has so many elements at both addresses, which are on this GPU and do not overlap
        // in part.
        return if *only == target { Ok(()) } else { unsafe { scope.copy(target, *only, bytes) } };
    }
    let mut left = sources;
    let mut has_partial = false;
    while !left.is_empty() {
        // What there is already is the first source of the next kernel.
        let taken = left.len().min(MAX_CONCURRENT - usize::from(has_partial));
        let mut these: Vec<u64> = if has_partial { vec![partial] } else { Vec::new() };
        these.extend_from_slice(&left[..taken]);
        left = &left[taken..];
        has_partial = true;
        let kernel = Kernel { element, operation, sources: these.len(), makes: Makes::Whole(1) };
        let to = if left.is_empty() { target } else { partial };
        // SAFETY: the caller has so many elements at all sources; the target and `partial` are nobody else's.
        unsafe { run_kernel(scope, &kernel, &[to], &these, count) }?;
    }
    Ok(())
}

/// The memory at an address, if it is on a GPU.
pub fn memory_at(address: u64) -> Option<(&'static Driver, DeviceMemory)> {
    let driver = Driver::loaded()?;
    Some((driver, DeviceMemory::at(driver, address)?))
}

/// Whether an address is on a GPU.
pub fn is_on_gpu(address: u64) -> bool {
    Driver::loaded().is_some_and(|driver| DeviceMemory::is_at(driver, address))
}

/// Whether two addresses are on a GPU, and kernels of one context use both.
pub fn share_context(one: u64, other: u64) -> bool {
    memory_at(one)
        .zip(memory_at(other))
        .is_some_and(|((_, one), (_, other))| one.common_context(other).is_some())
}
