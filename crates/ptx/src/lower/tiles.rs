//! Tiles of matrices that a warp loads, stores and transposes: `ldmatrix`, `stmatrix`, `movmatrix`.

use std::mem::offset_of;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, StackSlot, types};

use super::form::Form;
use super::memory::lanes_of;
use super::spaces::AccessSpace;
use super::{Lowered, Refusal, Translator, invalid, unsupported};
use crate::parse::syntax::{Instruction, Operand, Scalar};
use crate::run::context::{ThreadContext, WarpOperation};
use crate::run::matrix::{MAX_TILES, RearrangeRequest, TILE, TileLayout};

/// Bytes of a row.
const ROW: u32 = 16;

/// What the modifiers of a load or store say.
struct Tiles {
    count: u32,
    layout: TileLayout,
    space: AccessSpace,
}

impl Form<'_> {
    fn tiles(mut self) -> Result<Tiles, Refusal> {
        self.ignore(&["sync", "aligned"]);
        if !self.flag("m8n8") {
            return unsupported("tiles other than `.m8n8`");
        }
        let count = match self.choice(&["x1", "x2", "x4"]) {
            Some("x1") => 1,
            Some("x2") => 2,
            Some(_) => 4,
            None => return invalid("how many tiles (`.x1`, `.x2` or `.x4`) is missing"),
        };
        let layout = if self.flag("trans") { TileLayout::Transposed } else { TileLayout::Fragments };
        let space = self.space()?;
        if !matches!(space, AccessSpace::Shared | AccessSpace::Generic) {
            return invalid("tiles lie in shared memory");
        }
        if self.scalar()? != Scalar::B16 {
            return invalid("elements are `.b16`");
        }
        self.finish()?;
        Ok(Tiles { count, layout, space })
    }
}

impl Translator<'_, '_> {
    /// `ldmatrix.sync.aligned.m8n8.num[.trans][.shared].b16 r, [p]`
    pub(super) fn load_tiles(&mut self, instruction: &Instruction) -> Lowered {
        let Tiles { count, layout, space } = Form::of(instruction).tiles()?;
        self.expect_operands(instruction, 2)?;
        let targets = lanes_of(&instruction.operands[0], count)?;
        self.synchronise_warp();
        let slot = self.request_slot();
        self.with_row(count, |translator| {
            let access = translator.access(space, &instruction.operands[1], ROW)?;
            for register in 0..MAX_TILES {
                let value = translator.load_at(access, 4 * register as i32, types::I32, false);
                translator.pass(slot, register_at(register), value);
            }
            Ok(())
        })?;
        self.rearrange(slot, count, TileLayout::Rows, layout);
        self.take_registers(slot, targets)
    }

    /// `stmatrix.sync.aligned.m8n8.num[.trans][.shared].b16 [p], r`
    pub(super) fn store_tiles(&mut self, instruction: &Instruction) -> Lowered {
        let Tiles { count, layout, space } = Form::of(instruction).tiles()?;
        self.expect_operands(instruction, 2)?;
        let sources = lanes_of(&instruction.operands[1], count)?;
        let slot = self.request_slot();
        self.pass_registers(slot, sources)?;
        self.rearrange(slot, count, layout, TileLayout::Rows);
        self.with_row(count, |translator| {
            let access = translator.access(space, &instruction.operands[0], ROW)?;
            for register in 0..MAX_TILES {
                let at = register_at(register) as i32;
                let value = translator.b.ins().stack_load(types::I64, types::I32, slot, at);
                translator.store_at(access, 4 * register as i32, value, false);
            }
            Ok(())
        })
    }

    /// `movmatrix.sync.aligned.m8n8.trans.b16 d, a`
    pub(super) fn transpose_tile(&mut self, instruction: &Instruction) -> Lowered {
        let mut form = Form::of(instruction);
        form.ignore(&["sync", "aligned"]);
        if !form.flag("m8n8") || !form.flag("trans") || form.scalar()? != Scalar::B16 {
            return unsupported("anything but `.m8n8.trans.b16`");
        }
        form.finish()?;
        self.expect_operands(instruction, 2)?;
        let slot = self.request_slot();
        self.pass_registers(slot, &instruction.operands[1..])?;
        self.rearrange(slot, 1, TileLayout::Fragments, TileLayout::Transposed);
        self.take_registers(slot, &instruction.operands[..1])
    }

    /// Waits for the other lanes of the warp: what they stored before can be loaded afterwards.
    pub(super) fn synchronise_warp(&mut self) {
        let (all, zero) = (self.constant(types::I32, -1), self.constant(types::I64, 0));
        self.simple_warp_operation(WarpOperation::Synchronise, all, zero);
    }

    /// Has the warp rearrange the registers in the request.
    fn rearrange(&mut self, slot: StackSlot, count: u32, from: TileLayout, to: TileLayout) {
        self.pass_constant(slot, offset_of!(RearrangeRequest, from), from as u32);
        self.pass_constant(slot, offset_of!(RearrangeRequest, to), to as u32);
        self.pass_constant(slot, offset_of!(RearrangeRequest, tiles), count);
        let (all, address) = (self.constant(types::I32, -1), self.b.ins().stack_addr(types::I64, slot, 0));
        self.simple_warp_operation(WarpOperation::RearrangeTiles, all, address);
    }

    /// Code for the lanes alone that have a row of one of the tiles: what other lanes give as an address does
    /// not count.
    fn with_row(&mut self, tiles: u32, code: impl FnOnce(&mut Self) -> Lowered) -> Lowered {
        let lane = self.field(types::I32, offset_of!(ThreadContext, lane));
        let has_row = self.b.ins().icmp_imm_s(IntCC::UnsignedLessThan, lane, i64::from(tiles) * TILE as i64);
        let (body, after) = (self.b.create_block(), self.b.create_block());
        self.b.ins().brif(has_row, body, &[], after, &[]);
        self.b.seal_block(body);
        self.b.switch_to_block(body);
        // A check that is made here is not made for the other lanes.
        let conditional = std::mem::replace(&mut self.conditional, true);
        code(self)?;
        self.conditional = conditional;
        self.b.ins().jump(after, &[]);
        self.b.seal_block(after);
        self.b.switch_to_block(after);
        Ok(())
    }

    fn pass_registers(&mut self, slot: StackSlot, sources: &[Operand]) -> Lowered {
        for (register, source) in sources.iter().enumerate() {
            let value = self.value(source, Scalar::B32)?;
            self.pass(slot, register_at(register), value);
        }
        Ok(())
    }

    fn take_registers(&mut self, slot: StackSlot, targets: &[Operand]) -> Lowered {
        for (register, target) in targets.iter().enumerate() {
            let value = self.b.ins().stack_load(types::I64, types::I32, slot, register_at(register) as i32);
            self.assign(target, Scalar::B32, value)?;
        }
        Ok(())
    }
}

fn register_at(register: usize) -> usize {
    offset_of!(RearrangeRequest, registers) + 4 * register
}
