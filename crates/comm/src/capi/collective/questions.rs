//! The functions of `libcauseway_comm.so` by which a program decides how a collective call is made.
//! `mpi/causeway_comm.h` declares and describes them.

use core::ffi::{CStr, c_char, c_int};

use crate::capi::world;
use crate::collective::chunks::Reduction;
use crate::collective::element::{Element, Operation};
use crate::report::Algorithm;

/// What is reduced; none where no kernel does that.
pub(super) fn reduction(element: c_int, operation: c_int) -> Option<Reduction> {
    let (element, operation) = (Element::of_code(element)?, Operation::of_code(operation)?);
    element.takes(operation).then_some(Reduction { element, operation })
}

/// Whether kernels reduce such elements.
#[unsafe(no_mangle)]
pub extern "C" fn causeway_comm_reduces(element: c_int, operation: c_int) -> c_int {
    c_int::from(reduction(element, operation).is_some())
}

/// From how many bytes on calls are worth being made from GPU to GPU.
#[unsafe(no_mangle)]
pub extern "C" fn causeway_comm_direct_bytes() -> u64 {
    world().map_or(u64::MAX, |world| world.direct_bytes())
}

/// Whether a rank is reached on this host.
#[unsafe(no_mangle)]
pub extern "C" fn causeway_comm_is_near(peer: u32) -> c_int {
    c_int::from(world().is_some_and(|world| world.is_near(peer)))
}

/// Whether ranks of other hosts may be reached over a network.
#[unsafe(no_mangle)]
pub extern "C" fn causeway_comm_uses_network() -> c_int {
    c_int::from(world().is_some_and(|world| world.uses_network()))
}

/// Whether the report of `CAUSEWAY_COMM_EXPLAIN` is asked for.
#[unsafe(no_mangle)]
pub extern "C" fn causeway_comm_explains() -> c_int {
    c_int::from(world().is_some_and(|world| world.explains()))
}

/// Counts a collective call for that report: `way` is one of `causeway_comm.h`.
///
/// # Safety
/// The name is a string of C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_comm_count_call(
    name: *const c_char,
    way: c_int,
    hosts: u32,
    leads: c_int,
    bytes: u64,
) {
    // SAFETY: as promised.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
    if let Some((world, algorithm)) = world().zip(Algorithm::of_code(way, hosts, leads != 0)) {
        world.count_call(&name, algorithm, bytes);
    }
}

/// Whether ranks are to tell each other of calls before they make them.
#[unsafe(no_mangle)]
pub extern "C" fn causeway_comm_checks() -> c_int {
    c_int::from(world().is_some_and(|world| world.checks()))
}
