//! Texture fetch: filtering of texels.

use super::coordinate::{PARTS, Pair, Position, face};
use super::types::{AddressMode, Filter, Image, Sampling, Texture};

/// What an instruction takes a texture to be. The numbers are what compiled code passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Geometry {
    Row,
    Plane,
    Volume,
    LayeredRow,
    LayeredPlane,
    Cube,
    LayeredCube,
}

impl Geometry {
    /// How many coordinates there are, besides the layer.
    pub(crate) fn axes(self) -> usize {
        match self {
            Self::Row | Self::LayeredRow => 1,
            Self::Plane | Self::LayeredPlane => 2,
            Self::Volume | Self::Cube | Self::LayeredCube => 3,
        }
    }

    pub(crate) fn has_layers(self) -> bool {
        matches!(self, Self::LayeredRow | Self::LayeredPlane | Self::LayeredCube)
    }

    pub(crate) fn is_cube(self) -> bool {
        matches!(self, Self::Cube | Self::LayeredCube)
    }
}

/// Coordinates as an instruction gives them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Coordinates {
    Floats([f32; 3]),
    /// Indices of texels, between which there is nothing.
    Integers([i32; 3]),
}

/// How large what is read is on what the program draws.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Detail {
    /// As large as the first level.
    Base,
    Level(f32),
    /// The level of this number, whatever the sampler says.
    Number(i32),
    /// By how much the coordinates change from a place to its neighbours along two axes.
    Gradients([[f32; 3]; 2]),
}

/// A place in a texture.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct TexturePosition {
    pub(crate) geometry: Geometry,
    pub(crate) coordinates: Coordinates,
    /// Of a layered texture.
    pub(crate) layer: u32,
    pub(crate) detail: Detail,
}

/// A place in the images of a texture: coordinates along the axes that are filtered, and the slice besides.
struct Spot {
    axes: usize,
    coordinates: Coordinates,
    /// Coordinates on a face of a cube, which reach from 0 to 1 and do not repeat.
    is_on_face: bool,
    slice: u32,
    /// Whether it is in a texture of one row that has no layers.
    is_in_row: bool,
}

impl Spot {
    /// Where it is along the axes of an image.
    fn positions(&self, image: &Image, sampling: &Sampling) -> [Position; 3] {
        std::array::from_fn(|axis| match self.coordinates {
            _ if axis >= self.axes => Position::Texel(if axis == 2 { i64::from(self.slice) } else { 0 }),
            Coordinates::Integers(indices) => Position::Texel(i64::from(indices[axis])),
            Coordinates::Floats(floats) if self.is_on_face => {
                Position::Between(f64::from(floats[axis]) * f64::from(image.size[axis]))
            }
            Coordinates::Floats(floats) => sampling.position(axis, floats[axis], image.size[axis]),
        })
    }
}

impl Texture {
    /// The four numbers at a place: the bits of floating-point numbers or integers.
    ///
    /// # Safety
    /// The images lie in the address space, where touching what is not there ends the thread.
    pub(crate) unsafe fn fetch(&self, texture_position: &TexturePosition) -> [u32; 4] {
        let spot = self.spot(texture_position);
        let levels = self.levels_of(texture_position.detail, texture_position.geometry.axes());
        // SAFETY: whoever made the texture has its images in the address space, where touching what is not
        // there ends the thread.
        let at = |level: usize| unsafe { self.sample(&self.levels[level], &spot) };
        if levels.weight == 0 || !self.returns_floats() {
            return at(levels.first);
        }
        let (first, second) = (at(levels.first), at(levels.first + 1));
        let mut mean = Mean::default();
        mean.add(first, (PARTS - levels.weight) as f64 / PARTS as f64);
        mean.add(second, levels.weight as f64 / PARTS as f64);
        mean.value()
    }

    /// One channel of each of the four texels that a linear filter would use, in the order of `tld4`.
    ///
    /// # Safety
    /// As for [`Self::fetch`].
    pub(crate) unsafe fn gather(&self, texture_position: &TexturePosition, channel: usize) -> [u32; 4] {
        let spot = self.spot(texture_position);
        let image = &self.levels[0];
        let positions = spot.positions(image, &self.sampling);
        let [x, y] = [positions[0].pair().first, positions[1].pair().first];
        // Counter-clockwise from the lower left.
        [(0, 1), (1, 1), (1, 0), (0, 0)].map(|(right, down)| {
            let at = self.texels_at(image, [x + right, y + down, i64::from(spot.slice)], 2);
            // SAFETY: the texel is in the image, which is in the address space, where touching what is not
            // there ends the thread.
            let texel = unsafe { self.texel(image, at) };
            texel[channel & 3]
        })
    }

    /// What a place means in the images of this texture.
    fn spot(&self, texture_position: &TexturePosition) -> Spot {
        let slices = self.levels[0].size[2];
        let last = |count: u32| count.max(1) - 1;
        let layer = if texture_position.geometry.has_layers() { texture_position.layer } else { 0 };
        if texture_position.geometry.is_cube() {
            let Coordinates::Floats(direction) = texture_position.coordinates else {
                let coordinates = texture_position.coordinates;
                return Spot { axes: 2, coordinates, is_on_face: false, slice: 0, is_in_row: false };
            };
            let (face, [s, t]) = face(direction);
            // A texture that is no cube has fewer slices than faces.
            let slice = (layer.min(last(slices / 6)) * 6 + face).min(last(slices));
            let coordinates = Coordinates::Floats([s, t, 0.0]);
            return Spot { axes: 2, coordinates, is_on_face: true, slice, is_in_row: false };
        }
        Spot {
            axes: texture_position.geometry.axes(),
            coordinates: texture_position.coordinates,
            is_on_face: false,
            slice: layer.min(last(slices)),
            is_in_row: texture_position.geometry == Geometry::Row,
        }
    }

    /// The value at a place of a level.
    ///
    /// # Safety
    /// As for [`Self::fetch`].
    unsafe fn sample(&self, image: &Image, spot: &Spot) -> [u32; 4] {
        let positions = spot.positions(image, &self.sampling);
        let is_filtered = self.sampling.filter == Filter::Linear
            && self.returns_floats()
            && matches!(spot.coordinates, Coordinates::Floats(_));
        if !is_filtered {
            let at = self.texels_at(image, positions.map(Position::nearest), spot.axes);
            // SAFETY: the texel is in the image, which is in the address space, where touching what is not
            // there ends the thread.
            return unsafe { self.texel(image, at) };
        }
        let pairs = positions.map(Position::pair);
        let mut mean = Mean::default();
        for corner in 0..8_u32 {
            let far = [corner & 1, corner >> 1 & 1, corner >> 2].map(|bit| bit != 0);
            let weight = pairs.iter().zip(far).map(|(pair, far)| pair.weight_of(far)).product::<i64>();
            // Texels that do not count are not read: the border, infinities and what is no number stay out.
            if weight == 0 {
                continue;
            }
            let index = std::array::from_fn(|axis| pairs[axis].first + i64::from(far[axis]));
            let at = self.texels_at(image, index, spot.axes);
            // SAFETY: the texel is in the image, which is in the address space, where touching what is not
            // there ends the thread.
            let texel = unsafe { self.texel(image, at) };
            mean.add(texel, weight as f64 / (PARTS * PARTS * PARTS) as f64);
        }
        if spot.is_in_row && self.sampling.address[1] == AddressMode::Border {
            // As on a GPU, which reads a row as a plane at the coordinate 0: half of what it mixes lies beside the only
            // row (H100, 2026-11-28). The mode of the second axis says what is there: with another than this it is the
            // same row. Layered rows are not read so.
            let row = core::mem::take(&mut mean).value();
            mean.add(row, 0.5);
            mean.add(self.sampling.border.map(f32::to_bits), 0.5);
        }
        mean.value()
    }

    /// The texel that indices mean, of which those behind the first `axes` are within the image already.
    fn texels_at(&self, image: &Image, indices: [i64; 3], axes: usize) -> Option<[u32; 3]> {
        let mut at = [0; 3];
        for axis in 0..3 {
            at[axis] = if axis < axes {
                self.sampling.texel_at(axis, indices[axis], image.size[axis])?
            } else {
                // The levels of a volume have fewer slices than the first.
                (indices[axis] as u32).min(image.size[axis] - 1)
            };
        }
        Some(at)
    }
}

impl Pair {
    /// The weight of its second or first texel.
    fn weight_of(self, second: bool) -> i64 {
        if second { self.weight } else { PARTS - self.weight }
    }
}

/// A weighted mean of texels.
#[derive(Default)]
struct Mean([f64; 4]);

impl Mean {
    fn add(&mut self, texel: [u32; 4], weight: f64) {
        for (sum, bits) in self.0.iter_mut().zip(texel) {
            *sum += f64::from(f32::from_bits(bits)) * weight;
        }
    }

    fn value(&self) -> [u32; 4] {
        self.0.map(|sum| (sum as f32).to_bits())
    }
}
