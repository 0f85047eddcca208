//! The instruction table: one entry for each PTX opcode.
//!
//! To add an instruction, add a line. Most entries name a method that reads modifiers and operands of a
//! common shape and give it what is peculiar to the instruction. A method must take every modifier it
//! understands from the [`super::form::Form`] and refuse the rest, so that nothing is ever silently done
//! differently.

use cranelift_codegen::ir::InstBuilder;

use super::float::{addition, division, fused, multiplication, reciprocal, square_root, subtraction};
use super::{Lowered, Translator};
use crate::parse::syntax::{Instruction, Scalar};
use crate::run::functions as runtime;
use crate::run::functions::PackedOperation;

/// Translates one instruction.
pub(super) type Lowering = fn(&mut Translator<'_, '_>, &Instruction) -> Lowered;

/// What an opcode becomes. In alphabetical order.
const INSTRUCTIONS: &[(&str, Lowering)] = &[
    ("abs", |t, i| {
        if is_float(i) {
            t.float_plain(i, 1, |t, v| t.b.ins().fabs(v[0]))
        } else {
            t.integer_unary(i, |t, s, a| t.absolute(s, a))
        }
    }),
    ("activemask", |t, i| t.active_mask(i)),
    (
        "add",
        |t, i| if is_float(i) { t.float_rounded(i, 2, addition()) } else { t.integer_sum(i, false, false) },
    ),
    ("addc", |t, i| t.integer_sum(i, false, true)),
    ("and", |t, i| t.integer_binary(i, |t, _, a, b| t.b.ins().band(a, b))),
    ("atom", |t, i| t.atomic(i, true)),
    ("bar", |t, i| t.barrier(i)),
    ("barrier", |t, i| t.barrier(i)),
    ("bfe", |t, i| t.extract_field(i)),
    ("bfi", |t, i| t.insert_field(i)),
    ("bfind", |t, i| t.find_bit(i)),
    ("bmsk", |t, i| t.mask_of_bits(i)),
    ("bra", |t, i| t.branch(i)),
    ("brev", |t, i| t.integer_unary(i, |t, _, a| t.b.ins().bitrev(a))),
    ("brkpt", |t, _| t.trap()),
    ("brx", |t, i| t.branch_by_index(i)),
    ("call", |t, i| t.call(i)),
    ("clz", |t, i| t.count(i, |t, _, a| t.b.ins().clz(a))),
    ("cnot", |t, i| t.integer_unary(i, |t, s, a| t.logical_not(s, a))),
    ("copysign", |t, i| t.float_plain(i, 2, |t, v| t.b.ins().fcopysign(v[1], v[0]))),
    ("cos", |t, i| t.float_function(i, runtime::cosine as *const () as usize, 0)),
    ("cp", |t, i| t.copy_async(i)),
    ("cvt", |t, i| t.convert(i)),
    ("cvta", |t, i| t.convert_address(i)),
    ("discard", |_, _| Ok(())),
    ("div", |t, i| {
        if is_float(i) {
            t.float_rounded(i, 2, division())
        } else {
            t.integer_binary(i, |t, s, a, b| t.quotient(s, a, b, false))
        }
    }),
    ("dp2a", |t, i| t.dot_product(i, 2)),
    ("dp4a", |t, i| t.dot_product(i, 4)),
    ("elect", |t, i| t.elect(i)),
    ("ex2", |t, i| t.float_function(i, runtime::exponential as *const () as usize, 0)),
    ("exit", |t, _| t.exit()),
    ("fence", |t, i| t.fence(i)),
    ("fma", |t, i| t.float_rounded(i, 3, fused())),
    ("griddepcontrol", |_, _| Ok(())),
    ("isspacep", |t, i| t.is_in_space(i)),
    ("ld", |t, i| t.load(i)),
    ("ldu", |t, i| t.load(i)),
    ("lg2", |t, i| t.float_function(i, runtime::logarithm as *const () as usize, 0)),
    ("lop3", |t, i| t.logic_of_three(i)),
    (
        "mad",
        |t, i| if is_float(i) { t.float_rounded(i, 3, fused()) } else { t.integer_product(i, true, false) },
    ),
    ("mad24", |t, i| t.product_of_24_bits(i, true)),
    ("madc", |t, i| t.integer_product(i, true, true)),
    ("match", |t, i| t.match_lanes(i)),
    ("max", |t, i| t.extremum(i, true)),
    ("mbarrier", |t, i| t.memory_barrier_object(i)),
    ("membar", |t, i| t.fence(i)),
    ("min", |t, i| t.extremum(i, false)),
    ("mov", |t, i| t.move_value(i)),
    ("mul", |t, i| {
        if is_float(i) { t.float_rounded(i, 2, multiplication()) } else { t.integer_product(i, false, false) }
    }),
    ("mul24", |t, i| t.product_of_24_bits(i, false)),
    ("nanosleep", |t, _| t.sleep()),
    ("neg", |t, i| {
        if is_float(i) {
            t.float_plain(i, 1, |t, v| t.b.ins().fneg(v[0]))
        } else {
            t.integer_unary(i, |t, _, a| t.b.ins().ineg(a))
        }
    }),
    ("not", |t, i| {
        t.integer_unary(
            i,
            |t, s, a| if s == Scalar::Pred { t.b.ins().bxor_imm_u(a, 1) } else { t.b.ins().bnot(a) },
        )
    }),
    ("or", |t, i| t.integer_binary(i, |t, _, a, b| t.b.ins().bor(a, b))),
    ("popc", |t, i| t.count(i, |t, _, a| t.b.ins().popcnt(a))),
    ("prefetch", |_, _| Ok(())),
    ("prefetchu", |_, _| Ok(())),
    ("prmt", |t, i| t.permute_bytes(i)),
    ("rcp", |t, i| t.float_rounded(i, 1, reciprocal())),
    ("red", |t, i| t.atomic(i, false)),
    ("redux", |t, i| t.reduce_lanes(i)),
    ("rem", |t, i| t.integer_binary(i, |t, s, a, b| t.quotient(s, a, b, true))),
    ("ret", |t, i| t.return_instruction(i)),
    ("rsqrt", |t, i| {
        t.float_plain(i, 1, |t, v| {
            let (one, root) = (t.one_like(v[0]), t.b.ins().sqrt(v[0]));
            t.b.ins().fdiv(one, root)
        })
    }),
    ("sad", |t, i| t.sum_of_difference(i)),
    ("selp", |t, i| t.select_by_predicate(i)),
    ("set", |t, i| t.set(i)),
    ("setp", |t, i| t.set_predicate(i)),
    ("shf", |t, i| t.funnel_shift(i)),
    ("shfl", |t, i| t.shuffle(i)),
    ("shl", |t, i| t.shift(i, true)),
    ("shr", |t, i| t.shift(i, false)),
    ("sin", |t, i| t.float_function(i, runtime::sine as *const () as usize, 0)),
    ("slct", |t, i| t.select_by_sign(i)),
    ("sqrt", |t, i| t.float_rounded(i, 1, square_root())),
    ("st", |t, i| t.store(i)),
    (
        "sub",
        |t, i| if is_float(i) { t.float_rounded(i, 2, subtraction()) } else { t.integer_sum(i, true, false) },
    ),
    ("subc", |t, i| t.integer_sum(i, true, true)),
    ("szext", |t, i| t.extend_from_position(i)),
    ("tanh", |t, i| t.float_function(i, runtime::hyperbolic_tangent as *const () as usize, 0)),
    ("testp", |t, i| t.test_property(i)),
    ("trap", |t, _| t.trap()),
    ("vabsdiff2", |t, i| t.packed_lanes(i, PackedOperation::AbsoluteDifference, 2)),
    ("vabsdiff4", |t, i| t.packed_lanes(i, PackedOperation::AbsoluteDifference, 4)),
    ("vadd2", |t, i| t.packed_lanes(i, PackedOperation::Add, 2)),
    ("vadd4", |t, i| t.packed_lanes(i, PackedOperation::Add, 4)),
    ("vavrg2", |t, i| t.packed_lanes(i, PackedOperation::Average, 2)),
    ("vavrg4", |t, i| t.packed_lanes(i, PackedOperation::Average, 4)),
    ("vmax2", |t, i| t.packed_lanes(i, PackedOperation::Maximum, 2)),
    ("vmax4", |t, i| t.packed_lanes(i, PackedOperation::Maximum, 4)),
    ("vmin2", |t, i| t.packed_lanes(i, PackedOperation::Minimum, 2)),
    ("vmin4", |t, i| t.packed_lanes(i, PackedOperation::Minimum, 4)),
    ("vote", |t, i| t.vote(i)),
    ("vsub2", |t, i| t.packed_lanes(i, PackedOperation::Subtract, 2)),
    ("vsub4", |t, i| t.packed_lanes(i, PackedOperation::Subtract, 4)),
    ("xor", |t, i| t.integer_binary(i, |t, _, a, b| t.b.ins().bxor(a, b))),
];

/// The entry of an opcode.
pub(super) fn find(opcode: &str) -> Option<Lowering> {
    let index = INSTRUCTIONS.binary_search_by_key(&opcode, |(name, _)| name).ok()?;
    Some(INSTRUCTIONS[index].1)
}

/// Whether the instruction computes with floating-point numbers.
fn is_float(instruction: &Instruction) -> bool {
    instruction.modifiers.iter().filter_map(|modifier| Scalar::named(modifier)).any(Scalar::is_float)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_table_is_sorted_so_that_every_entry_is_found() {
        for (name, _) in super::INSTRUCTIONS {
            assert!(super::find(name).is_some(), "{name} is out of order");
        }
        assert!(super::find("wgmma").is_none());
        for (name, _) in super::INSTRUCTIONS {
            assert!(!crate::lacking::lacks(name), "{name} is there");
        }
    }
}
