//! Announcement of a window to the other ranks. Messages of 16 bytes. Pure.

use crate::bootstrap::MESSAGE_BYTES;

/// What a rank says of its part of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Announcement {
    /// Which one, counted from 0.
    pub number: u32,
    /// Whether the part lies in the host.
    pub in_host: bool,
    /// Bytes of the part.
    pub bytes: u64,
}

impl core::fmt::Display for Announcement {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let location = if self.in_host { "in the host" } else { "on the device" };
        write!(f, "number {}, {} bytes {location}", self.number, self.bytes)
    }
}

/// What the second word of a message says: where a part lies, that there is none, that the rank leaves, which
/// GPU it has, or for what a connection is.
const ON_DEVICE: u32 = 0;
const IN_HOST: u32 = 1;
pub(super) const NONE: u32 = 2;
pub(super) const GOODBYE: u32 = 3;
pub(super) const GPU: u32 = 4;
pub(super) const CONTROL: u32 = 5;
pub(super) const LINK: u32 = 6;

impl Announcement {
    /// As 16 bytes: the number, where, and the bytes, little-endian.
    pub fn encode(&self) -> [u8; MESSAGE_BYTES] {
        message(self.number, if self.in_host { IN_HOST } else { ON_DEVICE }, self.bytes)
    }

    /// Reads them; none where they announce nothing.
    pub fn decode(message: &[u8; MESSAGE_BYTES]) -> Option<Self> {
        let word = |at: usize| message[at..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        let bytes = message[8..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let in_host = match word(4) {
            ON_DEVICE => false,
            IN_HOST => true,
            _ => return None,
        };
        Some(Self { number: word(0), in_host, bytes })
    }
}

/// A message of a number, what it says, and more about that.
pub(super) fn message(number: u32, what: u32, bytes: u64) -> [u8; MESSAGE_BYTES] {
    let mut message = [0; MESSAGE_BYTES];
    message[..4].copy_from_slice(&number.to_le_bytes());
    message[4..8].copy_from_slice(&what.to_le_bytes());
    message[8..].copy_from_slice(&bytes.to_le_bytes());
    message
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn announcements_are_what_was_written(number: u32, in_host: bool, bytes: u64) {
            let said = Announcement { number, in_host, bytes };
            prop_assert_eq!(Announcement::decode(&said.encode()), Some(said));
        }

        #[test]
        fn no_bytes_do_harm(message: [u8; MESSAGE_BYTES]) {
            if let Some(read) = Announcement::decode(&message) {
                prop_assert_eq!(read.encode(), message);
            }
        }
    }
}
