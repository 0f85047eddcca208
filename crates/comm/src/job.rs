//! Job: nonce, ranks, proofs.
//!
//! A job has a *nonce*, 128 random bits that one of its ranks draws and that travel to the others by what
//! started them (a broadcast of MPI). Names of boards and sockets, keys and proofs are derived from it, each
//! under a label of its own, so that none of them tells anything of another: who lists a folder learns that
//! there is a job, and cannot join it.

use core::fmt;
use std::io;

use thiserror::Error;

/// The most ranks of a job: 2²¹. It bounds what a board takes, 258 MiB of addresses.
pub const MAX_RANKS: u32 = 1 << 21;

/// Bytes of a proof that its maker belongs to the job.
pub const PROOF_BYTES: usize = 16;

/// Why there is no such job.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum JobError {
    /// Too few or too many.
    #[error("a job of {0} ranks was requested: it must have 1 to {MAX_RANKS}")]
    Ranks(u32),
    /// A rank that the job does not have.
    #[error("rank {rank} was requested in a job of {ranks} ranks: ranks are numbered from 0")]
    NoSuchRank {
        /// The rank.
        rank: u32,
        /// How many the job has.
        ranks: u32,
    },
}

/// What the ranks of a job share.
#[derive(Clone, PartialEq, Eq)]
pub struct Job {
    nonce: [u8; 16],
    ranks: u32,
    /// What proofs are made with.
    proof_key: [u8; 32],
}

impl Job {
    /// The job of this nonce, with so many ranks.
    ///
    /// # Errors
    /// When there are none, or more than [`MAX_RANKS`].
    pub fn new(nonce: [u8; 16], ranks: u32) -> Result<Self, JobError> {
        if (1..=MAX_RANKS).contains(&ranks) {
            let proof_key = blake3::derive_key("causeway comm 2026-11-25 proof", &nonce);
            Ok(Self { nonce, ranks, proof_key })
        } else {
            Err(JobError::Ranks(ranks))
        }
    }

    /// A nonce that nobody can guess.
    ///
    /// # Errors
    /// When the kernel has no random bytes to give.
    pub fn random_nonce() -> io::Result<[u8; 16]> {
        random()
    }

    /// How many ranks there are, numbered from 0.
    pub fn ranks(&self) -> u32 {
        self.ranks
    }

    /// The rank as it is, if the job has it.
    ///
    /// # Errors
    /// When it does not.
    pub fn check(&self, rank: u32) -> Result<u32, JobError> {
        if rank < self.ranks { Ok(rank) } else { Err(JobError::NoSuchRank { rank, ranks: self.ranks }) }
    }

    /// What the names of the job's files and sockets have in common. Other users may read it.
    pub fn name(&self) -> String {
        let bytes = self.derive("causeway comm 2026-11-25 name");
        bytes[..8].iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// What stands in the head of a board and in each slot, to tell this job's from what else may be there.
    pub fn tag(&self) -> u64 {
        let bytes = self.derive("causeway comm 2026-11-25 tag");
        bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }

    /// The key of a System V segment; `attempt` counts those that were another's. Never `IPC_PRIVATE`.
    pub fn system_v_key(&self, attempt: u8) -> i32 {
        let bytes = self.derive("causeway comm 2026-11-25 key");
        let at = usize::from(attempt) % 8 * 4;
        let key = bytes[at..].first_chunk().map_or(0, |bytes| i32::from_le_bytes(*bytes));
        (key & i32::MAX).max(1)
    }

    /// A port at which a rank may be reached from other hosts; `attempt` counts those that others have. It is
    /// no port that Linux gives to connections.
    pub fn port(&self, rank: u32, attempt: u8) -> u16 {
        const FIRST: u16 = 10_240;
        const PORTS: u16 = 22_000;
        let key = self.derive("causeway comm 2026-11-25 port");
        let hash = blake3::keyed_hash(&key, &[&rank.to_le_bytes()[..], &[attempt]].concat());
        let number = hash.as_bytes().first_chunk().map_or(0, |bytes| u16::from_le_bytes(*bytes));
        FIRST + number % PORTS
    }

    /// A proof that whoever says `statement` knows the nonce.
    pub fn proof(&self, statement: &[u8]) -> [u8; PROOF_BYTES] {
        let hash = blake3::keyed_hash(&self.proof_key, statement);
        core::array::from_fn(|at| hash.as_bytes()[at])
    }

    /// Whether `proof` is that of `statement`. How long it takes does not depend on where they differ.
    pub fn is_proof(&self, statement: &[u8], proof: &[u8; PROOF_BYTES]) -> bool {
        let expected = self.proof(statement);
        expected.iter().zip(proof).fold(0, |differences, (a, b)| differences | (a ^ b)) == 0
    }

    fn derive(&self, label: &str) -> [u8; 32] {
        blake3::derive_key(label, &self.nonce)
    }
}

impl fmt::Debug for Job {
    /// Without the nonce, which is a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job").field("name", &self.name()).field("ranks", &self.ranks).finish()
    }
}

/// Random bytes of the kernel.
pub(crate) fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    // SAFETY: the kernel writes at most the array's length.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), N, 0) };
    // Up to 256 bytes come whole or not at all.
    if usize::try_from(got) == Ok(N) { Ok(bytes) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_have_names_keys_and_proofs_of_their_own() {
        let (a, b) = (Job::new([1; 16], 4).unwrap(), Job::new([2; 16], 4).unwrap());
        assert_ne!(a.name(), b.name());
        assert_ne!(a.tag(), b.tag());
        assert_ne!(a.system_v_key(0), a.system_v_key(1));
        assert!((0..=u8::MAX).all(|attempt| a.system_v_key(attempt) > 0));
        assert!(a.is_proof(b"rank 1", &a.proof(b"rank 1")));
        assert!(!a.is_proof(b"rank 2", &a.proof(b"rank 1")) && !a.is_proof(b"rank 1", &b.proof(b"rank 1")));
        assert!(!format!("{a:?}").contains("[1, 1"));
    }

    #[test]
    fn ports_follow_from_the_nonce() {
        let (a, b) = (Job::new([1; 16], 4).unwrap(), Job::new([2; 16], 4).unwrap());
        let ports = |job: &Job| (0..4).map(|rank| job.port(rank, 0)).collect::<Vec<_>>();
        assert!(ports(&a) == ports(&a) && ports(&a) != ports(&b) && a.port(0, 0) != a.port(0, 1));
        assert!((0..1000).map(|rank| a.port(rank, 3)).all(|port| (10_240..32_240).contains(&port)));
    }

    #[test]
    fn ranks_are_bounded() {
        assert_eq!(Job::new([0; 16], 0), Err(JobError::Ranks(0)));
        assert_eq!(Job::new([0; 16], MAX_RANKS + 1), Err(JobError::Ranks(MAX_RANKS + 1)));
        let job = Job::new([0; 16], 2).unwrap();
        assert_eq!(job.check(1), Ok(1));
        assert_eq!(job.check(2), Err(JobError::NoSuchRank { rank: 2, ranks: 2 }));
    }

    #[test]
    fn nonces_differ() {
        assert_ne!(Job::random_nonce().unwrap(), Job::random_nonce().unwrap());
    }
}
