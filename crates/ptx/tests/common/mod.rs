//! What the tests of this crate share: a small device with typed buffers.

#![allow(dead_code)]

use std::sync::{Arc, Mutex, OnceLock};

use causeway_ptx::memory::AddressSpace;
use causeway_ptx::{CompileOptions, Fault, Host, LaunchConfig, Loaded, Pool, Program};

/// Collects what kernels print.
#[derive(Default)]
pub struct Output {
    pub text: Mutex<Vec<u8>>,
    pub assertions: Mutex<Vec<String>>,
    /// Values of conditions as kernels set them; the handles that there are are even.
    pub conditions: Mutex<Vec<(u64, u32)>>,
}

impl Host for Output {
    fn print(&self, text: &[u8]) {
        self.text.lock().unwrap().extend_from_slice(text);
    }

    fn assertion(&self, message: &str) {
        self.assertions.lock().unwrap().push(message.to_owned());
    }

    fn set_condition(&self, handle: u64, value: u32) -> bool {
        self.conditions.lock().unwrap().push((handle, value));
        handle.is_multiple_of(2)
    }
}

impl Output {
    pub fn printed(&self) -> String {
        String::from_utf8(self.text.lock().unwrap().clone()).unwrap()
    }
}

/// Plain numbers, as bytes and back.
pub trait Number: Copy + Default {
    const SIZE: usize;
    fn put(self, bytes: &mut Vec<u8>);
    fn get(bytes: &[u8]) -> Self;
}

macro_rules! numbers {
    ($($ty:ty),*) => {$(
        impl Number for $ty {
            const SIZE: usize = size_of::<$ty>();
            fn put(self, bytes: &mut Vec<u8>) {
                bytes.extend_from_slice(&self.to_le_bytes());
            }
            fn get(bytes: &[u8]) -> Self {
                Self::from_le_bytes(bytes.try_into().unwrap())
            }
        }
    )*};
}
numbers!(u8, u16, u32, u64, i8, i16, i32, i64, f32, f64);

/// A pool that all tests of a process share.
pub fn pool() -> &'static Pool {
    static POOL: OnceLock<Pool> = OnceLock::new();
    POOL.get_or_init(|| Pool::new(4))
}

/// Kernel parameters, each aligned to its size.
#[derive(Default, Clone)]
pub struct Params(pub Vec<u8>);

impl Params {
    pub fn with<T: Number>(mut self, value: T) -> Self {
        self.0.resize(self.0.len().next_multiple_of(T::SIZE), 0);
        value.put(&mut self.0);
        self
    }
}

/// A program loaded into an address space of its own.
pub struct Device {
    pub space: Arc<AddressSpace>,
    pub loaded: Loaded,
    pub output: Output,
}

impl Device {
    /// Compiles and loads; the test fails when that fails.
    pub fn new(sources: &[&str]) -> Self {
        let program = Program::compile(sources, &CompileOptions::default())
            .unwrap_or_else(|error| panic!("the program is refused: {error}"));
        let space = Arc::new(AddressSpace::new(1 << 30).unwrap());
        let loaded = program.load(&space, None).unwrap();
        Self { space, loaded, output: Output::default() }
    }

    /// Copies numbers into new device memory.
    pub fn upload<T: Number>(&self, numbers: &[T]) -> u64 {
        let mut bytes = Vec::new();
        numbers.iter().for_each(|number| number.put(&mut bytes));
        let address = self.space.allocate(bytes.len() as u64, 256).unwrap();
        self.space.write(address, &bytes).unwrap();
        address
    }

    /// Makes zeroed device memory for so many numbers.
    pub fn zeros<T: Number>(&self, count: usize) -> u64 {
        self.space.allocate((count * T::SIZE) as u64, 256).unwrap()
    }

    /// Copies numbers back.
    pub fn download<T: Number>(&self, address: u64, count: usize) -> Vec<T> {
        let mut bytes = vec![0; count * T::SIZE];
        self.space.read(address, &mut bytes).unwrap();
        bytes.chunks(T::SIZE).map(T::get).collect()
    }

    pub fn try_launch(
        &self,
        kernel: &str,
        grid: [u32; 3],
        block: [u32; 3],
        dynamic_shared: u32,
        params: &Params,
    ) -> Result<(), Fault> {
        let config = LaunchConfig {
            grid,
            block,
            cluster: None,
            dynamic_shared,
            cooperative: false,
            priority: 0,
            params: &params.0,
        };
        self.loaded.launch(kernel, config, pool(), &self.output)
    }

    pub fn launch(&self, kernel: &str, grid: u32, block: u32, params: Params) {
        self.try_launch(kernel, [grid, 1, 1], [block, 1, 1], 0, &params)
            .unwrap_or_else(|fault| panic!("{kernel}: {fault}"));
    }
}

/// Numbers in [0, 1) that look random and are the same in every run.
pub fn noise(count: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2_654_435_761) | 1;
    (0..count)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            (state >> 8) as f32 / (1 << 24) as f32
        })
        .collect()
}

/// Why a module, or its only kernel, is refused.
pub fn refusal(source: &str) -> String {
    match Program::compile(&[source], &CompileOptions::default()) {
        Err(error) => error.to_string(),
        Ok(program) => program.kernels()[0].unsupported.as_ref().expect("it can run").to_string(),
    }
}

/// A module with one kernel `k(u64 p, u64 q)`; `%rd0` is `p` and `%rd1` is `q`.
pub fn kernel(body: &str) -> String {
    format!(
        ".version 8.0\n.target sm_75\n.address_size 64\n\
         .visible .entry k(.param .u64 p, .param .u64 q)\n{{\n\
         .reg .pred %p<10>; .reg .b32 %r<20>; .reg .b64 %rd<20>; .reg .f32 %f<10>;\n\
         .shared .align 16 .b8 shared_bytes[64];\n\
         .local .align 16 .b8 local_bytes[64];\n\
         ld.param.u64 %rd0, [p];\nld.param.u64 %rd1, [q];\nmov.u32 %r0, %tid.x;\n{body}\nret;\n}}\n"
    )
}
