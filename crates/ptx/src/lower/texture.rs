//! Fetches from textures, and queries of textures and surfaces.
//!
//! The runtime does the work: an instruction leaves handle and coordinates in a slot of the stack, which all
//! such instructions of a function share.

use std::mem::offset_of;

use cranelift_codegen::ir::{InstBuilder, StackSlot, Value, types};

use super::form::Form;
use super::memory::lanes_of;
use super::registers::machine_type;
use super::{Lowered, Refusal, Translator, invalid, unsupported};
use crate::parse::syntax::{Base, Instruction, Name, Operand, Scalar};
use crate::run::textures as runtime;
use crate::run::textures::{DetailKind, Request};
use crate::texture::{Geometry, Query};

const GEOMETRIES: [(&str, Geometry); 7] = [
    ("1d", Geometry::Row),
    ("2d", Geometry::Plane),
    ("3d", Geometry::Volume),
    ("a1d", Geometry::LayeredRow),
    ("a2d", Geometry::LayeredPlane),
    ("cube", Geometry::Cube),
    ("acube", Geometry::LayeredCube),
];

impl Form<'_> {
    /// Takes what the texture or surface is said to be.
    pub(super) fn geometry(&mut self) -> Result<Geometry, Refusal> {
        if self.choice(&["2dms", "a2dms"]).is_some() {
            return unsupported("textures of several samples");
        }
        match GEOMETRIES.iter().find(|(name, _)| self.flag(name)) {
            Some((_, geometry)) => Ok(*geometry),
            None => invalid("what it reads or writes (`.1d`, `.2d`, ...) is missing"),
        }
    }

    /// Takes the types of a fetch's result and coordinates.
    fn texel_types(&mut self) -> Result<(Scalar, Scalar), Refusal> {
        if !self.flag("v4") {
            return unsupported("a result of other than four numbers of 32 bits");
        }
        let (result, coordinate) = (self.scalar()?, self.scalar()?);
        match (result, coordinate) {
            (Scalar::F16 | Scalar::F16x2, _) => unsupported("a result of half precision"),
            (Scalar::U32 | Scalar::S32 | Scalar::F32 | Scalar::B32, Scalar::S32 | Scalar::F32) => {
                Ok((result, coordinate))
            }
            _ => invalid("its types are not those of texels and coordinates"),
        }
    }
}

impl Translator<'_, '_> {
    /// `tex`
    pub(super) fn fetch_texture(&mut self, instruction: &Instruction) -> Lowered {
        let mut form = Form::of(instruction);
        let detail = match form.choice(&["base", "level", "grad"]) {
            Some("level") => DetailKind::Level,
            Some("grad") => DetailKind::Gradients,
            _ => DetailKind::Base,
        };
        let geometry = form.geometry()?;
        let (result, coordinate) = form.texel_types()?;
        form.finish()?;
        let detail = match (coordinate, detail) {
            (Scalar::F32, detail) => detail,
            (_, DetailKind::Base) if !geometry.is_cube() => DetailKind::Texel,
            (_, DetailKind::Level) if !geometry.is_cube() => DetailKind::TexelOfLevel,
            _ => return unsupported("gradients, or a face of a cube, with coordinates that are integers"),
        };
        let given = match detail {
            DetailKind::Base | DetailKind::Texel => 0,
            DetailKind::Level | DetailKind::TexelOfLevel => 1,
            DetailKind::Gradients if geometry.is_cube() => return unsupported("gradients on a cube"),
            DetailKind::Gradients => 2,
        };
        if instruction.operands.len() > 2 + given {
            return unsupported("offsets of texels, and the comparison of depths");
        }
        self.expect_operands(instruction, 2 + given)?;
        let slot = self.pass_position(instruction.operands.get(1), geometry, coordinate)?;
        self.pass_constant(slot, offset_of!(Request, detail), detail as u32);
        for (index, operand) in instruction.operands[2..].iter().enumerate() {
            let parts = match operand {
                Operand::Vector(parts) => parts.as_slice(),
                single => std::slice::from_ref(single),
            };
            let axes = if given == 1 { 1 } else { geometry.axes() };
            if parts.len() < axes {
                return invalid(format!("a level or gradient has {} parts, not {axes}", parts.len()));
            }
            for (axis, part) in parts.iter().take(axes).enumerate() {
                let value = self.value(part, coordinate)?;
                self.pass(slot, offset_of!(Request, levels) + 4 * (3 * index + axis), value);
            }
        }
        let (thread, request) = (self.thread(), self.b.ins().stack_addr(types::I64, slot, 0));
        self.call_runtime(runtime::fetch as *const () as usize, &[thread, request], None);
        self.take_texel(instruction, slot, result)
    }

    /// `tld4`
    pub(super) fn gather_texels(&mut self, instruction: &Instruction) -> Lowered {
        let mut form = Form::of(instruction);
        let channel = match form.choice(&["r", "g", "b", "a"]) {
            Some("r") => 0,
            Some("g") => 1,
            Some("b") => 2,
            Some(_) => 3,
            None => return invalid("which number of each texel (`.r`, ...) is missing"),
        };
        let geometry = form.geometry()?;
        let (result, coordinate) = form.texel_types()?;
        form.finish()?;
        let is_plane = matches!(geometry, Geometry::Plane | Geometry::LayeredPlane) || geometry.is_cube();
        if !is_plane || coordinate != Scalar::F32 {
            return invalid("texels are gathered from planes, by floating-point coordinates");
        }
        if instruction.operands.len() > 2 {
            return unsupported("offsets of texels, and the comparison of depths");
        }
        self.expect_operands(instruction, 2)?;
        let slot = self.pass_position(instruction.operands.get(1), geometry, coordinate)?;
        self.pass_constant(slot, offset_of!(Request, detail), DetailKind::Base as u32);
        let (thread, request) = (self.thread(), self.b.ins().stack_addr(types::I64, slot, 0));
        let channel = self.constant(types::I32, channel);
        self.call_runtime(runtime::gather as *const () as usize, &[thread, request, channel], None);
        self.take_texel(instruction, slot, result)
    }

    /// `txq` and `suq`
    pub(super) fn query(&mut self, instruction: &Instruction) -> Lowered {
        let mut form = Form::of(instruction);
        let of_level = form.flag("level");
        let scalar = form.scalar()?;
        let Some(query) = form.next().and_then(Query::named) else { return unsupported("this query") };
        form.finish()?;
        if scalar != Scalar::B32 {
            return invalid("a query gives `.b32`");
        }
        self.expect_operands(instruction, if of_level { 3 } else { 2 })?;
        let Operand::Address(base, 0) = &instruction.operands[1] else {
            return invalid("what is asked is not in brackets");
        };
        let handle = self.object_handle(base)?;
        let level = match instruction.operands.get(2) {
            Some(operand) => self.value(operand, Scalar::B32)?,
            None => self.constant(types::I32, 0),
        };
        let (thread, query) = (self.thread(), self.constant(types::I32, query as i64));
        let address = match instruction.opcode.as_str() {
            "suq" => runtime::query_surface as *const () as usize,
            _ => runtime::query_texture as *const () as usize,
        };
        let answer = self.call_value(address, &[thread, handle, query, level], types::I32);
        self.write(instruction, Scalar::B32, answer)
    }

    /// Leaves handle, geometry, layer and coordinates in the slot for requests, and gives it.
    pub(super) fn pass_position(
        &mut self,
        operand: Option<&Operand>,
        geometry: Geometry,
        coordinate: Scalar,
    ) -> Result<StackSlot, Refusal> {
        let Some(Operand::Coordinates(base, items)) = operand else {
            return invalid("the coordinates are missing");
        };
        let [item] = items.as_slice() else { return unsupported("a sampler apart from the texture") };
        let parts = match item {
            Operand::Vector(parts) => parts.as_slice(),
            single => std::slice::from_ref(single),
        };
        let (layers, axes) = (usize::from(geometry.has_layers()), geometry.axes());
        // Of some kinds there is a part that means nothing.
        if parts.len() < layers + axes || parts.len() > 4 {
            return invalid(format!("it has {} coordinates, not {}", parts.len(), layers + axes));
        }
        let handle = self.object_handle(base)?;
        let slot = self.request_slot();
        self.pass(slot, offset_of!(Request, handle), handle);
        self.pass_constant(slot, offset_of!(Request, geometry), geometry as u32);
        let layer = match parts.first() {
            Some(part) if layers > 0 => self.value(part, Scalar::B32)?,
            _ => self.constant(types::I32, 0),
        };
        self.pass(slot, offset_of!(Request, layer), layer);
        for axis in 0..3 {
            let at = offset_of!(Request, coordinates) + 4 * axis;
            match parts.get(layers + axis).filter(|_| axis < axes) {
                Some(part) => {
                    let value = self.value(part, coordinate)?;
                    self.pass(slot, at, value);
                }
                None => self.pass_constant(slot, at, 0),
            }
        }
        Ok(slot)
    }

    /// The handle of a texture or surface: a register's or parameter's value, or the address of a variable,
    /// which stands for what is bound to it.
    fn object_handle(&mut self, base: &Base) -> Result<Value, Refusal> {
        match base {
            Base::Register(register) => self.value(&Operand::Register(*register), Scalar::B64),
            Base::Symbol(name @ Name::Module(_)) => self.symbol_address(name),
            Base::Symbol(name @ Name::Parameter(_)) => {
                let operand = Operand::Address(Base::Symbol(name.clone()), 0);
                let access = self.access(super::spaces::AccessSpace::Param, &operand, 8)?;
                Ok(self.load_at(access, 0, types::I64, false))
            }
            _ => invalid("it names neither a texture nor a surface"),
        }
    }

    /// Writes what a fetch gave to the destination. All that a texture has is resident.
    fn take_texel(&mut self, instruction: &Instruction, slot: StackSlot, scalar: Scalar) -> Lowered {
        let mut destination = &instruction.operands[0];
        if let Operand::Pair(texel, resident) = destination {
            let yes = self.constant(types::I8, 1);
            self.assign(resident, Scalar::Pred, yes)?;
            destination = texel;
        }
        let start = offset_of!(Request, texel) as i32;
        for (lane, target) in (0..).zip(lanes_of(destination, 4)?) {
            let value = self.b.ins().stack_load(types::I64, machine_type(scalar), slot, start + 4 * lane);
            self.assign(target, scalar, value)?;
        }
        Ok(())
    }
}
