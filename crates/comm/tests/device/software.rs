//! Ranks as threads of this process, whose kernels run on the software GPU: one address space, in which a
//! device address is an address of the process, too.

use core::sync::atomic::{AtomicU64, Ordering};
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::fs::MetadataExt as _;
use std::sync::{Arc, Mutex, OnceLock};

use causeway_comm::device::gpu::{Block, Gpu, GpuError, HostPages, Lane};
use causeway_comm::device::shared::SharedFile;
use causeway_ptx::memory::AddressSpace;
use causeway_ptx::{CompileOptions, Host, LaunchConfig, Loaded, Pool, Program};

use super::machine::{Machine, Params, kernels};

/// Nothing is printed by these kernels.
struct Silent;

impl Host for Silent {
    fn print(&self, _: &[u8]) {}

    fn assertion(&self, _: &str) {}

    fn set_condition(&self, _: u64, _: u32) -> bool {
        false
    }
}

/// The GPU that all ranks of all tests share, with the kernels of `tests/cuda/device_kernels.cu`.
pub struct SoftwareMachine {
    space: Arc<AddressSpace>,
    kernels: Loaded,
    pool: Pool,
}

impl SoftwareMachine {
    pub fn get() -> &'static Self {
        static MACHINE: OnceLock<SoftwareMachine> = OnceLock::new();
        MACHINE.get_or_init(|| {
            let program =
                Program::compile(&[&kernels()], &CompileOptions::default()).expect("the kernels are taken");
            let space = Arc::new(AddressSpace::new(8 << 30).unwrap());
            let kernels = program.load(&space, None).unwrap();
            Self { space, kernels, pool: Pool::new(1) }
        })
    }
}

/// Whole pages that kernels reach, for libraries that have memory of their own; null where there are none.
pub extern "C" fn allocate_pages(bytes: usize) -> *mut core::ffi::c_void {
    let address = SoftwareMachine::get().space.allocate(bytes as u64, 4096);
    address.map_or(core::ptr::null_mut(), |address| address as *mut core::ffi::c_void)
}

/// Frees them.
pub extern "C" fn free_pages(pages: *mut core::ffi::c_void, _: usize) {
    SoftwareMachine::get().space.free(pages as u64).expect("it was allocated");
}

impl Machine for SoftwareMachine {
    fn gpus(&self) -> Vec<Arc<dyn Gpu>> {
        vec![Arc::new(SoftwareGpu(Arc::clone(&self.space)))]
    }

    fn launch(&self, kernel: &str, blocks: u32, threads: u32, parameters: &[Params]) {
        std::thread::scope(|scope| {
            for (rank, Params(params)) in parameters.iter().enumerate() {
                scope.spawn(move || {
                    let (grid, block) = ([blocks, 1, 1], [threads, 1, 1]);
                    let config = LaunchConfig {
                        grid,
                        block,
                        cluster: None,
                        dynamic_shared: 0,
                        cooperative: false,
                        priority: 0,
                        params,
                    };
                    let launched = self.kernels.launch(kernel, config, &self.pool, &Silent);
                    launched.unwrap_or_else(|fault| panic!("{kernel}, rank {rank}: {fault}"));
                });
            }
        });
    }
}

/// All memory, by the file whose descriptor stands for it: ranks that play processes hand those to each other, and
/// find the memory in their one address space.
static MEMORY: Mutex<BTreeMap<u64, (u64, u64)>> = Mutex::new(BTreeMap::new());

fn number_of(descriptor: BorrowedFd<'_>) -> u64 {
    File::from(descriptor.try_clone_to_owned().unwrap()).metadata().unwrap().ino()
}

struct SoftwareGpu(Arc<AddressSpace>);

struct Allocation(Arc<AddressSpace>, u64);

impl Drop for Allocation {
    fn drop(&mut self) {
        self.0.free(self.1).expect("it was allocated");
    }
}

fn error(what: &str, cause: impl ToString) -> GpuError {
    GpuError { what: what.to_owned(), cause: cause.to_string() }
}

impl Gpu for SoftwareGpu {
    fn number(&self) -> u64 {
        1
    }

    fn device_memory(&self, bytes: u64) -> Result<Block, GpuError> {
        let address = self.0.allocate(bytes, 4096).map_err(|cause| error("memory", cause))?;
        let owner = Box::new(Allocation(Arc::clone(&self.0), address));
        let descriptor =
            SharedFile::new(bytes).map_err(|cause| error("a descriptor", cause))?.into_descriptor();
        MEMORY.lock().unwrap().insert(number_of(descriptor.as_fd()), (address, bytes));
        Ok(Block { address, bytes, descriptor: Some(descriptor), owner })
    }

    fn host_memory(&self, bytes: u64) -> Result<Block, GpuError> {
        self.device_memory(bytes)
    }

    fn import(&self, descriptor: BorrowedFd<'_>, bytes: u64) -> Result<Block, GpuError> {
        let known = MEMORY.lock().unwrap().get(&number_of(descriptor)).copied();
        let (address, length) = known.ok_or_else(|| error("another rank's memory", "there is no such"))?;
        assert_eq!(length, bytes, "ranks agree about their windows");
        Ok(Block { address, bytes, descriptor: None, owner: Box::new(()) })
    }

    fn shared_host_memory(&self, bytes: u64) -> Result<Block, GpuError> {
        self.device_memory(bytes)
    }

    fn import_host(&self, descriptor: BorrowedFd<'_>, bytes: u64) -> Result<Block, GpuError> {
        self.import(descriptor, bytes)
    }

    fn map_pages(&self, address: u64, bytes: u64, kind: HostPages) -> Result<Block, GpuError> {
        let (start, size) =
            self.0.range_of(address).ok_or_else(|| error("pages", format!("{kind:?} out of reach")))?;
        assert!(address + bytes <= start + size.next_multiple_of(4096), "pages are mapped as a whole");
        Ok(Block { address, bytes, descriptor: None, owner: Box::new(()) })
    }

    fn allows_rdma(&self) -> bool {
        true
    }

    fn write(&self, to: u64, bytes: &[u8]) -> Result<(), GpuError> {
        self.0.write(to, bytes).map_err(|cause| error("a write", cause))
    }

    fn read(&self, from: u64, bytes: &mut [u8]) -> Result<(), GpuError> {
        self.0.read(from, bytes).map_err(|cause| error("a read", cause))
    }

    fn lane(&self) -> Result<Box<dyn Lane>, GpuError> {
        let space = Arc::clone(&self.0);
        Ok(Box::new(SoftwareLane { space, marks: 0, state: Mutex::default() }))
    }
}

enum Operation {
    Copy(u64, u64, u64),
    Set(u64, u64),
    Mark(u64),
}

/// What a stream holds, and the last mark that it has passed.
#[derive(Default)]
struct LaneState {
    queue: VecDeque<Operation>,
    done: u64,
}

/// A stream that carries out one operation each time that it is looked at.
struct SoftwareLane {
    space: Arc<AddressSpace>,
    marks: u64,
    state: Mutex<LaneState>,
}

impl SoftwareLane {
    fn push(&self, operation: Operation) {
        self.state.lock().unwrap().queue.push_back(operation);
    }
}

impl Lane for SoftwareLane {
    fn copy(&mut self, to: u64, from: u64, bytes: u64) -> Result<(), GpuError> {
        self.push(Operation::Copy(to, from, bytes));
        Ok(())
    }

    fn set(&mut self, to: u64, value: u64) -> Result<(), GpuError> {
        self.push(Operation::Set(to, value));
        Ok(())
    }

    fn mark(&mut self) -> Result<u64, GpuError> {
        self.marks += 1;
        self.push(Operation::Mark(self.marks));
        Ok(self.marks)
    }

    fn done(&self) -> u64 {
        let mut state = self.state.lock().unwrap();
        match state.queue.pop_front() {
            Some(Operation::Copy(to, from, bytes)) => self.space.copy(to, from, bytes).unwrap(),
            Some(Operation::Set(to, value)) => {
                // SAFETY: a word in a window, which is allocated.
                unsafe { &*(to as *const AtomicU64) }.store(value, Ordering::Release);
            }
            Some(Operation::Mark(mark)) => state.done = mark,
            None => {}
        }
        state.done
    }
}
