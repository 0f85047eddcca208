//! The soft card in this process: libibverbs and libmlx5 under their own names, so that the library under test loads
//! them as it loads rdma-core's.

use core::ffi::{CStr, c_char, c_int, c_void};
use std::ffi::CString;
use std::process::Command;
use std::sync::OnceLock;

use crate::machine::{is_cuda, programs};
use crate::software::{allocate_pages, free_pages};

type Allocate = extern "C" fn(usize) -> *mut c_void;
type Free = extern "C" fn(*mut c_void, usize);

/// What tests ask the card.
pub struct SoftCard {
    complaint: unsafe extern "C" fn(*mut c_char, usize),
    fail: unsafe extern "C" fn(u32, u32, u32) -> c_int,
    doorbells: unsafe extern "C" fn() -> u64,
    refusals: unsafe extern "C" fn() -> u64,
}

fn symbol(library: *mut c_void, name: &CStr) -> *mut c_void {
    // SAFETY: the library is open, and the name ends with a zero.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    assert!(!found.is_null(), "the soft card has {name:?}");
    found
}

impl SoftCard {
    pub fn get() -> &'static Self {
        static CARD: OnceLock<SoftCard> = OnceLock::new();
        CARD.get_or_init(|| {
            // A machine without the source has it built.
            let built = programs().join("softcard");
            let new = tempfile::tempdir().unwrap();
            let folder = if built.join("libibverbs.so.1").exists() { &built } else { new.path() };
            if folder != built {
                let build = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/softcard/build.sh");
                assert!(Command::new(build).arg(folder).status().unwrap().success(), "{build}");
            }
            // The loader finds a library that is open by its own name (DT_SONAME).
            let open = |name: &str| {
                let path = CString::new(folder.join(name).to_str().unwrap()).unwrap();
                // SAFETY: the initialisers of these libraries do nothing.
                let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
                assert!(!library.is_null(), "{path:?} is opened");
                library
            };
            let library = open("libibverbs.so.1");
            open("libmlx5.so.1");
            // Before the first GID is asked for: it says where other processes find this one's cards.
            let name = symbol(library, c"softcard_listen");
            // SAFETY: `wire.c` declares the function so.
            let listen: unsafe extern "C" fn(*const c_char) -> c_int = unsafe { core::mem::transmute(name) };
            // SAFETY: the text ends with a zero.
            assert_eq!(unsafe { listen(c"127.0.0.1".as_ptr()) }, 0, "the card listens");
            if !is_cuda() {
                let name = symbol(library, c"softcard_use_memory");
                // SAFETY: `library.c` declares the function so.
                unsafe {
                    let use_memory: unsafe extern "C" fn(Allocate, Free) = core::mem::transmute(name);
                    use_memory(allocate_pages, free_pages);
                }
            }
            // SAFETY: `card.c` declares the functions so.
            unsafe {
                Self {
                    complaint: core::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut c_char, usize)>(
                        symbol(library, c"softcard_complaint"),
                    ),
                    fail: core::mem::transmute::<*mut c_void, unsafe extern "C" fn(u32, u32, u32) -> c_int>(
                        symbol(library, c"softcard_fail"),
                    ),
                    doorbells: core::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> u64>(symbol(
                        library,
                        c"softcard_doorbells",
                    )),
                    refusals: core::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> u64>(symbol(
                        library,
                        c"softcard_refusals",
                    )),
                }
            }
        })
    }

    /// What kernels have done that no program may.
    pub fn complaint(&self) -> String {
        let mut text = [0_u8; 256];
        // SAFETY: there is room for so many bytes, and what is written ends with a zero.
        unsafe {
            (self.complaint)(text.as_mut_ptr().cast(), text.len());
            CStr::from_ptr(text.as_ptr().cast()).to_string_lossy().into_owned()
        }
    }

    /// Has a request of a queue pair fail: the one with this index, from now on.
    pub fn fail(&self, queue_pair: u32, index: u32, syndrome: u32) {
        // SAFETY: numbers alone.
        assert_eq!(unsafe { (self.fail)(queue_pair, index, syndrome) }, 0);
    }

    /// Doorbells that the card has seen, of all queue pairs.
    pub fn doorbells(&self) -> u64 {
        // SAFETY: no arguments.
        unsafe { (self.doorbells)() }
    }

    /// How often a card of another process has refused a message for which there was no receive.
    pub fn refusals(&self) -> u64 {
        // SAFETY: no arguments.
        unsafe { (self.refusals)() }
    }
}
