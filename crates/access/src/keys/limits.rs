//! Client limits: what one client may have of a server, as the list of clients sets it.

use core::fmt::{self, Display};
use core::str::FromStr;
use std::time::Duration;

use causeway_config::{Size, TimeSpan};
use thiserror::Error;
use toml::de::DeValue;

/// The table of limits. For each: what `causeway client --help` says of it, its field, its type without and with the unit by
/// which it is written, its key in the list of clients, what the help calls its value, its name as JSON, and what people read
/// of it. `$generate` is a macro that gets all rows.
#[macro_export]
macro_rules! for_each_client_limit {
    ($generate:ident) => {
        $generate! {
            /// Maximum number of concurrent sessions. Default: that of every peer.
            sessions: usize as usize, "sessions", value "N", json "sessions", note "at most {} sessions";
            /// Maximum device memory of all its sessions together, in bytes, or with the suffix K, M, G or T. An
            /// allocation beyond it fails with CUDA_ERROR_OUT_OF_MEMORY.
            device_memory: u64 as Size, "device-memory", value "SIZE", json "device_memory", note "{} of device memory";
            /// Maximum host memory of each of its sessions, if less than `causeway serve --session-memory`.
            session_memory: u64 as SessionMemory, "session-memory", value "SIZE", json "session_memory",
                note "{} of memory a session";
            /// Idle time (90s, 30m, 8h, 2d) after which a session ends. A session in which a command waits for the
            /// GPU is not idle.
            idle_timeout: Duration as TimeSpan, "idle-timeout", value "TIME", json "idle_timeout_seconds",
                note "idle for {}";
            /// Maximum duration of a session (90s, 30m, 8h, 2d).
            session_time: Duration as TimeSpan, "session-time", value "TIME", json "session_time_seconds",
                note "sessions of {}";
            /// Maximum rate of copies in bytes a second, in each direction, of all its sessions together; at least
            /// 1M. Its sessions then use TCP, also on the server's own host.
            bandwidth: u64 as Bandwidth, "bandwidth", value "SIZE", json "bandwidth",
                note "{} a second in each direction";
            /// Share of a GPU's time, 1 to 1000: while several clients have kernels to run, each gets time in
            /// proportion to its share. Default: 1, if another client has a share.
            share: u32 as Share, "share", value "N", json "share", note "share {} of a GPU";
        }
    };
}

/// Generates what is to be known of each limit from the table.
macro_rules! client_limits {
    ($($(#[$documentation:meta])*
       $limit:ident: $plain:ty as $value:ty, $key:literal, value $value_name:literal, json $json:literal,
       note $note:literal;)+) => {
        /// What one client may have, as far as it is limited.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct ClientLimits {
            $($(#[$documentation])* pub $limit: Option<$plain>,)+
        }

        /// Changes of limits; `None` leaves one as it is.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct LimitChanges {
            $($(#[$documentation])* pub $limit: Option<NewLimit<$value>>,)+
        }

        impl LimitChanges {
            /// Makes them.
            pub fn apply(self, limits: &mut ClientLimits) {
                $(if let Some(NewLimit(new)) = self.$limit {
                    limits.$limit = new.map(LimitValue::plain);
                })+
            }
        }

        impl ClientLimits {
            /// The keys by which a file sets them.
            pub const KEYS: &[&str] = &[$($key),+];

            /// These, and those of `others` where these set none.
            #[must_use]
            pub fn or(self, others: Self) -> Self {
                Self { $($limit: self.$limit.or(others.$limit)),+ }
            }

            /// Sets the limit that a key names; false where it names none.
            ///
            /// # Errors
            /// What is wrong with the value.
            pub fn set(&mut self, key: &str, value: &DeValue<'_>) -> Result<bool, String> {
                match key {
                    $($key => self.$limit = Some(<$value>::from_toml(value)?.plain()),)+
                    _ => return Ok(false),
                }
                Ok(true)
            }

            /// Those that are set, as a file has them: keys and TOML values.
            pub fn entries(&self) -> Vec<(&'static str, String)> {
                let entries = [$(($key, self.$limit.map(|limit| <$value>::new(limit).to_toml()))),+];
                entries.into_iter().filter_map(|(key, value)| Some((key, value?))).collect()
            }

            /// Those that are set, for people.
            pub fn notes(&self) -> Vec<String> {
                let notes = [$(self.$limit.map(|limit| format!($note, <$value>::new(limit)))),+];
                notes.into_iter().flatten().collect()
            }

            /// All of them by their names as JSON: counts, bytes and whole seconds.
            pub fn numbers(&self) -> impl Iterator<Item = (&'static str, Option<u64>)> {
                [$(($json, self.$limit.map(|limit| <$value>::new(limit).number()))),+].into_iter()
            }
        }
    };
}

for_each_client_limit!(client_limits);

/// A new limit as the command line names it: a value, or `none`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewLimit<T>(Option<T>);

impl<T: FromStr> FromStr for NewLimit<T> {
    type Err = T::Err;

    fn from_str(text: &str) -> Result<Self, T::Err> {
        if text == "none" { Ok(Self(None)) } else { text.parse().map(|value| Self(Some(value))) }
    }
}

/// How a limit is written: as [`Display`] and [`FromStr`] do, in TOML in quotation marks.
trait LimitValue: Display + FromStr<Err: Display> + Sized {
    /// What it is without its unit.
    type Plain;

    fn new(plain: Self::Plain) -> Self;

    fn plain(self) -> Self::Plain;

    /// What it is as JSON.
    fn number(self) -> u64;

    fn to_toml(&self) -> String {
        format!("\"{self}\"")
    }

    fn from_toml(value: &DeValue<'_>) -> Result<Self, String> {
        text(value)?.parse().map_err(|cause: Self::Err| cause.to_string())
    }
}

/// What a TOML value says in quotation marks.
pub(super) fn text<'a>(value: &'a DeValue<'_>) -> Result<&'a str, String> {
    value.as_str().ok_or_else(|| "this must be a text in quotation marks".to_owned())
}

/// A count, which in TOML is a number.
impl LimitValue for usize {
    type Plain = Self;

    fn new(plain: Self) -> Self {
        plain
    }

    fn plain(self) -> Self {
        self
    }

    fn number(self) -> u64 {
        self as u64
    }

    fn to_toml(&self) -> String {
        self.to_string()
    }

    fn from_toml(value: &DeValue<'_>) -> Result<Self, String> {
        let number = value.as_integer().and_then(|number| number.as_str().parse().ok());
        number.ok_or_else(|| "this must be a whole number".to_owned())
    }
}

/// A share, which in TOML is a number.
impl LimitValue for Share {
    type Plain = u32;

    fn new(plain: u32) -> Self {
        Self(plain)
    }

    fn plain(self) -> u32 {
        self.0
    }

    fn number(self) -> u64 {
        self.0.into()
    }

    fn to_toml(&self) -> String {
        self.0.to_string()
    }

    fn from_toml(value: &DeValue<'_>) -> Result<Self, String> {
        let number = value.as_integer().map(|number| number.as_str());
        number.unwrap_or("").parse().map_err(|error: ShareError| error.to_string())
    }
}

impl LimitValue for TimeSpan {
    type Plain = Duration;

    fn new(plain: Duration) -> Self {
        Self(plain)
    }

    fn plain(self) -> Duration {
        self.0
    }

    fn number(self) -> u64 {
        self.0.as_secs()
    }
}

/// Limits that are bytes.
macro_rules! bytes {
    ($($value:ident)+) => {$(
        impl LimitValue for $value {
            type Plain = u64;

            fn new(plain: u64) -> Self {
                Self(plain)
            }

            fn plain(self) -> u64 {
                self.0
            }

            fn number(self) -> u64 {
                self.0
            }
        }
    )+};
}

bytes!(Size SessionMemory Bandwidth);

/// Memory of a session, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionMemory(u64);

impl Display for SessionMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Size(self.0).fmt(f)
    }
}

impl FromStr for SessionMemory {
    type Err = SessionMemoryError;

    fn from_str(text: &str) -> Result<Self, SessionMemoryError> {
        parse_session_memory(text).map(Self)
    }
}

/// Less memory than this is used by a worker that does nothing yet.
const MIN_SESSION_MEMORY: u64 = 64 << 20;

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

/// Bytes a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bandwidth(u64);

impl Display for Bandwidth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Size(self.0).fmt(f)
    }
}

impl FromStr for Bandwidth {
    type Err = BandwidthError;

    fn from_str(text: &str) -> Result<Self, BandwidthError> {
        match text.parse()? {
            Size(bytes) if bytes < MIN_BANDWIDTH => Err(BandwidthError::TooLittle(text.to_owned())),
            Size(bytes) => Ok(Self(bytes)),
        }
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
    #[error("`{0}` a second is too slow for any program: give 1M or more")]
    TooLittle(String),
}

/// Part of the time of GPUs, in proportion to those of others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share(u32);

impl Share {
    /// That of a client for which the list names none.
    pub const DEFAULT: u32 = 1;

    /// More than this divides the time no further.
    const MAX: u32 = 1000;
}

impl Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Share {
    type Err = ShareError;

    fn from_str(text: &str) -> Result<Self, ShareError> {
        let share = text.parse().ok().filter(|share| (1..=Self::MAX).contains(share));
        share.map(Self).ok_or(ShareError)
    }
}

/// Why a share is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error(
    "a share is a whole number from 1 to 1000: a client's part of a GPU's time, in proportion to the shares \
     of others"
)]
pub struct ShareError;

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
        assert_eq!(both.notes(), ["at most 2 sessions", "1G of device memory", "idle for 1m"]);
        let numbers: Vec<_> = both.numbers().filter_map(|(name, number)| Some((name, number?))).collect();
        assert_eq!(numbers, [("sessions", 2), ("device_memory", 1 << 30), ("idle_timeout_seconds", 60)]);
    }

    #[test]
    fn changes_leave_other_limits_and_none_removes_one() {
        let before = ClientLimits { sessions: Some(2), bandwidth: Some(1 << 20), ..ClientLimits::default() };
        let mut limits = before;
        LimitChanges::default().apply(&mut limits);
        assert_eq!(limits, before);
        let changes = LimitChanges {
            sessions: Some("none".parse().unwrap()),
            session_time: Some("1m".parse().unwrap()),
            ..LimitChanges::default()
        };
        changes.apply(&mut limits);
        let session_time = Some(Duration::from_secs(60));
        assert_eq!(limits, ClientLimits { sessions: None, session_time, ..before });
    }

    #[test]
    fn a_session_gets_as_much_memory_as_its_worker_needs() {
        assert_eq!(parse_session_memory("64M"), Ok(MIN_SESSION_MEMORY));
        assert!(parse_session_memory("63M").unwrap_err().to_string().contains("64M or more"));
        assert!(parse_session_memory("much").is_err());
        assert_eq!("1M".parse(), Ok(Bandwidth(MIN_BANDWIDTH)));
        for text in ["0", "1001", "-1", "3.5", "", "half"] {
            assert!(text.parse::<Share>().is_err(), "{text}");
        }
        assert_eq!(["1", "1000"].map(|text| text.parse().ok()), [Some(Share(1)), Some(Share(1000))]);
        assert!("1023K".parse::<Bandwidth>().unwrap_err().to_string().contains("1M or more"));
    }
}
