//! Device memory for network cards: GPUDirect RDMA, by which a card reads and writes a GPU's memory without a
//! copy in the host's.
//!
//! There are ways to tell a card where that memory is, of which a machine has all or none
//! ([`GpuDirectPaths`], a pure decision). Without any, bytes go through staging memory of the host, as they
//! do for every other module.

use causeway_config::read::PROCESS;
use causeway_config::table::GPUDIRECT;
use core::fmt;
use core::str::FromStr;
use std::os::fd::OwnedFd;
use std::path::Path;
use thiserror::Error;

/// The variable by which a client or a server chooses a path, or none; see [`GpuDirectChoice`].
pub const CHOICE_VARIABLE: &str = GPUDIRECT.name;

/// How a card learns the address of device memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GpuDirectPath {
    /// The memory of the software GPU, which is memory of this process.
    HostMemory,
    /// A dma-buf, which the driver makes for a range of device memory and the kernel passes on to the card's
    /// driver.
    DmaBuf,
    /// The kernel module `nvidia_peermem`, with which a card's driver takes addresses of device memory as it
    /// takes those of the host.
    Peermem,
}

impl fmt::Display for GpuDirectPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::HostMemory => "host-memory",
            Self::DmaBuf => "dma-buf",
            Self::Peermem => "peermem",
        })
    }
}

/// What a card's driver is given to register a range of device memory.
#[derive(Debug)]
pub enum GpuDirectMemory {
    /// A descriptor for `ibv_reg_dmabuf_mr`; the range begins `offset` bytes behind the buffer's start. The
    /// memory is not freed before descriptor and registration are gone.
    DmaBuf {
        /// The buffer.
        descriptor: OwnedFd,
        /// Bytes.
        offset: u64,
    },
    /// Nothing: the range is registered by its own addresses (`ibv_reg_mr`).
    Addresses,
}

/// Which paths may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GpuDirectChoice {
    /// All that work, the best first.
    #[default]
    Auto,
    /// None: device memory is reached through staging, for comparison.
    Off,
    /// This one or none.
    Only(GpuDirectPath),
}

/// A text that names no [`GpuDirectChoice`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{0}` is no setting for GPUDirect: choose auto, off, dma-buf or peermem")]
pub struct UnknownChoice(String);

impl FromStr for GpuDirectChoice {
    type Err = UnknownChoice;

    fn from_str(text: &str) -> Result<Self, UnknownChoice> {
        match text.trim() {
            "" | "auto" | "on" | "1" => Ok(Self::Auto),
            "off" | "0" => Ok(Self::Off),
            "dma-buf" => Ok(Self::Only(GpuDirectPath::DmaBuf)),
            "peermem" => Ok(Self::Only(GpuDirectPath::Peermem)),
            other => Err(UnknownChoice(other.to_owned())),
        }
    }
}

impl GpuDirectChoice {
    /// What [`CHOICE_VARIABLE`] of this process says. A text that makes no sense is an error of the server
    /// at its start; one from a client is logged and ignored.
    pub fn from_environment() -> Self {
        let choice = PROCESS.parsed(&GPUDIRECT).unwrap_or_else(|error| {
            tracing::warn!("{error}");
            None
        });
        choice.unwrap_or_default()
    }

    fn admits(self, path: GpuDirectPath) -> bool {
        match self {
            Self::Auto => true,
            Self::Off => false,
            Self::Only(only) => only == path,
        }
    }
}

/// What a GPU and its machine say about GPUDirect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GpuDirectFacts {
    /// `CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED`: cards may reach the device's memory at all.
    pub has_rdma: bool,
    /// `CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED`: the driver makes dma-bufs of it.
    pub has_dma_buf: bool,
    /// Whether `nvidia_peermem`, or its predecessor, is loaded.
    pub has_peermem: bool,
}

/// Whether the module that lets cards take addresses of device memory is loaded; `sys` is the place of sysfs.
pub fn is_peermem_loaded(sys: &Path) -> bool {
    ["nvidia_peermem", "nv_peer_mem"].iter().any(|module| sys.join("module").join(module).exists())
}

/// The paths by which a device's memory can be reached, and why not in the others.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GpuDirectPaths {
    /// The best first; none means staging.
    pub usable: Vec<GpuDirectPath>,
    /// Each path that cannot be used, and why, as a sentence without its full stop.
    pub refused: Vec<(GpuDirectPath, String)>,
}

impl GpuDirectPaths {
    /// Decides for a GPU behind NVIDIA's driver.
    pub fn decide(choice: GpuDirectChoice, facts: GpuDirectFacts) -> Self {
        const NO_RDMA: &str = "the GPU lets no other device reach its memory \
                               (CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED is 0)";
        let dma_buf = match facts {
            GpuDirectFacts { has_rdma: false, .. } => Err(NO_RDMA),
            GpuDirectFacts { has_dma_buf: false, .. } => {
                Err("the driver makes no dma-bufs of this GPU's memory: \
                 that takes Linux 5.12, driver 515 or later and NVIDIA's open kernel modules")
            }
            _ => Ok(()),
        };
        let peermem = match facts {
            GpuDirectFacts { has_rdma: false, .. } => Err(NO_RDMA),
            GpuDirectFacts { has_peermem: false, .. } => {
                Err("the kernel module nvidia_peermem is not loaded: load it with `modprobe nvidia_peermem`")
            }
            _ => Ok(()),
        };
        Self::sort(choice, [(GpuDirectPath::DmaBuf, dma_buf), (GpuDirectPath::Peermem, peermem)])
    }

    /// Decides for the software GPU.
    pub fn of_host_memory(choice: GpuDirectChoice) -> Self {
        Self::sort(choice, [(GpuDirectPath::HostMemory, Ok(()))])
    }

    fn sort<const N: usize>(choice: GpuDirectChoice, found: [(GpuDirectPath, Result<(), &str>); N]) -> Self {
        let mut paths = Self::default();
        for (path, found) in found {
            match found {
                Ok(()) if choice.admits(path) => paths.usable.push(path),
                Ok(()) => paths.refused.push((path, format!("{CHOICE_VARIABLE} does not admit it"))),
                Err(why) => paths.refused.push((path, why.to_owned())),
            }
        }
        paths
    }
}

impl fmt::Display for GpuDirectPaths {
    /// One line: what is used, and why nothing better is.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.usable.first() {
            Some(path) => write!(f, "GPUDirect by {path}")?,
            None => f.write_str("staging, without GPUDirect")?,
        }
        let is_better = |(path, _): &&(GpuDirectPath, String)| {
            self.usable.first() != Some(&GpuDirectPath::DmaBuf) || *path != GpuDirectPath::Peermem
        };
        for (path, why) in self.refused.iter().filter(is_better) {
            write!(f, "; not {path}: {why}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: GpuDirectFacts = GpuDirectFacts { has_rdma: true, has_dma_buf: true, has_peermem: true };

    #[test]
    fn dma_bufs_come_before_peermem_and_both_before_staging() {
        let auto = |facts| GpuDirectPaths::decide(GpuDirectChoice::Auto, facts);
        assert_eq!(auto(ALL).usable, [GpuDirectPath::DmaBuf, GpuDirectPath::Peermem]);
        let old = auto(GpuDirectFacts { has_dma_buf: false, ..ALL });
        assert_eq!(old.usable, [GpuDirectPath::Peermem]);
        assert!(old.to_string().contains("open kernel modules"), "{old}");
        let bare = auto(GpuDirectFacts { has_peermem: false, has_dma_buf: false, ..ALL });
        assert!(bare.usable.is_empty() && bare.to_string().starts_with("staging"), "{bare}");
        assert!(bare.to_string().contains("modprobe nvidia_peermem"), "{bare}");
        let open = auto(GpuDirectFacts { has_peermem: false, ..ALL });
        assert_eq!(
            open.to_string(),
            "GPUDirect by dma-buf",
            "what is worse than that in use needs no excuse"
        );
        assert!(auto(GpuDirectFacts { has_rdma: false, ..ALL }).usable.is_empty());
    }

    #[test]
    fn the_choice_narrows_what_is_there() {
        let paths = |text: &str| GpuDirectPaths::decide(text.parse().unwrap(), ALL).usable;
        assert_eq!(paths("off"), []);
        assert_eq!(paths("peermem"), [GpuDirectPath::Peermem]);
        assert_eq!(paths("dma-buf"), [GpuDirectPath::DmaBuf]);
        assert_eq!(paths("on").len(), 2);
        let off = GpuDirectPaths::of_host_memory(GpuDirectChoice::Off);
        assert!(off.usable.is_empty() && off.to_string().contains(CHOICE_VARIABLE), "{off}");
        assert_eq!(GpuDirectPaths::of_host_memory(GpuDirectChoice::Auto).usable, [GpuDirectPath::HostMemory]);
        assert!("fast".parse::<GpuDirectChoice>().unwrap_err().to_string().contains("dma-buf"));
    }
}
