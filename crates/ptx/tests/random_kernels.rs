//! Kernels made at random that try to leave their memory by every kind of access. None may write or read
//! memory of the worker, and none may end the process.

#[path = "../../../fuzz/src/ptx/mod.rs"]
mod ptx;

use std::collections::HashMap;

use ptx::{Choices, End};

/// Kernels of one run; `CAUSEWAY_RANDOM_KERNELS` says another number.
const KERNELS: u64 = 10_000;

#[test]
fn random_kernels_stay_in_their_memory() {
    let count = std::env::var("CAUSEWAY_RANDOM_KERNELS").ok().and_then(|text| text.parse().ok());
    let count = count.unwrap_or(KERNELS);
    let first: u64 =
        std::env::var("CAUSEWAY_RANDOM_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    let mut ends: HashMap<End, u64> = HashMap::new();
    for seed in first..first + count {
        let bytes = Choices::from_seed(seed, 96);
        if std::env::var_os("CAUSEWAY_RANDOM_PRINT").is_some() {
            eprintln!("seed {seed}:\n{}", ptx::source(&bytes));
        }
        *ends.entry(ptx::run_kernel(&bytes)).or_default() += 1;
    }
    println!("{ends:?}");
    // Otherwise the generator would test nothing but the compiler, or nothing at all.
    for end in [End::Faulted, End::Finished] {
        assert!(ends.get(&end).copied().unwrap_or(0) >= count / 20, "{ends:?}");
    }
}
