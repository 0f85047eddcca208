//! Job: a program that measures and prints a row for each result. It is ended when it hangs.

use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use thiserror::Error;

/// The lines of a job's standard error that are reported when it fails: the first ones, since launchers say
/// farewell at the end.
const LINES: usize = 8;

/// Open MPI draws a line of at least so many dashes above and below what is its own.
const FRAME: usize = 20;

/// A row that makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("the measuring program printed an unexpected row: {0:?}; both programs must have the same version")]
pub struct BadRow(pub String);

/// Why a job brought no figures, or not all.
#[derive(Debug, Error)]
pub enum JobError {
    /// It does not start.
    #[error("{program} cannot be started: {cause}")]
    Start {
        /// The program.
        program: String,
        /// What the system said.
        cause: io::Error,
    },
    /// It fails.
    #[error("the job ended with {status}: {output}")]
    Failed {
        /// How.
        status: ExitStatus,
        /// Its first lines.
        output: String,
    },
    /// It does not end.
    #[error("the job was still running after {} seconds and was ended: {output}", limit.as_secs())]
    Hangs {
        /// How long it was waited for.
        limit: Duration,
        /// Its first lines.
        output: String,
    },
    /// What it says makes no sense.
    #[error(transparent)]
    Row(#[from] BadRow),
    /// It says nothing.
    #[error("the job succeeded but printed no row")]
    Nothing,
}

/// What came of a job.
#[derive(Debug)]
pub struct Outcome<R> {
    /// The rows that it has printed, up to its end or to the first that makes no sense.
    pub rows: Vec<R>,
    /// Why there are not all.
    pub error: Option<JobError>,
}

/// Runs a job until it ends, and gives its rows; `read` makes one of a line, if it is one. It is ended after
/// `limit`.
pub fn run<R>(
    command: &mut Command,
    limit: Duration,
    read: impl Fn(&str) -> Result<Option<R>, BadRow>,
) -> Outcome<R> {
    match finish(command, limit) {
        Ok((printed, mut failure)) => {
            let mut rows = Vec::new();
            for line in printed.lines() {
                match read(line) {
                    Ok(row) => rows.extend(row),
                    Err(error) => {
                        failure.get_or_insert(error.into());
                        break;
                    }
                }
            }
            if rows.is_empty() {
                failure.get_or_insert(JobError::Nothing);
            }
            Outcome { rows, error: failure }
        }
        Err(error) => Outcome { rows: Vec::new(), error: Some(error) },
    }
}

/// What a job has printed, and what went wrong.
fn finish(command: &mut Command, limit: Duration) -> Result<(String, Option<JobError>), JobError> {
    let program = command.get_program().to_string_lossy().into_owned();
    let failed = |cause| JobError::Start { program: program.clone(), cause };
    // Files, since nobody reads while it is waited for.
    let (mut out, mut errors) =
        (tempfile::tempfile().map_err(failed)?, tempfile::tempfile().map_err(failed)?);
    command.stdin(Stdio::null());
    command.stdout(out.try_clone().map_err(failed)?).stderr(errors.try_clone().map_err(failed)?);
    // SAFETY: between fork and exec one async-signal-safe call is made. Whoever ends this process ends the job.
    unsafe {
        command.pre_exec(|| {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM);
            Ok(())
        });
    }
    // A group of its own, so that nothing of it outlives its time.
    let mut child = command.process_group(0).spawn().map_err(failed)?;
    let until = Instant::now() + limit;
    let status = loop {
        match child.try_wait().map_err(failed)? {
            Some(status) => break Some(status),
            None if Instant::now() > until => break None,
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    if let Ok(group) = i32::try_from(child.id()) {
        // SAFETY: it is the group of a child that this process has started; none is there any more where all has ended.
        unsafe { libc::kill(-group, libc::SIGKILL) };
    }
    // It has ended, or does so now.
    let _ = child.wait();
    let mut output = || first_lines(&text(&mut errors));
    let error = match status {
        Some(status) if status.success() => None,
        Some(status) => Some(JobError::Failed { status, output: output() }),
        None => Some(JobError::Hangs { limit, output: output() }),
    };
    Ok((text(&mut out), error))
}

fn text(file: &mut File) -> String {
    let mut bytes = Vec::new();
    // What cannot be read was not said.
    let _ = file.rewind().and_then(|()| file.read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The first lines that are not the launcher's; its own where there are no others.
fn first_lines(text: &str) -> String {
    let is_frame = |line: &str| line.len() >= FRAME && line.bytes().all(|byte| byte == b'-');
    let lines: Vec<_> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let (mut own, mut launchers, mut contains) = (Vec::new(), Vec::new(), false);
    for line in lines {
        match line {
            line if is_frame(line) => contains = !contains,
            line if contains => launchers.push(line),
            line => own.push(line),
        }
    }
    let reported = if own.is_empty() { launchers } else { own };
    reported[..reported.len().min(LINES)].join(" / ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A row is a word and a number.
    fn read(line: &str) -> Result<Option<f64>, BadRow> {
        let Some(number) = line.strip_prefix("row ") else { return Ok(None) };
        number.parse().map(Some).map_err(|_| BadRow(line.to_owned()))
    }

    fn shell(script: &str, limit: Duration) -> Outcome<f64> {
        run(Command::new("sh").args(["-c", script]), limit, read)
    }

    #[test]
    fn rows_of_a_job_are_read() {
        let outcome = shell("echo hello; printf 'row 1.5\\nrow 2\\n'", Duration::from_secs(60));
        assert!(outcome.rows == [1.5, 2.0] && outcome.error.is_none(), "{outcome:?}");
    }

    #[test]
    fn what_a_job_said_first_is_told() {
        let limit = Duration::from_secs(60);
        let error_of = |script: &str| shell(script, limit).error.unwrap();
        let error = error_of("echo first >&2; echo last >&2; exit 3").to_string();
        assert!(error.contains("first / last") && error.contains('3'), "{error}");
        let many = error_of("seq 100 >&2; exit 3").to_string();
        assert!(many.contains("1 / 2") && !many.contains("100"), "{many}");
        assert!(matches!(error_of("true"), JobError::Nothing));
        assert!(matches!(error_of("echo row x"), JobError::Row(_)));
        let missing = run(&mut Command::new("/no/such/launcher"), limit, read).error.unwrap();
        let missing = missing.to_string();
        assert!(missing.contains("/no/such/launcher"), "{missing}");
    }

    #[test]
    fn a_launchers_farewell_is_told_where_there_is_nothing_else() {
        let dashes = "-".repeat(74);
        let farewell = format!("{dashes}\nMPI_ABORT was invoked on rank 0\n\nor exactly when.\n{dashes}\n");
        let output = format!("{farewell}{farewell}causeway_mpi_bench: gpu 8: wrong bytes\n{farewell}");
        assert_eq!(first_lines(&output), "causeway_mpi_bench: gpu 8: wrong bytes");
        assert_eq!(first_lines(&farewell), "MPI_ABORT was invoked on rank 0 / or exactly when.");
        assert_eq!(first_lines("-- short --"), "-- short --");
    }

    #[test]
    fn a_job_that_hangs_ends_with_all_that_it_has_started() {
        let limit = Duration::from_secs(2);
        let outcome = shell("echo waiting >&2; echo row 7; sleep 1000 & wait", limit);
        let is_told = matches!(&outcome.error, Some(JobError::Hangs { output, .. }) if output == "waiting");
        // What it has brought before is kept.
        assert!(is_told && outcome.rows == [7.0], "{outcome:?}");
    }
}
