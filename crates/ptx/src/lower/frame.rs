//! Stack frame of a body's own variables.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, StackSlotData, StackSlotKind, types};

use super::Translator;
use super::slots::written_first;
use super::translator::FaultSite;
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
        // The verifier bounds sizes, but lays nothing out. An empty variable has an address, so it takes a
        // byte.
        let start = end.checked_next_multiple_of(u64::from(variable.align.max(1))).unwrap_or(u64::MAX);
        *end = start.saturating_add(variable.size.max(1));
        layout.offsets.push(start);
    }
    for end in [&mut layout.size, &mut layout.shared] {
        *end = end.checked_next_multiple_of(16).unwrap_or(u64::MAX);
    }
    layout
}

impl Translator<'_, '_> {
    /// Gives the body's own variables their places and opens the frame of local memory.
    pub(super) fn allocate_variables(&mut self) {
        let written = written_first(self.body);
        for (variable, written) in self.body.variables.iter().zip(written) {
            let slot = (variable.space == Space::Param).then(|| {
                // Whole words, so that clearing can write words. Nothing relies on more alignment than
                // theirs.
                let size = variable.size.max(1).next_multiple_of(8);
                let data = StackSlotData::new(StackSlotKind::ExplicitSlot, size as u32, 3);
                let slot = self.b.create_sized_stack_slot(data);
                if !written {
                    self.clear_slot(slot, size);
                }
                slot
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
