//! Pointer attributes and allocations.

use core::ffi::{c_int, c_void};

use super::device::exports_memory;
use super::functions::Driver;
use crate::device;
use crate::locks::{Mutex, MutexGuard, rank};

mod attribute {
    pub(super) const CONTEXT: i32 = 1;
    pub(super) const MEMORY_TYPE: i32 = 2;
    pub(super) const HOST_POINTER: i32 = 4;
    pub(super) const SYNC_MEMOPS: i32 = 6;
    pub(super) const BUFFER_ID: i32 = 7;
    pub(super) const IS_MANAGED: i32 = 8;
    pub(super) const DEVICE_ORDINAL: i32 = 9;
    pub(super) const IS_IPC_CAPABLE: i32 = 10;
    pub(super) const RANGE_START: i32 = 11;
    pub(super) const RANGE_SIZE: i32 = 12;
    pub(super) const ALLOWED_HANDLE_TYPES: i32 = 14;
}

/// `CU_MEMORYTYPE_HOST` and `CU_MEMORYTYPE_DEVICE`.
const ON_HOST: i32 = 1;
const ON_DEVICE: i32 = 2;

/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
const DESCRIPTOR_TYPE: u64 = 1;

/// An allocation on a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceMemory {
    /// The context that it belongs to, 0 where it belongs to none (virtual memory management, pools).
    pub(super) context: u64,
    /// The number in this process of the device that uses it.
    pub device: i32,
    /// A number that no other allocation of this process has, now or later.
    pub buffer: u64,
    /// The first address of the allocation, or of the mapping.
    pub start: u64,
    /// Bytes from there.
    pub bytes: u64,
    /// Whether a handle of cudaIPC can be had for it.
    pub ipc: bool,
    /// Whether the allocation itself can be exported as a descriptor.
    pub exportable: bool,
    /// Whether the device makes memory that can be exported, such as a bounce buffer.
    pub device_exports: bool,
    /// Whether its pages move between host and devices (`cuMemAllocManaged`).
    pub is_managed: bool,
    /// Whether the driver waits at the end of each synchronous copy to or from it (see `order`).
    pub(super) is_ordered: bool,
}

impl DeviceMemory {
    /// The allocation that an address lies in, if it is on a GPU. Managed memory is. One call of the driver,
    /// where the allocation has been looked at before.
    pub fn at(driver: &Driver, address: u64) -> Option<Self> {
        let attributes = PointerAttributes::at(driver, address)?;
        let recalled = known().recall(&attributes);
        let memory = match recalled {
            Some(memory) => memory,
            None => {
                let memory = Self::query_all(driver, address, &attributes)?;
                known().keep(memory);
                memory
            }
        };
        Some(Self { is_ordered: attributes.is_ordered, ..memory })
    }

    /// No memory, but its device, which is to use another process's.
    pub fn none_on(device: i32) -> Self {
        Self {
            context: 0,
            device,
            buffer: 0,
            start: 0,
            bytes: 0,
            ipc: false,
            exportable: false,
            device_exports: false,
            is_managed: false,
            is_ordered: false,
        }
    }

    /// All of it, by a call of the driver each.
    fn query_all(driver: &Driver, address: u64, attributes: &PointerAttributes) -> Option<Self> {
        let word = |attribute| read::<c_int>(driver, attribute, address);
        let managed = word(attribute::IS_MANAGED).unwrap_or(0) & 0xff != 0;
        // Where it lies, or for which it is mapped: what is done with it is done by that one.
        let device = word(attribute::DEVICE_ORDINAL)?;
        let device = device::device_for(address).unwrap_or(device);
        let handle_types = read::<u64>(driver, attribute::ALLOWED_HANDLE_TYPES, address).unwrap_or(0);
        Some(Self {
            context: read::<u64>(driver, attribute::CONTEXT, address).unwrap_or(0),
            device,
            buffer: attributes.buffer,
            start: attributes.start,
            bytes: attributes.bytes,
            // One byte is written; a driver that does not know the attribute has only such memory.
            ipc: !managed && word(attribute::IS_IPC_CAPABLE).is_none_or(|flag| flag & 0xff != 0),
            exportable: !managed && handle_types & 0xffff_ffff & DESCRIPTOR_TYPE != 0,
            device_exports: exports_memory(driver, device),
            is_managed: managed,
            is_ordered: attributes.is_ordered,
        })
    }

    /// Whether it goes with a context, as memory of `cuMemAlloc` does; not that of virtual memory management.
    pub fn belongs_to_context(&self) -> bool {
        self.context != 0
    }

    /// Whether so many bytes from an address on lie in it.
    pub fn has(&self, address: u64, bytes: u64) -> bool {
        let before = address.checked_sub(self.start);
        before.is_some_and(|before| bytes <= self.bytes && before <= self.bytes - bytes)
    }

    /// Of two allocations that kernels of one context use both, the one whose context that is; none where
    /// there is no such context.
    pub fn common_context(self, other: Self) -> Option<Self> {
        // What belongs to no context can be used in all of its device.
        match (self.context, other.context) {
            _ if self.device != other.device => None,
            (_, 0) => Some(self),
            (0, _) => Some(other),
            (own, others) => (own == others).then_some(self),
        }
    }

    /// The memory as kernels of a context use it; none where they cannot.
    pub fn in_context(self, context: u64, device: i32) -> Option<Self> {
        let fits = self.device == device && (self.context == 0 || self.context == context);
        fits.then_some(Self { context, ..self })
    }

    /// Whether an address is that of memory on a GPU: one call of the driver.
    pub fn is_at(driver: &Driver, address: u64) -> bool {
        let kind = read::<c_int>(driver, attribute::MEMORY_TYPE, address);
        kind.is_some_and(|kind| is_on_gpu(driver, kind, address))
    }
}

/// Whether an address of this kind of memory is one that GPUs alone reach. Memory of the host that is mapped for GPUs
/// may have another address for them than for the processor.
fn is_on_gpu(driver: &Driver, kind: i32, address: u64) -> bool {
    match kind {
        ON_DEVICE => true,
        ON_HOST => read::<u64>(driver, attribute::HOST_POINTER, address).is_some_and(|host| host != address),
        _ => false,
    }
}

/// Where an allocation begins for GPUs. Of memory of the host that is mapped for them, a driver may say where it begins
/// for the processor.
fn start_at(start: u64, bytes: u64, address: u64, host: impl FnOnce() -> Option<u64>) -> u64 {
    if address.checked_sub(start).is_some_and(|before| before < bytes) {
        return start;
    }
    host().map_or(start, |host| start.wrapping_add(address.wrapping_sub(host)))
}

/// What may change from one message to the next at the same address, by one call of the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PointerAttributes {
    buffer: u64,
    start: u64,
    bytes: u64,
    is_ordered: bool,
}

impl PointerAttributes {
    /// None where the address is not on a GPU.
    fn at(driver: &Driver, address: u64) -> Option<Self> {
        const QUERIED_ATTRIBUTES: [c_int; 5] = [
            attribute::MEMORY_TYPE,
            attribute::BUFFER_ID,
            attribute::RANGE_START,
            attribute::RANGE_SIZE,
            attribute::SYNC_MEMOPS,
        ];
        // Some are written in part.
        let mut values = [0_u64; QUERIED_ATTRIBUTES.len()];
        let mut pointers = values.each_mut().map(|value| (&raw mut *value).cast::<c_void>());
        // SAFETY: both lists have as many entries as is said, each of which has room for the longest
        // attribute; any address may be asked for.
        unsafe {
            driver.pointer_attributes(
                QUERIED_ATTRIBUTES.len() as u32,
                QUERIED_ATTRIBUTES.as_ptr(),
                pointers.as_mut_ptr(),
                address,
            )
        }
        .ok()?;
        let [kind, buffer, start, bytes, ordered] = values;
        if !is_on_gpu(driver, kind as i32, address) {
            return None;
        }
        let start = start_at(start, bytes, address, || read(driver, attribute::HOST_POINTER, address));
        Some(Self { buffer, start, bytes, is_ordered: ordered & 0xff != 0 })
    }
}

/// Allocations that have been looked at: what the driver says of one stays so.
#[derive(Debug, Default)]
struct Known {
    entries: Vec<DeviceMemory>,
    /// The one that the next one takes the place of.
    next: usize,
}

/// How many allocations are known at a time.
const MAX_KNOWN_RANGES: usize = 64;

impl Known {
    fn recall(&self, attributes: &PointerAttributes) -> Option<DeviceMemory> {
        let is_it = |memory: &&DeviceMemory| {
            (memory.buffer, memory.start, memory.bytes)
                == (attributes.buffer, attributes.start, attributes.bytes)
        };
        self.entries.iter().find(is_it).copied()
    }

    fn keep(&mut self, memory: DeviceMemory) {
        if self.entries.len() < MAX_KNOWN_RANGES {
            self.entries.push(memory);
        } else {
            self.entries[self.next] = memory;
            self.next = (self.next + 1) % MAX_KNOWN_RANGES;
        }
    }
}

fn known() -> MutexGuard<'static, rank::Leaf, Known> {
    static KNOWN: Mutex<rank::Leaf, Known> = Mutex::new(Known { entries: Vec::new(), next: 0 });
    KNOWN.lock()
}

fn read<T: Default>(driver: &Driver, attribute: i32, address: u64) -> Option<T> {
    let mut value = T::default();
    // SAFETY: every attribute that is asked for has at most the size of the type it is asked with; any
    // address may be asked for.
    unsafe { driver.pointer_attribute((&raw mut value).cast(), attribute, address) }.ok()?;
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(buffer: u64, start: u64) -> DeviceMemory {
        DeviceMemory {
            context: 0,
            device: 0,
            buffer,
            start,
            bytes: 16,
            ipc: true,
            exportable: false,
            device_exports: true,
            is_managed: false,
            is_ordered: false,
        }
    }

    #[test]
    fn ranges_lie_in_an_allocation_or_not() {
        let memory = memory(7, 4096);
        for (address, bytes, has) in [
            (4096, 16, true),
            (4097, 16, false),
            (4112, 0, true),
            (4095, 1, false),
            (4097, 15, true),
            (4097, u64::MAX, false),
            (u64::MAX, 16, false),
        ] {
            assert_eq!(memory.has(address, bytes), has, "{address} {bytes}");
        }
    }

    #[test]
    fn mapped_memory_begins_where_gpus_have_it() {
        // For the processor at 0x1000, for GPUs at 0x9000.
        assert_eq!(start_at(0x1000, 64, 0x9010, || Some(0x1010)), 0x9000);
        assert_eq!(start_at(0x9000, 64, 0x9010, || Some(0x1010)), 0x9000);
        assert_eq!(start_at(0x9000, 64, 0x9010, || unreachable!("it lies in the allocation")), 0x9000);
    }

    #[test]
    fn memory_is_used_together_in_one_context_of_a_device() {
        let of = |context, device| DeviceMemory { context, device, ..memory(7, 4096) };
        assert_eq!(of(5, 0).common_context(of(5, 0)), Some(of(5, 0)));
        assert_eq!(of(0, 0).common_context(of(5, 0)), Some(of(5, 0)));
        assert_eq!(of(5, 0).common_context(of(0, 0)), Some(of(5, 0)));
        assert_eq!(of(5, 0).common_context(of(6, 0)), None);
        assert_eq!(of(0, 0).common_context(of(0, 1)), None);
    }

    #[test]
    fn what_is_known_of_an_allocation_is_of_no_other() {
        let attributes = |buffer, start, bytes| PointerAttributes { buffer, start, bytes, is_ordered: true };
        let mut known = Known::default();
        known.keep(memory(7, 4096));
        assert_eq!(known.recall(&attributes(7, 4096, 16)), Some(memory(7, 4096)));
        // A number of its own, the same memory mapped elsewhere, and otherwise.
        for other in [attributes(8, 4096, 16), attributes(7, 8192, 16), attributes(7, 4096, 32)] {
            assert_eq!(known.recall(&other), None);
        }
        for buffer in 100..100 + MAX_KNOWN_RANGES as u64 {
            known.keep(memory(buffer, 0));
        }
        assert_eq!((known.entries.len(), known.recall(&attributes(7, 4096, 16))), (MAX_KNOWN_RANGES, None));
        assert!(known.recall(&attributes(101, 0, 16)).is_some());
    }
}
