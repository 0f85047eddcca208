//! Plots. Those of the paper: bandwidth by size for each setting of a sweep, and on a second axis the gain
//! over its base.

use causeway_measure::files;
use causeway_measure::plot::{Axis, Gains, Panel, Plot, gain_position, size_position};
use clap::ValueEnum as _;

use crate::case::{Case, Quantity};
use crate::results::{MeasuredPath, Run};
use crate::sweep::Sweep;

/// The figures of every sweep that has records, for each quantity.
pub fn plots(run: &Run) -> Vec<Plot> {
    let of_sweep = |sweep| Quantity::ALL.into_iter().filter_map(move |quantity| plot(run, sweep, quantity));
    run.sweeps.iter().flat_map(of_sweep).collect()
}

fn plot(run: &Run, sweep: &Sweep, quantity: Quantity) -> Option<Plot> {
    if !sweep.varied.concerns(quantity) {
        return None;
    }
    let panels: Vec<_> =
        MeasuredPath::ALL.into_iter().filter_map(|path| panel(run, sweep, path, quantity)).collect();
    let legend = sweep.names();
    let varied = sweep.varied.to_possible_value()?;
    let (title, ending) = match quantity {
        Quantity::Bandwidth => ("Bandwidth", ""),
        Quantity::Latency => ("Latency", "-latency"),
    };
    let mut caption = files::caption(run.version, &run.date, &run.machine, None);
    if panels.iter().any(|panel| panel.gains.is_some()) {
        caption[0] += &format!("; dashed: gain over {}", legend[sweep.base]);
    }
    caption.extend(run.ends.iter().map(|end| format!("{}: {}, {}", end.host, end.device, end.port)));
    let name = format!("fabric-{}{ending}", varied.get_name());
    Plot::new(&name, format!("{title} by {}", sweep.varied), caption, legend, panels)
}

/// One path: a line for each setting, and thin ones for the gains.
fn panel(run: &Run, sweep: &Sweep, path: MeasuredPath, quantity: Quantity) -> Option<Panel> {
    let sizes: Vec<u64> = run.cases(path, quantity).iter().map(|case| case.bytes).collect();
    let case = |bytes| Case { operation: path.operation, quantity, bytes };
    let summary = |bytes, index: usize| {
        run.record(case(bytes), sweep.settings[index], path.tool).map(|record| record.summary)
    };
    let panel = Panel::by_size(path.to_string(), quantity.unit(), &sizes, sweep.settings.len(), summary)?;
    let lines = sweep.others().map(|(index, setting)| {
        let gain = |bytes: &u64| {
            Some((size_position(*bytes), gain_position(run.gain(path.tool, case(*bytes), sweep, setting)?)))
        };
        (index, sizes.iter().filter_map(gain).collect::<Vec<_>>())
    });
    let lines: Vec<_> = lines.filter(|(_, points)| !points.is_empty()).collect();
    let gains = (!lines.is_empty()).then(|| Gains {
        axis: Axis::gains(lines.iter().flat_map(|(_, points)| points).map(|(_, position)| *position)),
        lines,
    });
    Some(Panel { gains, ..panel })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::example;
    use causeway_measure::plot;

    #[test]
    fn each_sweep_has_its_pictures_with_a_second_axis() {
        let plots = plots(&example());
        assert_eq!(plots.len(), 8);
        let capacity = plots.iter().find(|plot| plot.name == "fabric-capacity").unwrap();
        assert_eq!(capacity.panels.len(), MeasuredPath::ALL.len());
        let gains = capacity.panels[0].gains.as_ref().unwrap();
        assert_eq!(gains.lines.len(), 7);
        // 700 % lies below a thousand, on an axis of logarithms.
        assert_eq!((gains.axis.from, gains.axis.to), (-1.0, 3.0));
        let text = plot::svg(capacity).unwrap();
        for words in ["RDMA read", "capacity 256", "gain", "1000 %"] {
            assert!(text.contains(words), "{words}");
        }
        let alone = plots.iter().find(|plot| plot.name == "fabric-default").unwrap();
        assert!(alone.panels.iter().all(|panel| panel.gains.is_none()));
    }
}
