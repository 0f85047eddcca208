//! Which types an instruction exists for.
//!
//! The translator builds one machine operation from an opcode and the machine type of a PTX type. For a type
//! that the instruction does not have, that is an operation that does not exist, or a call of the runtime
//! with an argument in the wrong kind of machine register.

use super::VerifyError;
use crate::lacking::lacks;
use crate::lower::{Kinds, WORD, kind, types_of};
use crate::parse::syntax::{Instruction, Scalar};

/// Checks that there is such an instruction for the types that it names.
pub(super) fn check(instruction: &Instruction) -> Result<(), VerifyError> {
    let Some(mut kinds) = types_of(&instruction.opcode) else {
        // A kernel that has it is refused by itself when it is translated.
        if lacks(&instruction.opcode) {
            return Ok(());
        }
        return Err(VerifyError::instruction(instruction, "no version of PTX has such an instruction"));
    };
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
