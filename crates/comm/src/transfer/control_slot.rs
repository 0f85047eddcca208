//! Control slots: small messages of collectives in shared memory.
//!
//! A control slot carries messages one way between two ranks, in memory that both map. It has two halves,
//! which exchanges use in turn. That is enough without a message back: whoever writes for the exchange after
//! next has read what the other rank wrote for the next one, and that rank had read everything of the one
//! before by then.

use core::sync::atomic::{AtomicU64, Ordering};

/// Control slots of two ranks, one way. Each communicator that is in use has one.
pub(crate) const CONTROL_SLOTS: u16 = 16;

/// The most bytes of one exchange.
pub(crate) const MAX_BYTES: usize = (HALF_CELLS - 2) * 8;

/// 64-bit cells of a half: the exchange, its bytes, and what they are.
const HALF_CELLS: usize = 64;

/// Cells of all control slots.
pub(crate) const CELLS: usize = CONTROL_SLOTS as usize * 2 * HALF_CELLS;

/// What there is for an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    /// Nothing so far.
    NotYet,
    /// Its bytes, which have been copied.
    Here,
    /// A message of another length.
    OtherLength(u64),
}

/// One half of a control slot.
#[derive(Debug)]
pub(crate) struct SlotHalf<'a>(&'a [AtomicU64]);

impl<'a> SlotHalf<'a> {
    /// The half that an exchange uses of a control slot, in the cells of all of them.
    pub(crate) fn of(cells: &'a [AtomicU64], control_slot: u16, exchange: u64) -> Self {
        let control_slot = usize::from(control_slot % CONTROL_SLOTS);
        let half = usize::from(exchange % 2 == 1);
        let at = (control_slot * 2 + half) * HALF_CELLS;
        Self(&cells[at..at + HALF_CELLS])
    }

    /// The writer: at most [`MAX_BYTES`] for an exchange, whose number no earlier one of the slot has.
    pub(crate) fn post(&self, exchange: u64, message: &[u8]) {
        debug_assert!(message.len() <= MAX_BYTES);
        for (cell, part) in self.0[2..].iter().zip(message.chunks(8)) {
            let mut bytes = [0; 8];
            bytes[..part.len()].copy_from_slice(part);
            cell.store(u64::from_ne_bytes(bytes), Ordering::Relaxed);
        }
        self.0[1].store(message.len() as u64, Ordering::Relaxed);
        // The reader acquires by this cell: it sees what was written before.
        self.0[0].store(exchange, Ordering::Release);
    }

    /// The reader: whether something has come for an exchange.
    pub(crate) fn has(&self, exchange: u64) -> bool {
        self.0[0].load(Ordering::Acquire) == exchange
    }

    /// The reader: copies the message of an exchange, if they have come.
    pub(crate) fn take(&self, exchange: u64, message: &mut [u8]) -> Taken {
        if !self.has(exchange) {
            return Taken::NotYet;
        }
        let bytes_sent = self.0[1].load(Ordering::Relaxed);
        if bytes_sent != message.len() as u64 {
            return Taken::OtherLength(bytes_sent);
        }
        for (cell, part) in self.0[2..].iter().zip(message.chunks_mut(8)) {
            part.copy_from_slice(&cell.load(Ordering::Relaxed).to_ne_bytes()[..part.len()]);
        }
        Taken::Here
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells() -> Vec<AtomicU64> {
        (0..CELLS).map(|_| AtomicU64::new(0)).collect()
    }

    #[test]
    fn an_exchange_is_read_once_it_is_there_and_by_its_own_length() {
        let cells = cells();
        let mut found = [0; 13];
        assert_eq!(SlotHalf::of(&cells, 3, 5).take(5, &mut found), Taken::NotYet);
        SlotHalf::of(&cells, 3, 5).post(5, b"thirteen char");
        for (control_slot, exchange) in [(3, 7), (3, 6), (2, 5), (4, 5)] {
            assert_eq!(
                SlotHalf::of(&cells, control_slot, exchange).take(exchange, &mut found),
                Taken::NotYet
            );
        }
        assert_eq!(SlotHalf::of(&cells, 3, 5).take(5, &mut found[..12]), Taken::OtherLength(13));
        assert_eq!(SlotHalf::of(&cells, 3, 5).take(5, &mut found), Taken::Here);
        assert_eq!(&found, b"thirteen char");
        let long = [7; MAX_BYTES];
        let mut found = [0; MAX_BYTES];
        SlotHalf::of(&cells, CONTROL_SLOTS - 1, 6).post(6, &long);
        assert_eq!(SlotHalf::of(&cells, CONTROL_SLOTS - 1, 6).take(6, &mut found), Taken::Here);
        assert_eq!(found, long);
    }

    /// Two ranks exchange messages that differ each time, as fast as they can; now and then one is late.
    #[test]
    fn two_halves_are_enough() {
        let (there, back) = (cells(), cells());
        let rounds = if cfg!(miri) { 50 } else { 20_000_u64 };
        let message = |rank: u64, exchange: u64| {
            let length = 1 + (exchange * 7 % MAX_BYTES as u64) as usize;
            (0..length).map(|at| (exchange * 31 + rank * 101 + at as u64) as u8).collect::<Vec<u8>>()
        };
        let run = |rank: u64, out: &[AtomicU64], into: &[AtomicU64]| {
            for exchange in 1..=rounds {
                SlotHalf::of(out, 1, exchange).post(exchange, &message(rank, exchange));
                if (exchange * 13 + rank).is_multiple_of(97) {
                    std::thread::yield_now();
                }
                let expected = message(1 - rank, exchange);
                let mut found = vec![0; expected.len()];
                while SlotHalf::of(into, 1, exchange).take(exchange, &mut found) != Taken::Here {
                    std::thread::yield_now();
                }
                assert_eq!(found, expected, "exchange {exchange} at rank {rank}");
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| run(0, &there, &back));
            run(1, &back, &there);
        });
    }
}
