//! Migration of this rank to another container.
//!
//! The thread that sends and receives may enter other namespaces (`setns`, `unshare`) while the job runs.
//! Channels are suspended: nothing starts any more, and messages that it sends meanwhile go with the MPI.
//! What is in flight comes to its end. Then the rank joins the boards that it sees now with its new identity,
//! and tells each peer that it moves: both end their connections, look for each other again, by threads that
//! are where it is now, and find out anew what lies between them. Offers stay, with their words, so that no
//! message is lost; peers call nothing for that.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use causeway_sync::threads;
use thiserror::Error;

use super::connect::RESPONSE_TIMEOUT;
use super::join::accept;
use super::state::{ContainerCheck, Outgoing, PEER_TIMEOUT, World};
use crate::board::{Board, BoardError, BoardLocations};
use crate::identity::{Identity, Namespaces};
use crate::moving::MoveError;

/// How often a process is looked at, at most.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// From one look to the next at what is still in flight.
const DRAIN_INTERVAL: Duration = Duration::from_micros(200);

/// Why a rank does not go on in another container. Messages go on as before.
#[derive(Debug, Error)]
pub enum MoveFailed {
    /// One is under way.
    #[error(transparent)]
    InProgress(#[from] MoveError),
    /// Something is still in flight.
    #[error(
        "this rank could not move to another container, since messages were still in flight after {} s: a \
         peer may be stopped; messages continue as before", PEER_TIMEOUT.as_secs()
    )]
    InFlight,
    /// No board there.
    #[error("this rank is in another container, where other ranks cannot find it: {0}")]
    Board(#[from] BoardError),
    /// Something else of the system.
    #[error("this rank is in another container, and cannot open the socket for other ranks: {0}")]
    System(#[from] std::io::Error),
}

impl World {
    /// Has this rank's part follow its process into the container where it is now.
    ///
    /// # Errors
    /// When messages do not come to their end, or the other ranks cannot find this one there.
    pub fn move_here(&self) -> Result<(), MoveFailed> {
        self.shared.gate.begin()?;
        let moved = self.drain_and_move();
        if moved.is_err() {
            // Who cannot be told reads the slot.
            let _ = self.shared.board.lock().announce_stay();
        }
        self.shared.gate.resume();
        moved
    }

    /// The same where the process has entered other namespaces since it was looked at, some time ago.
    pub(super) fn follow_process(&self) {
        let now = Instant::now();
        let before = {
            let mut container_check = self.shared.container_check.lock();
            if now.saturating_duration_since(container_check.checked_at) < CHECK_INTERVAL {
                return;
            }
            container_check.checked_at = now;
            container_check.namespaces
        };
        if Namespaces::of_this_thread() != before
            && let Err(error) = self.move_here()
            && !matches!(error, MoveFailed::InProgress(_))
        {
            crate::report::print([error.to_string()]);
        }
    }

    fn drain_and_move(&self) -> Result<(), MoveFailed> {
        let shared = &self.shared;
        // What is seen of it on a board is for people; peers are told.
        let _ = shared.board.lock().announce_move();
        let until = Instant::now() + PEER_TIMEOUT;
        let is_drained = shared.gate.wait_until_drained(PEER_TIMEOUT);
        let is_in_flight = || !shared.in_flight.lock().is_idle() || shared.offers.are_being_fetched();
        while is_drained && is_in_flight() && Instant::now() < until {
            std::thread::sleep(DRAIN_INTERVAL);
        }
        if !is_drained || is_in_flight() {
            return Err(MoveFailed::InFlight);
        }
        self.join_again()?;
        self.reconnect_peers();
        Ok(())
    }

    /// Leaves the boards and sockets of the place before, and joins those of the place where the process is
    /// now.
    fn join_again(&self) -> Result<(), MoveFailed> {
        let shared = &self.shared;
        if let Some((stop, thread)) = self.acceptor.lock().take() {
            stop.stop();
            // One that has panicked has said so.
            let _ = thread.join();
        }
        let identity = Identity::of_this_process(shared.settings.placement.as_ref())?;
        *shared.container_check.lock() =
            ContainerCheck { namespaces: identity.namespaces, checked_at: Instant::now() };
        {
            let mut board = shared.board.lock();
            // It is the same process: a peer that has read the slot before knows it.
            let identity = Identity { process: board.slot().identity.process, ..identity };
            board.leave();
            let locations = BoardLocations::defaults(shared.settings.folder.clone());
            *board = Board::join(&shared.job, shared.rank, 0, identity, &locations)?;
        }
        *self.acceptor.lock() = Some(accept(shared)?);
        Ok(())
    }

    /// Ends all connections, so that both ends look for each other again.
    fn reconnect_peers(&self) {
        let shared = &self.shared;
        let (moves, connections, peers) = shared.outgoing.change(|outgoing| {
            let (mut connections, mut peers) = (Vec::new(), Vec::new());
            for (peer, state) in outgoing.iter_mut() {
                match state {
                    Outgoing::Connected(connection) => connections.push(Arc::clone(connection)),
                    Outgoing::LookedFor { has_moved: true, .. } => {}
                    _ => continue,
                }
                peers.push(*peer);
                let until = Some(Instant::now() + RESPONSE_TIMEOUT);
                *state = Outgoing::LookedFor { until, has_moved: true };
            }
            (shared.moves.fetch_add(1, Ordering::AcqRel) + 1, connections, peers)
        });
        for connection in connections {
            connection.send_moving();
        }
        for peer in peers {
            let again = Arc::clone(shared);
            // Threads that served peers before are in the namespaces before.
            let look = move || {
                if let Some(connection) = again.find_again(peer, moves) {
                    again.serve(connection);
                }
            };
            match threads::spawn(&format!("comm-{peer}"), look) {
                Ok(thread) => self.threads.lock().push((Some(peer), thread)),
                Err(_) => shared.lose(peer),
            }
        }
        let incoming: Vec<_> =
            shared.incoming.lock().iter().map(|(peer, one)| (*peer, Arc::clone(one))).collect();
        for (peer, fetcher) in incoming {
            // Before the peer hears of it: its next connection takes what this one leaves.
            shared.retire(peer, &fetcher);
            let mut locked = fetcher.lock();
            locked.learn_into(&mut shared.profile.lock());
            locked.leave();
        }
    }
}
