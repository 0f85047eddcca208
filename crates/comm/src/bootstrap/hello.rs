//! Handshake of two ranks.
//!
//! 64 bytes each way, little-endian: `CWmeet3` and a zero, who speaks and to whom, the epoch, the process id
//! by which the speaker sees the other (0 when it does not, or does not know yet), the speaker's process
//! number, 8 bytes that the caller has drawn, and a proof over all that with 8 bytes that the listener has
//! drawn for this connection alone: a recorded proof cannot be replayed.

use std::io::{self, Read as _, Write as _};
use std::time::{Duration, Instant};

use causeway_sync::fork::CloseOnFork;
use thiserror::Error;

use super::address::SocketAddress;
use super::socket::{Connection, Credentials};
use super::stream::Stream;
use crate::board::Slot;
use crate::job::{Job, PROOF_BYTES, random};

/// Bytes of a greeting.
pub(super) const HELLO_BYTES: usize = 64;

/// Bytes that the listener draws and sends as soon as a connection comes.
pub(super) const CHALLENGE_BYTES: usize = 8;

const MAGIC: [u8; 8] = *b"CWmeet3\0";

/// Bytes in front of the proof.
const STATEMENT_BYTES: usize = HELLO_BYTES - PROOF_BYTES;

/// How long whoever connects waits for the other end.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a greeting is not accepted.
#[derive(Debug, Error)]
pub enum HelloError {
    /// Another user's process.
    #[error("it belongs to user {0}")]
    User(u32),
    /// Something else than a greeting.
    #[error("its first message is not that of a rank")]
    Magic,
    /// It does not know the job's nonce.
    #[error("it cannot prove that it belongs to the job")]
    Proof,
    /// It means another rank, or is another.
    #[error("it is rank {from} in epoch {epoch} and addresses rank {to}")]
    Rank {
        /// Who it says it is.
        from: u32,
        /// Whom it speaks to.
        to: u32,
        /// The epoch.
        epoch: u32,
    },
    /// Not the process that is on the board.
    #[error("it is not the process that the board lists")]
    Process,
    /// The connection failed.
    #[error("the connection failed: {0}")]
    Io(#[from] io::Error),
}

/// What one end says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hello {
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) epoch: u32,
    /// The process id by which the speaker sees the other end.
    pub(super) sees: u32,
    pub(super) process: u64,
    /// What the caller has drawn: the listener says it, too, so that its answer is no earlier one.
    pub(super) fresh: [u8; CHALLENGE_BYTES],
}

/// Who makes a statement: the two directions have proofs of their own, so that an answer cannot be the
/// question sent back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Caller,
    Listener,
}

impl Hello {
    pub(super) fn encode(
        &self,
        job: &Job,
        role: Role,
        challenge: &[u8; CHALLENGE_BYTES],
    ) -> [u8; HELLO_BYTES] {
        let mut bytes = [0; HELLO_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        for (at, number) in [self.from, self.to, self.epoch, self.sees].into_iter().enumerate() {
            bytes[8 + at * 4..12 + at * 4].copy_from_slice(&number.to_le_bytes());
        }
        bytes[24..32].copy_from_slice(&self.process.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.fresh);
        let proof = job.proof(&statement(&bytes, role, challenge));
        bytes[STATEMENT_BYTES..].copy_from_slice(&proof);
        bytes
    }

    pub(super) fn decode(
        bytes: &[u8; HELLO_BYTES],
        job: &Job,
        role: Role,
        challenge: &[u8; CHALLENGE_BYTES],
    ) -> Result<Self, HelloError> {
        if bytes[..8] != MAGIC {
            return Err(HelloError::Magic);
        }
        let proof = core::array::from_fn(|at| bytes[STATEMENT_BYTES + at]);
        if !job.is_proof(&statement(bytes, role, challenge), &proof) {
            return Err(HelloError::Proof);
        }
        let number = |at: usize| u32::from_le_bytes(core::array::from_fn(|index| bytes[at + index]));
        let process = u64::from_le_bytes(core::array::from_fn(|index| bytes[24 + index]));
        let fresh = core::array::from_fn(|index| bytes[32 + index]);
        Ok(Self { from: number(8), to: number(12), epoch: number(16), sees: number(20), process, fresh })
    }
}

/// What is proved.
fn statement(bytes: &[u8; HELLO_BYTES], role: Role, challenge: &[u8; CHALLENGE_BYTES]) -> Vec<u8> {
    let role: u8 = if role == Role::Caller { 1 } else { 2 };
    [&bytes[..STATEMENT_BYTES], &[role], challenge].concat()
}

/// Who is to answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Expected {
    pub(super) rank: u32,
    /// The process that a board shows, if one does.
    pub(super) process: Option<u64>,
}

/// Says who this is and hears who answers: the caller's part.
pub(super) fn introduce(
    stream: Stream,
    address: SocketAddress,
    job: &Job,
    own: &Slot,
    expected: Expected,
) -> Result<Connection, HelloError> {
    let credentials = Credentials::of(&stream)?.of_this_user().map_err(HelloError::User)?;
    let deadline = Instant::now() + HANDSHAKE_TIMEOUT;
    let mut challenge = [0; CHALLENGE_BYTES];
    read_until(&stream, &mut challenge, deadline)?;
    let hello = Hello {
        from: own.rank,
        to: expected.rank,
        epoch: own.epoch,
        sees: credentials.process.unwrap_or(0),
        process: own.identity.process,
        fresh: random()?,
    };
    (&stream).write_all(&hello.encode(job, Role::Caller, &challenge))?;
    let mut bytes = [0; HELLO_BYTES];
    read_until(&stream, &mut bytes, deadline)?;
    let response = Hello::decode(&bytes, job, Role::Listener, &challenge)?;
    let Hello { from, to, epoch, sees, process, fresh } = response;
    if fresh != hello.fresh {
        return Err(HelloError::Proof);
    }
    if (from, to, epoch) != (expected.rank, own.rank, own.epoch) {
        return Err(HelloError::Rank { from, to, epoch });
    }
    if expected.process.is_some_and(|expected| expected != process) {
        return Err(HelloError::Process);
    }
    stream.set_read_timeout(None)?;
    Ok(Connection {
        _close_on_fork: CloseOnFork::new(&stream),
        stream,
        address,
        peer: from,
        process,
        seen: credentials.process,
        sees: Some(sees).filter(|pid| *pid != 0),
    })
}

/// Draws what the other end has to prove something about.
pub(super) fn challenge() -> io::Result<[u8; CHALLENGE_BYTES]> {
    random()
}

/// Reads the whole buffer, or fails when the time is over, however slowly bytes come.
fn read_until(mut stream: &Stream, mut bytes: &mut [u8], deadline: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(bytes) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => bytes = &mut bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(io::ErrorKind::TimedOut.into());
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn greetings_hold_for_one_connection_one_direction_and_one_job() {
        let (job, other) = (Job::new([1; 16], 4).unwrap(), Job::new([2; 16], 4).unwrap());
        let hello = Hello { from: 1, to: 2, epoch: 3, sees: 4, process: 5, fresh: [6; 8] };
        let challenge = [7; CHALLENGE_BYTES];
        let bytes = hello.encode(&job, Role::Caller, &challenge);
        assert_eq!(Hello::decode(&bytes, &job, Role::Caller, &challenge).unwrap(), hello);
        let refused = |job, role, challenge| {
            matches!(Hello::decode(&bytes, job, role, challenge), Err(HelloError::Proof))
        };
        assert!(refused(&other, Role::Caller, &challenge));
        assert!(refused(&job, Role::Listener, &challenge));
        assert!(refused(&job, Role::Caller, &[8; CHALLENGE_BYTES]));
        for at in 0..HELLO_BYTES {
            let mut bytes = bytes;
            bytes[at] ^= 1;
            assert!(Hello::decode(&bytes, &job, Role::Caller, &challenge).is_err(), "byte {at}");
        }
    }
}
