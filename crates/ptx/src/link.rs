//! Joins the sources of a program: every name gets its function or variable, and every kernel what it can
//! reach.

use std::collections::HashMap;

use crate::parse::syntax::{Base, Function, Linkage, Module, Name, Operand, Space, Statement, Variable};
use crate::signature::{Signature, SignatureId, Signatures};

/// Index in [`Image::functions`].
pub(crate) type FunctionId = usize;
/// Index in [`Image::variables`].
pub(crate) type VariableId = usize;

/// A function that the software GPU provides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Builtin {
    /// `vprintf(format, arguments)`.
    Print,
    /// `__assertfail(message, file, line, function, character size)`.
    Assert,
    /// `malloc(size)`.
    Allocate,
    /// `free(pointer)`.
    Free,
    /// `cudaGraphSetConditional(handle, value)`.
    SetCondition,
    /// What is computed here for libraries: see [`causeway_gemm`].
    Library(causeway_gemm::Operation),
}

impl Builtin {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "vprintf" => Self::Print,
            "__assertfail" => Self::Assert,
            "malloc" => Self::Allocate,
            "free" => Self::Free,
            "cudaGraphSetConditional" => Self::SetCondition,
            _ => return causeway_gemm::Operation::of_function(name).map(Self::Library),
        })
    }

    pub(crate) fn signature(self) -> Signature {
        let (parameters, results): (&[u64], &[u64]) = match self {
            Self::Print => (&[8, 8], &[4]),
            Self::Assert => (&[8, 8, 4, 8, 8], &[]),
            Self::Allocate => (&[8], &[8]),
            Self::Free => (&[8], &[]),
            Self::SetCondition => (&[8, 4], &[]),
            Self::Library(operation) => {
                let parameters = vec![operation.parameter_bytes() as u64];
                return Signature { parameters, results: Vec::new() };
            }
        };
        Signature { parameters: parameters.into(), results: results.into() }
    }
}

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Symbol {
    Function(FunctionId),
    Variable(VariableId),
    Builtin(Builtin),
}

/// A function with what it refers to.
#[derive(Debug)]
pub(crate) struct LinkedFunction {
    pub(crate) function: Function,
    /// Index of its source.
    pub(crate) module: usize,
    /// The number of its signature.
    pub(crate) signature: SignatureId,
    /// Functions named anywhere in the body: called, or their address taken.
    pub(crate) references: Vec<FunctionId>,
    /// Variables of the sources named in the body.
    pub(crate) variables: Vec<VariableId>,
    pub(crate) calls_indirectly: bool,
}

/// A whole program, linked.
#[derive(Debug)]
pub(crate) struct Image {
    pub(crate) functions: Vec<LinkedFunction>,
    pub(crate) signatures: Signatures,
    pub(crate) variables: Vec<Variable>,
    /// For each source, what its names stand for.
    pub(crate) names: Vec<HashMap<String, Symbol>>,
    /// For each variable, its source.
    pub(crate) variable_modules: Vec<usize>,
    /// Functions whose address is in some variable's initial value.
    pub(crate) functions_in_data: Vec<FunctionId>,
    /// Whether a kernel may have an address of another block's shared memory: `mapa` makes them.
    pub(crate) maps_shared: bool,
    pub(crate) version: u32,
    pub(crate) target: u32,
}

/// Why sources cannot be joined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LinkError {
    Unresolved(Vec<String>),
    Duplicate(String),
}

/// Everything a kernel may execute or touch.
#[derive(Debug, Default)]
pub(crate) struct Reachable {
    /// The kernel first.
    pub(crate) functions: Vec<FunctionId>,
    pub(crate) variables: Vec<VariableId>,
    pub(crate) calls_indirectly: bool,
}

/// Links the sources.
pub(crate) fn link(modules: Vec<Module>) -> Result<Image, LinkError> {
    let mut image = Image {
        functions: Vec::new(),
        signatures: Signatures::default(),
        variables: Vec::new(),
        names: Vec::new(),
        variable_modules: Vec::new(),
        functions_in_data: Vec::new(),
        maps_shared: false,
        version: modules.iter().map(|module| module.version).max().unwrap_or(0),
        target: modules.iter().map(|module| module.target).max().unwrap_or(0),
    };
    let mut shared_names: HashMap<String, (Symbol, Linkage)> = HashMap::new();
    let mut externs = Vec::new();
    let mut aliases = Vec::new();
    for (index, module) in modules.into_iter().enumerate() {
        let mut names = HashMap::new();
        for function in module.functions {
            let linkage = function.linkage;
            let name = function.name.clone();
            if function.body.is_none() {
                externs.push((index, name));
                continue;
            }
            let symbol = Symbol::Function(image.functions.len());
            let publish =
                if function.is_kernel && linkage == Linkage::Internal { Linkage::Visible } else { linkage };
            if publish_name(&mut shared_names, &name, symbol, publish)? {
                names.insert(name, symbol);
                let signature = image.signatures.intern(Signature::of(&function));
                image.functions.push(LinkedFunction {
                    function,
                    signature,
                    module: index,
                    references: Vec::new(),
                    variables: Vec::new(),
                    calls_indirectly: false,
                });
            } else {
                externs.push((index, name));
            }
        }
        for variable in module.variables {
            let name = variable.name.clone();
            let block_wide = variable.space == Space::Shared && variable.size == 0;
            if variable.linkage == Linkage::Extern && !block_wide {
                externs.push((index, name));
                continue;
            }
            let symbol = Symbol::Variable(image.variables.len());
            let linkage = if block_wide { Linkage::Internal } else { variable.linkage };
            if publish_name(&mut shared_names, &name, symbol, linkage)? {
                names.insert(name, symbol);
                image.variables.push(variable);
                image.variable_modules.push(index);
            } else {
                externs.push((index, name));
            }
        }
        aliases.extend(module.aliases.into_iter().map(|alias| (index, alias)));
        image.names.push(names);
    }
    for (module, name) in externs {
        let symbol =
            shared_names.get(&name).map(|(symbol, _)| *symbol).or(Builtin::named(&name).map(Symbol::Builtin));
        if let Some(symbol) = symbol {
            image.names[module].entry(name).or_insert(symbol);
        }
    }
    for (module, (new, old)) in aliases {
        if let Some(&symbol) = image.names[module].get(&old) {
            image.names[module].insert(new, symbol);
        }
    }
    image.resolve()?;
    Ok(image)
}

/// Enters a definition in the names all sources share. `false`: an earlier weak or visible one counts
/// instead.
fn publish_name(
    shared: &mut HashMap<String, (Symbol, Linkage)>,
    name: &str,
    symbol: Symbol,
    linkage: Linkage,
) -> Result<bool, LinkError> {
    if linkage == Linkage::Internal {
        return Ok(true);
    }
    match shared.get(name) {
        Some((_, Linkage::Visible)) if linkage == Linkage::Visible => {
            Err(LinkError::Duplicate(name.to_owned()))
        }
        Some((_, Linkage::Visible)) => Ok(false),
        Some(_) if linkage == Linkage::Weak => Ok(false),
        _ => {
            shared.insert(name.to_owned(), (symbol, linkage));
            Ok(true)
        }
    }
}

impl Image {
    /// Finds what every function and initial value refers to.
    fn resolve(&mut self) -> Result<(), LinkError> {
        let mut missing = Vec::new();
        for linked in &mut self.functions {
            let names = &self.names[linked.module];
            let Some(body) = &linked.function.body else { continue };
            let mut visit = |name: &Name| {
                let Name::Module(name) = name else { return };
                match names.get(name) {
                    Some(Symbol::Function(function)) => linked.references.push(*function),
                    Some(Symbol::Variable(variable)) => linked.variables.push(*variable),
                    Some(Symbol::Builtin(_)) => {}
                    None => missing.push(name.clone()),
                }
            };
            for statement in &body.statements {
                let Statement::Instruction(instruction) = statement else { continue };
                self.maps_shared |= instruction.opcode == "mapa";
                linked.calls_indirectly |= instruction.opcode == "call"
                    && instruction.operands.iter().any(|operand| matches!(operand, Operand::Register(_)));
                for operand in &instruction.operands {
                    visit_names(operand, &mut visit);
                }
            }
            linked.references.sort_unstable();
            linked.references.dedup();
            linked.variables.sort_unstable();
            linked.variables.dedup();
        }
        for (variable, &module) in self.variables.iter().zip(&self.variable_modules) {
            for pointer in &variable.pointers {
                match self.names[module].get(&pointer.symbol) {
                    Some(Symbol::Function(function)) => self.functions_in_data.push(*function),
                    Some(Symbol::Variable(_)) => {}
                    Some(Symbol::Builtin(_)) | None => missing.push(pointer.symbol.clone()),
                }
            }
        }
        missing.sort_unstable();
        missing.dedup();
        if missing.is_empty() { Ok(()) } else { Err(LinkError::Unresolved(missing)) }
    }

    /// What `kernel` may execute or touch. Functions that can be called indirectly are all those whose
    /// address is taken anywhere, since a pointer made by one kernel can be used by another.
    pub(crate) fn reachable_functions(&self, kernel: FunctionId) -> Reachable {
        let mut reachable_functions = Reachable::default();
        let mut seen = vec![false; self.functions.len()];
        let mut pending = vec![kernel];
        seen[kernel] = true;
        while let Some(function) = pending.pop() {
            let linked = &self.functions[function];
            reachable_functions.functions.push(function);
            reachable_functions.variables.extend(&linked.variables);
            let mut found: Vec<FunctionId> = linked.references.clone();
            if linked.calls_indirectly && !reachable_functions.calls_indirectly {
                reachable_functions.calls_indirectly = true;
                found.extend(self.address_taken());
            }
            for next in found {
                if !seen[next] && !self.functions[next].function.is_kernel {
                    seen[next] = true;
                    pending.push(next);
                }
            }
        }
        reachable_functions.variables.sort_unstable();
        reachable_functions.variables.dedup();
        reachable_functions
    }

    /// Functions that some pointer may hold.
    pub(crate) fn address_taken(&self) -> Vec<FunctionId> {
        let referenced = self.functions.iter().flat_map(|linked| linked.references.iter().copied());
        let mut taken: Vec<_> = self.functions_in_data.iter().copied().chain(referenced).collect();
        taken.sort_unstable();
        taken.dedup();
        taken
    }
}

fn visit_names(operand: &Operand, visit: &mut impl FnMut(&Name)) {
    match operand {
        Operand::Symbol(name, _) | Operand::Element(name, _) | Operand::Address(Base::Symbol(name), _) => {
            visit(name);
        }
        Operand::Vector(items) | Operand::List(items) => {
            for item in items {
                visit_names(item, visit);
            }
        }
        Operand::Coordinates(base, items) => {
            if let Base::Symbol(name) = base {
                visit(name);
            }
            for item in items {
                visit_names(item, visit);
            }
        }
        Operand::Pair(first, second) => {
            visit_names(first, visit);
            visit_names(second, visit);
        }
        _ => {}
    }
}
