//! What is drawn: numbers of a run, put into panels. Positions on axes are logarithms.

use crate::case::{Case, Path};
use crate::results::{Figures, Kind, Run};
use crate::sizes::Size;
use crate::statistics::Summary;
use crate::table::significant;

/// A picture: panels with one legend.
#[derive(Debug)]
pub struct Figure {
    /// The file's name without its ending.
    pub name: String,
    /// What it shows.
    pub title: String,
    /// The targets, by the number that a [`Series`] has.
    pub legend: Vec<String>,
    /// At least one.
    pub panels: Vec<Panel>,
}

/// A pair of axes with lines.
#[derive(Debug)]
pub struct Panel {
    /// What it shows.
    pub title: String,
    /// From left to right.
    pub x: Axis,
    /// From below to above.
    pub y: Axis,
    /// One for each target that has points here.
    pub series: Vec<Series>,
    /// What else is drawn, on a second axis to the right.
    pub gains: Option<Gains>,
    /// If not 0, how many rows there are instead of lines: points then lie in a row, by their `x`, and their
    /// values are on the x axis.
    pub rows: usize,
}

/// An axis with its labels, each with its place. Places are logarithms of what the labels say.
#[derive(Debug, Clone)]
pub struct Axis {
    /// What it measures.
    pub title: String,
    /// Where it begins.
    pub from: f64,
    /// Where it ends.
    pub to: f64,
    /// Labels in ascending order.
    pub labels: Vec<(f64, String)>,
}

/// What one target has in a panel.
#[derive(Debug)]
pub struct Series {
    /// The target's number.
    pub target: usize,
    /// From left to right.
    pub points: Vec<Point>,
}

/// How much more targets have than one of them: thin lines with an axis of their own.
#[derive(Debug)]
pub struct Gains {
    /// From below to above: logarithms of percent.
    pub axis: Axis,
    /// A target's number and its points: a place on the x axis, and a [`gain_place`].
    pub lines: Vec<(usize, Vec<(f64, f64)>)>,
}

/// A median with its spread, as logarithms.
#[derive(Debug, Clone, Copy)]
pub struct Point {
    /// Where it lies on the x axis, or in which row.
    pub x: f64,
    /// The 5th percentile.
    pub low: f64,
    /// The median.
    pub middle: f64,
    /// The 95th percentile.
    pub high: f64,
}

/// The smallest value that is drawn, since zero has no logarithm: less than any time or rate that is
/// measured.
const SMALLEST: f64 = 1e-9;

impl Point {
    /// A summary at a place.
    pub fn new(x: f64, summary: &Summary) -> Self {
        let [low, middle, high] =
            [summary.p5, summary.median, summary.p95].map(|value| value.max(SMALLEST).log10());
        Self { x, low, middle, high }
    }
}

impl Axis {
    /// Powers of two between the smallest and the largest of these sizes; 0 is drawn at 1.
    pub fn sizes(sizes: impl Iterator<Item = u64>) -> Self {
        let (from, to) = ends(sizes.map(size_place)).unwrap_or((0.0, 1.0));
        let (from, to) = (from.floor(), to.ceil().max(from.floor() + 1.0));
        let step = ((to - from) / 6.0).ceil().max(1.0) as usize;
        let places = (from as i32..=to as i32).step_by(step);
        let labels = places.map(|place| (f64::from(place), Size(1 << place).to_string())).collect();
        Self { title: "bytes".to_owned(), from, to, labels }
    }

    /// 1, 2 and 5 of each power of ten between the least and the greatest of these points; powers of ten
    /// alone where that would be many.
    pub fn quantity<'a>(unit: &str, points: impl Iterator<Item = &'a Point>) -> Self {
        let (from, to) = ends(points.flat_map(|point| [point.low, point.high])).unwrap_or((0.0, 1.0));
        let margin = ((to - from) * 0.05).clamp(0.05, 0.1);
        let (from, to) = (from - margin, to + margin);
        let steps: &[f64] = if to - from < 2.5 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let decades = from.floor() as i32..=to.ceil() as i32;
        let values = decades.flat_map(|decade| steps.iter().map(move |step| step * 10_f64.powi(decade)));
        let labels = values
            .map(|value| (value.log10(), label(value)))
            .filter(|(place, _)| (from..=to).contains(place))
            .collect();
        Self { title: unit.to_owned(), from, to, labels }
    }

    /// Powers of ten of percent, from the least that is drawn to the greatest of these places and 1 % at
    /// least.
    pub fn gains(places: impl Iterator<Item = f64>) -> Self {
        let from = gain_place(0.0);
        let to = places.fold(0.0, f64::max).ceil();
        let label = |place: i32| {
            let least = if f64::from(place) == from { " or less" } else { "" };
            (f64::from(place), format!("{} %{least}", label(10_f64.powi(place))))
        };
        Self { title: "gain".to_owned(), from, to, labels: (from as i32..=to as i32).map(label).collect() }
    }

    /// One place for each row, the first on top.
    fn rows(names: impl Iterator<Item = String>) -> Self {
        let labels: Vec<_> = names.enumerate().map(|(row, name)| (-(row as f64), name)).collect();
        Self { title: String::new(), from: 0.5 - labels.len() as f64, to: 0.5, labels }
    }
}

/// A label without the zeros that say nothing.
fn label(value: f64) -> String {
    let text = significant(value);
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// What a place on an axis of quantities means.
pub(super) fn value_text(place: f64) -> String {
    label(10_f64.powf(place))
}

/// Where a size lies on an axis of sizes.
pub fn size_place(size: u64) -> f64 {
    (size.max(1) as f64).log2()
}

/// Where a gain lies on an axis of gains; 0.05 is 5 % more. Below 0.1 % all lie on one line, and what is
/// lost, too: neither has a place on an axis of logarithms.
pub fn gain_place(gain: f64) -> f64 {
    const LEAST: f64 = 0.001;
    (gain.max(LEAST) * 100.0).log10()
}

fn ends(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.fold(None, |ends, value| match ends {
        None => Some((value, value)),
        Some((least, greatest)) => Some((value.min(least), value.max(greatest))),
    })
}

/// The figures of a run.
pub fn figures(run: &Run) -> Vec<Figure> {
    let panels = match run.kind {
        Kind::Copy => vec![
            copies(run, "GB/s", |figures| figures.gb_per_s),
            copies(run, "us", |figures| Some(figures.done_us)),
        ],
        Kind::Pipeline => vec![copies(run, "GB/s", |figures| figures.gb_per_s)],
        Kind::Latency => vec![vec![waits(run)]],
        Kind::Launch => vec![vec![
            launches(run, "time of a call", |figures| figures.returned_us.unwrap_or(figures.done_us)),
            launches(run, "time until 1000 launches are done, for each", |figures| figures.done_us),
        ]],
    };
    let named: &[(&str, &str)] = match run.kind {
        Kind::Copy => &[("copy-bandwidth", "Bandwidth of copies"), ("copy-latency", "Time of copies")],
        Kind::Latency => &[("latency", "Calls that wait")],
        Kind::Pipeline => &[("pipeline", "Bandwidth of copies by plan")],
        Kind::Launch => &[("launch", "Launches of an empty kernel, by bytes of arguments")],
    };
    let legend: Vec<String> = run.targets.iter().map(|record| record.target.name.clone()).collect();
    let subtitle = format!("medians, 5th to 95th percentile; {}, causeway {}", run.date, run.version);
    named
        .iter()
        .zip(panels)
        .filter(|(_, panels)| !panels.is_empty())
        .map(|((name, title), panels)| Figure {
            name: (*name).to_owned(),
            title: format!("{title} ({subtitle})"),
            legend: legend.clone(),
            panels,
        })
        .collect()
}

/// What each target has of these cases; `place` says where a case lies.
fn series(
    run: &Run,
    wanted: impl Fn(Case) -> bool,
    place: impl Fn(usize, Case) -> f64,
    quantity: impl Fn(&Figures) -> Option<Summary>,
) -> Vec<Series> {
    let of_target = |target: usize| {
        let cases = run.cases.iter().filter(|record| wanted(record.case)).enumerate();
        let points = cases.filter_map(|(index, record)| {
            let summary = quantity(record.figures(target)?)?;
            Some(Point::new(place(index, record.case), &summary))
        });
        Series { target, points: points.collect() }
    };
    (0..run.targets.len()).map(of_target).filter(|series| !series.points.is_empty()).collect()
}

fn points(series: &[Series]) -> impl Iterator<Item = &Point> {
    series.iter().flat_map(|series| &series.points)
}

fn copies(run: &Run, unit: &str, quantity: impl Fn(&Figures) -> Option<Summary>) -> Vec<Panel> {
    let panel = |path: Path| {
        let series =
            series(run, |case| case.path() == Some(path), |_, case| size_place(case.bytes()), &quantity);
        let sizes = run.cases.iter().filter(|record| record.case.path() == Some(path));
        (!series.is_empty()).then(|| Panel {
            title: path.to_string(),
            x: Axis::sizes(sizes.map(|record| record.case.bytes())),
            y: Axis::quantity(unit, points(&series)),
            series,
            gains: None,
            rows: 0,
        })
    };
    Path::ALL.into_iter().filter_map(panel).collect()
}

fn waits(run: &Run) -> Panel {
    let series = series(run, |_| true, |index, _| -(index as f64), |figures| Some(figures.done_us));
    Panel {
        title: "time until it is done".to_owned(),
        x: Axis::quantity("us", points(&series)),
        y: Axis::rows(run.cases.iter().map(|record| record.case.to_string())),
        series,
        gains: None,
        rows: run.cases.len(),
    }
}

fn launches(run: &Run, title: &str, quantity: impl Fn(&Figures) -> Summary) -> Panel {
    let arguments = |case: Case| if let Case::Launches { arguments } = case { arguments } else { 0 };
    let series =
        series(run, |_| true, |_, case| size_place(arguments(case)), |figures| Some(quantity(figures)));
    Panel {
        title: title.to_owned(),
        x: Axis {
            title: "bytes of arguments; none is drawn at 1".to_owned(),
            ..Axis::sizes(run.cases.iter().map(|record| arguments(record.case)))
        },
        y: Axis::quantity("us", points(&series)),
        series,
        gains: None,
        rows: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(axis: &Axis) -> Vec<&str> {
        axis.labels.iter().map(|(_, text)| text.as_str()).collect()
    }

    #[test]
    fn sizes_are_labelled_with_powers_of_two() {
        let axis = Axis::sizes([1, 1 << 30].into_iter());
        assert_eq!(texts(&axis), ["1 B", "32 B", "1 KiB", "32 KiB", "1 MiB", "32 MiB", "1 GiB"]);
        // One size alone has an axis, too, as has zero.
        assert!(Axis::sizes([0].into_iter()).to > 0.0);
        assert_eq!(texts(&Axis::sizes([3 << 10].into_iter())), ["2 KiB", "4 KiB"]);
    }

    #[test]
    fn gains_are_labelled_by_powers_of_ten() {
        let axis = Axis::gains([4.3, -0.12, 0.0].map(gain_place).into_iter());
        assert_eq!(texts(&axis), ["0.1 % or less", "1 %", "10 %", "100 %", "1000 %"]);
        assert_eq!(gain_place(-0.5), axis.from);
        assert!((gain_place(0.1) - 1.0).abs() < 1e-9);
        assert_eq!(texts(&Axis::gains(core::iter::empty())), ["0.1 % or less", "1 %"]);
    }

    #[test]
    fn quantities_are_labelled_with_round_numbers() {
        let point = |low: f64, high: f64| Point { x: 0.0, low: low.log10(), middle: 0.0, high: high.log10() };
        let narrow = Axis::quantity("us", [point(0.9, 30.0)].iter());
        assert_eq!(texts(&narrow), ["1", "2", "5", "10", "20"]);
        let wide = Axis::quantity("GB/s", [point(0.0005, 60.0)].iter());
        assert_eq!(texts(&wide), ["0.001", "0.01", "0.1", "1", "10"]);
    }
}
