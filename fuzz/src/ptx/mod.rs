//! What must hold for any PTX: it is refused, or what it does ends in a fault or not, and no memory outside of the
//! device's is read or written.

// No user of this module calls everything.
#![allow(dead_code)]

mod accesses;
mod choices;
mod kernels;

use std::sync::{Arc, LazyLock};

use causeway_ptx::memory::AddressSpace;
use causeway_ptx::{CompileOptions, Fault, Host, LaunchConfig, Pool, Program};

pub use choices::Choices;

/// What is put into memory that no kernel may reach, and looked for in what kernels can write.
const SECRET: u64 = 0x5ec3_e7c0_ffee_d00d;
const WORDS: usize = 64;

/// Any text is refused with a reason, or accepted; then machine code is generated for its kernels. Text of a source, or
/// of the body of a kernel.
pub fn verify(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let body = format!("{}.visible .entry k() {{ {} {text} }}", kernels::HEADER, kernels::REGISTERS);
    for source in [text.as_ref(), &body] {
        match Program::compile(&[source], &CompileOptions::default()) {
            Ok(program) => generate(&program),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}

fn generate(program: &Program) {
    static SPACE: LazyLock<Arc<AddressSpace>> = LazyLock::new(space);
    // Variables may be larger than the device.
    let Ok(loaded) = program.load(&SPACE, None) else { return };
    for kernel in program.kernels() {
        match (loaded.prepare(&kernel.name), &kernel.unsupported) {
            (Ok(()), None) | (Err(Fault::Unsupported { .. }), Some(_)) => {}
            (prepared, unsupported) => panic!("{prepared:?} of a kernel with {unsupported:?}"),
        }
    }
}

fn space() -> Arc<AddressSpace> {
    Arc::new(AddressSpace::new(64 << 20).expect("addresses can be reserved"))
}

/// How a generated kernel ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum End {
    /// The compiler refused each of its instructions.
    Refused,
    /// It ran into a fault.
    Faulted,
    /// It ran to its end.
    Finished,
}

/// Runs the kernel that these bytes choose, which tries to leave its memory, and checks that it did not.
pub fn run(bytes: &[u8]) {
    run_kernel(bytes);
}

/// As [`run`]; says how it ended.
pub fn run_kernel(bytes: &[u8]) -> End {
    static WORLD: LazyLock<World> = LazyLock::new(World::new);
    WORLD.run(kernels::Kernel::choose(&mut Choices::new(bytes)))
}

/// The kernel's source, for whoever wants to read it.
pub fn source(bytes: &[u8]) -> String {
    kernels::Kernel::choose(&mut Choices::new(bytes)).source()
}

/// The device that all kernels run on, and memory beside it.
struct World {
    space: Arc<AddressSpace>,
    pool: Pool,
    /// Device memory that kernels may use.
    buffer: u64,
    /// Memory of the worker.
    heap: Box<[u64; WORDS]>,
    /// Memory of the worker of which kernels may well find out where it is: it lies right behind the address space,
    /// if the system gave it there.
    behind: &'static [u64],
}

struct Silent;

impl Host for Silent {
    fn print(&self, text: &[u8]) {
        assert!(!text.windows(8).any(|bytes| bytes == SECRET.to_le_bytes()), "a kernel printed the secret");
    }
    fn assertion(&self, _: &str) {}
    fn set_condition(&self, _: u64, _: u32) -> bool {
        false
    }
}

impl World {
    fn new() -> Self {
        let space = space();
        let behind = map_behind(space.base() + space.reserved());
        let buffer = space.allocate(WORDS as u64 * 8, 256).expect("there is memory");
        Self { space, pool: Pool::new(1), buffer, heap: Box::new([SECRET; WORDS]), behind }
    }

    fn run(&self, mut kernel: kernels::Kernel) -> End {
        let compile = |source: &str| {
            let program = Program::compile(&[source], &CompileOptions::default()).ok()?;
            program.kernels().iter().all(|kernel| kernel.unsupported.is_none()).then_some(program)
        };
        let program = compile(&kernel.source()).or_else(|| {
            kernel.drop_refused(|source| compile(source).is_none());
            compile(&kernel.source())
        });
        let Some(program) = program.filter(|_| !kernel.steps.is_empty()) else { return End::Refused };
        let source = kernel.source();
        let loaded = program.load(&self.space, None).expect("small variables fit");
        let stack = std::hint::black_box([SECRET; WORDS]);
        self.space.fill(self.buffer, &[0], WORDS as u64 * 8).expect("the buffer is live");
        let pointers =
            [self.buffer, self.heap.as_ptr() as u64, stack.as_ptr() as u64, self.behind.as_ptr() as u64];
        let mut parameters: Vec<u8> = pointers.iter().flat_map(|pointer| pointer.to_le_bytes()).collect();
        parameters.resize(64, 0);
        let config = LaunchConfig {
            grid: [kernel.blocks * kernel.cluster, 1, 1],
            block: [kernel.threads, 1, 1],
            cluster: Some([kernel.cluster, 1, 1]),
            dynamic_shared: kernel.dynamic_shared,
            cooperative: false,
            priority: 0,
            params: &parameters,
        };
        let result = loaded.launch("k", config, &self.pool, &Silent);
        for (name, words) in
            [("heap", &self.heap[..]), ("stack", &std::hint::black_box(stack)[..]), ("mapping", self.behind)]
        {
            assert!(words.iter().all(|&word| word == SECRET), "the {name} was written:\n{source}");
        }
        let mut bytes = [0; WORDS * 8];
        self.space.read(self.buffer, &mut bytes).expect("the buffer is live");
        let (words, _) = bytes.as_chunks::<8>();
        let found = words.iter().any(|word| u64::from_le_bytes(*word) == SECRET);
        assert!(!found, "the secret was read:\n{source}");
        if result.is_ok() { End::Finished } else { End::Faulted }
    }
}

/// A page of secrets behind the guard pages of an address space, or wherever the system has room.
fn map_behind(end: u64) -> &'static [u64] {
    const PAGE: usize = 4096;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let wish = (end + (64 << 10)) as *mut libc::c_void;
    // SAFETY: a new mapping, which is never taken back, and is filled before anything refers to it.
    unsafe {
        let start = libc::mmap(wish, PAGE, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
        assert_ne!(start, libc::MAP_FAILED, "a page can be mapped");
        let words = std::slice::from_raw_parts_mut(start.cast::<u64>(), PAGE / 8);
        words.fill(SECRET);
        words
    }
}
