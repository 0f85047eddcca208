//! The library that stands in for the driver (`driver_fake.c`), and a back end that uses it.

use causeway_api::handle::{Context, Event, Native};
use causeway_api::sys::CUresult;
use causeway_gpu::Gpu;
use causeway_gpu::calls::*;
use causeway_gpu_driver::Driver;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, OnceLock};

pub const BUSY: c_int = CUresult::CUDA_ERROR_NOT_READY.0 as c_int;

/// What the fake can fail at, as it numbers that.
#[derive(Clone, Copy)]
pub enum Failing {
    MakeEvent,
    RecordEvent,
    HostCopy,
    MarkContext,
    LockProcess,
    CheckpointProcess,
    RestoreProcess,
    UnlockProcess,
}

/// The fake, of which there is one in the process, and a driver that uses it; held by one test at a time.
pub struct Fake {
    library: libloading::Library,
    pub driver: Driver,
    pub context: Native<Context>,
    _alone: MutexGuard<'static, ()>,
}

pub fn build(name: &str, source: &Path, arguments: &[&str]) -> PathBuf {
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
    pub fn new() -> Self {
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
        for what in [
            Failing::MakeEvent,
            Failing::RecordEvent,
            Failing::HostCopy,
            Failing::MarkContext,
            Failing::LockProcess,
            Failing::CheckpointProcess,
            Failing::RestoreProcess,
            Failing::UnlockProcess,
        ] {
            fake.fail(what, None);
        }
        fake.set_process_state(0, -1);
        fake.log();
        fake
    }

    /// What was called since the last time.
    pub fn log(&self) -> String {
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
    pub fn set_busy(&self, status: c_int) {
        // SAFETY: the function has this type in the fake's source.
        unsafe { self.library.get::<unsafe extern "C" fn(c_int)>(b"fake_set_busy").unwrap()(status) }
    }

    /// The event that is unfinished from now on, whatever else is.
    pub fn set_unfinished(&self, event: Native<Event>) {
        // SAFETY: the function has this type in the fake's source.
        unsafe {
            self.library.get::<unsafe extern "C" fn(*mut c_void)>(b"fake_set_unfinished").unwrap()(
                event.as_raw().cast(),
            )
        }
    }

    /// What fails from now on, or does not.
    pub fn fail(&self, what: Failing, status: Option<CUresult>) {
        let status = status.map_or(0, |status| status.0 as c_int);
        // SAFETY: the function has this type in the fake's source.
        unsafe {
            self.library.get::<unsafe extern "C" fn(c_int, c_int)>(b"fake_fail").unwrap()(
                what as c_int,
                status,
            )
        }
    }

    /// In which state a checkpoint has the process, and which one a call that fails leaves behind, if not the one before.
    pub fn set_process_state(&self, now: c_int, after_failure: c_int) {
        // SAFETY: the function has this type in the fake's source.
        unsafe {
            self.library.get::<unsafe extern "C" fn(c_int, c_int)>(b"fake_set_process_state").unwrap()(
                now,
                after_failure,
            )
        }
    }

    pub fn print(&self, text: &'static CStr) {
        // SAFETY: the function has this type in the fake's source; the text lives for ever.
        unsafe {
            self.library.get::<unsafe extern "C" fn(*const c_char)>(b"fake_print").unwrap()(text.as_ptr())
        }
    }
}
