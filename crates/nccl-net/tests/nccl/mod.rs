//! Driver of the plugin, as NCCL is one: it loads the built library, and knows the tables by NCCL's headers alone.

#![allow(dead_code, reason = "each test uses a part")]

use std::ffi::{CStr, c_char, c_int, c_ulong, c_void};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use libloading::Library;

/// Versions of the table that there are.
pub const VERSIONS: [u32; 5] = [8, 9, 10, 11, 12];

/// For what is to happen some time.
const TIMEOUT: Duration = Duration::from_secs(60);

/// NCCL's codes.
pub const SUCCESS: c_int = 0;
pub const INVALID_ARGUMENT: c_int = 4;
pub const INVALID_USAGE: c_int = 5;
pub const REMOTE_ERROR: c_int = 6;

pub type Handle = [u8; 128];

/// Positions of functions in a table, which are the same in all versions.
mod at {
    pub const INIT: usize = 1;
    pub const DEVICES: usize = 2;
    pub const PROPERTIES: usize = 3;
    pub const LISTEN: usize = 4;
    pub const CONNECT: usize = 5;
    pub const ACCEPT: usize = 6;
    pub const REGISTER: usize = 7;
    pub const DEREGISTER: usize = 9;
    pub const SEND: usize = 10;
    pub const RECEIVE: usize = 11;
    pub const FLUSH: usize = 12;
    pub const TEST: usize = 13;
    pub const CLOSE_SEND: usize = 14;
    pub const CLOSE_RECEIVE: usize = 15;
    pub const CLOSE_LISTEN: usize = 16;
    pub const FINALIZE: usize = 20;
}

unsafe extern "C" fn log(
    level: c_int,
    _: c_ulong,
    _: *const c_char,
    _: c_int,
    format: *const c_char,
    text: *const c_char,
) {
    // The plugin's only format is "%s".
    // SAFETY: texts of the plugin, which end with zeros.
    let (format, text) = unsafe { (CStr::from_ptr(format), CStr::from_ptr(text)) };
    assert_eq!(format, c"%s");
    eprintln!(
        "[{}] {} {}",
        std::process::id(),
        if level == 2 { "WARN" } else { "INFO" },
        text.to_string_lossy()
    );
}

/// The plugin by one of its tables.
#[derive(Clone, Copy)]
pub struct Plugin {
    version: u32,
    table: *const *const c_void,
}

/// Where cargo has put the library.
fn library() -> PathBuf {
    let folder = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    let name = "libcauseway_nccl_net.so";
    let candidates = [folder.join(name), folder.parent().unwrap().join(name)];
    candidates.into_iter().find(|path| path.exists()).expect("cargo has built the library")
}

macro_rules! call {
    ($plugin:expr, $at:expr, ($($type:ty),*), $($argument:expr),*) => {{
        let entry = $plugin.entry($at);
        // SAFETY: the table of this version has a function of this type at this position.
        let function = unsafe {
            std::mem::transmute::<*const c_void, unsafe extern "C" fn($($type),*) -> c_int>(entry)
        };
        // SAFETY: arguments as NCCL would pass.
        let status = unsafe { function($($argument),*) };
        status
    }};
}

type P = *mut c_void;
type PP = *mut *mut c_void;

impl Plugin {
    /// Loads a table, and initialises the plugin by it.
    pub fn load(version: u32) -> Self {
        // SAFETY: the library's initialisers do nothing; it stays loaded.
        let library: &'static Library = Box::leak(Box::new(unsafe { Library::new(library()) }.unwrap()));
        let symbol = format!("ncclNetPlugin_v{version}");
        // SAFETY: a table of pointers.
        let table = unsafe { *library.get::<*const *const c_void>(symbol.as_bytes()).unwrap() };
        let plugin = Self { version, table };
        // SAFETY: the name ends with a zero.
        assert_eq!(unsafe { CStr::from_ptr(*table.cast()) }, c"Causeway");
        let log = log as *const c_void;
        let none: *const c_void = std::ptr::null();
        let status = match version {
            8 | 9 => call!(plugin, at::INIT, (*const c_void), log),
            10 => call!(plugin, at::INIT, (*const c_void, *const c_void), log, none),
            _ => {
                let mut context: P = std::ptr::null_mut();
                let mut configuration = -1_i32;
                call!(
                    plugin,
                    at::INIT,
                    (PP, u64, *mut i32, *const c_void, *const c_void),
                    &mut context,
                    7,
                    &mut configuration,
                    log,
                    none
                )
            }
        };
        assert_eq!(status, SUCCESS);
        let mut devices = 0;
        assert_eq!(call!(plugin, at::DEVICES, (*mut c_int), &mut devices), SUCCESS);
        assert_eq!(devices, 1);
        plugin
    }

    fn entry(&self, at: usize) -> *const c_void {
        // SAFETY: the table has so many entries in its version.
        unsafe { *self.table.add(at) }
    }

    /// Pointer kinds, speed, receives of a group, and the code for a device that there is not.
    pub fn properties(&self) -> (c_int, c_int, c_int, c_int) {
        let mut bytes = [0xa5_u8; 256];
        let place: P = bytes.as_mut_ptr().cast();
        assert_eq!(call!(self, at::PROPERTIES, (c_int, P), 0, place), SUCCESS);
        let length = match self.version {
            8 => 64,
            9 | 10 => 104,
            11 => 112,
            _ => 128,
        };
        assert!(bytes[length..].iter().all(|byte| *byte == 0xa5), "more than the structure was written");
        let int = |at: usize| c_int::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
        let port = if self.version == 8 { 32 } else { 36 };
        if self.version >= 9 {
            let size = |at: usize| usize::from_ne_bytes(bytes[at..at + 8].try_into().unwrap());
            let devices = if self.version == 12 { 8 } else { 4 };
            let sizes = (64 + 4 + devices * 4_usize).next_multiple_of(8);
            assert_eq!((int(64), int(68)), (1, 0), "virtual device");
            assert_eq!((size(sizes), size(sizes + 8)), (1 << 40, 1 << 40));
        }
        let mut other = [0_u8; 256];
        let refused = call!(self, at::PROPERTIES, (c_int, P), 1, other.as_mut_ptr().cast());
        (int(24), int(port), int(port + 16), refused)
    }

    pub fn listen(&self) -> (P, Handle) {
        let (mut listener, mut handle): (P, Handle) = (std::ptr::null_mut(), [0; 128]);
        let place: P = handle.as_mut_ptr().cast();
        let status = if self.version >= 11 {
            call!(self, at::LISTEN, (P, c_int, P, PP), std::ptr::null_mut(), 0, place, &mut listener)
        } else {
            call!(self, at::LISTEN, (c_int, P, PP), 0, place, &mut listener)
        };
        assert_eq!(status, SUCCESS);
        assert!(!listener.is_null());
        (listener, handle)
    }

    pub fn try_listen(&self) -> c_int {
        let (mut listener, mut handle): (P, Handle) = (std::ptr::null_mut(), [0; 128]);
        assert!(self.version < 11);
        call!(self, at::LISTEN, (c_int, P, PP), 0, handle.as_mut_ptr().cast(), &mut listener)
    }

    /// Connects once; null where it is to be called again.
    pub fn try_connect(&self, handle: &Handle) -> Result<P, c_int> {
        let (mut communicator, mut copy): (P, Handle) = (std::ptr::dangling_mut::<u64>().cast(), *handle);
        let place: P = copy.as_mut_ptr().cast();
        let (none, mut device): (P, P) = (std::ptr::null_mut(), std::ptr::null_mut());
        let status = match self.version {
            8 | 9 => call!(self, at::CONNECT, (c_int, P, PP, PP), 0, place, &mut communicator, &mut device),
            10 => call!(
                self,
                at::CONNECT,
                (c_int, P, P, PP, PP),
                0,
                none,
                place,
                &mut communicator,
                &mut device
            ),
            _ => call!(
                self,
                at::CONNECT,
                (P, c_int, P, PP, PP),
                none,
                0,
                place,
                &mut communicator,
                &mut device
            ),
        };
        if status == SUCCESS { Ok(communicator) } else { Err(status) }
    }

    pub fn connect(&self, handle: &Handle) -> Result<P, c_int> {
        let start = Instant::now();
        loop {
            let communicator = self.try_connect(handle)?;
            if !communicator.is_null() {
                return Ok(communicator);
            }
            assert!(start.elapsed() < TIMEOUT, "no connection");
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// Accepts once; null where it is to be called again.
    pub fn try_accept(&self, listener: P) -> P {
        let (mut communicator, mut device): (P, P) = (std::ptr::null_mut(), std::ptr::null_mut());
        assert_eq!(call!(self, at::ACCEPT, (P, PP, PP), listener, &mut communicator, &mut device), SUCCESS);
        communicator
    }

    pub fn accept(&self, listener: P) -> P {
        let start = Instant::now();
        loop {
            let communicator = self.try_accept(listener);
            if !communicator.is_null() {
                return communicator;
            }
            assert!(start.elapsed() < TIMEOUT, "nobody comes");
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    pub fn register(&self, communicator: P, memory: &mut [u8], kind: c_int) -> Result<P, c_int> {
        let mut registration: P = std::ptr::null_mut();
        let status = call!(
            self,
            at::REGISTER,
            (P, P, usize, c_int, PP),
            communicator,
            memory.as_mut_ptr().cast(),
            memory.len(),
            kind,
            &mut registration
        );
        if status == SUCCESS { Ok(registration) } else { Err(status) }
    }

    pub fn deregister(&self, communicator: P, registration: P) {
        assert_eq!(call!(self, at::DEREGISTER, (P, P), communicator, registration), SUCCESS);
    }

    /// Null where it is to be called again.
    pub fn send(&self, communicator: P, memory: &[u8], registration: P) -> Result<P, c_int> {
        let mut request: P = std::ptr::dangling_mut::<u64>().cast();
        let data: P = memory.as_ptr().cast_mut().cast();
        let status = match self.version {
            8 => call!(
                self,
                at::SEND,
                (P, P, c_int, c_int, P, PP),
                communicator,
                data,
                memory.len() as c_int,
                3,
                registration,
                &mut request
            ),
            9 => call!(
                self,
                at::SEND,
                (P, P, usize, c_int, P, PP),
                communicator,
                data,
                memory.len(),
                3,
                registration,
                &mut request
            ),
            _ => call!(
                self,
                at::SEND,
                (P, P, usize, c_int, P, P, PP),
                communicator,
                data,
                memory.len(),
                3,
                registration,
                std::ptr::null_mut(),
                &mut request
            ),
        };
        if status == SUCCESS { Ok(request) } else { Err(status) }
    }

    /// Null where it is to be called again.
    pub fn receive(&self, communicator: P, memory: &mut [u8], registration: P) -> Result<P, c_int> {
        // As NCCL says that it finds out by itself when the bytes are there.
        let mut request: P = std::ptr::without_provenance_mut(1);
        let mut data: P = memory.as_mut_ptr().cast();
        let (mut registration, mut profiler): (P, P) = (registration, std::ptr::null_mut());
        let (mut int, mut size, mut tag) = (memory.len() as c_int, memory.len(), 5);
        let status = match self.version {
            8 => call!(
                self,
                at::RECEIVE,
                (P, c_int, PP, *mut c_int, *mut c_int, PP, PP),
                communicator,
                1,
                &mut data,
                &mut int,
                &mut tag,
                &mut registration,
                &mut request
            ),
            9 => call!(
                self,
                at::RECEIVE,
                (P, c_int, PP, *mut usize, *mut c_int, PP, PP),
                communicator,
                1,
                &mut data,
                &mut size,
                &mut tag,
                &mut registration,
                &mut request
            ),
            _ => call!(
                self,
                at::RECEIVE,
                (P, c_int, PP, *mut usize, *mut c_int, PP, PP, PP),
                communicator,
                1,
                &mut data,
                &mut size,
                &mut tag,
                &mut registration,
                &mut profiler,
                &mut request
            ),
        };
        if status == SUCCESS { Ok(request) } else { Err(status) }
    }

    /// The size, where it is done.
    pub fn test(&self, request: P) -> Result<Option<usize>, c_int> {
        let (mut done, mut size) = (-1, -1);
        let status = call!(self, at::TEST, (P, *mut c_int, *mut c_int), request, &mut done, &mut size);
        match (status, done) {
            (SUCCESS, 0) => Ok(None),
            (SUCCESS, 1) => Ok(Some(usize::try_from(size).unwrap())),
            (SUCCESS, done) => panic!("done is {done}"),
            (status, _) => Err(status),
        }
    }

    pub fn wait(&self, request: P) -> Result<usize, c_int> {
        let start = Instant::now();
        loop {
            if let Some(size) = self.test(request)? {
                return Ok(size);
            }
            assert!(start.elapsed() < TIMEOUT, "a request is never done");
            std::thread::yield_now();
        }
    }

    /// Nothing is to be flushed.
    pub fn flush(&self, communicator: P) {
        let (mut request, mut data): (P, P) = (std::ptr::dangling_mut::<u64>().cast(), std::ptr::null_mut());
        let (mut size, mut registration): (c_int, P) = (0, std::ptr::null_mut());
        let status = call!(
            self,
            at::FLUSH,
            (P, c_int, PP, *mut c_int, PP, PP),
            communicator,
            1,
            &mut data,
            &mut size,
            &mut registration,
            &mut request
        );
        assert_eq!((status, request), (SUCCESS, std::ptr::null_mut()));
    }

    pub fn close_send(&self, communicator: P) {
        assert_eq!(call!(self, at::CLOSE_SEND, (P), communicator), SUCCESS);
    }

    pub fn close_receive(&self, communicator: P) {
        assert_eq!(call!(self, at::CLOSE_RECEIVE, (P), communicator), SUCCESS);
    }

    pub fn close_listen(&self, listener: P) {
        assert_eq!(call!(self, at::CLOSE_LISTEN, (P), listener), SUCCESS);
    }

    pub fn finalize(&self) {
        if self.version >= 11 {
            assert_eq!(call!(self, at::FINALIZE, (P), std::ptr::null_mut()), SUCCESS);
        }
    }
}

/// Bytes of a message: they say which it is and at which offset.
pub fn fill(memory: &mut [u8], connection: u64, number: u64) {
    let key = (connection << 32 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for (at, byte) in memory.iter_mut().enumerate() {
        *byte = (key.wrapping_mul(at as u64 / 7 + 1) >> 29) as u8;
    }
}

/// Small random numbers, the same for the same seed.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    /// Bytes of a message: often few, seldom some MiB.
    pub fn size(&mut self) -> usize {
        match self.below(10) {
            0 => 0,
            1..=4 => self.below(5000) as usize,
            5..=8 => self.below(300_000) as usize,
            _ => self.below(3 << 20) as usize,
        }
    }
}
