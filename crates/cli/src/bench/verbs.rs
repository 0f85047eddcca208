//! What can be asked of `causeway bench verbs`, and how is it carried out? The measuring itself is `causeway_measure::verbs`.

use std::io::{self, Write as _};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::path::PathBuf;
use std::process::ExitCode;

use causeway_measure::files::{self, FilesError};
use causeway_measure::sizes::Sizes;
use causeway_measure::verbs::case::{Case, LONGEST, Operation, Quantity};
use causeway_measure::verbs::control::DEFAULT_PORT;
use causeway_measure::verbs::far::{ListenError, listen};
use causeway_measure::verbs::near::{MeasureError, Order, measure};
use causeway_measure::verbs::report;
use causeway_measure::verbs::results::Tool;
use causeway_measure::verbs::sweep::Varied;
use clap::{ArgGroup, Args, ValueEnum};
use thiserror::Error;

use super::arguments::Arguments;
use super::targets::command_line;
use crate::server::KeyArguments;

/// Measure the RDMA devices of two machines through verbs: sends, RDMA reads and RDMA writes, by size, number of queue pairs, queue
/// capacity and path MTU.
///
/// Run `causeway bench verbs --listen` on one machine and `causeway bench verbs --to HOST` on the other. Beside the devices they use a
/// TCP connection without encryption, on which they agree about queue pairs: listen only where you trust the network. Repetition i is
/// measured with every setting before repetition i + 1 with any. The content of a message is compared before it is timed.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("side").required(true))]
pub struct VerbsArguments {
    /// Be the end that is measured against, until it is ended. ADDRESS is this machine's own, and a port may follow.
    #[arg(long, value_name = "ADDRESS", group = "side", num_args = 0..=1, default_missing_value = "0.0.0.0")]
    listen: Option<String>,
    /// Measure, with the machine on which `causeway bench verbs --listen` runs.
    #[arg(long, value_name = "HOST", group = "side")]
    to: Option<String>,
    /// This machine's RDMA device, such as mlx5_0. If not given: the one that has the address of the TCP connection, or else the fastest.
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    #[command(flatten)]
    measuring: Measuring,
}

#[derive(Debug, Args)]
struct Measuring {
    /// What is varied: default (one queue pair, capacity 128, the port's MTU), queue-pairs (1, 2, 4), capacity (2 to 256), mtu (256 to
    /// 4096), both (1 queue pair of capacity 2, and 2 of 128). If not given: all, with --compare default alone.
    #[arg(long, value_name = "SWEEPS", value_enum, value_delimiter = ',', hide_possible_values = true)]
    sweep: Vec<Sweep>,
    /// Operations: send, read, write.
    #[arg(
        long,
        value_name = "OPERATIONS",
        value_enum,
        value_delimiter = ',',
        default_value = "send,read,write",
        hide_possible_values = true
    )]
    operation: Vec<Way>,
    /// What carries them: verbs (queue pairs, with nothing between), links (Causeway's own: their messages beside sends, and their
    /// memory beside writes).
    #[arg(
        long,
        value_name = "LAYERS",
        value_enum,
        value_delimiter = ',',
        default_value = "verbs,links",
        hide_possible_values = true
    )]
    through: Vec<Layer>,
    /// Memory that goes through links comes from pageable memory, by way of staging. If not given, it is registered with the card, as
    /// a program's pinned memory is, and as perftest's.
    #[arg(long)]
    pageable: bool,
    /// What is asked of them: bandwidth, latency.
    #[arg(
        long,
        value_name = "QUANTITIES",
        value_enum,
        value_delimiter = ',',
        default_value = "bandwidth,latency",
        hide_possible_values = true
    )]
    quantity: Vec<What>,
    /// Sizes of messages: a list of sizes and ranges, such as 64,4K,64K..1M; in a range each size is twice the one before. If not
    /// given: 2..8M, with --quick every second of them.
    #[arg(long, value_name = "SIZES", value_parser = sizes)]
    sizes: Option<Sizes>,
    /// Repetitions of each size with each setting. If not given: 100, with --quick 10.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    repetitions: Option<u32>,
    /// A short look: 10 repetitions, fewer sizes.
    #[arg(long)]
    quick: bool,
    /// Run another tool in turns with the same settings, and print the ratio: perftest, which must be installed on both machines.
    #[arg(long, value_name = "TOOL", value_enum)]
    compare: Option<Compare>,
    /// Then measure copies to and from the first GPU of this server over verbs, through everything that a program's copies pass: HOST:PORT, or
    /// the connect string that `causeway serve` printed. As `causeway bench copy --via verbs`, with the same sizes and repetitions.
    #[arg(long, value_name = "SERVER")]
    on: Option<String>,
    #[command(flatten)]
    keys: KeyArguments,
    /// A folder for the results: a table as CSV, everything with the single samples as JSON, plots as SVG and PNG; those of --on in a folder
    /// `copies` in it. It is made when it is not there.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Sweep {
    Default,
    QueuePairs,
    Capacity,
    Mtu,
    Both,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Way {
    Send,
    Read,
    Write,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Layer {
    Verbs,
    Links,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum What {
    Bandwidth,
    Latency,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Compare {
    Perftest,
}

fn sizes(text: &str) -> Result<Sizes, String> {
    let sizes: Sizes =
        text.parse().map_err(|error: causeway_measure::sizes::SizesError| error.to_string())?;
    if sizes.bytes().iter().any(|bytes| *bytes > LONGEST) {
        return Err("messages are measured up to 8 MiB".to_owned());
    }
    Ok(sizes)
}

/// Why nothing was measured between RDMA devices, or results are lost.
#[derive(Debug, Error)]
pub enum VerbsError {
    /// An address makes no sense.
    #[error("`{text}` is no address of a machine: {cause}")]
    Address {
        /// What was given.
        text: String,
        /// What the system said.
        cause: io::Error,
    },
    /// Nobody is served.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// Nothing was measured.
    #[error(transparent)]
    Measure(#[from] MeasureError),
    /// The results cannot be written.
    #[error(transparent)]
    Files(#[from] FilesError),
    /// Nobody reads the tables.
    #[error("the results cannot be printed: {0}")]
    Print(io::Error),
}

/// An address of a machine, with a port or without.
fn address(text: &str) -> Result<SocketAddr, VerbsError> {
    let bare = text.trim_start_matches('[').trim_end_matches(']');
    if let Ok(address) = bare.parse::<IpAddr>() {
        return Ok(SocketAddr::new(address, DEFAULT_PORT));
    }
    let found =
        if text.contains(':') { text.to_socket_addrs() } else { (text, DEFAULT_PORT).to_socket_addrs() };
    let failed = |cause| VerbsError::Address { text: text.to_owned(), cause };
    let mut found = found.map_err(failed)?;
    found.next().ok_or_else(|| failed(io::Error::other("it has no address")))
}

/// Listens, or measures.
pub fn verbs(arguments: &VerbsArguments) -> Result<ExitCode, VerbsError> {
    let device = arguments.device.as_deref();
    if let Some(text) = &arguments.listen {
        let at = address(text)?;
        let say = |line: &str| {
            // Serving goes on when nobody reads.
            let _ = writeln!(io::stdout().lock(), "{line}");
        };
        return Err(listen(at, device, say).into());
    }
    let to = address(arguments.to.as_deref().unwrap_or_default())?;
    let measuring = &arguments.measuring;
    if let Some(folder) = &measuring.out {
        files::prepare(folder)?;
    }
    let run = measure(Order {
        to,
        device: device.map(str::to_owned),
        varied: measuring.varied(),
        cases: measuring.cases(),
        registers: !measuring.pageable,
        repetitions: measuring.repetitions(),
        tools: measuring.tools(),
        command: command_line(std::env::args_os()),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    })?;
    io::stdout().lock().write_all(report::text(&run).as_bytes()).map_err(VerbsError::Print)?;
    if let Some(folder) = &measuring.out {
        let written = report::write(folder, &run)?;
        let names: Vec<_> = written.iter().map(|path| path.display().to_string()).collect();
        writeln!(io::stdout().lock(), "\nwritten: {}", names.join(", ")).map_err(VerbsError::Print)?;
    }
    Ok(ExitCode::SUCCESS)
}

impl VerbsArguments {
    /// What is to be measured of the whole stack, if anything.
    pub fn copies(&self) -> Option<Arguments> {
        let Measuring { on, out, .. } = &self.measuring;
        let (sizes, repetitions) = (self.measuring.sizes(), self.measuring.repetitions());
        let out = out.as_ref().map(|folder| folder.join("copies"));
        on.as_ref().map(|server| {
            Arguments::copies_over_verbs(server, self.measuring.keys.clone(), sizes, repetitions, out)
        })
    }
}

impl Measuring {
    fn sizes(&self) -> Sizes {
        self.sizes.clone().unwrap_or_else(|| Sizes::steps(2, LONGEST, if self.quick { 4 } else { 2 }))
    }

    fn repetitions(&self) -> u32 {
        self.repetitions.unwrap_or(if self.quick { 10 } else { 100 })
    }

    fn varied(&self) -> Vec<Varied> {
        let named = self.sweep.iter().map(|sweep| match sweep {
            Sweep::Default => Varied::Nothing,
            Sweep::QueuePairs => Varied::QueuePairs,
            Sweep::Capacity => Varied::Capacity,
            Sweep::Mtu => Varied::Mtu,
            Sweep::Both => Varied::Both,
        });
        match (self.sweep.is_empty(), self.compare) {
            (false, _) => named.collect(),
            (true, Some(_)) => vec![Varied::Nothing],
            (true, None) => Varied::ALL.to_vec(),
        }
    }

    fn tools(&self) -> Vec<Tool> {
        let layers = self.through.iter().map(|layer| match layer {
            Layer::Verbs => Tool::Verbs,
            Layer::Links => Tool::Link,
        });
        layers.chain(self.compare.map(|_| Tool::Perftest)).collect()
    }

    fn cases(&self) -> Vec<Case> {
        let sizes = self.sizes();
        let mut cases = Vec::new();
        for what in &self.quantity {
            let quantity = match what {
                What::Bandwidth => Quantity::Bandwidth,
                What::Latency => Quantity::Latency,
            };
            for way in &self.operation {
                let operation = match way {
                    Way::Send => Operation::Send,
                    Way::Read => Operation::Read,
                    Way::Write => Operation::Write,
                };
                cases.extend(sizes.bytes().iter().map(|bytes| Case { operation, quantity, bytes: *bytes }));
            }
        }
        cases
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        verbs: VerbsArguments,
    }

    fn parse(words: &[&str]) -> Result<VerbsArguments, clap::Error> {
        Line::try_parse_from([&["causeway"], words].concat()).map(|line| line.verbs)
    }

    #[test]
    fn everything_is_measured_unless_something_is_named() {
        let all = parse(&["--to", "far"]).unwrap().measuring;
        assert_eq!(all.varied(), Varied::ALL);
        assert_eq!(all.cases().len(), 2 * 3 * 23);
        let words = [
            "--to",
            "far",
            "--sweep",
            "mtu,both",
            "--operation",
            "read",
            "--quantity",
            "latency",
            "--sizes",
            "64,8M",
        ];
        let some = parse(&words).unwrap().measuring;
        assert_eq!(some.varied(), [Varied::Mtu, Varied::Both]);
        assert_eq!(some.cases().len(), 2);
        assert_eq!(parse(&["--to", "far", "--quick"]).unwrap().measuring.cases().len(), 2 * 3 * 12);
        let compared = parse(&["--to", "far", "--compare", "perftest"]).unwrap().measuring;
        assert_eq!(compared.varied(), [Varied::Nothing]);
        assert_eq!(compared.tools(), [Tool::Verbs, Tool::Link, Tool::Perftest]);
    }

    #[test]
    fn copies_are_measured_where_a_server_is_named() {
        let copies = |words: &[&str]| parse(words).unwrap().copies().map(|copies| copies.cases().len());
        assert_eq!(copies(&["--to", "far", "--sizes", "64,1M"]), None);
        // Two kinds of memory and two directions.
        assert_eq!(copies(&["--to", "far", "--sizes", "64,1M", "--on", "far"]), Some(2 * 4));
    }

    #[test]
    fn one_side_is_named_and_not_both() {
        for words in [
            &[][..],
            &["--to", "far", "--listen"],
            &["--to", "far", "--sizes", "16M"],
            &["--to", "far", "--compare", "iperf"],
        ] {
            assert!(parse(words).is_err(), "{words:?}");
        }
        assert_eq!(parse(&["--listen"]).unwrap().listen.as_deref(), Some("0.0.0.0"));
    }

    #[test]
    fn addresses_have_a_port_whether_or_not_one_is_named() {
        let port = |text: &str| address(text).unwrap().to_string();
        assert_eq!(port("10.0.0.1"), "10.0.0.1:7691");
        assert_eq!(port("10.0.0.1:80"), "10.0.0.1:80");
        assert_eq!(port("fe80::1"), "[fe80::1]:7691");
        assert_eq!(port("[fe80::1]:80"), "[fe80::1]:80");
        assert_eq!(port("localhost").rsplit(':').next(), Some("7691"));
        assert!(address("no such host").is_err());
    }
}
