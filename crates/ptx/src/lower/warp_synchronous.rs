//! Warp-synchronous code without `__syncwarp`: accesses through which lanes of a warp exchange values with nothing in
//! between that synchronizes them.
//!
//! On a GPU, lanes that did not branch apart execute each instruction together, and programs rely on that, though CUDA
//! does not promise it. Here a lane runs as far as it can before the next one starts, so that the lanes of these
//! programs must converge at each access of such an exchange. That is a switch of stacks for each of them, which
//! ordinary kernels must not pay for: a loop that changes an array in place looks alike, a store and then a load from the
//! same array, but its threads have no lanes. So two things are required: accesses of this kind, and code that knows
//! what a warp is, or a block of no more than one warp.

use super::origins::{RegisterOrigins, Target};
use crate::parse::syntax::{Body, Function, Instruction, Operand, Statement};

/// Stores of a function, times loads and labels, beyond which it is not searched: time and memory grow with that.
const MAX_PAIRS: usize = 1 << 24;

/// The accesses of a function at which lanes converge, and the jumps back of loops around them.
#[derive(Default)]
pub(super) struct Exchanges {
    /// For each statement whether it is one; empty where none is.
    statements: Vec<bool>,
}

impl Exchanges {
    /// Finds loads that can be reached from a store to the same memory without anything that synchronizes lanes, and
    /// these stores.
    pub(super) fn of(function: &Function, body: &Body) -> Self {
        let mut origins = RegisterOrigins::of(body);
        let accesses: Vec<Option<Access>> = body
            .statements
            .iter()
            .map(|statement| match statement {
                Statement::Instruction(instruction) => access(&mut origins, body, instruction),
                Statement::Label(_) => None,
            })
            .collect();
        let stores: Vec<usize> = positions(&accesses, true);
        let loads = positions(&accesses, false);
        let target = |statement: usize| &accesses[statement].as_ref().expect("these are accesses").target;
        let may_alias = |load: usize, store: usize| target(load).may_alias(target(store));
        if stores.len().saturating_mul(loads.len() + body.labels) > MAX_PAIRS
            || !loads.iter().any(|&load| stores.iter().any(|&store| may_alias(load, store)))
        {
            return Self::default();
        }
        let flow = Flow::of(function, body, &stores);
        let mut statements = vec![false; body.statements.len()];
        for &load in &loads {
            for (bit, &store) in stores.iter().enumerate() {
                if may_alias(load, store) && flow.connects(bit, load) {
                    statements[load] = true;
                    statements[store] = true;
                }
            }
        }
        drop_repeated_loads(body, &accesses, &mut statements);
        if !statements.contains(&true) {
            return Self::default();
        }
        mark_loops(body, &mut statements);
        Self { statements }
    }

    /// Whether lanes converge at the statement with this index.
    pub(super) fn contains(&self, statement: usize) -> bool {
        self.statements.get(statement).copied().unwrap_or(false)
    }
}

/// What a function relies on warps for.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct WarpUse {
    /// It has accesses at which lanes have to converge.
    pub(crate) exchanges: bool,
    /// It knows what a warp is: see [`computes_with_warps`].
    pub(crate) computes: bool,
}

impl WarpUse {
    pub(crate) fn of(function: &Function) -> Self {
        let Some(body) = &function.body else { return Self::default() };
        let exchanges = !Exchanges::of(function, body).statements.is_empty();
        Self { exchanges, computes: computes_with_warps(body) }
    }
}

/// Whether a function knows what a warp is: it has operations of one, or computes with the number of the thread and the
/// size of a warp.
fn computes_with_warps(body: &Body) -> bool {
    let origins = RegisterOrigins::of(body);
    body.statements.iter().any(|statement| {
        let Statement::Instruction(instruction) = statement else { return false };
        let operands = &instruction.operands;
        let names_lanes = operands
            .iter()
            .any(|operand| matches!(operand, Operand::Special(name) if name.starts_with("lane") || name == "warpid"));
        let of_index = || operands.iter().skip(1).any(|operand| origins.is_from_index(operand));
        let has = |numbers: &[i64]| {
            operands.iter().any(|operand| matches!(operand, Operand::Integer(number) if numbers.contains(number)))
        };
        names_lanes
            || match instruction.opcode.as_str() {
                "shfl" | "vote" | "match" | "activemask" | "redux" | "elect" => true,
                "bar" | "barrier" => instruction.modifiers.iter().any(|modifier| modifier == "warp"),
                "and" => has(&[31, -32, 0xffff_ffe0]) && of_index(),
                "shr" => has(&[5, 27, 59]) && of_index(),
                "rem" | "div" => has(&[32]) && of_index(),
                "bfe" => has(&[5]) && of_index(),
                "setp" => has(&[2, 4, 8, 15, 16, 31, 32]) && of_index(),
                _ => false,
            }
    })
}

/// Modifiers of accesses by which lanes exchange nothing: to memory of one thread or memory that is not written, and those
/// that name an order of PTX's memory model, whose authors do not count on lanes that run at the same time.
const WITHOUT_EXCHANGE: [&str; 9] =
    ["param", "local", "const", "nc", "async", "relaxed", "acquire", "release", "mmio"];

/// An access to memory that several threads have.
struct Access {
    is_store: bool,
    target: Target,
}

fn access(origins: &mut RegisterOrigins, body: &Body, instruction: &Instruction) -> Option<Access> {
    let has = |word: &str| instruction.modifiers.iter().any(|modifier| modifier == word);
    let is_store = instruction.opcode == "st";
    if !is_store && instruction.opcode != "ld" || WITHOUT_EXCHANGE.into_iter().any(has) {
        return None;
    }
    let target = origins.target(body, instruction.operands.get(usize::from(!is_store))?)?;
    Some(Access { is_store, target })
}

fn positions(accesses: &[Option<Access>], stores: bool) -> Vec<usize> {
    let matches = |access: &Option<Access>| access.as_ref().is_some_and(|access| access.is_store == stores);
    (0..accesses.len()).filter(|&statement| matches(&accesses[statement])).collect()
}

/// Whether no lane that comes to an instruction passes it before the others of its warp have come. One behind a guard may
/// be passed.
fn synchronizes(instruction: &Instruction) -> bool {
    let has = |word: &str| instruction.modifiers.iter().any(|modifier| modifier == word);
    instruction.guard.is_none()
        && match instruction.opcode.as_str() {
            "bar" | "barrier" => !has("arrive"),
            _ => has("sync"),
        }
}

/// Between a load at which lanes converge and the next store, lanes need not converge again.
fn drop_repeated_loads(body: &Body, accesses: &[Option<Access>], statements: &mut [bool]) {
    let mut are_converged = false;
    for (index, statement) in body.statements.iter().enumerate() {
        let Statement::Instruction(instruction) = statement else {
            are_converged = false;
            continue;
        };
        let is_load = accesses[index].as_ref().is_some_and(|access| !access.is_store);
        if is_load && statements[index] {
            statements[index] = !are_converged;
            are_converged |= instruction.guard.is_none();
        } else if !is_load
            && (accesses[index].is_some() || ["call", "atom", "red"].contains(&&*instruction.opcode))
        {
            are_converged = false;
        }
    }
}

/// Has lanes converge before the jumps back of loops with such accesses, too: one that skips an access must not come
/// to it in the next round while others are there in this one.
fn mark_loops(body: &Body, statements: &mut [bool]) {
    let mut labels = vec![usize::MAX; body.labels];
    let mut jumps = Vec::new();
    for (index, statement) in body.statements.iter().enumerate() {
        match statement {
            Statement::Label(label) => labels[*label] = index,
            // Labels behind the jump are not known yet.
            Statement::Instruction(instruction) => {
                jumps.extend(targets(body, instruction).map(|label| (labels[label], index)));
            }
        }
    }
    let marked: Vec<usize> = (0..statements.len()).filter(|&index| statements[index]).collect();
    for (start, end) in jumps.into_iter().filter(|&(start, end)| start < end) {
        let next = marked.partition_point(|&index| index < start);
        statements[end] |= marked.get(next).is_some_and(|&index| index < end);
    }
}

/// The labels that an instruction may jump to.
pub(super) fn targets<'b>(body: &'b Body, instruction: &'b Instruction) -> impl Iterator<Item = usize> + 'b {
    instruction
        .operands
        .iter()
        .flat_map(|operand| match operand {
            Operand::Label(label) => std::slice::from_ref(label),
            Operand::Table(name) => body.branch_tables.get(name).map_or(&[][..], Vec::as_slice),
            _ => &[],
        })
        .copied()
}

/// Which stores reach which statements.
struct Flow {
    /// For each statement the number of its block.
    blocks: Vec<usize>,
    /// For each block the stores that reach its start, a bit each.
    entries: Vec<Vec<u64>>,
    starts: Vec<usize>,
    /// For each store its statement.
    stores: Vec<usize>,
    /// For each statement the last one before it in its block that synchronizes, or else its block's first, and which of
    /// both it is.
    barriers: Vec<(usize, bool)>,
    /// The same for the end of each block.
    exits: Vec<(usize, bool)>,
}

impl Flow {
    fn of(function: &Function, body: &Body, stores: &[usize]) -> Self {
        let statements = &body.statements;
        let mut blocks = Vec::with_capacity(statements.len());
        let mut starts = Vec::new();
        let mut labels = vec![0; body.labels];
        let mut ends_here = true;
        for (index, statement) in statements.iter().enumerate() {
            let is_label = matches!(statement, Statement::Label(_));
            if ends_here || is_label {
                starts.push(index);
            }
            blocks.push(starts.len() - 1);
            if let Statement::Label(label) = statement {
                labels[*label] = starts.len() - 1;
            }
            ends_here = matches!(statement, Statement::Instruction(instruction) if is_jump(instruction));
        }
        let len = stores.len().div_ceil(64);
        let mut flow = Self {
            entries: vec![vec![0; len]; starts.len()],
            barriers: Vec::with_capacity(statements.len()),
            exits: vec![(0, false); starts.len()],
            blocks,
            starts,
            stores: stores.to_vec(),
        };
        let mut last = (0, false);
        for (index, statement) in statements.iter().enumerate() {
            if flow.starts[flow.blocks[index]] == index {
                last = (index, false);
            }
            flow.barriers.push(last);
            if matches!(statement, Statement::Instruction(instruction) if synchronizes(instruction)) {
                last = (index, true);
            }
            flow.exits[flow.blocks[index]] = last;
        }
        let mut pending: Vec<usize> = (0..flow.starts.len()).rev().collect();
        while let Some(block) = pending.pop() {
            let end = flow.starts.get(block + 1).copied().unwrap_or(statements.len());
            let exit = flow.exit(block, end);
            for next in successors(function, body, &labels, block, end) {
                if next >= flow.entries.len() {
                    continue;
                }
                let entry = &mut flow.entries[next];
                let grows = entry.iter().zip(&exit).any(|(known, more)| more & !known != 0);
                if grows {
                    entry.iter_mut().zip(&exit).for_each(|(known, more)| *known |= more);
                    pending.push(next);
                }
            }
        }
        flow
    }

    /// The stores that reach the end of a block.
    fn exit(&self, block: usize, end: usize) -> Vec<u64> {
        let (last, synchronizes) = self.exits[block];
        let mut exit =
            if synchronizes { vec![0; self.entries[block].len()] } else { self.entries[block].clone() };
        let first = self.stores.partition_point(|&store| store < last);
        for (bit, &store) in self.stores.iter().enumerate().skip(first) {
            if store >= end {
                break;
            }
            exit[bit / 64] |= 1 << (bit % 64);
        }
        exit
    }

    /// Whether there is a way from a store, given as its bit, to a statement with nothing that synchronizes.
    fn connects(&self, bit: usize, statement: usize) -> bool {
        let (last, synchronizes) = self.barriers[statement];
        let entry = &self.entries[self.blocks[statement]];
        let enters = !synchronizes && entry[bit / 64] & 1 << (bit % 64) != 0;
        enters || (last..statement).contains(&self.stores[bit])
    }
}

/// Whether code behind an instruction may be left out.
pub(super) fn is_jump(instruction: &Instruction) -> bool {
    matches!(instruction.opcode.as_str(), "bra" | "brx" | "ret" | "exit" | "trap")
}

/// The blocks that may follow a block, which ends before the statement `end`.
fn successors(function: &Function, body: &Body, labels: &[usize], block: usize, end: usize) -> Vec<usize> {
    let Some(Statement::Instruction(last)) = end.checked_sub(1).and_then(|last| body.statements.get(last))
    else {
        return vec![block + 1];
    };
    let mut next = Vec::new();
    if !is_jump(last) || last.guard.is_some() {
        next.push(block + 1);
    }
    if is_jump(last) {
        next.extend(targets(body, last).map(|label| labels[label]));
    }
    // A device function may be called again.
    if !function.is_kernel && (last.opcode == "ret" || end == body.statements.len()) {
        next.push(0);
    }
    next
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The statements of a kernel at which lanes converge, and whether it computes with warps.
    fn found(body: &str) -> (Vec<usize>, bool) {
        let source = format!(
            ".version 8.0\n.target sm_75\n.address_size 64\n
             .visible .entry k(.param .u64 p, .param .u64 q, .param .u64 n) {{
                 .reg .b32 %r<8>; .reg .b64 %rd<9>; .reg .pred %p<4>; .shared .align 4 .b8 array[256];
                 ld.param.u64 %rd0, [p]; ld.param.u64 %rd1, [q]; mov.u32 %r0, %tid.x;
                 mad.wide.u32 %rd2, %r0, 4, %rd0; mad.wide.u32 %rd3, %r0, 4, %rd1;
                 {body} ret; }}"
        );
        let function = crate::parse::parse(&source).unwrap().functions.remove(0);
        let body = function.body.as_ref().unwrap();
        let exchanges = Exchanges::of(&function, body);
        // Behind the five statements of all.
        let statements = (0..exchanges.statements.len()).filter(|&statement| exchanges.contains(statement));
        (statements.map(|statement| statement - 5).collect(), computes_with_warps(body))
    }

    #[test]
    fn a_load_behind_a_store_to_the_same_array_is_an_exchange() {
        let exchange = "st.global.u32 [%rd2], %r1; ld.global.u32 %r2, [%rd2+4]; ld.global.u32 %r3, [%rd2+8];";
        assert_eq!(found(exchange).0, [0, 1], "the second load needs nothing more");
        let guarded = exchange.replace("ld.global.u32 %r2", "@%p0 ld.global.u32 %r2");
        assert_eq!(found(&guarded).0, [0, 1, 2], "not all lanes converged at the first");
        let stored = "st.global.u32 [%rd2], %r1; ld.global.u32 %r2, [%rd2+4]; st.global.u32 [%rd2], %r2; ld.global.u32 %r2, [%rd2+8];";
        assert_eq!(found(stored).0, [0, 1, 2, 3]);
        let looped = "A: ld.global.u32 %r2, [%rd2+4]; st.global.u32 [%rd2], %r2; @%p0 bra A;";
        assert_eq!(found(looped).0, [1, 2, 3], "behind the label, and at its end, by the way of the loop");
        assert_eq!(
            found("ld.global.u32 %r2, [%rd2+4]; st.global.u32 [%rd2], %r2;").0,
            [0; 0],
            "only before it"
        );
        let branch = "@%p0 bra B; st.global.u32 [%rd2], %r1; bra C; B: ld.global.u32 %r2, [%rd2+4]; C:";
        assert_eq!(found(branch).0, [0; 0], "on another way");
        let uniform = "st.global.u32 [%rd0], %r1; ld.global.u32 %r2, [%rd0];";
        assert_eq!(found(uniform).0, [0, 1], "one element of all lanes");
        let shared = "st.shared.u32 [array], %r1; ld.shared.u32 %r2, [array];";
        assert_eq!(found(shared).0, [0, 1], "of shared memory");
    }

    #[test]
    fn what_is_synchronized_or_of_one_thread_is_none() {
        for between in ["bar.sync 0;", "bar.warp.sync -1;", "vote.sync.any.pred %p0, %p1, -1;"] {
            let code = format!("st.global.u32 [%rd2], %r1; {between} ld.global.u32 %r2, [%rd2+4];");
            assert_eq!(found(&code).0, [0; 0], "{between}");
            let code = code.replace(between, &format!("@%p2 {between}"));
            assert_eq!(found(&code).0, [0, 2], "a guarded {between}");
        }
        for code in [
            "A: ld.global.u32 %r2, [%rd2]; st.global.u32 [%rd2], %r2; @%p0 bra A;",
            "A: ld.global.u32 %r2, [%rd2+4]; st.global.u32 [%rd3], %r2; @%p0 bra A;",
            "A: ld.global.nc.u32 %r2, [%rd2+4]; st.global.u32 [%rd2], %r2; @%p0 bra A;",
            "st.relaxed.sys.global.u32 [%rd2], %r1; ld.relaxed.sys.global.u32 %r2, [%rd2+4];",
            "st.release.gpu.global.u32 [%rd2], %r1; ld.acquire.gpu.global.u32 %r2, [%rd2+4];",
            ".local .align 4 .b8 own[64]; A: ld.local.u32 %r2, [own]; st.local.u32 [own+4], %r2; @%p0 bra A;",
            ".local .align 4 .b8 own[64]; mov.u64 %rd4, own; cvta.local.u64 %rd4, %rd4; A: ld.u32 %r2, [%rd4];
             st.u32 [%rd4+4], %r2; @%p0 bra A;",
        ] {
            assert_eq!(found(code).0, [0; 0], "{code}");
        }
        let loaded = "A: ld.global.u64 %rd4, [%rd0]; ld.global.u32 %r2, [%rd4]; st.global.u32 [%rd4+4], %r2; @%p0 bra A;";
        assert!(!found(loaded).0.is_empty(), "through a pointer that is loaded");
    }

    #[test]
    fn code_that_computes_with_lanes_knows_warps() {
        for code in [
            "mov.u32 %r1, %laneid;",
            "and.b32 %r1, %r0, 31;",
            "and.b32 %r1, %r0, -32;",
            "shr.u32 %r1, %r0, 5;",
            "add.u32 %r1, %r0, 7; shr.s32 %r2, %r1, 5;",
            "setp.lt.u32 %p0, %r0, 32;",
            "shfl.sync.bfly.b32 %r1, %r2, 1, 31, -1;",
            "activemask.b32 %r1;",
            "bar.warp.sync -1;",
        ] {
            assert!(found(code).1, "{code}");
        }
        for code in
            ["and.b32 %r1, %r2, 31;", "shr.u32 %r1, %r0, 4;", "bar.sync 0;", "setp.lt.u32 %p0, %r0, 100;"]
        {
            assert!(!found(code).1, "{code}");
        }
    }
}
