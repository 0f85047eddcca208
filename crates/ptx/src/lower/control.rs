//! Branches, calls, and the ends of threads.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{
    self, BlockCall, ExtFuncData, ExternalName, InstBuilder, JumpTableData, MemFlagsData, StackSlotData,
    StackSlotKind, TrapCode, UserExternalName, Value, types,
};

use super::form::Form;
use super::{
    FUNCTION_ADDRESS, FaultSite, Lowered, Refusal, Translator, invalid, pointer_signature, signature_hash,
    unsupported,
};
use crate::jit::CallTarget;
use crate::link::{Builtin, Symbol};
use crate::parse::syntax::{Instruction, Name, Operand, Scalar, Space};
use crate::run::context::ThreadContext;
use crate::run::functions as runtime;

/// Steps of polling that a thread may take before others run; a power of two large enough to make the switch cheap.
pub(crate) const PATIENCE: u32 = 64;

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
    fn end_without_return(&mut self) {
        self.b.ins().trap(TrapCode::unwrap_user(1));
        self.end_block();
    }

    /// The code of a fault block.
    pub(super) fn raise(&mut self, site: FaultSite, address: Value) {
        let thread = self.thread();
        match site {
            FaultSite::Access(size) => {
                let size = self.constant(types::I32, i64::from(size));
                self.call_runtime(
                    runtime::raise_access as *const () as usize,
                    &[thread, address, size],
                    None,
                );
            }
            FaultSite::Stack => {
                self.call_runtime(runtime::raise_stack_overflow as *const () as usize, &[thread], None);
            }
            FaultSite::CallTarget => {
                self.call_runtime(runtime::raise_call_target as *const () as usize, &[thread], None);
            }
            FaultSite::BranchTarget => {
                self.call_runtime(runtime::raise_branch_target as *const () as usize, &[thread], None);
            }
        }
        self.end_without_return();
    }

    /// Counts a step of polling; when patience is used up, other threads run.
    ///
    /// A thread may wait for another of its block by polling memory. Threads of a block take turns on one processor,
    /// so the one that polls must give way.
    pub(super) fn lose_patience(&mut self) {
        let offset = std::mem::offset_of!(ThreadContext, patience) as i32;
        let thread = self.thread();
        let left = self.b.ins().load(types::I32, MemFlagsData::trusted(), thread, offset);
        let left = self.b.ins().iadd_imm_s(left, -1);
        self.b.ins().store(MemFlagsData::trusted(), left, thread, offset);
        let (give_way, next) = (self.b.create_block(), self.b.create_block());
        self.b.set_cold_block(give_way);
        self.b.ins().brif(left, next, &[], give_way, &[]);
        self.b.seal_block(give_way);
        self.b.switch_to_block(give_way);
        self.call_runtime(runtime::give_way as *const () as usize, &[thread], None);
        self.b.ins().jump(next, &[]);
        self.b.seal_block(next);
        self.b.switch_to_block(next);
    }

    /// `nanosleep`: lets others run.
    pub(super) fn sleep(&mut self) -> Lowered {
        let thread = self.thread();
        self.call_runtime(runtime::give_way as *const () as usize, &[thread], None);
        Ok(())
    }

    /// `call[.uni] [(result),] function[, (arguments)][, prototype];`
    pub(super) fn call(&mut self, instruction: &Instruction) -> Lowered {
        let mut form = Form::of(instruction);
        form.ignore(&["uni"]);
        form.finish()?;
        let mut operands = instruction.operands.as_slice();
        let mut results: &[Operand] = &[];
        if let [Operand::List(items), rest @ ..] = operands {
            results = items;
            operands = rest;
        }
        let [target, operands @ ..] = operands else { return invalid("the function is missing") };
        let arguments: &[Operand] = match operands {
            [Operand::List(items), ..] => items,
            _ => &[],
        };
        let argument_sizes = self.slot_sizes(arguments)?;
        let result_sizes = self.slot_sizes(results)?;
        let mut pointers = vec![self.thread()];
        for operand in arguments.iter().chain(results) {
            pointers.push(self.slot_pointer(operand)?);
        }
        match target {
            Operand::Symbol(Name::Module(name), 0) => match self.symbol(name)? {
                Symbol::Function(callee) => {
                    let function = &self.image.functions[callee].function;
                    if function.is_kernel {
                        return unsupported("calling a kernel");
                    }
                    let parameters = function.parameters.iter().map(|parameter| parameter.size);
                    let returns = function.returns.iter().map(|value| value.size);
                    check_sizes(name, &argument_sizes, parameters)?;
                    check_sizes(name, &result_sizes, returns)?;
                    let signature = super::signature(&self.image.functions[callee], self.convention);
                    let signature = self.b.import_signature(signature);
                    let name = UserExternalName { namespace: 0, index: callee as u32 };
                    let name = self.b.func.declare_imported_user_function(name);
                    let callee = self.b.import_function(ExtFuncData {
                        name: ExternalName::user(name),
                        signature,
                        colocated: false,
                        patchable: false,
                    });
                    self.b.ins().call(callee, &pointers);
                    Ok(())
                }
                Symbol::Builtin(builtin) => {
                    let (parameters, returns) = builtin.signature();
                    check_sizes(name, &argument_sizes, parameters.iter().copied())?;
                    check_sizes(name, &result_sizes, returns.iter().copied())?;
                    self.call_builtin(builtin, &pointers);
                    Ok(())
                }
                Symbol::Variable(_) => invalid(format!("`{name}` is not a function")),
            },
            Operand::Register(register) => {
                let hash = signature_hash(argument_sizes.iter().copied(), result_sizes.iter().copied());
                let target = self.register(*register);
                self.call_indirectly(target, hash, &pointers)
            }
            _ => invalid("the target of the call is not a function"),
        }
    }

    fn call_builtin(&mut self, builtin: Builtin, pointers: &[Value]) {
        let function = match builtin {
            Builtin::Print => runtime::print as *const () as usize,
            Builtin::Assert => runtime::assertion_failed as *const () as usize,
            Builtin::Allocate => runtime::allocate as *const () as usize,
            Builtin::Free => runtime::free as *const () as usize,
        };
        self.call_runtime(function, pointers, None);
    }

    /// A call through a pointer: the pointer is an index into a table, whose entry must have the same signature.
    fn call_indirectly(&mut self, target: Value, hash: u64, pointers: &[Value]) -> Lowered {
        let target = self.narrow(target, types::I64)?;
        let (table, entries) = self.placement.call_table;
        let offset = self.b.ins().iadd_imm_s(target, (FUNCTION_ADDRESS as i64).wrapping_neg());
        let index = self.b.ins().rotr_imm_u(offset, 4);
        let outside = self.b.ins().icmp_imm_s(IntCC::UnsignedGreaterThanOrEqual, index, entries as i64);
        self.fault_if(outside, FaultSite::CallTarget, target);
        let offset = self.b.ins().imul_imm_s(index, size_of::<CallTarget>() as i64);
        let entry = self.b.ins().iadd_imm_s(offset, table as i64);
        let signature_offset = std::mem::offset_of!(CallTarget, signature) as i32;
        let found = self.b.ins().load(types::I64, MemFlagsData::trusted(), entry, signature_offset);
        let wanted = self.constant(types::I64, hash as i64);
        let different = self.b.ins().icmp(IntCC::NotEqual, found, wanted);
        self.fault_if(different, FaultSite::CallTarget, target);
        let code_offset = std::mem::offset_of!(CallTarget, code) as i32;
        let code = self.b.ins().load(types::I64, MemFlagsData::trusted(), entry, code_offset);
        let signature = self.b.import_signature(pointer_signature(pointers.len() - 1, self.convention));
        self.b.ins().call_indirect(signature, code, pointers);
        Ok(())
    }

    fn slot_sizes(&self, operands: &[Operand]) -> Result<Vec<u64>, Refusal> {
        operands
            .iter()
            .map(|operand| match operand {
                Operand::Symbol(Name::Own(index), 0) if self.body.variables[*index].space == Space::Param => {
                    Ok(self.body.variables[*index].size)
                }
                Operand::Register(register) => Ok(u64::from(self.body.registers[*register].size())),
                _ => unsupported("arguments other than `.param` variables and registers"),
            })
            .collect()
    }

    /// A pointer to the caller's copy of an argument or result.
    fn slot_pointer(&mut self, operand: &Operand) -> Result<Value, Refusal> {
        match operand {
            Operand::Symbol(Name::Own(index), 0) => match self.slots[*index] {
                Some(slot) => Ok(self.b.ins().stack_addr(types::I64, slot, 0)),
                None => invalid("an argument is not a `.param` variable"),
            },
            Operand::Register(register) => {
                let value = self.register(*register);
                let data = StackSlotData::new(StackSlotKind::ExplicitSlot, 8, 3);
                let slot = self.b.create_sized_stack_slot(data);
                self.b.ins().stack_store(types::I64, value, slot, 0);
                Ok(self.b.ins().stack_addr(types::I64, slot, 0))
            }
            _ => unsupported("arguments other than `.param` variables and registers"),
        }
    }
}

fn check_sizes(name: &str, given: &[u64], wanted: impl Iterator<Item = u64>) -> Lowered {
    let wanted: Vec<u64> = wanted.collect();
    if given == wanted {
        Ok(())
    } else {
        invalid(format!("`{name}` takes or returns values of {wanted:?} bytes, and the call has {given:?}"))
    }
}
