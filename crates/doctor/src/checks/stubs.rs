//! Libraries of NVIDIA's driver whose work is not forwarded, and the stubs that keep programs from them.

use super::{About, Finding};
use crate::facts::Facts;

pub fn check(facts: &Facts) -> Vec<Finding> {
    // Only where programs are given a library are there stubs to speak of.
    let Some(Ok(folder)) = &facts.live.client_library else { return Vec::new() };
    let (bare, covered): (Vec<_>, Vec<_>) = facts.gpus.not_forwarded.iter().partition(|path| {
        let name = path.rsplit('/').next();
        name.is_some_and(|name| facts.live.without_stub.iter().any(|missing| missing == name))
    });
    let mut findings = Vec::new();
    if !covered.is_empty() {
        findings.push(Finding::good(
            About::Gpu,
            format!(
                "NVIDIA's {} {} here for a GPU of this machine: what such libraries do is not forwarded, so programs on a \
                 remote GPU get stubs from {folder} that say so.",
                listed(&covered),
                if covered.len() == 1 { "is" } else { "are" },
            ),
        ));
    }
    if !bare.is_empty() {
        findings.push(Finding::problem(
            About::Gpu,
            format!(
                "Programs on a remote GPU find NVIDIA's {}, which wait for ever for a driver that is not theirs (nvJPEG opens \
                 one).",
                listed(&bare),
            ),
            format!(
                "Put libcauseway_stubs.so into {folder} under the names {}; `cargo build --release -p causeway-stubs` makes it.",
                facts.live.without_stub.join(", "),
            ),
        ));
    }
    findings
}

/// `a, b and c`
fn listed(paths: &[&String]) -> String {
    match paths {
        [] => String::new(),
        [one] => (*one).clone(),
        [first @ .., last] => {
            let first: Vec<&str> = first.iter().map(|path| path.as_str()).collect();
            format!("{} and {last}", first.join(", "))
        }
    }
}
