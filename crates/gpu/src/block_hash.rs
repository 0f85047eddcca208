//! Block hash of device memory, which a processor and a GPU compute alike.
//!
//! A worker finds out which blocks of a device's memory kernels have changed by comparing hashes. The device
//! computes them at the rate of its own memory; a copy to the host would take as long as the bus between them.
//!
//! The hash is NH of UMAC (Black, Halevi, Krawczyk, Krovetz, Rogaway: "UMAC: Fast and Secure Message
//! Authentication", CRYPTO 1999) with words of 64 bits: the sum, modulo 2^128, of (a + k)(b + l) over all pairs of
//! words a, b, each with two keys k, l of its own. Two blocks that differ have the same hash with a probability of
//! 2^-64 over the choice of keys. The keys are fixed, since hashes move to other workers with a session: a program
//! that looks for two blocks with the same hash harms only itself.

use core::fmt::Write as _;

/// Bytes of a block.
pub const BLOCK: usize = 64 << 10;

/// Bytes of memory whose hashes a device computes at once, at most.
pub const MAX_BYTES: usize = 1 << 30;

/// Threads of a block of the kernel. Each takes several pairs of words of a memory block.
pub const THREADS: u32 = 512;

/// Bytes of a pair of words: a device reads as many at once.
const PAIR: usize = 16;

/// Pairs of words for each thread.
const UNITS: usize = BLOCK / PAIR / THREADS as usize;

/// The kernel's name in [`kernel`].
pub const KERNEL_NAME: &core::ffi::CStr = c"block_hashes";

/// The keys, by word of a block.
static KEYS: [u64; BLOCK / 8] = keys();

/// Numbers of the generator SplitMix64 (Steele, Lea, Flood: "Fast Splittable Pseudorandom Number Generators",
/// OOPSLA 2014).
const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;
const FIRST_FACTOR: u64 = 0xbf58_476d_1ce4_e5b9;
const SECOND_FACTOR: u64 = 0x94d0_49bb_1331_11eb;

const fn keys() -> [u64; BLOCK / 8] {
    let mut keys = [0; BLOCK / 8];
    let mut index = 0;
    while index < keys.len() {
        let seed = (index as u64 + 1).wrapping_mul(GAMMA);
        let mixed = (seed ^ seed >> 30).wrapping_mul(FIRST_FACTOR);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(SECOND_FACTOR);
        keys[index] = mixed ^ mixed >> 31;
        index += 1;
    }
    keys
}

/// The hash of a block of at most [`BLOCK`] bytes. Zeros that fill its last pair of words do not change it, so it
/// distinguishes only blocks of one length.
pub fn hash(block: &[u8]) -> u128 {
    debug_assert!(block.len() <= BLOCK, "there are keys for one block");
    let (pairs, rest) = block.as_chunks::<PAIR>();
    let mut sum =
        pairs.iter().zip(&KEYS.as_chunks::<2>().0[..pairs.len()]).map(of_pair).fold(0, u128::wrapping_add);
    if !rest.is_empty() {
        let mut last = [0; PAIR];
        last[..rest.len()].copy_from_slice(rest);
        let keys = [KEYS[2 * pairs.len()], KEYS[2 * pairs.len() + 1]];
        sum = sum.wrapping_add(of_pair((&last, &keys)));
    }
    sum
}

fn of_pair((pair, [first, second]): (&[u8; PAIR], &[u64; 2])) -> u128 {
    let both = u128::from_le_bytes(*pair);
    let a = (both as u64).wrapping_add(*first);
    let b = ((both >> 64) as u64).wrapping_add(*second);
    u128::from(a) * u128::from(b)
}

/// The kernel in PTX: `block_hashes(memory, bytes, hashes)` writes the hash of each block of memory, of 16 bytes
/// each. `memory` and `hashes` are addresses at multiples of 16, `bytes` a multiple of 16. Blocks of [`THREADS`]
/// threads share the work, however many there are.
///
/// A block of threads computes its keys once and keeps them in registers, takes every n-th block of memory, adds
/// the products of each warp by shuffles and those of the warps through shared memory.
pub fn kernel() -> String {
    let mut text = String::from(HEAD);
    for unit in 0..UNITS {
        for (key, word) in [("k", 0), ("l", 1)] {
            write_key(&mut text, &format!("%{key}{unit}"), (2 * unit * THREADS as usize + word) as u64);
        }
    }
    text.push_str(LOOP);
    for unit in 0..UNITS {
        // All loads come first: a thread then waits for memory once.
        let _ = write!(
            text,
            "    add.u64 %place, %at, {};
    setp.lt.u64 %in{unit}, %place, %bytes;
    add.u64 %place, %place, %memory;
    mov.u64 %a{unit}, 0;
    mov.u64 %b{unit}, 0;
    @%in{unit} ld.global.v2.u64 {{%a{unit}, %b{unit}}}, [%place];
",
            unit * THREADS as usize * PAIR
        );
    }
    text.push_str("    mov.u64 %low, 0;\n    mov.u64 %high, 0;\n");
    for unit in 0..UNITS {
        let _ = write!(
            text,
            "    add.u64 %a{unit}, %a{unit}, %k{unit};
    add.u64 %b{unit}, %b{unit}, %l{unit};
    mul.lo.u64 %other_low, %a{unit}, %b{unit};
    mul.hi.u64 %other_high, %a{unit}, %b{unit};
    selp.u64 %other_low, %other_low, 0, %in{unit};
    selp.u64 %other_high, %other_high, 0, %in{unit};
{ADD}"
        );
    }
    const WARP: u32 = 32;
    write_sum(&mut text, WARP);
    text.push_str(STORE_OF_WARP);
    write_sum(&mut text, THREADS / WARP);
    text.push_str(STORE_OF_BLOCK);
    text
}

/// Registers, parameters, and where the first block's part of a thread begins.
const HEAD: &str = "\
.version 6.0
.target sm_52
.address_size 64
.visible .entry block_hashes(.param .u64 memory, .param .u64 bytes, .param .u64 hashes)
.maxntid 512, 1, 1
.minnctapersm 2
{
    .shared .align 16 .b8 sums[256];
    .reg .pred %in<8>, %other_lane, %other_warp, %beyond;
    .reg .b32 %thread, %lane, %warp, %block, %blocks, %slot, %r<4>;
    .reg .b64 %k<8>, %l<8>, %a<8>, %b<8>;
    .reg .b64 %memory, %bytes, %hashes, %start, %step, %at, %place, %own, %seed, %mixed;
    .reg .b64 %low, %high, %other_low, %other_high;
    ld.param.u64 %memory, [memory];
    cvta.to.global.u64 %memory, %memory;
    ld.param.u64 %bytes, [bytes];
    ld.param.u64 %hashes, [hashes];
    cvta.to.global.u64 %hashes, %hashes;
    mov.u32 %thread, %tid.x;
    and.b32 %lane, %thread, 31;
    shr.u32 %warp, %thread, 5;
    setp.ne.u32 %other_lane, %lane, 0;
    setp.ne.u32 %other_warp, %warp, 0;
    mov.u32 %block, %ctaid.x;
    mov.u32 %blocks, %nctaid.x;
    mul.wide.u32 %start, %block, 65536;
    mul.wide.u32 %step, %blocks, 65536;
    mul.wide.u32 %own, %thread, 2;
    mul.wide.u32 %at, %thread, 16;
    add.u64 %at, %at, %start;
";

const LOOP: &str = "\
next:
    setp.ge.u64 %beyond, %start, %bytes;
    @%beyond ret;
";

const ADD: &str = "    add.cc.u64 %low, %low, %other_low;\n    addc.u64 %high, %high, %other_high;\n";

/// The sums of warps meet in the first one.
const STORE_OF_WARP: &str = "\
    shl.b32 %slot, %warp, 4;
    mov.u32 %r0, sums;
    add.u32 %slot, %slot, %r0;
    @!%other_lane st.shared.v2.u64 [%slot], {%low, %high};
    bar.sync 0;
    @%other_warp bra done;
    mov.u64 %low, 0;
    mov.u64 %high, 0;
    setp.ge.u32 %beyond, %lane, 16;
    @%beyond bra summed;
    shl.b32 %slot, %lane, 4;
    add.u32 %slot, %slot, %r0;
    ld.shared.v2.u64 {%low, %high}, [%slot];
summed:
";

/// The second barrier keeps the next round's sums apart from this one's.
const STORE_OF_BLOCK: &str = "\
    mul.wide.u32 %place, %block, 16;
    add.u64 %place, %place, %hashes;
    @!%other_lane st.global.v2.u64 [%place], {%low, %high};
done:
    bar.sync 0;
    add.u64 %start, %start, %step;
    add.u64 %at, %at, %step;
    add.u32 %block, %block, %blocks;
    bra next;
}
";

/// Computes the key of the word `first` behind the thread's own.
fn write_key(text: &mut String, key: &str, first: u64) {
    let _ = write!(
        text,
        "    add.u64 %seed, %own, {};
    mul.lo.u64 %seed, %seed, {GAMMA:#x};
    shr.u64 %mixed, %seed, 30;
    xor.b64 %mixed, %mixed, %seed;
    mul.lo.u64 %seed, %mixed, {FIRST_FACTOR:#x};
    shr.u64 %mixed, %seed, 27;
    xor.b64 %mixed, %mixed, %seed;
    mul.lo.u64 %seed, %mixed, {SECOND_FACTOR:#x};
    shr.u64 %mixed, %seed, 31;
    xor.b64 {key}, %mixed, %seed;
",
        first + 1
    );
}

/// Adds the sums of as many first lanes of a warp into the first lane's.
fn write_sum(text: &mut String, lanes: u32) {
    let mut distance = lanes / 2;
    while distance > 0 {
        text.push_str("    mov.b64 {%r0, %r1}, %low;\n    mov.b64 {%r2, %r3}, %high;\n");
        for register in 0..4 {
            let _ = writeln!(
                text,
                "    shfl.sync.down.b32 %r{register}, %r{register}, {distance}, 31, 0xffffffff;"
            );
        }
        text.push_str("    mov.b64 %other_low, {%r0, %r1};\n    mov.b64 %other_high, {%r2, %r3};\n");
        text.push_str(ADD);
        distance /= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_the_sum_of_products() {
        let words: Vec<u64> = (0..7).map(|index: u64| index.wrapping_mul(0x1234_5678_9abc_def1)).collect();
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let factor = |index: usize| u128::from(words.get(index).unwrap_or(&0).wrapping_add(KEYS[index]));
        let sum = (0..8).step_by(2).fold(0_u128, |sum, at| sum.wrapping_add(factor(at) * factor(at + 1)));
        assert_eq!(hash(&bytes), sum);
        assert_eq!(hash(&[]), 0);
        // The first output of SplitMix64 with the seed 0, as its authors publish it.
        assert_eq!(KEYS[0], 0xe220_a839_7b1d_cdaf);
    }

    #[test]
    fn each_bit_and_the_order_of_words_count() {
        let block: Vec<u8> = (0..BLOCK).map(|at| (at / 8 * 31) as u8).collect();
        let before = hash(&block);
        for at in [0, 7, 8, 15, 16, 4095, BLOCK / 2 + 9, BLOCK - 1] {
            for bit in 0..8 {
                let mut other = block.clone();
                other[at] ^= 1 << bit;
                assert_ne!(hash(&other), before, "bit {bit} of byte {at}");
            }
        }
        for (one, other) in [(0, 8), (0, 16), (8, BLOCK - 8), (8192, 16384)] {
            let mut swapped = block.clone();
            swapped[one] = 0xee;
            let mut moved = block.clone();
            moved[other] = 0xee;
            assert_ne!(hash(&swapped), hash(&moved), "{one} and {other}");
        }
        assert_ne!(hash(&block[..BLOCK - 16]), before);
    }
}
