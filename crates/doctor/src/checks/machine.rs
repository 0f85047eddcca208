//! This machine: kernel, limits of this process, and whether a CUDA program runs on a server.

use serde::Serialize;

use crate::checks::{About, Finding, binary};
use crate::facts::{Facts, Feature};

/// Less than this in `/dev/shm` is what containers get by default.
const LITTLE_SHM: u64 = 512 << 20;
/// A staging arena is 256 MiB where an eighth of the memory cgroup's limit allows it.
const LITTLE_MEMORY: u64 = 8 * (256 << 20);

pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    let mut findings = Vec::new();
    match &facts.live.client_library {
        Some(Ok(folder)) => findings
            .push(Finding::good(About::Machine, format!("The client library for programs is in {folder}."))),
        Some(Err(why)) => findings.push(Finding::problem(
            About::Machine,
            "`causeway run` finds no client library for programs.",
            format!("{why}."),
        )),
        None => {}
    }
    let missing = facts.live.features.iter().filter(|(_, is_there)| !is_there).map(|(feature, _)| *feature);
    findings.extend(missing.map(|feature| without(feature, &facts.machine.kernel)));
    match facts.live.shm {
        Some(bytes) if bytes < LITTLE_SHM => findings.push(
            Finding::note(
                About::Machine,
                format!(
                    "/dev/shm has only {}: Causeway does not use it, but MPI, NCCL and PyTorch's data loaders do.",
                    binary(bytes)
                ),
            )
            .advise(match facts.machine.container {
                Some(_) => "Start the container with more, such as `--shm-size=8g`, or with `--ipc=host`.",
                None => "Mount it with more: `mount -o remount,size=8g /dev/shm`.",
            }),
        ),
        Some(bytes) => findings.push(Finding::good(About::Machine, format!("/dev/shm has {}.", binary(bytes)))),
        None => findings.push(Finding::note(
            About::Machine,
            "There is no /dev/shm: Causeway does not use it, but MPI and NCCL do.",
        )),
    }
    if let Some(limit) = facts.machine.memory_limit.filter(|limit| *limit < LITTLE_MEMORY) {
        findings.push(
            Finding::note(
                About::Machine,
                format!(
                    "The memory cgroup's limit is {}, so memory shared with clients of this host is smaller than the \
                     usual 256 MiB, or not used.",
                    binary(limit)
                ),
            )
            .advise("Raise the limit, or set CAUSEWAY_SHM_STAGING to what the server can spare."),
        );
    }
    findings
}

fn without(feature: Feature, kernel: &str) -> Finding {
    match feature {
        Feature::SealedMemory => Finding::problem(
            About::Machine,
            format!(
                "The kernel ({kernel}) cannot create sealed memory files, so memory cannot be shared on \
                one host."
            ),
            "Let the container's seccomp filter allow memfd_create, or use Linux 3.17 or later.",
        ),
        Feature::ProcessDescriptors => Finding::problem(
            About::Machine,
            format!(
                "The kernel ({kernel}) has no descriptors of processes, with which `causeway serve` \
                watches its workers."
            ),
            "Let the container's seccomp filter allow pidfd_open, or use Linux 5.11 or later.",
        ),
        Feature::CloseRange => Finding::problem(
            About::Machine,
            format!(
                "The kernel ({kernel}) lacks close_range, which `causeway serve` needs to start workers."
            ),
            "Use Linux 5.11 or later, or let the container's seccomp filter allow close_range.",
        ),
        Feature::WrittenPages => Finding::note(
            About::Machine,
            format!(
                "The kernel ({kernel}) does not report which pages were written (userfaultfd with \
                 PAGEMAP_SCAN), so pinned and managed memory that kernels can access is compared as a whole \
                 before each launch."
            ),
        )
        .advise(
            "For programs with much of such memory use Linux 6.7 or later, and let the seccomp filter \
            allow userfaultfd.",
        ),
    }
}

/// What came of running a small program on a server: a kernel whose result is compared, and copies both ways.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Trial {
    /// The server, as it was named.
    pub target: String,
    /// What happened.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// How a trial ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "outcome")]
pub enum Outcome {
    /// The program has computed and copied what it should.
    Ran {
        /// The name of the GPU.
        device: String,
        /// What carried its calls.
        via: String,
    },
    /// The server gives no session, so that no program can run.
    NoSession {
        /// Why.
        reason: String,
    },
    /// There is a session, and the program failed.
    Failed {
        /// Why.
        reason: String,
    },
}

/// Judges a trial.
pub fn check_program(trial: &Trial) -> Finding {
    let target = &trial.target;
    match &trial.outcome {
        Outcome::Ran { device, via } => Finding::good(
            About::Program,
            format!(
                "A CUDA program of this machine runs on {device} at {target}, over {via}: its kernel and its \
                 copies are correct."
            ),
        ),
        // What to do stands beside the reason, among what is said of the way.
        Outcome::NoSession { .. } => {
            let text =
                format!("No CUDA program can run at {target}: there is no session, for the reason below.");
            Finding { advice: None, ..Finding::problem(About::Program, text, "") }
        }
        Outcome::Failed { reason } => Finding::problem(
            About::Program,
            format!(
                "A CUDA program does not run at {target}, although the server opens a session: {}",
                sentence(reason)
            ),
            "Look at the server's log, and run `causeway run --verbose --on SERVER -- PROGRAM` for the \
             messages of the client library.",
        ),
    }
}

/// A reason with one mark at its end.
fn sentence(reason: &str) -> String {
    let ends = reason.ends_with(['.', '?', '!']);
    if ends { reason.to_owned() } else { format!("{reason}.") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::Level;

    #[test]
    fn only_a_program_that_ran_is_good() {
        let judged = |outcome| check_program(&Trial { target: "box (a:1)".into(), outcome });
        let ran = judged(Outcome::Ran { device: "NVIDIA H100".into(), via: "tcp".into() });
        assert!(
            ran.level == Level::Good && ran.text.contains("on NVIDIA H100 at box (a:1), over tcp"),
            "{ran:?}"
        );
        let none = judged(Outcome::NoSession { reason: "nothing listens".into() });
        assert!(
            none.level == Level::Problem && none.advice.is_none() && !none.text.contains("nothing listens")
        );
        let failed = judged(Outcome::Failed { reason: "cuInit returned 100".into() });
        assert!(
            failed.level == Level::Problem
                && failed.advice.is_some()
                && failed.text.contains("cuInit returned 100")
        );
    }
}
