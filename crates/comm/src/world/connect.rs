//! Connections to peers, on demand.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use causeway_sync::threads;

use super::state::{Listener, Outgoing, PEER_TIMEOUT, Shared, World};
use crate::bootstrap::{self, Connection};
use crate::channels::protocol::Message;
use crate::transfer::serve::{End, serve};
use crate::transfer::state_words::{ControlSlots, StateWords};

/// Times after which a peer is looked for again that was not there: it may join later.
const MIN_RETRY_DELAY: Duration = Duration::from_millis(20);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(2);

/// For how long a call waits for a peer of this host that has not answered: it may be stopped, or have no
/// descriptor left. Messages go with the MPI until it does.
pub(super) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(2);

/// The same when the peer is looked for again.
const RETRY_TIMEOUT: Duration = Duration::from_millis(50);

/// The same for a call in which all ranks are to find the same: as long as each of two sockets may take to
/// answer.
const AGREEMENT_TIMEOUT: Duration = Duration::from_secs(10);

/// Which peers that were reached still are, for threads that outlive a call.
#[derive(Debug, Clone)]
pub struct Presence(Arc<Shared>);

impl Presence {
    /// Whether a peer that has been reached is there.
    pub fn has(&self, peer: u32) -> bool {
        let outgoing = self.0.outgoing.lock();
        let is_there = |state: &Outgoing| {
            matches!(state, Outgoing::Connected(_) | Outgoing::LookedFor { has_moved: true, .. })
        };
        peer == self.0.rank || outgoing.get(&peer).is_some_and(is_there)
    }
}

impl Shared {
    /// A peer has gone. What is left of it may hold memory of the driver, which is to be freed behind this:
    /// the driver may wait for kernels then that wait for that very peer, and lets no other call in.
    fn peer_disconnected(&self, peer: u32) {
        self.outgoing.lock().remove(&peer);
        self.disconnect_listeners.notify(peer);
    }
}

impl World {
    /// The control slots of a peer of this host; none where the two share no memory. To be asked when the peer
    /// has reached this rank, too: its connection may come in a moment.
    pub fn control_slots(&self, peer: u32) -> Option<ControlSlots> {
        if !self.is_local(peer) {
            return None;
        }
        let own = self.shared.offers.state_words(peer)?;
        let fetcher = self.fetcher(peer).ok()?;
        let theirs = fetcher.lock().state_words().ok()??;
        Some(ControlSlots { own, theirs })
    }

    /// Has something called with each peer that goes from now on, in another thread.
    pub fn listen(&self, callback: impl Fn(u32) + Send + Sync + 'static) -> Listener {
        self.shared.disconnect_listeners.listen(Box::new(callback))
    }

    /// The peers that are there.
    pub fn presence(&self) -> Presence {
        Presence(Arc::clone(&self.shared))
    }

    /// How long a call in a graph waits for other ranks.
    pub fn graph_limit(&self) -> Duration {
        self.shared.settings.graph_limit
    }

    /// Whether a peer knows what a descriptor is and fetches what is offered: its socket has answered. One
    /// that does not answer soon is looked for behind this.
    pub fn is_reachable(&self, peer: u32) -> bool {
        if peer == self.shared.rank {
            return true;
        }
        let now = Instant::now();
        let mut outgoing = self.shared.outgoing.lock();
        let (pause, timeout) = match outgoing.get(&peer) {
            Some(Outgoing::Connected(_)) => return true,
            Some(Outgoing::LookedFor { until: Some(until), .. }) => {
                let until = *until;
                drop(outgoing);
                return self.wait_for_peer(peer, until);
            }
            Some(Outgoing::LookedFor { until: None, .. }) => return false,
            Some(Outgoing::Missing { again, .. }) if *again > now => return false,
            Some(Outgoing::Missing { pause, is_silent: true, .. }) => (*pause * 2, Duration::ZERO),
            Some(Outgoing::Missing { pause, .. }) => (*pause * 2, RETRY_TIMEOUT),
            None => (MIN_RETRY_DELAY, RESPONSE_TIMEOUT),
        };
        let pause = pause.min(MAX_RETRY_DELAY);
        let until = now + timeout;
        let local_deadline = self.shared.has_nearer().then_some(until);
        outgoing.insert(peer, Outgoing::LookedFor { until: local_deadline, has_moved: false });
        drop(outgoing);
        if self.look_for(peer, pause) {
            return self.wait_for_peer(peer, until);
        }
        let missing = Outgoing::Missing { again: now + pause, pause, is_silent: false };
        self.shared.outgoing.change(|outgoing| outgoing.insert(peer, missing));
        false
    }

    /// Waits for the thread that looks for a peer. Says whether it has found it by then.
    fn wait_for_peer(&self, peer: u32, until: Instant) -> bool {
        let timeout = until.saturating_duration_since(Instant::now());
        let found = self.shared.outgoing.wait_for(timeout, |outgoing| match outgoing.get(&peer) {
            Some(Outgoing::LookedFor { until: Some(_), .. }) => None,
            state => Some(matches!(state, Some(Outgoing::Connected(_)))),
        });
        found.unwrap_or(false)
    }

    /// Whether a peer is reached on this host. Unlike [`is_reachable`](Self::is_reachable) it looks again at
    /// once for a peer that was not there before; it may have joined since.
    pub fn is_local(&self, peer: u32) -> bool {
        if let Some(Outgoing::Missing { again, .. }) = self.shared.outgoing.lock().get_mut(&peer) {
            *again = Instant::now();
        }
        if !self.is_reachable(peer) {
            self.wait_for_peer(peer, Instant::now() + AGREEMENT_TIMEOUT);
        }
        let outgoing = self.shared.outgoing.lock();
        match outgoing.get(&peer) {
            Some(Outgoing::Connected(connection)) => !connection.is_network(),
            _ => peer == self.shared.rank,
        }
    }

    /// Looks for a peer in a thread of its own, which serves the peer when it is found. Says whether there is
    /// one.
    fn look_for(&self, peer: u32, pause: Duration) -> bool {
        let (shared, has_nearer) = (Arc::clone(&self.shared), self.shared.has_nearer());
        let look = move || {
            let start = Instant::now();
            let found = if has_nearer { shared.connect(peer) } else { None };
            let found = found.or_else(|| {
                let looked_for = Outgoing::LookedFor { until: None, has_moved: false };
                shared.outgoing.change(|outgoing| outgoing.insert(peer, looked_for));
                shared.connect_over_network(peer)
            });
            let found = found.map(Arc::new);
            let now = Instant::now();
            let is_silent = now - start > RESPONSE_TIMEOUT;
            let connection = shared.outgoing.change(|outgoing| {
                let found = found.filter(|_| !shared.has_left.load(Ordering::Acquire));
                let state = match &found {
                    Some(connection) => Outgoing::Connected(Arc::clone(connection)),
                    None => Outgoing::Missing { again: now + pause, pause, is_silent },
                };
                outgoing.insert(peer, state);
                found
            });
            if let Some(connection) = connection {
                shared.serve(connection);
            }
        };
        let thread = threads::spawn(&format!("comm-{peer}"), look);
        thread.map(|thread| self.threads.lock().push((Some(peer), thread))).is_ok()
    }
}

impl Shared {
    /// Serves a peer by a connection until that ends, and by the next one where the peer has moved.
    pub(super) fn serve(&self, connection: Arc<Connection>) {
        let mut connection = Some(connection);
        while let Some(current) = connection {
            connection = self.serve_one(&current);
        }
    }

    fn serve_one(&self, connection: &Arc<Connection>) -> Option<Arc<Connection>> {
        let peer = connection.peer;
        let moves = self.moves.load(Ordering::Acquire);
        let (end, left) = serve(connection, &self.offers, &self.gate, &self.live);
        let is_current = |outgoing: &HashMap<u32, Outgoing>| matches!(outgoing.get(&peer), Some(Outgoing::Connected(current)) if Arc::ptr_eq(current, connection));
        let is_moved = self.outgoing.change(|outgoing| {
            if !is_current(outgoing) {
                // This rank has moved, and another thread looks for the peer.
                return None;
            }
            if end == End::Moving {
                let until = Some(Instant::now() + RESPONSE_TIMEOUT);
                outgoing.insert(peer, Outgoing::LookedFor { until, has_moved: true });
            }
            Some(end == End::Moving)
        });
        match is_moved {
            None => None,
            Some(true) => {
                drop(left);
                // It may be this rank that moves.
                drop(self.gate.start());
                self.find_again(peer, moves)
            }
            Some(false) => {
                self.lose(peer);
                drop(left);
                None
            }
        }
    }

    /// A peer does not come again.
    pub(super) fn lose(&self, peer: u32) {
        self.offers.end_all(peer);
        self.peer_disconnected(peer);
    }

    /// Looks for a peer that was there before one of both moved, until it must have been there again. Another
    /// thread does, in the container where this rank is then, where that has moved more often than so many
    /// times.
    pub(super) fn find_again(&self, peer: u32, moves: u64) -> Option<Arc<Connection>> {
        let until = Instant::now() + PEER_TIMEOUT;
        let has_moved_on = || self.moves.load(Ordering::Acquire) != moves;
        while !has_moved_on() && !self.has_left.load(Ordering::Acquire) {
            let local = if self.has_nearer() { self.connect(peer) } else { None };
            let found = local.or_else(|| self.connect_over_network(peer)).map(Arc::new);
            let Some(found) = found else {
                if Instant::now() > until {
                    self.lose(peer);
                    return None;
                }
                std::thread::sleep(MIN_RETRY_DELAY);
                continue;
            };
            let is_stored = self.outgoing.change(|outgoing| {
                let stays = !has_moved_on() && !self.has_left.load(Ordering::Acquire);
                if stays {
                    outgoing.insert(peer, Outgoing::Connected(Arc::clone(&found)));
                }
                stays
            });
            if is_stored {
                return Some(found);
            }
            // The peer may have seen it.
            found.send_moving();
        }
        None
    }

    fn has_nearer(&self) -> bool {
        self.settings.channels.iter().any(|channel| !channel.is_between_hosts())
    }

    /// Connects to a peer of this host.
    fn connect(&self, peer: u32) -> Option<Connection> {
        let (own, scan) = {
            let board = self.board.lock();
            let scan = board.scan();
            if scan.local_count() as u64 == u64::from(self.job.ranks()) {
                // Nobody else will look for it. What cannot be removed now is removed at the end.
                let _ = board.forget_segment();
            }
            (board.slot().clone(), scan)
        };
        // Without the board: the peer may have to let another rank in first, which needs its own board; three
        // ranks that reach for each other in a circle would wait until one times out.
        let connection = bootstrap::connect(&self.job, &own, scan.get(peer)?).ok()?;
        connection.set_timeout(Some(PEER_TIMEOUT)).ok()?;
        if self.offers.state_words(peer).is_some() {
            // The peer has them from the connection before.
            connection.send_with_descriptor(Message::StateWords { are_known: true }, None).ok()?;
            return Some(connection);
        }
        let state_words = StateWords::new().ok();
        let descriptor = state_words.as_ref().map(|(_, memory)| memory.descriptor());
        connection.send_with_descriptor(Message::StateWords { are_known: false }, descriptor).ok()?;
        if let Some((state_words, _)) = state_words {
            self.offers.open(peer, Arc::new(state_words));
        }
        Some(connection)
    }

    /// Connects to a peer at the hosts that the user names.
    fn connect_over_network(&self, peer: u32) -> Option<Connection> {
        if !self.settings.uses_network() {
            return None;
        }
        let own = self.board.lock().slot().clone();
        let connection = bootstrap::connect_over_network(&self.job, &own, peer, &self.settings.hosts).ok()?;
        connection.set_timeout(Some(PEER_TIMEOUT)).ok()?;
        connection.send_with_descriptor(Message::StateWords { are_known: false }, None).ok()?;
        Some(connection)
    }
}
