//! Checks: findings from facts, with what to do. Pure: facts in, findings out.

mod finding;
mod gpus;
pub mod machine;
pub mod path;
pub(crate) mod rdma;

pub use finding::{About, Finding, Level, advice, binary, problems};

use crate::facts::Facts;

/// Judges one machine.
pub fn check(facts: &Facts) -> Vec<Finding> {
    let mut findings = machine::check(facts);
    findings.extend(rdma::check(facts));
    findings.extend(rdma::check_ports(facts));
    findings.extend(gpus::check(facts));
    findings.extend(gpus::check_stubs(facts));
    findings.extend(gpus::check_gpudirect(facts));
    findings
}
