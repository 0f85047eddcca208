//! Sandbox mode: off, best effort or required.

use core::fmt;
use core::str::FromStr;

use thiserror::Error;

/// How much of the sandbox there must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// What this machine has; the rest is named in the log.
    #[default]
    Auto,
    /// All of it, or no server.
    Require,
    /// None of it: workers are what the server is.
    Off,
}

/// A text that names no [`Mode`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "`{0}` says nothing about the sandbox: choose auto (what this machine has), require (all of it, or no \
     server) or off"
)]
pub struct UnknownMode(String);

impl FromStr for Mode {
    type Err = UnknownMode;

    fn from_str(text: &str) -> Result<Self, UnknownMode> {
        match text {
            "auto" => Ok(Self::Auto),
            "require" => Ok(Self::Require),
            "off" => Ok(Self::Off),
            other => Err(UnknownMode(other.to_owned())),
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Require => "require",
            Self::Off => "off",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_read_as_they_are_written() {
        for mode in [Mode::Auto, Mode::Require, Mode::Off] {
            assert_eq!(mode.to_string().parse(), Ok(mode));
        }
        assert!("on".parse::<Mode>().unwrap_err().to_string().starts_with("`on` says nothing"));
    }
}
