//! Branches, and the ends of threads.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{self, BlockCall, InstBuilder, JumpTableData, MemFlagsData, TrapCode, types};

use super::form::Form;
use super::translator::FaultSite;
use super::{Lowered, Translator, invalid};
use crate::parse::syntax::{Instruction, Operand, Scalar};
use crate::run::context::ThreadContext;
use crate::run::functions as runtime;

impl Translator<'_, '_> {
    /// `bra`
    pub(super) fn branch(&mut self, instruction: &Instruction) -> Lowered {
        let mut form = Form::of(instruction);
        form.ignore(&["uni"]);
        form.finish()?;
        let Some(Operand::Label(label)) = instruction.operands.first() else {
            return invalid("the target is not a label");
        };
        let target = self.labels[*label];
        self.jump_to(target);
        self.end_block();
        Ok(())
    }

    /// `setmaxnreg`: how many registers a warp's threads own from here on, which makes no difference here.
    pub(super) fn set_register_limit(&mut self, instruction: &Instruction) -> Lowered {
        let mut form = Form::of(instruction);
        let names_all = form.choice(&["inc", "dec"]).is_some() && form.flag("sync") && form.flag("aligned");
        let is_word = form.scalar()? == Scalar::U32;
        form.finish()?;
        self.expect_operands(instruction, 1)?;
        let Operand::Integer(count @ 24..=256) = self.operand(instruction, 0)? else {
            return invalid("the number of registers is not from 24 to 256");
        };
        if !names_all || !is_word || count % 8 != 0 {
            return invalid("a modifier is missing, or the number of registers is no multiple of 8");
        }
        Ok(())
    }

    /// `brx.idx`: a branch through a table.
    pub(super) fn branch_by_index(&mut self, instruction: &Instruction) -> Lowered {
        let mut form = Form::of(instruction);
        form.ignore(&["uni", "idx"]);
        form.finish()?;
        self.expect_operands(instruction, 2)?;
        let Operand::Table(name) = &instruction.operands[1] else {
            return invalid("the targets are not a table");
        };
        let Some(targets) = self.body.branch_tables.get(name) else {
            return invalid(format!("there is no table `{name}`"));
        };
        let index = self.read(instruction, 0, Scalar::U32)?;
        let count = targets.len() as i64;
        let beyond = self.b.ins().icmp_imm_s(IntCC::UnsignedGreaterThanOrEqual, index, count);
        let reported = self.b.ins().uextend(types::I64, index);
        self.fault_if(beyond, FaultSite::BranchTarget, reported);
        let blocks: Vec<ir::Block> = targets.iter().map(|&label| self.labels[label]).collect();
        let pool = &mut self.b.func.dfg.value_lists;
        let calls: Vec<BlockCall> = blocks.iter().map(|&block| BlockCall::new(block, [], pool)).collect();
        let table = self.b.create_jump_table(JumpTableData::new(calls[0], &calls));
        self.b.ins().br_table(index, table);
        self.end_block();
        Ok(())
    }

    /// `ret`; in a kernel it ends the thread.
    pub(super) fn return_instruction(&mut self, instruction: &Instruction) -> Lowered {
        let mut form = Form::of(instruction);
        form.ignore(&["uni"]);
        form.finish()?;
        self.return_from_function();
        Ok(())
    }

    /// `exit`: ends the thread from anywhere.
    pub(super) fn exit(&mut self) -> Lowered {
        if self.linked.function.is_kernel {
            self.return_from_function();
        } else {
            let thread = self.thread();
            self.call_runtime(runtime::exit_thread as *const () as usize, &[thread], None);
            self.end_without_return();
        }
        Ok(())
    }

    /// `trap`
    pub(super) fn trap(&mut self) -> Lowered {
        let thread = self.thread();
        self.call_runtime(runtime::raise_trap as *const () as usize, &[thread], None);
        self.end_without_return();
        Ok(())
    }

    /// Ends a block behind a call that never returns.
    pub(super) fn end_without_return(&mut self) {
        self.b.ins().trap(TrapCode::unwrap_user(1));
        self.end_block();
    }

    /// Counts a step of polling; after too many, other threads run.
    ///
    /// A thread may wait for another of its block by polling memory. Threads of a block take turns on one
    /// processor, so the one that polls must give way.
    pub(super) fn yield_after_polls(&mut self) {
        let offset = std::mem::offset_of!(ThreadContext, polls_left) as i32;
        let thread = self.thread();
        let left = self.b.ins().load(types::I32, MemFlagsData::trusted(), thread, offset);
        let left = self.b.ins().iadd_imm_s(left, -1);
        self.b.ins().store(MemFlagsData::trusted(), left, thread, offset);
        let (yield_thread, next) = (self.b.create_block(), self.b.create_block());
        self.b.set_cold_block(yield_thread);
        self.b.ins().brif(left, next, &[], yield_thread, &[]);
        self.b.seal_block(yield_thread);
        self.b.switch_to_block(yield_thread);
        self.wait(runtime::yield_thread as *const () as usize, &[thread], None);
        self.b.ins().jump(next, &[]);
        self.b.seal_block(next);
        self.b.switch_to_block(next);
    }

    /// `nanosleep`: lets others run.
    pub(super) fn sleep(&mut self) -> Lowered {
        let thread = self.thread();
        self.wait(runtime::yield_thread as *const () as usize, &[thread], None);
        Ok(())
    }
}
