//! The request of an instruction that the runtime executes: a slot of the stack in which it leaves what it passes
//! and finds what it gets. All such instructions of a function share one.

use cranelift_codegen::ir::{InstBuilder, StackSlot, StackSlotData, StackSlotKind, Value, types};

use super::Translator;
use crate::run::matrix::{MultiplyRequest, RearrangeRequest};
use crate::run::textures::Request;

/// Bytes of the largest request.
const SIZE: usize = {
    let matrices = if size_of::<MultiplyRequest>() > size_of::<RearrangeRequest>() {
        size_of::<MultiplyRequest>()
    } else {
        size_of::<RearrangeRequest>()
    };
    if size_of::<Request>() > matrices { size_of::<Request>() } else { matrices }
};

impl Translator<'_, '_> {
    /// The slot for requests.
    pub(super) fn request_slot(&mut self) -> StackSlot {
        if let Some(slot) = self.request {
            return slot;
        }
        let data = StackSlotData::new(StackSlotKind::ExplicitSlot, SIZE as u32, 3);
        let slot = self.b.create_sized_stack_slot(data);
        self.request = Some(slot);
        slot
    }

    pub(super) fn pass(&mut self, slot: StackSlot, offset: usize, value: Value) {
        self.b.ins().stack_store(types::I64, value, slot, offset as i32);
    }

    pub(super) fn pass_constant(&mut self, slot: StackSlot, offset: usize, value: u32) {
        let value = self.constant(types::I32, i64::from(value));
        self.pass(slot, offset, value);
    }
}
