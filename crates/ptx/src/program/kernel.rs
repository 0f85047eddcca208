//! What is known about a kernel before it runs.

use std::collections::HashMap;

use crate::compile_error::CompileError;
use crate::layout::KernelLayout;
use crate::link::{FunctionId, Image};
use crate::parse::syntax::{Base, Body, Operand, Scalar, Selected, Space, Statement};
use crate::signature::parameter_offsets;

/// For each function that has something which the software GPU does not have, the first of it.
pub(super) type Unsupported = HashMap<FunctionId, CompileError>;

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
    /// `.reqntid`: the threads that a block has to have along x, y and z, where the kernel says so.
    pub block: Option<[u32; 3]>,
    /// `.reqnctapercluster`: the blocks of a cluster along x, y and z, where the kernel says so.
    pub cluster: Option<[u32; 3]>,
    /// `.explicitcluster`: a launch has to say how large clusters are.
    pub explicit_cluster: bool,
    /// `.maxclusterrank`: the most blocks that a cluster may have, where the kernel says so.
    pub max_cluster_blocks: Option<u32>,
    /// An estimate of the registers a GPU would need: the most 32-bit virtual registers that are in use
    /// between their first and last mention at one point of the kernel's text, at most 255.
    pub registers: u32,
    /// `.version`, major times ten plus minor.
    pub ptx_version: u32,
    /// `.target`: 75 for `sm_75`.
    pub target: u32,
    /// Why it cannot be launched: the first thing in it, or in a function that it may call, which the
    /// software GPU does not have.
    pub unsupported: Option<CompileError>,
}

/// Describes a kernel of a linked program, if it keeps to the limits.
pub(super) fn describe(
    image: &Image,
    id: FunctionId,
    layout: &KernelLayout,
    unsupported: &Unsupported,
) -> Result<Kernel, CompileError> {
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
    if parameter_bytes > crate::limits::MAX_PARAMETER_BYTES {
        let limit = crate::limits::MAX_PARAMETER_BYTES;
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
        max_threads: function.max_threads.map_or(crate::limits::MAX_THREADS_PER_BLOCK, |threads| {
            threads.min(crate::limits::MAX_THREADS_PER_BLOCK)
        }),
        block: function.block,
        cluster: function.cluster,
        explicit_cluster: function.explicit_cluster,
        max_cluster_blocks: function.max_cluster_blocks,
        registers: function.body.as_ref().map_or(8, estimated_registers),
        ptx_version: image.version,
        target: image.target,
        unsupported: layout.functions.iter().find_map(|function| unsupported.get(function)).cloned(),
    })
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
                | Operand::Address(Base::Register(register), _)
                | Operand::Selected(Selected { register, .. }) => {
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
