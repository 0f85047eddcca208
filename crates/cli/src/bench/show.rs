//! Output of results: tables on standard output, files in a folder, and an exit code.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use causeway_measure::files::{self, FilesError};

use super::error::ResultsError;

/// Makes the folder for results, before anything is measured.
pub fn prepare(folder: &Path) -> Result<(), ResultsError> {
    Ok(files::prepare(folder)?)
}

/// Prints tables, or JSON with nothing beside it, and has files written if a folder is named.
pub fn tables(
    text: &str,
    is_json: bool,
    folder: Option<&Path>,
    write: impl FnOnce(&Path) -> Result<Vec<PathBuf>, FilesError>,
) -> Result<(), ResultsError> {
    io::stdout().lock().write_all(text.as_bytes()).map_err(ResultsError::Print)?;
    if let Some(folder) = folder {
        let written = files::listed(&write(folder)?);
        let reported =
            if is_json { writeln!(io::stderr(), "{written}") } else { writeln!(io::stdout(), "\n{written}") };
        reported.map_err(ResultsError::Print)?;
    }
    Ok(())
}

/// Prints what went wrong; the exit code says whether anything did.
pub fn errors(errors: &[String]) -> ExitCode {
    for error in errors {
        // When nobody reads our standard error the exit code still tells.
        let _ = writeln!(io::stderr(), "causeway: {error}");
    }
    if errors.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
