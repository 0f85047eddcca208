//! Device nodes of the GPU, which must exist before the sandbox forbids to make them.
//!
//! NVIDIA's driver library makes missing nodes by a helper with root's rights, `nvidia-modprobe`. A confined
//! worker starts no program, so the broker has it run once before.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use thiserror::Error;

/// The helper, which comes with the driver.
const HELPER: &str = "nvidia-modprobe";

/// Why nodes are missing.
#[derive(Debug, Error)]
pub enum NodesError {
    /// There is no helper, or it cannot be run.
    #[error(
        "the device nodes {missing} are missing and `{HELPER}` cannot be run ({cause}): create them before \
         the server starts"
    )]
    NoHelper {
        /// Those that are missing.
        missing: String,
        /// What the system said.
        cause: io::Error,
    },
    /// The helper did not make them.
    #[error("`{HELPER}` did not create the device nodes {missing}: create them before the server starts")]
    StillMissing {
        /// Those that are missing.
        missing: String,
    },
}

/// Makes what is missing of the device nodes of NVIDIA's driver, where that is there.
pub fn make_device_nodes() -> Result<(), NodesError> {
    let requested = |root: &Path| requested(&minors(&root.join("proc/driver/nvidia/gpus")));
    let missing = || {
        let driver_is_there = Path::new("/proc/driver/nvidia/version").exists();
        let nodes = if driver_is_there { requested(Path::new("/")) } else { Vec::new() };
        nodes.into_iter().filter(|node| !node.exists()).collect::<Vec<_>>()
    };
    let before = missing();
    if before.is_empty() {
        return Ok(());
    }
    let run = Command::new(HELPER).args(arguments(&before)).stdin(Stdio::null()).output();
    match (run, missing()) {
        (_, left) if left.is_empty() => Ok(()),
        (Err(cause), left) => Err(NodesError::NoHelper { missing: names(&left), cause }),
        (Ok(_), left) => Err(NodesError::StillMissing { missing: names(&left) }),
    }
}

/// The groups of a user that reaches the nodes of devices: those that may use nodes which others may not.
pub fn groups() -> Vec<u32> {
    let in_folder = |folder: &str| std::fs::read_dir(folder).into_iter().flatten().flatten();
    let gpus = in_folder("/dev").filter(|entry| entry.file_name().to_string_lossy().starts_with("nvidia"));
    let nodes = gpus.chain(in_folder("/dev/infiniband")).filter_map(|entry| entry.metadata().ok());
    let mut groups: Vec<u32> = nodes
        .filter(|node| needs_group(node.mode()))
        .map(|node| node.gid())
        .filter(|group| *group != 0)
        .collect();
    groups.sort_unstable();
    groups.dedup();
    groups
}

/// Whether a node of this mode is for its group and not for others.
fn needs_group(mode: u32) -> bool {
    mode & 0o060 == 0o060 && mode & 0o006 != 0o006
}

/// The nodes that there must be for GPUs of these minor numbers.
fn requested(minors: &[u32]) -> Vec<PathBuf> {
    let gpus = minors.iter().map(|minor| format!("/dev/nvidia{minor}"));
    ["/dev/nvidiactl", "/dev/nvidia-uvm"]
        .map(str::to_owned)
        .into_iter()
        .chain(gpus)
        .map(PathBuf::from)
        .collect()
}

/// The minor numbers that the driver names in a folder such as `/proc/driver/nvidia/gpus`.
fn minors(gpus: &Path) -> Vec<u32> {
    let gpus = std::fs::read_dir(gpus).into_iter().flatten().flatten();
    gpus.filter_map(|gpu| minor(&std::fs::read_to_string(gpu.path().join("information")).ok()?)).collect()
}

fn minor(information: &str) -> Option<u32> {
    information.lines().find_map(|line| line.strip_prefix("Device Minor:"))?.trim().parse().ok()
}

/// Arguments of the helper: `-c N` makes the node of a GPU, `-u` those of unified memory, and it always makes
/// that for control.
fn arguments(missing: &[PathBuf]) -> Vec<String> {
    let mut arguments = vec!["-u".to_owned()];
    for node in missing {
        let name = node.file_name().unwrap_or_default().to_string_lossy();
        if let Some(minor) = name.strip_prefix("nvidia").filter(|minor| minor.parse::<u32>().is_ok()) {
            arguments.push(format!("-c={minor}"));
        }
    }
    arguments
}

fn names(nodes: &[PathBuf]) -> String {
    nodes.iter().map(|node| node.display().to_string()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_gpu_has_a_node_and_the_driver_two() {
        let folder = tempfile::tempdir().unwrap();
        let gpu = folder.path().join("0000:01:00.0");
        std::fs::create_dir(&gpu).unwrap();
        std::fs::write(gpu.join("information"), "Model: \t H100\nDevice Minor: \t 3\nBlacklisted:\t No\n")
            .unwrap();
        let nodes = requested(&minors(folder.path()));
        assert_eq!(names(&nodes), "/dev/nvidiactl, /dev/nvidia-uvm, /dev/nvidia3");
        assert_eq!(arguments(&nodes), ["-u", "-c=3"]);
    }

    #[test]
    fn a_group_is_needed_where_others_may_not() {
        assert!(needs_group(0o20660) && !needs_group(0o20666) && !needs_group(0o20600));
    }
}
