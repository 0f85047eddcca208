//! Which channel does a message take, and why?
//!
//! A pure decision from the message's size, the traffic with its peer, the channels that the two ranks have,
//! and what each has cost. The first message of a class of sizes goes by the channel of the published table of
//! C-GDR (2019, K80 and ConnectX-4); the next ones measure each channel, unless a profile of earlier jobs
//! knows what they cost; then the cheapest is taken. What messages really take corrects the costs
//! ([`Scheduler::observe`]).

mod known;
mod published;

use core::fmt;

pub use known::{Known, LARGEST_CLASS, MOST_COST, class};

use crate::channels::Channel;
use crate::tracer::Traffic;
use known::Measured;

/// How much cheaper another channel must be than the one that was taken last for such messages.
const ADVANTAGE: f64 = 0.95;

/// A channel that costs so many times what the best one does is not measured for the next larger classes: a
/// long message by a slow channel takes as long as hundreds by a fast one.
const HOPELESS: f64 = 3.0;

/// The first class of long messages: 512 KiB.
const LONG: usize = 20;

/// One in so many classes of long messages is measured with all channels.
const MEASURED_EVERY: usize = 3;

/// Why a channel was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// There is no other.
    Only,
    /// It is the published one for this size and traffic.
    Published,
    /// The published one is not there, and it is the next best.
    InsteadOfPublished,
    /// What it costs is to be found out.
    Measuring,
    /// It has the lowest cost.
    Cheapest,
    /// Another would be cheaper by too little to change.
    Kept,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Only => "there is no other",
            Self::Published => "the published table names it, and nothing has been measured",
            Self::InsteadOfPublished => {
                "the channel of the published table is not there, and nothing has been measured"
            }
            Self::Measuring => "to find out what it costs",
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
    /// By class of size and traffic.
    measured: Vec<[Measured; 2]>,
}

/// Chooses among the channels of two ranks.
#[derive(Debug, Clone)]
pub struct Scheduler {
    candidates: Vec<Candidate>,
    /// The channel that was taken last, by class of size and traffic.
    last: Vec<[Option<Channel>; 2]>,
}

impl Scheduler {
    /// For a pair of ranks with these channels, of which that is known. A channel that is named twice counts
    /// once.
    pub fn new(channels: impl IntoIterator<Item = Channel>, known: &Known) -> Self {
        let mut candidates: Vec<Candidate> = Vec::new();
        for channel in channels {
            if candidates.iter().all(|candidate| candidate.channel != channel) {
                let of_class = |class| {
                    [Traffic::Latency, Traffic::Bandwidth]
                        .map(|traffic| Measured::known(known.get(channel, traffic, class)))
                };
                let measured = (0..=LARGEST_CLASS).map(of_class).collect();
                candidates.push(Candidate { channel, measured });
            }
        }
        Self { candidates, last: vec![[None; 2]; usize::from(LARGEST_CLASS) + 1] }
    }

    /// The channel for a message of so many bytes; none when the ranks have no channel at all.
    pub fn choose(&mut self, bytes: u64, traffic: Traffic) -> Option<Choice> {
        let choice = self.decide(bytes, traffic)?;
        // What is measured is not taken for what it costs.
        if choice.reason != Reason::Measuring {
            self.last[usize::from(class(bytes))][column(traffic)] = Some(choice.channel);
        }
        Some(choice)
    }

    fn decide(&self, bytes: u64, traffic: Traffic) -> Option<Choice> {
        if let [only] = self.candidates.as_slice() {
            return Some(Choice { channel: only.channel, reason: Reason::Only });
        }
        let (class, column) = (usize::from(class(bytes)), column(traffic));
        let hopeful: Vec<_> =
            self.candidates.iter().filter(|candidate| !self.is_hopeless(candidate, class, column)).collect();
        let samples = |candidate: &&Candidate| candidate.measured[class][column].samples();
        if hopeful.iter().all(|candidate| samples(candidate) == 0) {
            return self.published(&hopeful, bytes, traffic, None);
        }
        let unmeasured: Vec<_> = hopeful
            .iter()
            .copied()
            .filter(|candidate| !candidate.measured[class][column].is_known())
            .collect();
        if let Some(fewest) = unmeasured.iter().map(samples).min() {
            let next: Vec<_> =
                unmeasured.into_iter().filter(|candidate| samples(candidate) == fewest).collect();
            return self.published(&next, bytes, traffic, Some(Reason::Measuring));
        }
        let cost = |candidate: &&Candidate| candidate.measured[class][column].cost();
        let cheapest = hopeful.iter().min_by(|a, b| cost(a).total_cmp(&cost(b)))?;
        let last = self.last[class][column];
        let kept =
            hopeful.iter().find(|other| Some(other.channel) == last && other.channel != cheapest.channel);
        Some(match kept {
            Some(kept) if cost(cheapest) > cost(kept) * ADVANTAGE => {
                Choice { channel: kept.channel, reason: Reason::Kept }
            }
            _ => Choice { channel: cheapest.channel, reason: Reason::Cheapest },
        })
    }

    /// Whether a channel is not worth being measured for a class of long messages, since it is far behind where
    /// it has been. Every third class is measured all the same: costs change with size.
    fn is_hopeless(&self, candidate: &Candidate, class: usize, column: usize) -> bool {
        let near = class - class % MEASURED_EVERY;
        if class < LONG || class == near || candidate.measured[class][column].is_known() {
            return false;
        }
        let own = candidate.measured[near][column];
        let known =
            self.candidates.iter().map(|other| other.measured[near][column]).filter(Measured::is_known);
        let best = known.map(|known| known.cost()).min_by(f64::total_cmp);
        own.is_known() && best.is_some_and(|best| own.cost() > best * HOPELESS)
    }

    /// The published one of these.
    fn published(
        &self,
        among: &[&Candidate],
        bytes: u64,
        traffic: Traffic,
        reason: Option<Reason>,
    ) -> Option<Choice> {
        let order = published::order(bytes, traffic);
        let there = |channel: &Channel| among.iter().any(|candidate| candidate.channel == *channel);
        let at = order.iter().position(there)?;
        let usual = if at == 0 { Reason::Published } else { Reason::InsteadOfPublished };
        Some(Choice { channel: order[at], reason: reason.unwrap_or(usual) })
    }

    /// Keeps what a message has taken, in nanoseconds, from its start to its end.
    pub fn observe(&mut self, channel: Channel, bytes: u64, traffic: Traffic, nanoseconds: f64) {
        let found = self.candidates.iter_mut().find(|candidate| candidate.channel == channel);
        if let Some(candidate) = found {
            candidate.measured[usize::from(class(bytes))][column(traffic)].observe(bytes, nanoseconds);
        }
    }

    /// Adds to `known` what has been found out.
    pub fn tell(&self, known: &mut Known) {
        for candidate in &self.candidates {
            for (class, of_class) in (0..=LARGEST_CLASS).zip(&candidate.measured) {
                for traffic in [Traffic::Latency, Traffic::Bandwidth] {
                    let measured = &of_class[column(traffic)];
                    if measured.is_known() {
                        known.set(candidate.channel, traffic, class, measured.cost());
                    }
                }
            }
        }
    }
}

fn column(traffic: Traffic) -> usize {
    usize::from(traffic == Traffic::Bandwidth)
}

#[cfg(test)]
mod tests;
