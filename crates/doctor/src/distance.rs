//! PCI distance of a network card from a GPU, in the words of `nvidia-smi topo`.

use crate::facts::PciDevice;
use core::fmt;
use serde::Serialize;

/// What lies between two devices, the nearest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum Distance {
    /// At most one PCIe switch.
    #[serde(rename = "PIX")]
    OneSwitch,
    /// Several PCIe switches, and no host bridge.
    #[serde(rename = "PXB")]
    Switches,
    /// A host bridge.
    #[serde(rename = "PHB")]
    HostBridge,
    /// Several host bridges of one NUMA node.
    #[serde(rename = "NODE")]
    Node,
    /// The link between NUMA nodes.
    #[serde(rename = "SYS")]
    System,
}

impl fmt::Display for Distance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::OneSwitch => "PIX",
            Self::Switches => "PXB",
            Self::HostBridge => "PHB",
            Self::Node => "NODE",
            Self::System => "SYS",
        })
    }
}

/// The bridges that the paths of two devices have in common, the host bridge first.
pub fn common<'a>(one: &'a PciDevice, other: &PciDevice) -> &'a [String] {
    let same = one.path.iter().zip(&other.path).take_while(|(a, b)| a == b).count();
    &one.path[..same]
}

/// The distance of two devices.
pub fn between(one: &PciDevice, other: &PciDevice) -> Distance {
    let shared = common(one, other).len();
    // Below what is common: bridges, and the device itself at the end.
    let below = |device: &PciDevice| device.path.len().saturating_sub(shared + 1);
    match shared {
        0 if one.numa_node == other.numa_node => Distance::Node,
        0 => Distance::System,
        1 => Distance::HostBridge,
        // A switch has one bridge for each of its ports.
        _ if below(one) <= 1 && below(other) <= 1 => Distance::OneSwitch,
        _ => Distance::Switches,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(path: &str, numa_node: u32) -> PciDevice {
        let path: Vec<String> = path.split('/').map(str::to_owned).collect();
        PciDevice {
            address: path.last().cloned().unwrap(),
            path,
            numa_node: Some(numa_node),
            ..PciDevice::default()
        }
    }

    #[test]
    fn distances_are_those_of_nvidia_smi() {
        let rdma_device = device("pci0000:3a/3a:00.0/3b:00.0/3c:00.0/3d:00.0", 0);
        let to = |path, node| between(&rdma_device, &device(path, node));
        assert_eq!(to("pci0000:3a/3a:00.0/3b:00.0/3c:04.0/3e:00.0", 0), Distance::OneSwitch);
        assert_eq!(to("pci0000:3a/3a:00.0/3b:00.0/3c:00.0/3d:00.1", 0), Distance::OneSwitch);
        assert_eq!(to("pci0000:3a/3a:00.0/3b:00.0/3c:04.0/3e:00.0/3f:00.0/40:00.0", 0), Distance::Switches);
        assert_eq!(to("pci0000:3a/3a:02.0/41:00.0", 0), Distance::HostBridge);
        assert_eq!(to("pci0000:5d/5d:00.0/5e:00.0", 0), Distance::Node);
        assert_eq!(to("pci0000:85/85:00.0/86:00.0", 1), Distance::System);
        assert!(Distance::OneSwitch < Distance::System);
    }

    #[test]
    fn devices_without_a_path_are_not_near() {
        let nowhere = PciDevice::default();
        assert_eq!(between(&nowhere, &nowhere), Distance::Node);
    }
}
