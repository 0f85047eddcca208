//! How fast are copies, launches and waits, here and there?

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Duration;

use causeway_fabric::{ConnectOptions, Target as Server, TargetError, check};
use causeway_measure::case::{ARGUMENTS, Case, Direction, Path, Wait};
use causeway_measure::files::{self, FilesError};
use causeway_measure::plan::Plan;
use causeway_measure::protocol::MessageError;
use causeway_measure::results::{Kind, Run};
use causeway_measure::run::{Order, run};
use causeway_measure::sizes::{Sizes, SizesError};
use causeway_measure::table;
use causeway_measure::target::{Place, Target};
use causeway_server::broker::StartError;
use clap::{Args, Subcommand, ValueEnum};
use thiserror::Error;

use crate::embedded::Embedded;
use crate::launch;
use crate::library::{self, LibraryError};

/// Measure copies, launches and waits, on servers and on this machine's own GPU, in turns.
///
/// Each target gets a process of its own, which calls the CUDA driver as a program does. Repetition i is measured on every
/// target before repetition i + 1 on any, so that what disturbs the machine disturbs all alike. The content of copies is
/// compared before they are timed. When no target is named, a private server with the software GPU is measured.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Measure copies of all sizes: bandwidth, and the time of one copy.
    ///
    /// GB/s are 1e9 bytes a second, each byte counted once, over the time until the copy is done. `call us` is when the call
    /// returns, which from pageable memory may be earlier. `CPU s/GB` is the processor time that the program's process uses.
    Copy(CopyArguments),
    /// Measure calls that wait: copies of 8 bytes, a launch or an event and the wait for it, questions about an idle stream.
    Latency(Common),
    /// Measure launches of an empty kernel with arguments of several sizes, 1000 in a row.
    Launch(Common),
}

#[derive(Debug, Args)]
struct CopyArguments {
    /// Sizes: a list of sizes and ranges, such as 8,64K,1M..1G; in a range each size is twice the one before.
    /// If not given: 1..1G, with --quick every fourth of them up to 16M.
    #[arg(long, value_name = "SIZES", value_parser = |text: &str| text.parse::<Sizes>())]
    sizes: Option<Sizes>,
    /// Kinds of memory: pageable, pinned, async (pinned, 16 copies in a row, up to 64M), device (within the first device), peer
    /// (from the first device to the second).
    #[arg(
        long,
        value_name = "KINDS",
        value_enum,
        value_delimiter = ',',
        hide_possible_values = true,
        default_value = "pageable,pinned,async,device,peer"
    )]
    memory: Vec<Memory>,
    /// Directions of copies between host and device: to, from.
    #[arg(
        long,
        value_name = "DIRECTIONS",
        value_enum,
        value_delimiter = ',',
        hide_possible_values = true,
        default_value = "to,from"
    )]
    direction: Vec<Way>,
    #[command(flatten)]
    common: Common,
}

/// Kinds of memory on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Memory {
    Pageable,
    Pinned,
    Async,
    Device,
    Peer,
}

/// Directions on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Way {
    To,
    From,
}

#[derive(Debug, Args)]
struct Common {
    /// A server: HOST:PORT, or the connect string that `causeway serve` printed. May be given several times.
    #[arg(long, value_name = "SERVER", env = "CAUSEWAY_ON", hide_env_values = true, value_delimiter = ',')]
    on: Vec<String>,
    /// Measure this machine's own GPU, too, by NVIDIA's libcuda.so.1 or the library that CAUSEWAY_DRIVER names.
    #[arg(long)]
    native: bool,
    /// Repetitions of each case; copies of more than 32 MiB get as many as --budget allows, at least 5. If not given: 100.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    repetitions: Option<u32>,
    /// Seconds that the repetitions of one size may take on a target when it is more than 32 MiB. If not given: 1.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    budget: Option<Duration>,
    /// A short look: 10 repetitions, 0.2 seconds for a large size, fewer sizes.
    #[arg(long)]
    quick: bool,
    /// Do not compare the content of copies before they are timed.
    #[arg(long)]
    no_verify: bool,
    /// A folder for the results: tables as CSV, everything with the single times as JSON, plots as SVG and PNG. It is made
    /// when it is not there.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "this is not a number of seconds".to_owned())?;
    match Duration::try_from_secs_f64(seconds) {
        Ok(time) if seconds > 0.0 && seconds <= 3600.0 => Ok(time),
        _ => Err("this must be more than 0 and at most 3600 seconds".to_owned()),
    }
}

impl Common {
    fn plan(&self) -> Plan {
        let (repetitions, budget) =
            if self.quick { (10, Duration::from_millis(200)) } else { (100, Duration::from_secs(1)) };
        Plan {
            repetitions: self.repetitions.unwrap_or(repetitions),
            budget: self.budget.unwrap_or(budget),
            verify: !self.no_verify,
        }
    }

    /// The servers that are named.
    fn servers(&self) -> impl Iterator<Item = &str> {
        self.on.iter().map(|on| on.trim()).filter(|on| !on.is_empty())
    }
}

impl CopyArguments {
    fn paths(&self) -> Vec<Path> {
        let wanted = |path: &Path| {
            let memory = match path {
                Path::PageableToDevice | Path::PageableFromDevice => Memory::Pageable,
                Path::PinnedToDevice | Path::PinnedFromDevice => Memory::Pinned,
                Path::AsyncToDevice | Path::AsyncFromDevice => Memory::Async,
                Path::WithinDevice => Memory::Device,
                Path::Peer => Memory::Peer,
            };
            let way = match path.direction() {
                Direction::ToDevice => Some(Way::To),
                Direction::FromDevice => Some(Way::From),
                Direction::Device => None,
            };
            self.memory.contains(&memory) && way.is_none_or(|way| self.direction.contains(&way))
        };
        Path::ALL.into_iter().filter(wanted).collect()
    }

    fn cases(&self) -> Vec<Case> {
        let sizes = match &self.sizes {
            Some(sizes) => sizes.clone(),
            None if self.common.quick => Sizes::steps(1, 16 << 20, 4),
            None => Sizes::steps(1, 1 << 30, 2),
        };
        let of_path = |path: Path| {
            let sizes = sizes.bytes().iter().copied().filter(move |bytes| path.takes(*bytes));
            sizes.map(move |bytes| Case::Copy { path, bytes }).collect::<Vec<_>>()
        };
        self.paths().into_iter().flat_map(of_path).collect()
    }
}

/// The arguments of the process that measures one target.
#[derive(Debug, Args)]
pub struct MeasureArguments {
    /// The library whose functions are called.
    #[arg(long)]
    library: PathBuf,
    /// Whether it must be NVIDIA's own.
    #[arg(long)]
    native: bool,
}

/// Measures one target as its parent asks on standard input.
pub fn measure(arguments: &MeasureArguments) -> Result<ExitCode, MessageError> {
    causeway_measure::child::serve(&arguments.library, arguments.native)?;
    Ok(ExitCode::SUCCESS)
}

/// Why nothing was measured, or results are lost.
#[derive(Debug, Error)]
pub enum BenchError {
    /// A server's address makes no sense.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// There is no client library.
    #[error(transparent)]
    Library(#[from] LibraryError),
    /// The private server does not start.
    #[error(transparent)]
    Embedded(#[from] StartError),
    /// The choice leaves no case.
    #[error(
        "there is nothing to measure: asynchronous copies go up to 64 MiB, and copies of pageable and pinned memory need a direction"
    )]
    Nothing,
    /// The list of sizes makes no sense.
    #[error(transparent)]
    Sizes(#[from] SizesError),
    /// The results cannot be written.
    #[error(transparent)]
    Files(#[from] FilesError),
    /// Nobody reads the tables.
    #[error("the results cannot be printed: {0}")]
    Print(io::Error),
    /// The system does not say where this program is.
    #[error("the system does not say where the program causeway is: {0}")]
    Executable(io::Error),
}

/// Measures; the exit code says whether all targets were measured to the end and every byte was right.
pub fn bench(arguments: &Arguments) -> Result<ExitCode, BenchError> {
    let (kind, cases, common) = match &arguments.what {
        What::Copy(copy) => (Kind::Copy, copy.cases(), &copy.common),
        What::Latency(common) => (Kind::Latency, Wait::ALL.map(|wait| Case::Wait { wait }).to_vec(), common),
        What::Launch(common) => {
            (Kind::Launch, ARGUMENTS.map(|arguments| Case::Launches { arguments }).to_vec(), common)
        }
    };
    if cases.is_empty() {
        return Err(BenchError::Nothing);
    }
    if let Some(folder) = &common.out {
        files::prepare(folder)?;
    }
    let (targets, embedded) = targets(common)?;
    let run = run(Order {
        kind,
        command: command_line(std::env::args_os()),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        cases,
        plan: common.plan(),
        targets,
    });
    // Its workers have ended with the processes that measured.
    drop(embedded);
    finish(&run, common)
}

/// Shows and keeps what was measured.
fn finish(run: &Run, common: &Common) -> Result<ExitCode, BenchError> {
    if run.has_figures() {
        io::stdout().lock().write_all(table::text(run).as_bytes()).map_err(BenchError::Print)?;
        if let Some(folder) = &common.out {
            let written = files::write(folder, run)?;
            let names: Vec<_> = written.iter().map(|path| path.display().to_string()).collect();
            writeln!(io::stdout().lock(), "\nwritten: {}", names.join(", ")).map_err(BenchError::Print)?;
        }
    }
    let troubles = run.troubles();
    for trouble in &troubles {
        // When nobody reads our standard error the exit code still tells.
        let _ = writeln!(io::stderr(), "causeway: {trouble}");
    }
    if !run.has_figures() && troubles.is_empty() {
        for refusal in run.refusals() {
            let _ = writeln!(io::stderr(), "causeway: {refusal}");
        }
    }
    Ok(if troubles.is_empty() && run.has_figures() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

type Targets = Vec<(Target, Result<Command, String>)>;

/// What is to be measured, the native GPU first, and the private server if it is needed.
fn targets(common: &Common) -> Result<(Targets, Option<Embedded>), BenchError> {
    let executable = std::env::current_exe().map_err(BenchError::Executable)?;
    let mut targets = Targets::new();
    if common.native {
        let driver = std::env::var_os("CAUSEWAY_DRIVER").filter(|driver| !driver.is_empty());
        let mut command = Command::new(&executable);
        command.arg("measure").arg("--native").arg("--library");
        command.arg(driver.unwrap_or_else(|| "libcuda.so.1".into()));
        targets.push((Target { name: "native".to_owned(), place: Place::Native }, Ok(command)));
    }
    let mut servers = Vec::new();
    for on in common.servers() {
        let server: Server = on.parse()?;
        servers.push((server.to_string(), server));
    }
    let mut embedded = None;
    if servers.is_empty() && !common.native {
        let private = embedded.insert(Embedded::start(false)?);
        servers.push(("software GPU".to_owned(), private.target().clone()));
    }
    let library = if servers.is_empty() { None } else { Some(library::folder()?) };
    for (name, server) in servers {
        let Some(folder) = &library else { break };
        let place = Place::Server { address: server.to_string(), via: None };
        let program = [
            executable.clone().into_os_string(),
            "measure".into(),
            "--library".into(),
            folder.join("libcuda.so.1").into_os_string(),
        ];
        // Trouble is told here in one sentence; the others are measured all the same.
        let reachable = check(&server, &ConnectOptions::default()).map_err(|error| error.to_string());
        let command = reachable.map(|()| launch::command(&program, &server, folder));
        targets.push((Target { name, place }, command));
    }
    Ok((targets, embedded))
}

/// The command line as it goes into files: without keys.
fn command_line(arguments: impl Iterator<Item = OsString>) -> String {
    let words: Vec<_> = arguments.map(|word| without_keys(&word.to_string_lossy())).collect();
    words.join(" ")
}

/// A word of a command line in which every key of a connect string is left out.
fn without_keys(word: &str) -> String {
    const SCHEME: &str = "causeway://";
    let mut pieces = word.split(SCHEME);
    let mut out = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        // Up to the next server of a list; a key has neither of these characters.
        let server = piece.split(',').next().unwrap_or_default();
        let rest = match server.rsplit_once('@') {
            Some((key, _)) => format!("...{}", &piece[key.len()..]),
            None => piece.to_owned(),
        };
        out += SCHEME;
        out += &rest;
    }
    out
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        bench: Arguments,
    }

    fn copy(words: &[&str]) -> CopyArguments {
        let line = Line::try_parse_from([&["causeway", "copy"], words].concat());
        match line.unwrap_or_else(|error| panic!("{error}")).bench.what {
            What::Copy(copy) => copy,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn all_sizes_of_all_paths_are_measured() {
        let cases = copy(&[]).cases();
        // 31 powers of two, of which 27 fit in a row of asynchronous copies.
        assert_eq!(cases.len(), 6 * 31 + 2 * 27);
        assert_eq!(cases[0], Case::Copy { path: Path::PageableToDevice, bytes: 1 });
        assert_eq!(copy(&["--quick"]).cases().len(), 8 * 13);
    }

    #[test]
    fn a_choice_is_kept_to() {
        let cases = copy(&["--memory", "pinned,peer", "--direction", "from", "--sizes", "8,1M"]).cases();
        let paths = [Path::PinnedFromDevice, Path::Peer];
        let expected =
            paths.into_iter().flat_map(|path| [8, 1 << 20].map(|bytes| Case::Copy { path, bytes }));
        assert_eq!(cases, expected.collect::<Vec<_>>());
        assert!(copy(&["--memory", "async", "--sizes", "128M"]).cases().is_empty());
    }

    #[test]
    fn what_is_asked_for_goes_before_quick() {
        let plan = copy(&["--quick", "--repetitions", "50", "--no-verify"]).common.plan();
        assert_eq!(plan, Plan { repetitions: 50, budget: Duration::from_millis(200), verify: false });
        assert_eq!(copy(&["--budget", "2.5"]).common.plan().budget, Duration::from_millis(2500));
    }

    #[test]
    fn mistakes_are_refused() {
        for words in [
            &["--sizes", "many"][..],
            &["--sizes", "0"],
            &["--memory", "paper"],
            &["--direction", "up"],
            &["--repetitions", "0"],
            &["--budget", "0"],
            &["--budget", "nan"],
        ] {
            assert!(Line::try_parse_from([&["causeway", "copy"], words].concat()).is_err(), "{words:?}");
        }
    }

    #[test]
    fn keys_stay_out_of_files() {
        let words =
            ["causeway", "--on", "causeway://SECRET@host:1", "--on=causeway://SECRET@a,causeway://b:2,x@y"];
        let line = command_line(words.into_iter().map(OsString::from));
        assert_eq!(line, "causeway --on causeway://...@host:1 --on=causeway://...@a,causeway://b:2,x@y");
        assert_eq!(without_keys("causeway://a@b@c"), "causeway://...@c");
    }
}
