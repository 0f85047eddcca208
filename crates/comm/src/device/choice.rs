//! Cost model of the initiators. A pure model of what each costs, and the table that kernels look it up
//! in.
//!
//! There is no best initiator: public measurements have one small message faster through a proxy (5.4 us
//! against 9 to 14 us by the GPU's own work requests), many small ones faster when the GPU posts them (87
//! against 3 million a second), many tiny ones faster when a proxy packs them, and large ones equal. So each
//! message is looked up by its size, by who calls together, and by how many requests are in flight.
//!
//! Calibration: what a few copies say of the proxy's costs.

use core::fmt;
use core::str::FromStr;

use thiserror::Error;

use crate::device::layout::{CLASSES, FLIGHTS, SCOPES};

/// Who moves a message's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Initiator {
    /// The kernel's threads, by loads and stores.
    Direct,
    /// A thread of the host.
    Proxy,
    /// The network card, which the kernel asks itself.
    Verbs,
}

impl Initiator {
    /// All there are. Of equal ones the first is taken.
    pub const ALL: [Self; 3] = [Self::Direct, Self::Proxy, Self::Verbs];

    /// Its number in tables and counts.
    pub fn code(self) -> usize {
        match self {
            Self::Direct => 1,
            Self::Proxy => 2,
            Self::Verbs => 3,
        }
    }
}

impl fmt::Display for Initiator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Direct => "direct",
            Self::Proxy => "proxy",
            Self::Verbs => "verbs",
        })
    }
}

/// What the user lets be chosen: `CAUSEWAY_DEVICE_INITIATOR`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum InitiatorPolicy {
    /// The cheaper one, for each message.
    #[default]
    Auto,
    /// `direct` wherever the memory is mapped.
    Direct,
    /// `proxy` alone: nobody's memory is mapped.
    Proxy,
    /// `verbs` for all ranks that a network card reaches, the cheaper one for the others.
    Verbs,
}

impl InitiatorPolicy {
    /// The initiator that it names.
    pub fn named(self) -> Option<Initiator> {
        match self {
            Self::Auto => None,
            Self::Direct => Some(Initiator::Direct),
            Self::Proxy => Some(Initiator::Proxy),
            Self::Verbs => Some(Initiator::Verbs),
        }
    }

    /// Whether kernels may ask network cards.
    pub fn allows_verbs(self) -> bool {
        matches!(self, Self::Auto | Self::Verbs)
    }

    /// Whether the costs decide for peers whose memory is mapped.
    pub fn chooses_mapped(self) -> bool {
        self.allows_verbs()
    }
}

/// No such wish.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{0}` is no initiator: give auto, direct, proxy or verbs")]
pub struct UnknownInitiator(String);

impl FromStr for InitiatorPolicy {
    type Err = UnknownInitiator;

    fn from_str(text: &str) -> Result<Self, UnknownInitiator> {
        let all = [Self::Auto, Self::Direct, Self::Proxy, Self::Verbs];
        let name = |policy: &Self| policy.named().map_or("auto".to_owned(), |named| named.to_string());
        all.into_iter().find(|policy| name(policy) == text).ok_or_else(|| UnknownInitiator(text.to_owned()))
    }
}

/// What messages of one initiator cost, in nanoseconds and bytes a nanosecond (GB/s).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Curve {
    /// From the call to the bytes being there, for a message of no length and nothing else to do.
    pub latency: f64,
    /// How long a message keeps whoever moves it from the next one.
    pub post: f64,
    /// How fast bytes go.
    pub bandwidth: f64,
    /// Messages that become one at most, where that many are in flight.
    pub packs: f64,
    /// Bytes up to which they do.
    pub packs_below: f64,
}

impl Curve {
    /// Nanoseconds a message, where so many others are in flight. A message is never faster than its bytes;
    /// it shares its latency with those in flight, and takes its turn at whoever moves it.
    pub fn cost(&self, bytes: f64, in_flight: f64) -> f64 {
        let concurrent = in_flight + 1.0;
        let packs = if bytes <= self.packs_below { self.packs.min(concurrent).max(1.0) } else { 1.0 };
        let moving = bytes / self.bandwidth;
        (self.post / packs).max(moving).max((self.latency + moving) / concurrent)
    }
}

/// The curves of the initiators that there are, for one scope.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Curves(pub Vec<(Initiator, Curve)>);

/// A choice, and by how much it is the better one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Choice {
    /// The cheapest.
    pub initiator: Initiator,
    /// What it costs, in nanoseconds a message.
    pub cost: f64,
    /// The next best and its cost.
    pub instead_of: Option<(Initiator, f64)>,
}

/// How much cheaper an initiator must be than one in front of it. What is equal stays with `direct`, which
/// needs no thread of the host.
const ADVANTAGE: f64 = 0.95;

impl Curves {
    /// The initiator for a message of so many bytes, with so many in flight. None where there is none.
    pub fn choose(&self, bytes: f64, in_flight: f64) -> Option<Choice> {
        let mut costs: Vec<(Initiator, f64)> =
            self.0.iter().map(|(initiator, curve)| (*initiator, curve.cost(bytes, in_flight))).collect();
        costs.sort_by_key(|(initiator, _)| *initiator);
        let mut best = *costs.first()?;
        for candidate in &costs[1..] {
            if candidate.1 < best.1 * ADVANTAGE {
                best = *candidate;
            }
        }
        let others = costs.into_iter().filter(|(initiator, _)| *initiator != best.0);
        let instead_of = others.min_by(|(_, a), (_, b)| a.total_cmp(b));
        Some(Choice { initiator: best.0, cost: best.1, instead_of })
    }
}

/// The messages in flight that a column of the table stands for.
pub fn in_flight(column: usize) -> f64 {
    if column == 0 { 0.0 } else { f64::from(1_u32 << (column - 1)) }
}

/// The size that a class stands for: its largest.
pub fn bytes_of(class: usize) -> f64 {
    (1_u64 << class) as f64
}

/// The table that kernels read: by scope and class of size a byte for each number in flight.
pub fn table(curves: &[Curves; SCOPES], policy: InitiatorPolicy) -> [[u64; CLASSES]; SCOPES] {
    core::array::from_fn(|scope| {
        core::array::from_fn(|class| {
            (0..FLIGHTS).fold(0, |row, column| {
                let named = policy.named().filter(|_| !policy.chooses_mapped());
                let chosen = named.unwrap_or_else(|| {
                    let choice = curves[scope].choose(bytes_of(class), in_flight(column));
                    choice.map_or(Initiator::Direct, |choice| choice.initiator)
                });
                row | (chosen.code() as u64) << (8 * column)
            })
        })
    })
}

/// The same for ranks that a network card reaches, where one thread posts for all of a scope.
pub fn network_table(curves: &Curves, policy: InitiatorPolicy) -> [u64; CLASSES] {
    core::array::from_fn(|class| {
        (0..FLIGHTS).fold(0, |row, column| {
            let chosen = if policy == InitiatorPolicy::Verbs {
                Initiator::Verbs
            } else {
                let choice = curves.choose(bytes_of(class), in_flight(column));
                choice.map_or(Initiator::Proxy, |choice| choice.initiator)
            };
            row | (chosen.code() as u64) << (8 * column)
        })
    })
}

/// What the initiators cost to ranks that a card with so many bytes a nanosecond reaches, before anything has been
/// measured. Of `verbs` the time of a post is that of 16 threads that posted 2.3 million a second on an H200 into rings
/// in the host's memory, and the latency that of one of them and of a way there and back (2026-11-29); of the proxy
/// both are estimates: a request passes two threads of the host.
pub fn network_curves(bandwidth: f64) -> Curves {
    let bandwidth = if bandwidth > 0.0 { bandwidth } else { 12.5 };
    let proxy = Curve { latency: 8_000.0, post: 600.0, bandwidth, packs: 64.0, packs_below: 1024.0 };
    let verbs = Curve { latency: 8_500.0, post: 430.0, bandwidth, packs: 1.0, packs_below: 0.0 };
    Curves(vec![(Initiator::Proxy, proxy), (Initiator::Verbs, verbs)])
}

/// The classes of size, by scope, below which the table says direct in every case: kernels find it in the
/// team's handle.
pub fn direct_below(table: &[[u64; CLASSES]; SCOPES]) -> [u8; SCOPES] {
    let always = u64::from_le_bytes([Initiator::Direct.code() as u8; FLIGHTS]);
    table.each_ref().map(|rows| rows.iter().take_while(|row| **row == always).count() as u8)
}

/// Costs before anything has been measured: estimates. The proxy's time of a post is half of what a request
/// took on an H200 (0.61 us, 2026-11-21), its latency that of a copy through the GPU's copy engine.
pub fn default_curves() -> [Curves; SCOPES] {
    let direct = |bandwidth| Curve { latency: 800.0, post: 50.0, bandwidth, packs: 1.0, packs_below: 0.0 };
    let proxy = Curve { latency: 8_000.0, post: 300.0, bandwidth: 1_000.0, packs: 64.0, packs_below: 4096.0 };
    [1.0, 8.0, 40.0]
        .map(|bandwidth| Curves(vec![(Initiator::Direct, direct(bandwidth)), (Initiator::Proxy, proxy)]))
}

/// What copies of a lane cost, in nanoseconds and bytes a nanosecond (GB/s).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Copies {
    /// From asking for a short one to its end being seen.
    pub latency: f64,
    /// How long a short one keeps the next one waiting.
    pub post: f64,
    /// How fast the bytes of a long one go.
    pub bandwidth: f64,
}

/// Bytes of a short copy and of a long one, and how many short ones are asked for together.
const SHORT: u64 = 8;
/// A long one, whose time is that of its bytes more than of its way.
pub const LONG: u64 = 4 << 20;
const BATCH: u32 = 32;

/// How often each is tried: the least counts, since whatever else runs can only add.
const TRIES: u32 = 8;

/// From a request in the queue to the copy being asked for, in nanoseconds: what of 3.1 us from a GPU by a
/// thread of the host and back (H200, 2026-11-21) is not the way back.
pub(super) const QUEUE: f64 = 1_500.0;

/// What a request takes a proxy's thread at least, in nanoseconds.
const REQUEST: f64 = 300.0;

impl Copies {
    /// From how long so many copies of so many bytes take, in nanoseconds; none where they take for ever.
    pub fn of(mut time: impl FnMut(u32, u64) -> Option<f64>) -> Option<Self> {
        let mut min_time = |count, bytes| {
            let mut min_time = time(count, bytes)?;
            for _ in 1..TRIES {
                min_time = min_time.min(time(count, bytes)?);
            }
            Some(min_time)
        };
        let (one, many, long) = (min_time(1, SHORT)?, min_time(BATCH, SHORT)?, min_time(1, LONG)?);
        let post = (many - one) / f64::from(BATCH - 1);
        // A clock that stands still, or a copy that is done before it is asked for, says nothing.
        let is_sound = one > 0.0 && long > one;
        is_sound.then(|| Self { latency: one, post: post.max(0.0), bandwidth: LONG as f64 / (long - one) })
    }

    /// What the proxy's curve says of copies.
    pub fn of_curve(curve: &Curve) -> Self {
        let Curve { latency, post, bandwidth, .. } = *curve;
        Self { latency: (latency - QUEUE).max(1.0), post, bandwidth }
    }

    /// The curves with what was found in place of the proxy's estimate.
    pub fn correct(&self, curves: &[Curves; SCOPES]) -> [Curves; SCOPES] {
        let corrected = |(initiator, curve): &(Initiator, Curve)| match initiator {
            Initiator::Proxy => {
                let (latency, post) = (self.latency + QUEUE, self.post.max(REQUEST));
                (*initiator, Curve { latency, post, bandwidth: self.bandwidth, ..*curve })
            }
            _ => (*initiator, *curve),
        };
        curves.each_ref().map(|curves| Curves(curves.0.iter().map(corrected).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALONE: f64 = 0.0;
    const MANY: f64 = 1000.0;

    /// Invented curves with the figures that were published: of the GPU's own work requests 9 us and 87
    /// million a second, of the proxy 5.4 us and 3 million a second, the same wire, and neighbours up to 256
    /// bytes packed.
    fn published() -> Curves {
        let wire = 25.0;
        let verbs =
            Curve { latency: 9_000.0, post: 1e3 / 87.0, bandwidth: wire, packs: 1.0, packs_below: 0.0 };
        let proxy =
            Curve { latency: 5_400.0, post: 1e3 / 3.0, bandwidth: wire, packs: 64.0, packs_below: 64.0 };
        Curves(vec![(Initiator::Proxy, proxy), (Initiator::Verbs, verbs)])
    }

    #[test]
    fn the_published_crossings_come_out() {
        let chosen = |bytes, in_flight| published().choose(bytes, in_flight).unwrap().initiator;
        assert_eq!(chosen(8.0, ALONE), Initiator::Proxy, "one small message");
        assert_eq!(chosen(256.0, MANY), Initiator::Verbs, "many small ones");
        assert_eq!(chosen(8.0, MANY), Initiator::Proxy, "many tiny ones, packed");
        let large = published().choose(64e6, MANY).unwrap();
        let other = large.instead_of.unwrap().1;
        assert!((large.cost - other).abs() < 0.01 * large.cost, "large ones are equal");
        // Without packing the tiny ones are posted by the GPU as well.
        let mut unpacked = published();
        unpacked.0[0].1.packs = 1.0;
        assert_eq!(unpacked.choose(8.0, MANY).unwrap().initiator, Initiator::Verbs);
    }

    #[test]
    fn who_has_more_threads_goes_direct_for_longer() {
        let crossing = |scope: usize| {
            let curves = &default_curves()[scope];
            (0..CLASSES)
                .find(|class| curves.choose(bytes_of(*class), ALONE).unwrap().initiator == Initiator::Proxy)
        };
        let [thread, warp, block] = [0, 1, 2].map(|scope| crossing(scope).unwrap());
        assert!(thread < warp && warp < block, "{thread} {warp} {block}");
        assert!(
            default_curves()
                .iter()
                .all(|curves| curves.choose(8.0, ALONE).unwrap().initiator == Initiator::Direct)
        );
    }

    #[test]
    fn the_table_says_what_the_model_does_and_wishes_go_before() {
        let (curves, automatic) = (default_curves(), table(&default_curves(), InitiatorPolicy::Auto));
        for (of_scope, rows) in curves.iter().zip(&automatic) {
            for (class, row) in rows.iter().enumerate() {
                for column in 0..FLIGHTS {
                    let chosen = of_scope.choose(bytes_of(class), in_flight(column)).unwrap();
                    assert_eq!(row >> (8 * column) & 0xff, chosen.initiator.code() as u64);
                }
            }
        }
        assert!(
            table(&curves, InitiatorPolicy::Proxy).iter().flatten().all(|row| *row == 0x0202_0202_0202_0202)
        );
        assert!(
            table(&curves, InitiatorPolicy::Direct).iter().flatten().all(|row| *row == 0x0101_0101_0101_0101)
        );
        assert_eq!("gpu".parse::<InitiatorPolicy>(), Err(UnknownInitiator("gpu".to_owned())));
        for policy in [InitiatorPolicy::Direct, InitiatorPolicy::Proxy, InitiatorPolicy::Verbs] {
            assert_eq!(policy.named().unwrap().to_string().parse(), Ok(policy));
        }
        assert_eq!("auto".parse(), Ok(InitiatorPolicy::Auto));
        assert_eq!(table(&curves, InitiatorPolicy::Verbs), automatic, "memory that is mapped needs no card");
    }

    #[test]
    fn ranks_that_a_card_reaches_have_a_table_of_their_own() {
        let curves = network_curves(25.0);
        let rows = network_table(&curves, InitiatorPolicy::Auto);
        let chosen = |class: usize, column: usize| rows[class] >> (8 * column) & 0xff;
        let (proxy, verbs) = (Initiator::Proxy.code() as u64, Initiator::Verbs.code() as u64);
        assert_eq!((chosen(3, 0), chosen(3, 7)), (proxy, proxy), "one alone, and many tiny ones, packed");
        assert_eq!(chosen(12, 7), verbs, "many that are not");
        assert_eq!(chosen(26, 7), proxy, "long ones are equal");
        let all = network_table(&curves, InitiatorPolicy::Verbs);
        assert!(all.iter().all(|row| *row == u64::from_le_bytes([3; 8])));
        let without = network_table(&Curves::default(), InitiatorPolicy::Auto);
        assert!(without.iter().all(|row| *row == u64::from_le_bytes([2; 8])));
    }

    #[test]
    fn the_handle_says_of_short_messages_what_the_table_does() {
        let table = table(&default_curves(), InitiatorPolicy::Auto);
        for (below, rows) in direct_below(&table).into_iter().zip(&table) {
            let below = usize::from(below);
            assert!(below > 3 && below < CLASSES, "{below}");
            assert!(rows[..below].iter().all(|row| *row == 0x0101_0101_0101_0101));
            assert_ne!(rows[below], 0x0101_0101_0101_0101);
        }
        assert_eq!(direct_below(&super::table(&default_curves(), InitiatorPolicy::Proxy)), [0; SCOPES]);
        assert_eq!(
            direct_below(&super::table(&default_curves(), InitiatorPolicy::Direct)),
            [CLASSES as u8; SCOPES]
        );
    }

    /// A machine on which a copy takes its way, its turn and its bytes' time, and every other try twice that.
    fn machine(way: f64, turn: f64, bandwidth: f64) -> impl FnMut(u32, u64) -> Option<f64> {
        let mut tries = 0;
        move |count, bytes| {
            tries += 1;
            let time = way + turn * f64::from(count - 1) + bytes as f64 / bandwidth;
            Some(if tries % 2 == 0 { time } else { 2.0 * time })
        }
    }

    #[test]
    fn what_a_machine_takes_is_found_beside_what_disturbs_it() {
        let found = Copies::of(machine(6_000.0, 1_800.0, 1_000.0)).unwrap();
        for (found, expected) in [(found.latency, 6_000.0), (found.post, 1_800.0), (found.bandwidth, 1_000.0)]
        {
            assert!((found - expected).abs() < 0.01 * expected, "{found} is not {expected}");
        }
        assert_eq!(Copies::of(|_, _| None), None);
        assert_eq!(Copies::of(|_, _| Some(0.0)), None, "a clock that stands still");
    }

    #[test]
    fn a_slow_copy_engine_is_chosen_for_larger_messages_alone() {
        let crossing = |copies: Copies| {
            let block = &copies.correct(&default_curves())[2];
            (0..40).find(|class| {
                block.choose(f64::from(*class).exp2(), 0.0).unwrap().initiator == Initiator::Proxy
            })
        };
        let fast = Copies { latency: 4_000.0, post: 1_000.0, bandwidth: 2_000.0 };
        let slow = Copies { latency: 40_000.0, ..fast };
        let [fast_from, slow_from] = [fast, slow].map(|copies| crossing(copies).unwrap());
        assert!(fast_from < slow_from, "{fast_from} {slow_from}");
        let corrected = fast.correct(&default_curves());
        assert_eq!(corrected[0].0[0], default_curves()[0].0[0], "what the kernel does is as before");
        assert_eq!(corrected[0].0[1].1.latency, 4_000.0 + QUEUE);
    }
}
