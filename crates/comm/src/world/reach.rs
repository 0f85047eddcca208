//! How does a rank come to the peers to which it hands messages over?

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::departures::Listener;
use super::state::{Outgoing, PATIENCE, Shared, World, lock};
use crate::meeting::{self, Connection};
use crate::transfer::message::Message;
use crate::transfer::serve::serve;
use crate::transfer::words::Words;

/// Times after which a peer is looked for again that was not there: it may join later.
const FIRST_RETRY: Duration = Duration::from_millis(20);
const LAST_RETRY: Duration = Duration::from_secs(2);

/// Which peers that were reached still are, for threads that outlive a call.
#[derive(Debug, Clone)]
pub struct Presence(Arc<Shared>);

impl Presence {
    /// Whether a peer that has been reached is there.
    pub fn has(&self, peer: u32) -> bool {
        peer == self.0.rank || matches!(lock(&self.0.outgoing).get(&peer), Some(Outgoing::Connected(_)))
    }
}

impl Shared {
    /// A peer has gone. What is left of it may hold memory of the driver, which is to be freed behind this: the
    /// driver may wait for kernels then that wait for that very peer, and lets no other call in.
    fn has_gone(&self, peer: u32) {
        lock(&self.outgoing).remove(&peer);
        self.departures.tell(peer);
    }
}

impl World {
    /// Has something called with each peer that goes from now on, in another thread.
    pub fn listen(&self, hears: impl Fn(u32) + Send + Sync + 'static) -> Listener {
        self.shared.departures.listen(Box::new(hears))
    }

    /// The peers that are there.
    pub fn presence(&self) -> Presence {
        Presence(Arc::clone(&self.shared))
    }

    /// How long a call in a graph waits for other ranks.
    pub fn graph_limit(&self) -> Duration {
        self.shared.settings.graph_limit
    }

    /// Whether a peer knows what a descriptor is and fetches what is offered: its socket has answered.
    pub fn reaches(&self, peer: u32) -> bool {
        if peer == self.shared.rank {
            return true;
        }
        let mut outgoing = lock(&self.shared.outgoing);
        let pause = match outgoing.get(&peer) {
            Some(Outgoing::Connected(_)) => return true,
            Some(Outgoing::LookedFor) => return false,
            Some(Outgoing::Missing { again, .. }) if *again > Instant::now() => return false,
            Some(Outgoing::Missing { pause, .. }) => (*pause * 2).min(LAST_RETRY),
            None => FIRST_RETRY,
        };
        let has_nearer = self.shared.settings.channels.iter().any(|channel| !channel.is_between_hosts());
        let connected = if has_nearer { self.connect(peer) } else { None };
        let is_reached = connected.is_some();
        let is_looked_for =
            !is_reached && self.shared.settings.uses_network() && self.look_over_network(peer, pause);
        let state = match connected {
            Some(connection) => Outgoing::Connected(connection),
            None if is_looked_for => Outgoing::LookedFor,
            None => Outgoing::Missing { again: Instant::now() + pause, pause },
        };
        outgoing.insert(peer, state);
        is_reached
    }

    /// Whether a peer is reached on this host. Unlike [`reaches`](Self::reaches) it looks again at once for a
    /// peer that was not there before; it may have joined since.
    pub fn is_near(&self, peer: u32) -> bool {
        if let Some(Outgoing::Missing { again, .. }) = lock(&self.shared.outgoing).get_mut(&peer) {
            *again = Instant::now();
        }
        let is_reached = self.reaches(peer);
        let outgoing = lock(&self.shared.outgoing);
        match outgoing.get(&peer) {
            Some(Outgoing::Connected(connection)) => !connection.is_network(),
            _ => is_reached && peer == self.shared.rank,
        }
    }

    /// Looks for a peer at the hosts that the user names, in a thread of its own, since a host may take long
    /// to answer. That thread serves the peer when it is found.
    fn look_over_network(&self, peer: u32, pause: Duration) -> bool {
        let shared = Arc::clone(&self.shared);
        let look = move || {
            let own = lock(&shared.board).slot().clone();
            let found = meeting::reach_over_network(&shared.job, &own, peer, &shared.settings.hosts);
            let connection = found.ok().filter(|connection| {
                connection.set_patience(Some(PATIENCE)).is_ok()
                    && connection.say_with(Message::Words, None).is_ok()
            });
            let mut outgoing = lock(&shared.outgoing);
            let Some(connection) = connection.filter(|_| !shared.has_left.load(Ordering::Acquire)) else {
                outgoing.insert(peer, Outgoing::Missing { again: Instant::now() + pause, pause });
                return;
            };
            let connection = Arc::new(connection);
            outgoing.insert(peer, Outgoing::Connected(Arc::clone(&connection)));
            drop(outgoing);
            let left = serve(&connection, &shared.offers);
            shared.has_gone(peer);
            drop(left);
        };
        std::thread::Builder::new().name(format!("causeway-comm-{peer}")).spawn(look).is_ok()
    }

    fn connect(&self, peer: u32) -> Option<Arc<Connection>> {
        let (own, scan) = {
            let board = lock(&self.shared.board);
            (board.slot().clone(), board.scan())
        };
        // Without the board: the peer may have to let another rank in first, which needs its own board; three
        // ranks that reach for each other in a circle would wait until one loses its patience.
        let connection = meeting::reach(&self.shared.job, &own, scan.get(peer)?).ok()?;
        connection.set_patience(Some(PATIENCE)).ok()?;
        let words = Words::new().ok();
        let descriptor = words.as_ref().map(Words::descriptor);
        connection.say_with(Message::Words, descriptor).ok()?;
        if let Some(words) = words {
            self.shared.offers.open(peer, Arc::new(words));
        }
        let connection = Arc::new(connection);
        let (serving, shared) = (Arc::clone(&connection), Arc::clone(&self.shared));
        let thread = std::thread::Builder::new().name(format!("causeway-comm-{peer}")).spawn(move || {
            let left = serve(&serving, &shared.offers);
            shared.has_gone(serving.peer);
            drop(left);
        });
        lock(&self.threads).push(thread.ok()?);
        Some(connection)
    }
}
