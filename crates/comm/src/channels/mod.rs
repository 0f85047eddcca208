//! Channels between two GPUs, and their requirements.
//!
//! A channel is a folder. Its `probe` says what a pair of ranks needs for it, or in a sentence what is
//! missing; it is pure, so that it can be asked about any pair that can be thought of.

mod bar;
mod ends;
mod ipc;
mod loopback;
mod rdma;
mod staged;
mod tcp;
mod vmm;

use core::fmt;
use core::str::FromStr;

use thiserror::Error;

pub use ends::{Ends, Gpu, Joined, Missing};

use crate::pair::Pair;

/// A way for messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Channel {
    /// The peer's memory, opened by a handle of cudaIPC.
    Ipc,
    /// The peer's memory, or a bounce buffer on its GPU, mapped from a descriptor.
    Vmm,
    /// Through pinned memory of the host that both share.
    Staged,
    /// Through the GPU's BAR, written and read by the processor (GDRCOPY).
    Bar,
    /// By network cards, which read the peer's memory.
    Rdma,
    /// By the own card, which sends to itself.
    Loopback,
    /// Over TCP, through memory of the host.
    Tcp,
}

impl Channel {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Ipc, Self::Vmm, Self::Staged, Self::Bar, Self::Rdma, Self::Loopback, Self::Tcp];

    /// The name in settings and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ipc => "ipc",
            Self::Vmm => "vmm",
            Self::Staged => "staged",
            Self::Bar => "bar",
            Self::Rdma => "rdma",
            Self::Loopback => "loopback",
            Self::Tcp => "tcp",
        }
    }

    /// Whether it joins ranks that meet over a network, and no others.
    pub fn is_between_hosts(self) -> bool {
        matches!(self, Self::Rdma | Self::Tcp)
    }

    /// Whether it carries what a program's memory held, where the program has that back already.
    pub fn carries_copies(self) -> bool {
        matches!(self, Self::Staged | Self::Bar | Self::Rdma | Self::Loopback | Self::Tcp)
    }

    /// Whether it is there for short messages, though both ranks have a part in each.
    pub fn is_for_short(self) -> bool {
        matches!(self, Self::Bar | Self::Loopback)
    }

    /// Whether two ranks have this channel, or why not.
    ///
    /// # Errors
    /// What is missing.
    pub fn probe(self, pair: &Pair, ends: &Ends) -> Result<(), Missing> {
        match self {
            Self::Ipc => ipc::probe(pair, ends),
            Self::Vmm => vmm::probe(pair, ends),
            Self::Staged => staged::probe(pair, ends),
            Self::Bar => bar::probe(pair, ends),
            Self::Rdma => rdma::probe(pair, ends),
            Self::Loopback => loopback::probe(pair, ends),
            Self::Tcp => tcp::probe(pair, ends),
        }
    }
}

impl fmt::Display for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A word that names no channel.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0:?} is no channel: the channels are ipc, vmm, staged, bar, rdma, loopback and tcp")]
pub struct UnknownChannel(pub String);

impl FromStr for Channel {
    type Err = UnknownChannel;

    fn from_str(text: &str) -> Result<Self, UnknownChannel> {
        let found = Self::ALL.into_iter().find(|channel| channel.name() == text);
        found.ok_or_else(|| UnknownChannel(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_have_names() {
        for channel in Channel::ALL {
            assert_eq!(channel.to_string().parse(), Ok(channel));
        }
        let error = "gdr".parse::<Channel>().unwrap_err().to_string();
        assert!(error.contains("\"gdr\"") && error.contains("loopback"), "{error}");
    }
}
