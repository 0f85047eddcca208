//! Table of copy plans by size.

use core::ops::Range;
use std::time::Duration;

use causeway_config::rules;

use super::plan::{Direction, Plan};
use crate::lanes::{is_long, lanes_by_distance};
use causeway_config::TransportKind;

/// All lanes that a session has.
const ALL: usize = Plan::MAX_LANES;
const K: usize = 1 << 10;
const M: usize = 1 << 20;

/// Plans by the sizes of copies that they serve, up to and without the first number; the last one serves all
/// others.
type Steps = [(usize, Plan)];

const fn plan(buffers: usize, buffer_bytes: usize, lanes: usize, threads: usize) -> Plan {
    Plan { buffers, buffer_bytes, lanes, threads }
}

// The built-in tables follow from what `causeway tune` and `causeway bench pipeline` found on a virtual
// machine with an H200 and 16 cores (2026-11-23; docs/lab). A pinned copy by the GPU reaches 22 GB/s at 256
// KiB, 40 at 1 MiB, 50 at 4 MiB and 54 at 16 MiB. Where threads copy, there are as many as cores, up to 16: a
// copy is short.

/// Over TCP the lanes' threads are what copies to and from the program's memory, and a plan takes all lanes
/// that a session has, which are as many as the length of its network asks for. Each piece costs notices at
/// both ends and each chunk some 10 us on its lane, so pieces are longer in longer copies; pieces of half a
/// megabyte more or less cost 3 % (2026-11-24, some thousand copies in turns).
const TCP_TO: &Steps = &[
    (256 * K, plan(1, 256 * K, 1, 1)),
    (LONG, plan(8, M, ALL, 4)),
    (2 * LONG, plan(8, 3 * M / 2, ALL, 4)),
    (4 * LONG, plan(8, 2 * M, ALL, 4)),
    (32 * M, plan(16, 5 * M / 2, ALL, 4)),
    (64 * M, plan(16, 4 * M, ALL, 4)),
    (128 * M, plan(8, 8 * M, ALL, 4)),
    (usize::MAX, plan(16, 6 * M, ALL, 4)),
];

/// What the GPU has written is sent sooner in short pieces, of which many are asked for ahead; short copies
/// are over before all lanes are awake.
const TCP_FROM: &Steps = &[
    (256 * K, plan(1, 256 * K, 1, 1)),
    (LONG, plan(8, M, 4, 1)),
    (2 * LONG, plan(8, M, ALL, 4)),
    (usize::MAX, plan(8, 2 * M, ALL, 4)),
];

/// From this many bytes on a copy from a device takes all lanes. With four lanes 4 MiB take a tenth longer
/// than with eight, and 8 MiB a sixth.
const LONG: usize = 4 * M;

/// Pieces of more bytes stay in the caches on their way to a device within a host, in memory that was used
/// last; others are written past the caches. A device reads 30 GB/s from caches and 54 from memory, so that
/// whoever waits for a copy of 16 MiB has it sooner from there. But a copy that is too long for the caches
/// comes from memory itself, and passes there three times then: 256 MiB to a device, and rows of asynchronous
/// copies, are a fifth faster through the caches (a virtual machine with an H200, 2026-11-23).
pub const NONTEMPORAL_UP_TO: usize = 4 * M;

/// Bytes of the longest piece of a copy over TCP, on long networks.
const MAX_PIECE_BYTES: usize = 8 * M;

/// Over shared memory the copying threads are the first stage. Pieces of 1 MiB are quick to fill, and the GPU
/// begins early. Long copies fill pieces while the device reads others: more than eight threads take memory
/// from it then.
const SHM_TO: &Steps = &[
    (256 * K, plan(1, 256 * K, 1, 1)),
    (M, plan(4, 512 * K, 2, 8)),
    (4 * M, plan(4, M, 4, 16)),
    (16 * M, plan(8, M, 8, 16)),
    (usize::MAX, plan(8, 4 * M, 8, 8)),
];

/// What the GPU has written is in the caches of no core, and longer copies gain from somewhat longer pieces.
/// There four cores are left to whoever receives the pieces: sixteen threads took 1.95 to 2.2 ms for four
/// copies of 16 MiB at a time, twelve 1.75 to 1.8 (a virtual machine with an H100 and 16 cores, 2026-11-24).
const SHM_FROM: &Steps = &[
    (256 * K, plan(1, 256 * K, 1, 1)),
    (M, plan(4, 512 * K, 2, 8)),
    (4 * M, plan(4, M, 4, 16)),
    (16 * M, plan(8, M, 8, 16)),
    (32 * M, plan(8, 2 * M, 8, 12)),
    (usize::MAX, plan(8, 4 * M, 8, 12)),
];

/// Two queue pairs are the published optimum for InfiniBand; the copying threads fill registered staging.
const VERBS: &Steps = &[
    (256 * K, plan(1, 256 * K, 1, 1)),
    (4 * M, plan(4, 512 * K, 2, 2)),
    (32 * M, plan(8, M, 2, 4)),
    (usize::MAX, plan(8, 4 * M, 2, 4)),
];

/// What is used when nobody says otherwise.
pub fn built_in(module: TransportKind, direction: Direction, bytes: usize) -> Plan {
    let steps = match (module, direction) {
        (TransportKind::Shm, Direction::ToDevice) => SHM_TO,
        (TransportKind::Shm, Direction::FromDevice) => SHM_FROM,
        (TransportKind::Verbs, _) => VERBS,
        // And any for which nothing has been measured.
        (_, Direction::ToDevice) => TCP_TO,
        (_, Direction::FromDevice) => TCP_FROM,
    };
    let fits = steps.iter().find(|(end, _)| bytes < *end);
    fits.or(steps.last()).expect("no table is empty").1
}

/// Changes of the built-in plans for a network with this round trip.
///
/// The pieces of a copy from a device are asked for, and the next one when the oldest has come. On a long
/// network the question takes half a round trip, and bytes that a lane has lost hold up their piece for
/// another one or more, in which all lanes may run out of what was asked for. So there pieces are as long as
/// they may be, and as many are under way as the network wants lanes, eight at least: three times the bytes
/// that the kernel keeps under way on these.
pub fn for_distance(round_trip: Duration) -> Table {
    if !is_long(round_trip) {
        return Table::default();
    }
    let buffers = (lanes_by_distance(round_trip) as usize).max(8);
    let change = Change { buffers: Some((buffers, MAX_PIECE_BYTES)), ..Change::default() };
    let (module, direction) = (Some(TransportKind::Tcp), Some(Direction::FromDevice));
    Table { rules: vec![Rule { module, direction, sizes: LONG as u64..u64::MAX, change }] }
}

/// What a rule says about a plan; what it leaves out stays as it was.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Change {
    /// Number of buffers and bytes of each.
    pub buffers: Option<(usize, usize)>,
    /// Lanes.
    pub lanes: Option<usize>,
    /// Copying threads.
    pub threads: Option<usize>,
}

impl Change {
    /// Sets everything.
    pub fn to(plan: Plan) -> Self {
        Self {
            buffers: Some((plan.buffers, plan.buffer_bytes)),
            lanes: Some(plan.lanes),
            threads: Some(plan.threads),
        }
    }

    fn apply(&self, plan: &mut Plan) {
        if let Some((buffers, bytes)) = self.buffers {
            (plan.buffers, plan.buffer_bytes) = (buffers, bytes);
        }
        plan.lanes = self.lanes.unwrap_or(plan.lanes);
        plan.threads = self.threads.unwrap_or(plan.threads);
    }
}

/// A change of the plans of some copies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// The module it is for; every one if there is none.
    pub module: Option<TransportKind>,
    /// The direction it is for; both if there is none.
    pub direction: Option<Direction>,
    /// The sizes of copies it is for, in bytes, without the end. An end of `u64::MAX` is none.
    pub sizes: Range<u64>,
    /// What it says.
    pub change: Change,
}

impl Rule {
    /// Whether the rule is about such a copy.
    fn fits(&self, module: TransportKind, direction: Direction, bytes: u64) -> bool {
        self.module.is_none_or(|own| own == module)
            && self.direction.is_none_or(|own| own == direction)
            && rules::holds(&self.sizes, bytes)
    }
}

/// Changes of the built-in plans; of several rules that fit a copy the last one counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Table {
    /// The rules, in order.
    pub rules: Vec<Rule>,
}

impl Table {
    /// The plan for a copy of `bytes` bytes.
    pub fn plan(&self, module: TransportKind, direction: Direction, bytes: usize) -> Plan {
        let mut plan = built_in(module, direction, bytes);
        for rule in &self.rules {
            if rule.fits(module, direction, bytes as u64) {
                rule.change.apply(&mut plan);
            }
        }
        plan.within_limits()
    }

    /// This table with `upper` laid over it: what `upper` does not say stays as it is here.
    #[must_use]
    pub fn under(mut self, upper: Self) -> Self {
        self.rules.extend(upper.rules);
        self
    }

    /// Whether the table changes nothing.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// The most lanes that its rules for transports with lanes ask for, 0 when they leave it open.
    pub fn max_lanes(&self) -> u32 {
        let own = self.rules.iter().filter(|rule| rule.module.is_none_or(TransportKind::has_lanes));
        own.filter_map(|rule| rule.change.lanes).max().unwrap_or(0) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_plans_are_within_the_limits_and_ascend() {
        for (module, direction) in
            TransportKind::ALL.into_iter().flat_map(|module| Direction::ALL.map(|way| (module, way)))
        {
            let mut before = 0;
            for shift in 0..40 {
                let plan = built_in(module, direction, 1 << shift);
                assert_eq!(plan, plan.within_limits(), "{module} {direction} {shift}");
                let volume = plan.buffers * plan.buffer_bytes;
                assert!(
                    volume >= before,
                    "{module} {direction}: what is under way does not shrink as copies grow"
                );
                before = volume;
            }
        }
    }

    #[test]
    fn long_networks_have_more_of_a_copy_from_a_device_under_way_and_nothing_else_changes() {
        for milliseconds in [0, 1, 5, 6, 10, 11, 20, 300] {
            let table = for_distance(Duration::from_millis(milliseconds));
            for (module, direction) in
                TransportKind::ALL.into_iter().flat_map(|module| Direction::ALL.map(|way| (module, way)))
            {
                for shift in 0..40 {
                    let (near, far) =
                        (built_in(module, direction, 1 << shift), table.plan(module, direction, 1 << shift));
                    let is_long =
                        (module, direction) == (TransportKind::Tcp, Direction::FromDevice) && shift > 21;
                    let (buffers, buffer_bytes) = match milliseconds {
                        6 | 10 if is_long => (8, 8 * M),
                        11 if is_long => (9, 8 * M),
                        20 | 300 if is_long => (16, 8 * M),
                        _ => (near.buffers, near.buffer_bytes),
                    };
                    let expected = Plan { buffers, buffer_bytes, ..near };
                    assert_eq!(far, expected, "{module} {direction} {shift} {milliseconds}");
                }
            }
        }
    }

    #[test]
    fn the_last_rule_that_fits_counts_and_the_rest_stays() {
        let lanes = |module, sizes, lanes| Rule {
            module,
            direction: None,
            sizes,
            change: Change { lanes: Some(lanes), ..Change::default() },
        };
        let lower =
            Table { rules: vec![lanes(None, 0..u64::MAX, 3), lanes(Some(TransportKind::Shm), 0..100, 5)] };
        let table = lower.under(Table { rules: vec![lanes(None, 10..20, 7)] });
        let given = |module, bytes| table.plan(module, Direction::ToDevice, bytes).lanes;
        assert_eq!([5, 10, 19, 20, 100].map(|bytes| given(TransportKind::Shm, bytes)), [5, 7, 7, 5, 3]);
        assert_eq!([5, 10, 100].map(|bytes| given(TransportKind::Tcp, bytes)), [3, 7, 3]);
        assert_eq!(given(TransportKind::Tcp, usize::MAX), 3, "no end includes the largest number");
        let untouched = Plan { lanes: 7, ..built_in(TransportKind::Tcp, Direction::FromDevice, 15) };
        assert_eq!(table.plan(TransportKind::Tcp, Direction::FromDevice, 15), untouched.within_limits());
        assert_eq!((table.max_lanes(), Table::default().max_lanes()), (7, 0));
        let only_shm = Table { rules: vec![lanes(Some(TransportKind::Shm), 0..100, 5)] };
        assert_eq!(only_shm.max_lanes(), 0, "shared memory has no lanes");
    }
}
