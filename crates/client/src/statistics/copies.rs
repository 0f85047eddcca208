//! Copies between the program's memory and devices, by what carried them and by what memory it was.

use crate::model::region::HostRegion;
use causeway_config::read::PROCESS;
use causeway_config::table::STATS;
use causeway_link::{Counters, TransportKind};
use causeway_pipeline::Direction;
use serde::Serialize;
use std::collections::BTreeMap;
use std::iter;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What carried a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum By {
    /// Nothing: the server has the same memory.
    Common,
    /// The message with its command.
    Command,
    /// Transfers of the link's module.
    Transfers,
}

/// What carried a copy between devices of two servers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InterServerPath {
    /// The destination's device itself.
    Device,
    /// A link between their workers.
    Link(TransportKind),
    /// This process.
    Client,
}

impl InterServerPath {
    /// How many there are.
    const COUNT: usize = 2 + TransportKind::ALL.len();

    /// Every one, in the order of the report.
    fn all() -> impl Iterator<Item = Self> {
        let links = TransportKind::ALL.into_iter().map(Self::Link);
        iter::once(Self::Device).chain(links).chain([Self::Client])
    }

    /// Its name in the report.
    fn name(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Link(kind) => kind.name(),
            Self::Client => "client",
        }
    }
}

/// Copies and their bytes.
struct Count {
    copies: AtomicU64,
    bytes: AtomicU64,
}

impl Count {
    const fn zero() -> Self {
        Self { copies: AtomicU64::new(0), bytes: AtomicU64::new(0) }
    }

    fn now(&self) -> Counted {
        Counted { copies: self.copies.load(Relaxed), bytes: self.bytes.load(Relaxed) }
    }

    fn add(&self, bytes: usize) {
        self.copies.fetch_add(1, Relaxed);
        self.bytes.fetch_add(bytes as u64, Relaxed);
    }
}

/// Copies that have been counted.
struct Counts {
    /// By direction, then by what carried them.
    carried: [[Count; 3]; 2],
    /// Those from or into memory that is not pinned, by direction.
    pageable: [Count; 2],
    /// Those between devices of two servers, in the order of [`InterServerPath::all`].
    between: [Count; InterServerPath::COUNT],
}

static COPIES: Counts = Counts {
    carried: [const { [const { Count::zero() }; 3] }; 2],
    pageable: [const { Count::zero() }; 2],
    between: [const { Count::zero() }; InterServerPath::COUNT],
};

/// Counts a copy, if statistics are enabled.
pub fn count(direction: Direction, by: By, host: &HostRegion) {
    if !is_enabled() {
        return;
    }
    COPIES.carried[direction as usize][by as usize].add(host.bytes());
    if by != By::Common && !host.is_pinned() {
        COPIES.pageable[direction as usize].add(host.bytes());
    }
}

/// Counts a copy between devices of two servers, if statistics are enabled.
pub fn count_inter_server(between: InterServerPath, bytes: u64) {
    let index = InterServerPath::all().position(|known| known == between);
    if let Some(index) = index.filter(|_| is_enabled()) {
        COPIES.between[index].add(bytes as usize);
    }
}

fn is_enabled() -> bool {
    static IS_ENABLED: OnceLock<bool> = OnceLock::new();
    *IS_ENABLED.get_or_init(|| PROCESS.path(&STATS).is_some())
}

/// Bytes of all copies of a direction.
pub fn bytes(direction: Direction) -> u64 {
    COPIES.carried[direction as usize].iter().map(|count| count.bytes.load(Relaxed)).sum()
}

/// How many, and how many bytes.
#[derive(Clone, Copy, Serialize)]
struct Counted {
    copies: u64,
    bytes: u64,
}

/// What network cards moved by themselves.
#[derive(Serialize)]
struct Moved {
    bytes: u64,
}

/// The copies of a direction.
#[derive(Serialize)]
struct Directed {
    gpudirect: Moved,
    registered: Moved,
    zero_copy: Counted,
    with_commands: Counted,
    /// What transfers carried that cards did not move by themselves; one of the two.
    #[serde(skip_serializing_if = "Option::is_none")]
    tcp: Option<Counted>,
    #[serde(skip_serializing_if = "Option::is_none")]
    staged: Option<Counted>,
    pageable: Counted,
}

/// All copies, as they are reported.
#[derive(Serialize)]
pub struct Copies {
    to_device: Directed,
    from_device: Directed,
    between_servers: BTreeMap<&'static str, Counted>,
}

/// The counts. Bytes that network cards moved by themselves, by GPUDirect or from and into registered memory,
/// are counted by the link, a transfer at a time.
pub fn report(via: TransportKind, link: &Counters) -> Copies {
    let directed = |direction: Direction, direct: u64, registered: u64| {
        let counts = &COPIES.carried[direction as usize];
        let transferred = counts[By::Transfers as usize].now();
        let others = match transferred.bytes.saturating_sub(direct + registered) {
            0 => Counted { copies: 0, bytes: 0 },
            bytes => Counted { bytes, ..transferred },
        };
        Directed {
            gpudirect: Moved { bytes: direct },
            registered: Moved { bytes: registered },
            zero_copy: counts[By::Common as usize].now(),
            with_commands: counts[By::Command as usize].now(),
            tcp: via.has_lanes().then_some(others),
            staged: (!via.has_lanes()).then_some(others),
            pageable: COPIES.pageable[direction as usize].now(),
        }
    };
    Copies {
        to_device: directed(Direction::ToDevice, link.direct_bytes_sent, link.registered_bytes_sent),
        from_device: directed(
            Direction::FromDevice,
            link.direct_bytes_received,
            link.registered_bytes_received,
        ),
        between_servers: InterServerPath::all()
            .zip(&COPIES.between)
            .map(|(between, count)| (between.name(), count.now()))
            .collect(),
    }
}
