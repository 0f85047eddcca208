//! What may the user set? Everything stands in the environment, and a value that makes no sense is an error
//! that names its variable.

use std::path::PathBuf;

use thiserror::Error;

use crate::channels::{Channel, UnknownChannel};
use crate::identity::{PlaceError, PlaceTuple};
use crate::matching::DESCRIPTOR_BYTES;
use crate::tracer::USUAL_THRESHOLD;

/// Payloads from here on are fetched, if the user says nothing else. Shorter ones travel with their message.
pub const USUAL_FETCH_BYTES: u64 = 4096;

/// Why a setting is refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SettingsError {
    /// A channel that there is not.
    #[error("CAUSEWAY_COMM_CHANNELS is {text:?}: {cause}; several stand between commas")]
    Channels {
        /// The value.
        text: String,
        /// What is wrong.
        cause: UnknownChannel,
    },
    /// No number.
    #[error("{variable} is {text:?}: it takes a number of {least} or more")]
    Number {
        /// The variable.
        variable: &'static str,
        /// The value.
        text: String,
        /// The lowest value.
        least: u64,
    },
    /// The place.
    #[error(transparent)]
    Place(#[from] PlaceError),
}

/// What the user has set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Channels that may be used.
    pub channels: Vec<Channel>,
    /// Payloads of so many bytes and more are fetched by the receiver.
    pub fetch_bytes: u64,
    /// Operations that end a period of the tracer.
    pub trace_operations: u32,
    /// Whether a report is printed at the end.
    pub explain: bool,
    /// A folder that containers share.
    pub folder: Option<PathBuf>,
    /// What the launcher says about the container.
    pub place: Option<PlaceTuple>,
}

impl Settings {
    /// Those of the environment.
    ///
    /// # Errors
    /// When a value makes no sense.
    pub fn from_environment() -> Result<Self, SettingsError> {
        Self::read(|name| std::env::var(name).ok())
    }

    /// Those that `variable` gives by name. An empty value is none.
    ///
    /// # Errors
    /// When a value makes no sense.
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Self, SettingsError> {
        let variable = |name: &str| variable(name).filter(|text| !text.trim().is_empty());
        let number = |name: &'static str, least: u64, usual: u64| match variable(name) {
            None => Ok(usual),
            Some(text) => match text.trim().parse() {
                Ok(number) if number >= least => Ok(number),
                _ => Err(SettingsError::Number { variable: name, text, least }),
            },
        };
        let channels = match variable("CAUSEWAY_COMM_CHANNELS") {
            None => Channel::ALL.to_vec(),
            Some(text) => {
                let all: Result<_, _> = text.split(',').map(|name| name.trim().parse()).collect();
                all.map_err(|cause| SettingsError::Channels { text, cause })?
            }
        };
        let operations = number("CAUSEWAY_COMM_TRACE", 1, u64::from(USUAL_THRESHOLD))?;
        let place = variable(crate::identity::PLACE_VARIABLE).map(|text| text.parse()).transpose()?;
        Ok(Self {
            channels,
            fetch_bytes: number("CAUSEWAY_COMM_THRESHOLD", DESCRIPTOR_BYTES as u64, USUAL_FETCH_BYTES)?,
            trace_operations: u32::try_from(operations).unwrap_or(u32::MAX),
            explain: number("CAUSEWAY_COMM_EXPLAIN", 0, 0)? > 0,
            folder: variable("CAUSEWAY_SOCKET_DIR").map(PathBuf::from),
            place,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str, text: &str) -> Result<Settings, SettingsError> {
        Settings::read(|asked| (asked == name).then(|| text.to_owned()))
    }

    #[test]
    fn values_are_read() {
        assert_eq!(read("", "").unwrap().channels, Channel::ALL);
        let channels = read("CAUSEWAY_COMM_CHANNELS", "staged, vmm").unwrap().channels;
        assert_eq!(channels, [Channel::Staged, Channel::Vmm]);
        assert_eq!(read("CAUSEWAY_COMM_THRESHOLD", "61").unwrap().fetch_bytes, 61);
        assert!(read("CAUSEWAY_COMM_EXPLAIN", "1").unwrap().explain);
        assert!(!read("CAUSEWAY_COMM_EXPLAIN", "").unwrap().explain);
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        for (name, text, named) in [
            ("CAUSEWAY_COMM_CHANNELS", "vmm,gdr", "\"gdr\""),
            ("CAUSEWAY_COMM_THRESHOLD", "60", "61 or more"),
            ("CAUSEWAY_COMM_TRACE", "often", "\"often\""),
            ("CAUSEWAY_COMM_EXPLAIN", "yes", "\"yes\""),
            ("CAUSEWAY_COMM_PLACE", "[1]", "[container, cores, sockets]"),
        ] {
            let error = read(name, text).unwrap_err().to_string();
            assert!(error.contains(name) && error.contains(named), "{error}");
        }
    }
}
