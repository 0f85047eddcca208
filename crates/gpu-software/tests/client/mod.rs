//! A client of the software GPU, for tests: one context, blocking helpers.

#![allow(dead_code, reason = "each test file uses its own part")]

use causeway_api::handle::{Function, Module, Native, Stream};
use causeway_api::image::Form;
use causeway_api::sys::CUresult;
use causeway_api::types::{JitOptions, LaunchShape, Region};
use causeway_gpu::calls::*;
use causeway_gpu::{CuResult, Gpu};
use causeway_gpu_software::{Options, SoftwareGpu};
use std::sync::mpsc;

pub const PTX: &str = include_str!("../fixtures/kernels.ptx");
pub const LEGACY: Native<Stream> = Native::NULL;
pub const NON_BLOCKING: u32 = 1;

pub struct Client {
    pub gpu: SoftwareGpu,
    pub module: Native<Module>,
}

impl Client {
    /// A device with 256 MiB whose primary context is current and holds the module of the test kernels.
    pub fn new() -> Self {
        let gpu = SoftwareGpu::with_options(&Options { memory: 256 << 20, ..Options::default() }).unwrap();
        let context = gpu.primary_context_retain(0, 0).unwrap();
        gpu.make_current(context).unwrap();
        let module = gpu.module_load(Form::Single.number(), &JitOptions::default(), PTX.as_bytes()).unwrap();
        Self { gpu, module }
    }

    pub fn function(&self, name: &str) -> Native<Function> {
        self.gpu.module_function(self.module, name).unwrap().0
    }

    /// Launches with one block of `threads` threads.
    pub fn launch(
        &self,
        name: &str,
        threads: u32,
        stream: Native<Stream>,
        parameters: &[u8],
    ) -> CuResult<()> {
        self.gpu.launch(self.function(name), shape(1, threads), stream, &[], parameters)
    }

    /// Allocates memory and writes `values` there.
    pub fn upload<T: Bytes>(&self, values: &[T]) -> u64 {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.bytes()).collect();
        let address = self.gpu.memory_allocate(bytes.len()).unwrap();
        let region = Region::linear(address, bytes.len() as u64);
        // SAFETY: the bytes live until the stream is through.
        unsafe { self.gpu.start_copy_to_device(&region.into(), bytes.as_ptr(), LEGACY) }.unwrap();
        self.wait(LEGACY).unwrap();
        address
    }

    /// Reads memory in the order of `stream`.
    pub fn download<T: Bytes>(&self, address: u64, count: usize, stream: Native<Stream>) -> CuResult<Vec<T>> {
        let mut bytes = vec![0; count * size_of::<T>()];
        let region = Region::linear(address, bytes.len() as u64);
        // SAFETY: the bytes live, untouched, until the stream is through.
        unsafe { self.gpu.start_copy_from_device(&region.into(), bytes.as_mut_ptr(), stream) }?;
        self.wait(stream)?;
        Ok(bytes.chunks_exact(size_of::<T>()).map(T::from_bytes).collect())
    }

    pub fn wait(&self, stream: Native<Stream>) -> CuResult<()> {
        let (sender, receiver) = mpsc::channel();
        self.gpu.after(stream, Box::new(move |outcome| sender.send(outcome).unwrap()))?;
        receiver.recv().unwrap_or(Err(CUresult::CUDA_ERROR_UNKNOWN))
    }

    pub fn stream(&self) -> Native<Stream> {
        self.gpu.stream_create(NON_BLOCKING, 0).unwrap()
    }

    pub fn blocking_stream(&self) -> Native<Stream> {
        self.gpu.stream_create(0, 0).unwrap()
    }
}

pub fn shape(blocks: u32, threads: u32) -> LaunchShape {
    LaunchShape { grid: [blocks, 1, 1], block: [threads, 1, 1], shared_bytes: 0 }
}

/// Packs kernel parameters, each aligned to its size.
#[macro_export]
macro_rules! parameters {
    ($($value:expr),* $(,)?) => {{
        let mut packed: Vec<u8> = Vec::new();
        $(
            let bytes = $value.to_ne_bytes();
            packed.resize(packed.len().next_multiple_of(bytes.len()), 0);
            packed.extend(bytes);
        )*
        packed
    }};
}

pub trait Bytes: Copy {
    fn bytes(self) -> Vec<u8>;
    fn from_bytes(bytes: &[u8]) -> Self;
}

macro_rules! bytes {
    ($($type:ty),*) => {$(
        impl Bytes for $type {
            fn bytes(self) -> Vec<u8> {
                self.to_ne_bytes().to_vec()
            }
            fn from_bytes(bytes: &[u8]) -> Self {
                Self::from_ne_bytes(bytes.try_into().unwrap())
            }
        }
    )*};
}

bytes!(u8, i32, u32, u64, f32);
