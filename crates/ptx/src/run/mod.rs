//! Running kernels: a grid's blocks on the threads of a pool, a block's threads as coroutines.

pub(crate) mod barrier;
mod block;
mod carrier;
mod cluster;
pub(crate) mod context;
pub(crate) mod distributed;
pub(crate) mod eight_bits;
pub(crate) mod functions;
mod gemm;
mod host;
pub(crate) mod matrix;
pub(crate) mod mbarrier;
mod printf;
mod random;
pub(crate) mod rounding;
mod signals;
mod solve;
mod sparse;
pub(crate) mod tensor;
pub(crate) mod textures;
mod turns;
pub(crate) mod video;
mod warp;

pub(crate) use context::{Entry, Launch, Progress};
pub use host::Host;
pub(crate) use turns::max_clusters;
