//! What a client asks in a diagnosis: a session in which a process of the server says what its machine is
//! like.
//!
//! Questions and answers take turns. The answer to [`DiagnosisRequest::Facts`] is JSON, of which nothing is known
//! here; that to [`DiagnosisRequest::Echo`] is what was sent.

use crate::codec::{Decode, DecodeError, Decoder, Encode};

/// The most bytes that are sent back.
pub const MAX_ECHO_BYTES: usize = 64 << 10;

/// The most questions of one diagnosis.
pub const MAX_QUERIES: usize = 10_000;

/// A question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiagnosisRequest<'a> {
    /// What is the machine like?
    Facts,
    /// How long do bytes take there and back? At most [`MAX_ECHO_BYTES`] of them.
    Echo(&'a [u8]),
}

const FACTS: u8 = 1;
const ECHO: u8 = 2;

impl Encode for DiagnosisRequest<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Facts => FACTS.encode(out),
            Self::Echo(bytes) => {
                ECHO.encode(out);
                bytes.encode(out);
            }
        }
    }
}

impl<'a> Decode<'a> for DiagnosisRequest<'a> {
    fn decode(input: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        match input.value()? {
            FACTS => Ok(Self::Facts),
            ECHO => match input.value::<&[u8]>()? {
                bytes if bytes.len() <= MAX_ECHO_BYTES => Ok(Self::Echo(bytes)),
                bytes => {
                    Err(DecodeError::UnknownTag { what: "length of an echo", value: bytes.len() as u64 })
                }
            },
            other => {
                Err(DecodeError::UnknownTag { what: "question of a diagnosis", value: u64::from(other) })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_come_back_and_long_ones_are_refused() {
        for question in [DiagnosisRequest::Facts, DiagnosisRequest::Echo(b""), DiagnosisRequest::Echo(b"abc")]
        {
            let mut bytes = Vec::new();
            question.encode(&mut bytes);
            assert_eq!(Decoder::new(&bytes).value(), Ok(question));
        }
        let mut bytes = Vec::new();
        DiagnosisRequest::Echo(&vec![0; MAX_ECHO_BYTES + 1]).encode(&mut bytes);
        assert!(Decoder::new(&bytes).value::<DiagnosisRequest<'_>>().is_err());
        assert!(Decoder::new(&[9]).value::<DiagnosisRequest<'_>>().is_err());
    }
}
