//! Memory of one server's devices that devices of another server copy from by themselves.
//!
//! Devices of one machine reach each other's memory, whichever server each belongs to. Where two workers
//! share memory, the source's hands a descriptor of an allocation to the destination's, which maps it. A loan
//! is made when an allocation is first copied from and ends with the allocation. Whether it can be had shows
//! when it is tried: where the driver does not export, import or open the memory, copies go by the workers'
//! link.

use crate::locks::{Mutex, rank};
use crate::log::info;
use crate::model::{context, device};
use crate::remote::peers;
use crate::submit::send::{call_in, post_in};
use causeway_api::calls;
use causeway_api::handle::{Allocation, Context, Handle};
use causeway_api::sys::{CUdevice, CUresult};
use causeway_api::types::{DevicePlace, PeerTicket, Region};
use std::collections::HashMap;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A whole allocation, as it lies in the program's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Whole {
    /// Its handle.
    pub handle: Handle<Allocation>,
    /// Its first address.
    pub base: u64,
    /// Its size in bytes.
    pub size: u64,
    /// The program's number of its device.
    pub device: CUdevice,
}

/// A copy's source in memory that has been lent.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    /// The loan, as the destination's worker knows it.
    pub loan: u64,
    /// The place, counted from the allocation's first byte.
    pub place: DevicePlace,
}

#[derive(Default)]
struct Loans {
    /// By allocation and the program's number of the device that copies from it; nothing when it cannot be
    /// lent.
    made: HashMap<(Handle<Allocation>, CUdevice), Option<u64>>,
    /// Whether a device reaches another's memory, by destination and source, as far as that has shown.
    reaching: HashMap<(CUdevice, CUdevice), bool>,
}

/// What is lent.
struct AllLoans {
    made: LazyLock<Mutex<rank::Loans, Loans>>,
    /// Whether anything has ever been lent.
    is_any: AtomicBool,
    /// The next loan's number.
    next: AtomicU64,
}

static LOANS: AllLoans =
    AllLoans { made: LazyLock::new(Mutex::default), is_any: AtomicBool::new(false), next: AtomicU64::new(1) };

/// Makes sure that the device of a context copies from `region`, which lies in an allocation of another
/// server's, by itself; nothing where it cannot. `ticket` is that with which the context's worker has come to
/// the place's, and `peer` how that one is known there.
pub fn source(
    region: &Region,
    whole: &Whole,
    carrier: Handle<Context>,
    (peer, ticket): (u64, PeerTicket),
) -> Result<Option<Source>, CUresult> {
    let device = context::state(carrier)?.device;
    let owner = whole.device;
    let Some(inside) = region.moved(whole.base, whole.size, 0) else { return Ok(None) };
    let mut loans = LOANS.made.lock();
    let loan = match loans.made.get(&(whole.handle, device)) {
        Some(known) => *known,
        None if loans.reaching.get(&(device, owner)) == Some(&false) => None,
        None => {
            let made = lend(whole, peer, ticket, device)?;
            let loan = made.as_ref().ok().copied();
            let (reaches, sentence) = match made {
                Ok(_) => (true, format!("device {device} copies from memory of device {owner} by itself")),
                Err(Refusal::Devices(why)) => (
                    false,
                    format!("device {device} does not copy from memory of device {owner} by itself: {why}"),
                ),
                Err(Refusal::Allocation(why)) => {
                    info!("an allocation of device {owner} cannot be lent to device {device}: {why}");
                    loans.made.insert((whole.handle, device), None);
                    return Ok(None);
                }
            };
            if loans.reaching.insert((device, owner), reaches) != Some(reaches) {
                peers::note(sentence);
            }
            loans.made.insert((whole.handle, device), loan);
            LOANS.is_any.store(true, Ordering::Release);
            loan
        }
    };
    Ok(loan.map(|loan| Source { loan, place: inside.into() }))
}

/// Why there is no loan.
enum Refusal {
    /// This allocation cannot be lent.
    Allocation(String),
    /// The devices do not reach each other.
    Devices(String),
}

fn lend(
    whole: &Whole,
    peer: u64,
    ticket: PeerTicket,
    device: CUdevice,
) -> Result<Result<u64, Refusal>, CUresult> {
    let loan = LOANS.next.fetch_add(1, Ordering::Relaxed);
    let lend = calls::peer_lend { allocation: whole.handle, ticket, loan };
    let trouble = call_in(Handle::null_of(peer as usize), &lend)?;
    if !trouble.is_empty() {
        return Ok(Err(Refusal::Allocation(trouble)));
    }
    let size = whole.size as usize;
    let borrow = calls::peer_borrow { peer, loan, size, device: device::on_server(device)? };
    let trouble = call_in(device::without_context(device)?, &borrow)?;
    Ok(if trouble.is_empty() { Ok(loan) } else { Err(Refusal::Devices(trouble)) })
}

/// An allocation ends: whoever has borrowed it gives it back when the copies from it are done.
pub fn end(allocation: Handle<Allocation>) {
    if !LOANS.is_any.load(Ordering::Acquire) {
        return;
    }
    let ended: Vec<_> = LOANS.made.lock().made.extract_if(|(lent, _), _| *lent == allocation).collect();
    for ((_, device), loan) in ended {
        let (Some(loan), Ok(nowhere)) = (loan, device::without_context(device)) else { continue };
        // An error means that the session is lost, and its mappings with it.
        let _ = post_in(nowhere, &calls::peer_return { loan });
    }
}
