//! The first bytes of a connection, in the clear: whether it is encrypted.

use thiserror::Error;

/// The first four bytes that either end sends.
pub const PREFACE_MAGIC: [u8; 4] = *b"CSWY";

/// Size of an encoded [`Preface`] and of the fixed part of a [`PrefaceAnswer`], in bytes.
pub const PREFACE_SIZE: usize = 8;

/// The longest refusal in a [`PrefaceAnswer`], in bytes.
pub const MAX_REFUSAL: usize = 1024;

/// A client's first words: who it is and whether it has a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preface {
    /// Whether a Noise handshake follows.
    pub encrypted: bool,
}

/// The first bytes were not those of a peer that speaks this protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the first bytes {found:02x?} are not those of Causeway's protocol")]
pub struct NotCauseway {
    /// The bytes found.
    pub found: [u8; PREFACE_SIZE],
}

impl Preface {
    /// The preface as it travels.
    pub fn to_bytes(&self) -> [u8; PREFACE_SIZE] {
        let [a, b, c, d] = PREFACE_MAGIC;
        [a, b, c, d, u8::from(self.encrypted), 0, 0, 0]
    }

    /// Reads a preface.
    pub fn parse(bytes: &[u8; PREFACE_SIZE]) -> Result<Self, NotCauseway> {
        match bytes {
            [a, b, c, d, encrypted @ 0..=1, 0, 0, 0] if [*a, *b, *c, *d] == PREFACE_MAGIC => {
                Ok(Self { encrypted: *encrypted == 1 })
            }
            _ => Err(NotCauseway { found: *bytes }),
        }
    }
}

/// A server's answer to a [`Preface`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrefaceAnswer {
    /// The client goes on.
    GoOn,
    /// The server ends the connection; a text of this many bytes, at most [`MAX_REFUSAL`], follows.
    Refused {
        /// Bytes in the text.
        length: u16,
    },
}

impl PrefaceAnswer {
    /// The fixed part of the answer as it travels.
    pub fn to_bytes(&self) -> [u8; PREFACE_SIZE] {
        let [a, b, c, d] = PREFACE_MAGIC;
        match self {
            Self::GoOn => [a, b, c, d, 0, 0, 0, 0],
            Self::Refused { length } => {
                let [low, high] = length.to_le_bytes();
                [a, b, c, d, 1, 0, low, high]
            }
        }
    }

    /// Reads the fixed part of an answer.
    pub fn parse(bytes: &[u8; PREFACE_SIZE]) -> Result<Self, NotCauseway> {
        let foreign = NotCauseway { found: *bytes };
        match bytes {
            [a, b, c, d, ..] if [*a, *b, *c, *d] != PREFACE_MAGIC => Err(foreign),
            [.., 0, 0, 0, 0] => Ok(Self::GoOn),
            [.., 1, 0, low, high] => {
                let length = u16::from_le_bytes([*low, *high]);
                if usize::from(length) <= MAX_REFUSAL { Ok(Self::Refused { length }) } else { Err(foreign) }
            }
            _ => Err(foreign),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefaces_survive_a_round_trip_and_foreign_bytes_do_not() {
        for preface in [Preface { encrypted: true }, Preface { encrypted: false }] {
            assert_eq!(Preface::parse(&preface.to_bytes()), Ok(preface));
        }
        for answer in [PrefaceAnswer::GoOn, PrefaceAnswer::Refused { length: 300 }] {
            assert_eq!(PrefaceAnswer::parse(&answer.to_bytes()), Ok(answer));
        }
        assert!(PrefaceAnswer::parse(&PrefaceAnswer::Refused { length: 2000 }.to_bytes()).is_err());
        assert!(Preface::parse(b"GET / HT").is_err());
        assert!(PrefaceAnswer::parse(b"SSH-2.0-").is_err());
    }
}
