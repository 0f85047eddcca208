//! Reading operands and writing results, with the width and type conversions that PTX allows between the two.

use cranelift_codegen::ir::{InstBuilder, MemFlagsData, Type, Value, types};

use super::calls::function_address;
use super::registers::machine_type;
use super::{Lowered, Refusal, Translator, invalid, unsupported};
use crate::link::Symbol;
use crate::parse::syntax::{Instruction, Name, Operand, Register, Scalar, Space};
use crate::run::context::ThreadContext;
use crate::signature::parameter_offsets;

impl Translator<'_, '_> {
    pub(super) fn operand<'i>(
        &self,
        instruction: &'i Instruction,
        index: usize,
    ) -> Result<&'i Operand, Refusal> {
        match instruction.operands.get(index) {
            Some(operand) => Ok(operand),
            None => invalid(format!("operand {} is missing", index + 1)),
        }
    }

    /// Refuses an instruction with another number of operands.
    pub(super) fn expect_operands(&self, instruction: &Instruction, count: usize) -> Lowered {
        let found = instruction.operands.len();
        if found == count { Ok(()) } else { invalid(format!("it has {found} operands, not {count}")) }
    }

    /// Whether an operand is a predicate or its opposite.
    pub(super) fn is_predicate(&self, operand: &Operand) -> bool {
        match operand {
            Operand::Register(register) | Operand::Not(register) => {
                self.body.registers[*register] == Scalar::Pred
            }
            _ => false,
        }
    }

    /// Reads the operand with this index.
    pub(super) fn read(
        &mut self,
        instruction: &Instruction,
        index: usize,
        scalar: Scalar,
    ) -> Result<Value, Refusal> {
        let operand = self.operand(instruction, index)?;
        self.value(operand, scalar)
    }

    /// Reads an operand as a value of type `scalar`.
    pub(super) fn value(&mut self, operand: &Operand, scalar: Scalar) -> Result<Value, Refusal> {
        let ty = machine_type(scalar);
        match operand {
            Operand::Register(register) => {
                let value = self.register(*register);
                self.narrow(value, ty)
            }
            Operand::Not(register) if scalar == Scalar::Pred => {
                let value = self.register(*register);
                Ok(self.b.ins().bxor_imm_u(value, 1))
            }
            Operand::Integer(value) if scalar == Scalar::Pred => {
                Ok(self.constant(ty, i64::from(*value != 0)))
            }
            Operand::Integer(value) => self.integer_constant(*value, ty),
            Operand::Single(bits) => match ty {
                types::F32 => Ok(self.single(*bits)),
                types::I32 => Ok(self.b.ins().iconst(types::I32, i64::from(*bits))),
                types::F64 => Ok(self.double(f64::from(f32::from_bits(*bits)).to_bits())),
                _ => invalid("a single-precision constant does not fit this type"),
            },
            Operand::Double(bits) => match ty {
                types::F64 => Ok(self.double(*bits)),
                types::I64 => Ok(self.b.ins().iconst(types::I64, *bits as i64)),
                types::F32 => Ok(self.single((f64::from_bits(*bits) as f32).to_bits())),
                _ => invalid("a double-precision constant does not fit this type"),
            },
            Operand::Special(name) => {
                let value = self.special_register(name)?;
                if self.b.func.dfg.value_type(value).bytes() < ty.bytes() {
                    return Ok(self.b.ins().uextend(ty, value));
                }
                self.narrow(value, ty)
            }
            Operand::Symbol(name, offset) => {
                let address = self.symbol_address(name)?;
                let address = self.b.ins().iadd_imm_s(address, *offset);
                self.narrow(address, ty)
            }
            Operand::Element(name, index) => {
                let address = self.symbol_address(name)?;
                let offset = self.element_offset(name, *index)?;
                let address = self.b.ins().iadd_imm_s(address, offset);
                self.narrow(address, ty)
            }
            Operand::Sink => invalid("`_` is not a value"),
            _ => invalid("this operand is not a value"),
        }
    }

    pub(super) fn single(&mut self, bits: u32) -> Value {
        self.b.ins().f32const(f32::from_bits(bits))
    }

    pub(super) fn double(&mut self, bits: u64) -> Value {
        self.b.ins().f64const(f64::from_bits(bits))
    }

    /// An integer constant, cut to the width of `ty`.
    pub(super) fn constant(&mut self, ty: Type, value: i64) -> Value {
        let value = match ty {
            types::I8 => i64::from(value as u8),
            types::I16 => i64::from(value as u16),
            types::I32 => i64::from(value as u32),
            _ => value,
        };
        self.b.ins().iconst(ty, value)
    }

    fn integer_constant(&mut self, value: i64, ty: Type) -> Result<Value, Refusal> {
        Ok(match ty {
            types::F32 => self.single((value as f32).to_bits()),
            types::F64 => self.double((value as f64).to_bits()),
            _ => self.constant(ty, value),
        })
    }

    /// The value of a register, in the type it is held in.
    pub(super) fn register(&mut self, register: Register) -> Value {
        self.b.use_var(self.registers[register])
    }

    /// Takes the low bits of a value as a value of type `ty`.
    pub(super) fn narrow(&mut self, value: Value, ty: Type) -> Result<Value, Refusal> {
        let from = self.b.func.dfg.value_type(value);
        if from == ty {
            return Ok(value);
        }
        if from.bytes() < ty.bytes() {
            return invalid(format!("a register of {} bits is used as one of {}", from.bits(), ty.bits()));
        }
        let bits = self.bits_of(value);
        let bits = if from.bytes() > ty.bytes() {
            let narrow = Type::int(ty.bits() as u16).unwrap_or(types::I64);
            self.b.ins().ireduce(narrow, bits)
        } else {
            bits
        };
        Ok(self.from_bits(bits, ty))
    }

    /// The same bits as an integer.
    pub(super) fn bits_of(&mut self, value: Value) -> Value {
        match self.b.func.dfg.value_type(value) {
            types::F32 => self.b.ins().bitcast(types::I32, MemFlagsData::new(), value),
            types::F64 => self.b.ins().bitcast(types::I64, MemFlagsData::new(), value),
            _ => value,
        }
    }

    /// The same bits as a value of type `ty`, which has the same width.
    #[allow(clippy::wrong_self_convention)]
    pub(super) fn from_bits(&mut self, value: Value, ty: Type) -> Value {
        if self.b.func.dfg.value_type(value) == ty {
            value
        } else {
            self.b.ins().bitcast(ty, MemFlagsData::new(), value)
        }
    }

    /// Writes the operand with index 0.
    pub(super) fn write(&mut self, instruction: &Instruction, scalar: Scalar, value: Value) -> Lowered {
        let operand = self.operand(instruction, 0)?;
        self.assign(operand, scalar, value)
    }

    /// Writes a value of type `scalar` to a register, extended to its width: with the sign when the type has
    /// one.
    pub(super) fn assign(&mut self, operand: &Operand, scalar: Scalar, value: Value) -> Lowered {
        let register = match operand {
            Operand::Register(register) => *register,
            Operand::Sink => return Ok(()),
            _ => return invalid("the destination is not a register"),
        };
        let to = self.register_types[register];
        let from = self.b.func.dfg.value_type(value);
        let declared = self.body.registers[register];
        if (declared == Scalar::Pred) != (scalar == Scalar::Pred) {
            return invalid("a predicate and a number are mixed");
        }
        let value = if from == to {
            value
        } else if from.bytes() < to.bytes() {
            let bits = self.bits_of(value);
            let wide = Type::int(to.bits() as u16).unwrap_or(types::I64);
            let bits = if scalar.is_signed() {
                self.b.ins().sextend(wide, bits)
            } else {
                self.b.ins().uextend(wide, bits)
            };
            self.from_bits(bits, to)
        } else if from.bytes() == to.bytes() {
            let bits = self.bits_of(value);
            self.from_bits(bits, to)
        } else {
            return invalid(format!(
                "a result of {} bits is written to a register of {}",
                from.bits(),
                to.bits()
            ));
        };
        self.b.def_var(self.registers[register], value);
        Ok(())
    }

    /// Bytes from the start of a variable to one of its elements.
    pub(super) fn element_offset(&self, name: &Name, index: i64) -> Result<i64, Refusal> {
        let variable = match name {
            Name::Own(variable) => &self.body.variables[*variable],
            Name::Parameter(parameter) => &self.linked.function.parameters[*parameter],
            Name::Return(value) => &self.linked.function.returns[*value],
            Name::Module(symbol) => match self.symbol(symbol)? {
                Symbol::Variable(variable) => &self.image.variables[variable],
                _ => return invalid(format!("`{symbol}` is not a variable, and so has no elements")),
            },
        };
        match index.checked_mul(i64::from(variable.element)) {
            Some(offset) => Ok(offset),
            None => invalid(format!("the index {index} lies outside of any memory")),
        }
    }

    /// The address of a symbol in its own state space, as 64 bits.
    pub(super) fn symbol_address(&mut self, name: &Name) -> Result<Value, Refusal> {
        match name {
            Name::Own(index) => match self.body.variables[*index].space {
                Space::Param => unsupported("the address of a parameter of a call"),
                Space::Local => {
                    let frame = self.frame.expect("a body with local variables has a frame");
                    Ok(self.b.ins().iadd_imm_s(frame, self.offsets[*index] as i64))
                }
                _ => {
                    let offset = self.own_shared_offset(*index);
                    Ok(self.b.ins().iconst(types::I64, offset as i64))
                }
            },
            Name::Parameter(index) if self.linked.function.is_kernel => {
                let base = self.field(types::I64, std::mem::offset_of!(ThreadContext, parameters));
                let offset = self.kernel_parameter_offset(*index);
                Ok(self.b.ins().iadd_imm_s(base, i64::from(offset)))
            }
            Name::Parameter(index)
                if self.variadic.is_some() && index + 1 == self.linked.function.parameters.len() =>
            {
                Ok(self.variadic.expect("it has just been found"))
            }
            Name::Parameter(index) => match (self.parameter_copies.get(*index), self.frame) {
                (Some(&Some(offset)), Some(frame)) => Ok(self.b.ins().iadd_imm_s(frame, offset as i64)),
                _ => unsupported("the address of this parameter of a device function"),
            },
            Name::Return(_) => unsupported("the address of a result of a device function"),
            Name::Module(name) => match self.symbol(name)? {
                Symbol::Variable(variable) => {
                    let address = self.placement.variables[variable];
                    Ok(self.b.ins().iconst(types::I64, address as i64))
                }
                Symbol::Function(function) => {
                    Ok(self.b.ins().iconst(types::I64, function_address(function) as i64))
                }
                Symbol::Builtin(_) => unsupported(format!("the address of `{name}`")),
            },
        }
    }

    /// Offset of a shared variable of this body in the block's memory.
    pub(super) fn own_shared_offset(&self, index: usize) -> u64 {
        let start = self.placement.own_shared.get(&self.function).copied().unwrap_or(0);
        start.saturating_add(self.offsets[index])
    }

    /// Offset of a kernel's parameter among its parameters.
    pub(super) fn kernel_parameter_offset(&self, index: usize) -> u32 {
        parameter_offsets(&self.linked.function.parameters)[index]
    }
}
