//! Teams for C programs: ranks whose kernels communicate. `device/include/causeway/team.h` declares and
//! describes the functions.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use causeway_config::read::PROCESS;
use causeway_config::table::{COMM_EXPLAIN, COMM_NUMA, DEVICE_EXPLAIN, DEVICE_INITIATOR};

use super::{FAILED, fail, guard};
use crate::board::BoardLocations;
use crate::channels::Channel;
use crate::device::choice::InitiatorPolicy;
use crate::device::cuda::CudaGpu;
use crate::device::gpu::{Gpu, GpuError};
use crate::device::layout;
use crate::device::peers::{PeerLocations, Peers};
use crate::device::team::{Kind, NetworkPolicy, Options, Team, TeamError};
use crate::report;
use crate::settings::Settings;

/// A team, as C programs hold it.
pub struct Handle {
    team: Team,
    /// Of each rank of this process.
    gpus: Vec<Arc<CudaGpu>>,
    explains: Explains,
}

/// What is printed at the end of a team.
#[derive(Debug, Clone, Copy)]
struct Explains {
    /// `CAUSEWAY_COMM_EXPLAIN`.
    report: bool,
    /// `CAUSEWAY_DEVICE_EXPLAIN`.
    decisions: bool,
}

impl Explains {
    fn from_environment() -> Result<Self, String> {
        let is_on = |variable| PROCESS.is_on(variable).map_err(|error| error.to_string());
        Ok(Self { report: is_on(&COMM_EXPLAIN)?, decisions: is_on(&DEVICE_EXPLAIN)? })
    }

    fn lines(self, team: &Team) -> Vec<String> {
        let report = self.report.then(|| team.report()).into_iter().flatten();
        report.chain(self.decisions.then(|| team.decisions()).into_iter().flatten()).collect()
    }
}

/// `causeway_team_options` of the header.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct TeamOptions {
    queues: u32,
    capacity: u32,
    threads: u32,
    limit_milliseconds: u32,
}

fn options(requested: Option<&TeamOptions>) -> Result<Options, String> {
    PROCESS.word(&COMM_NUMA).map_err(|error| error.to_string())?;
    let policy = PROCESS.parsed::<InitiatorPolicy>(&DEVICE_INITIATOR).map_err(|error| error.to_string())?;
    let settings = Settings::from_environment().map_err(|error| error.to_string())?;
    let network = if settings.channels.contains(&Channel::Rdma) {
        NetworkPolicy::Auto
    } else {
        NetworkPolicy::Tcp("CAUSEWAY_COMM_CHANNELS excludes `rdma`")
    };
    let default = Options { policy: policy.unwrap_or_default(), network, ..Options::default() };
    let Some(requested) = requested else { return Ok(default) };
    let or = |value: u32, default: u64| if value == 0 { default } else { u64::from(value) };
    Ok(Options {
        queues: or(requested.queues, default.queues as u64) as usize,
        capacity: or(requested.capacity, default.capacity),
        threads: or(requested.threads, default.threads as u64) as usize,
        limit: Duration::from_millis(or(requested.limit_milliseconds, default.limit.as_millis() as u64)),
        ..default
    })
}

/// The file that stores measured costs for later jobs.
fn profile() -> Result<Option<PathBuf>, String> {
    Settings::from_environment().map(|settings| settings.profile).map_err(|error| error.to_string())
}

fn create(ranks: u32, devices: Option<&[c_int]>, requested: Option<&TeamOptions>) -> Result<Handle, String> {
    let options = options(requested)?;
    let explains = Explains::from_environment()?;
    let profile = profile()?;
    let gpu = |gpu: Result<CudaGpu, GpuError>| {
        gpu.map(|gpu| Arc::new(gpu.with_profile(profile.clone()))).map_err(|error| error.to_string())
    };
    let gpus = match devices {
        None => vec![gpu(CudaGpu::current())?; ranks as usize],
        Some(devices) => {
            let of_device = |device| CudaGpu::of_device(device).map(|gpu| gpu.with_devices(devices));
            devices.iter().map(|device| gpu(of_device(*device))).collect::<Result<_, _>>()?
        }
    };
    let as_gpu = |gpu: &Arc<CudaGpu>| Arc::clone(gpu) as Arc<dyn Gpu>;
    let of_ranks: Vec<Arc<dyn Gpu>> = gpus.iter().map(as_gpu).collect();
    let team = Team::of_process(&of_ranks, options).map_err(|error| error.to_string())?;
    Ok(Handle { team, gpus, explains })
}

/// Makes a team whose ranks are all in this process; null if it cannot be made.
///
/// # Safety
/// `devices` is null or has a number for each rank, and `requested` is null or options.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_team_create(
    ranks: u32,
    devices: *const c_int,
    requested: *const TeamOptions,
) -> *mut Handle {
    guard(ptr::null_mut(), || {
        if ranks as usize > layout::MAX_RANKS {
            fail(TeamError::Ranks(ranks as usize));
            return ptr::null_mut();
        }
        // SAFETY: the caller has as many elements at `devices`, and leaves them alone until the call returns.
        let devices =
            (!devices.is_null()).then(|| unsafe { core::slice::from_raw_parts(devices, ranks as usize) });
        // SAFETY: what is not null are options and open handles of the caller, which stay until the call returns.
        into_handle(create(ranks, devices, unsafe { requested.as_ref() }))
    })
}

fn join(nonce: &str, rank: u32, ranks: u32, requested: Option<&TeamOptions>) -> Result<Handle, String> {
    let options = options(requested)?;
    let explains = Explains::from_environment()?;
    let nonce = u128::from_str_radix(nonce, 16).ok().filter(|_| nonce.len() == 32);
    let nonce = nonce.ok_or("a team's nonce has 32 hexadecimal digits, new ones for each team")?;
    let gpu = CudaGpu::current().map_err(|error| error.to_string())?;
    let gpu = Arc::new(gpu.with_profile(profile()?));
    let settings = Settings::from_environment().map_err(|error| error.to_string())?;
    let locations =
        PeerLocations { boards: BoardLocations::defaults(settings.folder), hosts: settings.hosts };
    let peers =
        Peers::join(nonce.to_be_bytes(), rank, ranks, &locations).map_err(|error| error.to_string())?;
    let own = Arc::clone(&gpu) as Arc<dyn Gpu>;
    let team = Team::of_processes(own, peers, ranks, options).map_err(|error| error.to_string())?;
    let same = team.on_the_same_gpu(rank);
    if !same.is_empty() && !gpu.is_under_mps() {
        report::warn_of_time_slicing(rank, &same, "kernels");
    }
    Ok(Handle { team, gpus: vec![gpu], explains })
}

/// This process's rank in a team whose ranks are in processes of their own; null if it cannot be made.
///
/// # Safety
/// `nonce` is text, and `requested` is null or options.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_team_join(
    nonce: *const c_char,
    rank: u32,
    ranks: u32,
    requested: *const TeamOptions,
) -> *mut Handle {
    guard(ptr::null_mut(), || {
        // SAFETY: `nonce` is a C string of the caller, which stays until the call returns.
        let nonce = unsafe { CStr::from_ptr(nonce) }.to_str().unwrap_or_default().trim();
        // SAFETY: what is not null are options and open handles of the caller, which stay until the call returns.
        into_handle(join(nonce, rank, ranks, unsafe { requested.as_ref() }))
    })
}

/// A team as a pointer for C, or null with the error stored.
fn into_handle(team: Result<Handle, String>) -> *mut Handle {
    match team {
        Ok(team) => Box::into_raw(Box::new(team)),
        Err(error) => {
            fail(error);
            ptr::null_mut()
        }
    }
}

/// Ends a team, whose kernels have ended. Prints the reports of `CAUSEWAY_COMM_EXPLAIN` and
/// `CAUSEWAY_DEVICE_EXPLAIN`.
///
/// # Safety
/// The team was made by [`causeway_team_create`], or is null, and is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_team_destroy(team: *mut Handle) {
    guard((), || {
        if team.is_null() {
            return;
        }
        // SAFETY: `team` is what `Box::into_raw` gave for this type, and the caller uses it no more.
        let handle = unsafe { Box::from_raw(team) };
        report::print(handle.explains.lines(&handle.team));
    })
}

/// # Safety
/// As [`causeway_team_handle`].
unsafe fn put<T>(value: Result<T, TeamError>, to: *mut c_void) -> c_int {
    match value {
        Ok(value) => {
            // SAFETY: the caller has room for a `T` at `to`.
            unsafe { to.cast::<T>().write_unaligned(value) };
            0
        }
        Err(error) => fail(error),
    }
}

/// Writes the team handle for a rank's kernels. 0 or -1.
///
/// # Safety
/// The team is alive, and `handle` has capacity for a `causeway::Team`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_team_handle(team: *const Handle, rank: u32, handle: *mut c_void) -> c_int {
    guard(FAILED, || {
        // SAFETY: the caller has not destroyed the team, and has room for what C++ calls it at `handle`.
        unsafe { put((*team).team.handle(rank), handle) }
    })
}

/// 0 while no rank has failed; -1 when the team has ended, with the reason as the calling thread's last error.
///
/// # Safety
/// The team is alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_team_check(team: *const Handle) -> c_int {
    guard(FAILED, || {
        // SAFETY: `team` is of this library, and the caller has not destroyed it.
        unsafe { (*team).team.failure() }.map_or(0, fail)
    })
}

/// 0 if the grids of all ranks of this process are co-resident on their GPUs; -1 if they would wait for each other for
/// ever.
///
/// # Safety
/// The team is alive, and `function` is a `CUfunction` of the ranks' GPUs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_team_fits(
    team: *const Handle,
    function: *mut c_void,
    blocks: u32,
    threads: u32,
    shared: u64,
) -> c_int {
    guard(FAILED, || {
        // SAFETY: `team` is of this library, and the caller has not destroyed it.
        let gpus = unsafe { &(*team).gpus };
        for gpu in gpus {
            let grids = gpus.iter().filter(|other| other.number() == gpu.number()).count() as u32;
            // SAFETY: `function` is a function of the GPUs of the ranks, which the caller guarantees.
            let residency = unsafe { gpu.residency(function, threads, shared as usize) };
            let fits = residency.map_err(|error| error.to_string());
            let fits =
                fits.and_then(|capacity| capacity.check(grids, blocks).map_err(|error| error.to_string()));
            if let Err(error) = fits {
                return fail(error);
            }
        }
        0
    })
}

/// Ends all waits of the team's kernels.
///
/// # Safety
/// The team is alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_team_abort(team: *const Handle) {
    guard((), || {
        // SAFETY: `team` is of this library, and the caller has not destroyed it.
        unsafe { (*team).team.abort() };
    })
}

fn kind(number: u32) -> Option<Kind> {
    match number {
        0 => Some(Kind::Device),
        1 => Some(Kind::Host),
        _ => None,
    }
}

fn number(window: Result<u32, impl ToString>) -> c_int {
    match window {
        Ok(id) => id as c_int,
        Err(error) => fail(error),
    }
}

/// Makes a window. Its number, or -1.
///
/// # Safety
/// The team is alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_window_create(team: *const Handle, memory: u32, bytes: u64) -> c_int {
    guard(FAILED, || {
        // SAFETY: `team` is of this library, and the caller has not destroyed it.
        let team = unsafe { &(*team).team };
        let Some(kind) = kind(memory) else { return fail(team.refuse_window(TeamError::Kind(memory))) };
        number(team.window(kind, bytes))
    })
}

/// Makes a window of the program's memory. Its number, or -1.
///
/// # Safety
/// The team is alive, and there is an address for each rank of this process (one, where the team was joined),
/// where so many bytes of such memory stay until the window is freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_window_register(
    team: *const Handle,
    memory: u32,
    addresses: *const u64,
    bytes: u64,
) -> c_int {
    guard(FAILED, || {
        // SAFETY: `team` is of this library, and the caller has not destroyed it.
        let team = unsafe { &(*team).team };
        let Some(kind) = kind(memory) else { return fail(team.refuse_window(TeamError::Kind(memory))) };
        // SAFETY: the caller has as many elements at `addresses`, and leaves them alone until the call returns.
        let addresses = unsafe { core::slice::from_raw_parts(addresses, team.ranks_here()) };
        // SAFETY: memory of `bytes` bytes stays at each address until the window is freed, which the caller guarantees.
        number(unsafe { team.register(kind, addresses, bytes) })
    })
}

/// Frees a window, which no kernel uses. 0 or -1.
///
/// # Safety
/// The team is alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_window_free(team: *const Handle, window: u32) -> c_int {
    guard(FAILED, || {
        // SAFETY: `team` is of this library, and the caller has not destroyed it.
        unsafe { (*team).team.free(window) }.map_or_else(fail, |()| 0)
    })
}

/// Writes the window handle for a rank's kernels. 0 or -1.
///
/// # Safety
/// The team is alive, and `handle` has capacity for a `causeway::Window`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_window_handle(
    team: *const Handle,
    window: u32,
    rank: u32,
    handle: *mut c_void,
) -> c_int {
    guard(FAILED, || {
        // SAFETY: the caller has not destroyed the team, and has room for what C++ calls it at `handle`.
        unsafe { put((*team).team.window_handle(rank, window), handle) }
    })
}
