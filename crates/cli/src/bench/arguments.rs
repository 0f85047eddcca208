//! Command line of `causeway bench`, and the cases that follow from it.

use std::path::PathBuf;
use std::time::Duration;

use causeway_link::TransportChoice;
use causeway_measure::case::{ARGUMENTS, Case, Direction, Path, Wait};
use causeway_measure::pipeline::FIXED;
use causeway_measure::results::Kind;
use causeway_measure::schedule::Plan;
use causeway_measure::sizes::Sizes;
use causeway_pipeline::{PipelineError, Table};
use clap::{Args, Subcommand, ValueEnum};

use crate::duration::fraction;
use crate::server::OnArguments;

/// What is measured of GPUs.
#[derive(Debug, Subcommand)]
pub enum Arguments {
    /// Measure copies of all sizes: bandwidth, and the time of one copy.
    ///
    /// GB/s are 1e9 bytes a second, each byte counted once, over the time until the copy is done. `call us` is when the call
    /// returns, which from pageable memory may be earlier. `CPU s/GB` is the processor time that the program's process uses.
    Copy(CopyArguments),
    /// Measure calls that wait: copies of 8 bytes, a launch or an event and the wait for it, queries of an
    /// idle stream.
    Latency(Common),
    /// Measure launches of an empty kernel with arguments of several sizes, 1000 in a row.
    Launch(Common),
    /// Compare the plans that Causeway chooses for copies by their size with fixed plans.
    ///
    /// For each size, every other repetition determines the best fixed plan, and the rest compare it with the
    /// adaptive choice. The test passes if the adaptive choice is nowhere more than 5 % behind, and ahead on
    /// average.
    Pipeline(PipelineArguments),
}

#[derive(Debug, Args)]
pub struct CopyArguments {
    /// Sizes: a list of sizes and ranges, such as 8,64K,1M..1G; in a range each size is twice the one before.
    /// If not given: 1..1G, with --quick every second of them up to 16M; for `pipeline` 64K to 256M, each four times the last.
    #[arg(long, value_name = "SIZES", value_parser = |text: &str| text.parse::<Sizes>())]
    sizes: Option<Sizes>,
    /// Kinds of memory: pageable, pinned, async (pinned, 16 copies in a row, up to 64M), device (within the first device), peer
    /// (from the first device to the second; alone, with several servers, these are one target with the devices of all). If not
    /// given: all; for `pipeline` pageable and pinned.
    #[arg(long, value_name = "KINDS", value_enum, value_delimiter = ',', hide_possible_values = true)]
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
    direction: Vec<DirectionOption>,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
pub struct PipelineArguments {
    /// A fixed plan to compare with, in the language of CAUSEWAY_PIPELINE, such as "8x4M, 8 lanes, 4 threads". May be given
    /// several times. If not given: nine plans from small to large. All are measured in one session, which has as many lanes as
    /// it opens by itself or as CAUSEWAY_LANES says.
    #[arg(long, value_name = "PLAN", value_parser = plan)]
    fixed: Vec<String>,
    #[command(flatten)]
    copy: CopyArguments,
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
enum DirectionOption {
    To,
    From,
}

/// Options of every kind of measurement.
#[derive(Debug, Args)]
pub struct Common {
    #[command(flatten)]
    pub on: OnArguments,
    /// Transports for calls and copies: auto, tcp, shm or verbs. If several are given, each is measured.
    #[arg(long, value_name = "MODULES", value_delimiter = ',')]
    pub via: Vec<TransportChoice>,
    /// Measure this machine's own GPU, too, by NVIDIA's libcuda.so.1 or the library that CAUSEWAY_DRIVER names.
    #[arg(long)]
    pub native: bool,
    /// Repetitions of each case; copies of more than 32 MiB get as many as their time allows (--budget), at least 5. If not
    /// given: 100, for `pipeline` 40.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    repetitions: Option<u32>,
    /// Time (seconds, or 500ms, 10m) that the repetitions of one size may take on a target when it is more
    /// than 32 MiB. If not given: 1.
    #[arg(long, value_name = "TIME", value_parser = fraction::<3600>)]
    budget: Option<Duration>,
    /// Print everything, with the single times, as JSON instead of tables.
    #[arg(long)]
    pub json: bool,
    /// Measure less: 10 repetitions, 0.2 seconds for a large size, fewer sizes.
    #[arg(long)]
    quick: bool,
    /// Folder for the results: tables as CSV, everything with the single times as JSON, plots as SVG. It is
    /// created if it does not exist.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

fn plan(text: &str) -> Result<String, PipelineError> {
    Table::parse(text).map(|_| text.to_owned())
}

impl Arguments {
    /// Which kind of measurement it is.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Copy(_) => Kind::Copy,
            Self::Latency(_) => Kind::Latency,
            Self::Launch(_) => Kind::Launch,
            Self::Pipeline(_) => Kind::Pipeline,
        }
    }

    /// Options of every kind.
    pub fn common(&self) -> &Common {
        match self {
            Self::Copy(copy) => &copy.common,
            Self::Latency(common) | Self::Launch(common) => common,
            Self::Pipeline(pipeline) => &pipeline.copy.common,
        }
    }

    /// Whether several servers are one target: copies between devices alone, which may be those of two servers.
    pub fn joins_servers(&self) -> bool {
        matches!(self, Self::Copy(copy) if copy.memory == [Memory::Peer])
    }

    /// The fixed plans that each server is measured with besides its own choice.
    pub fn fixed_plans(&self) -> Vec<String> {
        match self {
            Self::Pipeline(pipeline) if pipeline.fixed.is_empty() => FIXED.map(str::to_owned).to_vec(),
            Self::Pipeline(pipeline) => pipeline.fixed.clone(),
            _ => Vec::new(),
        }
    }

    /// How much is measured.
    pub fn plan(&self) -> Plan {
        let common = self.common();
        let (repetitions, budget) = match self.kind() {
            _ if common.quick => (10, Duration::from_millis(200)),
            Kind::Pipeline => (40, Duration::from_secs(1)),
            _ => (100, Duration::from_secs(1)),
        };
        Plan {
            repetitions: common.repetitions.unwrap_or(repetitions),
            budget: common.budget.unwrap_or(budget),
        }
    }

    /// What is measured.
    pub fn cases(&self) -> Vec<Case> {
        const ALL: [Memory; 5] =
            [Memory::Pageable, Memory::Pinned, Memory::Async, Memory::Device, Memory::Peer];
        match self {
            Self::Copy(copy) if copy.common.quick => copy.cases(&Sizes::steps(1, 16 << 20, 4), &ALL),
            Self::Copy(copy) => copy.cases(&Sizes::steps(1, 1 << 30, 2), &ALL),
            Self::Latency(_) => Wait::ALL.map(|wait| Case::Wait { wait }).to_vec(),
            Self::Launch(_) => ARGUMENTS.map(|arguments| Case::Launches { arguments }).to_vec(),
            Self::Pipeline(PipelineArguments { copy, .. }) => {
                let max = if copy.common.quick { 16 << 20 } else { 256 << 20 };
                copy.cases(&Sizes::steps(64 << 10, max, 4), &ALL[..2])
            }
        }
    }
}

impl CopyArguments {
    /// The cases, where these sizes and kinds of memory are meant when none are named.
    fn cases(&self, sizes: &Sizes, memory: &[Memory]) -> Vec<Case> {
        let sizes = self.sizes.as_ref().unwrap_or(sizes);
        let memory = if self.memory.is_empty() { memory } else { &self.memory };
        let wanted = |path: &Path| {
            let kind = match path {
                Path::PageableToDevice | Path::PageableFromDevice => Memory::Pageable,
                Path::PinnedToDevice | Path::PinnedFromDevice => Memory::Pinned,
                Path::AsyncToDevice | Path::AsyncFromDevice => Memory::Async,
                Path::WithinDevice => Memory::Device,
                Path::Peer => Memory::Peer,
            };
            let direction = match path.direction() {
                Direction::ToDevice => Some(DirectionOption::To),
                Direction::FromDevice => Some(DirectionOption::From),
                Direction::Device => None,
            };
            memory.contains(&kind) && direction.is_none_or(|direction| self.direction.contains(&direction))
        };
        let of_path = |path: Path| {
            let sizes = sizes.bytes().iter().copied().filter(move |bytes| path.takes(*bytes));
            sizes.map(move |bytes| Case::Copy { path, bytes }).collect::<Vec<_>>()
        };
        Path::ALL.into_iter().filter(wanted).flat_map(of_path).collect()
    }
}

#[cfg(test)]
mod tests {
    use causeway_link::TransportKind;
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(subcommand)]
        bench: Arguments,
    }

    fn parse(arguments: &[&str]) -> Result<Arguments, clap::Error> {
        Line::try_parse_from([&["causeway"], arguments].concat()).map(|line| line.bench)
    }

    fn bench(arguments: &[&str]) -> Arguments {
        parse(arguments).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn all_sizes_of_all_paths_are_measured() {
        let cases = bench(&["copy"]).cases();
        // 31 powers of two, of which 27 fit in a row of asynchronous copies.
        assert_eq!(cases.len(), 6 * 31 + 2 * 27);
        assert_eq!(cases[0], Case::Copy { path: Path::PageableToDevice, bytes: 1 });
        assert_eq!(bench(&["copy", "--quick"]).cases().len(), 8 * 13);
        assert_eq!(bench(&["pipeline"]).cases().len(), 4 * 7);
    }

    #[test]
    fn a_choice_is_kept_to() {
        let cases =
            bench(&["copy", "--memory", "pinned,peer", "--direction", "from", "--sizes", "8,1M"]).cases();
        let paths = [Path::PinnedFromDevice, Path::Peer];
        let expected =
            paths.into_iter().flat_map(|path| [8, 1 << 20].map(|bytes| Case::Copy { path, bytes }));
        assert_eq!(cases, expected.collect::<Vec<_>>());
        assert!(bench(&["copy", "--memory", "async", "--sizes", "128M"]).cases().is_empty());
        assert!(bench(&["copy", "--memory", "peer"]).joins_servers());
        assert!(!bench(&["copy", "--memory", "pinned,peer"]).joins_servers());
        assert_eq!(bench(&["pipeline", "--fixed", "8x4M, 2 lanes"]).fixed_plans(), ["8x4M, 2 lanes"]);
        assert_eq!(bench(&["pipeline"]).fixed_plans().len(), FIXED.len());
        let vias = [TransportKind::Tcp, TransportKind::Shm].map(TransportChoice::Only);
        assert_eq!(bench(&["launch", "--via", "tcp,shm"]).common().via, vias);
    }

    #[test]
    fn what_is_asked_for_goes_before_quick() {
        let plan = bench(&["copy", "--quick", "--repetitions", "50"]).plan();
        assert_eq!(plan, Plan { repetitions: 50, budget: Duration::from_millis(200) });
        assert_eq!(bench(&["latency", "--budget", "2.5"]).plan().budget, Duration::from_millis(2500));
    }

    #[test]
    fn invalid_values_are_refused() {
        for arguments in [
            &["--sizes", "many"][..],
            &["--sizes", "0"],
            &["--memory", "paper"],
            &["--direction", "up"],
            &["--repetitions", "0"],
            &["--budget", "0"],
            &["--budget", "nan"],
            &["--via", "pigeon"],
        ] {
            assert!(parse(&[&["copy"], arguments].concat()).is_err(), "{arguments:?}");
        }
        assert!(parse(&["pipeline", "--fixed", "many lanes"]).is_err());
    }

    #[test]
    fn the_plans_that_are_compared_are_in_the_language_of_plans() {
        for plan in FIXED {
            assert!(Table::parse(plan).is_ok(), "{plan}");
        }
    }
}
