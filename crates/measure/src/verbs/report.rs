//! How do people and programs read it?

use core::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::case::{Case, Quantity, Setting};
use super::figures::figures;
use super::results::{Comparison, Record, Run, Way};
use super::sweep::{Sweep, Varied};
use crate::files::{self, FilesError};
use crate::plot;
use crate::sizes::Size;
use crate::table::{aligned, percent, significant};

/// All tables: what was measured with, each sweep, and Causeway beside perftest.
pub fn text(run: &Run) -> String {
    let Run { version, date, machine, ends: [near, far], .. } = run;
    let mut out = format!(
        "causeway {version}, {date}, {}: {}, {} processors, {}\n",
        machine.host, machine.processor, machine.processors, machine.kernel
    );
    for end in [near, far] {
        let _ = writeln!(out, "{}: {}, {}", end.host, end.device, end.port);
    }
    for sweep in &run.sweeps {
        for quantity in Quantity::ALL.into_iter().filter(|quantity| sweep.varied.concerns(*quantity)) {
            for way in Way::ALL {
                let table = table(run, sweep, way, quantity);
                if table.len() > 1 {
                    let (unit, rows) = (quantity.unit(), aligned(&table));
                    let _ = write!(out, "\n{way}, {quantity} in {unit}, {}\n{rows}", sweep.varied);
                }
            }
        }
    }
    for trouble in &run.troubles {
        let _ = write!(out, "\nnot measured: {trouble}\n");
    }
    let comparisons = run.comparisons();
    if !comparisons.is_empty() {
        let rows = aligned(&compared(&comparisons));
        let _ = write!(out, "\nmedians of causeway over those of perftest\n{rows}");
    }
    out
}

/// What a setting is called among those of a sweep.
pub(super) fn short(varied: Varied, setting: Setting) -> String {
    match varied {
        Varied::Nothing => setting.to_string(),
        Varied::QueuePairs if setting.queue_pairs == 1 => "1 queue pair".to_owned(),
        Varied::QueuePairs => format!("{} queue pairs", setting.queue_pairs),
        Varied::Capacity => format!("capacity {}", setting.capacity),
        Varied::Mtu => format!("MTU {}", setting.mtu),
        Varied::Both => format!("{} x {}", setting.queue_pairs, setting.capacity),
    }
}

/// A line for each size, with mean, relative deviation and gain of each setting.
fn table(run: &Run, sweep: &Sweep, way: Way, quantity: Quantity) -> Vec<Vec<String>> {
    let mut head = vec!["size".to_owned(), "n".to_owned()];
    for (index, setting) in sweep.settings.iter().enumerate() {
        head.extend([short(sweep.varied, *setting), "deviation".to_owned()]);
        if index != sweep.base {
            head.push("gain".to_owned());
        }
    }
    let mut rows = vec![head];
    let wanted = |case: &Case| case.operation == way.operation && case.quantity == quantity;
    for case in run.cases().into_iter().filter(wanted) {
        let records: Vec<_> =
            sweep.settings.iter().map(|setting| run.record(case, *setting, way.tool)).collect();
        let Some(count) = records.iter().flatten().map(|record| record.summary.count).max() else { continue };
        let mut row = vec![Size(case.bytes).to_string(), count.to_string()];
        for (index, record) in records.into_iter().enumerate() {
            match record {
                Some(Record { summary, .. }) => {
                    row.extend([significant(summary.mean), percent(summary.relative_deviation)]);
                }
                None => row.extend(["-".to_owned(), "-".to_owned()]),
            }
            if index != sweep.base {
                let gain = run.gain(way.tool, case, sweep, sweep.settings[index]);
                row.push(gain.map_or("-".to_owned(), |gain| format!("{:+.1} %", gain * 100.0)));
            }
        }
        rows.push(row);
    }
    rows
}

fn compared(comparisons: &[Comparison]) -> Vec<Vec<String>> {
    let head = ["way", "quantity", "geometric mean", "worst", "at"].map(str::to_owned).to_vec();
    let mut rows = vec![head];
    for comparison in comparisons {
        let worst = comparison.worst();
        let at = comparison.ratios.iter().find(|(_, _, ratio)| *ratio == worst);
        rows.push(vec![
            comparison.way.to_string(),
            comparison.quantity.to_string(),
            format!("{:.3}", comparison.mean),
            format!("{worst:.3}"),
            at.map_or(String::new(), |(bytes, setting, _)| format!("{}, {setting}", Size(*bytes))),
        ]);
        if comparison.ratios.len() <= 32 {
            for (bytes, setting, ratio) in &comparison.ratios {
                rows.push(vec![
                    format!("  {}", Size(*bytes)),
                    String::new(),
                    format!("{ratio:.3}"),
                    String::new(),
                    setting.to_string(),
                ]);
            }
        }
    }
    rows
}

const COLUMNS: &str = "operation,quantity,unit,bytes,queue_pairs,capacity,mtu,tool,repetitions,mean,relative_deviation,median,p5,p95\n";

/// The run as CSV: one line for each case with each setting by each tool.
pub fn csv(run: &Run) -> String {
    let mut out = COLUMNS.to_owned();
    for Record { case, setting, tool, summary, .. } in &run.records {
        let _ = writeln!(
            out,
            "{},{},{},{},{},{},{},{tool},{},{},{},{},{},{}",
            case.operation,
            case.quantity,
            case.quantity.unit(),
            case.bytes,
            setting.queue_pairs,
            setting.capacity,
            setting.mtu,
            summary.count,
            summary.mean,
            summary.relative_deviation,
            summary.median,
            summary.p5,
            summary.p95,
        );
    }
    out
}

/// The run as JSON, with every sample.
pub fn json(run: &Run) -> String {
    #[derive(Serialize)]
    struct Document<'a> {
        #[serde(flatten)]
        run: &'a Run,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        comparisons: Vec<Comparison>,
    }
    let text = serde_json::to_string(&Document { run, comparisons: run.comparisons() });
    text.expect("a run has no maps with keys that are not text") + "\n"
}

/// Writes `verbs.csv`, `verbs.json` and the plots; returns what was written.
pub fn write(folder: &Path, run: &Run) -> Result<Vec<PathBuf>, FilesError> {
    let mut written = Vec::new();
    let mut put = |name: String, content: &[u8]| {
        let path = folder.join(name);
        files::put(&path, content)?;
        written.push(path);
        Ok::<_, FilesError>(())
    };
    put("verbs.csv".to_owned(), csv(run).as_bytes())?;
    put("verbs.json".to_owned(), json(run).as_bytes())?;
    for figure in figures(run) {
        put(format!("{}.svg", figure.name), plot::svg(&figure)?.as_bytes())?;
        put(format!("{}.png", figure.name), &plot::png(&figure)?)?;
    }
    Ok(written)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::results::tests::example;

    #[test]
    fn tables_have_every_sweep_with_gains_and_the_comparison() {
        let text = text(&example());
        for words in [
            "send, bandwidth in GB/s, queue capacity",
            "messages of a link, latency",
            "RDMA read, latency in us",
            "+700.0 %",
            "perftest",
        ] {
            assert!(text.contains(words), "{words} is missing in\n{text}");
        }
        assert!(text.contains("1.111"), "{text}");
    }

    #[test]
    fn each_line_of_csv_has_all_fields() {
        let run = example();
        let text = csv(&run);
        assert!(text.lines().all(|line| line.split(',').count() == COLUMNS.split(',').count()), "{text}");
        assert_eq!(text.lines().count(), 1 + run.records.len());
    }

    #[test]
    fn all_files_are_written() {
        let folder = tempfile::tempdir().unwrap();
        let written = write(folder.path(), &example()).unwrap();
        // Bandwidth of five sweeps and latency of two, each as two kinds of picture.
        assert_eq!(written.len(), 2 + 7 * 2);
        let value: serde_json::Value = serde_json::from_slice(&std::fs::read(&written[1]).unwrap()).unwrap();
        assert_eq!(value["records"][0]["operation"], "send");
        assert_eq!(value["records"][0]["samples"].as_array().map(Vec::len), Some(3));
        assert_eq!(value["comparisons"].as_array().map(Vec::len), Some(10));
    }
}
