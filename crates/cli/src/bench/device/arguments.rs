//! Command line of `causeway bench device`, and that of its measuring program.

use std::path::PathBuf;
use std::time::Duration;

use causeway_link::TransportChoice;
use clap::{Args, ValueEnum};

use crate::duration::seconds;
use crate::server::OnArguments;

/// Measure kernels that communicate by themselves: what a put, a signal, an atomic operation and a barrier
/// cost, by each way, and what a stencil gains by them.
///
/// Ranks are kernels of one process on one GPU. `direct` stores into the peer's memory, `proxy` has a thread
/// of the host move the bytes (`host memory`: by itself, between windows in the host's memory), `chosen` is
/// what the library takes for each message. `hybrid` is a kernel that polls and ends, after which the host
/// sends; `host transfer` is the host's copies alone. Each run starts the measuring program once on every
/// target, in turn, which measures all ways of a kind in turn; figures are medians of the runs. Bytes are
/// compared. What must hold is said behind the tables, for two ranks on one data-centre GPU.
#[derive(Debug, Args)]
pub struct DeviceArguments {
    /// What is measured: latency, flight (puts with others in flight, and bandwidth to a full queue),
    /// bandwidth (one large put by blocks), rate (signals by threads and by blocks), calls (time of a post,
    /// atomic operations), verbs (posts to a network card that only counts, which needs none), barrier, stencil,
    /// energy (of the GPU, where NVML counts it).
    #[arg(
        long,
        value_name = "KINDS",
        value_enum,
        value_delimiter = ',',
        default_value = "latency,flight,bandwidth,rate,calls,verbs,barrier,stencil,energy",
        hide_possible_values = true
    )]
    kind: Vec<Kind>,
    /// Runs, each in a process of its own. If not given: 10, with --quick 2.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: Option<u32>,
    /// Begin no other run after this time (seconds, or 90s, 10m, 2h), however many were asked for; each
    /// target is tried once.
    #[arg(long, value_name = "TIME", value_parser = seconds::<1, 86_400>)]
    pub time: Option<u32>,
    /// Time that one run on one target may take: it is ended then, its figures so far count, and its
    /// target is not tried again.
    #[arg(
        long,
        value_name = "TIME",
        default_value_t = 120,
        value_parser = seconds::<1, 86_400>
    )]
    timeout: u32,
    /// How many GPUs there are for the ranks, which get them in turn. Their memory must be within each other's
    /// reach.
    #[arg(long, value_name = "COUNT", default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..=8))]
    pub devices: u32,
    /// A short look: small sizes and few rounds. Always so on the software GPU of a private server.
    #[arg(long)]
    quick: bool,
    /// Measure on this machine's own GPU, with NVIDIA's libcuda.so.1.
    #[arg(long)]
    pub native: bool,
    #[command(flatten)]
    pub on: OnArguments,
    /// What carries calls and copies to the server: auto, tcp, shm or verbs. Of several, each is measured. A
    /// team needs memory that program and GPU share, so over a network there is none.
    #[arg(long, value_name = "MODULES", value_delimiter = ',', default_value = "auto")]
    pub via: Vec<TransportChoice>,
    /// The measuring program. If not given: causeway_device_bench beside the program causeway, or that of the
    /// package causeway-dev.
    #[arg(long, value_name = "FILE")]
    pub program: Option<PathBuf>,
    /// The library that makes teams. If not given: libcauseway_comm.so beside the program causeway, or in
    /// ../lib/causeway.
    #[arg(long, value_name = "FILE")]
    pub library: Option<PathBuf>,
    /// Print everything with the single figures as JSON, in place of tables.
    #[arg(long)]
    pub json: bool,
    /// A folder for the results: a table as CSV, everything with the single figures as JSON, pictures as SVG.
    /// It is made when it is not there, and written after each run.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

/// Kinds on the command line; the measuring program has the same names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    Latency,
    Flight,
    Bandwidth,
    Rate,
    Calls,
    Verbs,
    Barrier,
    Stencil,
    Energy,
}

impl Kind {
    fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

impl DeviceArguments {
    /// How many runs there are.
    pub fn runs(&self) -> u32 {
        self.runs.unwrap_or(if self.quick { 2 } else { 10 })
    }

    /// How long a run on one target may take.
    pub fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout.into())
    }

    /// Arguments of the measuring program: kinds, how often it measures them, on how many devices where that is
    /// more than one, and whether in small.
    pub fn plan(&self, is_software: bool) -> Vec<String> {
        let kinds: Vec<_> = self.kind.iter().map(|kind| kind.name()).collect();
        let quick = (self.quick || is_software).then(|| "quick".to_owned());
        let devices = (self.devices > 1).then(|| self.devices.to_string());
        [kinds.join(","), "1".to_owned()].into_iter().chain(devices).chain(quick).collect()
    }
}

#[cfg(test)]
pub mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        arguments: DeviceArguments,
    }

    pub fn parse(arguments: &[&str]) -> Result<DeviceArguments, clap::Error> {
        Line::try_parse_from([&["device"], arguments].concat()).map(|line| line.arguments)
    }

    #[test]
    fn the_program_is_told_what_is_asked_for() {
        let arguments = parse(&["--kind", "latency,stencil", "--native"]).unwrap();
        assert_eq!(arguments.plan(false), ["latency,stencil", "1"]);
        assert_eq!(arguments.plan(true), ["latency,stencil", "1", "quick"]);
        assert_eq!((arguments.runs(), arguments.timeout().as_secs()), (10, 120));
        let arguments = parse(&["--kind", "rate", "--devices", "2"]).unwrap();
        assert_eq!(arguments.plan(true), ["rate", "1", "2", "quick"]);
        assert!(parse(&["--devices", "0"]).is_err());
        let arguments = parse(&["--quick"]).unwrap();
        assert_eq!((arguments.plan(false).len(), arguments.runs()), (3, 2));
        assert_eq!(arguments.plan(false)[0].split(',').count(), 9);
    }

    #[test]
    fn invalid_values_are_refused() {
        for arguments in [["--kind", "speed"], ["--runs", "0"], ["--time", "0"], ["--timeout", "0"]] {
            assert!(parse(&arguments).is_err(), "{arguments:?}");
        }
    }
}
