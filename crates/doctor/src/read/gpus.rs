//! NVIDIA's GPUs on the PCI bus, and the kernel modules about them.

use super::pci;
use super::system::System;
use crate::facts::Gpus;
use causeway_gpu::gpudirect::is_peermem_loaded;

const NVIDIA: u32 = 0x10de;
/// Display controllers: VGA and 3D.
const DISPLAY: [u32; 2] = [0x0300, 0x0302];

/// Libraries of NVIDIA's driver for what Causeway does not forward: video decoding and encoding, optical
/// flow, ray tracing.
pub const NOT_FORWARDED: [&str; 4] =
    ["libnvcuvid.so.1", "libnvidia-encode.so.1", "libnvidia-opticalflow.so.1", "libnvoptix.so.1"];

pub fn read(system: &System) -> Gpus {
    let is_gpu = |address: &String| {
        pci::identity(system, address)
            .is_some_and(|(vendor, class)| vendor == NVIDIA && DISPLAY.contains(&(class >> 8)))
    };
    let version = system.text("/proc/driver/nvidia/version");
    let kernel_driver = version.lines().find_map(version_in).or_else(|| {
        let version = system.text("/sys/module/nvidia/version");
        (!version.is_empty()).then_some(version)
    });
    Gpus {
        devices: pci::addresses(system)
            .iter()
            .filter(|a| is_gpu(a))
            .map(|a| pci::device(system, a))
            .collect(),
        kernel_driver,
        is_open: version.contains("Open Kernel Module"),
        has_peermem: is_peermem_loaded(&system.at("/sys")),
        has_gdrdrv: system.exists("/sys/module/gdrdrv"),
        gdrdrv_node: system.node("/dev/gdrdrv"),
        not_forwarded: not_forwarded(system),
    }
}

/// The libraries of [`NOT_FORWARDED`] in the usual folders, each file once.
fn not_forwarded(system: &System) -> Vec<String> {
    const FOLDERS: [&str; 6] = [
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib64",
        "/usr/lib",
        "/usr/local/nvidia/lib64",
        "/usr/lib/wsl/lib",
        "/run/opengl-driver/lib",
    ];
    let (mut files, mut found) = (Vec::new(), Vec::new());
    for path in FOLDERS.iter().flat_map(|folder| NOT_FORWARDED.map(|name| format!("{folder}/{name}"))) {
        let Some(file) = system.resolve(&path) else { continue };
        if !files.contains(&file) {
            files.push(file);
            found.push(path);
        }
    }
    found
}

/// The version in `NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun Jul 27 ...`.
fn version_in(line: &str) -> Option<String> {
    let words = line.strip_prefix("NVRM version:")?.split_whitespace();
    let is_version =
        |word: &&str| word.contains('.') && word.split('.').all(|part| part.parse::<u32>().is_ok());
    words.into_iter().find(is_version).map(str::to_owned)
}
