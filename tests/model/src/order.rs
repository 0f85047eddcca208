//! Which work happens before which: the rules of streams, events, the legacy default stream, graphs and host
//! threads.
//!
//! Every operation becomes one or more [`Action`]s, each with the set of actions that are complete before it
//! begins. An operation is taken only if it is in order with all that touches the same bytes, so that a
//! program made of operations that were taken has one result.

mod calls;
mod check;
mod set;
#[cfg(test)]
mod tests;

pub use set::Set;

use crate::program::{Call, Op, Program, Region, StreamKind, Work};

/// What an action does.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Work.
    Work(Work),
    /// The call of a copy from pageable memory takes the bytes along.
    Stage(Region),
    /// The copy itself, of the bytes that the action before it took along.
    Unstage(Region),
    /// A buffer comes to be, with these contents.
    Allocate(Region, Contents),
    /// A buffer ceases to be.
    Release(Region),
    /// A stream stands still until a word is written.
    Stop,
    /// A word is written.
    Go,
}

/// First contents of a buffer.
#[derive(Clone, Copy, Debug)]
pub enum Contents {
    /// Words of one value.
    Value(u32),
    /// Words made from a key.
    Key(u32),
}

impl Effect {
    /// What it reads.
    pub fn source(&self) -> Option<&Region> {
        match self {
            Self::Work(work) => work.source(),
            Self::Stage(from) => Some(from),
            _ => None,
        }
    }

    /// What it writes.
    pub fn target(&self) -> Option<&Region> {
        match self {
            Self::Work(work) => work.target(),
            Self::Unstage(to) | Self::Allocate(to, _) | Self::Release(to) => Some(to),
            _ => None,
        }
    }

    /// Whether two effects touch the same bytes of a region that counts, and one writes them.
    fn conflicts(&self, other: &Self, counts: &dyn Fn(&Region) -> bool) -> bool {
        let meet = |a: Option<&Region>, b: Option<&Region>| {
            a.zip(b).is_some_and(|(a, b)| counts(a) && a.overlaps(b))
        };
        meet(self.target(), other.target())
            || meet(self.target(), other.source())
            || meet(self.source(), other.target())
    }
}

/// Something that happens to memory at some time after its operation was issued.
#[derive(Clone, Debug)]
pub struct Action {
    /// The operation's place in the program.
    pub op: usize,
    /// Which of the operation's actions it is; for a graph's launch, the place of its work among the graph's.
    pub part: usize,
    /// How often the graph had been launched before; 0 for what is not in a graph.
    pub round: u32,
    /// The issuing thread.
    pub thread: usize,
    /// The stream, or none for what the host does.
    pub stream: Option<usize>,
    /// What happens.
    pub effect: Effect,
    /// What is complete before it begins.
    pub before: Set,
    segment: usize,
}

/// Why an operation was not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// These actions touch the same bytes and nothing puts them in order.
    Race(Vec<usize>),
    /// The host touches managed memory while these actions of its device may be under way.
    Managed(Vec<usize>),
    /// It would wait for a stream that only a later operation releases.
    Deadlock,
    /// Another thread uses the same object, and no barrier is between them.
    Shared,
    /// It makes no sense: a buffer that does not exist, a graph that was not captured, regions of different
    /// shapes.
    Invalid(&'static str),
}

/// What a thread knows to be in order.
#[derive(Clone)]
struct View {
    /// What is complete.
    host: Set,
    /// What is complete once a stream has done what it was given.
    streams: Vec<Set>,
    /// What is complete once the legacy default stream of a device has done its last work.
    legacy: Vec<Set>,
    /// What is complete once an event's last record is, and a number that grows with each record.
    events: Vec<(u64, Option<Set>)>,
    /// What is complete once a graph's last launch is.
    graphs: Vec<Set>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Life {
    Unborn,
    Alive,
    Gone,
}

/// The relation, as far as operations have been taken.
pub struct HappensBefore<'a> {
    program: &'a Program,
    views: Vec<View>,
    actions: Vec<Action>,
    ops: usize,
    buffers: Vec<Life>,
    streams: Vec<Life>,
    /// Launches of each graph so far; none before its capture.
    launches: Vec<Option<u32>>,
    /// The thread that uses each stream, event and graph since the last barrier.
    owners: [Vec<Option<usize>>; 3],
    segment: usize,
    records: u64,
    /// The word and the action of a stream that stands still.
    stopped: Option<(usize, usize)>,
    words_used: Vec<usize>,
}

impl<'a> HappensBefore<'a> {
    /// Starts with the buffers, streams, events and graphs of a program; its operations are not looked at.
    pub fn new(program: &'a Program) -> Self {
        let view = View {
            host: Set::default(),
            streams: vec![Set::default(); program.streams.len()],
            legacy: vec![Set::default(); program.devices],
            events: vec![(0, None); program.events.len()],
            graphs: vec![Set::default(); program.graphs.len()],
        };
        let life = |buffer: &crate::program::Buffer| if buffer.initial { Life::Alive } else { Life::Unborn };
        Self {
            program,
            views: vec![view; program.threads],
            actions: Vec::new(),
            ops: 0,
            buffers: program.buffers.iter().map(life).collect(),
            streams: vec![Life::Alive; program.streams.len()],
            launches: vec![None; program.graphs.len()],
            owners: [
                vec![None; program.streams.len()],
                vec![None; program.events.len()],
                vec![None; program.graphs.len()],
            ],
            segment: 0,
            records: 0,
            stopped: None,
            words_used: Vec::new(),
        }
    }

    /// Takes all operations of a program.
    pub fn of(program: &'a Program) -> Result<Self, (usize, Refusal)> {
        let mut order = Self::new(program);
        for (index, op) in program.ops.iter().enumerate() {
            order.push(op).map_err(|refusal| (index, refusal))?;
        }
        if order.stopped.is_some() {
            return Err((program.ops.len(), Refusal::Deadlock));
        }
        Ok(order)
    }

    /// All actions, in the order of issue, which is an order that they may happen in.
    pub fn actions(&self) -> &[Action] {
        &self.actions
    }

    /// Whether a stream stands still until a later operation releases it.
    pub fn is_stopped(&self) -> bool {
        self.stopped.is_some()
    }

    /// Whether a buffer exists.
    pub fn is_alive(&self, buffer: usize) -> bool {
        self.buffers[buffer] == Life::Alive
    }

    /// Whether a buffer has not been made yet.
    pub fn is_unborn(&self, buffer: usize) -> bool {
        self.buffers[buffer] == Life::Unborn
    }

    /// Whether a stream has not been destroyed.
    pub fn has_stream(&self, stream: usize) -> bool {
        self.streams[stream] == Life::Alive
    }

    /// Whether a graph has been captured.
    pub fn is_captured(&self, graph: usize) -> bool {
        self.launches[graph].is_some()
    }

    /// Whether an action was issued by another thread since the last barrier.
    pub fn is_foreign(&self, action: usize, thread: usize) -> bool {
        let action = &self.actions[action];
        action.thread != thread && action.segment == self.segment
    }

    /// Takes an operation, or says why not and stays as it was.
    pub fn push(&mut self, op: &Op) -> Result<(), Refusal> {
        if matches!(op.call, Call::Barrier) {
            self.barrier();
            self.ops += 1;
            return Ok(());
        }
        let taken = self.actions.len();
        let mut view = self.views[op.thread].clone();
        match self.call(op.thread, &op.call, &mut view) {
            Ok(()) => {
                self.views[op.thread] = view;
                self.ops += 1;
                Ok(())
            }
            Err(refusal) => {
                self.actions.truncate(taken);
                Err(match refusal {
                    Refusal::Race(others) if others.iter().any(|&other| other >= taken) => {
                        Refusal::Invalid("work that is not in order within one graph")
                    }
                    other => other,
                })
            }
        }
    }

    fn barrier(&mut self) {
        let mut all = self.views[0].clone();
        for view in &self.views[1..] {
            all.host.add_all(&view.host);
            let streams = all.streams.iter_mut().zip(&view.streams);
            let others =
                all.legacy.iter_mut().zip(&view.legacy).chain(all.graphs.iter_mut().zip(&view.graphs));
            streams.chain(others).for_each(|(mine, theirs)| mine.add_all(theirs));
            for (mine, theirs) in all.events.iter_mut().zip(&view.events) {
                if theirs.0 > mine.0 {
                    mine.clone_from(theirs);
                }
            }
        }
        self.views.fill(all);
        self.owners.iter_mut().for_each(|owners| owners.fill(None));
        self.segment += 1;
    }

    fn is_blocking(&self, stream: usize) -> bool {
        self.program.streams[stream].kind != StreamKind::NonBlocking
    }

    /// The streams that the legacy default stream of a device waits for, and that wait for it.
    fn blocking(&self, device: usize) -> Vec<usize> {
        let is_one = |&stream: &usize| {
            let state = &self.program.streams[stream];
            state.device == device && self.is_blocking(stream) && self.streams[stream] == Life::Alive
        };
        (0..self.program.streams.len()).filter(is_one).collect()
    }

    /// Adds an action if it is in order with all that touches the same bytes.
    fn act(
        &mut self,
        thread: usize,
        stream: Option<usize>,
        effect: Effect,
        before: Set,
        host: &Set,
        (part, round): (usize, u32),
    ) -> Result<usize, Refusal> {
        for region in effect.source().into_iter().chain(effect.target()) {
            if region.end() > self.program.buffers[region.buffer].size {
                return Err(Refusal::Invalid("a region outside its buffer"));
            }
            let life = self.buffers[region.buffer];
            let fits = match effect {
                Effect::Allocate(..) => life == Life::Unborn,
                _ => life == Life::Alive,
            };
            if !fits {
                return Err(Refusal::Invalid("a buffer that is not there"));
            }
        }
        let is_host = |region: &Region| self.program.buffers[region.buffer].kind.is_host();
        let is_race = |(index, other): &(usize, &Action)| {
            let meets = |accept: &dyn Fn(&Region) -> bool| effect.conflicts(&other.effect, accept);
            let makes_source = || match (effect.source(), other.effect.target()) {
                (Some(source), Some(made)) => is_host(source) && source.overlaps(made),
                _ => false,
            };
            !before.has(*index) && meets(&|_| true)
                || !self.program.host_order && !host.has(*index) && meets(&is_host)
                || !self.program.host_sources && !host.has(*index) && makes_source()
        };
        let races: Vec<usize> =
            self.actions.iter().enumerate().filter(is_race).map(|(index, _)| index).collect();
        if !races.is_empty() {
            return Err(Refusal::Race(races));
        }
        self.actions.push(Action {
            op: self.ops,
            part,
            round,
            thread,
            stream,
            effect,
            before,
            segment: self.segment,
        });
        Ok(self.actions.len() - 1)
    }
}
