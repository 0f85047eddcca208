//! GPUs and their driver.

use super::{About, Finding};
use crate::facts::{DriverProbe, Facts};

pub fn check(facts: &Facts) -> Vec<Finding> {
    let gpus = &facts.gpus;
    let on_the_bus = gpus.devices.len();
    let kernel = gpus.kernel_driver.as_deref();
    match &facts.live.driver {
        DriverProbe::NotProbed => Vec::new(),
        DriverProbe::NotBuiltIn if on_the_bus == 0 && kernel.is_none() => Vec::new(),
        DriverProbe::NotBuiltIn => {
            let what =
                "This build of causeway has no back end for NVIDIA's driver, so that it was not asked.";
            vec![
                Finding::note(About::Gpu, what).advise(
                    "To serve NVIDIA's GPUs, take a causeway that is built with the feature `driver`.",
                ),
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
                    Finding::note(About::Gpu, format!("NVIDIA's management library cannot be loaded ({why}), so programs learn nothing by NVML."))
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
                "There is no NVIDIA GPU: programs here can use those of other machines, and `causeway serve` here has the \
                 software GPU.",
            )]
        }
        DriverProbe::None { is_installed: false, .. } if facts.machine.container.is_some() => {
            vec![
                Finding::note(
                    About::Gpu,
                    "The host has an NVIDIA GPU, and this container has not been given it.",
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
                "NVIDIA's driver library is there and does not start, so a server here has no GPU.",
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
