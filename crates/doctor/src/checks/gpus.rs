//! GPUs: their driver, stubs for libraries that are not forwarded, and the access of network cards to their
//! memory.

use crate::checks::{About, Finding};
use crate::distance::{Distance, between, common};
use crate::facts::{CudaDevice, DriverProbe, Facts, PciDevice};

pub fn check(facts: &Facts) -> Vec<Finding> {
    let gpus = &facts.gpus;
    let on_the_bus = gpus.devices.len();
    let kernel = gpus.kernel_driver.as_deref();
    match &facts.live.driver {
        DriverProbe::NotProbed => Vec::new(),
        DriverProbe::NotBuiltIn if on_the_bus == 0 && kernel.is_none() => Vec::new(),
        DriverProbe::NotBuiltIn => {
            let what =
                "This build of causeway has no back end for NVIDIA's driver, so the driver was not queried.";
            vec![
                Finding::note(About::Gpu, what)
                    .advise("To serve NVIDIA's GPUs, use a build with the feature `driver`."),
            ]
        }
        DriverProbe::Started { name, devices } => {
            let kind = match kernel {
                Some(version) if gpus.is_open => format!(", open kernel modules {version}"),
                Some(version) => format!(", kernel modules {version}"),
                None => String::new(),
            };
            let names: Vec<&str> = devices.iter().map(|device| device.name.as_str()).collect();
            let mut findings = vec![Finding::good(About::Gpu, format!("{name}{kind}: {}.", counted(&names)))];
            if let Some(why) = facts.live.why_not("libnvidia-ml.so.1") {
                findings.push(
                    Finding::note(About::Gpu, format!("NVIDIA's management library cannot be loaded ({why}), \
                        so programs get no information by NVML."))
                        .advise("Install it: package libnvidia-ml1, or give the container NVIDIA_DRIVER_CAPABILITIES=compute,utility."),
                );
            }
            if !facts.machine.has_mps {
                findings.push(
                    Finding::note(About::Gpu, "NVIDIA's Multi-Process Service does not run, so kernels of different clients take turns on a GPU.")
                        .advise("If clients with small kernels are to share a GPU, start `nvidia-cuda-mps-control -d` before `causeway serve`."),
                );
            }
            findings
        }
        DriverProbe::None { is_installed: false, .. } if on_the_bus == 0 && kernel.is_none() => {
            vec![Finding::note(
                About::Gpu,
                "There is no NVIDIA GPU: programs here can use those of other machines, and `causeway serve --gpu cpu` serves the \
                 software GPU.",
            )]
        }
        DriverProbe::None { is_installed: false, .. } if facts.machine.container.is_some() => {
            vec![
                Finding::note(
                    About::Gpu,
                    "The host has an NVIDIA GPU, but this container has no access to it.",
                )
                .advise("If a server is to run in it, start the container with `--gpus all`."),
            ]
        }
        DriverProbe::None { is_installed: false, why } => vec![Finding::problem(
            About::Gpu,
            format!("{on_the_bus} NVIDIA GPUs are on the PCI bus, but their driver is not installed."),
            format!("Install NVIDIA's driver for this kernel, or use this machine as a client only. {why}"),
        )],
        DriverProbe::None { is_installed: true, why } if on_the_bus == 0 && kernel.is_none() => {
            vec![Finding::note(
                About::Gpu,
                format!("NVIDIA's driver library is installed and finds no GPU: {why}"),
            )]
        }
        DriverProbe::None { is_installed: true, why } => {
            vec![Finding::problem(
                About::Gpu,
                "NVIDIA's driver library is installed but does not start, so a server here has no GPU.",
                why.clone(),
            )]
        }
    }
}

/// `2 x NVIDIA H200, 1 x NVIDIA L4`
fn counted(names: &[&str]) -> String {
    let mut kinds: Vec<(&str, usize)> = Vec::new();
    for name in names {
        match kinds.iter_mut().find(|(kind, _)| kind == name) {
            Some((_, count)) => *count += 1,
            None => kinds.push((name, 1)),
        }
    }
    let texts: Vec<String> = kinds.iter().map(|(kind, count)| format!("{count} x {kind}")).collect();
    if texts.is_empty() { "no devices".to_owned() } else { texts.join(", ") }
}

pub fn check_stubs(facts: &Facts) -> Vec<Finding> {
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
                "NVIDIA's {} {} here for a GPU of this machine: such libraries are not forwarded, so \
                 programs on a remote GPU get stubs from {folder} that report this.",
                listed(&covered),
                if covered.len() == 1 { "is" } else { "are" },
            ),
        ));
    }
    if !bare.is_empty() {
        findings.push(Finding::problem(
            About::Gpu,
            format!(
                "Programs on a remote GPU find NVIDIA's {}, which wait for ever for a driver that does not \
                 match them (nvJPEG opens one).",
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

pub fn check_gpudirect(facts: &Facts) -> Vec<Finding> {
    let DriverProbe::Started { devices, .. } = &facts.live.driver else { return Vec::new() };
    let has_rdma_devices = !facts.rdma.devices.is_empty();
    let mut findings = paths(devices, has_rdma_devices);
    let by_dma_buf_alone = |device: &CudaDevice| device.paths.len() == 1 && device.paths[0] == "dma-buf";
    let has_verbs = facts.live.why_not("libibverbs.so.1").is_none();
    if has_rdma_devices && has_verbs && !facts.live.verbs.has_dma_buf && devices.iter().any(by_dma_buf_alone)
    {
        findings.push(Finding::problem(
            About::GpuDirect,
            "This libibverbs cannot register dma-bufs, and there is no other path to GPU memory.",
            "Install rdma-core 34 or later, or load nvidia_peermem: `modprobe nvidia_peermem`.",
        ));
    }
    if has_rdma_devices {
        findings.extend(distances(facts));
        findings.extend(iommu(facts));
        findings.extend(access_control(facts));
    }
    if !facts.gpus.has_gdrdrv {
        findings.push(Finding::note(
            About::GpuDirect,
            "The module gdrdrv is not loaded; Causeway does not need it, but UCX and MPI use it for small messages.",
        ));
    }
    findings
}

/// How the memory of GPUs is reached, those that are alike together.
fn paths(devices: &[CudaDevice], has_rdma_devices: bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (number, device) in devices.iter().enumerate() {
        if devices[..number].iter().any(|before| is_alike(before, device)) {
            continue;
        }
        let numbers: Vec<String> = (number..devices.len())
            .filter(|other| is_alike(&devices[*other], device))
            .map(|other| other.to_string())
            .collect();
        let name = match numbers.len() {
            1 => format!("GPU {}", numbers[0]),
            _ => format!("GPUs {}", numbers.join(", ")),
        };
        let closed: Vec<String> = device.closed.iter().map(|(way, why)| format!("{way}: {why}")).collect();
        findings.push(match device.paths.first() {
            Some(way) => Finding::good(
                About::GpuDirect,
                format!(
                    "Network cards can access the memory of \
                {name} by {way}."
                ),
            ),
            None if has_rdma_devices => Finding::problem(
                About::GpuDirect,
                format!(
                    "Network cards cannot access the memory of {name}, so data passes through host \
                    memory."
                ),
                format!("One of these is enough. {}.", closed.join("; ")),
            ),
            None => Finding::note(
                About::GpuDirect,
                format!(
                    "Network cards could not access the memory of {name}, if there were any ({}).",
                    closed.join("; ")
                ),
            ),
        });
    }
    findings
}

fn is_alike(one: &CudaDevice, other: &CudaDevice) -> bool {
    one.paths == other.paths && one.closed == other.closed
}

/// The cards whose ports work, with their names.
fn working_rdma_devices(facts: &Facts) -> Vec<(&str, &PciDevice)> {
    let working = facts.rdma.devices.iter().filter(|device| device.ports.iter().any(|port| port.is_active()));
    working.filter_map(|device| Some((device.name.as_str(), device.pci.as_ref()?))).collect()
}

/// GPUs whose nearest card is far.
fn distances(facts: &Facts) -> Vec<Finding> {
    let rdma_devices = working_rdma_devices(facts);
    let far = facts.gpus.devices.iter().filter_map(|gpu| {
        let (distance, rdma_device) = rdma_devices
            .iter()
            .map(|(name, rdma_device)| (between(rdma_device, gpu), *name))
            .min_by_key(|(distance, _)| *distance)?;
        let between = match distance {
            Distance::OneSwitch | Distance::Switches => return None,
            Distance::HostBridge => {
                "a host bridge (PHB), which on some processors slows a card's reads from a GPU"
            }
            Distance::Node => {
                "several host bridges (NODE), through which cards and GPUs seldom reach the \
                full rate"
            }
            Distance::System => "the link between processors (SYS), through which cards and GPUs are slow",
        };
        Some(
            Finding::note(
                About::GpuDirect,
                format!(
                    "The GPU at {} is separated from its nearest card, {rdma_device}, by {between}.",
                    gpu.address
                ),
            )
            .advise("Prefer GPUs below the same PCIe switch as a card, or move the card to a slot there."),
        )
    });
    far.collect()
}

/// Devices whose addresses an IOMMU translates.
fn iommu(facts: &Facts) -> Option<Finding> {
    let rdma_devices = facts.rdma.devices.iter().filter_map(|device| device.pci.as_ref());
    let translated: Vec<&str> = rdma_devices
        .chain(&facts.gpus.devices)
        .filter(|device| device.iommu.as_deref().is_some_and(|kind| kind.starts_with("DMA")))
        .map(|device| device.address.as_str())
        .collect();
    (!translated.is_empty()).then(|| {
        Finding::problem(
            About::GpuDirect,
            format!(
                "The IOMMU translates the addresses of {}, which makes GPUDirect slow if it works at all.",
                translated.join(", ")
            ),
            "Start the kernel with `iommu=pt` (and `intel_iommu=on` or AMD's default), or switch the IOMMU off in the BIOS.",
        )
    })
}

/// Bridges between a card and a GPU below one switch that send everything through the host bridge.
fn access_control(facts: &Facts) -> Vec<Finding> {
    let rdma_devices = working_rdma_devices(facts);
    let mut bridges: Vec<&str> = Vec::new();
    let mut is_unknown = false;
    for gpu in &facts.gpus.devices {
        for (_, rdma_device) in &rdma_devices {
            if between(rdma_device, gpu) > Distance::Switches {
                continue;
            }
            // What is common to both is not passed, but for the last, where the ways part.
            let passed = common(rdma_device, gpu).len() - 1;
            for device in [*rdma_device, gpu] {
                let bridges_between = device.path.iter().skip(passed).take(device.path.len() - passed - 1);
                for bridge in bridges_between {
                    match device.redirecting.iter().find(|(name, _)| name == bridge) {
                        Some((name, true)) if !bridges.contains(&name.as_str()) => bridges.push(name),
                        Some(_) => {}
                        None => is_unknown = true,
                    }
                }
            }
        }
    }
    if !bridges.is_empty() {
        let commands: Vec<String> =
            bridges.iter().map(|bridge| format!("`setpci -s {bridge} ECAP_ACS+6.w=0000`")).collect();
        return vec![Finding::problem(
            About::GpuDirect,
            format!(
                "PCIe access control (ACS) of the bridges {} routes the traffic between cards and GPUs \
                 through the host bridge.",
                bridges.join(", ")
            ),
            format!(
                "Unless virtual machines use these devices, switch it off in the BIOS, or at each start: {}.",
                commands.join(", ")
            ),
        )];
    }
    if is_unknown && !facts.live.is_root {
        return vec![
            Finding::note(
                About::GpuDirect,
                "Only root can see whether PCIe access control (ACS) slows the traffic between cards and \
                 GPUs.",
            )
            .advise("`sudo causeway doctor` checks it."),
        ];
    }
    Vec::new()
}
