//! The name of a client that has a key of its own.

use core::fmt;
use core::str::FromStr;

use thiserror::Error;

/// The longest name, in bytes.
const MAX_NAME_LEN: usize = 32;

/// The name that a server has given a client with a key of its own: 1 to 32 letters, digits, `-` and `_`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientName {
    /// Zeros behind its end.
    bytes: [u8; MAX_NAME_LEN],
}

/// A text is no [`ClientName`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("a name has 1 to {MAX_NAME_LEN} letters (a to z, A to Z), digits, `-` and `_`")]
pub struct ClientNameError;

impl ClientName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        let length = self.bytes.iter().position(|byte| *byte == 0).unwrap_or(MAX_NAME_LEN);
        str::from_utf8(&self.bytes[..length]).expect("its letters are ASCII")
    }
}

impl FromStr for ClientName {
    type Err = ClientNameError;

    fn from_str(text: &str) -> Result<Self, ClientNameError> {
        let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        if text.is_empty() || text.len() > MAX_NAME_LEN || !text.bytes().all(is_letter) {
            return Err(ClientNameError);
        }
        let mut bytes = [0; MAX_NAME_LEN];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        Ok(Self { bytes })
    }
}

impl fmt::Display for ClientName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Debug for ClientName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_and_plain() {
        for name in ["a", "Ada-1_x", &"n".repeat(MAX_NAME_LEN)] {
            assert_eq!(name.parse::<ClientName>().unwrap().to_string(), name);
        }
        for text in ["", "a b", "a:b", "a.b", "\u{e4}", "a\0", &"n".repeat(MAX_NAME_LEN + 1)] {
            assert_eq!(text.parse::<ClientName>(), Err(ClientNameError), "{text:?}");
        }
    }
}
