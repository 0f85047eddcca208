//! Messages that travel compressed: the body of a frame of kind
//! [`CompressedMessages`](crate::frame::FrameKind::CompressedMessages).
//!
//! A program launches the same few kernels again and again, so its commands resemble each other. On a long
//! network each byte has a price that loopback does not have: a connection that has been quiet may send only
//! some 14 KB before it hears from its peer, then twice as much, and so on, one round trip each.
//!
//! | Bytes | Field                                                                     |
//! |-------|---------------------------------------------------------------------------|
//! | 0..4  | length of the messages in bytes, little-endian, at most [`MAX_BODY`]      |
//! | 4..   | the messages as one LZ4 block                                             |

use thiserror::Error;

use crate::frame::MAX_BODY;

/// Shorter bodies fit into a few packets as they are, in bytes.
pub const WORTH_COMPRESSING: usize = 2 << 10;

/// Bytes of the length in front of the block.
const LENGTH_SIZE: usize = 4;

/// One byte of an LZ4 block stands for at most this many of what it was made of.
const MAX_GAIN: usize = 255;

/// Why a compressed body is not one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum CompressionError {
    /// There is no length, or one that this many bytes cannot have been made of.
    #[error("a compressed frame of {found} bytes announces {announced} bytes of messages")]
    BadLength {
        /// Bytes in the body.
        found: usize,
        /// Bytes announced.
        announced: usize,
    },
    /// The block does not decompress to what was announced.
    #[error("a compressed frame is damaged")]
    Damaged,
}

/// Appends `messages` to `out` as a compressed body. False, with `out` as it was, where that saves less than
/// an eighth.
pub fn compress(messages: &[u8], out: &mut Vec<u8>) -> bool {
    let start = out.len();
    let block = start + LENGTH_SIZE;
    out.extend_from_slice(&(messages.len() as u32).to_le_bytes());
    out.resize(block + lz4_flex::block::get_maximum_output_size(messages.len()), 0);
    match lz4_flex::block::compress_into(messages, &mut out[block..]) {
        Ok(length) if length + LENGTH_SIZE <= messages.len() - messages.len() / 8 => {
            out.truncate(block + length);
            true
        }
        _ => {
            out.truncate(start);
            false
        }
    }
}

/// Puts the messages of a compressed body into `out`, in place of what it held.
///
/// No memory is spent on a length that the body is too short for.
pub fn decompress(body: &[u8], out: &mut Vec<u8>) -> Result<(), CompressionError> {
    let (length, block) = body
        .split_first_chunk::<LENGTH_SIZE>()
        .ok_or(CompressionError::BadLength { found: body.len(), announced: 0 })?;
    let length = u32::from_le_bytes(*length) as usize;
    if length > MAX_BODY.min(block.len().saturating_mul(MAX_GAIN)) {
        return Err(CompressionError::BadLength { found: body.len(), announced: length });
    }
    out.clear();
    out.resize(length, 0);
    match lz4_flex::block::decompress_into(block, out) {
        Ok(found) if found == length => Ok(()),
        _ => Err(CompressionError::Damaged),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Commands as a program makes them: one after the other, with a part that changes.
    fn launches(count: u32) -> Vec<u8> {
        (0..count).flat_map(|i| [[7; 60].as_slice(), &i.to_le_bytes(), &[0; 27]].concat()).collect()
    }

    #[test]
    fn commands_become_much_shorter_and_come_back() {
        let messages = launches(700);
        let mut body = b"header".to_vec();
        assert!(compress(&messages, &mut body));
        assert!(body.len() < messages.len() / 5, "{} of {}", body.len(), messages.len());
        let mut out = vec![1; 10];
        decompress(&body[6..], &mut out).unwrap();
        assert!(out == messages);
    }

    #[test]
    fn what_gains_nothing_is_left_alone() {
        let mut state = 1_u64;
        let noise: Vec<u8> = (0..10_000)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 56) as u8
            })
            .collect();
        let mut out = vec![9];
        assert!(!compress(&noise, &mut out));
        assert_eq!(out, [9]);
    }

    #[test]
    fn damaged_bodies_are_refused() {
        let mut body = Vec::new();
        assert!(compress(&launches(100), &mut body));
        let mut out = Vec::new();
        for cut in 0..body.len() {
            assert!(decompress(&body[..cut], &mut out).is_err(), "{cut}");
        }
        let longer = (9101_u32).to_le_bytes();
        assert_eq!(
            decompress(&[&longer, &body[LENGTH_SIZE..]].concat(), &mut out),
            Err(CompressionError::Damaged)
        );
    }

    #[test]
    fn a_hostile_length_costs_no_memory() {
        let mut out = Vec::new();
        let mut body = (MAX_BODY as u32).to_le_bytes().to_vec();
        body.extend([0; 100]);
        let refused = Err(CompressionError::BadLength { found: 104, announced: MAX_BODY });
        assert_eq!(decompress(&body, &mut out), refused);
        assert_eq!(out.capacity(), 0);
        assert!(decompress(&[255; 4], &mut out).is_err());
    }
}
