//! From PTX instructions to Cranelift's intermediate form.
//!
//! [`table`] lists every instruction with what it becomes; the other modules hold what several entries share.
//! A [`Translator`] holds the function under construction. Each PTX function becomes one native function: its
//! arguments are the [`crate::run::context::ThreadContext`] and then one pointer for each PTX parameter and
//! each returned value. A kernel has the context alone and finds its parameters there.

mod arithmetic;
mod atomic;
mod bits;
mod calls;
mod checks;
mod compare;
mod control;
mod convert;
mod faults;
mod float;
mod form;
mod frame;
mod half;
mod mbarrier;
mod memory;
mod moves;
mod operands;
mod place;
mod slots;
mod spaces;
mod special;
mod table;
mod warp;

pub(crate) use calls::{function_address, signature};
pub(crate) use control::PATIENCE;
pub(crate) use frame::frame_layout;

use std::collections::HashMap;

use cranelift_codegen::ir::{
    self, Block, GlobalValueData, InstBuilder, MemFlagsData, SourceLoc, StackSlot, Type, Value, types,
};
use cranelift_codegen::isa::{CallConv, TargetFrontendConfig};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext, Variable};

use self::checks::PassedChecks;
use self::faults::FaultSite;
use crate::lacking::lacks;
use crate::link::{FunctionId, Image, LinkedFunction, Symbol};
use crate::parse::syntax::{Body, Instruction, Statement};
use crate::run::context::ThreadContext;

/// Why an instruction is not translated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The software GPU does not have it; the text says what part of it.
    Unsupported(String),
    /// It is not valid PTX; the text says why.
    Invalid(String),
}

/// Shorthand for the result of translating one instruction.
pub(crate) type Lowered = Result<(), Refusal>;

pub(crate) fn unsupported<T>(what: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::Unsupported(what.into()))
}

pub(crate) fn invalid<T>(why: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::Invalid(why.into()))
}

/// Where things are when the code runs.
#[derive(Debug, Clone)]
pub(crate) struct Placement<'a> {
    /// Address of each variable; for shared ones the offset in the block's memory.
    pub(crate) variables: &'a [u64],
    /// For each function, where its own shared variables start in the block's memory.
    pub(crate) own_shared: &'a HashMap<FunctionId, u64>,
    /// Base of the address space, a multiple of its size.
    pub(crate) space_base: u64,
    /// Size of the address space as a power of two.
    pub(crate) space_bits: u32,
    /// Address of the table of [`crate::jit::CallTarget`] for indirect calls, and how many entries it has.
    pub(crate) call_table: (u64, u64),
}

/// Translates one function.
///
/// # Errors
/// The instruction that cannot be translated, and why.
pub(crate) fn translate<'a>(
    image: &'a Image,
    id: FunctionId,
    placement: &Placement<'a>,
    target: TargetFrontendConfig,
    context: &mut FunctionBuilderContext,
) -> Result<ir::Function, (&'a Instruction, Refusal)> {
    let linked = &image.functions[id];
    let name = ir::UserFuncName::user(0, id as u32);
    let mut function = ir::Function::with_name_signature(name, signature(linked, target.default_call_conv));
    let thread = function.create_global_value(GlobalValueData::VMContext);
    let flags = function.dfg.mem_flags.insert_unchecked(constant_memory());
    function.stack_limit = Some(function.create_global_value(GlobalValueData::Load {
        base: thread,
        offset: (std::mem::offset_of!(ThreadContext, stack_limit) as i32).into(),
        global_type: types::I64,
        flags,
    }));
    let Some(body) = &linked.function.body else { return Ok(function) };
    let builder = FunctionBuilder::new(&mut function, context);
    let mut translator =
        Translator::new(builder, image, id, body, placement.clone(), target.default_call_conv);
    for (index, statement) in body.statements.iter().enumerate() {
        match statement {
            Statement::Label(label) => translator.start_label(*label),
            Statement::Instruction(instruction) => {
                translator.position = index as u64;
                translator.b.set_srcloc(SourceLoc::new(index as u32));
                translator.instruction(instruction).map_err(|refusal| (instruction, refusal))?;
            }
        }
    }
    translator.finish(target);
    Ok(function)
}

/// Flags of memory that never changes while a thread runs and may always be read.
fn constant_memory() -> MemFlagsData {
    MemFlagsData::trusted().with_readonly().with_can_move()
}

/// A function under construction.
pub(super) struct Translator<'a, 'f> {
    pub(super) b: FunctionBuilder<'f>,
    pub(super) image: &'a Image,
    pub(super) linked: &'a LinkedFunction,
    pub(super) function: FunctionId,
    pub(super) body: &'a Body,
    pub(super) placement: Placement<'a>,
    pub(super) convention: CallConv,
    /// The pointer to the thread's context.
    thread: Value,
    /// For each register the variable that holds it.
    registers: Vec<Variable>,
    /// The type each register is held in.
    register_types: Vec<Type>,
    labels: Vec<Block>,
    /// Pointers to the function's parameters and results.
    parameters: Vec<Value>,
    returns: Vec<Value>,
    /// The stack slots of the body's `.param` variables.
    slots: Vec<Option<StackSlot>>,
    /// Offsets of the body's `.local` variables in the frame, and of its `.shared` ones in the block's
    /// memory.
    offsets: Vec<u64>,
    /// Local memory offset where the frame starts; `None` without local variables.
    frame: Option<Value>,
    /// Blocks that raise a fault, by what they raise.
    fault_blocks: Vec<(FaultSite, Block)>,
    /// Accesses to the address space that were checked on the way from the last label.
    checks: PassedChecks,
    /// Set while a guarded instruction is translated, which may not be executed.
    conditional: bool,
    /// The carry flag of `add.cc` and its kin.
    carry: Variable,
    /// Number of the statement being translated.
    pub(super) position: u64,
    /// Set when the current block has ended with a jump.
    ended: bool,
}

impl<'a, 'f> Translator<'a, 'f> {
    fn new(
        mut b: FunctionBuilder<'f>,
        image: &'a Image,
        function: FunctionId,
        body: &'a Body,
        placement: Placement<'a>,
        convention: CallConv,
    ) -> Self {
        let linked = &image.functions[function];
        let entry = b.create_block();
        b.append_block_params_for_function_params(entry);
        b.switch_to_block(entry);
        let arguments = b.block_params(entry).to_vec();
        let register_types = operands::register_types(body);
        let registers = register_types.iter().map(|&ty| b.declare_var(ty)).collect();
        let carry = b.declare_var(types::I8);
        let labels = (0..body.labels).map(|_| b.create_block()).collect();
        let (parameters, returns) = if linked.function.is_kernel {
            (Vec::new(), Vec::new())
        } else {
            let (parameters, returns) = arguments[1..].split_at(linked.function.parameters.len());
            (parameters.to_vec(), returns.to_vec())
        };
        let mut translator = Self {
            b,
            image,
            linked,
            function,
            body,
            placement,
            convention,
            thread: arguments[0],
            registers,
            register_types,
            labels,
            parameters,
            returns,
            slots: Vec::new(),
            offsets: Vec::new(),
            frame: None,
            fault_blocks: Vec::new(),
            checks: PassedChecks::default(),
            conditional: false,
            carry,
            position: 0,
            ended: false,
        };
        translator.place_variables();
        translator
    }

    /// Reads a field of the thread's context that is constant while the thread runs.
    pub(super) fn field(&mut self, ty: Type, offset: usize) -> Value {
        self.b.ins().load(ty, constant_memory(), self.thread, offset as i32)
    }

    fn mutable_field(&mut self, ty: Type, offset: usize) -> Value {
        self.b.ins().load(ty, MemFlagsData::trusted(), self.thread, offset as i32)
    }

    fn set_field(&mut self, value: Value, offset: usize) {
        self.b.ins().store(MemFlagsData::trusted(), value, self.thread, offset as i32);
    }

    pub(super) fn thread(&self) -> Value {
        self.thread
    }

    /// Starts the code behind a label.
    fn start_label(&mut self, label: usize) {
        let block = self.labels[label];
        self.jump_to(block);
        self.b.switch_to_block(block);
        self.checks.clear();
        self.ended = false;
    }

    /// Ends the current block with a jump, unless it has ended.
    pub(super) fn jump_to(&mut self, block: Block) {
        if !self.ended {
            self.b.ins().jump(block, &[]);
        }
    }

    /// Marks the current block as ended; what follows until the next label cannot be reached.
    pub(super) fn end_block(&mut self) {
        self.ended = true;
    }

    fn instruction(&mut self, instruction: &Instruction) -> Lowered {
        if self.ended {
            let unreachable = self.b.create_block();
            self.b.switch_to_block(unreachable);
            self.b.seal_block(unreachable);
            self.checks.clear();
            self.ended = false;
        }
        let lower = match table::find(&instruction.opcode) {
            Some(lower) => lower,
            None if lacks(&instruction.opcode) => {
                return unsupported("there is no entry for it in the instruction table");
            }
            None => return invalid("no version of PTX has such an instruction"),
        };
        let Some(guard) = instruction.guard else { return lower(self, instruction) };
        let condition = self.b.use_var(self.registers[guard.register]);
        if self.b.func.dfg.value_type(condition) != types::I8 {
            return invalid("the guard is not a predicate");
        }
        let (body, after) = (self.b.create_block(), self.b.create_block());
        let (then, otherwise) = if guard.negated { (after, body) } else { (body, after) };
        self.b.ins().brif(condition, then, &[], otherwise, &[]);
        self.b.seal_block(body);
        self.b.switch_to_block(body);
        self.conditional = true;
        lower(self, instruction)?;
        self.conditional = false;
        self.jump_to(after);
        self.b.seal_block(after);
        self.b.switch_to_block(after);
        self.ended = false;
        Ok(())
    }

    fn finish(mut self, target: TargetFrontendConfig) {
        if !self.ended {
            self.return_from_function();
        }
        for (site, block) in std::mem::take(&mut self.fault_blocks) {
            self.b.switch_to_block(block);
            let address = self.b.block_params(block)[0];
            self.raise(site, address);
        }
        self.b.seal_all_blocks();
        self.b.finalize(target);
    }

    /// What a name of the source stands for.
    pub(super) fn symbol(&self, name: &str) -> Result<Symbol, Refusal> {
        match self.image.names[self.linked.module].get(name) {
            Some(&symbol) => Ok(symbol),
            None => invalid(format!("`{name}` is not declared")),
        }
    }
}
