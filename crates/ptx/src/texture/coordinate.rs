//! Texture coordinates: address modes, texels and weights along an axis.

use super::types::{AddressMode, Sampling};

/// Parts into which the way from a texel to the next is divided: a weight has 8 bits of fraction.
pub(super) const PARTS: i64 = 256;

/// A coordinate along one axis, counted in texels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Position {
    /// Texel `i` reaches from `i` to `i + 1`.
    Between(f64),
    /// The texel itself.
    Texel(i64),
}

/// The two texels of which a linear filter makes a mean, the first one's index and the second one's weight
/// out of [`PARTS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pair {
    pub(super) first: i64,
    pub(super) weight: i64,
}

impl Position {
    /// The texel that is nearest.
    pub(super) fn nearest(self) -> i64 {
        match self {
            // What is not a number means the first one, and what is too large the last one.
            Self::Between(at) => at.floor() as i64,
            Self::Texel(index) => index,
        }
    }

    /// The two texels whose centres it lies between. Where it lies is rounded to 8 bits of fraction, which may
    /// bring it to the next texel: the guide says so of gathered texels.
    pub(super) fn pair(self) -> Pair {
        match self {
            Self::Between(at) => {
                let parts = ((at - 0.5) * PARTS as f64 + 0.5).floor() as i64;
                Pair { first: parts.div_euclid(PARTS), weight: parts.rem_euclid(PARTS) }
            }
            Self::Texel(first) => Pair { first, weight: 0 },
        }
    }
}

impl Sampling {
    /// A coordinate along an axis of `size`, counted in texels. One that repeats is brought to its first period, since
    /// the texels of a distant one cannot be counted.
    pub(super) fn position(&self, axis: usize, coordinate: f32, size: u32) -> Position {
        let coordinate = f64::from(coordinate);
        if !self.normalized_coordinates {
            return Position::Between(coordinate);
        }
        let period = match self.address[axis] {
            AddressMode::Wrap => Some(1.0),
            AddressMode::Mirror => Some(2.0),
            AddressMode::Clamp | AddressMode::Border => None,
        };
        // What is not finite has no place in a period.
        let first = period
            .filter(|_| coordinate.is_finite())
            .map_or(coordinate, |period| coordinate.rem_euclid(period));
        Position::Between(first * f64::from(size))
    }

    /// The texel of an axis of `size` that an index means; none for the border.
    pub(super) fn texel_at(&self, axis: usize, index: i64, size: u32) -> Option<u32> {
        let size = i64::from(size);
        let inside = match self.address[axis] {
            AddressMode::Border => return (0..size).contains(&index).then_some(index as u32),
            // Only what repeats with the coordinates' unit can repeat.
            AddressMode::Wrap if self.normalized_coordinates => index.rem_euclid(size),
            AddressMode::Mirror if self.normalized_coordinates => {
                let twice = index.rem_euclid(2 * size);
                twice.min(2 * size - 1 - twice)
            }
            AddressMode::Clamp | AddressMode::Wrap | AddressMode::Mirror => index.clamp(0, size - 1),
        };
        Some(inside as u32)
    }
}

/// A place on a face: the face's number, and coordinates from 0 to 1 on it.
pub(super) fn face([x, y, z]: [f32; 3]) -> (u32, [f32; 2]) {
    // The guide's table, "Cubemap Textures".
    let (face, major, s, t) = if x.abs() >= y.abs() && x.abs() >= z.abs() {
        if x >= 0.0 { (0, x, -z, -y) } else { (1, -x, z, -y) }
    } else if y.abs() >= z.abs() {
        if y >= 0.0 { (2, y, x, z) } else { (3, -y, x, -z) }
    } else if z >= 0.0 {
        (4, z, x, -y)
    } else {
        (5, -z, -x, -y)
    };
    (face, [s, t].map(|along| (along / major + 1.0) / 2.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::texture::examples::sampling;

    #[test]
    fn distant_coordinates_repeat_as_near_ones() {
        let at = |mode, coordinate: f32, size| {
            let mut sampling = sampling();
            (sampling.address[1], sampling.normalized_coordinates) = (mode, true);
            sampling.texel_at(1, sampling.position(1, coordinate, size).nearest(), size)
        };
        // 2^31 and 10^20 have no fraction, and the whole of the latter is even.
        for (coordinate, size) in
            [(2_147_483_648.0, 3), (1e20, 3), (1e20, 2), (-1e20, 3), (f32::MAX, 3), (16.25, 3)]
        {
            assert_eq!(at(AddressMode::Wrap, coordinate, size), Some(0), "{coordinate} of {size}");
            assert_eq!(at(AddressMode::Mirror, coordinate, size), Some(0), "{coordinate} of {size}");
            assert_eq!(
                at(AddressMode::Clamp, coordinate, size),
                Some(if coordinate < 0.0 { 0 } else { size - 1 })
            );
        }
        assert_eq!(at(AddressMode::Mirror, -16.75, 3), Some(2));
        assert_eq!(at(AddressMode::Wrap, -0.25, 3), Some(2));
    }

    #[test]
    fn indices_outside_mean_what_the_mode_says() {
        let row = |mode, normalized| -> Vec<Option<u32>> {
            let mut sampling = sampling();
            (sampling.address[1], sampling.normalized_coordinates) = (mode, normalized);
            (-4..7).map(|index| sampling.texel_at(1, index, 3)).collect()
        };
        let all = |indices: [u32; 11]| indices.map(Some).to_vec();
        assert_eq!(row(AddressMode::Clamp, false), all([0, 0, 0, 0, 0, 1, 2, 2, 2, 2, 2]));
        assert_eq!(row(AddressMode::Wrap, true), all([2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0]));
        assert_eq!(row(AddressMode::Mirror, true), all([2, 2, 1, 0, 0, 1, 2, 2, 1, 0, 0]));
        assert_eq!(row(AddressMode::Wrap, false), row(AddressMode::Clamp, true));
        let border = row(AddressMode::Border, false);
        assert_eq!(border, [None, None, None, None, Some(0), Some(1), Some(2), None, None, None, None]);
    }

    #[test]
    fn a_position_is_rounded_to_the_256th_part_of_a_texel() {
        let pair = |at| Position::Between(at).pair();
        assert_eq!(pair(2.5), Pair { first: 2, weight: 0 });
        assert_eq!(pair(2.75), Pair { first: 2, weight: 64 });
        assert_eq!(pair(0.25), Pair { first: -1, weight: 192 });
        // The guide's example: 1.99805 is nearer to 2 than to 1 and 255/256.
        assert_eq!(pair(2.498_05), Pair { first: 2, weight: 0 });
        assert_eq!(pair(2.5 + 0.4 / 256.0), Pair { first: 2, weight: 0 });
        assert_eq!(pair(2.5 + 0.6 / 256.0), Pair { first: 2, weight: 1 });
        assert_eq!(Position::Between(-0.1).nearest(), -1);
    }

    #[test]
    fn no_coordinate_overflows() {
        for mode in [AddressMode::Wrap, AddressMode::Clamp, AddressMode::Mirror, AddressMode::Border] {
            let mut sampling = sampling();
            (sampling.address[0], sampling.normalized_coordinates) = (mode, true);
            for at in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MAX, -1e300, 9e18, -9.3e18] {
                let position = Position::Between(at);
                let Pair { first, weight } = position.pair();
                assert!((0..PARTS).contains(&weight));
                for index in [first, first + 1, position.nearest()] {
                    assert!(sampling.texel_at(0, index, 7).is_none_or(|texel| texel < 7));
                }
            }
        }
    }
}

#[cfg(test)]
mod cube_tests {
    use super::face;

    #[test]
    fn each_axis_meets_the_middle_of_its_face() {
        let axes = [[1, 0, 0], [-1, 0, 0], [0, 1, 0], [0, -1, 0], [0, 0, 1], [0, 0, -1]];
        for (number, axis) in (0..).zip(axes) {
            let (x, y) = (0.5, 0.5);
            assert_eq!(face(axis.map(|along| along as f32 * 3.0)), (number, [x, y]));
        }
        assert_eq!(face([2.0, 1.0, -1.0]), (0, [0.75, 0.25]));
        assert_eq!(face([1.0, -4.0, 2.0]), (3, [0.625, 0.25]));
        assert!(face([f32::NAN; 3]).0 < 6);
    }
}
