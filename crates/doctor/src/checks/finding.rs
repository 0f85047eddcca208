//! Finding: the outcome of one check.

use serde::Serialize;

/// How much something matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// It is as it should be.
    Good,
    /// It may be wanted so, and costs something if not.
    Note,
    /// What is there does not work, or not as well as it could.
    Problem,
}

/// What a finding is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum About {
    /// Kernel and limits.
    Machine,
    /// Network cards.
    Rdma,
    /// GPUs.
    Gpu,
    /// Cards that reach GPUs.
    GpuDirect,
    /// A program that was run.
    Program,
    /// The path between two machines.
    #[serde(rename = "way")]
    Path,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How much it matters.
    pub level: Level,
    /// What it is about.
    pub about: About,
    /// What was found, a sentence.
    pub text: String,
    /// What to do, a sentence.
    pub advice: Option<String>,
}

impl Finding {
    pub(super) fn good(about: About, text: impl Into<String>) -> Self {
        Self { level: Level::Good, about, text: text.into(), advice: None }
    }

    pub(super) fn note(about: About, text: impl Into<String>) -> Self {
        Self { level: Level::Note, ..Self::good(about, text) }
    }

    pub(super) fn problem(about: About, text: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { level: Level::Problem, advice: Some(advice.into()), ..Self::good(about, text) }
    }

    pub(super) fn advise(self, advice: impl Into<String>) -> Self {
        Self { advice: Some(advice.into()), ..self }
    }
}
