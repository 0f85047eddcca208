//! The back end of one session: its state.

use crate::block_hasher::BlockHashers;
use crate::context::{self, Contexts};
use crate::events::Events;
use crate::functions::Functions;
use crate::graphs::{Graphs, Link};
use crate::load::{self, LoadError};
use crate::locks::{Mutex, rank};
use crate::output::Output;
use crate::registered::{HostRanges, Registrations};
use crate::resources::{Resources, Textures};
use crate::staging::StagingPool;
use crate::stream_gates::{GateValues, Streams};
use crate::waits::Waits;
use crate::window::{HostWindow, WindowAddresses, WindowState};
use causeway_api::handle::{Context, Native, Stream};
use causeway_gpu::CuResult;
use causeway_gpu::device_code::Reports;
use causeway_gpu::host_memory::{AfterFailure, SetAside};
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// The real driver of this machine, for one session.
pub struct Driver {
    pub(crate) functions: &'static Functions,
    pub(crate) contexts: Contexts,
    pub(crate) streams: Streams,
    pub(crate) events: Arc<Events>,
    pub(crate) waits: Waits,
    pub(crate) staging: Arc<StagingPool>,
    pub(crate) set_aside: Arc<SetAside>,
    pub(crate) registrations: Registrations,
    pub(crate) gates: Arc<GateValues>,
    pub(crate) graphs: Graphs,
    pub(crate) output: Arc<Output>,
    pub(crate) reports: Reports,
    pub(crate) links: Mutex<rank::Leaf, HashMap<u64, Link>>,
    pub(crate) textures: Textures,
    pub(crate) resources: Resources,
    /// The addresses kept for memory that host and device share.
    pub(crate) window: Arc<HostWindow>,
    /// Memory of this process that kernels reach.
    pub(crate) host_ranges: Arc<HostRanges>,
    /// The range of addresses that the client gives out.
    pub(crate) window_addresses: WindowAddresses,
    pub(crate) device_window: WindowState,
    pub(crate) managed_window: WindowState,
    pub(crate) block_hashers: BlockHashers,
    /// The compute capabilities of all devices, times ten, once code was loaded.
    pub(crate) capabilities: OnceLock<Vec<u32>>,
    /// Where kernels are asked about while the program has no context.
    pub(crate) query_context: OnceLock<Native<Context>>,
}

impl Driver {
    /// The context in which memory is pinned for all of them: threads that receive bulk data have none of
    /// their own.
    pub(crate) fn context_to_pin_in(&self) -> Option<Native<Context>> {
        match context::current(self.functions) {
            Ok(current) if current != Native::NULL => Some(current),
            _ => self.contexts.any(),
        }
    }

    /// Loads the system's `libcuda.so.1`, or the library that `CAUSEWAY_DRIVER` names, and starts it.
    /// Variables that the driver reads (`CUDA_VISIBLE_DEVICES` and so on) must be set before.
    pub fn load() -> Result<Self, LoadError> {
        Self::load_from(&load::chosen_path())
    }

    /// Loads the driver library at `path` and starts it.
    pub fn load_from(path: &Path) -> Result<Self, LoadError> {
        // Before the driver, which would else be free to put its own things there.
        let window_addresses = WindowAddresses::choose();
        let window = Arc::new(HostWindow::reserve(&window_addresses));
        let functions = load::load(path)?;
        let (output, events) = (Arc::default(), Arc::default());
        let waits = Waits::new(functions, Arc::clone(&output), Arc::clone(&events))
            .map_err(|source| LoadError::Thread { source })?;
        Ok(Self {
            functions,
            contexts: Contexts::default(),
            streams: Streams::default(),
            events,
            waits,
            staging: Arc::new(StagingPool::new(functions)),
            // A kernel's fault ends its context for the program; whether a copy engine has stopped by then is
            // not said.
            set_aside: SetAside::new(AfterFailure::Unknown),
            registrations: Registrations::default(),
            gates: Arc::new(GateValues::new()),
            graphs: Graphs::default(),
            output,
            reports: Reports::default(),
            links: Mutex::default(),
            textures: Textures::default(),
            resources: Resources::default(),
            window,
            host_ranges: Arc::default(),
            window_addresses,
            device_window: WindowState::default(),
            managed_window: WindowState::default(),
            block_hashers: BlockHashers::default(),
            capabilities: OnceLock::new(),
            query_context: OnceLock::new(),
        })
    }

    /// The context of a stream: where it was made, or the current one for the legacy default stream.
    pub(crate) fn context_of(&self, stream: Native<Stream>) -> CuResult<Native<Context>> {
        match self.streams.context_of(stream) {
            Some(context) => Ok(context),
            None => context::current(self.functions),
        }
    }
}
