//! Set-up calls: those of the driver that a thread must not make while a kernel waits for it.
//!
//! A call that changes the address space (to pin, map, allocate, and to make a stream) takes a lock of the driver, which a
//! thread holds that copies in the default stream or frees memory, until the kernels before are done (driver 580 on two
//! H200: `cuMemHostRegister` stood still behind a copy of PyTorch's, which waited for a kernel of NCCL's). Where the kernel
//! waits for the calling thread in its turn, neither ends. So a thread that serves kernels has everything made before they run.

use core::cell::Cell;

thread_local! {
    static SERVES_KERNELS: Cell<bool> = const { Cell::new(false) };
}

/// From now on kernels may wait for the calling thread: set-up calls of this crate on it are errors of the program that
/// uses it, which debug builds stop at.
pub fn forbid_setup_calls() {
    SERVES_KERNELS.set(true);
}

/// Panics in debug builds where the calling thread must not make this call.
pub(super) fn check_setup_call(call: &str) {
    debug_assert!(
        !SERVES_KERNELS.get(),
        "{call} on a thread that kernels wait for: it stands still while another thread waits for one of them"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_up_calls_are_refused_on_the_thread_that_serves() {
        check_setup_call("cuMemMap");
        let served = std::thread::spawn(|| {
            forbid_setup_calls();
            check_setup_call("cuMemMap");
        });
        assert_eq!(served.join().is_err(), cfg!(debug_assertions));
        check_setup_call("cuMemMap");
    }
}
