//! Arguments and results of the session's own operations.

mod graph;
mod jit;
mod texture;

pub use graph::{Fill, GraphEdge, ValueOperation};
pub use jit::{JitOptions, JitReport, is_plain_jit_option};
pub use texture::TextureSource;

use crate::handle::{Array, Handle};
use causeway_wire::codec::{Decode, DecodeError, Decoder, Encode};
use causeway_wire::record;

pub use causeway_wire::lent::LentMemory;

/// Bulk data of a command: inside the command, sent over the lanes as a numbered transfer, or named by its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload<'a> {
    /// The bytes themselves.
    Inline(&'a [u8]),
    /// The bytes come as transfer `number`, `length` in all.
    Transfer {
        /// The transfer's number, chosen by the client and never used again in the session.
        number: u64,
        /// How many bytes it has.
        length: u64,
    },
    /// The bytes are a module's image that the server may have kept from an earlier session. If it has not, it asks
    /// for them, and they come as transfer `number`.
    Image {
        /// The transfer's number, chosen by the client and never used again in the session.
        number: u64,
        /// How many bytes it has.
        length: u64,
        /// The BLAKE3 hash of the bytes.
        hash: [u8; 32],
    },
    /// The bytes of a copy lie in memory of the client, which the server's network card reads when it is the copy's turn.
    Lent {
        /// A number that no transfer of the session has.
        number: u64,
        /// How many bytes there are.
        length: u64,
        /// Where they are.
        memory: LentMemory,
    },
}

impl Encode for Payload<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Inline(bytes) => {
                0u8.encode(out);
                bytes.encode(out);
            }
            Self::Transfer { number, length } => {
                1u8.encode(out);
                number.encode(out);
                length.encode(out);
            }
            Self::Image { number, length, hash } => {
                2u8.encode(out);
                number.encode(out);
                length.encode(out);
                hash.encode(out);
            }
            Self::Lent { number, length, memory } => {
                3u8.encode(out);
                number.encode(out);
                length.encode(out);
                memory.encode(out);
            }
        }
    }
}

impl<'a> Decode<'a> for Payload<'a> {
    fn decode(input: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        match input.value::<u8>()? {
            0 => Ok(Self::Inline(input.value()?)),
            1 => Ok(Self::Transfer { number: input.value()?, length: input.value()? }),
            2 => Ok(Self::Image { number: input.value()?, length: input.value()?, hash: input.value()? }),
            3 => Ok(Self::Lent { number: input.value()?, length: input.value()?, memory: input.value()? }),
            other => Err(DecodeError::UnknownTag { what: "payload", value: u64::from(other) }),
        }
    }
}

/// Device memory of up to three dimensions: `depth` slices of `height` rows of `width` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Region {
    /// Device address of the first byte.
    pub address: u64,
    /// Bytes from a row to the next; of no meaning when `height` is 1.
    pub row_pitch: u64,
    /// Bytes from a slice to the next; of no meaning when `depth` is 1.
    pub slice_pitch: u64,
    /// Bytes of a row.
    pub width: u64,
    /// Rows of a slice.
    pub height: u64,
    /// Slices.
    pub depth: u64,
}

record!(Region { address, row_pitch, slice_pitch, width, height, depth });

impl Region {
    /// `length` bytes in a row.
    pub fn linear(address: u64, length: u64) -> Self {
        Self { address, row_pitch: length, slice_pitch: length, width: length, height: 1, depth: 1 }
    }

    /// How many bytes the region holds, or nothing when that overflows.
    pub fn bytes(&self) -> Option<u64> {
        self.width.checked_mul(self.height)?.checked_mul(self.depth)
    }

    /// How many bytes there are from its first one to its last one, both included, or nothing when that overflows.
    pub fn extent(&self) -> Option<u64> {
        if self.bytes()? == 0 {
            return Some(0);
        }
        let steps = |count: u64, pitch: u64| if count > 1 { pitch.checked_mul(count - 1) } else { Some(0) };
        let rows = steps(self.height, self.row_pitch)?;
        let slices = steps(self.depth, self.slice_pitch)?;
        rows.checked_add(slices)?.checked_add(self.width)
    }

    /// The region where it lies when the `size` bytes at `from` are found at `to`; nothing when it does not lie inside of them.
    pub fn moved(&self, from: u64, size: u64, to: u64) -> Option<Self> {
        let at = self.address.checked_sub(from)?;
        let end = at.checked_add(self.extent()?)?;
        let address = to.checked_add(at)?;
        (end <= size).then_some(Self { address, ..*self })
    }

    /// Whether its bytes lie one after the other without gaps.
    pub fn is_contiguous(&self) -> bool {
        (self.height <= 1 || self.row_pitch == self.width)
            && (self.depth <= 1 || Some(self.slice_pitch) == self.width.checked_mul(self.height))
    }
}

/// A box of an array, cut out of it as `cuMemcpy3D` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArrayBox<A> {
    /// The array.
    pub array: A,
    /// Its first byte in a row.
    pub x: u64,
    /// Its first row.
    pub y: u64,
    /// Its first slice or layer.
    pub z: u64,
    /// Bytes of a row.
    pub width: u64,
    /// Rows of a slice.
    pub height: u64,
    /// Slices.
    pub depth: u64,
}

/// One end of a copy on the server: memory, or a part of an array. `A` is what names the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DevicePlace<A = Handle<Array>> {
    /// Memory with an address.
    Memory(Region),
    /// A part of an array, whose layout only the device knows.
    Array(ArrayBox<A>),
}

impl<A> From<Region> for DevicePlace<A> {
    fn from(region: Region) -> Self {
        Self::Memory(region)
    }
}

impl<A> DevicePlace<A> {
    /// Its width in bytes, its height and its depth.
    pub fn size(&self) -> (u64, u64, u64) {
        match self {
            Self::Memory(region) => (region.width, region.height, region.depth),
            Self::Array(part) => (part.width, part.height, part.depth),
        }
    }

    /// How many bytes it holds, or nothing when that overflows.
    pub fn bytes(&self) -> Option<u64> {
        let (width, height, depth) = self.size();
        width.checked_mul(height)?.checked_mul(depth)
    }

    /// A part of it, `at` so many bytes of a row, rows and slices from its start; nothing when that lies outside.
    pub fn part(&self, at: [u64; 3], size: [u64; 3]) -> Option<Self>
    where
        A: Copy,
    {
        let (width, height, depth) = self.size();
        let inside = |(at, size): (u64, u64), whole| at.checked_add(size).is_some_and(|end| end <= whole);
        if ![width, height, depth]
            .into_iter()
            .zip(at.into_iter().zip(size))
            .all(|(whole, part)| inside(part, whole))
        {
            return None;
        }
        let ([x, y, z], [width, height, depth]) = (at, size);
        Some(match *self {
            Self::Memory(region) => {
                let rows =
                    y.checked_mul(region.row_pitch)?.checked_add(z.checked_mul(region.slice_pitch)?)?;
                let address = region.address.checked_add(x)?.checked_add(rows)?;
                Self::Memory(Region { address, width, height, depth, ..region })
            }
            Self::Array(part) => Self::Array(ArrayBox {
                x: part.x.checked_add(x)?,
                y: part.y.checked_add(y)?,
                z: part.z.checked_add(z)?,
                width,
                height,
                depth,
                ..part
            }),
        })
    }

    /// The same place with the array named otherwise.
    pub fn try_map<B, E>(&self, name: impl FnOnce(&A) -> Result<B, E>) -> Result<DevicePlace<B>, E> {
        Ok(match self {
            Self::Memory(region) => DevicePlace::Memory(*region),
            Self::Array(ArrayBox { array, x, y, z, width, height, depth }) => DevicePlace::Array(ArrayBox {
                array: name(array)?,
                x: *x,
                y: *y,
                z: *z,
                width: *width,
                height: *height,
                depth: *depth,
            }),
        })
    }
}

impl Encode for DevicePlace {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Memory(region) => {
                0u8.encode(out);
                region.encode(out);
            }
            Self::Array(part) => {
                1u8.encode(out);
                part.array.encode(out);
                [part.x, part.y, part.z, part.width, part.height, part.depth].encode(out);
            }
        }
    }
}

impl<'a> Decode<'a> for DevicePlace {
    fn decode(input: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        match input.value::<u8>()? {
            0 => Ok(Self::Memory(input.value()?)),
            1 => {
                let array = input.value()?;
                let [x, y, z, width, height, depth] = input.value()?;
                Ok(Self::Array(ArrayBox { array, x, y, z, width, height, depth }))
            }
            other => Err(DecodeError::UnknownTag { what: "place of a copy", value: u64::from(other) }),
        }
    }
}

/// Grid, blocks and dynamic shared memory of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct LaunchShape {
    /// Blocks in x, y and z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y and z.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory of a block.
    pub shared_bytes: u32,
}

record!(LaunchShape { grid, block, shared_bytes });

/// A `CUlaunchAttribute` that holds no address of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LaunchAttribute {
    /// `CUlaunchAttributeID`.
    pub id: u32,
    /// `CUlaunchAttributeValue` as its bytes.
    pub value: [u8; 64],
}

record!(LaunchAttribute { id, value });

/// A resource of a device. The driver's own structure has parts that only it understands: it stays on the server.
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

/// Where a kernel parameter lies in the parameter buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Bytes from the front of the buffer.
    pub offset: u32,
    /// Its size in bytes.
    pub size: u32,
}

record!(Parameter { offset, size });

/// What the client keeps of a function, so that launching it and asking about it need no round trip.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct FunctionInfo {
    /// The (mangled) name.
    pub name: String,
    /// The layout of its parameters, in order.
    pub parameters: Vec<Parameter>,
    /// Values of `CUfunction_attribute`, as pairs of attribute number and value.
    pub attributes: Vec<(i32, i32)>,
}

record!(FunctionInfo { name, parameters, attributes });

impl FunctionInfo {
    /// Bytes of the parameter buffer.
    pub fn parameter_bytes(&self) -> usize {
        self.parameters.iter().map(|p| p.offset as usize + p.size as usize).max().unwrap_or(0)
    }

    /// The value of an attribute, if the server reported it.
    pub fn attribute(&self, attribute: i32) -> Option<i32> {
        self.attributes.iter().find(|(number, _)| *number == attribute).map(|(_, value)| *value)
    }
}

/// What a program asks of device memory that it makes with `cuMemCreate`: `CUmemAllocationProp` without its pointer.
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

/// With what the worker of another server comes to fetch copies: the session it leads to, and its secret.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct PeerTicket {
    /// The session whose worker gave it.
    pub session: [u8; 16],
    /// Who knows it may come.
    pub secret: [u8; 32],
}

record!(PeerTicket { session, secret });

impl core::fmt::Debug for PeerTicket {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("PeerTicket(..)")
    }
}

/// What came of connecting a worker to that of another server.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct PeerWay {
    /// The module that carries copies; empty when there is no way.
    pub via: String,
    /// Why no better one does, or why none does.
    pub reason: String,
}

record!(PeerWay { via, reason });

/// The name under which a session leaves something with the broker for other sessions of the same identity: memory or
/// an event. Who knows it may have it, so it cannot be guessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct ExportToken(pub [u8; 16]);

record!(ExportToken { 0 });

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_moves_with_the_memory_that_holds_all_of_it() {
        let moved = |address, length| Region::linear(address, length).moved(0x20_0000, 0x20_0000, 0x1000);
        assert_eq!(moved(0x20_0010, 16).unwrap().address, 0x1010);
        assert!(moved(0x20_0000, 0x20_0000).is_some());
        assert_eq!(moved(0x20_0001, 0x20_0000), None);
        assert_eq!(moved(0x1f_ffff, 1), None);
        assert_eq!(moved(0x20_0000, u64::MAX), None);
        assert_eq!(moved(u64::MAX, 2), None);
    }

    #[test]
    fn rows_and_slices_must_lie_inside_too() {
        let rows = Region { address: 20, row_pitch: 30, slice_pitch: 0, width: 20, height: 3, depth: 1 };
        let moved = |region: Region| region.moved(0, 100, 0x1000);
        assert_eq!(moved(rows), Some(Region { address: 0x1014, ..rows }));
        assert_eq!(moved(Region { height: 4, ..rows }), None);
        assert_eq!(moved(Region { depth: 2, slice_pitch: u64::MAX / 2, ..rows }), None);
    }
}
