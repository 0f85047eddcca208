//! Programs: PTX that was parsed, linked and found to be supported.

use std::collections::HashMap;
use std::sync::Arc;

use cranelift_frontend::FunctionBuilderContext;
use thiserror::Error;

use crate::jit;
use crate::link::{self, FunctionId, Image, LinkError, VariableId};
use crate::lower::{self, Placement, Refusal, frame_layout};
use crate::parse::parser;
use crate::parse::syntax::{Body, Linkage, Operand, Scalar, Space, Statement, Variable};

/// Local memory that calls may use when their depth cannot be told in advance (recursion, calls through pointers).
const LOCAL_FOR_RECURSION: u64 = 32 << 10;

/// How to compile.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct CompileOptions {}

/// The last version of PTX, without its minor number. A later minor version adds instructions, and each is looked at by itself.
const LAST_MAJOR_VERSION: u32 = 9;

/// Why a program was refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CompileError {
    /// The text is not PTX.
    #[error("{}line {line}: {message}", source_prefix(*.source_index))]
    Syntax {
        /// Which of the sources, from 0.
        source_index: usize,
        /// The line, from 1.
        line: u32,
        /// What was expected and found.
        message: String,
    },
    /// The text is of a later version of the language than is known here.
    #[error("{}`.version {}.{}` is later than {}.x, the last that the software GPU knows",
        source_prefix(*.source_index), .version / 10, .version % 10, LAST_MAJOR_VERSION)]
    LaterVersion {
        /// Which of the sources, from 0.
        source_index: usize,
        /// Major times ten plus minor.
        version: u32,
    },
    /// An instruction that the software GPU does not have.
    #[error("{}line {line}: `{instruction}` is not supported by the software GPU ({reason})", source_prefix(*.source_index))]
    UnsupportedInstruction {
        /// Which of the sources, from 0.
        source_index: usize,
        /// The line, from 1.
        line: u32,
        /// The instruction as written.
        instruction: String,
        /// Which part of it is not supported.
        reason: String,
    },
    /// An instruction that no GPU has.
    #[error("{}line {line}: `{instruction}` is not valid: {reason}", source_prefix(*.source_index))]
    InvalidInstruction {
        /// Which of the sources, from 0.
        source_index: usize,
        /// The line, from 1.
        line: u32,
        /// The instruction as written.
        instruction: String,
        /// What is wrong.
        reason: String,
    },
    /// Names that no source defines.
    #[error("undefined reference to {}; a source that defines it must be linked too", quoted(.0))]
    Unresolved(Vec<String>),
    /// A name that two sources define.
    #[error("`{0}` is defined in more than one source")]
    Duplicate(String),
    /// Code cannot be generated for this machine.
    #[error("the software GPU cannot generate code for this machine: {0}")]
    Machine(String),
    /// A kernel needs more of something than there is.
    #[error("kernel `{kernel}` {reason}")]
    TooLarge {
        /// Name of the kernel.
        kernel: String,
        /// Which limit, with numbers.
        reason: String,
    },
}

fn source_prefix(index: usize) -> String {
    if index == 0 { String::new() } else { format!("source {}, ", index + 1) }
}

fn quoted(names: &[String]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// One parameter of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parameter {
    /// Bytes from the start of the parameter buffer.
    pub offset: u32,
    /// Bytes.
    pub size: u32,
}

/// What is known about a kernel before it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kernel {
    /// The name, mangled as the compiler left it.
    pub name: String,
    /// In order.
    pub parameters: Vec<Parameter>,
    /// Bytes of the parameter buffer.
    pub parameter_bytes: u32,
    /// Bytes of static shared memory.
    pub shared_bytes: u32,
    /// Bytes of local memory a thread uses, the functions it calls included.
    pub local_bytes: u32,
    /// Bytes of the program's constant variables.
    pub const_bytes: u32,
    /// Threads a block may have: what `.maxntid` says, or 1024.
    pub max_threads: u32,
    /// An estimate of the registers a GPU would need: the most 32-bit virtual registers that are in use between their
    /// first and last mention at one point of the kernel's text, at most 255.
    pub registers: u32,
    /// `.version`, major times ten plus minor.
    pub ptx_version: u32,
    /// `.target`: 75 for `sm_75`.
    pub target: u32,
}

/// The state space of a global variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GlobalSpace {
    /// `__device__`
    Global,
    /// `__constant__`
    Const,
}

/// A variable that the host can find by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Global {
    /// The name, mangled as the compiler left it.
    pub name: String,
    /// Bytes.
    pub size: u64,
    /// Where it lives.
    pub space: GlobalSpace,
    /// Declared `__managed__`.
    pub managed: bool,
}

/// A linked program, every instruction of which is known to be supported. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Program {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    image: Image,
    kernels: Vec<Kernel>,
    layouts: Vec<KernelLayout>,
    by_name: HashMap<String, usize>,
    globals: Vec<Global>,
    global_variables: HashMap<String, VariableId>,
}

/// What a kernel's code and memory are made of.
#[derive(Debug)]
pub(crate) struct KernelLayout {
    pub(crate) function: FunctionId,
    /// The kernel and all it can call.
    pub(crate) functions: Vec<FunctionId>,
    /// For each function of the program, where its own shared variables start.
    pub(crate) own_shared: Vec<u64>,
    /// Offsets of the shared variables that sources declare.
    pub(crate) shared_variables: Vec<(VariableId, u64)>,
    pub(crate) static_shared: u64,
    /// Bytes of local memory a thread gets.
    pub(crate) local: u64,
    pub(crate) waits: bool,
    pub(crate) calls_indirectly: bool,
}

impl Program {
    /// Parses and links sources, and checks every instruction.
    ///
    /// # Errors
    /// The first thing found wrong, with the line it is in; instructions and directives that the software GPU does
    /// not have are refused here, never when a kernel runs.
    pub fn compile(sources: &[&str], _options: &CompileOptions) -> Result<Self, CompileError> {
        let mut modules = Vec::with_capacity(sources.len());
        for (source_index, source) in sources.iter().enumerate() {
            let module = parser::parse(source).map_err(|error| CompileError::Syntax {
                source_index,
                line: error.line,
                message: error.message,
            })?;
            if module.version / 10 > LAST_MAJOR_VERSION {
                return Err(CompileError::LaterVersion { source_index, version: module.version });
            }
            modules.push(module);
        }
        let image = link::link(modules).map_err(|error| match error {
            LinkError::Unresolved(names) => CompileError::Unresolved(names),
            LinkError::Duplicate(name) => CompileError::Duplicate(name),
        })?;
        check_instructions(&image)?;
        let mut kernels = Vec::new();
        let mut layouts = Vec::new();
        for (id, linked) in image.functions.iter().enumerate() {
            if linked.function.is_kernel {
                let layout = layout_kernel(&image, id)?;
                kernels.push(describe_kernel(&image, id, &layout)?);
                layouts.push(layout);
            }
        }
        let by_name =
            kernels.iter().enumerate().map(|(index, kernel)| (kernel.name.clone(), index)).collect();
        let mut globals = Vec::new();
        let mut global_variables = HashMap::new();
        for (id, variable) in image.variables.iter().enumerate() {
            let space = match variable.space {
                Space::Global => GlobalSpace::Global,
                Space::Const => GlobalSpace::Const,
                _ => continue,
            };
            // Variables that only one source sees can be found by name as well, unless another has the same name.
            let public = variable.linkage != Linkage::Internal;
            if public || !global_variables.contains_key(&variable.name) {
                global_variables.insert(variable.name.clone(), id);
            }
            let (name, size, managed) = (variable.name.clone(), variable.size, variable.managed);
            globals.push(Global { name, size, space, managed });
        }
        let inner = Inner { image, kernels, layouts, by_name, globals, global_variables };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The kernels, in the order of the sources.
    pub fn kernels(&self) -> &[Kernel] {
        &self.inner.kernels
    }

    /// The kernel of this name.
    pub fn kernel(&self, name: &str) -> Option<&Kernel> {
        self.kernel_index(name).map(|index| &self.inner.kernels[index])
    }

    /// The `.global` and `.const` variables, in the order of the sources.
    pub fn globals(&self) -> &[Global] {
        &self.inner.globals
    }

    pub(crate) fn kernel_index(&self, name: &str) -> Option<usize> {
        self.inner.by_name.get(name).copied()
    }

    pub(crate) fn layout(&self, index: usize) -> &KernelLayout {
        &self.inner.layouts[index]
    }

    pub(crate) fn image(&self) -> &Image {
        &self.inner.image
    }

    pub(crate) fn variable(&self, name: &str) -> Option<VariableId> {
        self.inner.global_variables.get(name).copied()
    }
}

/// Translates every function with made-up addresses, which finds all that cannot be translated.
fn check_instructions(image: &Image) -> Result<(), CompileError> {
    let target = jit::native_target().map_err(CompileError::Machine)?;
    let variables = vec![0; image.variables.len()];
    let own_shared = vec![0; image.functions.len()];
    let placement = Placement {
        variables: &variables,
        own_shared: &own_shared,
        space_base: 1 << 44,
        space_bits: 40,
        call_table: (0, 0),
    };
    let mut context = FunctionBuilderContext::new();
    for (id, linked) in image.functions.iter().enumerate() {
        lower::translate(image, id, &placement, target.frontend_config(), &mut context).map_err(
            |(instruction, refusal)| {
                // The translator was interrupted, so what it left behind must not be used again.
                let (source_index, line) = (linked.module, instruction.line);
                let text = instruction.text.clone();
                match refusal {
                    Refusal::Unsupported(reason) => {
                        CompileError::UnsupportedInstruction { source_index, line, instruction: text, reason }
                    }
                    Refusal::Invalid(reason) => {
                        CompileError::InvalidInstruction { source_index, line, instruction: text, reason }
                    }
                }
            },
        )?;
    }
    Ok(())
}

fn layout_kernel(image: &Image, function: FunctionId) -> Result<KernelLayout, CompileError> {
    let reach = image.reach(function);
    let mut own_shared = vec![0; image.functions.len()];
    let mut end = 0_u64;
    for &id in &reach.functions {
        let Some(body) = &image.functions[id].function.body else { continue };
        let align = body
            .variables
            .iter()
            .filter(|variable| variable.space == Space::Shared)
            .map(|variable| u64::from(variable.align))
            .max()
            .unwrap_or(1)
            .max(16);
        end = end.next_multiple_of(align);
        own_shared[id] = end;
        end += frame_layout(body).shared;
    }
    let mut shared_variables = Vec::new();
    let mut dynamic = Vec::new();
    for &id in &reach.variables {
        let variable = &image.variables[id];
        if variable.space != Space::Shared {
            continue;
        }
        if variable.size == 0 {
            dynamic.push(id);
            continue;
        }
        end = end.next_multiple_of(u64::from(variable.align.max(1)));
        shared_variables.push((id, end));
        end = end.saturating_add(variable.size);
    }
    let dynamic_align = dynamic.iter().map(|&id| u64::from(image.variables[id].align)).max().unwrap_or(1);
    let static_shared = end.next_multiple_of(dynamic_align.max(1));
    shared_variables.extend(dynamic.into_iter().map(|id| (id, static_shared)));
    let name = &image.functions[function].function.name;
    let limit = u64::from(crate::MAX_SHARED_PER_BLOCK);
    if static_shared > limit {
        let reason = format!("needs {static_shared} bytes of shared memory, and a block has at most {limit}");
        return Err(CompileError::TooLarge { kernel: name.clone(), reason });
    }
    let (depth, bounded) = local_depth(image, function, &mut vec![None; image.functions.len()]);
    let recursion = if bounded && !reach.calls_indirectly { 0 } else { LOCAL_FOR_RECURSION };
    Ok(KernelLayout {
        function,
        functions: reach.functions,
        own_shared,
        shared_variables,
        static_shared,
        local: (depth + recursion).next_multiple_of(16),
        waits: reach.waits,
        calls_indirectly: reach.calls_indirectly,
    })
}

/// Bytes of local memory on the deepest chain of calls from a function, and whether there is a deepest one.
fn local_depth(image: &Image, root: FunctionId, known: &mut [Option<u64>]) -> (u64, bool) {
    // Depth first with a stack of its own, since chains of calls in hostile text may be long.
    let own =
        |id: FunctionId| image.functions[id].function.body.as_ref().map_or(0, |body| frame_layout(body).size);
    let mut bounded = true;
    let mut on_path = vec![false; image.functions.len()];
    let mut path = vec![(root, 0_usize)];
    on_path[root] = true;
    while let Some((id, next)) = path.last_mut() {
        let references = &image.functions[*id].references;
        if let Some(&callee) = references.get(*next) {
            *next += 1;
            if on_path[callee] {
                bounded = false;
            } else if known[callee].is_none() {
                on_path[callee] = true;
                path.push((callee, 0));
            }
        } else {
            let id = *id;
            let deepest = references.iter().filter_map(|&callee| known[callee]).max().unwrap_or(0);
            known[id] = Some(own(id).saturating_add(deepest));
            on_path[id] = false;
            path.pop();
        }
    }
    (known[root].unwrap_or(0), bounded)
}

fn describe_kernel(image: &Image, id: FunctionId, layout: &KernelLayout) -> Result<Kernel, CompileError> {
    let function = &image.functions[id].function;
    let too_large = |reason: String| CompileError::TooLarge { kernel: function.name.clone(), reason };
    let offsets = parameter_offsets(&function.parameters);
    let parameters: Vec<Parameter> = function
        .parameters
        .iter()
        .zip(offsets)
        .map(|(variable, offset)| Parameter { offset, size: variable.size as u32 })
        .collect();
    let parameter_bytes = parameters.last().map_or(0, |last| last.offset.saturating_add(last.size));
    if parameter_bytes > crate::MAX_PARAMETER_BYTES {
        let limit = crate::MAX_PARAMETER_BYTES;
        return Err(too_large(format!(
            "has {parameter_bytes} bytes of parameters, and at most {limit} are possible"
        )));
    }
    let const_bytes: u64 = image
        .variables
        .iter()
        .filter(|variable| variable.space == Space::Const)
        .fold(0, |sum, variable| sum.saturating_add(variable.size));
    let local_bytes = u32::try_from(layout.local)
        .map_err(|_| too_large(format!("needs {} bytes of local memory for each thread", layout.local)))?;
    Ok(Kernel {
        name: function.name.clone(),
        parameters,
        parameter_bytes,
        shared_bytes: layout.static_shared as u32,
        local_bytes,
        const_bytes: u32::try_from(const_bytes).unwrap_or(u32::MAX),
        max_threads: function
            .max_threads
            .map_or(crate::MAX_THREADS_PER_BLOCK, |threads| threads.min(crate::MAX_THREADS_PER_BLOCK)),
        registers: function.body.as_ref().map_or(8, estimated_registers),
        ptx_version: image.version,
        target: image.target,
    })
}

/// Where each parameter lies in a kernel's parameter buffer: in order, each at a multiple of its alignment.
pub(crate) fn parameter_offsets(parameters: &[Variable]) -> Vec<u32> {
    let mut end = 0_u64;
    parameters
        .iter()
        .map(|parameter| {
            let start = end.next_multiple_of(u64::from(parameter.align.max(1)));
            end = start.saturating_add(parameter.size);
            u32::try_from(start).unwrap_or(u32::MAX)
        })
        .collect()
}

/// See [`Kernel::registers`].
fn estimated_registers(body: &Body) -> u32 {
    let mut ranges: HashMap<usize, (usize, usize)> = HashMap::new();
    for (position, statement) in body.statements.iter().enumerate() {
        let Statement::Instruction(instruction) = statement else { continue };
        let mut mention = |register: usize| {
            ranges.entry(register).or_insert((position, position)).1 = position;
        };
        for operand in &instruction.operands {
            match operand {
                Operand::Register(register)
                | Operand::Address(crate::parse::syntax::Base::Register(register), _) => {
                    mention(*register);
                }
                Operand::Vector(items) => {
                    for item in items {
                        if let Operand::Register(register) = item {
                            mention(*register);
                        }
                    }
                }
                _ => {}
            }
        }
    }
    let mut changes = vec![0_i64; body.statements.len() + 1];
    for (register, (first, last)) in ranges {
        let words = match body.registers[register] {
            Scalar::Pred => 0,
            scalar => i64::from(scalar.size().div_ceil(4)),
        };
        changes[first] += words;
        changes[last + 1] -= words;
    }
    let mut live = 0_i64;
    let peak = changes.iter().map(|change| {
        live += change;
        live
    });
    peak.max().unwrap_or(0).clamp(8, 255) as u32
}
