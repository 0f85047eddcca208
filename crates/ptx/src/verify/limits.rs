//! How much of everything a program may have.
//!
//! The limits lie far above what compilers emit; they keep sizes from overflowing, and tables and the time to
//! translate within what the text's own size explains.

use super::VerifyError;
use crate::link::Image;
use crate::memory::Arena;
use crate::parse::syntax::{Body, Function, Register, Space, Statement};

/// Bytes of one source.
const SOURCE_BYTES: u64 = 64 << 20;
const FUNCTIONS: u64 = 1 << 16;
/// Functions times kernels: each kernel has tables of all functions while it is laid out.
const FUNCTIONS_BY_KERNELS: u64 = 1 << 28;
const PARAMETERS: u64 = 4096;
const STATEMENTS: u64 = 1 << 20;
const LABELS: u64 = 1 << 17;
/// Bytes of the `.param` variables of one body, which lie on the native stack. A thread has less stack than
/// this.
const PARAMETER_SLOT_BYTES: u64 = 1 << 20;

/// Registers times the instructions over which each is in use. Allocating machine registers takes time and up
/// to some 70 bytes for each such pair: a text of 1 MiB, with tens of thousands of registers in use all the
/// time, would take more than 20 GiB. Large kernels that compilers make have a few million.
const REGISTER_USE: u64 = 1 << 26;

pub(super) fn check_source(source: &str) -> Result<(), VerifyError> {
    at_most(|| "the source".to_owned(), "bytes", source.len() as u64, SOURCE_BYTES)
}

pub(super) fn check_program(image: &Image) -> Result<(), VerifyError> {
    let program = || "the program".to_owned();
    let kernels = image.functions.iter().filter(|linked| linked.function.is_kernel).count() as u64;
    let functions = image.functions.len() as u64;
    at_most(program, "functions", functions, FUNCTIONS)?;
    at_most(program, "pairs of a kernel and a function", functions * kernels, FUNCTIONS_BY_KERNELS)
}

pub(super) fn check_body(function: &Function, body: &Body) -> Result<(), VerifyError> {
    let subject = || format!("function `{}`", function.name);
    let operands = body.statements.iter().map(|statement| match statement {
        Statement::Instruction(instruction) => instruction.operands.len() as u64,
        Statement::Label(_) => 0,
    });
    for (what, count, limit) in [
        ("parameters", function.parameters.len() as u64, PARAMETERS),
        ("results", function.returns.len() as u64, PARAMETERS),
        ("instructions and labels", body.statements.len() as u64, STATEMENTS),
        ("labels", body.labels as u64, LABELS),
        ("operands of one instruction", operands.max().unwrap_or(0), PARAMETERS),
        ("pairs of a register and an instruction that it is in use at", register_use(body), REGISTER_USE),
        ("bytes of `.param` variables", bytes(body, Space::Param), PARAMETER_SLOT_BYTES),
        ("bytes of `.local` variables", bytes(body, Space::Local), Arena::local_limit(1)),
        (
            "bytes of `.shared` variables",
            bytes(body, Space::Shared),
            u64::from(crate::limits::MAX_SHARED_PER_BLOCK),
        ),
    ] {
        at_most(subject, what, count, limit)?;
    }
    Ok(())
}

/// The sum over all registers of the statements between the first mention in the text and the last one.
fn register_use(body: &Body) -> u64 {
    let mut uses: Vec<Option<(u64, u64)>> = vec![None; body.registers.len()];
    for (position, statement) in (0..).zip(&body.statements) {
        let Statement::Instruction(instruction) = statement else { continue };
        let mut mention = |register: Register| {
            uses[register].get_or_insert((position, position)).1 = position;
        };
        if let Some(guard) = instruction.guard {
            mention(guard.register);
        }
        instruction.operands.iter().for_each(|operand| operand.for_each_register(&mut mention));
    }
    uses.into_iter().flatten().map(|(first, last)| last - first + 1).sum()
}

/// Bytes of the body's variables in a space.
fn bytes(body: &Body, space: Space) -> u64 {
    let own = body.variables.iter().filter(|variable| variable.space == space);
    own.fold(0, |sum: u64, variable| sum.saturating_add(variable.size))
}

fn at_most(
    subject: impl FnOnce() -> String,
    what: &'static str,
    count: u64,
    limit: u64,
) -> Result<(), VerifyError> {
    if count <= limit { Ok(()) } else { Err(VerifyError::TooMany { subject: subject(), what, count, limit }) }
}
