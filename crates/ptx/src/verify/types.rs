//! Which types an instruction exists for.
//!
//! The translator builds one machine operation from an opcode and the machine type of a PTX type. For a type
//! that the instruction does not have, that is an operation that does not exist, or a call of the runtime
//! with an argument in the wrong kind of machine register.

use super::VerifyError;
use crate::parse::syntax::{Instruction, Scalar};

/// A set of types, a bit for each kind.
type Kinds = u16;

const PREDICATE: Kinds = 1 << 0;
const BYTE: Kinds = 1 << 1;
const HALFWORD: Kinds = 1 << 2;
const WORD: Kinds = 1 << 3;
const LONG: Kinds = 1 << 4;
const HALF: Kinds = 1 << 5;
const PACKED_HALVES: Kinds = 1 << 6;
const PACKED_INTEGERS: Kinds = 1 << 7;
const SINGLE: Kinds = 1 << 8;
const DOUBLE: Kinds = 1 << 9;

const INTEGER: Kinds = BYTE | HALFWORD | WORD | LONG;
const FLOAT: Kinds = HALF | PACKED_HALVES | SINGLE | DOUBLE;
/// What fits one register and is no predicate.
const NUMBER: Kinds = INTEGER | PACKED_INTEGERS | FLOAT;

fn kind(scalar: Scalar) -> Kinds {
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
        Scalar::F64 => DOUBLE,
        // The translator refuses it by itself, as something that it lacks.
        Scalar::B128 => Kinds::MAX,
    }
}

/// The types of an opcode; `None` when it names none, or the translator takes no operand's type from it.
fn kinds(opcode: &str) -> Option<Kinds> {
    Some(match opcode {
        "abs" | "neg" => INTEGER | FLOAT,
        "activemask" | "bmsk" | "lop3" | "prmt" | "shf" | "szext" | "dp2a" | "dp4a" | "mad24" | "mul24" => {
            WORD
        }
        "add" | "sub" | "min" | "max" => NUMBER,
        "addc" | "subc" | "madc" | "rem" | "sad" | "shl" | "shr" | "cnot" => INTEGER,
        "and" | "or" | "xor" | "not" => INTEGER | PREDICATE,
        "atom" | "red" => HALFWORD | WORD | LONG | FLOAT,
        "bfe" | "bfi" | "bfind" | "brev" | "clz" | "popc" | "match" | "cvta" => WORD | LONG,
        "copysign" | "testp" => SINGLE | DOUBLE,
        "cos" | "sin" | "ex2" | "lg2" | "tanh" | "fma" | "rcp" | "rsqrt" | "sqrt" => FLOAT,
        "cvt" | "div" | "mad" | "mul" => INTEGER | FLOAT,
        "ld" | "ldu" | "st" | "selp" | "slct" => NUMBER,
        "mov" => NUMBER | PREDICATE,
        "set" | "setp" => INTEGER | HALF | SINGLE | DOUBLE,
        "shfl" | "redux" => WORD | SINGLE,
        _ if opcode.starts_with('v') && opcode != "vote" => WORD,
        _ => return None,
    })
}

/// Checks the types that an instruction names.
pub(super) fn check(instruction: &Instruction) -> Result<(), VerifyError> {
    let Some(mut kinds) = kinds(&instruction.opcode) else { return Ok(()) };
    if matches!(instruction.opcode.as_str(), "atom" | "red") {
        kinds &= atomic_kinds(instruction);
    }
    let named = instruction.modifiers.iter().filter_map(|name| Some((name, Scalar::named(name)?)));
    for (name, scalar) in named {
        if kind(scalar) & kinds == 0 {
            let reason = format!("`{}` does not exist for `.{name}`", instruction.opcode);
            return Err(VerifyError::instruction(instruction, reason));
        }
    }
    Ok(())
}

/// What the operation of an `atom` or `red` allows.
fn atomic_kinds(instruction: &Instruction) -> Kinds {
    let has = |name: &str| instruction.modifiers.iter().any(|modifier| modifier == name);
    if has("inc") || has("dec") { WORD } else { Kinds::MAX }
}
