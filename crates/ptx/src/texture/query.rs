//! Texture and surface queries (`txq`, `suq`).

use super::types::{AddressMode, Channel, Filter, Image, Slices, Surface, TexelFormat, Texture};

/// What `txq` and `suq` ask. The numbers are what compiled code passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Query {
    Width,
    Height,
    Depth,
    ArraySize,
    Levels,
    Samples,
    DataType,
    Order,
    NormalizedCoordinates,
    ForceUnnormalizedCoordinates,
    FilterMode,
    AddressMode0,
    AddressMode1,
    AddressMode2,
}

impl Query {
    /// The query of a modifier.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "width" => Self::Width,
            "height" => Self::Height,
            "depth" => Self::Depth,
            "array_size" => Self::ArraySize,
            "num_mipmap_levels" => Self::Levels,
            "num_samples" => Self::Samples,
            "channel_data_type" => Self::DataType,
            "channel_order" => Self::Order,
            "normalized_coords" => Self::NormalizedCoordinates,
            "force_unnormalized_coords" => Self::ForceUnnormalizedCoordinates,
            "filter_mode" => Self::FilterMode,
            "addr_mode_0" => Self::AddressMode0,
            "addr_mode_1" => Self::AddressMode1,
            "addr_mode_2" => Self::AddressMode2,
            _ => return None,
        })
    }
}

/// The answer for a texture, of one of its levels.
pub(crate) fn of_texture(texture: &Texture, query: Query, level: u32) -> u32 {
    let image = &texture.levels[(level as usize).min(texture.levels.len() - 1)];
    let sampling = &texture.sampling;
    match query {
        Query::Levels => texture.levels.len() as u32,
        Query::NormalizedCoordinates => u32::from(sampling.normalized_coordinates),
        Query::FilterMode => u32::from(sampling.filter == Filter::Linear),
        Query::AddressMode0 => number_of(sampling.address[0]),
        Query::AddressMode1 => number_of(sampling.address[1]),
        Query::AddressMode2 => number_of(sampling.address[2]),
        _ => of_image(image, texture.slices, texture.format, sampling.normalized_values, query),
    }
}

/// The answer for a surface.
pub(crate) fn of_surface(surface: &Surface, query: Query) -> u32 {
    of_image(&surface.image, surface.slices, surface.format, false, query)
}

fn of_image(image: &Image, slices: Slices, format: TexelFormat, normalized: bool, query: Query) -> u32 {
    let [width, height, third] = image.size;
    match (query, slices) {
        (Query::Width, _) => width,
        (Query::Height, _) => height,
        (Query::Depth, Slices::Depth) | (Query::ArraySize, Slices::Layers) => third,
        (Query::ArraySize, Slices::Faces) => third / 6,
        (Query::Samples, _) => 1,
        (Query::DataType, _) => data_type(format.channel, normalized),
        // Numbers of OpenCL's `cl_channel_order`.
        (Query::Order, _) => match format.channels {
            1 => 0x10b0,
            2 => 0x10b2,
            _ => 0x10b5,
        },
        _ => 0,
    }
}

/// Numbers of OpenCL's `cl_channel_type`, as PTX says.
fn data_type(channel: Channel, normalized: bool) -> u32 {
    match channel {
        Channel::Signed8 if normalized => 0x10d0,
        Channel::Signed16 if normalized => 0x10d1,
        Channel::Unsigned8 if normalized => 0x10d2,
        Channel::Unsigned16 if normalized => 0x10d3,
        Channel::Signed8 => 0x10d7,
        Channel::Signed16 => 0x10d8,
        Channel::Signed32 => 0x10d9,
        Channel::Unsigned8 => 0x10da,
        Channel::Unsigned16 => 0x10db,
        Channel::Unsigned32 => 0x10dc,
        Channel::Half => 0x10dd,
        Channel::Single => 0x10de,
    }
}

/// As `CUaddress_mode` numbers them.
fn number_of(mode: AddressMode) -> u32 {
    match mode {
        AddressMode::Wrap => 0,
        AddressMode::Clamp => 1,
        AddressMode::Mirror => 2,
        AddressMode::Border => 3,
    }
}
