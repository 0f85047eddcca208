//! Why a program was refused.

use thiserror::Error;

use crate::limits::LAST_VERSION;
use crate::verify::VerifyError;

/// Why a program was refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CompileError {
    /// The text is not PTX.
    #[error("{}line {line}: {message}", source_prefix(*.source_index))]
    Syntax {
        /// Which of the sources, from 0.
        source_index: usize,
        /// The line, from 1.
        line: u32,
        /// What was expected and found.
        message: String,
    },
    /// The text is of a later version of the language than is known here.
    #[error("{}`.version {}.{}` is later than {}.{}, the latest that the software GPU supports",
        source_prefix(*.source_index), .version / 10, .version % 10, LAST_VERSION / 10, LAST_VERSION % 10)]
    LaterVersion {
        /// Which of the sources, from 0.
        source_index: usize,
        /// Major times ten plus minor.
        version: u32,
    },
    /// Something that the verifier refuses.
    #[error("{}{error}", source_prefix(*.source_index))]
    Refused {
        /// Which of the sources, from 0.
        source_index: usize,
        /// What it is.
        error: VerifyError,
    },
    /// An instruction that the software GPU does not have.
    #[error("{}line {line}: `{instruction}` is not supported by the software GPU ({reason})", source_prefix(*.source_index))]
    UnsupportedInstruction {
        /// Which of the sources, from 0.
        source_index: usize,
        /// The line, from 1.
        line: u32,
        /// The instruction as written.
        instruction: String,
        /// Which part of it is not supported.
        reason: String,
    },
    /// Something that is said of a whole function, and that the software GPU does not have.
    #[error("{}line {line}: `{directive}` is not supported by the software GPU", source_prefix(*.source_index))]
    UnsupportedDirective {
        /// Which of the sources, from 0.
        source_index: usize,
        /// The line, from 1.
        line: u32,
        /// The directive.
        directive: String,
    },
    /// An instruction that no GPU has.
    #[error("{}line {line}: `{instruction}` is not valid: {reason}", source_prefix(*.source_index))]
    InvalidInstruction {
        /// Which of the sources, from 0.
        source_index: usize,
        /// The line, from 1.
        line: u32,
        /// The instruction as written.
        instruction: String,
        /// What is wrong.
        reason: String,
    },
    /// Names that no source defines.
    #[error("undefined reference to {}; a source that defines it must be linked too", quoted(.0))]
    Unresolved(Vec<String>),
    /// A name that two sources define.
    #[error("`{0}` is defined in more than one source")]
    Duplicate(String),
    /// Code cannot be generated for this machine.
    #[error("the software GPU cannot generate code for this machine: {0}")]
    Machine(String),
    /// A kernel needs more of something than there is.
    #[error("kernel `{kernel}` {reason}")]
    TooLarge {
        /// Name of the kernel.
        kernel: String,
        /// Which limit, with numbers.
        reason: String,
    },
}

fn source_prefix(index: usize) -> String {
    if index == 0 { String::new() } else { format!("source {}, ", index + 1) }
}

fn quoted(names: &[String]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}
