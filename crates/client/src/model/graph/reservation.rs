//! Addresses that a graph has for its memory, and the memory there, which there is while it is needed.
//!
//! Addresses are taken from the session's window when a node is made, and so need no request. The memory is made
//! for the first executable graph, since copies and fills of the device's memory are checked then. It goes
//! when no executable graph is left and their launches are done: at once if that is known, else when somebody
//! asks ([`trim`]). Where there is no window memory and addresses come and go together.

use crate::locks::{Mutex, rank};
use crate::model::address::heap::ReusePoint;
use causeway_api::handle::{Allocation, Context, Handle};
use causeway_api::sys::{CUdevice, CUdeviceptr, CUresult};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

/// Bytes of reservations of a device, now and at most since that was set back.
#[derive(Clone, Copy, Default)]
pub struct Usage {
    /// Of those that executable graphs or the program have.
    pub used: u64,
    /// The most of these.
    pub used_high: u64,
    /// Of all that have memory.
    pub reserved: u64,
    /// The most of these.
    pub reserved_high: u64,
}

/// What all reservations share.
struct Reservations {
    usage: LazyLock<Mutex<rank::GraphMemoryUsage, HashMap<CUdevice, Usage>>>,
    /// Unused reservations, which are freed once launches in flight are done.
    retired: Mutex<rank::RetiredGraphMemory, Vec<(Hold, ReusePoint)>>,
}

static RESERVATIONS: Reservations =
    Reservations { usage: LazyLock::new(Mutex::default), retired: Mutex::new(Vec::new()) };

/// Addresses for memory of graphs.
#[derive(Clone, Copy, Debug)]
pub struct Addresses {
    /// The first one.
    pub base: CUdeviceptr,
    /// How many bytes.
    pub size: u64,
    /// The program's number of the device.
    pub device: CUdevice,
    /// The context in which they were asked for.
    pub context: Handle<Context>,
    /// Whether they came without memory, from the session's window. Else their memory comes and goes with
    /// them, and they are in the table of the device's memory.
    pub is_of_window: bool,
}

/// Where addresses and memory of graphs come from, and go back to.
pub trait Backing: Sync {
    /// Addresses for at least `size` bytes on the device of the current context.
    fn reserve(&self, device: CUdevice, size: u64) -> Result<Addresses, CUresult>;
    /// Takes addresses back.
    fn release_addresses(&self, addresses: &Addresses);
    /// Puts memory to addresses that have none.
    fn make(&self, addresses: &Addresses) -> Result<Handle<Allocation>, CUresult>;
    /// Takes the memory away. No work uses it any more.
    fn release(&self, addresses: &Addresses, block: Handle<Allocation>);
    /// Waits for the work of a context.
    fn finish(&self, context: Handle<Context>);
}

/// A range of addresses.
pub struct Reservation {
    addresses: Addresses,
    backing: &'static dyn Backing,
    state: Mutex<rank::GraphReservation, State>,
}

#[derive(Default)]
struct State {
    /// Who needs the memory, and who of those is [retired](retire).
    holders: usize,
    retired: usize,
    /// The memory, if there is a holder and a window.
    block: Option<Handle<Allocation>>,
}

/// Keeps the memory of a reservation.
pub struct Hold {
    reservation: Arc<Reservation>,
    is_retired: bool,
}

impl Reservation {
    /// Addresses for at least `size` bytes on the device of the current context.
    pub fn new(device: CUdevice, size: u64, backing: &'static dyn Backing) -> Result<Arc<Self>, CUresult> {
        let addresses = backing.reserve(device, size)?;
        if !addresses.is_of_window {
            count(device, |usage| usage.reserved += addresses.size);
        }
        Ok(Arc::new(Self { addresses, backing, state: Mutex::default() }))
    }

    /// Which addresses these are.
    pub fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// Sees to it that there is memory, as long as the result lives.
    pub fn hold(self: &Arc<Self>) -> Result<Hold, CUresult> {
        let Addresses { size, device, is_of_window, .. } = self.addresses;
        let mut state = self.state.lock();
        if state.block.is_none() && is_of_window {
            state.block = Some(self.backing.make(&self.addresses)?);
            count(device, |usage| usage.reserved += size);
        }
        if state.holders == state.retired {
            count(device, |usage| usage.used += size);
        }
        state.holders += 1;
        Ok(Hold { reservation: Arc::clone(self), is_retired: false })
    }

    /// Counts it as no longer used, if it has no user.
    fn note_end_of_use(&self, state: &State) {
        if state.holders == state.retired {
            count(self.addresses.device, |usage| usage.used -= self.addresses.size);
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if !self.addresses.is_of_window {
            count(self.addresses.device, |usage| usage.reserved -= self.addresses.size);
        }
        self.backing.release_addresses(&self.addresses);
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let Reservation { addresses, backing, state: guarded } = &*self.reservation;
        {
            let mut state = guarded.lock();
            state.holders -= 1;
            if self.is_retired {
                state.retired -= 1;
            } else {
                self.reservation.note_end_of_use(&state);
            }
            if state.holders > 0 || state.block.is_none() {
                return;
            }
        }
        if !self.is_retired {
            // What the program frees may be in use.
            backing.finish(addresses.context);
        }
        let mut state = guarded.lock();
        // Somebody may have come who needs it while nobody held the lock.
        if state.holders == 0
            && let Some(block) = state.block.take()
        {
            count(addresses.device, |usage| usage.reserved -= addresses.size);
            backing.release(addresses, block);
        }
    }
}

/// Nobody needs these any more once the work up to a point of a stream is done.
pub fn retire(holds: Vec<Hold>, since: Option<&ReusePoint>) {
    let is_past = since.is_none_or(is_past);
    let retired = holds.into_iter().map(|mut hold| {
        let mut state = hold.reservation.state.lock();
        state.retired += 1;
        hold.reservation.note_end_of_use(&state);
        drop(state);
        hold.is_retired = true;
        hold
    });
    match since {
        Some(since) if !is_past => {
            RESERVATIONS.retired.lock().extend(retired.map(|hold| (hold, since.clone())))
        }
        // Dropped one by one.
        _ => retired.for_each(drop),
    }
}

/// Releases unused memory.
pub fn trim() {
    let mut over = Vec::new();
    {
        let mut retired = RESERVATIONS.retired.lock();
        let mut index = 0;
        while index < retired.len() {
            if is_past(&retired[index].1) {
                over.push(retired.swap_remove(index));
            } else {
                index += 1;
            }
        }
    }
    // Without the lock, since this may be the end of reservations.
    drop(over);
}

fn is_past(reuse_point: &ReusePoint) -> bool {
    reuse_point.stream.has_done(reuse_point.sequence)
}

/// What a device has.
pub fn usage(device: CUdevice) -> Usage {
    RESERVATIONS.usage.lock().get(&device).copied().unwrap_or_default()
}

/// Changes what is noted of a device.
pub fn count(device: CUdevice, change: impl FnOnce(&mut Usage)) {
    let mut usage = RESERVATIONS.usage.lock();
    let usage = usage.entry(device).or_default();
    change(usage);
    usage.used_high = usage.used_high.max(usage.used);
    usage.reserved_high = usage.reserved_high.max(usage.reserved);
}

#[cfg(test)]
impl Reservation {
    /// Addresses of nothing.
    pub fn for_test(base: CUdeviceptr, size: u64) -> Arc<Self> {
        struct Nothing;

        impl Backing for Nothing {
            fn reserve(&self, _: CUdevice, _: u64) -> Result<Addresses, CUresult> {
                Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY)
            }
            fn release_addresses(&self, _: &Addresses) {}
            fn make(&self, _: &Addresses) -> Result<Handle<Allocation>, CUresult> {
                Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY)
            }
            fn release(&self, _: &Addresses, _: Handle<Allocation>) {}
            fn finish(&self, _: Handle<Context>) {}
        }

        let addresses = Addresses { base, size, device: 0, context: Handle::NULL, is_of_window: true };
        Arc::new(Self { addresses, backing: &Nothing, state: Mutex::default() })
    }
}
