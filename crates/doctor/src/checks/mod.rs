//! Checks: findings from facts, with what to do. Pure: facts in, findings out.

pub mod between;
mod finding;
mod gpudirect;
mod gpus;
mod machine;
pub mod path;
pub(crate) mod ports;
pub mod program;
mod rdma;
mod stubs;

pub use finding::{About, Finding, Level};

use crate::facts::Facts;

/// Judges one machine.
pub fn check(facts: &Facts) -> Vec<Finding> {
    let mut findings = machine::check(facts);
    findings.extend(rdma::check(facts));
    findings.extend(ports::check(facts));
    findings.extend(gpus::check(facts));
    findings.extend(stubs::check(facts));
    findings.extend(gpudirect::check(facts));
    findings
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
