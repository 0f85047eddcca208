//! Bootstrap of a team's processes: connections and window memory.
//!
//! A team has a board and sockets of its own, under a nonce that is derived from the job's. The lower rank of
//! two connects to the higher one: on this host where a board shows it, and else at the hosts that the user
//! names, twice, as what proxies say to each other has a stream of its own. For each window every rank sends
//! every other one 16 bytes, and to those of its host the descriptor of its part: which window it is (so that
//! ranks which make others notice), where it lies, and its bytes.

mod join;

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use thiserror::Error;

use super::gpu::Block;
use crate::board::{Board, BoardError, BoardLocations};
use crate::bootstrap::{ByteStream, Connection, MESSAGE_BYTES};
use crate::device::windows::{
    ALL_VERBS, Announcement, GOODBYE, GPU, JOINED, KEY, LINK, NIC, NO_KEY, NONE, VERBS, message,
};
use crate::job::JobError;
use crate::locks::{Mutex, rank};
use crate::verbs::{ENDPOINT_BYTES, EndpointAddress};

/// How long ranks wait for each other to join, and to make a window.
const JOIN_TIMEOUT: Duration = Duration::from_secs(60);

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
    #[error("cannot open the socket for other ranks: {0}")]
    System(#[from] io::Error),
    /// No other host can reach this one.
    #[error(
        "ranks of the hosts that CAUSEWAY_COMM_HOSTS names cannot connect to this one, since it cannot \
         listen: {0}"
    )]
    Listen(String),
    /// Somebody has not come.
    #[error("rank {rank} has not joined the team within {} s: {cause}", JOIN_TIMEOUT.as_secs())]
    Missing {
        /// Who.
        rank: u32,
        /// Where it was looked for.
        cause: String,
    },
    /// It has gone, or says nothing.
    #[error("rank {rank} has not created the window: {cause}")]
    Silent {
        /// Who.
        rank: u32,
        /// What the system says.
        cause: io::Error,
    },
    /// It could not make its part.
    #[error("rank {0} could not create its part of the window, and has reported why")]
    Refused(u32),
    /// It makes another window.
    #[error(
        "rank {rank} creates a different window ({theirs}) from this rank's ({ours}): all ranks must create \
         the same windows in the same order"
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

/// Where ranks look for each other.
#[derive(Debug, Clone)]
pub struct PeerLocations {
    /// Of those on this host.
    pub boards: BoardLocations,
    /// Hosts at which others may be.
    pub hosts: Vec<String>,
}

/// The other ranks of a team, each in a process of its own.
#[derive(Debug)]
pub struct Peers {
    rank: u32,
    /// By rank; none for this one.
    connections: Vec<Option<Connection>>,
    /// Streams for the proxies of ranks over a network, until they are taken.
    streams: Mutex<rank::Leaf, Vec<(u32, ByteStream)>>,
    _board: Board,
}

/// What ranks say of their GPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TeamGpus {
    /// The number of each rank's, none of which is that of another host's.
    pub numbers: Vec<u64>,
    /// Whether there are ranks that reach each other over a network alone.
    pub is_spread: bool,
    /// Whether there are ranks that hand memory to each other.
    pub has_local: bool,
    /// By rank, whether it is reached over a network and has an RDMA device for that.
    pub has_nic: Vec<bool>,
}

impl TeamGpus {
    /// Those of ranks of one process.
    pub fn of_process(numbers: Vec<u64>) -> Self {
        let has_nic = vec![false; numbers.len()];
        Self { numbers, is_spread: false, has_local: true, has_nic }
    }
}

/// What a rank says beside its GPU.
const HAS_REMOTE: u32 = 1;
const HAS_LOCAL: u32 = 2;
const HAS_NIC: u32 = 4;

impl Peers {
    /// Whether another rank is on this host, so that memory is handed over.
    pub fn has_local(&self) -> bool {
        self.others().any(|(_, connection)| !connection.is_network())
    }

    /// Streams for what proxies say to each other: from ranks over a network, and of a team that `is_spread`
    /// from those of this host, too, and two ends of one of this rank's own. None a second time.
    ///
    /// # Errors
    /// When a rank has gone.
    pub fn take_streams(&self, is_spread: bool) -> Result<Vec<(u32, ByteStream)>, PeerError> {
        let taken = &mut *self.streams.lock();
        let mut streams = core::mem::take(taken);
        if !is_spread {
            return Ok(streams);
        }
        let (ours, theirs) = ByteStream::pair()?;
        streams.push((self.rank, ours));
        streams.push((self.rank, ByteStream::of_descriptor(theirs)?));
        let local = || self.others().filter(|(_, connection)| !connection.is_network());
        for (rank, connection) in local().filter(|(rank, _)| *rank > self.rank) {
            let (ours, theirs) = ByteStream::pair()?;
            let sent = connection.send(&message(0, LINK, 0), Some(theirs.as_fd()));
            sent.map_err(|cause| PeerError::Silent { rank, cause })?;
            streams.push((rank, ours));
        }
        for (rank, connection) in local().filter(|(rank, _)| *rank < self.rank) {
            let silent = |cause| PeerError::Silent { rank, cause };
            match connection.receive().map_err(silent)? {
                Some((received, Some(descriptor))) if received == message(0, LINK, 0) => {
                    streams.push((rank, ByteStream::of_descriptor(descriptor)?));
                }
                Some(_) => return Err(silent(io::ErrorKind::InvalidData.into())),
                None => return Err(silent(io::ErrorKind::UnexpectedEof.into())),
            }
        }
        Ok(streams)
    }

    fn others(&self) -> impl Iterator<Item = (u32, &Connection)> {
        let numbered = (0..).zip(&self.connections);
        numbered.filter_map(|(rank, connection)| Some((rank, connection.as_ref()?)))
    }

    /// Tells all others of this rank's part, or that it has none, and hears of theirs: a descriptor by rank,
    /// of those on this host.
    ///
    /// # Errors
    /// When one of them has none, or another one.
    pub fn exchange(
        &self,
        ours: Announcement,
        part: Option<&Block>,
    ) -> Result<Vec<Option<OwnedFd>>, PeerError> {
        let bytes = part.map_or_else(|| message(ours.number, NONE, 0), |_| ours.encode());
        let descriptor = part.and_then(|part| part.descriptor.as_ref());
        for (rank, connection) in self.others() {
            let descriptor = descriptor.filter(|_| !connection.is_network());
            let sent = connection.send(&bytes, descriptor.map(|descriptor| descriptor.as_fd()));
            sent.map_err(|cause| PeerError::Silent { rank, cause })?;
        }
        let mut parts: Vec<Option<OwnedFd>> = self.connections.iter().map(|_| None).collect();
        let mut wrong = None;
        for (rank, connection) in self.others() {
            match receive_announcement(rank, connection, ours) {
                Ok(descriptor) => parts[rank as usize] = descriptor,
                // The others are heard all the same, or the next window would find their words.
                Err(error) => wrong = wrong.or(Some(error)),
            }
        }
        wrong.map_or(Ok(parts), Err)
    }

    /// Tells all others which GPU this rank has, and whether it reaches others over a network, and gives what
    /// all ranks say. The number of one that has said something else is 0.
    ///
    /// # Errors
    /// When one of them has gone.
    pub fn gpus(&self, number: u64) -> Result<TeamGpus, PeerError> {
        self.exchange_gpus(number, false)
    }

    /// The same of a rank that may have an RDMA device for those over a network.
    ///
    /// # Errors
    /// As above.
    pub fn exchange_gpus(&self, number: u64, has_nic: bool) -> Result<TeamGpus, PeerError> {
        let has_remote = self.others().any(|(_, connection)| connection.is_network());
        let has = |is_so, what| if is_so { what } else { 0 };
        let mut all = has(has_remote, HAS_REMOTE) | has(self.has_local(), HAS_LOCAL);
        let ours = message(all | has(has_nic, HAS_NIC), GPU, number);
        let mut nics = vec![false; self.connections.len()];
        for (rank, connection) in self.others() {
            let sent = connection.send(&ours, None);
            sent.map_err(|cause| PeerError::Silent { rank, cause })?;
        }
        let mut numbers = vec![number; self.connections.len()];
        for (rank, connection) in self.others() {
            let silent = |cause| PeerError::Silent { rank, cause };
            let received = connection.receive().map_err(silent)?;
            let (received, _) = received.ok_or_else(|| silent(io::ErrorKind::UnexpectedEof.into()))?;
            let theirs = received.last_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
            let flags = 0..=HAS_REMOTE | HAS_LOCAL | HAS_NIC;
            let has = flags.into_iter().find(|has| received == message(*has, GPU, theirs));
            all |= has.unwrap_or(0);
            nics[rank as usize] = connection.is_network() && has.is_some_and(|has| has & HAS_NIC != 0);
            // On another host the same number is another GPU.
            let is_of_host = has.is_some() && !connection.is_network();
            numbers[rank as usize] = if is_of_host { theirs } else { 0 };
        }
        let (is_spread, has_local) = (all & HAS_REMOTE != 0, all & HAS_LOCAL != 0);
        Ok(TeamGpus { numbers, is_spread, has_local, has_nic: nics })
    }

    /// How many ranks are reached over a network, and the address of this rank in it.
    pub(crate) fn network(&self) -> (usize, Option<std::net::IpAddr>) {
        let over_network = || self.others().filter(|(_, connection)| connection.is_network());
        (over_network().count(), over_network().find_map(|(_, connection)| connection.local_address()))
    }

    /// Those ranks.
    pub fn over_network(&self) -> Vec<u32> {
        self.others().filter(|(_, connection)| connection.is_network()).map(|(rank, _)| rank).collect()
    }

    fn connection(&self, rank: u32) -> Result<&Connection, PeerError> {
        let connection = self.connections.get(rank as usize).and_then(Option::as_ref);
        connection.ok_or_else(|| PeerError::Silent { rank, cause: io::ErrorKind::NotConnected.into() })
    }

    fn send_flag(&self, rank: u32, what: u32, value: bool) -> Result<(), PeerError> {
        let sent = self.connection(rank)?.send(&message(u32::from(value), what, 0), None);
        sent.map_err(|cause| PeerError::Silent { rank, cause })
    }

    fn receive_flag(&self, rank: u32, what: u32) -> Result<bool, PeerError> {
        let silent = |cause| PeerError::Silent { rank, cause };
        let received = self.connection(rank)?.receive().map_err(silent)?;
        let (received, _) = received.ok_or_else(|| silent(io::ErrorKind::UnexpectedEof.into()))?;
        let flag = [false, true].into_iter().find(|flag| received == message(u32::from(*flag), what, 0));
        flag.ok_or_else(|| silent(io::ErrorKind::InvalidData.into()))
    }

    /// Tells a rank of this rank's queue pair for it, or that there is none.
    pub(crate) fn send_endpoint(&self, rank: u32, end: Option<&EndpointAddress>) -> Result<(), PeerError> {
        self.send_record(rank, NIC, end.map(|end| end.encode()).as_ref())
    }

    /// Sends bytes of a known length, or that there are none.
    fn send_record<const BYTES: usize>(
        &self,
        rank: u32,
        what: u32,
        record: Option<&[u8; BYTES]>,
    ) -> Result<(), PeerError> {
        self.send_flag(rank, what, record.is_some())?;
        for part in record.map_or(&[][..], |record| record.as_chunks::<MESSAGE_BYTES>().0) {
            let sent = self.connection(rank)?.send(part, None);
            sent.map_err(|cause| PeerError::Silent { rank, cause })?;
        }
        Ok(())
    }

    fn receive_record<const BYTES: usize>(
        &self,
        rank: u32,
        what: u32,
    ) -> Result<Option<[u8; BYTES]>, PeerError> {
        if !self.receive_flag(rank, what)? {
            return Ok(None);
        }
        let mut bytes = [0; BYTES];
        for part in bytes.as_chunks_mut::<MESSAGE_BYTES>().0 {
            let silent = |cause| PeerError::Silent { rank, cause };
            let received = self.connection(rank)?.receive().map_err(silent)?;
            *part = received.ok_or_else(|| silent(io::ErrorKind::UnexpectedEof.into()))?.0;
        }
        Ok(Some(bytes))
    }

    /// Tells a rank of the queue pair that this rank's kernels have for it, or that there is none.
    pub(crate) fn send_verbs<const BYTES: usize>(
        &self,
        rank: u32,
        end: Option<&[u8; BYTES]>,
    ) -> Result<(), PeerError> {
        self.send_record(rank, VERBS, end)
    }

    /// Hears of a rank's.
    pub(crate) fn receive_verbs<const BYTES: usize>(
        &self,
        rank: u32,
    ) -> Result<Option<[u8; BYTES]>, PeerError> {
        self.receive_record(rank, VERBS)
    }

    /// Whether kernels of all ranks have queue pairs for all others, as this one's have or have not. All ranks call it
    /// at the same time.
    ///
    /// # Errors
    /// When one of them has gone.
    pub fn all_have_verbs(&self, has_all: bool) -> Result<bool, PeerError> {
        for (rank, _) in self.others() {
            self.send_flag(rank, ALL_VERBS, has_all)?;
        }
        let mut all = has_all;
        for (rank, _) in self.others() {
            all &= self.receive_flag(rank, ALL_VERBS)?;
        }
        Ok(all)
    }

    /// Tells ranks by which key their kernels' cards reach this rank's part of a window, if they do, and hears of
    /// theirs: address and key. Those ranks call it at the same time.
    pub(crate) fn exchange_keys(
        &self,
        ranks: &[u32],
        own: Option<(u64, u32)>,
    ) -> Result<Vec<(u32, u64, u32)>, PeerError> {
        let ours = own.map_or(message(0, NO_KEY, 0), |(address, key)| message(key, KEY, address));
        for rank in ranks {
            let sent = self.connection(*rank)?.send(&ours, None);
            sent.map_err(|cause| PeerError::Silent { rank: *rank, cause })?;
        }
        let mut keys = Vec::with_capacity(ranks.len());
        for rank in ranks {
            let silent = |cause| PeerError::Silent { rank: *rank, cause };
            let received = self.connection(*rank)?.receive().map_err(silent)?;
            let (received, _) = received.ok_or_else(|| silent(io::ErrorKind::UnexpectedEof.into()))?;
            let key = received.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
            let address = received.last_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
            if received == message(key, KEY, address) {
                keys.push((*rank, address, key));
            } else if received != message(0, NO_KEY, 0) {
                return Err(silent(io::ErrorKind::InvalidData.into()));
            }
        }
        Ok(keys)
    }

    /// Hears of a rank's queue pair; `None` where it has none, or one that cannot be.
    pub(crate) fn receive_endpoint(&self, rank: u32) -> Result<Option<EndpointAddress>, PeerError> {
        let bytes = self.receive_record::<ENDPOINT_BYTES>(rank, NIC)?;
        Ok(bytes.and_then(|bytes| EndpointAddress::decode(&bytes)))
    }

    /// Tells a rank whether this one has joined its queue pair with that one's.
    pub(crate) fn send_joined(&self, rank: u32, is_joined: bool) -> Result<(), PeerError> {
        self.send_flag(rank, JOINED, is_joined)
    }

    /// Hears whether a rank has done that.
    pub(crate) fn receive_joined(&self, rank: u32) -> Result<bool, PeerError> {
        self.receive_flag(rank, JOINED)
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

    /// How many ranks there are, with this one.
    pub fn count(&self) -> usize {
        self.connections.len()
    }

    /// This rank.
    pub fn rank(&self) -> u32 {
        self.rank
    }
}

fn receive_announcement(
    rank: u32,
    connection: &Connection,
    ours: Announcement,
) -> Result<Option<OwnedFd>, PeerError> {
    let silent = |cause| PeerError::Silent { rank, cause };
    let received = connection.receive().map_err(silent)?;
    let (message, descriptor) = received.ok_or_else(|| silent(io::ErrorKind::UnexpectedEof.into()))?;
    match Announcement::decode(&message) {
        Some(theirs) if theirs != ours => Err(PeerError::Different { rank, theirs, ours }),
        Some(_) if descriptor.is_some() || connection.is_network() => Ok(descriptor),
        _ => Err(PeerError::Refused(rank)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block() -> Block {
        let descriptor = Some(std::fs::File::open("/dev/null").unwrap().into());
        Block { address: 0, bytes: 1, descriptor, owner: Box::new(()) }
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
                        let locations = PeerLocations {
                            boards: BoardLocations::defaults(Some(folder.to_owned())),
                            hosts: Vec::new(),
                        };
                        let peers = Peers::join([nonce; 16], rank, ranks, &locations).unwrap();
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
            let parts = peers.exchange(same, Some(&block())).unwrap();
            let there: Vec<bool> = parts.iter().map(Option::is_some).collect();
            // Then one has another window, and at last one has none.
            let bytes = if peers.rank() == 2 { 1 } else { 2 };
            let other = Announcement { number: 1, in_host: true, bytes };
            let different = peers.exchange(other, Some(&block())).unwrap_err().to_string();
            let part = block();
            let last = Announcement { number: 2, in_host: false, bytes: 8 };
            let refused = peers.exchange(last, (peers.rank() != 1).then_some(&part));
            (there, different, refused.map(drop).map_err(|error| error.to_string()))
        });
        for (rank, (there, different, refused)) in received.into_iter().enumerate() {
            assert!(there.iter().enumerate().all(|(peer, there)| *there == (peer != rank)));
            assert!(different.contains("creates a different window"), "{different}");
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
