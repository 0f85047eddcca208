//! Status of a gRPC call: a code, and a sentence for people.

use core::fmt;
use http::{HeaderMap, HeaderValue};

const STATUS: &str = "grpc-status";
const MESSAGE: &str = "grpc-message";
/// The longest sentence of a peer that is kept.
const MAX_CHARACTERS: usize = 1000;

/// The codes that are used here, with their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// The call was carried out.
    Ok = 0,
    /// The caller asks for something that makes no sense.
    InvalidArgument = 3,
    /// What is asked for is not there.
    NotFound = 5,
    /// What is asked for cannot be had now.
    FailedPrecondition = 9,
    /// There is no such procedure.
    Unimplemented = 12,
    /// The response makes no sense.
    Internal = 13,
}

/// How a call ended that was not carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// The number of the code.
    pub code: u32,
    /// Why, as a sentence.
    pub message: String,
}

impl Status {
    /// A call that failed here.
    pub fn new(code: Code, message: impl fmt::Display) -> Self {
        Self { code: code as u32, message: message.to_string() }
    }

    /// What the trailers of a peer say: nothing for a call that was carried out.
    pub fn of_peer(trailers: &HeaderMap) -> Result<(), Self> {
        let text = |name| trailers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
        match text(STATUS).map(str::parse) {
            Some(Ok(0)) => Ok(()),
            Some(Ok(code)) => Err(Self { code, message: decode(text(MESSAGE).unwrap_or_default()) }),
            _ => Err(Self::new(Code::Internal, "the response has no status")),
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (code {})", self.message, self.code)
    }
}

/// The trailers of a call.
pub fn trailers(outcome: &Result<(), Status>) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    let code = outcome.as_ref().err().map_or(Code::Ok as u32, |status| status.code);
    trailers.insert(STATUS, HeaderValue::from(code));
    if let Err(status) = outcome {
        let message = HeaderValue::try_from(encode(&status.message)).expect("it is ASCII without controls");
        trailers.insert(MESSAGE, message);
    }
    trailers
}

/// A sentence as it may stand in a header: each byte that may not is `%` and two digits.
fn encode(message: &str) -> String {
    let escaped = |byte: u8| match byte {
        b' '..=b'~' if byte != b'%' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    message.bytes().map(escaped).collect()
}

/// The sentence in a header of a peer, without what would not be fit to print.
fn decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let (mut decoded, mut position) = (Vec::new(), 0);
    while let Some(byte) = bytes.get(position) {
        let digits =
            bytes.get(position + 1..position + 3).and_then(|digits| core::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(escaped) if *byte == b'%' => {
                decoded.push(escaped);
                position += 3;
            }
            _ => {
                decoded.push(*byte);
                position += 1;
            }
        }
    }
    let text = String::from_utf8_lossy(&decoded);
    text.chars().take(MAX_CHARACTERS).map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_survives_the_way() {
        for message in ["", "no such GPU: 100 % sure", "größer\nals 5"] {
            let status = Status::new(Code::NotFound, message);
            let found = Status::of_peer(&trailers(&Err(status))).unwrap_err();
            assert_eq!((found.code, found.message), (5, message.replace('\n', " ")));
        }
        assert_eq!(Status::of_peer(&trailers(&Ok(()))), Ok(()));
    }

    #[test]
    fn whatever_a_peer_says_is_a_sentence_without_controls() {
        let mut strange = HeaderMap::new();
        assert_eq!(Status::of_peer(&strange).unwrap_err().code, 13);
        strange.insert(STATUS, HeaderValue::from_static("many"));
        assert_eq!(Status::of_peer(&strange).unwrap_err().code, 13);
        strange.insert(STATUS, HeaderValue::from_static("2"));
        strange.insert(MESSAGE, HeaderValue::from_static("%1b[31m%zz%4"));
        assert_eq!(Status::of_peer(&strange).unwrap_err().message, " [31m%zz%4");
        strange.insert(MESSAGE, HeaderValue::try_from("x".repeat(5000)).unwrap());
        assert_eq!(Status::of_peer(&strange).unwrap_err().message.len(), MAX_CHARACTERS);
    }
}
