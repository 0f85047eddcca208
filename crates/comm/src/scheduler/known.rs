//! Measured costs of channels, by size class.
//!
//! Costs of messages of one class differ by their sizes. So that those of several channels compare, each is
//! taken as a multiple of what a message of that size costs on an invented channel, which needs 5 us and then
//! carries 20 bytes a nanosecond.

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
