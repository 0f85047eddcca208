//! What is kept of a context?
//!
//! The handle of a device's primary context is fixed, so it is known before anyone retains the context; on
//! the server the context exists from the first retain to the last release. The stack of current contexts is
//! the thread's own and never leaves the client: every command names its context.
//!
//! | Module | Question it answers |
//! |---|---|
//! | `couriers` | Which streams of ours carry copies that concern several servers? |
//! | `current` | Which context is current to a thread? |
//! | [`ahead`] | What lies before a point of a stream, as far as the program's memory is concerned? |
//! | [`before`] | What writes to a range of the program's memory before a stream's end? |
//! | `work` | Is its work, and that of its streams, known to be done? |

pub mod ahead;
pub mod before;
pub mod couriers;
pub mod current;
mod work;

use crate::model::handles::RawHandle as _;
pub use ahead::{Ahead, ahead_of_all};
use couriers::Couriers;
pub use current::{anywhere, anywhere_on, current, current_or_none, current_state, pop, push, set_current};
pub use work::stream;

use crate::locks::{Mutex, rank};
use crate::model::completion::Watermark;
use crate::model::device::{self, Device};
use crate::model::handles;
use crate::model::stream::StreamState;
use causeway_api::handle::{Context, Handle};
use causeway_api::sys::{CUdevice, CUresult};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// What the client keeps of a context.
pub struct ContextState {
    /// Its handle.
    pub handle: Handle<Context>,
    /// The program's number of its device.
    pub device: CUdevice,
    /// The legacy default stream of the context.
    pub legacy_stream: Arc<StreamState>,
    /// How far its work is known to be done.
    pub watermark: Watermark,
    /// The newest ticket of streams that were destroyed with work in them that nothing else waits for.
    pub(crate) left_behind: AtomicU64,
    /// The newest ticket up to which everything is done or belongs to copies that were published.
    pub(crate) published: AtomicU64,
    /// Limits and their values, as far as they are known.
    pub limits: Mutex<rank::ContextLimits, HashMap<u32, usize>>,
    /// Contexts of other devices whose memory it may use, by their handles.
    pub peers: Mutex<rank::ContextPeers, HashSet<u64>>,
    /// The streams of ours for copies that concern several servers.
    pub(crate) couriers: Mutex<rank::Couriers, Couriers>,
    pub(crate) flags: AtomicU32,
    pub(crate) id: AtomicU64,
    /// How often a primary context is retained; nothing for others.
    pub(crate) retained: Option<Mutex<rank::PrimaryContexts, u32>>,
}

static PRIMARY: OnceLock<Box<[Arc<ContextState>]>> = OnceLock::new();
pub(crate) static OTHERS: handles::Registry<Context, ContextState> = handles::Registry::new();

impl ContextState {
    pub(crate) fn new(handle: Handle<Context>, device: CUdevice, flags: u32, primary: bool) -> Arc<Self> {
        Arc::new(Self {
            handle,
            device,
            legacy_stream: StreamState::legacy(handle),
            watermark: Watermark::default(),
            left_behind: AtomicU64::new(0),
            published: AtomicU64::new(0),
            limits: Mutex::default(),
            peers: Mutex::default(),
            couriers: Mutex::default(),
            flags: AtomicU32::new(flags),
            id: AtomicU64::new(next_id()),
            retained: primary.then(Mutex::default),
        })
    }

    /// Its flags.
    pub fn flags(&self) -> u32 {
        self.flags.load(Ordering::Relaxed)
    }

    /// Replaces its flags.
    pub fn set_flags(&self, flags: u32) {
        self.flags.store(flags, Ordering::Relaxed);
    }

    /// A number that no other context of the process has.
    pub fn id(&self) -> u64 {
        self.id.load(Ordering::Relaxed)
    }

    /// Where its commands go that need no context.
    pub fn without_context(&self) -> Handle<Context> {
        Handle::null_of(self.handle.server())
    }

    /// Its device.
    pub fn device(&self) -> Result<&'static Device, CUresult> {
        device::device(self.device)
    }

    /// Whether it exists on the server.
    pub fn is_active(&self) -> bool {
        handles::is_valid(self.handle)
    }
}

pub(crate) fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// All that exist on servers.
pub(crate) fn active() -> impl Iterator<Item = Arc<ContextState>> {
    let others = OTHERS.select(|_| true).into_iter().map(|(_, context)| context);
    PRIMARY.get().into_iter().flatten().cloned().chain(others).filter(|context| context.is_active())
}

/// Fixes the handles of the primary contexts of the program's devices. Called once, before any session is
/// open.
pub fn prepare(devices: &[Device]) {
    PRIMARY.get_or_init(|| {
        let state = |(number, device): (u32, &Device)| {
            let handle = Handle::new(number, 0).of(device.server);
            handles::fix(handle);
            ContextState::new(handle, number as CUdevice, 0, true)
        };
        (0..).zip(devices).map(state).collect()
    });
}

/// The primary context of a device, whether or not it exists on the server.
pub fn primary(device: CUdevice) -> Result<&'static Arc<ContextState>, CUresult> {
    let index = usize::try_from(device).map_err(|_| CUresult::CUDA_ERROR_INVALID_DEVICE)?;
    PRIMARY.get().and_then(|all| all.get(index)).ok_or(CUresult::CUDA_ERROR_INVALID_DEVICE)
}

/// What is kept of a context.
pub fn state(handle: Handle<Context>) -> Result<Arc<ContextState>, CUresult> {
    match PRIMARY.get().and_then(|all| all.get(handle.index() as usize)) {
        Some(primary) if primary.handle == handle => Ok(primary.clone()),
        _ => OTHERS.get(handle),
    }
}

/// The context that the program passed.
pub fn given(raw: causeway_api::sys::CUcontext) -> Result<Arc<ContextState>, CUresult> {
    state(Handle::from_raw(raw))
}
