//! Endpoint: device, memory and queue pairs of one end.

use std::net::IpAddr;

use causeway_ibverbs::{
    Access, Buffer, Capacity, Completion, CompletionQueue, Description, Device, GidEntry, Libraries, Limits,
    Port, ProtectionDomain, QueuePair, Receive, RegisterError, Transport, choose, gid,
};

use super::error::UpgradeError;
use super::message::{CONTROL, FRAME_MESSAGE};
use super::path::send_layout;
use super::poll_state::AT_ONCE;
use super::settings::{QueueCapacity, Settings};
use causeway_transport::slots::SLOT;

/// The least staging that is tried where memory cannot be registered.
const MIN_STAGING_BYTES: usize = 1 << 20;

/// Marks the completions of receives.
pub const RECEIVE_MARK: u64 = 1 << 63;

/// A port that this end can use, with its device open.
#[derive(Debug)]
pub struct LocalPort {
    pub device: Device,
    pub port: Port,
    pub gid: GidEntry,
}

/// The port to use, of a process whose TCP connection has the address `local`.
pub fn local_port(
    libraries: Libraries,
    settings: &Settings,
    local: Option<IpAddr>,
) -> Result<LocalPort, UpgradeError> {
    let devices = Device::list(libraries)?;
    if devices.is_empty() {
        return Err(UpgradeError::NoDevice);
    }
    let requested = settings.device.as_deref();
    if let Some(name) = requested.filter(|name| devices.iter().all(|device| device.name != *name)) {
        // The error lists what there is.
        Device::open(libraries, name)?;
    }
    let chosen = choose(&devices, requested, local).ok_or_else(|| UpgradeError::NoPort(states(&devices)))?;
    let gid = match settings.gid {
        None => chosen.gid,
        Some(index) => {
            let found = chosen.port.gids.iter().find(|entry| entry.index == index).copied();
            let (device, port) = (chosen.device.name.clone(), chosen.port.number);
            found.ok_or(UpgradeError::NoGid { device, port, index })?
        }
    };
    let device = Device::open(libraries, &chosen.device.name)?;
    Ok(LocalPort { device, port: chosen.port.clone(), gid })
}

/// The port of a device that rdma_cm has found, which must be the one that was asked for, if any was.
pub fn port_of(device: Device, settings: &Settings) -> Result<LocalPort, UpgradeError> {
    if let Some(requested) = settings.device.clone().filter(|requested| requested != device.name()) {
        return Err(UpgradeError::OtherDevice { found: device.name().to_owned(), requested });
    }
    let description = device.describe()?;
    let port = description.ports.into_iter().find(|port| port.state == causeway_ibverbs::PortState::Active);
    let port = port.ok_or(UpgradeError::NoPort(description.name))?;
    let gid = gid::choose(port.link_layer, &port.gids, None);
    let gid = gid.or_else(|| port.gids.first().copied()).unwrap_or(GidEntry {
        index: 0,
        gid: causeway_ibverbs::Gid([0; 16]),
        kind: causeway_ibverbs::GidKind::Unknown,
        interface: 0,
    });
    Ok(LocalPort { device, port, gid })
}

/// The ports of all devices, as a person reads them.
fn states(devices: &[Description]) -> String {
    let ports = devices.iter().flat_map(|device| {
        device.ports.iter().map(move |port| match device.transport {
            Transport::Other => format!("{}: no reliable connections", device.name),
            _ => format!("{} port {}: {:?}", device.name, port.number, port.state),
        })
    });
    ports.collect::<Vec<_>>().join(", ")
}

/// How much an end holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// Queue pairs.
    pub queue_pairs: u32,
    /// Messages of each class for which a queue pair has receives.
    pub depth: u32,
}

impl Counts {
    /// What the user wants, the peer wants, and the device allows.
    pub fn agree(settings: &Settings, limits: &Limits, queue_pairs: u32, depth: u32) -> Self {
        let queue_pairs = settings.queue_pairs.min(queue_pairs).max(1);
        Self { queue_pairs, depth: settings.depth_for(limits, queue_pairs).min(depth).max(1) }
    }
}

/// What an end has before it knows the other one: memory for what comes, and its queue pairs with receives
/// posted. The queue pairs stand first, so that they end before their memory does.
#[derive(Debug)]
pub struct Prepared {
    pub queue_pairs: Vec<QueuePair>,
    pub completions: CompletionQueue,
    pub receives: Buffer,
    pub memory: Memory,
    pub domain: ProtectionDomain,
    pub local: LocalPort,
    pub limits: Limits,
    pub counts: Counts,
    pub settings: Settings,
}

/// Where the receives of each queue pair lie in their buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceiveLayout {
    count: usize,
}

impl ReceiveLayout {
    pub fn new(depth: u32) -> Self {
        Self { count: QueueCapacity::of(depth, 1).receives as usize }
    }

    /// Receives of each queue pair.
    pub fn count(self) -> usize {
        self.count
    }

    /// Bytes of each receive of a queue pair: the first one carries frames.
    pub fn size(queue_pair: usize) -> usize {
        if queue_pair == 0 { FRAME_MESSAGE } else { CONTROL }
    }

    /// Where a receive of a queue pair begins.
    pub fn offset(self, queue_pair: usize, receive: usize) -> usize {
        let before = match queue_pair {
            0 => 0,
            _ => self.count * FRAME_MESSAGE + (queue_pair - 1) * self.count * CONTROL,
        };
        before + receive * Self::size(queue_pair)
    }

    fn bytes(self, queue_pairs: u32) -> usize {
        self.offset(queue_pairs as usize, 0)
    }
}

impl Prepared {
    /// Memory and completion queue of an end.
    pub fn new(local: LocalPort, settings: &Settings, counts: Counts) -> Result<Self, UpgradeError> {
        let limits = local.device.limits()?;
        let domain = ProtectionDomain::new(&local.device)?;
        let capacity = QueueCapacity::of(counts.depth, counts.queue_pairs);
        let completions = CompletionQueue::new(&local.device, capacity.completions)?;
        let layout = ReceiveLayout::new(counts.depth);
        let receives = Buffer::new(&domain, layout.bytes(counts.queue_pairs), Access::LOCAL_WRITE)?;
        let memory = Memory::new(&domain, settings.staging, counts)?;
        Ok(Self {
            queue_pairs: Vec::new(),
            completions,
            receives,
            memory,
            domain,
            local,
            limits,
            counts,
            settings: settings.clone(),
        })
    }

    /// What each queue pair is asked to hold.
    pub fn capacity(&self) -> Capacity {
        let QueueCapacity { sends, receives, .. } =
            QueueCapacity::of(self.counts.depth, self.counts.queue_pairs);
        Capacity { sends, receives, inline: self.settings.inline }
    }

    /// Makes all queue pairs, ready for being joined by their numbers.
    pub fn make_queue_pairs(&mut self) -> Result<(), UpgradeError> {
        for _ in 0..self.counts.queue_pairs {
            let made = |capacity| QueuePair::new(&self.domain, &self.completions, capacity);
            // What a device takes inline shows only when it refuses.
            let queue_pair =
                made(self.capacity()).or_else(|_| made(Capacity { inline: 0, ..self.capacity() }))?;
            queue_pair.initialise(self.local.port.number)?;
            self.add(queue_pair)?;
        }
        Ok(())
    }

    /// Takes in a queue pair and posts its receives.
    pub fn add(&mut self, queue_pair: QueuePair) -> Result<(), UpgradeError> {
        let index = self.queue_pairs.len();
        let layout = ReceiveLayout::new(self.counts.depth);
        let receives: Vec<Receive> = (0..layout.count)
            .map(|receive| {
                let offset = layout.offset(index, receive);
                let segment = self.receives.region().segment(offset, ReceiveLayout::size(index));
                Receive { id: RECEIVE_MARK | receive as u64, segment }
            })
            .collect();
        // SAFETY: the buffer lives as long as the queue pair, and each receive has bytes of its own, which
        // nobody looks at before its completion.
        let posted = unsafe { queue_pair.post_receives(&receives) };
        posted.map_err(|error| UpgradeError::Path(error.to_string()))?;
        self.queue_pairs.push(queue_pair);
        Ok(())
    }

    /// Gives up the queue pair that was taken in last, and was not connected. What its receives leave in the
    /// completion queue goes with it: nothing else completes before the peer has been sent a hello.
    pub fn give_up_last(&mut self) {
        drop(self.queue_pairs.pop());
        let mut completions = [Completion::default(); AT_ONCE];
        // A queue that cannot be read is found out by whoever waits for the peer.
        while self.completions.poll(&mut completions).is_ok_and(|count| count > 0) {}
    }
}

/// What an end writes from and what it is written to, registered.
#[derive(Debug)]
pub struct Memory {
    /// Where the peer writes transfers to.
    pub arena: Buffer,
    /// Where transfers are filled.
    pub staging: Buffer,
    /// Where messages are sent from.
    pub messages: Buffer,
    /// How much less staging there is than there should be, and why, as a sentence without its full stop.
    pub shortage: Option<String>,
}

impl Memory {
    /// Arena and staging of at most `requested` bytes each; less where the limit of locked memory leaves no
    /// more.
    fn new(domain: &ProtectionDomain, requested: usize, counts: Counts) -> Result<Self, RegisterError> {
        let messages = send_layout(counts.queue_pairs as usize, counts.depth as usize);
        let make = |bytes| {
            Ok(Self {
                arena: Buffer::new(domain, bytes, Access::REMOTE_WRITE)?,
                staging: Buffer::new(domain, bytes, Access::LOCAL_WRITE | Access::REMOTE_READ)?,
                messages: Buffer::new(domain, messages, Access::LOCAL_WRITE)?,
                shortage: None,
            })
        };
        let mut bytes = requested.max(MIN_STAGING_BYTES);
        let mut refused: Option<RegisterError> = None;
        loop {
            match make(bytes) {
                Ok(made) => {
                    let shortage = refused.map(|why| {
                        let (bytes, requested) = (bytes >> 10, requested >> 10);
                        format!("there are {bytes} KiB of staging for each direction instead of {requested}, because {why}")
                    });
                    return Ok(Self { shortage, ..made });
                }
                Err(error) if bytes / 2 < MIN_STAGING_BYTES => return Err(error),
                Err(error) => {
                    bytes = bytes / 2 / SLOT * SLOT;
                    refused.get_or_insert(error);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receives_lie_one_behind_the_other() {
        let layout = ReceiveLayout::new(4);
        let mut at = 0;
        for queue_pair in 0..3 {
            for receive in 0..layout.count {
                assert_eq!(layout.offset(queue_pair, receive), at);
                at += ReceiveLayout::size(queue_pair);
            }
        }
        assert_eq!(layout.bytes(3), at);
    }
}
