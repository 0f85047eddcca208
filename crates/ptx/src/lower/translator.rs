//! A function under construction.

use std::collections::HashMap;

use cranelift_codegen::ir::{Block, InstBuilder, MemFlagsData, StackSlot, Type, Value, types};
use cranelift_codegen::isa::CallConv;
use cranelift_frontend::{FunctionBuilder, Variable};

use super::checks::PassedChecks;
use super::loops::Loops;
use super::suspend_points::SuspendPoints;
use super::warp_synchronous::Exchanges;
use crate::link::{FunctionId, Image, LinkedFunction, Symbol};
use crate::parse::syntax::Body;

/// Why an instruction is not translated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The software GPU does not have it; the text says what part of it.
    Unsupported(String),
    /// It is not valid PTX; the text says why.
    Invalid(String),
}

/// Shorthand for the result of translating one instruction.
pub(super) type Lowered = Result<(), Refusal>;

/// Refuses what the software GPU does not have.
pub(super) fn unsupported<T>(what: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::Unsupported(what.into()))
}

/// Refuses what is not valid PTX.
pub(super) fn invalid<T>(why: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::Invalid(why.into()))
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

/// The loop of a kernel that runs all threads of a block, and what differs from thread to thread.
pub(super) struct BlockLoop {
    pub(super) start: Block,
    /// Where a thread goes that ends.
    pub(super) next: Block,
    /// The thread's coordinates.
    pub(super) tid: [Variable; 3],
    /// Its index in the block, and that of the last one.
    pub(super) index: Variable,
    pub(super) last: Value,
}

/// A block that raises a fault.
pub(super) struct FaultBlock {
    pub(super) site: FaultSite,
    pub(super) block: Block,
    /// Checks that lead there.
    pub(super) uses: u32,
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
    /// Address of the table of [`crate::signature::CallTarget`] for indirect calls, and how many entries it has.
    pub(crate) call_table: (u64, u64),
    /// Whether the kernel runs all threads of a block in one call, as they never wait.
    pub(crate) runs_blocks: bool,
    /// Where the kernel saves what, if its threads have no stacks of their own.
    pub(crate) suspend_points: Option<&'a SuspendPoints>,
}

/// Flags of memory that never changes while a thread runs and may always be read.
pub(super) fn constant_memory() -> MemFlagsData {
    MemFlagsData::trusted().with_readonly().with_can_move()
}

/// A function under construction.
pub(super) struct Translator<'a, 'f> {
    pub(super) b: FunctionBuilder<'f>,
    pub(super) image: &'a Image,
    pub(super) linked: &'a LinkedFunction,
    pub(super) function: FunctionId,
    pub(super) body: &'a Body,
    /// Which statements of the body lie in loops.
    pub(super) loops: Loops,
    /// The accesses at which the lanes of a warp converge in launches that need that.
    pub(super) exchanges: Exchanges,
    pub(super) placement: Placement<'a>,
    /// Those of a kernel whose threads have no stacks of their own.
    pub(super) suspend_points: Option<&'a SuspendPoints>,
    /// The start of such a kernel, and where it goes on behind each of its suspend points.
    pub(super) resume_blocks: Vec<Block>,
    /// The block that jumps to one of these.
    pub(super) dispatch: Option<Block>,
    /// The loop over the threads of a block, in a kernel that has one.
    pub(super) block_loop: Option<BlockLoop>,
    pub(super) convention: CallConv,
    /// The pointer to the thread's context.
    pub(super) thread: Value,
    /// For each register the variable that holds it.
    pub(super) registers: Vec<Variable>,
    /// The type each register is held in.
    pub(super) register_types: Vec<Type>,
    pub(super) labels: Vec<Block>,
    /// Pointers to the function's parameters and results.
    pub(super) parameters: Vec<Value>,
    pub(super) returns: Vec<Value>,
    /// Offsets in the frame of the copies of parameters whose address is taken.
    pub(super) parameter_copies: Vec<Option<u64>>,
    /// The local address of what a variadic function is passed beyond its parameters.
    pub(super) variadic: Option<Value>,
    /// The stack slots of the body's `.param` variables.
    pub(super) slots: Vec<Option<StackSlot>>,
    /// Offsets of the body's `.local` variables in the frame, and of its `.shared` ones in the block's
    /// memory.
    pub(super) offsets: Vec<u64>,
    /// Local memory offset where the frame starts; `None` without local variables.
    pub(super) frame: Option<Value>,
    /// Where instructions of textures, surfaces and matrices leave what they pass and find what they get.
    pub(super) request: Option<StackSlot>,
    /// Blocks that raise a fault.
    pub(super) fault_blocks: Vec<FaultBlock>,
    /// Accesses to the address space that were checked on the way from the last label.
    pub(super) checks: PassedChecks,
    /// Set while a guarded instruction is translated, which may not be executed.
    pub(super) conditional: bool,
    /// The carry flag of `add.cc` and its kin.
    pub(super) carry: Variable,
    /// Number of the statement being translated.
    pub(super) position: u64,
    /// Set when the current block has ended with a jump.
    pub(super) ended: bool,
}

impl<'a, 'f> Translator<'a, 'f> {
    /// A function without code. Its variables have no place yet.
    pub(super) fn new(
        mut b: FunctionBuilder<'f>,
        image: &'a Image,
        function: FunctionId,
        body: &'a Body,
        placement: Placement<'a>,
        convention: CallConv,
        register_types: Vec<Type>,
    ) -> Self {
        let linked = &image.functions[function];
        let entry = b.create_block();
        b.append_block_params_for_function_params(entry);
        b.switch_to_block(entry);
        let arguments = b.block_params(entry).to_vec();
        let registers = register_types.iter().map(|&ty| b.declare_var(ty)).collect();
        let carry = b.declare_var(types::I8);
        let labels = (0..body.labels).map(|_| b.create_block()).collect();
        let (parameters, returns) = if linked.function.is_kernel {
            (Vec::new(), Vec::new())
        } else {
            let (parameters, returns) = arguments[1..].split_at(linked.function.parameters.len());
            (parameters.to_vec(), returns.to_vec())
        };
        Self {
            b,
            image,
            linked,
            function,
            body,
            loops: Loops::of(&linked.function, body),
            exchanges: Exchanges::of(&linked.function, body),
            suspend_points: placement.suspend_points.filter(|_| linked.function.is_kernel),
            resume_blocks: Vec::new(),
            dispatch: None,
            block_loop: None,
            placement,
            convention,
            thread: arguments[0],
            registers,
            register_types,
            labels,
            parameters,
            returns,
            parameter_copies: Vec::new(),
            variadic: None,
            slots: Vec::new(),
            offsets: Vec::new(),
            frame: None,
            request: None,
            fault_blocks: Vec::new(),
            checks: PassedChecks::default(),
            conditional: false,
            carry,
            position: 0,
            ended: false,
        }
    }

    /// Reads a field of the thread's context that is constant while the thread runs.
    pub(super) fn field(&mut self, ty: Type, offset: usize) -> Value {
        self.b.ins().load(ty, constant_memory(), self.thread, offset as i32)
    }

    pub(super) fn mutable_field(&mut self, ty: Type, offset: usize) -> Value {
        self.b.ins().load(ty, MemFlagsData::trusted(), self.thread, offset as i32)
    }

    pub(super) fn set_field(&mut self, value: Value, offset: usize) {
        self.b.ins().store(MemFlagsData::trusted(), value, self.thread, offset as i32);
    }

    pub(super) fn thread(&self) -> Value {
        self.thread
    }

    /// Starts the code behind a label.
    pub(super) fn start_label(&mut self, label: usize) {
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

    /// What a name of the source stands for.
    pub(super) fn symbol(&self, name: &str) -> Result<Symbol, Refusal> {
        match self.image.names[self.linked.module].get(name) {
            Some(&symbol) => Ok(symbol),
            None => invalid(format!("`{name}` is not declared")),
        }
    }
}
