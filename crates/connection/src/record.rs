//! Records: the units in which an encrypted connection carries bytes.
//!
//! A record is its plain length (`u32`, little-endian, at most [`MAX_RECORD`]), the encrypted bytes and a
//! tag of [`TAG_SIZE`] bytes. The cipher is AES-256-GCM with the record's number as nonce, laid out as
//! Noise lays it out, so a record that is altered, dropped, repeated or moved does not open. After every
//! [`REKEY_EVERY`] records both ends move on to the next key, as Noise's `REKEY` does, which keeps each key
//! far below the amount of data that AES-GCM is good for.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use causeway_wire::record;
use thiserror::Error;
use zeroize::Zeroize as _;

/// The most plain bytes in one record.
pub const MAX_RECORD: usize = 64 << 10;

/// Bytes of the length in front of a record.
pub const LENGTH_SIZE: usize = 4;

/// Bytes of the tag behind a record.
pub const TAG_SIZE: usize = 16;

/// Records after which a direction's key is replaced: at most 64 GiB under one key.
pub const REKEY_EVERY: u64 = 1 << 20;

/// A record did not open: it was altered on its way, or the ends disagree about the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("an encrypted record could not be decrypted: it was altered in transit")]
pub struct BadRecord;

/// The state of one direction of an encrypted connection, fit to be handed to another process.
#[derive(Clone, PartialEq, Eq)]
pub struct RecordKey {
    /// The key in use.
    key: [u8; 32],
    /// Number of the next record.
    next: u64,
}

record!(RecordKey { key, next });

impl Drop for RecordKey {
    fn drop(&mut self) {
        self.key.zeroize();
    }
}

impl core::fmt::Debug for RecordKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "RecordKey(.., next {})", self.next)
    }
}

impl RecordKey {
    /// A key before its first record.
    pub fn new(key: [u8; 32]) -> Self {
        Self { key, next: 0 }
    }
}

/// The state of both directions of an encrypted connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionKeys {
    /// For what this end sends.
    pub send: RecordKey,
    /// For what this end receives.
    pub receive: RecordKey,
    /// Whether they protect the handshake alone, and a link that the connection carries is in the clear
    /// ([`Protection::Authenticated`](causeway_wire::handshake::Protection)).
    pub handshake_only: bool,
}

record!(ConnectionKeys { send, receive, handshake_only });

/// Encrypts or decrypts the records of one direction.
pub struct Cipher {
    state: RecordKey,
    key: LessSafeKey,
}

impl core::fmt::Debug for Cipher {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.state.fmt(f)
    }
}

fn schedule(key: &[u8; 32]) -> LessSafeKey {
    LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key).expect("AES-256 takes 32 bytes"))
}

fn nonce(number: u64) -> Nonce {
    let mut bytes = [0; 12];
    bytes[4..].copy_from_slice(&number.to_be_bytes());
    Nonce::assume_unique_for_key(bytes)
}

impl Cipher {
    /// Goes on where `state` stands.
    pub fn new(state: RecordKey) -> Self {
        let key = schedule(&state.key);
        Self { state, key }
    }

    /// Where this direction stands, to be handed on; nothing may be sealed or opened here afterwards.
    pub fn into_state(self) -> RecordKey {
        self.state
    }

    fn next_nonce(&mut self) -> Nonce {
        let number = self.state.next;
        self.state.next += 1;
        if number != 0 && number.is_multiple_of(REKEY_EVERY) {
            // Noise's REKEY: the next key is what the old one makes of zeros under the last possible nonce.
            let mut zeros = [0; 32];
            let _tag = self
                .key
                .seal_in_place_separate_tag(nonce(u64::MAX), Aad::empty(), &mut zeros)
                .expect("32 bytes are not too long to encrypt");
            self.state.key = zeros;
            self.key = schedule(&zeros);
        }
        nonce(number)
    }

    /// Encrypts `bytes` (at most [`MAX_RECORD`]) in place; the tag goes behind them.
    pub fn seal(&mut self, bytes: &mut [u8]) -> [u8; TAG_SIZE] {
        let nonce = self.next_nonce();
        let tag = self.key.seal_in_place_separate_tag(nonce, Aad::empty(), bytes);
        let tag = tag.expect("a record is not too long to encrypt");
        tag.as_ref().try_into().expect("the cipher's tags have 16 bytes")
    }

    /// Decrypts `bytes` in place, after checking them against `tag`.
    pub fn open(&mut self, bytes: &mut [u8], tag: [u8; TAG_SIZE]) -> Result<(), BadRecord> {
        let nonce = self.next_nonce();
        self.key
            .open_in_place_separate_tag(nonce, Aad::empty(), &tag, bytes)
            .map(|_| ())
            .map_err(|_| BadRecord)
    }

    /// Appends one whole record to `out`, whose plain bytes `fill` writes.
    pub fn append(&mut self, out: &mut Vec<u8>, length: usize, fill: impl FnOnce(&mut Vec<u8>)) {
        debug_assert!(length <= MAX_RECORD);
        out.extend_from_slice(&(length as u32).to_le_bytes());
        let start = out.len();
        fill(out);
        debug_assert_eq!(out.len(), start + length);
        let tag = self.seal(&mut out[start..]);
        out.extend_from_slice(&tag);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair_at(next: u64) -> (Cipher, Cipher) {
        let state = RecordKey { key: [5; 32], next };
        (Cipher::new(state.clone()), Cipher::new(state))
    }

    #[test]
    fn records_open_in_order_across_a_change_of_key() {
        let (mut sender, mut receiver) = pair_at(REKEY_EVERY - 1);
        let mut keys = Vec::new();
        for round in 0..3_u8 {
            let mut bytes = [round; 100];
            let tag = sender.seal(&mut bytes);
            assert_ne!(bytes, [round; 100]);
            receiver.open(&mut bytes, tag).unwrap();
            assert_eq!(bytes, [round; 100]);
            keys.push(receiver.state.key);
        }
        assert!(keys[0] != keys[1] && keys[1] == keys[2]);
    }

    #[test]
    fn altered_and_repeated_records_do_not_open() {
        let (mut sender, mut receiver) = pair_at(0);
        let mut bytes = [1; 40];
        let tag = sender.seal(&mut bytes);
        let mut altered = bytes;
        altered[7] ^= 1;
        assert_eq!(Cipher::new(receiver.state.clone()).open(&mut altered, tag), Err(BadRecord));
        let mut copy = bytes;
        receiver.open(&mut copy, tag).unwrap();
        assert_eq!(receiver.open(&mut bytes, tag), Err(BadRecord));
    }

    #[test]
    fn a_handed_over_direction_goes_on_with_the_next_record() {
        let (mut sender, mut receiver) = pair_at(3);
        let mut first = [1; 10];
        let tag = sender.seal(&mut first);
        receiver.open(&mut first, tag).unwrap();
        let (mut sender, mut receiver) =
            (Cipher::new(sender.into_state()), Cipher::new(receiver.into_state()));
        let mut second = [2; 10];
        let tag = sender.seal(&mut second);
        receiver.open(&mut second, tag).unwrap();
        assert_eq!(second, [2; 10]);
    }
}
