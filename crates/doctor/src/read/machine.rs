//! The machine as a whole: kernel, container, IOMMU.

use super::System;
use crate::facts::Machine;

/// Options of the kernel's build that GPUDirect and the RDMA modules need.
const OPTIONS: [&str; 5] = [
    "CONFIG_INFINIBAND_USER_ACCESS",
    "CONFIG_INFINIBAND_USER_MEM",
    "CONFIG_DMA_SHARED_BUFFER",
    "CONFIG_PCI_P2PDMA",
    "CONFIG_USERFAULTFD",
];

pub fn read(system: &System) -> Machine {
    let kernel = system.text("/proc/sys/kernel/osrelease");
    let parameters = system.text("/proc/cmdline");
    let about_iommu = parameters.split_whitespace().filter(|parameter| parameter.contains("iommu"));
    Machine {
        host: system.text("/proc/sys/kernel/hostname"),
        container: container(system),
        has_iommu: !system.names("/sys/class/iommu").is_empty(),
        iommu_parameters: about_iommu.map(str::to_owned).collect(),
        kernel_options: options(system, &kernel),
        // Without a limit the file says `max`.
        memory_limit: system.parse("/sys/fs/cgroup/memory.max"),
        has_mps: system.exists("/tmp/nvidia-mps/control"),
        kernel,
    }
}

fn container(system: &System) -> Option<String> {
    let systemd = system.text("/run/systemd/container");
    let kinds = [
        (system.exists("/.dockerenv"), "Docker"),
        (system.exists("/run/.containerenv"), "Podman"),
        (system.exists("/.singularity.d"), "Apptainer"),
        (system.exists("/var/run/secrets/kubernetes.io"), "Kubernetes"),
        (!systemd.is_empty(), systemd.as_str()),
    ];
    kinds.iter().find(|(is_one, _)| *is_one).map(|(_, name)| (*name).to_owned())
}

fn options(system: &System, kernel: &str) -> Vec<(String, String)> {
    let Ok(text) = std::fs::read_to_string(system.at(format!("/boot/config-{kernel}"))) else {
        return Vec::new();
    };
    let value = |name: &str| {
        let set = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        (name.to_owned(), set.unwrap_or("n").to_owned())
    };
    OPTIONS.iter().map(|name| value(name)).collect()
}
