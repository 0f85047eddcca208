//! Request and reply messages.

use causeway_ibverbs::{Completion, Outcome, SendBatch, SendRequest};

use crate::case::{Case, Operation};
use crate::endpoint::{EndpointError, Joined, MAX_INLINE_BYTES};
use crate::poll_deadline::PollDeadline;
use crate::traffic::AT_ONCE;
use crate::trips::Trips;

impl Joined<'_> {
    /// The seconds of a round trip.
    pub(crate) fn round_trips(&self, case: Case) -> Result<f64, EndpointError> {
        let mut dialogue = Dialogue { joined: self, case, unfinished: 0 };
        let mut trips = Trips::begin();
        for number in 0..case.messages() {
            dialogue.say(number)?;
            dialogue.receive(number)?;
            trips.one_more();
        }
        let typical = trips.median();
        dialogue.complete()?;
        Ok(typical)
    }

    /// The other end's part in round trips.
    pub(crate) fn reply(&self, case: Case) -> Result<(), EndpointError> {
        let mut dialogue = Dialogue { joined: self, case, unfinished: 0 };
        for number in 0..case.messages() {
            dialogue.receive(number)?;
            dialogue.say(number)?;
        }
        dialogue.complete()
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
        let mut deadline = PollDeadline::new();
        while self.unfinished >= joined.setting.capacity {
            self.take()?;
            deadline.nothing()?;
        }
        if case.operation == Operation::Write {
            // SAFETY: the byte lies in the buffer, and the answer to the last message that it was in has
            // come.
            unsafe { self.last_byte(joined.endpoint.source()).write_volatile(mark(number)) };
        }
        let (work, segment) = joined.request(0, case.operation, case.bytes);
        let is_inline =
            case.operation != Operation::Read && case.bytes <= u64::from(joined.inline.min(MAX_INLINE_BYTES));
        let mut batch = SendBatch::with_capacity(1);
        batch.push(&SendRequest { is_inline, ..SendRequest::new(0, work, segment) });
        self.unfinished += 1;
        joined.post(0, &mut batch)
    }

    /// Waits for the answer: a message, the mark in the last byte that the peer writes, or the end of a read.
    fn receive(&mut self, number: u32) -> Result<(), EndpointError> {
        let mut deadline = PollDeadline::new();
        loop {
            let is_marked = self.case.operation == Operation::Write && {
                // SAFETY: the byte lies in the buffer, and is looked at as the device may write it.
                let last = unsafe { self.last_byte(self.joined.endpoint.sink()).read_volatile() };
                last == mark(number)
            };
            if is_marked || self.take()? {
                return Ok(());
            }
            deadline.nothing()?;
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
    fn complete(&mut self) -> Result<(), EndpointError> {
        let mut deadline = PollDeadline::new();
        while self.unfinished > 0 {
            self.take()?;
            deadline.nothing()?;
        }
        Ok(())
    }

    fn last_byte(&self, memory: *mut u8) -> *mut u8 {
        // SAFETY: a message is not longer than half of the buffer, and not empty.
        unsafe { memory.add(self.case.bytes as usize - 1) }
    }
}

/// The mark of a message, another one than that of the message before, and never 0.
fn mark(number: u32) -> u8 {
    (number % 255) as u8 + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_of_neighbours_differ_and_none_is_that_of_nothing() {
        assert!((0..1000).all(|number| mark(number) != mark(number + 1) && mark(number) != 0));
    }
}
