//! Loads, stores and copies to shared memory.

use cranelift_codegen::ir::{InstBuilder, MemFlagsData, Type, Value, types};

use super::access::MemoryAccess;
use super::form::Form;
use super::registers::machine_type;
use super::spaces::AccessSpace;
use super::table::ORDERED;
use super::{Lowered, Refusal, Translator, invalid, unsupported};
use crate::parse::syntax::{Instruction, Operand, Scalar};

/// Modifiers that only advise caches, order or scope. Order needs no instruction here beyond what
/// [`Translator::load_memory`] does: x86 keeps loads and stores in order, and fences are translated as such.
const HINTS: [&str; 17] = [
    "ca", "cg", "cs", "cv", "lu", "wb", "wt", "nc", "weak", "cta", "cluster", "gpu", "sys", "noftz",
    "unified", "mmio", "uniform",
];

impl Form<'_> {
    /// Takes modifiers without a meaning here.
    pub(super) fn ignore_hints(&mut self) {
        self.ignore(&HINTS);
        self.ignore_prefix("L1::");
        self.ignore_prefix("L2::");
        self.ignore_prefix("level::");
    }

    /// Takes the modifiers of an asynchronous operation on shared memory, which ends with bytes that arrive at an
    /// `mbarrier`: it is made at once. Whether it is one.
    pub(super) fn completes_bytes(&mut self) -> Result<bool, Refusal> {
        let is_async = self.flag("async");
        if is_async != self.flag("mbarrier::complete_tx::bytes") {
            return unsupported("an asynchronous operation without an `mbarrier`");
        }
        Ok(is_async)
    }

    pub(super) fn lanes(&mut self) -> u32 {
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
        let ordered = form.choice(&ORDERED).is_some();
        let space = form.space()?;
        let lanes = form.lanes();
        form.ignore_hints();
        let scalar = form.scalar()?;
        form.finish()?;
        let operand = self.operand(instruction, 1)?;
        let ty = machine_type(scalar);
        let access = self.access(space, operand, scalar.size() * lanes)?;
        let targets = lanes_of(self.operand(instruction, 0)?, lanes)?;
        let mut values = Vec::with_capacity(targets.len());
        for lane in 0..lanes {
            values.push(self.load_at(access, (lane * scalar.size()) as i32, ty, ordered));
        }
        for (target, value) in targets.iter().zip(values) {
            self.assign(target, scalar, value)?;
        }
        Ok(())
    }

    /// `st`
    pub(super) fn store(&mut self, instruction: &Instruction) -> Lowered {
        let mut form = Form::of(instruction);
        if form.flag("bulk") {
            return self.fill_bulk(instruction, form);
        }
        let release = form.flag("release");
        form.ignore(&["volatile", "relaxed"]);
        let completes = form.completes_bytes()?;
        let space = form.space()?;
        let lanes = form.lanes();
        form.ignore_hints();
        let scalar = form.scalar()?;
        form.finish()?;
        let operand = self.operand(instruction, 0)?;
        let sources = lanes_of(self.operand(instruction, 1)?, lanes)?;
        let values: Vec<Value> =
            sources.iter().map(|source| self.value(source, scalar)).collect::<Result<_, Refusal>>()?;
        let access = self.access(space, operand, scalar.size() * lanes)?;
        for (lane, value) in values.into_iter().enumerate() {
            self.store_at(access, lane as i32 * scalar.size() as i32, value, release);
        }
        if completes { self.complete_bytes_of(instruction, 2, scalar.size() * lanes) } else { Ok(()) }
    }

    pub(super) fn load_at(&mut self, access: MemoryAccess, offset: i32, ty: Type, ordered: bool) -> Value {
        match access {
            MemoryAccess::Slot(slot, start) => self.b.ins().stack_load(types::I64, ty, slot, start + offset),
            MemoryAccess::Memory(address, start) if ordered => {
                let address = self.b.ins().iadd_imm_s(address, i64::from(start + offset));
                let bits_type = Type::int(ty.bits() as u16).unwrap_or(types::I64);
                let bits = self.b.ins().atomic_load(bits_type, MemFlagsData::new(), address);
                self.from_bits(bits, ty)
            }
            MemoryAccess::Memory(address, start) => {
                self.b.ins().load(ty, MemFlagsData::new(), address, start + offset)
            }
        }
    }

    pub(super) fn store_at(&mut self, access: MemoryAccess, offset: i32, value: Value, release: bool) {
        match access {
            MemoryAccess::Slot(slot, start) => {
                self.b.ins().stack_store(types::I64, value, slot, start + offset);
            }
            MemoryAccess::Memory(address, start) if release => {
                let address = self.b.ins().iadd_imm_s(address, i64::from(start + offset));
                let bits = self.bits_of(value);
                self.b.ins().atomic_store(MemFlagsData::new(), bits, address);
            }
            MemoryAccess::Memory(address, start) => {
                self.b.ins().store(MemFlagsData::new(), value, address, start + offset);
            }
        }
    }

    /// `createpolicy`: how caches are to treat accesses, which there are none of.
    pub(super) fn create_policy(&mut self, instruction: &Instruction) -> Lowered {
        let policy = self.constant(types::I64, 0);
        self.write(instruction, Scalar::B64, policy)
    }

    /// `cp.async` and its groups: the copy is made at once, so that waiting for it is nothing.
    pub(super) fn copy_async(&mut self, instruction: &Instruction) -> Lowered {
        let mut form = Form::of(instruction);
        if !form.flag("async") {
            return unsupported("copies other than `cp.async`");
        }
        if form.flag("bulk") {
            return self.copy_bulk(instruction, form);
        }
        if form.choice(&["commit_group", "wait_group", "wait_all"]).is_some() {
            return form.finish();
        }
        if form.flag("mbarrier") {
            return self.arrive_after_copies(instruction, form);
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
        // With a smaller source size the rest is filled with zeros, and a predicate that holds is a size of
        // zero.
        let has_policy = has_cache_policy(instruction);
        let operands = &instruction.operands[..instruction.operands.len() - usize::from(has_policy)];
        let source_size = match operands.get(3) {
            Some(operand) if self.is_predicate(operand) => {
                let ignored = self.value(operand, Scalar::Pred)?;
                let (none, all) = (self.constant(types::I32, 0), self.constant(types::I32, i64::from(size)));
                Some(self.b.ins().select(ignored, none, all))
            }
            Some(operand) => Some(self.value(operand, Scalar::U32)?),
            None => None,
        };
        let target = self.access(AccessSpace::Shared, &instruction.operands[0], size)?;
        let Some(source_size) = source_size else {
            let source = self.access(AccessSpace::Global, &instruction.operands[1], size)?;
            for offset in (0..size as i32).step_by(4) {
                let word = self.load_at(source, offset, types::I32, false);
                self.store_at(target, offset, word, false);
            }
            return Ok(());
        };
        // A source of which nothing is copied may be no memory at all.
        let (copied, empty, done) = (self.b.create_block(), self.b.create_block(), self.b.create_block());
        self.b.ins().brif(source_size, copied, &[], empty, &[]);
        self.b.seal_block(copied);
        self.b.seal_block(empty);
        self.b.switch_to_block(copied);
        let conditional = std::mem::replace(&mut self.conditional, true);
        let source = self.access(AccessSpace::Global, &instruction.operands[1], size)?;
        self.conditional = conditional;
        for offset in (0..size as i32).step_by(4) {
            let word = self.load_at(source, offset, types::I32, false);
            // Bits of the word that are copied: none, 8, 16, 24 or all.
            let bytes = self.b.ins().iadd_imm_s(source_size, i64::from(-offset));
            let (none, word_bytes) = (self.constant(types::I32, 0), self.constant(types::I32, 4));
            let bytes = self.b.ins().smax(bytes, none);
            let bytes = self.b.ins().umin(bytes, word_bytes);
            let bits = self.b.ins().ishl_imm_u(bytes, 3);
            let bits = self.b.ins().uextend(types::I64, bits);
            let one = self.constant(types::I64, 1);
            let mask = self.b.ins().ishl(one, bits);
            let mask = self.b.ins().iadd_imm_s(mask, -1);
            let mask = self.b.ins().ireduce(types::I32, mask);
            let word = self.b.ins().band(word, mask);
            self.store_at(target, offset, word, false);
        }
        self.b.ins().jump(done, &[]);
        self.b.switch_to_block(empty);
        let zero = self.constant(types::I32, 0);
        for offset in (0..size as i32).step_by(4) {
            self.store_at(target, offset, zero, false);
        }
        self.b.ins().jump(done, &[]);
        self.b.seal_block(done);
        self.b.switch_to_block(done);
        Ok(())
    }
}

/// Whether the last operand is a cache policy, which has no effect.
pub(super) fn has_cache_policy(instruction: &Instruction) -> bool {
    instruction.modifiers.iter().any(|modifier| modifier == "L2::cache_hint")
}

/// The operands of a vector, or a single operand.
pub(super) fn lanes_of(operand: &Operand, lanes: u32) -> Result<&[Operand], Refusal> {
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
