//! Arguments and results of the session's own operations.

mod cluster;
mod element;
mod graph;
mod jit;
mod launch;
mod location;
mod payload;
mod texture;

pub use cluster::{ClusterRules, MAX_CLUSTER_BLOCKS, PORTABLE_CLUSTER_BLOCKS, cluster_dimension};
pub use element::channel_bytes;
pub use graph::{Fill, GraphEdge, ValueOperation};
pub use jit::{JitOptions, JitReport, is_plain_jit_option};
pub use launch::{FunctionInfo, LaunchAttribute, LaunchShape, Parameter};
pub use location::{ArrayBox, DeviceLocation, Region};
pub use payload::Payload;
pub use texture::TextureSource;

pub use causeway_wire::remote_region::RemoteRegion;

use causeway_wire::record;
use causeway_wire::text::Printable;

/// A resource of a device. The driver's own structure has parts that only it understands: it stays on the
/// server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceResource {
    /// Its number in the server's table.
    pub id: u64,
    /// `CUdevResourceType`.
    pub kind: u32,
    /// What a program may read of it, as its bytes.
    pub value: [u8; 48],
}

record!(DeviceResource { id, kind, value });

/// What a program asks of device memory that it makes with `cuMemCreate`: `CUmemAllocationProp` without its
/// pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct AllocationProperties {
    /// `CUmemAllocationType`.
    pub kind: u32,
    /// `CUmemAllocationHandleType`s, as a mask.
    pub handle_types: u32,
    /// `CUmemLocationType`.
    pub location: u32,
    /// The server's number of the device, or what the location type makes of it.
    pub location_id: i32,
    /// `CUmemAllocationCompType`.
    pub compression: u8,
    /// Whether network cards are to reach it.
    pub rdma: u8,
    /// Flags of `CUmemAllocationProp::allocFlags.usage`.
    pub usage: u16,
}

record!(AllocationProperties { kind, handle_types, location, location_id, compression, rdma, usage });

/// Who may do what in a range of mapped addresses: `CUmemAccessDesc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct AddressAccess {
    /// `CUmemLocationType`.
    pub location: u32,
    /// The server's number of the device, or what the location type makes of it.
    pub location_id: i32,
    /// `CUmemAccess_flags`.
    pub flags: u32,
}

record!(AddressAccess { location, location_id, flags });

/// A stretch of memory of a mirror.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct MemoryRange {
    /// Its first address on the device.
    pub address: u64,
    /// How many bytes it has.
    pub bytes: u64,
}

record!(MemoryRange { address, bytes });

/// Credentials with which another server's worker connects to fetch copies: a session, and its secret.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct PeerTicket {
    /// The session whose worker gave it.
    pub session: [u8; 16],
    /// The shared secret.
    pub secret: [u8; 32],
    /// Shows servers that hold the same key that the address by which the client reached the giving server is
    /// that server's; zeros where that is not known.
    pub proof: [u8; 32],
}

record!(PeerTicket { session, secret, proof });

impl core::fmt::Debug for PeerTicket {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("PeerTicket(..)")
    }
}

/// What came of connecting a worker to that of another server.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct PeerTransport {
    /// The module that carries copies; empty when there is no way.
    pub via: Printable,
    /// Why no better one does, or why none does.
    pub reason: Printable,
}

record!(PeerTransport { via, reason });

/// The name under which a session leaves something with the broker for other sessions of the same identity:
/// memory or an event. Who knows it may have it, so it cannot be guessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct ExportToken(pub [u8; 16]);

record!(ExportToken { 0 });
