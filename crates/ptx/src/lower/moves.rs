//! `mov`, which also packs values into wider ones and unpacks them.

use cranelift_codegen::ir::InstBuilder;

use super::form::Form;
use super::registers::machine_type;
use super::{Lowered, Refusal, Translator, invalid};
use crate::parse::syntax::{Instruction, Operand, Scalar};

impl Translator<'_, '_> {
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
