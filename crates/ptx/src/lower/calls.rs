//! Calling convention: calls of functions, and of the runtime.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{
    self, AbiParam, ArgumentPurpose, ExtFuncData, ExternalName, InstBuilder, MemFlagsData, StackSlot,
    StackSlotData, StackSlotKind, Type, UserExternalName, Value, types,
};
use cranelift_codegen::isa::CallConv;

use super::form::Form;
use super::translator::FaultSite;
use super::{Lowered, Refusal, Translator, invalid, unsupported};
use crate::link::{Builtin, FunctionId, LinkedFunction, Symbol};
use crate::parse::syntax::{Instruction, Name, Operand, Space};
use crate::run::context::ThreadContext;
use crate::run::functions as runtime;
use crate::signature::{CallTarget, Signature, SignatureId};

/// Added to a function's index times 16 to make its "address". The bits say "PTX" and keep it from looking
/// like memory.
const FUNCTION_ADDRESS: u64 = 0x0050_5458_0000_0000;

/// What a pointer to a function holds.
pub(crate) fn function_address(function: FunctionId) -> u64 {
    FUNCTION_ADDRESS + 16 * function as u64
}

/// The native signature of a PTX function.
pub(crate) fn signature(linked: &LinkedFunction, convention: CallConv) -> ir::Signature {
    let pointers = if linked.function.is_kernel {
        0
    } else {
        linked.function.parameters.len() + linked.function.returns.len()
    };
    pointer_signature(pointers, convention)
}

fn pointer_signature(pointers: usize, convention: CallConv) -> ir::Signature {
    let mut signature = ir::Signature::new(convention);
    signature.params.push(AbiParam::special(types::I64, ArgumentPurpose::VMContext));
    signature.params.extend(std::iter::repeat_n(AbiParam::new(types::I64), pointers));
    signature
}

impl Translator<'_, '_> {
    /// Calls a function of the runtime with C calling convention.
    pub(super) fn call_runtime(
        &mut self,
        address: usize,
        arguments: &[Value],
        result: Option<Type>,
    ) -> Option<Value> {
        let mut signature = ir::Signature::new(self.convention);
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
        let passed =
            Signature { parameters: self.slot_sizes(arguments)?, results: self.slot_sizes(results)? };
        let mut pointers = vec![self.thread()];
        for operand in arguments {
            pointers.push(self.slot_pointer(operand)?.1);
        }
        let mut result_slots = Vec::with_capacity(results.len());
        for operand in results {
            let (slot, pointer) = self.slot_pointer(operand)?;
            pointers.push(pointer);
            result_slots.push(slot);
        }
        self.call_target(target, &passed, &pointers)?;
        for (operand, slot) in results.iter().zip(result_slots) {
            if let Operand::Register(register) = operand {
                let ty = self.register_types[*register];
                let value = self.b.ins().stack_load(types::I64, ty, slot, 0);
                self.b.def_var(self.registers[*register], value);
            }
        }
        Ok(())
    }

    /// Calls what `target` names with pointers to arguments and results, which have the sizes of `passed`.
    fn call_target(&mut self, target: &Operand, passed: &Signature, pointers: &[Value]) -> Lowered {
        match target {
            Operand::Symbol(Name::Module(name), 0) => match self.symbol(name)? {
                Symbol::Function(callee) => {
                    let function = &self.image.functions[callee].function;
                    if function.is_kernel {
                        return unsupported("calling a kernel");
                    }
                    let expected = Signature::of(function);
                    if function.is_variadic() && passed.parameters.len() == expected.parameters.len() {
                        let mut fixed = passed.clone();
                        let bytes = fixed.parameters.last_mut().map_or(0, std::mem::take);
                        check_signature(name, &fixed, &expected)?;
                        let bytes = self.constant(types::I64, bytes as i64);
                        self.set_field(bytes, std::mem::offset_of!(ThreadContext, variadic_bytes));
                    } else {
                        check_signature(name, passed, &expected)?;
                    }
                    let signature = signature(&self.image.functions[callee], self.convention);
                    let signature = self.b.import_signature(signature);
                    let name = UserExternalName { namespace: 0, index: callee as u32 };
                    let name = self.b.func.declare_imported_user_function(name);
                    let callee = self.b.import_function(ExtFuncData {
                        name: ExternalName::user(name),
                        signature,
                        colocated: false,
                        patchable: false,
                    });
                    self.b.ins().call(callee, pointers);
                    Ok(())
                }
                Symbol::Builtin(builtin) => {
                    check_signature(name, passed, &builtin.signature())?;
                    self.call_builtin(builtin, pointers);
                    Ok(())
                }
                Symbol::Variable(_) => invalid(format!("`{name}` is not a function")),
            },
            Operand::Register(register) => {
                let expected = self.image.signatures.find(passed);
                if passed.parameters.last() == Some(&0) {
                    let none = self.constant(types::I64, 0);
                    self.set_field(none, std::mem::offset_of!(ThreadContext, variadic_bytes));
                }
                let target = self.register(*register);
                self.call_indirectly(target, expected, pointers)
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
            Builtin::Library(causeway_gemm::Operation::Multiply) => {
                runtime::multiply_tile as *const () as usize
            }
            Builtin::Library(causeway_gemm::Operation::Solve) => runtime::solve as *const () as usize,
            Builtin::Library(causeway_gemm::Operation::Sparse) => {
                runtime::compute_sparse as *const () as usize
            }
            Builtin::Library(causeway_gemm::Operation::Random) => runtime::generate as *const () as usize,
            Builtin::Library(causeway_gemm::Operation::Elements) => {
                runtime::compute_elements as *const () as usize
            }
            Builtin::SetCondition => runtime::set_condition as *const () as usize,
        };
        self.call_runtime(function, pointers, None);
    }

    /// A call through a pointer: the pointer is an index into a table, whose entry must have the same
    /// signature.
    fn call_indirectly(&mut self, target: Value, expected: SignatureId, pointers: &[Value]) -> Lowered {
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
        let expected = self.constant(types::I64, expected.number() as i64);
        let different = self.b.ins().icmp(IntCC::NotEqual, found, expected);
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

    /// The caller's copy of an argument or result, and a pointer to it.
    fn slot_pointer(&mut self, operand: &Operand) -> Result<(StackSlot, Value), Refusal> {
        match operand {
            Operand::Symbol(Name::Own(index), 0) => match self.slots[*index] {
                Some(slot) => Ok((slot, self.b.ins().stack_addr(types::I64, slot, 0))),
                None => invalid("an argument is not a `.param` variable"),
            },
            Operand::Register(register) => {
                let value = self.register(*register);
                if self.b.func.dfg.value_type(value).bytes() > 8 {
                    return unsupported("arguments in registers of more than 64 bits");
                }
                let data = StackSlotData::new(StackSlotKind::ExplicitSlot, 8, 3);
                let slot = self.b.create_sized_stack_slot(data);
                self.b.ins().stack_store(types::I64, value, slot, 0);
                Ok((slot, self.b.ins().stack_addr(types::I64, slot, 0)))
            }
            _ => unsupported("arguments other than `.param` variables and registers"),
        }
    }
}

fn check_signature(name: &str, passed: &Signature, expected: &Signature) -> Lowered {
    if passed == expected {
        return Ok(());
    }
    let (Signature { parameters, results }, passed, returned) =
        (expected, &passed.parameters, &passed.results);
    invalid(format!(
        "`{name}` takes values of {parameters:?} bytes and returns {results:?}; the call passes {passed:?} and expects {returned:?}"
    ))
}
