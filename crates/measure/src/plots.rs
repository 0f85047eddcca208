//! Plots of copies, waits and launches.

use crate::case::{Case, Path};
use crate::files;
use crate::plot::{Axis, Panel, Plot, Reference};
use crate::reference::Rate;
use crate::results::{CaseRecord, CaseResult, Kind, Run};
use crate::statistics::Summary;
use crate::worker_process::TargetLocation;

/// The figures of a run.
pub fn plots(run: &Run) -> Vec<Plot> {
    let rates = || copies(run, "GB/s", &run.references, |results| results.gb_per_s);
    let (latencies, times) = ("Time of copies", || copies(run, "us", &[], |results| Some(results.done_us)));
    let drawn = match run.kind {
        Kind::Copy => {
            vec![("copy-bandwidth", "Bandwidth of copies", rates()), ("copy-latency", latencies, times())]
        }
        Kind::Pipeline => vec![("pipeline", "Bandwidth of copies by plan", rates())],
        Kind::Latency => vec![("latency", "Calls that wait", waits(run).into_iter().collect())],
        Kind::Launch => {
            let each = "time until 1000 launches are done, for each";
            let panels = [
                launches(run, "time of a call", CaseResult::call_us),
                launches(run, each, |results| results.done_us),
            ];
            let title = "Launches of an empty kernel, by bytes of arguments";
            vec![("launch", title, panels.into_iter().flatten().collect())]
        }
    };
    let legend: Vec<String> = run.targets.iter().map(|record| record.target.name.clone()).collect();
    let plot = |(name, title, panels): (&str, &str, Vec<Panel>)| {
        let compared = |panel| Panel { compared_with: run.compared_with(), ..panel };
        let panels = panels.into_iter().map(compared).collect();
        Plot::new(name, title.to_owned(), caption(run), legend.clone(), panels)
    };
    drawn.into_iter().filter_map(plot).collect()
}

/// Machine, GPUs and links: what has to be known of figures to compare them with others.
fn caption(run: &Run) -> Vec<String> {
    let targets = run.targets.iter().filter_map(|record| {
        let device = &record.introduction.as_ref()?.device;
        let link = match (&record.target.location, &record.module) {
            (TargetLocation::Native, _) => "no link".to_owned(),
            (TargetLocation::Server { .. }, Some(module)) => format!("over {module}"),
            (TargetLocation::Server { .. }, None) => "link unknown".to_owned(),
        };
        Some(format!("{}: {device}, {link}", record.target.name))
    });
    let reference = run.compared_with().map(|target| run.targets[target].target.name.as_str());
    let mut lines = files::caption(&run.version, &run.date, &run.machine, reference);
    lines.extend(targets);
    lines
}

fn copies(
    run: &Run,
    unit: &str,
    references: &[Rate],
    quantity: impl Fn(&CaseResult) -> Option<Summary>,
) -> Vec<Panel> {
    let panel = |path: Path| {
        let records: Vec<_> = run.cases.iter().filter(|record| record.case.path() == Some(path)).collect();
        let sizes: Vec<u64> = records.iter().map(|record| record.case.bytes()).collect();
        let summary = |bytes, target| {
            let record = records.iter().find(|record| record.case.bytes() == bytes)?;
            quantity(record.results(target)?)
        };
        let panel = Panel::by_size(path.to_string(), unit, &sizes, run.targets.len(), summary)?;
        // What stays within one device's memory or goes from one to another is compared with nothing of the
        // host.
        let is_of_host = !matches!(path, Path::WithinDevice | Path::Peer);
        let references = references.iter().filter(|_| is_of_host).map(Reference::from).collect();
        Some(Panel { references, ..panel })
    };
    Path::ALL.into_iter().filter_map(panel).collect()
}

fn waits(run: &Run) -> Option<Panel> {
    let names = run.cases.iter().map(|record| record.case.to_string()).collect();
    let summary = |case: usize, target| run.cases[case].results(target).map(|results| results.done_us);
    Panel::by_row("time until it is done".to_owned(), "us", names, run.targets.len(), summary)
}

fn launches(run: &Run, title: &str, quantity: impl Fn(&CaseResult) -> Summary) -> Option<Panel> {
    let record = |arguments| run.cases.iter().find(|record| record.case == Case::Launches { arguments });
    let summary = |arguments, target| record(arguments)?.results(target).map(&quantity);
    let of_case = |record: &CaseRecord| match record.case {
        Case::Launches { arguments } => Some(arguments),
        _ => None,
    };
    let sizes: Vec<u64> = run.cases.iter().filter_map(of_case).collect();
    let panel = Panel::by_size(title.to_owned(), "us", &sizes, run.targets.len(), summary)?;
    let x = Axis { title: "bytes of arguments; none is drawn at 1".to_owned(), ..panel.x };
    Some(Panel { x, ..panel })
}

#[cfg(test)]
mod tests {
    use super::plots as plots_of;
    use super::*;
    use crate::results::tests::example;

    #[test]
    fn panels_that_are_compared_have_one_axis_with_all_points_and_references() {
        let mut run = example();
        run.references = vec![Rate { name: "memory copy".into(), gb_per_s: 50.0 }];
        let results = plots_of(&run);
        for plot in &results {
            let [first, others @ ..] = plot.panels.as_slice() else { panic!("{} has panels", plot.name) };
            assert!(!others.is_empty());
            for panel in &plot.panels {
                assert_eq!((panel.y.from, panel.y.to), (first.y.from, first.y.to), "{}", plot.name);
                let mut all = panel
                    .series
                    .iter()
                    .flat_map(|series| &series.points)
                    .flat_map(|point| [point.low, point.high]);
                assert!(all.all(|location| (panel.y.from..=panel.y.to).contains(&location)));
            }
        }
        let [bandwidth, latency] = results.as_slice() else { panic!("bandwidth and latency are drawn") };
        assert!(bandwidth.panels[0].y.to > 50_f64.log10(), "the reference is on the axis");
        let with_reference =
            |plot: &Plot| plot.panels.iter().filter(|panel| !panel.references.is_empty()).count();
        assert_eq!(
            (with_reference(bandwidth), with_reference(latency)),
            (2, 0),
            "not between devices, not for times"
        );
        assert_eq!(latency.panels[0].y.title, "µs");
        let caption = bandwidth.caption.join("\n");
        for fields in
            ["native: a GPU, no link", "server: a GPU, link unknown", "processors", "causeway 0.0.0"]
        {
            assert!(caption.contains(fields), "{caption}");
        }
    }

    #[test]
    fn ratios_are_those_of_medians_at_the_same_place() {
        let results = plots_of(&example());
        let ratios = results[0].panels[0].ratios();
        let [(1, points)] = ratios.as_slice() else {
            panic!("the server is compared with the native GPU: {ratios:?}")
        };
        assert_eq!(points.len(), 4);
        // A server with half of the rate.
        assert!(points.iter().all(|(_, location)| (location - 0.5_f64.log10()).abs() < 1e-9), "{points:?}");
        let axis = results[0].ratio_axis();
        assert!(axis.from < 0.5_f64.log10() && axis.to > 0.0, "1 is on the axis");
        let mut alone = example();
        alone.targets.truncate(1);
        let results = plots_of(&alone);
        assert!(results.iter().flat_map(|plot| &plot.panels).all(|panel| panel.ratios().is_empty()));
    }
}
