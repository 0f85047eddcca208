//! Bulk copies: `cp.async.bulk` between global and shared memory, made at once by the thread that asks.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{BlockArg, InstBuilder, Value, types};

use super::form::Form;
use super::spaces::AccessSpace;
use super::{Lowered, Translator, invalid, unsupported};
use crate::parse::syntax::{Instruction, Scalar};
use crate::run::distributed;

/// Bytes that sizes and addresses are a multiple of.
const UNIT: u32 = 16;

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
        if form.choice(&["tensor", "cp_mask"]).is_some() {
            return unsupported("copies by tensor maps, or of single bytes");
        }
        let is_multicast = form.flag("multicast::cluster");
        form.ignore_hints();
        // In their order.
        let mut spaces = [AccessSpace::Shared; 2];
        for space in &mut spaces {
            *space = match form.choice(&["shared::cluster", "shared::cta", "global"]) {
                Some("global") => AccessSpace::Global,
                Some("shared::cluster") => AccessSpace::Cluster,
                Some(_) => AccessSpace::Shared,
                None => return invalid("a state space is missing"),
            };
        }
        let [to_space, from_space] = spaces;
        let to_shared = to_space != AccessSpace::Global;
        let arrives = form.flag("mbarrier::complete_tx::bytes");
        if arrives == form.flag("bulk_group") || arrives != to_shared || is_multicast && !to_shared {
            return invalid("its completion does not fit its state spaces");
        }
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
        // The same offsets in each block of the mask.
        let mask = self.read(instruction, 4, Scalar::U16)?;
        let mask = self.b.ins().uextend(types::I32, mask);
        self.for_each_bit(mask, |translator, rank| {
            let thread = translator.thread();
            let mapped = [to, object].map(|address| {
                let map = distributed::map_in_window as *const () as usize;
                translator.call_value(map, &[thread, address, rank], types::I64)
            });
            translator.copy_units((AccessSpace::Cluster, mapped[0]), (from_space, from), size);
            translator.complete_bytes(AccessSpace::Cluster, mapped[1], size);
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
        let (head, body, after) = (self.b.create_block(), self.b.create_block(), self.b.create_block());
        let offset = self.b.append_block_param(head, types::I64);
        let zero = self.constant(types::I64, 0);
        self.b.ins().jump(head, &[BlockArg::Value(zero)]);
        self.b.switch_to_block(head);
        let is_more = self.b.ins().icmp(IntCC::UnsignedLessThan, offset, size);
        self.b.ins().brif(is_more, body, &[], after, &[]);
        self.b.seal_block(body);
        self.b.switch_to_block(body);
        let source = self.b.ins().iadd(from.1, offset);
        let source = self.checked(from.0, source, UNIT);
        let target = self.b.ins().iadd(to.1, offset);
        let target = self.checked(to.0, target, UNIT);
        for half in [0, 8] {
            let value = self.load_at(source, half, types::I64, false);
            self.store_at(target, half, value, false);
        }
        let next = self.b.ins().iadd_imm_s(offset, i64::from(UNIT));
        self.b.ins().jump(head, &[BlockArg::Value(next)]);
        self.b.seal_block(head);
        self.b.seal_block(after);
        self.b.switch_to_block(after);
    }
}
