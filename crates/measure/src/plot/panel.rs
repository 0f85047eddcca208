//! What is drawn: numbers, put into panels. Positions on axes are logarithms.

use crate::reference::Rate;
use crate::sizes::Size;
use crate::statistics::Summary;
use crate::table::significant;

/// A picture: panels with one legend.
#[derive(Debug)]
pub struct Plot {
    /// The file's name without its ending.
    pub name: String,
    /// What it shows.
    pub title: String,
    /// What it was measured with: lines of small print.
    pub caption: Vec<String>,
    /// The targets, by the number that a [`Series`] has. One alone is not drawn.
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
    /// Rates that mean something to the eye, as lines across the panel.
    pub references: Vec<Reference>,
    /// The target that the others are compared with, by a panel of ratios below or beside the values.
    pub compared_with: Option<usize>,
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
    /// A target's number and its points: a place on the x axis, and a [`gain_position`].
    pub lines: Vec<(usize, Vec<(f64, f64)>)>,
}

/// A level that lines are compared with.
#[derive(Debug, Clone, PartialEq)]
pub struct Reference {
    /// What it is.
    pub label: String,
    /// Its position on the vertical axis.
    pub position: f64,
}

impl From<&Rate> for Reference {
    fn from(rate: &Rate) -> Self {
        Self { label: rate.name.clone(), position: rate.gb_per_s.max(MIN_VALUE).log10() }
    }
}

impl Plot {
    /// Panels that are compared with each other: they have one vertical axis, on which all of their points
    /// and references lie. None without panels.
    pub fn new(
        name: &str,
        title: String,
        caption: Vec<String>,
        legend: Vec<String>,
        panels: Vec<Panel>,
    ) -> Option<Self> {
        let mut panels = panels;
        let unit = panels.first()?.y.title.clone();
        let axis = Axis::between(&unit, panels.iter().flat_map(Panel::levels));
        for panel in panels.iter_mut().filter(|panel| panel.rows == 0) {
            panel.y = axis.clone();
        }
        Some(Self { name: name.to_owned(), title, caption, legend, panels })
    }

    /// The vertical axis of all panels of ratios, 1 among them.
    pub fn ratio_axis(&self) -> Axis {
        let ratios = self.panels.iter().flat_map(Panel::ratios).flat_map(|(_, points)| points);
        Axis::between("ratio", ratios.map(|(_, position)| position).chain([0.0]))
    }
}

/// What each target has for one of another's: a target's number and its points, which are a place on the x
/// axis and a logarithm.
pub type Ratios = Vec<(usize, Vec<(f64, f64)>)>;

impl Panel {
    /// A panel of lines, without anything besides.
    pub fn of_lines(title: String, x: Axis, y: Axis, series: Vec<Series>) -> Self {
        Self { title, x, y, series, gains: None, references: Vec::new(), compared_with: None, rows: 0 }
    }

    /// A panel with a line over sizes for each of so many targets that has figures; none without any.
    pub fn by_size(
        title: String,
        unit: &str,
        sizes: &[u64],
        targets: usize,
        summary: impl Fn(u64, usize) -> Option<Summary>,
    ) -> Option<Self> {
        let position = |index: usize| size_position(sizes[index]);
        let series = series(targets, sizes.len(), position, |index, target| summary(sizes[index], target))?;
        let y = Axis::quantity(unit, points(&series));
        Some(Self::of_lines(title, Axis::sizes(sizes.iter().copied()), y, series))
    }

    /// A panel with a row of points for each of these names; none without any summary.
    pub fn by_row(
        title: String,
        unit: &str,
        names: Vec<String>,
        targets: usize,
        summary: impl Fn(usize, usize) -> Option<Summary>,
    ) -> Option<Self> {
        let rows = names.len();
        let series = series(targets, rows, |index| -(index as f64), summary)?;
        let panel = Self::of_lines(title, Axis::quantity(unit, points(&series)), Axis::rows(names), series);
        Some(Self { rows, ..panel })
    }

    /// Where its points and references lie on the axis of quantities.
    fn levels(&self) -> impl Iterator<Item = f64> {
        let references = self.references.iter().map(|reference| reference.position);
        points(&self.series).flat_map(|point| [point.low, point.high]).chain(references)
    }

    /// The ratios of medians to those of the target that the others are compared with, where both have one.
    pub fn ratios(&self) -> Ratios {
        let reference = self.series.iter().find(|series| Some(series.target) == self.compared_with);
        let Some(reference) = reference else { return Vec::new() };
        let of = |point: &Point| {
            let same = reference.points.iter().find(|other| other.x == point.x)?;
            Some((point.x, point.middle - same.middle))
        };
        let others = self.series.iter().filter(|series| series.target != reference.target);
        let lines =
            others.map(|series| (series.target, series.points.iter().filter_map(of).collect::<Vec<_>>()));
        lines.filter(|(_, points)| !points.is_empty()).collect()
    }
}

/// The lines of the targets that have figures: of so many places, of which each has its own on the x axis.
/// None without any.
fn series(
    targets: usize,
    positions: usize,
    position: impl Fn(usize) -> f64,
    summary: impl Fn(usize, usize) -> Option<Summary>,
) -> Option<Vec<Series>> {
    let of_target = |target| {
        let point = |index| Some(Point::new(position(index), &summary(index, target)?));
        Series { target, points: (0..positions).filter_map(point).collect() }
    };
    let series: Vec<_> = (0..targets).map(of_target).filter(|series| !series.points.is_empty()).collect();
    (!series.is_empty()).then_some(series)
}

fn points(series: &[Series]) -> impl Iterator<Item = &Point> {
    series.iter().flat_map(|series| &series.points)
}

/// A median with its spread, as logarithms.
#[derive(Debug, Clone, Copy)]
pub struct Point {
    /// Its position on the x axis, or in which row.
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
const MIN_VALUE: f64 = 1e-9;

impl Point {
    /// A summary at a place.
    pub fn new(x: f64, summary: &Summary) -> Self {
        let [low, middle, high] =
            [summary.p5, summary.median, summary.p95].map(|value| value.max(MIN_VALUE).log10());
        Self { x, low, middle, high }
    }
}

impl Axis {
    /// Powers of two between the smallest and the largest of these sizes; 0 is drawn at 1.
    pub fn sizes(sizes: impl Iterator<Item = u64>) -> Self {
        Self::powers("bytes", sizes, |size| Size(size).to_string())
    }

    /// The same of numbers of something, at [`size_position`]s as well.
    pub fn counts(of: &str, counts: impl Iterator<Item = u64>) -> Self {
        Self::powers(of, counts, |count| count.to_string())
    }

    fn powers(title: &str, values: impl Iterator<Item = u64>, text: fn(u64) -> String) -> Self {
        let (from, to) = ends(values.map(size_position)).unwrap_or((0.0, 1.0));
        let (from, to) = (from.floor(), to.ceil().max(from.floor() + 1.0));
        let step = ((to - from) / 6.0).ceil().max(1.0) as usize;
        let positions = (from as i32..=to as i32).step_by(step);
        let labels = positions.map(|position| (f64::from(position), text(1 << position))).collect();
        Self { title: title.to_owned(), from, to, labels }
    }

    /// 1, 2 and 5 of each power of ten between the least and the greatest of these points; powers of ten
    /// alone where that would be many.
    pub fn quantity<'a>(unit: &str, points: impl Iterator<Item = &'a Point>) -> Self {
        Self::between(unit, points.flat_map(|point| [point.low, point.high]))
    }

    /// The same between the least and the greatest of these places.
    fn between(unit: &str, positions: impl Iterator<Item = f64>) -> Self {
        let (from, to) = ends(positions).unwrap_or((0.0, 1.0));
        let margin = ((to - from) * 0.05).clamp(0.05, 0.1);
        let (from, to) = (from - margin, to + margin);
        let steps: &[f64] = if to - from < 2.5 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let decades = from.floor() as i32..=to.ceil() as i32;
        let values = decades.flat_map(|decade| steps.iter().map(move |step| step * 10_f64.powi(decade)));
        let labels = values
            .map(|value| (value.log10(), label(value)))
            .filter(|(position, _)| (from..=to).contains(position))
            .collect();
        Self { title: written(unit), from, to, labels }
    }

    /// Powers of ten of percent, from the least that is drawn to the greatest of these places and 1 % at
    /// least.
    pub fn gains(positions: impl Iterator<Item = f64>) -> Self {
        let from = gain_position(0.0);
        let to = positions.fold(0.0, f64::max).ceil();
        let label = |position: i32| {
            let min = if f64::from(position) == from { " or less" } else { "" };
            (f64::from(position), format!("{} %{min}", label(10_f64.powi(position))))
        };
        Self { title: "gain".to_owned(), from, to, labels: (from as i32..=to as i32).map(label).collect() }
    }

    /// One place for each row, the first on top.
    fn rows(names: Vec<String>) -> Self {
        let labels: Vec<_> = names.into_iter().enumerate().map(|(row, name)| (-(row as f64), name)).collect();
        Self { title: String::new(), from: 0.5 - labels.len() as f64, to: 0.5, labels }
    }
}

/// A label without the zeros that say nothing.
fn label(value: f64) -> String {
    let text = significant(value);
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// A unit as it is written in pictures.
fn written(unit: &str) -> String {
    if unit == "us" { "µs".to_owned() } else { unit.to_owned() }
}

/// What a place on an axis of quantities means.
pub(super) fn value_text(position: f64) -> String {
    label(10_f64.powf(position))
}

/// Where a size lies on an axis of sizes.
pub fn size_position(size: u64) -> f64 {
    (size.max(1) as f64).log2()
}

/// Where a gain lies on an axis of gains; 0.05 is 5 % more. Below 0.1 % all lie on one line, and what is
/// lost, too: neither has a place on an axis of logarithms.
pub fn gain_position(gain: f64) -> f64 {
    const MIN_SPAN: f64 = 0.001;
    (gain.max(MIN_SPAN) * 100.0).log10()
}

fn ends(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.fold(None, |ends, value| match ends {
        None => Some((value, value)),
        Some((min, greatest)) => Some((value.min(min), value.max(greatest))),
    })
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
        assert_eq!(texts(&Axis::counts("ranks", [2, 8].into_iter())), ["2", "4", "8"]);
    }

    #[test]
    fn gains_are_labelled_by_powers_of_ten() {
        let axis = Axis::gains([4.3, -0.12, 0.0].map(gain_position).into_iter());
        assert_eq!(texts(&axis), ["0.1 % or less", "1 %", "10 %", "100 %", "1000 %"]);
        assert_eq!(gain_position(-0.5), axis.from);
        assert!((gain_position(0.1) - 1.0).abs() < 1e-9);
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
