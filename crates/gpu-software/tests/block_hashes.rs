//! The kernel for block hashes computes what the processor computes, for any number of blocks of threads.

mod client;

use causeway_api::image::Form;
use causeway_api::types::JitOptions;
use causeway_gpu::block_hash::{BLOCK, KERNEL_NAME, THREADS, hash, kernel};
use causeway_gpu::calls::*;
use client::{Client, LEGACY, shape};

#[test]
fn a_kernel_and_the_processor_compute_the_same_hashes() {
    let client = Client::new();
    let text = kernel();
    let module =
        client.gpu.module_load(Form::Single.number(), &JitOptions::default(), text.as_bytes()).unwrap();
    let function = client.gpu.module_function(module, KERNEL_NAME.to_str().unwrap()).unwrap().0;
    let mut number = 1_u64;
    let bytes: Vec<u8> = core::iter::repeat_with(|| {
        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (number >> 56) as u8
    })
    .take(5 * BLOCK)
    .collect();
    let memory = client.upload(&bytes);
    for (from, length, grid) in [
        (0, BLOCK, 1),
        (0, 5 * BLOCK, 1),
        (0, 5 * BLOCK, 2),
        (0, 5 * BLOCK, 7),
        (16, 2 * BLOCK + 16, 3),
        (BLOCK, 3 * BLOCK - 16, 2),
        (48, 4096, 1),
    ] {
        let blocks = length.div_ceil(BLOCK);
        // One more than there are, which must stay.
        let hashes = client.upload(&vec![0x55_u8; 16 * (blocks + 1)]);
        let parameters = parameters!(memory + from as u64, length as u64, hashes);
        client.gpu.launch(function, shape(grid, THREADS), LEGACY, &[], &parameters).unwrap();
        let found: Vec<u8> = client.download(hashes, 16 * (blocks + 1), LEGACY).unwrap();
        let mut expected: Vec<u8> =
            bytes[from..from + length].chunks(BLOCK).flat_map(|block| hash(block).to_le_bytes()).collect();
        expected.resize(expected.len() + 16, 0x55);
        assert_eq!(found, expected, "{length} bytes from {from}, {grid} blocks of threads");
    }
}
