//! Suspension of a thread: saves and loads at the suspend points of kernels whose threads have no stacks of their own.

use cranelift_codegen::ir::{BlockCall, InstBuilder, JumpTableData, MemFlagsData, Type, Value, types};

use super::Translator;
use crate::run::context::ThreadContext;

impl Translator<'_, '_> {
    /// Between what every call of the function does and what only its first call for a thread does.
    pub(super) fn start_dispatch(&mut self) {
        if self.suspend_points.is_none() {
            return;
        }
        let (dispatch, start) = (self.b.create_block(), self.b.create_block());
        self.b.ins().jump(dispatch, &[]);
        self.b.switch_to_block(start);
        self.resume_blocks = vec![start];
        self.dispatch = Some(dispatch);
    }

    /// Jumps to where the thread waited last, or to the start.
    pub(super) fn finish_dispatch(&mut self) {
        let Some(dispatch) = self.dispatch else { return };
        self.b.switch_to_block(dispatch);
        let index = self.mutable_field(types::I32, std::mem::offset_of!(ThreadContext, resume_index));
        let pool = &mut self.b.func.dfg.value_lists;
        let calls: Vec<BlockCall> =
            self.resume_blocks.iter().map(|&block| BlockCall::new(block, [], pool)).collect();
        let table = self.b.create_jump_table(JumpTableData::new(calls[0], &calls));
        self.b.ins().br_table(index, table);
    }

    /// Calls a function of the runtime with which the thread waits for others; gives what the wait brought.
    ///
    /// No value from before can be used behind it, but those of the function's first block.
    pub(super) fn wait(
        &mut self,
        address: usize,
        arguments: &[Value],
        result: Option<Type>,
    ) -> Option<Value> {
        let Some(points) = self.suspend_points else { return self.call_runtime(address, arguments, result) };
        let frame = self.field(types::I64, std::mem::offset_of!(ThreadContext, frame));
        let flags = MemFlagsData::trusted();
        let saved = points.saved(self.position as usize);
        let saved = saved.map(|(register, offset)| (self.registers[register], offset));
        let saved: Vec<_> = saved.chain(points.carry().map(|offset| (self.carry, offset))).collect();
        let mut types = Vec::with_capacity(saved.len());
        for &(variable, offset) in &saved {
            let value = self.b.use_var(variable);
            types.push(self.b.func.dfg.value_type(value));
            self.b.ins().store(flags, value, frame, offset);
        }
        let index = self.constant(types::I32, self.resume_blocks.len() as i64);
        self.set_field(index, std::mem::offset_of!(ThreadContext, resume_index));
        // Last, so that what is saved need not survive a call: it would be computed behind it, and all that it is computed from
        // kept on the stack.
        self.call_runtime(address, arguments, result);
        self.b.ins().return_(&[]);
        let resume = self.b.create_block();
        self.resume_blocks.push(resume);
        self.b.switch_to_block(resume);
        self.checks.clear();
        let frame = self.field(types::I64, std::mem::offset_of!(ThreadContext, frame));
        for ((variable, offset), ty) in saved.into_iter().zip(types) {
            let value = self.b.ins().load(ty, flags, frame, offset);
            self.b.def_var(variable, value);
        }
        let result = result?;
        let brought = self.mutable_field(types::I64, std::mem::offset_of!(ThreadContext, warp_result));
        Some(if result == types::I64 { brought } else { self.b.ins().ireduce(result, brought) })
    }

    /// The same where the wait brings something.
    pub(super) fn wait_for(&mut self, address: usize, arguments: &[Value], result: Type) -> Value {
        self.wait(address, arguments, Some(result)).expect("a wait with a result type has a result")
    }
}
