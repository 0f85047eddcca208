//! Devices on the PCI bus: where they are, and what stands between them.

use super::System;
use crate::facts::PciDevice;
use std::path::Path;

const DEVICES: &str = "/sys/bus/pci/devices";

/// The addresses of all devices.
pub fn addresses(system: &System) -> Vec<String> {
    system.names(DEVICES)
}

/// The identifiers of a device: vendor and class. The class has three bytes: base class, subclass,
/// programming interface.
pub fn identity(system: &System, address: &str) -> Option<(u32, u32)> {
    let number = |name: &str| {
        let text = system.text(Path::new(DEVICES).join(address).join(name));
        u32::from_str_radix(text.strip_prefix("0x")?, 16).ok()
    };
    Some((number("vendor")?, number("class")?))
}

/// Everything of the device at an address.
pub fn device(system: &System, address: &str) -> PciDevice {
    let folder = Path::new(DEVICES).join(address);
    let text = |name: &str| system.text(folder.join(name));
    let link = |speed: &str, width: &str| match (text(speed), text(width)) {
        (speed, width) if speed.is_empty() || width.is_empty() => String::new(),
        (speed, width) => format!("{speed} x{width}"),
    };
    let path = path_of(system, &folder);
    let bridges = path.iter().skip(1).take(path.len().saturating_sub(2));
    let redirecting = bridges
        .filter_map(|bridge| {
            let config = system.bytes(Path::new(DEVICES).join(bridge).join("config"))?;
            Some((bridge.clone(), redirects(&config)?))
        })
        .collect();
    PciDevice {
        address: address.to_owned(),
        // Without NUMA the kernel writes -1.
        numa_node: system.parse(folder.join("numa_node")),
        iommu: Some(text("iommu_group/type")).filter(|kind| !kind.is_empty()),
        link: link("current_link_speed", "current_link_width"),
        best_link: link("max_link_speed", "max_link_width"),
        path,
        redirecting,
    }
}

/// From the host bridge to the device.
fn path_of(system: &System, folder: &Path) -> Vec<String> {
    let real = system.resolve(folder).unwrap_or_default();
    let parts = real.iter().filter_map(|part| part.to_str().map(str::to_owned));
    parts.skip_while(|part| !part.starts_with("pci")).collect()
}

/// Whether a bridge with this configuration space sends requests between devices below it up to the host
/// bridge. Nothing when only the first 64 bytes are there, which is all that an ordinary user sees.
///
/// Extended capabilities begin at 0x100; each has 16 bits of identifier, 4 of version, 12 of the next one's
/// offset (PCI Express Base Specification, 7.6). ACS is number 0x000d, its control register 6 bytes behind
/// its begin.
fn redirects(config: &[u8]) -> Option<bool> {
    const ACS: u16 = 0x000d;
    const REQUEST_REDIRECT: u16 = 1 << 2;
    const COMPLETION_REDIRECT: u16 = 1 << 3;
    let word = |at: usize| Some(u16::from_le_bytes(config.get(at..at + 2)?.try_into().ok()?));
    let mut at = 0x100;
    // A list that goes round is left after as many steps as there is room for entries.
    for _ in 0..(4096 - 0x100) / 8 {
        let (identifier, next) = (word(at)?, usize::from(word(at + 2)? >> 4));
        if identifier == ACS {
            return Some(word(at + 6)? & (REQUEST_REDIRECT | COMPLETION_REDIRECT) != 0);
        }
        if next < 0x100 {
            break;
        }
        at = next;
    }
    Some(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_capabilities(list: &[(usize, u16, usize, u16)]) -> Vec<u8> {
        let mut config = vec![0; 4096];
        for (at, identifier, next, control) in list {
            config[*at..at + 2].copy_from_slice(&identifier.to_le_bytes());
            config[at + 2..at + 4].copy_from_slice(&((*next as u16) << 4 | 1).to_le_bytes());
            config[at + 6..at + 8].copy_from_slice(&control.to_le_bytes());
        }
        config
    }

    #[test]
    fn access_control_is_found_among_the_capabilities() {
        let on = with_capabilities(&[(0x100, 1, 0x148, 0), (0x148, 0x000d, 0, 0x1d)]);
        assert_eq!(redirects(&on), Some(true));
        let off = with_capabilities(&[(0x100, 1, 0x148, 0), (0x148, 0x000d, 0, 0x01)]);
        assert_eq!(redirects(&off), Some(false));
        assert_eq!(redirects(&with_capabilities(&[(0x100, 1, 0, 0)])), Some(false));
        assert_eq!(redirects(&on[..64]), None, "what an ordinary user sees");
        let round = with_capabilities(&[(0x100, 1, 0x100, 0)]);
        assert_eq!(redirects(&round), Some(false));
        let beyond = with_capabilities(&[(0x100, 1, 0xfff, 0)]);
        assert_eq!(redirects(&beyond), None);
    }
}
