//! Client limits: what one client may have of a server, as the list of clients sets it.

use std::time::Duration;

use causeway_config::{Size, TimeSpan};
use thiserror::Error;

/// Less memory than this is used by a worker that does nothing yet.
const MIN_SESSION_MEMORY: u64 = 64 << 20;

/// What one client may have, as far as it is limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClientLimits {
    /// The most sessions at a time.
    pub sessions: Option<usize>,
    /// The most bytes of device memory, of all devices and all of its sessions together.
    pub device_memory: Option<u64>,
    /// The most bytes of the server's memory that one of its sessions may use.
    pub session_memory: Option<u64>,
    /// How long a session may stay open in which nothing happens.
    pub idle_timeout: Option<Duration>,
    /// How long a session may stay open.
    pub session_time: Option<Duration>,
    /// The most bytes of copies a second in each direction, of all of its sessions together.
    pub bandwidth: Option<u64>,
}

impl ClientLimits {
    /// The keys by which a file sets them.
    pub const KEYS: &str = "sessions, device-memory, session-memory, idle-timeout, session-time, bandwidth";

    /// These, and those of `others` where these set none.
    #[must_use]
    pub fn or(self, others: Self) -> Self {
        Self {
            sessions: self.sessions.or(others.sessions),
            device_memory: self.device_memory.or(others.device_memory),
            session_memory: self.session_memory.or(others.session_memory),
            idle_timeout: self.idle_timeout.or(others.idle_timeout),
            session_time: self.session_time.or(others.session_time),
            bandwidth: self.bandwidth.or(others.bandwidth),
        }
    }

    /// Whether sessions end by themselves after a time.
    pub fn has_time_limit(&self) -> bool {
        self.idle_timeout.is_some() || self.session_time.is_some()
    }

    /// Those that are set, as a file has them: keys and TOML values.
    pub fn entries(&self) -> Vec<(&'static str, String)> {
        let size = |bytes: u64| format!("\"{}\"", Size(bytes));
        let span = |time: Duration| format!("\"{}\"", TimeSpan(time));
        let entries = [
            ("sessions", self.sessions.map(|count| count.to_string())),
            ("device-memory", self.device_memory.map(size)),
            ("session-memory", self.session_memory.map(size)),
            ("idle-timeout", self.idle_timeout.map(span)),
            ("session-time", self.session_time.map(span)),
            ("bandwidth", self.bandwidth.map(size)),
        ];
        entries.into_iter().filter_map(|(key, value)| Some((key, value?))).collect()
    }
}

/// Why a limit of a session's memory is none.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SessionMemoryError {
    /// It is no size.
    #[error(transparent)]
    Size(#[from] causeway_config::size::SizeError),
    /// No worker could start.
    #[error("a worker needs more than `{0}`: give 64M or more")]
    TooLittle(String),
}

/// A limit of the memory of one session, as people write it.
///
/// # Errors
/// For a text that does not name a size, or less than any worker uses.
pub fn parse_session_memory(text: &str) -> Result<u64, SessionMemoryError> {
    match text.parse()? {
        Size(bytes) if bytes < MIN_SESSION_MEMORY => Err(SessionMemoryError::TooLittle(text.to_owned())),
        Size(bytes) => Ok(bytes),
    }
}

/// Slower than this a program would not come to an end, and a piece of a copy would take longer than a peer waits.
const MIN_BANDWIDTH: u64 = 1 << 20;

/// Why a limit of bandwidth is none.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BandwidthError {
    /// It is no size.
    #[error(transparent)]
    Size(#[from] causeway_config::size::SizeError),
    /// Sessions would hardly go on.
    #[error("`{0}` a second is too little for any program: give 1M or more")]
    TooLittle(String),
}

/// A limit of bytes a second, as people write it.
///
/// # Errors
/// For a text that does not name a size, or too little.
pub fn parse_bandwidth(text: &str) -> Result<u64, BandwidthError> {
    match text.parse()? {
        Size(bytes) if bytes < MIN_BANDWIDTH => Err(BandwidthError::TooLittle(text.to_owned())),
        Size(bytes) => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_has_its_own_limits_and_those_of_all_for_the_rest() {
        let own = ClientLimits { sessions: Some(2), device_memory: Some(1 << 30), ..ClientLimits::default() };
        let all = ClientLimits {
            sessions: Some(9),
            idle_timeout: Some(Duration::from_secs(60)),
            ..ClientLimits::default()
        };
        let both = own.or(all);
        assert_eq!((both.sessions, both.device_memory), (Some(2), Some(1 << 30)));
        assert_eq!((both.idle_timeout, both.session_time), (Some(Duration::from_secs(60)), None));
        let entries = both.entries();
        assert_eq!(
            entries,
            [
                ("sessions", "2".to_owned()),
                ("device-memory", "\"1G\"".to_owned()),
                ("idle-timeout", "\"1m\"".to_owned()),
            ]
        );
    }

    #[test]
    fn a_session_gets_as_much_memory_as_its_worker_needs() {
        assert_eq!(parse_session_memory("64M"), Ok(MIN_SESSION_MEMORY));
        assert!(parse_session_memory("63M").unwrap_err().to_string().contains("64M or more"));
        assert!(parse_session_memory("much").is_err());
        assert_eq!(parse_bandwidth("1M"), Ok(MIN_BANDWIDTH));
        assert!(parse_bandwidth("1023K").unwrap_err().to_string().contains("1M or more"));
    }
}
