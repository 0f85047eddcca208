//! Session that is taken up here from its state: the state's header, and the start and end of its worker.

use std::fs::File;
use std::io::{self, BufReader, Seek as _, SeekFrom};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use causeway_sync::threads;
use causeway_wire::handshake::SessionId;

use super::accounting::Accounting;
use super::move_state::MoveState;
use super::session;
use super::shared::Shared;
use crate::admission::{Origin, SessionSlot};
use crate::protocol::messages::{self, ToWorker};
use crate::state_file::{StateHeader, StateReader};

/// What a worker takes a session up for.
pub enum Purpose {
    /// For its client, with the place that the session has among those of its peer.
    Client(SessionSlot),
    /// To see whether that can be done; it takes no place of others.
    Trial,
}

/// The header of a state, by which its worker is started.
pub fn read_header(file: &File) -> Result<StateHeader, String> {
    let read = || -> Result<StateHeader, Box<dyn core::error::Error>> {
        let mut file = file.try_clone()?;
        file.seek(SeekFrom::Start(0))?;
        let (_, header) = StateReader::begin(BufReader::new(&file))?;
        file.seek(SeekFrom::Start(0))?;
        Ok(header)
    };
    read().map_err(|error| error.to_string())
}

/// Starts a worker that takes up a session.
pub fn start(
    shared: &Arc<Shared>,
    peer: Origin,
    header: StateHeader,
    state: OwnedFd,
    purpose: Purpose,
) -> io::Result<Arc<MoveState>> {
    let progress = Arc::<MoveState>::default();
    let (shared, moves) = (Arc::clone(shared), Arc::clone(&progress));
    threads::spawn("restored", move || {
        let (slot, accounting) = match purpose {
            Purpose::Client(slot) => (Some(slot), Accounting::Session),
            Purpose::Trial => (None, Accounting::Trial),
        };
        let worker = session::run_restored(&shared, peer, header, state, &moves, accounting);
        match (worker, slot) {
            (Some(worker), Some(slot)) => shared.relatives.session_ends(worker, || drop(slot)),
            (_, slot) => drop(slot),
        }
    })?;
    Ok(progress)
}

/// Ends the worker of a session that was taken up here and is not to stay, now or once it is among the
/// sessions. `why` is for the log.
pub fn leave(shared: &Shared, session: SessionId, progress: &MoveState, why: &'static str) {
    progress.change(|progress| progress.unwanted = Some(why));
    if let Some((control, _)) = shared.sessions.move_state(session) {
        // A worker that has ended needs no word.
        let _ = messages::send(&control, &ToWorker::Leave { why: why.to_owned() }, None);
    }
}
