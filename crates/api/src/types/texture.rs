//! Source of a texture or a surface.

use crate::handle::{Array, Handle, MipmappedArray};
use crate::sys::CUarray_format;
use causeway_wire::codec::{Decode, DecodeError, Decoder, Encode};

/// What a texture or a surface looks into. `A` and `M` are what names arrays and mipmapped arrays.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TextureSource<A = Handle<Array>, M = Handle<MipmappedArray>> {
    /// An array.
    Array(A),
    /// A mipmapped array.
    Mipmapped(M),
    /// Elements in a row.
    Linear {
        /// Device address of the first one.
        address: u64,
        /// Their format.
        format: CUarray_format,
        /// Numbers in an element.
        channels: u32,
        /// Their size in bytes.
        bytes: u64,
    },
    /// Rows of elements.
    Rows {
        /// Device address of the first one.
        address: u64,
        /// Their format.
        format: CUarray_format,
        /// Numbers in an element.
        channels: u32,
        /// Elements of a row.
        width: u64,
        /// Rows.
        height: u64,
        /// Bytes from a row to the next.
        pitch: u64,
    },
}

impl Encode for TextureSource {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Array(array) => (0u8, *array).encode(out),
            Self::Mipmapped(array) => (1u8, *array).encode(out),
            Self::Linear { address, format, channels, bytes } => {
                (2u8, *format, *channels).encode(out);
                [*address, *bytes].encode(out);
            }
            Self::Rows { address, format, channels, width, height, pitch } => {
                (3u8, *format, *channels).encode(out);
                [*address, *width, *height, *pitch].encode(out);
            }
        }
    }
}

impl<'a> Decode<'a> for TextureSource {
    fn decode(input: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        match input.value::<u8>()? {
            0 => Ok(Self::Array(input.value()?)),
            1 => Ok(Self::Mipmapped(input.value()?)),
            2 => {
                let ((format, channels), [address, bytes]) = (input.value()?, input.value()?);
                Ok(Self::Linear { address, format, channels, bytes })
            }
            3 => {
                let ((format, channels), [address, width, height, pitch]) = (input.value()?, input.value()?);
                Ok(Self::Rows { address, format, channels, width, height, pitch })
            }
            other => Err(DecodeError::UnknownTag { what: "source of a texture", value: u64::from(other) }),
        }
    }
}
