//! Device memory, pinned host memory, and devices by PCI address.

use super::device::write_text;
use crate::abi::entry::Outcome;
use crate::arguments::{text, write_optional, write_out};
use crate::log::refuse_use;
use crate::model::address::heap;
use crate::model::{context, device, graph, host_memory, memory};
use crate::remote::{mirrored, session};
use crate::submit::pool::host_ranges;
use crate::submit::{allocation, capture, pinned, send, virtual_memory};
use causeway_api::calls;
use causeway_api::sys::{CUdevice, CUdeviceptr, CUresult};
use core::ffi::{c_char, c_void};

pub unsafe fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> Outcome {
    let device = context::current_state()?.device;
    let (on_server, all) = send::call(&calls::cuMemGetInfo_v2 {})?;
    // What heaps keep is there for the next allocation.
    let here = usize::try_from(heap::free_bytes(device)).unwrap_or(0);
    // SAFETY: room for both results, or null.
    unsafe {
        write_optional(free, on_server.saturating_add(here).min(all));
        write_optional(total, all);
    }
    Ok(())
}

pub unsafe fn cuMemAlloc_v2(dptr: *mut CUdeviceptr, bytesize: usize) -> Outcome {
    context::current()?;
    if dptr.is_null() || bytesize == 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    capture::refuse_unsafe()?;
    let address = allocation::allocate(bytesize)?;
    // SAFETY: not null, so there is room for the result.
    unsafe { write_out(dptr, address) }
}

pub unsafe fn cuMemAllocPitch_v2(
    dptr: *mut CUdeviceptr,
    pPitch: *mut usize,
    WidthInBytes: usize,
    Height: usize,
    ElementSizeBytes: u32,
) -> Outcome {
    /// Rows start at multiples of this, on every device since compute capability 2.0.
    const PITCH: usize = 512;
    let is_known = matches!(ElementSizeBytes, 4 | 8 | 16);
    if dptr.is_null() || pPitch.is_null() || WidthInBytes == 0 || Height == 0 || !is_known {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let pitch = WidthInBytes.checked_next_multiple_of(PITCH).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    capture::refuse_unsafe()?;
    let address = allocation::allocate(pitch.checked_mul(Height).ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?)?;
    // SAFETY: neither is null, so there is room for both results.
    unsafe {
        write_out(dptr, address)?;
        write_out(pPitch, pitch)
    }
}

/// Freed memory may be handed out again at once, so the work that may still use it is waited for first, as
/// CUDA does.
pub unsafe fn cuMemFree_v2(dptr: CUdeviceptr) -> Outcome {
    if dptr == 0 {
        // As every call, it says what has failed before. A capture that forbids it does so without memory, too.
        context::current().map_or(Ok(()), |context| session::of(context)?.faults().check())?;
        return capture::refuse_unsafe();
    }
    capture::refuse_unsafe()?;
    if let Some(freed) = graph::memory::free(dptr) {
        return freed;
    }
    allocation::free(dptr)
}

pub unsafe fn cuMemGetAddressRange_v2(
    pbase: *mut CUdeviceptr,
    psize: *mut usize,
    dptr: CUdeviceptr,
) -> Outcome {
    context::current()?;
    let (base, size) = match (memory::find(dptr), host_memory::find(dptr as usize)) {
        // A mapping that its device may not use is as none.
        (Some(piece), _) if super::unified::is_barred(&piece, dptr) => {
            return Err(CUresult::CUDA_ERROR_NOT_FOUND);
        }
        (Some(piece), _) => (piece.base, piece.size as usize),
        (None, Some(range)) => (range.base as CUdeviceptr, range.size),
        (None, None) => return Err(CUresult::CUDA_ERROR_NOT_FOUND),
    };
    // SAFETY: room for both results, or null.
    unsafe {
        write_optional(pbase, base);
        write_optional(psize, size);
    }
    Ok(())
}

pub unsafe fn cuMemAllocHost_v2(pp: *mut *mut c_void, bytesize: usize) -> Outcome {
    // SAFETY: the program has room for an address at `pp`, or passes null.
    unsafe { cuMemHostAlloc(pp, bytesize, 0) }
}

pub unsafe fn cuMemHostAlloc(pp: *mut *mut c_void, bytesize: usize, Flags: u32) -> Outcome {
    /// Portable, mapped to the device, write-combined.
    const KNOWN_FLAGS: u32 = 7;
    context::current()?;
    if pp.is_null() || Flags & !KNOWN_FLAGS != 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    capture::refuse_unsafe()?;
    // SAFETY: not null, so there is room for the result.
    unsafe { write_out(pp, pinned::allocate(bytesize, Flags)?) }
}

pub unsafe fn cuMemFreeHost(p: *mut c_void) -> Outcome {
    if p.is_null() { Ok(()) } else { pinned::free(p) }
}

pub unsafe fn cuMemHostGetDevicePointer_v2(pdptr: *mut CUdeviceptr, p: *mut c_void, Flags: u32) -> Outcome {
    if pdptr.is_null() || Flags != 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    context::current()?;
    if let Some(base) = virtual_memory::open_mapping_at(p as CUdeviceptr) {
        // NVIDIA's driver (580, H100) says where the mapping begins, whatever address in it was asked for, of
        // a device's memory, too. SAFETY: not null, so there is room for the result.
        return unsafe { write_out(pdptr, base) };
    }
    let range = host_memory::find(p as usize).filter(mirrored::is_open);
    let range = range.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let start = mirrored::mirror(&range)?;
    // SAFETY: not null, so there is room for the result.
    unsafe { write_out(pdptr, start + (p as usize - range.base) as CUdeviceptr) }
}

pub unsafe fn cuMemHostGetFlags(pFlags: *mut u32, p: *mut c_void) -> Outcome {
    /// Mapped for devices, as with unified addresses all pinned and managed memory is.
    const MAPPED: u32 = 2;
    /// Memory by `cuMemCreate` belongs to no context.
    const PORTABLE: u32 = 1;
    context::current()?;
    let is_managed = || {
        let piece = memory::find(p as CUdeviceptr).filter(|piece| piece.origin.is_managed());
        piece.is_some_and(|piece| host_ranges::pool_of(piece.base).is_none())
    };
    let flags = match host_memory::find(p as usize) {
        Some(range) if !range.is_pooled => range.flags | MAPPED,
        None if is_managed() => MAPPED,
        None if virtual_memory::open_mapping_at(p as CUdeviceptr).is_some() => PORTABLE | MAPPED,
        _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    };
    // SAFETY: room for the result, or null.
    unsafe { write_out(pFlags, flags) }
}

pub unsafe fn cuMemHostRegister_v2(p: *mut c_void, bytesize: usize, Flags: u32) -> Outcome {
    /// Memory of another device.
    const IO_MEMORY: u32 = 4;
    /// Portable, mapped to the device, of another device, only read.
    const KNOWN_FLAGS: u32 = 15;
    if Flags & !KNOWN_FLAGS != 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    if Flags & IO_MEMORY != 0 {
        return Err(refuse_use!("cuMemHostRegister of another device's memory"));
    }
    pinned::register(p, bytesize, Flags)
}

pub unsafe fn cuMemHostUnregister(p: *mut c_void) -> Outcome {
    pinned::unregister(p)
}

pub unsafe fn cuDeviceGetByPCIBusId(dev: *mut CUdevice, pciBusId: *const c_char) -> Outcome {
    // SAFETY: NUL-terminated text, or null.
    let bus_address = pci_address(unsafe { text(pciBusId) }?).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let found =
        device::all().iter().position(|device| pci_address(&device.info.pci_bus_id) == Some(bus_address));
    let number = found.ok_or(CUresult::CUDA_ERROR_INVALID_DEVICE)?;
    // SAFETY: room for the result, or null.
    unsafe { write_out(dev, number as CUdevice) }
}

pub unsafe fn cuDeviceGetPCIBusId(pciBusId: *mut c_void, len: i32, dev: CUdevice) -> Outcome {
    /// What a domain of four digits, a bus, a device and a function take with the NUL behind them.
    const MIN_LENGTH: i32 = 13;
    if len < MIN_LENGTH {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: room for `len` bytes, or null.
    unsafe { write_text(pciBusId, len, &device::device(dev)?.info.pci_bus_id) }
}

/// Domain, bus, device and function of `[domain:]bus:device[.function]`, in hexadecimal.
fn pci_address(text: &str) -> Option<[u32; 4]> {
    let (slot, function) = text.trim().split_once('.').unwrap_or((text.trim(), "0"));
    let parts: Vec<&str> = slot.split(':').collect();
    let [domain, bus, device] = match parts.as_slice() {
        [bus, device] => ["0", bus, device],
        [domain, bus, device] => [*domain, bus, device],
        _ => return None,
    };
    let number = |text| u32::from_str_radix(text, 16).ok();
    Some([number(domain)?, number(bus)?, number(device)?, number(function)?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pci_addresses_are_compared_by_value() {
        assert_eq!(pci_address("0000:3b:00.0"), Some([0, 0x3b, 0, 0]));
        assert_eq!(pci_address("00000000:3B:00.0"), pci_address("3b:0"));
        assert_eq!(pci_address("3b"), None);
        assert_eq!(pci_address("0000:zz:00.0"), None);
    }
}
