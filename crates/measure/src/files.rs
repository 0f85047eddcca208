//! Result files: CSV, JSON and plots.

use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;
use thiserror::Error;

use crate::machine::Machine;
use crate::plot::{self, Plot, PlotError};
use crate::table::heading;

/// Why the results are not on disk.
#[derive(Debug, Error)]
pub enum FilesError {
    /// The folder cannot be made.
    #[error("cannot create the folder {} for the results: {cause}", folder.display())]
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

/// Writes `NAME.csv`, `NAME.json` and a picture for each plot; returns what was written.
pub fn write_all(
    folder: &Path,
    name: &str,
    csv: &str,
    json: &str,
    results: &[Plot],
) -> Result<Vec<PathBuf>, FilesError> {
    let mut files = vec![(format!("{name}.csv"), csv.to_owned()), (format!("{name}.json"), json.to_owned())];
    for plot in results {
        files.push((format!("{}.svg", plot.name), plot::svg(plot)?));
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

/// What stands in a line of CSV: names of columns, and what is in them.
pub type Fields = Vec<(&'static str, String)>;

/// Lines of CSV below a head, all with the same columns; empty without lines.
pub fn csv(lines: impl Iterator<Item = Fields>) -> String {
    let mut out = String::new();
    for (number, line) in lines.enumerate() {
        let (names, values): (Vec<_>, Vec<_>) =
            line.into_iter().map(|(name, value)| (name, quoted(value))).unzip();
        if number == 0 {
            out = names.join(",") + "\n";
        }
        out += &(values.join(",") + "\n");
    }
    out
}

/// A field of CSV, in quotes where it needs them.
fn quoted(text: String) -> String {
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}

/// The small print of figures: what lines show, with what they are compared, which release measured, and
/// where.
pub fn caption(version: &str, date: &str, machine: &Machine, reference: Option<&str>) -> Vec<String> {
    let ratios = reference.map(|name| format!("; ratios to {name}")).unwrap_or_default();
    let heading = heading(version, date, machine).trim_end().to_owned();
    vec![format!("medians, 5th to 95th percentile{ratios}"), heading]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_cannot_be_made_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        let error = prepare(&file.join("results")).unwrap_err().to_string();
        assert!(error.contains("file/results") && error.contains("cannot create the folder"), "{error}");
    }
}
