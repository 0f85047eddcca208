//! Channel selection.
//!
//! A pure decision from the message's size, the traffic with its peer, the channels that the two ranks have,
//! and what each has cost. Where the user gives a table, that decides (`table`). Otherwise the first message
//! of a class of sizes goes by the channel of the published table of C-GDR (2019, K80 and ConnectX-4); the
//! next ones measure each channel, unless a profile of earlier jobs knows what they cost, or it is not worth
//! while (`cost`); then the cheapest is taken. What messages really take corrects the costs
//! ([`Scheduler::observe`]).

mod cost;
mod table;

use core::fmt;
use std::sync::Arc;

pub use cost::{Known, MAX_COST, MAX_SIZE_CLASS, class};

pub use table::{Inputs, Table, TableError};

use crate::channels::Channel;
use crate::tracer::Traffic;
use cost::{BASE_COST_NS, ChannelEstimate, Measured, SamplingBudget, Spent, invented};

/// Messages of a class after which a channel that was not taken for them is worth another try.
const RESAMPLE_INTERVAL: u64 = 32;

/// How much cheaper another channel must be than the one that was taken last for such messages.
const HYSTERESIS_RATIO: f64 = 0.95;

/// Why a channel was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// There is no other.
    Only,
    /// The user's table names it.
    Table,
    /// It is the published one for this size and traffic.
    Published,
    /// The published one is not there, and it is the next best.
    InsteadOfPublished,
    /// What it costs is to be found out.
    Measuring,
    /// Whether the channel still costs more is to be found out.
    Again,
    /// It has the lowest cost.
    Cheapest,
    /// Another would be cheaper by too little to change.
    Hysteresis,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Only => "there is no other",
            Self::Table => "CAUSEWAY_COMM_TABLE names it",
            Self::Published => "the published table names it, and nothing has been measured",
            Self::InsteadOfPublished => {
                "the channel of the published table is not there, and nothing has been measured"
            }
            Self::Measuring => "to find out what it costs",
            Self::Again => "to find out whether it still costs more",
            Self::Cheapest => "it costs least",
            Self::Hysteresis => "it was taken before, and no other is better by 5 %",
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

/// A channel that a message has taken, why, and what that was decided by besides the ranks and the size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Decision {
    /// The channel.
    pub channel: Channel,
    /// Why.
    pub reason: Reason,
    /// The traffic with the peer.
    pub traffic: Traffic,
    /// Whether it goes into memory on a GPU, and not of the host.
    pub to_gpu: bool,
    /// Whether RDMA devices reach the memory at both ends, where the channel is one of theirs.
    pub is_gpudirect: bool,
}

/// A channel that two ranks have, with what is known of it.
#[derive(Debug, Clone)]
struct Candidate {
    channel: Channel,
    /// By class of size and traffic.
    measured: Vec<[Measured; 2]>,
    /// What measuring it has cost.
    spent: Spent,
    /// Whether a message of this process has gone by it.
    is_used: bool,
}

/// Chooses among the channels of two ranks.
#[derive(Debug, Clone)]
pub struct Scheduler {
    candidates: Vec<Candidate>,
    /// The channel that was taken last, by class of size and traffic.
    last: Vec<[Option<Channel>; 2]>,
    /// Messages so far, by class of size and traffic.
    message_counts: Vec<[u64; 2]>,
    budget: SamplingBudget,
    /// The user's table, and what it decides by.
    table: Option<(Arc<Table>, Inputs)>,
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
                let measured = (0..=MAX_SIZE_CLASS).map(of_class).collect();
                candidates.push(Candidate { channel, measured, spent: Spent::default(), is_used: false });
            }
        }
        let last = vec![[None; 2]; usize::from(MAX_SIZE_CLASS) + 1];
        let message_counts = vec![[0; 2]; usize::from(MAX_SIZE_CLASS) + 1];
        Self { candidates, last, message_counts, budget: SamplingBudget::default(), table: None }
    }

    /// The same, where a table of the user's decides for such messages.
    #[must_use]
    pub fn with_table(mut self, table: Arc<Table>, inputs: Inputs) -> Self {
        self.table = Some((table, inputs));
        self
    }

    /// The channel that the user's table names, if the ranks have one that it does.
    fn by_table(&self, bytes: u64, traffic: Traffic) -> Option<Channel> {
        let (table, inputs) = self.table.as_ref()?;
        let has = |channel: &Channel| self.candidates.iter().any(|candidate| candidate.channel == *channel);
        table.channels(bytes, traffic, *inputs)?.iter().copied().find(has)
    }

    /// The channel for a message of so many bytes; none when the ranks have no channel at all.
    pub fn choose(&mut self, bytes: u64, traffic: Traffic) -> Option<Choice> {
        let choice = self.decide(bytes, traffic)?;
        let (class, column) = (usize::from(class(bytes)), column(traffic));
        // What is measured is not taken for what it costs.
        if !matches!(choice.reason, Reason::Measuring | Reason::Again) {
            self.last[class][column] = Some(choice.channel);
        }
        self.message_counts[class][column] += 1;
        let chosen = self.candidates.iter_mut().find(|candidate| candidate.channel == choice.channel);
        if let Some(chosen) = chosen {
            chosen.measured[class][column].last_message = self.message_counts[class][column];
            chosen.is_used = true;
        }
        Some(choice)
    }

    fn decide(&self, bytes: u64, traffic: Traffic) -> Option<Choice> {
        if let [only] = self.candidates.as_slice() {
            return Some(Choice { channel: only.channel, reason: Reason::Only });
        }
        if let Some(channel) = self.by_table(bytes, traffic) {
            return Some(Choice { channel, reason: Reason::Table });
        }
        let (class, column) = (usize::from(class(bytes)), column(traffic));
        let sampled: Vec<_> = self
            .candidates
            .iter()
            .filter_map(|candidate| Some((candidate.channel, candidate.measured[class][column].estimate()?)))
            .collect();
        let (viable, best) = self.viable(class, column);
        if sampled.is_empty() {
            return self.published(&viable, bytes, traffic, None);
        }
        let pays = |(candidate, estimate): &(&Candidate, ChannelEstimate)| {
            let more = estimate.expected - best.unwrap_or(estimate.expected);
            !candidate.measured[class][column].is_known() && self.budget.allows(candidate.spent, more)
        };
        let mut worth = viable;
        worth.retain(pays);
        // One that may be far behind waits until the others are known: then it may not be worth a sample.
        let soonest = worth.iter().map(|(_, estimate)| estimate.min).fold(f64::INFINITY, f64::min);
        worth.retain(|(_, estimate)| estimate.min <= soonest + BASE_COST_NS);
        let samples =
            |(candidate, _): &(&Candidate, ChannelEstimate)| candidate.measured[class][column].samples();
        if let Some(fewest) = worth.iter().map(samples).min() {
            worth.retain(|one| samples(one) == fewest);
            return self.published(&worth, bytes, traffic, Some(Reason::Measuring));
        }
        let (cheapest, cost) = *sampled.iter().min_by(|(_, a), (_, b)| a.total_cmp(b))?;
        if let Some(channel) = self.to_try_again(class, column, cost, bytes) {
            return Some(Choice { channel, reason: Reason::Again });
        }
        let last = self.last[class][column];
        let last_chosen = sampled.iter().find(|(channel, _)| Some(*channel) == last && *channel != cheapest);
        Some(match last_chosen {
            Some((last_chosen, last_cost)) if cost > last_cost * HYSTERESIS_RATIO => {
                Choice { channel: *last_chosen, reason: Reason::Hysteresis }
            }
            _ => Choice { channel: cheapest, reason: Reason::Cheapest },
        })
    }

    /// A channel that was not taken for long, where a try costs little beside all messages.
    fn to_try_again(&self, class: usize, column: usize, min: f64, bytes: u64) -> Option<Channel> {
        let is_due = |candidate: &&Candidate| {
            let measured = &candidate.measured[class][column];
            measured.is_known()
                && measured.last_message + RESAMPLE_INTERVAL <= self.message_counts[class][column]
        };
        let due = self.candidates.iter().filter(is_due);
        let cost = |candidate: &Candidate| candidate.measured[class][column].cost();
        let next = due.min_by(|one, other| cost(one).total_cmp(&cost(other)))?;
        let more = (cost(next) - min) * invented(bytes as f64);
        self.budget.allows_again(more, next.is_used).then_some(next.channel)
    }

    /// The channels that are not far behind for a class of sizes, and the least that one is sure to take at
    /// the most; no channel where all are known, and nothing has to be found out.
    fn viable(&self, class: usize, column: usize) -> (Vec<(&Candidate, ChannelEstimate)>, Option<f64>) {
        if self.candidates.iter().all(|candidate| candidate.measured[class][column].is_known()) {
            return (Vec::new(), None);
        }
        let estimate = |candidate: &Candidate| {
            let measured = candidate.measured[..=class].iter().map(|of_class| &of_class[column]);
            ChannelEstimate::new(candidate.channel, measured)
        };
        let mut viable: Vec<_> =
            self.candidates.iter().map(|candidate| (candidate, estimate(candidate))).collect();
        let best = viable.iter().filter_map(|(_, estimate)| estimate.max).min_by(f64::total_cmp);
        viable.retain(|(_, estimate)| best.is_none_or(|best| !estimate.is_hopeless(best)));
        (viable, best)
    }

    /// The published one of these.
    fn published(
        &self,
        among: &[(&Candidate, ChannelEstimate)],
        bytes: u64,
        traffic: Traffic,
        reason: Option<Reason>,
    ) -> Option<Choice> {
        let order = table::published_order(bytes, traffic);
        let there = |channel: &Channel| among.iter().any(|(candidate, _)| candidate.channel == *channel);
        let at = order.iter().position(there)?;
        let from_table = if at == 0 { Reason::Published } else { Reason::InsteadOfPublished };
        Some(Choice { channel: order[at], reason: reason.unwrap_or(from_table) })
    }

    /// Keeps what a message has taken, in nanoseconds, from its start to its end.
    pub fn observe(&mut self, channel: Channel, bytes: u64, traffic: Traffic, nanoseconds: f64) {
        let more = self.more_than_others(channel, bytes, traffic, nanoseconds);
        let (class, column) = (usize::from(class(bytes)), column(traffic));
        let found = self.candidates.iter_mut().find(|candidate| candidate.channel == channel);
        let Some(candidate) = found else { return };
        let measured = &mut candidate.measured[class][column];
        let (had_estimate, had) = (measured.is_known(), measured.samples());
        measured.observe(bytes, nanoseconds);
        // What makes no sense was not kept.
        if had_estimate || measured.samples() > had {
            self.budget.add(nanoseconds);
            if !had_estimate {
                candidate.spent.add(more);
            } else if self.last[class][column] != Some(channel) {
                self.budget.add_again(more);
            }
        }
    }

    /// A message has taken so long, since memory was opened for it that stays open: that is not what its
    /// channel costs, but it is what it has cost to try the channel again.
    pub fn observe_opening(&mut self, channel: Channel, bytes: u64, traffic: Traffic, nanoseconds: f64) {
        if self.last[usize::from(class(bytes))][column(traffic)].is_some_and(|last| last != channel) {
            self.budget.add_again(self.more_than_others(channel, bytes, traffic, nanoseconds));
        }
    }

    /// How much longer a message has taken than by the best of the other channels; nothing where none is
    /// known.
    fn more_than_others(&self, channel: Channel, bytes: u64, traffic: Traffic, nanoseconds: f64) -> f64 {
        let (class, column) = (usize::from(class(bytes)), column(traffic));
        let others = self.candidates.iter().filter(|candidate| candidate.channel != channel);
        let others = others.filter_map(|candidate| candidate.measured[class][column].estimate());
        let best = others.min_by(f64::total_cmp).map(|cost| cost * invented(bytes as f64));
        best.map_or(0.0, |best| nanoseconds - best)
    }

    /// Adds to `known` what has been found out. A channel that was not measured to the end counts where it
    /// was dearer than one that was: short jobs do not get further with it, and would each begin anew.
    pub fn learn_into(&self, known: &mut Known) {
        for class in 0..=MAX_SIZE_CLASS {
            for traffic in [Traffic::Latency, Traffic::Bandwidth] {
                let of_class =
                    |candidate: &Candidate| candidate.measured[usize::from(class)][column(traffic)];
                let to_the_end = self.candidates.iter().map(of_class).filter(Measured::is_known);
                let Some(min) = to_the_end.map(|measured| measured.cost()).min_by(f64::total_cmp) else {
                    continue;
                };
                for candidate in &self.candidates {
                    let measured = of_class(candidate);
                    if let Some(cost) = measured.estimate()
                        && (measured.is_known() || cost > min)
                    {
                        known.set(candidate.channel, traffic, class, cost);
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
