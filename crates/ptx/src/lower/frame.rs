//! Where do a body's own variables lie, and when does their memory come and go?

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, StackSlotData, StackSlotKind, types};

use super::Translator;
use super::faults::FaultSite;
use crate::parse::syntax::{Body, Space};
use crate::run::context::ThreadContext;

/// Where a body's own variables lie.
#[derive(Debug, Default)]
pub(crate) struct FrameLayout {
    /// For each variable its offset in the frame, or among the function's own shared variables.
    pub(crate) offsets: Vec<u64>,
    /// Bytes of local memory the function needs while it runs.
    pub(crate) size: u64,
    /// Bytes of shared memory its own variables need.
    pub(crate) shared: u64,
}

/// Lays out a body's `.local` and `.shared` variables.
pub(crate) fn frame_layout(body: &Body) -> FrameLayout {
    let mut layout = FrameLayout::default();
    for variable in &body.variables {
        let end = match variable.space {
            Space::Local => &mut layout.size,
            Space::Shared => &mut layout.shared,
            _ => {
                layout.offsets.push(0);
                continue;
            }
        };
        let start = end.next_multiple_of(u64::from(variable.align.max(1)));
        *end = start + variable.size;
        layout.offsets.push(start);
    }
    layout.size = layout.size.next_multiple_of(16);
    layout.shared = layout.shared.next_multiple_of(16);
    layout
}

impl Translator<'_, '_> {
    /// Gives the body's own variables their places and opens the frame of local memory.
    pub(super) fn place_variables(&mut self) {
        for variable in &self.body.variables {
            let slot = (variable.space == Space::Param).then(|| {
                let align = variable.align.max(8).trailing_zeros() as u8;
                let size = variable.size.max(1) as u32;
                self.b.create_sized_stack_slot(StackSlotData::new(StackSlotKind::ExplicitSlot, size, align))
            });
            self.slots.push(slot);
        }
        let layout = frame_layout(self.body);
        self.offsets = layout.offsets;
        if layout.size > 0 {
            let top = self.mutable_field(types::I64, std::mem::offset_of!(ThreadContext, local_top));
            let new_top = self.b.ins().iadd_imm_s(top, layout.size as i64);
            let limit = self.field(types::I64, std::mem::offset_of!(ThreadContext, local_size));
            let overflow = self.b.ins().icmp(IntCC::UnsignedGreaterThan, new_top, limit);
            self.fault_if(overflow, FaultSite::Stack, top);
            self.set_field(new_top, std::mem::offset_of!(ThreadContext, local_top));
            self.frame = Some(top);
        }
    }

    /// Closes the frame of local memory and returns.
    pub(super) fn return_from_function(&mut self) {
        if let Some(frame) = self.frame {
            self.set_field(frame, std::mem::offset_of!(ThreadContext, local_top));
        }
        self.b.ins().return_(&[]);
        self.end_block();
    }
}
