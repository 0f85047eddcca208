//! From PTX instructions to Cranelift's intermediate form.
//!
//! [`table`] lists every instruction with what it becomes and what else is known of it; the other modules hold
//! what several rows share.
//! A [`Translator`] holds the function under construction. Each PTX function becomes one native function: its
//! arguments are the [`crate::run::context::ThreadContext`] and then one pointer for each PTX parameter and
//! each returned value. A kernel has the context alone and finds its parameters there.

mod access;
mod arithmetic;
mod atomic;
mod bits;
mod block_loop;
mod bulk;
mod calls;
mod checks;
mod compare;
mod control;
mod convert;
mod faults;
mod float;
mod form;
mod frame;
mod halves;
mod liveness;
mod loops;
mod matrix;
mod mbarrier;
mod memory;
mod moves;
mod operands;
mod origins;
mod registers;
mod slots;
mod spaces;
mod special;
mod surface;
mod suspend_points;
mod suspension;
mod table;
mod texture;
mod tiles;
mod translator;
mod video;
mod warp;
mod warp_synchronous;
mod wmma;

use cranelift_codegen::ir::{self, GlobalValueData, InstBuilder, SourceLoc, types};
use cranelift_codegen::isa::TargetFrontendConfig;
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use loops::Loops;
use table::{Row, Waits};
use translator::{Lowered, Translator, constant_memory, invalid, unsupported};

use crate::lacking::lacks;
use crate::link::{FunctionId, Image};
use crate::parse::syntax::{Function, Instruction, Statement};
use crate::run::context::ThreadContext;
pub(crate) use calls::{function_address, signature};
pub(crate) use frame::frame_layout;
pub(crate) use suspend_points::SuspendPoints;
pub(crate) use table::{Kinds, WORD, kind};
pub(crate) use translator::{Placement, Refusal};
pub(crate) use warp_synchronous::WarpUse;
use warp_synchronous::{Exchanges, is_jump};

/// The types that an opcode exists for; `None` where the instruction table has no such opcode.
pub(crate) fn types_of(opcode: &str) -> Option<Kinds> {
    Some(table::find(opcode)?.types)
}

/// Whether threads that execute this function may wait for each other.
pub(crate) fn waits_for_others(function: &Function) -> bool {
    let Some(body) = &function.body else { return false };
    let loops = Loops::of(function, body);
    body.statements.iter().enumerate().any(|(index, statement)| {
        let Statement::Instruction(instruction) = statement else { return false };
        may_wait(instruction, loops.contains(index))
    })
}

/// Whether a thread may wait at an instruction, which lies in a loop or not, in any launch.
fn may_wait(instruction: &Instruction, in_loop: bool) -> bool {
    let Some(row) = table::find(&instruction.opcode) else { return false };
    row.waits == Waits::Always || row.waits.polls(instruction, in_loop) || table::steps(instruction)
}

/// Where the threads of a kernel wait, if they can do without stacks of their own.
pub(crate) fn suspend_points(kernel: &Function) -> Option<SuspendPoints> {
    let body = kernel.body.as_ref()?;
    let (loops, exchanges) = (Loops::of(kernel, body), Exchanges::of(kernel, body));
    let waits = |&index: &usize| {
        let Statement::Instruction(instruction) = &body.statements[index] else { return false };
        may_wait(instruction, loops.contains(index)) || exchanges.contains(index)
    };
    let points: Vec<usize> = (0..body.statements.len()).filter(waits).collect();
    SuspendPoints::of(body, &points, &slots::mentions(body))
}

/// Whether threads that execute this function may wait for what is outside of their block.
pub(crate) fn polls_memory(function: &Function) -> bool {
    let Some(body) = &function.body else { return false };
    let loops = Loops::of(function, body);
    body.statements.iter().enumerate().any(|(index, statement)| {
        let Statement::Instruction(instruction) = statement else { return false };
        let Some(row) = table::find(&instruction.opcode) else { return false };
        // Who sleeps may look at memory by plain loads in between.
        instruction.opcode == "nanosleep" || row.waits.polls(instruction, loops.contains(index))
    })
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
    let moves_bits = |opcode: &str| table::find(opcode).is_some_and(|row| row.moves_bits);
    let register_types = registers::register_types(body, moves_bits);
    let mut translator = Translator::new(
        builder,
        image,
        id,
        body,
        placement.clone(),
        target.default_call_conv,
        register_types,
    );
    translator.start_block_loop();
    translator.allocate_variables();
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

impl Translator<'_, '_> {
    fn instruction(&mut self, instruction: &Instruction) -> Lowered {
        if self.ended {
            let unreachable = self.b.create_block();
            self.b.switch_to_block(unreachable);
            self.b.seal_block(unreachable);
            self.checks.clear();
            self.ended = false;
        }
        let row = match table::find(&instruction.opcode) {
            Some(row) => row,
            None if lacks(&instruction.opcode) => {
                return unsupported("there is no entry for it in the instruction table");
            }
            None => return invalid("no version of PTX has such an instruction"),
        };
        // Lanes that leave a loop converge with those that go on.
        if self.exchanges.contains(self.position as usize) && is_jump(instruction) {
            self.step_in_lockstep();
        }
        let Some(guard) = instruction.guard else { return self.execute(row, instruction) };
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
        self.execute(row, instruction)?;
        self.conditional = false;
        self.jump_to(after);
        self.b.seal_block(after);
        self.b.switch_to_block(after);
        self.ended = false;
        Ok(())
    }

    /// Translates an instruction behind its guard.
    fn execute(&mut self, row: &Row, instruction: &Instruction) -> Lowered {
        if row.waits.polls(instruction, self.loops.contains(self.position as usize)) {
            self.yield_after_polls();
        }
        if table::steps(instruction) {
            self.step();
        } else if self.exchanges.contains(self.position as usize) && !is_jump(instruction) {
            self.step_in_lockstep();
        }
        (row.lower)(self, instruction)
    }

    fn finish(mut self, target: TargetFrontendConfig) {
        if !self.ended {
            self.return_from_function();
        }
        self.finish_dispatch();
        self.finish_block_loop();
        self.finish_fault_blocks();
        self.b.seal_all_blocks();
        self.b.finalize(target);
    }
}
