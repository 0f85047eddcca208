//! What the tests of textures share.

use super::types::{AddressMode, Filter, Image, Sampling};

/// How the texture of a test is read: texels as they are, by unnormalized coordinates.
pub(super) fn sampling() -> Sampling {
    Sampling {
        address: [AddressMode::Clamp; 3],
        filter: Filter::Point,
        level_filter: Filter::Point,
        level_bias: 0.0,
        level_range: [0.0, 16.0],
        border: [0.0; 4],
        normalized_coordinates: false,
        normalized_values: false,
        srgb: false,
    }
}

/// An image of dense texels in host memory.
pub(super) fn image<T>(texels: &[T], size: [u32; 3], channels: u32) -> Image {
    let [width, height, depth] = size.map(u64::from);
    let texel = size_of::<T>() as u64 * u64::from(channels);
    assert_eq!(size_of_val(texels) as u64, width * height * depth * texel);
    let row_pitch = width * texel;
    Image { address: texels.as_ptr() as u64, size, row_pitch, slice_pitch: row_pitch * height }
}
