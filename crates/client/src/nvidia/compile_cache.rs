//! Compile cache on disk: what has been compiled at run time.
//!
//! From CUDA 12.9 on NVRTC asks the driver whether the same source has been compiled with the same options
//! before (its manual, "Caching"), and NVIDIA's driver keeps the results with those of its own compiler.
//! Without that each process of a PyTorch program compiles cuDNN's kernels for attention anew: 0.9 s on an
//! H200 (2026-11-22), where a native one takes 0.13 s from the second process on. It is the program's machine
//! that compiles, so it is there that the results are kept. Where all devices run PTX only, it is PTX that
//! they get in the form of machine code ([`texts`]). `CUDA_CACHE_DISABLE` is obeyed as by NVIDIA's driver.
//!
//! A file has the name of its key, and begins with the hash of what follows: one that is damaged is as good
//! as none.

pub mod table;

use causeway_config::read::PROCESS;
use causeway_config::table::CUDA_CACHE_DISABLE;
use causeway_sync::threads;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use blake3::{Hash, Hasher};

use crate::files;

/// The longest result that is kept.
const MAX_ENTRY_BYTES: usize = 64 << 20;
/// Results that are kept.
const MAX_FILES: usize = 4096;
/// Bytes of all results together; the native cache has as many if nothing else is said.
const MAX_BYTES: u64 = 1 << 30;

/// All that a result depends on.
#[derive(Debug)]
pub struct CompilationInputs<'a> {
    /// What is to be made: 1 or 2.
    pub kind: u32,
    /// The source.
    pub source: &'a [u8],
    /// The compiler's options, the system it runs on, and its version.
    pub texts: [&'a [u8]; 3],
    /// Two numbers more that the compiler names.
    pub numbers: [u32; 2],
}

/// The kind of question that asks for machine code, and the one that asks for PTX.
const MACHINE_CODE: u32 = 1;
const PTX: u32 = 2;

/// What a result is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    name: Hash,
    /// What is to be made.
    kind: u32,
    /// The source with the numbers: the same for every step of one program's compilation.
    program: Hash,
}

impl Key {
    /// That of the answer to this question.
    pub fn new(inputs: &CompilationInputs<'_>) -> Self {
        let CompilationInputs { kind, source, texts, numbers } = inputs;
        let mut hasher = Hasher::new();
        for number in [*kind, numbers[0], numbers[1]] {
            hasher.update(&number.to_le_bytes());
        }
        for part in [*source, texts[0], texts[1], texts[2]] {
            hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
        }
        let name = hasher.finalize();
        let mut hasher = Hasher::new();
        hasher.update(&numbers[0].to_le_bytes()).update(&numbers[1].to_le_bytes()).update(source);
        Self { name, kind: *kind, program: hasher.finalize() }
    }

    fn path(&self, folder: &Path) -> PathBuf {
        folder.join(self.name.to_hex().as_str())
    }
}

/// Where results are kept, if they are.
pub fn folder() -> Option<PathBuf> {
    let is_disabled = PROCESS.text(&CUDA_CACHE_DISABLE).as_deref() == Some("1");
    if is_disabled { None } else { files::folder("compiled") }
}

/// The result with this name, if it is kept.
pub fn find(folder: &Path, key: &Key) -> Option<Vec<u8>> {
    let path = key.path(folder);
    let mut bytes = fs::read(&path).ok()?;
    let is_whole =
        bytes.split_first_chunk().is_some_and(|(hash, result)| blake3::hash(result) == Hash::from(*hash));
    if !is_whole {
        // Should it stay, it is not believed next time either.
        let _ = fs::remove_file(&path);
        return None;
    }
    bytes.drain(..blake3::OUT_LEN);
    Some(bytes)
}

/// Keeps a result.
///
/// # Errors
/// It is too long, or the system's.
pub fn keep(folder: &Path, key: &Key, result: &[u8]) -> io::Result<()> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    if result.len() > MAX_ENTRY_BYTES {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    files::make(folder)?;
    files::evict(folder, MAX_FILES, MAX_BYTES);
    // Under a name of its own until it is whole: other processes look for it at any time.
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let draft = folder.join(format!("{}-{number}.new", std::process::id()));
    let written = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft);
    let written = written.and_then(|mut file| {
        threads::without_sigxfsz(|| {
            file.write_all(blake3::hash(result).as_bytes())?;
            file.write_all(result)
        })?;
        fs::rename(&draft, key.path(folder))
    });
    if written.is_err() {
        let _ = fs::remove_file(&draft);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inputs() -> CompilationInputs<'static> {
        CompilationInputs { kind: 1, source: b"source", texts: [b"-O3", b"host", b"13.0"], numbers: [13, 0] }
    }

    #[test]
    fn a_key_depends_on_everything_that_the_result_does() {
        let key = Key::new(&inputs());
        assert_eq!(key, Key::new(&inputs()));
        let others = [
            CompilationInputs { kind: 2, ..inputs() },
            CompilationInputs { source: b"sourc", texts: [b"e-O3", b"host", b"13.0"], ..inputs() },
            CompilationInputs { texts: [b"-O2", b"host", b"13.0"], ..inputs() },
            CompilationInputs { texts: [b"-O3", b"host", b"13.1"], ..inputs() },
            CompilationInputs { numbers: [0, 13], ..inputs() },
        ];
        assert!(others.iter().all(|other| Key::new(other) != key));
        let same_program = others.map(|other| Key::new(&other).program == key.program);
        assert_eq!(same_program, [true, false, true, true, false]);
    }

    #[test]
    fn what_is_kept_is_found_and_what_is_damaged_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("deep").join("compiled");
        let key = Key::new(&inputs());
        assert_eq!(find(&folder, &key), None);
        for result in [&b"code"[..], b"", b"other code"] {
            keep(&folder, &key, result).unwrap();
            assert_eq!(find(&folder, &key).as_deref(), Some(result));
        }
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "no drafts are left");
        let path = key.path(&folder);
        let mut bytes = fs::read(&path).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        for damaged in [&bytes[..], &bytes[..3]] {
            fs::write(&path, damaged).unwrap();
            assert_eq!(find(&folder, &key), None);
            assert!(!path.exists());
        }
    }

    #[test]
    fn a_folder_that_cannot_be_written_does_no_harm() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, b"").unwrap();
        let key = Key::new(&inputs());
        assert!(keep(&file, &key, b"code").is_err());
        assert_eq!(find(&file, &key), None);
        assert!(keep(folder.path(), &key, &vec![0; MAX_ENTRY_BYTES + 1]).is_err());
    }
}
