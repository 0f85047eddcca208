//! Device memory of up to three dimensions: checking it, and moving its bytes row by row.

use causeway_api::sys::CUresult;
use causeway_api::types::Region;
use causeway_gpu::CuResult;
use causeway_ptx::memory::{AddressSpace, MemoryError};

/// Whether the region is well formed and lies inside one live allocation now.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` when not.
pub(super) fn check(space: &AddressSpace, region: &Region) -> CuResult<()> {
    let extent = extent(region).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    if extent == 0 {
        return Ok(());
    }
    if space.covers(region.address, extent) { Ok(()) } else { Err(CUresult::CUDA_ERROR_INVALID_VALUE) }
}

/// Bytes from the region's first to its last one; nothing when the numbers make no sense.
fn extent(region: &Region) -> Option<u64> {
    if region.bytes()? == 0 {
        return Some(0);
    }
    let rows_overlap = region.height > 1 && region.row_pitch < region.width;
    let slices_overlap = region.depth > 1 && region.slice_pitch < region.width;
    if rows_overlap || slices_overlap {
        return None;
    }
    let rows = region.row_pitch.checked_mul(region.height - 1)?;
    let slices = region.slice_pitch.checked_mul(region.depth - 1)?;
    let extent = rows.checked_add(slices)?.checked_add(region.width)?;
    region.address.checked_add(extent).map(|_| extent)
}

/// The longest run: memory cannot be allocated or freed while one is moved, so that has to end soon.
const MAX_RUN_BYTES: u64 = 8 << 20;

/// The region's runs of contiguous bytes, as (address, offset in contiguous memory, length). The region has
/// passed [`check`], so nothing overflows.
fn runs(region: &Region) -> impl Iterator<Item = (u64, u64, u64)> + use<> {
    let region = match (region.bytes(), region.is_contiguous()) {
        (None | Some(0), _) => Region { height: 0, depth: 0, ..*region },
        (Some(bytes), true) => Region::linear(region.address, bytes),
        (Some(_), false) => *region,
    };
    let rows = (0..region.depth).flat_map(move |slice| (0..region.height).map(move |row| (slice, row)));
    rows.flat_map(move |(slice, row)| {
        let address = region.address + slice * region.slice_pitch + row * region.row_pitch;
        let offset = (slice * region.height + row) * region.width;
        (0..region.width.div_ceil(MAX_RUN_BYTES)).map(move |piece| {
            let start = piece * MAX_RUN_BYTES;
            (address + start, offset + start, MAX_RUN_BYTES.min(region.width - start))
        })
    })
}

/// Fills a region with a pattern that divides its width.
pub(super) fn fill(space: &AddressSpace, region: &Region, pattern: &[u8]) -> Result<(), MemoryError> {
    runs(region)
        .try_for_each(|(address, _, length)| space.fill(address, pattern, length / pattern.len() as u64))
}

/// Copies between regions of equal width, height and depth.
pub(super) fn copy(space: &AddressSpace, destination: &Region, source: &Region) -> Result<(), MemoryError> {
    if destination.is_contiguous() && source.is_contiguous() {
        return space.copy(destination.address, source.address, source.bytes().unwrap_or(0));
    }
    if source.bytes() == Some(0) {
        return Ok(());
    }
    let row = |region: &Region, slice: u64, row: u64| {
        region.address + slice * region.slice_pitch + row * region.row_pitch
    };
    for slice in 0..source.depth {
        for line in 0..source.height {
            space.copy(row(destination, slice, line), row(source, slice, line), source.width)?;
        }
    }
    Ok(())
}

/// Copies contiguous host memory into a region.
///
/// # Safety
/// `source` must be readable for the region's bytes.
pub(super) unsafe fn write(
    space: &AddressSpace,
    destination: &Region,
    source: *const u8,
) -> Result<(), MemoryError> {
    runs(destination).try_for_each(|(address, offset, length)| {
        // SAFETY: a run lies inside the region's bytes, for which the caller vouches.
        let bytes = unsafe { core::slice::from_raw_parts(source.add(offset as usize), length as usize) };
        space.write(address, bytes)
    })
}

/// Copies a region into contiguous host memory.
///
/// # Safety
/// `destination` must be writable for the region's bytes and hold initialised bytes.
pub(super) unsafe fn read(
    space: &AddressSpace,
    source: &Region,
    destination: *mut u8,
) -> Result<(), MemoryError> {
    runs(source).try_for_each(|(address, offset, length)| {
        // SAFETY: a run lies inside the region's bytes, for which the caller vouches.
        let bytes =
            unsafe { core::slice::from_raw_parts_mut(destination.add(offset as usize), length as usize) };
        space.read(address, bytes)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boxes_are_cut_out_and_put_in() {
        let space = AddressSpace::new(1 << 20).unwrap();
        let start = space.allocate(4 * 4 * 4, 256).unwrap();
        let volume: Vec<u8> = (0..64).collect();
        space.write(start, &volume).unwrap();
        let corner =
            Region { address: start + 21, row_pitch: 4, slice_pitch: 16, width: 2, height: 2, depth: 2 };
        check(&space, &corner).unwrap();
        let mut bytes = [0; 8];
        // SAFETY: the region has eight bytes.
        unsafe { read(&space, &corner, bytes.as_mut_ptr()) }.unwrap();
        assert_eq!(bytes, [21, 22, 25, 26, 37, 38, 41, 42]);
        let dense = Region { address: start, row_pitch: 2, slice_pitch: 4, ..corner };
        copy(&space, &dense, &corner).unwrap();
        fill(&space, &Region { height: 1, depth: 2, ..corner }, &[9, 8]).unwrap();
        let mut after = [0; 64];
        space.read(start, &mut after).unwrap();
        assert_eq!(after[..8], bytes);
        assert_eq!((&after[21..23], &after[37..39], after[25]), (&[9, 8][..], &[9, 8][..], 25));
    }

    #[test]
    fn regions_that_leave_the_allocation_are_refused() {
        let space = AddressSpace::new(1 << 20).unwrap();
        let start = space.allocate(64, 256).unwrap();
        let fits = Region { address: start, row_pitch: 16, slice_pitch: 64, width: 16, height: 4, depth: 1 };
        assert!(check(&space, &fits).is_ok());
        for wrong in [
            Region { address: start + 1, ..fits },
            Region { height: 5, ..fits },
            Region { row_pitch: 8, ..fits },
            Region { depth: 2, slice_pitch: u64::MAX, ..fits },
            Region { depth: u64::MAX, slice_pitch: 0, height: 1, width: 1, ..fits },
            Region { row_pitch: u64::MAX / 2, ..fits },
            Region { width: u64::MAX, ..fits },
            Region { address: u64::MAX, ..fits },
            Region { address: start - 1, ..fits },
        ] {
            assert!(check(&space, &wrong).is_err(), "{wrong:?}");
        }
        assert!(check(&space, &Region { width: 0, address: 0, ..fits }).is_ok());
    }
}
