//! Channel names, capabilities of the two ends of a pair, and reasons for a missing channel.

use core::ffi::CStr;
use core::fmt;
use core::str::FromStr;

use thiserror::Error;

/// Declares the channels: for each, its name in settings and reports. The order gives each its number.
macro_rules! channels {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// Channel of a message. The declaration order is the order of [`Channel::ALL`], and gives each its number.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Channel {
            $($(#[$doc])* $variant,)*
        }

        impl Channel {
            /// All channels.
            pub const ALL: [Self; Self::COUNT] = [$(Self::$variant),*];

            /// The number of channels.
            pub const COUNT: usize = [$($name),*].len();

            /// The name in settings and reports.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// The same as a C string.
            pub(crate) fn c_name(self) -> &'static CStr {
                let text = match self {
                    $(Self::$variant => concat!($name, "\0"),)*
                };
                CStr::from_bytes_until_nul(text.as_bytes()).expect("it ends with a zero")
            }
        }
    };
}

channels! {
    /// The peer's memory, opened by a handle of cudaIPC.
    Ipc = "ipc",
    /// The peer's memory, or a bounce buffer on its GPU, mapped from a descriptor.
    Vmm = "vmm",
    /// Through pinned memory of the host that both share.
    Staged = "staged",
    /// Through the GPU's BAR, written and read by the processor (GDRCOPY).
    Bar = "bar",
    /// By network cards, which read the peer's memory.
    Rdma = "rdma",
    /// By the own card, which sends to itself.
    Loopback = "loopback",
    /// Over TCP, through memory of the host.
    Tcp = "tcp",
}

impl Channel {
    /// Short messages that the processor copies out of a GPU's BAR, or into it, while the MPI carries them,
    /// are switched and counted as this channel's.
    pub const EAGER: Self = Self::Bar;

    /// Its position in [`Channel::ALL`], by which messages and shared memory name it.
    pub const fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A word that names no channel.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0:?} is no channel: the channels are {channels}", channels = Channel::ALL.map(Channel::name).join(", "))]
pub struct UnknownChannel(pub String);

impl FromStr for Channel {
    type Err = UnknownChannel;

    fn from_str(text: &str) -> Result<Self, UnknownChannel> {
        let found = Self::ALL.into_iter().find(|channel| channel.name() == text);
        found.ok_or_else(|| UnknownChannel(text.to_owned()))
    }
}

/// A GPU as channels see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gpu {
    /// Whether the GPU's driver opens handles of cudaIPC.
    pub ipc: bool,
    /// Whether the GPU's memory can be exported as a descriptor.
    pub export: bool,
    /// Whether cards reach its memory (GPUDirect RDMA); otherwise bytes pass through memory of the host.
    pub gpudirect: bool,
}

/// What joins the GPUs of two ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Joined {
    /// Both ranks use one GPU.
    SameGpu,
    /// Each GPU reaches the other's memory.
    Peers,
    /// They do not reach each other's memory, but both are devices of the receiver, whose driver copies
    /// between them: GPUs of two servers, or without peer access.
    ByDriver,
    /// They do not reach each other, and the receiver has only one of them.
    Apart,
}

/// What the two ends of a pair have, besides what lies between them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ends {
    /// This rank's GPU, if it uses one.
    pub own: Option<Gpu>,
    /// The peer's.
    pub peer: Option<Gpu>,
    /// What joins them.
    pub joined: Joined,
    /// Whether the driver that maps a GPU's BAR is there at both ends, or why not.
    pub bar: Result<(), String>,
    /// Whether both ends have an RDMA device that can be used, or why not.
    pub rdma: Result<(), String>,
}

impl Ends {
    /// Both GPUs.
    pub(super) fn gpus(&self) -> Result<[Gpu; 2], Missing> {
        let own = self.own.ok_or(Missing::Gpu("this rank"))?;
        Ok([own, self.peer.ok_or(Missing::Gpu("the peer"))?])
    }

    /// A copy must get from one GPU's memory to the other's.
    pub(super) fn check_gpu_access(&self) -> Result<(), Missing> {
        if self.joined == Joined::Apart { Err(Missing::PeerAccess) } else { Ok(()) }
    }
}

/// Why a pair of ranks does not have a channel.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Missing {
    /// The user leaves it out.
    #[error("CAUSEWAY_COMM_CHANNELS excludes it")]
    LeftOut,
    /// The owner does not want it now.
    #[error("it is switched off on this running job (`causeway ranks --channels`)")]
    SwitchedOff,
    /// It does not work.
    #[error("it has failed, and is not used for a while")]
    Failed,
    /// It is for ranks of one host.
    #[error("the peer is on another host, or no board shows it")]
    OtherHost,
    /// It is for two hosts.
    #[error("both ranks are on one host, where `loopback` uses a card")]
    SameHost,
    /// It needs two processes.
    #[error("both ranks are in one process, which cannot open its own handles")]
    SameProcess,
    /// One rank uses no GPU.
    #[error("{0} uses no GPU")]
    Gpu(&'static str),
    /// The GPUs do not reach each other.
    #[error(
        "the two GPUs cannot access each other's memory (no peer access), and the receiver does not see both \
         as devices"
    )]
    PeerAccess,
    /// There are no handles.
    #[error(
        "no cudaIPC handle is available: the memory was not allocated by cudaMalloc, or a GPU's driver does \
         not open handles (CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED is 0)"
    )]
    NoHandles,
    /// The processes do not see each other.
    #[error(
        "the processes are in PID namespaces that hide them from each other, where handles of cudaIPC \
         cannot be opened"
    )]
    Hidden,
    /// Memory cannot be exported.
    #[error(
        "a GPU's memory cannot be exported as a descriptor \
         (CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED is 0)"
    )]
    NoExport,
    /// No descriptor gets across.
    #[error("the ranks cannot pass descriptors: {0}")]
    NoDescriptors(String),
    /// No host memory can be shared.
    #[error("the ranks cannot share host memory: {0}")]
    NoMemory(String),
    /// The BAR cannot be mapped.
    #[error("cannot map the GPU's BAR: {0}")]
    NoBar(String),
    /// No card.
    #[error("the ranks do not both have an RDMA device: {0}")]
    NoRdmaDevice(String),
    /// There is no need.
    #[error("the ranks are connected by a Unix socket, where faster channels are available")]
    Nearer,
    /// No network.
    #[error("no network connects the ranks: {0}")]
    NoNetwork(String),
}

#[cfg(test)]
mod tests {
    use causeway_config::Values;
    use causeway_config::table::COMM_CHANNELS;

    use super::*;

    #[test]
    fn channels_have_names() {
        for channel in Channel::ALL {
            assert_eq!(channel.to_string().parse(), Ok(channel));
            assert_eq!(channel.c_name().to_str(), Ok(channel.name()));
        }
        let error = "gdr".parse::<Channel>().unwrap_err().to_string();
        assert!(error.contains("\"gdr\"") && error.contains("loopback"), "{error}");
    }

    #[test]
    fn the_variable_names_all_channels() {
        let Values::Text(text) = COMM_CHANNELS.values else { panic!("a text") };
        for name in Channel::ALL.map(Channel::name) {
            assert!(text.contains(&format!("`{name}`")), "CAUSEWAY_COMM_CHANNELS: {name}");
        }
    }
}
