//! Study: the best channel for each range of sizes. It prints ranges and their channels, as published studies
//! tell them, and the table that has messages take them.

use core::fmt::Write as _;

use causeway_config::Size;

use super::results::{Case, What};
use super::results::{Run, Way};
use crate::table::significant;

/// Targets whose channel is not a single one.
const NOT_FORCED: [&str; 2] = ["auto", "none"];

/// Sizes for which one channel is best.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Range<'a> {
    /// The smallest, and the largest of those that were measured.
    sizes: [u64; 2],
    channel: &'a str,
}

/// The best channel by range of sizes, for each place in which several were measured; empty where there is none.
pub fn text(run: &Run) -> String {
    let mut out = String::new();
    for group in groups(run) {
        for what in run.parts() {
            let Some(ranges) = ranges(run, what, &group) else { continue };
            let Way { gpu, isolated, pairs, .. } = &run.targets[group[0]].way;
            let location = if *isolated { "isolated containers" } else { "one container" };
            let _ = writeln!(out, "\nBest channel: {what}; {gpu}, {location}, pairs: {pairs}");
            for Range { sizes: [first, last], channel } in &ranges {
                let sizes = format!("{} to {}", Size(*first), Size(*last));
                let others = others(run, what, &group, [*first, *last], channel);
                let _ = writeln!(out, "  {sizes:>14}  {channel:<9}{others}");
            }
            if let Some(traffic) = traffic(what) {
                let _ = writeln!(out, "  CAUSEWAY_COMM_TABLE=\"{}\"", rules(traffic, &ranges));
            }
        }
    }
    out
}

/// Targets that differ in their channels alone, of which there are several.
fn groups(run: &Run) -> Vec<Vec<usize>> {
    let is_same =
        |one: &Way, two: &Way| (&one.gpu, one.isolated, one.pairs) == (&two.gpu, two.isolated, two.pairs);
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for (number, target) in run.targets.iter().enumerate() {
        if NOT_FORCED.contains(&target.way.channel.as_str()) {
            continue;
        }
        let fits = |group: &&mut Vec<usize>| is_same(&run.targets[group[0]].way, &target.way);
        match groups.iter_mut().find(fits) {
            Some(group) => group.push(number),
            None => groups.push(vec![number]),
        }
    }
    groups.retain(|group| group.len() > 1);
    groups
}

/// What a target takes, or carries, for a size; the less the better.
fn badness(run: &Run, what: &What, bytes: u64, target: usize) -> Option<f64> {
    let median = run.record(&Case { what: what.clone(), bytes }, target)?.summary.median;
    Some(if what.unit == "us" { median } else { 1.0 / median })
}

fn ranges<'a>(run: &'a Run, what: &What, group: &[usize]) -> Option<Vec<Range<'a>>> {
    let mut ranges: Vec<Range<'a>> = Vec::new();
    for bytes in run.sizes(what) {
        let of = |target: &usize| Some((badness(run, what, bytes, *target)?, *target));
        let measured: Vec<_> = group.iter().filter_map(of).collect();
        // One alone says nothing of which is best.
        let best = measured.iter().min_by(|(one, _), (two, _)| one.total_cmp(two));
        let Some((_, best)) = best.filter(|_| measured.len() > 1) else { continue };
        let channel = run.targets[*best].way.channel.as_str();
        match ranges.last_mut().filter(|range| range.channel == channel) {
            Some(range) => range.sizes[1] = bytes,
            None => ranges.push(Range { sizes: [bytes; 2], channel }),
        }
    }
    (!ranges.is_empty()).then_some(ranges)
}

/// How far the next best is behind, from the least to the most of the sizes.
fn others(run: &Run, what: &What, group: &[usize], [first, last]: [u64; 2], channel: &str) -> String {
    let (mut min, mut max) = (f64::INFINITY, 0.0_f64);
    for bytes in run.sizes(what).into_iter().filter(|bytes| (first..=last).contains(bytes)) {
        let of = |is_best: bool| {
            let targets =
                group.iter().filter(|target| (run.targets[**target].way.channel == channel) == is_best);
            targets.filter_map(|target| badness(run, what, bytes, *target)).min_by(f64::total_cmp)
        };
        if let Some((best, next)) = of(true).zip(of(false)) {
            (min, max) = (min.min(next / best), max.max(next / best));
        }
    }
    format!("the next one is {} to {} times behind", significant(min), significant(max))
}

/// The traffic of which a quantity tells, as the table names it.
fn traffic(what: &What) -> Option<&'static str> {
    ["latency", "bandwidth"].into_iter().find(|traffic| what.quantity == *traffic)
}

/// Rules for these ranges: each begins at the first size for which its channel was best.
fn rules(traffic: &str, ranges: &[Range<'_>]) -> String {
    let rule = |(at, range): (usize, &Range<'_>)| {
        let start = if at == 0 { String::new() } else { Size(range.sizes[0]).to_string() };
        let end = ranges.get(at + 1).map_or(String::new(), |next| Size(next.sizes[0]).to_string());
        match (start.as_str(), end.as_str()) {
            ("", "") => format!("{traffic} {}", range.channel),
            _ => format!("{traffic} {start}..{end}: {}", range.channel),
        }
    };
    ranges.iter().enumerate().map(rule).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Outcome;
    use crate::jobs::{Line, measure, tests::order};

    /// Of three channels the first is best to 16 KiB and the third above; what Causeway chooses does not count.
    fn run() -> Run {
        let way = Way { gpu: "native".to_owned(), isolated: true, channel: String::new(), pairs: 1 };
        let job = |number: usize| {
            let [start, rate] = [[1.0, 1e9], [2.0, 1e3], [40.0, 100.0], [9.0, 1e4]][number];
            let row = |quantity: &str, unit: &str, bytes: u64, value: f64| {
                let what = What { quantity: quantity.into(), unit: unit.into(), memory: "gpu".into() };
                Line::Result(Case { what, bytes }, value, String::new())
            };
            let sizes = (0..=22).map(|power| 1_u64 << power);
            let rows = sizes.flat_map(|bytes| {
                let time = start + bytes as f64 / rate;
                let bandwidth = bytes as f64 / time;
                [row("latency", "us", bytes, time), row("bandwidth", "MB/s", bytes, bandwidth)]
            });
            Outcome { rows: rows.collect(), error: None }
        };
        let mut run = measure(order(&["auto", "staged", "bar", "ipc"], &way, 1), job, |_| {});
        for target in &mut run.targets {
            target.way.channel.clone_from(&target.name);
        }
        run
    }

    #[test]
    fn the_best_channel_has_its_range_and_a_rule() {
        let run = run();
        let text = text(&run);
        // 2 + n / 1000 is less than 9 + n / 10,000 below 7778 bytes.
        let table = "latency ..8K: staged; latency 8K..: ipc";
        assert!(text.contains(&format!("CAUSEWAY_COMM_TABLE=\"{table}\"")), "{text}");
        assert!(
            text.contains("CAUSEWAY_COMM_TABLE=\"bandwidth ..8K: staged; bandwidth 8K..: ipc\""),
            "{text}"
        );
        assert!(text.contains("latency in us, memory: gpu; native, isolated containers, pairs: 1"), "{text}");
        let line = text.lines().find(|line| line.contains("1 to 4K")).unwrap();
        assert!(line.contains("staged") && line.contains("times behind"), "{line}");
        assert!(!text.contains("auto"), "{text}");
    }

    #[test]
    fn one_channel_alone_is_no_study() {
        let mut run = run();
        for target in &mut run.targets {
            target.way.channel = "auto".to_owned();
        }
        run.targets[1].way.channel = "ipc".to_owned();
        assert_eq!(text(&run), "");
    }
}
