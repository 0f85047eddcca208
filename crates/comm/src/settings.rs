//! Settings of a rank, from the environment. A value that makes no sense is an error that names its variable.

use core::str::FromStr;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use causeway_config::read::PROCESS;
use causeway_config::table::{
    CACHE_DIR, COMM_CHANNELS, COMM_CHECK, COMM_COLLECTIVE_THRESHOLD, COMM_COLLECTIVE_THRESHOLD_DEFAULT,
    COMM_CONTAINER, COMM_EXPLAIN, COMM_GRAPH_TIMEOUT, COMM_GRAPH_TIMEOUT_DEFAULT, COMM_HOSTS, COMM_NUMA,
    COMM_TABLE, COMM_THRESHOLD, COMM_THRESHOLD_DEFAULT, COMM_TRACE, COMM_TRACE_DEFAULT, SOCKET_DIR,
};
use causeway_config::{Environment, ValueError};

use crate::channels::{Channel, UnknownChannel};
use crate::identity::{ContainerPlacement, PlacementError};
use crate::scheduler::Table;

/// What the user has set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Channels that may be used.
    pub channels: Vec<Channel>,
    /// Payloads of so many bytes and more are fetched by the receiver.
    pub fetch_bytes: u64,
    /// Whether the user has said so; otherwise shorter ones are, too, where the receiver has the memory open.
    pub is_threshold_set: bool,
    /// Collective calls of so many bytes and more go from GPU to GPU.
    pub direct_bytes: u64,
    /// How long a call in a graph waits for other ranks.
    pub graph_limit: Duration,
    /// Operations that end a period of the tracer.
    pub trace_operations: u32,
    /// Which channels messages take, where the user says it.
    pub table: Option<Table>,
    /// Whether ranks tell each other of collective calls before they make them.
    pub check: bool,
    /// Whether a report is printed at the end.
    pub explain: bool,
    /// A folder that containers share.
    pub folder: Option<PathBuf>,
    /// Hosts on which ranks may be that no board shows.
    pub hosts: Vec<String>,
    /// What the launcher says about the container.
    pub placement: Option<ContainerPlacement>,
    /// The file that remembers what channels cost, if one is to.
    pub profile: Option<PathBuf>,
}

impl Settings {
    /// Those of the environment of this process.
    ///
    /// # Errors
    /// When a value makes no sense.
    pub fn from_environment() -> Result<Self, ValueError> {
        Self::read(PROCESS)
    }

    /// Whether ranks of other hosts are reached over a network.
    pub fn uses_network(&self) -> bool {
        !self.hosts.is_empty() && self.channels.iter().any(|channel| channel.is_between_hosts())
    }

    /// Those of an environment.
    ///
    /// # Errors
    /// When a value makes no sense.
    pub fn read(environment: Environment<'_>) -> Result<Self, ValueError> {
        let channels = environment.parsed::<ChannelList>(&COMM_CHANNELS)?;
        // The threads read it (`cuda::affinity`).
        environment.word(&COMM_NUMA)?;
        Ok(Self {
            channels: channels.map_or_else(|| Channel::ALL.to_vec(), |ChannelList(channels)| channels),
            fetch_bytes: environment.size(&COMM_THRESHOLD)?.unwrap_or(COMM_THRESHOLD_DEFAULT),
            is_threshold_set: environment.size(&COMM_THRESHOLD)?.is_some(),
            direct_bytes: environment
                .size(&COMM_COLLECTIVE_THRESHOLD)?
                .unwrap_or(COMM_COLLECTIVE_THRESHOLD_DEFAULT),
            graph_limit: Duration::from_secs(
                environment.seconds(&COMM_GRAPH_TIMEOUT)?.unwrap_or(COMM_GRAPH_TIMEOUT_DEFAULT),
            ),
            trace_operations: environment.number(&COMM_TRACE)?.unwrap_or(COMM_TRACE_DEFAULT) as u32,
            table: environment.parsed(&COMM_TABLE)?,
            check: environment.is_on(&COMM_CHECK)?,
            explain: environment.is_on(&COMM_EXPLAIN)?,
            folder: environment.path(&SOCKET_DIR),
            hosts: hosts(environment.text(&COMM_HOSTS).as_deref().unwrap_or_default()),
            placement: environment.parsed(&COMM_CONTAINER)?.and_then(|Placement(placement)| placement),
            profile: profile(environment.raw(&CACHE_DIR), |name| std::env::var_os(name)),
        })
    }
}

/// In the folder of the user's caches, as the client library's. None where that is named and empty.
fn profile(caches: Option<OsString>, system: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    const NAME: &str = "comm-profile";
    if let Some(folder) = caches {
        return (!folder.is_empty()).then(|| PathBuf::from(folder).join(NAME));
    }
    let folder = |name: &str| system(name).map(PathBuf::from).filter(|folder| folder.is_absolute());
    let folder = folder("XDG_CACHE_HOME").or_else(|| Some(folder("HOME")?.join(".cache")));
    Some(folder?.join("causeway").join(NAME))
}

/// Names with commas between them.
fn hosts(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|host| !host.is_empty()).map(str::to_owned).collect()
}

/// What a launcher says, if it does.
struct Placement(Option<ContainerPlacement>);

impl FromStr for Placement {
    type Err = PlacementError;

    fn from_str(text: &str) -> Result<Self, PlacementError> {
        ContainerPlacement::named(text).map(Self)
    }
}

/// Channels with commas between their names.
struct ChannelList(Vec<Channel>);

impl FromStr for ChannelList {
    type Err = UnknownChannel;

    fn from_str(text: &str) -> Result<Self, UnknownChannel> {
        text.split(',').map(|name| name.trim().parse()).collect::<Result<_, _>>().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::matching::DESCRIPTOR_BYTES;
    use crate::tracer::DEFAULT_THRESHOLD;

    fn read(name: &str, text: &str) -> Result<Settings, ValueError> {
        Settings::read(Environment::of(&|asked| (asked == name).then(|| OsString::from(text))))
    }

    #[test]
    fn values_are_read() {
        assert_eq!(read("", "").unwrap().channels, Channel::ALL);
        let channels = read("CAUSEWAY_COMM_CHANNELS", "staged, vmm").unwrap().channels;
        assert_eq!(channels, [Channel::Staged, Channel::Vmm]);
        let table = read("CAUSEWAY_COMM_TABLE", "published").unwrap().table;
        assert_eq!(table, Some(Table::published()));
        assert_eq!(read("CAUSEWAY_COMM_THRESHOLD", "8K").unwrap().fetch_bytes, 8192);
        assert_eq!(read("CAUSEWAY_COMM_HOSTS", "a, b,,10.0.0.1").unwrap().hosts, ["a", "b", "10.0.0.1"]);
        assert!(read("CAUSEWAY_COMM_EXPLAIN", "1").unwrap().explain);
        assert!(!read("CAUSEWAY_COMM_EXPLAIN", "").unwrap().explain);
    }

    #[test]
    fn the_table_has_the_numbers_of_this_crate() {
        assert_eq!(COMM_TRACE_DEFAULT, u64::from(DEFAULT_THRESHOLD));
        let shortest = DESCRIPTOR_BYTES.to_string();
        assert_eq!(read("CAUSEWAY_COMM_THRESHOLD", &shortest).unwrap().fetch_bytes, DESCRIPTOR_BYTES as u64);
        assert!(read("CAUSEWAY_COMM_THRESHOLD", &(DESCRIPTOR_BYTES - 1).to_string()).is_err());
    }

    #[test]
    fn the_profile_lies_in_the_users_caches() {
        let path = |caches: Option<&str>, name: &str, text: &str| {
            let system = |asked: &str| (asked == name).then(|| OsString::from(text));
            profile(caches.map(OsString::from), system).map(|path| path.to_string_lossy().into_owned())
        };
        assert_eq!(path(Some("/c"), "HOME", "/h").as_deref(), Some("/c/comm-profile"));
        assert_eq!(path(Some(""), "HOME", "/h"), None);
        assert_eq!(path(None, "XDG_CACHE_HOME", "/x").as_deref(), Some("/x/causeway/comm-profile"));
        assert_eq!(path(None, "HOME", "/h").as_deref(), Some("/h/.cache/causeway/comm-profile"));
        assert_eq!((path(None, "XDG_CACHE_HOME", "relative"), path(None, "", "")), (None, None));
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        for (name, text, named) in [
            ("CAUSEWAY_COMM_CHANNELS", "vmm,gdr", "\"gdr\""),
            ("CAUSEWAY_COMM_THRESHOLD", "78", "a size of 79 or more"),
            ("CAUSEWAY_COMM_TABLE", "..1K: gdr", "\"gdr\" is no channel"),
            ("CAUSEWAY_COMM_TABLE", "2K..1K: ipc", "second size must be larger"),
            ("CAUSEWAY_COMM_TRACE", "often", "=often cannot be used"),
            ("CAUSEWAY_COMM_EXPLAIN", "yes", "=yes cannot be used"),
            ("CAUSEWAY_COMM_NUMA", "on", "=on cannot be used"),
            ("CAUSEWAY_COMM_CONTAINER", "[1]", "[container, cores, sockets]"),
        ] {
            let error = read(name, text).unwrap_err().to_string();
            assert!(error.contains(name) && error.contains(named), "{error}");
        }
    }
}
