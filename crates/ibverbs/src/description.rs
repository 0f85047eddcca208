//! Device attributes: ports, GIDs and limits.

use core::ffi::c_int;
use core::mem::MaybeUninit;
use std::io;

use crate::device::{Context, Device, DeviceError, Transport, field};
use crate::gid::{Gid, GidEntry, GidKind, LinkLayer};
use crate::library::Libraries;
use crate::queue_pair::PathMtu;
use crate::sys::*;

/// GIDs of a port that are looked at: tables have up to 1024 entries, of which few are in use.
const MAX_GIDS: u32 = 1024;

/// Whether a port can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortState {
    /// No link: no cable, or the network interface is down.
    Down,
    /// There is a link, which the subnet manager has not yet configured.
    Initialising,
    /// In use.
    Active,
    /// Anything else.
    Other,
}

/// What a device allows, at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Queue pairs, of all processes together.
    pub queue_pairs: u32,
    /// Work requests in a queue.
    pub work_requests: u32,
    /// Entries of a completion queue.
    pub completions: u32,
    /// Memory regions, of all processes together.
    pub memory_regions: u32,
    /// Bytes of a memory region.
    pub memory_region_bytes: u64,
    /// Reads that a queue pair may have under way.
    pub reads: u32,
    /// Reads of the peer that a queue pair answers at a time.
    pub answered_reads: u32,
}

/// A port of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Its number, from 1.
    pub number: u8,
    /// What the port is ready for.
    pub state: PortState,
    /// What it is plugged into.
    pub link_layer: LinkLayer,
    /// The largest path MTU it could use.
    pub max_mtu: PathMtu,
    /// The largest path MTU that its link carries now.
    pub mtu: PathMtu,
    /// Its rate in Mbit/s, as it is written on the box; 0 if the device does not say.
    pub rate: u32,
    /// Its local identifier in an InfiniBand subnet; 0 on Ethernet.
    pub lid: u16,
    /// Bytes of the longest message.
    pub max_message: u32,
    /// The entries of its table of GIDs that are in use.
    pub gids: Vec<GidEntry>,
}

/// A device as it is listed.
#[derive(Clone, Debug)]
pub struct Description {
    /// The kernel's name of it, such as `mlx5_0`.
    pub name: String,
    /// How it moves packets.
    pub transport: Transport,
    /// Its firmware's version.
    pub firmware: String,
    /// The number of its maker, 0x15b3 for NVIDIA (Mellanox).
    pub vendor: u32,
    /// What it allows.
    pub limits: Limits,
    /// Its ports.
    pub ports: Vec<Port>,
    /// Its folder in sysfs, from which `device` leads to the PCIe function.
    pub sysfs: String,
}

impl Device {
    /// The devices of this machine, in the kernel's order; none is no error, one that cannot be opened is.
    pub fn list(libraries: Libraries) -> Result<Vec<Description>, DeviceError> {
        Self::all(libraries)?.iter().map(Self::describe).collect()
    }

    /// Everything that is said about it.
    pub fn describe(&self) -> Result<Description, DeviceError> {
        let attributes = self.attributes()?;
        let ports =
            (1..=attributes.phys_port_cnt).map(|number| self.port(number)).collect::<Result<_, _>>()?;
        Ok(Description {
            name: self.0.name.clone(),
            transport: self.0.transport,
            firmware: field(&attributes.fw_ver),
            vendor: attributes.vendor_id,
            limits: limits(&attributes),
            ports,
            sysfs: self.0.sysfs.clone(),
        })
    }

    /// What it allows.
    pub fn limits(&self) -> Result<Limits, DeviceError> {
        Ok(limits(&self.attributes()?))
    }

    fn query_error(&self, what: &'static str, code: c_int) -> DeviceError {
        let source = io::Error::from_raw_os_error(code.abs());
        DeviceError::Query { name: self.0.name.clone(), what, source }
    }

    fn attributes(&self) -> Result<ibv_device_attr, DeviceError> {
        // SAFETY: all fields are numbers, for which 0 is a value.
        let mut attributes: ibv_device_attr = unsafe { MaybeUninit::zeroed().assume_init() };
        // SAFETY: the context is open, and the structure has the header's layout.
        match unsafe { (self.0.libraries.verbs.ibv_query_device)(self.0.raw, &mut attributes) } {
            0 => Ok(attributes),
            code => Err(self.query_error("its limits", code)),
        }
    }

    /// A port, by its number.
    pub fn port(&self, number: u8) -> Result<Port, DeviceError> {
        // SAFETY: all fields are numbers, for which 0 is a value.
        let mut port: ibv_port_attr = unsafe { MaybeUninit::zeroed().assume_init() };
        // SAFETY: the context is open; the function fills the first fields of the structure.
        let code = unsafe { (self.0.libraries.verbs.ibv_query_port)(self.0.raw, number, &mut port) };
        if code != 0 {
            return Err(self.query_error("a port", code));
        }
        let link_layer = match (port.link_layer, self.0.transport) {
            (1, _) | (0, Transport::InfiniBand) => LinkLayer::InfiniBand,
            (2, _) | (0, Transport::Iwarp) => LinkLayer::Ethernet,
            _ => LinkLayer::Unspecified,
        };
        Ok(Port {
            number,
            state: match port.state {
                1 => PortState::Down,
                2 | 3 => PortState::Initialising,
                4 => PortState::Active,
                _ => PortState::Other,
            },
            link_layer,
            max_mtu: PathMtu::from_code(port.max_mtu),
            mtu: PathMtu::from_code(port.active_mtu),
            rate: rate(port.active_width, port.active_speed),
            lid: port.lid,
            max_message: port.max_msg_sz,
            gids: self.gids(number, (port.gid_tbl_len.max(0) as u32).min(MAX_GIDS)),
        })
    }

    fn gids(&self, port: u8, count: u32) -> Vec<GidEntry> {
        (0..count).filter_map(|index| self.gid(port, index)).filter(|entry| !entry.gid.is_empty()).collect()
    }

    /// An entry of a port's table; `None` for one that is not in use, which devices answer in several ways.
    fn gid(&self, port: u8, index: u32) -> Option<GidEntry> {
        let Context { raw, libraries, transport, .. } = &*self.0;
        if let Some(query) = libraries.verbs._ibv_query_gid_ex {
            let mut entry = ibv_gid_entry {
                gid: crate::sys::Gid([0; 16]),
                gid_index: 0,
                port_num: 0,
                gid_type: 0,
                ndev_ifindex: 0,
            };
            // SAFETY: the context is open, and the structure is as long as the function is told.
            let code =
                unsafe { query(*raw, u32::from(port), index, &mut entry, 0, size_of::<ibv_gid_entry>()) };
            let kind = match entry.gid_type {
                1 => GidKind::RoceV1,
                2 => GidKind::RoceV2,
                _ => GidKind::InfiniBand,
            };
            let (gid, interface) = (Gid(entry.gid.0), entry.ndev_ifindex);
            return (code == 0).then_some(GidEntry { index, gid, kind, interface });
        }
        let mut gid = crate::sys::Gid([0; 16]);
        // SAFETY: the context is open.
        let code = unsafe { (libraries.verbs.ibv_query_gid)(*raw, port, index as c_int, &mut gid) };
        let types = format!("{}/ports/{port}/gid_attrs/types/{index}", self.0.sysfs);
        let kind = match std::fs::read_to_string(types).as_deref().map(str::trim) {
            Ok("RoCE v2") => GidKind::RoceV2,
            Ok("IB/RoCE v1") if *transport == Transport::InfiniBand => GidKind::RoceV1,
            _ => GidKind::Unknown,
        };
        (code == 0).then_some(GidEntry { index, gid: Gid(gid.0), kind, interface: 0 })
    }
}

fn limits(attributes: &ibv_device_attr) -> Limits {
    let number = |value: c_int| value.max(0) as u32;
    Limits {
        queue_pairs: number(attributes.max_qp),
        work_requests: number(attributes.max_qp_wr),
        completions: number(attributes.max_cqe),
        memory_regions: number(attributes.max_mr),
        memory_region_bytes: attributes.max_mr_size,
        reads: number(attributes.max_qp_init_rd_atom),
        answered_reads: number(attributes.max_qp_rd_atom),
    }
}

/// Mbit/s of a link, from the codes of its width and of a lane's speed (InfiniBand specification, PortInfo).
fn rate(width: u8, speed: u8) -> u32 {
    let lanes = match width {
        1 => 1,
        2 => 4,
        4 => 8,
        8 => 12,
        16 => 2,
        _ => 0,
    };
    let lane = match speed {
        1 => 2_500,
        2 => 5_000,
        4 | 8 => 10_000,
        16 => 14_000,
        32 => 25_000,
        64 => 50_000,
        128 => 100_000,
        _ => 0,
    };
    lanes * lane
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_those_on_the_box() {
        assert_eq!(rate(2, 16), 56_000, "FDR");
        assert_eq!(rate(2, 32), 100_000, "EDR");
        assert_eq!(rate(2, 128), 400_000, "NDR");
        assert_eq!(rate(1, 8), 10_000, "Soft-RoCE");
    }
}
