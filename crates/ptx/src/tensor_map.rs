//! Tensor maps (`CUtensorMap`): a tensor in global memory and the box of it that one copy moves, as kernels carry them in 128
//! opaque bytes.
//!
//! The meaning of the fields is that of `cuTensorMapEncodeTiled`; CUDA leaves the bytes open. Whatever bytes a kernel
//! passes as a map are checked when a copy reads them.

/// Bytes of a map.
pub const TENSOR_MAP_BYTES: usize = 128;

/// The most dimensions of a tensor.
pub const MAX_TENSOR_RANK: usize = 5;

/// Limits that `cuTensorMapEncodeTiled` states.
const MAX_BOX: u32 = 256;
const MAX_ELEMENT_STRIDE: u32 = 8;
const MAX_DIM: u64 = 1 << 32;
const MAX_STRIDE: u64 = 1 << 40;

/// What addresses, strides and the rows of a box are multiples of.
const UNIT: u64 = 16;

/// The first bytes of a map. Another layout gets another number at the end.
const MAGIC: u64 = u64::from_le_bytes(*b"CWtmap01");

/// Where 16-byte units of a box lie in shared memory: bits of the address above 128 bytes are added, exclusive or, to
/// those below, so that threads which read a column meet different banks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Swizzle {
    /// As they come.
    None = 0,
    /// Rows of 32 bytes.
    Bytes32 = 1,
    /// Rows of 64 bytes.
    Bytes64 = 2,
    /// Rows of 128 bytes.
    Bytes128 = 3,
}

impl Swizzle {
    fn from_number(number: u8) -> Option<Self> {
        [Self::None, Self::Bytes32, Self::Bytes64, Self::Bytes128]
            .into_iter()
            .find(|swizzle| *swizzle as u8 == number)
    }

    /// Bytes of a row, where all rows have as many.
    fn row(self) -> Option<u64> {
        match self {
            Self::None => None,
            Self::Bytes32 => Some(32),
            Self::Bytes64 => Some(64),
            Self::Bytes128 => Some(128),
        }
    }

    /// The address of a byte that would lie at `address` without swizzling.
    pub fn apply(self, address: u64) -> u64 {
        // One bit for 32 bytes, three for 128: those from 16 bytes on by those from 128 bytes on.
        let mask = self.row().map_or(0, |row| row - UNIT);
        address ^ (address >> 3 & mask)
    }
}

/// A tensor and a box of it. Dimensions are in the order of their strides, the innermost first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TensorMap {
    /// Dimensions, 1 to [`MAX_TENSOR_RANK`]. Arrays beyond it hold zeros.
    pub rank: usize,
    /// Bytes of an element: 1, 2, 4 or 8.
    pub element_bytes: u32,
    /// Whether elements are 32-bit floating-point numbers of which subnormal ones become zero.
    pub flushes_subnormals: bool,
    /// The address of the tensor.
    pub address: u64,
    /// Elements along each dimension.
    pub dims: [u64; MAX_TENSOR_RANK],
    /// Bytes from an element to the next along all dimensions but the first.
    pub strides: [u64; MAX_TENSOR_RANK - 1],
    /// Elements that the box spans along each dimension.
    pub box_dims: [u32; MAX_TENSOR_RANK],
    /// Of how many elements along a dimension one is moved; the first dimension's is ignored.
    pub element_strides: [u32; MAX_TENSOR_RANK],
    /// The order in shared memory.
    pub swizzle: Swizzle,
}

impl TensorMap {
    /// Whether all is within the limits of `cuTensorMapEncodeTiled`, and the rows of a swizzled box have their full length.
    pub fn is_valid(&self) -> bool {
        let rank = self.rank;
        (1..=MAX_TENSOR_RANK).contains(&rank)
            && matches!(self.element_bytes, 1 | 2 | 4 | 8)
            && (!self.flushes_subnormals || self.element_bytes == 4)
            && self.address.is_multiple_of(UNIT)
            && self.dims[..rank].iter().all(|dim| (1..=MAX_DIM).contains(dim))
            && self.strides[..rank - 1]
                .iter()
                .all(|stride| stride.is_multiple_of(UNIT) && *stride < MAX_STRIDE)
            && self.box_dims[..rank].iter().all(|dim| (1..=MAX_BOX).contains(dim))
            && self.element_strides[..rank].iter().all(|stride| (1..=MAX_ELEMENT_STRIDE).contains(stride))
            && self.row_bytes().is_multiple_of(UNIT)
            && self.swizzle.row().is_none_or(|row| row == self.row_bytes())
    }

    /// Elements that are moved along a dimension.
    pub fn count(&self, dimension: usize) -> u32 {
        match dimension {
            0 => self.box_dims[0],
            dimension if dimension < self.rank => self.box_dims[dimension].div_ceil(self.step(dimension)),
            _ => 1,
        }
    }

    /// Elements from one that is moved to the next along a dimension.
    pub fn step(&self, dimension: usize) -> u32 {
        if dimension == 0 { 1 } else { self.element_strides[dimension] }
    }

    /// Bytes of a row of the box.
    pub fn row_bytes(&self) -> u64 {
        u64::from(self.box_dims[0]) * u64::from(self.element_bytes)
    }

    /// Bytes of the box in shared memory.
    pub fn box_bytes(&self) -> u64 {
        (1..self.rank).map(|dimension| u64::from(self.count(dimension))).product::<u64>() * self.row_bytes()
    }

    /// The bytes that kernels carry.
    pub fn encode(&self) -> [u8; TENSOR_MAP_BYTES] {
        let mut bytes = Vec::with_capacity(TENSOR_MAP_BYTES);
        bytes.extend(MAGIC.to_le_bytes());
        let small = [
            self.rank as u8,
            self.element_bytes as u8,
            u8::from(self.flushes_subnormals),
            self.swizzle as u8,
        ];
        bytes.extend(small);
        bytes.extend(self.element_strides.map(|stride| stride as u8));
        bytes.extend(self.box_dims.iter().flat_map(|dim| (*dim as u16).to_le_bytes()));
        bytes.extend(self.address.to_le_bytes());
        bytes.extend(self.dims.iter().chain(&self.strides).flat_map(|number| number.to_le_bytes()));
        bytes.resize(TENSOR_MAP_BYTES, 0);
        bytes.try_into().expect("it has so many bytes")
    }

    /// A map from its bytes, if they are one that [`is_valid`](Self::is_valid).
    pub fn decode(bytes: &[u8; TENSOR_MAP_BYTES]) -> Option<Self> {
        let mut rest = bytes.as_slice();
        let mut next = |count: usize| {
            let (head, tail) = rest.split_at(count);
            rest = tail;
            head.iter().rev().fold(0_u64, |number, byte| number << 8 | u64::from(*byte))
        };
        if next(8) != MAGIC {
            return None;
        }
        let (rank, element_bytes, flushes, swizzle) = (next(1), next(1), next(1), next(1));
        let element_strides = std::array::from_fn(|_| next(1) as u32);
        let box_dims = std::array::from_fn(|_| next(2) as u32);
        let address = next(8);
        let dims = std::array::from_fn(|_| next(8));
        let strides = std::array::from_fn(|_| next(8));
        let map = Self {
            rank: rank as usize,
            element_bytes: element_bytes as u32,
            flushes_subnormals: flushes != 0,
            address,
            dims,
            strides,
            box_dims,
            element_strides,
            swizzle: Swizzle::from_number(swizzle as u8)?,
        };
        map.is_valid().then_some(map)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map() -> TensorMap {
        TensorMap {
            rank: 3,
            element_bytes: 4,
            flushes_subnormals: false,
            address: 0x7000_0000,
            dims: [100, 7, 1 << 32, 0, 0],
            strides: [400, 1 << 20, 0, 0],
            box_dims: [32, 256, 5, 0, 0],
            element_strides: [8, 1, 2, 0, 0],
            swizzle: Swizzle::Bytes128,
        }
    }

    #[test]
    fn a_map_is_what_its_bytes_were_made_of() {
        let map = map();
        assert_eq!(TensorMap::decode(&map.encode()), Some(map));
        assert_eq!((map.count(0), map.count(1), map.count(2), map.count(3)), (32, 256, 3, 1));
        assert_eq!(map.box_bytes(), 128 * 256 * 3);
    }

    #[test]
    fn what_is_beyond_a_limit_is_no_map() {
        let wrong: [fn(&mut TensorMap); 12] = [
            |map| map.rank = 0,
            |map| map.rank = 6,
            |map| map.element_bytes = 3,
            |map| map.address += 8,
            |map| map.dims[1] = 0,
            |map| map.dims[2] += 1,
            |map| map.strides[0] = 408,
            |map| map.strides[1] = 1 << 40,
            |map| map.box_dims[1] = 257,
            |map| map.box_dims[2] = 0,
            |map| map.element_strides[1] = 9,
            |map| map.swizzle = Swizzle::Bytes64,
        ];
        for (at, change) in wrong.iter().enumerate() {
            let mut map = map();
            change(&mut map);
            assert_eq!(TensorMap::decode(&map.encode()), None, "{at}");
        }
        let mut bytes = map().encode();
        bytes[0] ^= 1;
        assert_eq!(TensorMap::decode(&bytes), None);
    }

    #[test]
    fn swizzling_moves_units_within_their_rows_and_back() {
        for (swizzle, address, swizzled) in [
            (Swizzle::None, 0x390, 0x390),
            (Swizzle::Bytes32, 0x080, 0x090),
            (Swizzle::Bytes32, 0x100, 0x100),
            (Swizzle::Bytes64, 0x190, 0x1a0),
            (Swizzle::Bytes128, 0x3f0, 0x380),
            (Swizzle::Bytes128, 0x404, 0x404),
        ] {
            assert_eq!(swizzle.apply(address), swizzled, "{swizzle:?} {address:#x}");
            assert_eq!(swizzle.apply(swizzled), address, "{swizzle:?} {swizzled:#x}");
        }
    }
}
