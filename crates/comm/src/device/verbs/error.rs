//! Errors of device-initiated RDMA.

use causeway_ibverbs::mlx5::Mlx5Error;
use causeway_ibverbs::{DeviceError, LoadError, QueuePairError, RegisterError};
use thiserror::Error;

use super::layout::{MAX_QUEUE_PAIRS, MAX_SLOTS};
use crate::device::gpu::GpuError;

/// Why kernels cannot use a card, or a queue of it.
#[derive(Debug, Error)]
pub enum VerbsError {
    /// No library.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The card.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// Another card, or a queue whose rings cannot be found.
    #[error(transparent)]
    Mlx5(#[from] Mlx5Error),
    /// The queue pair.
    #[error(transparent)]
    QueuePair(#[from] QueuePairError),
    /// Memory.
    #[error(transparent)]
    Register(#[from] RegisterError),
    /// The GPU.
    #[error(transparent)]
    Gpu(#[from] GpuError),
    /// The program's GPU is elsewhere.
    #[error(
        "kernels of a program that `causeway run` has started cannot post to network cards: the GPU and the \
         card's rings belong to the server. Start the program without it, on the machine with the GPU and \
         the card"
    )]
    Remote,
    /// No port has a link.
    #[error("no port of an RDMA device of this machine is active{}", named(.0))]
    NoPort(Option<String>),
    /// Rings in GPU memory.
    #[error(
        "rings in GPU memory are not supported yet: they need queues created by DEVX commands. Put them in \
         host memory (CAUSEWAY_IN_HOST), which kernels write and read over PCIe"
    )]
    RingsOnDevice,
    /// A doorbell that kernels were to ring themselves.
    #[error("kernels cannot ring the doorbell of the RDMA device `{device}` themselves: {cause}")]
    Doorbell {
        /// Which device.
        device: String,
        /// What the GPU's driver said.
        cause: GpuError,
    },
    /// A size.
    #[error("{what} has {requested} {unit}; it can have 1 to {max}")]
    Size {
        /// Of what.
        what: &'static str,
        /// How many were asked for.
        requested: u32,
        /// Of which.
        unit: &'static str,
        /// How many there can be.
        max: u32,
    },
    /// The library made a ring that kernels do not know.
    #[error(
        "libmlx5 has created a ring of {count} slots of {bytes} bytes; kernels support powers of two up to \
         {MAX_SLOTS}"
    )]
    Ring {
        /// Slots.
        count: u32,
        /// Bytes of each.
        bytes: u32,
    },
    /// More requests than completions fit.
    #[error(
        "the completion queue has {entries} entries, but the requests of its queue pairs can need {needed}: \
         create a larger one, or smaller queue pairs"
    )]
    Overrun {
        /// Entries.
        entries: u32,
        /// How many could be needed.
        needed: u32,
    },
    /// Too many queue pairs.
    #[error("a completion queue serves at most {MAX_QUEUE_PAIRS} queue pairs: create another one")]
    TooManyQueuePairs,
    /// Queues of two cards.
    #[error("a queue pair and its completion queues must belong to the same card")]
    OtherNic,
    /// Not an address.
    #[error("these 32 bytes are not a queue pair's address (causeway_qp_address), or one of another version")]
    Address,
    /// Completions that nobody has read.
    #[error(
        "the completion queue of queue pair {0:#x} has completions that no kernel has polled: poll them, then \
         reset again"
    )]
    NotDrained(u32),
    /// No thread.
    #[error("cannot start the thread that rings doorbells: {0}")]
    Thread(#[source] std::io::Error),
}

fn named(name: &Option<String>) -> String {
    name.as_ref().map_or_else(String::new, |name| format!(", or none of `{name}`"))
}
