//! From PTX instructions to Cranelift's intermediate form.
//!
//! [`table`] lists every instruction with what it becomes; the other modules hold what several entries share.
//! A [`Translator`] holds the function under construction. Each PTX function becomes one native function:
//! its arguments are the [`crate::run::context::ThreadContext`] and then one pointer for each PTX parameter and each
//! returned value. A kernel has the context alone and finds its parameters there.

mod arithmetic;
mod atomic;
mod bits;
mod checks;
mod compare;
mod control;
mod convert;
mod float;
mod form;
mod half;
mod memory;
mod moves;
mod operands;
mod place;
mod spaces;
mod special;
mod table;
mod warp;

pub(crate) use control::PATIENCE;
pub(crate) use operands::function_address;

use cranelift_codegen::ir::{
    self, AbiParam, ArgumentPurpose, Block, BlockArg, GlobalValueData, InstBuilder, MemFlagsData, Signature,
    StackSlot, StackSlotData, StackSlotKind, Type, Value, types,
};
use cranelift_codegen::isa::{CallConv, TargetFrontendConfig};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext, Variable};

use self::checks::PassedChecks;
use crate::link::{FunctionId, Image, LinkedFunction, Symbol};
use crate::parse::syntax::{Body, Instruction, Space, Statement};
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
    pub(crate) own_shared: &'a [u64],
    /// Base of the address space, a multiple of its size.
    pub(crate) space_base: u64,
    /// Size of the address space as a power of two.
    pub(crate) space_bits: u32,
    /// Address of the table of [`crate::jit::CallTarget`] for indirect calls, and how many entries it has.
    pub(crate) call_table: (u64, u64),
}

/// Added to a function's index times 16 to make its "address". The bits say "PTX" and keep it from looking like memory.
pub(crate) const FUNCTION_ADDRESS: u64 = 0x0050_5458_0000_0000;

/// The native signature of a PTX function.
pub(crate) fn signature(linked: &LinkedFunction, convention: CallConv) -> Signature {
    let pointers = if linked.function.is_kernel {
        0
    } else {
        linked.function.parameters.len() + linked.function.returns.len()
    };
    pointer_signature(pointers, convention)
}

fn pointer_signature(pointers: usize, convention: CallConv) -> Signature {
    let mut signature = Signature::new(convention);
    signature.params.push(AbiParam::special(types::I64, ArgumentPurpose::VMContext));
    signature.params.extend(std::iter::repeat_n(AbiParam::new(types::I64), pointers));
    signature
}

/// A number that two functions share exactly when they pass parameters and results of the same sizes.
pub(crate) fn signature_hash(
    parameters: impl Iterator<Item = u64>,
    returns: impl Iterator<Item = u64>,
) -> u64 {
    // FNV-1a over the sizes, with a separator between parameters and results.
    let sizes = parameters.chain(std::iter::once(u64::MAX)).chain(returns);
    sizes.fold(0xcbf2_9ce4_8422_2325, |hash, size| (hash ^ size).wrapping_mul(0x0000_0100_0000_01b3))
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
    /// Offsets of the body's `.local` variables in the frame, and of its `.shared` ones in the block's memory.
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

/// What a fault block reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FaultSite {
    /// An access of so many bytes to the address the block is given.
    Access(u32),
    Stack,
    CallTarget,
    BranchTarget,
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

    /// Gives the body's own variables their places and opens the frame of local memory.
    fn place_variables(&mut self) {
        for variable in &self.body.variables {
            let slot = (variable.space == Space::Param).then(|| {
                let align = variable.align.max(8).trailing_zeros() as u8;
                let size = variable.size.max(1) as u32;
                self.b.create_sized_stack_slot(StackSlotData::new(StackSlotKind::ExplicitSlot, size, align))
            });
            self.slots.push(slot);
        }
        let layout = frame_layout(self.body);
        self.offsets = layout.offsets;
        if layout.size > 0 {
            let top = self.mutable_field(types::I64, std::mem::offset_of!(ThreadContext, local_top));
            let new_top = self.b.ins().iadd_imm_s(top, layout.size as i64);
            let limit = self.field(types::I64, std::mem::offset_of!(ThreadContext, local_size));
            let overflow = self.b.ins().icmp(ir::condcodes::IntCC::UnsignedGreaterThan, new_top, limit);
            self.fault_if(overflow, FaultSite::Stack, top);
            self.set_field(new_top, std::mem::offset_of!(ThreadContext, local_top));
            self.frame = Some(top);
        }
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

    /// Calls a function of the runtime with C calling convention.
    pub(super) fn call_runtime(
        &mut self,
        address: usize,
        arguments: &[Value],
        result: Option<Type>,
    ) -> Option<Value> {
        let mut signature = Signature::new(self.convention);
        for &argument in arguments {
            let ty = self.b.func.dfg.value_type(argument);
            signature.params.push(AbiParam::new(ty));
        }
        signature.returns.extend(result.map(AbiParam::new));
        let signature = self.b.import_signature(signature);
        let callee = self.b.ins().iconst(types::I64, address as i64);
        let call = self.b.ins().call_indirect(signature, callee, arguments);
        self.b.inst_results(call).first().copied()
    }

    /// Calls a function of the runtime that returns a value.
    pub(super) fn call_value(&mut self, address: usize, arguments: &[Value], result: Type) -> Value {
        self.call_runtime(address, arguments, Some(result)).expect("a call with a result type has a result")
    }

    /// Raises a fault when `condition` is not zero; `address` is what the fault reports.
    pub(super) fn fault_if(&mut self, condition: Value, site: FaultSite, address: Value) {
        let fault = match self.fault_blocks.iter().find(|(known, _)| *known == site) {
            Some(&(_, block)) => block,
            None => {
                let block = self.b.create_block();
                self.b.append_block_param(block, types::I64);
                self.b.set_cold_block(block);
                self.fault_blocks.push((site, block));
                block
            }
        };
        let next = self.b.create_block();
        self.b.ins().brif(condition, fault, &[BlockArg::Value(address)], next, &[]);
        self.b.seal_block(next);
        self.b.switch_to_block(next);
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
        let lower = table::find(&instruction.opcode).ok_or_else(|| {
            Refusal::Unsupported("there is no entry for it in the instruction table".to_owned())
        })?;
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

    /// Closes the frame of local memory and returns.
    pub(super) fn return_from_function(&mut self) {
        if let Some(frame) = self.frame {
            self.set_field(frame, std::mem::offset_of!(ThreadContext, local_top));
        }
        self.b.ins().return_(&[]);
        self.end_block();
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

/// Where a body's own variables lie.
#[derive(Debug, Default)]
pub(crate) struct FrameLayout {
    /// For each variable its offset in the frame, or among the function's own shared variables.
    pub(crate) offsets: Vec<u64>,
    /// Bytes of local memory the function needs while it runs.
    pub(crate) size: u64,
    /// Bytes of shared memory its own variables need.
    pub(crate) shared: u64,
}

/// Lays out a body's `.local` and `.shared` variables.
pub(crate) fn frame_layout(body: &Body) -> FrameLayout {
    let mut layout = FrameLayout::default();
    for variable in &body.variables {
        let end = match variable.space {
            Space::Local => &mut layout.size,
            Space::Shared => &mut layout.shared,
            _ => {
                layout.offsets.push(0);
                continue;
            }
        };
        let start = end.next_multiple_of(u64::from(variable.align.max(1)));
        *end = start + variable.size;
        layout.offsets.push(start);
    }
    layout.size = layout.size.next_multiple_of(16);
    layout.shared = layout.shared.next_multiple_of(16);
    layout
}
