//! Report of messages: a table and a panel for each quantity and kind of memory, with a column or a line for
//! each target.

use core::fmt::Write as _;
use std::path::{Path, PathBuf};

use super::results::Run;
use super::results::{Case, What};
use crate::files::{self, Fields, FilesError};
use crate::jobs::Record;
use crate::plot::{Panel, Plot};
use crate::table::{by_size, heading, significant};

/// All tables.
pub fn text(run: &Run) -> String {
    let mut out = heading(&run.version, &run.date, &run.machine);
    for what in run.parts() {
        let targets = run.targets_of(what);
        let heads: Vec<_> =
            targets.iter().map(|target| vec![run.targets[*target].name.clone(), "by".to_owned()]).collect();
        let table = by_size(&run.sizes(what), &heads, |bytes, target| {
            let Record { summary, paths, .. } = run.record(&case(what, bytes), targets[target])?;
            let paths = paths.strip_suffix(" 100").unwrap_or(paths).to_owned();
            Some((summary.count, vec![significant(summary.median), paths]))
        });
        let _ = write!(out, "\n{what}\n{table}");
    }
    out
}

fn case(what: &What, bytes: u64) -> Case {
    Case { what: what.clone(), bytes }
}

/// The run as lines of CSV: one for each case on each target.
fn lines(run: &Run) -> impl Iterator<Item = Fields> {
    run.records.iter().map(|Record { case: Case { what, bytes }, target, summary, paths, .. }| {
        let target = &run.targets[*target];
        let mut fields = vec![
            ("quantity", what.quantity.clone()),
            ("unit", what.unit.clone()),
            ("memory", what.memory.clone()),
            ("bytes", bytes.to_string()),
            ("gpu", target.way.gpu.clone()),
            ("isolated", target.way.isolated.to_string()),
            ("channel", target.way.channel.clone()),
            ("pairs", target.way.pairs.to_string()),
        ];
        fields.extend(summary.fields());
        fields.push(("ways", paths.clone()));
        fields
    })
}

/// A plot for each quantity, with a panel for each kind of memory.
fn plots(run: &Run) -> Vec<Plot> {
    let legend: Vec<_> = run.targets.iter().map(|target| target.name.clone()).collect();
    let compared_with = (run.targets.len() > 1).then_some(0);
    let reference = compared_with.map(|target| run.targets[target].name.as_str());
    let parts = run.parts();
    let mut quantities: Vec<&str> = parts.iter().map(|what| what.quantity.as_str()).collect();
    quantities.sort_unstable();
    quantities.dedup();
    let plot = |quantity: &str| {
        let of_quantity = parts.iter().filter(|what| what.quantity == quantity);
        let panels = of_quantity.filter_map(|what| {
            let summary = |bytes, target| run.record(&case(what, bytes), target).map(|record| record.summary);
            let title = format!("memory: {}", what.memory);
            let panel = Panel::by_size(title, &what.unit, &run.sizes(what), run.targets.len(), summary)?;
            Some(Panel { compared_with, ..panel })
        });
        let caption = files::caption(&run.version, &run.date, &run.machine, reference);
        let title = format!("MPI: {}", quantity.replace('_', " "));
        let name = format!("mpi-{}", quantity.replace('_', "-"));
        Plot::new(&name, title, caption, legend.clone(), panels.collect())
    };
    quantities.into_iter().filter_map(plot).collect()
}

/// Writes `mpi.csv`, `mpi.json` and the pictures; returns what was written.
///
/// # Errors
/// When a file cannot be written.
pub fn write(folder: &Path, run: &Run) -> Result<Vec<PathBuf>, FilesError> {
    files::write_all(folder, "mpi", &files::csv(lines(run)), &files::as_json(run), &plots(run))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mpi::results::tests::example;

    #[test]
    fn tables_have_a_column_for_each_target_with_figures() {
        let text = text(&example());
        assert!(text.contains("latency in us, memory: gpu"), "{text}");
        let head = text.lines().find(|line| line.contains("size")).unwrap();
        assert!(head.contains("auto") && head.contains("staged") && !head.contains("ipc"), "{head}");
        assert!(text.contains("vmm 75, staged 25") && text.contains("4096"), "{text}");
    }

    #[test]
    fn all_files_are_written() {
        let (folder, run) = (tempfile::tempdir().unwrap(), example());
        let written = write(folder.path(), &run).unwrap();
        let read = |file: usize| std::fs::read_to_string(&written[file]).unwrap();
        assert_eq!(written.len(), 2 + 2, "a plot for each quantity");
        assert!(
            read(0).starts_with("quantity,unit,memory,bytes,gpu,")
                && read(0).contains("\"vmm 75, staged 25\"")
        );
        assert_eq!(read(0).lines().count(), 1 + run.records.len());
        let value: serde_json::Value = serde_json::from_str(&read(1)).unwrap();
        assert_eq!(value["records"][0]["samples"].as_array().map(Vec::len), Some(3));
        assert_eq!(value["records"][0]["quantity"], "latency");
        assert_eq!(
            (&value["targets"][2]["name"], &value["targets"][2]["channel"]),
            (&"ipc".into(), &"any".into())
        );
        for fields in ["<svg ", "memory: gpu", "ratio"] {
            assert!(read(2).contains(fields), "{fields}");
        }
    }
}
