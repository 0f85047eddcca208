//! Session table: running sessions, their lanes, tickets and upgrades.

use core::mem::{Discriminant, discriminant};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_access::keys::groups::GroupName;
use causeway_access::target::ticket_id;
use causeway_pipeline::MAX_LANES;
use causeway_wire::handshake::{LaneHello, LaneToken, PeerHello, SessionId, TicketId, UpgradeHello};
use causeway_wire::status::{Activity, GpuDirectStatus, ReleaseStatus, SessionOwner, SessionStatus};
use causeway_wire::text::Printable;
use crossbeam_channel::{Receiver, Sender, bounded};
use rustix::process::{Signal, pidfd_send_signal};

use super::move_state::MoveState;
use crate::activity::{ActivityPage, Counts};
use crate::admission::{Origin, Source};
use crate::locks::{Monitor, rank};
use crate::protocol::control::Control;
use crate::protocol::messages::{self, RemainingSession, ToBroker, ToWorker, WorkerOf};

/// How long clients that are notified of the server's end have for it. One that hears it disconnects, which
/// ends its worker.
const NOTIFY_TIMEOUT: Duration = Duration::from_secs(1);

/// A session that has a worker.
pub struct Session {
    /// Proves that a lane belongs to it.
    pub token: LaneToken,
    /// How the worker is reached.
    pub control: Arc<Control>,
    /// The worker's process.
    pub process: Arc<OwnedFd>,
    /// How many lanes it may open.
    pub lanes: u32,
    /// Those that it has opened, one bit for each.
    pub opened: u32,
    /// Whether it goes on when its connections are lost, on others.
    pub is_resumable: bool,
    /// Whether its bandwidth is limited, which is so over TCP alone.
    pub is_paced: bool,
    /// What its client has asked for.
    pub upgrades: UsedUpgrades,
    /// With which tickets workers of other servers may come.
    pub tickets: Vec<Ticket>,
    /// With which one its client may come, if it has come from another server.
    pub move_ticket: Option<LaneToken>,
    /// What has come of its move.
    pub moves: Arc<MoveState>,
    /// Whether it is a trial, which is in no list.
    pub is_trial: bool,
    /// Its description.
    pub about: About,
    /// What it does, once its worker has said where that is counted.
    pub page: Option<Arc<ActivityPage>>,
    /// Whether its device memory is on the host.
    pub release: Release,
    /// Whether its owner lets network cards access its device memory.
    pub is_gpudirect_on: bool,
}

/// What is known of the release of a session's device memory.
#[derive(Debug, Default)]
pub struct Release {
    /// How many bytes are on the host, and since when.
    released: Option<(u64, Instant)>,
    /// Why they cannot go there.
    refused: Option<Printable>,
    /// Who waits for what has come of a request, by its number.
    requests: HashMap<u32, Sender<Option<String>>>,
    newest: u32,
}

/// The most characters of a worker's reason that are kept.
const MAX_REASON: usize = 500;

impl Release {
    fn status(&self) -> ReleaseStatus {
        let milliseconds = |since: Instant| u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX);
        ReleaseStatus {
            released: self.released.map(|(bytes, since)| (bytes, milliseconds(since))),
            refused: self.refused.clone().unwrap_or_default(),
        }
    }
}

/// Description of a session in the server's status.
#[derive(Debug)]
pub struct About {
    /// The client's program.
    pub program: Printable,
    /// Its host, as it says.
    pub host: Printable,
    /// Its process.
    pub process: u32,
    /// Whose it is.
    pub owner: SessionOwner,
    /// Where it comes from, as the kernel says.
    pub peer: Origin,
    /// The group of its client or user.
    pub group: Option<GroupName>,
    /// The worker's process.
    pub worker: u32,
    /// The session of which it is a fork.
    pub parent: Option<SessionId>,
    /// When it began.
    pub started_at: Instant,
}

/// What leads the worker of another server to a session, and which of its connections have come with it, one
/// bit for each.
pub struct Ticket {
    token: LaneToken,
    id: TicketId,
    opened: u64,
    upgrades: UsedUpgrades,
}

/// The transports for which somebody has asked who may ask once for each.
pub type UsedUpgrades = Vec<Discriminant<UpgradeHello>>;

/// Who asks a worker for another transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Upgrader {
    /// Its client.
    Client,
    /// The worker of another server.
    Peer,
}

/// More tickets of one session are refused: a client has no more servers.
const MAX_TICKETS: usize = 64;

// A bit for each lane is enough.
const _: () = assert!(MAX_LANES <= u32::BITS);

/// The table of all sessions, whose end is waited for.
#[derive(Default)]
pub struct Sessions(Monitor<rank::Sessions, HashMap<SessionId, Session>>);

/// Description of a session, without its activity.
fn status_of(session: SessionId, Session { about, release, is_gpudirect_on, .. }: &Session) -> SessionStatus {
    SessionStatus {
        session,
        program: about.program.clone(),
        host: about.host.clone(),
        process: about.process,
        peer: about.peer.to_string().into(),
        worker: about.worker,
        via: Printable::default(),
        open: u64::try_from(about.started_at.elapsed().as_millis()).unwrap_or(u64::MAX),
        activity: Activity::default(),
        release: release.status(),
        owner: about.owner.clone(),
        group: about.group.map_or(String::new(), |group| group.to_string()).into(),
        gpudirect: GpuDirectStatus { is_on: *is_gpudirect_on, ..GpuDirectStatus::default() },
        parent: about.parent,
    }
}

/// An open session, for metrics.
pub struct OwnedSession {
    /// Its number.
    pub session: SessionId,
    /// With which others it shares what one peer may have.
    pub source: Source,
    /// Whose it is.
    pub owner: SessionOwner,
    /// What it has done.
    pub counts: Counts,
}

/// The sessions without trials.
fn counted(table: &HashMap<SessionId, Session>) -> impl Iterator<Item = (&SessionId, &Session)> {
    table.iter().filter(|(_, session)| !session.is_trial)
}

/// What a session has done, for people.
fn summary(counts: &Counts) -> Activity {
    Activity {
        posted: counts.posted,
        called: counts.called,
        failed: counts.failed,
        launches: counts.launches,
        waits: counts.waits.count(),
        wait_time: counts.waits.sum,
        bytes_to_device: counts.bytes_to_device,
        bytes_from_device: counts.bytes_from_device,
    }
}

impl Sessions {
    /// Adds a session, unless there is one of that number; whether it is added.
    #[must_use]
    pub fn add(&self, id: SessionId, session: Session) -> bool {
        match self.0.lock().entry(id) {
            Entry::Vacant(vacant) => {
                vacant.insert(session);
                true
            }
            Entry::Occupied(_) => false,
        }
    }

    /// Removes a session whose worker has ended, and returns what it has done.
    pub fn remove(&self, id: SessionId) -> Counts {
        let removed = self.0.change(|table| table.remove(&id));
        if let Some(session) = &removed {
            session.moves.change(|progress| progress.has_ended = true);
        }
        removed.and_then(|session| session.page).map(|page| page.read()).unwrap_or_default()
    }

    /// The worker counts here what its session does; the first page stays.
    pub fn set_page(&self, id: SessionId, page: Arc<ActivityPage>) {
        if let Some(session) = self.0.lock().get_mut(&id) {
            session.page.get_or_insert(page);
        }
    }

    /// What a session has done so far, if its worker says where that is counted.
    pub fn counts(&self, id: SessionId) -> Option<Counts> {
        let page = self.0.lock().get(&id)?.page.clone();
        page.map(|page| page.read())
    }

    /// A session's device memory is on the host, so many bytes since then, or on the device again.
    pub fn set_released(&self, id: SessionId, released: Option<(u64, Instant)>) {
        if let Some(session) = self.0.lock().get_mut(&id) {
            session.release.released = released;
        }
    }

    /// A session's worker says why its device memory cannot be released; whether it says so for the first time.
    pub fn set_release_refused(&self, id: SessionId, why: &str) -> bool {
        let mut table = self.0.lock();
        let Some(session) = table.get_mut(&id) else { return false };
        let why: String = why.chars().take(MAX_REASON).collect();
        session.release.refused.replace(why.into()).is_none()
    }

    /// How many sessions' device memory is on the host, and how many bytes.
    pub fn released(&self) -> (usize, u64) {
        let table = self.0.lock();
        let released = counted(&table).filter_map(|(_, session)| session.release.released);
        released.fold((0, 0), |(count, sum), (bytes, _)| (count + 1, sum.saturating_add(bytes)))
    }

    /// A worker says something about the move of its session.
    pub fn moves(&self, id: SessionId, message: ToBroker) {
        let state = self.0.lock().get(&id).map(|session| Arc::clone(&session.moves));
        if let Some(state) = state {
            state.receive(message);
        }
    }

    /// By what a session's worker is reached, and what has come of its move.
    pub fn move_state(&self, id: SessionId) -> Option<(Arc<Control>, Arc<MoveState>)> {
        let table = self.0.lock();
        table.get(&id).map(|session| (Arc::clone(&session.control), Arc::clone(&session.moves)))
    }

    /// Whose session it is.
    pub fn peer(&self, id: SessionId) -> Option<Origin> {
        self.0.lock().get(&id).map(|session| session.about.peer)
    }

    /// Asks a session's worker to release its device memory; what comes of it comes by the receiver, which is closed
    /// when the session ends.
    pub fn request_release(&self, id: SessionId) -> Option<Receiver<Option<String>>> {
        let (sender, receiver) = bounded(1);
        let (control, number) = {
            let mut table = self.0.lock();
            let session = table.get_mut(&id)?;
            let release = &mut session.release;
            release.newest = release.newest.wrapping_add(1);
            release.requests.insert(release.newest, sender);
            (Arc::clone(&session.control), release.newest)
        };
        // One that has ended closes the receiver.
        let _ = messages::send(&control, &ToWorker::Release { number }, None);
        Some(receiver)
    }

    /// Has copies of a session use GPUDirect from the next one on, or staging; whether there is such a
    /// session, and its worker hears of it.
    pub fn set_gpudirect(&self, id: SessionId, is_on: bool) -> bool {
        let control = {
            let mut table = self.0.lock();
            let Some(session) = table.get_mut(&id) else { return false };
            session.is_gpudirect_on = is_on;
            Arc::clone(&session.control)
        };
        messages::send(&control, &ToWorker::GpuDirect { is_on }, None).is_ok()
    }

    /// What has come of a request for release.
    pub fn release_outcome(&self, id: SessionId, number: u32, refused: Option<String>) {
        let mut table = self.0.lock();
        let waiting = table.get_mut(&id).and_then(|session| session.release.requests.remove(&number));
        // Who waited may have gone.
        let _ = waiting.map(|waiting| waiting.send(refused));
    }

    /// What the open sessions have done.
    pub fn activity(&self) -> Vec<Counts> {
        let pages: Vec<_> = counted(&self.0.lock()).map(|(_, session)| session.page.clone()).collect();
        pages.into_iter().map(|page| page.map(|page| page.read()).unwrap_or_default()).collect()
    }

    /// The open sessions with their owners, the oldest first.
    pub fn owned(&self) -> Vec<OwnedSession> {
        let of = |(id, Session { about, page, .. }): (&SessionId, &Session)| {
            (about.started_at, *id, Source::of(about.peer), about.owner.clone(), page.clone())
        };
        let mut all: Vec<_> = counted(&self.0.lock()).map(of).collect();
        all.sort_by_key(|(started_at, ..)| *started_at);
        let owned = all.into_iter().map(|(_, session, source, owner, page)| {
            let counts = page.map(|page| page.read()).unwrap_or_default();
            OwnedSession { session, source, owner, counts }
        });
        owned.collect()
    }

    /// The open sessions, the oldest first.
    pub fn list(&self) -> Vec<SessionStatus> {
        let mut list: Vec<_> = counted(&self.0.lock())
            .map(|(id, session)| (session.about.started_at, status_of(*id, session), session.page.clone()))
            .collect();
        list.sort_by_key(|(started_at, ..)| *started_at);
        let statuses = list.into_iter().map(|(_, status, page)| {
            let counts = page.map(|page| page.read()).unwrap_or_default();
            let via = counts.via.map(|via| via.to_string()).unwrap_or_default();
            let gpudirect = GpuDirectStatus {
                is_available: counts.has_gpudirect,
                bytes_to_device: counts.gpudirect_to_device,
                bytes_from_device: counts.gpudirect_from_device,
                ..status.gpudirect
            };
            SessionStatus { via: via.into(), activity: summary(&counts), gpudirect, ..status }
        });
        statuses.collect()
    }

    /// The open sessions, as a broker that takes this one's place is to know them.
    pub fn remaining(&self) -> Vec<RemainingSession> {
        let of = |(_, Session { about, .. }): (&SessionId, &Session)| RemainingSession {
            source: Source::of(about.peer),
            worker: WorkerOf { worker: about.worker, client: about.process, host: about.host.clone() },
        };
        counted(&self.0.lock()).map(of).collect()
    }

    /// Waits until a session ends, or the time is over.
    pub fn wait_for_end(&self, timeout: Duration) {
        let before = self.0.lock().len();
        self.0.wait_for(timeout, |table| (table.len() < before).then_some(()));
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        counted(&self.0.lock()).count()
    }

    /// The worker that a lane belongs to, if its token is right and the session may open this lane and has
    /// not yet; or may open it again, or another connection for commands, since those that it had may be lost.
    pub fn admit_lane(&self, hello: &LaneHello) -> Option<Arc<Control>> {
        let mut table = self.0.lock();
        let session = table.get_mut(&hello.session).filter(|session| session.token == hello.token)?;
        if !(session.is_resumable && hello.lane == LaneHello::COMMANDS) {
            let bit = 1_u32.checked_shl(hello.lane)?;
            let is_open = session.opened & bit != 0;
            if hello.lane >= session.lanes || is_open && !session.is_resumable {
                return None;
            }
            session.opened |= bit;
        }
        Some(Arc::clone(&session.control))
    }

    /// Whether this is the token of a session, which only its client and its worker know.
    pub fn has_token(&self, id: SessionId, token: LaneToken) -> bool {
        self.0.lock().get(&id).is_some_and(|session| session.token == token && !session.is_trial)
    }

    /// Lets the worker of another server come to a session with a ticket; false when there are too many.
    pub fn add_ticket(&self, id: SessionId, token: LaneToken) -> bool {
        let mut table = self.0.lock();
        let Some(session) = table.get_mut(&id).filter(|session| session.tickets.len() < MAX_TICKETS) else {
            return false;
        };
        session.tickets.push(Ticket {
            token,
            id: ticket_id(&token),
            opened: 0,
            upgrades: UsedUpgrades::default(),
        });
        true
    }

    /// The ticket of which a caller has told the id.
    pub fn ticket(&self, id: TicketId) -> Option<LaneToken> {
        let table = self.0.lock();
        let mut tickets = table.values().flat_map(|session| &session.tickets);
        let of_peer = tickets.find(|ticket| ticket.id == id).map(|ticket| ticket.token);
        let mut of_clients = table.values().filter_map(|session| session.move_ticket);
        of_peer.or_else(|| of_clients.find(|ticket| ticket_id(ticket) == id))
    }

    /// The worker that a ticket leads to, if that is right and this connection has not come yet.
    pub fn admit_peer(&self, hello: &PeerHello) -> Option<Arc<Control>> {
        let mut table = self.0.lock();
        let session = table.get_mut(&hello.session)?;
        let ticket = session.tickets.iter_mut().find(|ticket| ticket.token == hello.ticket)?;
        let bit = 1_u64.checked_shl(hello.connection)?;
        if hello.connection > MAX_LANES || ticket.opened & bit != 0 {
            return None;
        }
        ticket.opened |= bit;
        Some(Arc::clone(&session.control))
    }

    /// Whether the bandwidth of a session is limited, whose token is right.
    pub fn is_paced(&self, session: SessionId, token: LaneToken) -> bool {
        self.0.lock().get(&session).is_some_and(|session| session.token == token && session.is_paced)
    }

    /// The worker that is asked for another transport, if the token is right, and who asks: the client, or another
    /// worker that has come with a ticket. Each may ask once for each transport.
    pub fn admit_upgrade(&self, hello: &UpgradeHello) -> Option<(Arc<Control>, Upgrader)> {
        let token = hello.token();
        let mut table = self.0.lock();
        let session = table.get_mut(&hello.session())?;
        let control = Arc::clone(&session.control);
        let (used, upgrader) = if session.token == token {
            (&mut session.upgrades, Upgrader::Client)
        } else {
            let ticket = session.tickets.iter_mut().find(|ticket| ticket.token == token)?;
            (&mut ticket.upgrades, Upgrader::Peer)
        };
        let transport = discriminant(hello);
        if used.contains(&transport) {
            return None;
        }
        used.push(transport);
        Some((control, upgrader))
    }

    /// Notifies all clients that the server is being stopped, asks their workers to end, kills those that are
    /// still there after `grace`, and waits until all have ended.
    pub fn end_all(&self, grace: Duration) {
        let controls: Vec<_> = self.0.lock().values().map(|session| Arc::clone(&session.control)).collect();
        let deadline = Instant::now() + NOTIFY_TIMEOUT;
        let left = || deadline.saturating_duration_since(Instant::now());
        let has_ended = |timeout| self.0.wait_for(timeout, |table| table.is_empty().then_some(())).is_some();
        let end = ToWorker::End { text: "the server is being stopped".into() };
        messages::send_to_all(&controls, &end, |pause| !has_ended(pause.min(left())) && !left().is_zero());
        if !controls.is_empty() {
            has_ended(left());
        }
        for signal in [Signal::TERM, Signal::KILL] {
            for session in self.0.lock().values() {
                // One that has ended meanwhile needs no signal.
                let _ = pidfd_send_signal(&session.process, signal);
            }
            self.0.wait_for(grace, |table| table.is_empty().then_some(()));
        }
        let workers = self.0.lock().len();
        if workers > 0 {
            tracing::warn!(workers, "workers that were killed have not ended; continuing without them");
        }
    }
}
