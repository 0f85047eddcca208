//! Context table: the state of each context, and its proxy streams: streams of ours for copies between
//! servers.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use causeway_api::handle::{Context, Handle, Stream};
use causeway_api::sys::{CUdevice, CUresult};

use crate::locks::{Mutex, rank};
use crate::model::completion::Watermark;
use crate::model::device::{self, Device};
use crate::model::handles::{self, RawHandle as _};
use crate::model::stream::StreamState;

/// How a context came to be, which decides who may use what belongs to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ContextKind {
    /// The primary context of a device.
    Primary,
    /// One that the program created.
    Created,
    /// The one of a green context, which lies in the primary context of its device.
    Green,
}

/// What the client keeps of a context.
pub struct ContextState {
    /// Its handle.
    pub handle: Handle<Context>,
    /// How it came to be.
    pub kind: ContextKind,
    /// The program's number of its device.
    pub device: CUdevice,
    /// The legacy default stream of the context.
    pub legacy_stream: Arc<StreamState>,
    /// How far its work is known to be done.
    pub watermark: Watermark,
    /// The newest sequence number of streams that were destroyed with work in them that nothing else waits
    /// for.
    pub(crate) left_behind: AtomicU64,
    /// The newest sequence number up to which everything is done or belongs to copies that were published.
    pub(crate) published: AtomicU64,
    /// Limits and their values, as far as they are known.
    pub limits: Mutex<rank::ContextLimits, HashMap<u32, usize>>,
    /// Contexts of other devices whose memory it may use, by their handles.
    pub peers: Mutex<rank::ContextPeers, HashSet<u64>>,
    /// The streams of ours for copies that concern several servers.
    pub(crate) proxy_streams: Mutex<rank::ProxyStreams, ProxyStreams>,
    pub(crate) flags: AtomicU32,
    /// The preferred division between cache and shared memory, which no device heeds since 2012.
    pub cache_config: AtomicU32,
    /// How often a context that the program created is held: by its creator, and by `cuCtxAttach`.
    pub(crate) attached: AtomicU32,
    pub(crate) id: AtomicU64,
    /// How often a primary context is retained; nothing for others.
    pub(crate) retained: Option<Mutex<rank::PrimaryContexts, u32>>,
}

static PRIMARY: OnceLock<Box<[Arc<ContextState>]>> = OnceLock::new();
impl handles::Object for ContextState {
    type Kind = Context;
}

impl ContextState {
    pub(crate) fn new(handle: Handle<Context>, device: CUdevice, flags: u32, kind: ContextKind) -> Arc<Self> {
        Arc::new(Self {
            handle,
            kind,
            device,
            legacy_stream: StreamState::legacy(handle),
            watermark: Watermark::default(),
            left_behind: AtomicU64::new(0),
            published: AtomicU64::new(0),
            limits: Mutex::default(),
            peers: Mutex::default(),
            proxy_streams: Mutex::default(),
            flags: AtomicU32::new(flags),
            cache_config: AtomicU32::new(0),
            attached: AtomicU32::new(1),
            id: AtomicU64::new(device::of_context()),
            retained: (kind == ContextKind::Primary).then(Mutex::default),
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

    /// Whether its objects can be used where `current` is the current context: where both are the same, and where
    /// one is a green context of the other's device.
    pub fn is_usable_in(&self, current: &Self) -> bool {
        let is_green = |context: &Self| context.kind == ContextKind::Green;
        self.handle == current.handle
            || (self.device == current.device && (is_green(self) || is_green(current)))
    }

    /// Its device.
    pub fn device(&self) -> Result<&'static Device, CUresult> {
        device::device(self.device)
    }

    /// Whether the context exists on the server.
    pub fn is_active(&self) -> bool {
        handles::is_valid(self.handle)
    }
}

/// All that exist on servers.
pub(crate) fn active() -> impl Iterator<Item = Arc<ContextState>> {
    let others = handles::select::<ContextState>(|_| true).into_iter().map(|(_, context)| context);
    PRIMARY.get().into_iter().flatten().cloned().chain(others).filter(|context| context.is_active())
}

/// Fixes the handles of the primary contexts of the program's devices. Called once, before any session is
/// open.
pub fn prepare(devices: &[Device]) {
    PRIMARY.get_or_init(|| {
        let state = |(number, device): (u32, &Device)| {
            let handle = Handle::new(number, 0).of(device.server);
            handles::fix(handle);
            ContextState::new(handle, number as CUdevice, 0, ContextKind::Primary)
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
        _ => handles::get::<ContextState>(handle),
    }
}

/// The context that the program passed.
pub fn resolve(raw: causeway_api::sys::CUcontext) -> Result<Arc<ContextState>, CUresult> {
    state(Handle::from_raw(raw))
}

/// The streams of ours in a context for copies that concern several servers.
#[derive(Default)]
pub struct ProxyStreams {
    /// By the number of the stream whose copies each carries.
    pub of_streams: HashMap<u64, (StreamKey, Handle<Stream>)>,
    /// The one in which other servers read.
    pub reader: Option<Handle<Stream>>,
}

/// A stream of the program, which may be a legacy default stream.
pub struct StreamKey {
    /// Its handle; null for a legacy default stream.
    pub handle: Handle<Stream>,
    /// Its context.
    pub context: Handle<Context>,
}

impl StreamKey {
    /// Whether the proxy stream is still there.
    pub fn exists(&self) -> bool {
        handles::is_valid(self.context) && (self.handle.is_null() || handles::is_valid(self.handle))
    }
}
