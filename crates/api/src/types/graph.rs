//! Graph nodes and edges on the wire.

use crate::sys::CUgraphEdgeData;
use causeway_wire::record;

/// An edge of a graph, as the node at its end has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GraphEdge {
    /// The number of the node where it begins.
    pub from: u32,
    /// The outgoing port of that node (`CUgraphEdgeData::from_port`).
    pub from_port: u8,
    /// The incoming port of the node at its end.
    pub to_port: u8,
    /// `CUgraphDependencyType`.
    pub kind: u8,
}

record!(GraphEdge { from, from_port, to_port, kind });

impl GraphEdge {
    /// Whether the whole of one node comes before the whole of the other.
    pub fn is_plain(&self) -> bool {
        (self.from_port, self.to_port, self.kind) == (0, 0, 0)
    }
}

/// What two edges say is the same when these are; the reserved bytes mean nothing.
impl PartialEq for CUgraphEdgeData {
    fn eq(&self, other: &Self) -> bool {
        (self.from_port, self.to_port, self.type_) == (other.from_port, other.to_port, other.type_)
    }
}

impl Eq for CUgraphEdgeData {}

/// A fill of device memory by a node of a graph: `height` rows of `width` elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fill {
    /// Device address of the first element.
    pub address: u64,
    /// Bytes from a row to the next; of no meaning when `height` is 1.
    pub pitch: u64,
    /// The value; its low bytes count.
    pub value: u32,
    /// Bytes of an element: 1, 2 or 4.
    pub element: u32,
    /// Elements of a row.
    pub width: u64,
    /// Rows.
    pub height: u64,
}

record!(Fill { address, pitch, value, element, width, height });

/// A stream memory operation (`CUstreamBatchMemOpParams`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ValueOperation {
    /// `CUstreamBatchMemOpType`.
    pub kind: u32,
    /// The device address that is written or compared.
    pub address: u64,
    /// The value; for 32-bit operations its low half.
    pub value: u64,
    /// Flags of the operation.
    pub flags: u32,
}

record!(ValueOperation { kind, address, value, flags });
