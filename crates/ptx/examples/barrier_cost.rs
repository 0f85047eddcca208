//! Cost of waiting for each other: how long the threads of a block take at a barrier or a shuffle, beside loops that do not
//! wait: `cargo run --release -p causeway-ptx --example barrier_cost`. One thread of the host works, whose
//! processor time counts, so that other programs hardly change it.

use std::sync::Arc;
use std::time::Duration;

use causeway_ptx::memory::AddressSpace;
use causeway_ptx::{CompileOptions, Host, LaunchConfig, Loaded, Pool, Program};

const SOURCE: &str = include_str!("barrier_cost.ptx");
/// Threads of the blocks.
const THREADS: u32 = 256;
/// Rounds of the loops that wait.
const ROUNDS: u32 = 100;
/// Rows of the matrices.
const ROWS: u32 = 256;
/// Launches, of which the fastest counts.
const LAUNCHES: u32 = 7;

struct NoOutput;

impl Host for NoOutput {
    fn print(&self, _: &[u8]) {}
    fn assertion(&self, _: &str) {}
    fn set_condition(&self, _: u64, _: u32) -> bool {
        true
    }
}

fn main() {
    let program = Program::compile(&[SOURCE], &CompileOptions::default()).expect("the source is valid");
    let space = Arc::new(AddressSpace::new(1 << 30).expect("there are addresses"));
    let loaded = program.load(&space, None).expect("the program fits");
    let buffers: Vec<u64> = (0..3).map(|_| space.allocate(16 << 20, 256).expect("memory")).collect();
    let pool = Pool::new(1);
    let blocks = 64;
    let of_threads = |rounds: u32| u64::from(blocks * THREADS * rounds);
    let measure = |kernel: &str, grid: [u32; 3], block: [u32; 3], last: u32, operations: u64, unit: &str| {
        let time = launch(&loaded, &pool, kernel, grid, block, &buffers, last);
        println!("{kernel:<12} {:>9.2} ns {unit}", time.as_nanos() as f64 / operations as f64);
    };
    let line = [THREADS, 1, 1];
    measure("nothing", [blocks, 1, 1], line, 0, of_threads(1), "a thread");
    measure("one_barrier", [blocks, 1, 1], line, 0, of_threads(1), "a thread with one barrier");
    measure("barriers", [blocks, 1, 1], line, ROUNDS, of_threads(ROUNDS), "a barrier and thread");
    measure("shuffles", [blocks, 1, 1], line, ROUNDS, of_threads(ROUNDS), "a shuffle and thread");
    measure("laplace", [16, 16, 1], [16, 16, 1], 256, 65536, "a thread with nine barriers");
    let products = u64::from(ROWS).pow(3);
    measure("matmul", [ROWS / 16, ROWS / 16, 1], [16, 16, 1], ROWS, products, "a product of a tile");
    measure("saxpy", [4096, 1, 1], line, 1 << 20, 1 << 20, "an element");
}

fn launch(
    loaded: &Loaded,
    pool: &Pool,
    kernel: &str,
    grid: [u32; 3],
    block: [u32; 3],
    buffers: &[u64],
    last: u32,
) -> Duration {
    let mut params: Vec<u8> = buffers.iter().flat_map(|buffer| buffer.to_le_bytes()).collect();
    params.extend(last.to_le_bytes());
    let once = || {
        let config = LaunchConfig {
            grid,
            block,
            cluster: None,
            dynamic_shared: 0,
            cooperative: false,
            priority: 0,
            params: &params,
        };
        let start = processor_time();
        loaded.launch(kernel, config, pool, &NoOutput).expect("the kernel runs");
        processor_time() - start
    };
    once();
    (0..LAUNCHES).map(|_| once()).min().unwrap_or_default()
}

/// What all threads of the process have used.
fn processor_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the time is written to a variable of the type that the call wants.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
