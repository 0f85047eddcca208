//! Reference rates of copies.

use std::hint::black_box;
use std::time::Instant;

use serde::Serialize;

use crate::statistics::percentile;

/// Bytes that are copied: more than caches hold.
const BYTES: usize = 64 << 20;

/// Copies of which the median counts, after one that makes the pages.
const REPETITIONS: usize = 7;

/// A rate that is no target's.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Rate {
    /// What it is.
    pub name: String,
    /// GB/s (1e9 bytes a second).
    pub gb_per_s: f64,
}

/// How fast one thread of this machine copies memory.
pub fn memory_copy() -> Option<Rate> {
    let source = vec![1_u8; BYTES];
    let mut destination = vec![0_u8; BYTES];
    let mut times = Vec::with_capacity(REPETITIONS);
    for round in 0..=REPETITIONS {
        let started = Instant::now();
        destination.copy_from_slice(black_box(&source));
        black_box(&mut destination);
        if round > 0 {
            times.push(started.elapsed().as_secs_f64());
        }
    }
    let median = percentile(&times, 0.5).filter(|seconds| *seconds > 0.0)?;
    Some(Rate { name: "memory copy, one thread".to_owned(), gb_per_s: BYTES as f64 / median / 1e9 })
}

/// The rate of a network interface, as the kernel tells it in Mbit/s.
pub fn line_rate(interface: &str, speed: &str) -> Option<Rate> {
    // A virtual one has none, which is -1 or nothing.
    let megabits: f64 = speed.trim().parse().ok().filter(|speed| *speed > 0.0)?;
    let gigabits = megabits / 1e3;
    Some(Rate { name: format!("line rate of {interface}, {gigabits} Gbit/s"), gb_per_s: gigabits / 8.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_rates_are_bits_and_figures_bytes() {
        let rate = line_rate("eth0", "100000\n").unwrap();
        assert_eq!(rate, Rate { name: "line rate of eth0, 100 Gbit/s".into(), gb_per_s: 12.5 });
        assert_eq!(line_rate("virbr0", "-1\n"), None);
        assert_eq!(line_rate("lo", ""), None);
    }

    #[test]
    fn this_machine_copies_memory() {
        let rate = memory_copy().unwrap().gb_per_s;
        assert!(rate.is_finite() && rate > 0.0, "{rate}");
    }
}
