//! Fetch by the chosen channel, and fallback.

use std::time::{Duration, Instant};

use super::super::choosing::Kind;
use super::fetcher::{Destination, Fetcher};
use super::open::Open;
use super::order::{Order, Outcome, PendingFetch, Wait};
use crate::channels::TransferError;
use crate::channels::bar;
use crate::channels::message::{Message, Refusal};
use crate::channels::{Channel, Ends, Gpu, Joined};
use crate::cuda::{self, CudaError, GpuAccess};
use crate::matching;
use crate::scheduler::{Choice, Decision};
use crate::verbs;

impl Fetcher {
    /// Fetches a payload by the channel that is best, and by others where that one fails.
    pub(crate) fn fetch(&mut self, order: &Order, wait: Wait) -> Result<Outcome, TransferError> {
        let fetched = self.fetch_by_best(order, wait);
        fetched.map_err(|error| self.connection.ended_by(error))
    }

    fn fetch_by_best(&mut self, order: &Order, wait: Wait) -> Result<Outcome, TransferError> {
        self.receive_state_words()?;
        let destination = Destination::at(order.to, order.source.gpu);
        if order.to_gpu && destination.memory.is_none() {
            self.connection.send_message(Message::Abandoned { operation: order.operation })?;
            return Err(CudaError::UNKNOWN_MEMORY.into());
        }
        let ends = ends(&destination, order.source);
        let mut kind = Kind {
            channels: self.chooser.channels(&ends),
            joined: ends.joined,
            is_direct: order.source.direct,
            is_gpudirect: ends.own.is_some_and(|gpu| gpu.gpudirect) && order.source.gpudirect,
            device: destination.memory.map(|memory| memory.device),
        };
        let (mut failed, mut tried) = (Vec::new(), Vec::new());
        let traffic = order.traffic;
        loop {
            let Some(choice) = self.chooser.choose(&kind, order.bytes, traffic) else {
                let is_untried = |channel: &Channel| !tried.contains(channel);
                kind.channels = self.chooser.paused(&ends).into_iter().filter(is_untried).collect();
                if kind.channels.is_empty() {
                    break;
                }
                continue;
            };
            let to_gpu = destination.memory.is_some();
            let Choice { channel, reason } = choice;
            let is_gpudirect = kind.is_gpudirect && matches!(channel, Channel::Rdma | Channel::Loopback);
            let fetched = Decision { channel, reason, traffic, to_gpu, is_gpudirect };
            let start = Instant::now();
            let found = self.fetch_open(fetched.channel, order, &destination, wait);
            if !matches!(found, Open::No) {
                self.openings.found_open(fetched.channel);
            }
            match found {
                Open::Started(copy, _source, state_words, word) => {
                    let (operation, bytes) = (order.operation, order.bytes);
                    let pending_fetch = PendingFetch {
                        copy,
                        _source,
                        state_words,
                        word,
                        operation,
                        fetched,
                        kind,
                        bytes,
                        traffic,
                    };
                    return Ok(Outcome::InFlight(Box::new(pending_fetch)));
                }
                Open::There => {
                    self.chooser.took(&kind, fetched.channel, order.bytes, traffic, start.elapsed());
                    return Ok(Outcome::There(fetched));
                }
                Open::No => {}
            }
            self.openings.begin();
            match self.fetch_by(fetched.channel, order, &destination) {
                Ok(()) => {
                    self.connection.send_message(Message::Done { operation: order.operation })?;
                    let time = start.elapsed();
                    if self.openings.end(fetched.channel) {
                        self.chooser.took(&kind, fetched.channel, order.bytes, traffic, time);
                    } else {
                        self.chooser.opened(&kind, fetched.channel, order.bytes, traffic, time);
                    }
                    return Ok(Outcome::There(fetched));
                }
                Err(error) if error.ends_connection() => return Err(error),
                Err(error) if error.is_of_message() => {
                    self.connection.send_message(Message::Abandoned { operation: order.operation })?;
                    return Err(error);
                }
                Err(error) => {
                    if matches!(error, TransferError::Refused { refusal: Refusal::Slots, .. }) {
                        // They are sent again.
                        self.slots = None;
                    }
                    self.chooser.failed(fetched.channel, &error);
                    tried.push(fetched.channel);
                    failed.push(format!("{}: {error}", fetched.channel));
                    kind.channels.retain(|other| *other != fetched.channel);
                }
            }
        }
        self.connection.send_message(Message::Abandoned { operation: order.operation })?;
        let why = [failed, self.chooser.why_not(&ends)].concat().join("; ");
        Err(TransferError::NoChannel { peer: self.connection.peer, why })
    }

    /// A payload that was under way is there after so long, or is not. The sender has heard of it.
    pub(crate) fn end(
        &mut self,
        ended: &PendingFetch,
        took: Result<Duration, CudaError>,
    ) -> Result<(), TransferError> {
        let time = took?;
        self.chooser.took(&ended.kind, ended.fetched.channel, ended.bytes, ended.traffic, time);
        Ok(())
    }
}

/// What the two places have, as channels ask for it.
pub(super) fn ends(destination: &Destination, source: matching::Source) -> Ends {
    let own_number = destination.device.and_then(|(driver, device)| cuda::gpu_number(driver, device));
    let joined = match (own_number, destination.access) {
        (Some(number), _) if number == source.gpu => Joined::SameGpu,
        (_, GpuAccess::Peer) => Joined::Peers,
        (_, GpuAccess::Seen(_)) => Joined::ByDriver,
        (_, GpuAccess::Unseen) => Joined::Apart,
    };
    let rdma = match (source.rdma, verbs::usable()) {
        (true, Ok(())) => Ok(()),
        (false, _) => Err("the sender has none".to_owned()),
        (true, Err(why)) => Err(why.clone()),
    };
    let is_gpudirect = |(driver, _), memory| rdma.is_ok() && verbs::is_gpudirect(driver, &memory);
    let gpudirect = destination
        .device
        .zip(destination.memory)
        .is_some_and(|(device, memory)| is_gpudirect(device, memory));
    let own_bar = || match (destination.device, &destination.memory) {
        (Some((driver, _)), Some(memory)) => bar::usable(driver, memory).map_err(str::to_owned),
        // Memory of the host needs none.
        _ => Ok(()),
    };
    let bar = source.bar.then(own_bar).unwrap_or_else(|| Err("the sender does not reach its own".to_owned()));
    Ends {
        own: destination.device.map(|_| Gpu { ipc: true, export: true, gpudirect }),
        peer: Some(Gpu { ipc: source.ipc, export: source.export, gpudirect: source.gpudirect }),
        joined,
        bar,
        rdma,
    }
}
