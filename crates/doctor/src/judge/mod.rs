//! What is right, what is not, and what is to be done? Pure: facts in, findings out.

pub mod between;
mod gpudirect;
mod gpus;
mod machine;
pub mod path;
pub(crate) mod ports;
mod rdma;
mod stubs;

use crate::facts::Facts;
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
    fn good(about: About, text: impl Into<String>) -> Self {
        Self { level: Level::Good, about, text: text.into(), advice: None }
    }

    fn note(about: About, text: impl Into<String>) -> Self {
        Self { level: Level::Note, ..Self::good(about, text) }
    }

    fn problem(about: About, text: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { level: Level::Problem, advice: Some(advice.into()), ..Self::good(about, text) }
    }

    fn advise(self, advice: impl Into<String>) -> Self {
        Self { advice: Some(advice.into()), ..self }
    }
}

/// Judges one machine.
pub fn judge(facts: &Facts) -> Vec<Finding> {
    let mut findings = machine::judge(facts);
    findings.extend(rdma::judge(facts));
    findings.extend(ports::judge(facts));
    findings.extend(gpus::judge(facts));
    findings.extend(stubs::judge(facts));
    findings.extend(gpudirect::judge(facts));
    findings
}

/// How many of the findings are problems.
pub fn problems(findings: &[Finding]) -> usize {
    findings.iter().filter(|finding| finding.level == Level::Problem).count()
}
