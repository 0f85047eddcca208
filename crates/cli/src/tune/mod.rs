//! `causeway tune`: finds and stores the copy plans that suit a server.
//!
//! | module | contents |
//! | --- | --- |
//! | `search` | Search for the best copy plan: which plans are tried |
//! | `show` | Output of `causeway tune` |

mod search;
mod show;

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use causeway_api::calls::COMMANDS;
use causeway_config::Size;
use causeway_link::describe_process;
use causeway_measure::child::tuner::{Tuner, TunerError};
use causeway_pipeline::profile::{self, FORM, Pair};
use causeway_pipeline::{
    Change, Direction, Measured, Plan, Profile, ProfileError, Rule, Table, TransportKind,
};
use causeway_sync::spin;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use thiserror::Error;

use crate::keys::HandOverError;
use crate::launch::{self, LaunchError};
use crate::library::{self, LibraryError};
use crate::server::{ServerArguments, ServerError};
use search::{Found, Limits, Step};

/// How long all repetitions may take.
const TIME: Duration = Duration::from_secs(45);
const QUICK_TIME: Duration = Duration::from_secs(2);

/// Repetitions of a plan: below these a median says nothing, above those it says nothing new.
const MIN_REPETITIONS: usize = 4;
const MAX_REPETITIONS: usize = 60;

/// Measure how copies to a server are fastest, and store the result for later runs.
///
/// Copies data of several sizes in both directions, by the built-in plans and by others in turn, in less than
/// a minute. Plans that are significantly faster are written to a profile for this pair of machines, which
/// programs use from then on; CAUSEWAY_PIPELINE takes precedence over it. Nothing else should use the server
/// or the network meanwhile.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    server: ServerArguments,
    /// Print the stored profiles, and measure nothing.
    #[arg(long)]
    show: bool,
    /// With --show: print the profiles as JSON.
    #[arg(long, requires = "show")]
    json: bool,
    /// Measure fewer sizes, in a few seconds.
    #[arg(long)]
    quick: bool,
}

/// The arguments of the process that measures.
#[derive(Debug, Args)]
pub struct HereArguments {
    /// The client library.
    #[arg(long)]
    library: PathBuf,
    /// Whether fewer sizes are measured.
    #[arg(long)]
    quick: bool,
}

/// Why nothing was measured or kept.
#[derive(Debug, Error)]
pub enum TuneError {
    /// There is no server, or it does not answer as it should.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// The process that measures would not find the server's key.
    #[error(transparent)]
    Keys(#[from] HandOverError),
    /// There is no client library.
    #[error(transparent)]
    Library(#[from] LibraryError),
    /// The process that measures does not start.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// The session cannot be measured.
    #[error(transparent)]
    Tuner(#[from] TunerError),
    /// The client library carries copies in a way that this program does not know.
    #[error(
        "the client library transfers copies over `{0}`, which this program does not support: they are of \
         different releases"
    )]
    UnknownModule(String),
    /// The profile cannot be kept or read.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// The system does not say where this program is.
    #[error("the path of the program causeway cannot be determined: {0}")]
    Executable(io::Error),
    /// Nobody reads the results.
    #[error("cannot print the results: {0}")]
    Print(#[from] io::Error),
}

/// Measures in a process that has the client library in front of the machine's own, or draws what is kept.
pub fn tune(arguments: &Arguments) -> Result<ExitCode, TuneError> {
    if arguments.show {
        let folder = profile::folder()?;
        return if arguments.json { print_all(&folder) } else { draw_all(&folder) };
    }
    // Before a minute is spent for nothing.
    profile::prepare(&profile::folder()?)?;
    if let Some(warning) = busy(&std::fs::read_to_string("/proc/loadavg").unwrap_or_default(), processors()) {
        // Without a standard error it cannot be said.
        let _ = writeln!(io::stderr(), "causeway: warning: {warning}");
    }
    let folder = library::folder()?;
    let server = arguments.server.one_server()?;
    arguments.server.report_private(&server)?;
    arguments.server.check(&server)?;
    let executable = std::env::current_exe().map_err(TuneError::Executable)?;
    let mut program: Vec<OsString> = vec![executable.into(), "tune-here".into(), "--library".into()];
    program.push(folder.join("libcuda.so.1").into());
    program.extend(arguments.quick.then(|| "--quick".into()));
    let mut command = launch::command(&program, &folder);
    server.hand_over(&mut command)?;
    if let Some(via) = arguments.server.via_of_program(&server).map_err(ServerError::from)? {
        command.env(causeway_config::table::VIA.name, via.to_string());
    }
    let status = launch::run_program(command)?;
    drop(server);
    Ok(launch::end_like(status))
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// What to say of measurements on a machine that is busy with other things, by the load of its last minute.
fn busy(loads: &str, processors: usize) -> Option<String> {
    let load: f64 = loads.split_whitespace().next()?.parse().ok()?;
    (load > processors as f64).then(|| {
        format!(
            "this machine is busy (load {load:.1} on {processors} processors), so the results may be wrong: \
             repeat the measurement when nothing else runs"
        )
    })
}

/// Prints the profiles that are kept as JSON, and says which cannot be read.
fn print_all(folder: &Path) -> Result<ExitCode, TuneError> {
    let (mut profiles, mut damaged) = (Vec::new(), Vec::new());
    for profile in Profile::all(folder)? {
        match profile {
            Ok(profile) => profiles.push(profile),
            Err(error) => damaged.push(error.to_string()),
        }
    }
    let all = serde_json::json!({ "folder": folder, "profiles": profiles, "damaged": damaged });
    writeln!(io::stdout().lock(), "{all:#}")?;
    Ok(ExitCode::SUCCESS)
}

fn draw_all(folder: &Path) -> Result<ExitCode, TuneError> {
    let profiles = Profile::all(folder)?;
    let mut out = io::stdout().lock();
    if profiles.is_empty() {
        writeln!(
            out,
            "There are no profiles in {}; `causeway tune --on SERVER` creates one.",
            folder.display()
        )?;
    }
    for (at, profile) in profiles.into_iter().enumerate() {
        match profile {
            Ok(profile) => {
                let gap = if at == 0 { "" } else { "\n" };
                write!(out, "{gap}{}", show::text(&profile, SystemTime::now()))?;
            }
            Err(error) => {
                // When nobody reads our standard error there is nobody to tell.
                let _ = writeln!(io::stderr(), "causeway: {error}");
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Measures, prints the gain for each size, and keeps the profile.
pub fn tune_here(arguments: &HereArguments) -> Result<ExitCode, TuneError> {
    let steps = search::steps(arguments.quick);
    let max = steps.iter().map(|step| step.bytes).max().unwrap_or_default();
    let tuner = Tuner::open(&arguments.library, max)?;
    let [server, device, name, client] = tuner.pair().clone();
    let module = TransportKind::named(&name);
    let module = module.ok_or_else(|| TuneError::UnknownModule(name.clone()))?;
    let lanes = describe_process(COMMANDS, Vec::new()).lanes as usize;
    let limits = Limits { lanes, cores: spin::cores() };
    let cases: Vec<_> = Direction::ALL
        .into_iter()
        .flat_map(|direction| steps.iter().map(move |step| (direction, step)))
        .collect();
    let time = if arguments.quick { QUICK_TIME } else { TIME };
    let measuring = Measuring {
        tuner: &tuner,
        module,
        limits,
        time: time / (2 * cases.len() as u32),
        bar: bar(cases.len()),
    };
    let mut table = Table::default();
    let mut sizes = Vec::new();
    let mut last = String::new();
    for (direction, step) in cases {
        measuring.bar.set_message(format!("{direction} {}{last}", Size(step.bytes as u64)));
        let before = tuner.built_in(direction, step.bytes)?;
        let (plan, medians) = measuring.find(before, direction, step)?;
        if plan != before {
            table.rules.push(search::rule(module, direction, step, plan));
        }
        last = format!("; before {:.2} GB/s", step.bytes as f64 / medians[1] / 1e9);
        sizes.push(Measured {
            direction: direction.name().to_owned(),
            bytes: step.bytes as u64,
            plans: [before, plan].map(|plan| plan.to_string()),
            rates: medians.map(|median| step.bytes as f64 / median),
        });
    }
    measuring.bar.finish_and_clear();
    let now = SystemTime::now();
    let profile = Profile {
        form: FORM,
        pair: Pair { server, device, module: name, client },
        device_name: tuner.device_name()?,
        measured_at: now.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs()),
        pipeline: table.to_string(),
        sizes,
    };
    let path = profile.write(&profile::folder()?)?;
    let mut out = io::stdout().lock();
    write!(out, "{}", show::text(&profile, now))?;
    let (changed, all) =
        (profile.sizes.iter().filter(|size| size.plans[0] != size.plans[1]).count(), profile.sizes.len());
    writeln!(
        out,
        "\n{changed} of {all} plans are faster than the built-in ones. Stored in {}",
        path.display()
    )?;
    Ok(ExitCode::SUCCESS)
}

fn bar(cases: usize) -> ProgressBar {
    let bar = ProgressBar::new(2 * cases as u64);
    let style = ProgressStyle::with_template("causeway: measuring [{bar:30}] {percent}% {msg}, {eta} left");
    style.map_or_else(|_| bar.clone(), |style| bar.clone().with_style(style))
}

/// What all measurements have in common.
struct Measuring<'a> {
    tuner: &'a Tuner,
    module: TransportKind,
    limits: Limits,
    /// For one comparison of plans.
    time: Duration,
    bar: ProgressBar,
}

impl Measuring<'_> {
    /// The best plan for a size, and the median times of the `first` one, which is built in, and of that one,
    /// in seconds.
    fn find(&self, first: Plan, direction: Direction, step: &Step) -> Result<(Plan, [f64; 2]), TuneError> {
        let pieces = search::by_pieces(first, step.bytes);
        let best = pieces[search::quickest(&self.compare(direction, step.bytes, &pieces)?)];
        let workers = search::by_workers(self.module, first, best, self.limits);
        let Found { plan, medians } = search::choose(&self.compare(direction, step.bytes, &workers)?);
        Ok((workers[plan], medians))
    }

    /// Repeats a copy with each plan in turns; the times of each, in seconds.
    fn compare(
        &self,
        direction: Direction,
        bytes: usize,
        plans: &[Plan],
    ) -> Result<Vec<Vec<f64>>, TuneError> {
        let texts: Vec<_> = plans.iter().map(|plan| fixed(*plan)).collect();
        let mut times = vec![Vec::new(); plans.len()];
        let started = Instant::now();
        // The first round makes staging and threads, and is not counted.
        for round in 0..=MAX_REPETITIONS {
            if round > MIN_REPETITIONS && started.elapsed() > self.time {
                break;
            }
            for (text, times) in texts.iter().zip(&mut times) {
                self.tuner.use_plans(text)?;
                let time = self.tuner.time_copy(direction == Direction::ToDevice, bytes)?;
                if round > 0 {
                    times.push(time.as_secs_f64());
                }
            }
        }
        self.bar.inc(1);
        Ok(times)
    }
}

/// A table that has one plan for everything.
fn fixed(plan: Plan) -> String {
    let rule = Rule { module: None, direction: None, sizes: 0..u64::MAX, change: Change::to(plan) };
    Table { rules: vec![rule] }.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_machine_is_warned_of() {
        assert!(busy("16.58 14.79 13.51 3/400 9\n", 2).unwrap().contains("load 16.6 on 2 processors"));
        assert_eq!(busy("1.90 14.79 13.51 3/400 9\n", 2), None);
        assert_eq!(busy("", 2), None);
    }
}
