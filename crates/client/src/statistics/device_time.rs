//! Device time: how long kernels and copies took on the devices, and how much of it they did at once.
//!
//! Where `CAUSEWAY_DEVICE_TIMES` is on each launch and each copy has a timestamp before it and one behind it in its
//! stream (`submit::device_times`), as for a trace; here they are added up for the report.

use crate::locks::{Mutex, rank};
use causeway_config::read::PROCESS;
use causeway_config::table::DEVICE_TIMES;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// The most kernels that the report names, those that took longest.
const MAX_NAMED: usize = 20;

/// What a device did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// A kernel, or a graph.
    Kernel,
    /// A copy to the device.
    ToDevice,
    /// A copy from the device.
    FromDevice,
    /// A copy within a device or between two.
    WithinDevice,
}

/// A kernel or copy that is over.
#[derive(Debug, Clone)]
pub struct Span {
    /// What it was.
    pub work: Work,
    /// The kernel's name.
    pub name: String,
    /// The context in which it ran: what happens in two of them counts as at once in neither.
    pub context: u64,
    /// When it began, in ns.
    pub started: u64,
    /// How long it took, in ns.
    pub took: u64,
}

static SPANS: Mutex<rank::TraceSpans, Vec<Span>> = Mutex::new(Vec::new());
static LOST: AtomicU64 = AtomicU64::new(0);

/// Whether the report is to have device times.
pub fn is_on() -> bool {
    static ON: OnceLock<bool> = OnceLock::new();
    *ON.get_or_init(|| PROCESS.is_on(&DEVICE_TIMES).unwrap_or(false))
}

/// Keeps what a device did for the report.
pub fn keep(span: Span) {
    SPANS.lock().push(span);
}

/// Counts launches and copies whose times are not known.
pub fn lose(count: u64) {
    LOST.fetch_add(count, Ordering::Relaxed);
}

/// Launches or copies of a kind.
#[derive(Debug, Default, Serialize, PartialEq)]
pub struct Total {
    count: u64,
    seconds: f64,
}

impl Total {
    fn add(&mut self, span: &Span) {
        self.count += 1;
        self.seconds += seconds(span.took);
    }
}

/// What the report says of device times.
#[derive(Debug, Default, Serialize, PartialEq)]
pub struct DeviceTime {
    kernels: Total,
    to_device: Total,
    from_device: Total,
    within_device: Total,
    /// When a device did anything at all.
    busy_seconds: f64,
    /// When a kernel ran and a copy was under way.
    overlap_seconds: f64,
    /// Launches and copies without times.
    not_timed: u64,
    /// The kernels that took longest.
    by_kernel: BTreeMap<String, Total>,
}

/// The times of all that was kept; nothing where none are wanted.
pub fn report() -> Option<DeviceTime> {
    is_on().then(|| DeviceTime { not_timed: LOST.load(Ordering::Relaxed), ..add_up(&SPANS.lock()) })
}

fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

/// Adds up what devices did.
fn add_up(spans: &[Span]) -> DeviceTime {
    let mut all = DeviceTime::default();
    let mut by_kernel: BTreeMap<&str, Total> = BTreeMap::new();
    let mut by_context: BTreeMap<u64, [Vec<Interval>; 2]> = BTreeMap::new();
    for span in spans {
        let total = match span.work {
            Work::Kernel => &mut all.kernels,
            Work::ToDevice => &mut all.to_device,
            Work::FromDevice => &mut all.from_device,
            Work::WithinDevice => &mut all.within_device,
        };
        total.add(span);
        let is_kernel = span.work == Work::Kernel;
        if is_kernel {
            by_kernel.entry(&span.name).or_default().add(span);
        }
        let [kernels, copies] = by_context.entry(span.context).or_default();
        let kind = if is_kernel { kernels } else { copies };
        kind.push((span.started, span.started.saturating_add(span.took)));
    }
    for [kernels, copies] in by_context.into_values() {
        let busy = covered([kernels.clone(), copies.clone()].concat());
        all.busy_seconds += seconds(busy);
        all.overlap_seconds += seconds((covered(kernels) + covered(copies)).saturating_sub(busy));
    }
    let mut kernels: Vec<_> = by_kernel.into_iter().collect();
    kernels.sort_by(|(_, first), (_, second)| second.seconds.total_cmp(&first.seconds));
    all.by_kernel =
        kernels.into_iter().take(MAX_NAMED).map(|(name, total)| (name.to_owned(), total)).collect();
    all
}

/// When something began and ended, in ns.
type Interval = (u64, u64);

/// The time that intervals cover together, in ns.
fn covered(mut intervals: Vec<Interval>) -> u64 {
    intervals.sort_unstable();
    let mut latest = 0;
    intervals.into_iter().fold(0, |sum, (started, ended)| {
        let new = ended.saturating_sub(started.max(latest));
        latest = latest.max(ended);
        sum + new
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn span(work: Work, name: &str, context: u64, started: u64, took: u64) -> Span {
        Span { work, name: name.to_owned(), context, started: started * MS, took: took * MS }
    }

    fn milliseconds(seconds: f64) -> u64 {
        (seconds * 1e3).round() as u64
    }

    #[test]
    fn overlap_is_where_kernels_and_copies_ran_at_once() {
        let spans = [
            span(Work::Kernel, "add", 1, 0, 10),
            span(Work::Kernel, "add", 1, 5, 10),
            span(Work::ToDevice, "", 1, 12, 8),
            span(Work::FromDevice, "", 1, 30, 5),
            span(Work::WithinDevice, "", 2, 0, 10),
        ];
        let all = add_up(&spans);
        assert_eq!((all.kernels.count, milliseconds(all.kernels.seconds)), (2, 20));
        assert_eq!([all.to_device.count, all.from_device.count, all.within_device.count], [1; 3]);
        assert_eq!(milliseconds(all.busy_seconds), 20 + 5 + 10);
        assert_eq!(milliseconds(all.overlap_seconds), 3, "the copy of another context is not beside them");
        assert_eq!(milliseconds(all.by_kernel["add"].seconds), 20);
    }

    #[test]
    fn the_kernels_that_took_longest_are_named() {
        let spans: Vec<_> = (0..30)
            .map(|number| span(Work::Kernel, &format!("kernel{number}"), 1, 100 * number, number))
            .collect();
        let all = add_up(&spans);
        assert_eq!((all.by_kernel.len(), all.kernels.count), (MAX_NAMED, 30));
        assert!(all.by_kernel.contains_key("kernel29") && !all.by_kernel.contains_key("kernel9"));
        assert_eq!(add_up(&[]), DeviceTime::default());
    }
}
