//! Programs: PTX that was parsed, linked and checked.

mod kernel;

use std::collections::HashMap;
use std::sync::Arc;

use cranelift_codegen::ir::Function;
use cranelift_codegen::ir::entities::AnyEntity;
use cranelift_codegen::isa::TargetIsa;
use cranelift_codegen::verify_function;
use cranelift_frontend::FunctionBuilderContext;

use crate::compile_error::CompileError;
use crate::jit;
use crate::layout::{self, KernelLayout};
use crate::limits::LAST_VERSION;
use crate::link::{self, Image, LinkError, LinkedFunction, VariableId};
use crate::lower::{self, Placement, Refusal};
use crate::parse;
use crate::parse::syntax::{Linkage, Space, Statement};
use crate::verify;

use kernel::Unsupported;
pub use kernel::{Kernel, Parameter};

/// How to compile.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct CompileOptions {}

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

/// A linked program, of each kernel of which it is known whether it is supported. Cheap to clone.
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

impl Program {
    /// Parses and links sources, and checks every instruction.
    ///
    /// What no GPU takes is an error. What this one does not have is none: kernels that need it say so
    /// ([`Kernel::unsupported`]) and cannot be launched, and all others can.
    ///
    /// # Errors
    /// The first thing found wrong, with the line it is in.
    pub fn compile(sources: &[&str], _options: &CompileOptions) -> Result<Self, CompileError> {
        let mut modules = Vec::with_capacity(sources.len());
        for (source_index, source) in sources.iter().enumerate() {
            verify::check_source(source).map_err(|error| CompileError::Refused { source_index, error })?;
            let module = parse::parse(source).map_err(|error| CompileError::Syntax {
                source_index,
                line: error.line,
                message: error.message,
            })?;
            if module.version > LAST_VERSION {
                return Err(CompileError::LaterVersion { source_index, version: module.version });
            }
            modules.push(module);
        }
        let image = link::link(modules).map_err(|error| match error {
            LinkError::Unresolved(names) => CompileError::Unresolved(names),
            LinkError::Duplicate(name) => CompileError::Duplicate(name),
        })?;
        verify::verify(&image)
            .map_err(|(source_index, error)| CompileError::Refused { source_index, error })?;
        let unsupported = check_instructions(&image)?;
        let mut kernels = Vec::new();
        let mut layouts = Vec::new();
        let mut warp_uses = HashMap::new();
        for (id, linked) in image.functions.iter().enumerate() {
            if linked.function.is_kernel {
                let layout = layout::layout(&image, id, &mut warp_uses)?;
                kernels.push(kernel::describe(&image, id, &layout, &unsupported)?);
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
            // Variables that only one source sees can be found by name as well, unless another has the same
            // name.
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
fn check_instructions(image: &Image) -> Result<Unsupported, CompileError> {
    let target = jit::native_target(jit::Optimization::Full).map_err(CompileError::Machine)?;
    let variables = vec![0; image.variables.len()];
    let own_shared = HashMap::new();
    let placement = Placement {
        variables: &variables,
        own_shared: &own_shared,
        space_base: 1 << 44,
        space_bits: 40,
        call_table: (0, 0),
        runs_blocks: false,
        suspend_points: None,
    };
    let mut context = FunctionBuilderContext::new();
    let mut unsupported = Unsupported::new();
    for (id, linked) in image.functions.iter().enumerate() {
        let source_index = linked.module;
        if let Some((line, directive)) = &linked.function.lacking {
            let (line, directive) = (*line, directive.clone());
            unsupported.insert(id, CompileError::UnsupportedDirective { source_index, line, directive });
        }
        match lower::translate(image, id, &placement, target.frontend_config(), &mut context) {
            Ok(translated) => check_types(linked, &translated, &*target)?,
            Err((instruction, refusal)) => {
                // The translator was interrupted: what it has left behind must not be used again.
                context = FunctionBuilderContext::new();
                let (line, text) = (instruction.line, instruction.text.clone());
                match refusal {
                    Refusal::Unsupported(reason) => {
                        unsupported.entry(id).or_insert(CompileError::UnsupportedInstruction {
                            source_index,
                            line,
                            instruction: text,
                            reason,
                        });
                    }
                    Refusal::Invalid(reason) => {
                        return Err(CompileError::InvalidInstruction {
                            source_index,
                            line,
                            instruction: text,
                            reason,
                        });
                    }
                }
            }
        }
    }
    Ok(unsupported)
}

/// Refuses an instruction that became operations on the wrong types.
fn check_types(
    linked: &LinkedFunction,
    function: &Function,
    target: &dyn TargetIsa,
) -> Result<(), CompileError> {
    let Err(errors) = verify_function(function, target) else { return Ok(()) };
    let error = &errors.0[0];
    let position = match error.location {
        AnyEntity::Inst(instruction) => function.srcloc(instruction).bits() as usize,
        _ => usize::MAX,
    };
    let statement = linked.function.body.as_ref().and_then(|body| body.statements.get(position));
    let (line, instruction) = match statement {
        Some(Statement::Instruction(instruction)) => (instruction.line, instruction.text.clone()),
        _ => (1, linked.function.name.clone()),
    };
    let reason = format!("its operands do not have the types it needs ({})", error.message);
    Err(CompileError::InvalidInstruction { source_index: linked.module, line, instruction, reason })
}
