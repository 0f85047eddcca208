//! Managed memory: allocation, prefetching, advice, and the streams that it is attached to.

use crate::abi::entry::Outcome;
use crate::arguments::{list, write_out};
use crate::model::advice::{self, Advice, HOST, Location, NOWHERE};
use crate::model::{context, device, memory};
use crate::remote::mirrored;
use crate::submit::streams::DefaultStream;
use crate::submit::{capture, streams};
use causeway_api::sys::{
    CUdevice, CUdeviceptr, CUmem_advise, CUmem_range_attribute, CUmemAttach_flags, CUmemLocation,
    CUmemLocationType, CUresult, CUstream,
};
use core::ffi::c_void;
use core::ops::Range;

const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;

pub unsafe fn cuMemAllocManaged(dptr: *mut CUdeviceptr, bytesize: usize, flags: u32) -> Outcome {
    let attached = [CUmemAttach_flags::CU_MEM_ATTACH_GLOBAL.0, CUmemAttach_flags::CU_MEM_ATTACH_HOST.0];
    if dptr.is_null() || bytesize == 0 || !attached.contains(&flags) {
        return Err(INVALID);
    }
    capture::refuse_unsafe()?;
    // SAFETY: not null, so there is room for the result.
    unsafe { write_out(dptr, crate::submit::managed::allocate(bytesize)?) }
}

/// A range of managed memory; anything else is refused.
fn managed(address: CUdeviceptr, bytes: usize) -> Result<Range<u64>, CUresult> {
    let piece = memory::find(address).filter(|piece| piece.origin.is_managed()).ok_or(INVALID)?;
    let end = address.checked_add(bytes as u64).filter(|end| *end <= piece.base + piece.size);
    end.filter(|_| bytes > 0).map(|end| address..end).ok_or(INVALID)
}

/// A device, or the host.
fn checked(location: Location) -> Result<Location, CUresult> {
    if location != HOST {
        device::device(location)?;
    }
    Ok(location)
}

fn location(requested: &CUmemLocation) -> Result<Location, CUresult> {
    match requested.type_ {
        CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE => checked(requested.id),
        // The nodes of the host are this machine's, and the memory is there whatever the node.
        CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST
        | CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA
        | CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT => Ok(HOST),
        _ => Err(INVALID),
    }
}

/// Notes what is advised. The memory follows host and device by itself, so that nothing else is to do.
fn advise(
    range: Range<u64>,
    kind: CUmem_advise,
    location: impl FnOnce() -> Result<Location, CUresult>,
) -> Outcome {
    match kind {
        CUmem_advise::CU_MEM_ADVISE_SET_READ_MOSTLY => {
            advice::change(range, |entry| entry.read_mostly = true)
        }
        CUmem_advise::CU_MEM_ADVISE_UNSET_READ_MOSTLY => {
            advice::change(range, |entry| entry.read_mostly = false)
        }
        CUmem_advise::CU_MEM_ADVISE_SET_PREFERRED_LOCATION => {
            let location = location()?;
            advice::change(range, |entry| entry.preferred = location);
        }
        CUmem_advise::CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION => {
            advice::change(range, |entry| entry.preferred = NOWHERE);
        }
        CUmem_advise::CU_MEM_ADVISE_SET_ACCESSED_BY => {
            let location = location()?;
            advice::change(range, |entry| {
                if !entry.accessed_by.contains(&location) {
                    entry.accessed_by.push(location);
                }
            });
        }
        CUmem_advise::CU_MEM_ADVISE_UNSET_ACCESSED_BY => {
            let location = location()?;
            advice::change(range, |entry| entry.accessed_by.retain(|other| *other != location));
        }
        _ => return Err(INVALID),
    }
    Ok(())
}

pub unsafe fn cuMemAdvise(
    devPtr: CUdeviceptr,
    count: usize,
    advice: CUmem_advise,
    device: CUdevice,
) -> Outcome {
    advise(managed(devPtr, count)?, advice, || checked(device))
}

pub unsafe fn cuMemAdvise_v2(
    devPtr: CUdeviceptr,
    count: usize,
    advice: CUmem_advise,
    target: CUmemLocation,
) -> Outcome {
    advise(managed(devPtr, count)?, advice, || location(&target))
}

/// What the program has written is sent with the next command anyway, and what kernels write comes at the
/// next wait: so a prefetch to a device sends it now, and one to the host is only noted.
fn prefetch(range: Range<u64>, to: Location, stream: CUstream, ds: DefaultStream) -> Outcome {
    let stream = context::stream(streams::resolve(stream, ds)?)?;
    if capture::of(&stream) != 0 {
        return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    if to != HOST {
        mirrored::send(stream.context.server())?;
    }
    streams::synchronize_implicitly(&stream)?;
    advice::change(range, |entry| entry.last_prefetch = to);
    Ok(())
}

pub unsafe fn cuMemPrefetchAsync(
    devPtr: CUdeviceptr,
    count: usize,
    dstDevice: CUdevice,
    hStream: CUstream,
    ds: DefaultStream,
) -> Outcome {
    prefetch(managed(devPtr, count)?, checked(dstDevice)?, hStream, ds)
}

pub unsafe fn cuMemPrefetchAsync_v2(
    devPtr: CUdeviceptr,
    count: usize,
    target: CUmemLocation,
    flags: u32,
    hStream: CUstream,
    ds: DefaultStream,
) -> Outcome {
    if flags != 0 {
        return Err(INVALID);
    }
    prefetch(managed(devPtr, count)?, location(&target)?, hStream, ds)
}

/// The ranges of a batch.
///
/// # Safety
/// Both lists must have `count` entries, or be null.
unsafe fn ranges(
    addresses: *const CUdeviceptr,
    sizes: *const usize,
    count: usize,
    flags: u64,
) -> Result<Vec<Range<u64>>, CUresult> {
    if count == 0 || flags != 0 {
        return Err(INVALID);
    }
    // SAFETY: the caller's lists have `count` entries or are null.
    let (addresses, sizes) = unsafe { (list(addresses, count)?, list(sizes, count)?) };
    addresses.iter().zip(sizes).map(|(address, size)| managed(*address, *size)).collect()
}

pub unsafe fn cuMemPrefetchBatchAsync(
    dptrs: *const CUdeviceptr,
    sizes: *const usize,
    count: usize,
    prefetchLocs: *const CUmemLocation,
    prefetchLocIdxs: *const usize,
    numPrefetchLocs: usize,
    flags: u64,
    hStream: CUstream,
    ds: DefaultStream,
) -> Outcome {
    // SAFETY: the program's lists have as many entries as it says, or are null.
    let (ranges, targets, firsts) = unsafe {
        let ranges = ranges(dptrs, sizes, count, flags)?;
        (ranges, list(prefetchLocs, numPrefetchLocs)?, list(prefetchLocIdxs, numPrefetchLocs)?)
    };
    // Each place is for the ranges from its index up to that of the next place.
    if firsts.first() != Some(&0) || !firsts.is_sorted() || firsts.iter().any(|first| *first >= count) {
        return Err(INVALID);
    }
    let targets = targets.iter().map(location).collect::<Result<Vec<_>, _>>()?;
    for (index, range) in ranges.into_iter().enumerate() {
        let target = firsts.partition_point(|first| *first <= index) - 1;
        prefetch(range, targets[target], hStream, ds)?;
    }
    Ok(())
}

/// The contents may be lost after this, and are not.
pub unsafe fn cuMemDiscardBatchAsync(
    dptrs: *const CUdeviceptr,
    sizes: *const usize,
    count: usize,
    flags: u64,
    hStream: CUstream,
    ds: DefaultStream,
) -> Outcome {
    let stream = context::stream(streams::resolve(hStream, ds)?)?;
    // SAFETY: the program's lists have as many entries as it says, or are null.
    unsafe { ranges(dptrs, sizes, count, flags) }?;
    streams::synchronize_implicitly(&stream)
}

pub unsafe fn cuMemDiscardAndPrefetchBatchAsync(
    dptrs: *const CUdeviceptr,
    sizes: *const usize,
    count: usize,
    prefetchLocs: *const CUmemLocation,
    prefetchLocIdxs: *const usize,
    numPrefetchLocs: usize,
    flags: u64,
    hStream: CUstream,
    ds: DefaultStream,
) -> Outcome {
    // SAFETY: the program's lists have as many entries as it says, or are null.
    unsafe {
        cuMemPrefetchBatchAsync(
            dptrs,
            sizes,
            count,
            prefetchLocs,
            prefetchLocIdxs,
            numPrefetchLocs,
            flags,
            hStream,
            ds,
        )
    }
}

/// What all pieces have in common, or `otherwise`.
fn common<T: PartialEq>(entry: &[Advice], part: impl Fn(&Advice) -> T, otherwise: T) -> T {
    let mut parts = entry.iter().map(part);
    match parts.next() {
        Some(first) if parts.all(|other| other == first) => first,
        _ => otherwise,
    }
}

/// The value of an attribute of a range, as many numbers as `capacity` says.
fn range_attribute(
    attribute: CUmem_range_attribute,
    range: Range<u64>,
    capacity: usize,
) -> Result<Vec<i32>, CUresult> {
    let entry = advice::of(range);
    let preferred = || common(&entry, |advice| advice.preferred, NOWHERE);
    let prefetched = || common(&entry, |advice| advice.last_prefetch, NOWHERE);
    let kind = |location| match location {
        NOWHERE => CUmemLocationType::CU_MEM_LOCATION_TYPE_INVALID,
        HOST => CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST,
        _ => CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
    };
    // The number of a device; that of the host means nothing.
    let number = |location| if location == HOST { 0 } else { location };
    let one = match attribute {
        CUmem_range_attribute::CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY => {
            let everywhere = |location: &Location| entry.iter().all(|a| a.accessed_by.contains(location));
            let first = entry.first().map_or(&[][..], |advice| &advice.accessed_by);
            let mut found: Vec<i32> = first.iter().copied().filter(everywhere).collect();
            found.resize(capacity, NOWHERE);
            return if capacity == 0 { Err(INVALID) } else { Ok(found) };
        }
        CUmem_range_attribute::CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY => {
            i32::from(common(&entry, |advice| advice.read_mostly, false))
        }
        CUmem_range_attribute::CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION => preferred(),
        CUmem_range_attribute::CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION => prefetched(),
        CUmem_range_attribute::CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE => kind(preferred()).0 as i32,
        CUmem_range_attribute::CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE => {
            kind(prefetched()).0 as i32
        }
        CUmem_range_attribute::CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID => number(preferred()),
        CUmem_range_attribute::CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID => number(prefetched()),
        _ => return Err(INVALID),
    };
    if capacity == 1 { Ok(vec![one]) } else { Err(INVALID) }
}

pub unsafe fn cuMemRangeGetAttribute(
    data: *mut c_void,
    dataSize: usize,
    attribute: CUmem_range_attribute,
    devPtr: CUdeviceptr,
    count: usize,
) -> Outcome {
    if data.is_null() || !dataSize.is_multiple_of(size_of::<i32>()) {
        return Err(INVALID);
    }
    let values = range_attribute(attribute, managed(devPtr, count)?, dataSize / size_of::<i32>())?;
    // SAFETY: the program has room for `dataSize` bytes.
    unsafe { data.cast::<u8>().copy_from(values.as_ptr().cast(), dataSize) };
    Ok(())
}

pub unsafe fn cuMemRangeGetAttributes(
    data: *mut *mut c_void,
    dataSizes: *mut usize,
    attributes: *const CUmem_range_attribute,
    numAttributes: usize,
    devPtr: CUdeviceptr,
    count: usize,
) -> Outcome {
    if numAttributes == 0 {
        return Err(INVALID);
    }
    // SAFETY: the lists have `numAttributes` entries.
    let (targets, sizes, attributes) = unsafe {
        (list(data, numAttributes)?, list(dataSizes, numAttributes)?, list(attributes, numAttributes)?)
    };
    for ((target, size), attribute) in targets.iter().zip(sizes).zip(attributes) {
        // SAFETY: each place has room for its size.
        unsafe { cuMemRangeGetAttribute(*target, *size, *attribute, devPtr, count)? };
    }
    Ok(())
}

/// The host may use managed memory at any time here, so that nothing changes with the streams it is attached
/// to.
pub unsafe fn cuStreamAttachMemAsync(
    hStream: CUstream,
    dptr: CUdeviceptr,
    length: usize,
    flags: u32,
    ds: DefaultStream,
) -> Outcome {
    let stream = context::stream(streams::resolve(hStream, ds)?)?;
    let piece = memory::find(dptr).filter(|piece| piece.origin.is_managed()).ok_or(INVALID)?;
    let whole = length == 0 || length as u64 == piece.size;
    let known = match CUmemAttach_flags(flags) {
        CUmemAttach_flags::CU_MEM_ATTACH_SINGLE => !stream.is_legacy(),
        CUmemAttach_flags::CU_MEM_ATTACH_GLOBAL | CUmemAttach_flags::CU_MEM_ATTACH_HOST => true,
        _ => false,
    };
    if piece.base == dptr && whole && known { streams::synchronize_implicitly(&stream) } else { Err(INVALID) }
}
