//! Report of collective calls: algorithm and reason.

use core::fmt;

/// Why a collective call went by way of the host's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Staging {
    /// It was not the blocking form.
    Later,
    /// It is shorter than the threshold.
    Short,
    /// It is shorter than two levels between so many hosts are worth.
    ShortOfHosts(u32),
    /// No other way is built for this call.
    NotBuilt,
    /// It was made between two groups, by a rank alone, or by one that has no part in the job.
    Group,
    /// No kernel reduces such elements by that operation.
    NoKernel,
    /// The ranks are on so many hosts, and the call is not made between hosts otherwise, or not by these
    /// ranks.
    Hosts(u32),
    /// Nobody asked the other ranks whether they can.
    Unasked,
    /// Some rank cannot: for its memory, or since it does not reach the others.
    Rank,
    /// The same, between so many hosts.
    RankOfHosts(u32),
}

/// Which way a collective call went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Algorithm {
    /// From GPU to GPU.
    Direct,
    /// In two levels.
    Leaders {
        /// How many hosts there are.
        hosts: u32,
        /// This rank's calls are those of its host's leader.
        leads: bool,
        /// As a leader it has heard the others by channels; otherwise by the MPI.
        by_channels: bool,
    },
    /// By way of the host's memory.
    Staged(Staging),
}

impl Algorithm {
    /// That of a number of `causeway_comm.h`, for ranks of so many hosts.
    pub fn of_code(code: i32, hosts: u32, leads: bool) -> Option<Self> {
        Some(match code {
            0 => Self::Direct,
            1 => Self::Leaders { hosts, leads, by_channels: false },
            2 => Self::Leaders { hosts, leads, by_channels: true },
            3 => Self::Staged(Staging::Later),
            4 => Self::Staged(Staging::Short),
            5 => Self::Staged(Staging::ShortOfHosts(hosts)),
            6 => Self::Staged(Staging::NotBuilt),
            7 => Self::Staged(Staging::Group),
            8 => Self::Staged(Staging::NoKernel),
            9 => Self::Staged(Staging::Hosts(hosts)),
            10 => Self::Staged(Staging::Unasked),
            11 if hosts > 1 => Self::Staged(Staging::RankOfHosts(hosts)),
            11 => Self::Staged(Staging::Rank),
            _ => return None,
        })
    }
}

impl fmt::Display for Staging {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Later => f.write_str("non-blocking and persistent calls are always staged"),
            Self::Short => f.write_str("it is shorter than CAUSEWAY_COMM_COLLECTIVE_THRESHOLD"),
            Self::ShortOfHosts(hosts) => write!(
                f,
                "between {hosts} hosts, it is shorter than 16 times CAUSEWAY_COMM_COLLECTIVE_THRESHOLD"
            ),
            Self::NotBuilt => f.write_str("this call has no other way"),
            Self::Group => {
                f.write_str("it is made between two groups, by one rank, or with one that has no part in the job")
            }
            Self::NoKernel => f.write_str("no kernel reduces such elements by this operation"),
            Self::Hosts(hosts) => {
                write!(f, "the ranks are on {hosts} hosts, and are alone there or have no two levels for this call")
            }
            Self::Unasked => f.write_str(
                "the ranks did not ask each other, as no rank had memory on a GPU in such a call that was asked about",
            ),
            Self::Rank => {
                f.write_str("a rank has memory in the host's, or with gaps, or does not reach the others")
            }
            Self::RankOfHosts(hosts) => write!(
                f,
                "between {hosts} hosts, a rank that shares its host has memory in the host's, or with gaps"
            ),
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Direct => f.write_str("from GPU to GPU"),
            Self::Leaders { hosts, leads, by_channels } => {
                write!(f, "in two levels between {hosts} hosts")?;
                match (leads, by_channels) {
                    (false, _) => f.write_str(", whose leaders speak with each other"),
                    (true, true) => f.write_str(", as this one's leader, by channels between leaders"),
                    (true, false) => f.write_str(", as this one's leader, by the MPI between leaders"),
                }
            }
            Self::Staged(why) => write!(f, "staged through host memory: {why}"),
        }
    }
}
