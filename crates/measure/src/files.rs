//! How is it written as CSV, JSON and pictures?

use core::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;
use thiserror::Error;

use crate::case::Case;
use crate::pipeline::{self, Comparison, Verdict};
use crate::plot::{self, Figure, PlotError};
use crate::results::{Figures, Run};
use crate::statistics::Summary;

/// Why the results are not on disk.
#[derive(Debug, Error)]
pub enum FilesError {
    /// The folder cannot be made.
    #[error("the folder {} for the results cannot be made: {cause}", folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
    /// A file cannot be written.
    #[error("{} cannot be written: {cause}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
    /// A plot cannot be drawn.
    #[error(transparent)]
    Plot(#[from] PlotError),
}

/// Makes the folder, and a file in it that goes again: hours of measuring must not end with nowhere to write
/// to.
pub fn prepare(folder: &Path) -> Result<(), FilesError> {
    std::fs::create_dir_all(folder)
        .map_err(|cause| FilesError::Folder { folder: folder.to_owned(), cause })?;
    let trial = folder.join(format!(".causeway-bench-{}", std::process::id()));
    put(&trial, "")?;
    std::fs::remove_file(&trial).map_err(|cause| FilesError::Write { path: trial, cause })
}

/// Writes `KIND.csv`, `KIND.json` and the plots; returns what was written.
pub fn write(folder: &Path, run: &Run) -> Result<Vec<PathBuf>, FilesError> {
    write_all(folder, run.kind.name(), &csv(run), &json(run), &plot::figures(run))
}

/// Writes `NAME.csv`, `NAME.json` and a picture for each figure; returns what was written.
pub fn write_all(
    folder: &Path,
    name: &str,
    csv: &str,
    json: &str,
    figures: &[Figure],
) -> Result<Vec<PathBuf>, FilesError> {
    let mut files = vec![(format!("{name}.csv"), csv.to_owned()), (format!("{name}.json"), json.to_owned())];
    for figure in figures {
        files.push((format!("{}.svg", figure.name), plot::svg(figure)?));
    }
    let mut written = Vec::with_capacity(files.len());
    for (name, content) in files {
        let path = folder.join(name);
        put(&path, &content)?;
        written.push(path);
    }
    Ok(written)
}

/// What was written, as a line for people.
pub fn listed(written: &[PathBuf]) -> String {
    let names: Vec<_> = written.iter().map(|path| path.display().to_string()).collect();
    format!("written: {}", names.join(", "))
}

fn put(path: &Path, content: &str) -> Result<(), FilesError> {
    std::fs::write(path, content).map_err(|cause| FilesError::Write { path: path.to_owned(), cause })
}

/// A document of results as JSON.
pub fn as_json(document: &impl Serialize) -> String {
    serde_json::to_string(document).expect("results have no maps with keys that are not text") + "\n"
}

/// The run as JSON.
pub fn json(run: &Run) -> String {
    /// The run, and what follows from it.
    #[derive(Serialize)]
    struct Document<'a> {
        #[serde(flatten)]
        run: &'a Run,
        #[serde(skip_serializing_if = "<[_]>::is_empty")]
        comparisons: &'a [Comparison],
        #[serde(skip_serializing_if = "<[_]>::is_empty")]
        verdicts: &'a [Verdict],
    }
    let comparisons = &pipeline::compare(run);
    as_json(&Document { run, comparisons, verdicts: &pipeline::verdicts(comparisons) })
}

const COLUMNS: &str = "case,bytes,arguments,target,device,quantity,unit,repetitions,median,p5,p95,mean,relative_deviation,\
    processor_s_per_gb\n";

/// The run as CSV: one line for each quantity of each case on each target. Quantities are `done` and
/// `returned`, in microseconds, and `rate`, in GB/s.
pub fn csv(run: &Run) -> String {
    let mut out = COLUMNS.to_owned();
    for record in &run.cases {
        for (index, target) in run.targets.iter().enumerate() {
            let Some(figures) = record.figures(index) else { continue };
            let arguments = match record.case {
                Case::Launches { arguments } => arguments.to_string(),
                _ => String::new(),
            };
            let name = match record.case {
                Case::Copy { path, .. } => path.to_string(),
                Case::Wait { wait } => wait.to_string(),
                Case::Launches { .. } => "launches".to_owned(),
            };
            let device = target.introduction.as_ref().map_or("", |introduction| introduction.device.as_str());
            let bytes = record.case.bytes();
            let begin = [&name, &bytes.to_string(), &arguments, target.target.name.as_str(), device]
                .map(quoted)
                .join(",");
            for (quantity, unit, summary) in quantities(figures) {
                let Summary { count, p5, median, p95, mean, relative_deviation } = summary;
                let processor = figures.processor_s_per_gb.map(|value| value.to_string()).unwrap_or_default();
                let _ = writeln!(
                    out,
                    "{begin},{quantity},{unit},{count},{median},{p5},{p95},{mean},{relative_deviation},{processor}"
                );
            }
        }
    }
    out
}

fn quantities(figures: &Figures) -> impl Iterator<Item = (&'static str, &'static str, Summary)> {
    let done = Some(("done", "us", figures.done_us));
    let returned = figures.returned_us.map(|summary| ("returned", "us", summary));
    let rate = figures.gb_per_s.map(|summary| ("rate", "GB/s", summary));
    [done, returned, rate].into_iter().flatten()
}

/// A field of CSV, in quotes where it needs them.
fn quoted(text: impl AsRef<str>) -> String {
    let text = text.as_ref();
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::example;

    #[test]
    fn each_line_of_csv_has_all_fields() {
        let mut run = example();
        run.targets[1].target.name = "a \"server\", far away".into();
        let text = csv(&run);
        assert!(text.contains("\"a \"\"server\"\", far away\""), "{text}");
        let fields = |line: &str| line.replace("\"a \"\"server\"\", far away\"", "x").split(',').count();
        assert!(text.lines().all(|line| fields(line) == COLUMNS.split(',').count()), "{text}");
        // Eight cases on two targets and one on one: time and rate, and for nine of these the time until the
        // call returns.
        assert_eq!(text.lines().count(), 1 + 17 * 2 + 9);
    }

    #[test]
    fn json_holds_the_samples() {
        let value: serde_json::Value = serde_json::from_str(&json(&example())).unwrap();
        assert_eq!(value["cases"][1]["bytes"], 256);
        assert_eq!(value["cases"][1]["path"], "pageable_to_device");
        assert_eq!(value["targets"][1]["address"], "server:7690");
        let measured = &value["cases"][1]["outcomes"][0]["measured"];
        assert_eq!(measured["samples"]["done_us"].as_array().map(Vec::len), Some(3));
        assert!(value["cases"][8]["outcomes"][1]["refused"]["reason"].is_string());
    }

    #[test]
    fn all_files_are_written_into_a_folder_that_is_made() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("results");
        prepare(&folder).unwrap();
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
        let written = write(&folder, &example()).unwrap();
        let names = ["copy.csv", "copy.json", "copy-bandwidth.svg", "copy-latency.svg"];
        let expected: Vec<_> = names.iter().map(|name| folder.join(name)).collect();
        assert_eq!(written, expected);
        assert!(written.iter().all(|path| path.metadata().unwrap().len() > 100));
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        let error = prepare(&file.join("results")).unwrap_err().to_string();
        assert!(error.contains("file/results") && error.contains("cannot be made"), "{error}");
    }
}
