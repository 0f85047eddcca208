//! Channel table of the user (CAUSEWAY_COMM_TABLE), and the published one, which counts where nothing has
//! been measured.
//!
//! The [rules](causeway_config::rules) of `CAUSEWAY_COMM_TABLE`, in the language of the pipeline's table:
//!
//! ```text
//! table     =  "published"  |  rule *( ";" rule )
//! rule      =  *name [ sizes ":" ] channel *( "," channel )
//! name      =  "latency" | "bandwidth"                          what the traffic is bound by
//!           |  "same-container" | "same-host" | "other-host"    where the peer is
//!           |  "same-node" | "same-socket" | "other-socket"     how far apart the processors are
//!           |  "to-gpu" | "to-host"                             where the message goes
//! sizes     =  [ size ] ".." [ size ]                           the second one is not included
//! ```
//!
//! Of several rules that fit a message the last one counts. Its first channel that the two ranks have is
//! taken, without measuring; where they have none of them, or no rule fits, all is as without a table.

use core::fmt;
use core::ops::Range;
use core::str::FromStr;

use causeway_config::rules::{self, RuleError};
use thiserror::Error;

use crate::channels::{Channel, UnknownChannel};
use crate::pair::{Distance, Locality};
use crate::tracer::Traffic;

/// The longest messages through the BAR.
const MAX_BAR_BYTES: u64 = 16;

/// The longest through the card, where latency counts.
const MAX_LOOPBACK_BYTES: u64 = 16 << 10;

/// The longest through the card, where bandwidth counts.
const MAX_LOOPBACK_BYTES_FOR_BANDWIDTH: u64 = 512 << 10;

/// The schedule that C-GDR published in 2019, measured on a K80 and ConnectX-4: up to 16 B through the BAR, up to
/// 16 KiB through the card, from there to 512 KiB by cudaIPC where latency counts and through the card where
/// bandwidth does, and by cudaIPC above. The ranges of sizes, and the traffic that one is for alone.
pub(super) const PUBLISHED_RANGES: [(Option<Traffic>, Range<u64>); 5] = [
    (None, 0..MAX_BAR_BYTES + 1),
    (None, MAX_BAR_BYTES + 1..MAX_LOOPBACK_BYTES + 1),
    (Some(Traffic::Latency), MAX_LOOPBACK_BYTES + 1..MAX_LOOPBACK_BYTES_FOR_BANDWIDTH + 1),
    (Some(Traffic::Bandwidth), MAX_LOOPBACK_BYTES + 1..MAX_LOOPBACK_BYTES_FOR_BANDWIDTH + 1),
    (None, MAX_LOOPBACK_BYTES_FOR_BANDWIDTH + 1..u64::MAX),
];

/// All channels for a message, the published ones first. `vmm` stands behind `ipc`, as which it moves bytes. The others, which
/// the authors did not have, follow in their own order: `staged` is what is left within a host, and between hosts there is
/// `rdma`, and then TCP.
pub(super) fn published_order(bytes: u64, traffic: Traffic) -> [Channel; Channel::COUNT] {
    use Channel::{Bar, Ipc, Loopback, Vmm};
    let limit = match traffic {
        Traffic::Latency => MAX_LOOPBACK_BYTES,
        Traffic::Bandwidth => MAX_LOOPBACK_BYTES_FOR_BANDWIDTH,
    };
    let first: &[Channel] = match bytes {
        0..=MAX_BAR_BYTES => &[Bar, Loopback],
        _ if bytes <= limit => &[Loopback, Ipc, Vmm, Bar],
        _ => &[Ipc, Vmm, Loopback],
    };
    let mut order = Channel::ALL;
    order.sort_by_key(|channel| first.iter().position(|one| one == channel).unwrap_or(first.len()));
    order
}

/// What a table decides by, besides size and traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inputs {
    /// Where the peer is.
    pub locality: Locality,
    /// How far apart the processors of the two ranks are.
    pub distance: Distance,
    /// Whether messages go into memory on a GPU.
    pub to_gpu: bool,
}

/// A name in front of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Name {
    Traffic(Traffic),
    Locality(Locality),
    Distance(Distance),
    ToGpu(bool),
}

/// All of them, as they are written.
const NAMES: [(&str, Name); 10] = [
    ("latency", Name::Traffic(Traffic::Latency)),
    ("bandwidth", Name::Traffic(Traffic::Bandwidth)),
    ("same-container", Name::Locality(Locality::SameContainer)),
    ("same-host", Name::Locality(Locality::SameHost)),
    ("other-host", Name::Locality(Locality::OtherHost)),
    ("same-node", Name::Distance(Distance::SameNode)),
    ("same-socket", Name::Distance(Distance::SameSocket)),
    ("other-socket", Name::Distance(Distance::OtherSocket)),
    ("to-gpu", Name::ToGpu(true)),
    ("to-host", Name::ToGpu(false)),
];

impl Name {
    fn of(word: &str) -> Option<Self> {
        NAMES.iter().find(|(name, _)| *name == word).map(|(_, name)| *name)
    }

    /// Whether a message is what the name says.
    fn fits(self, traffic: Traffic, inputs: Inputs) -> bool {
        match self {
            Self::Traffic(named) => named == traffic,
            // Every host has what a container has.
            Self::Locality(Locality::SameHost) => inputs.locality <= Locality::SameHost,
            Self::Locality(Locality::SameContainer) => inputs.locality <= Locality::SameContainer,
            Self::Locality(named) => named == inputs.locality,
            Self::Distance(Distance::SameSocket) => {
                matches!(inputs.distance, Distance::SameNode | Distance::SameSocket)
            }
            Self::Distance(named) => named == inputs.distance,
            Self::ToGpu(named) => named == inputs.to_gpu,
        }
    }

    fn text(self) -> &'static str {
        NAMES.iter().find(|(_, name)| *name == self).map_or("", |(text, _)| *text)
    }
}

/// Channels for some messages.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Rule {
    names: Vec<Name>,
    sizes: Range<u64>,
    /// The first one that there is counts.
    channels: Vec<Channel>,
}

/// Channels by what messages are; of several rules that fit the last one counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Table {
    rules: Vec<Rule>,
}

/// Why a text is no table.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TableError {
    /// A rule is not written as one.
    #[error(
        "{0}; a rule is written like `latency 16K..512K: ipc, vmm`: in front may stand latency or bandwidth, \
         same-container, same-host or other-host, same-node, same-socket or other-socket, and to-gpu or to-host; then \
         sizes and a colon; then channels. `published` is the table of C-GDR"
    )]
    Rule(#[from] RuleError),
    /// A rule names something else than channels.
    #[error("{cause} (in the rule `{rule}`)")]
    Channel {
        /// What.
        cause: UnknownChannel,
        /// The rule that it stands in.
        rule: String,
    },
}

impl Table {
    /// The word that stands for the published one.
    const PUBLISHED: &str = "published";

    /// The switch points that were published.
    pub fn published() -> Self {
        let rules = PUBLISHED_RANGES.into_iter().map(|(traffic, sizes)| Rule {
            names: traffic.map(Name::Traffic).into_iter().collect(),
            channels: published_order(sizes.start, traffic.unwrap_or(Traffic::Latency)).to_vec(),
            sizes,
        });
        Self { rules: rules.collect() }
    }

    /// The channels for a message, of which the first one that there is counts; none where no rule fits.
    pub(super) fn channels(&self, bytes: u64, traffic: Traffic, inputs: Inputs) -> Option<&[Channel]> {
        let fits = |rule: &&Rule| {
            rules::holds(&rule.sizes, bytes) && rule.names.iter().all(|name| name.fits(traffic, inputs))
        };
        self.rules.iter().rfind(fits).map(|rule| &*rule.channels)
    }
}

impl FromStr for Table {
    type Err = TableError;

    fn from_str(text: &str) -> Result<Self, TableError> {
        if text.trim() == Self::PUBLISHED {
            return Ok(Self::published());
        }
        // One name of each kind.
        let is_name = |before: &[&str], word: &str| {
            let kind = |word: &str| Name::of(word).map(|name| core::mem::discriminant(&name));
            kind(word).is_some_and(|new| !before.iter().any(|name| kind(name) == Some(new)))
        };
        let rule = |written: &rules::Rule<'_>| {
            let channel = |part: &&str| {
                let refused = |cause| TableError::Channel { cause, rule: written.text.to_owned() };
                part.parse().map_err(refused)
            };
            Ok(Rule {
                names: written.names.iter().filter_map(|name| Name::of(name)).collect(),
                sizes: written.sizes.clone(),
                channels: written.parts.iter().map(channel).collect::<Result<_, _>>()?,
            })
        };
        let written = rules::parse(text, is_name)?;
        Ok(Self { rules: written.iter().map(rule).collect::<Result<_, TableError>>()? })
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, rule) in self.rules.iter().enumerate() {
            f.write_str(if at == 0 { "" } else { "; " })?;
            rule.names.iter().try_for_each(|name| write!(f, "{} ", name.text()))?;
            rules::write_sizes(&rule.sizes, f)?;
            let channels: Vec<_> = rule.channels.iter().map(|channel| channel.name()).collect();
            f.write_str(&channels.join(", "))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NEAR: Inputs = Inputs { locality: Locality::SameHost, distance: Distance::SameNode, to_gpu: true };

    fn first(table: &Table, bytes: u64, traffic: Traffic, inputs: Inputs) -> Option<Channel> {
        table.channels(bytes, traffic, inputs)?.first().copied()
    }

    #[test]
    fn the_published_table_is_what_was_published() {
        use Channel::{Bar, Ipc, Loopback, Rdma, Staged, Tcp, Vmm};
        let table = Table::published();
        assert_eq!("published".parse(), Ok(table.clone()));
        let latency = |bytes| published_order(bytes, Traffic::Latency);
        assert_eq!(latency(16), [Bar, Loopback, Ipc, Vmm, Staged, Rdma, Tcp]);
        assert_eq!(latency(16 << 10), [Loopback, Ipc, Vmm, Bar, Staged, Rdma, Tcp]);
        assert_eq!(latency(32 << 10), [Ipc, Vmm, Loopback, Staged, Bar, Rdma, Tcp]);
        for bytes in (0..40).flat_map(|power| [(1_u64 << power) - 1, 1 << power, (1 << power) + 1]) {
            for traffic in [Traffic::Latency, Traffic::Bandwidth] {
                let order = published_order(bytes, traffic);
                assert_eq!(table.channels(bytes, traffic, NEAR), Some(&order[..]), "{bytes} {traffic}");
            }
        }
        assert_eq!(table.to_string().parse(), Ok(table));
    }

    #[test]
    fn the_last_rule_that_fits_counts() {
        let text = "staged; bandwidth ..1K: bar; other-socket 64..: ipc, vmm; to-host latency tcp";
        let table: Table = text.parse().unwrap();
        assert_eq!(table.to_string(), text);
        let far = Inputs { distance: Distance::OtherSocket, ..NEAR };
        for (bytes, traffic, inputs, channel) in [
            (5, Traffic::Latency, NEAR, Channel::Staged),
            (5, Traffic::Bandwidth, NEAR, Channel::Bar),
            (1 << 10, Traffic::Bandwidth, NEAR, Channel::Staged),
            (63, Traffic::Bandwidth, far, Channel::Bar),
            (64, Traffic::Bandwidth, far, Channel::Ipc),
            (64, Traffic::Latency, Inputs { to_gpu: false, ..far }, Channel::Tcp),
        ] {
            assert_eq!(first(&table, bytes, traffic, inputs), Some(channel), "{bytes} {traffic} {inputs:?}");
        }
        let none: Table = "1K..2K: ipc".parse().unwrap();
        assert_eq!(first(&none, 2 << 10, Traffic::Latency, NEAR), None);
    }

    #[test]
    fn nearer_peers_are_within_farther_bounds() {
        let fits = |text: &str, locality, distance| {
            let table: Table = format!("{text} ipc").parse().unwrap();
            first(&table, 1, Traffic::Latency, Inputs { locality, distance, to_gpu: true }).is_some()
        };
        assert!(fits("same-host", Locality::SameContainer, Distance::Unknown));
        assert!(!fits("same-container", Locality::SameHost, Distance::Unknown));
        assert!(!fits("same-host", Locality::OtherHost, Distance::Unknown));
        assert!(fits("same-socket", Locality::SameHost, Distance::SameNode));
        assert!(!fits("same-socket", Locality::SameHost, Distance::Unknown));
        assert!(!fits("same-node", Locality::SameHost, Distance::SameSocket));
    }

    #[test]
    fn what_is_no_table_is_told_with_what_to_write() {
        for (text, wanted) in [
            ("ipc; ; vmm", "a rule is empty; a rule is written like"),
            ("gdr", "\"gdr\" is no channel: the channels are ipc"),
            ("latency bandwidth ipc", "\"bandwidth ipc\" is no channel"),
            ("fast ..1K: ipc", "`fast ..1K` in the rule"),
            ("2K..1K: ipc", "is empty"),
            ("published; ipc", "\"published\" is no channel"),
            ("..1K:", "\"\" is no channel"),
        ] {
            let error = text.parse::<Table>().unwrap_err().to_string();
            assert!(error.contains(wanted), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn no_text_is_too_strange(text in "([a-z-]{0,9}[ :;,.0-9K]){0,8}") {
            if let Ok(table) = text.parse::<Table>() {
                prop_assert_eq!(table.to_string().parse(), Ok(table));
            }
        }
    }
}
