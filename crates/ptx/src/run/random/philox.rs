//! Philox4x32-10, a generator with a counter (Salmon and others, "Parallel random numbers: as easy as 1, 2, 3", 2011).

const MULTIPLIERS: [u32; 2] = [0xd251_1f53, 0xcd9e_8d57];
const KEY_STEPS: [u32; 2] = [0x9e37_79b9, 0xbb67_ae85];
const ROUNDS: usize = 10;

/// The four numbers of a counter in a lane.
pub(super) fn numbers(seed: u64, lane: u64, counter: u64) -> [u32; 4] {
    let mut key = [seed as u32, (seed >> 32) as u32];
    let mut block = [counter as u32, (counter >> 32) as u32, lane as u32, (lane >> 32) as u32];
    for _ in 0..ROUNDS {
        let [first, second] = [0, 1].map(|half| u64::from(MULTIPLIERS[half]) * u64::from(block[2 * half]));
        block = [
            (second >> 32) as u32 ^ block[1] ^ key[0],
            second as u32,
            (first >> 32) as u32 ^ block[3] ^ key[1],
            first as u32,
        ];
        key = [0, 1].map(|half| key[half].wrapping_add(KEY_STEPS[half]));
    }
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The known answers that the paper's authors publish with their code.
    #[test]
    fn numbers_are_those_of_the_published_test_vectors() {
        assert_eq!(numbers(0, 0, 0), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(
            numbers(u64::MAX, u64::MAX, u64::MAX),
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
        );
    }
}
