//! Loads, stores, and the addresses they go to.
//!
//! Every access whose address the program computed is checked: global and generic ones against the range of the
//! address space, shared and local ones against the block's or thread's window. One comparison checks bounds and
//! alignment at once: rotating an offset right by the logarithm of the access's size moves the bits that must be
//! zero to the top, where they make the number too large. Global accesses near one that was checked are exempt; see
//! [`super::checks`].

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, MemFlagsData, StackSlot, Type, Value, types};

use super::form::Form;
use super::operands::machine_type;
use super::{FaultSite, Lowered, Refusal, Translator, invalid, unsupported};
use crate::link::Symbol;
use crate::parse::syntax::{Base, Instruction, Name, Operand, Scalar, Space, Variable};
use crate::run::context::ThreadContext;

/// Where an access goes, checked.
#[derive(Debug, Clone, Copy)]
pub(super) enum Place {
    /// A host address with a constant added.
    Memory(Value, i32),
    /// A parameter of a call in the caller's frame.
    Slot(StackSlot, i32),
}

/// The state space an instruction names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AccessSpace {
    Generic,
    Global,
    Shared,
    Local,
    Param,
}

/// Modifiers that only advise caches, order or scope. Order needs no instruction here beyond what
/// [`Translator::load_memory`] does: x86 keeps loads and stores in order, and fences are translated as such.
const HINTS: [&str; 17] = [
    "ca", "cg", "cs", "cv", "lu", "wb", "wt", "nc", "weak", "cta", "cluster", "gpu", "sys", "noftz",
    "unified", "mmio", "uniform",
];

impl Form<'_> {
    /// Takes the state space.
    pub(super) fn space(&mut self) -> Result<AccessSpace, Refusal> {
        const SPACES: [&str; 10] = [
            "global",
            "shared",
            "shared::cta",
            "local",
            "const",
            "param",
            "param::entry",
            "param::func",
            "generic",
            "shared::cluster",
        ];
        Ok(match self.choice(&SPACES) {
            None | Some("generic") => AccessSpace::Generic,
            Some("global" | "const") => AccessSpace::Global,
            Some("shared" | "shared::cta") => AccessSpace::Shared,
            Some("local") => AccessSpace::Local,
            Some("shared::cluster") => return unsupported("shared memory of a cluster"),
            Some(_) => AccessSpace::Param,
        })
    }

    /// Takes modifiers without a meaning here.
    pub(super) fn ignore_hints(&mut self) {
        self.ignore(&HINTS);
        self.ignore_prefix("L1::");
        self.ignore_prefix("L2::");
        self.ignore_prefix("level::");
    }

    fn lanes(&mut self) -> u32 {
        match self.choice(&["v2", "v4", "v8"]) {
            Some("v2") => 2,
            Some("v4") => 4,
            Some(_) => 8,
            None => 1,
        }
    }
}

impl Translator<'_, '_> {
    /// `ld` and `ldu`
    pub(super) fn load(&mut self, instruction: &Instruction) -> Lowered {
        let mut form = Form::of(instruction);
        let ordered = form.choice(&["volatile", "relaxed", "acquire"]).is_some();
        let space = form.space()?;
        let lanes = form.lanes();
        form.ignore_hints();
        let scalar = form.scalar()?;
        form.finish()?;
        let operand = self.operand(instruction, 1)?;
        let ty = machine_type(scalar);
        let place = self.place(space, operand, scalar.size() * lanes)?;
        if ordered {
            self.lose_patience();
        }
        let targets = lanes_of(self.operand(instruction, 0)?, lanes)?;
        let mut values = Vec::with_capacity(targets.len());
        for lane in 0..lanes {
            values.push(self.load_at(place, (lane * scalar.size()) as i32, ty, ordered));
        }
        for (target, value) in targets.iter().zip(values) {
            self.assign(target, scalar, value)?;
        }
        Ok(())
    }

    /// `st`
    pub(super) fn store(&mut self, instruction: &Instruction) -> Lowered {
        let mut form = Form::of(instruction);
        let release = form.flag("release");
        form.ignore(&["volatile", "relaxed"]);
        let space = form.space()?;
        let lanes = form.lanes();
        form.ignore_hints();
        let scalar = form.scalar()?;
        form.finish()?;
        let operand = self.operand(instruction, 0)?;
        let sources = lanes_of(self.operand(instruction, 1)?, lanes)?;
        let values: Vec<Value> =
            sources.iter().map(|source| self.value(source, scalar)).collect::<Result<_, Refusal>>()?;
        let place = self.place(space, operand, scalar.size() * lanes)?;
        for (lane, value) in values.into_iter().enumerate() {
            self.store_at(place, lane as i32 * scalar.size() as i32, value, release);
        }
        Ok(())
    }

    fn load_at(&mut self, place: Place, offset: i32, ty: Type, ordered: bool) -> Value {
        match place {
            Place::Slot(slot, start) => self.b.ins().stack_load(types::I64, ty, slot, start + offset),
            Place::Memory(address, start) if ordered => {
                let address = self.b.ins().iadd_imm_s(address, i64::from(start + offset));
                let bits_type = Type::int(ty.bits() as u16).unwrap_or(types::I64);
                let bits = self.b.ins().atomic_load(bits_type, MemFlagsData::new(), address);
                self.from_bits(bits, ty)
            }
            Place::Memory(address, start) => {
                self.b.ins().load(ty, MemFlagsData::new(), address, start + offset)
            }
        }
    }

    fn store_at(&mut self, place: Place, offset: i32, value: Value, release: bool) {
        match place {
            Place::Slot(slot, start) => {
                self.b.ins().stack_store(types::I64, value, slot, start + offset);
            }
            Place::Memory(address, start) if release => {
                let address = self.b.ins().iadd_imm_s(address, i64::from(start + offset));
                let bits = self.bits_of(value);
                self.b.ins().atomic_store(MemFlagsData::new(), bits, address);
            }
            Place::Memory(address, start) => {
                self.b.ins().store(MemFlagsData::new(), value, address, start + offset);
            }
        }
    }

    /// Checks an access of `size` bytes and says where it goes.
    pub(super) fn place(
        &mut self,
        space: AccessSpace,
        operand: &Operand,
        size: u32,
    ) -> Result<Place, Refusal> {
        let Operand::Address(base, offset) = operand else {
            return invalid("the address is not in brackets");
        };
        match (base, space) {
            (Base::Symbol(name), AccessSpace::Param) => self.parameter_place(name, *offset, size),
            (Base::Symbol(name), _) => {
                if let Some(place) = self.known_place(name, *offset, size)? {
                    return Ok(place);
                }
                let window = self.window_of(name)?;
                let address = self.symbol_address(name)?;
                let address = self.b.ins().iadd_imm_s(address, *offset);
                Ok(self.checked(window, address, size))
            }
            (Base::Register(register), AccessSpace::Param) if !self.linked.function.is_kernel => {
                let _ = register;
                unsupported("a computed address of a parameter of a device function")
            }
            (Base::Register(register), _) => {
                let base = self.register(*register);
                let base = self.bits_of(base);
                // Windows end at any byte, and narrow registers wrap around: there each access needs its own check.
                let groups = !matches!(space, AccessSpace::Shared | AccessSpace::Local)
                    && self.b.func.dfg.value_type(base) == types::I64;
                if groups
                    && self.checks.cover(base, *offset, size)
                    && let Ok(offset @ -0x4000_0000..=0x4000_0000) = i32::try_from(*offset)
                {
                    return Ok(Place::Memory(base, offset));
                }
                let address = self.b.ins().iadd_imm_s(base, *offset);
                let address = self.extend(Scalar::B64, address, types::I64);
                let place = self.checked(space, address, size);
                if groups && !self.conditional {
                    self.checks.add(base, *offset, size);
                }
                Ok(place)
            }
            (Base::Absolute, _) => {
                let address = self.constant(types::I64, *offset);
                Ok(self.checked(space, address, size))
            }
        }
    }

    /// The address of an access of `size` bytes at `address` in `space`, after code that raises a fault unless it is
    /// inside and aligned.
    fn checked(&mut self, space: AccessSpace, address: Value, size: u32) -> Place {
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
            Place::Memory(self.b.ins().iadd(base, address), 0)
        } else {
            // The space is aligned to its size, so the upper bits of an address tell whether it is inside.
            let bits = self.placement.space_bits;
            let upper = self.b.ins().ushr_imm_u(rotated, i64::from(bits) - shift);
            let inside = (self.placement.space_base >> bits) as i64;
            let outside = self.b.ins().icmp_imm_s(IntCC::NotEqual, upper, inside);
            self.fault_if(outside, FaultSite::Access(size), address);
            Place::Memory(address, 0)
        }
    }

    /// The place of a symbol with a constant offset, if that is inside the symbol's variable, so that nothing needs
    /// checking when the code runs.
    fn known_place(&mut self, name: &Name, offset: i64, size: u32) -> Result<Option<Place>, Refusal> {
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
        let inside = offset >= 0 && (offset as u64).saturating_add(u64::from(size)) <= variable.size;
        let aligned = start.wrapping_add(offset as u64) % u64::from(size) == 0
            && u64::from(variable.align) % u64::from(size) == 0;
        let Ok(constant) = i32::try_from(offset) else { return Ok(None) };
        if !inside
            || (!aligned && space == Space::Local)
            || !(aligned || start.wrapping_add(offset as u64) % u64::from(size) == 0)
        {
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
        Ok(Some(Place::Memory(base, constant)))
    }

    /// The state space a symbol's address is an address of.
    fn window_of(&self, name: &Name) -> Result<AccessSpace, Refusal> {
        let space = match name {
            Name::Own(index) => self.body.variables[*index].space,
            Name::Module(symbol) => match self.symbol(symbol)? {
                Symbol::Variable(id) => self.image.variables[id].space,
                _ => return invalid(format!("`{symbol}` is not a variable")),
            },
            Name::Parameter(_) | Name::Return(_) => Space::Param,
        };
        Ok(match space {
            Space::Shared => AccessSpace::Shared,
            Space::Local => AccessSpace::Local,
            _ => AccessSpace::Global,
        })
    }

    /// The place of a parameter: of this kernel or function, or of a call it makes.
    fn parameter_place(&mut self, name: &Name, offset: i64, size: u32) -> Result<Place, Refusal> {
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
                Some(slot) => Place::Slot(slot, offset),
                None => return invalid(format!("`{}` is not a parameter", variable.name)),
            },
            Name::Parameter(index) if function.is_kernel => {
                let base = self.field(types::I64, std::mem::offset_of!(ThreadContext, parameters));
                Place::Memory(base, self.kernel_parameter_offset(*index) as i32 + offset)
            }
            Name::Parameter(index) => Place::Memory(self.parameters[*index], offset),
            Name::Return(index) => Place::Memory(self.returns[*index], offset),
            Name::Module(name) => return invalid(format!("`{name}` is not a parameter")),
        })
    }

    /// `cp.async` and its groups: the copy is made at once, so that waiting for it is nothing.
    pub(super) fn copy_async(&mut self, instruction: &Instruction) -> Lowered {
        let mut form = Form::of(instruction);
        if !form.flag("async") {
            return unsupported("copies other than `cp.async`");
        }
        if form.choice(&["commit_group", "wait_group", "wait_all"]).is_some() {
            return form.finish();
        }
        form.ignore_hints();
        if form.choice(&["shared", "shared::cta"]).is_none() || !form.flag("global") {
            return unsupported("copies other than from global to shared memory");
        }
        form.finish()?;
        let Operand::Integer(size @ (4 | 8 | 16)) = self.operand(instruction, 2)? else {
            return invalid("the size is not 4, 8 or 16");
        };
        let size = *size as u32;
        // With a smaller source size the rest is filled with zeros.
        let source_size = match instruction.operands.get(3) {
            Some(operand) => Some(self.value(operand, Scalar::U32)?),
            None => None,
        };
        let source = self.place(AccessSpace::Global, &instruction.operands[1], size)?;
        let target = self.place(AccessSpace::Shared, &instruction.operands[0], size)?;
        for offset in (0..size as i32).step_by(4) {
            let mut word = self.load_at(source, offset, types::I32, false);
            if let Some(source_size) = source_size {
                let present =
                    self.b.ins().icmp_imm_s(IntCC::UnsignedGreaterThan, source_size, i64::from(offset));
                let zero = self.constant(types::I32, 0);
                word = self.b.ins().select(present, word, zero);
            }
            self.store_at(target, offset, word, false);
        }
        Ok(())
    }

    /// `cvta`: generic addresses are window base plus offset, and global addresses are generic ones already.
    pub(super) fn convert_address(&mut self, instruction: &Instruction) -> Lowered {
        let mut form = Form::of(instruction);
        let from_generic = form.flag("to");
        let space = form.space()?;
        let scalar = form.scalar()?;
        form.finish()?;
        self.expect_operands(instruction, 2)?;
        if scalar.size() != 8 {
            return unsupported("addresses of 32 bits");
        }
        let address = self.read(instruction, 1, scalar)?;
        let base = match space {
            AccessSpace::Shared => Some(std::mem::offset_of!(ThreadContext, shared_base)),
            AccessSpace::Local => Some(std::mem::offset_of!(ThreadContext, local_base)),
            _ => None,
        };
        let result = match base {
            None => address,
            Some(base) => {
                let base = self.field(types::I64, base);
                if from_generic { self.b.ins().isub(address, base) } else { self.b.ins().iadd(address, base) }
            }
        };
        self.write(instruction, scalar, result)
    }

    /// `isspacep`
    pub(super) fn is_in_space(&mut self, instruction: &Instruction) -> Lowered {
        let mut form = Form::of(instruction);
        let constant = form.flag("const");
        let space = form.space()?;
        form.finish()?;
        self.expect_operands(instruction, 2)?;
        let address = self.read(instruction, 1, Scalar::U64)?;
        let within = |translator: &mut Self, base: usize, size: usize| {
            let base = translator.field(types::I64, base);
            let size = translator.field(types::I64, size);
            let offset = translator.b.ins().isub(address, base);
            translator.b.ins().icmp(IntCC::UnsignedLessThan, offset, size)
        };
        let shared = within(
            self,
            std::mem::offset_of!(ThreadContext, shared_base),
            std::mem::offset_of!(ThreadContext, shared_size),
        );
        let local = within(
            self,
            std::mem::offset_of!(ThreadContext, local_base),
            std::mem::offset_of!(ThreadContext, local_size),
        );
        let result = match space {
            _ if constant => self.constant(types::I8, 0),
            AccessSpace::Shared => shared,
            AccessSpace::Local => local,
            AccessSpace::Global => {
                let bits = i64::from(self.placement.space_bits);
                let upper = self.b.ins().ushr_imm_u(address, bits);
                let inside = (self.placement.space_base >> bits) as i64;
                let inside = self.b.ins().icmp_imm_s(IntCC::Equal, upper, inside);
                let window = self.b.ins().bor(shared, local);
                self.b.ins().band_not(inside, window)
            }
            _ => return unsupported("this state space"),
        };
        self.write(instruction, Scalar::Pred, result)
    }

    /// `mov`: registers, constants, addresses, and packing and unpacking of vectors.
    pub(super) fn move_value(&mut self, instruction: &Instruction) -> Lowered {
        let mut form = Form::of(instruction);
        let scalar = form.scalar()?;
        form.finish()?;
        self.expect_operands(instruction, 2)?;
        match (&instruction.operands[0], &instruction.operands[1]) {
            (Operand::Vector(parts), source) => {
                let value = self.value(source, bits_scalar(scalar.size()))?;
                let part = self.part_scalar(scalar, parts.len())?;
                for (index, target) in parts.iter().enumerate() {
                    let shifted = self.b.ins().ushr_imm_u(value, index as i64 * i64::from(part.size()) * 8);
                    let piece = self.narrow(shifted, machine_type(part))?;
                    self.assign(target, part, piece)?;
                }
                Ok(())
            }
            (_, Operand::Vector(parts)) => {
                let part = self.part_scalar(scalar, parts.len())?;
                let whole = bits_scalar(scalar.size());
                let mut result = self.constant(machine_type(whole), 0);
                for (index, source) in parts.iter().enumerate() {
                    let piece = self.value(source, part)?;
                    let piece = self.b.ins().uextend(machine_type(whole), piece);
                    let piece = self.b.ins().ishl_imm_u(piece, index as i64 * i64::from(part.size()) * 8);
                    result = self.b.ins().bor(result, piece);
                }
                self.write(instruction, whole, result)
            }
            (_, source) => {
                let value = self.value(source, scalar)?;
                self.write(instruction, scalar, value)
            }
        }
    }

    fn part_scalar(&self, whole: Scalar, parts: usize) -> Result<Scalar, Refusal> {
        match (whole.size(), parts) {
            (8, 2) | (4, 2) | (8, 4) | (2, 2) | (4, 4) => Ok(bits_scalar(whole.size() / parts as u32)),
            _ => invalid(format!("{parts} parts do not make up {} bytes", whole.size())),
        }
    }
}

fn bits_scalar(size: u32) -> Scalar {
    match size {
        1 => Scalar::B8,
        2 => Scalar::B16,
        4 => Scalar::B32,
        _ => Scalar::B64,
    }
}

/// The operands of a vector, or a single operand.
fn lanes_of(operand: &Operand, lanes: u32) -> Result<&[Operand], Refusal> {
    let operands = match operand {
        Operand::Vector(operands) => operands.as_slice(),
        single => std::slice::from_ref(single),
    };
    if operands.len() == lanes as usize {
        Ok(operands)
    } else {
        invalid(format!("there are {} operands for a vector of {lanes}", operands.len()))
    }
}
