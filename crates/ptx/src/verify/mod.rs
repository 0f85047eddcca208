//! Decides whether a linked program may be translated at all. A program comes from anyone who may open a
//! session, so what the translator relies on is checked here, once, before any of it is done.
//!
//! | module | contents |
//! | --- | --- |
//! | `limits` | How much of everything a program may have |
//! | `declarations` | Verification of declarations and of their uses |
//! | `types` | Which types an instruction exists for |
//! | `error` | Why a program does not pass |
//!
//! Names, labels and registers need no check: the parser resolves each where it is used and refuses what is
//! not declared, and a label of another function has no name here. A register that is read on a path on which
//! nothing was written to it holds zero, since compilers do emit such paths (an accumulator that only some
//! loop iterations set).
//!
//! # What keeps a kernel in its own memory
//!
//! * Addresses that a program computes are checked when they are used, by `lower/access.rs`: against the
//!   device's address space (global, constant and generic ones), the block's shared memory or the thread's
//!   local memory. Local memory is part of the address space; nothing that has an address lies on the native
//!   stack.
//! * The slots of `.param` variables lie on the native stack, and no address of one can be had: instructions
//!   name slot and offset, and `lower/access.rs` refuses those outside of the slot. A callee gets pointers to
//!   its caller's slots, which is sound since sizes are equal: compared here for a direct call, and by number
//!   ([`crate::signature::SignatureId`]) when an indirect call runs. Slots are cleared where the program
//!   might read what it did not write (`lower/slots.rs`), since they may hold the worker's pointers.
//! * The code that Cranelift is given is well typed: [`types`] refuses what the instruction table would
//!   mistranslate, and Cranelift's own verifier runs in every build, not in debug builds alone.
//! * Frames are bounded: every function that has a frame or calls compares its stack pointer with the limit
//!   first, its whole frame included (so that no frame is large enough to jump over anything), and leaves
//!   what `memory/stack.rs` reserves to the runtime.

mod declarations;
mod error;
mod limits;
mod types;

pub use error::VerifyError;

use crate::link::{Image, LinkedFunction};
use crate::parse::syntax::{Body, Instruction, Statement};

/// The first thing that is wrong with a program, with the source it is in.
pub(crate) fn verify(image: &Image) -> Result<(), (usize, VerifyError)> {
    limits::check_program(image).map_err(|error| (0, error))?;
    for (variable, &module) in image.variables.iter().zip(&image.variable_modules) {
        declarations::check_variable(variable).map_err(|error| (module, error))?;
    }
    image
        .functions
        .iter()
        .try_for_each(|linked| verify_function(linked).map_err(|error| (linked.module, error)))
}

/// Whether a source is short enough to be parsed.
pub(crate) fn check_source(source: &str) -> Result<(), VerifyError> {
    limits::check_source(source)
}

fn verify_function(linked: &LinkedFunction) -> Result<(), VerifyError> {
    let function = &linked.function;
    declarations::check_function(function)?;
    let Some(body) = &function.body else { return Ok(()) };
    limits::check_body(function, body)?;
    for instruction in instructions(body) {
        types::check(instruction)?;
        declarations::check_predicates(body, instruction)?;
        declarations::check_call(body, instruction)?;
    }
    Ok(())
}

fn instructions(body: &Body) -> impl Iterator<Item = &Instruction> {
    body.statements.iter().filter_map(|statement| match statement {
        Statement::Instruction(instruction) => Some(instruction),
        Statement::Label(_) => None,
    })
}
