//! Verification of declarations and of their uses.

use super::VerifyError;
use crate::parse::syntax::{Body, Function, Instruction, Name, Operand, Scalar, Space, Variable};

/// A variable outside of functions.
pub(super) fn check_variable(variable: &Variable) -> Result<(), VerifyError> {
    // Frames of local memory belong to functions, so that one outside would lie nowhere.
    let outside = variable.space == Space::Local;
    let reason = "is in `.local` memory, which only variables inside functions can be";
    if outside { Err(wrong(variable, reason)) } else { Ok(()) }
}

pub(super) fn check_function(function: &Function) -> Result<(), VerifyError> {
    if function.is_kernel && !function.returns.is_empty() {
        return Err(VerifyError::KernelReturns { kernel: function.name.clone() });
    }
    Ok(())
}

/// A guard, and what is negated with `!`, must be a predicate.
pub(super) fn check_predicates(body: &Body, instruction: &Instruction) -> Result<(), VerifyError> {
    let guard = instruction.guard.map(|guard| guard.register);
    let negated = instruction.operands.iter().filter_map(|operand| match operand {
        Operand::Not(register) => Some(*register),
        _ => None,
    });
    if guard.into_iter().chain(negated).all(|register| body.registers[register] == Scalar::Pred) {
        return Ok(());
    }
    Err(VerifyError::instruction(instruction, "a guard or negated operand is not a predicate"))
}

/// Arguments and results of a call: each has a slot or is a register that fits into one, and there are as
/// many as the prototype says. That their sizes are those of the callee is compared where the call is
/// translated, or runs.
pub(super) fn check_call(body: &Body, instruction: &Instruction) -> Result<(), VerifyError> {
    if instruction.opcode != "call" {
        return Ok(());
    }
    let wrong = |reason: String| Err(VerifyError::instruction(instruction, reason));
    let operands = instruction.operands.as_slice();
    let (results, operands) = match operands {
        [Operand::List(results), rest @ ..] => (results.as_slice(), rest),
        _ => (&[] as &[Operand], operands),
    };
    let (arguments, prototype) = match operands {
        [_, Operand::List(arguments), rest @ ..] => (arguments.as_slice(), rest.first()),
        [_, rest @ ..] => (&[] as &[Operand], rest.first()),
        [] => return wrong("the function is missing".to_owned()),
    };
    for operand in arguments.iter().chain(results) {
        let fits = match operand {
            Operand::Symbol(Name::Own(index), 0) => body.variables[*index].space == Space::Param,
            Operand::Register(register) => body.registers[*register].size() <= 8,
            _ => false,
        };
        if !fits {
            return wrong(
                "an argument or result is neither a `.param` variable nor a register of up to 64 bits"
                    .to_owned(),
            );
        }
    }
    let Some(Operand::Table(name)) = prototype else { return Ok(()) };
    let Some(prototype) = body.prototypes.get(name) else {
        return wrong(format!("`{name}` is neither a `.callprototype` nor `.calltargets`"));
    };
    let Some(prototype) = prototype else { return Ok(()) };
    let (passed, expected) = ((arguments.len(), results.len()), (prototype.parameters, prototype.returns));
    if passed == expected {
        return Ok(());
    }
    wrong(format!(
        "it has {} arguments and {} results, and its prototype {} and {}",
        passed.0, passed.1, expected.0, expected.1
    ))
}

fn wrong(variable: &Variable, reason: &'static str) -> VerifyError {
    VerifyError::Variable { variable: variable.name.clone(), line: variable.line, reason }
}
