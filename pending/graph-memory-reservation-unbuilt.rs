//! Addresses that a graph has for its memory, and the memory there, which there is while it is needed.
//!
//! Addresses are taken from the session's window when a node is made, and so ask nobody. The memory is made for the first
//! executable graph, since copies and fills of the device's memory are checked then. It goes when no executable graph is left and
//! their launches are done: at once if that is known, else when somebody asks ([`trim`]). Where there is no window memory and
//! addresses come and go together.

use crate::abi::calls;
use crate::model::address::heap::Stamp;
use crate::model::address::window::{self, Window};
use crate::model::memory::{self, Origin};
use crate::model::{context, device, handles};
use crate::remote::session;
use causeway_api::handle::{Allocation, Context, Handle};
use causeway_api::sys::{CUdevice, CUdeviceptr, CUresult};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

/// Bytes of reservations of a device, now and at most since that was set back.
#[derive(Clone, Copy, Default)]
pub struct Usage {
    /// Of those that executable graphs or the program have.
    pub used: u64,
    /// The most of these.
    pub most_used: u64,
    /// Of all that have memory.
    pub reserved: u64,
    /// The most of these.
    pub most_reserved: u64,
}

static USAGE: LazyLock<Mutex<HashMap<CUdevice, Usage>>> = LazyLock::new(Mutex::default);
/// What nobody needs any more once launches that may be under way are done.
static RETIRED: Mutex<Vec<(Hold, Stamp)>> = Mutex::new(Vec::new());

/// A range of addresses.
pub struct Reservation {
    base: CUdeviceptr,
    size: u64,
    /// The program's number of its device.
    device: CUdevice,
    /// The context in which it was made.
    context: Handle<Context>,
    /// Where the addresses come from; nothing where they came with their memory.
    window: Option<&'static Window>,
    state: Mutex<State>,
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
    pub fn new(device: CUdevice, size: u64) -> Result<Arc<Self>, CUresult> {
        let context = context::current_state()?;
        let out_of_memory = CUresult::CUDA_ERROR_OUT_OF_MEMORY;
        let (window, base, size) = match window::opened(context.handle.server()) {
            Ok(window) => {
                let size = size.checked_next_multiple_of(window.granularity()).ok_or(out_of_memory)?;
                let base = window.take(size, 0, 0).ok_or(out_of_memory)?;
                memory::add(base, size, context.handle, device, Origin::Allocation)
                    .inspect_err(|_| window.give_back(base, size))?;
                (Some(window), base, size)
            }
            Err(_) => (None, calls::allocate_memory(size as usize)?, size),
        };
        let (context, state) = (context.handle, Mutex::default());
        let reservation = Self { base, size, device, context, window, state };
        if window.is_none() {
            count(device, |usage| usage.reserved += size);
        }
        Ok(Arc::new(reservation))
    }

    /// Its first address.
    pub fn base(&self) -> CUdeviceptr {
        self.base
    }

    /// Its size in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The program's number of its device.
    pub fn device(&self) -> CUdevice {
        self.device
    }

    /// Sees to it that there is memory, as long as the result lives.
    pub fn hold(self: &Arc<Self>) -> Result<Hold, CUresult> {
        let mut state = self.state.lock();
        if state.holders == 0 && self.window.is_some() {
            let block = handles::create::<Allocation>();
            let request = causeway_api::calls::memory_block_create {
                block,
                address: self.base,
                size: self.size as usize,
                device: device::on_server(self.device)?,
                accessors: Vec::new(),
            };
            session::call_in(device::without_context(self.device)?, &request).inspect_err(|_| {
                handles::drop_handle(block);
            })?;
            state.block = Some(block);
            count(self.device, |usage| usage.reserved += self.size);
        }
        if state.holders == state.retired {
            count(self.device, |usage| usage.used += self.size);
        }
        state.holders += 1;
        Ok(Hold { reservation: Arc::clone(self), is_retired: false })
    }

    /// Gives the memory back.
    fn release(&self, block: Handle<Allocation>) {
        count(self.device, |usage| usage.reserved -= self.size);
        handles::drop_handle(block);
        let (address, size) = (self.base, self.size as usize);
        let request = causeway_api::calls::memory_block_release { block, address, size };
        // An error means that the session is lost, and its memory with it.
        let _ = device::without_context(self.device).and_then(|nowhere| session::post_in(nowhere, &request));
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        match self.window {
            Some(window) => {
                memory::remove(self.base, Origin::Allocation);
                window.give_back(self.base, self.size);
            }
            None => {
                count(self.device, |usage| usage.reserved -= self.size);
                // An error of the work before is reported by the stream; the context may be gone, and its memory with it.
                let _ = calls::free_memory(self.base);
            }
        }
    }
}

impl Hold {
    /// What it keeps.
    pub fn reservation(&self) -> &Arc<Reservation> {
        &self.reservation
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let reservation = &*self.reservation;
        let mut state = reservation.state.lock();
        state.holders -= 1;
        if self.is_retired {
            state.retired -= 1;
        } else if state.holders == state.retired {
            count(reservation.device, |usage| usage.used -= reservation.size);
        }
        if state.holders > 0 {
            return;
        }
        let Some(block) = state.block.take() else { return };
        if !self.is_retired {
            // What the program frees may be in use; the error of that work is its stream's.
            let _ = context::state(reservation.context).and_then(|context| context.synchronize());
        }
        reservation.release(block);
    }
}

/// Nobody needs these any more once the work up to a point of a stream is done.
pub fn retire(holds: Vec<Hold>, since: Option<&Stamp>) {
    let is_past = since.is_none_or(is_past);
    let retired = holds.into_iter().map(|mut hold| {
        let mut state = hold.reservation.state.lock();
        state.retired += 1;
        if state.holders == state.retired {
            count(hold.reservation.device, |usage| usage.used -= hold.reservation.size);
        }
        drop(state);
        hold.is_retired = true;
        hold
    });
    match since {
        Some(since) if !is_past => RETIRED.lock().extend(retired.map(|hold| (hold, since.clone()))),
        // Dropped one by one.
        _ => retired.for_each(drop),
    }
}

/// Gives memory back that nobody needs any more.
pub fn trim() {
    let mut over = Vec::new();
    {
        let mut retired = RETIRED.lock();
        let mut place = 0;
        while place < retired.len() {
            if is_past(&retired[place].1) {
                over.push(retired.swap_remove(place));
            } else {
                place += 1;
            }
        }
    }
    // Without the lock, since this may be the end of reservations.
    drop(over);
}

fn is_past(stamp: &Stamp) -> bool {
    stamp.stream.has_done(stamp.ticket)
}

/// What a device has.
pub fn usage(device: CUdevice) -> Usage {
    USAGE.lock().get(&device).copied().unwrap_or_default()
}

/// Changes what is noted of a device.
pub fn count(device: CUdevice, change: impl FnOnce(&mut Usage)) {
    let mut usage = USAGE.lock();
    let usage = usage.entry(device).or_default();
    change(usage);
    usage.most_used = usage.most_used.max(usage.used);
    usage.most_reserved = usage.most_reserved.max(usage.reserved);
}

#[cfg(test)]
impl Reservation {
    /// Addresses of nothing.
    pub fn for_test(base: CUdeviceptr, size: u64) -> Arc<Self> {
        let (context, state) = (Handle::NULL, Mutex::default());
        Arc::new(Self { base, size, device: 0, context, window: None, state })
    }
}
