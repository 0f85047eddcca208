//! C API of `libcauseway_comm.so`, which `mpi/causeway_comm.h` declares and describes: the state of this
//! process, the last error of each thread, and the version of the functions.
//!
//! A process takes part in one job at a time.
//!
//! | module | contents |
//! | --- | --- |
//! | `messages` | Point-to-point messages for C programs: joining a job, queries of memory, offers, fetches and the queue of unexpected messages |
//! | `collectives` | Collective calls for C programs: groups, reductions, exchanges, and calls in CUDA graphs |
//! | `memory` | Memory for C programs: strided elements, scratch memory, the control channel of the ranks of a node, and memory of another rank that kernels use |
//! | `team` | Teams for C programs: ranks whose kernels communicate |
//! | `verbs` | RDMA queue pairs for C programs, whose work requests kernels write themselves |

mod collectives;
mod memory;
mod messages;
mod team;
mod verbs;

use core::cell::RefCell;
use core::ffi::{c_char, c_int};
use core::ptr;
use std::ffi::CString;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use causeway_sync::fork;

use crate::locks::{RwLock, rank};
use crate::world::World;

/// The version of the functions that `mpi/causeway_comm.h` declares: another one for each change of them.
const VERSION: u32 = 9;

/// This process's part, while it has one.
static WORLD: RwLock<rank::Leaf, Option<Arc<World>>> = RwLock::new(None);

thread_local! {
    static ERROR: RefCell<CString> = RefCell::default();
}

/// This process's part in a job.
pub(crate) fn world() -> Option<Arc<World>> {
    // The copy belongs to the parent, which may hold locks in it.
    if fork::is_child() {
        return None;
    }
    WORLD.read().clone()
}

/// What a function that can fail returns for an error.
pub(crate) const FAILED: c_int = -1;

/// Stores the message of an error for [`causeway_comm_error`].
pub(crate) fn fail(error: impl ToString) -> c_int {
    let text = CString::new(error.to_string()).unwrap_or_default();
    ERROR.with(|last| *last.borrow_mut() = text);
    FAILED
}

/// Runs the body of an exported function, which returns `failed` if it panics: an error of this library does not
/// abort the program, but fails the call, with the panic's message in [`causeway_comm_error`]. Unwinding releases
/// what the body owned, and locks do not poison, so later calls work; what the call had started stays unfinished.
pub(crate) fn guard<R>(failed: R, body: impl FnOnce() -> R) -> R {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
        fail(format!("the library panicked ({text}): this is a bug in Causeway, please report it"));
        failed
    })
}

/// The message of the calling thread's last error, until its next one.
#[unsafe(no_mangle)]
pub extern "C" fn causeway_comm_error() -> *const c_char {
    guard(ptr::null(), || ERROR.with(|last| last.borrow().as_ptr()))
}

/// The version of the library's functions.
#[unsafe(no_mangle)]
pub extern "C" fn causeway_comm_version() -> u32 {
    guard(0, || VERSION)
}

#[cfg(test)]
mod tests {
    use core::ffi::CStr;
    use std::fs;
    use std::path::Path;

    use super::{FAILED, VERSION, causeway_comm_error, guard};

    /// What the header declares: its lines without comments, and without the version.
    fn declarations(header: &str) -> (Option<u32>, String) {
        let (mut version, mut rest) = (None, Vec::new());
        for line in header.lines().map(|line| line.split("//").next().unwrap_or_default().trim()) {
            match line.strip_prefix("#define CAUSEWAY_COMM_VERSION ") {
                Some(number) => version = number.parse().ok(),
                None if line.is_empty() => {}
                None => rest.push(line),
            }
        }
        (version, rest.join(" "))
    }

    #[test]
    fn panic_becomes_an_error_of_the_call() {
        assert_eq!(guard(FAILED, || panic!("lost {}", "count")), FAILED);
        // SAFETY: the message is a C string of this thread.
        let message = unsafe { CStr::from_ptr(causeway_comm_error()) }.to_str().unwrap();
        assert!(message.contains("panicked (lost count)"), "{message}");
        assert_eq!(guard(7, || 3), 3);
    }

    /// Every symbol that the library exports is a function of these files, whose body is one call of the guard.
    #[test]
    fn every_exported_function_is_guarded() {
        let files = [
            include_str!("mod.rs").split("#[cfg(test)]").next().unwrap_or_default(),
            include_str!("collectives.rs"),
            include_str!("memory.rs"),
            include_str!("messages.rs"),
            include_str!("team.rs"),
            include_str!("verbs.rs"),
        ];
        let mut exported = 0;
        for item in files.iter().flat_map(|file| file.split("#[unsafe(no_mangle)]").skip(1)) {
            let item = item.split("\n}\n").next().unwrap_or_default();
            let (signature, body) = item.split_once("{\n").expect("a function has a body");
            let (first, last) = (body.trim_start(), body.trim_end());
            assert!(signature.contains("extern \"C\" fn causeway_"), "{signature}");
            assert!(first.starts_with("guard("), "not guarded: {signature}");
            // The call of the guard ends with the function: nothing stands behind it.
            let ends = body.lines().filter(|line| *line == "    })").count();
            assert!(ends == 1 && last.ends_with("})") || first.lines().count() == 1, "{signature}");
            exported += 1;
        }
        let all = sources(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src")));
        let symbols = all.iter().map(|text| text.matches("#[unsafe(no_mangle)]\npub").count()).sum::<usize>();
        assert!(exported > 80 && exported == symbols, "{exported} of {symbols}");
    }

    /// The texts of a folder's source files, and of those below it.
    fn sources(folder: &Path) -> Vec<String> {
        let entries =
            fs::read_dir(folder).expect("the source is in the tree").map(|entry| entry.unwrap().path());
        let texts = entries.map(|path| match path.is_dir() {
            true => sources(&path),
            false => vec![fs::read_to_string(path).expect("a source file is text")],
        });
        texts.flatten().collect()
    }

    #[test]
    fn header_matches_version() {
        /// Of the declarations of [`VERSION`].
        const HASH: u64 = 0xf37e_055a_bf87_3f3e;
        let header = concat!(env!("CARGO_MANIFEST_DIR"), "/../../mpi/causeway_comm.h");
        let header = fs::read_to_string(header).expect("the header is in the tree");
        let (version, declarations) = declarations(&header);
        assert_eq!(version, Some(VERSION), "header and library have one version");
        // FNV-1a.
        let step = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        let hash = declarations.bytes().fold(0xcbf2_9ce4_8422_2325, step);
        assert_eq!(
            hash, HASH,
            "the declarations have changed: raise the version in both files, and note this hash"
        );
    }
}
