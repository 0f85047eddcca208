//! Mipmap level selection: levels and weights.

use super::coordinate::PARTS;
use super::fetch::Detail;
use super::types::{Filter, Texture};

/// The first of two levels, and the second one's weight out of [`PARTS`]; 0 where only the first is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Levels {
    pub(super) first: usize,
    pub(super) weight: i64,
}

impl Texture {
    /// What an instruction's level or gradients mean along so many axes.
    pub(super) fn levels_of(&self, detail: Detail, axes: usize) -> Levels {
        let last = self.levels.len() - 1;
        if last == 0 {
            return Levels { first: 0, weight: 0 };
        }
        let requested = match detail {
            Detail::Base => 0.0,
            Detail::Level(level) => level + self.sampling.level_bias,
            Detail::Number(number) => {
                return Levels { first: usize::try_from(number).unwrap_or(0), weight: 0 }.at_most(last);
            }
            Detail::Gradients(gradients) => self.level_of(gradients, axes) + self.sampling.level_bias,
        };
        let [lowest, highest] = self.sampling.level_range;
        // What is not a number means the largest level.
        let level = f64::from(requested.max(lowest).min(highest).max(0.0)).min(last as f64);
        match self.sampling.level_filter {
            Filter::Point => Levels { first: (level + 0.5) as usize, weight: 0 }.at_most(last),
            Filter::Linear => {
                let parts = (level * PARTS as f64 + 0.5) as i64;
                Levels { first: (parts / PARTS) as usize, weight: parts % PARTS }.at_most(last)
            }
        }
    }

    /// The level in which the longer of two steps is about one texel.
    fn level_of(&self, gradients: [[f32; 3]; 2], axes: usize) -> f32 {
        let size = self.levels[0].size;
        let length = |gradient: [f32; 3]| {
            let along = |axis: usize| {
                let scale = if self.sampling.normalized_coordinates { size[axis] as f32 } else { 1.0 };
                gradient[axis] * scale
            };
            (0..axes).map(|axis| along(axis) * along(axis)).sum::<f32>().sqrt()
        };
        length(gradients[0]).max(length(gradients[1])).log2()
    }
}

impl Levels {
    fn at_most(self, last: usize) -> Self {
        if self.first >= last { Self { first: last, weight: 0 } } else { self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::texture::examples::sampling;
    use crate::texture::types::{Channel, Image, Slices, TexelFormat};

    fn levels(detail: Detail, change: impl FnOnce(&mut Texture)) -> (usize, i64) {
        let level = |shift: u32| Image {
            address: 0,
            size: [64 >> shift, 32 >> shift, 1],
            row_pitch: 0,
            slice_pitch: 0,
        };
        let mut texture = Texture {
            levels: (0..4).map(level).collect(),
            slices: Slices::Depth,
            format: TexelFormat { channel: Channel::Single, channels: 1 },
            sampling: sampling(),
        };
        texture.sampling.normalized_coordinates = true;
        change(&mut texture);
        let Levels { first, weight } = texture.levels_of(detail, 2);
        (first, weight)
    }

    #[test]
    fn levels_are_rounded_or_weighted_and_kept_in_their_range() {
        let linear = |texture: &mut Texture| texture.sampling.level_filter = Filter::Linear;
        assert_eq!(levels(Detail::Base, |_| ()), (0, 0));
        assert_eq!(levels(Detail::Level(1.4), |_| ()), (1, 0));
        assert_eq!(levels(Detail::Level(1.5), |_| ()), (2, 0));
        assert_eq!(levels(Detail::Level(1.25), linear), (1, 64));
        assert_eq!(levels(Detail::Level(99.0), linear), (3, 0));
        assert_eq!(levels(Detail::Level(f32::NAN), linear), (0, 0));
        assert_eq!(levels(Detail::Level(-3.0), linear), (0, 0));
        assert_eq!(levels(Detail::Level(3.0), |texture| texture.sampling.level_range = [0.0, 1.0]), (1, 0));
        assert_eq!(levels(Detail::Base, |texture| texture.sampling.level_range = [2.0, 3.0]), (2, 0));
        assert_eq!(levels(Detail::Level(1.0), |texture| texture.sampling.level_bias = 1.0), (2, 0));
        assert_eq!(levels(Detail::Number(2), |texture| texture.sampling.level_range = [0.0, 1.0]), (2, 0));
        assert_eq!([levels(Detail::Number(-1), linear), levels(Detail::Number(9), linear)], [(0, 0), (3, 0)]);
    }

    #[test]
    fn gradients_choose_the_level_in_which_a_step_is_one_texel() {
        let step = |x: f32, y: f32| Detail::Gradients([[x / 64.0, 0.0, 9.0], [0.0, y / 32.0, 9.0]]);
        assert_eq!(levels(step(1.0, 1.0), |_| ()), (0, 0));
        assert_eq!(levels(step(4.0, 1.0), |_| ()), (2, 0));
        assert_eq!(levels(step(1.0, 2.0), |_| ()), (1, 0));
        assert_eq!(levels(step(0.0, 0.0), |_| ()), (0, 0));
    }
}
