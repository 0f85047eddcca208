//! Finding: the outcome of one check, advice and problems of many, and the unit of a number of bytes.

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

/// What to do about problems, in their order, each thing once.
pub fn advice<'a>(findings: impl Iterator<Item = &'a Finding>) -> Vec<&'a str> {
    let mut all: Vec<&str> = Vec::new();
    for advice in
        findings.filter(|finding| finding.level == Level::Problem).filter_map(|one| one.advice.as_deref())
    {
        if !all.contains(&advice) {
            all.push(advice);
        }
    }
    all
}

/// How many of the findings are problems.
pub fn problems(findings: &[Finding]) -> usize {
    findings.iter().filter(|finding| finding.level == Level::Problem).count()
}

/// A number of bytes with a unit that is a power of two.
pub fn binary(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = "bytes";
    for larger in UNITS {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = larger;
    }
    if value.fract() == 0.0 { format!("{value:.0} {unit}") } else { format!("{value:.1} {unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_a_unit_that_fits() {
        assert_eq!([64 << 20, 1 << 30, 1536, 8].map(binary), ["64 MiB", "1 GiB", "1.5 KiB", "8 bytes"]);
    }
}
