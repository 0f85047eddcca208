//! Requests of workers to the broker: tickets, connections, exports and images.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use causeway_access::Target;
use causeway_access::keys::groups::PeerLimits;
use causeway_access::target::address_proof;
use causeway_pipeline::MAX_LANES;
use causeway_sync::threads;
use causeway_wire::codec::Encode as _;
use causeway_wire::handshake::SessionId;

use super::accounting::Accounting;
use super::device_memory::MemoryBounds;
use super::dial::{Known, dial};
use super::exports::Exported;
use super::gpu_shares::TimeShare;
use super::images::SessionImages;
use super::shared::Shared;
use crate::admission::Source;
use crate::protocol::control::Control;
use crate::protocol::messages::{self, ToBroker, ToWorker, Token, UNLIMITED};

/// Connections that are made for one worker at the same time; a link has one for messages and at most so many
/// lanes.
const MAX_DIALS: u32 = MAX_LANES + 1;

/// What one worker may ask for.
pub struct WorkerRequests {
    control: Arc<Control>,
    images: SessionImages,
    /// The address by which the client came, if it came over a network.
    local_address: Option<SocketAddr>,
    /// Connections that are being made for the worker.
    dials: Arc<AtomicU32>,
    /// Whose session it is.
    peer: Source,
    accounting: Accounting,
    /// Whether the log says that the session may have no more device memory.
    is_refusal_logged: AtomicBool,
}

impl WorkerRequests {
    /// Those of the worker at the other end of `control`.
    pub fn new(
        control: Arc<Control>,
        images: SessionImages,
        local_address: Option<SocketAddr>,
        peer: Source,
        accounting: Accounting,
    ) -> Self {
        let is_refusal_logged = AtomicBool::new(false);
        Self { control, images, local_address, dials: Arc::default(), peer, accounting, is_refusal_logged }
    }

    /// Under which token an export is kept: the sessions of a client find those of that client alone.
    fn own(&self, token: Token) -> Token {
        let Source::Client(client) = self.peer else { return token };
        let mut hasher = blake3::Hasher::new_derive_key("causeway 2026 export of a client");
        hasher.update(client.as_str().as_bytes()).update(&token);
        *hasher.finalize().as_bytes().first_chunk().expect("a hash has 32 bytes")
    }

    /// Answers a question; what is none is left alone.
    pub fn answer(
        &self,
        shared: &Shared,
        session: SessionId,
        request: ToBroker,
        descriptor: Option<OwnedFd>,
    ) {
        let exports = &shared.exports;
        let nothing = Exported { bytes: Vec::new(), descriptor: None };
        let (number, found) = match request {
            ToBroker::Ticket { number, ticket } => {
                let proof = || Exported { bytes: self.address_proof(shared).to_vec(), descriptor: None };
                (number, shared.sessions.add_ticket(session, ticket).then(proof))
            }
            ToBroker::Dial { number, address, milliseconds, proof } => {
                return self.dial(
                    shared,
                    number,
                    &address,
                    Duration::from_millis(milliseconds.into()),
                    proof,
                );
            }
            ToBroker::Export { number, token, bytes } => {
                let exported = Exported { bytes, descriptor: descriptor.map(Arc::new) };
                (number, exports.export(session, self.own(token), exported).then_some(nothing))
            }
            ToBroker::Find { number, token } => (number, shared.find_export(&self.own(token))),
            ToBroker::FindImage { number, hash, length } => return self.images.find(number, hash, length),
            ToBroker::KeepImage { number, hash } => match descriptor {
                Some(memory) => return self.images.keep(number, hash, memory),
                None => (number, None),
            },
            ToBroker::Reserve { number, bytes, capacity } => {
                let bounds = self.memory_bounds(shared, capacity);
                let is_granted = self.reserve(shared, session, bytes, bounds);
                let bytes = if bounds.is_unlimited() { UNLIMITED.to_vec() } else { Vec::new() };
                (number, is_granted.then_some(Exported { bytes, descriptor: None }))
            }
            ToBroker::Take { bytes } => {
                let group = self.memory_bounds(shared, 0).group_name();
                return shared.device_memory.take(session, self.account(), group, bytes);
            }
            ToBroker::Release { bytes } => return shared.device_memory.release(session, bytes),
            ToBroker::MemoryInfo { number, capacity } => {
                let mut bytes = Vec::new();
                shared
                    .device_memory
                    .info(self.account(), self.memory_bounds(shared, capacity))
                    .encode(&mut bytes);
                (number, Some(Exported { bytes, descriptor: None }))
            }
            ToBroker::Carried { number, carried } => {
                let limits = shared.clients.limits(self.peer);
                let pause = shared.bandwidth.carried(self.peer, carried, &limits);
                let mut bytes = Vec::new();
                u64::try_from(pause.as_nanos()).unwrap_or(u64::MAX).encode(&mut bytes);
                (number, Some(Exported { bytes, descriptor: None }))
            }
            ToBroker::SlotRequest { device } => {
                let part = TimeShare::of(self.account(), &shared.clients.limits(self.peer));
                return shared.gpu_shares.request(device, session, &self.control, part);
            }
            ToBroker::SlotEnded { device, lease } => {
                return shared.gpu_shares.ended(device, session, lease);
            }
            ToBroker::Withdraw { token } => return exports.withdraw(session, &self.own(token)),
            ToBroker::Prepared { .. }
            | ToBroker::NoGpu { .. }
            | ToBroker::Answering
            | ToBroker::Counts
            | ToBroker::ClientDisconnected
            | ToBroker::Pong { .. }
            | ToBroker::Suspend { .. }
            | ToBroker::Suspended { .. }
            | ToBroker::StaysResident
            | ToBroker::Reclaim { .. }
            | ToBroker::Returned { .. }
            | ToBroker::ReleaseRefused { .. }
            | ToBroker::ReleaseOutcome { .. }
            | ToBroker::Checkpointed { .. }
            | ToBroker::Quiet { .. }
            | ToBroker::ClientReturned { .. }
            | ToBroker::Restored { .. }
            | ToBroker::Arrived => return,
        };
        let descriptor = found.as_ref().and_then(|exported| exported.descriptor.clone());
        let answer = ToWorker::Response { number, bytes: found.map(|exported| exported.bytes) };
        // A worker that has ended is noticed by its process.
        let _ = messages::send(&self.control, &answer, descriptor.as_deref());
    }

    fn memory_bounds(&self, shared: &Shared, capacity: u64) -> MemoryBounds {
        let limits = match self.accounting {
            Accounting::Session => shared.clients.limits(self.peer),
            Accounting::Trial => PeerLimits::default(),
        };
        MemoryBounds::of_peer(&limits, capacity)
    }

    /// Whose device memory it is.
    fn account(&self) -> Source {
        self.accounting.owner(self.peer)
    }

    /// Whether the session may have so much more device memory, which it has then. The log has the first refusal.
    fn reserve(&self, shared: &Shared, session: SessionId, bytes: u64, bounds: MemoryBounds) -> bool {
        match shared.device_memory.reserve(session, self.account(), bytes, bounds) {
            Ok(()) => true,
            Err(refused) => {
                if !self.is_refusal_logged.swap(true, Ordering::Relaxed) {
                    tracing::warn!(%session, "out of device memory: {refused}");
                }
                false
            }
        }
    }

    /// What shows other servers with the same key that the address by which the client came is this server's;
    /// zeros where it came to no address, or there is no key.
    fn address_proof(&self, shared: &Shared) -> [u8; 32] {
        let key = shared.key.current().ok().flatten();
        key.zip(self.local_address).map(|(key, address)| address_proof(&key, address)).unwrap_or_default()
    }

    /// Connects to another server for the worker, on a thread of its own.
    fn dial(&self, shared: &Shared, number: u32, address: &str, timeout: Duration, proof: [u8; 32]) {
        let control = Arc::clone(&self.control);
        let answer = move |made: Result<OwnedFd, String>| {
            let (bytes, connection) = match made {
                Ok(connection) => (Vec::new(), Some(connection)),
                Err(why) => (why.into_bytes(), None),
            };
            // A worker that has ended is noticed by its process.
            let _ = messages::send(
                &control,
                &ToWorker::Response { number, bytes: Some(bytes) },
                connection.as_ref(),
            );
        };
        let target = match address.parse::<Target>() {
            Ok(target) => target,
            Err(error) => return answer(Err(error.to_string())),
        };
        if self.dials.fetch_add(1, Ordering::Relaxed) >= MAX_DIALS {
            self.dials.fetch_sub(1, Ordering::Relaxed);
            return answer(Err(format!(
                "the server makes {MAX_DIALS} connections for one session at a time"
            )));
        }
        let (named, dials) = (shared.config.peers.clone(), Arc::clone(&self.dials));
        let folder = shared.local.folder().map(Path::to_owned);
        // Nothing is connected to while the key cannot be read.
        let key = shared.key.current().map_err(|error| error.to_string());
        let started = threads::spawn("dial", move || {
            answer(key.and_then(|key| {
                let known = Known { key, named: &named, folder: folder.as_deref() };
                dial(&target.endpoint, timeout, &proof, &known)
            }));
            dials.fetch_sub(1, Ordering::Relaxed);
        });
        if let Err(error) = started {
            self.dials.fetch_sub(1, Ordering::Relaxed);
            tracing::error!("cannot connect for a worker: starting a thread failed: {error}");
        }
    }
}
