//! Memory of one server's devices that devices of another server copy from by themselves.
//!
//! Devices of one machine reach each other's memory, whichever server each belongs to. Where two workers
//! share memory, the source's hands a descriptor of an allocation to the destination's, which maps it. A
//! import is made when an allocation is first copied from and ends with the allocation. Whether it can be had
//! shows when it is tried: where the driver does not export, import or open the memory, copies go by the
//! workers' link.

use crate::locks::{Mutex, OnceMap, rank};
use crate::log::info;
use crate::model::{context, device};
use crate::remote::peers;
use crate::submit::send::{call_in, post_in};
use causeway_api::calls;
use causeway_api::handle::{Allocation, Context, Handle};
use causeway_api::sys::{CUdevice, CUresult};
use causeway_api::types::{DeviceLocation, PeerTicket, Region};
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

/// A copy's source in memory that has been imported.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    /// The import, as the destination's worker knows it.
    pub import: u64,
    /// The place, counted from the allocation's first byte.
    pub location: DeviceLocation,
}

type Reaching = HashMap<(CUdevice, CUdevice), bool>;

/// What is imported.
struct IpcImports {
    /// By allocation and the program's number of the device that copies from it; nothing when it cannot be
    /// imported.
    made: OnceMap<rank::IpcImports, (Handle<Allocation>, CUdevice), Option<u64>>,
    /// Whether a device reaches another's memory, by destination and source, as far as that has shown.
    reaching: LazyLock<Mutex<rank::ReachingDevices, Reaching>>,
    /// Whether anything has ever been imported.
    is_any: AtomicBool,
    /// The next import's number.
    next: AtomicU64,
}

static IPC_IMPORTS: IpcImports = IpcImports {
    made: OnceMap::new(),
    reaching: LazyLock::new(Mutex::default),
    is_any: AtomicBool::new(false),
    next: AtomicU64::new(1),
};

/// Makes sure that the device of a context copies from `region`, which lies in an allocation of another
/// server's, by itself; nothing where it cannot. `ticket` is that with which the context's worker has come to
/// the place's, and `peer` how that one is known there.
pub fn source(
    region: &Region,
    whole: &Whole,
    carrier: Handle<Context>,
    (peer, ticket): (u64, PeerTicket),
) -> Result<Option<Source>, CUresult> {
    let (device, owner) = (context::state(carrier)?.device, whole.device);
    let Some(contained) = region.moved(whole.base, whole.size, 0) else { return Ok(None) };
    let key = (whole.handle, device);
    let import = match IPC_IMPORTS.made.get(&key) {
        Some(known) => known,
        None if IPC_IMPORTS.reaching.lock().get(&(device, owner)) == Some(&false) => None,
        None => IPC_IMPORTS.made.get_or_make(&key, || first_copy(whole, peer, ticket, device))?,
    };
    Ok(import.map(|import| Source { import, location: contained.into() }))
}

/// Imports an allocation if that can be done, and notes what that shows of the devices.
fn first_copy(
    whole: &Whole,
    peer: u64,
    ticket: PeerTicket,
    device: CUdevice,
) -> Result<Option<u64>, CUresult> {
    let owner = whole.device;
    let made = make(whole, peer, ticket, device)?;
    IPC_IMPORTS.is_any.store(true, Ordering::Release);
    let import = made.as_ref().ok().copied();
    let (is_accessible, sentence) = match made {
        Ok(_) => (true, format!("device {device} copies directly from memory of device {owner}")),
        Err(Refusal::Devices(why)) => {
            (false, format!("device {device} cannot copy directly from memory of device {owner}: {why}"))
        }
        Err(Refusal::Allocation(why)) => {
            info!("an allocation of device {owner} cannot be exported to device {device}: {why}");
            return Ok(None);
        }
    };
    let before = IPC_IMPORTS.reaching.lock().insert((device, owner), is_accessible);
    if before != Some(is_accessible) {
        peers::note(sentence);
    }
    Ok(import)
}

/// Why there is no import.
enum Refusal {
    /// This allocation cannot be exported.
    Allocation(String),
    /// The devices do not reach each other.
    Devices(String),
}

fn make(
    whole: &Whole,
    peer: u64,
    ticket: PeerTicket,
    device: CUdevice,
) -> Result<Result<u64, Refusal>, CUresult> {
    let import = IPC_IMPORTS.next.fetch_add(1, Ordering::Relaxed);
    let export = calls::peer_export { allocation: whole.handle, ticket, import };
    let error = call_in(Handle::null_of(peer as usize), &export)?;
    if !error.is_empty() {
        return Ok(Err(Refusal::Allocation(error)));
    }
    let size = whole.size as usize;
    let request = calls::peer_import { peer, import, size, device: device::on_server(device)? };
    let error = call_in(device::without_context(device)?, &request)?;
    Ok(if error.is_empty() { Ok(import) } else { Err(Refusal::Devices(error)) })
}

/// An allocation ends: whoever has imported it returns it when the copies from it are done.
pub fn end(allocation: Handle<Allocation>) {
    if !IPC_IMPORTS.is_any.load(Ordering::Acquire) {
        return;
    }
    for ((_, device), import) in IPC_IMPORTS.made.extract(|(whole, _), _| *whole == allocation) {
        let (Some(import), Ok(nowhere)) = (import, device::without_context(device)) else { continue };
        // An error means that the session is lost, and its mappings with it.
        let _ = post_in(nowhere, &calls::peer_release { import });
    }
}
