//! Traffic of one repetition, at the end that measures and at the other one.

use std::time::Instant;

use causeway_ibverbs::{
    Completion, Operation as WorkOperation, Outcome, RemoteMemory, Segment, SendBatch, SendRequest,
};

use crate::case::{Case, Operation, Quantity};
use crate::endpoint::{EndpointError, HALF, Joined};
use crate::poll_deadline::PollDeadline;

/// At least so many bytes in a row are signalled.
const SIGNALLED_BYTES: u64 = 1 << 20;

/// Completions that are taken at a time.
pub(crate) const AT_ONCE: usize = 32;

/// What a completion of a send queue says by its number: which queue pair, and how many requests it is the
/// end of.
fn requests_done(index: usize, count: u32) -> u64 {
    (index as u64) << 32 | u64::from(count)
}

fn at_least_one(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX).max(1)
}

/// The bytes of a message that each of so many queue pairs carries: they differ by one at most, and the last
/// ones get nothing of a message that has fewer bytes.
pub(crate) fn parts(bytes: u64, queue_pairs: usize) -> Vec<u64> {
    let (each, rest) = (bytes / queue_pairs as u64, bytes % queue_pairs as u64);
    (0..queue_pairs as u64).map(|index| each + u64::from(index < rest)).collect()
}

impl Joined<'_> {
    /// What a queue pair does for an operation with its part of a message, and with which memory.
    pub(crate) fn request(&self, index: usize, operation: Operation, bytes: u64) -> (WorkOperation, Segment) {
        let RemoteMemory { address, key } =
            self.peer.expect("queue pairs are connected before they are used");
        let at = |offset: usize| RemoteMemory { address: address + offset as u64, key };
        match operation {
            Operation::Send => (WorkOperation::Send { immediate: None }, self.source_segment(index, bytes)),
            Operation::Read => (
                WorkOperation::Read { from: at(self.segment_offset(index)) },
                self.sink_segment(index, bytes),
            ),
            Operation::Write => {
                let to = at(HALF + self.segment_offset(index));
                (WorkOperation::Write { to, immediate: None }, self.source_segment(index, bytes))
            }
        }
    }

    pub(crate) fn post(&self, index: usize, batch: &mut SendBatch) -> Result<(), EndpointError> {
        // SAFETY: the memory is the endpoint's, which lives longer than the queue pair; nobody has references
        // to it, and what is written while messages are under way is looked at by volatile reads.
        unsafe { self.queue_pairs[index].post(batch) }?;
        Ok(())
    }

    /// Takes completions; a failed one is an error.
    pub(crate) fn poll(&self, into: &mut [Completion; AT_ONCE]) -> Result<usize, EndpointError> {
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
                let started = Instant::now();
                self.stream(case.operation, case.bytes, case.messages())?;
                Ok(started.elapsed().as_secs_f64() / f64::from(case.messages()))
            }
            Quantity::Latency => self.round_trips(case),
        }
    }

    /// The other end's part in it.
    pub fn take_part(&self, case: Case) -> Result<(), EndpointError> {
        match (case.quantity, case.operation) {
            (Quantity::Bandwidth, Operation::Send) => self.receive(case.bytes, case.messages()),
            (Quantity::Latency, Operation::Send | Operation::Write) => self.reply(case),
            _ => Ok(()),
        }
    }

    /// Carries so many messages, each split over all queue pairs, and returns when the last is done. Each
    /// queue pair has as many parts under way as it holds; one request in each quarter of its capacity is
    /// signalled, and requests are posted by such quarters.
    pub fn stream(&self, operation: Operation, bytes: u64, messages: u32) -> Result<(), EndpointError> {
        let parts = parts(bytes, self.queue_pairs.len());
        let capacity = self.setting.capacity;
        // Long parts are waited for one by one, so that what moves slowly is seen to move.
        let interval = (capacity / 4).clamp(1, at_least_one(SIGNALLED_BYTES / parts[0].max(1)));
        let mut left: Vec<u32> = parts.iter().map(|part| if *part > 0 { messages } else { 0 }).collect();
        let mut in_flight = vec![0; self.queue_pairs.len()];
        let mut batch = SendBatch::with_capacity(interval as usize);
        let mut completions = [Completion::default(); AT_ONCE];
        let mut deadline = PollDeadline::new();
        loop {
            for index in 0..left.len() {
                let (work, segment) = self.request(index, operation, parts[index]);
                loop {
                    let count = interval.min(left[index]);
                    if count == 0 || in_flight[index] + count > capacity {
                        break;
                    }
                    for number in 1..=count {
                        batch.push(&SendRequest {
                            is_signalled: number == count,
                            ..SendRequest::new(requests_done(index, count), work, segment)
                        });
                    }
                    self.post(index, &mut batch)?;
                    in_flight[index] += count;
                    left[index] -= count;
                }
            }
            if in_flight.iter().all(|count| *count == 0) {
                return Ok(());
            }
            let taken = self.poll(&mut completions)?;
            if taken == 0 {
                deadline.nothing()?;
            } else {
                deadline.reset();
            }
            for completion in &completions[..taken] {
                in_flight[(completion.id() >> 32) as usize] -= completion.id() as u32;
            }
        }
    }

    /// Receives so many messages, and posts a receive for each part that came.
    pub fn receive(&self, bytes: u64, messages: u32) -> Result<(), EndpointError> {
        let mut missing = vec![0; self.queue_pairs.len()];
        let mut completions = [Completion::default(); AT_ONCE];
        let mut deadline = PollDeadline::new();
        let used = parts(bytes, self.queue_pairs.len()).into_iter().filter(|part| *part > 0).count();
        let mut left = used * messages as usize;
        while left > 0 {
            let taken = self.poll(&mut completions)?;
            if taken == 0 {
                deadline.nothing()?;
                continue;
            }
            deadline.reset();
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_split_to_the_last_byte() {
        assert_eq!(parts(8, 1), [8]);
        assert_eq!(parts(1 << 20, 4), [1 << 18; 4]);
        assert_eq!(parts(10, 4), [3, 3, 2, 2]);
        assert_eq!(parts(2, 3), [1, 1, 0]);
    }
}
