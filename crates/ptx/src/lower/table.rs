//! The instruction table: one row for each PTX opcode, which says all that is known of it.
//!
//! To add an instruction, add a row: its name, the types it exists for, what it becomes, and whether it waits
//! for other threads. Most rows name a method that reads modifiers and operands of a
//! common shape and give it what is peculiar to the instruction. A method must take every modifier it
//! understands from the [`super::form::Form`] and refuse the rest, so that nothing is ever silently done
//! differently. What types there are is in [`kind`], what it means to wait in [`Waits`].

use cranelift_codegen::ir::InstBuilder;

use super::float::{
    addition, approximate_division, division, fused, multiplication, reciprocal, square_root, subtraction,
};
use super::{Lowered, Translator};
use crate::parse::syntax::{Instruction, Operand, Scalar};
use crate::run::functions as runtime;
use crate::run::video::VideoOperation;

/// Translates one instruction.
pub(super) type Lowering = fn(&mut Translator<'_, '_>, &Instruction) -> Lowered;

/// All that is known of an opcode: whoever asks something of it asks its row.
pub(super) struct Row {
    name: &'static str,
    /// The types that its modifiers may name.
    pub(super) types: Kinds,
    pub(super) lower: Lowering,
    /// Whether it waits for what other threads do.
    pub(super) waits: Waits,
    /// Whether it only moves bits, so that its types say nothing about what the bits mean.
    pub(super) moves_bits: bool,
}

/// A row of an instruction that neither waits nor only moves bits.
const fn row(name: &'static str, types: Kinds, lower: Lowering) -> Row {
    Row { name, types, lower, waits: Waits::Never, moves_bits: false }
}

impl Row {
    const fn waits(mut self, waits: Waits) -> Self {
        self.waits = waits;
        self
    }

    const fn moves_bits(mut self) -> Self {
        self.moves_bits = true;
        self
    }
}

/// What each opcode is. In alphabetical order.
const INSTRUCTIONS: &[Row] = &[
    row("abs", INTEGER | FLOAT, |t, i| {
        if is_float(i) {
            t.float_plain(i, 1, |t, v| t.b.ins().fabs(v[0]))
        } else {
            t.integer_unary(i, |t, s, a| t.absolute(s, a))
        }
    }),
    row("activemask", WORD, |t, i| t.active_mask(i)).waits(Waits::Always),
    row("add", NUMBER | PACKED_SINGLES, |t, i| {
        if is_float(i) { t.float_rounded(i, 2, addition()) } else { t.integer_sum(i, false, false) }
    }),
    row("addc", INTEGER, |t, i| t.integer_sum(i, false, true)),
    row("alloca", WORD | LONG, |t, i| t.allocate_on_stack(i)),
    row("and", INTEGER | PREDICATE, |t, i| t.integer_binary(i, |t, _, a, b| t.b.ins().band(a, b))),
    row("applypriority", NONE, |_, _| Ok(())),
    row("atom", HALFWORD | WORD | LONG | FLOAT, |t, i| t.atomic(i, true)).waits(Waits::Polling),
    row("bar", PREDICATE | WORD, |t, i| t.barrier(i)).waits(Waits::Always),
    row("barrier", PREDICATE | WORD, |t, i| t.barrier(i)).waits(Waits::Always),
    row("bfe", WORD | LONG, |t, i| t.extract_field(i)),
    row("bfi", WORD | LONG, |t, i| t.insert_field(i)),
    row("bfind", WORD | LONG, |t, i| t.find_bit(i)),
    row("bmsk", WORD, |t, i| t.mask_of_bits(i)),
    row("bra", NONE, |t, i| t.branch(i)),
    row("brev", WORD | LONG, |t, i| t.integer_unary(i, |t, _, a| t.b.ins().bitrev(a))),
    row("brkpt", NONE, |t, _| t.trap()),
    row("brx", NONE, |t, i| t.branch_by_index(i)),
    row("call", NONE, |t, i| t.call(i)),
    row("clz", WORD | LONG, |t, i| t.count(i, |t, _, a| t.b.ins().clz(a))),
    row("cnot", INTEGER, |t, i| t.integer_unary(i, |t, s, a| t.logical_not(s, a))),
    row("copysign", SINGLE | DOUBLE, |t, i| t.float_plain(i, 2, |t, v| t.b.ins().fcopysign(v[1], v[0]))),
    row("cos", FLOAT, |t, i| t.float_function(i, runtime::cosine as *const () as usize, 0)),
    row("cp", ANY, |t, i| t.copy_async(i)),
    row("createpolicy", LONG, |t, i| t.create_policy(i)),
    row("cvt", INTEGER | FLOAT, |t, i| t.convert(i)),
    row("cvta", WORD | LONG, |t, i| t.convert_address(i)),
    row("discard", NONE, |_, _| Ok(())),
    row("div", INTEGER | FLOAT, |t, i| {
        if is_float(i) {
            let is_approximate = i.modifiers.iter().any(|modifier| modifier == "approx");
            t.float_rounded(i, 2, if is_approximate { approximate_division() } else { division() })
        } else {
            t.integer_binary(i, |t, s, a, b| t.quotient(s, a, b, false))
        }
    }),
    row("dp2a", WORD, |t, i| t.dot_product(i, 2)),
    row("dp4a", WORD, |t, i| t.dot_product(i, 4)),
    row("elect", NONE, |t, i| t.elect(i)).waits(Waits::Always),
    row("ex2", FLOAT, |t, i| t.float_function(i, runtime::exponential as *const () as usize, 0)),
    row("exit", NONE, |t, _| t.exit()),
    row("fence", NONE, |t, i| t.fence(i)).waits(Waits::Polling),
    row("fma", FLOAT | PACKED_SINGLES, |t, i| t.float_rounded(i, 3, fused())),
    row("fns", WORD, |t, i| t.find_nth_set(i)),
    row("getctarank", WORD | LONG, |t, i| t.rank_of_block(i)),
    row("griddepcontrol", NONE, |_, _| Ok(())),
    row("isspacep", NONE, |t, i| t.is_in_space(i)),
    row("ld", NUMBER, |t, i| t.load(i)).waits(Waits::PollingIfOrdered).moves_bits(),
    row("ldmatrix", ANY, |t, i| t.load_tiles(i)).waits(Waits::Always),
    row("ldu", NUMBER, |t, i| t.load(i)).moves_bits(),
    row("lg2", FLOAT, |t, i| t.float_function(i, runtime::logarithm as *const () as usize, 0)),
    row("lop3", WORD, |t, i| t.logic_of_three(i)),
    row("mad", INTEGER | FLOAT, |t, i| {
        if is_float(i) { t.float_rounded(i, 3, fused()) } else { t.integer_product(i, true, false) }
    }),
    row("mad24", WORD, |t, i| t.product_of_24_bits(i, true)),
    row("madc", INTEGER, |t, i| t.integer_product(i, true, true)),
    row("mapa", WORD | LONG, |t, i| t.map_to_block(i)).moves_bits(),
    row("match", WORD | LONG, |t, i| t.match_lanes(i)).waits(Waits::Always),
    row("max", NUMBER, |t, i| t.extremum(i, true)),
    row("mbarrier", LONG, |t, i| t.memory_barrier_object(i)).waits(Waits::Always),
    row("membar", NONE, |t, i| t.fence(i)).waits(Waits::Polling),
    row("min", NUMBER, |t, i| t.extremum(i, false)),
    row("mma", ANY, |t, i| t.multiply_matrices(i)).waits(Waits::Always),
    row("mov", NUMBER | PREDICATE, |t, i| t.move_value(i)).moves_bits(),
    row("movmatrix", ANY, |t, i| t.transpose_tile(i)).waits(Waits::Always),
    row("mul", INTEGER | FLOAT | PACKED_SINGLES, |t, i| {
        if is_float(i) { t.float_rounded(i, 2, multiplication()) } else { t.integer_product(i, false, false) }
    }),
    row("mul24", WORD, |t, i| t.product_of_24_bits(i, false)),
    row("nanosleep", WORD, |t, _| t.sleep()).waits(Waits::Always),
    row("neg", INTEGER | FLOAT, |t, i| {
        if is_float(i) {
            t.float_plain(i, 1, |t, v| t.b.ins().fneg(v[0]))
        } else {
            t.integer_unary(i, |t, _, a| t.b.ins().ineg(a))
        }
    }),
    row("not", INTEGER | PREDICATE, |t, i| {
        t.integer_unary(
            i,
            |t, s, a| if s == Scalar::Pred { t.b.ins().bxor_imm_u(a, 1) } else { t.b.ins().bnot(a) },
        )
    }),
    row("or", INTEGER | PREDICATE, |t, i| t.integer_binary(i, |t, _, a, b| t.b.ins().bor(a, b))),
    row("pmevent", NONE, |_, _| Ok(())),
    row("popc", WORD | LONG, |t, i| t.count(i, |t, _, a| t.b.ins().popcnt(a))),
    row("prefetch", NONE, |_, _| Ok(())),
    row("prefetchu", NONE, |_, _| Ok(())),
    row("prmt", WORD, |t, i| t.permute_bytes(i)),
    row("rcp", FLOAT, |t, i| t.float_rounded(i, 1, reciprocal())),
    row("red", HALFWORD | WORD | LONG | FLOAT, |t, i| t.atomic(i, false)),
    row("redux", WORD | SINGLE, |t, i| t.reduce_lanes(i)).waits(Waits::Always),
    row("rem", INTEGER, |t, i| t.integer_binary(i, |t, s, a, b| t.quotient(s, a, b, true))),
    row("ret", NONE, |t, i| t.return_instruction(i)),
    row("rsqrt", FLOAT, |t, i| {
        t.float_plain(i, 1, |t, v| {
            let (one, root) = (t.one_like(v[0]), t.b.ins().sqrt(v[0]));
            t.b.ins().fdiv(one, root)
        })
    }),
    row("sad", INTEGER, |t, i| t.sum_of_difference(i)),
    row("selp", NUMBER, |t, i| t.select_by_predicate(i)).moves_bits(),
    row("set", INTEGER | FLOAT, |t, i| t.set(i)),
    row("setmaxnreg", WORD, |t, i| t.set_register_limit(i)),
    row("setp", INTEGER | FLOAT, |t, i| t.set_predicate(i)),
    row("shf", WORD, |t, i| t.funnel_shift(i)),
    row("shfl", WORD | SINGLE, |t, i| t.shuffle(i)).waits(Waits::Always).moves_bits(),
    row("shl", INTEGER, |t, i| t.shift(i, true)),
    row("shr", INTEGER, |t, i| t.shift(i, false)),
    row("sin", FLOAT, |t, i| t.float_function(i, runtime::sine as *const () as usize, 0)),
    row("slct", NUMBER, |t, i| t.select_by_sign(i)),
    row("sqrt", FLOAT, |t, i| t.float_rounded(i, 1, square_root())),
    row("st", NUMBER, |t, i| t.store(i)).moves_bits(),
    row("stackrestore", WORD | LONG, |t, i| t.restore_stack(i)),
    row("stacksave", WORD | LONG, |t, i| t.save_stack(i)),
    row("stmatrix", ANY, |t, i| t.store_tiles(i)).waits(Waits::Always),
    row("sub", NUMBER | PACKED_SINGLES, |t, i| {
        if is_float(i) { t.float_rounded(i, 2, subtraction()) } else { t.integer_sum(i, true, false) }
    }),
    row("subc", INTEGER, |t, i| t.integer_sum(i, true, true)),
    row("suld", INTEGER, |t, i| t.load_surface(i)).moves_bits(),
    row("suq", WORD, |t, i| t.query(i)),
    row("sust", INTEGER, |t, i| t.store_surface(i)).moves_bits(),
    row("szext", WORD, |t, i| t.extend_from_position(i)),
    row("tanh", FLOAT, |t, i| t.float_function(i, runtime::hyperbolic_tangent as *const () as usize, 0)),
    row("testp", SINGLE | DOUBLE, |t, i| t.test_property(i)),
    row("tex", WORD | SINGLE | HALF | PACKED_HALVES, |t, i| t.fetch_texture(i)),
    row("tld4", WORD | SINGLE | HALF | PACKED_HALVES, |t, i| t.gather_texels(i)),
    row("trap", NONE, |t, _| t.trap()),
    row("txq", WORD, |t, i| t.query(i)),
    row("vabsdiff", WORD, |t, i| t.video_word(i, VideoOperation::AbsoluteDifference)),
    row("vabsdiff2", WORD, |t, i| t.packed_lanes(i, VideoOperation::AbsoluteDifference, 2)),
    row("vabsdiff4", WORD, |t, i| t.packed_lanes(i, VideoOperation::AbsoluteDifference, 4)),
    row("vadd", WORD, |t, i| t.video_word(i, VideoOperation::Add)),
    row("vadd2", WORD, |t, i| t.packed_lanes(i, VideoOperation::Add, 2)),
    row("vadd4", WORD, |t, i| t.packed_lanes(i, VideoOperation::Add, 4)),
    row("vavrg2", WORD, |t, i| t.packed_lanes(i, VideoOperation::Average, 2)),
    row("vavrg4", WORD, |t, i| t.packed_lanes(i, VideoOperation::Average, 4)),
    row("vmad", WORD, |t, i| t.video_product(i)),
    row("vmax", WORD, |t, i| t.video_word(i, VideoOperation::Maximum)),
    row("vmax2", WORD, |t, i| t.packed_lanes(i, VideoOperation::Maximum, 2)),
    row("vmax4", WORD, |t, i| t.packed_lanes(i, VideoOperation::Maximum, 4)),
    row("vmin", WORD, |t, i| t.video_word(i, VideoOperation::Minimum)),
    row("vmin2", WORD, |t, i| t.packed_lanes(i, VideoOperation::Minimum, 2)),
    row("vmin4", WORD, |t, i| t.packed_lanes(i, VideoOperation::Minimum, 4)),
    row("vote", PREDICATE | WORD, |t, i| t.vote(i)).waits(Waits::Always),
    row("vset", WORD, |t, i| t.video_compare(i)),
    row("vset2", WORD, |t, i| t.compare_lanes(i, 2)),
    row("vset4", WORD, |t, i| t.compare_lanes(i, 4)),
    row("vshl", WORD, |t, i| t.video_shift(i, VideoOperation::ShiftLeft)),
    row("vshr", WORD, |t, i| t.video_shift(i, VideoOperation::ShiftRight)),
    row("vsub", WORD, |t, i| t.video_word(i, VideoOperation::Subtract)),
    row("vsub2", WORD, |t, i| t.packed_lanes(i, VideoOperation::Subtract, 2)),
    row("vsub4", WORD, |t, i| t.packed_lanes(i, VideoOperation::Subtract, 4)),
    row("wmma", ANY, |t, i| t.warp_matrix(i)).waits(Waits::Always),
    row("xor", INTEGER | PREDICATE, |t, i| t.integer_binary(i, |t, _, a, b| t.b.ins().bxor(a, b))),
];

/// The row of an opcode.
pub(super) fn find(opcode: &str) -> Option<&'static Row> {
    let index = INSTRUCTIONS.binary_search_by_key(&opcode, |row| row.name).ok()?;
    Some(&INSTRUCTIONS[index])
}

/// Whether the instruction computes with floating-point numbers.
fn is_float(instruction: &Instruction) -> bool {
    instruction.modifiers.iter().filter_map(|modifier| Scalar::named(modifier)).any(Scalar::is_float)
}

/// A set of types, a bit for each kind.
pub(crate) type Kinds = u16;

pub(super) const NONE: Kinds = 0;
pub(super) const PREDICATE: Kinds = 1 << 0;
pub(super) const BYTE: Kinds = 1 << 1;
pub(super) const HALFWORD: Kinds = 1 << 2;
/// 32 bits.
pub(crate) const WORD: Kinds = 1 << 3;
pub(super) const LONG: Kinds = 1 << 4;
pub(super) const HALF: Kinds = 1 << 5;
pub(super) const PACKED_HALVES: Kinds = 1 << 6;
pub(super) const PACKED_INTEGERS: Kinds = 1 << 7;
pub(super) const SINGLE: Kinds = 1 << 8;
pub(super) const DOUBLE: Kinds = 1 << 9;
/// Two numbers of single precision in 64 bits.
pub(super) const PACKED_SINGLES: Kinds = 1 << 10;

pub(super) const INTEGER: Kinds = BYTE | HALFWORD | WORD | LONG;
pub(super) const FLOAT: Kinds = HALF | PACKED_HALVES | SINGLE | DOUBLE;
/// What fits one register and is no predicate.
pub(super) const NUMBER: Kinds = INTEGER | PACKED_INTEGERS | FLOAT;
/// The translator takes no operand's type from what is named.
pub(super) const ANY: Kinds = Kinds::MAX;

/// The set that holds this type alone.
pub(crate) fn kind(scalar: Scalar) -> Kinds {
    match scalar {
        Scalar::Pred => PREDICATE,
        Scalar::B8 | Scalar::U8 | Scalar::S8 => BYTE,
        Scalar::B16 | Scalar::U16 | Scalar::S16 => HALFWORD,
        Scalar::B32 | Scalar::U32 | Scalar::S32 => WORD,
        Scalar::B64 | Scalar::U64 | Scalar::S64 => LONG,
        Scalar::F16 | Scalar::Bf16 => HALF,
        Scalar::F16x2 | Scalar::Bf16x2 => PACKED_HALVES,
        Scalar::U16x2 | Scalar::S16x2 => PACKED_INTEGERS,
        Scalar::F32 => SINGLE,
        Scalar::F32x2 => PACKED_SINGLES,
        Scalar::F64 => DOUBLE,
        // The translator refuses it by itself, as something that it lacks.
        Scalar::B128 => Kinds::MAX,
    }
}

/// Modifiers of loads that see what other threads store meanwhile: `.cg` too, as it leaves out the cache that
/// is not coherent, so that programs poll with it.
pub(super) const ORDERED: [&str; 5] = ["volatile", "relaxed", "acquire", "cv", "cg"];

/// Whether an instruction waits for what other threads do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waits {
    /// Nothing that another thread does changes what comes of it.
    Never,
    /// It waits by itself, or gives way.
    Always,
    /// A loop around it may poll for what another thread writes: it gives a value of memory that others
    /// change, or has a plain load beside it see that.
    Polling,
    /// The same, if it is one of [`ORDERED`].
    PollingIfOrdered,
}

/// Whether an instruction is a volatile access to shared memory, which the lanes of a warp make together.
pub(super) fn steps(instruction: &Instruction) -> bool {
    let has = |word: &str| instruction.modifiers.iter().any(|modifier| modifier == word);
    matches!(instruction.opcode.as_str(), "ld" | "st")
        && has("volatile")
        && (has("shared") || has("shared::cta"))
}

impl Waits {
    /// Whether a thread may poll with this instruction, which lies in a loop or not.
    pub(super) fn polls(self, instruction: &Instruction, in_loop: bool) -> bool {
        let is_ordered = || instruction.modifiers.iter().any(|modifier| ORDERED.contains(&modifier.as_str()));
        let is_unread =
            instruction.opcode == "atom" && matches!(instruction.operands.first(), Some(Operand::Sink));
        match self {
            Self::Never | Self::Always => false,
            Self::Polling => in_loop && !is_unread,
            Self::PollingIfOrdered => in_loop && is_ordered(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Waits;
    use super::{INSTRUCTIONS, find};

    #[test]
    fn the_table_is_sorted_so_that_every_row_is_found() {
        for row in INSTRUCTIONS {
            assert!(find(row.name).is_some(), "{} is out of order", row.name);
            assert!(!crate::lacking::lacks(row.name), "{} is there", row.name);
        }
        assert!(find("wgmma").is_none());
    }

    /// The instructions that nothing of another thread can end, so that a loop around one ends by itself or
    /// never: they give no value of memory that others write. All else has to say in its row that it waits.
    #[test]
    fn what_reads_what_others_write_says_that_it_waits() {
        let computes = "abs add addc alloca and applypriority bfe bfi bfind bmsk bra brev brkpt brx call clz cnot copysign cos cp createpolicy cvt \
            cvta discard div dp2a dp4a ex2 exit fma fns getctarank griddepcontrol isspacep ldu lg2 lop3 mad mad24 madc mapa max min mov \
            mul mul24 neg not or pmevent popc prefetch prefetchu prmt rcp red rem ret rsqrt sad selp set setmaxnreg setp shf shl shr \
            sin slct sqrt st stackrestore stacksave sub subc suld suq sust szext tanh testp tex tld4 trap txq vabsdiff vabsdiff2 vabsdiff4 vadd vadd2 vadd4 vavrg2 vavrg4 vmad vmax \
            vmax2 vmax4 vmin vmin2 vmin4 vset vset2 vset4 vshl vshr vsub vsub2 vsub4 xor";
        let never: Vec<&str> =
            INSTRUCTIONS.iter().filter(|row| row.waits == Waits::Never).map(|row| row.name).collect();
        assert_eq!(never, computes.split_whitespace().collect::<Vec<_>>());
    }
}
