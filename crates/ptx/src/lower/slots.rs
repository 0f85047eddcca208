//! Stack slots: those of `.param` variables, and the request of an instruction that the runtime executes.
//!
//! `.param` variables that a program may read before it writes them are cleared. They lie on the native stack, where the runtime's own calls leave pointers of the worker. A program that
//! reads what it did not write must find zeros. Compilers write every argument in full right before the call,
//! in one run of instructions without labels; such variables need no clearing, which would cost time in every
//! call.

use cranelift_codegen::ir::{InstBuilder, StackSlot, StackSlotData, StackSlotKind, Value, types};

use super::Translator;
use crate::parse::syntax::{Base, Body, Name, Operand, Scalar, Space, Statement};
use crate::run::functions as runtime;
use crate::run::matrix::{MultiplyRequest, RearrangeRequest};
use crate::run::tensor::TensorCopy;
use crate::run::textures::Request;

/// Slots up to this size are cleared by stores, larger ones by a call.
const INLINE: u64 = 64;

/// For each of the body's variables, whether it is written in full before anything can read it.
pub(super) fn written_first(body: &Body) -> Vec<bool> {
    let mut progress: Vec<Progress> = body
        .variables
        .iter()
        .map(|variable| Progress {
            missing: if variable.size <= 4096 { vec![true; variable.size as usize] } else { Vec::new() },
            run: None,
            fails: variable.space != Space::Param || variable.size > 4096,
        })
        .collect();
    let mut run = 0_u64;
    for statement in &body.statements {
        let instruction = match statement {
            Statement::Label(_) => {
                run += 1;
                continue;
            }
            Statement::Instruction(instruction) => instruction,
        };
        let is_store = instruction.opcode == "st" && instruction.guard.is_none();
        for (position, operand) in instruction.operands.iter().enumerate() {
            for_each_own(operand, &mut |index, offset| {
                let scalars = instruction.modifiers.iter().filter_map(|name| Scalar::named(name));
                let lanes = match &instruction.operands.get(1) {
                    Some(Operand::Vector(parts)) => parts.len() as u64,
                    _ => 1,
                };
                let bytes = scalars.map(|scalar| u64::from(scalar.size())).min().unwrap_or(0) * lanes;
                let stored = offset.filter(|_| is_store && position == 0).map(|offset| (offset, bytes));
                progress[index].mention(run, stored);
            });
        }
    }
    progress.into_iter().map(|progress| !progress.fails).collect()
}

/// For each of the body's variables the first and the last statement that name it.
pub(super) fn mentions(body: &Body) -> Vec<Option<(usize, usize)>> {
    let mut mentions = vec![None; body.variables.len()];
    for (position, statement) in body.statements.iter().enumerate() {
        let Statement::Instruction(instruction) = statement else { continue };
        for operand in &instruction.operands {
            for_each_own(operand, &mut |index, _| {
                mentions[index].get_or_insert((position, position)).1 = position;
            });
        }
    }
    mentions
}

/// What is known about one variable so far.
struct Progress {
    /// For each byte whether nothing was written to it yet.
    missing: Vec<bool>,
    /// The run of instructions without labels that all mentions so far are in.
    run: Option<u64>,
    fails: bool,
}

impl Progress {
    /// A mention in `run`: a store of so many bytes at an offset, or anything else.
    fn mention(&mut self, run: u64, stored: Option<(i64, u64)>) {
        // Another run may be reached without this one, and then finds what was there before.
        self.fails |= *self.run.get_or_insert(run) != run;
        match stored {
            Some((offset, bytes)) => {
                let end = usize::try_from(offset).ok().and_then(|start| start.checked_add(bytes as usize));
                match end.and_then(|end| self.missing.get_mut(end - bytes as usize..end)) {
                    Some(written) => written.fill(false),
                    None => self.fails = true,
                }
            }
            None => self.fails |= self.missing.contains(&true),
        }
    }
}

/// Visits the body's own variables in an operand, with the offset where it is an address.
fn for_each_own(operand: &Operand, visit: &mut impl FnMut(usize, Option<i64>)) {
    match operand {
        Operand::Address(Base::Symbol(Name::Own(index)), offset) => visit(*index, Some(*offset)),
        Operand::Symbol(Name::Own(index), _) | Operand::Element(Name::Own(index), _) => visit(*index, None),
        Operand::Coordinates(Base::Symbol(Name::Own(index)), items) => {
            visit(*index, None);
            items.iter().for_each(|item| for_each_own(item, visit));
        }
        Operand::List(items) | Operand::Vector(items) | Operand::Coordinates(_, items) => {
            items.iter().for_each(|item| for_each_own(item, visit));
        }
        Operand::Pair(first, second) => {
            for_each_own(first, visit);
            for_each_own(second, visit);
        }
        _ => {}
    }
}

impl Translator<'_, '_> {
    /// Fills a slot of the native stack with zeros.
    pub(super) fn clear_slot(&mut self, slot: StackSlot, size: u64) {
        if size > INLINE {
            let address = self.b.ins().stack_addr(types::I64, slot, 0);
            let size = self.constant(types::I64, size as i64);
            self.call_runtime(runtime::clear as *const () as usize, &[address, size], None);
            return;
        }
        // Slots are made in whole words.
        let zero = self.constant(types::I64, 0);
        for offset in (0..size).step_by(8) {
            self.b.ins().stack_store(types::I64, zero, slot, offset as i32);
        }
    }
}

/// Bytes of a request of any kind.
const SIZE: usize = {
    let sizes = [
        size_of::<Request>(),
        size_of::<MultiplyRequest>(),
        size_of::<RearrangeRequest>(),
        size_of::<TensorCopy>(),
    ];
    let (mut maximum, mut at) = (0, 0);
    while at < sizes.len() {
        maximum = if sizes[at] > maximum { sizes[at] } else { maximum };
        at += 1;
    }
    maximum
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
