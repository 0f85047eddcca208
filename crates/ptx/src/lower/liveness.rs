//! Liveness of registers: which of them hold values that may still be read.
//!
//! Too many are never wrong, too few would be. So every register that an instruction names counts as read, but for what
//! the first operand of some opcodes names, which they only write.

use crate::parse::syntax::{Body, Instruction, Operand, Register, Statement};

use super::warp_synchronous::{is_jump, targets};

/// 64-bit units of all sets of a body, beyond which they are not computed.
const MAX_UNITS: usize = 1 << 21;

/// Opcodes that write what their first operand names, in full, and do not read it. In alphabetical order.
const WRITES_FIRST: [&str; 71] = [
    "abs",
    "activemask",
    "add",
    "addc",
    "and",
    "atom",
    "bfe",
    "bfi",
    "bfind",
    "bmsk",
    "brev",
    "clz",
    "cnot",
    "copysign",
    "cos",
    "cvt",
    "cvta",
    "div",
    "dp2a",
    "dp4a",
    "ex2",
    "fma",
    "fns",
    "getctarank",
    "isspacep",
    "ld",
    "ldu",
    "lg2",
    "lop3",
    "mad",
    "mad24",
    "madc",
    "mapa",
    "match",
    "max",
    "min",
    "mov",
    "mul",
    "mul24",
    "neg",
    "not",
    "or",
    "popc",
    "prmt",
    "rcp",
    "redux",
    "rem",
    "rsqrt",
    "sad",
    "selp",
    "set",
    "setp",
    "shf",
    "shfl",
    "shl",
    "shr",
    "sin",
    "slct",
    "sqrt",
    "stacksave",
    "sub",
    "subc",
    "suld",
    "szext",
    "tanh",
    "testp",
    "tex",
    "tld4",
    "txq",
    "vote",
    "xor",
];

/// For each basic block of a body the registers that are alive at its end.
pub(super) struct Liveness {
    /// The first statement of each block.
    starts: Vec<usize>,
    ends: Vec<Set>,
}

/// A bit for each register.
type Set = Vec<u64>;

impl Liveness {
    /// Finds them, if the body is not too large.
    pub(super) fn of(body: &Body) -> Option<Self> {
        let (mut starts, mut labels, mut blocks) = (Vec::new(), vec![0; body.labels], 0);
        let mut begins = true;
        for (index, statement) in body.statements.iter().enumerate() {
            let is_label = matches!(statement, Statement::Label(_));
            if begins || is_label {
                starts.push(index);
                blocks += 1;
            }
            if let Statement::Label(label) = statement {
                labels[*label] = blocks - 1;
            }
            begins = matches!(statement, Statement::Instruction(instruction) if is_jump(instruction));
        }
        let units = body.registers.len().div_ceil(64);
        if blocks * units > MAX_UNITS {
            return None;
        }
        let mut found = Self { ends: vec![vec![0; units]; blocks], starts };
        let predecessors = found.predecessors(body, &labels);
        let mut pending: Vec<usize> = (0..blocks).collect();
        let mut is_pending = vec![true; blocks];
        while let Some(block) = pending.pop() {
            is_pending[block] = false;
            let mut alive = found.ends[block].clone();
            for statement in body.statements[found.range(body, block)].iter().rev() {
                step_back(statement, &mut alive);
            }
            for &predecessor in &predecessors[block] {
                let end = &mut found.ends[predecessor];
                let grows = end.iter().zip(&alive).any(|(known, more)| more & !known != 0);
                end.iter_mut().zip(&alive).for_each(|(known, more)| *known |= more);
                if grows && !std::mem::replace(&mut is_pending[predecessor], true) {
                    pending.push(predecessor);
                }
            }
        }
        Some(found)
    }

    fn range(&self, body: &Body, block: usize) -> std::ops::Range<usize> {
        self.starts[block]..self.starts.get(block + 1).copied().unwrap_or(body.statements.len())
    }

    fn predecessors(&self, body: &Body, labels: &[usize]) -> Vec<Vec<usize>> {
        let mut predecessors = vec![Vec::new(); self.starts.len()];
        for block in 0..self.starts.len() {
            let last = self.range(body, block).next_back().map(|last| &body.statements[last]);
            let falls = match last {
                Some(Statement::Instruction(last)) => {
                    targets(body, last).for_each(|label| predecessors[labels[label]].push(block));
                    !is_jump(last) || last.guard.is_some()
                }
                _ => true,
            };
            if falls && let Some(next) = predecessors.get_mut(block + 1) {
                next.push(block);
            }
        }
        predecessors
    }

    /// The registers alive before each of these statements, which are in order: those that it reads, too. Nothing if they
    /// are more than `limit` together.
    pub(super) fn at(
        &self,
        body: &Body,
        points: &[usize],
        limit: usize,
    ) -> Option<Vec<(usize, Vec<Register>)>> {
        let mut found = Vec::with_capacity(points.len());
        let mut total = 0;
        for block in (0..self.starts.len()).rev() {
            let range = self.range(body, block);
            let first = points.partition_point(|&point| point < range.start);
            let mut left = points[first..].iter().take_while(|&&point| point < range.end).count();
            let mut alive = self.ends[block].clone();
            for index in range.rev() {
                if left == 0 {
                    break;
                }
                step_back(&body.statements[index], &mut alive);
                if points[first + left - 1] == index {
                    let registers = registers_in(&alive);
                    total += registers.len();
                    if total > limit {
                        return None;
                    }
                    found.push((index, registers));
                    left -= 1;
                }
            }
        }
        found.reverse();
        Some(found)
    }
}

fn registers_in(set: &Set) -> Vec<Register> {
    let mut registers = Vec::new();
    for (index, &unit) in set.iter().enumerate() {
        let mut left = unit;
        while left != 0 {
            registers.push(index * 64 + left.trailing_zeros() as usize);
            left &= left - 1;
        }
    }
    registers
}

/// From what is alive behind a statement to what is alive before it.
fn step_back(statement: &Statement, alive: &mut Set) {
    let Statement::Instruction(instruction) = statement else { return };
    let writes = instruction.guard.is_none() && writes_first(instruction);
    if writes && let Some(first) = instruction.operands.first() {
        first.for_each_register(&mut |register| alive[register / 64] &= !(1 << (register % 64)));
    }
    let mut reads = |register: Register| alive[register / 64] |= 1 << (register % 64);
    for operand in instruction.operands.iter().skip(usize::from(writes)) {
        operand.for_each_register(&mut reads);
    }
    if let Some(guard) = instruction.guard {
        reads(guard.register);
    }
}

/// Whether the first operand is only written. An address there is none of a result: such an instruction has no
/// result.
fn writes_first(instruction: &Instruction) -> bool {
    WRITES_FIRST.binary_search(&instruction.opcode.as_str()).is_ok()
        && matches!(
            instruction.operands.first(),
            Some(Operand::Register(_) | Operand::Vector(_) | Operand::Pair(..))
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The registers alive before each statement with this opcode.
    fn alive(opcode: &str, body: &str) -> Vec<Vec<Register>> {
        let source = format!(
            ".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry k() {{ .reg .b32 %r<8>; .reg .b64 %d<2>;
             .reg .pred %p<2>; {body} ret; }}"
        );
        let function = crate::parse::parse(&source).unwrap().functions.remove(0);
        let body = function.body.as_ref().unwrap();
        let points: Vec<usize> = (0..body.statements.len())
            .filter(|&index| {
                matches!(&body.statements[index], Statement::Instruction(instruction) if instruction.opcode == opcode)
            })
            .collect();
        let found = Liveness::of(body).unwrap().at(body, &points, 100).unwrap();
        assert_eq!(found.iter().map(|(index, _)| *index).collect::<Vec<_>>(), points);
        found.into_iter().map(|(_, registers)| registers).collect()
    }

    #[test]
    fn opcodes_are_sorted_so_that_each_is_found() {
        assert!(WRITES_FIRST.is_sorted());
        for opcode in WRITES_FIRST {
            assert!(super::super::types_of(opcode).is_some(), "{opcode}");
        }
    }

    #[test]
    fn registers_are_alive_until_their_last_use() {
        let body = "mov.u32 %r0, 1; mov.u32 %r1, 2; bar.sync 0; add.u32 %r2, %r0, 1; bar.sync 0; add.u32 %r2, %r2, %r1; \
                    bar.sync 0; st.global.u32 [%d0], %r2; bar.sync 0;";
        // Registers are numbered as they come; %d0 is read and never written.
        assert_eq!(alive("bar", body), [vec![0, 1, 3], vec![1, 2, 3], vec![2, 3], vec![]]);
    }

    #[test]
    fn loops_keep_alive_what_their_next_round_reads() {
        let body = "mov.u32 %r0, 0; mov.u32 %r1, 5; A: bar.sync 0; add.u32 %r0, %r0, 1; mov.u32 %r2, %r0; bar.sync 0; \
                    setp.lt.u32 %p0, %r2, %r1; @%p0 bra A;";
        assert_eq!(alive("bar", body), [vec![0, 1], vec![0, 1, 2]]);
    }

    #[test]
    fn what_a_guarded_instruction_writes_stays_alive() {
        let body = "mov.u32 %r0, 0; bar.sync 0; @%p0 mov.u32 %r0, 1; st.global.u32 [%d1+4], %r0;";
        assert_eq!(alive("bar", body), [vec![0, 1, 2]]);
        let vector = "bar.sync 0; ld.global.v2.u32 {%r0, %r1}, [%d0]; shfl.sync.up.b32 %r2|%p1, %r0, 1, 0, -1; bar.sync 0; \
                      @!%p1 st.global.u32 [%d0], %r1;";
        assert_eq!(alive("bar", vector), [vec![2], vec![1, 2, 4]]);
        assert_eq!(alive("shfl", vector), [vec![0, 1, 2]]);
    }
}
