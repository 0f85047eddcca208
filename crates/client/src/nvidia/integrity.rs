//! `INTEGRITY_CHECK`: the answer without which the runtime does not start.
//!
//! It mixes the caller's process, thread and table addresses, so it can only be computed here. Algorithm and
//! key are published by ZLUDA: HMAC (RFC 2104, blocks of 16 bytes) over MD2 (RFC 1319).

use hmac::{Hmac, Mac};
use md2::Md2;

const KEY: [u8; 16] =
    [0x14, 0x6a, 0xdd, 0xae, 0x53, 0xa9, 0xa7, 0x52, 0xaa, 0x08, 0x41, 0x36, 0x0b, 0xf5, 0x5a, 0x9f];

/// What the answer is computed from.
#[derive(Clone, Copy, Debug)]
pub struct Challenge<'a> {
    /// What `cuDriverGetVersion` answers.
    pub driver_version: u32,
    /// The version that the runtime asks about: its own, or up to two more.
    pub version: u32,
    /// The process.
    pub process: u32,
    /// The low half of the thread's `pthread_self`.
    pub thread: u32,
    /// Address of the table `CUDART_INTERFACE`.
    pub runtime_table: u64,
    /// Address of the table `INTEGRITY_CHECK`.
    pub check_table: u64,
    /// Address of the function that computes the answer.
    pub check_function: u64,
    /// The time that the runtime gave, in seconds since 1970.
    pub seconds: u64,
    /// UUID and PCI domain, bus and device of each device that the program sees, in order.
    pub devices: &'a [([u8; 16], [i32; 3])],
}

/// The answer.
pub fn response(challenge: &Challenge<'_>) -> [u64; 2] {
    match challenge.version % 10 {
        0 => [0x3341_181c_03cb_675c, 0x8ed3_83aa_1f4c_d1e8],
        1 => [0x1841_181c_03cb_675c, 0x8ed3_83aa_1f4c_d1e8],
        _ => computed(challenge),
    }
}

fn computed(challenge: &Challenge<'_>) -> [u64; 2] {
    let mut hash = Hmac::<Md2>::new_from_slice(&KEY).expect("HMAC takes keys of any length");
    for word in [challenge.driver_version, challenge.version, challenge.process, challenge.thread] {
        hash.update(&word.to_le_bytes());
    }
    let words = [challenge.runtime_table, challenge.check_table, challenge.check_function, challenge.seconds];
    for word in words {
        hash.update(&word.to_le_bytes());
    }
    for (uuid, pci) in challenge.devices {
        hash.update(uuid);
        pci.iter().for_each(|part| hash.update(&part.to_le_bytes()));
    }
    let bytes: [u8; 16] = hash.finalize().into_bytes().into();
    let word = |half: usize| {
        bytes[half * 8..][..8].iter().rev().fold(0_u64, |word, byte| word << 8 | u64::from(*byte))
    };
    [word(0), word(1)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use md2::Digest;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The test suite of RFC 1319.
    #[test]
    fn the_hash_is_md2() {
        let digest = |text: &str| hex(&Md2::digest(text.as_bytes()));
        assert_eq!(digest(""), "8350e5a3e24c153df2275c9f80692773");
        assert_eq!(digest("abc"), "da853b0d3f88d99b30283a69e6ded6bb");
        assert_eq!(digest("message digest"), "ab4f496bfb2a530b219ff33031fe06b0");
        let letters = "abcdefghijklmnopqrstuvwxyz";
        assert_eq!(digest(letters), "4e8ddff3650292ab5a4108c3aa47940b");
    }

    /// RFC 2104 with its two hashes written out, so that the block size is seen to be 16.
    #[test]
    fn the_code_is_hmac_with_blocks_of_sixteen_bytes() {
        let challenge = Challenge {
            driver_version: 13000,
            version: 13002,
            process: 77,
            thread: 0x1234_5678,
            runtime_table: 0x7f00_0000_1000,
            check_table: 0x7f00_0000_2000,
            check_function: 0x7f00_0000_3000,
            seconds: 1_700_000_000,
            devices: &[(*b"0123456789abcdef", [0, 0x3b, 0])],
        };
        let mut message = Vec::new();
        [13000_u32, 13002, 77, 0x1234_5678].iter().for_each(|word| message.extend(word.to_le_bytes()));
        let words = [0x7f00_0000_1000_u64, 0x7f00_0000_2000, 0x7f00_0000_3000, 1_700_000_000];
        words.iter().for_each(|word| message.extend(word.to_le_bytes()));
        message.extend(b"0123456789abcdef");
        [0_i32, 0x3b, 0].iter().for_each(|word| message.extend(word.to_le_bytes()));
        let inner = Md2::digest([&KEY.map(|byte| byte ^ 0x36)[..], &message].concat());
        let outer = Md2::digest([&KEY.map(|byte| byte ^ 0x5c)[..], &inner].concat());
        let words = response(&challenge);
        assert_eq!(hex(&outer), hex(&words.map(u64::to_le_bytes).concat()));
    }

    #[test]
    fn two_of_three_versions_have_fixed_answers() {
        let challenge = Challenge {
            driver_version: 0,
            version: 12040,
            process: 0,
            thread: 0,
            runtime_table: 0,
            check_table: 0,
            check_function: 0,
            seconds: 0,
            devices: &[],
        };
        assert_eq!(response(&challenge)[0] >> 56, 0x33);
        assert_eq!(response(&Challenge { version: 12041, ..challenge })[0] >> 56, 0x18);
    }
}
