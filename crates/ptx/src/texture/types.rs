//! Types of textures and surfaces.

/// The numbers in a texel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Channel {
    Unsigned8,
    Unsigned16,
    Unsigned32,
    Signed8,
    Signed16,
    Signed32,
    Half,
    Single,
}

impl Channel {
    /// Bytes in memory.
    pub fn bytes(self) -> u32 {
        match self {
            Self::Unsigned8 | Self::Signed8 => 1,
            Self::Unsigned16 | Self::Signed16 | Self::Half => 2,
            Self::Unsigned32 | Self::Signed32 | Self::Single => 4,
        }
    }

    /// Whether it is a floating-point number in memory.
    pub fn is_float(self) -> bool {
        matches!(self, Self::Half | Self::Single)
    }
}

/// What a texel is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TexelFormat {
    /// Each of its numbers.
    pub channel: Channel,
    /// How many: 1, 2 or 4.
    pub channels: u32,
}

impl TexelFormat {
    /// Bytes of a texel.
    pub fn bytes(self) -> u32 {
        self.channel.bytes() * self.channels
    }
}

/// Texels in device memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Image {
    /// Of the first texel; a multiple of a channel's bytes, as the pitches are.
    pub address: u64,
    /// Texels in a row, rows in a slice, and slices, layers or faces; each at least 1.
    pub size: [u32; 3],
    /// Bytes from a row to the next.
    pub row_pitch: u64,
    /// Bytes from a slice to the next.
    pub slice_pitch: u64,
}

/// What the third number of an image's size counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slices {
    /// The depth of a volume: 1 of a row or a plane.
    Depth,
    /// Layers.
    Layers,
    /// The six faces of each cube.
    Faces,
}

/// What is read for a coordinate outside of the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressMode {
    /// The image repeats.
    Wrap,
    /// The nearest texel.
    Clamp,
    /// The image repeats, every other time mirrored.
    Mirror,
    /// The border's colour.
    Border,
}

/// How texels or levels become a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filter {
    /// The nearest one.
    Point,
    /// A weighted mean of the nearest ones.
    Linear,
}

/// How a texture is read.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampling {
    /// Along each axis.
    pub address: [AddressMode; 3],
    /// Between the texels of a level.
    pub filter: Filter,
    /// Between levels.
    pub level_filter: Filter,
    /// Added to a level that an instruction gives.
    pub level_bias: f32,
    /// The lowest and the highest level that are read.
    pub level_range: [f32; 2],
    /// What lies outside, where the mode says so.
    pub border: [f32; 4],
    /// Whether coordinates go from 0 to 1 over the image.
    pub normalized_coordinates: bool,
    /// Whether integers of 8 and 16 bits are read as numbers from 0 or -1 to 1.
    pub normalized_values: bool,
    /// Whether unsigned integers of 8 bits that are read so are sRGB, but for the fourth.
    pub srgb: bool,
}

/// What `tex` reads.
#[derive(Debug, Clone, PartialEq)]
pub struct Texture {
    /// The levels, the largest first; at least one.
    pub levels: Box<[Image]>,
    /// What the third number of their sizes counts.
    pub slices: Slices,
    /// Of each texel.
    pub format: TexelFormat,
    /// How they are read. A texture that gives integers is not filtered.
    pub sampling: Sampling,
}

impl Texture {
    /// Whether its values are floating-point numbers; otherwise they are the integers of the texels.
    pub fn returns_floats(&self) -> bool {
        self.format.channel.is_float() || self.sampling.normalized_values && self.format.channel.bytes() <= 2
    }
}

/// What `suld` reads and `sust` writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Surface {
    /// Its texels.
    pub image: Image,
    /// What the third number of its size counts.
    pub slices: Slices,
    /// Of each texel.
    pub format: TexelFormat,
}
