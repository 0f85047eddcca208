//! What fetches give, against what the guide's formulas say by themselves.

use super::examples::{image, sampling};
use super::fetch::{Coordinates, Detail, Geometry, TexturePosition};
use super::types::{AddressMode, Channel, Filter, Image, Slices, TexelFormat, Texture};

fn singles(level: Image, channels: u32) -> Texture {
    let format = TexelFormat { channel: Channel::Single, channels };
    Texture { levels: Box::new([level]), slices: Slices::Depth, format, sampling: sampling() }
}

fn texture_position(geometry: Geometry, at: [f32; 3]) -> TexturePosition {
    TexturePosition { geometry, coordinates: Coordinates::Floats(at), layer: 0, detail: Detail::Base }
}

fn fetched(texture: &Texture, texture_position: &TexturePosition) -> [f32; 4] {
    // SAFETY: the texture's images are the test's own memory.
    unsafe { texture.fetch(texture_position) }.map(f32::from_bits)
}

/// The texels of a box in which each is its place, so that a linear filter gives places back.
fn ramp([width, height, depth]: [u32; 3]) -> Vec<f32> {
    let places = |z| (0..height).flat_map(move |y| (0..width).map(move |x| (x + 10 * y + 100 * z) as f32));
    (0..depth).flat_map(places).collect()
}

#[test]
fn points_are_the_texel_that_a_coordinate_lies_in() {
    let (texels, size) = (ramp([5, 4, 3]), [5, 4, 3]);
    let texture = singles(image(&texels, size, 1), 1);
    let at = |geometry, at| fetched(&texture, &texture_position(geometry, at))[0];
    assert_eq!(at(Geometry::Volume, [2.9, 1.0, 2.5]), 212.0);
    assert_eq!(at(Geometry::Plane, [2.9, 1.0, 2.5]), 12.0);
    assert_eq!(at(Geometry::Row, [4.0, 3.0, 2.0]), 4.0);
    assert_eq!(at(Geometry::Volume, [-3.0, 9.0, f32::NAN]), 30.0);
    let layer = TexturePosition { layer: 2, ..texture_position(Geometry::LayeredPlane, [1.5, 3.5, 0.0]) };
    assert_eq!(fetched(&texture, &layer)[0], 231.0);
    assert_eq!(fetched(&texture, &TexturePosition { layer: u32::MAX, ..layer })[0], 231.0);
    let indices = TexturePosition {
        coordinates: Coordinates::Integers([4, 2, 1]),
        ..texture_position(Geometry::Volume, [0.0; 3])
    };
    assert_eq!(fetched(&texture, &indices)[0], 124.0);
}

#[test]
fn a_linear_filter_gives_what_lies_between_texels() {
    let (texels, size) = (ramp([5, 4, 3]), [5, 4, 3]);
    let mut texture = singles(image(&texels, size, 1), 1);
    texture.sampling.filter = Filter::Linear;
    let at = |texture: &Texture, geometry, at| fetched(texture, &texture_position(geometry, at))[0];
    assert_eq!(at(&texture, Geometry::Volume, [1.75, 2.0, 1.25]), 1.25 + 15.0 + 75.0);
    assert_eq!(at(&texture, Geometry::Plane, [1.0, 1.5, 0.0]), 10.5);
    assert_eq!(at(&texture, Geometry::Row, [9.0, 0.0, 0.0]), 4.0, "clamped");
    assert_eq!(at(&texture, Geometry::Row, [0.1, 0.0, 0.0]), 0.0, "clamped");
    // Half of what it reads is the border.
    texture.sampling.address = [AddressMode::Border; 3];
    texture.sampling.border = [100.0; 4];
    assert_eq!(at(&texture, Geometry::LayeredRow, [5.0, 0.5, 0.5]), 52.0);
    // Of a row without layers half is the border beside it.
    assert_eq!(at(&texture, Geometry::Row, [5.0, 0.5, 0.5]), 76.0);
    assert_eq!(at(&texture, Geometry::Row, [6.0, 0.5, 0.5]), 100.0);
    // What is beside it is up to the mode of the second axis, whatever that of the first is.
    texture.sampling.address[1] = AddressMode::Clamp;
    assert_eq!(at(&texture, Geometry::Row, [5.0, 0.5, 0.5]), 52.0);
    texture.sampling.address = [AddressMode::Clamp, AddressMode::Border, AddressMode::Clamp];
    assert_eq!(at(&texture, Geometry::Row, [9.0, 0.5, 0.5]), 52.0);
    texture.sampling.address = [AddressMode::Border; 3];
    // The first and the last texel are neighbours.
    texture.sampling.address = [AddressMode::Wrap; 3];
    texture.sampling.normalized_coordinates = true;
    assert_eq!(at(&texture, Geometry::Row, [1.0, 0.0, 0.0]), 2.0);
    assert_eq!(at(&texture, Geometry::Row, [-0.1, 0.0, 0.0]), 4.0);
}

#[test]
fn a_texel_without_weight_does_not_count() {
    let texels = [1.0, f32::INFINITY, f32::NAN, 4.0];
    let mut texture = singles(image(&texels, [4, 1, 1], 1), 1);
    texture.sampling.filter = Filter::Linear;
    let at = |x: f32| fetched(&texture, &texture_position(Geometry::Row, [x, 0.5, 0.5]))[0];
    assert_eq!([at(0.5), at(3.5)], [1.0, 4.0]);
    assert_eq!(at(1.0), f32::INFINITY);
    assert!(at(3.0).is_nan());
}

#[test]
fn integers_come_as_they_are() {
    let texels = [7_i16, -7, 300, -300];
    let format = TexelFormat { channel: Channel::Signed16, channels: 2 };
    let mut texture = Texture {
        format,
        ..singles(Image { row_pitch: 8, slice_pitch: 8, ..image(&[0.0; 2], [2, 1, 1], 1) }, 1)
    };
    texture.levels[0].address = texels.as_ptr() as u64;
    texture.levels[0].row_pitch = 8;
    texture.sampling.filter = Filter::Linear;
    // SAFETY: the image is the test's own memory.
    let value = unsafe { texture.fetch(&texture_position(Geometry::Row, [1.2, 0.0, 0.0])) };
    assert_eq!(value.map(u32::cast_signed), [300, -300, 0, 0]);
}

#[test]
fn gathered_texels_come_counter_clockwise_from_the_lower_left() {
    let texels: Vec<f32> = (0..2 * 4 * 4).map(|number| number as f32).collect();
    let texture = singles(image(&texels, [4, 4, 1], 2), 2);
    let gathered = |at, channel| {
        // SAFETY: the image is the test's own memory.
        unsafe { texture.gather(&texture_position(Geometry::Plane, at), channel) }.map(f32::from_bits)
    };
    let texel = |x: u32, y: u32, channel: u32| (2 * (4 * y + x) + channel) as f32;
    let requested =
        |channel| [texel(1, 2, channel), texel(2, 2, channel), texel(2, 1, channel), texel(1, 1, channel)];
    assert_eq!(gathered([2.0, 2.0, 0.0], 0), requested(0));
    assert_eq!(gathered([2.4, 1.6, 0.0], 1), requested(1));
    assert_eq!(gathered([2.0, 2.0, 0.0], 2), [0.0; 4], "it has two channels");
    // The guide's example: so near to the next texel's centre that rounding brings it there.
    assert_eq!(gathered([2.498_05, 2.0, 0.0], 0)[0], texel(2, 2, 0));
}

#[test]
fn levels_are_mixed_by_their_weights() {
    let (large, small) = ([1.0_f32; 16], [5.0_f32; 4]);
    let mut texture = singles(image(&large, [4, 4, 1], 1), 1);
    texture.levels = Box::new([image(&large, [4, 4, 1], 1), image(&small, [2, 2, 1], 1)]);
    texture.sampling.normalized_coordinates = true;
    let at = |texture: &Texture, level| {
        let texture_position = TexturePosition {
            detail: Detail::Level(level),
            ..texture_position(Geometry::Plane, [0.9, 0.1, 0.0])
        };
        fetched(texture, &texture_position)[0]
    };
    assert_eq!([at(&texture, 0.25), at(&texture, 0.75), at(&texture, 7.0)], [1.0, 5.0, 5.0]);
    texture.sampling.level_filter = Filter::Linear;
    assert_eq!([at(&texture, 0.25), at(&texture, 0.75), at(&texture, 7.0)], [2.0, 4.0, 5.0]);
}

#[test]
fn whatever_an_instruction_takes_a_texture_to_be_it_reads_its_texels() {
    // Levels of a volume have fewer slices than the first; each lies in an allocation of its own.
    let (first, second) = (vec![1.0_f32; 4 * 4 * 4], vec![1.0_f32; 2 * 2 * 2]);
    let mut texture = singles(image(&first, [4; 3], 1), 1);
    texture.levels = Box::new([image(&first, [4; 3], 1), image(&second, [2; 3], 1)]);
    texture.sampling.filter = Filter::Linear;
    use Geometry::{Cube, LayeredCube, LayeredPlane, LayeredRow, Plane, Row, Volume};
    for geometry in [Row, Plane, Volume, LayeredRow, LayeredPlane, Cube, LayeredCube] {
        for at in [[0.3, 0.7, 0.1], [-1e30, 1e30, 0.0], [f32::NAN; 3], [f32::INFINITY, -1.0, 3.9]] {
            for (layer, level) in [(0, 0.0), (3, 1.0), (u32::MAX, 9.0)] {
                let detail = Detail::Level(level);
                assert_eq!(
                    fetched(&texture, &TexturePosition { layer, detail, ..texture_position(geometry, at) })
                        [0],
                    1.0
                );
            }
        }
    }
}
