//! Older forms of NVML calls that programs still make. `nvml.h` no longer has their structures, so that they
//! are no lines of the list: the call of today is asked, and what both structures begin with is written.

use crate::call;
use causeway_api::nvml::status::{self, Status};

/// Bytes of `nvmlPciInfo_t` of today, and those that it begins with in all its forms: the address as text of 16
/// bytes, and its numbers.
const PCI_INFO: usize = 68;
const PCI_INFO_BEGIN: usize = 36;

/// The older form of `nvmlDeviceGetNvLinkRemotePciInfo_v2`, by which NCCL finds out what GPUs are joined. Of what
/// follows the numbers, which is reserved there, nothing is written.
///
/// # Safety
/// As `nvml.h` demanded: `pci` has room for a structure of at least 36 bytes, or is null.
#[allow(non_snake_case)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetNvLinkRemotePciInfo(device: u64, link: u64, pci: *mut u8) -> Status {
    if pci.is_null() {
        return status::INVALID_ARGUMENT;
    }
    let mut info = [0_u8; PCI_INFO];
    const INDEX: usize = causeway_api::nvml::index_of("nvmlDeviceGetNvLinkRemotePciInfo_v2");
    // SAFETY: the device is the caller's, and there is room for the structure.
    let status = unsafe { call::forward(INDEX, &[device, link, info.as_mut_ptr() as u64]) };
    if status == status::SUCCESS {
        // SAFETY: the caller vouches for so many bytes.
        unsafe { core::ptr::copy_nonoverlapping(info.as_ptr(), pci, PCI_INFO_BEGIN) };
    }
    status
}
