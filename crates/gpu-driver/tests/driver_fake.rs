//! The real driver's back end against a library that only writes down how it is called (`driver_fake.c`):
//! checks the passing of arguments, which needs no GPU.
//!
//! | module | question |
//! | --- | --- |
//! | `code` | How are images and launches passed on? |
//! | `memory` | How are copies, staging and allocations? |
//! | `completions` | When is the end of work told, and what stops a stream? |
//! | `busy` | Who gets memory that the device may still use? |

use causeway_api::handle::{Context, Event, Native};
use causeway_api::sys::CUresult;
use causeway_gpu::Gpu;
use causeway_gpu::calls::*;
use causeway_gpu_driver::{Driver, LoadError};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, OnceLock};

#[path = "driver_fake/busy.rs"]
mod busy;
#[path = "driver_fake/code.rs"]
mod code;
#[path = "driver_fake/completions.rs"]
mod completions;
#[path = "driver_fake/memory.rs"]
mod memory;

const BUSY: c_int = CUresult::CUDA_ERROR_NOT_READY.0 as c_int;

/// What the fake can fail at, as it numbers that.
#[derive(Clone, Copy)]
enum Failing {
    MakeEvent,
    RecordEvent,
    HostCopy,
    MarkContext,
}

/// The fake, of which there is one in the process, and a driver that uses it; held by one test at a time.
struct Fake {
    library: libloading::Library,
    driver: Driver,
    context: Native<Context>,
    _alone: MutexGuard<'static, ()>,
}

fn build(name: &str, source: &Path, arguments: &[&str]) -> PathBuf {
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let status = Command::new("gcc")
        .args(["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Wno-unused-parameter", "-pthread", "-o"])
        .arg(&out)
        .arg(source)
        .args(arguments)
        .status();
    assert!(status.expect("gcc is installed").success(), "{} does not compile", source.display());
    out
}

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/driver_fake.c")
}

impl Fake {
    fn new() -> Self {
        static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let path = LIBRARY.get_or_init(|| build("libcuda_fake.so", &source(), &[]));
        // SAFETY: the library was just built from our own source.
        let library = unsafe { libloading::Library::new(path) }.unwrap();
        let driver = Driver::load_from(path).unwrap();
        let context = driver.primary_context_retain(1, 0).unwrap();
        driver.make_current(context).unwrap();
        let fake = Self { library, driver, context, _alone: alone };
        fake.set_busy(0);
        for what in [Failing::MakeEvent, Failing::RecordEvent, Failing::HostCopy, Failing::MarkContext] {
            fake.fail(what, None);
        }
        fake.log();
        fake
    }

    /// What was called since the last time.
    fn log(&self) -> String {
        let mut text = vec![0u8; 1 << 16];
        // SAFETY: the function has this type in the fake's source.
        unsafe {
            let take =
                self.library.get::<unsafe extern "C" fn(*mut c_char, usize)>(b"fake_take_log").unwrap();
            take(text.as_mut_ptr().cast(), text.len());
        }
        CStr::from_bytes_until_nul(&text).unwrap().to_str().unwrap().to_owned()
    }

    /// Whether all work is unfinished from now on, or how it has ended.
    fn set_busy(&self, status: c_int) {
        // SAFETY: as above.
        unsafe { self.library.get::<unsafe extern "C" fn(c_int)>(b"fake_set_busy").unwrap()(status) }
    }

    /// The event that is unfinished from now on, whatever else is.
    fn set_unfinished(&self, event: Native<Event>) {
        // SAFETY: as above.
        unsafe {
            self.library.get::<unsafe extern "C" fn(*mut c_void)>(b"fake_set_unfinished").unwrap()(
                event.as_raw().cast(),
            )
        }
    }

    /// What fails from now on, or does not.
    fn fail(&self, what: Failing, status: Option<CUresult>) {
        let status = status.map_or(0, |status| status.0 as c_int);
        // SAFETY: as above.
        unsafe {
            self.library.get::<unsafe extern "C" fn(c_int, c_int)>(b"fake_fail").unwrap()(
                what as c_int,
                status,
            )
        }
    }

    fn print(&self, text: &'static CStr) {
        // SAFETY: as above; the text lives for ever.
        unsafe {
            self.library.get::<unsafe extern "C" fn(*const c_char)>(b"fake_print").unwrap()(text.as_ptr())
        }
    }
}

#[test]
fn the_snapshot_is_what_the_driver_says_but_for_what_is_not_forwarded() {
    let fake = Fake::new();
    let snapshot = fake.driver.snapshot().unwrap();
    assert_eq!(fake.log(), "", "a snapshot makes no context");
    assert!(snapshot.backend.starts_with("NVIDIA driver") && snapshot.backend.ends_with("(CUDA 13.0)"));
    assert_eq!((snapshot.driver_version, snapshot.devices.len(), snapshot.peers.len()), (13000, 2, 4));
    let device = &snapshot.devices[1];
    assert_eq!((device.name.as_str(), device.pci_bus_id.as_str()), ("Fake 1", "0000:01:00.0"));
    assert_eq!((device.uuid, device.total_memory), ([0xf1; 16], 2 << 30));
    assert_eq!(device.attribute(75), Some(9));
    assert_eq!(device.attribute(3), None, "the driver does not answer this one");
    let concurrent = device.attribute(89);
    assert_eq!(
        (device.attribute(83), concurrent),
        (Some(1), Some(0)),
        "managed memory, but not at the same time"
    );
    assert_eq!(device.stream_priorities, (0, -5));
    assert!(snapshot.peers[1].can_access && !snapshot.peers[0].can_access);
    assert_eq!(snapshot.peers[2].attributes, [(1, 1), (2, 2), (3, 3), (4, 4)]);
}

#[test]
fn the_current_context_is_set_only_when_it_changes() {
    let fake = Fake::new();
    fake.driver.make_current(fake.context).unwrap();
    assert_eq!(fake.log(), "");
    fake.driver.make_current(Native::NULL).unwrap();
    fake.driver.make_current(fake.context).unwrap();
    assert_eq!(fake.log(), "set current (nil)\nset current 0xc1\n");
    fake.driver.primary_context_release(fake.context, 1).unwrap();
    assert!(fake.driver.primary_context_release(fake.context, 1).is_err());
    fake.log();
    fake.driver.make_current(fake.context).unwrap();
    assert_eq!(fake.log(), "set current 0xc1\n", "an ended context is current nowhere");
}

#[test]
fn libraries_that_are_not_the_driver_are_refused() {
    let missing = Driver::load_from(Path::new("/nowhere/libcuda.so.1")).err().unwrap();
    assert!(matches!(missing, LoadError::NotFound { .. }), "{missing}");
    assert_eq!(missing.status(), CUresult::CUDA_ERROR_NO_DEVICE);
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let client = directory.join("client.c");
    std::fs::write(&client, "int causeway_client_marker(void) { return 1; }\n").unwrap();
    let own = Driver::load_from(&build("libcuda_client.so", &client, &[])).err().unwrap();
    assert!(matches!(own, LoadError::OwnClient { .. }) && own.to_string().contains("own client"), "{own}");
    let broken = directory.join("broken.c");
    std::fs::write(&broken, "int cuInit(unsigned flags) { return 803 + (int)flags; }\n").unwrap();
    let failed = Driver::load_from(&build("libcuda_broken.so", &broken, &[])).err().unwrap();
    assert_eq!(failed.status(), CUresult::CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);
    assert!(failed.to_string().contains("803"), "{failed}");
}
