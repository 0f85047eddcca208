//! The schedule that C-GDR published in 2019, measured on a K80 and ConnectX-4: up to 16 B through the BAR,
//! up to 16 KiB through the card, from there to 512 KiB by cudaIPC where latency counts and through the card
//! where bandwidth does, and by cudaIPC above.

use core::ops::Range;

use crate::channels::Channel;
use crate::tracer::Traffic;

/// The longest messages through the BAR.
const BAR: u64 = 16;

/// The longest through the card, where latency counts.
const LOOPBACK: u64 = 16 << 10;

/// The longest through the card, where bandwidth counts.
const LOOPBACK_FOR_BANDWIDTH: u64 = 512 << 10;

/// The ranges of sizes, and the traffic that one is for alone.
pub(super) const RANGES: [(Option<Traffic>, Range<u64>); 5] = [
    (None, 0..BAR + 1),
    (None, BAR + 1..LOOPBACK + 1),
    (Some(Traffic::Latency), LOOPBACK + 1..LOOPBACK_FOR_BANDWIDTH + 1),
    (Some(Traffic::Bandwidth), LOOPBACK + 1..LOOPBACK_FOR_BANDWIDTH + 1),
    (None, LOOPBACK_FOR_BANDWIDTH + 1..u64::MAX),
];

/// All channels for a message, the published one first. Those that the authors did not have stand behind the
/// one that they are most like: `vmm` moves bytes as `ipc` does, and `staged` is what is left within a host.
/// Between hosts there is `rdma`, and then TCP.
pub(super) fn order(bytes: u64, traffic: Traffic) -> [Channel; 7] {
    use Channel::{Bar, Ipc, Loopback, Rdma, Staged, Tcp, Vmm};
    let limit = match traffic {
        Traffic::Latency => LOOPBACK,
        Traffic::Bandwidth => LOOPBACK_FOR_BANDWIDTH,
    };
    match bytes {
        0..=BAR => [Bar, Loopback, Ipc, Vmm, Staged, Rdma, Tcp],
        _ if bytes <= limit => [Loopback, Ipc, Vmm, Bar, Staged, Rdma, Tcp],
        _ => [Ipc, Vmm, Loopback, Staged, Bar, Rdma, Tcp],
    }
}
