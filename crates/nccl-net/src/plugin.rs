//! Calls of the plugin's interface, the same for all versions of its table.

use std::sync::{OnceLock, PoisonError, RwLock};

use causeway_cuda::Driver;
use causeway_sync::fork;

use crate::bootstrap::{self, Listener};
use crate::communicator::{RecvCommunicator, Request, SendCommunicator, SendMemory};
use crate::engine::Engine;
use crate::error::NetError;
use crate::gpu::GpuMemory;
use crate::handle::{HANDLE_BYTES, Handle};
use crate::interfaces;
use crate::log::{self, Logger};
use crate::settings::Settings;

/// `NCCL_PTR_HOST` and `NCCL_PTR_CUDA`.
const HOST_POINTERS: i32 = 1;
const GPU_POINTERS: i32 = 2;

/// Receives of a group: NCCL may group as many as a connection carries at once, which is one here.
pub const MAX_GROUPED_RECEIVES: i32 = 1;

/// Connections of a process, as NCCL sees it: as many as it has descriptors for.
const MAX_COMMUNICATORS: i32 = 65_536;

/// `NCCL_MAX_NET_SIZE_BYTES`: the largest message that NCCL lets a plugin name.
const MAX_MESSAGE_BYTES: usize = 1 << 40;

/// The device, as NCCL sees it.
#[derive(Debug, Clone, Copy)]
pub struct Properties {
    /// A number that no other host's device has.
    pub guid: u64,
    /// Kinds of memory that messages may lie in (`NCCL_PTR_*`).
    pub pointers: i32,
    /// In Mbit/s.
    pub speed: i32,
    /// Connections.
    pub max_communicators: i32,
    /// Receives of a group.
    pub max_receives: i32,
    /// Bytes of a message.
    pub max_bytes: usize,
}

/// What a communicator is to NCCL.
pub enum Communicator {
    /// Of `connect`.
    Send(SendCommunicator),
    /// Of `accept`.
    Receive(RecvCommunicator),
}

/// Memory that NCCL has registered.
#[derive(Debug, Clone, Copy)]
pub struct Registration {
    start: u64,
    bytes: usize,
    kind: RegistrationKind,
}

#[derive(Debug, Clone, Copy)]
enum RegistrationKind {
    Host,
    Send(SendMemory),
    Receive(GpuMemory),
}

fn settings_of_process() -> &'static RwLock<Option<Settings>> {
    static SETTINGS: RwLock<Option<Settings>> = RwLock::new(None);
    &SETTINGS
}

fn settings() -> Result<Settings, NetError> {
    if fork::is_child() {
        return Err(NetError::Forked);
    }
    let settings = settings_of_process().read().unwrap_or_else(PoisonError::into_inner).clone();
    settings.ok_or(NetError::Argument("no logger, for it has not called init"))
}

/// `init`: may come several times.
///
/// # Errors
/// When a setting makes no sense, or there are no threads to be had.
pub fn init(logger: Option<Logger>) -> Result<(), NetError> {
    log::set(logger);
    if fork::is_child() {
        return Err(NetError::Forked);
    }
    let settings = Settings::from_environment()?;
    Engine::get().map_err(NetError::system("starting the plugin's threads"))?;
    let (addresses, speed) = interfaces::addresses(&settings.interfaces)
        .map_err(NetError::system("listing network interfaces"))?;
    let listed: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    log::info(&format!(
        "Causeway {}: {} lanes a connection, {} Mbit/s, addresses {}",
        env!("CARGO_PKG_VERSION"),
        settings.lanes,
        settings.speed.unwrap_or(speed),
        listed.join(" ")
    ));
    *settings_of_process().write().unwrap_or_else(PoisonError::into_inner) = Some(settings);
    Ok(())
}

/// `getProperties`.
///
/// # Errors
/// When there is no such device.
pub fn properties(device: i32) -> Result<Properties, NetError> {
    check_device(device)?;
    let settings = settings()?;
    let (_, speed) = interfaces::addresses(&settings.interfaces)
        .map_err(NetError::system("listing network interfaces"))?;
    let speed = settings.speed.unwrap_or(speed);
    Ok(Properties {
        guid: guid(),
        pointers: if settings.driver().is_some() { HOST_POINTERS | GPU_POINTERS } else { HOST_POINTERS },
        speed: i32::try_from(speed).unwrap_or(i32::MAX),
        max_communicators: MAX_COMMUNICATORS,
        max_receives: MAX_GROUPED_RECEIVES,
        max_bytes: MAX_MESSAGE_BYTES,
    })
}

/// Of this host: NCCL takes devices with one number for ports of one card.
fn guid() -> u64 {
    static GUID: OnceLock<u64> = OnceLock::new();
    *GUID.get_or_init(|| {
        let boot = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let hash = blake3::derive_key("causeway 2026 nccl-net device", &boot);
        u64::from_le_bytes(core::array::from_fn(|at| hash[at]))
    })
}

fn check_device(device: i32) -> Result<(), NetError> {
    if device == 0 { Ok(()) } else { Err(NetError::Device(device)) }
}

/// `listen`.
///
/// # Errors
/// When the system gives no sockets.
pub fn listen(device: i32) -> Result<Listener, NetError> {
    check_device(device)?;
    let settings = settings()?;
    if !Driver::shares_host_memory() {
        return Err(NetError::Mirrored);
    }
    Listener::open(&settings)
}

/// `connect`: none where it is to be called again.
///
/// # Errors
/// Why the peer cannot be reached.
pub fn connect(device: i32, handle: &[u8; HANDLE_BYTES]) -> Result<Option<Communicator>, NetError> {
    check_device(device)?;
    let Some(arrived) = bootstrap::connect(&Handle::decode(handle)?, &settings()?)? else { return Ok(None) };
    log::info(&format!("sending to {} over {} lanes", arrived.peer, arrived.sockets.len()));
    let communicator = SendCommunicator::new(engine()?, arrived.sockets, arrived.peer);
    Ok(Some(Communicator::Send(communicator)))
}

/// `accept`: none where it is to be called again.
///
/// # Errors
/// When this is a forked child.
pub fn accept(listener: &Listener) -> Result<Option<Communicator>, NetError> {
    settings()?;
    let Some(arrived) = listener.accept() else { return Ok(None) };
    log::info(&format!("receiving from {} over {} lanes", arrived.peer, arrived.sockets.len()));
    let communicator = RecvCommunicator::new(engine()?, arrived.sockets, arrived.peer);
    Ok(Some(Communicator::Receive(communicator)))
}

fn engine() -> Result<&'static Engine, NetError> {
    Engine::get().map_err(NetError::system("starting the plugin's threads"))
}

impl Communicator {
    /// `regMr`.
    ///
    /// # Errors
    /// When it is memory of a kind that was not offered, or none that the driver knows.
    pub fn register(&self, start: u64, bytes: usize, kind: i32) -> Result<Registration, NetError> {
        let driver = settings()?.driver().filter(|_| kind == GPU_POINTERS);
        let kind = match (kind, driver) {
            (HOST_POINTERS, _) => RegistrationKind::Host,
            (GPU_POINTERS, Some(driver)) => {
                let gpu = GpuMemory::at(driver, start).map_err(NetError::Cuda)?;
                match self {
                    Self::Send(communicator) => {
                        RegistrationKind::Send(communicator.register(gpu).map_err(NetError::Cuda)?)
                    }
                    Self::Receive(communicator) => {
                        communicator.register(gpu).map_err(NetError::Cuda)?;
                        RegistrationKind::Receive(gpu)
                    }
                }
            }
            _ => return Err(NetError::Argument("memory of a kind that the plugin has not offered")),
        };
        Ok(Registration { start, bytes, kind })
    }

    /// `isend`: none where it is to be called again.
    ///
    /// # Safety
    /// The memory may be read until the request is done, the memory's registration or the communicator has ended.
    ///
    /// # Errors
    /// When the connection has failed.
    pub unsafe fn send(
        &self,
        data: *const u8,
        bytes: usize,
        registration: Option<&Registration>,
    ) -> Result<Option<&Request>, NetError> {
        let Self::Send(communicator) = self else { return Err(NetError::Argument("a receiver to isend")) };
        check_process()?;
        let memory = match registration.map(|registration| registration.kind) {
            None | Some(RegistrationKind::Host) => None,
            Some(RegistrationKind::Send(memory)) => Some(memory),
            Some(RegistrationKind::Receive(_)) => {
                return Err(NetError::Argument("a receiver's memory to isend"));
            }
        };
        // SAFETY: the caller keeps the memory readable until the request is done, or the registration or the
        // communicator has ended; `withdraw` is called where a registration ends.
        unsafe { communicator.send(data, bytes, memory) }
    }

    /// `irecv`: none where it is to be called again.
    ///
    /// # Safety
    /// The memory may be written until the request is done, the memory's registration or the communicator has ended.
    ///
    /// # Errors
    /// When the connection has failed.
    pub unsafe fn receive(
        &self,
        data: *mut u8,
        bytes: usize,
        registration: Option<&Registration>,
    ) -> Result<Option<&Request>, NetError> {
        let Self::Receive(communicator) = self else { return Err(NetError::Argument("a sender to irecv")) };
        check_process()?;
        let gpu = match registration.map(|registration| registration.kind) {
            None | Some(RegistrationKind::Host) => None,
            Some(RegistrationKind::Receive(gpu)) => Some(gpu),
            Some(RegistrationKind::Send(_)) => return Err(NetError::Argument("a sender's memory to irecv")),
        };
        // SAFETY: the caller keeps the memory writable until the request is done, or the registration or the
        // communicator has ended; `withdraw` is called where a registration ends.
        unsafe { communicator.receive(data, bytes, gpu) }
    }

    /// `deregMr`: memory is about to be freed. NCCL does that when no request of it is under way, or has given up.
    pub fn deregister(&self, registration: &Registration) {
        if fork::is_child() {
            return;
        }
        let Registration { start, bytes, kind } = *registration;
        match self {
            Self::Send(communicator) => {
                communicator.withdraw(start, bytes);
                if let RegistrationKind::Send(memory) = kind {
                    communicator.deregister(memory);
                }
            }
            Self::Receive(communicator) => communicator.withdraw(start, bytes),
        }
    }
}

fn check_process() -> Result<(), NetError> {
    if fork::is_child() { Err(NetError::Forked) } else { Ok(()) }
}

/// `closeSend`, `closeRecv`: nothing of the program's memory is used any more when this returns.
pub fn close(communicator: Box<Communicator>) {
    if fork::is_child() {
        // The threads that it would wait for are the parent's.
        core::mem::forget(communicator);
    }
}
