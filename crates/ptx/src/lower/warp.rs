//! Instructions that threads of a warp or block execute together. Each becomes a call of the runtime, which
//! suspends the thread until the others have come.

use cranelift_codegen::ir::{InstBuilder, Value, types};

use super::form::Form;
use super::{Lowered, Translator, invalid, unsupported};
use crate::parse::syntax::{Instruction, Operand, Scalar};
use crate::run::context::ThreadContext;
use crate::run::context::{ClusterBarrierRequest, Reduction, WarpOperation};
use crate::run::functions as runtime;

impl Translator<'_, '_> {
    /// Suspends the thread for an operation of its warp; the meaning of the 64 bits returned is the
    /// operation's own.
    fn warp_operation(
        &mut self,
        operation: WarpOperation,
        mask: Value,
        value: Value,
        lane: Value,
        clamp: Value,
    ) -> Value {
        let thread = self.thread();
        let operation = self.constant(types::I32, operation as i64);
        let value = self.extend(Scalar::B64, value, types::I64);
        let arguments = [thread, operation, mask, value, lane, clamp];
        self.wait_for(runtime::warp_operation as *const () as usize, &arguments, types::I64)
    }

    pub(super) fn simple_warp_operation(
        &mut self,
        operation: WarpOperation,
        mask: Value,
        value: Value,
    ) -> Value {
        let zero = self.constant(types::I32, 0);
        self.warp_operation(operation, mask, value, zero, zero)
    }

    /// `shfl.sync.mode.b32 d[|p], a, b, c, mask`
    pub(super) fn shuffle(&mut self, instruction: &Instruction) -> Lowered {
        let mut form = Form::of(instruction);
        let sync = form.flag("sync");
        let operation = match form.choice(&["up", "down", "bfly", "idx"]) {
            Some("up") => WarpOperation::ShuffleUp,
            Some("down") => WarpOperation::ShuffleDown,
            Some("bfly") => WarpOperation::ShuffleButterfly,
            Some(_) => WarpOperation::ShuffleIndex,
            None => return invalid("the mode is missing"),
        };
        let scalar = form.scalar()?;
        form.finish()?;
        self.expect_operands(instruction, if sync { 5 } else { 4 })?;
        let value = self.read(instruction, 1, Scalar::B32)?;
        let lane = self.read(instruction, 2, Scalar::B32)?;
        let clamp = self.read(instruction, 3, Scalar::B32)?;
        let mask = if sync { self.read(instruction, 4, Scalar::B32)? } else { self.constant(types::I32, -1) };
        let warp_result = self.warp_operation(operation, mask, value, lane, clamp);
        let result = self.b.ins().ireduce(types::I32, warp_result);
        match self.operand(instruction, 0)? {
            Operand::Pair(value, predicate) => {
                let valid = self.upper_bit(warp_result);
                self.assign(value, scalar, result)?;
                self.assign(predicate, Scalar::Pred, valid)
            }
            single => self.assign(single, scalar, result),
        }
    }

    /// Bit 32 of an answer, as a predicate.
    fn upper_bit(&mut self, warp_result: Value) -> Value {
        let bit = self.b.ins().ushr_imm_u(warp_result, 32);
        let bit = self.b.ins().ireduce(types::I8, bit);
        self.b.ins().band_imm_u(bit, 1)
    }

    /// `vote.sync.mode`
    pub(super) fn vote(&mut self, instruction: &Instruction) -> Lowered {
        let mut form = Form::of(instruction);
        let sync = form.flag("sync");
        let operation = match form.choice(&["all", "any", "uni", "ballot"]) {
            Some("all") => WarpOperation::VoteAll,
            Some("any") => WarpOperation::VoteAny,
            Some("uni") => WarpOperation::VoteUniform,
            Some(_) => WarpOperation::Ballot,
            None => return invalid("the mode is missing"),
        };
        form.ignore(&["pred", "b32"]);
        form.finish()?;
        self.expect_operands(instruction, if sync { 3 } else { 2 })?;
        let predicate = self.read(instruction, 1, Scalar::Pred)?;
        let mask = if sync { self.read(instruction, 2, Scalar::B32)? } else { self.constant(types::I32, -1) };
        let warp_result = self.simple_warp_operation(operation, mask, predicate);
        if operation == WarpOperation::Ballot {
            let ballot = self.b.ins().ireduce(types::I32, warp_result);
            return self.write(instruction, Scalar::B32, ballot);
        }
        let result = self.b.ins().ireduce(types::I8, warp_result);
        self.write(instruction, Scalar::Pred, result)
    }

    /// `match.any.sync` and `match.all.sync`
    pub(super) fn match_lanes(&mut self, instruction: &Instruction) -> Lowered {
        let mut form = Form::of(instruction);
        form.ignore(&["sync"]);
        let operation = match form.choice(&["any", "all"]) {
            Some("any") => WarpOperation::MatchAny,
            Some(_) => WarpOperation::MatchAll,
            None => return invalid("the mode is missing"),
        };
        let scalar = form.scalar()?;
        form.finish()?;
        self.expect_operands(instruction, 3)?;
        let value = self.read(instruction, 1, scalar)?;
        let mask = self.read(instruction, 2, Scalar::B32)?;
        let warp_result = self.simple_warp_operation(operation, mask, value);
        let lanes = self.b.ins().ireduce(types::I32, warp_result);
        match self.operand(instruction, 0)? {
            Operand::Pair(value, predicate) => {
                let all = self.upper_bit(warp_result);
                self.assign(value, Scalar::B32, lanes)?;
                self.assign(predicate, Scalar::Pred, all)
            }
            single => self.assign(single, Scalar::B32, lanes),
        }
    }

    /// `redux.sync`
    pub(super) fn reduce_lanes(&mut self, instruction: &Instruction) -> Lowered {
        let mut form = Form::of(instruction);
        form.ignore(&["sync"]);
        let Some(name) = form.choice(&["add", "min", "max", "and", "or", "xor"]) else {
            return invalid("the operation is missing");
        };
        let scalar = form.scalar()?;
        form.finish()?;
        self.expect_operands(instruction, 3)?;
        if scalar.is_float() {
            return unsupported("reducing floating-point numbers");
        }
        let operation = match (name, scalar.is_signed()) {
            ("add", _) => WarpOperation::SumUnsigned,
            ("min", false) => WarpOperation::MinUnsigned,
            ("max", false) => WarpOperation::MaxUnsigned,
            ("min", true) => WarpOperation::MinSigned,
            ("max", true) => WarpOperation::MaxSigned,
            ("and", _) => WarpOperation::And,
            ("or", _) => WarpOperation::Or,
            _ => WarpOperation::Xor,
        };
        let value = self.read(instruction, 1, scalar)?;
        let mask = self.read(instruction, 2, Scalar::B32)?;
        let warp_result = self.simple_warp_operation(operation, mask, value);
        let result = self.b.ins().ireduce(types::I32, warp_result);
        self.write(instruction, scalar, result)
    }

    /// `elect.sync d|p, mask`
    pub(super) fn elect(&mut self, instruction: &Instruction) -> Lowered {
        let mut form = Form::of(instruction);
        form.ignore(&["sync"]);
        form.finish()?;
        self.expect_operands(instruction, 2)?;
        let mask = self.read(instruction, 1, Scalar::B32)?;
        let zero = self.constant(types::I64, 0);
        let warp_result = self.simple_warp_operation(WarpOperation::Elect, mask, zero);
        let Operand::Pair(lane, elected) = self.operand(instruction, 0)? else {
            return invalid("the destination is not `d|p`");
        };
        let leader = self.b.ins().ireduce(types::I32, warp_result);
        let is_leader = self.upper_bit(warp_result);
        self.assign(lane, Scalar::B32, leader)?;
        self.assign(elected, Scalar::Pred, is_leader)
    }

    /// `activemask`
    pub(super) fn active_mask(&mut self, instruction: &Instruction) -> Lowered {
        let mut form = Form::of(instruction);
        let scalar = form.scalar()?;
        form.finish()?;
        self.expect_operands(instruction, 1)?;
        let thread = self.thread();
        let site = self.site();
        let mask = self.wait_for(runtime::active_mask as *const () as usize, &[thread, site], types::I32);
        self.write(instruction, scalar, mask)
    }

    /// Lets the other lanes of the warp come to this instruction.
    pub(super) fn step(&mut self) {
        let (thread, site) = (self.thread(), self.site());
        self.wait(runtime::step as *const () as usize, &[thread, site], None);
    }

    /// The same, in launches whose lanes go in lockstep.
    pub(super) fn step_in_lockstep(&mut self) {
        let is_lockstep = self.field(types::I32, std::mem::offset_of!(ThreadContext, is_lockstep));
        let (step, next) = (self.b.create_block(), self.b.create_block());
        self.b.ins().brif(is_lockstep, step, &[], next, &[]);
        self.b.seal_block(step);
        self.b.switch_to_block(step);
        self.step();
        self.b.ins().jump(next, &[]);
        self.b.seal_block(next);
        self.b.switch_to_block(next);
    }

    /// The number of this instruction.
    fn site(&mut self) -> Value {
        self.constant(types::I64, self.function as i64 * (1 << 32) + self.position as i64)
    }

    /// `bar` and `barrier`: `.warp.sync`, `.sync`, `.arrive` and `.red`
    pub(super) fn barrier(&mut self, instruction: &Instruction) -> Lowered {
        let mut form = Form::of(instruction);
        form.ignore(&["cta", "aligned"]);
        if form.flag("warp") {
            form.ignore(&["sync"]);
            form.finish()?;
            self.expect_operands(instruction, 1)?;
            let mask = self.read(instruction, 0, Scalar::B32)?;
            let zero = self.constant(types::I64, 0);
            self.simple_warp_operation(WarpOperation::Synchronise, mask, zero);
            return Ok(());
        }
        if form.flag("cluster") {
            return self.cluster_barrier(instruction, form);
        }
        let Some(kind) = form.choice(&["sync", "arrive", "red"]) else {
            return unsupported("this kind of barrier");
        };
        let reduction = match form.choice(&["popc", "and", "or"]) {
            None => Reduction::None,
            Some("popc") => Reduction::Count,
            Some("and") => Reduction::And,
            Some(_) => Reduction::Or,
        };
        form.ignore(&["u32", "pred"]);
        form.finish()?;
        let operands = instruction.operands.as_slice();
        let (destination, operands, predicate) = match (kind, operands) {
            ("red", [destination, operands @ .., predicate]) => {
                (Some(destination), operands, Some(predicate))
            }
            ("red", _) => return invalid("operands are missing"),
            _ => (None, operands, None),
        };
        let (number, threads) = match operands {
            [number] => (number, None),
            [number, threads] => (number, Some(threads)),
            _ => return invalid("a barrier has one or two operands"),
        };
        let number = self.value(number, Scalar::U32)?;
        let threads = match threads {
            Some(threads) => self.value(threads, Scalar::U32)?,
            None => self.constant(types::I32, 0),
        };
        let predicate = match predicate {
            Some(predicate) => self.value(predicate, Scalar::Pred)?,
            None => self.constant(types::I8, 0),
        };
        let predicate = self.b.ins().uextend(types::I32, predicate);
        let thread = self.thread();
        if kind == "arrive" {
            self.wait(runtime::arrive as *const () as usize, &[thread, number, threads], None);
            return Ok(());
        }
        let reduction_number = self.constant(types::I32, reduction as i64);
        let arguments = [thread, number, threads, reduction_number, predicate];
        let warp_result = self.wait_for(runtime::barrier as *const () as usize, &arguments, types::I32);
        match (destination, reduction) {
            (Some(destination), Reduction::Count) => self.assign(destination, Scalar::U32, warp_result),
            (Some(destination), _) => {
                let result = self.b.ins().ireduce(types::I8, warp_result);
                self.assign(destination, Scalar::Pred, result)
            }
            (None, _) => Ok(()),
        }
    }

    /// `barrier.cluster`: an arrival, and the wait for all threads of the cluster to arrive.
    fn cluster_barrier(&mut self, instruction: &Instruction, mut form: Form<'_>) -> Lowered {
        let request = match form.choice(&["arrive", "wait"]) {
            Some("arrive") => ClusterBarrierRequest::Arrive,
            Some(_) => ClusterBarrierRequest::Wait,
            None => return unsupported("this kind of barrier"),
        };
        form.ignore(&["acquire", "release", "relaxed"]);
        form.finish()?;
        self.expect_operands(instruction, 0)?;
        let thread = self.thread();
        let request = self.constant(types::I32, request as i64);
        self.wait(runtime::cluster_barrier as *const () as usize, &[thread, request], None);
        Ok(())
    }
}
