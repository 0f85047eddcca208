//! Suspend points of a kernel: where its threads wait, and the registers that are alive there.
//!
//! Where only the kernel itself waits, and no function that it calls, its threads need no stacks of their own: at a suspend
//! point the code saves what is alive in the thread's frame and returns, and goes on there when it is called again. A stack
//! for each thread costs more: those of a block are in no cache when they are needed.

use super::liveness::Liveness;
use crate::parse::syntax::{Body, Instruction, Register, Space, Statement};

/// Registers that all suspend points of a kernel may save together, so that its code does not become too large.
const MAX_SAVED: usize = 20_000;

/// Instructions whose request to the runtime lies on the stack, so that lanes that execute them together need one each.
const WITH_REQUEST: [&str; 5] = ["mma", "wmma", "ldmatrix", "stmatrix", "movmatrix"];

/// What a kernel saves where it waits.
#[derive(Debug)]
pub(crate) struct SuspendPoints {
    /// For each statement at which it may wait the registers that are alive, in order.
    alive: Vec<(usize, Vec<Register>)>,
    /// For each register its offset in the frame, if it is ever saved.
    offsets: Vec<Option<i32>>,
    /// Offset of the carry flag, where the kernel has one.
    carry: Option<i32>,
    /// Bytes of a thread's frame, a multiple of 16.
    pub(crate) frame_size: usize,
}

impl SuspendPoints {
    /// Those of a kernel's body, which are these statements, if its threads can do without stacks of their own. `arguments`
    /// holds for each variable of the body the first and the last statement that name it.
    pub(super) fn of(body: &Body, points: &[usize], arguments: &[Option<(usize, usize)>]) -> Option<Self> {
        if instructions(body).any(|instruction| WITH_REQUEST.contains(&instruction.opcode.as_str()))
            || arguments_span_points(body, points, arguments)
        {
            return None;
        }
        let alive = Liveness::of(body)?.at(body, points, MAX_SAVED)?;
        let mut saved: Vec<Register> = alive.iter().flat_map(|(_, registers)| registers).copied().collect();
        // The widest first, so that each lies at a multiple of its size.
        saved
            .sort_unstable_by_key(|&register| (std::cmp::Reverse(body.registers[register].size()), register));
        saved.dedup();
        let (mut offsets, mut end) = (vec![None; body.registers.len()], 0);
        for register in saved {
            offsets[register] = Some(end);
            end += body.registers[register].size().max(1) as i32;
        }
        let sets_carry = |instruction: &Instruction| instruction.modifiers.iter().any(|name| name == "cc");
        let carry = instructions(body).any(sets_carry).then_some(end);
        let frame_size = (end as usize + 1).next_multiple_of(16);
        Some(Self { alive, offsets, carry, frame_size })
    }

    /// The registers alive at a statement, and where each is saved.
    pub(super) fn saved(&self, statement: usize) -> impl Iterator<Item = (Register, i32)> + '_ {
        let found = self.alive.binary_search_by_key(&statement, |(index, _)| *index);
        let registers: &[Register] = found.map_or(&[], |index| &self.alive[index].1);
        registers.iter().filter_map(|&register| Some((register, self.offsets[register]?)))
    }

    /// Where the carry flag is saved, if the kernel has one.
    pub(super) fn carry(&self) -> Option<i32> {
        self.carry
    }
}

fn instructions(body: &Body) -> impl Iterator<Item = &Instruction> {
    body.statements.iter().filter_map(|statement| match statement {
        Statement::Instruction(instruction) => Some(instruction),
        Statement::Label(_) => None,
    })
}

/// Whether a suspend point may lie between the writing and the reading of an argument or result of a call, which are on
/// the stack.
fn arguments_span_points(body: &Body, points: &[usize], arguments: &[Option<(usize, usize)>]) -> bool {
    body.variables.iter().zip(arguments).any(|(variable, named)| {
        let Some((first, last)) = named.filter(|_| variable.space == Space::Param) else { return false };
        let next = points.partition_point(|&point| point < first);
        points.get(next).is_some_and(|&point| point <= last)
    })
}
