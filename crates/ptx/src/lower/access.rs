//! Where accesses to memory go.
//!
//! Every access whose address the program computed is checked: global and generic ones against the range of
//! the address space, shared and local ones against the block's or thread's window. One comparison checks
//! bounds and alignment at once: rotating an offset right by the logarithm of the access's size moves the
//! bits that must be zero to the top, where they make the number too large. Global accesses near one that was
//! checked are exempt; see [`super::checks`].

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, MemFlagsData, StackSlot, Value, types};

use super::spaces::AccessSpace;
use super::translator::FaultSite;
use super::{Refusal, Translator, invalid, unsupported};
use crate::link::Symbol;
use crate::parse::syntax::{Base, Name, Operand, Scalar, Space, Variable};
use crate::run::context::ThreadContext;
use crate::run::distributed;

/// Where an access goes, checked.
#[derive(Debug, Clone, Copy)]
pub(super) enum MemoryAccess {
    /// A host address with a constant added.
    Memory(Value, i32),
    /// A parameter of a call in the caller's frame.
    Slot(StackSlot, i32),
}

impl Translator<'_, '_> {
    /// Checks an access of `size` bytes and says where it goes.
    pub(super) fn access(
        &mut self,
        space: AccessSpace,
        operand: &Operand,
        size: u32,
    ) -> Result<MemoryAccess, Refusal> {
        let element;
        let operand = match operand {
            Operand::Element(name, index) => {
                let offset = self.element_offset(name, *index)?;
                element = Operand::Address(Base::Symbol(name.clone()), offset);
                &element
            }
            other => other,
        };
        let Operand::Address(base, offset) = operand else {
            return invalid("the address is not in brackets");
        };
        match (base, space) {
            (Base::Symbol(name), AccessSpace::Param) => self.parameter_access(name, *offset, size),
            (Base::Symbol(name), _) => {
                if let Some(access) = self.known_access(name, *offset, size)? {
                    return Ok(access);
                }
                let window = self.window_of(name)?;
                let address = self.symbol_address(name)?;
                let address = self.b.ins().iadd_imm_s(address, *offset);
                Ok(self.checked(window, address, size))
            }
            (Base::Register(_), AccessSpace::Param) if !self.linked.function.is_kernel => {
                unsupported("a computed address of a parameter of a device function")
            }
            (Base::Register(register), _) => {
                let base = self.register(*register);
                let base = self.bits_of(base);
                // Windows end at any byte, and narrow registers wrap around: there each access needs its own
                // check.
                let groups =
                    !matches!(space, AccessSpace::Shared | AccessSpace::Cluster | AccessSpace::Local)
                        && self.b.func.dfg.value_type(base) == types::I64;
                if groups
                    && self.checks.cover(base, *offset, size)
                    && let Ok(offset @ -0x4000_0000..=0x4000_0000) = i32::try_from(*offset)
                {
                    return Ok(MemoryAccess::Memory(base, offset));
                }
                let address = self.b.ins().iadd_imm_s(base, *offset);
                let address = self.extend(Scalar::B64, address, types::I64);
                let access = self.checked(space, address, size);
                if groups && !self.conditional {
                    self.checks.add(base, *offset, size);
                }
                Ok(access)
            }
            (Base::Absolute, _) => {
                let address = self.constant(types::I64, *offset);
                Ok(self.checked(space, address, size))
            }
        }
    }

    /// An address in brackets as 64 bits, and the space it is in.
    pub(super) fn address_of(
        &mut self,
        space: AccessSpace,
        operand: &Operand,
    ) -> Result<(AccessSpace, Value), Refusal> {
        let Operand::Address(base, offset) = operand else {
            return invalid("the address is not in brackets");
        };
        if space == AccessSpace::Param {
            return unsupported("parameters as this memory");
        }
        let (space, address) = match base {
            Base::Register(register) => {
                let address = self.register(*register);
                let address = self.bits_of(address);
                (space, self.extend(Scalar::B64, address, types::I64))
            }
            Base::Symbol(name) => (self.window_of(name)?, self.symbol_address(name)?),
            Base::Absolute => (space, self.constant(types::I64, 0)),
        };
        Ok((space, self.b.ins().iadd_imm_s(address, *offset)))
    }

    /// The address of an access of `size` bytes at `address` in `space`, after code that raises a fault
    /// unless it is inside and aligned.
    pub(super) fn checked(&mut self, space: AccessSpace, address: Value, size: u32) -> MemoryAccess {
        // `mapa` may have given the address of the block's own memory, too.
        if space == AccessSpace::Cluster || space == AccessSpace::Shared && self.image.maps_shared {
            return self.checked_in_cluster(address, size);
        }
        let shift = i64::from(size.trailing_zeros());
        let rotated = if shift == 0 { address } else { self.b.ins().rotr_imm_u(address, shift) };
        let window = match space {
            AccessSpace::Shared => Some((
                std::mem::offset_of!(ThreadContext, shared_base),
                std::mem::offset_of!(ThreadContext, shared_size),
            )),
            AccessSpace::Local => Some((
                std::mem::offset_of!(ThreadContext, local_base),
                std::mem::offset_of!(ThreadContext, local_size),
            )),
            _ => None,
        };
        if let Some((base, limit)) = window {
            let limit = self.field(types::I64, limit);
            let limit = if shift == 0 { limit } else { self.b.ins().ushr_imm_u(limit, shift) };
            let outside = self.b.ins().icmp(IntCC::UnsignedGreaterThanOrEqual, rotated, limit);
            self.fault_if(outside, FaultSite::Access(size), address);
            let base = self.field(types::I64, base);
            MemoryAccess::Memory(self.b.ins().iadd(base, address), 0)
        } else {
            // The space is aligned to its size, so the upper bits of an address tell whether it is inside.
            let bits = self.placement.space_bits;
            let upper = self.b.ins().ushr_imm_u(rotated, i64::from(bits) - shift);
            let inside = (self.placement.space_base >> bits) as i64;
            let outside = self.b.ins().icmp_imm_s(IntCC::NotEqual, upper, inside);
            self.fault_if(outside, FaultSite::Access(size), address);
            MemoryAccess::Memory(address, 0)
        }
    }

    /// Likewise for shared memory of any block of the cluster: all blocks have as much.
    fn checked_in_cluster(&mut self, address: Value, size: u32) -> MemoryAccess {
        // The block's own is the first of the bases, which addresses without a rank find there.
        let number = self.b.ins().ushr_imm_u(address, i64::from(distributed::RANK_AT));
        let blocks = self.field(types::I64, std::mem::offset_of!(ThreadContext, cluster_blocks));
        let is_none = self.b.ins().icmp(IntCC::UnsignedGreaterThan, number, blocks);
        self.fault_if(is_none, FaultSite::Access(size), address);
        let offset = self.b.ins().band_imm_u(address, distributed::OFFSET as i64);
        let shift = i64::from(size.trailing_zeros());
        let rotated = if shift == 0 { offset } else { self.b.ins().rotr_imm_u(offset, shift) };
        let limit = self.field(types::I64, std::mem::offset_of!(ThreadContext, shared_size));
        let limit = if shift == 0 { limit } else { self.b.ins().ushr_imm_u(limit, shift) };
        let outside = self.b.ins().icmp(IntCC::UnsignedGreaterThanOrEqual, rotated, limit);
        self.fault_if(outside, FaultSite::Access(size), address);
        let bases = self.field(types::I64, std::mem::offset_of!(ThreadContext, shared_bases));
        let entry = self.b.ins().ishl_imm_u(number, 3);
        let entry = self.b.ins().iadd(bases, entry);
        // It must not move in front of the comparison.
        let base = self.b.ins().load(types::I64, MemFlagsData::trusted(), entry, 0);
        MemoryAccess::Memory(self.b.ins().iadd(base, offset), 0)
    }

    /// The place of a symbol with a constant offset, if that is inside the symbol's variable, so that nothing
    /// needs checking when the code runs.
    fn known_access(&mut self, name: &Name, offset: i64, size: u32) -> Result<Option<MemoryAccess>, Refusal> {
        let own_space = match name {
            Name::Own(index) => Some((self.body.variables[*index].space, *index)),
            _ => None,
        };
        let (variable, start, space): (&Variable, u64, Space) = match (name, own_space) {
            (_, Some((Space::Shared, index))) => {
                (&self.body.variables[index], self.own_shared_offset(index), Space::Shared)
            }
            (_, Some((Space::Local, index))) => {
                (&self.body.variables[index], self.offsets[index], Space::Local)
            }
            (_, Some(_)) => return invalid("a parameter of a call is accessed as memory"),
            (Name::Module(symbol), None) => match self.symbol(symbol)? {
                Symbol::Variable(id) => {
                    let variable = &self.image.variables[id];
                    (variable, self.placement.variables[id], variable.space)
                }
                _ => return invalid(format!("`{symbol}` is not a variable")),
            },
            _ => return Ok(None),
        };
        let size = u64::from(size);
        let contains = offset >= 0 && (offset as u64).saturating_add(size) <= variable.size;
        // A variable in a frame is trusted to be aligned no better than it asks for.
        let is_aligned = start.wrapping_add(offset as u64).is_multiple_of(size)
            && (space != Space::Local || u64::from(variable.align).is_multiple_of(size));
        let Ok(constant) = i32::try_from(offset) else { return Ok(None) };
        if !contains || !is_aligned {
            return Ok(None);
        }
        let (base, constant) = match space {
            Space::Shared => {
                let base = self.field(types::I64, std::mem::offset_of!(ThreadContext, shared_base));
                match i32::try_from(start as i64 + offset) {
                    Ok(constant) => (base, constant),
                    Err(_) => return Ok(None),
                }
            }
            Space::Local => {
                let base = self.field(types::I64, std::mem::offset_of!(ThreadContext, local_base));
                let frame = self.frame.expect("a body with local variables has a frame");
                match i32::try_from(start as i64 + offset) {
                    Ok(constant) => (self.b.ins().iadd(base, frame), constant),
                    Err(_) => return Ok(None),
                }
            }
            _ => (self.constant(types::I64, start as i64), constant),
        };
        Ok(Some(MemoryAccess::Memory(base, constant)))
    }

    /// The place of a parameter: of this kernel or function, or of a call it makes.
    fn parameter_access(&mut self, name: &Name, offset: i64, size: u32) -> Result<MemoryAccess, Refusal> {
        let function = &self.linked.function;
        let variable = match name {
            Name::Own(index) => &self.body.variables[*index],
            Name::Parameter(index) => &function.parameters[*index],
            Name::Return(index) => &function.returns[*index],
            Name::Module(name) => return invalid(format!("`{name}` is not a parameter")),
        };
        if variable.space != Space::Param {
            return invalid(format!("`{}` is not a parameter", variable.name));
        }
        if offset < 0 || offset as u64 + u64::from(size) > variable.size {
            return invalid(format!(
                "the access is outside of `{}`, which has {} bytes",
                variable.name, variable.size
            ));
        }
        let offset = offset as i32;
        Ok(match name {
            Name::Own(index) => match self.slots[*index] {
                Some(slot) => MemoryAccess::Slot(slot, offset),
                None => return invalid(format!("`{}` is not a parameter", variable.name)),
            },
            Name::Parameter(index) if function.is_kernel => {
                let base = self.field(types::I64, std::mem::offset_of!(ThreadContext, parameters));
                MemoryAccess::Memory(base, self.kernel_parameter_offset(*index) as i32 + offset)
            }
            Name::Parameter(index) => MemoryAccess::Memory(self.parameters[*index], offset),
            Name::Return(index) => MemoryAccess::Memory(self.returns[*index], offset),
            Name::Module(name) => return invalid(format!("`{name}` is not a parameter")),
        })
    }
}
