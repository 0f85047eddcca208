//! Plots of communicating kernels: a plot for each question, with a line for each way on each target.

use super::case::{Case, What};
use super::results::{Column, Run, columns};
use crate::files;
use crate::jobs::Record;
use crate::plot::{Axis, Panel, Plot};

/// What lies on the horizontal axis.
#[derive(Clone, Copy, PartialEq, Eq)]
enum XAxis {
    /// Bytes, and a panel for each count.
    Bytes,
    /// What is counted.
    Count,
}

/// A picture: its name, its title, and what it shows along which axis.
type Drawn<'a> = (&'a str, &'a str, &'a [(What, XAxis)]);

/// The pictures of a run: those of what was measured.
pub fn plots(run: &Run) -> Vec<Plot> {
    let drawn: [Drawn<'_>; 9] = [
        ("device-latency", "Ping-pong between kernels, one way", &[(What::Latency, XAxis::Bytes)]),
        ("device-flight", "Time of a put, by messages in flight", &[(What::Flight, XAxis::Bytes)]),
        ("device-queue", "Bandwidth of puts to a full queue", &[(What::Queue, XAxis::Bytes)]),
        ("device-bandwidth", "Bandwidth of one put, by blocks", &[(What::Bandwidth, XAxis::Count)]),
        (
            "device-rate",
            "Signals in a second",
            &[(What::RateByThreads, XAxis::Count), (What::RateByBlocks, XAxis::Count)],
        ),
        (
            "device-verbs",
            "Posts to a network card that only counts",
            &[(What::VerbsPost, XAxis::Count), (What::VerbsRate, XAxis::Count)],
        ),
        ("device-barrier", "Barrier of ranks on one GPU", &[(What::Barrier, XAxis::Count)]),
        ("device-stencil", "Step of a 3-D stencil of two ranks", &[(What::Stencil, XAxis::Count)]),
        ("device-energy", "Energy of the GPU for a message", &[(What::Energy, XAxis::Bytes)]),
    ];
    let plot = |(name, title, kinds): Drawn<'_>| {
        let paths = columns(run, kinds.iter().flat_map(|(what, _)| run.of(*what)));
        let panels = kinds.iter().flat_map(|(what, x_axis)| panels(run, *what, *x_axis, &paths)).collect();
        let legend = paths.into_iter().map(|column| column.name).collect();
        let caption = files::caption(&run.version, &run.date, &run.machine, None);
        Plot::new(name, title.to_owned(), caption, legend, panels)
    };
    drawn.into_iter().filter_map(plot).collect()
}

fn panels(run: &Run, what: What, x_axis: XAxis, paths: &[Column]) -> Vec<Panel> {
    let mut counts: Vec<u64> = match x_axis {
        XAxis::Bytes => run.of(what).map(|record| record.case.count).collect(),
        XAxis::Count => Vec::new(),
    };
    counts.sort_unstable();
    counts.dedup();
    match (x_axis, what.counted()) {
        // However many messages fill a queue: that they do counts.
        (XAxis::Bytes, Some(counted)) if what != What::Queue => counts
            .into_iter()
            .filter_map(|count| {
                let title = format!("{count} {counted}");
                panel(run, what, x_axis, paths, title, |record| record.case.count == count)
            })
            .collect(),
        _ => panel(run, what, x_axis, paths, what.to_string(), |_| true).into_iter().collect(),
    }
}

fn panel(
    run: &Run,
    what: What,
    x_axis: XAxis,
    paths: &[Column],
    title: String,
    is_meant: impl Fn(&Record<Case>) -> bool,
) -> Option<Panel> {
    let value = |record: &Record<Case>| match x_axis {
        XAxis::Bytes => record.case.bytes,
        XAxis::Count => record.case.count,
    };
    let records: Vec<_> = run.of(what).filter(|record| is_meant(record)).collect();
    let mut values: Vec<u64> = records.iter().map(|record| value(record)).collect();
    values.sort_unstable();
    values.dedup();
    let summary = |at, number: usize| {
        let found = records.iter().find(|record| paths[number].has(record) && value(record) == at);
        found.map(|record| record.summary)
    };
    let panel = Panel::by_size(title, what.unit(), &values, paths.len(), summary)?;
    Some(match (x_axis, what.counted()) {
        (XAxis::Count, Some(counted)) => Panel { x: Axis::counts(counted, values.iter().copied()), ..panel },
        _ => panel,
    })
}
