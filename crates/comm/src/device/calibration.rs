//! Calibration of the proxy's cost model. Pure.

use super::choice::{Curve, Curves, Initiator};
use super::layout::SCOPES;

/// What copies of a lane cost, in nanoseconds and bytes a nanosecond (GB/s).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Copies {
    /// From asking for a short one to its end being seen.
    pub latency: f64,
    /// How long a short one keeps the next one waiting.
    pub post: f64,
    /// How fast the bytes of a long one go.
    pub bandwidth: f64,
}

/// Bytes of a short copy and of a long one, and how many short ones are asked for together.
const SHORT: u64 = 8;
/// A long one, whose time is that of its bytes more than of its way.
pub const LONG: u64 = 4 << 20;
const BATCH: u32 = 32;

/// How often each is tried: the least counts, since whatever else runs can only add.
const TRIES: u32 = 8;

/// From a request in the queue to the copy being asked for, in nanoseconds: what of 3.1 us from a GPU by a
/// thread of the host and back (H200, 2026-11-21) is not the way back.
const QUEUE: f64 = 1_500.0;

/// What a request takes a proxy's thread at least, in nanoseconds.
const REQUEST: f64 = 300.0;

impl Copies {
    /// From how long so many copies of so many bytes take, in nanoseconds; none where they take for ever.
    pub fn of(mut time: impl FnMut(u32, u64) -> Option<f64>) -> Option<Self> {
        let mut min_time = |count, bytes| {
            let mut min_time = time(count, bytes)?;
            for _ in 1..TRIES {
                min_time = min_time.min(time(count, bytes)?);
            }
            Some(min_time)
        };
        let (one, many, long) = (min_time(1, SHORT)?, min_time(BATCH, SHORT)?, min_time(1, LONG)?);
        let post = (many - one) / f64::from(BATCH - 1);
        // A clock that stands still, or a copy that is done before it is asked for, says nothing.
        let is_sound = one > 0.0 && long > one;
        is_sound.then(|| Self { latency: one, post: post.max(0.0), bandwidth: LONG as f64 / (long - one) })
    }

    /// The curves with what was found in place of the proxy's estimate.
    pub fn correct(&self, curves: &[Curves; SCOPES]) -> [Curves; SCOPES] {
        let corrected = |(initiator, curve): &(Initiator, Curve)| match initiator {
            Initiator::Proxy => {
                let (latency, post) = (self.latency + QUEUE, self.post.max(REQUEST));
                (*initiator, Curve { latency, post, bandwidth: self.bandwidth, ..*curve })
            }
            _ => (*initiator, *curve),
        };
        curves.each_ref().map(|curves| Curves(curves.0.iter().map(corrected).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::choice::default_curves;

    /// A machine on which a copy takes its way, its turn and its bytes' time, and every other try twice that.
    fn machine(way: f64, turn: f64, bandwidth: f64) -> impl FnMut(u32, u64) -> Option<f64> {
        let mut tries = 0;
        move |count, bytes| {
            tries += 1;
            let time = way + turn * f64::from(count - 1) + bytes as f64 / bandwidth;
            Some(if tries % 2 == 0 { time } else { 2.0 * time })
        }
    }

    #[test]
    fn what_a_machine_takes_is_found_beside_what_disturbs_it() {
        let found = Copies::of(machine(6_000.0, 1_800.0, 1_000.0)).unwrap();
        for (found, expected) in [(found.latency, 6_000.0), (found.post, 1_800.0), (found.bandwidth, 1_000.0)]
        {
            assert!((found - expected).abs() < 0.01 * expected, "{found} is not {expected}");
        }
        assert_eq!(Copies::of(|_, _| None), None);
        assert_eq!(Copies::of(|_, _| Some(0.0)), None, "a clock that stands still");
    }

    #[test]
    fn a_slow_copy_engine_is_chosen_for_larger_messages_alone() {
        let crossing = |copies: Copies| {
            let block = &copies.correct(&default_curves())[2];
            (0..40).find(|class| {
                block.choose(f64::from(*class).exp2(), 0.0).unwrap().initiator == Initiator::Proxy
            })
        };
        let fast = Copies { latency: 4_000.0, post: 1_000.0, bandwidth: 2_000.0 };
        let slow = Copies { latency: 40_000.0, ..fast };
        let [fast_from, slow_from] = [fast, slow].map(|copies| crossing(copies).unwrap());
        assert!(fast_from < slow_from, "{fast_from} {slow_from}");
        let corrected = fast.correct(&default_curves());
        assert_eq!(corrected[0].0[0], default_curves()[0].0[0], "what the kernel does is as before");
        assert_eq!(corrected[0].0[1].1.latency, 4_000.0 + QUEUE);
    }
}
