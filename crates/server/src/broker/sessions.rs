//! Which sessions are there, and to which does a lane belong?

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_access::target::ticket_id;
use causeway_pipeline::MOST_LANES;
use causeway_wire::handshake::{JoinHello, LaneHello, LaneToken, PeerHello, SessionId, TicketId, VerbsHello};
use parking_lot::{Condvar, Mutex};
use rustix::process::{Signal, pidfd_send_signal};

use crate::protocol::control::Control;

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
    /// What its client has asked for.
    pub asked: Asked,
    /// With which tickets workers of other servers may come.
    pub tickets: Vec<Ticket>,
}

/// What leads the worker of another server to a session, and which of its connections have come with it, one
/// bit for each.
pub struct Ticket {
    token: LaneToken,
    id: TicketId,
    opened: u64,
    asked: Asked,
}

/// What somebody has asked for who may ask once.
#[derive(Debug, Default)]
pub struct Asked {
    /// To share memory.
    memory: bool,
    /// To go on over verbs.
    verbs: bool,
}

/// Who wants to share memory with a worker, or to go on over verbs.
pub enum Joiner {
    /// Its client.
    Client,
    /// The worker of another server, with this ticket.
    Peer(LaneToken),
}

/// More tickets of one session are refused: a client has no more servers.
const MOST_TICKETS: usize = 64;

// A bit for each lane is enough.
const _: () = assert!(MOST_LANES <= u32::BITS);

/// The table of all sessions.
#[derive(Default)]
pub struct Sessions {
    table: Mutex<HashMap<SessionId, Session>>,
    ended: Condvar,
}

impl Sessions {
    /// Adds a session.
    pub fn add(&self, id: SessionId, session: Session) {
        self.table.lock().insert(id, session);
    }

    /// Removes a session whose worker has ended.
    pub fn remove(&self, id: SessionId) {
        self.table.lock().remove(&id);
        self.ended.notify_all();
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.table.lock().len()
    }

    /// The worker that a lane belongs to, if its token is right and the session may open this lane and has
    /// not yet.
    pub fn admit_lane(&self, hello: &LaneHello) -> Option<Arc<Control>> {
        let mut table = self.table.lock();
        let session = table.get_mut(&hello.session).filter(|session| session.token == hello.token)?;
        let bit = 1_u32.checked_shl(hello.lane)?;
        if hello.lane >= session.lanes || session.opened & bit != 0 {
            return None;
        }
        session.opened |= bit;
        Some(Arc::clone(&session.control))
    }

    /// Lets the worker of another server come to a session with a ticket; false when there are too many.
    pub fn add_ticket(&self, id: SessionId, token: LaneToken) -> bool {
        let mut table = self.table.lock();
        let Some(session) = table.get_mut(&id).filter(|session| session.tickets.len() < MOST_TICKETS) else {
            return false;
        };
        session.tickets.push(Ticket { token, id: ticket_id(&token), opened: 0, asked: Asked::default() });
        true
    }

    /// The ticket of which a caller has told the id.
    pub fn ticket(&self, id: TicketId) -> Option<LaneToken> {
        let table = self.table.lock();
        let mut tickets = table.values().flat_map(|session| &session.tickets);
        tickets.find(|ticket| ticket.id == id).map(|ticket| ticket.token)
    }

    /// The worker that a ticket leads to, if that is right and this connection has not come yet.
    pub fn admit_peer(&self, hello: &PeerHello) -> Option<Arc<Control>> {
        let mut table = self.table.lock();
        let session = table.get_mut(&hello.session)?;
        let ticket = session.tickets.iter_mut().find(|ticket| ticket.token == hello.ticket)?;
        let bit = 1_u64.checked_shl(hello.connection)?;
        if hello.connection > MOST_LANES || ticket.opened & bit != 0 {
            return None;
        }
        ticket.opened |= bit;
        Some(Arc::clone(&session.control))
    }

    /// The worker that somebody on this host wants to share memory with, if the token is right, and who that
    /// is: the client, or another worker that has come with a ticket. Each may ask once.
    pub fn admit_join(&self, hello: &JoinHello) -> Option<(Arc<Control>, Joiner)> {
        self.admit_once(hello.session, hello.token, |asked| &mut asked.memory)
    }

    /// The worker that somebody wants to go on over verbs with, if the token is right, and who that is. Each
    /// may ask once.
    pub fn admit_verbs(&self, hello: &VerbsHello) -> Option<(Arc<Control>, Joiner)> {
        self.admit_once(hello.session, hello.token, |asked| &mut asked.verbs)
    }

    fn admit_once(
        &self,
        session: SessionId,
        token: LaneToken,
        what: impl FnOnce(&mut Asked) -> &mut bool,
    ) -> Option<(Arc<Control>, Joiner)> {
        let mut table = self.table.lock();
        let session = table.get_mut(&session)?;
        let control = Arc::clone(&session.control);
        let (asked, joiner) = if session.token == token {
            (&mut session.asked, Joiner::Client)
        } else {
            let ticket = session.tickets.iter_mut().find(|ticket| ticket.token == token)?;
            (&mut ticket.asked, Joiner::Peer(token))
        };
        (!core::mem::replace(what(asked), true)).then_some((control, joiner))
    }

    /// Asks all workers to end, kills those that are still there after `grace`, and waits until all have
    /// ended.
    pub fn end_all(&self, grace: Duration) {
        let mut table = self.table.lock();
        for (signal, patience) in [(Signal::TERM, grace), (Signal::KILL, grace)] {
            for session in table.values() {
                // One that has ended meanwhile needs no signal.
                let _ = pidfd_send_signal(&session.process, signal);
            }
            let deadline = Instant::now() + patience;
            while !table.is_empty() && !self.ended.wait_until(&mut table, deadline).timed_out() {}
        }
        if !table.is_empty() {
            tracing::warn!(
                workers = table.len(),
                "workers that were killed have not ended; going on without them"
            );
        }
    }
}
