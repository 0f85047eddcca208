//! Bulk copies and fills: `cp.async.bulk` between global and shared memory, of bytes or of a box of a tensor, made at once by
//! the thread that asks, and `st.bulk`.

use std::mem::offset_of;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{BlockArg, InstBuilder, StackSlot, Value, types};

use super::access::MemoryAccess;
use super::form::Form;
use super::spaces::AccessSpace;
use super::{Lowered, Refusal, Translator, invalid, unsupported};
use crate::parse::syntax::{Base, Instruction, Operand, Scalar};
use crate::run::context::ThreadContext;
use crate::run::distributed;
use crate::run::tensor::{self, TensorCopy};
use crate::tensor_map::MAX_TENSOR_RANK;

/// Bytes that sizes and addresses are a multiple of.
const UNIT: u32 = 16;

/// Bytes that the size of a fill is a multiple of.
const FILL_UNIT: u32 = 8;

/// What the modifiers of all bulk copies say.
struct BulkCopy {
    to_space: AccessSpace,
    from_space: AccessSpace,
    /// Whether it ends with bytes that arrive at an `mbarrier`.
    arrives: bool,
    is_multicast: bool,
}

impl Form<'_> {
    fn bulk_copy(&mut self) -> Result<BulkCopy, Refusal> {
        let is_multicast = self.flag("multicast::cluster");
        self.ignore_hints();
        // In their order.
        let mut spaces = [AccessSpace::Shared; 2];
        for space in &mut spaces {
            *space = match self.choice(&["shared::cluster", "shared::cta", "global"]) {
                Some("global") => AccessSpace::Global,
                Some("shared::cluster") => AccessSpace::Cluster,
                Some(_) => AccessSpace::Shared,
                None => return invalid("a state space is missing"),
            };
        }
        let [to_space, from_space] = spaces;
        let to_shared = to_space != AccessSpace::Global;
        let arrives = self.flag("mbarrier::complete_tx::bytes");
        if arrives == self.flag("bulk_group") || arrives != to_shared || is_multicast && !to_shared {
            return invalid("its completion does not fit its state spaces");
        }
        Ok(BulkCopy { to_space, from_space, arrives, is_multicast })
    }
}

impl Translator<'_, '_> {
    /// `cp.async.bulk` behind its first two modifiers: a copy from global to shared memory ends with bytes that
    /// arrive at an `mbarrier`, one to global memory belongs to a group, for which no thread has to wait.
    pub(super) fn copy_bulk(&mut self, instruction: &Instruction, mut form: Form<'_>) -> Lowered {
        if form.choice(&["commit_group", "wait_group"]).is_some() {
            form.ignore(&["read"]);
            return form.finish();
        }
        if form.flag("prefetch") {
            return Ok(());
        }
        if form.flag("tensor") {
            return self.copy_box(instruction, form);
        }
        if form.flag("cp_mask") {
            return unsupported("copies of single bytes");
        }
        let BulkCopy { to_space, from_space, arrives, is_multicast } = form.bulk_copy()?;
        form.finish()?;
        if instruction.operands.len() < 3 + usize::from(arrives) + usize::from(is_multicast) {
            return invalid("operands are missing");
        }
        let (to_space, to) = self.address_of(to_space, &instruction.operands[0])?;
        let (from_space, from) = self.address_of(from_space, &instruction.operands[1])?;
        let size = self.read(instruction, 2, Scalar::U32)?;
        if !arrives {
            self.copy_units((to_space, to), (from_space, from), size);
            return Ok(());
        }
        let (object_space, object) = self.address_of(to_space, &instruction.operands[3])?;
        if !is_multicast {
            self.copy_units((to_space, to), (from_space, from), size);
            self.complete_bytes(object_space, object, size);
            return Ok(());
        }
        self.for_each_block(instruction, 4, [to, object], |translator, [to, object]| {
            translator.copy_units((AccessSpace::Cluster, to), (from_space, from), size);
            translator.complete_bytes(AccessSpace::Cluster, object, size);
        })
    }

    /// `st.bulk[.weak][.shared::cta] [a], size, 0` behind its first modifier: zeros in shared memory.
    pub(super) fn fill_bulk(&mut self, instruction: &Instruction, mut form: Form<'_>) -> Lowered {
        form.ignore(&["weak"]);
        let space = if form.flag("shared::cta") { AccessSpace::Shared } else { AccessSpace::Generic };
        form.finish()?;
        self.expect_operands(instruction, 3)?;
        if instruction.operands[2] != Operand::Integer(0) {
            return invalid("the value is not 0");
        }
        let (space, start) = self.address_of(space, &instruction.operands[0])?;
        let size = match &instruction.operands[1] {
            Operand::Integer(size) if !(*size as u64).is_multiple_of(u64::from(FILL_UNIT)) => {
                return invalid(format!("the size is no multiple of {FILL_UNIT}"));
            }
            // A size of 32 bits or of 64, as its register has.
            Operand::Register(register) if self.body.registers[*register].size() == 4 => {
                let size = self.read(instruction, 1, Scalar::U32)?;
                self.b.ins().uextend(types::I64, size)
            }
            _ => self.read(instruction, 1, Scalar::U64)?,
        };
        self.for_each_unit(size, FILL_UNIT, |translator, offset| {
            let target = translator.b.ins().iadd(start, offset);
            let target = translator.checked(space, target, FILL_UNIT);
            let zero = translator.constant(types::I64, 0);
            translator.store_at(target, 0, zero, false);
        });
        Ok(())
    }

    /// `cp.async.bulk.tensor`: a copy of the box that a tensor map describes.
    fn copy_box(&mut self, instruction: &Instruction, mut form: Form<'_>) -> Lowered {
        let ranks = ["1d", "2d", "3d", "4d", "5d"];
        let Some(rank) = form.choice(&ranks).and_then(|name| ranks.iter().position(|rank| *rank == name))
        else {
            return invalid("the number of dimensions is missing");
        };
        let rank = rank + 1;
        form.ignore(&["tile"]);
        let BulkCopy { to_space, from_space, arrives, is_multicast } = form.bulk_copy()?;
        // `.im2col`, `.tile::gather4` and pairs of blocks remain.
        form.finish()?;
        if instruction.operands.len() < 2 + usize::from(arrives) + usize::from(is_multicast) {
            return invalid("operands are missing");
        }
        let (shared_operand, map_operand) = if arrives { (0, 1) } else { (1, 0) };
        let shared_space = if arrives { to_space } else { from_space };
        let (space, shared) = self.address_of(shared_space, &instruction.operands[shared_operand])?;
        let slot = self.pass_box(&instruction.operands[map_operand], rank)?;
        if !arrives {
            self.call_copy(tensor::store_box as *const () as usize, slot, (space, shared));
            return Ok(());
        }
        let load = tensor::load_box as *const () as usize;
        let (object_space, object) = self.address_of(to_space, &instruction.operands[2])?;
        if !is_multicast {
            let size = self.call_copy(load, slot, (space, shared));
            self.complete_bytes(object_space, object, size);
            return Ok(());
        }
        self.for_each_block(instruction, 3, [shared, object], |translator, [shared, object]| {
            let size = translator.call_copy(load, slot, (AccessSpace::Cluster, shared));
            translator.complete_bytes(AccessSpace::Cluster, object, size);
        })
    }

    /// Passes what an operand `[map, {coordinates}]` says.
    fn pass_box(&mut self, operand: &Operand, rank: usize) -> Result<StackSlot, Refusal> {
        let Operand::Coordinates(base, items) = operand else {
            return invalid("the coordinates are missing");
        };
        let [Operand::Vector(coordinates)] = items.as_slice() else {
            return invalid("the coordinates are missing");
        };
        if coordinates.len() != rank {
            return invalid(format!("it has {} coordinates, not {rank}", coordinates.len()));
        }
        let map = match base {
            Base::Register(register) => self.value(&Operand::Register(*register), Scalar::B64)?,
            Base::Symbol(name) => self.symbol_address(name)?,
            Base::Absolute => return invalid("it names no tensor map"),
        };
        let slot = self.request_slot();
        self.pass(slot, offset_of!(TensorCopy, map), map);
        self.pass_constant(slot, offset_of!(TensorCopy, rank), rank as u32);
        for axis in 0..MAX_TENSOR_RANK {
            let at = offset_of!(TensorCopy, coordinates) + 4 * axis;
            match coordinates.get(axis) {
                Some(coordinate) => {
                    let value = self.value(coordinate, Scalar::S32)?;
                    self.pass(slot, at, value);
                }
                None => self.pass_constant(slot, at, 0),
            }
        }
        Ok(slot)
    }

    /// Copies a box from or to an address in shared memory; the bytes that it has.
    fn call_copy(&mut self, function: usize, slot: StackSlot, shared: (AccessSpace, Value)) -> Value {
        let (space, address) = shared;
        let start = self.checked(space, address, UNIT);
        let start = match start {
            MemoryAccess::Memory(start, offset) => self.b.ins().iadd_imm_s(start, i64::from(offset)),
            MemoryAccess::Slot(slot, offset) => self.b.ins().stack_addr(types::I64, slot, offset),
        };
        let offset = self.b.ins().band_imm_u(address, distributed::OFFSET as i64);
        let size = self.field(types::I64, offset_of!(ThreadContext, shared_size));
        let capacity = self.b.ins().isub(size, offset);
        self.pass(slot, offset_of!(TensorCopy, shared), start);
        self.pass(slot, offset_of!(TensorCopy, window_address), offset);
        self.pass(slot, offset_of!(TensorCopy, capacity), capacity);
        let (thread, copy) = (self.thread(), self.b.ins().stack_addr(types::I64, slot, 0));
        self.call_value(function, &[thread, copy], types::I32)
    }

    /// Does something for each block of the mask that operand `index` is, with the addresses in its shared memory at the
    /// same offsets.
    fn for_each_block(
        &mut self,
        instruction: &Instruction,
        index: usize,
        addresses: [Value; 2],
        body: impl FnOnce(&mut Self, [Value; 2]),
    ) -> Lowered {
        let mask = self.read(instruction, index, Scalar::U16)?;
        let mask = self.b.ins().uextend(types::I32, mask);
        self.for_each_bit(mask, |translator, rank| {
            let thread = translator.thread();
            let mapped = addresses.map(|address| {
                let map = distributed::map_in_window as *const () as usize;
                translator.call_value(map, &[thread, address, rank], types::I64)
            });
            body(translator, mapped);
        });
        Ok(())
    }

    /// A loop over the numbers of the bits that are set in a mask of 32 bits.
    fn for_each_bit(&mut self, mask: Value, body: impl FnOnce(&mut Self, Value)) {
        let (head, inner, after) = (self.b.create_block(), self.b.create_block(), self.b.create_block());
        let rest = self.b.append_block_param(head, types::I32);
        self.b.ins().jump(head, &[BlockArg::Value(mask)]);
        self.b.switch_to_block(head);
        self.b.ins().brif(rest, inner, &[], after, &[]);
        self.b.seal_block(inner);
        self.b.switch_to_block(inner);
        let number = self.b.ins().ctz(rest);
        body(self, number);
        let decremented = self.b.ins().iadd_imm_s(rest, -1);
        let next = self.b.ins().band(rest, decremented);
        self.b.ins().jump(head, &[BlockArg::Value(next)]);
        self.b.seal_block(head);
        self.b.seal_block(after);
        self.b.switch_to_block(after);
    }

    /// A loop that copies so many bytes and checks each access.
    fn copy_units(&mut self, to: (AccessSpace, Value), from: (AccessSpace, Value), size: Value) {
        let size = self.b.ins().uextend(types::I64, size);
        self.for_each_unit(size, UNIT, |translator, offset| {
            let source = translator.b.ins().iadd(from.1, offset);
            let source = translator.checked(from.0, source, UNIT);
            let target = translator.b.ins().iadd(to.1, offset);
            let target = translator.checked(to.0, target, UNIT);
            for half in [0, 8] {
                let value = translator.load_at(source, half, types::I64, false);
                translator.store_at(target, half, value, false);
            }
        });
    }

    /// A loop over the offsets of units of so many bytes, up to a size in bytes.
    fn for_each_unit(&mut self, size: Value, unit: u32, body: impl FnOnce(&mut Self, Value)) {
        let (head, inner, after) = (self.b.create_block(), self.b.create_block(), self.b.create_block());
        let offset = self.b.append_block_param(head, types::I64);
        let zero = self.constant(types::I64, 0);
        self.b.ins().jump(head, &[BlockArg::Value(zero)]);
        self.b.switch_to_block(head);
        let is_more = self.b.ins().icmp(IntCC::UnsignedLessThan, offset, size);
        self.b.ins().brif(is_more, inner, &[], after, &[]);
        self.b.seal_block(inner);
        self.b.switch_to_block(inner);
        body(self, offset);
        let next = self.b.ins().iadd_imm_s(offset, i64::from(unit));
        self.b.ins().jump(head, &[BlockArg::Value(next)]);
        self.b.seal_block(head);
        self.b.seal_block(after);
        self.b.switch_to_block(after);
    }
}
