//! `mbarrier`: barriers that are words of shared memory.
//!
//! Threads of a cluster take turns on one processor, so that plain loads and stores change an object at once.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value, types};

use super::access::MemoryAccess;
use super::form::Form;
use super::spaces::AccessSpace;
use super::{Lowered, Refusal, Translator, invalid, unsupported};
use crate::parse::syntax::{Instruction, Operand, Scalar};
use crate::run::functions as runtime;
use crate::run::mbarrier;

const OPERATIONS: [&str; 9] = [
    "init",
    "inval",
    "expect_tx",
    "complete_tx",
    "arrive",
    "arrive_drop",
    "test_wait",
    "try_wait",
    "pending_count",
];

/// What an instruction does to an object.
struct Change {
    arrivals: Value,
    dropped: Value,
    bytes: Value,
}

impl Translator<'_, '_> {
    /// `mbarrier`
    pub(super) fn memory_barrier_object(&mut self, instruction: &Instruction) -> Lowered {
        let mut form = Form::of(instruction);
        let Some(operation) = form.choice(&OPERATIONS) else { return unsupported("this operation") };
        let expects_bytes = operation == "arrive" && form.flag("expect_tx");
        let (by_parity, _) = (form.flag("parity"), form.flag("noComplete"));
        form.ignore(&["relaxed", "acquire", "release", "cta", "cluster"]);
        let space = form.space()?;
        if form.scalar()? != Scalar::B64 {
            return invalid("an object has the type `.b64`");
        }
        form.finish()?;
        if operation == "pending_count" {
            self.expect_operands(instruction, 2)?;
            let state = self.read(instruction, 1, Scalar::B64)?;
            let count = self.call_value(mbarrier::pending as *const () as usize, &[state], types::I32);
            return self.write(instruction, Scalar::B32, count);
        }
        if matches!(operation, "init" | "inval") {
            self.release_waiters();
        }
        // Operations that give a result have it in front of the address.
        let has_result = matches!(operation, "arrive" | "arrive_drop" | "test_wait" | "try_wait");
        let at = usize::from(has_result);
        let access = self.object(space, self.operand(instruction, at)?)?;
        let state_operand = instruction.operands.get(at + 1);
        match operation {
            "inval" => Ok(()),
            "init" => {
                let count = self.read(instruction, 1, Scalar::B32)?;
                let initial = self.call_value(mbarrier::initial as *const () as usize, &[count], types::I64);
                self.store_at(access, 0, initial, false);
                Ok(())
            }
            "expect_tx" | "complete_tx" => {
                let count = self.read(instruction, 1, Scalar::B32)?;
                let bytes = if operation == "expect_tx" { count } else { self.b.ins().ineg(count) };
                let none = self.constant(types::I32, 0);
                self.change(access, &Change { arrivals: none, dropped: none, bytes });
                Ok(())
            }
            "arrive" | "arrive_drop" => {
                let count = match state_operand {
                    Some(operand) => self.value(operand, Scalar::B32)?,
                    None => self.constant(types::I32, 1),
                };
                let (none, one) = (self.constant(types::I32, 0), self.constant(types::I32, 1));
                let change = match (expects_bytes, operation) {
                    (true, _) => Change { arrivals: one, dropped: none, bytes: count },
                    (_, "arrive") => Change { arrivals: count, dropped: none, bytes: none },
                    _ => Change { arrivals: count, dropped: count, bytes: none },
                };
                let before = self.change(access, &change);
                match &instruction.operands[0] {
                    Operand::Sink => Ok(()),
                    _ => self.write(instruction, Scalar::B64, before),
                }
            }
            "test_wait" | "try_wait" => {
                let state_operand = if by_parity {
                    self.read(instruction, at + 1, Scalar::B32)?
                } else {
                    let state = self.read(instruction, at + 1, Scalar::B64)?;
                    self.parity(state)
                };
                self.wait_for_phase(instruction, access, state_operand)
            }
            _ => unsupported("this operation"),
        }
    }

    /// `cp.async.mbarrier.arrive`: an arrival once the copies before it are made, as they are at once.
    /// Without `.noinc` the phase waits for this arrival besides, so that nothing changes.
    pub(super) fn arrive_after_copies(&mut self, instruction: &Instruction, mut form: Form<'_>) -> Lowered {
        let (arrives, counts) = (form.flag("arrive"), form.flag("noinc"));
        let space = form.space()?;
        let scalar = form.scalar()?;
        form.finish()?;
        if !arrives || scalar != Scalar::B64 {
            return unsupported("this operation");
        }
        self.expect_operands(instruction, 1)?;
        let access = self.object(space, self.operand(instruction, 0)?)?;
        if counts {
            let (none, one) = (self.constant(types::I32, 0), self.constant(types::I32, 1));
            self.change(access, &Change { arrivals: one, dropped: none, bytes: none });
        }
        Ok(())
    }

    /// Takes so many bytes off those that the phase of the object at this address waits for.
    pub(super) fn complete_bytes(&mut self, space: AccessSpace, object: Value, bytes: Value) {
        let access = self.checked(space, object, 8);
        let (none, bytes) = (self.constant(types::I32, 0), self.b.ins().ineg(bytes));
        self.change(access, &Change { arrivals: none, dropped: none, bytes });
    }

    /// The end of an instruction that brings so many bytes to the object which its operand `index` names.
    pub(super) fn complete_bytes_of(
        &mut self,
        instruction: &Instruction,
        index: usize,
        bytes: u32,
    ) -> Lowered {
        let (space, object) = self.address_of(AccessSpace::Cluster, self.operand(instruction, index)?)?;
        let bytes = self.constant(types::I32, i64::from(bytes));
        self.complete_bytes(space, object, bytes);
        Ok(())
    }

    fn object(&mut self, space: AccessSpace, operand: &Operand) -> Result<MemoryAccess, Refusal> {
        match self.access(space, operand, 8)? {
            access @ MemoryAccess::Memory(..) => Ok(access),
            MemoryAccess::Slot(..) => invalid("the address is a parameter"),
        }
    }

    /// Changes an object and returns what it held.
    fn change(&mut self, access: MemoryAccess, change: &Change) -> Value {
        let before = self.load_at(access, 0, types::I64, false);
        let arguments = [before, change.arrivals, change.dropped, change.bytes];
        let after = self.call_value(mbarrier::changed as *const () as usize, &arguments, types::I64);
        self.store_at(access, 0, after, false);
        before
    }

    /// The parity of the phase of a state, 0 or 1.
    fn parity(&mut self, state: Value) -> Value {
        let parity = self.b.ins().ushr_imm_u(state, i64::from(mbarrier::PHASE_AT));
        self.b.ins().ireduce(types::I32, parity)
    }

    /// Lets threads that wait for an object see its state before its memory is used anew: the thread which does
    /// that left its wait first.
    fn release_waiters(&mut self) {
        let thread = self.thread();
        self.wait(runtime::yield_thread as *const () as usize, &[thread], None);
    }

    /// Whether the phase with this parity is over. Where it is not, others run before the thread looks again:
    /// programs ask in a loop.
    fn wait_for_phase(
        &mut self,
        instruction: &Instruction,
        access: MemoryAccess,
        state_operand: Value,
    ) -> Lowered {
        let state = self.load_at(access, 0, types::I64, false);
        let parity = self.parity(state);
        let difference = self.b.ins().bxor(parity, state_operand);
        let bit = self.b.ins().band_imm_u(difference, 1);
        let is_over = self.b.ins().icmp_imm_s(IntCC::NotEqual, bit, 0);
        let (ask, next) = (self.b.create_block(), self.b.create_block());
        let result = self.b.append_block_param(next, types::I8);
        self.b.ins().brif(is_over, next, &[is_over.into()], ask, &[]);
        self.b.seal_block(ask);
        self.b.switch_to_block(ask);
        let thread = self.thread();
        let MemoryAccess::Memory(address, offset) = access else {
            return invalid("the address is a parameter");
        };
        let object = self.b.ins().iadd_imm_s(address, i64::from(offset));
        let wait = runtime::wait_for_phase as *const () as usize;
        let over = self.wait_for(wait, &[thread, object, state_operand], types::I32);
        let over = self.b.ins().ireduce(types::I8, over);
        self.b.ins().jump(next, &[over.into()]);
        self.b.seal_block(next);
        self.b.switch_to_block(next);
        self.checks.clear();
        self.write(instruction, Scalar::Pred, result)
    }
}
