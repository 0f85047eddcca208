//! Random numbers, as the kernel's parameter: generators with their lanes, and distributions.
//!
//! Orders and numbers are those of cuRAND's default ordering. A generator has many *lanes*, each a sequence of 32-bit
//! numbers far from the others. Results come from one lane after the other; after the last one follows the first again,
//! where it had stopped.

/// Bytes of a [`RandomRequest`].
pub const RANDOM_REQUEST_BYTES: usize = size_of::<RandomRequest>();

/// What is done. The numbers are passed to the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum RandomStep {
    /// Writes the state: that of the seed after as many 32-bit numbers as the position says.
    Seed,
    /// Writes random numbers, and the state after them.
    Generate,
}

impl RandomStep {
    /// The step of this number.
    pub fn from_number(number: u32) -> Option<Self> {
        [Self::Seed, Self::Generate].get(number as usize).copied()
    }
}

/// An algorithm. The numbers are passed to the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Generator {
    /// Marsaglia's `xorwow`, with lanes 2^67 numbers apart.
    Xorwow,
    /// Philox4x32-10, whose lanes are different high halves of the counter.
    Philox,
}

impl Generator {
    const ALL: [Self; 2] = [Self::Xorwow, Self::Philox];

    /// The algorithm of this number.
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.get(number as usize).copied()
    }

    /// Lanes.
    pub fn lanes(self) -> u64 {
        match self {
            Self::Xorwow => 4096,
            Self::Philox => 65536,
        }
    }

    /// Bytes of the state of a lane: that of `xorwow`, or how many counters have been used.
    pub fn lane_bytes(self) -> u64 {
        match self {
            Self::Xorwow => 24,
            Self::Philox => 8,
        }
    }

    /// Results of a lane before the next one follows.
    pub fn results_of_lane(self, distribution: Distribution) -> u64 {
        match self {
            Self::Xorwow => distribution.results(),
            Self::Philox => 4,
        }
    }

    /// Positions of a lane: how far its results can have been taken.
    pub fn positions_of_lane(self) -> u64 {
        match self {
            Self::Xorwow => 1,
            Self::Philox => 4,
        }
    }

    /// The position, in the numbers of all lanes, after so many results.
    pub fn position_after(self, position: u64, distribution: Distribution, count: u64) -> u64 {
        let step = match self {
            Self::Xorwow => count / distribution.results(),
            Self::Philox => count,
        };
        let positions = self.lanes() * self.positions_of_lane();
        (position % positions + step % positions) % positions
    }
}

/// What the results are. The numbers are passed to the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Distribution {
    /// The 32-bit numbers themselves.
    Bits,
    /// Above 0 up to 1, in single precision.
    Uniform,
    /// The same in double precision.
    UniformDouble,
    /// Normal, with mean and deviation, in single precision.
    Normal,
    /// The same in double precision.
    NormalDouble,
    /// The exponential of `Normal`.
    LogNormal,
    /// The exponential of `NormalDouble`.
    LogNormalDouble,
    /// Poisson's, with a mean: unsigned 32-bit integers.
    Poisson,
}

impl Distribution {
    const ALL: [Self; 8] = [
        Self::Bits,
        Self::Uniform,
        Self::UniformDouble,
        Self::Normal,
        Self::NormalDouble,
        Self::LogNormal,
        Self::LogNormalDouble,
        Self::Poisson,
    ];

    /// The distribution of this number.
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.get(number as usize).copied()
    }

    /// Whether results are in double precision.
    pub fn is_double(self) -> bool {
        matches!(self, Self::UniformDouble | Self::NormalDouble | Self::LogNormalDouble)
    }

    /// Bytes of a result.
    pub fn result_bytes(self) -> u64 {
        if self.is_double() { 8 } else { 4 }
    }

    /// Results that are made at once: normal ones are in pairs.
    pub fn results(self) -> u64 {
        match self {
            Self::Bits | Self::Uniform | Self::UniformDouble | Self::Poisson => 1,
            Self::Normal | Self::NormalDouble | Self::LogNormal | Self::LogNormalDouble => 2,
        }
    }

    /// 32-bit numbers that these results are made of.
    pub fn numbers(self) -> u64 {
        self.results() * if self.is_double() { 2 } else { 1 }
    }
}

/// The most that the mean of Poisson's distribution can be.
pub const MAX_POISSON_MEAN: f64 = 1e9;

/// A step of a generator. One block takes it.
///
/// It comes from a program, so that nothing in it is trusted.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[repr(C)]
pub struct RandomRequest {
    /// Address of the states of all lanes.
    pub state: u64,
    /// The seed.
    pub seed: u64,
    /// How many numbers are skipped, or the position of the first result.
    pub position: u64,
    /// Results.
    pub count: u64,
    /// Address of the results.
    pub results: u64,
    /// Mean and deviation.
    pub parameters: [f64; 2],
    /// A [`RandomStep`].
    pub step: u32,
    /// A [`Generator`].
    pub generator: u32,
    /// A [`Distribution`].
    pub distribution: u32,
    /// Always 0.
    pub reserved: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_has_no_padding() {
        assert_eq!(RANDOM_REQUEST_BYTES, 7 * 8 + 4 * 4);
        for (number, distribution) in Distribution::ALL.into_iter().enumerate() {
            assert_eq!(distribution as usize, number);
        }
        for (number, generator) in Generator::ALL.into_iter().enumerate() {
            assert_eq!(generator as usize, number);
        }
    }

    #[test]
    fn positions_return_to_the_first_lane_after_the_last() {
        use Distribution::{Bits, Normal};
        assert_eq!(Generator::Xorwow.position_after(4095, Bits, 3), 2);
        assert_eq!(Generator::Xorwow.position_after(3, Normal, 6), 6);
        assert_eq!(Generator::Philox.position_after(262_143, Normal, 2), 1);
    }
}
