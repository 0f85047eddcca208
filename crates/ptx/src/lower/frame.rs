//! Stack frame of a body's own variables.

use std::collections::BTreeSet;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, StackSlotData, StackSlotKind, Value, types};

use super::form::Form;
use super::registers::machine_type;
use super::slots::written_first;
use super::translator::FaultSite;
use super::{Lowered, Translator, unsupported};
use crate::parse::syntax::{Body, Function, Instruction, Name, Operand, Scalar, Space, Statement};
use crate::run::context::ThreadContext;
use crate::run::functions as runtime;

/// Frames begin at multiples of so many bytes.
const FRAME_UNIT: i64 = 16;

/// Where a body's own variables lie.
#[derive(Debug, Default)]
pub(crate) struct FrameLayout {
    /// For each variable its offset in the frame, or among the function's own shared variables.
    pub(crate) offsets: Vec<u64>,
    /// For each parameter of a device function whose address is taken, the offset of its copy in the frame.
    pub(crate) parameters: Vec<Option<u64>>,
    /// Bytes of local memory the function needs while it runs.
    pub(crate) size: u64,
    /// Bytes of shared memory its own variables need.
    pub(crate) shared: u64,
    /// Whether its frame may grow by as much as is only known when it runs.
    pub(crate) grows: bool,
}

/// Lays out a function's `.local` and `.shared` variables. PTX has the address of a parameter be one of local
/// memory, so that parameters whose address is taken have a copy there.
pub(crate) fn frame_layout(function: &Function, body: &Body) -> FrameLayout {
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
        let align = match variable.space {
            Space::Shared => variable.placed_align(),
            _ => u64::from(variable.align.max(1)),
        };
        let start = end.checked_next_multiple_of(align).unwrap_or(u64::MAX);
        *end = start.saturating_add(variable.size.max(1));
        layout.offsets.push(start);
    }
    layout.parameters = vec![None; function.parameters.len()];
    for index in addressed_parameters(function, body) {
        let variable = &function.parameters[index];
        let align = u64::from(variable.align.max(16));
        let start = layout.size.checked_next_multiple_of(align).unwrap_or(u64::MAX);
        layout.size = start.saturating_add(variable.size.max(1));
        layout.parameters[index] = Some(start);
    }
    layout.grows =
        function.is_variadic() || instructions(body).any(|instruction| instruction.opcode == "alloca");
    for end in [&mut layout.size, &mut layout.shared] {
        *end = end.checked_next_multiple_of(16).unwrap_or(u64::MAX);
    }
    layout
}

/// The parameters of a device function whose address is taken, but for the last one of a variadic function.
fn addressed_parameters(function: &Function, body: &Body) -> BTreeSet<usize> {
    if function.is_kernel {
        return BTreeSet::new();
    }
    let operands = instructions(body).flat_map(|instruction| &instruction.operands);
    let variadic = function.is_variadic().then(|| function.parameters.len() - 1);
    operands
        .filter_map(|operand| match operand {
            Operand::Symbol(Name::Parameter(index), _) | Operand::Element(Name::Parameter(index), _) => {
                Some(*index)
            }
            _ => None,
        })
        .filter(|&index| Some(index) != variadic)
        .collect()
}

fn instructions(body: &Body) -> impl Iterator<Item = &Instruction> {
    body.statements.iter().filter_map(|statement| match statement {
        Statement::Instruction(instruction) => Some(instruction),
        Statement::Label(_) => None,
    })
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
        let layout = frame_layout(&self.linked.function, self.body);
        self.offsets = layout.offsets;
        let has_frame = layout.size > 0 || layout.grows;
        // The first frame of a thread is that of its kernel.
        let first = (has_frame && self.suspend_points.is_some()).then(|| self.constant(types::I64, 0));
        self.start_dispatch();
        if has_frame {
            let top = first.unwrap_or_else(|| {
                self.mutable_field(types::I64, std::mem::offset_of!(ThreadContext, local_top))
            });
            let new_top = self.b.ins().iadd_imm_s(top, layout.size as i64);
            let limit = self.field(types::I64, std::mem::offset_of!(ThreadContext, local_size));
            let overflow = self.b.ins().icmp(IntCC::UnsignedGreaterThan, new_top, limit);
            self.fault_if(overflow, FaultSite::Stack, top);
            self.set_field(new_top, std::mem::offset_of!(ThreadContext, local_top));
            self.frame = Some(top);
        }
        for (index, offset) in layout.parameters.iter().enumerate() {
            if let (Some(offset), Some(frame)) = (*offset, self.frame) {
                let base = self.field(types::I64, std::mem::offset_of!(ThreadContext, local_base));
                let copy = self.b.ins().iadd(base, frame);
                let copy = self.b.ins().iadd_imm_s(copy, offset as i64);
                let size = self.constant(types::I64, self.linked.function.parameters[index].size as i64);
                let copy_bytes = runtime::copy_bytes as *const () as usize;
                self.call_runtime(copy_bytes, &[copy, self.parameters[index], size], None);
                self.parameters[index] = copy;
            }
        }
        self.parameter_copies = layout.parameters;
        if self.linked.function.is_variadic()
            && let Some(parameter) = self.parameters.last().copied()
        {
            // The caller has said how much it passes.
            let size = self.mutable_field(types::I64, std::mem::offset_of!(ThreadContext, variadic_bytes));
            let start = self.grow_frame(size);
            let base = self.field(types::I64, std::mem::offset_of!(ThreadContext, local_base));
            let copy = self.b.ins().iadd(base, start);
            self.call_runtime(runtime::copy_bytes as *const () as usize, &[copy, parameter, size], None);
            self.variadic = Some(start);
        }
    }

    /// Makes the frame so many bytes larger, rounded up, until the function returns; gives the address of
    /// what is new.
    fn grow_frame(&mut self, size: Value) -> Value {
        let start = self.mutable_field(types::I64, std::mem::offset_of!(ThreadContext, local_top));
        let limit = self.field(types::I64, std::mem::offset_of!(ThreadContext, local_size));
        // No size is near the largest number, so that nothing wraps around.
        let is_huge = self.b.ins().icmp(IntCC::UnsignedGreaterThan, size, limit);
        self.fault_if(is_huge, FaultSite::Stack, start);
        let size = self.b.ins().iadd_imm_s(size, FRAME_UNIT - 1);
        let size = self.b.ins().band_imm_u(size, -FRAME_UNIT);
        let end = self.b.ins().iadd(start, size);
        let overflow = self.b.ins().icmp(IntCC::UnsignedGreaterThan, end, limit);
        self.fault_if(overflow, FaultSite::Stack, start);
        self.set_field(end, std::mem::offset_of!(ThreadContext, local_top));
        start
    }

    /// `alloca.type d, size{, align}`: an address of local memory.
    pub(super) fn allocate_on_stack(&mut self, instruction: &Instruction) -> Lowered {
        let mut form = Form::of(instruction);
        let scalar = form.scalar()?;
        form.finish()?;
        if let Some(Operand::Integer(align)) = instruction.operands.get(2)
            && *align > FRAME_UNIT
        {
            return unsupported("an alignment of more than 16 bytes");
        }
        let size = self.read(instruction, 1, scalar)?;
        let size = self.extend(Scalar::U64, size, types::I64);
        let start = self.grow_frame(size);
        let start = self.narrow(start, machine_type(scalar))?;
        self.write(instruction, scalar, start)
    }

    /// `stacksave.type d`
    pub(super) fn save_stack(&mut self, instruction: &Instruction) -> Lowered {
        let mut form = Form::of(instruction);
        let scalar = form.scalar()?;
        form.finish()?;
        self.expect_operands(instruction, 1)?;
        let top = self.mutable_field(types::I64, std::mem::offset_of!(ThreadContext, local_top));
        let top = self.narrow(top, machine_type(scalar))?;
        self.write(instruction, scalar, top)
    }

    /// `stackrestore.type a`, with what `stacksave` gave.
    pub(super) fn restore_stack(&mut self, instruction: &Instruction) -> Lowered {
        let mut form = Form::of(instruction);
        let scalar = form.scalar()?;
        form.finish()?;
        self.expect_operands(instruction, 1)?;
        let saved = self.read(instruction, 0, scalar)?;
        let saved = self.extend(Scalar::U64, saved, types::I64);
        let top = self.mutable_field(types::I64, std::mem::offset_of!(ThreadContext, local_top));
        // The stack only becomes smaller, whatever the program gives, but for its misuse nothing else is its
        // own.
        let is_above = self.b.ins().icmp(IntCC::UnsignedGreaterThan, saved, top);
        self.fault_if(is_above, FaultSite::Stack, saved);
        self.set_field(saved, std::mem::offset_of!(ThreadContext, local_top));
        Ok(())
    }

    /// Closes the frame of local memory and returns.
    pub(super) fn return_from_function(&mut self) {
        if let Some(frame) = self.frame {
            self.set_field(frame, std::mem::offset_of!(ThreadContext, local_top));
        }
        self.end_thread();
    }
}
