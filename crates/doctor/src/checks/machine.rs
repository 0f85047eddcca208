//! The kernel, and the limits that this process has.

use super::{About, Finding};
use crate::facts::{Facts, Feature};
use crate::unit::binary;

/// Less than this in `/dev/shm` is what containers get by default.
const LITTLE_SHM: u64 = 512 << 20;
/// A staging arena is 256 MiB where an eighth of the memory cgroup's limit allows it.
const LITTLE_MEMORY: u64 = 8 * (256 << 20);

pub fn check(facts: &Facts) -> Vec<Finding> {
    let mut findings = Vec::new();
    match &facts.live.client_library {
        Some(Ok(folder)) => findings.push(Finding::good(
            About::Machine,
            format!("The library that programs are given is in {folder}."),
        )),
        Some(Err(why)) => findings.push(Finding::problem(
            About::Machine,
            "`causeway run` has no library to give to programs.",
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
            format!("The kernel ({kernel}) makes no sealed memory files, so memory cannot be shared on one host."),
            "Let the container's seccomp filter admit memfd_create, or use Linux 3.17 or later.",
        ),
        Feature::ProcessDescriptors => Finding::problem(
            About::Machine,
            format!("The kernel ({kernel}) gives no descriptors of processes, which `causeway serve` watches its workers with."),
            "Let the container's seccomp filter admit pidfd_open, or use Linux 5.11 or later.",
        ),
        Feature::CloseRange => Finding::problem(
            About::Machine,
            format!("The kernel ({kernel}) lacks close_range, without which `causeway serve` starts no worker."),
            "Use Linux 5.11 or later, or let the container's seccomp filter admit close_range.",
        ),
        Feature::WrittenPages => Finding::note(
            About::Machine,
            format!(
                "The kernel ({kernel}) does not tell which pages were written to (userfaultfd with PAGEMAP_SCAN), so \
                 pinned and managed memory that kernels reach is compared as a whole before each launch."
            ),
        )
        .advise("For programs with much of such memory use Linux 6.7 or later, and let the seccomp filter admit userfaultfd."),
    }
}
