//! How is one repetition carried out, at the end that measures and at the other one?

use core::hint::spin_loop;
use std::time::{Duration, Instant};

use causeway_verbs::{
    Completion, Operation as WorkOperation, Outcome, RemoteMemory, Segment, SendBatch, SendRequest,
};

use super::case::{Case, LONGEST, Operation, Quantity};
use super::endpoint::{EndpointError, Joined, MOST_INLINE};

/// Looks that find nothing before the processor is given away: tens of microseconds, more than any answer takes.
const LOOKS: u32 = 300;

/// How long nothing may come.
const PATIENCE: Duration = Duration::from_secs(20);

/// At least so many bytes in a row are signalled.
const SIGNALLED_BYTES: u64 = 1 << 20;

/// Completions that are taken at a time.
const AT_ONCE: usize = 32;

/// Somebody who looks for something again and again.
struct Patience {
    looks: u32,
    since: Instant,
}

impl Patience {
    fn new() -> Self {
        Self { looks: 0, since: Instant::now() }
    }

    /// Something came.
    fn reset(&mut self) {
        self.looks = 0;
    }

    /// Nothing was there: spins at first, and then lets others have the processor, which may be the only one.
    fn nothing(&mut self) -> Result<(), EndpointError> {
        self.looks = self.looks.saturating_add(1);
        if self.looks == 1 {
            self.since = Instant::now();
        }
        if self.looks < LOOKS {
            spin_loop();
            return Ok(());
        }
        if self.since.elapsed() > PATIENCE {
            return Err(EndpointError::Silent(PATIENCE.as_secs()));
        }
        std::thread::yield_now();
        Ok(())
    }
}

/// What a completion of a send queue says by its number: which queue pair, and how many requests it is the end of.
fn requests_done(index: usize, count: u32) -> u64 {
    (index as u64) << 32 | u64::from(count)
}

fn at_least_one(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX).max(1)
}

/// Messages that each of so many queue pairs takes, which differ by one at most.
fn shares(messages: u32, queue_pairs: usize) -> Vec<u32> {
    let (each, rest) = (messages / queue_pairs as u32, messages as usize % queue_pairs);
    (0..queue_pairs).map(|index| each + u32::from(index < rest)).collect()
}

impl Joined<'_> {
    /// The bytes that an operation moves, and what it does with them.
    fn request(&self, operation: Operation, bytes: u64) -> (WorkOperation, Segment) {
        let RemoteMemory { address, key } =
            self.peer.expect("queue pairs are connected before they are used");
        match operation {
            Operation::Send => (WorkOperation::Send { immediate: None }, self.source(bytes)),
            Operation::Read => {
                (WorkOperation::Read { from: RemoteMemory { address, key } }, self.sink(bytes))
            }
            Operation::Write => {
                let to = RemoteMemory { address: address + LONGEST, key };
                (WorkOperation::Write { to, immediate: None }, self.source(bytes))
            }
        }
    }

    fn post(&self, index: usize, batch: &mut SendBatch) -> Result<(), EndpointError> {
        // SAFETY: the memory is the endpoint's, which lives longer than the queue pair; nobody has references to it, and what
        // is written while messages are under way is looked at by volatile reads.
        unsafe { self.queue_pairs[index].post(batch) }?;
        Ok(())
    }

    /// Takes completions; a failed one is an error.
    fn poll(&self, into: &mut [Completion; AT_ONCE]) -> Result<usize, EndpointError> {
        let count = self.completions.poll(into)?;
        match into[..count].iter().find(|completion| !completion.status().is_success()) {
            Some(failed) => Err(EndpointError::Failed(failed.status())),
            None => Ok(count),
        }
    }

    /// The end that measures: the seconds of one message (bandwidth) or one round trip (latency).
    pub fn measure(&self, case: Case) -> Result<f64, EndpointError> {
        match case.quantity {
            Quantity::Bandwidth => {
                let begun = Instant::now();
                self.stream(case.operation, case.bytes, case.messages())?;
                Ok(begun.elapsed().as_secs_f64() / f64::from(case.messages()))
            }
            Quantity::Latency => self.round_trips(case),
        }
    }

    /// The other end's part in it.
    pub fn take_part(&self, case: Case) -> Result<(), EndpointError> {
        match (case.quantity, case.operation) {
            (Quantity::Bandwidth, Operation::Send) => self.receive(case.messages()),
            (Quantity::Latency, Operation::Send | Operation::Write) => self.answer(case),
            _ => Ok(()),
        }
    }

    /// Carries so many messages, and returns when the last is done. Each queue pair has as many under way as it holds; one
    /// request in each quarter of its capacity is signalled, and requests are posted by such quarters.
    pub fn stream(&self, operation: Operation, bytes: u64, messages: u32) -> Result<(), EndpointError> {
        let (work, segment) = self.request(operation, bytes);
        let capacity = self.setting.capacity;
        // Long messages are waited for one by one, so that what moves slowly is seen to move.
        let interval = (capacity / 4).clamp(1, at_least_one(SIGNALLED_BYTES / bytes));
        let mut left = shares(messages, self.queue_pairs.len());
        let mut under_way = vec![0; self.queue_pairs.len()];
        let mut batch = SendBatch::with_capacity(interval as usize);
        let mut completions = [Completion::default(); AT_ONCE];
        let mut patience = Patience::new();
        loop {
            for index in 0..left.len() {
                loop {
                    let count = interval.min(left[index]);
                    if count == 0 || under_way[index] + count > capacity {
                        break;
                    }
                    for number in 1..=count {
                        batch.push(&SendRequest {
                            is_signalled: number == count,
                            ..SendRequest::new(requests_done(index, count), work, segment)
                        });
                    }
                    self.post(index, &mut batch)?;
                    under_way[index] += count;
                    left[index] -= count;
                }
            }
            if under_way.iter().all(|count| *count == 0) {
                return Ok(());
            }
            let taken = self.poll(&mut completions)?;
            if taken == 0 {
                patience.nothing()?;
            } else {
                patience.reset();
            }
            for completion in &completions[..taken] {
                under_way[(completion.id() >> 32) as usize] -= completion.id() as u32;
            }
        }
    }

    /// Receives so many messages, and posts a receive for each that came.
    pub fn receive(&self, messages: u32) -> Result<(), EndpointError> {
        let mut missing = vec![0; self.queue_pairs.len()];
        let mut completions = [Completion::default(); AT_ONCE];
        let mut patience = Patience::new();
        let mut left = messages;
        while left > 0 {
            let taken = self.poll(&mut completions)?;
            if taken == 0 {
                patience.nothing()?;
                continue;
            }
            patience.reset();
            for completion in completions[..taken].iter().filter(|one| one.outcome() == Outcome::Received) {
                let index = completion.id() as usize;
                missing[index] += 1;
                left = left.saturating_sub(1);
                if missing[index] == self.receives / 4 {
                    self.post_receives(index, missing[index])?;
                    missing[index] = 0;
                }
            }
        }
        for (index, count) in missing.into_iter().enumerate().filter(|(_, count)| *count > 0) {
            self.post_receives(index, count)?;
        }
        Ok(())
    }

    /// The seconds of a round trip.
    fn round_trips(&self, case: Case) -> Result<f64, EndpointError> {
        let mut dialogue = Dialogue { joined: self, case, unfinished: 0 };
        let mut trips = Trips::begin();
        for number in 0..case.messages() {
            dialogue.say(number)?;
            dialogue.hear(number)?;
            trips.one_more();
        }
        let typical = trips.median();
        dialogue.settle()?;
        Ok(typical)
    }

    /// The other end's part in round trips.
    fn answer(&self, case: Case) -> Result<(), EndpointError> {
        let mut dialogue = Dialogue { joined: self, case, unfinished: 0 };
        for number in 0..case.messages() {
            dialogue.hear(number)?;
            dialogue.say(number)?;
        }
        dialogue.settle()
    }

    /// Clears what the peer writes to, so that what is found there afterwards has come since.
    pub fn forget(&self, bytes: u64) {
        // SAFETY: the bytes lie in the buffer; no request is under way.
        unsafe { self.endpoint.sink().write_bytes(0, bytes as usize) };
    }

    /// The digest of what is sent and read.
    pub fn digest_of_source(&self, bytes: u64) -> u64 {
        digest(self.endpoint.source(), bytes)
    }

    /// The digest of what has come.
    pub fn digest_of_sink(&self, bytes: u64) -> u64 {
        digest(self.endpoint.sink(), bytes)
    }
}

/// One message after the other, each when the one before has been answered, over the first queue pair.
struct Dialogue<'a> {
    joined: &'a Joined<'a>,
    case: Case,
    /// Requests of this end whose completions have not been taken.
    unfinished: u32,
}

impl Dialogue<'_> {
    /// Posts one message.
    fn say(&mut self, number: u32) -> Result<(), EndpointError> {
        let Self { joined, case, .. } = *self;
        let mut patience = Patience::new();
        while self.unfinished >= joined.setting.capacity {
            self.take()?;
            patience.nothing()?;
        }
        if case.operation == Operation::Write {
            // SAFETY: the byte lies in the buffer, and the answer to the last message that it was in has come.
            unsafe { self.last_byte(joined.endpoint.source()).write_volatile(mark(number)) };
        }
        let (work, segment) = joined.request(case.operation, case.bytes);
        let is_inline =
            case.operation != Operation::Read && case.bytes <= u64::from(joined.inline.min(MOST_INLINE));
        let mut batch = SendBatch::with_capacity(1);
        batch.push(&SendRequest { is_inline, ..SendRequest::new(0, work, segment) });
        self.unfinished += 1;
        joined.post(0, &mut batch)
    }

    /// Waits for the answer: a message, the mark in the last byte that the peer writes, or the end of a read.
    fn hear(&mut self, number: u32) -> Result<(), EndpointError> {
        let mut patience = Patience::new();
        loop {
            let is_marked = self.case.operation == Operation::Write && {
                // SAFETY: the byte lies in the buffer, and is looked at as the device may write it.
                let last = unsafe { self.last_byte(self.joined.endpoint.sink()).read_volatile() };
                last == mark(number)
            };
            if is_marked || self.take()? {
                return Ok(());
            }
            patience.nothing()?;
        }
    }

    /// Takes completions; whether one of them is the answer.
    fn take(&mut self) -> Result<bool, EndpointError> {
        let mut completions = [Completion::default(); AT_ONCE];
        let taken = self.joined.poll(&mut completions)?;
        let mut is_answered = false;
        for completion in &completions[..taken] {
            if completion.outcome() == Outcome::Received {
                self.joined.post_receives(0, 1)?;
                is_answered = true;
            } else {
                self.unfinished -= 1;
                is_answered |= completion.outcome() == Outcome::Read;
            }
        }
        Ok(is_answered)
    }

    /// Waits for the ends of this end's own requests: the next repetition must not find them.
    fn settle(&mut self) -> Result<(), EndpointError> {
        let mut patience = Patience::new();
        while self.unfinished > 0 {
            self.take()?;
            patience.nothing()?;
        }
        Ok(())
    }

    fn last_byte(&self, memory: *mut u8) -> *mut u8 {
        // SAFETY: a message is not longer than half of the buffer, and not empty.
        unsafe { memory.add(self.case.bytes as usize - 1) }
    }
}

/// Round trips, each of which begins when the one before ends. They are timed one by one, as perftest does, so that of a machine
/// with other work the typical one is found; by the processor's counter, which costs no system call.
pub(super) struct Trips {
    begun: Instant,
    ticks: Vec<u64>,
}

impl Default for Trips {
    fn default() -> Self {
        Self::begin()
    }
}

impl Trips {
    /// The first one begins.
    pub(super) fn begin() -> Self {
        Self { begun: Instant::now(), ticks: vec![ticks()] }
    }

    /// One has ended.
    pub(super) fn one_more(&mut self) {
        self.ticks.push(ticks());
    }

    /// The seconds of the one in the middle; 0 without any.
    pub(super) fn median(&self) -> f64 {
        let tick = self.begun.elapsed().as_secs_f64() / (ticks() - self.ticks[0]).max(1) as f64;
        typical(&self.ticks).map_or(0.0, |ticks| ticks as f64 * tick)
    }
}

/// The one in the middle of the times between these.
fn typical(ticks: &[u64]) -> Option<u64> {
    let mut trips: Vec<u64> = ticks.windows(2).map(|pair| pair[1] - pair[0]).collect();
    trips.sort_unstable();
    trips.get(trips.len() / 2).copied()
}

/// The processor's counter, which goes at the same rate whatever the processor does.
fn ticks() -> u64 {
    // SAFETY: every x86-64 has it.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// The mark of a message, another one than that of the message before, and never 0.
fn mark(number: u32) -> u8 {
    (number % 255) as u8 + 1
}

/// The FNV-1a hash of bytes that nobody writes to now, taken as words where they last.
pub(super) fn digest(memory: *const u8, bytes: u64) -> u64 {
    let mix = |state: u64, value: u64| (state ^ value).wrapping_mul(0x0000_0100_0000_01b3);
    let words = bytes as usize / 8;
    let mut state = 0xcbf2_9ce4_8422_2325;
    for word in 0..words {
        // SAFETY: the word lies in the memory.
        state = mix(state, unsafe { memory.cast::<u64>().add(word).read_unaligned() });
    }
    for offset in words * 8..bytes as usize {
        // SAFETY: the byte lies there, too.
        state = mix(state, u64::from(unsafe { memory.add(offset).read_volatile() }));
    }
    state
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_shared_out_to_the_last_one() {
        assert_eq!(shares(8, 1), [8]);
        assert_eq!(shares(1024, 4), [256; 4]);
        assert_eq!(shares(10, 4), [3, 3, 2, 2]);
        assert_eq!(shares(2, 4), [1, 1, 0, 0]);
    }

    #[test]
    fn the_typical_round_trip_is_no_mean() {
        assert_eq!(typical(&[100, 103, 105, 9_000, 9_004, 9_005]), Some(3));
        assert_eq!(typical(&[100]), None);
    }

    #[test]
    fn marks_of_neighbours_differ_and_none_is_that_of_nothing() {
        assert!((0..1000).all(|number| mark(number) != mark(number + 1) && mark(number) != 0));
    }

    #[test]
    fn one_byte_makes_another_digest() {
        let mut bytes = [7_u64; 9];
        let whole = digest(bytes.as_ptr().cast(), 67);
        bytes[8] ^= 1 << 16;
        assert_ne!(digest(bytes.as_ptr().cast(), 67), whole);
        bytes[8] ^= 1 << 16 | 1 << 32;
        assert_eq!(digest(bytes.as_ptr().cast(), 67), whole, "the bytes behind the 67th do not count");
    }
}
