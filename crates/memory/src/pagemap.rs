//! Pagemap of this process: which pages of a range are there, a file's, or written to since they were last scanned
//! (`PAGEMAP_SCAN`, Linux 6.7).
//!
//! The numbers are those of `linux/fs.h`.

use causeway_sync::descriptors::above_stdio;
use core::ops::Range;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;

/// `PAGEMAP_SCAN`.
const SCAN: libc::c_ulong = 0xc060_6610;
/// `PM_SCAN_WP_MATCHING`: a page that is found counts as unwritten from now on.
pub const SCAN_PROTECT_FOUND: u64 = 1;
/// `PM_SCAN_CHECK_WPASYNC`: memory whose writes are not tracked is an error.
pub const SCAN_ONLY_TRACKED: u64 = 2;
/// `PAGE_IS_WRITTEN`.
pub const PAGE_IS_WRITTEN: u64 = 1 << 1;
/// `PAGE_IS_FILE`: a page of a file, or shared memory.
pub const PAGE_IS_FILE: u64 = 1 << 2;
/// `PAGE_IS_PRESENT`.
pub const PAGE_IS_PRESENT: u64 = 1 << 3;
/// `PAGE_IS_SWAPPED`.
pub const PAGE_IS_SWAPPED: u64 = 1 << 4;

/// What a scan looks for.
#[derive(Debug, Default)]
pub struct Scan {
    /// `SCAN_*`.
    pub flags: u64,
    /// It ends when so many pages have been found; 0: it does not.
    pub max_pages: u64,
    /// Those of [`Scan::category_mask`] that a page must not have.
    pub category_inverted: u64,
    /// `PAGE_IS_*` that a page must have.
    pub category_mask: u64,
    /// `PAGE_IS_*` that a region of the result tells.
    pub return_mask: u64,
}

/// `struct pm_scan_arg`.
#[repr(C)]
struct Argument {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    regions: u64,
    regions_length: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// Adjacent pages of the same categories: `struct page_region`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct PageRegion {
    /// Its first address.
    pub start: u64,
    /// The address after it.
    pub end: u64,
    /// `PAGE_IS_*`.
    pub categories: u64,
}

/// `/proc/self/pagemap`.
#[derive(Debug)]
pub struct Pagemap(File);

impl Pagemap {
    /// Opens it.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn open() -> io::Result<Self> {
        above_stdio(File::open("/proc/self/pagemap")?).map(Self)
    }

    /// Looks for pages of `range`, and returns how many regions of them it has found and where it stopped.
    ///
    /// # Errors
    /// When the kernel is too old, or the range has memory of which it does not say.
    pub fn scan(
        &self,
        range: Range<usize>,
        scan: &Scan,
        found: &mut [PageRegion],
    ) -> io::Result<(usize, usize)> {
        let mut argument = Argument {
            size: size_of::<Argument>() as u64,
            flags: scan.flags,
            start: range.start as u64,
            end: range.end as u64,
            walk_end: 0,
            regions: found.as_mut_ptr() as u64,
            regions_length: found.len() as u64,
            max_pages: scan.max_pages,
            category_inverted: scan.category_inverted,
            category_mask: scan.category_mask,
            category_anyof_mask: 0,
            return_mask: scan.return_mask,
        };
        // SAFETY: the kernel reads and writes this structure, and at most as many regions as `found` has.
        let count = unsafe { libc::ioctl(self.0.as_raw_fd(), SCAN, core::ptr::from_mut(&mut argument)) };
        if count < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(((count as usize).min(found.len()), argument.walk_end as usize))
    }
}
