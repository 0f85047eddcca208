//! Bootstrap of a team's processes: connections and window memory.
//!
//! A team has a board and sockets of its own, under a nonce that is derived from the job's. The lower rank of
//! two connects to the higher one. For each window every rank sends every other one 16 bytes and the
//! descriptor of its part: which window it is (so that ranks which make others notice), where it lies, and
//! its bytes.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use thiserror::Error;

use super::announcement::{Announcement, GOODBYE, GPU, NONE, message};
use crate::board::{Board, BoardError, BoardLocations};
use crate::bootstrap::{self, BootstrapListener, Connection};
use crate::identity::Identity;
use crate::job::{Job, JobError};

/// How long ranks wait for each other to join, and to make a window.
const PEER_TIMEOUT: Duration = Duration::from_secs(60);

/// How often a rank that is not there yet is looked for.
const RETRY: Duration = Duration::from_millis(10);

/// Why ranks don't come together.
#[derive(Debug, Error)]
pub enum PeerError {
    /// No such job or rank.
    #[error(transparent)]
    Job(#[from] JobError),
    /// No board.
    #[error(transparent)]
    Board(#[from] BoardError),
    /// Something of the system.
    #[error("the socket by which other ranks reach this one cannot be opened: {0}")]
    System(#[from] io::Error),
    /// Somebody has not come.
    #[error("rank {0} has not joined the team within 60 s; all ranks of a team are on one host")]
    Missing(u32),
    /// It has gone, or says nothing.
    #[error("rank {rank} has not made the window: {cause}")]
    Silent {
        /// Who.
        rank: u32,
        /// What the system says.
        cause: io::Error,
    },
    /// It could not make its part.
    #[error("rank {0} could not make its part of the window, and has said why")]
    Refused(u32),
    /// It makes another window.
    #[error(
        "rank {rank} makes another window ({theirs}) than this rank ({ours}): all ranks make the same ones, \
         in the same order"
    )]
    Different {
        /// Who.
        rank: u32,
        /// What it says.
        theirs: Announcement,
        /// What is made here.
        ours: Announcement,
    },
}

/// The other ranks of a team, each in a process of its own.
#[derive(Debug)]
pub struct Peers {
    rank: u32,
    /// By rank; none for this one.
    connections: Vec<Option<Connection>>,
    _board: Board,
}

impl Peers {
    /// Meets all other ranks of a team.
    ///
    /// # Errors
    /// When one of them does not come.
    pub fn join(nonce: [u8; 16], rank: u32, ranks: u32, folder: Option<PathBuf>) -> Result<Self, PeerError> {
        // Boards and sockets of the job itself, if it has some, are others.
        let nonce = Job::new(nonce, ranks)?.proof(b"kernels that communicate");
        let job = Job::new(nonce, ranks)?;
        let board =
            Board::join(&job, rank, 0, Identity::of_this_process(None)?, &BoardLocations::defaults(folder))?;
        let mut listener = BootstrapListener::open(&job, &board)?;
        let until = Instant::now() + PEER_TIMEOUT;
        let stop = listener.stopper();
        let mut connections: Vec<Option<Connection>> = (0..ranks).map(|_| None).collect();
        let connected = std::thread::scope(|scope| {
            let lower = scope.spawn(move || {
                let mut arrived: Vec<Connection> = Vec::new();
                // Who cannot prove to be a rank of this team is nobody.
                while arrived.len() < rank as usize
                    && let Some(arrival) = listener.arrival()
                {
                    let new = arrival.ok().filter(|new| arrived.iter().all(|other| other.peer != new.peer));
                    arrived.extend(new.filter(|new| new.peer < rank));
                }
                arrived
            });
            let higher = (rank + 1..ranks).try_for_each(|peer| {
                let connection = connect(&job, &board, peer, until)?;
                connections[peer as usize] = Some(connection);
                Ok::<(), PeerError>(())
            });
            while !lower.is_finished() && higher.is_ok() && Instant::now() < until {
                std::thread::sleep(RETRY);
            }
            stop.stop();
            for connection in lower.join().unwrap_or_default() {
                let peer = connection.peer as usize;
                connections[peer] = Some(connection);
            }
            higher
        });
        connected?;
        for (peer, connection) in connections.iter().enumerate() {
            match connection {
                Some(connection) => connection.set_timeout(Some(PEER_TIMEOUT))?,
                None if peer != rank as usize => return Err(PeerError::Missing(peer as u32)),
                None => {}
            }
        }
        // All have met this rank. What cannot be removed is another rank's to remove.
        let _ = board.forget_names();
        Ok(Self { rank, connections, _board: board })
    }

    fn others(&self) -> impl Iterator<Item = (u32, &Connection)> {
        let numbered = (0..).zip(&self.connections);
        numbered.filter_map(|(rank, connection)| Some((rank, connection.as_ref()?)))
    }

    /// Tells all others of this rank's part, or that it has none, and hears of theirs: a descriptor by rank.
    ///
    /// # Errors
    /// When one of them has none, or another one.
    pub fn exchange(
        &self,
        ours: Announcement,
        part: Option<&OwnedFd>,
    ) -> Result<Vec<Option<OwnedFd>>, PeerError> {
        let bytes = part.map_or_else(|| message(ours.number, NONE, 0), |_| ours.encode());
        for (rank, connection) in self.others() {
            let sent = connection.send(&bytes, part.map(|part| part.as_fd()));
            sent.map_err(|cause| PeerError::Silent { rank, cause })?;
        }
        let mut parts: Vec<Option<OwnedFd>> = self.connections.iter().map(|_| None).collect();
        let mut wrong = None;
        for (rank, connection) in self.others() {
            match receive_announcement(rank, connection, ours) {
                Ok(descriptor) => parts[rank as usize] = Some(descriptor),
                // The others are heard all the same, or the next window would find their words.
                Err(error) => wrong = wrong.or(Some(error)),
            }
        }
        wrong.map_or(Ok(parts), Err)
    }

    /// Tells all others which GPU this rank has, and gives that of each rank; 0 where one has said something else.
    ///
    /// # Errors
    /// When one of them has gone.
    pub fn gpus(&self, number: u64) -> Result<Vec<u64>, PeerError> {
        for (rank, connection) in self.others() {
            let sent = connection.send(&message(0, GPU, number), None);
            sent.map_err(|cause| PeerError::Silent { rank, cause })?;
        }
        let mut gpus = vec![number; self.connections.len()];
        for (rank, connection) in self.others() {
            let silent = |cause| PeerError::Silent { rank, cause };
            let received = connection.receive().map_err(silent)?;
            let (received, _) = received.ok_or_else(|| silent(io::ErrorKind::UnexpectedEof.into()))?;
            let theirs = received.last_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
            gpus[rank as usize] = if received == message(0, GPU, theirs) { theirs } else { 0 };
        }
        Ok(gpus)
    }

    /// A rank that has ended without a word, if there is one.
    pub fn ended(&self) -> Option<u32> {
        self.others().find(|(_, connection)| connection.has_ended()).map(|(rank, _)| rank)
    }

    /// Says that this rank leaves, so that its end is not taken for a failure.
    pub fn send_goodbye(&self) {
        for (_, connection) in self.others() {
            // Who has gone needs no word.
            let _ = connection.send(&message(0, GOODBYE, 0), None);
        }
    }

    /// Ends all connections: the others' kernels end their waits.
    pub fn shut(&self) {
        self.others().for_each(|(_, connection)| connection.shut());
    }

    /// This rank.
    pub fn rank(&self) -> u32 {
        self.rank
    }
}

fn connect(job: &Job, board: &Board, peer: u32, until: Instant) -> Result<Connection, PeerError> {
    loop {
        if let Some(seen) = board.scan().get(peer)
            && let Ok(connection) = bootstrap::connect(job, board.slot(), seen)
        {
            return Ok(connection);
        }
        if Instant::now() > until {
            return Err(PeerError::Missing(peer));
        }
        std::thread::sleep(RETRY);
    }
}

fn receive_announcement(
    rank: u32,
    connection: &Connection,
    ours: Announcement,
) -> Result<OwnedFd, PeerError> {
    let silent = |cause| PeerError::Silent { rank, cause };
    let received = connection.receive().map_err(silent)?;
    let (message, descriptor) = received.ok_or_else(|| silent(io::ErrorKind::UnexpectedEof.into()))?;
    match (Announcement::decode(&message), descriptor) {
        (Some(theirs), Some(descriptor)) if theirs == ours => Ok(descriptor),
        (Some(theirs), _) if theirs != ours => Err(PeerError::Different { rank, theirs, ours }),
        _ => Err(PeerError::Refused(rank)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descriptor() -> OwnedFd {
        std::fs::File::open("/dev/null").unwrap().into()
    }

    fn all<T: Send>(
        folder: &std::path::Path,
        nonce: u8,
        ranks: u32,
        run: impl Fn(&Peers) -> T + Sync,
    ) -> Vec<T> {
        std::thread::scope(|scope| {
            let started: Vec<_> = (0..ranks)
                .map(|rank| {
                    let run = &run;
                    scope.spawn(move || {
                        let peers = Peers::join([nonce; 16], rank, ranks, Some(folder.to_owned())).unwrap();
                        run(&peers)
                    })
                })
                .collect();
            started.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    #[test]
    fn ranks_meet_and_hear_of_each_others_windows() {
        let folder = tempfile::tempdir().unwrap();
        let nonce = std::process::id() as u8;
        let received = all(folder.path(), nonce, 4, |peers| {
            let same = Announcement { number: 0, in_host: false, bytes: 4096 };
            let parts = peers.exchange(same, Some(&descriptor())).unwrap();
            let there: Vec<bool> = parts.iter().map(Option::is_some).collect();
            // Then one has another window, and at last one has none.
            let bytes = if peers.rank() == 2 { 1 } else { 2 };
            let other = Announcement { number: 1, in_host: true, bytes };
            let different = peers.exchange(other, Some(&descriptor())).unwrap_err().to_string();
            let part = descriptor();
            let last = Announcement { number: 2, in_host: false, bytes: 8 };
            let refused = peers.exchange(last, (peers.rank() != 1).then_some(&part));
            (there, different, refused.map(drop).map_err(|error| error.to_string()))
        });
        for (rank, (there, different, refused)) in received.into_iter().enumerate() {
            assert!(there.iter().enumerate().all(|(peer, there)| *there == (peer != rank)));
            assert!(different.contains("makes another window"), "{different}");
            assert_eq!(refused.is_ok(), rank == 1, "{refused:?}");
        }
    }

    #[test]
    fn an_end_without_a_word_is_noticed_and_a_goodbye_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let nonce = (std::process::id() as u8).wrapping_add(101);
        let ended = all(folder.path(), nonce, 3, |peers| match peers.rank() {
            0 => {
                peers.send_goodbye();
                None
            }
            1 => {
                peers.shut();
                None
            }
            _ => loop {
                if let Some(rank) = peers.ended() {
                    break Some(rank);
                }
            },
        });
        assert_eq!(ended[2], Some(1));
    }
}
