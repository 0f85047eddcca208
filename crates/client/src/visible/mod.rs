//! Memory of the program that kernels reach, although they run on another machine.
//!
//! The server has a *mirror* of such memory. What the program has written goes there before work is given to the
//! device, and what kernels have written comes back before a call returns that waits for them. So either side sees
//! what the other wrote before such a call; a kernel and the program cannot follow each other's writes while both
//! run. Memory of which no kernel has the address has no mirror and costs nothing.
//!
//! | Module | Question it answers |
//! |---|---|
//! | `window` | Where does memory lie that has the same address on both sides? |
//! | `written` | Which pages has the program written to? |
//! | `regions` | What has a mirror, and how do changes travel? |
//! | [`advice`] | What was advised for managed memory? |
//! | [`managed`], [`variable`] | What is managed memory, and where do `__managed__` variables lie? |

pub mod advice;
pub mod managed;
mod regions;
pub mod variable;
pub mod window;
mod written;

pub use regions::{
    before, context_ends, device_address, fetch, forget, host_address, is_any, mirror, place, reaches, send,
};

use crate::host_memory;
use causeway_api::sys::CUresult;

/// Makes mirrors of the pinned memory that the parameters of a launch lead to. Words that only look like addresses
/// of such memory cost a mirror and do no harm.
#[inline]
pub fn note_parameters(parameters: &[u8]) -> Result<(), CUresult> {
    if !window::is_used() {
        return Ok(());
    }
    for word in parameters.as_chunks().0 {
        note_address(u64::from_ne_bytes(*word))?;
    }
    Ok(())
}

/// Makes a mirror of the pinned memory in which an address lies that the device is about to use.
#[inline]
pub fn note_address(address: u64) -> Result<(), CUresult> {
    let address = address as usize;
    if window::contains(address)
        && let Some(range) = host_memory::find(address)
    {
        mirror(&range)?;
    }
    Ok(())
}
