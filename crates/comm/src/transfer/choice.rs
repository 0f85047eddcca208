//! Channel choice of a receiver: which channels it has with a peer, which of them are left alone for a while
//! since they failed, and whether the time of a fetch is what its channel costs.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_config::read::PROCESS;
use causeway_config::table::VIA;

use crate::channels::{Channel, Ends, Joined, Missing, TransferError};
use crate::cuda::{self, Driver};
use crate::live::Live;
use crate::pair::Pair;
use crate::profile::Profile;
use crate::scheduler::{Choice, Inputs, Known, Scheduler, Table};
use crate::tracer::Traffic;

/// Messages that have the same channels, at the same cost.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct MessageKind {
    pub(super) channels: Vec<Channel>,
    pub(super) joined: Joined,
    /// Whether the sender's memory can be exported itself.
    pub(super) is_direct: bool,
    /// Whether cards reach the memory at both ends.
    pub(super) is_gpudirect: bool,
    /// The device into whose memory they come; none for memory of the host.
    pub(super) device: Option<i32>,
}

/// Chooses for the messages of one peer.
#[derive(Debug)]
pub(super) struct Chooser {
    pair: Pair,
    /// Whether the two meet over a network.
    is_network: bool,
    allowed: Vec<Channel>,
    /// What the owner lets this rank use now.
    live: Arc<Live>,
    failures: Failures,
    /// The user's.
    table: Option<Arc<Table>>,
    /// What earlier jobs have found out.
    profile: Profile,
    schedulers: HashMap<MessageKind, (String, Scheduler)>,
}

impl Chooser {
    pub(super) fn new(
        pair: Pair,
        is_network: bool,
        allowed: Vec<Channel>,
        live: Arc<Live>,
        table: Option<Arc<Table>>,
        profile: Profile,
    ) -> Self {
        let (failures, schedulers) = (Failures::default(), HashMap::new());
        Self { pair, is_network, allowed, live, failures, table, profile, schedulers }
    }

    /// What lies between the two ranks, in words: where the peer is, and how far apart their processors are.
    pub(super) fn between(&self) -> String {
        format!("{}, {}", self.pair.locality, self.pair.distance)
    }

    /// The channel for a message of so many bytes; none where there is none.
    pub(super) fn choose(&mut self, kind: &MessageKind, bytes: u64, traffic: Traffic) -> Option<Choice> {
        self.scheduler(kind).choose(bytes, traffic)
    }

    /// A message has taken so long.
    pub(super) fn took(
        &mut self,
        kind: &MessageKind,
        by: Channel,
        bytes: u64,
        traffic: Traffic,
        time: Duration,
    ) {
        self.failures.succeeded(by);
        self.scheduler(kind).observe(by, bytes, traffic, time.as_nanos() as f64);
    }

    /// A message has taken so long, and has opened memory that stays open.
    pub(super) fn opened(
        &mut self,
        kind: &MessageKind,
        by: Channel,
        bytes: u64,
        traffic: Traffic,
        time: Duration,
    ) {
        self.failures.succeeded(by);
        self.scheduler(kind).observe_opening(by, bytes, traffic, time.as_nanos() as f64);
    }

    /// A channel has failed.
    pub(super) fn failed(&mut self, channel: Channel, error: &TransferError) {
        if error.is_of_channel() {
            self.failures.failed(channel, error.needs_long(), Instant::now());
        }
    }

    /// What chooses for a kind of messages.
    fn scheduler(&mut self, kind: &MessageKind) -> &mut Scheduler {
        let new = || {
            let name = name(&self.pair, kind);
            let mut scheduler = Scheduler::new(kind.channels.iter().copied(), &self.profile.of(&name));
            if let Some(table) = &self.table {
                let (locality, distance) = (self.pair.locality, self.pair.distance);
                let inputs = Inputs { locality, distance, to_gpu: kind.device.is_some() };
                scheduler = scheduler.with_table(Arc::clone(table), inputs);
            }
            (name, scheduler)
        };
        &mut self.schedulers.entry(kind.clone()).or_insert_with(new).1
    }

    /// The channels that this peer and these two places have.
    pub(super) fn channels(&self, ends: &Ends) -> Vec<Channel> {
        Channel::ALL.into_iter().filter(|channel| self.has(*channel, ends).is_ok()).collect()
    }

    /// Those that they have and that are left alone, since they have failed or are switched off: they are
    /// tried where no other brings a message.
    pub(super) fn paused(&self, ends: &Ends) -> Vec<Channel> {
        let is_paused = |channel: &Channel| {
            matches!(self.has(*channel, ends), Err(Missing::Failed | Missing::SwitchedOff))
        };
        Channel::ALL.into_iter().filter(is_paused).collect()
    }

    /// Why they do not have the others.
    pub(super) fn why_not(&self, ends: &Ends) -> Vec<String> {
        let why = |channel: Channel| Some(format!("{channel}: {}", self.has(channel, ends).err()?));
        Channel::ALL.into_iter().filter_map(why).collect()
    }

    fn has(&self, channel: Channel, ends: &Ends) -> Result<(), Missing> {
        if !self.allowed.contains(&channel) {
            return Err(Missing::LeftOut);
        }
        channel.probe(&self.pair, ends)?;
        if channel.is_between_hosts() && !self.is_network {
            return Err(Missing::Nearer);
        }
        if !self.live.allows(channel) {
            return Err(Missing::SwitchedOff);
        }
        if self.failures.is_paused(channel, Instant::now()) { Err(Missing::Failed) } else { Ok(()) }
    }

    /// Whether the owner lets RDMA devices access the memory of this rank's GPUs.
    pub(super) fn allows_gpudirect(&self) -> bool {
        self.live.allows_gpudirect()
    }

    /// Adds to a profile what has been found out.
    pub(super) fn learn_into(&self, profile: &mut Profile) {
        for (name, scheduler) in self.schedulers.values() {
            let mut known = Known::default();
            scheduler.learn_into(&mut known);
            profile.learn(name, &known);
        }
    }
}

/// What profiles call a kind of messages: all that costs depend on.
fn name(pair: &Pair, kind: &MessageKind) -> String {
    let model = match (kind.device, Driver::loaded()) {
        (Some(device), Some(driver)) => cuda::gpu_model(driver, device),
        _ => "memory of the host".to_owned(),
    };
    let driver = match Driver::is_remote() {
        true => {
            let via = PROCESS.text(&VIA);
            format!("Causeway {}", via.as_deref().unwrap_or("auto"))
        }
        false => "native".to_owned(),
    };
    let memory = if kind.is_direct { "exported" } else { "bounced" };
    let gpudirect_suffix = if kind.is_gpudirect { ", GPUDirect" } else { "" };
    let distance = pair.distance;
    format!("{model}, {driver}, {}, {distance}, {:?}, {memory}{gpudirect_suffix}", pair.locality, kind.joined)
}

/// Failures in a row after which a channel is left alone for a while.
const MAX_FAILURES: u32 = 3;

/// The first such pause, and the longest.
const MIN_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// What has failed with a peer.
///
/// A channel may fail for reasons that pass: a program frees memory too early, a context is reset, memory or
/// descriptors are short. So nothing is left alone for good: what has failed several times in a row is tried
/// again after a pause, which grows with each failure up to a minute, and at once where there is nothing
/// else.
#[derive(Debug, Default)]
struct Failures(HashMap<Channel, Failed>);

#[derive(Debug, Default)]
struct Failed {
    in_a_row: u32,
    pause: Option<Pause>,
}

#[derive(Debug, Clone, Copy)]
struct Pause {
    until: Instant,
    length: Duration,
}

impl Failures {
    /// A channel has failed. Of one that `needs_long` to become well again the longest pause is made at once.
    fn failed(&mut self, channel: Channel, needs_long: bool, now: Instant) {
        let failed = self.0.entry(channel).or_default();
        failed.in_a_row = failed.in_a_row.saturating_add(1);
        let next = failed.pause.map_or(MIN_PAUSE, |pause| (pause.length * 2).min(MAX_PAUSE));
        let length = if needs_long { MAX_PAUSE } else { next };
        if needs_long || failed.in_a_row >= MAX_FAILURES {
            failed.pause = Some(Pause { until: now + length, length });
        }
    }

    /// It has brought a message.
    fn succeeded(&mut self, channel: Channel) {
        self.0.remove(&channel);
    }

    /// Whether it is left alone.
    fn is_paused(&self, channel: Channel, now: Instant) -> bool {
        self.0.get(&channel).and_then(|failed| failed.pause).is_some_and(|pause| now < pause.until)
    }
}

/// Channels whose last fetch has opened memory that stays open.
///
/// The first message from a buffer has to open it, which takes milliseconds where memory of another GPU is
/// mapped; the next ones find it open. One such time would keep a channel from being taken for long.
#[derive(Debug, Default)]
pub(super) struct Openings(Vec<Channel>);

impl Openings {
    /// A fetch by this channel has opened nothing.
    pub(super) fn found_open(&mut self, channel: Channel) {
        self.0.retain(|other| *other != channel);
    }

    /// A fetch has ended, and has opened memory or not. Says whether its time is what the channel costs:
    /// nothing was opened, or something is each time, as for a program that sends from new memory.
    pub(super) fn end(&mut self, channel: Channel, has_opened: bool) -> bool {
        let had = self.0.contains(&channel);
        match (has_opened, had) {
            (true, false) => self.0.push(channel),
            (true, true) => {}
            (false, _) => self.found_open(channel),
        }
        !has_opened || had
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_channel_that_fails_is_tried_again_after_pauses_that_grow() {
        let (mut failures, start) = (Failures::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        for _ in 1..MAX_FAILURES {
            failures.failed(Channel::Ipc, false, start);
            assert!(!failures.is_paused(Channel::Ipc, start));
        }
        let mut now = 0;
        for pause in [1, 2, 4, 8, 16, 32, 60, 60] {
            failures.failed(Channel::Ipc, false, at(now));
            assert!(failures.is_paused(Channel::Ipc, at(now)) && !failures.is_paused(Channel::Vmm, at(now)));
            now += pause;
            assert!(!failures.is_paused(Channel::Ipc, at(now)), "after {pause} s");
        }
        // One success, and all is as at first.
        failures.succeeded(Channel::Ipc);
        failures.failed(Channel::Ipc, false, at(now));
        assert!(!failures.is_paused(Channel::Ipc, at(now)));
    }

    #[test]
    fn what_needs_long_is_left_alone_at_once_but_not_for_good() {
        let (mut failures, start) = (Failures::default(), Instant::now());
        failures.failed(Channel::Rdma, true, start);
        assert!(
            failures.is_paused(Channel::Rdma, start) && !failures.is_paused(Channel::Rdma, start + MAX_PAUSE)
        );
    }

    #[test]
    fn the_first_opening_does_not_count_and_many_do() {
        let mut openings = Openings::default();
        assert!(!openings.end(Channel::Vmm, true));
        assert!(!openings.end(Channel::Ipc, true), "each channel opens memory of its own");
        assert!(openings.end(Channel::Vmm, false));
        assert!(!openings.end(Channel::Vmm, true), "it was open in between");
        assert!(openings.end(Channel::Vmm, true));
        assert!(openings.end(Channel::Vmm, true));
    }

    #[test]
    fn memory_that_was_open_before_counts_without_a_word_to_the_sender() {
        let mut openings = Openings::default();
        assert!(!openings.end(Channel::Ipc, true));
        openings.found_open(Channel::Ipc);
        assert!(!openings.end(Channel::Ipc, true), "the next buffer is opened once, too");
    }
}
