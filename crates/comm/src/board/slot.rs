//! Slot of a rank on a board, of 128 bytes, and where on the board slots lie. A reader believes nothing of a
//! slot that it has not checked.
//!
//! | bytes | what |
//! | --- | --- |
//! | 0..4 | `CWs1` |
//! | 4..8 | the rank |
//! | 8..16 | the job's tag |
//! | 16..24 | the process's random number |
//! | 24..32 | hash of the boot id |
//! | 32..36 | epoch |
//! | 36..40 | process id in its own namespace |
//! | 40..64 | namespaces: pid, ipc, net, mnt, user, uts |
//! | 64..80 | NUMA nodes, sockets: a set each |
//! | 80..96 | four ranges of processors; a first one above the last is none |
//! | 96..100 | the container's number, all ones for none |
//! | 100..104 | the System V segment that lives as long as the process, all ones for none |
//! | 104..120 | UUID of the first GPU |
//! | 120..122 | number of GPUs, flags |
//! | 122..124 | zero |
//! | 124..128 | check sum: the first bytes of a BLAKE3 hash of the others |
//!
//! Numbers are little-endian. The check sum tells a slot that is being rewritten from a whole one; it keeps
//! nobody from lying.

use thiserror::Error;

use crate::identity::{CoreRange, Cores, Identity, MAX_RANGES, Namespaces};

/// Bytes of the head.
pub(super) const HEAD_BYTES: usize = 128;

const BOARD_MAGIC: [u8; 8] = *b"CWboard1";

/// Where the marks of the ranks begin.
pub(super) const MARKS_AT: u64 = HEAD_BYTES as u64;

/// Whether a rank is here, in one byte: 0 when it is not, otherwise its epoch in the lower seven bits, never
/// 0, and whether it is about to move in the highest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark(pub u8);

impl Mark {
    /// The rank is not here.
    pub const ABSENT: Self = Self(0);

    const MOVING: u8 = 0x80;

    /// A rank that is here in this epoch.
    pub fn present(epoch: u32, moving: bool) -> Self {
        // The remainder is below 127.
        let number = (epoch % 127) as u8 + 1;
        Self(if moving { number | Self::MOVING } else { number })
    }

    /// Whether the rank lets what is under way come to an end and sends nothing new.
    pub fn is_moving(self) -> bool {
        self.0 & Self::MOVING != 0
    }
}

/// A board's layout for so many ranks.
///
/// A head of 128 bytes, then a byte a rank that says whether the rank is here, then, from a multiple of 128
/// on, a slot of 128 bytes a rank: 129 bytes a rank. Who looks for ranks reads the bytes alone, and slots
/// only of those that are here, so that memory is used by those who are here and nobody else: a job of a
/// million ranks with eight on this host takes 1 MB and a page or two, of 129 MB of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) ranks: u32,
}

impl Layout {
    /// Where a rank's mark lies.
    pub(super) fn mark(self, rank: u32) -> u64 {
        MARKS_AT + u64::from(rank)
    }

    /// Where a rank's slot lies.
    pub(super) fn slot(self, rank: u32) -> u64 {
        let slots = (MARKS_AT + u64::from(self.ranks)).next_multiple_of(SLOT_BYTES as u64);
        slots + u64::from(rank) * SLOT_BYTES as u64
    }

    /// Bytes of the whole board.
    pub(super) fn bytes(self) -> u64 {
        self.slot(self.ranks)
    }

    /// The layout of the board that begins so, if it is one.
    pub(super) fn of_head(head: &[u8; HEAD_BYTES]) -> Option<Self> {
        let number = |at: usize| u32::from_le_bytes(core::array::from_fn(|index| head[at + index]));
        let is_board = head[..8] == BOARD_MAGIC && number(20) == SLOT_BYTES as u32;
        is_board.then(|| Self { ranks: number(16) })
    }

    /// The head of a job's board.
    pub(super) fn head(self, tag: u64, epoch: u32) -> [u8; HEAD_BYTES] {
        let mut head = [0; HEAD_BYTES];
        head[..8].copy_from_slice(&BOARD_MAGIC);
        head[8..16].copy_from_slice(&tag.to_le_bytes());
        head[16..20].copy_from_slice(&self.ranks.to_le_bytes());
        head[20..24].copy_from_slice(&(SLOT_BYTES as u32).to_le_bytes());
        head[24..28].copy_from_slice(&epoch.to_le_bytes());
        head
    }
}

/// Bytes of a slot.
pub const SLOT_BYTES: usize = 128;

const MAGIC: [u8; 4] = *b"CWs1";

/// No container, no segment.
const NONE: u32 = u32::MAX;

const CORES_CUT: u8 = 1;
const HAS_ADDRESS: u8 = 2;
const ALL_FLAGS: u8 = CORES_CUT | HAS_ADDRESS;

/// The check sum's place.
const SUM_AT: usize = SLOT_BYTES - 4;

/// Why a slot is not believed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SlotError {
    /// It begins otherwise.
    #[error("it holds no slot, or one of another version of Causeway")]
    Magic,
    /// It was read while it was written, or something else has written there.
    #[error("its checksum is wrong")]
    Sum,
    /// It is another rank's.
    #[error("it claims to be of rank {0}")]
    Rank(u32),
    /// It is another job's.
    #[error("it belongs to another job")]
    Job,
    /// A field has a value that no writer gives it.
    #[error("its {0} is invalid")]
    Field(&'static str),
}

/// A rank's slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slot {
    /// The rank.
    pub rank: u32,
    /// How often the rank has moved.
    pub epoch: u32,
    /// Who it is and where it runs.
    pub identity: Identity,
    /// A System V segment that ends with the process.
    pub segment: Option<u32>,
}

impl Slot {
    /// The bytes, in a job of this tag.
    pub fn encode(&self, tag: u64) -> [u8; SLOT_BYTES] {
        let Identity { process, pid, boot, namespaces, cores, container, has_address, gpus } = &self.identity;
        let mut bytes = [0; SLOT_BYTES];
        let mut out = Fields { bytes: &mut bytes, at: 0 };
        out.put(&MAGIC);
        out.put(&self.rank.to_le_bytes());
        for number in [tag, *process, *boot] {
            out.put(&number.to_le_bytes());
        }
        out.put(&self.epoch.to_le_bytes());
        out.put(&pid.to_le_bytes());
        for number in namespaces.numbers() {
            out.put(&number.to_le_bytes());
        }
        out.put(&cores.nodes.to_le_bytes());
        out.put(&cores.sockets.to_le_bytes());
        let mut ranges = cores.ranges();
        for _ in 0..MAX_RANGES {
            let CoreRange { first, last } = ranges.next().unwrap_or(CoreRange { first: 1, last: 0 });
            out.put(&first.to_le_bytes());
            out.put(&last.to_le_bytes());
        }
        out.put(&container.unwrap_or(NONE).to_le_bytes());
        out.put(&self.segment.unwrap_or(NONE).to_le_bytes());
        let (gpu, count) = gpus.unwrap_or_default();
        out.put(&gpu);
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        out.put(&[count, flag(cores.cut, CORES_CUT) | flag(*has_address, HAS_ADDRESS)]);
        let sum = sum(&bytes);
        bytes[SUM_AT..].copy_from_slice(&sum);
        bytes
    }

    /// What the bytes at a rank's place say, in a job of this tag.
    ///
    /// # Errors
    /// When they are no slot of that rank in that job.
    pub fn decode(bytes: &[u8; SLOT_BYTES], rank: u32, tag: u64) -> Result<Self, SlotError> {
        let mut input = Input { bytes, at: 0 };
        if input.take::<4>() != MAGIC {
            return Err(SlotError::Magic);
        }
        if bytes[SUM_AT..] != sum(bytes) {
            return Err(SlotError::Sum);
        }
        let declared = input.number();
        if input.long() != tag {
            return Err(SlotError::Job);
        }
        if declared != rank {
            return Err(SlotError::Rank(declared));
        }
        let (process, boot) = (input.long(), input.long());
        let (epoch, pid) = (input.number(), input.number());
        let namespaces = Namespaces::from_numbers(core::array::from_fn(|_| input.number()));
        let (nodes, sockets) = (input.long(), input.long());
        let ranges: Vec<_> = (0..MAX_RANGES).filter_map(|_| input.range()).collect();
        if ranges.windows(2).any(|pair| pair[0].last >= pair[1].first) {
            return Err(SlotError::Field("list of processors"));
        }
        let [container, segment] =
            core::array::from_fn(|_| Some(input.number()).filter(|number| *number != NONE));
        let gpu = input.take();
        let [count, flags] = input.take();
        if flags & !ALL_FLAGS != 0 || input.take::<2>() != [0; 2] {
            return Err(SlotError::Field("set of flags"));
        }
        let cores = Cores { cut: flags & CORES_CUT != 0, nodes, sockets, ..Cores::of_ranges(&ranges) };
        let has_address = flags & HAS_ADDRESS != 0;
        let gpus = (count > 0).then_some((gpu, count));
        let identity = Identity { process, pid, boot, namespaces, cores, container, has_address, gpus };
        Ok(Self { rank, epoch, identity, segment })
    }
}

fn sum(bytes: &[u8; SLOT_BYTES]) -> [u8; 4] {
    let hash = blake3::hash(&bytes[..SUM_AT]);
    core::array::from_fn(|at| hash.as_bytes()[at])
}

/// Fields, one behind the other; the table above says that they find room.
struct Fields<'a> {
    bytes: &'a mut [u8; SLOT_BYTES],
    at: usize,
}

impl Fields<'_> {
    fn put(&mut self, field: &[u8]) {
        self.bytes[self.at..self.at + field.len()].copy_from_slice(field);
        self.at += field.len();
    }
}

/// The same the other way.
struct Input<'a> {
    bytes: &'a [u8; SLOT_BYTES],
    at: usize,
}

impl Input<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let at = self.at;
        self.at += N;
        core::array::from_fn(|index| self.bytes[at + index])
    }

    fn number(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }

    fn long(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }

    fn range(&mut self) -> Option<CoreRange> {
        let [first, last] = [u16::from_le_bytes(self.take()), u16::from_le_bytes(self.take())];
        (first <= last).then_some(CoreRange { first, last })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_board_has_129_bytes_a_rank() {
        let million = Layout { ranks: 1_000_000 };
        assert_eq!(million.bytes() - million.slot(0), 128_000_000);
        assert_eq!(million.bytes(), 129_000_192);
        for ranks in [1, 127, 128, 129, 1_000_000] {
            let layout = Layout { ranks };
            assert!(layout.slot(0) > layout.mark(ranks - 1));
            assert!(layout.bytes() <= u64::from(ranks) * 129 + 256);
        }
    }

    #[test]
    fn a_board_is_known_by_its_head() {
        let head = Layout { ranks: 7 }.head(3, 9);
        assert_eq!(Layout::of_head(&head), Some(Layout { ranks: 7 }));
        for at in [0, 7, 20] {
            let mut other = head;
            other[at] ^= 1;
            assert_eq!(Layout::of_head(&other), None);
        }
        assert_eq!(Layout::of_head(&[0; HEAD_BYTES]), None);
    }

    #[test]
    fn marks_say_epoch_and_movement() {
        assert_eq!(Mark::ABSENT.0, 0);
        for epoch in [0, 1, 126, 127, u32::MAX] {
            let (here, moving) = (Mark::present(epoch, false), Mark::present(epoch, true));
            assert!(here != Mark::ABSENT && !here.is_moving() && moving.is_moving());
            assert_ne!(here, Mark::present(epoch.wrapping_add(1), false));
        }
    }

    fn slot() -> Slot {
        let ranges = [CoreRange { first: 0, last: 3 }, CoreRange { first: 8, last: 8 }];
        let cores = Cores { cut: true, nodes: 1, sockets: 2, ..Cores::of_ranges(&ranges) };
        let identity = Identity {
            process: 11,
            pid: 12,
            boot: 13,
            namespaces: Namespaces { pid: 1, ipc: 2, net: 3, mnt: 4, user: 5, uts: 6 },
            cores,
            container: Some(7),
            has_address: true,
            gpus: Some(([9; 16], 2)),
        };
        Slot { rank: 5, epoch: 1, identity, segment: Some(0) }
    }

    #[test]
    fn slots_come_back_as_they_were() {
        let with_all = slot();
        assert_eq!(Slot::decode(&with_all.encode(77), 5, 77), Ok(with_all.clone()));
        let identity = Identity { container: None, gpus: None, has_address: false, ..with_all.identity };
        let with_little = Slot { segment: None, identity, ..with_all };
        assert_eq!(Slot::decode(&with_little.encode(77), 5, 77), Ok(with_little));
    }

    #[test]
    fn slots_of_others_are_refused() {
        let bytes = slot().encode(77);
        assert_eq!(Slot::decode(&bytes, 4, 77), Err(SlotError::Rank(5)));
        assert_eq!(Slot::decode(&bytes, 5, 78), Err(SlotError::Job));
        assert_eq!(Slot::decode(&[0; SLOT_BYTES], 0, 0), Err(SlotError::Magic));
    }

    /// The bytes with one of them changed and the sum made right again, as a liar would.
    fn forged(at: usize, value: u8) -> [u8; SLOT_BYTES] {
        let mut bytes = slot().encode(77);
        bytes[at] = value;
        let right = sum(&bytes);
        bytes[SUM_AT..].copy_from_slice(&right);
        bytes
    }

    #[test]
    fn values_that_cannot_be_are_refused() {
        let refused = |at, value| Slot::decode(&forged(at, value), 5, 77).unwrap_err();
        assert_eq!(refused(121, 0x80), SlotError::Field("set of flags"));
        assert_eq!(refused(122, 1), SlotError::Field("set of flags"));
        // The second range begins within the first.
        assert_eq!(refused(84, 2), SlotError::Field("list of processors"));
    }

    proptest! {
        #[test]
        fn no_bytes_do_harm(bytes in proptest::collection::vec(any::<u8>(), SLOT_BYTES), at in 0..SUM_AT) {
            let mut whole = [0; SLOT_BYTES];
            whole.copy_from_slice(&bytes);
            prop_assert!(Slot::decode(&whole, 5, 77).is_err());
            // Whatever passes is what it would be written as.
            if let Ok(slot) = Slot::decode(&forged(at, bytes[at]), 5, 77) {
                let again = Slot::decode(&slot.encode(77), 5, 77);
                prop_assert_eq!(again, Ok(slot));
            }
        }

        #[test]
        fn a_byte_that_was_torn_is_noticed(at in 0..SLOT_BYTES, change in 1..=u8::MAX) {
            let mut bytes = slot().encode(77);
            bytes[at] ^= change;
            prop_assert!(Slot::decode(&bytes, 5, 77).is_err());
        }
    }
}
