//! Costs of channels: what has been measured, by size class, and the sampling policy: when a cost is measured
//! again.

use std::collections::BTreeMap;

use crate::channels::Channel;
use crate::tracer::Traffic;

/// Messages by which a channel is measured for a class of sizes. The middle one counts: the first may have to
/// open the peer's memory, and another process may take the processor.
const SAMPLES: usize = 3;

/// The share of a new observation in what is remembered.
const SHARE: f64 = 1.0 / 8.0;

/// An observation that is more times what was expected is taken for so much: the machine was busy. After one
/// that is as many times less the channel is measured anew.
const MAX_CORRECTION: f64 = 2.0;

/// The greatest cost, as a multiple, that makes sense; the least is one over it.
pub const MAX_COST: f64 = 1e9;

/// Nanoseconds that every message of the invented channel takes, and bytes that it carries in one.
pub(super) const BASE_COST_NS: f64 = 5_000.0;
const RATE: f64 = 20.0;

/// Nanoseconds that a message takes on the invented channel.
pub(super) fn invented(bytes: f64) -> f64 {
    BASE_COST_NS + bytes / RATE
}

/// Classes of sizes: those whose sizes have the same highest bit, and one of all that are shorter than 128
/// bytes. What passes in two cache lines costs the same, and each class is measured by messages that take
/// longer than others.
pub const MAX_SIZE_CLASS: u8 = 64;

const MIN_SIZE_CLASS: u8 = 7;

/// The class of a size.
pub fn class(bytes: u64) -> u8 {
    // At most 64.
    ((u64::BITS - bytes.leading_zeros()) as u8).max(MIN_SIZE_CLASS)
}

/// What is known of one channel for one class of sizes and one kind of traffic.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Measured {
    samples: [f64; SAMPLES],
    count: u8,
    cost: f64,
    /// The number of the message of this class and traffic that last went by this channel.
    pub(super) last_message: u64,
}

impl Measured {
    /// From a profile, if it has it.
    pub(super) fn known(cost: Option<f64>) -> Self {
        match cost {
            Some(cost) => Self { samples: [cost; SAMPLES], count: SAMPLES as u8, cost, last_message: 0 },
            None => Self::default(),
        }
    }

    pub(super) fn samples(&self) -> u8 {
        self.count
    }

    pub(super) fn is_known(&self) -> bool {
        usize::from(self.count) == SAMPLES
    }

    /// As a multiple of what the invented channel costs; where that is known.
    pub(super) fn cost(&self) -> f64 {
        self.cost
    }

    /// The cost, or the least of the samples where it is not known yet; none without a sample.
    pub(super) fn estimate(&self) -> Option<f64> {
        if self.is_known() {
            return Some(self.cost);
        }
        self.samples[..usize::from(self.count)].iter().copied().min_by(f64::total_cmp)
    }

    /// A message of so many bytes has taken so long.
    pub(super) fn observe(&mut self, bytes: u64, nanoseconds: f64) {
        let cost = nanoseconds / invented(bytes as f64);
        if !(1.0 / MAX_COST..=MAX_COST).contains(&cost) {
            return;
        }
        if self.is_known() && cost * MAX_CORRECTION < self.cost {
            // No message takes less than it costs: what was known was wrong, or is no more so.
            *self = Self { last_message: self.last_message, ..Self::default() };
        }
        if self.is_known() {
            let bounded = cost.min(self.cost * MAX_CORRECTION);
            self.cost += (bounded - self.cost) * SHARE;
            return;
        }
        self.samples[usize::from(self.count)] = cost;
        self.count += 1;
        if self.is_known() {
            self.samples.sort_by(f64::total_cmp);
            self.cost = self.samples[SAMPLES / 2];
        }
    }
}

/// The costs of channels for one kind of pair, as multiples of what the invented channel costs.
///
/// Costs of messages of one class differ by their sizes. So that those of several channels compare, each is
/// taken as a multiple of what a message of that size costs on an invented channel, which needs 5 us and then
/// carries 20 bytes a nanosecond.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Known {
    costs: BTreeMap<(Channel, bool, u8), f64>,
}

impl Known {
    /// What is known of a channel for a class of sizes.
    pub fn get(&self, channel: Channel, traffic: Traffic, class: u8) -> Option<f64> {
        self.costs.get(&(channel, traffic == Traffic::Bandwidth, class)).copied()
    }

    /// Keeps what is known.
    pub fn set(&mut self, channel: Channel, traffic: Traffic, class: u8, cost: f64) {
        self.costs.insert((channel, traffic == Traffic::Bandwidth, class), cost);
    }

    /// All of it: channel, traffic, class and cost.
    pub fn all(&self) -> impl Iterator<Item = (Channel, Traffic, u8, f64)> {
        self.costs.iter().map(|(&(channel, is_bandwidth, class), &cost)| {
            let traffic = if is_bandwidth { Traffic::Bandwidth } else { Traffic::Latency };
            (channel, traffic, class, cost)
        })
    }
}

/// A channel is far behind when it takes so many times what the best one does.
const HOPELESS_RATIO: f64 = 2.0;

/// Nanoseconds that opening the peer's memory may have added to a sample: a single one is not believed to
/// that extent. 300 us were seen for cudaIPC.
const MAX_MAPPING_COST_NS: f64 = 500_000.0;

/// The share of the messages' time that measuring one channel may cost. Each has its own: samples of a slow
/// one must not keep from being measured one whose first sample was chance.
const SAMPLING_BUDGET: f64 = 0.025;

/// The share that may go into trying channels again that were dearer: what is known of them may be wrong, and
/// what is not taken is not corrected.
const RESAMPLING_BUDGET: f64 = 0.01;

/// Nanoseconds that it may cost before there were messages.
const INITIAL_BUDGET_NS: f64 = 500_000.0;

/// Nanoseconds that the first message of a process by a channel may take besides, since memory is made for it
/// and opened: 3 to 5 ms were seen for bounce buffers of two H100 (2026-11-27).
const FIRST_USE_NS: f64 = 5e6;

/// What measuring a channel has cost, in nanoseconds.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Spent(f64);

impl Spent {
    /// A sample has cost so much more than the best channel.
    pub(super) fn add(&mut self, more: f64) {
        self.0 += more.max(0.0);
    }
}

/// What messages have taken, and what it has cost to try channels again, in nanoseconds.
///
/// A message by a slow channel takes as long as hundreds by a fast one, so a channel is measured only where
/// what is known of it does not say already that it is far behind, and only as long as all measuring together
/// takes a small share of the time of the messages. What is known is turned into bounds: a longer message
/// takes no less time than a shorter one, and no more than in proportion to its length.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SamplingBudget {
    again: f64,
    all: f64,
}

impl SamplingBudget {
    /// A message has taken so long.
    pub(super) fn add(&mut self, nanoseconds: f64) {
        self.all += nanoseconds;
    }

    /// A channel that is not the cheapest was tried again, which has cost so much more.
    pub(super) fn add_again(&mut self, more: f64) {
        self.again += more.max(0.0);
    }

    /// Whether a channel may be tried again that is expected to cost so much more, and which this process has
    /// used or not.
    pub(super) fn allows_again(&self, expected: f64, is_used: bool) -> bool {
        let first = if is_used { 0.0 } else { FIRST_USE_NS };
        self.again + expected.max(0.0) + first <= RESAMPLING_BUDGET * self.all
    }

    /// Whether a sample may be taken of a channel that is expected to cost so much.
    pub(super) fn allows(&self, spent: Spent, expected: f64) -> bool {
        spent.0 + expected.max(0.0) <= INITIAL_BUDGET_NS + SAMPLING_BUDGET * self.all
    }
}

/// What a message of one class takes by one channel, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct ChannelEstimate {
    /// No less than this.
    pub(super) min: f64,
    /// No more than this, where something is known.
    pub(super) max: Option<f64>,
    /// As far as one can say: what was found, or the least.
    pub(super) expected: f64,
}

impl ChannelEstimate {
    /// Of a class, from what was measured of this class and of smaller ones, in ascending order.
    pub(super) fn new<'a>(channel: Channel, measured: impl Iterator<Item = &'a Measured>) -> Self {
        // The class and time of the largest one measured, and the least time of those below it.
        let mut largest_measured: Option<(usize, &Measured, f64)> = None;
        let (mut below_largest, mut min_time) = (f64::INFINITY, f64::INFINITY);
        let mut class = 0;
        for (at, of_class) in measured.enumerate() {
            class = at;
            if let Some(cost) = of_class.estimate() {
                let time = cost * invented(bytes_of(at));
                below_largest = min_time;
                min_time = min_time.min(time);
                largest_measured = Some((at, of_class, time));
            }
        }
        let by_rate = bytes_of(class) / channel.max_rate();
        let Some((at, of_class, time)) = largest_measured else {
            return Self { min: by_rate, max: None, expected: by_rate };
        };
        let sure = if of_class.is_known() { time } else { time - MAX_MAPPING_COST_NS };
        if at == class {
            return Self { min: sure.max(0.0), max: Some(time), expected: time };
        }
        let longer = bytes_of(class) / bytes_of(at);
        let max = time * longer;
        // What is above twice the time of short messages is believed to grow with the length; less may be
        // chance.
        let growing = (sure - 2.0 * below_largest).max(0.0);
        let min = (sure + growing * (longer - 1.0)).max(by_rate).min(max).max(0.0);
        Self { min, max: Some(max), expected: min }
    }

    /// Whether this channel is already clearly far behind another channel that takes `best`.
    pub(super) fn is_hopeless(&self, best: f64) -> bool {
        self.min > best * HOPELESS_RATIO
    }
}

/// The least size of a class.
fn bytes_of(class: usize) -> f64 {
    // At most 64.
    class.checked_sub(1).map_or(0.0, |power| 2.0_f64.powi(power as i32))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(samples: &[(u64, f64)], classes: usize) -> Vec<Measured> {
        let mut measured = vec![Measured::default(); classes];
        for (bytes, time) in samples {
            measured[usize::from(class(*bytes))].observe(*bytes, *time);
        }
        measured
    }

    fn estimate(channel: Channel, samples: &[(u64, f64)], bytes: u64) -> ChannelEstimate {
        let classes = usize::from(class(bytes)) + 1;
        ChannelEstimate::new(channel, of(samples, classes).iter())
    }

    #[test]
    fn nothing_is_known_but_the_published_rate() {
        let ipc = estimate(Channel::Ipc, &[], 64 << 20);
        assert_eq!(ipc, ChannelEstimate { min: 0.0, max: None, expected: 0.0 });
        // 64 MiB through a host take 0.5 ms at least, and 0.08 ms within a GPU.
        let staged = estimate(Channel::Staged, &[], 64 << 20);
        assert!(staged.is_hopeless(80_000.0) && !staged.is_hopeless(300_000.0), "{staged:?}");
    }

    #[test]
    fn longer_messages_lie_between_two_bounds() {
        let three = |bytes, time| [(bytes, time); 3];
        let one = estimate(Channel::Vmm, &three(1 << 10, 10_000.0), 1 << 13);
        assert!((one.min - 10_000.0).abs() < 1.0, "{one:?}");
        assert!((one.max.unwrap() - 80_000.0).abs() < 1.0, "{one:?}");
        // Twice as much for a longer message may be chance, five times is not.
        let samples = [three(1 << 10, 10_000.0), three(1 << 13, 20_000.0)].concat();
        assert!((estimate(Channel::Vmm, &samples, 1 << 16).min - 20_000.0).abs() < 1.0);
        let samples = [three(1 << 10, 10_000.0), three(1 << 13, 50_000.0)].concat();
        assert!((estimate(Channel::Vmm, &samples, 1 << 16).min - 260_000.0).abs() < 1.0);
    }

    #[test]
    fn a_single_sample_may_have_opened_the_memory() {
        let once = estimate(Channel::Vmm, &[(1 << 20, 300_000.0)], 1 << 20);
        assert_eq!((once.min, once.expected.round()), (0.0, 300_000.0));
        let long = estimate(Channel::Vmm, &[(1 << 20, 12e6)], 1 << 21);
        assert!(long.is_hopeless(80_000.0), "{long:?}");
    }

    #[test]
    fn measuring_a_channel_may_cost_a_fortieth() {
        let (mut budget, mut spent) = (SamplingBudget::default(), Spent::default());
        assert!(budget.allows(spent, INITIAL_BUDGET_NS) && !budget.allows(spent, INITIAL_BUDGET_NS * 1.01));
        budget.add(20e6);
        spent.add(6e6);
        assert!(!budget.allows(spent, 0.0));
        assert!(budget.allows(Spent::default(), 1e6), "another channel has its own share");
        // 6 ms are a fortieth of 240, less what is free at first.
        budget.add(190e6);
        assert!(!budget.allows(spent, 0.0));
        budget.add(20e6);
        assert!(budget.allows(spent, 0.0) && !budget.allows(spent, 1e6));
    }

    #[test]
    fn the_first_use_of_a_channel_waits_for_many_messages() {
        let mut budget = SamplingBudget::default();
        budget.add(200e6);
        assert!(budget.allows_again(1e6, true) && !budget.allows_again(1e6, false));
        budget.add(400e6);
        assert!(budget.allows_again(1e6, false));
        // Opening counts as well.
        budget.add_again(5.5e6);
        assert!(!budget.allows_again(1e6, true));
    }
}
