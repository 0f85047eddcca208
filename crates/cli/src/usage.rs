//! `causeway usage`: an audit log, summed up.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use jiff::Timestamp;
use serde_json::{Value, json};
use thiserror::Error;

use crate::watch::{bytes, short};

/// Sum up the use of a server, from its audit log.
///
/// Counts sessions that have ended. The hours of kernels are the sum of all kernels' times; only the software
/// GPU measures them. The peak memory is the most device memory that one session had at a time.
/// `causeway serve --audit-log` names the log; give several files if it was rotated. Users, jobs, hosts and
/// programs are reported by clients; clients, groups and addresses are verified by the server. A damaged line,
/// as after a full disk, is skipped with a warning.
#[derive(Debug, Args)]
pub struct Arguments {
    /// The files of the audit log.
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Columns by which sessions are grouped, separated by commas.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [By::Client, By::User])]
    by: Vec<By>,
    /// Count only sessions that ended at this time or later: 2027-01-31T00:00:00Z.
    #[arg(long, value_name = "TIME")]
    since: Option<Timestamp>,
    /// Print it as JSON.
    #[arg(long)]
    json: bool,
}

/// What sessions have in common that are summed up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum By {
    /// The client that has a key of its own.
    Client,
    /// The group that the client or local user was in when the session began.
    Group,
    /// The user on the client's host.
    User,
    /// The job of the client's batch system.
    Job,
    /// The client's host.
    Host,
    /// The program.
    Program,
    /// The network address.
    Address,
}

impl By {
    fn field(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Group => "group",
            Self::User => "user",
            Self::Job => "job",
            Self::Host => "host",
            Self::Program => "program",
            Self::Address => "address",
        }
    }
}

/// Why nothing is summed up.
#[derive(Debug, Error)]
pub enum UsageError {
    /// A file cannot be read.
    #[error("cannot read the audit log {path}: {cause}", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
    /// A file is no audit log.
    #[error("{path} is no audit log: none of its lines is one that `causeway serve --audit-log` writes", path = path.display())]
    NoLog {
        /// The file.
        path: PathBuf,
    },
    /// Nothing can be printed.
    #[error("standard output failed: {0}")]
    Print(#[from] io::Error),
}

/// What the sessions of one row have done.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Sum {
    sessions: u64,
    seconds: f64,
    waited: f64,
    /// Of the sessions on back ends that measure it; nothing where there are none.
    kernels: Option<f64>,
    /// Of the session that had most.
    peak_memory: u64,
    launches: u64,
    to_device: u64,
    from_device: u64,
}

impl Sum {
    fn add(&mut self, line: &Value) {
        let number = |field: &str| line[field].as_f64().unwrap_or(0.0);
        let count = |sum: u64, field: &str| sum.saturating_add(line[field].as_u64().unwrap_or(0));
        self.sessions += 1;
        self.seconds += number("seconds");
        self.waited += number("seconds_waited_for_gpu");
        if let Some(seconds) = line["kernel_seconds"].as_f64() {
            self.kernels = Some(self.kernels.unwrap_or(0.0) + seconds);
        }
        self.peak_memory = self.peak_memory.max(line["peak_device_memory"].as_u64().unwrap_or(0));
        self.launches = count(self.launches, "launches");
        self.to_device = count(self.to_device, "bytes_to_device");
        self.from_device = count(self.from_device, "bytes_from_device");
    }
}

/// By the values of what is summed up by.
type Sums = BTreeMap<Vec<String>, Sum>;

/// Prints the sums.
pub fn usage(arguments: &Arguments) -> Result<ExitCode, UsageError> {
    print(&sums(arguments)?, arguments)?;
    Ok(ExitCode::SUCCESS)
}

/// What the files say.
fn sums(arguments: &Arguments) -> Result<Sums, UsageError> {
    let mut sums = Sums::new();
    for path in &arguments.files {
        let failed = |cause| UsageError::Read { path: path.clone(), cause };
        // A damaged line may be no UTF-8 either.
        let lines = BufReader::new(File::open(path).map_err(failed)?).split(b'\n');
        let (mut known, mut damaged) = (0_u64, Vec::new());
        for (at, line) in lines.enumerate() {
            match parse(&line.map_err(failed)?) {
                Some(line) => {
                    known += 1;
                    count(&mut sums, arguments, &line);
                }
                None => damaged.push(at + 1),
            }
        }
        match (known, damaged.first()) {
            (_, None) => {}
            (0, Some(_)) => return Err(UsageError::NoLog { path: path.clone() }),
            (_, Some(first)) => {
                // Without a standard error it cannot be said.
                let _ = writeln!(
                    io::stderr(),
                    "causeway: warning: {}:{first} is damaged and skipped: {} of {} lines in all",
                    path.display(),
                    damaged.len(),
                    known + damaged.len() as u64
                );
            }
        }
    }
    Ok(sums)
}

/// A line of an audit log, where it is one.
fn parse(line: &[u8]) -> Option<Value> {
    serde_json::from_slice(line).ok().filter(|line: &Value| line["event"].is_string())
}

/// Adds what a line says of a session that has ended.
fn count(sums: &mut Sums, arguments: &Arguments, line: &Value) {
    let time = || line["time"].as_str()?.parse::<Timestamp>().ok();
    let is_late = arguments.since.is_none_or(|since| time().is_some_and(|time| time >= since));
    if line["event"] == "session-ends" && is_late {
        let of = |by: &By| line[by.field()].as_str().unwrap_or_default().to_owned();
        sums.entry(arguments.by.iter().map(of).collect()).or_default().add(line);
    }
}

fn print(sums: &Sums, arguments: &Arguments) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if arguments.json {
        let rows = sums.iter().map(|(values, sum)| {
            let mut row = json!({
                "sessions": sum.sessions,
                "seconds": sum.seconds,
                "seconds_waited_for_gpu": sum.waited,
                "kernel_seconds": sum.kernels,
                "peak_device_memory": sum.peak_memory,
                "launches": sum.launches,
                "bytes_to_device": sum.to_device,
                "bytes_from_device": sum.from_device,
            });
            for (by, value) in arguments.by.iter().zip(values) {
                row[by.field()] = Value::from(value.as_str());
            }
            row
        });
        return writeln!(out, "{:#}", json!({ "usage": rows.collect::<Vec<_>>() }));
    }
    let heads = arguments.by.iter().map(|by| by.field().to_owned());
    let sums_heads = [
        "sessions",
        "hours",
        "waited, h",
        "kernels, h",
        "most memory",
        "launches",
        "to device",
        "from device",
    ];
    let mut table = vec![heads.chain(sums_heads.map(str::to_owned)).collect::<Vec<_>>()];
    table.extend(sums.iter().map(|(values, sum)| {
        let text = values.iter().map(|value| if value.is_empty() { "-".to_owned() } else { value.clone() });
        let hours = |seconds: f64| format!("{:.2}", seconds / 3600.0);
        let numbers = [
            sum.sessions.to_string(),
            hours(sum.seconds),
            hours(sum.waited),
            sum.kernels.map_or_else(|| "-".to_owned(), hours),
            bytes(sum.peak_memory as f64),
            short(sum.launches as f64),
            bytes(sum.to_device as f64),
            bytes(sum.from_device as f64),
        ];
        text.chain(numbers).collect()
    }));
    let width = |column: usize| table.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<_> = (0..table[0].len()).map(width).collect();
    for row in &table {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        writeln!(out, "{}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(by: &[By], since: Option<&str>) -> Arguments {
        let since = since.map(|text| text.parse().unwrap());
        Arguments { files: Vec::new(), by: by.to_vec(), since, json: false }
    }

    #[test]
    fn damaged_lines_are_left_out_and_what_is_no_log_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        let whole = b"{\"event\":\"session-ends\",\"client\":\"ada\"}\n";
        let read = |text: &[u8]| {
            std::fs::write(&path, text).unwrap();
            let arguments = Arguments { files: vec![path.clone()], ..arguments(&[By::Client], None) };
            sums(&arguments).map(|sums| sums.values().map(|sum| sum.sessions).sum::<u64>())
        };
        assert_eq!(read(&[whole, b"{\"ti\xc3".as_slice()].concat()).unwrap(), 1);
        assert_eq!(read(&[whole, b"{\"ti\n".as_slice(), whole].concat()).unwrap(), 2);
        assert_eq!(read(b"").unwrap(), 0);
        for other in [b"5\n".as_slice(), b"{}\n", b"nonsense\n"] {
            assert!(matches!(read(other), Err(UsageError::NoLog { .. })));
        }
    }

    #[test]
    fn sessions_that_ended_are_summed_up() {
        let lines = [
            r#"{"event":"session-begins","client":"ada","job":"slurm 1"}"#,
            r#"{"event":"session-ends","time":"2027-01-01T00:00:00Z","client":"ada","group":"staff","job":"slurm 1","seconds":1.5,"launches":2,"kernel_seconds":0.5,"peak_device_memory":9}"#,
            r#"{"event":"session-ends","time":"2027-01-02T00:00:00Z","client":"ada","job":"slurm 2","seconds":2.5,"launches":3,"kernel_seconds":null,"peak_device_memory":4}"#,
            r#"{"event":"session-ends","time":"2027-01-03T00:00:00Z","client":null,"seconds":4}"#,
            r#"{"event":"refused","client":null,"why":"full"}"#,
        ];
        let sums = |arguments: Arguments| {
            let mut sums = Sums::new();
            let lines = lines.iter().map(|line| parse(line.as_bytes()).expect(line));
            lines.for_each(|line| count(&mut sums, &arguments, &line));
            sums
        };
        let by_client = sums(arguments(&[By::Client], None));
        let ada = by_client[&vec!["ada".to_owned()]];
        assert_eq!((ada.sessions, ada.seconds, ada.launches), (2, 4.0, 5));
        assert_eq!((ada.kernels, ada.peak_memory), (Some(0.5), 9));
        let unnamed = by_client[&vec![String::new()]];
        assert_eq!((unnamed.sessions, unnamed.kernels), (1, None));
        let by_group = sums(arguments(&[By::Group], None));
        assert_eq!(
            (by_group[&vec!["staff".to_owned()]].sessions, by_group[&vec![String::new()]].sessions),
            (1, 2)
        );
        let by_both = sums(arguments(&[By::Client, By::Job], Some("2027-01-02T00:00:00Z")));
        assert_eq!(by_both.keys().flatten().collect::<Vec<_>>(), ["", "", "ada", "slurm 2"]);
    }
}
