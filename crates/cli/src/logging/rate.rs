//! Rate limit of log lines of one kind. A pure decision: the time is an argument.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

/// How often what was left out is reported.
pub const PERIOD: Duration = Duration::from_secs(10);

/// How many lines of a kind are written: so many at once, and after them one for each interval that has
/// passed. A generic cell rate algorithm (ITU-T I.371): all that is kept is when the next line would be due
/// if lines came evenly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Lines at once.
    pub burst: u32,
    /// The time that earns one more.
    pub interval: Duration,
}

/// What happens to a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// It is written.
    Write,
    /// It is counted. The first of a period serves as the example.
    LeaveOut {
        /// True for the first of the period.
        is_first: bool,
    },
}

/// What was left out of one kind of lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suppressed<K> {
    /// The kind.
    pub kind: K,
    /// How many lines.
    pub lines: u64,
    /// Since when.
    pub since: Instant,
    /// The first of them.
    pub example: String,
}

/// What is known of every kind of lines that has been seen. There are as many kinds as places in the program that log.
#[derive(Debug)]
pub struct Kinds<K>(HashMap<K, KindState>);

#[derive(Debug)]
struct KindState {
    /// When the next line would come if lines came one an interval.
    due: Instant,
    /// What was left out and has not been told.
    suppressed: Option<(u64, Instant, String)>,
}

impl<K> Default for Kinds<K> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<K: Clone + Eq + Hash> Kinds<K> {
    /// Decides about a line that comes now.
    pub fn decide(&mut self, kind: K, rate: Rate, now: Instant) -> Decision {
        let state = self.0.entry(kind).or_insert(KindState { due: now, suppressed: None });
        let ahead = state.due.saturating_duration_since(now);
        if ahead <= rate.interval * rate.burst.saturating_sub(1) {
            state.due = state.due.max(now) + rate.interval;
            return Decision::Write;
        }
        let is_first = state.suppressed.is_none();
        state.suppressed.get_or_insert_with(|| (0, now, String::new())).0 += 1;
        Decision::LeaveOut { is_first }
    }

    /// Keeps the text of a line that was the first to be left out.
    pub fn keep_example(&mut self, kind: &K, text: String) {
        if let Some((_, _, example)) = self.0.get_mut(kind).and_then(|state| state.suppressed.as_mut()) {
            *example = text;
        }
    }

    /// What is to be reported now: what was first left out at least `age` ago. It counts as reported.
    pub fn take(&mut self, now: Instant, age: Duration) -> Vec<Suppressed<K>> {
        let mut reported = Vec::new();
        for (kind, state) in &mut self.0 {
            let is_due =
                |suppressed: &mut (u64, Instant, String)| now.saturating_duration_since(suppressed.1) >= age;
            if let Some((lines, since, example)) = state.suppressed.take_if(is_due) {
                reported.push(Suppressed { kind: kind.clone(), lines, since, example });
            }
        }
        reported.sort_by_key(|suppressed| suppressed.since);
        reported
    }

    /// When something is to be reported next, if nothing more is left out until then.
    pub fn next(&self) -> Option<Instant> {
        let started =
            self.0.values().filter_map(|state| state.suppressed.as_ref().map(|(_, since, _)| *since));
        started.min().map(|since| since + PERIOD)
    }
}

/// A count with commas between thousands.
pub fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate = Rate { burst: 3, interval: Duration::from_secs(1) };

    fn writes(kinds: &mut Kinds<u8>, kind: u8, now: Instant) -> bool {
        kinds.decide(kind, RATE, now) == Decision::Write
    }

    #[test]
    fn a_burst_is_written_and_then_one_an_interval() {
        let (mut kinds, start) = (Kinds::default(), Instant::now());
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        let written: Vec<u64> =
            (0..100).map(|tick| tick * 100).filter(|now| writes(&mut kinds, 1, at(*now))).collect();
        assert_eq!(written, [0, 100, 200, 1000, 2000, 3000, 4000, 5000, 6000, 7000, 8000, 9000]);
        // Another kind has a rate of its own, and a pause earns the burst again and no more.
        assert!(writes(&mut kinds, 2, at(9900)));
        let after: Vec<bool> = (0..5).map(|_| writes(&mut kinds, 1, at(100_000))).collect();
        assert_eq!(after, [true, true, true, false, false]);
    }

    #[test]
    fn a_clock_that_stands_still_and_a_burst_of_one_are_no_trouble() {
        let (mut kinds, now) = (Kinds::default(), Instant::now());
        let one = Rate { burst: 1, interval: Duration::from_secs(1) };
        assert_eq!(kinds.decide(1, one, now), Decision::Write);
        assert_eq!(kinds.decide(1, one, now), Decision::LeaveOut { is_first: true });
        assert_eq!(kinds.decide(1, one, now), Decision::LeaveOut { is_first: false });
    }

    #[test]
    fn every_line_is_written_or_told_of_once() {
        let (mut kinds, start) = (Kinds::default(), Instant::now());
        let (mut written, mut reported) = (0, 0);
        for tick in 0..40_000_u64 {
            let now = start + Duration::from_millis(tick);
            match kinds.decide(7, RATE, now) {
                Decision::Write => written += 1,
                Decision::LeaveOut { is_first } if is_first => kinds.keep_example(&7, format!("line {tick}")),
                Decision::LeaveOut { .. } => {}
            }
            if kinds.next().is_some_and(|next| next <= now) {
                let told_now = kinds.take(now, PERIOD);
                assert_eq!(told_now.len(), 1);
                assert!(told_now[0].example.starts_with("line ") && now - told_now[0].since == PERIOD);
                reported += told_now[0].lines;
            }
        }
        assert_eq!(kinds.take(start, PERIOD), []);
        let rest = kinds.take(start, Duration::ZERO);
        reported += rest.iter().map(|suppressed| suppressed.lines).sum::<u64>();
        assert_eq!((written, written + reported), (42, 40_000));
        assert!(kinds.next().is_none() && kinds.take(start, Duration::ZERO).is_empty());
    }

    #[test]
    fn counts_have_commas() {
        assert_eq!([7, 999, 1000, 1_234_567].map(grouped), ["7", "999", "1,000", "1,234,567"]);
    }
}
