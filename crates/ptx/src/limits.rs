//! How much of anything a kernel may have, and the language that is known.

/// The last version of PTX that is known here, major times ten plus minor: that of CUDA 13.5. What a later
/// one means by its instructions is not known here.
pub const LAST_VERSION: u32 = 95;

/// Threads of a warp.
pub const WARP_SIZE: u32 = 32;
/// Threads a block may have.
pub const MAX_THREADS_PER_BLOCK: u32 = 1024;
/// Threads a block may have along x, y and z.
pub const MAX_BLOCK: [u32; 3] = [1024, 1024, 64];
/// Blocks a grid may have along x, y and z.
pub const MAX_GRID: [u32; 3] = [0x7fff_ffff, 65535, 65535];
/// Blocks a cluster may have.
pub const MAX_CLUSTER_BLOCKS: u32 = 16;
/// Bytes of shared memory a block may have, static and dynamic: 227 KiB, as on recent data-centre GPUs.
pub const MAX_SHARED_PER_BLOCK: u32 = 227 << 10;
/// Bytes of parameters a kernel may have, as CUDA 12.1 and later allow.
pub const MAX_PARAMETER_BYTES: u32 = 32764;
/// Threads and blocks that a thread of the pool has under way at most where blocks wait for each other, as a
/// multiprocessor has.
pub const MAX_THREADS_PER_WORKER: u32 = 2048;
/// See [`MAX_THREADS_PER_WORKER`].
pub const MAX_BLOCKS_PER_WORKER: u32 = 32;
