//! Snapshot of a server's devices, sent once when the session opens.

use causeway_wire::record;
use causeway_wire::text::Printable;

/// The state of a server's driver at the start of a session.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Snapshot {
    /// What executes the calls, for people: "NVIDIA driver" or "software GPU", with its version.
    pub backend: Printable,
    /// What `cuDriverGetVersion` answers (13000 is 13.0).
    pub driver_version: i32,
    /// Whether the devices run NVIDIA's machine code; if not, they run PTX only.
    pub machine_code: bool,
    /// The devices in the order of their numbers.
    pub devices: Vec<Device>,
    /// For each ordered pair of devices (row by row), what one may do with the other.
    pub peers: Vec<Peer>,
    /// First address and size of the range in which memory of the program that kernels reach lies at the same
    /// addresses on both sides; the size is 0 where there is none.
    pub host_window: (u64, u64),
    /// First address and size of the range in which managed memory lies that is a device's own; the size is 0
    /// where there is none.
    pub managed_window: (u64, u64),
    /// Where device memory of the session gets its addresses.
    pub device_window: Window,
}

record!(Snapshot {
    backend,
    driver_version,
    machine_code,
    devices,
    peers,
    host_window,
    managed_window,
    device_window
});

/// A range of addresses for device memory that the worker keeps free of anything else, so that the client can
/// give the addresses out. A size of 0 says that there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Window {
    /// Its first address.
    pub address: u64,
    /// Its size in bytes.
    pub size: u64,
    /// Addresses and sizes of mappings are multiples of this.
    pub granularity: u64,
}

record!(Window { address, size, granularity });

/// One device.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Device {
    /// Its name, "NVIDIA H200".
    pub name: Printable,
    /// Its UUID.
    pub uuid: [u8; 16],
    /// Its memory in bytes.
    pub total_memory: u64,
    /// Its PCI address, "0000:3b:00.0".
    pub pci_bus_id: Printable,
    /// Values of `CUdevice_attribute`, as pairs of attribute number and value.
    pub attributes: Vec<(i32, i32)>,
    /// Lowest and highest stream priority (the second is the smaller number).
    pub stream_priorities: (i32, i32),
}

record!(Device { name, uuid, total_memory, pci_bus_id, attributes, stream_priorities });

/// What one device may do with the memory of another.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Peer {
    /// What `cuDeviceCanAccessPeer` answers.
    pub can_access: bool,
    /// Values of `CUdevice_P2PAttribute`, as pairs of attribute number and value.
    pub attributes: Vec<(i32, i32)>,
}

record!(Peer { can_access, attributes });

impl Device {
    /// The value of an attribute, if the server reported it.
    pub fn attribute(&self, attribute: i32) -> Option<i32> {
        self.attributes.iter().find(|(number, _)| *number == attribute).map(|(_, value)| *value)
    }

    /// Its UUID as nvidia-smi writes it, "GPU-6f1b...".
    pub fn uuid_text(&self) -> String {
        uuid_text(&self.uuid)
    }
}

/// A device's UUID as nvidia-smi writes it, "GPU-6f1b...".
pub fn uuid_text(uuid: &[u8; 16]) -> String {
    let mut text = String::from("GPU-");
    for (index, byte) in uuid.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_wire::codec::{Decoder, Encode};

    #[test]
    fn a_uuid_reads_as_tools_print_it() {
        let bytes = core::array::from_fn(|index| index as u8 + 0x10);
        assert_eq!(uuid_text(&bytes), "GPU-10111213-1415-1617-1819-1a1b1c1d1e1f");
    }

    #[test]
    fn a_snapshot_survives_the_wire() {
        let snapshot = Snapshot {
            backend: "software GPU".into(),
            driver_version: 13000,
            machine_code: true,
            devices: vec![Device { name: "a".into(), attributes: vec![(75, 9)], ..Device::default() }],
            peers: vec![Peer { can_access: true, attributes: vec![(1, 1)] }],
            host_window: (1 << 40, 1 << 30),
            managed_window: (1 << 41, 1 << 30),
            device_window: Window { address: 1 << 40, size: 1 << 30, granularity: 1 << 21 },
        };
        let mut bytes = Vec::new();
        snapshot.encode(&mut bytes);
        assert_eq!(Decoder::new(&bytes).value::<Snapshot>().unwrap(), snapshot);
    }
}
