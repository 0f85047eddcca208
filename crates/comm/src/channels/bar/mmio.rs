//! MMIO copies to and from device memory. The compiler neither leaves their accesses out nor merges them;
//! they are of 8 bytes where they can be: each is a transaction of the bus, or a part of one. Reads are of 16
//! bytes where the processor has loads for memory that gathers writes: four of them make one transaction.

use core::sync::atomic::{Ordering, fence};

/// Copies memory of a device to memory of the host.
///
/// # Safety
/// Both are valid for so many bytes, do not overlap, and nobody writes them meanwhile.
pub(super) unsafe fn read(device: *const u8, host: *mut u8, bytes: usize) {
    // The GPU's work that has been waited for is seen.
    fence(Ordering::SeqCst);
    let (mut at, end) = (0, bytes);
    #[cfg(target_arch = "x86_64")]
    if bytes >= VECTOR && std::arch::is_x86_feature_detected!("sse4.1") {
        let head = device.align_offset(VECTOR).min(bytes);
        at = head + (bytes - head) / VECTOR * VECTOR;
        // SAFETY: the three parts make up the caller's ranges; the vectors are aligned at the device, and the
        // processor has the loads.
        unsafe {
            read_integers(device, host, head);
            read_vectors(device.add(head), host.add(head), at - head);
        }
    }
    // SAFETY: the rest of the caller's ranges.
    unsafe { read_integers(device.add(at), host.add(at), end - at) };
}

/// Bytes of a vector.
#[cfg(target_arch = "x86_64")]
const VECTOR: usize = 16;

/// Copies whole vectors by streaming loads, which memory that is not cached answers a line at a time.
///
/// # Safety
/// As of [`read`]; `device` is aligned to a vector, `bytes` a multiple of its length, and the processor has
/// SSE4.1.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.1")]
unsafe fn read_vectors(device: *const u8, host: *mut u8, bytes: usize) {
    use core::arch::x86_64::{__m128i, _mm_storeu_si128, _mm_stream_load_si128};
    for at in (0..bytes).step_by(VECTOR) {
        // SAFETY: the caller has an aligned `device` and whole vectors in both ranges, and the processor has
        // SSE4.1.
        unsafe {
            let vector = _mm_stream_load_si128(device.add(at).cast::<__m128i>());
            _mm_storeu_si128(host.add(at).cast::<__m128i>(), vector);
        }
    }
}

/// # Safety
/// As of [`read`].
unsafe fn read_integers(device: *const u8, host: *mut u8, bytes: usize) {
    let head = device.align_offset(8).min(bytes);
    let machine_words = (bytes - head) / 8;
    // SAFETY: the caller has both ranges valid for so many bytes; whole machine words are aligned at the
    // device.
    unsafe {
        for at in (0..head).chain(head + machine_words * 8..bytes) {
            host.add(at).write(device.add(at).read_volatile());
        }
        for word in 0..machine_words {
            let at = head + word * 8;
            let value = device.add(at).cast::<u64>().read_volatile();
            host.add(at).cast::<u64>().write_unaligned(value);
        }
    }
}

/// Copies memory of the host to memory of a device. What was written is on its way to the device when this
/// returns, in front of whatever the processor writes to it from then on.
///
/// # Safety
/// Both are valid for so many bytes, do not overlap, and no other code uses the device's.
pub(super) unsafe fn write(host: *const u8, device: *mut u8, bytes: usize) {
    let head = device.align_offset(8).min(bytes);
    let machine_words = (bytes - head) / 8;
    // SAFETY: all offsets are below `bytes`, for which the caller says that both addresses are valid.
    unsafe {
        for at in (0..head).chain(head + machine_words * 8..bytes) {
            device.add(at).write_volatile(host.add(at).read());
        }
        for word in 0..machine_words {
            let at = head + word * 8;
            let value = host.add(at).cast::<u64>().read_unaligned();
            device.add(at).cast::<u64>().write_volatile(value);
        }
    }
    drain();
}

/// Lets writes that the processor gathers go out: the BAR is mapped so that it gathers them.
fn drain() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every processor of this kind has the instruction.
    unsafe {
        core::arch::x86_64::_mm_sfence();
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a barrier, which touches nothing.
    unsafe {
        core::arch::asm!("dsb st", options(nostack, preserves_flags));
    }
    fence(Ordering::SeqCst);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn all_bytes_and_no_others_are_copied(
            content in proptest::collection::vec(any::<u8>(), 0..200),
            device_at in 0_usize..16,
            host_at in 0_usize..16,
        ) {
            let length = content.len();
            let mut device = vec![0x5a_u8; length + 32];
            let mut host = vec![0xa5_u8; length + 32];
            host[host_at..host_at + length].copy_from_slice(&content);
            // SAFETY: the ranges lie in the two vectors.
            unsafe { write(host.as_ptr().add(host_at), device.as_mut_ptr().add(device_at), length) };
            prop_assert_eq!(&device[device_at..device_at + length], &content[..]);
            let others = device[..device_at].iter().chain(&device[device_at + length..]);
            prop_assert!(others.clone().all(|byte| *byte == 0x5a));
            let mut back = vec![0xa5_u8; length + 32];
            // SAFETY: the ranges lie in the two vectors.
            unsafe { read(device.as_ptr().add(device_at), back.as_mut_ptr().add(host_at), length) };
            prop_assert_eq!(&back, &host);
        }
    }
}
