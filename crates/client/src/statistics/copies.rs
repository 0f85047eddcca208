//! Copies between the program's memory and devices, by what carried them and by what memory it was.

use crate::copy::HostRegion;
use crate::environment;
use causeway_fabric::pipeline::Direction;
use causeway_fabric::{Counters, Via};
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

/// Copies and their bytes.
struct Count {
    copies: AtomicU64,
    bytes: AtomicU64,
}

impl Count {
    const fn zero() -> Self {
        Self { copies: AtomicU64::new(0), bytes: AtomicU64::new(0) }
    }

    fn add(&self, bytes: usize) {
        self.copies.fetch_add(1, Relaxed);
        self.bytes.fetch_add(bytes as u64, Relaxed);
    }
}

/// By direction, then by what carried them.
static CARRIED: [[Count; 3]; 2] = [const { [const { Count::zero() }; 3] }; 2];
/// Those from or into memory that is not pinned, by direction.
static PAGEABLE: [Count; 2] = [const { Count::zero() }; 2];

/// Counts a copy, if anybody wants to know.
pub fn count(direction: Direction, by: By, host: &HostRegion) {
    static IS_WANTED: OnceLock<bool> = OnceLock::new();
    if !IS_WANTED.get_or_init(|| environment::read("CAUSEWAY_STATS").is_some()) {
        return;
    }
    CARRIED[direction as usize][by as usize].add(host.bytes());
    if by != By::Common && !host.is_pinned() {
        PAGEABLE[direction as usize].add(host.bytes());
    }
}

/// Bytes of all copies of a direction.
pub fn bytes(direction: Direction) -> u64 {
    CARRIED[direction as usize].iter().map(|count| count.bytes.load(Relaxed)).sum()
}

/// The counts as a JSON object. Bytes that went by GPUDirect are counted by the link, a transfer at a time.
pub fn report(via: Via, link: &Counters) -> String {
    let directions = [
        ("to_device", Direction::ToDevice, link.direct_bytes_sent),
        ("from_device", Direction::FromDevice, link.direct_bytes_received),
    ];
    let objects = directions.map(|(name, direction, direct)| {
        let counts = &CARRIED[direction as usize];
        let now = |count: &Count| (count.copies.load(Relaxed), count.bytes.load(Relaxed));
        let (transferred, transferred_bytes) = now(&counts[By::Transfers as usize]);
        let others = (transferred, transferred_bytes.saturating_sub(direct));
        let fields = [
            ("zero_copy", now(&counts[By::Common as usize])),
            ("with_commands", now(&counts[By::Command as usize])),
            (if via == Via::Tcp { "tcp" } else { "staged" }, others),
            ("pageable", now(&PAGEABLE[direction as usize])),
        ];
        let fields = fields.map(|(name, (copies, bytes))| {
            format!("\"{name}\": {{\"copies\": {copies}, \"bytes\": {bytes}}}")
        });
        format!("\n    \"{name}\": {{\"gpudirect\": {{\"bytes\": {direct}}}, {}}}", fields.join(", "))
    });
    format!("{{{}\n  }}", objects.join(","))
}
