//! Size limits of arrays and textures: as large as on NVIDIA's recent GPUs, so that what fits here
//! fits there.

use causeway_api::sys::{CUDA_ARRAY3D_DESCRIPTOR, CUdevice_attribute as A};

/// `CUDA_ARRAY3D_LAYERED`: the depth counts layers.
pub(super) const LAYERED: u32 = 1;
/// `CUDA_ARRAY3D_SURFACE_LDST`: kernels may write to it through a surface.
pub(super) const SURFACE: u32 = 2;
/// `CUDA_ARRAY3D_CUBEMAP`: the depth counts the six faces of each cube.
pub(super) const CUBE: u32 = 4;
/// `CUDA_ARRAY3D_TEXTURE_GATHER`: kernels may gather its texels.
pub(super) const GATHER: u32 = 8;

const ROW: usize = 131_072;
const PLANE: [usize; 2] = [131_072, 65_536];
const VOLUME: usize = 16_384;
const FLAT_VOLUME: [usize; 3] = [8192, 8192, 32_768];
const LAYERED_SIDE: usize = 32_768;
const LAYERS: usize = 2048;
const FACES: usize = 2046;
/// Elements of a texture in linear memory.
pub(super) const LINEAR: u64 = 1 << 28;
/// Width and height of a texture of rows in memory, and bytes from a row to the next.
pub(super) const ROWS: [u64; 3] = [131_072, 65_000, 2_097_120];
/// Bytes of which the addresses of textures in memory are multiples.
pub(super) const ALIGNMENT: u64 = 512;
/// Bytes of which the pitches of their rows are multiples.
pub(super) const PITCH_ALIGNMENT: u64 = 32;

/// Whether an array may be so large; a size of 0 is that of a direction which it does not have.
pub(super) fn fits(descriptor: &CUDA_ARRAY3D_DESCRIPTOR) -> bool {
    let size = [descriptor.Width, descriptor.Height, descriptor.Depth];
    let within = |max: [usize; 3]| size.iter().zip(max).all(|(size, max)| *size <= max);
    let (layered, cube) = (descriptor.Flags & LAYERED != 0, descriptor.Flags & CUBE != 0);
    match size {
        _ if descriptor.Flags & GATHER != 0 && size[0].max(size[1]) > LAYERED_SIDE => false,
        [width, height, depth] if cube => {
            let whole = if layered { depth.is_multiple_of(6) && depth > 0 } else { depth == 6 };
            width == height && whole && within([LAYERED_SIDE, LAYERED_SIDE, FACES])
        }
        _ if layered => within([LAYERED_SIDE, LAYERED_SIDE, LAYERS]),
        [_, 0, 0] => within([ROW, 0, 0]),
        [_, _, 0] => within([PLANE[0], PLANE[1], 0]),
        _ => within([VOLUME; 3]) || within(FLAT_VOLUME),
    }
}

/// What the device's attributes say of it.
pub(super) fn attributes() -> Vec<(A, u32)> {
    let entries = [
        (A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_WIDTH, ROW),
        (A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_WIDTH, PLANE[0]),
        (A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_HEIGHT, PLANE[1]),
        (A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH, VOLUME),
        (A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT, VOLUME),
        (A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH, VOLUME),
        (A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH_ALTERNATE, FLAT_VOLUME[0]),
        (A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT_ALTERNATE, FLAT_VOLUME[1]),
        (A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH_ALTERNATE, FLAT_VOLUME[2]),
        (A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_WIDTH, LAYERED_SIDE),
        (A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_LAYERS, LAYERS),
        (A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_WIDTH, LAYERED_SIDE),
        (A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_HEIGHT, LAYERED_SIDE),
        (A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_LAYERS, LAYERS),
        (A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_WIDTH, LAYERED_SIDE),
        (A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_WIDTH, LAYERED_SIDE),
        (A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_LAYERS, FACES),
        (A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_WIDTH, LAYERED_SIDE),
        (A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_HEIGHT, LAYERED_SIDE),
        (A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_MIPMAPPED_WIDTH, LAYERED_SIDE),
        (A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_MIPMAPPED_WIDTH, LAYERED_SIDE),
        (A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_MIPMAPPED_HEIGHT, LAYERED_SIDE),
        (A::CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_WIDTH, LAYERED_SIDE),
        (A::CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_WIDTH, PLANE[0]),
        (A::CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_HEIGHT, PLANE[1]),
        (A::CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_WIDTH, VOLUME),
        (A::CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_HEIGHT, VOLUME),
        (A::CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_DEPTH, VOLUME),
        (A::CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_WIDTH, LAYERED_SIDE),
        (A::CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_LAYERS, LAYERS),
        (A::CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_WIDTH, LAYERED_SIDE),
        (A::CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_HEIGHT, LAYERED_SIDE),
        (A::CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_LAYERS, LAYERS),
        (A::CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_WIDTH, LAYERED_SIDE),
        (A::CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_LAYERED_WIDTH, LAYERED_SIDE),
        (A::CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_LAYERED_LAYERS, FACES),
        (A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH, LINEAR as usize),
        (A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_WIDTH, ROWS[0] as usize),
        (A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_HEIGHT, ROWS[1] as usize),
        (A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_PITCH, ROWS[2] as usize),
        (A::CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, ALIGNMENT as usize),
        (A::CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT, PITCH_ALIGNMENT as usize),
        (A::CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT, ALIGNMENT as usize),
    ];
    entries.map(|(attribute, max)| (attribute, max as u32)).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_api::sys::CUarray_format;

    fn array(size: [usize; 3], flags: u32) -> bool {
        fits(&CUDA_ARRAY3D_DESCRIPTOR {
            Width: size[0],
            Height: size[1],
            Depth: size[2],
            Format: CUarray_format::CU_AD_FORMAT_FLOAT,
            NumChannels: 1,
            Flags: flags,
        })
    }

    #[test]
    fn each_shape_has_limits_of_its_own() {
        assert!(array([ROW, 0, 0], 0) && !array([ROW + 1, 0, 0], 0));
        assert!(array([PLANE[0], PLANE[1], 0], SURFACE) && !array([10, PLANE[1] + 1, 0], 0));
        assert!(array([VOLUME; 3], 0) && array(FLAT_VOLUME, 0) && !array([10, VOLUME, VOLUME + 1], 0));
        assert!(array([LAYERED_SIDE, 0, LAYERS], LAYERED) && !array([10, 0, LAYERS + 1], LAYERED));
        assert!(!array([LAYERED_SIDE + 1, 10, 1], LAYERED) && !array([LAYERED_SIDE + 1, 10, 0], GATHER));
    }

    #[test]
    fn cubes_have_six_square_faces() {
        assert!(array([8, 8, 6], CUBE) && !array([8, 9, 6], CUBE) && !array([8, 8, 12], CUBE));
        assert!(array([8, 8, 12], CUBE | LAYERED) && !array([8, 8, 13], CUBE | LAYERED));
        assert!(!array([8, 8, 0], CUBE | LAYERED) && !array([8, 8, FACES + 6], CUBE | LAYERED));
    }
}
