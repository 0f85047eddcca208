//! Joining a team: each rank connects to the higher ones, and waits for the lower ones.

use std::time::{Duration, Instant};

use super::{JOIN_TIMEOUT, PeerError, PeerLocations, Peers};
use crate::board::Board;
use crate::bootstrap::{self, BootstrapListener, ByteStream, Connection, SocketAddress};
use crate::device::windows::{CONTROL, LINK, message};
use crate::identity::Identity;
use crate::job::Job;
use crate::locks::Mutex;

/// How long a rank that has connected over a network may take to say for what.
const PURPOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// How often a rank that is not there yet is looked for.
const RETRY: Duration = Duration::from_millis(10);

/// A rank that was met, and over a network what its proxy says.
type PeerConnections = (Connection, Option<ByteStream>);

impl Peers {
    /// Meets all other ranks of a team.
    ///
    /// # Errors
    /// When one of them does not come.
    pub fn join(
        nonce: [u8; 16],
        rank: u32,
        ranks: u32,
        locations: &PeerLocations,
    ) -> Result<Self, PeerError> {
        // Boards and sockets of the job itself, if it has some, are others.
        let nonce = Job::new(nonce, ranks)?.proof(b"kernels that communicate");
        let job = Job::new(nonce, ranks)?;
        let board = Board::join(&job, rank, 0, Identity::of_this_process(None)?, &locations.boards)?;
        let mut listener = BootstrapListener::open(&job, &board)?;
        if !locations.hosts.is_empty() {
            listener.open_to_hosts();
            let refused = listener.refused().iter();
            let mut of_network = refused.filter(|(address, _)| matches!(address, SocketAddress::Network(_)));
            if let Some((address, cause)) = of_network.next() {
                return Err(PeerError::Listen(format!("{address} and its other ports: {cause}")));
            }
        }
        let until = Instant::now() + JOIN_TIMEOUT;
        let stop = listener.stopper();
        let mut joined: Vec<Option<PeerConnections>> = (0..ranks).map(|_| None).collect();
        let connected = std::thread::scope(|scope| {
            let lower = scope.spawn(move || receive_lower(listener, rank));
            let higher = (rank + 1..ranks).try_for_each(|peer| {
                joined[peer as usize] = Some(connect(&job, &board, peer, until, &locations.hosts)?);
                Ok::<(), PeerError>(())
            });
            while !lower.is_finished() && higher.is_ok() && Instant::now() < until {
                std::thread::sleep(RETRY);
            }
            stop.stop();
            for (joined, lower) in joined.iter_mut().zip(lower.join().unwrap_or_default()) {
                *joined = joined.take().or(lower);
            }
            higher
        });
        connected?;
        let (mut connections, mut streams) = (Vec::new(), Vec::new());
        for (peer, joined) in (0..).zip(joined) {
            let Some((connection, stream)) = joined else {
                if peer != rank {
                    return Err(missing(peer, &locations.hosts, "it has not come"));
                }
                connections.push(None);
                continue;
            };
            connection.set_timeout(Some(JOIN_TIMEOUT))?;
            connections.push(Some(connection));
            streams.extend(stream.map(|stream| (peer, stream)));
        }
        // All have met this rank. What cannot be removed is another rank's to remove.
        let _ = board.forget_names();
        Ok(Self { rank, connections, streams: Mutex::new(streams), _board: board })
    }
}

fn missing(rank: u32, hosts: &[String], cause: &str) -> PeerError {
    let locations = if hosts.is_empty() {
        "no board of this host shows it, and CAUSEWAY_COMM_HOSTS names no hosts where it could be".to_owned()
    } else {
        let hosts = hosts.join(", ");
        format!("it is on no board of this host, nor at the hosts of CAUSEWAY_COMM_HOSTS ({hosts}): {cause}")
    };
    PeerError::Missing { rank, cause: locations }
}

/// Meets the lower ranks, which connect to this one; by rank those that have come before the wait was ended.
fn receive_lower(mut listener: BootstrapListener, rank: u32) -> Vec<Option<PeerConnections>> {
    let mut arrived: Vec<Option<Connection>> = (0..rank).map(|_| None).collect();
    let mut streams: Vec<Option<ByteStream>> = (0..rank).map(|_| None).collect();
    let is_whole = |arrived: &[Option<Connection>], streams: &[Option<ByteStream>]| {
        let mut ranks = arrived.iter().zip(streams);
        ranks.all(|(connection, stream)| {
            connection.as_ref().is_some_and(|connection| !connection.is_network() || stream.is_some())
        })
    };
    // Who cannot prove to be a rank of this team is ignored.
    while !is_whole(&arrived, &streams)
        && let Some(arrival) = listener.arrival()
    {
        let Ok(new) = arrival else { continue };
        let peer = new.peer as usize;
        if peer >= arrived.len() {
            continue;
        }
        // One that comes again has given the earlier connection up.
        match purpose(&new) {
            Some(CONTROL) => arrived[peer] = Some(new),
            Some(LINK) => streams[peer] = new.into_byte_stream().ok(),
            _ => {}
        }
    }
    let both = arrived.into_iter().zip(streams);
    both.map(|(connection, stream)| connection.map(|connection| (connection, stream))).collect()
}

/// For what a rank has connected; over a network it says so, and soon.
fn purpose(connection: &Connection) -> Option<u32> {
    if !connection.is_network() {
        return Some(CONTROL);
    }
    connection.set_timeout(Some(PURPOSE_TIMEOUT)).ok()?;
    let (received, _) = connection.receive().ok()??;
    [CONTROL, LINK].into_iter().find(|purpose| received == message(0, *purpose, 0))
}

fn connect(
    job: &Job,
    board: &Board,
    peer: u32,
    until: Instant,
    hosts: &[String],
) -> Result<PeerConnections, PeerError> {
    let locally = || {
        let scan = board.scan();
        bootstrap::connect(job, board.slot(), scan.get(peer)?).ok()
    };
    let over_network = |purpose| {
        let connection = bootstrap::connect_over_network(job, board.slot(), peer, hosts);
        let connection =
            connection.map_err(|causes| causes.last().map_or(String::new(), ToString::to_string))?;
        connection.send(&message(0, purpose, 0), None).map_err(|cause| cause.to_string())?;
        Ok::<Connection, String>(connection)
    };
    loop {
        if let Some(connection) = locally() {
            return Ok((connection, None));
        }
        let mut last = String::new();
        if !hosts.is_empty() {
            let joined = over_network(CONTROL).and_then(|control| {
                // One of this host that has joined meanwhile listens there, too.
                match locally() {
                    Some(connection) => Ok((connection, None)),
                    None => {
                        let stream =
                            over_network(LINK)?.into_byte_stream().map_err(|cause| cause.to_string())?;
                        Ok((control, Some(stream)))
                    }
                }
            });
            match joined {
                Ok(joined) => return Ok(joined),
                Err(cause) => last = cause,
            }
        }
        if Instant::now() > until {
            return Err(missing(peer, hosts, &last));
        }
        std::thread::sleep(RETRY);
    }
}
