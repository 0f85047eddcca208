//! Why a program does not pass.

use thiserror::Error;

use crate::parse::syntax::Instruction;

/// Why the verifier refuses a program.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum VerifyError {
    /// There is more of something than is allowed.
    #[error("{subject} has {count} {what}, and at most {limit} are possible")]
    TooMany {
        /// What has them: "function `f`".
        subject: String,
        /// What is counted: "labels".
        what: &'static str,
        /// How many there are.
        count: u64,
        /// How many are possible.
        limit: u64,
    },
    /// A kernel that returns something.
    #[error("kernel `{kernel}` returns a value, which only functions can")]
    KernelReturns {
        /// Its name.
        kernel: String,
    },
    /// A variable that cannot be where it is.
    #[error("line {line}: variable `{variable}` {reason}")]
    Variable {
        /// Its name.
        variable: String,
        /// The line, from 1.
        line: u32,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// An instruction that no GPU has.
    #[error("line {line}: `{instruction}` is not valid: {reason}")]
    Instruction {
        /// The instruction as written.
        instruction: String,
        /// The line, from 1.
        line: u32,
        /// What is wrong with it.
        reason: String,
    },
}

impl VerifyError {
    pub(super) fn instruction(instruction: &Instruction, reason: impl Into<String>) -> Self {
        Self::Instruction {
            instruction: instruction.text.clone(),
            line: instruction.line,
            reason: reason.into(),
        }
    }
}
