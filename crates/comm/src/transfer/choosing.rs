//! Channel choice of a receiver, with failures and costs.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_config::read::PROCESS;
use causeway_config::table::VIA;

use super::failures::Failures;
use crate::channels::TransferError;
use crate::channels::{Channel, Ends, Joined, Missing};
use crate::cuda::{self, Driver};
use crate::live::Live;
use crate::pair::Pair;
use crate::profile::Profile;
use crate::scheduler::{Choice, Inputs, Known, Scheduler, Table};
use crate::tracer::Traffic;

/// Messages that have the same channels, at the same cost.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Kind {
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
    schedulers: HashMap<Kind, (String, Scheduler)>,
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
    pub(super) fn choose(&mut self, kind: &Kind, bytes: u64, traffic: Traffic) -> Option<Choice> {
        self.scheduler(kind).choose(bytes, traffic)
    }

    /// A message has taken so long.
    pub(super) fn took(&mut self, kind: &Kind, by: Channel, bytes: u64, traffic: Traffic, time: Duration) {
        self.failures.succeeded(by);
        self.scheduler(kind).observe(by, bytes, traffic, time.as_nanos() as f64);
    }

    /// A message has taken so long, and has opened memory that stays open.
    pub(super) fn opened(&mut self, kind: &Kind, by: Channel, bytes: u64, traffic: Traffic, time: Duration) {
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
    fn scheduler(&mut self, kind: &Kind) -> &mut Scheduler {
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

    /// Those that they have and that are left alone, since they have failed or are switched off: they are tried where no
    /// other brings a message.
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
fn name(pair: &Pair, kind: &Kind) -> String {
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
