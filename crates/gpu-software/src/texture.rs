//! What descriptions of textures and surfaces mean: images in device memory, checked.

use super::array::{Array, Arrays};
use super::region;
use super::texture_limits::{ALIGNMENT, CUBE, LAYERED, LINEAR, PITCH_ALIGNMENT, ROWS};
use causeway_api::sys::{
    CU_TRSF_NORMALIZED_COORDINATES, CU_TRSF_READ_AS_INTEGER, CU_TRSF_SEAMLESS_CUBEMAP, CU_TRSF_SRGB,
    CUDA_RESOURCE_VIEW_DESC, CUDA_TEXTURE_DESC, CUaddress_mode, CUarray_format as Format, CUfilter_mode,
    CUresult,
};
use causeway_api::types::{Region, TextureSource};
use causeway_gpu::{CuResult, NativeSource};
use causeway_ptx::memory::AddressSpace;
use causeway_ptx::texture::{
    AddressMode, Channel, Filter, Image, Sampling, Slices, Surface, TexelFormat, Texture,
};
use std::sync::Arc;

const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;

/// Images with what is in them.
struct Images {
    levels: Vec<Image>,
    slices: Slices,
    format: TexelFormat,
    /// Whether they are elements in a row, which are read by their index alone.
    linear: bool,
}

/// A texture as described.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` for what makes no sense or lies outside of memory, `CUDA_ERROR_NOT_SUPPORTED` for
/// compressed formats and filters across the edges of a cube.
pub(super) fn texture(
    space: &AddressSpace,
    arrays: &Arrays,
    source: &NativeSource,
    description: &CUDA_TEXTURE_DESC,
    view: Option<&CUDA_RESOURCE_VIEW_DESC>,
) -> CuResult<Texture> {
    let mut images = images(space, arrays, source)?;
    if let Some(view) = view {
        images.look_at(view)?;
    }
    let sampling = sampling(description, images.linear)?;
    let texture =
        Texture { levels: images.levels.into(), slices: images.slices, format: images.format, sampling };
    // Between integers there is nothing. How levels are mixed says nothing where there is one.
    let mixes_levels = texture.levels.len() > 1 && sampling.level_filter == Filter::Linear;
    if (sampling.filter == Filter::Linear || mixes_levels) && !texture.returns_floats() {
        return Err(INVALID);
    }
    let seamless = description.flags & CU_TRSF_SEAMLESS_CUBEMAP != 0;
    if seamless && sampling.filter == Filter::Linear && texture.slices == Slices::Faces {
        return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
    }
    Ok(texture)
}

/// A surface of an array.
///
/// # Errors
/// As for [`texture`].
pub(super) fn surface(space: &AddressSpace, arrays: &Arrays, source: &NativeSource) -> CuResult<Surface> {
    let TextureSource::Array(_) = source else { return Err(INVALID) };
    let Images { levels, slices, format, .. } = images(space, arrays, source)?;
    Ok(Surface { image: levels[0], slices, format })
}

/// Whether a source is one that textures can look into.
///
/// # Errors
/// As for [`texture`].
pub(super) fn check(space: &AddressSpace, arrays: &Arrays, source: &NativeSource) -> CuResult<()> {
    images(space, arrays, source).map(drop)
}

/// What a source has, each image of which lies in memory that is there.
fn images(space: &AddressSpace, arrays: &Arrays, source: &NativeSource) -> CuResult<Images> {
    let images = match *source {
        TextureSource::Array(array) => of_arrays(&[arrays.get(array.value())?])?,
        TextureSource::Mipmapped(mipmapped) => of_arrays(&arrays.levels(mipmapped.value())?)?,
        TextureSource::Linear { address, format, channels, bytes } => {
            let format = texel(format, channels)?;
            let elements = bytes / u64::from(format.bytes());
            if address == 0 || address % ALIGNMENT != 0 || !(1..=LINEAR).contains(&elements) {
                return Err(INVALID);
            }
            let pitch = elements * u64::from(format.bytes());
            let level =
                Image { address, size: [elements as u32, 1, 1], row_pitch: pitch, slice_pitch: pitch };
            Images { levels: vec![level], slices: Slices::Depth, format, linear: true }
        }
        TextureSource::Rows { address, format, channels, width, height, pitch } => {
            let format = texel(format, channels)?;
            let [max_width, max_height, widest_pitch] = ROWS;
            let fits = (1..=max_width).contains(&width)
                && (1..=max_height).contains(&height)
                && (width * u64::from(format.bytes())..=widest_pitch).contains(&pitch);
            if address == 0 || address % ALIGNMENT != 0 || pitch % PITCH_ALIGNMENT != 0 || !fits {
                return Err(INVALID);
            }
            let size = [width as u32, height as u32, 1];
            let level = Image { address, size, row_pitch: pitch, slice_pitch: pitch * height };
            Images { levels: vec![level], slices: Slices::Depth, format, linear: false }
        }
    };
    for level in &images.levels {
        region::check(space, &region_of(level, images.format))?;
    }
    Ok(images)
}

fn of_arrays(levels: &[Arc<Array>]) -> CuResult<Images> {
    let first = &levels.first().ok_or(INVALID)?.descriptor;
    let format = texel(first.Format, first.NumChannels)?;
    let slices = match first.Flags {
        flags if flags & CUBE != 0 => Slices::Faces,
        flags if flags & LAYERED != 0 => Slices::Layers,
        _ => Slices::Depth,
    };
    let levels = levels.iter().map(|array| array.image()).collect::<CuResult<_>>()?;
    Ok(Images { levels, slices, format, linear: false })
}

fn region_of(image: &Image, format: TexelFormat) -> Region {
    let [width, height, depth] = image.size.map(u64::from);
    let Image { address, row_pitch, slice_pitch, .. } = *image;
    Region { address, row_pitch, slice_pitch, width: width * u64::from(format.bytes()), height, depth }
}

/// What a texel of a format is.
fn texel(format: Format, channels: u32) -> CuResult<TexelFormat> {
    let channel = match format {
        Format::CU_AD_FORMAT_UNSIGNED_INT8 => Channel::Unsigned8,
        Format::CU_AD_FORMAT_UNSIGNED_INT16 => Channel::Unsigned16,
        Format::CU_AD_FORMAT_UNSIGNED_INT32 => Channel::Unsigned32,
        Format::CU_AD_FORMAT_SIGNED_INT8 => Channel::Signed8,
        Format::CU_AD_FORMAT_SIGNED_INT16 => Channel::Signed16,
        Format::CU_AD_FORMAT_SIGNED_INT32 => Channel::Signed32,
        Format::CU_AD_FORMAT_HALF => Channel::Half,
        Format::CU_AD_FORMAT_FLOAT => Channel::Single,
        _ => return Err(INVALID),
    };
    if matches!(channels, 1 | 2 | 4) { Ok(TexelFormat { channel, channels }) } else { Err(INVALID) }
}

impl Images {
    /// Keeps what a view shows of them, as it shows it.
    fn look_at(&mut self, view: &CUDA_RESOURCE_VIEW_DESC) -> CuResult<()> {
        if self.linear {
            return Err(INVALID);
        }
        if view.format.0 != 0 {
            let format = viewed(view.format.0)?;
            if format.bytes() != self.format.bytes() {
                return Err(INVALID);
            }
            self.format = format;
        }
        let (first, last) = (view.firstMipmapLevel as usize, view.lastMipmapLevel as usize);
        let levels = self.levels.get(first..=last).filter(|levels| !levels.is_empty()).ok_or(INVALID)?;
        let [width, height, depth] = levels[0].size.map(|size| size as usize);
        // What an array does not have is 0 in its description.
        let same = |told: usize, size: usize| told == size || told == 0 && size == 1;
        let layers = view.firstLayer..=view.lastLayer;
        let has_layers = self.slices != Slices::Depth;
        let depth_fits = if has_layers { true } else { same(view.depth, depth) };
        if view.width != width || !same(view.height, height) || !depth_fits {
            return Err(INVALID);
        }
        self.levels = levels.to_vec();
        if has_layers && layers != (0..=0) {
            if layers.is_empty() || *layers.end() as usize >= depth {
                return Err(INVALID);
            }
            for level in &mut self.levels {
                level.address += u64::from(*layers.start()) * level.slice_pitch;
                level.size[2] = layers.end() - layers.start() + 1;
            }
        }
        Ok(())
    }
}

/// What a texel of a view's format is: the formats are those of one, two and four channels, three by three.
fn viewed(format: u32) -> CuResult<TexelFormat> {
    const CHANNELS: [Channel; 8] = [
        Channel::Unsigned8,
        Channel::Signed8,
        Channel::Unsigned16,
        Channel::Signed16,
        Channel::Unsigned32,
        Channel::Signed32,
        Channel::Half,
        Channel::Single,
    ];
    match format {
        1..=24 => {
            let index = format as usize - 1;
            Ok(TexelFormat { channel: CHANNELS[index / 3], channels: 1 << (index % 3) })
        }
        // Blocks of compressed texels.
        25..=40 => Err(CUresult::CUDA_ERROR_NOT_SUPPORTED),
        _ => Err(INVALID),
    }
}

/// How a texture is to be read.
fn sampling(description: &CUDA_TEXTURE_DESC, linear: bool) -> CuResult<Sampling> {
    let address = |mode: CUaddress_mode| match mode {
        // Elements in a row have neither neighbours nor edges.
        _ if linear => Ok(AddressMode::Border),
        CUaddress_mode::CU_TR_ADDRESS_MODE_WRAP => Ok(AddressMode::Wrap),
        CUaddress_mode::CU_TR_ADDRESS_MODE_CLAMP => Ok(AddressMode::Clamp),
        CUaddress_mode::CU_TR_ADDRESS_MODE_MIRROR => Ok(AddressMode::Mirror),
        CUaddress_mode::CU_TR_ADDRESS_MODE_BORDER => Ok(AddressMode::Border),
        _ => Err(INVALID),
    };
    let filter = |mode: CUfilter_mode| match mode {
        _ if linear => Ok(Filter::Point),
        CUfilter_mode::CU_TR_FILTER_MODE_POINT => Ok(Filter::Point),
        CUfilter_mode::CU_TR_FILTER_MODE_LINEAR => Ok(Filter::Linear),
        _ => Err(INVALID),
    };
    let [x, y, z] = description.addressMode;
    let flag = |flag: u32| description.flags & flag != 0;
    Ok(Sampling {
        address: [address(x)?, address(y)?, address(z)?],
        filter: filter(description.filterMode)?,
        level_filter: filter(description.mipmapFilterMode)?,
        level_bias: description.mipmapLevelBias,
        level_range: [description.minMipmapLevelClamp, description.maxMipmapLevelClamp],
        border: if linear { [0.0; 4] } else { description.borderColor },
        normalized_coordinates: !linear && flag(CU_TRSF_NORMALIZED_COORDINATES),
        normalized_values: !flag(CU_TRSF_READ_AS_INTEGER),
        srgb: flag(CU_TRSF_SRGB),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn linear(address: u64, bytes: u64) -> NativeSource {
        TextureSource::Linear { address, format: Format::CU_AD_FORMAT_FLOAT, channels: 2, bytes }
    }

    fn rows(address: u64, width: u64, height: u64, pitch: u64) -> NativeSource {
        TextureSource::Rows {
            address,
            format: Format::CU_AD_FORMAT_UNSIGNED_INT8,
            channels: 4,
            width,
            height,
            pitch,
        }
    }

    #[test]
    fn textures_lie_in_memory_that_is_there() {
        let space = AddressSpace::new(1 << 20).unwrap();
        let start = space.allocate(4096, 512).unwrap();
        let made = |source: &NativeSource| {
            texture(&space, &Arrays::default(), source, &CUDA_TEXTURE_DESC::default(), None)
        };
        let whole = made(&linear(start, 4096)).unwrap();
        assert_eq!(whole.levels[0].size, [512, 1, 1]);
        assert_eq!(made(&rows(start, 10, 64, 64)).unwrap().levels[0].size, [10, 64, 1]);
        for wrong in [
            linear(0, 64),
            linear(start, 4097 + 7),
            linear(start, 7),
            linear(start, u64::MAX),
            linear(start + 8, 64),
            linear(start - 512, 64),
            rows(start, 10, 65, 64),
            rows(start, 17, 1, 64),
            rows(start, 10, 2, 40),
            rows(start, 0, 1, 64),
            rows(start, 1, 0, 64),
            rows(start, u64::MAX, u64::MAX, u64::MAX),
        ] {
            assert_eq!(made(&wrong).err(), Some(INVALID), "{wrong:?}");
        }
        let three = TextureSource::Linear {
            address: start,
            format: Format::CU_AD_FORMAT_FLOAT,
            channels: 3,
            bytes: 96,
        };
        assert_eq!(made(&three).err(), Some(INVALID));
        assert_eq!(surface(&space, &Arrays::default(), &linear(start, 64)).err(), Some(INVALID));
    }

    #[test]
    fn integers_are_filtered_only_as_numbers_up_to_one() {
        let space = AddressSpace::new(1 << 20).unwrap();
        let start = space.allocate(4096, 512).unwrap();
        let mut description = CUDA_TEXTURE_DESC {
            filterMode: CUfilter_mode::CU_TR_FILTER_MODE_LINEAR,
            ..CUDA_TEXTURE_DESC::default()
        };
        let made = |description: &CUDA_TEXTURE_DESC| {
            texture(&space, &Arrays::default(), &rows(start, 8, 8, 32), description, None)
        };
        assert!(made(&description).is_ok());
        description.flags = CU_TRSF_READ_AS_INTEGER;
        assert_eq!(made(&description).err(), Some(INVALID));
        (description.filterMode, description.mipmapFilterMode) =
            (CUfilter_mode::CU_TR_FILTER_MODE_POINT, CUfilter_mode::CU_TR_FILTER_MODE_LINEAR);
        assert!(made(&description).is_ok(), "there is one level");
        description.filterMode = CUfilter_mode(7);
        assert_eq!(made(&description).err(), Some(INVALID));
    }

    #[test]
    fn a_view_shows_levels_and_layers_of_what_there_is() {
        let level = |shift: u32| Image {
            address: 1 << 20 >> shift,
            size: [64 >> shift, 32 >> shift, 6],
            row_pitch: 256,
            slice_pitch: 8192,
        };
        let images = || Images {
            levels: (0..3).map(level).collect(),
            slices: Slices::Layers,
            format: TexelFormat { channel: Channel::Single, channels: 1 },
            linear: false,
        };
        let view = CUDA_RESOURCE_VIEW_DESC {
            width: 32,
            height: 16,
            firstMipmapLevel: 1,
            lastMipmapLevel: 2,
            firstLayer: 2,
            lastLayer: 4,
            ..CUDA_RESOURCE_VIEW_DESC::default()
        };
        let mut shown = images();
        shown.look_at(&view).unwrap();
        assert_eq!(shown.levels.len(), 2);
        assert_eq!((shown.levels[0].address, shown.levels[0].size), ((1 << 19) + 2 * 8192, [32, 16, 3]));
        for wrong in [
            CUDA_RESOURCE_VIEW_DESC { width: 64, ..view },
            CUDA_RESOURCE_VIEW_DESC { lastMipmapLevel: 3, ..view },
            CUDA_RESOURCE_VIEW_DESC { firstMipmapLevel: 3, ..view },
            CUDA_RESOURCE_VIEW_DESC { lastLayer: 6, ..view },
            CUDA_RESOURCE_VIEW_DESC { firstLayer: 5, ..view },
        ] {
            assert_eq!(images().look_at(&wrong), Err(INVALID), "{wrong:?}");
        }
        assert_eq!(viewed(1), Ok(TexelFormat { channel: Channel::Unsigned8, channels: 1 }));
        assert_eq!(viewed(12), Ok(TexelFormat { channel: Channel::Signed16, channels: 4 }));
        assert_eq!(viewed(23), Ok(TexelFormat { channel: Channel::Single, channels: 2 }));
        assert_eq!(viewed(25), Err(CUresult::CUDA_ERROR_NOT_SUPPORTED));
    }
}
