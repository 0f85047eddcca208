//! Endpoint of a copy on the server: a region of memory or a box of an array.

use crate::handle::{Array, Handle};
use causeway_wire::codec::{Decode, DecodeError, Decoder, Encode};
use causeway_wire::record;

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

    /// How many bytes there are from its first one to its last one, both included, or nothing when that
    /// overflows.
    pub fn extent(&self) -> Option<u64> {
        if self.bytes()? == 0 {
            return Some(0);
        }
        let steps = |count: u64, pitch: u64| if count > 1 { pitch.checked_mul(count - 1) } else { Some(0) };
        let rows = steps(self.height, self.row_pitch)?;
        let slices = steps(self.depth, self.slice_pitch)?;
        rows.checked_add(slices)?.checked_add(self.width)
    }

    /// The region where it lies when the `size` bytes at `from` are found at `to`; nothing when it does not
    /// lie inside of them.
    pub fn moved(&self, from: u64, size: u64, to: u64) -> Option<Self> {
        let at = self.address.checked_sub(from)?;
        let end = at.checked_add(self.extent()?)?;
        let address = to.checked_add(at)?;
        (end <= size).then_some(Self { address, ..*self })
    }

    /// Whether the region's bytes lie one after the other without gaps.
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
pub enum DeviceLocation<A = Handle<Array>> {
    /// Memory with an address.
    Memory(Region),
    /// A part of an array, whose layout only the device knows.
    Array(ArrayBox<A>),
}

impl<A> From<Region> for DeviceLocation<A> {
    fn from(region: Region) -> Self {
        Self::Memory(region)
    }
}

impl<A> DeviceLocation<A> {
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

    /// A part of it, `at` so many bytes of a row, rows and slices from its start; nothing when that lies
    /// outside.
    pub fn part(&self, at: [u64; 3], size: [u64; 3]) -> Option<Self>
    where
        A: Copy,
    {
        let (width, height, depth) = self.size();
        let contained = |(at, size): (u64, u64), whole| at.checked_add(size).is_some_and(|end| end <= whole);
        if ![width, height, depth]
            .into_iter()
            .zip(at.into_iter().zip(size))
            .all(|(whole, part)| contained(part, whole))
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

    /// The same location with another name of the array.
    pub fn try_map<B, E>(&self, name: impl FnOnce(&A) -> Result<B, E>) -> Result<DeviceLocation<B>, E> {
        Ok(match self {
            Self::Memory(region) => DeviceLocation::Memory(*region),
            Self::Array(ArrayBox { array, x, y, z, width, height, depth }) => {
                DeviceLocation::Array(ArrayBox {
                    array: name(array)?,
                    x: *x,
                    y: *y,
                    z: *z,
                    width: *width,
                    height: *height,
                    depth: *depth,
                })
            }
        })
    }
}

impl Encode for DeviceLocation {
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

impl<'a> Decode<'a> for DeviceLocation {
    fn decode(input: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        match input.value::<u8>()? {
            0 => Ok(Self::Memory(input.value()?)),
            1 => {
                let array = input.value()?;
                let [x, y, z, width, height, depth] = input.value()?;
                Ok(Self::Array(ArrayBox { array, x, y, z, width, height, depth }))
            }
            other => Err(DecodeError::UnknownTag { what: "location of a copy", value: u64::from(other) }),
        }
    }
}

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
