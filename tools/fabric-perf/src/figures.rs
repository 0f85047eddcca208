//! Which pictures are drawn? Those of the paper: bandwidth by size for each setting of a sweep, and on a
//! second axis the gain over its base.

use causeway_measure::plot::{Axis, Figure, Gains, Panel, Point, Series, gain_place, size_place};
use clap::ValueEnum as _;

use crate::case::{Case, LONGEST, Quantity, Setting};
use crate::report::short;
use crate::results::{MeasuredPath, Run};
use crate::sweep::{Sweep, Varied};

/// The figures of every sweep that has records, for each quantity.
pub fn figures(run: &Run) -> Vec<Figure> {
    let mut all = Vec::new();
    for sweep in &run.sweeps {
        for quantity in Quantity::ALL.into_iter().filter(|quantity| sweep.varied.concerns(*quantity)) {
            let panels: Vec<Panel> =
                MeasuredPath::ALL.into_iter().filter_map(|path| panel(run, sweep, path, quantity)).collect();
            if !panels.is_empty() {
                let legend: Vec<String> =
                    sweep.settings.iter().map(|setting| short(sweep.varied, *setting)).collect();
                let has_gains = panels.iter().any(|panel| panel.gains.is_some());
                let gains = if has_gains {
                    format!(", dashed: gain over {}", legend[sweep.base])
                } else {
                    String::new()
                };
                let ends = run.ends.each_ref().map(|end| end.device.as_str());
                let title = format!(
                    "{} by {} (medians, 5th to 95th percentile{gains}; {} to {}, {}, causeway {})",
                    capitalised(quantity),
                    sweep.varied,
                    ends[0],
                    ends[1],
                    run.date,
                    run.version
                );
                all.push(Figure { name: name(sweep.varied, quantity), title, legend, panels });
            }
        }
    }
    all
}

/// The name of a figure's files.
fn name(varied: Varied, quantity: Quantity) -> String {
    let varied = varied.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
    format!("fabric-{varied}{}", if quantity == Quantity::Latency { "-latency" } else { "" })
}

fn capitalised(quantity: Quantity) -> &'static str {
    match quantity {
        Quantity::Bandwidth => "Bandwidth",
        Quantity::Latency => "Latency",
    }
}

/// One path: a line for each setting, and thin ones for the gains.
fn panel(run: &Run, sweep: &Sweep, path: MeasuredPath, quantity: Quantity) -> Option<Panel> {
    let cases: Vec<Case> = run
        .cases()
        .into_iter()
        .filter(|case| case.operation == path.operation && case.quantity == quantity)
        .collect();
    let line = |(target, setting): (usize, &Setting)| {
        let point = |case: &Case| {
            let record = run.record(*case, *setting, path.tool)?;
            Some(Point::new(size_place(case.bytes), &record.summary))
        };
        Series { target, points: cases.iter().filter_map(point).collect() }
    };
    let series: Vec<Series> = sweep.settings.iter().enumerate().map(line).collect();
    let points = || series.iter().flat_map(|series| &series.points);
    points().next()?;
    let gains = |(target, setting): (usize, &Setting)| {
        let gain = |case: &Case| {
            Some((size_place(case.bytes), gain_place(run.gain(path.tool, *case, sweep, *setting)?)))
        };
        (target, cases.iter().filter_map(gain).collect::<Vec<_>>())
    };
    let lines: Vec<_> = sweep
        .settings
        .iter()
        .enumerate()
        .filter(|(index, _)| *index != sweep.base)
        .map(gains)
        .filter(|(_, points)| !points.is_empty())
        .collect();
    Some(Panel {
        title: path.to_string(),
        x: Axis::sizes(cases.iter().map(|case| case.bytes.min(LONGEST))),
        y: Axis::quantity(quantity.unit(), points()),
        gains: (!lines.is_empty()).then(|| Gains {
            axis: Axis::gains(lines.iter().flat_map(|(_, points)| points).map(|(_, place)| *place)),
            lines,
        }),
        series,
        rows: 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::example;
    use causeway_measure::plot;

    #[test]
    fn each_sweep_has_its_pictures_with_a_second_axis() {
        let figures = figures(&example());
        assert_eq!(figures.len(), 8);
        let capacity = figures.iter().find(|figure| figure.name == "fabric-capacity").unwrap();
        assert_eq!(capacity.panels.len(), MeasuredPath::ALL.len());
        let gains = capacity.panels[0].gains.as_ref().unwrap();
        assert_eq!(gains.lines.len(), 7);
        // 700 % lies below a thousand, on an axis of logarithms.
        assert_eq!((gains.axis.from, gains.axis.to), (-1.0, 3.0));
        let text = plot::svg(capacity).unwrap();
        for words in ["RDMA read", "capacity 256", "gain", "1000 %"] {
            assert!(text.contains(words), "{words}");
        }
        let alone = figures.iter().find(|figure| figure.name == "fabric-default").unwrap();
        assert!(alone.panels.iter().all(|panel| panel.gains.is_none()));
    }
}
