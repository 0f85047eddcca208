//! Incoming bytes whose commands come, are refused, or never come.

use super::table::{MAX_QUEUED, MAX_REFUSED};
use super::*;
use proptest::prelude::*;
use std::collections::HashMap;
use std::sync::atomic::Ordering;

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
        assert!(!self.is_complete(number));
        arrival.end(Ok(plain(bytes)));
        assert!(self.is_complete(number));
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
    for number in 0..2 * MAX_REFUSED as u64 {
        assert!(incoming.take(number, 1).is_err() && incoming.take(number, 1).is_err());
    }
    assert_eq!(incoming.table.lock().slots.len(), MAX_REFUSED);
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
    let (_, all) = incoming.begin(1, MAX_QUEUED).unwrap();
    assert!(!incoming.has_capacity(1) && incoming.begin(2, 1).is_none());
    assert_eq!(incoming.take(2, 1).err(), Some(CUresult::CUDA_ERROR_OUT_OF_MEMORY));
    assert!(incoming.seek(3) && incoming.seek(4));
    incoming.brought(3, Ok(plain(1)));
    incoming.sought(4, None, false);
    assert!(incoming.put(4, &[0]));
    for number in [3, 4] {
        assert_eq!(incoming.take(number, 1).err(), Some(CUresult::CUDA_ERROR_OUT_OF_MEMORY));
    }
    drop(all);
    assert!(incoming.has_capacity(MAX_QUEUED));
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
