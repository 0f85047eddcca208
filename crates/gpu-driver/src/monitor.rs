//! NVIDIA's management library, loaded at run time.

use crate::locks::{Mutex, rank};
use causeway_api::nvml::status::{self, Status};
use causeway_api::nvml::{DeviceNumber, Function, MAX_ARGUMENTS, Mode};
use causeway_config::read::PROCESS;
use causeway_config::table::NVML;
use causeway_gpu::monitor::{Frame, Monitor, OwnProcess};
use core::ffi::c_void;
use std::collections::HashMap;
use std::ffi::CString;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// The variable that names the library to load instead of the one that the system finds.
const PATH_VARIABLE: &str = NVML.name;
/// The library that the system's loader is asked for otherwise.
const LIBRARY: &str = "libnvidia-ml.so.1";
/// What Causeway's own replacement exports, so that it is not taken for the library it stands in for.
const CLIENT_MARKER: &str = "causeway_nvml_marker";
/// Processes of a device that are looked at; no machine runs more of them on one GPU.
const MAX_PROCESSES: usize = 4096;
/// Devices, those of MIG included, that get a number. A machine has at most 16 GPUs of 7 instances each.
const MAX_DEVICES: usize = 1024;

/// Why NVIDIA's library cannot be used.
#[derive(Debug, Error)]
pub enum LoadError {
    /// It is not there.
    #[error(
        "NVIDIA's management library `{}` could not be loaded ({cause}); it comes with NVIDIA's driver, or name it in \
         {PATH_VARIABLE}", path.display()
    )]
    NotFound {
        /// What was asked for.
        path: PathBuf,
        /// What the system's loader answered.
        cause: causeway_cuda::LibraryError,
    },
    /// It is Causeway's own.
    #[error(
        "the library `{}` is Causeway's own, not NVIDIA's: start the server without LD_LIBRARY_PATH pointing at it, or \
         name NVIDIA's library in {PATH_VARIABLE}", path.display()
    )]
    OwnClient {
        /// What was loaded.
        path: PathBuf,
    },
    /// `nvmlInit_v2` failed.
    #[error("NVIDIA's management library `{}` does not start: {}", path.display(), status::text(*status).to_string_lossy())]
    Init {
        /// What was loaded.
        path: PathBuf,
        /// What it answered.
        status: Status,
    },
}

/// The address of a function of the library.
#[derive(Clone, Copy)]
struct Address(*const c_void);

// SAFETY: the address of code that stays loaded, and that NVIDIA says may be called by several threads at
// once.
unsafe impl Send for Address {}
// SAFETY: the address of code that stays loaded, and that NVIDIA says may be called by several threads at
// once.
unsafe impl Sync for Address {}

/// NVIDIA's library.
pub struct Library {
    library: causeway_cuda::Library,
    addresses: Mutex<rank::Leaf, HashMap<&'static str, Option<Address>>>,
    /// The handles of devices that clients have been notified of, by their numbers.
    devices: Mutex<rank::Leaf, Vec<u64>>,
}

impl Library {
    /// Loads and starts the system's library, or the one that `CAUSEWAY_NVML` names.
    pub fn load() -> Result<Self, LoadError> {
        Self::load_from(&PROCESS.path(&NVML).unwrap_or_else(|| PathBuf::from(LIBRARY)))
    }

    /// Loads and starts the library at `path`.
    pub fn load_from(path: &Path) -> Result<Self, LoadError> {
        // SAFETY: the initialisers of NVIDIA's library may run in any process; whoever names another library
        // in the environment runs this process.
        let library = unsafe { causeway_cuda::Library::open(path) }
            .map_err(|cause| LoadError::NotFound { path: path.to_owned(), cause })?;
        let library = Self { library, addresses: Mutex::default(), devices: Mutex::default() };
        if library.address(CLIENT_MARKER).is_some() {
            return Err(LoadError::OwnClient { path: path.to_owned() });
        }
        let status = match library.address("nvmlInit_v2") {
            // SAFETY: the function takes no arguments.
            Some(init) => unsafe { call(init, &[]) },
            None => status::FUNCTION_NOT_FOUND,
        };
        if status != status::SUCCESS {
            return Err(LoadError::Init { path: path.to_owned(), status });
        }
        library.number_devices();
        Ok(library)
    }

    /// Gives all devices their numbers, in the library's order: a client's handles mean the same after this
    /// process has been started again. Instances of MIG get theirs when they are asked for.
    fn number_devices(&self) {
        let (count, by_index) =
            (self.address("nvmlDeviceGetCount_v2"), self.address("nvmlDeviceGetHandleByIndex_v2"));
        let (Some(count), Some(by_index)) = (count, by_index) else { return };
        let mut devices = 0_u32;
        // SAFETY: the function takes the address of a count.
        let status = unsafe { call(count, &[&raw mut devices as u64]) };
        if status != status::SUCCESS {
            return;
        }
        let handles = (0..u64::from(devices)).map(|index| {
            let mut handle = 0_u64;
            // SAFETY: the function takes an index and the address of a handle. Where it fails the handle
            // stays null, which no device has, and the library refuses.
            unsafe { call(by_index, &[index, &raw mut handle as u64]) };
            handle
        });
        *self.devices.lock() = handles.collect();
    }

    fn address(&self, name: &'static str) -> Option<Address> {
        *self.addresses.lock().entry(name).or_insert_with(|| {
            let name = CString::new(name).ok()?;
            self.library.function(&name).map(|function| Address(function.as_ptr()))
        })
    }

    /// The library's handle of the device with this number.
    fn handle(&self, number: DeviceNumber) -> Option<u64> {
        self.devices.lock().get(usize::try_from(number).ok()?).copied()
    }

    /// The number of a device; every handle keeps its number.
    fn number(&self, handle: u64) -> Option<DeviceNumber> {
        let mut devices = self.devices.lock();
        if let Some(number) = devices.iter().position(|known| *known == handle) {
            return Some(number as DeviceNumber);
        }
        if devices.len() >= MAX_DEVICES {
            return None;
        }
        devices.push(handle);
        Some(devices.len() as DeviceNumber - 1)
    }

    /// Puts numbers in the place of the handles in an argument's memory.
    fn handles_to_numbers(&self, frame: &mut Frame, index: usize) -> Option<()> {
        let filled = frame.filled(index);
        let (handles, _) = frame.memory_mut(index)?.get_mut(..filled)?.as_chunks_mut::<8>();
        for handle in handles {
            *handle = self.number(u64::from_ne_bytes(*handle))?.to_le_bytes();
        }
        Some(())
    }
}

/// Calls a function of the library.
///
/// # Safety
/// The function must take as many arguments as there are `words`, each a number or an address that is valid
/// for what the function does with it.
unsafe fn call(Address(function): Address, words: &[u64]) -> Status {
    macro_rules! with {
        ($($word:ident: $type:ty),*) => {{
            // SAFETY: by the caller's promise about the number of arguments. Each is an integer or a pointer,
            // which the calling convention of x86-64 passes alike: in one 64-bit register, of which a
            // function reads the part that its argument has.
            let function = unsafe {
                core::mem::transmute::<*const c_void, unsafe extern "C" fn($($type),*) -> Status>(function)
            };
            // SAFETY: the caller passes as many words as the function takes, with addresses that are valid
            // for what it does with them.
            unsafe { function($($word),*) }
        }};
    }
    match *words {
        [] => with!(),
        [a] => with!(a: u64),
        [a, b] => with!(a: u64, b: u64),
        [a, b, c] => with!(a: u64, b: u64, c: u64),
        [a, b, c, d] => with!(a: u64, b: u64, c: u64, d: u64),
        [a, b, c, d, e] => with!(a: u64, b: u64, c: u64, d: u64, e: u64),
        [a, b, c, d, e, f] => with!(a: u64, b: u64, c: u64, d: u64, e: u64, f: u64),
        _ => status::FUNCTION_NOT_FOUND,
    }
}

const _: () = assert!(MAX_ARGUMENTS == 6, "`call` passes as many");

impl Monitor for Library {
    fn carry_out(&self, function: &'static Function, frame: &mut Frame, own: &[OwnProcess]) -> Status {
        let Some(address) = self.address(function.name) else { return status::FUNCTION_NOT_FOUND };
        let mut processes = None;
        let mut words = Vec::with_capacity(function.arguments.len());
        for (index, argument) in function.arguments.iter().enumerate() {
            words.push(match argument.mode {
                Mode::Value(_) => frame.number(index),
                Mode::Device => match self.handle(frame.number(index)) {
                    Some(handle) => handle,
                    None => return status::INVALID_ARGUMENT,
                },
                Mode::Processes(entry, counter) => {
                    let counter = function.position(counter);
                    let list = processes.insert(ProcessList::new(index, counter, entry.size));
                    list.entries.as_mut_ptr() as u64
                }
                _ => frame.address(index) as u64,
            });
        }
        if let Some(list) = &mut processes {
            if frame.memory(list.counter).is_none() {
                return status::INVALID_ARGUMENT;
            }
            words[list.counter] = core::ptr::from_mut(&mut list.count) as u64;
        }
        // SAFETY: the words are what the function's line in the list says, and a test compares the line with
        // `nvml.h`. Memory has the size that belongs to the other arguments, which `Call::check` has seen to,
        // and outlives the call.
        let status = unsafe { call(address, &words) };
        if status != status::SUCCESS {
            return status;
        }
        if let Some(list) = processes {
            return list.give(frame, own);
        }
        for (index, argument) in function.arguments.iter().enumerate() {
            if matches!(argument.mode, Mode::OutDevice | Mode::Devices(_))
                && frame.memory(index).is_some()
                && self.handles_to_numbers(frame, index).is_none()
            {
                return status::INSUFFICIENT_RESOURCES;
            }
        }
        status::SUCCESS
    }
}

/// All processes of a device, of which the client gets its own.
struct ProcessList {
    index: usize,
    counter: usize,
    entry: usize,
    count: u32,
    entries: Vec<u64>,
}

impl ProcessList {
    fn new(index: usize, counter: usize, entry: usize) -> Self {
        let entries = vec![0; (MAX_PROCESSES * entry).div_ceil(8)];
        Self { index, counter, entry, count: MAX_PROCESSES as u32, entries }
    }

    /// Writes the client's own processes, by the numbers that they have on its machine.
    fn give(&self, frame: &mut Frame, own: &[OwnProcess]) -> Status {
        let all: Vec<u8> = self.entries.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let mut given = Vec::new();
        for entry in all.chunks_exact(self.entry).take(self.count as usize) {
            let (worker, rest) = entry.split_first_chunk::<4>().expect("entries begin with a process");
            let worker = u32::from_ne_bytes(*worker);
            if let Some(process) = own.iter().find(|process| process.worker == worker) {
                given.extend(process.client.to_le_bytes());
                given.extend(rest);
            }
        }
        frame.put_list(self.index, &given)
    }
}
