//! Copies, staging and allocations, passed on to the driver.

use super::{BUSY, Fake};
use causeway_api::handle::{Native, Stream};
use causeway_api::sys::{CUmemPool_attribute, CUresult};
use causeway_api::types::Region;
use causeway_gpu::calls::*;
use causeway_gpu::gpudirect::{GpuDirectMemory, GpuDirectPath};
use causeway_gpu::{Gpu, Shared};

#[test]
fn copies_use_the_call_that_fits() {
    let fake = Fake::new();
    let mut host = vec![0u8; 4096];
    let stream = Native::<Stream>::from_value(0x55);
    let planes =
        Region { address: 0x9000, row_pitch: 128, slice_pitch: 1280, width: 100, height: 4, depth: 3 };
    let rows = Region { depth: 1, ..planes };
    // SAFETY: the fake reads and writes at most the region's bytes, which `host` has.
    unsafe {
        fake.driver.start_copy_to_device(&Region::linear(0x100, 64).into(), host.as_ptr(), stream).unwrap();
        fake.driver
            .start_copy_from_device(&Region::linear(0x200, 64).into(), host.as_mut_ptr(), stream)
            .unwrap();
        assert_eq!(fake.log(), "HtoD 100 64 0x55\nDtoH 200 64 0x55\n");
        fake.driver.start_copy_to_device(&rows.into(), host.as_ptr(), stream).unwrap();
        assert_eq!(fake.log(), "2D from 1 0 pitch 100 to 2 9000 pitch 128 size 100x4 0x55\n");
        fake.driver.start_copy_from_device(&planes.into(), host.as_mut_ptr(), stream).unwrap();
    }
    assert_eq!(fake.log(), "3D from 2 9000 pitch 128 rows 10 to 1 0 pitch 100 rows 4 size 100x4x3 0x55\n");
    fake.driver.copy_within_device(Region { address: 0x1, ..planes }.into(), planes.into(), stream).unwrap();
    assert_eq!(fake.log(), "3D from 2 9000 pitch 128 rows 10 to 2 1 pitch 128 rows 10 size 100x4x3 0x55\n");
    fake.driver.copy_within_device(Region::linear(1, 8).into(), Region::linear(2, 8).into(), stream).unwrap();
    assert_eq!(fake.log(), "DtoD 1 2 8 0x55\n");
    assert!(fake.driver.copy_within_device(Region::linear(1, 8).into(), rows.into(), stream).is_err());
}

/// `cuMemcpyAsync` takes an address that it does not know for ordinary memory of the process.
#[test]
fn only_memory_that_the_driver_knows_is_copied_on_the_device() {
    let fake = Fake::new();
    let stream = Native::from_value(0x55);
    let copy = |to, from, bytes| {
        let (to, from) = (Region::linear(to, bytes), Region::linear(from, bytes));
        fake.driver.copy_within_device(to.into(), from.into(), stream)
    };
    let mut memory = [0_u8; 64];
    let unknown = memory.as_mut_ptr() as u64;
    for (to, from, bytes) in
        [(0x100, unknown, 8), (unknown, 0x100, 8), (0x100, 0x200ff9, 8), (0x100, 0x200000, 4097)]
    {
        assert_eq!(copy(to, from, bytes), Err(CUresult::CUDA_ERROR_INVALID_VALUE), "{to:#x} {from:#x}");
        assert_eq!(fake.log(), "");
    }
    copy(0x100, 0x200ff8, 8).unwrap();
    copy(0x200000, 0x100, 4096).unwrap();
    assert_eq!(fake.log(), "DtoD 100 200ff8 8 0x55\nDtoD 200000 100 4096 0x55\n");
}

#[test]
fn staging_memory_is_pinned_once_and_used_again() {
    let fake = Fake::new();
    let mut first = fake.driver.staging(100_000).unwrap();
    // A slab of 32 blocks, each long enough.
    assert_eq!(fake.log(), "register 4194304 flags 1 in 0xc1\n");
    first.as_mut_slice().fill(1);
    let address = first.as_ptr();
    drop(first);
    let again = fake.driver.staging(110_000).unwrap();
    assert_eq!((again.as_ptr(), again.len()), (address, 110_000));
    assert_eq!(fake.log(), "");
    let neighbour = fake.driver.staging(110_000).unwrap();
    assert_ne!(neighbour.as_ptr(), address);
    assert_eq!(fake.log(), "", "its slab is registered already");
    drop(neighbour);
    // Another thread, without a current context, gets pinned memory too.
    std::thread::scope(|scope| {
        scope.spawn(|| drop(fake.driver.staging(1).unwrap()));
    });
    assert!(fake.log().contains("register 2097152 flags 1 in 0xc1\n"));
    fake.driver.primary_context_release(fake.context, 1).unwrap();
    assert!(fake.log().contains("unregister\n"), "what is kept goes with its context");
    drop(again);
    assert_eq!(fake.log(), "", "what was in flight went with its context");
}

#[test]
fn staging_memory_for_bytes_that_stay_in_caches_is_what_was_used_last() {
    const BYTES: usize = 5 << 20;
    let fake = Fake::new();
    let [first, last] = [(); 2].map(|()| fake.driver.warm_staging(BYTES).unwrap());
    let address = last.as_ptr();
    drop(first);
    drop(last);
    fake.log();
    let warm = fake.driver.warm_staging(BYTES).unwrap();
    assert_eq!((warm.as_ptr(), fake.log().as_str()), (address, ""));
    drop(warm);
    // What passes by the caches gets memory that nothing has used, as long as little of it lies there.
    let fresh = fake.driver.staging(BYTES).unwrap();
    assert_eq!(fake.log(), format!("register {BYTES} flags 1 in 0xc1\n"));
    drop(fresh);
}

#[test]
fn network_cards_get_whole_pages_of_device_memory() {
    let fake = Fake::new();
    assert_eq!(fake.driver.gpudirect_paths(1).usable.first(), Some(&GpuDirectPath::DmaBuf));
    let memory = fake.driver.gpudirect_memory(GpuDirectPath::DmaBuf, 0x20_0010, 8192).unwrap();
    assert!(matches!(memory, GpuDirectMemory::DmaBuf { offset: 0x10, .. }), "{memory:?}");
    assert_eq!(fake.log(), "dma-buf 200000 12288\n");
    let by_address = fake.driver.gpudirect_memory(GpuDirectPath::Peermem, 0x20_0010, 8192).unwrap();
    assert!(matches!(by_address, GpuDirectMemory::Addresses));
    assert!(fake.driver.gpudirect_memory(GpuDirectPath::HostMemory, 0x20_0010, 8192).is_err());
    assert_eq!(fake.log(), "");
    // The fake's ordering is less than the owner's.
    fake.driver.finish_direct_writes(fake.context).unwrap();
    assert_eq!(fake.log(), "flush 0 100\n");
}

#[test]
fn memory_of_another_process_is_mapped_as_the_driver_wants_it_and_undone_when_it_cannot_be_used() {
    let fake = Fake::new();
    let exported = || std::fs::File::open("/dev/null").unwrap().into();
    let imported = fake.driver.import_memory(exported(), 4 << 20, 0).unwrap();
    assert_eq!((imported.address, imported.size), (0x700_0000, 4 << 20));
    let mapped = "import\nreserve 4194304 0 0 0\nmap 7000000 4194304 0 a110c 0\n";
    assert_eq!(fake.log(), format!("{mapped}access 7000000 4194304 for 0 of 1: 3\nrelease a110c\n"));
    fake.driver.unmap_imported(imported).unwrap();
    let undone = "unmap 7000000 4194304\nfree addresses 7000000 4194304\n";
    assert_eq!(fake.log(), undone);
    // A device that does not reach the memory.
    let refused = fake.driver.import_memory(exported(), 4 << 20, 1).unwrap_err();
    assert!(refused.to_string().contains("cannot access the other one's memory"), "{refused}");
    assert_eq!(fake.log(), format!("{mapped}access 7000000 4194304 for 1 of 1: 3\n{undone}release a110c\n"));
}

#[test]
fn pools_have_numbers_of_two_widths() {
    let fake = Fake::new();
    let pool = fake.driver.memory_pool_create(1, 4096).unwrap();
    assert_eq!(fake.log(), "pool type 1 handles 0 location 1 1 limit 4096\n");
    let value = |number| fake.driver.memory_pool_attribute_get(pool, CUmemPool_attribute(number));
    assert_eq!((value(2), value(4)), (Ok(1), Ok(5_000_000_000)));
    assert_eq!(value(99), Err(CUresult::CUDA_ERROR_NOT_SUPPORTED));
}

/// Loading waits for every stream of the context, which the program may have stand until this call has ended.
#[test]
fn the_kernel_for_block_hashes_is_loaded_when_nothing_runs_and_copies_have_cost_as_much() {
    let fake = Fake::new();
    let (window, size) = fake.driver.snapshot().unwrap().managed_window;
    assert!(size > 0, "the devices map memory");
    let bytes = 256 << 20;
    let (_, Shared::OnDevice(memory)) = fake.driver.shared_memory(window, bytes, true).unwrap() else {
        panic!("managed memory lies on the host");
    };
    let loads = || {
        fake.driver.load_kernels_if_quiet();
        fake.log().matches("module ").count()
    };
    let mut copy = vec![0; bytes];
    for _ in 0..4 {
        assert!(memory.block_hashes(0, bytes).is_none());
        assert_eq!(loads(), 0, "copies have cost less than a load");
        memory.read(0, &mut copy).unwrap();
    }
    fake.set_busy(BUSY);
    assert_eq!(loads(), 0, "a stream has work");
    assert!(memory.block_hashes(0, bytes).is_none());
    fake.set_busy(0);
    assert_eq!((loads(), loads()), (1, 0));
    let hashes = memory.block_hashes(65536, 65536 + 48).expect("the kernel is there").unwrap();
    assert_eq!(hashes.len(), 2);
    let log = fake.log();
    assert!(log.contains("launch grid 2,1,1 block 512,1,1"), "{log}");
    // The kernel does not end: whoever asks copies meanwhile.
    fake.set_busy(BUSY);
    assert!(memory.block_hashes(0, 65536).is_none());
    assert!(fake.log().contains("launch grid 1,1,1"));
    assert!(memory.block_hashes(0, 65536).is_none());
    assert_eq!(fake.log(), "", "a second one would wait behind it");
    fake.set_busy(0);
    assert!(memory.block_hashes(0, 65536).is_some());
    fake.set_busy(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS.0 as i32);
    assert_eq!(memory.block_hashes(0, 65536), Some(Err(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS)));
    fake.set_busy(0);
    fake.log();
    drop(memory);
    let log = fake.log();
    assert!(log.contains("unregister") && log.contains("unmap"), "{log}");
}
