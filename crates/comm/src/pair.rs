//! Pair of ranks: what lies between them, that is their locality and the paths that they have. Pure.

use core::fmt;

use crate::board::{MediumKind, Seen, Slot};
use crate::bootstrap::{BootstrapError, Connection, SocketAddress};
use crate::identity::{Identity, shared};

/// What lies between this rank and another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    /// How near they are.
    pub locality: Locality,
    /// How far apart their processors are.
    pub distance: Distance,
    /// The media in which both have been met.
    pub media: Vec<MediumKind>,
    /// Whether they have process ids for each other.
    pub processes: Visibility,
    /// How a descriptor gets across, or why none does.
    pub descriptors: Result<FdPassing, String>,
    /// How they share host memory, or why they cannot.
    pub memory: Result<MemorySharing, String>,
    /// Whether one may read the other's memory, or why not.
    pub process_access: Result<(), String>,
    /// How they reach each other over a network, or why they cannot.
    pub network: Result<NetworkPath, String>,
}

/// What came of an attempt to meet: process ids by which the two see each other, and what else they may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectedPeer {
    /// Where.
    pub at: SocketAddress,
    /// The peer's process id as it is seen from here.
    pub seen: Option<u32>,
    /// This process's as it is seen from there.
    pub sees: Option<u32>,
    /// Whether this process may take descriptors out of the peer's, or why not.
    pub process_access: Result<(), String>,
}

impl ConnectedPeer {
    /// What a connection tells.
    pub fn by(connection: &Connection) -> Self {
        Self {
            at: connection.address.clone(),
            seen: connection.seen,
            sees: connection.sees,
            process_access: connection.check_process_access().map_err(|error| error.to_string()),
        }
    }

    /// What an attempt to connect tells.
    pub fn of(outcome: &Result<Connection, Vec<BootstrapError>>) -> Result<Self, String> {
        match outcome {
            Ok(connection) => Ok(Self::by(connection)),
            Err(failures) => Err(failures.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")),
        }
    }
}

impl Pair {
    /// What lies between this rank and a peer that a board has shown (or none has).
    pub fn of(own: &Slot, peer: Option<&Seen>, connected: Result<ConnectedPeer, String>) -> Self {
        let Some(peer) = peer else { return Self::remote() };
        let (here, there) = (&own.identity, &peer.slot.identity);
        if here.process == there.process {
            return Self::one_process(here);
        }
        let visible_processes =
            connected.as_ref().ok().map(|connected| (connected.seen.is_some(), connected.sees.is_some()));
        let descriptors = match &connected {
            Ok(connected) => Ok(FdPassing::Socket(connected.at.clone())),
            Err(why) => Err(why.clone()),
        };
        Self {
            locality: if in_one_container(here, there) {
                Locality::SameContainer
            } else {
                Locality::SameHost
            },
            distance: distance(here, there),
            media: peer.media.clone(),
            processes: visibility(here, there, visible_processes),
            memory: memory(&descriptors, &peer.media),
            descriptors,
            process_access: connected.and_then(|connected| connected.process_access),
            network: network(here, there),
        }
    }

    /// A peer that no board has shown.
    pub fn remote() -> Self {
        let why = || "no board shows it".to_owned();
        Self {
            locality: Locality::OtherHost,
            distance: Distance::Unknown,
            media: Vec::new(),
            processes: Visibility::Hidden,
            descriptors: Err(why()),
            memory: Err(why()),
            process_access: Err(why()),
            network: Ok(NetworkPath::Addresses),
        }
    }

    fn one_process(here: &Identity) -> Self {
        Self {
            locality: Locality::SameProcess,
            distance: distance(here, here),
            media: Vec::new(),
            processes: Visibility::Same,
            descriptors: Ok(FdPassing::Same),
            memory: Ok(MemorySharing::Descriptor(FdPassing::Same)),
            process_access: Ok(()),
            network: Ok(NetworkPath::Same),
        }
    }
}

/// A launcher that numbers its containers knows best: two of them may share all namespaces.
fn in_one_container(here: &Identity, there: &Identity) -> bool {
    match (here.container, there.container) {
        (Some(one), Some(other)) => one == other,
        _ => here.namespaces.all_shared(&there.namespaces),
    }
}

/// By what launchers and kernels say: sets of nodes that meet, within sockets that do.
fn distance(here: &Identity, there: &Identity) -> Distance {
    let (a, b) = (here.cores, there.cores);
    let known = |one: u64, two: u64| one != 0 && two != 0;
    if known(a.sockets, b.sockets) && a.sockets & b.sockets == 0 {
        Distance::OtherSocket
    } else if known(a.nodes, b.nodes) && a.nodes & b.nodes != 0 {
        Distance::SameNode
    } else if known(a.sockets, b.sockets) {
        Distance::SameSocket
    } else {
        Distance::Unknown
    }
}

fn visibility(here: &Identity, there: &Identity, connected: Option<(bool, bool)>) -> Visibility {
    if shared(here.namespaces.pid, there.namespaces.pid) {
        return Visibility::Same;
    }
    match connected {
        Some((true, false)) => Visibility::FromHere,
        Some((false, true)) => Visibility::FromThere,
        // Of two namespaces one cannot be above and below the other.
        Some((true, true) | (false, false)) | None => Visibility::Hidden,
    }
}

/// A descriptor is best: nothing has a name that could be left behind.
fn memory(descriptors: &Result<FdPassing, String>, media: &[MediumKind]) -> Result<MemorySharing, String> {
    match descriptors {
        Ok(way) => Ok(MemorySharing::Descriptor(way.clone())),
        Err(why) => {
            let file = media.iter().find(|medium| matches!(medium, MediumKind::Folder(_)));
            let way = file.cloned().map(MemorySharing::File);
            way.or_else(|| media.contains(&MediumKind::SystemV).then_some(MemorySharing::SystemV))
                .ok_or_else(|| why.clone())
        }
    }
}

fn network(here: &Identity, there: &Identity) -> Result<NetworkPath, String> {
    if shared(here.namespaces.net, there.namespaces.net) {
        return Ok(NetworkPath::Same);
    }
    match (here.has_address, there.has_address) {
        (true, true) => Ok(NetworkPath::Addresses),
        (true, false) => Err("its network namespace has no address but its own loopback's".to_owned()),
        (false, true) => Err("this network namespace has no address but its own loopback's".to_owned()),
        (false, false) => Err("both network namespaces have no address but their own loopback's".to_owned()),
    }
}

/// How near two ranks are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Locality {
    /// One process.
    SameProcess,
    /// Two processes that share all namespaces.
    SameContainer,
    /// Two containers of one host.
    SameHost,
    /// Not on this host, as far as any board tells.
    OtherHost,
}

impl fmt::Display for Locality {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SameProcess => "in the same process",
            Self::SameContainer => "in the same container",
            Self::SameHost => "in another container of this host",
            Self::OtherHost => "on another host, or where no board shows it",
        })
    }
}

/// How far apart the processors of two ranks are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Distance {
    /// They share NUMA nodes.
    SameNode,
    /// They have other nodes of one socket.
    SameSocket,
    /// They have other sockets.
    OtherSocket,
    /// One of them does not know where it runs.
    Unknown,
}

impl fmt::Display for Distance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SameNode => "at the same NUMA nodes",
            Self::SameSocket => "at other NUMA nodes of a socket",
            Self::OtherSocket => "at other sockets",
            Self::Unknown => "at an unknown distance",
        })
    }
}

/// How a file descriptor gets from one rank to the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FdPassing {
    /// Over a Unix socket.
    Socket(SocketAddress),
    /// One process may take it from the other (`pidfd_getfd`).
    Taken,
    /// It is there: one process.
    Same,
}

impl fmt::Display for FdPassing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(locality) => locality.fmt(f),
            Self::Taken => f.write_str("pidfd_getfd"),
            Self::Same => f.write_str("one process"),
        }
    }
}

/// How two ranks come to share memory of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemorySharing {
    /// A memfd, whose descriptor gets across.
    Descriptor(FdPassing),
    /// A file in a folder that both see.
    File(MediumKind),
    /// A System V segment.
    SystemV,
}

impl fmt::Display for MemorySharing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Descriptor(path) => write!(f, "a descriptor by {path}"),
            Self::File(folder) => write!(f, "a file in {folder}"),
            Self::SystemV => f.write_str("a System V segment"),
        }
    }
}

/// How two ranks reach each other over a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NetworkPath {
    /// They have one network namespace.
    Same,
    /// Each has addresses; whether they lead to each other is found out by trying.
    Addresses,
}

/// Whether two processes have process ids for each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Visibility {
    /// One PID namespace.
    Same,
    /// The peer's is below this one's: it is seen from here, and does not see this process.
    FromHere,
    /// This one's is below the peer's.
    FromThere,
    /// Neither sees the other.
    Hidden,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::{Cores, Namespaces};

    fn identity(process: u64, namespaces: Namespaces) -> Identity {
        Identity {
            process,
            pid: 1,
            boot: 1,
            namespaces,
            cores: Cores::default(),
            container: None,
            has_address: false,
            gpus: None,
        }
    }

    fn slot(identity: Identity) -> Slot {
        Slot { rank: 0, epoch: 0, identity, segment: None }
    }

    const ALL: Namespaces = Namespaces { pid: 1, ipc: 1, net: 1, mnt: 1, user: 1, uts: 1 };

    fn folder() -> MediumKind {
        MediumKind::Folder("/dev/shm".into())
    }

    fn pair(
        namespaces: Namespaces,
        media: Vec<MediumKind>,
        connected: Result<ConnectedPeer, String>,
    ) -> Pair {
        let peer = Seen { slot: slot(identity(2, namespaces)), media };
        Pair::of(&slot(identity(1, ALL)), Some(&peer), connected)
    }

    #[test]
    fn whoever_no_board_shows_is_far() {
        let pair = Pair::of(&slot(identity(1, ALL)), None, Err("no".into()));
        assert_eq!(pair.locality, Locality::OtherHost);
        assert!(pair.memory.is_err() && pair.descriptors.is_err());
    }

    #[test]
    fn ranks_of_one_process_share_everything() {
        let peer = Seen { slot: slot(identity(1, ALL)), media: vec![folder()] };
        let pair = Pair::of(&slot(identity(1, ALL)), Some(&peer), Err("not tried".into()));
        assert_eq!((pair.locality, pair.descriptors), (Locality::SameProcess, Ok(FdPassing::Same)));
    }

    #[test]
    fn without_a_socket_memory_goes_by_file_and_then_by_segment() {
        let no_socket = || Err("refused".to_owned());
        let media = vec![MediumKind::SystemV, folder()];
        assert_eq!(pair(ALL, media, no_socket()).memory, Ok(MemorySharing::File(folder())));
        let other = Namespaces { mnt: 2, ..ALL };
        let by_segment = pair(other, vec![MediumKind::SystemV], no_socket());
        assert_eq!(
            (by_segment.locality, by_segment.memory),
            (Locality::SameHost, Ok(MemorySharing::SystemV))
        );
        assert_eq!(pair(ALL, Vec::new(), no_socket()).memory, Err("refused".to_owned()));
    }

    #[test]
    fn process_ids_are_seen_from_above() {
        let below = Namespaces { pid: 2, ..ALL };
        let connected = |seen, sees| {
            Ok(ConnectedPeer { at: SocketAddress::Abstract, seen, sees, process_access: Ok(()) })
        };
        let processes = |seen, sees| pair(below, Vec::new(), connected(seen, sees)).processes;
        assert_eq!(processes(Some(7), None), Visibility::FromHere);
        assert_eq!(processes(None, Some(7)), Visibility::FromThere);
        assert_eq!(processes(None, None), Visibility::Hidden);
        assert_eq!(pair(ALL, Vec::new(), Err("no".into())).processes, Visibility::Same);
    }

    #[test]
    fn a_launchers_numbers_of_containers_count_before_namespaces() {
        let locality = |namespaces, numbers: [Option<u32>; 2]| {
            let [own, peer] = numbers;
            let own = slot(Identity { container: own, ..identity(1, ALL) });
            let slot = slot(Identity { container: peer, ..identity(2, namespaces) });
            Pair::of(&own, Some(&Seen { slot, media: vec![folder()] }), Err("not tried".into())).locality
        };
        let other = Namespaces { pid: 2, ..ALL };
        assert_eq!(locality(ALL, [Some(1), Some(2)]), Locality::SameHost);
        assert_eq!(locality(other, [Some(1), Some(1)]), Locality::SameContainer);
        assert_eq!(locality(ALL, [Some(1), None]), Locality::SameContainer);
        assert_eq!(locality(other, [None, None]), Locality::SameHost);
    }

    #[test]
    fn nodes_come_before_sockets() {
        let with = |nodes, sockets| Identity {
            cores: Cores { nodes, sockets, ..Cores::default() },
            ..identity(1, ALL)
        };
        let between = |a: (u64, u64), b: (u64, u64)| distance(&with(a.0, a.1), &with(b.0, b.1));
        assert_eq!(between((1, 1), (3, 1)), Distance::SameNode);
        assert_eq!(between((1, 1), (2, 1)), Distance::SameSocket);
        assert_eq!(between((1, 1), (2, 2)), Distance::OtherSocket);
        assert_eq!(between((0, 1), (0, 1)), Distance::SameSocket);
        assert_eq!(between((1, 0), (2, 1)), Distance::Unknown);
    }
}
