//! Which channel does a message take, and why?
//!
//! A pure decision from the message's size, the traffic with its peer, the channels that the two ranks have,
//! and what each costs. As long as one of the channels has not been measured, the published table of C-GDR
//! (2019, K80 and ConnectX-4) decides; then the costs do. What messages really take corrects the costs
//! ([`Scheduler::observe`]).

mod curve;
mod published;

use core::fmt;

pub use curve::{Curve, CurveError};

use crate::channels::Channel;
use crate::tracer::Traffic;

/// The share of a new observation in what is remembered.
const SHARE: f64 = 1.0 / 8.0;

/// How much cheaper another channel must be than the one that was taken last for such messages.
const ADVANTAGE: f64 = 0.95;

/// Observations that differ more than this from what was expected are taken for so much: the machine was
/// busy.
const MOST_CORRECTION: f64 = 8.0;

/// Classes of sizes: those whose sizes have the same highest bit, and none.
const CLASSES: usize = 65;

/// What a channel costs between two ranks, in nanoseconds by bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct Cost {
    /// From a message's start to its end, when nothing else is under way.
    pub latency: Curve,
    /// From one message's end to the next one's, when several are under way.
    pub gap: Curve,
}

/// Why a channel was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// There is no other.
    Only,
    /// It is the published one for this size and traffic.
    Published,
    /// The published one is not there, and it is the next best.
    InsteadOfPublished,
    /// It has the lowest cost.
    Cheapest,
    /// Another would be cheaper by too little to change.
    Kept,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Only => "there is no other",
            Self::Published => "the published table names it, and not all channels have been measured",
            Self::InsteadOfPublished => "the channel of the published table is not there",
            Self::Cheapest => "it costs least",
            Self::Kept => "it was taken before, and no other is better by 5 %",
        })
    }
}

/// A channel and why it was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    /// The channel.
    pub channel: Channel,
    /// Why.
    pub reason: Reason,
}

/// A channel that two ranks have, with what is known of it.
#[derive(Debug, Clone)]
struct Candidate {
    channel: Channel,
    cost: Option<Cost>,
    /// What messages have taken in proportion to what was expected, by class of size and traffic.
    correction: Box<[[f64; 2]; CLASSES]>,
}

/// Chooses among the channels of two ranks.
#[derive(Debug, Clone)]
pub struct Scheduler {
    candidates: Vec<Candidate>,
    /// The channel that was taken last, by class of size and traffic.
    last: Box<[[Option<Channel>; 2]; CLASSES]>,
}

impl Scheduler {
    /// For a pair of ranks with these channels; a cost is missing where none has been measured. A channel
    /// that is named twice counts once.
    pub fn new(channels: impl IntoIterator<Item = (Channel, Option<Cost>)>) -> Self {
        let mut candidates: Vec<Candidate> = Vec::new();
        for (channel, cost) in channels {
            if candidates.iter().all(|candidate| candidate.channel != channel) {
                candidates.push(Candidate { channel, cost, correction: Box::new([[1.0; 2]; CLASSES]) });
            }
        }
        Self { candidates, last: Box::new([[None; 2]; CLASSES]) }
    }

    /// The channel for a message of so many bytes; none when the ranks have no channel at all.
    pub fn choose(&mut self, bytes: u64, traffic: Traffic) -> Option<Choice> {
        let choice = self.decide(bytes, traffic)?;
        self.last[class(bytes)][column(traffic)] = Some(choice.channel);
        Some(choice)
    }

    fn decide(&self, bytes: u64, traffic: Traffic) -> Option<Choice> {
        if let [only] = self.candidates.as_slice() {
            return Some(Choice { channel: only.channel, reason: Reason::Only });
        }
        let costs: Option<Vec<(Channel, f64)>> = self
            .candidates
            .iter()
            .map(|candidate| Some((candidate.channel, candidate.expected(bytes, traffic)?)))
            .collect();
        let Some(costs) = costs else { return self.published(bytes, traffic) };
        let (cheapest, lowest) = costs.iter().min_by(|a, b| a.1.total_cmp(&b.1))?;
        let last = self.last[class(bytes)][column(traffic)];
        let kept = costs.iter().find(|(channel, _)| Some(*channel) == last && channel != cheapest);
        Some(match kept {
            Some((channel, cost)) if *lowest > cost * ADVANTAGE => {
                Choice { channel: *channel, reason: Reason::Kept }
            }
            _ => Choice { channel: *cheapest, reason: Reason::Cheapest },
        })
    }

    fn published(&self, bytes: u64, traffic: Traffic) -> Option<Choice> {
        let order = published::order(bytes, traffic);
        let there = |channel: &Channel| self.candidates.iter().any(|candidate| candidate.channel == *channel);
        let at = order.iter().position(there)?;
        let reason = if at == 0 { Reason::Published } else { Reason::InsteadOfPublished };
        Some(Choice { channel: order[at], reason })
    }

    /// Keeps what has been measured of a channel; what was observed before counts no more.
    pub fn measured(&mut self, channel: Channel, cost: Cost) {
        if let Some(candidate) = self.candidates.iter_mut().find(|candidate| candidate.channel == channel) {
            candidate.cost = Some(cost);
            *candidate.correction = [[1.0; 2]; CLASSES];
        }
    }

    /// Keeps what a message has taken, in nanoseconds: its latency, or the time since the end of the one
    /// before.
    pub fn observe(&mut self, channel: Channel, bytes: u64, traffic: Traffic, nanoseconds: f64) {
        let Some(candidate) = self.candidates.iter_mut().find(|candidate| candidate.channel == channel)
        else {
            return;
        };
        let Some(expected) = candidate.cost.as_ref().map(|cost| cost.of(bytes, traffic)) else { return };
        let ratio = nanoseconds / expected;
        if ratio.is_finite() && ratio > 0.0 {
            let known = &mut candidate.correction[class(bytes)][column(traffic)];
            *known += (ratio.clamp(1.0 / MOST_CORRECTION, MOST_CORRECTION) - *known) * SHARE;
        }
    }
}

impl Candidate {
    fn expected(&self, bytes: u64, traffic: Traffic) -> Option<f64> {
        let cost = self.cost.as_ref()?;
        Some(cost.of(bytes, traffic) * self.correction[class(bytes)][column(traffic)])
    }
}

impl Cost {
    fn of(&self, bytes: u64, traffic: Traffic) -> f64 {
        match traffic {
            Traffic::Latency => self.latency.at(bytes),
            Traffic::Bandwidth => self.gap.at(bytes),
        }
    }
}

fn class(bytes: u64) -> usize {
    (u64::BITS - bytes.leading_zeros()) as usize
}

fn column(traffic: Traffic) -> usize {
    usize::from(traffic == Traffic::Bandwidth)
}

#[cfg(test)]
mod tests;
