//! Command line.

use std::path::PathBuf;

use causeway_measure::sizes::{Sizes, SizesError};
use clap::{ArgGroup, Parser};

use crate::case::{Case, MAX_MESSAGE_BYTES, Operation, Quantity};
use crate::results::Tool;
use crate::sweep::Varied;

/// Measure the RDMA devices of two machines: sends, RDMA reads and RDMA writes, by size, number of queue
/// pairs, queue capacity and path MTU.
///
/// Run `fabric-perf --listen` on one machine and `fabric-perf --to HOST` on the other. They set up queue pairs
/// over an unencrypted TCP connection: listen only on a trusted network. Repetition i is measured with every
/// setting before repetition i + 1 with any. The content of messages is verified before they are timed. Each
/// message is split over all queue pairs. Gains are also averaged over ranges of sizes.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100, group = ArgGroup::new("side").required(true))]
pub struct Arguments {
    /// Listen for measurements as the responder, until terminated. ADDRESS is one of this machine's, with an
    /// optional port.
    #[arg(long, value_name = "ADDRESS", group = "side", num_args = 0..=1, default_missing_value = "0.0.0.0")]
    pub listen: Option<String>,
    /// Measure against the machine on which `fabric-perf --listen` runs.
    #[arg(long, value_name = "HOST", group = "side")]
    pub to: Option<String>,
    /// This machine's RDMA device, such as mlx5_0. Default: the device with the address of the TCP connection,
    /// otherwise the fastest.
    #[arg(long, value_name = "NAME")]
    pub device: Option<String>,
    /// Settings to vary: default (one queue pair, capacity 128, the port's MTU), queue-pairs (1 to 4), capacity
    /// (2 to 256), mtu (256 to 4096, one queue pair), mtu-of-two (the same with two), both (1 queue pair of
    /// capacity 2, and 2 of 128). Default: all; with perftest only default.
    #[arg(long, value_name = "SWEEPS", value_enum, value_delimiter = ',', hide_possible_values = true)]
    sweep: Vec<Varied>,
    /// Operations: send, read, write.
    #[arg(
        long,
        value_name = "OPERATIONS",
        value_enum,
        value_delimiter = ',',
        default_value = "send,read,write",
        hide_possible_values = true
    )]
    operation: Vec<Operation>,
    /// Software to measure, in turns: verbs (queue pairs, used directly), links (Causeway's links: their
    /// messages, compared with sends, and their memory transfers, compared with writes), perftest
    /// (`ib_send_bw` and the like, which must be installed on both machines; ratios to it are printed).
    #[arg(
        long,
        value_name = "TOOLS",
        value_enum,
        value_delimiter = ',',
        default_value = "verbs,links",
        hide_possible_values = true
    )]
    pub through: Vec<Tool>,
    /// Quantities to measure: bandwidth, latency.
    #[arg(
        long,
        value_name = "QUANTITIES",
        value_enum,
        value_delimiter = ',',
        default_value = "bandwidth,latency",
        hide_possible_values = true
    )]
    quantity: Vec<Quantity>,
    /// Message sizes: a list of sizes and ranges, such as 64,4K,64K..1M; in a range each size is twice the
    /// previous one. Default: 2..8M, with --quick every second of them.
    #[arg(long, value_name = "SIZES", value_parser = sizes)]
    sizes: Option<Sizes>,
    /// Repetitions of each size with each setting. Default: 100, with --quick 10.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    repetitions: Option<u32>,
    /// Short measurement: 10 repetitions, fewer sizes.
    #[arg(long)]
    quick: bool,
    /// Folder for the results: a table as CSV, all results and samples as JSON, plots as SVG. It is created if
    /// it does not exist.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

fn sizes(text: &str) -> Result<Sizes, String> {
    let sizes: Sizes = text.parse().map_err(|error: SizesError| error.to_string())?;
    if sizes.bytes().iter().any(|bytes| *bytes > MAX_MESSAGE_BYTES) {
        return Err("the largest message size is 8 MiB".to_owned());
    }
    Ok(sizes)
}

impl Arguments {
    /// How often each case is measured.
    pub fn repetitions(&self) -> u32 {
        self.repetitions.unwrap_or(if self.quick { 10 } else { 100 })
    }

    /// The sweeps that are measured.
    pub fn varied(&self) -> Vec<Varied> {
        match (self.sweep.as_slice(), self.through.contains(&Tool::Perftest)) {
            ([], true) => vec![Varied::Nothing],
            ([], false) => Varied::ALL.to_vec(),
            (named, _) => named.to_vec(),
        }
    }

    /// What is measured with each setting.
    pub fn cases(&self) -> Vec<Case> {
        let all = Sizes::steps(2, MAX_MESSAGE_BYTES, if self.quick { 4 } else { 2 });
        let sizes = self.sizes.as_ref().unwrap_or(&all).bytes();
        let of = |quantity, operation| sizes.iter().map(move |&bytes| Case { operation, quantity, bytes });
        let quantities = self.quantity.iter();
        quantities
            .flat_map(|&quantity| self.operation.iter().flat_map(move |&operation| of(quantity, operation)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<Arguments, clap::Error> {
        Arguments::try_parse_from([&["fabric-perf"], arguments].concat())
    }

    #[test]
    fn everything_is_measured_unless_something_is_named() {
        let all = parse(&["--to", "far"]).unwrap();
        assert_eq!(all.varied(), Varied::ALL);
        assert_eq!(all.cases().len(), 2 * 3 * 23);
        let arguments = "--to far --sweep mtu-of-two,both --operation read --quantity latency --sizes 64,8M";
        let some = parse(&arguments.split(' ').collect::<Vec<_>>()).unwrap();
        assert_eq!(some.varied(), [Varied::MtuOfTwo, Varied::Both]);
        assert_eq!(some.cases().len(), 2);
        assert_eq!(parse(&["--to", "far", "--quick"]).unwrap().cases().len(), 2 * 3 * 12);
        let compared = parse(&["--to", "far", "--through", "links,perftest"]).unwrap();
        assert_eq!(compared.varied(), [Varied::Nothing]);
        assert_eq!(compared.through, [Tool::Link, Tool::Perftest]);
    }

    #[test]
    fn one_side_is_named_and_not_both() {
        for arguments in [
            &[][..],
            &["--to", "far", "--listen"],
            &["--to", "far", "--sizes", "16M"],
            &["--to", "far", "--through", "iperf"],
        ] {
            assert!(parse(arguments).is_err(), "{arguments:?}");
        }
        assert_eq!(parse(&["--listen"]).unwrap().listen.as_deref(), Some("0.0.0.0"));
    }
}
