//! Where do the kernels run? On the software GPU inside of this process, or on whatever the CUDA driver has,
//! with `CAUSEWAY_DEVICE_GPU=cuda`: natively on a GPU, or through Causeway.

use std::path::PathBuf;
use std::sync::Arc;

use causeway_comm::device::gpu::{Block, Gpu, GpuError, Lane};
use causeway_comm::device::layout;
use causeway_comm::device::team::Team;

use super::cuda::CudaMachine;
use super::software::SoftwareMachine;

/// What runs kernels.
pub trait Machine: Send + Sync {
    /// A rank's GPU.
    fn gpu(&self) -> Arc<dyn Gpu>;

    /// Runs a kernel of so many blocks for each of these parameters, all at the same time, and waits for all.
    fn launch(&self, kernel: &str, blocks: u32, threads: u32, parameters: &[Params]);
}

/// What goes wrong on lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Lanes {
    /// Nothing; on the software GPU copies come late, as it is drawn from this number.
    Delayed(u64),
    /// Nothing.
    #[default]
    Well,
    /// The first copy ends the proxy's thread.
    Panic,
    /// The first copy fails.
    Fail,
}

/// A machine, and a GPU of it whose lanes are so.
pub struct Ranks {
    machine: &'static dyn Machine,
    pub gpu: Arc<dyn Gpu>,
}

/// Whether kernels run on what the CUDA driver has.
pub fn is_cuda() -> bool {
    std::env::var("CAUSEWAY_DEVICE_GPU").is_ok_and(|value| value == "cuda")
}

/// The kernels as text.
pub fn kernels() -> String {
    let folder = std::env::var_os("CAUSEWAY_PROGRAMS").map(PathBuf::from);
    let tree = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../build/cuda");
    let path = folder.unwrap_or_else(tree).join("device_kernels.ptx");
    std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}: run `make programs`", path.display()))
}

impl Ranks {
    pub fn new(lanes: Lanes) -> Self {
        let machine: &'static dyn Machine =
            if is_cuda() { CudaMachine::get() } else { SoftwareMachine::get() };
        let gpu = machine.gpu();
        let gpu = if lanes == Lanes::Well { gpu } else { Arc::new(Unwell { gpu, lanes }) };
        Self { machine, gpu }
    }

    /// Memory of a test's own, filled.
    pub fn filled(&self, bytes: &[u8]) -> Block {
        let block = self.gpu.device_memory(bytes.len().max(1) as u64).unwrap();
        self.write(block.address, bytes);
        block
    }

    pub fn write(&self, to: u64, bytes: &[u8]) {
        self.gpu.write(to, bytes).unwrap();
    }

    pub fn bytes(&self, address: u64, length: u64) -> Vec<u8> {
        let mut bytes = vec![0; length as usize];
        self.gpu.read(address, &mut bytes).unwrap();
        bytes
    }

    /// Launches a kernel of one block for every rank of a team at the same time, and waits for all.
    pub fn launch_all(&self, team: &Team, kernel: &str, threads: u32, parameters: impl Fn(u32) -> Params) {
        self.launch_blocks(team, kernel, [1, threads], parameters);
    }

    /// The same with so many blocks of so many threads.
    pub fn launch_blocks(
        &self,
        team: &Team,
        kernel: &str,
        [blocks, threads]: [u32; 2],
        parameters: impl Fn(u32) -> Params,
    ) {
        let parameters: Vec<Params> = (0..team.ranks()).map(parameters).collect();
        self.machine.launch(kernel, blocks, threads, &parameters);
    }
}

/// A GPU with something wrong.
struct Unwell {
    gpu: Arc<dyn Gpu>,
    lanes: Lanes,
}

impl Gpu for Unwell {
    fn number(&self) -> u64 {
        self.gpu.number()
    }

    fn device_memory(&self, bytes: u64) -> Result<Block, GpuError> {
        self.gpu.device_memory(bytes)
    }

    fn host_memory(&self, bytes: u64) -> Result<Block, GpuError> {
        self.gpu.host_memory(bytes)
    }

    fn import(&self, descriptor: std::os::fd::BorrowedFd<'_>, bytes: u64) -> Result<Block, GpuError> {
        self.gpu.import(descriptor, bytes)
    }

    fn write(&self, to: u64, bytes: &[u8]) -> Result<(), GpuError> {
        self.gpu.write(to, bytes)
    }

    fn read(&self, from: u64, bytes: &mut [u8]) -> Result<(), GpuError> {
        self.gpu.read(from, bytes)
    }

    fn lane(&self) -> Result<Box<dyn Lane>, GpuError> {
        Ok(Box::new(UnwellLane { lane: self.gpu.lane()?, lanes: self.lanes, random: 1.into() }))
    }
}

struct UnwellLane {
    lane: Box<dyn Lane>,
    lanes: Lanes,
    random: core::sync::atomic::AtomicU64,
}

impl Lane for UnwellLane {
    fn enter(&mut self) {
        self.lane.enter();
    }

    fn copy(&mut self, to: u64, from: u64, bytes: u64) -> Result<(), GpuError> {
        assert!(self.lanes != Lanes::Panic, "this proxy was to end");
        if self.lanes == Lanes::Fail {
            return Err(GpuError { what: "a copy".to_owned(), cause: "this lane was to fail".to_owned() });
        }
        self.lane.copy(to, from, bytes)
    }

    fn set(&mut self, to: u64, value: u64) -> Result<(), GpuError> {
        self.lane.set(to, value)
    }

    fn mark(&mut self) -> Result<u64, GpuError> {
        self.lane.mark()
    }

    fn done(&self) -> u64 {
        use core::sync::atomic::Ordering::Relaxed;
        let Lanes::Delayed(seed) = self.lanes else { return self.lane.done() };
        let next = |before: u64| before.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(seed | 1);
        let drawn = next(self.random.load(Relaxed));
        self.random.store(drawn, Relaxed);
        // The lane goes on when it is looked at, so this delays copies, too.
        if drawn >> 61 < 5 { 0 } else { self.lane.done() }
    }
}

/// Parameters of a kernel, each at a multiple of its alignment.
#[derive(Default, Clone)]
pub struct Params(pub Vec<u8>);

impl Params {
    fn with<T: Copy>(mut self, value: T) -> Self {
        self.0.resize(self.0.len().next_multiple_of(align_of::<T>()), 0);
        // SAFETY: plain numbers without padding.
        let bytes = unsafe { core::slice::from_raw_parts((&raw const value).cast::<u8>(), size_of::<T>()) };
        self.0.extend_from_slice(bytes);
        self
    }

    pub fn team(self, team: &Team, rank: u32) -> Self {
        self.with::<layout::Team>(team.handle(rank).unwrap())
    }

    pub fn window(self, team: &Team, rank: u32, id: u32) -> Self {
        self.with::<layout::Window>(team.window_handle(rank, id).unwrap())
    }

    pub fn long(self, value: u64) -> Self {
        self.with(value)
    }

    pub fn word(self, value: u32) -> Self {
        self.with(value)
    }
}
