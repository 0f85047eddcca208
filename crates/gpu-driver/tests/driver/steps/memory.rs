//! Memory: allocation, copies, pools.

use crate::session::{Outcome, Session, check};
use causeway_api::calls;
use causeway_api::handle::Handle;
use causeway_api::sys::CUmemPool_attribute;
use causeway_api::types::Region;
use causeway_gpu::block_hash::{BLOCK, hash};
use causeway_gpu::gpudirect::{GpuDirectMemory, GpuDirectPath};
use causeway_gpu::{Gpu, Shared};
use std::time::Instant;

pub fn allocate(session: &Session) -> Outcome {
    let bytes = 4096;
    let address = session.call(calls::memory_allocate { size: bytes })?;
    let stream = Handle::NULL;
    session.call(calls::cuMemsetD8Async { dstDevice: address, uc: 0xab, N: bytes, hStream: stream })?;
    session.call(calls::cuMemsetD32Async { dstDevice: address, ui: 0x0102_0304, N: 1, hStream: stream })?;
    let bytes = session.read(&Region::linear(address, 6))?;
    check(bytes == [4, 3, 2, 1, 0xab, 0xab], || format!("read {bytes:?}"))?;
    session.free(address)?;
    let (free, total) = session.call(calls::cuMemGetInfo_v2 {})?;
    check(0 < free && free <= total, || format!("{free} bytes free of {total}"))?;
    let zero = session.call(calls::memory_allocate { size: 0 });
    check(zero.is_err(), || "nothing was allocated without an error".into())?;
    Ok(format!("{} MiB free", free >> 20))
}

pub fn copies(session: &Session) -> Outcome {
    let (from, to) = (session.allocate(1 << 16)?, session.allocate(1 << 16)?);
    let stream = Handle::NULL;
    let layouts = [
        Region::linear(0, 5000),
        Region { address: 0, row_pitch: 512, slice_pitch: 0, width: 100, height: 7, depth: 1 },
        Region { address: 0, row_pitch: 128, slice_pitch: 1280, width: 100, height: 7, depth: 5 },
        Region { address: 0, row_pitch: 0, slice_pitch: 640, width: 64, height: 1, depth: 9 },
    ];
    for layout in layouts {
        let bytes: Vec<u8> =
            (0..layout.bytes().unwrap_or_default()).map(|index| (index % 251) as u8).collect();
        let source = Region { address: from, ..layout };
        session.write(&source, &bytes)?;
        check(session.read(&source)? == bytes, || format!("{layout:?} does not come back"))?;
        // Across the device into another layout, of the same size but packed.
        let packed = Region { row_pitch: layout.width, slice_pitch: layout.width * layout.height, ..layout };
        let destination = Region { address: to, ..packed };
        session.call(calls::copy_within_device {
            destination: destination.into(),
            source: source.into(),
            stream,
        })?;
        check(session.read(&destination)? == bytes, || {
            format!("{layout:?} is not copied within the device")
        })?;
        let back = Region { address: from, row_pitch: 256, slice_pitch: 2560, ..layout };
        session.call(calls::copy_within_device {
            destination: back.into(),
            source: destination.into(),
            stream,
        })?;
        check(session.read(&back)? == bytes, || format!("{layout:?} is not copied back within the device"))?;
    }
    let outside = Region::linear(0x10, 8);
    check(session.write(&outside, &[0; 8]).is_err(), || "an address that is none was written to".into())?;
    session.free(from)?;
    session.free(to)?;
    Ok(String::new())
}

pub fn rate(session: &Session) -> Outcome {
    const BYTES: usize = 64 << 20;
    let address = session.allocate(BYTES)?;
    let stream = session.objects.native(Handle::NULL)?;
    let begin = Instant::now();
    let staging = session.driver.staging(BYTES)?;
    let pinning = begin.elapsed();
    let region = Region::linear(address, BYTES as u64);
    let mut rates = [0.0; 2];
    for (direction, rate) in rates.iter_mut().enumerate() {
        let begin = Instant::now();
        // SAFETY: `staging` has as many bytes and lives until the stream is done.
        unsafe {
            match direction {
                0 => session.driver.start_copy_to_device(&region.into(), staging.as_ptr(), stream)?,
                _ => session.driver.start_copy_from_device(&region.into(), staging.as_ptr(), stream)?,
            }
        }
        session.finish(Handle::NULL)?;
        *rate = BYTES as f64 / begin.elapsed().as_secs_f64() / 1e9;
    }
    drop(staging);
    let begin = Instant::now();
    drop(session.driver.staging(BYTES)?);
    let again = begin.elapsed();
    session.free(address)?;
    Ok(format!(
        "{:.1} GB/s in, {:.1} GB/s out, pinning {pinning:?}, from the pool {again:?}",
        rates[0], rates[1]
    ))
}

pub fn pools(session: &Session) -> Outcome {
    let (own, default) = (session.handle(), session.handle());
    session.call(calls::memory_pool_create { pool: own, device: 0, limit: 0 })?;
    session.call(calls::memory_pool_default { pool: default, device: 0 })?;
    let threshold = CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
    let reuse = CUmemPool_attribute::CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC;
    for (attribute, value) in [(threshold, 5 << 32), (reuse, 0), (reuse, 1)] {
        session.call(calls::memory_pool_attribute_set { pool: own, attribute, value })?;
        let read = session.call(calls::memory_pool_attribute_get { pool: own, attribute })?;
        check(read == value, || format!("attribute {} was set to {value} and is {read}", attribute.0))?;
    }
    session.call(calls::memory_pool_current_set { device: 0, pool: own })?;
    let stream = session.stream(1)?;
    for pool in [own, default, Handle::NULL] {
        let address = session.call(calls::memory_allocate_async { size: 4096, pool, stream })?;
        session.call(calls::cuMemsetD8Async { dstDevice: address, uc: 1, N: 4096, hStream: stream })?;
        session.call(calls::memory_free_async { address, stream })?;
    }
    session.finish(stream)?;
    session.call(calls::memory_pool_current_set { device: 0, pool: Handle::NULL })?;
    session.call(calls::cuMemPoolTrimTo { pool: own, minBytesToKeep: 0 })?;
    session.call(calls::cuMemPoolDestroy { pool: own })?;
    session.call(calls::stream_destroy { stream })?;
    Ok(String::new())
}

pub fn shared(session: &Session) -> Outcome {
    let (window, size) = session.driver.snapshot()?.host_window;
    check(size > 0, || "there is no host window".into())?;
    let filled = |address| {
        session.call(calls::cuMemsetD8Async { dstDevice: address, uc: 7, N: 100, hStream: Handle::NULL })
    };
    for wanted in [0, window, window + (4 << 20)] {
        let (address, memory) = session.driver.shared_memory(wanted, 5000, false)?;
        check(wanted == 0 || address == wanted, || format!("{address:#x} instead of {wanted:#x}"))?;
        let Shared::Here(memory) = memory else {
            return Err("pinned memory lies on the device".to_owned().into());
        };
        check(memory.as_slice().iter().all(|byte| *byte == 0), || "it is not zeroed".into())?;
        filled(address)?;
        session.finish(Handle::NULL)?;
        check(memory.as_slice()[99..101] == [7, 0], || "the device's bytes do not come".into())?;
    }
    let (window, size) = session.driver.snapshot()?.managed_window;
    if size == 0 {
        return Ok("managed memory is the host's".to_owned());
    }
    // Twice at one place: the first time it must have been released whole.
    for place in [window, window, window + (6 << 20)] {
        let bytes = 5 << 20;
        let (address, memory) = session.driver.shared_memory(place, bytes, true)?;
        check(address == place, || format!("{address:#x} instead of {place:#x}"))?;
        filled(address + 1)?;
        session.finish(Handle::NULL)?;
        let mut read = vec![1; bytes];
        let Shared::OnDevice(memory) = memory else {
            return Err("managed memory lies on the host".to_owned().into());
        };
        memory.read(0, &mut read)?;
        check(read[..3] == [0, 7, 7] && read[100..102] == [7, 0], || format!("read {:?}", &read[..102]))?;
        check(read[101..].iter().all(|byte| *byte == 0), || "it was not zeroed".into())?;
        memory.write(bytes - 3, &[1, 2, 3])?;
        let there = session.read(&Region::linear(address + bytes as u64 - 4, 4))?;
        check(there == [0, 1, 2, 3], || format!("the device has {there:?}"))?;
    }
    for outside in
        [0, session.driver.snapshot()?.host_window.0, window - (2 << 20), window + 4096, window + size]
    {
        let refused = session.driver.shared_memory(outside, 5 << 20, true).err();
        check(refused == Some(causeway_api::sys::CUresult::CUDA_ERROR_INVALID_VALUE), || {
            format!("{outside:#x}: {refused:?}")
        })?;
    }
    Ok("managed memory is the device's".to_owned())
}

/// The device and the processor compute the same hashes of managed memory, of any length, and a full device does not hold the
/// computation up for ever.
pub fn block_hashes(session: &Session) -> Outcome {
    let (window, size) = session.driver.snapshot()?.managed_window;
    if size == 0 {
        return Ok("managed memory is the host's".to_owned());
    }
    let bytes = (256 << 20) + 5 * BLOCK + 48;
    let (address, memory) = session.driver.shared_memory(window, bytes, true)?;
    let Shared::OnDevice(memory) = memory else {
        return Err("managed memory lies on the host".to_owned().into());
    };
    let mut number = 1_u64;
    let mut expected = vec![0_u8; bytes];
    for word in expected.chunks_mut(8) {
        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        word.copy_from_slice(&(number ^ number >> 29).to_le_bytes()[..word.len()]);
    }
    memory.write(0, &expected)?;
    let mut copy = vec![0; bytes];
    for _ in 0..4 {
        check(memory.block_hashes(0, bytes).is_none(), || "the kernel is loaded too early".to_owned())?;
        memory.read(0, &mut copy)?;
    }
    let mut remark = String::new();
    let start = Instant::now();
    session.driver.load_kernels_if_quiet();
    remark += &format!("loaded in {} ms; ", start.elapsed().as_millis());
    for (at, length) in [
        (0, bytes),
        (0, 2 << 20),
        (BLOCK, BLOCK),
        (3 * BLOCK, bytes - 3 * BLOCK),
        (bytes / BLOCK * BLOCK, bytes % BLOCK),
    ] {
        let start = Instant::now();
        let Some(found) = memory.block_hashes(at, length) else {
            return Err("the device does not compute hashes".to_owned().into());
        };
        let (took, found) = (start.elapsed(), found?);
        let of_host: Vec<u128> = expected[at..at + length].chunks(BLOCK).map(hash).collect();
        check(found == of_host, || format!("{length} bytes from {at}: the hashes differ"))?;
        remark += &format!("{} KiB in {} us; ", length >> 10, took.as_micros());
    }
    // A byte of the device's own changes one hash.
    let offset = 77 * BLOCK + 5;
    let fill =
        calls::cuMemsetD8Async { dstDevice: address + offset as u64, uc: 1, N: 1, hStream: Handle::NULL };
    session.call(fill)?;
    session.finish(Handle::NULL)?;
    expected[offset] = 1;
    let found = memory.block_hashes(0, 100 * BLOCK).ok_or_else(|| "no hashes".to_owned())??;
    let of_host: Vec<u128> = expected[..100 * BLOCK].chunks(BLOCK).map(hash).collect();
    check(found == of_host, || "the hashes after a change differ".to_owned())?;
    Ok(remark)
}

/// What is said to work must give descriptors, of ranges that begin anywhere; the rest must say why not.
pub fn direct(session: &Session) -> Outcome {
    let paths = session.driver.gpudirect_paths(0);
    check(paths.usable.len() + paths.refused.len() == 2, || format!("{paths:?}"))?;
    let address = session.allocate(1 << 20)?;
    for path in &paths.usable {
        let memory = session.driver.gpudirect_memory(*path, address + 100, 10_000)?;
        let is_right = match &memory {
            GpuDirectMemory::DmaBuf { offset, .. } => {
                *path == GpuDirectPath::DmaBuf && *offset == (address + 100) % 4096
            }
            GpuDirectMemory::Addresses => *path == GpuDirectPath::Peermem,
        };
        check(is_right, || format!("{path} gave {memory:?}"))?;
    }
    session.driver.finish_direct_writes(session.context)?;
    session.free(address)?;
    Ok(paths.to_string())
}
