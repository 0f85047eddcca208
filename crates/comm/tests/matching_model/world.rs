//! A world, and every step that may be taken in it.

use std::collections::HashSet;

use causeway_comm::Job;
use causeway_comm::matching::{Arrived, DESCRIPTOR_BYTES, Descriptor, Pattern, Source, Unexpected, classify};
use causeway_comm::tracer::Traffic;

use crate::state::{Call, Memory, Message, OWN, Outcome, Receive, State, THRESHOLD, Thread, Without, fits};

/// Bytes of the buffer that the MPI gets for a receive of so many (`mpi/src/operation/operation.h`).
fn receive_buffer_bytes(room: u64) -> u64 {
    room.max(DESCRIPTOR_BYTES as u64)
}

pub struct World {
    job: Job,
    messages: Vec<Message>,
    threads: Vec<Vec<Call>>,
    without: Without,
}

pub type Broken = String;

impl World {
    pub fn new(messages: &[Message], threads: &[&[Call]], without: Without) -> Self {
        let threads = threads.iter().map(|calls| calls.to_vec()).collect();
        let job = Job::new([7; 16], 16).unwrap();
        Self { job, messages: messages.to_vec(), threads, without }
    }

    /// The bytes that the MPI carries for a message.
    fn wire(&self, number: usize) -> Vec<u8> {
        let message = self.messages[number];
        let descriptor = Descriptor {
            from: message.source as u32,
            to: OWN,
            operation: number as u64,
            bytes: message.bytes,
            memory: Source::default(),
            word: None,
            traffic: Traffic::Latency,
        };
        match message.memory {
            Memory::Gpu if message.bytes >= THRESHOLD => descriptor.encode(&self.job).to_vec(),
            Memory::Host | Memory::Gpu => vec![number as u8; message.bytes as usize],
            Memory::ForeignDescriptor => descriptor.encode(&Job::new([8; 16], 16).unwrap()).to_vec(),
        }
    }

    /// Visits every state. Says how many there are, or how the first of them breaks the standard.
    pub fn check(&self) -> Result<usize, Broken> {
        let start = State {
            arrived: [0; 2],
            waiting: Vec::new(),
            posted: Vec::new(),
            list: Unexpected::default(),
            receives: Vec::new(),
            threads: vec![Thread { next: 0, has_looked: false }; self.threads.len()],
        };
        let (mut seen, mut open) = (HashSet::from([start.clone()]), vec![start]);
        while let Some(state) = open.pop() {
            let next = self.steps(&state)?;
            if next.is_empty() {
                self.check_end(&state)?;
            }
            open.extend(next.into_iter().filter(|next| seen.insert(next.clone())));
        }
        Ok(seen.len())
    }

    fn steps(&self, state: &State) -> Result<Vec<State>, Broken> {
        let mut next = Vec::new();
        for sender in 0..2 {
            next.extend(self.arrive(state, sender)?);
        }
        for thread in 0..state.threads.len() {
            next.extend(self.call(state, thread)?);
        }
        Ok(next)
    }

    /// The next message of a sender arrives: the MPI gives it to the first receive that is posted for it.
    fn arrive(&self, state: &State, sender: usize) -> Result<Option<State>, Broken> {
        let of_sender = |message: &&Message| message.source == sender as i32;
        let numbers = (0..self.messages.len()).filter(|number| of_sender(&&self.messages[*number]));
        let Some(number) = numbers.clone().nth(state.arrived[sender]) else { return Ok(None) };
        let mut state = state.clone();
        state.arrived[sender] += 1;
        let message = self.messages[number];
        match state.posted.iter().position(|(receive, _)| state.receives[*receive].matches(&message)) {
            None => state.waiting.push(number),
            Some(at) => {
                let (receive, room) = state.posted.remove(at);
                self.complete(&mut state, receive, room, number)?;
            }
        }
        Ok(Some(state))
    }

    /// A thread goes one step on.
    fn call(&self, state: &State, thread: usize) -> Result<Option<State>, Broken> {
        let at = &state.threads[thread];
        let Some(call) = self.threads[thread].get(at.next) else { return Ok(None) };
        let mut next = state.clone();
        next.threads[thread].next += 1;
        match *call {
            Call::Irecv { source, tag, room } => {
                if self.without == Without::Lock && !at.has_looked && self.found(state, source, tag).is_none()
                {
                    next.threads[thread] = Thread { next: at.next, has_looked: true };
                    return Ok(Some(next));
                }
                next.threads[thread].has_looked = false;
                self.receive(&mut next, source, tag, room, at.has_looked)?;
            }
            Call::ProbeAndReceive { source, tag } => {
                let Some(found) = self.probe(&mut next, source, tag)? else { return Ok(None) };
                let message = self.messages[found];
                let (source, tag) = (Some(message.source), Some(message.tag));
                let receive = self.receive(&mut next, source, tag, message.bytes, false)?;
                let expected = Outcome::Got { message: found, count: message.bytes, truncated: false };
                if next.receives[receive].outcome != expected {
                    let got = next.receives[receive].outcome;
                    return Err(format!("a receive after a probe of message {found} got {got:?}"));
                }
            }
            Call::Iprobe { source, tag } => {
                self.probe(&mut next, source, tag)?;
            }
            Call::Cancel(receive) => {
                if let Some(at) = next.posted.iter().position(|(posted, _)| *posted == receive) {
                    next.posted.remove(at);
                    next.receives[receive].outcome = Outcome::Cancelled;
                }
            }
        }
        Ok(Some(next))
    }

    fn found(&self, state: &State, source: Option<i32>, tag: Option<i32>) -> Option<usize> {
        state.list.find(Pattern { communicator: 1, source, tag }).copied()
    }

    /// The rule for a receive. Says its number.
    fn receive(
        &self,
        state: &mut State,
        source: Option<i32>,
        tag: Option<i32>,
        room: u64,
        has_looked: bool,
    ) -> Result<usize, Broken> {
        let receive = state.receives.len();
        state.receives.push(Receive { source, tag, room, outcome: Outcome::Pending });
        let pattern = Pattern { communicator: 1, source, tag };
        let looks = self.without != Without::List && !has_looked;
        if let Some(number) = looks.then(|| state.list.take(pattern)).flatten() {
            self.complete(state, receive, receive_buffer_bytes(room), number)?;
            return Ok(receive);
        }
        let given = if self.without == Without::Room { room } else { receive_buffer_bytes(room) };
        let waiting = state.waiting.iter().position(|number| fits(source, tag, &self.messages[*number]));
        match waiting {
            None => state.posted.push((receive, given)),
            Some(at) => {
                let number = state.waiting.remove(at);
                self.complete(state, receive, given, number)?;
            }
        }
        Ok(receive)
    }

    /// The rule for a probe: the number of the message that it tells of.
    fn probe(
        &self,
        state: &mut State,
        source: Option<i32>,
        tag: Option<i32>,
    ) -> Result<Option<usize>, Broken> {
        let known = if self.without == Without::List { None } else { self.found(state, source, tag) };
        let (found, count) = if let Some(number) = known {
            (number, self.count(number))
        } else {
            let fitting = |number: &&usize| fits(source, tag, &self.messages[**number]);
            let Some(number) = state.waiting.iter().find(fitting).copied() else { return Ok(None) };
            let length = self.wire(number).len();
            if length == DESCRIPTOR_BYTES {
                self.take_out(state, number);
                (number, self.count(number))
            } else {
                (number, length as u64)
            }
        };
        let message = self.messages[found];
        if count != message.bytes {
            return Err(format!("a probe says {count} bytes for message {found}"));
        }
        self.check_order(state, source, tag, found)?;
        Ok(Some(found))
    }

    /// Takes a message out of the MPI's queue, with all that came before it from the same rank.
    fn take_out(&self, state: &mut State, number: usize) {
        let source = self.messages[number].source;
        let mut of_source: Vec<usize> = state.waiting.clone();
        of_source.retain(|other| self.messages[*other].source == source && *other <= number);
        if self.without == Without::Order {
            of_source = vec![number];
        }
        for taken in of_source {
            state.waiting.retain(|other| *other != taken);
            state.list.push(1, source, self.messages[taken].tag, taken);
        }
    }

    /// What the status says of a message in the list.
    fn count(&self, number: usize) -> u64 {
        let wire = self.wire(number);
        match classify(&self.job, OWN, &wire, wire.len() as u64, u64::MAX) {
            Arrived::Payload(bytes) | Arrived::TooLong(bytes) => bytes,
            Arrived::Descriptor(descriptor) => descriptor.bytes,
        }
    }

    /// A message has come for a receive that gave the MPI so much room.
    fn complete(&self, state: &mut State, receive: usize, given: u64, number: usize) -> Result<(), Broken> {
        self.check_receive(state, receive, number)?;
        let room = state.receives[receive].room;
        let wire = self.wire(number);
        let length = wire.len() as u64;
        // The MPI itself complains of what is longer than what it was given.
        let judged = match classify(&self.job, OWN, &wire, length, room) {
            _ if length > given => Arrived::TooLong(length),
            Arrived::Payload(_) if self.without == Without::Proof && wire.len() == DESCRIPTOR_BYTES => {
                Arrived::Descriptor(unproved(&wire))
            }
            judged => judged,
        };
        let (got, count, truncated) = match judged {
            Arrived::Payload(count) => (wire.first().copied(), count, false),
            Arrived::TooLong(count) => (None, count, true),
            Arrived::Descriptor(word) => (Some(word.operation as u8), word.bytes, word.bytes > room),
        };
        let message = self.messages[number];
        let expected = (message.bytes, message.bytes > room);
        if (count, truncated) != expected {
            return Err(format!("receive {receive} of message {number}: {judged:?}, not {expected:?}"));
        }
        let foreign = message.memory == Memory::ForeignDescriptor;
        if !truncated && !foreign && got.is_some_and(|got| usize::from(got) != number) {
            return Err(format!("receive {receive} got other bytes than those of message {number}"));
        }
        state.receives[receive].outcome = Outcome::Got { message: number, count, truncated };
        Ok(())
    }

    /// A receive that gets a message must be the first that was posted for it, and the message the first of
    /// its sender that the receive matches.
    fn check_receive(&self, state: &State, receive: usize, number: usize) -> Result<(), Broken> {
        let Receive { source, tag, .. } = state.receives[receive];
        let message = &self.messages[number];
        let earlier = state.receives[..receive]
            .iter()
            .position(|earlier| earlier.outcome == Outcome::Pending && earlier.matches(message));
        if let Some(earlier) = earlier {
            return Err(format!("receive {receive} got message {number}, for which {earlier} was posted"));
        }
        self.check_order(state, source, tag, number)
    }

    fn check_order(
        &self,
        state: &State,
        source: Option<i32>,
        tag: Option<i32>,
        number: usize,
    ) -> Result<(), Broken> {
        let sender = self.messages[number].source;
        let overtaken = (0..number).find(|earlier| {
            let message = &self.messages[*earlier];
            message.source == sender && fits(source, tag, message) && !is_received(state, *earlier)
        });
        match overtaken {
            None => Ok(()),
            Some(earlier) => Err(format!("message {number} overtook message {earlier}")),
        }
    }

    /// When nothing more can happen, no receive waits for a message that is there.
    fn check_end(&self, state: &State) -> Result<(), Broken> {
        for (number, message) in self.messages.iter().enumerate() {
            let waits = |receive: &&Receive| receive.outcome == Outcome::Pending && receive.matches(message);
            if !is_received(state, number) && state.receives.iter().any(|receive| waits(&receive)) {
                return Err(format!("message {number} is there, and a receive waits for it"));
            }
        }
        let is_stuck = |thread: usize| {
            self.threads[thread].get(state.threads[thread].next).is_some_and(|call| match call {
                Call::ProbeAndReceive { source, tag } => (0..self.messages.len())
                    .any(|number| !is_received(state, number) && fits(*source, *tag, &self.messages[number])),
                _ => true,
            })
        };
        match (0..self.threads.len()).find(|thread| is_stuck(*thread)) {
            None => Ok(()),
            Some(thread) => Err(format!("thread {thread} waits though a message is there")),
        }
    }
}

/// What a descriptor without a proof would be read as.
fn unproved(wire: &[u8]) -> Descriptor {
    let number = |at: usize| u64::from_le_bytes(core::array::from_fn(|index| wire[at + index]));
    let memory = Source::default();
    let (word, traffic) = (None, Traffic::Latency);
    Descriptor { from: 0, to: OWN, operation: number(16), bytes: number(24), memory, word, traffic }
}

fn is_received(state: &State, number: usize) -> bool {
    state
        .receives
        .iter()
        .any(|receive| matches!(receive.outcome, Outcome::Got { message, .. } if message == number))
}
