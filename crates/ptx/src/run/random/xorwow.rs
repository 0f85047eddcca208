//! `xorwow`, a generator of shifts and exclusive ors with a counter (Marsaglia, "Xorshift RNGs", 2003), and how it is
//! advanced far: all but the counter is linear over bits.

use std::sync::OnceLock;

/// What the counter grows by.
const INCREMENT: u32 = 362_437;
/// Lanes are 2^67 numbers apart, after which the counter is what it was.
const LANE_DISTANCE_LOG: usize = 67;

/// The state but for the counter.
type Bits = [u32; 5];

/// The state of a lane.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(super) struct Xorwow {
    bits: Bits,
    counter: u32,
}

impl Xorwow {
    /// The first lane, from a seed as cuRAND distributes it over the state of Marsaglia's paper.
    fn seeded(seed: u64) -> Self {
        let low = (seed as u32 ^ 0xaad2_6b49).wrapping_mul(1_099_087_573);
        let high = ((seed >> 32) as u32 ^ 0xf7dc_efdd).wrapping_mul(2_591_861_531);
        Self {
            bits: [
                123_456_789_u32.wrapping_add(low),
                362_436_069 ^ low,
                521_288_629_u32.wrapping_add(high),
                88_675_123 ^ high,
                5_783_321_u32.wrapping_add(low),
            ],
            counter: 6_615_241_u32.wrapping_add(high).wrapping_add(low),
        }
    }

    /// The next number.
    pub(super) fn draw(&mut self) -> u32 {
        self.bits = advance(self.bits);
        self.counter = self.counter.wrapping_add(INCREMENT);
        self.bits[4].wrapping_add(self.counter)
    }

    /// Leaves out so many numbers.
    fn skip(&mut self, count: u64) {
        for power in (0..u64::BITS).filter(|power| count >> power & 1 != 0) {
            self.bits = powers()[power as usize].apply(self.bits);
        }
        self.counter = self.counter.wrapping_add(INCREMENT.wrapping_mul(count as u32));
    }
}

/// The states of all lanes after so many numbers.
pub(super) fn seed(seed: u64, position: u64, lanes: &mut [Xorwow]) {
    let count = lanes.len() as u64;
    let mut state = Xorwow::seeded(seed);
    state.skip(position / count);
    for (number, lane) in lanes.iter_mut().enumerate() {
        *lane = state;
        if (number as u64) < position % count {
            lane.draw();
        }
        state.bits = powers()[LANE_DISTANCE_LOG].apply(state.bits);
    }
}

fn advance(bits: Bits) -> Bits {
    let [first, second, third, fourth, last] = bits;
    let mixed = first ^ first >> 2;
    [second, third, fourth, last, last ^ last << 4 ^ mixed ^ mixed << 1]
}

/// A linear function: what it makes of each bit.
struct Linear(Vec<Bits>);

impl Linear {
    fn apply(&self, bits: Bits) -> Bits {
        let mut result = Bits::default();
        for (word, value) in bits.into_iter().enumerate() {
            for bit in (0..u32::BITS).filter(|bit| value >> bit & 1 != 0) {
                let image = &self.0[word * 32 + bit as usize];
                result.iter_mut().zip(image).for_each(|(result, image)| *result ^= image);
            }
        }
        result
    }
}

/// The function that advances by 2^n numbers, for each n.
fn powers() -> &'static [Linear] {
    static POWERS: OnceLock<Vec<Linear>> = OnceLock::new();
    POWERS.get_or_init(|| {
        let unit = |index: usize| {
            let mut bits = Bits::default();
            bits[index / 32] = 1 << (index % 32);
            bits
        };
        let mut powers = vec![Linear((0..160).map(|index| advance(unit(index))).collect())];
        for power in 0..LANE_DISTANCE_LOG {
            let before = &powers[power];
            let squared = before.0.iter().map(|image| before.apply(*image)).collect();
            powers.push(Linear(squared));
        }
        powers
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Taken from cuRAND 10.3.10 (its generators of the host), seed 1234: `curandGenerate`.
    #[test]
    fn lanes_are_those_of_curand() {
        let mut lanes = vec![Xorwow::default(); 4096];
        seed(1234, 0, &mut lanes);
        let first: Vec<u32> = lanes[..4].iter_mut().map(Xorwow::draw).collect();
        assert_eq!(first, [0x253d_5e15, 0xd1f7_605a, 0x8ce6_f6f8, 0x4b79_ff67]);
        assert_eq!([lanes[0].draw(), lanes[1].draw()], [0x6f55_8604, 0xed29_ae49]);
    }

    #[test]
    fn numbers_that_are_left_out_are_those_that_would_have_come() {
        let (mut skipped, mut drawn) = (Xorwow::seeded(7), Xorwow::seeded(7));
        skipped.skip(1000);
        for _ in 0..1000 {
            drawn.draw();
        }
        assert_eq!(skipped.draw(), drawn.draw());
    }
}
