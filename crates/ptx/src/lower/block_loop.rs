//! Loop over the threads of a block: kernels whose threads never wait run one after the other in a single call.
//!
//! Many kernels are a few instructions long. A call for each thread, with the context that it reads and writes, would take
//! longer than these, and values that are the same for all threads would be computed anew. The thread's position is kept in
//! variables; the context has it too, for reports of faults and for functions that the kernel calls.

use std::mem::offset_of;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Type, Value, types};
use cranelift_frontend::Variable;

use super::translator::{BlockLoop, Translator};
use crate::parse::syntax::Statement;
use crate::run::context::ThreadContext;

const LANES: i64 = crate::limits::WARP_SIZE as i64;

/// The offset of a coordinate in the context.
const fn tid_offset(axis: usize) -> usize {
    offset_of!(ThreadContext, tid) + 4 * axis
}

impl Translator<'_, '_> {
    /// Begins what is done for each thread, in a kernel that runs all threads of a block.
    pub(super) fn start_block_loop(&mut self) {
        if !self.linked.function.is_kernel || !self.placement.runs_blocks {
            return;
        }
        let tid = [0, 1, 2].map(|axis| {
            let value = self.mutable_field(types::I32, tid_offset(axis));
            self.variable(value)
        });
        let [lane, warp, left] = [
            offset_of!(ThreadContext, lane),
            offset_of!(ThreadContext, warp),
            offset_of!(ThreadContext, threads_left),
        ]
        .map(|offset| self.mutable_field(types::I32, offset));
        let index = self.b.ins().imul_imm_s(warp, LANES);
        let index = self.b.ins().iadd(index, lane);
        let last = self.b.ins().iadd(index, left);
        let index = self.variable(index);
        let (start, next) = (self.b.create_block(), self.b.create_block());
        self.b.ins().jump(start, &[]);
        self.b.switch_to_block(start);
        // No thread finds what the one before it left in registers.
        let registers = self.registers.iter().copied().zip(self.register_types.iter().copied());
        let registers: Vec<(Variable, Type)> = registers.chain([(self.carry, types::I8)]).collect();
        for (variable, ty) in registers {
            let zero = self.zero(ty);
            self.b.def_var(variable, zero);
        }
        self.block_loop = Some(BlockLoop { start, next, tid, index, last });
    }

    fn variable(&mut self, value: Value) -> Variable {
        let variable = self.b.declare_var(types::I32);
        self.b.def_var(variable, value);
        variable
    }

    /// Ends a thread: goes on with the next one, or returns.
    pub(super) fn end_thread(&mut self) {
        match &self.block_loop {
            Some(block_loop) => {
                let next = block_loop.next;
                self.b.ins().jump(next, &[]);
            }
            None => {
                self.b.ins().return_(&[]);
            }
        }
        self.end_block();
    }

    /// `%tid`
    pub(super) fn tid(&mut self, axis: usize) -> Value {
        match &self.block_loop {
            Some(block_loop) => {
                let variable = block_loop.tid[axis];
                self.b.use_var(variable)
            }
            None => self.field(types::I32, tid_offset(axis)),
        }
    }

    /// `%laneid`
    pub(super) fn lane(&mut self) -> Value {
        match &self.block_loop {
            Some(block_loop) => {
                let index = block_loop.index;
                let index = self.b.use_var(index);
                self.b.ins().band_imm_u(index, LANES - 1)
            }
            None => self.field(types::I32, offset_of!(ThreadContext, lane)),
        }
    }

    /// `%warpid`
    pub(super) fn warp(&mut self) -> Value {
        match &self.block_loop {
            Some(block_loop) => {
                let index = block_loop.index;
                let index = self.b.use_var(index);
                self.b.ins().ushr_imm_u(index, i64::from(LANES.trailing_zeros()))
            }
            None => self.field(types::I32, offset_of!(ThreadContext, warp)),
        }
    }

    /// What lies between two threads.
    pub(super) fn finish_block_loop(&mut self) {
        let Some(BlockLoop { start, next, tid: [x, y, z], index, last }) = self.block_loop else { return };
        let (more, done) = (self.b.create_block(), self.b.create_block());
        self.b.switch_to_block(next);
        let old = self.b.use_var(index);
        let is_last = self.b.ins().icmp(IntCC::Equal, old, last);
        self.b.ins().brif(is_last, done, &[], more, &[]);
        self.b.switch_to_block(done);
        self.store_index();
        self.b.ins().return_(&[]);

        self.b.switch_to_block(more);
        let following = self.b.ins().iadd_imm_s(old, 1);
        self.b.def_var(index, following);
        // Only functions read it, or end a thread before its kernel does.
        let calls =
            |statement: &Statement| matches!(statement, Statement::Instruction(it) if it.opcode == "call");
        if self.body.statements.iter().any(calls) {
            self.store_index();
        }
        let (same_row, row) = (self.b.create_block(), self.b.create_block());
        let column = self.b.use_var(x);
        let column = self.b.ins().iadd_imm_s(column, 1);
        let is_beyond = self.is_beyond(column, 0);
        self.b.ins().brif(is_beyond, row, &[], same_row, &[]);

        self.b.switch_to_block(same_row);
        self.b.def_var(x, column);
        self.set_field(column, tid_offset(0));
        self.b.ins().jump(start, &[]);

        self.b.switch_to_block(row);
        let zero = self.constant(types::I32, 0);
        let (line, plane) = (self.b.use_var(y), self.b.use_var(z));
        let line = self.b.ins().iadd_imm_s(line, 1);
        let is_beyond = self.is_beyond(line, 1);
        let line = self.b.ins().select(is_beyond, zero, line);
        let carry = self.b.ins().uextend(types::I32, is_beyond);
        let plane = self.b.ins().iadd(plane, carry);
        for (axis, (variable, value)) in [(x, zero), (y, line), (z, plane)].into_iter().enumerate() {
            self.b.def_var(variable, value);
            self.set_field(value, tid_offset(axis));
        }
        self.b.ins().jump(start, &[]);
    }

    /// Whether a coordinate lies outside of the block.
    fn is_beyond(&mut self, coordinate: Value, axis: usize) -> Value {
        let size = self.field(types::I32, offset_of!(ThreadContext, ntid) + 4 * axis);
        self.b.ins().icmp(IntCC::UnsignedGreaterThanOrEqual, coordinate, size)
    }

    /// Notes the index of the thread in the context.
    fn store_index(&mut self) {
        let (lane, warp) = (self.lane(), self.warp());
        self.set_field(lane, offset_of!(ThreadContext, lane));
        self.set_field(warp, offset_of!(ThreadContext, warp));
    }

    /// A register's first value.
    fn zero(&mut self, ty: Type) -> Value {
        match ty {
            types::F32 => self.single(0),
            types::F64 => self.double(0),
            types::I128 => {
                let half = self.constant(types::I64, 0);
                self.b.ins().uextend(types::I128, half)
            }
            _ => self.constant(ty, 0),
        }
    }
}
