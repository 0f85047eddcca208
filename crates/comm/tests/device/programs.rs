//! Random programs of all operations, and a model of what they must leave behind.
//!
//! A program goes in rounds with a barrier between them. In a round every range is written once at most, and
//! what is read is not written, so that one outcome is right. Signals, counters and messages go on beside
//! that.

use crate::split_mix::Random;

/// Bytes of a slice, and slices of a data window, which random transfers use.
const SLICE: u64 = 512;
const SLICES: u64 = 12;
/// Behind them: what a signalled put takes and where it goes, what is sent and where it is received.
const OUTBOX: u64 = SLICE * SLICES;
const INBOX: u64 = OUTBOX + 64;
const SENT: u64 = INBOX + 64;
const MAX_BYTES: u64 = 5000;
const RECEIVED: u64 = SENT + MAX_BYTES + 8;
/// Bytes of a data window.
pub const DATA: u64 = (RECEIVED + MAX_BYTES).next_multiple_of(16);

/// The window of words: a signal from each rank, and two counters, by turns counted up and read.
pub const WORDS: u64 = 8 * 66;
const COUNTERS: u64 = 64;

/// What a step does; the kernel has the same numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u32)]
enum What {
    Put = 0,
    Get = 1,
    PutSignal = 2,
    SignalAdd = 3,
    Wait = 4,
    Add = 5,
    CompareAndSwap = 6,
    Fetch = 7,
    Send = 8,
    Receive = 9,
    Barrier = 10,
    #[default]
    Delay = 11,
    Quiet = 12,
    Test = 13,
}

/// A step, as the kernel has it.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct Step {
    what: u32,
    scope: u32,
    peer: u32,
    policy: u32,
    to: u32,
    from: u32,
    to_offset: u64,
    from_offset: u64,
    bytes: u64,
    value: u64,
    cell: u64,
}

/// What a team can do.
#[derive(Debug, Clone, Copy)]
pub struct Abilities {
    /// Whether ranks reach each other's memory.
    pub is_mapped: bool,
    /// Whether kernels may ask a network card for every rank.
    pub is_by_verbs: bool,
    /// Whether atomic operations are possible on the window of words.
    pub has_atomics: bool,
}

/// A program for each rank, and what must be there in the end.
pub struct Program {
    /// By rank.
    pub steps: Vec<Vec<Step>>,
    /// The data windows before, by rank.
    pub start: Vec<[Vec<u8>; 2]>,
    /// And in the end.
    pub data: Vec<[Vec<u8>; 2]>,
    /// The words in the end.
    pub words: Vec<Vec<u64>>,
    /// By rank, the number of a step and what it must answer.
    pub answers: Vec<Vec<(usize, u64)>>,
    random: Random,
}

/// A slice: rank, window, number.
type Slice = (usize, usize, u64);

impl Program {
    pub fn draw(seed: u64, ranks: usize, rounds: u64, abilities: Abilities) -> Self {
        let mut random = Random(seed);
        let start: Vec<[Vec<u8>; 2]> =
            (0..ranks).map(|_| [0, 1].map(|_| (0..DATA).map(|_| random.next() as u8).collect())).collect();
        let mut program = Self {
            steps: vec![Vec::new(); ranks],
            data: start.clone(),
            start,
            words: vec![vec![0; (WORDS / 8) as usize]; ranks],
            answers: vec![Vec::new(); ranks],
            random,
        };
        for round in 1..=rounds {
            program.round(round, abilities);
        }
        program
    }

    /// What is allowed to insist on.
    fn policy(&mut self, abilities: Abilities) -> u32 {
        let policy = self.random.below(4) as u32;
        let is_possible = match policy {
            1 => abilities.is_mapped,
            3 => abilities.is_by_verbs,
            _ => true,
        };
        if is_possible { policy } else { 2 }
    }

    fn step(&mut self, what: What, peer: usize) -> Step {
        Step { what: what as u32, scope: self.random.below(3) as u32, peer: peer as u32, ..Step::default() }
    }

    fn round(&mut self, round: u64, abilities: Abilities) {
        let ranks = self.steps.len();
        let mut todo: Vec<Vec<(Step, Option<u64>)>> = vec![Vec::new(); ranks];
        self.transfers(abilities, &mut todo);
        self.signalled_puts(round, abilities, &mut todo);
        if abilities.has_atomics {
            self.counters(round, &mut todo);
        }
        for (rank, mut steps) in todo.into_iter().enumerate() {
            self.random.shuffle(&mut steps);
            for (step, answer) in steps {
                self.push(rank, step, answer);
            }
        }
        for rank in 0..ranks {
            self.waits(rank, round);
        }
        self.messages();
        for rank in 0..ranks {
            let mut step = self.step(What::Barrier, 0);
            // A barrier of one thread or warp is enough: the block waits for it.
            step.value = round % 16;
            self.push(rank, step, None);
        }
    }

    /// Adds a step, mostly behind a delay.
    fn push(&mut self, rank: usize, step: Step, answer: Option<u64>) {
        if self.random.below(3) == 0 {
            let value = self.random.below(3000);
            self.steps[rank].push(Step { what: What::Delay as u32, value, ..Step::default() });
        }
        if let Some(answer) = answer {
            let at = self.steps[rank].len();
            self.answers[rank].push((at, answer));
        }
        self.steps[rank].push(step);
    }

    /// Half of all slices may be written, the others read.
    fn transfers(&mut self, abilities: Abilities, todo: &mut [Vec<(Step, Option<u64>)>]) {
        let ranks = todo.len();
        let of_rank =
            |rank| (0..2).flat_map(move |window| (0..SLICES).map(move |slice| (rank, window, slice)));
        let mut slices: Vec<Slice> = (0..ranks).flat_map(of_rank).collect();
        self.random.shuffle(&mut slices);
        let (written, read) = slices.split_at(slices.len() / 2);
        for &(rank, window, slice) in written {
            let source = read[self.random.below(read.len() as u64) as usize];
            let is_get = self.random.below(3) == 0;
            let (actor, peer) = if is_get { (rank, source.0) } else { (source.0, rank) };
            // Of a put the source is the caller's own; neighbours come of slices that are filled.
            let bytes = if self.random.below(4) == 0 { SLICE } else { 1 + self.random.below(SLICE) };
            let to_offset = slice * SLICE + self.random.below(SLICE - bytes + 1);
            let from_offset = source.2 * SLICE + self.random.below(SLICE - bytes + 1);
            let policy = self.policy(abilities);
            let step = self.step(if is_get { What::Get } else { What::Put }, peer);
            let (to, from) = (window as u32, source.1 as u32);
            todo[actor].push((Step { policy, to, from, to_offset, from_offset, bytes, ..step }, None));
            let found = self.data[source.0][source.1][from_offset as usize..][..bytes as usize].to_vec();
            self.data[rank][window][to_offset as usize..][..bytes as usize].copy_from_slice(&found);
            if self.random.below(8) == 0 {
                let mut step = self.step(What::Quiet, 0);
                step.value = self.random.below(2);
                todo[actor].push((step, None));
            }
        }
    }

    /// Every rank puts something to the next one, and signals the round's number.
    fn signalled_puts(&mut self, round: u64, abilities: Abilities, todo: &mut [Vec<(Step, Option<u64>)>]) {
        let ranks = todo.len();
        for (rank, steps) in todo.iter_mut().enumerate() {
            let peer = (rank + 1) % ranks;
            let (bytes, window) = (self.random.below(65), self.random.below(2));
            let (policy, step) = (self.policy(abilities), self.step(What::PutSignal, peer));
            let (to, from, cell) = (window as u32, window as u32, 8 * rank as u64);
            let value = round;
            steps.push((
                Step { policy, to, from, to_offset: INBOX, from_offset: OUTBOX, bytes, value, cell, ..step },
                None,
            ));
            let sent = self.data[rank][window as usize][OUTBOX as usize..][..bytes as usize].to_vec();
            self.data[peer][window as usize][INBOX as usize..][..bytes as usize].copy_from_slice(&sent);
            self.words[peer][rank] = round;
        }
    }

    /// Counts up words of others in three ways, and reads those that were counted up in the round before.
    fn counters(&mut self, round: u64, todo: &mut [Vec<(Step, Option<u64>)>]) {
        let ranks = todo.len() as u64;
        let at = |round: u64| COUNTERS + round % 2;
        for steps in todo.iter_mut() {
            for _ in 0..self.random.below(4) {
                let peer = self.random.below(ranks) as usize;
                let what = [What::Add, What::CompareAndSwap, What::SignalAdd][self.random.below(3) as usize];
                let mut step = self.step(what, peer);
                (step.cell, step.value) = (8 * at(round), self.random.next());
                // The others see it again only in a later round.
                self.words[peer][at(round) as usize] =
                    self.words[peer][at(round) as usize].wrapping_add(step.value);
                steps.push((step, None));
            }
            let peer = self.random.below(ranks) as usize;
            let mut step = self.step(What::Fetch, peer);
            step.cell = 8 * at(round + 1);
            let answer = self.words[peer][at(round + 1) as usize];
            // Of a scope that the first thread is not in it gets no answer; it is in all.
            steps.push((step, Some(answer)));
        }
    }

    fn waits(&mut self, rank: usize, round: u64) {
        let ranks = self.steps.len();
        let from = (rank + ranks - 1) % ranks;
        let what = if self.random.below(2) == 0 { What::Wait } else { What::Test };
        let mut step = self.step(what, from);
        (step.cell, step.value) = (8 * from as u64, round);
        self.push(rank, step, None);
    }

    /// Every rank sends the next one a message; a ring holds what nobody has received yet.
    fn messages(&mut self) {
        let ranks = self.steps.len();
        let lengths: Vec<u64> = (0..ranks).map(|_| self.random.below(MAX_BYTES + 1)).collect();
        let windows: Vec<u64> = (0..ranks).map(|_| self.random.below(2)).collect();
        for rank in 0..ranks {
            let mut step = self.step(What::Send, (rank + 1) % ranks);
            (step.from, step.from_offset, step.bytes) = (windows[rank] as u32, SENT, lengths[rank]);
            self.push(rank, step, None);
        }
        for rank in 0..ranks {
            let from = (rank + ranks - 1) % ranks;
            let mut step = self.step(What::Receive, from);
            let window = self.random.below(2);
            let room = lengths[from] + self.random.below(MAX_BYTES - lengths[from] + 1);
            (step.to, step.to_offset, step.bytes) = (window as u32, RECEIVED, room);
            let sent =
                self.data[from][windows[from] as usize][SENT as usize..][..lengths[from] as usize].to_vec();
            self.data[rank][window as usize][RECEIVED as usize..][..sent.len()].copy_from_slice(&sent);
            self.push(rank, step, Some(lengths[from]));
        }
    }
}

/// Steps as bytes.
pub fn bytes_of(steps: &[Step]) -> &[u8] {
    // SAFETY: plain numbers without padding.
    unsafe { core::slice::from_raw_parts(steps.as_ptr().cast(), size_of_val(steps)) }
}
