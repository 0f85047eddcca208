//! Machine on which kernels run: on the software GPU inside of this process, or on whatever the CUDA driver
//! has, with `CAUSEWAY_DEVICE_GPU=cuda`: natively on a GPU, or through Causeway.

use std::path::PathBuf;
use std::sync::Arc;

use causeway_comm::device::gpu::{Block, Gpu, GpuError, HostPages, Lane};
use causeway_comm::device::layout;
use causeway_comm::device::team::Team;
use causeway_comm::device::verbs::layout::{ReceiveRequest, SendRequest};

use super::cuda::CudaMachine;
use super::software::SoftwareMachine;

/// What runs kernels.
pub trait Machine: Send + Sync {
    /// The GPUs, which ranks have in turn.
    fn gpus(&self) -> Vec<Arc<dyn Gpu>>;

    /// Runs a kernel of so many blocks for each of these parameters, all at the same time, and waits for all. The
    /// GPUs get them in turn.
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

/// A machine, and the GPUs of its ranks, whose lanes are so.
pub struct Ranks {
    machine: &'static dyn Machine,
    gpus: Vec<Arc<dyn Gpu>>,
}

/// Whether kernels run on what the CUDA driver has.
pub fn is_cuda() -> bool {
    std::env::var("CAUSEWAY_DEVICE_GPU").is_ok_and(|value| value == "cuda")
}

/// The folder of the kernels, and of what else a machine without the source needs.
pub fn programs() -> PathBuf {
    let folder = std::env::var_os("CAUSEWAY_PROGRAMS").map(PathBuf::from);
    folder.unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../build/cuda"))
}

/// The kernels as text.
pub fn kernels() -> String {
    let path = programs().join("device_kernels.ptx");
    std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}: run `make programs`", path.display()))
}

impl Ranks {
    pub fn new(lanes: Lanes) -> Self {
        let machine: &'static dyn Machine =
            if is_cuda() { CudaMachine::get() } else { SoftwareMachine::get() };
        let with_lanes = |gpu: Arc<dyn Gpu>| -> Arc<dyn Gpu> {
            let number = None;
            if lanes == Lanes::Well {
                gpu
            } else {
                Arc::new(Unwell { gpu, lanes, number, has_atomics: true })
            }
        };
        Self { machine, gpus: machine.gpus().into_iter().map(with_lanes).collect() }
    }

    /// The GPUs of so many ranks.
    pub fn gpus(&self, ranks: usize) -> Vec<Arc<dyn Gpu>> {
        self.gpus.iter().cycle().take(ranks).cloned().collect()
    }

    /// The same, where so many ranks seem to have a GPU each: what they tell each other is ordered for all of
    /// the machine then.
    pub fn apart(self, ranks: usize) -> Self {
        self.on_gpus(ranks, true)
    }

    /// The same, where GPUs have no atomic operations on each other's memory.
    pub fn without_atomics(self, ranks: usize) -> Self {
        self.on_gpus(ranks, false)
    }

    fn on_gpus(self, ranks: usize, has_atomics: bool) -> Self {
        let apart = |(gpu, number)| -> Arc<dyn Gpu> {
            Arc::new(Unwell { gpu, lanes: Lanes::Well, number: Some(number), has_atomics })
        };
        Self { gpus: self.gpus(ranks).into_iter().zip(1000..).map(apart).collect(), ..self }
    }

    /// The GPU that has what is no rank's.
    fn first(&self) -> &dyn Gpu {
        self.gpus[0].as_ref()
    }

    /// Memory of a test's own, filled.
    pub fn filled(&self, bytes: &[u8]) -> Block {
        let block = self.first().device_memory(bytes.len().max(1) as u64).unwrap();
        self.write(block.address, bytes);
        block
    }

    pub fn write(&self, to: u64, bytes: &[u8]) {
        self.first().write(to, bytes).unwrap();
    }

    pub fn bytes(&self, address: u64, length: u64) -> Vec<u8> {
        let mut bytes = vec![0; length as usize];
        self.first().read(address, &mut bytes).unwrap();
        bytes
    }

    /// Launches a kernel of one block for every rank of a team at the same time, and waits for all.
    pub fn launch_all(&self, team: &Team, kernel: &str, threads: u32, parameters: impl Fn(u32) -> Params) {
        self.launch_blocks(team, kernel, [1, threads], parameters);
    }

    /// Launches a kernel of one block for a rank alone, and waits for it.
    pub fn launch_one(&self, kernel: &str, threads: u32, parameters: Params) {
        self.launch_grid(kernel, [1, threads], parameters);
    }

    /// The same with so many blocks of so many threads.
    pub fn launch_grid(&self, kernel: &str, [blocks, threads]: [u32; 2], parameters: Params) {
        self.machine.launch(kernel, blocks, threads, &[parameters]);
    }

    /// The same as [`Ranks::launch_all`] with so many blocks of so many threads.
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

/// A GPU with something wrong, or with another number.
struct Unwell {
    gpu: Arc<dyn Gpu>,
    lanes: Lanes,
    number: Option<u64>,
    has_atomics: bool,
}

impl Gpu for Unwell {
    fn number(&self) -> u64 {
        self.number.unwrap_or_else(|| self.gpu.number())
    }

    fn has_atomics_on(&self, number: u64) -> bool {
        self.has_atomics || number == self.number()
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

    fn shared_host_memory(&self, bytes: u64) -> Result<Block, GpuError> {
        self.gpu.shared_host_memory(bytes)
    }

    fn import_host(&self, descriptor: std::os::fd::BorrowedFd<'_>, bytes: u64) -> Result<Block, GpuError> {
        self.gpu.import_host(descriptor, bytes)
    }

    fn map_pages(&self, address: u64, bytes: u64, kind: HostPages) -> Result<Block, GpuError> {
        self.gpu.map_pages(address, bytes, kind)
    }

    fn allows_rdma(&self) -> bool {
        // Where the seed is odd bytes go through bounce slots.
        !matches!(self.lanes, Lanes::Delayed(seed) if seed % 2 == 1)
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

    pub fn request(self, request: SendRequest) -> Self {
        self.with(request)
    }

    pub fn receive(self, request: ReceiveRequest) -> Self {
        self.with(request)
    }

    pub fn long(self, value: u64) -> Self {
        self.with(value)
    }

    pub fn word(self, value: u32) -> Self {
        self.with(value)
    }
}
