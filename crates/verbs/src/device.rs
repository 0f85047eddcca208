//! Which devices, ports and GIDs are there, and what can they do?

use core::ffi::c_int;
use core::mem::MaybeUninit;
use core::ptr;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use thiserror::Error;

use crate::gid::{self, Gid, GidEntry, GidKind};
use crate::library::Libraries;
use crate::queue_pair::PathMtu;
use crate::sys::*;

/// GIDs of a port that are looked at: tables have up to 1024 entries, of which few are in use.
const MOST_GIDS: u32 = 1024;

/// Why a device cannot be used.
#[derive(Debug, Error)]
pub enum DeviceError {
    /// The kernel was not to be asked.
    #[error("the RDMA devices of this machine cannot be listed: {0}")]
    List(#[source] io::Error),
    /// There is none of this name.
    #[error("there is no RDMA device `{name}`; this machine has {}", names(available))]
    NotFound {
        /// What was asked for.
        name: String,
        /// What there is.
        available: Vec<String>,
    },
    /// It cannot be opened.
    #[error(
        "the RDMA device `{name}` cannot be opened: {source}. The device files /dev/infiniband/uverbs* must exist and be \
         accessible to this user; a container needs them passed in."
    )]
    Open {
        /// Which device.
        name: String,
        /// What the system answered.
        source: io::Error,
    },
    /// It does not answer a question about itself.
    #[error("the RDMA device `{name}` does not answer a question about {what}: {source}")]
    Query {
        /// Which device.
        name: String,
        /// What was asked.
        what: &'static str,
        /// What the system answered.
        source: io::Error,
    },
    /// It refuses to make something.
    #[error("the RDMA device `{name}` has no more room for {what}: {source}")]
    Make {
        /// Which device.
        name: String,
        /// What was to be made.
        what: &'static str,
        /// What the system answered.
        source: io::Error,
    },
}

fn names(available: &[String]) -> String {
    if available.is_empty() { "none".to_owned() } else { available.join(", ") }
}

/// How a device moves packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// InfiniBand's own, over InfiniBand or Ethernet (RoCE).
    InfiniBand,
    /// iWARP: over TCP. Its queue pairs are connected by rdma_cm alone.
    Iwarp,
    /// Something else, which has no reliable connections of the kind used here.
    Other,
}

/// What a port is plugged into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkLayer {
    /// InfiniBand.
    InfiniBand,
    /// Ethernet: RoCE or iWARP.
    Ethernet,
    /// The device does not say.
    Unspecified,
}

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
    /// Whether it can be used.
    pub state: PortState,
    /// What it is plugged into.
    pub link_layer: LinkLayer,
    /// The largest path MTU it could use.
    pub most_mtu: PathMtu,
    /// The largest path MTU that its link carries now.
    pub mtu: PathMtu,
    /// Its rate in Mbit/s, as it is written on the box; 0 if the device does not say.
    pub rate: u32,
    /// Its local identifier in an InfiniBand subnet; 0 on Ethernet.
    pub lid: u16,
    /// Bytes of the longest message.
    pub most_message: u32,
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

/// What keeps a context open.
#[derive(Debug)]
enum Opened {
    /// It was opened here, and is closed here.
    Here,
    /// librdmacm opened it, and keeps it as long as this identifier lives.
    ByManager { _keeper: Arc<dyn core::any::Any + Send + Sync> },
}

#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) raw: *mut ibv_context,
    pub(crate) libraries: Libraries,
    name: String,
    transport: Transport,
    sysfs: String,
    opened: Opened,
}

// SAFETY: libibverbs allows all calls from any thread.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Drop for Context {
    fn drop(&mut self) {
        if let Opened::Here = self.opened {
            // SAFETY: opened here, and everything that was made from it has gone: it holds this context.
            unsafe { (self.libraries.verbs.ibv_close_device)(self.raw) };
        }
    }
}

/// An open device. Clones are the same device.
#[derive(Clone, Debug)]
pub struct Device(pub(crate) Arc<Context>);

/// What `errno` says, for a function that answers a null pointer.
pub(crate) fn last_error() -> io::Error {
    io::Error::last_os_error()
}

/// The devices as libibverbs lists them, freed when dropped.
struct List {
    libraries: Libraries,
    first: *mut *mut ibv_device,
    count: usize,
}

impl List {
    fn new(libraries: Libraries) -> Result<Self, DeviceError> {
        let mut count: c_int = 0;
        // SAFETY: the list is freed once, below.
        let first = unsafe { (libraries.verbs.ibv_get_device_list)(&mut count) };
        if first.is_null() {
            let error = last_error();
            // A kernel without RDMA answers so.
            if error.raw_os_error() == Some(libc::ENOSYS) {
                return Ok(Self { libraries, first, count: 0 });
            }
            return Err(DeviceError::List(error));
        }
        Ok(Self { libraries, first, count: count.max(0) as usize })
    }

    fn devices(&self) -> impl Iterator<Item = *mut ibv_device> + '_ {
        // SAFETY: the list has `count` entries.
        (0..self.count).map(|index| unsafe { *self.first.add(index) })
    }
}

impl Drop for List {
    fn drop(&mut self) {
        if !self.first.is_null() {
            // SAFETY: made by `ibv_get_device_list`; devices that are open stay.
            unsafe { (self.libraries.verbs.ibv_free_device_list)(self.first) };
        }
    }
}

/// A string in a fixed field.
fn field(bytes: &[core::ffi::c_char]) -> String {
    let bytes: Vec<u8> = bytes.iter().map(|&byte| byte as u8).take_while(|&byte| byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn name_of(device: *mut ibv_device) -> String {
    // SAFETY: the pointer came from a list of devices that is still there, or from an open context.
    field(unsafe { &(*device).name })
}

impl Device {
    /// The devices of this machine, in the kernel's order; none is no error, one that cannot be opened is.
    pub fn list(libraries: Libraries) -> Result<Vec<Description>, DeviceError> {
        let list = List::new(libraries)?;
        list.devices().map(|device| Self::open_raw(libraries, device)?.describe()).collect()
    }

    /// The names of the devices, without opening them.
    pub fn names(libraries: Libraries) -> Result<Vec<String>, DeviceError> {
        Ok(List::new(libraries)?.devices().map(name_of).collect())
    }

    /// Opens the device of this name.
    pub fn open(libraries: Libraries, name: &str) -> Result<Self, DeviceError> {
        let list = List::new(libraries)?;
        match list.devices().find(|&device| name_of(device) == name) {
            Some(device) => Self::open_raw(libraries, device),
            None => Err(DeviceError::NotFound {
                name: name.to_owned(),
                available: list.devices().map(name_of).collect(),
            }),
        }
    }

    fn open_raw(libraries: Libraries, device: *mut ibv_device) -> Result<Self, DeviceError> {
        // SAFETY: the device is one of a list that has not been freed.
        let raw = unsafe { (libraries.verbs.ibv_open_device)(device) };
        if raw.is_null() {
            let mut source = last_error();
            if source.raw_os_error() == Some(0) {
                source = io::Error::other("no reason was given");
            }
            return Err(DeviceError::Open { name: name_of(device), source });
        }
        Ok(Self::from_context(libraries, raw, Opened::Here))
    }

    /// The device of a context that librdmacm has opened, which it keeps open as long as `keeper` lives.
    pub(crate) fn of_manager(
        libraries: Libraries,
        raw: *mut ibv_context,
        keeper: Arc<dyn core::any::Any + Send + Sync>,
    ) -> Self {
        Self::from_context(libraries, raw, Opened::ByManager { _keeper: keeper })
    }

    fn from_context(libraries: Libraries, raw: *mut ibv_context, opened: Opened) -> Self {
        // SAFETY: an open context names its device, which lives as long as the context.
        let device = unsafe { &*(*raw).device };
        let transport = match device.transport_type {
            IBV_TRANSPORT_IB => Transport::InfiniBand,
            IBV_TRANSPORT_IWARP => Transport::Iwarp,
            _ => Transport::Other,
        };
        let (name, sysfs) = (field(&device.name), field(&device.ibdev_path));
        Self(Arc::new(Context { raw, libraries, name, transport, sysfs, opened }))
    }

    /// The kernel's name of it.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// How it moves packets.
    pub fn transport(&self) -> Transport {
        self.0.transport
    }

    /// The libraries it was opened with.
    pub fn libraries(&self) -> Libraries {
        self.0.libraries
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

    pub(crate) fn make_error(&self, what: &'static str) -> DeviceError {
        DeviceError::Make { name: self.0.name.clone(), what, source: last_error() }
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
            most_mtu: PathMtu::from_code(port.max_mtu),
            mtu: PathMtu::from_code(port.active_mtu),
            rate: rate(port.active_width, port.active_speed),
            lid: port.lid,
            most_message: port.max_msg_sz,
            gids: self.gids(number, (port.gid_tbl_len.max(0) as u32).min(MOST_GIDS)),
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

/// A port of a device, and the GID that names it.
#[derive(Clone, Debug)]
pub struct Chosen<'a> {
    /// The device.
    pub device: &'a Description,
    /// Its port.
    pub port: &'a Port,
    /// The GID.
    pub gid: GidEntry,
}

/// The port to use when the user names none: one that is active, first one that has the address `local` of the
/// connection beside it, then the fastest one. `name` restricts the choice to a device.
pub fn choose<'a>(
    devices: &'a [Description],
    name: Option<&str>,
    local: Option<IpAddr>,
) -> Option<Chosen<'a>> {
    let candidates = devices
        .iter()
        .filter(|device| name.is_none_or(|name| device.name == name) && device.transport != Transport::Other)
        .flat_map(|device| device.ports.iter().map(move |port| (device, port)))
        .filter(|(_, port)| port.state == PortState::Active)
        .filter_map(|(device, port)| {
            let gid = gid::choose(port.link_layer, &port.gids, local)?;
            Some(Chosen { device, port, gid })
        });
    // The first of equals, so that the choice does not change from start to start.
    candidates.min_by_key(|chosen| {
        let is_here = local.is_some() && chosen.port.gids.iter().any(|one| Some(one.gid.address()) == local);
        (!is_here, core::cmp::Reverse(chosen.port.rate))
    })
}

/// A null pointer as an error.
pub(crate) fn made<T>(
    raw: *mut T,
    device: &Device,
    what: &'static str,
) -> Result<ptr::NonNull<T>, DeviceError> {
    ptr::NonNull::new(raw).ok_or_else(|| device.make_error(what))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(name: &str, state: PortState, rate: u32, address: &str) -> Description {
        let address: std::net::Ipv4Addr = address.parse().unwrap();
        let gid = Gid(address.to_ipv6_mapped().octets());
        Description {
            name: name.to_owned(),
            transport: Transport::InfiniBand,
            firmware: String::new(),
            vendor: 0,
            limits: Limits {
                queue_pairs: 1,
                work_requests: 1,
                completions: 1,
                memory_regions: 1,
                memory_region_bytes: 1,
                reads: 1,
                answered_reads: 1,
            },
            ports: vec![Port {
                number: 1,
                state,
                link_layer: LinkLayer::Ethernet,
                most_mtu: PathMtu::Mtu4096,
                mtu: PathMtu::Mtu1024,
                rate,
                lid: 0,
                most_message: 1 << 30,
                gids: vec![GidEntry { index: 1, gid, kind: GidKind::RoceV2, interface: 2 }],
            }],
            sysfs: String::new(),
        }
    }

    #[test]
    fn the_port_with_the_connections_address_is_taken_then_the_fastest() {
        let devices = [
            device("a", PortState::Active, 10_000, "10.0.0.1"),
            device("b", PortState::Active, 100_000, "10.0.1.1"),
            device("c", PortState::Down, 400_000, "10.0.2.1"),
        ];
        let chosen = |name, local: Option<&str>| {
            let local = local.map(|address| address.parse().unwrap());
            choose(&devices, name, local).map(|chosen| chosen.device.name.clone())
        };
        assert_eq!(chosen(None, Some("10.0.0.1")).as_deref(), Some("a"));
        assert_eq!(chosen(None, Some("192.168.0.1")).as_deref(), Some("b"));
        assert_eq!(chosen(Some("a"), None).as_deref(), Some("a"));
        assert_eq!(chosen(Some("c"), None), None, "its port is down");
    }

    #[test]
    fn rates_are_those_on_the_box() {
        assert_eq!(rate(2, 16), 56_000, "FDR");
        assert_eq!(rate(2, 32), 100_000, "EDR");
        assert_eq!(rate(2, 128), 400_000, "NDR");
        assert_eq!(rate(1, 8), 10_000, "Soft-RoCE");
    }
}
