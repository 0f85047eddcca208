//! State shared by the broker's threads.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use super::access::ServerKey;
use super::audit::AuditLog;
use super::bandwidth::Bandwidth;
use super::clients::AcceptedClients;
use super::config::BrokerConfig;
use super::device_memory::DeviceMemory;
use super::drain::Drain;
use super::exports::{ExportRegistry, Exported};
use super::forks::Forks;
use super::gpu_shares::GpuShares;
use super::gpu_state::GpuState;
use super::gpus::Gpus;
use super::hot_restart::Relatives;
use super::local::LocalSockets;
use super::monitor::Monitor;
use super::prestarted::PrestartedWorkers;
use super::sessions::Sessions;
use super::spawn::Spawner;
use super::totals::Totals;
use crate::admission::{Admission, Attempts, Origin, SessionRefused, SessionSlot, SessionSlots, Source};
use crate::locks::{Mutex, rank};
use crate::protocol::messages::Token;
use causeway_access::Key;
use causeway_access::keys::clients::NotAccepted;
use causeway_link::accept::Secrets;
use causeway_wire::handshake::{KeyId, LaneToken, TicketId};

impl Shared {
    /// Why a client would get no session now; nothing where it would.
    pub fn not_ready(&self) -> Option<String> {
        let (sessions, max_sessions) = (self.admission.sessions(), self.admission.max_sessions());
        if self.drain.is_started() {
            return Some(format!("the server is being drained; remaining sessions: {sessions}"));
        }
        if sessions >= max_sessions {
            return Some(format!("the server has {max_sessions} sessions, its maximum"));
        }
        if let Err(error) = self.key.current() {
            return Some(format!("cannot read the server's key, so no client is accepted: {error}"));
        }
        self.spares.look(&self.gpu);
        self.gpu.failure(Instant::now())
    }

    /// The ticket of a session of this server, in either of its brokers.
    pub fn ticket(&self, id: TicketId) -> Option<LaneToken> {
        self.sessions.ticket(id).or_else(|| self.relatives.ticket(id))
    }

    /// What a session of this server has exported, whichever of its brokers has that session.
    pub fn find_export(&self, token: &Token) -> Option<Exported> {
        let own = || self.exports.find(token);
        own()
            .or_else(|| self.relatives.export_of_parent(token))
            .or_else(|| self.relatives.export_of_child(token))
    }
}

impl Secrets for SecretsFor<'_> {
    fn ticket(&self, id: TicketId) -> Option<LaneToken> {
        self.shared.ticket(id)
    }

    fn client_key(&self, id: KeyId) -> Result<Key, NotAccepted> {
        self.shared.clients.key(id)
    }

    fn invitation(&self, id: KeyId) -> Result<Key, NotAccepted> {
        if !self.shared.attempts.admit(self.source) {
            return Err(NotAccepted::TooManyAttempts);
        }
        self.shared.clients.invitation(id)
    }
}

/// The secrets that a caller may come with.
pub struct SecretsFor<'a> {
    /// The broker's.
    pub shared: &'a Shared,
    /// Where the caller comes from.
    pub source: Source,
}

/// Everything that the broker's threads share.
pub struct Shared {
    /// What was set.
    pub config: BrokerConfig,
    /// The key, as it is now.
    pub key: ServerKey,
    /// The clients that have keys of their own.
    pub clients: AcceptedClients,
    /// How often invitations are tried.
    pub attempts: Attempts,
    /// Where it is written who uses the server.
    pub audit: AuditLog,
    /// Who may come in.
    pub admission: Admission,
    /// The sessions that there are.
    pub sessions: Sessions,
    /// The sockets of this host.
    pub local: LocalSockets,
    /// What sessions have exported to each other.
    pub exports: ExportRegistry,
    /// The device memory that sessions have.
    pub device_memory: DeviceMemory,
    /// The rate of their copies.
    pub bandwidth: Bandwidth,
    /// Whose kernels run.
    pub gpu_shares: GpuShares,
    /// Starts processes.
    pub spawner: Arc<Spawner>,
    /// Workers that are ready.
    pub spares: Arc<PrestartedWorkers>,
    /// The way to the process that answers monitoring sessions.
    pub monitor: Monitor,
    /// Whether workers end because the broker does.
    pub stopping: AtomicBool,
    /// Whether the server takes no new sessions and ends with those that it has.
    pub drain: Drain,
    /// What has happened so far.
    pub totals: Arc<Totals>,
    /// Whether a client would get a GPU.
    pub gpu: GpuState,
    /// Sessions that are being forked.
    pub forks: Forks,
    /// The brokers whose place this one has taken, and which takes its place.
    pub relatives: Relatives,
    /// How the devices are.
    pub gpus: Gpus,
    /// Who asks how the server is.
    pub askers: Mutex<rank::Leaf, SessionSlots>,
}

impl Shared {
    /// A place for one more session of a peer.
    ///
    /// # Errors
    /// Which limit is against it.
    pub fn take_slot(&self, peer: Origin) -> Result<SessionSlot, SessionRefused> {
        let source = Source::of(peer);
        self.clients.refresh_groups(source);
        self.admission.take_session(source, &self.clients.limits(source))
    }
}
