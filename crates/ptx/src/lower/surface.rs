//! Loads from surfaces and stores to them.

use std::mem::offset_of;

use cranelift_codegen::ir::{InstBuilder, StackSlot, Type, Value, types};

use super::form::Form;
use super::memory::lanes_of;
use super::registers::machine_type;
use super::{Lowered, Refusal, Translator, invalid, unsupported};
use crate::parse::syntax::{Instruction, Scalar};
use crate::run::textures as runtime;
use crate::run::textures::Request;
use crate::texture::{Boundary, Geometry};

/// What an access is.
struct Access {
    geometry: Geometry,
    boundary: Boundary,
    scalar: Scalar,
    lanes: u32,
}

impl Form<'_> {
    fn access(mut self) -> Result<Access, Refusal> {
        if self.flag("p") {
            return unsupported("stores that convert to the surface's format");
        }
        if !self.flag("b") {
            return invalid("it is neither `.b` nor `.p`");
        }
        let geometry = self.geometry()?;
        if geometry.is_cube() {
            return invalid("a surface is no cube, but has layers");
        }
        let boundary = match self.choice(&["trap", "clamp", "zero"]) {
            Some("clamp") => Boundary::Clamp,
            Some("zero") => Boundary::Zero,
            // The default of `sust` and `suld`.
            _ => Boundary::Trap,
        };
        let lanes = self.lanes();
        self.ignore_hints();
        let scalar = self.scalar()?;
        self.finish()?;
        if !matches!(scalar, Scalar::B8 | Scalar::B16 | Scalar::B32 | Scalar::B64)
            || scalar.size() * lanes > 16
        {
            return invalid("accesses are of up to 16 bytes, in numbers of `.b8` to `.b64`");
        }
        Ok(Access { geometry, boundary, scalar, lanes })
    }
}

impl Translator<'_, '_> {
    /// `suld`
    pub(super) fn load_surface(&mut self, instruction: &Instruction) -> Lowered {
        let access = Form::of(instruction).access()?;
        self.expect_operands(instruction, 2)?;
        let targets = lanes_of(&instruction.operands[0], access.lanes)?;
        let slot = self.pass_position(instruction.operands.get(1), access.geometry, Scalar::S32)?;
        self.call_surface(runtime::load_surface as *const () as usize, slot, &access);
        for (lane, target) in targets.iter().enumerate() {
            let ty = machine_type(access.scalar);
            let value = self.b.ins().stack_load(types::I64, ty, slot, number_at(lane));
            self.assign(target, access.scalar, value)?;
        }
        Ok(())
    }

    /// `sust`
    pub(super) fn store_surface(&mut self, instruction: &Instruction) -> Lowered {
        let access = Form::of(instruction).access()?;
        self.expect_operands(instruction, 2)?;
        let slot = self.pass_position(instruction.operands.first(), access.geometry, Scalar::S32)?;
        for (lane, source) in lanes_of(&instruction.operands[1], access.lanes)?.iter().enumerate() {
            let value = self.value(source, access.scalar)?;
            let value = self.widened(value);
            self.b.ins().stack_store(types::I64, value, slot, number_at(lane));
        }
        self.call_surface(runtime::store_surface as *const () as usize, slot, &access);
        Ok(())
    }

    /// A number of up to 64 bits as one of 64.
    fn widened(&mut self, value: Value) -> Value {
        let ty: Type = self.b.func.dfg.value_type(value);
        if ty == types::I64 { value } else { self.b.ins().uextend(types::I64, value) }
    }

    fn call_surface(&mut self, address: usize, slot: StackSlot, access: &Access) {
        let (thread, request) = (self.thread(), self.b.ins().stack_addr(types::I64, slot, 0));
        let [count, bytes, boundary] = [access.lanes, access.scalar.size(), access.boundary as u32]
            .map(|number| self.b.ins().iconst(types::I32, i64::from(number)));
        self.call_runtime(address, &[thread, request, count, bytes, boundary], None);
    }
}

/// Where a number lies in the slot.
fn number_at(lane: usize) -> i32 {
    (offset_of!(Request, numbers) + 8 * lane) as i32
}
