//! Bulk data on its way from the client: kept from its first chunk until the command that names it is issued.

use super::arena::{Arena, Leased};
use causeway_api::sys::CUresult;
use causeway_gpu::busy::HostMemory;
use causeway_gpu::{Gpu, Staging};
use causeway_link::{Destination, Lease, TransferError};
use causeway_pipeline::PAST_CACHES_UP_TO;
use memmap2::Mmap;
use parking_lot::Mutex;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Transfers up to this size are received into memory that the GPU copies from directly. Pinning more would cost more
/// than the copy it saves.
const MOST_STAGED: u64 = 64 << 20;

/// Bytes that may wait for their commands. A client that sends more without naming it in a command gets
/// `CUDA_ERROR_OUT_OF_MEMORY` for the commands that come too late.
const MOST_WAITING: u64 = 4 << 30;

/// Transfers that are remembered because their commands were refused before they came.
const MOST_REFUSED: usize = 1 << 10;

/// Received bytes.
pub enum Buffer {
    /// In memory that the GPU copies from directly.
    Staged(Staging),
    /// In memory shared with the client, who may still write to it.
    Leased(Leased),
    /// In ordinary memory.
    Plain(Vec<u8>),
    /// In a file of the image cache.
    Mapped(Mmap),
    /// Anywhere, and being kept for later sessions at the same time.
    Shared(Arc<Buffer>),
}

impl Buffer {
    /// Where the bytes are.
    pub fn as_ptr(&self) -> *const u8 {
        match self {
            Self::Staged(staging) => staging.as_ptr(),
            Self::Leased(leased) => leased.as_ptr(),
            Self::Plain(bytes) => bytes.as_ptr(),
            Self::Mapped(bytes) => bytes.as_ptr(),
            Self::Shared(buffer) => buffer.as_ptr(),
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        match self {
            Self::Staged(staging) => staging.len(),
            Self::Leased(leased) => leased.len(),
            Self::Plain(bytes) => bytes.len(),
            Self::Mapped(bytes) => bytes.len(),
            Self::Shared(buffer) => buffer.len(),
        }
    }

    /// The bytes, for whoever interprets them: nobody else can change them.
    pub fn settled(&self) -> Cow<'_, [u8]> {
        match self {
            Self::Staged(staging) => Cow::Borrowed(staging.as_slice()),
            Self::Leased(leased) => Cow::Owned(leased.to_vec()),
            Self::Plain(bytes) => Cow::Borrowed(bytes),
            Self::Mapped(bytes) => Cow::Borrowed(bytes),
            Self::Shared(buffer) => buffer.settled(),
        }
    }
}

// SAFETY: each of these owns its bytes, or keeps them mapped, until it is dropped.
unsafe impl HostMemory for Buffer {
    fn address(&self) -> *const u8 {
        self.as_ptr()
    }

    fn bytes(&self) -> usize {
        self.len()
    }
}

/// Bytes that count as waiting until this is dropped.
struct Credit {
    waiting: Arc<AtomicU64>,
    bytes: u64,
}

impl Drop for Credit {
    fn drop(&mut self) {
        self.waiting.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

enum Slot {
    /// An image that a command names, or bytes of a copy, which are looked for.
    Sought,
    /// What the client has been asked for: bytes of a copy, or an image.
    Wanted { is_copy: bool },
    /// Some of it has come.
    Arriving,
    /// All of it has. What lies in the cache's files counts for nothing: the system can have that memory back.
    Arrived(Buffer, Option<Credit>),
    /// It will not come.
    Failed(CUresult),
    /// Nobody wants it: the command that named it has been refused.
    Refused,
}

#[derive(Default)]
struct Table {
    slots: HashMap<u64, Slot>,
    refused: usize,
    waiting: Arc<AtomicU64>,
}

impl Table {
    /// Lets so many more bytes wait, unless they are too many.
    fn credit(&self, bytes: u64) -> Option<Credit> {
        // Others only subtract: whoever adds holds the table.
        let waiting = self.waiting.load(Ordering::Relaxed);
        if waiting.saturating_add(bytes) > MOST_WAITING {
            return None;
        }
        self.waiting.fetch_add(bytes, Ordering::Relaxed);
        Some(Credit { waiting: Arc::clone(&self.waiting), bytes })
    }

    /// Settles a transfer, unless nobody wants it any more.
    fn settle(&mut self, number: u64, settled: Slot) {
        match self.slots.get(&number) {
            Some(Slot::Refused) => self.forget_refused(number),
            Some(Slot::Sought | Slot::Wanted { .. } | Slot::Arriving) => {
                self.slots.insert(number, settled);
            }
            Some(Slot::Arrived(..) | Slot::Failed(_)) | None => {}
        }
    }

    fn refuse(&mut self, number: u64) {
        // Of what comes for more than these the bytes wait in vain, and no more than may wait at all.
        if self.refused < MOST_REFUSED && !matches!(self.slots.get(&number), Some(Slot::Refused)) {
            self.refused += 1;
            self.slots.insert(number, Slot::Refused);
        }
    }

    fn forget_refused(&mut self, number: u64) {
        self.refused -= 1;
        self.slots.remove(&number);
    }
}

/// The transfers of a session that have begun to arrive.
#[derive(Clone, Default)]
pub struct Incoming {
    table: Arc<Mutex<Table>>,
}

/// A transfer whose bytes are coming.
struct Arrival {
    incoming: Incoming,
    number: u64,
    length: usize,
    credit: Credit,
}

impl Arrival {
    /// All bytes have come, or never will.
    fn end(self, result: Result<Buffer, TransferError>) {
        let settled = match result {
            Ok(buffer) => Slot::Arrived(buffer, Some(self.credit)),
            Err(_) => Slot::Failed(CUresult::CUDA_ERROR_UNKNOWN),
        };
        self.incoming.table.lock().settle(self.number, settled);
    }
}

impl Incoming {
    /// Makes room for a transfer whose first chunk has come; calls `arrived` when all of it is there, or has
    /// failed. Nothing is returned when its bytes must be thrown away.
    pub fn open(
        &self,
        gpu: &dyn Gpu,
        number: u64,
        total: u64,
        arrived: impl FnOnce() + Send + 'static,
    ) -> Option<Destination> {
        let (is_image, arrival) = self.begin(number, total)?;
        let length = arrival.length;
        let finish = move |result: Result<Buffer, TransferError>| {
            arrival.end(result);
            arrived();
        };
        let in_caches = length > PAST_CACHES_UP_TO;
        if total <= MOST_STAGED
            && !is_image
            && let Ok(staging) = if in_caches { gpu.warm_staging(length) } else { gpu.staging(length) }
        {
            let address = staging.as_ptr();
            let finish = move |result: Result<(), _>| finish(result.map(|()| Buffer::Staged(staging)));
            // SAFETY: the memory belongs to `staging`, which the callback owns until it has run.
            let destination = unsafe { Destination::raw(address, length, finish) };
            return Some(if in_caches { destination } else { destination.past_caches() });
        }
        Some(Destination::buffer(vec![0; length], move |result| finish(result.map(Buffer::Plain))))
    }

    /// Takes account of a transfer that begins to come, and says whether it is an image.
    fn begin(&self, number: u64, total: u64) -> Option<(bool, Arrival)> {
        let mut table = self.table.lock();
        let is_image = match table.slots.get(&number) {
            None => false,
            Some(Slot::Wanted { is_copy }) => !is_copy,
            Some(Slot::Refused) => {
                table.forget_refused(number);
                return None;
            }
            Some(_) => return None,
        };
        let Some((length, credit)) = usize::try_from(total).ok().zip(table.credit(total)) else {
            table.slots.insert(number, Slot::Failed(CUresult::CUDA_ERROR_OUT_OF_MEMORY));
            return None;
        };
        table.slots.insert(number, Slot::Arriving);
        Some((is_image, Arrival { incoming: self.clone(), number, length, credit }))
    }

    /// Takes a whole transfer where it lies in memory shared with the client. It is given back when it is an image, which
    /// must not change, or when too many wait there; then it is copied.
    pub fn open_in_place(&self, arena: &Arc<Arena>, number: u64, lease: Lease) -> Result<(), Lease> {
        let mut table = self.table.lock();
        if table.slots.contains_key(&number) {
            return Err(lease);
        }
        let Some(credit) = table.credit(lease.len() as u64) else { return Err(lease) };
        let leased = arena.keep_waiting(lease)?;
        table.slots.insert(number, Slot::Arrived(Buffer::Leased(leased), Some(credit)));
        Ok(())
    }

    /// Whether a command that names the transfer can be issued: all bytes are there, or never will be.
    pub fn is_settled(&self, number: u64) -> bool {
        matches!(self.table.lock().slots.get(&number), Some(Slot::Arrived(..) | Slot::Failed(_)))
    }

    /// Begins to look for an image; false when the number is in use already.
    pub fn seek(&self, number: u64) -> bool {
        let mut table = self.table.lock();
        let fresh = !table.slots.contains_key(&number);
        if fresh {
            table.slots.insert(number, Slot::Sought);
        }
        fresh
    }

    /// Ends the search for an image, or for the bytes of a copy: here they are, or the client has to send them.
    pub fn sought(&self, number: u64, found: Option<Mmap>, is_copy: bool) {
        let mut table = self.table.lock();
        match found {
            Some(map) => table.settle(number, Slot::Arrived(Buffer::Mapped(map), None)),
            None if matches!(table.slots.get(&number), Some(Slot::Sought)) => {
                table.slots.insert(number, Slot::Wanted { is_copy });
            }
            None => {}
        }
    }

    /// Lent bytes that were [sought](Self::seek) are there, or never will be.
    pub fn brought(&self, number: u64, outcome: Result<Buffer, CUresult>) {
        let mut table = self.table.lock();
        let settled = outcome.and_then(|buffer| {
            let credit = table.credit(buffer.len() as u64).ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
            Ok(Slot::Arrived(buffer, Some(credit)))
        });
        table.settle(number, settled.unwrap_or_else(Slot::Failed));
    }

    /// Whether so many more bytes may wait for their command.
    pub fn has_room(&self, bytes: u64) -> bool {
        self.table.lock().credit(bytes).is_some()
    }

    /// Whether anything is known of a transfer.
    pub fn knows(&self, number: u64) -> bool {
        self.table.lock().slots.contains_key(&number)
    }

    /// Takes in the bytes of an image that the client was asked for, if they are still wanted; false when it was not.
    pub fn put(&self, number: u64, bytes: &[u8]) -> bool {
        let mut table = self.table.lock();
        if let Some(Slot::Refused) = table.slots.get(&number) {
            table.forget_refused(number);
            return true;
        }
        let is_wanted = matches!(table.slots.get(&number), Some(Slot::Wanted { is_copy: false }));
        if is_wanted {
            let settled = match table.credit(bytes.len() as u64) {
                Some(credit) => Slot::Arrived(Buffer::Plain(bytes.to_vec()), Some(credit)),
                None => Slot::Failed(CUresult::CUDA_ERROR_OUT_OF_MEMORY),
            };
            table.slots.insert(number, settled);
        }
        is_wanted
    }

    /// Takes the bytes of a transfer for its command; `length` is what the command says they should be. Bytes of a
    /// transfer that is not settled are thrown away when they come: its command is refused.
    pub fn take(&self, number: u64, length: u64) -> Result<Buffer, CUresult> {
        let mut table = self.table.lock();
        match table.slots.remove(&number) {
            Some(Slot::Arrived(buffer, _credit)) if buffer.len() as u64 == length => Ok(buffer),
            Some(Slot::Arrived(..)) => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
            Some(Slot::Failed(error)) => Err(error),
            unsettled => {
                if let Some(refused @ Slot::Refused) = unsettled {
                    table.slots.insert(number, refused);
                } else {
                    table.refuse(number);
                }
                Err(CUresult::CUDA_ERROR_UNKNOWN)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;

    fn plain(bytes: usize) -> Buffer {
        Buffer::Plain(vec![0; bytes])
    }

    fn mapped(bytes: usize) -> Mmap {
        memmap2::MmapMut::map_anon(bytes).unwrap().make_read_only().unwrap()
    }

    impl Incoming {
        fn waiting(&self) -> u64 {
            self.table.lock().waiting.load(Ordering::Relaxed)
        }

        fn comes(&self, number: u64, bytes: usize) {
            let (_, arrival) = self.begin(number, bytes as u64).unwrap();
            assert!(!self.is_settled(number));
            arrival.end(Ok(plain(bytes)));
            assert!(self.is_settled(number));
        }

        fn is_empty(&self) -> bool {
            let table = self.table.lock();
            table.slots.is_empty() && table.refused == 0 && table.waiting.load(Ordering::Relaxed) == 0
        }
    }

    #[test]
    fn bytes_wait_until_their_command_takes_them_whatever_it_says_of_their_length() {
        let incoming = Incoming::default();
        incoming.comes(1, 100);
        incoming.comes(2, 50);
        assert_eq!(incoming.waiting(), 150);
        assert_eq!(incoming.take(1, 100).map(|buffer| buffer.len()), Ok(100));
        assert_eq!(incoming.take(2, 51).err(), Some(INVALID));
        assert!(incoming.is_empty());
    }

    #[test]
    fn a_transfer_that_fails_waits_no_longer() {
        let incoming = Incoming::default();
        let (_, arrival) = incoming.begin(1, 100).unwrap();
        assert_eq!(incoming.waiting(), 100);
        arrival.end(Err(TransferError::Cancelled));
        assert_eq!(incoming.waiting(), 0);
        assert_eq!(incoming.take(1, 100).err(), Some(CUresult::CUDA_ERROR_UNKNOWN));
        assert!(incoming.is_empty());
    }

    #[test]
    fn what_is_refused_before_its_bytes_have_come_is_thrown_away_when_they_do() {
        let incoming = Incoming::default();
        // Nothing has come, some of it has, it is looked for, it was asked for.
        assert!(incoming.take(1, 100).is_err());
        let (_, arrival) = incoming.begin(2, 100).unwrap();
        assert!(incoming.take(2, 100).is_err());
        for number in 3..=6 {
            assert!(incoming.seek(number));
        }
        assert!(incoming.take(3, 100).is_err() && incoming.take(4, 100).is_err());
        incoming.sought(5, None, true);
        incoming.sought(6, None, false);
        assert!(incoming.take(5, 100).is_err() && incoming.take(6, 100).is_err());

        assert!(incoming.begin(1, 100).is_none());
        arrival.end(Ok(plain(100)));
        incoming.sought(3, Some(mapped(100)), false);
        incoming.sought(4, None, true);
        assert!(incoming.begin(4, 100).is_none() && incoming.begin(5, 100).is_none());
        assert!(incoming.put(6, &[0; 100]));
        assert!(incoming.is_empty());
    }

    #[test]
    fn only_so_many_refused_transfers_are_remembered() {
        let incoming = Incoming::default();
        for number in 0..2 * MOST_REFUSED as u64 {
            assert!(incoming.take(number, 1).is_err() && incoming.take(number, 1).is_err());
        }
        assert_eq!(incoming.table.lock().slots.len(), MOST_REFUSED);
    }

    #[test]
    fn what_lies_in_the_cache_counts_for_nothing() {
        let incoming = Incoming::default();
        incoming.comes(1, 100);
        assert!(incoming.seek(2));
        incoming.sought(2, Some(mapped(4096)), false);
        assert_eq!(incoming.waiting(), 100);
        assert!(incoming.take(2, 4096).is_ok());
        assert_eq!(incoming.waiting(), 100);
    }

    #[test]
    fn no_more_than_so_many_bytes_wait() {
        let incoming = Incoming::default();
        let (_, all) = incoming.begin(1, MOST_WAITING).unwrap();
        assert!(!incoming.has_room(1) && incoming.begin(2, 1).is_none());
        assert_eq!(incoming.take(2, 1).err(), Some(CUresult::CUDA_ERROR_OUT_OF_MEMORY));
        assert!(incoming.seek(3) && incoming.seek(4));
        incoming.brought(3, Ok(plain(1)));
        incoming.sought(4, None, false);
        assert!(incoming.put(4, &[0]));
        for number in [3, 4] {
            assert_eq!(incoming.take(number, 1).err(), Some(CUresult::CUDA_ERROR_OUT_OF_MEMORY));
        }
        drop(all);
        assert!(incoming.has_room(MOST_WAITING));
    }

    /// What happens to a transfer.
    #[derive(Debug, Clone, Copy)]
    enum Step {
        Begin,
        End { fails: bool },
        Seek,
        Find { mapped: bool, is_copy: bool },
        Bring { fails: bool },
        Put,
        Take { length: usize },
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => Just(Step::Begin),
            3 => any::<bool>().prop_map(|fails| Step::End { fails }),
            1 => Just(Step::Seek),
            1 => any::<(bool, bool)>().prop_map(|(mapped, is_copy)| Step::Find { mapped, is_copy }),
            1 => any::<bool>().prop_map(|fails| Step::Bring { fails }),
            1 => Just(Step::Put),
            3 => (0..3_usize).prop_map(|length| Step::Take { length }),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// What counts is always what is coming and what has come and was not taken, in any order of events.
        #[test]
        fn what_waits_is_what_is_there(steps in prop::collection::vec((0..4_u64, step()), 0..60)) {
            let incoming = Incoming::default();
            let mut arrivals: HashMap<u64, Arrival> = HashMap::new();
            let bytes = |number: u64| 1 + number as usize;
            for (number, step) in steps {
                match step {
                    Step::Begin => {
                        if let Some((_, arrival)) = incoming.begin(number, bytes(number) as u64) {
                            // The link has a number once at a time.
                            if let Some(before) = arrivals.insert(number, arrival) {
                                before.end(Err(TransferError::Cancelled));
                            }
                        }
                    }
                    Step::End { fails } => {
                        if let Some(arrival) = arrivals.remove(&number) {
                            let buffer = plain(bytes(number));
                            arrival.end(if fails { Err(TransferError::Cancelled) } else { Ok(buffer) });
                        }
                    }
                    Step::Seek => {
                        incoming.seek(number);
                    }
                    Step::Find { mapped: is_mapped, is_copy } => {
                        incoming.sought(number, is_mapped.then(|| mapped(bytes(number))), is_copy);
                    }
                    Step::Bring { fails } => {
                        let brought = if fails { Err(INVALID) } else { Ok(plain(bytes(number))) };
                        incoming.brought(number, brought);
                    }
                    Step::Put => {
                        incoming.put(number, &vec![0; bytes(number)]);
                    }
                    Step::Take { length } => {
                        let _ = incoming.take(number, (bytes(number) + length / 2) as u64);
                    }
                }
                let there: usize = {
                    let table = incoming.table.lock();
                    let arrived = table.slots.values().filter_map(|slot| match slot {
                        Slot::Arrived(Buffer::Mapped(_), _) => None,
                        Slot::Arrived(buffer, _) => Some(buffer.len()),
                        _ => None,
                    });
                    arrived.sum::<usize>() + arrivals.keys().map(|number| bytes(*number)).sum::<usize>()
                };
                prop_assert_eq!(incoming.waiting(), there as u64);
                let table = incoming.table.lock();
                let refused = table.slots.values().filter(|slot| matches!(slot, Slot::Refused)).count();
                prop_assert_eq!(table.refused, refused);
            }
            arrivals.into_iter().for_each(|(_, arrival)| arrival.end(Err(TransferError::Cancelled)));
            for number in 0..4 {
                let _ = incoming.take(number, 0);
            }
            prop_assert_eq!(incoming.waiting(), 0);
        }
    }
}
