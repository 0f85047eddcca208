//! Message matching: descriptors in place of bytes, and unexpected messages.
//!
//! The rule is in the book (`docs/src/concepts/messages.md`), and checked over all interleavings of
//! small programs by `tests/matching_model/main.rs`. It leaves all matching to the MPI: a message whose bytes
//! lie on a GPU is a [`Descriptor`] of fixed length that travels on the user's communicator and tag. What is
//! here is the rest: what has come ([`classify`]), and where messages wait that a probe had to take out of the
//! MPI's queue ([`Unexpected`]).

use std::collections::VecDeque;

use crate::job::{Job, PROOF_BYTES};
use crate::tracer::Traffic;

/// What has come for a receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Arrived {
    /// The message itself, of so many bytes, which fit.
    Payload(u64),
    /// The message itself, which is longer than the user's memory.
    TooLong(u64),
    /// The descriptor of a message that is to be fetched. It may be longer than the user's memory.
    Descriptor(Descriptor),
}

/// What the `length` bytes are that came for a receive with `size` bytes of the user's. `start` holds the
/// first of them, up to [`DESCRIPTOR_BYTES`]. `own` is the rank that receives.
pub fn classify(job: &Job, own: u32, start: &[u8], length: u64, size: u64) -> Arrived {
    let is_of_that_length = length == DESCRIPTOR_BYTES as u64;
    match is_of_that_length.then(|| Descriptor::decode(start, job)).flatten() {
        Some(descriptor) if descriptor.to == own => Arrived::Descriptor(descriptor),
        _ if length > size => Arrived::TooLong(length),
        _ => Arrived::Payload(length),
    }
}

/// Bytes of a descriptor. `mpi/causeway_comm.h` and `mpi/python/causeway_comm.py` repeat it.
pub const DESCRIPTOR_BYTES: usize = 79;

const MAGIC: [u8; 8] = *b"CWmsg2\0\0";

/// Bytes in front of the proof.
const STATEMENT_BYTES: usize = DESCRIPTOR_BYTES - PROOF_BYTES;

/// What stands for no word.
const NO_STATE_WORD: u16 = u16::MAX;

/// Word of a message that the receiver fetches.
///
/// [`DESCRIPTOR_BYTES`], little-endian: `CWmsg2` and two zeros, the world ranks of sender and receiver, the
/// number of the sender's operation, the payload's bytes, what the memory and the traffic are (a byte, 8 that
/// name its GPU, 8 that number the buffer, 8 that say where in it the payload begins), the word by which both
/// ends know of the offer (2 bytes), 4 zeros, and a proof over all that. The length is a prime that few
/// programs send, and the proof is made with the job's nonce: no other message is taken for a descriptor, and
/// none of another job is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Descriptor {
    /// The rank that sends, in the job.
    pub from: u32,
    /// The rank for which it is.
    pub to: u32,
    /// The number of the sender's operation, which it never gives again.
    pub operation: u64,
    /// Bytes of the payload.
    pub bytes: u64,
    /// Its memory.
    pub memory: Source,
    /// The number of the word in memory of both ends that tells what happens to the offer.
    pub word: Option<u16>,
    /// What the sender's traffic with the receiver is bound by.
    pub traffic: Traffic,
}

/// The memory that a payload lies in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Source {
    /// Whether a handle of cudaIPC can be had for it.
    pub ipc: bool,
    /// Whether the payload's memory can be exported as a descriptor, or its GPU has memory that can.
    pub export: bool,
    /// Whether the memory itself can be exported.
    pub direct: bool,
    /// Whether the sender has an RDMA device, by which the receiver may read.
    pub rdma: bool,
    /// Whether that reaches the memory itself.
    pub gpudirect: bool,
    /// Whether the sender's processor reaches the memory through the GPU's BAR.
    pub bar: bool,
    /// The first 8 bytes of the GPU's UUID.
    pub gpu: u64,
    /// The number of the sender's allocation, which it never gives again.
    pub buffer: u64,
    /// Where in the allocation the payload begins.
    pub offset: u64,
}

impl Descriptor {
    /// As it travels.
    pub fn encode(&self, job: &Job) -> [u8; DESCRIPTOR_BYTES] {
        let mut bytes = [0; DESCRIPTOR_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&self.from.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.to.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.operation.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.bytes.to_le_bytes());
        let Source { ipc, export, direct, rdma, gpudirect, bar, .. } = self.memory;
        let flags = [ipc, export, direct, rdma, gpudirect, bar, self.traffic == Traffic::Bandwidth];
        bytes[32] = flags.into_iter().enumerate().map(|(bit, is_set)| u8::from(is_set) << bit).sum();
        bytes[33..41].copy_from_slice(&self.memory.gpu.to_le_bytes());
        bytes[41..49].copy_from_slice(&self.memory.buffer.to_le_bytes());
        bytes[49..57].copy_from_slice(&self.memory.offset.to_le_bytes());
        bytes[57..59].copy_from_slice(&self.word.unwrap_or(NO_STATE_WORD).to_le_bytes());
        let proof = job.proof(&bytes[..STATEMENT_BYTES]);
        bytes[STATEMENT_BYTES..].copy_from_slice(&proof);
        bytes
    }

    /// The descriptor that these bytes are, if they are one of this job.
    pub fn decode(bytes: &[u8], job: &Job) -> Option<Self> {
        let bytes: &[u8; DESCRIPTOR_BYTES] = bytes.try_into().ok()?;
        let (statement, proof) = bytes.split_first_chunk::<STATEMENT_BYTES>()?;
        let is_one = statement[..8] == MAGIC && job.is_proof(statement, proof.first_chunk()?);
        let short = |at: usize| u32::from_le_bytes(core::array::from_fn(|index| statement[at + index]));
        let long = |at: usize| u64::from_le_bytes(core::array::from_fn(|index| statement[at + index]));
        let flag = |bit: u8| statement[32] & bit != 0;
        is_one.then(|| Self {
            from: short(8),
            to: short(12),
            operation: long(16),
            bytes: long(24),
            memory: Source {
                ipc: flag(1),
                export: flag(2),
                direct: flag(4),
                rdma: flag(8),
                gpudirect: flag(16),
                bar: flag(32),
                gpu: long(33),
                buffer: long(41),
                offset: long(49),
            },
            word: Some(u16::from_le_bytes([statement[57], statement[58]]))
                .filter(|word| *word != NO_STATE_WORD),
            traffic: if flag(64) { Traffic::Bandwidth } else { Traffic::Latency },
        })
    }
}

/// What a receive or a probe asks for: `None` is `MPI_ANY_SOURCE` or `MPI_ANY_TAG`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Pattern {
    /// The communicator, by a number that no two of them have.
    pub communicator: u64,
    /// The rank in it.
    pub source: Option<i32>,
    /// The tag.
    pub tag: Option<i32>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Entry<M> {
    communicator: u64,
    source: i32,
    tag: i32,
    message: M,
}

/// Messages that have been taken out, in that order. Receives and probes look here before they ask the MPI.
///
/// Whoever puts a message here has taken out all those before that came from the same rank on the same
/// communicator; then everything here is older than what the MPI still has of that rank.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Unexpected<M> {
    entries: VecDeque<Entry<M>>,
}

impl<M> Default for Unexpected<M> {
    fn default() -> Self {
        Self { entries: VecDeque::new() }
    }
}

impl<M> Unexpected<M> {
    /// Keeps a message behind all others.
    pub fn push(&mut self, communicator: u64, source: i32, tag: i32, message: M) {
        self.entries.push_back(Entry { communicator, source, tag, message });
    }

    /// The first message that a pattern matches. It stays.
    pub fn find(&self, pattern: Pattern) -> Option<&M> {
        self.position(pattern).map(|at| &self.entries[at].message)
    }

    /// Takes the first message out that a pattern matches.
    pub fn take(&mut self, pattern: Pattern) -> Option<M> {
        let at = self.position(pattern)?;
        self.entries.remove(at).map(|entry| entry.message)
    }

    fn position(&self, pattern: Pattern) -> Option<usize> {
        self.entries.iter().position(|entry| {
            entry.communicator == pattern.communicator
                && pattern.source.is_none_or(|source| source == entry.source)
                && pattern.tag.is_none_or(|tag| tag == entry.tag)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_and_python_have_the_same_length() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../mpi");
        for (file, line) in [
            ("causeway_comm.h", format!("#define CAUSEWAY_COMM_DESCRIPTOR {DESCRIPTOR_BYTES}")),
            ("python/causeway_comm.py", format!("DESCRIPTOR_BYTES = {DESCRIPTOR_BYTES}")),
        ] {
            let text = std::fs::read_to_string(format!("{folder}/{file}")).expect("it is in the tree");
            assert!(text.lines().any(|found| found == line), "{file} has no line {line}");
        }
    }

    #[test]
    fn descriptors_are_those_of_this_job() {
        let (job, other) = (Job::new([1; 16], 4).unwrap(), Job::new([2; 16], 4).unwrap());
        let memory = Source {
            ipc: false,
            export: true,
            direct: true,
            rdma: false,
            gpudirect: true,
            bar: false,
            gpu: 1 << 63,
            buffer: 1 << 62,
            offset: 1 << 61,
        };
        let word = Some(511);
        let traffic = Traffic::Bandwidth;
        let descriptor =
            Descriptor { from: 1, to: 2, operation: 1 << 40, bytes: u64::MAX, memory, word, traffic };
        let without = Descriptor { word: None, traffic: Traffic::Latency, ..descriptor };
        assert_eq!(Descriptor::decode(&without.encode(&job), &job), Some(without));
        let bytes = descriptor.encode(&job);
        assert_eq!(Descriptor::decode(&bytes, &job), Some(descriptor));
        assert_eq!(Descriptor::decode(&bytes, &other), None);
        assert_eq!(Descriptor::decode(&bytes[1..], &job), None);
        for at in 0..DESCRIPTOR_BYTES {
            let mut bytes = bytes;
            bytes[at] ^= 1;
            assert_eq!(Descriptor::decode(&bytes, &job), None, "byte {at}");
        }
    }

    #[test]
    fn the_first_that_matches_is_taken() {
        let mut list = Unexpected::default();
        for (communicator, source, tag, message) in
            [(1, 0, 5, 'a'), (1, 1, 5, 'b'), (1, 0, 6, 'c'), (2, 0, 5, 'd')]
        {
            list.push(communicator, source, tag, message);
        }
        let pattern = |communicator, source, tag| Pattern { communicator, source, tag };
        assert_eq!(list.find(pattern(1, Some(0), None)), Some(&'a'));
        assert_eq!(list.take(pattern(1, None, Some(6))), Some('c'));
        assert_eq!(list.take(pattern(2, None, None)), Some('d'));
        assert_eq!(list.take(pattern(1, None, Some(5))), Some('a'));
        assert_eq!(list.take(pattern(1, None, Some(5))), Some('b'));
        assert_eq!(list.take(pattern(1, None, None)), None);
    }
}
