//! Command line of `causeway bench mpi`, and that of its measuring program.

use core::fmt;
use core::str::FromStr;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use causeway_comm::UnknownChannel;
use causeway_config::table;
use causeway_link::TransportChoice;
use causeway_measure::sizes::Sizes;
use clap::{Args, ValueEnum};

use crate::duration::{fraction, seconds};
use crate::server::OnArguments;

/// Measure messages between the GPUs of an MPI program's ranks, by each channel, with the loops of the OSU
/// benchmarks.
///
/// Latency is half a round trip of blocking calls; bandwidth is that of a window of messages in one
/// direction, in 1e9 bytes a second; the message rate is that of the same loop. A window has at most 1 GiB of
/// messages. Short messages get all iterations, longer ones fewer, as in the OSU benchmarks. Each run starts
/// an MPI program once for each combination of GPU, placement and channel, in turn; results are medians of
/// the runs. The content of messages is compared before they are timed. Beside each result are the paths that
/// the messages took, with percentages if there was more than one.
///
/// The words after `--` are the MPI's launcher and its options. Default: mpirun.
#[derive(Debug, Args)]
pub struct MpiArguments {
    /// What is measured: latency, bandwidth (and message rate), bidirectional, copy (bare copies within a
    /// GPU, without messages), and the calls allreduce, bcast, allgather, alltoall, reduce, reduce-scatter
    /// (of equal blocks), gather, scatter and scan, each beside the same call through pinned memory of the
    /// host.
    #[arg(
        long,
        value_name = "KINDS",
        value_enum,
        value_delimiter = ',',
        default_value = "latency,bandwidth,bidirectional,copy",
        hide_possible_values = true
    )]
    pub kind: Vec<Kind>,
    /// Kinds of memory: gpu (cuMemAlloc), exportable (cuMemCreate, with a descriptor to be had), pool
    /// (cuMemAllocAsync), managed, pinned, pageable, and memory of the host that OpenCL has allocated and
    /// mapped (CL_MEM_ALLOC_HOST_PTR), for kernels that read and write it (opencl), write it alone
    /// (opencl-write-only) or read it alone (opencl-read-only).
    #[arg(
        long,
        value_name = "KINDS",
        value_enum,
        value_delimiter = ',',
        default_value = "gpu,exportable,pinned,pageable",
        hide_possible_values = true
    )]
    pub memory: Vec<Memory>,
    #[arg(long, help = channel_help(), value_name = "CHANNELS", value_delimiter = ',', default_value = "auto,ipc,vmm,staged")]
    pub channel: Vec<Channel>,
    /// Placement of the ranks: same (all in the same namespaces), isolated (each in namespaces of its own for
    /// processes, IPC, mounts and host name; needs root and unshare).
    #[arg(
        long,
        value_name = "PLACEMENTS",
        value_enum,
        value_delimiter = ',',
        default_value = "same",
        hide_possible_values = true
    )]
    pub placement: Vec<Placement>,
    /// Number of pairs of ranks that send at once; if several numbers are given, each is measured. Rates are
    /// those of all pairs together.
    #[arg(
        long,
        value_name = "COUNTS",
        value_delimiter = ',',
        default_value = "1",
        value_parser = clap::value_parser!(u32).range(1..=512)
    )]
    pub pairs: Vec<u32>,
    /// Sizes of messages: a list of sizes and ranges, such as 8,64K,1M..1G; in a range each size is twice the
    /// one before. If not given: 1..4M, with --quick some of them.
    #[arg(long, value_name = "SIZES", value_parser = sizes)]
    sizes: Option<Sizes>,
    /// Runs, each in processes of its own. If not given: 10, with --quick 2.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: Option<u32>,
    /// Start no further job after this time (seconds, or 90s, 10m, 2h), even if runs are left; each target is
    /// measured at least once.
    #[arg(long, value_name = "TIME", value_parser = seconds::<1, 86_400>)]
    pub time: Option<u32>,
    /// Time limit of one job, all sizes on one target: the job is then ended, and its target not
    /// measured again. Default: depends on how much is measured.
    #[arg(long, value_name = "TIME", value_parser = seconds::<1, 86_400>)]
    pub timeout: Option<u32>,
    /// Iterations for short messages in a run. If not given: 1000, with --quick 100.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    iterations: Option<u32>,
    /// Messages in flight when bandwidth is measured. Default: 64, with --quick 8.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1024))]
    window: Option<u32>,
    /// Maximum time of a loop (seconds, or 500ms); it then has fewer iterations. Default: 1, with --quick
    /// 0.1.
    #[arg(long, value_name = "TIME", value_parser = fraction::<60>)]
    budget: Option<Duration>,
    /// Report after the tables which channel is best for which sizes, and the CAUSEWAY_COMM_TABLE that
    /// selects it. Compares the channels that are measured separately.
    #[arg(long)]
    pub study: bool,
    /// Measure less: fewer sizes, runs and iterations.
    #[arg(long)]
    pub quick: bool,
    /// Measure on this machine's own GPU, with NVIDIA's libcuda.so.1.
    #[arg(long)]
    pub native: bool,
    #[command(flatten)]
    pub on: OnArguments,
    /// Transports to the server: auto, tcp, shm or verbs. If several are given, each is measured.
    #[arg(long, value_name = "MODULES", value_delimiter = ',', default_value = "auto")]
    pub via: Vec<TransportChoice>,
    /// The interposer for this MPI, as of `causeway mpirun`.
    #[arg(long, value_name = "FILE", env = table::MPI_LIBRARY.name)]
    pub library: Option<PathBuf>,
    /// The measuring program. If not given: causeway_mpi_bench beside the interposer.
    #[arg(long, value_name = "FILE")]
    pub program: Option<PathBuf>,
    /// Options of the launcher for `none` alone, such as "--mca pml ucx".
    #[arg(long, value_name = "OPTIONS", default_value = "", allow_hyphen_values = true)]
    pub launcher_options: String,
    /// A folder for the results: a table as CSV, everything with the single figures as JSON, pictures as SVG.
    /// It is made when it is not there.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// The launcher and its options.
    #[arg(last = true, value_name = "MPIRUN")]
    pub launcher: Vec<OsString>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    Latency,
    Bandwidth,
    Bidirectional,
    Copy,
    Allreduce,
    Bcast,
    Allgather,
    Alltoall,
    Reduce,
    ReduceScatter,
    Gather,
    Scatter,
    Scan,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Memory {
    Gpu,
    Exportable,
    Pool,
    Managed,
    Pinned,
    Pageable,
    Opencl,
    OpenclWriteOnly,
    OpenclReadOnly,
}

/// Help of `--channel`: with the names of all channels.
fn channel_help() -> String {
    use causeway_comm::Channel;
    let (between_hosts, within_host): (Vec<_>, Vec<_>) =
        Channel::ALL.into_iter().partition(|one| one.is_between_hosts());
    let names = |channels: Vec<Channel>, separator| {
        channels.into_iter().map(Channel::name).collect::<Vec<_>>().join(separator)
    };
    format!(
        "Channels, each measured by itself: auto (Causeway chooses), {}, {} (as between hosts, here through \
         this host's own network), none (without the interposer: how the MPI itself does it, if it takes \
         memory on GPUs). With one channel by itself, messages of 79 bytes and more use it; with auto, those \
         of at least CAUSEWAY_COMM_THRESHOLD bytes do",
        names(within_host, ", "),
        names(between_hosts, " and ")
    )
}

/// What carries the messages of a measurement: `auto`, `none`, or the name of a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Channel {
    /// Causeway chooses for each message.
    Auto,
    /// One channel by itself.
    Only(causeway_comm::Channel),
    /// The MPI without the interposer.
    None,
}

impl FromStr for Channel {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "none" => Ok(Self::None),
            _ => text.parse().map(Self::Only).map_err(|error: UnknownChannel| {
                format!("{error}; `auto` lets Causeway choose, `none` is the MPI without it")
            }),
        }
    }
}

impl fmt::Display for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Only(channel) => channel.fmt(f),
            Self::None => f.write_str("none"),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Placement {
    Same,
    Isolated,
}

/// The words of command lines.
pub fn name(value: &impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

fn sizes(text: &str) -> Result<Sizes, String> {
    let sizes: Sizes =
        text.parse().map_err(|error: causeway_measure::sizes::SizesError| error.to_string())?;
    if sizes.bytes().iter().any(|bytes| *bytes > 1 << 30) {
        return Err("messages of up to 1G are measured".to_owned());
    }
    Ok(sizes)
}

impl MpiArguments {
    /// How many runs there are.
    pub fn runs(&self) -> u32 {
        self.runs.unwrap_or(if self.quick { 2 } else { 10 })
    }

    fn sizes(&self) -> Vec<u64> {
        let default = || if self.quick { Sizes::steps(8, 4 << 20, 8) } else { Sizes::steps(1, 4 << 20, 2) };
        self.sizes.clone().unwrap_or_else(default).bytes().to_vec()
    }

    fn budget(&self) -> f64 {
        self.budget.map_or(if self.quick { 0.1 } else { 1.0 }, |time| time.as_secs_f64())
    }

    /// How long a job may take: one round of a window can be longer than its loop's time.
    pub fn timeout(&self) -> Duration {
        if let Some(seconds) = self.timeout {
            return Duration::from_secs(seconds.into());
        }
        let loops = self.kind.len() * self.memory.len() * self.sizes().len();
        Duration::from_secs(60) + Duration::from_secs_f64((1.0 + 10.0 * self.budget()) * loops as f64)
    }

    /// Arguments of the measuring program.
    pub fn plan(&self) -> [String; 6] {
        let list = |arguments: Vec<String>| arguments.join(",");
        let (iterations, window) = if self.quick { (100, 8) } else { (1000, 64) };
        [
            list(self.kind.iter().map(name).collect()),
            list(self.memory.iter().map(name).collect()),
            list(self.sizes().iter().map(u64::to_string).collect()),
            self.iterations.unwrap_or(iterations).to_string(),
            self.window.unwrap_or(window).to_string(),
            self.budget().to_string(),
        ]
    }
}

#[cfg(test)]
pub mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        arguments: MpiArguments,
    }

    pub fn parse(arguments: &[&str]) -> Result<MpiArguments, clap::Error> {
        Line::try_parse_from([&["mpi"], arguments].concat()).map(|line| line.arguments)
    }

    #[test]
    fn the_program_is_told_what_is_asked_for() {
        let arguments = parse(&["--quick", "--memory", "gpu,pool", "--kind", "latency", "--sizes", "8,1K"]);
        assert_eq!(arguments.unwrap().plan(), ["latency", "gpu,pool", "8,1024", "100", "8", "0.1"]);
        let arguments = parse(&["--window", "2", "--", "mpiexec", "--oversubscribe"]).unwrap();
        assert_eq!((arguments.plan()[4].as_str(), arguments.launcher.len()), ("2", 2));
        assert_eq!(arguments.sizes().len(), 23);
        let arguments = parse(&["--memory", "opencl,opencl-write-only,opencl-read-only"]).unwrap();
        assert_eq!(arguments.plan()[1], "opencl,opencl-write-only,opencl-read-only");
    }

    #[test]
    fn invalid_values_are_refused() {
        for arguments in [
            ["--memory", "paper"],
            ["--kind", "speed"],
            ["--channel", "gdr"],
            ["--sizes", "2G"],
            ["--budget", "0"],
            ["--pairs", "0"],
            ["--window", "2000"],
            ["--placement", "away"],
        ] {
            assert!(parse(&arguments).is_err(), "{arguments:?}");
        }
        let error = parse(&["--channel", "gdr"]).unwrap_err().to_string();
        assert!(error.contains("staged") && error.contains("`auto`") && error.contains("`none`"), "{error}");
    }
}
