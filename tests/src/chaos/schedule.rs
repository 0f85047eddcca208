//! Schedules of faults, by hand and by chance.

use super::{Carries, Direction, Fault, Point, Scope};
use std::sync::Arc;
use std::time::Duration;

/// The longest time for which something by chance lasts that a program is not to notice as silence.
const SHORT: Duration = Duration::from_millis(150);

/// Faults in the order in which they happen, each with its point.
#[derive(Debug, Clone, Default)]
pub struct Schedule(pub Vec<(Point, Fault)>);

impl Schedule {
    /// One fault.
    pub fn one(of: Carries, direction: Direction, ends: u64, bytes: u64, fault: Fault) -> Self {
        Self::default().then(of, direction, ends, bytes, fault)
    }

    /// Another fault after the others.
    #[must_use]
    pub fn then(mut self, of: Carries, direction: Direction, ends: u64, bytes: u64, fault: Fault) -> Self {
        self.0.push((Point { of, direction, ends, bytes }, fault));
        self
    }
}

impl Schedule {
    /// The same for a session that is encrypted, of which the relay sees no frames.
    #[must_use]
    pub fn unread(mut self) -> Self {
        self.0.iter_mut().for_each(|(point, _)| point.of = Carries::Other);
        self
    }
}

/// What a schedule by chance calls besides, by what it is.
pub type Calls = Vec<(&'static str, Arc<dyn Fn() + Send + Sync>)>;

/// Numbers by chance, the same for a seed.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Those of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below this one (SplitMix64).
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }

    /// A time up to this one.
    pub fn time(&mut self, longest: Duration) -> Duration {
        Duration::from_micros(self.below(longest.as_micros() as u64 + 1))
    }

    fn direction(&mut self) -> Direction {
        if self.below(2) == 0 { Direction::ToServer } else { Direction::ToClient }
    }

    fn scope(&mut self) -> Scope {
        [Scope::This, Scope::All, Scope::Lanes][self.below(3) as usize]
    }

    /// One to five faults, about as far from each other as a program of a few calls has frames.
    pub fn schedule(&mut self, calls: &Calls) -> Schedule {
        let mut schedule = Schedule::default();
        for number in 0..=self.below(5) {
            let of = match self.below(8) {
                // Of connections that take the place of others.
                0 | 1 if number > 0 => Carries::Handshake,
                0..=4 => Carries::Frames,
                _ => Carries::Lane,
            };
            let ends = 1 + self.below(if number == 0 { 12 } else { 4 });
            let bytes = if self.below(2) == 0 { 0 } else { self.below(120) };
            let fault = match self.below(12) {
                0..=3 => Fault::Cut(self.scope()),
                4 | 5 => Fault::Reset(self.scope()),
                6 | 7 => Fault::HalfClose,
                8 => Fault::Stall(self.scope(), self.time(SHORT)),
                9 => Fault::Split(self.below(400) as usize),
                10 => Fault::Away(self.time(SHORT)),
                _ => match calls.get(self.below(calls.len().max(1) as u64) as usize) {
                    Some((name, call)) => Fault::Call(name, Arc::clone(call)),
                    None => Fault::Cut(Scope::All),
                },
            };
            let direction = self.direction();
            schedule = schedule.then(of, direction, ends, bytes, fault);
        }
        schedule
    }
}
