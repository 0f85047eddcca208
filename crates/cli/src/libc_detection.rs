//! C library of a program. The client library is built for glibc, and no other can load it; a program that
//! has glibc inside can load no driver at all.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use crate::elf::Elf;

/// The longest path of a loader that is read, as long as the system lets paths be.
const MAX_PATH_LEN: usize = 4096;

/// The kind of the program header that names the loader (`PT_INTERP`).
const INTERPRETER: u32 = 3;

/// What programs that load the driver themselves have in them.
const DRIVER: &[u8] = b"libcuda.so";

/// The most bytes of a program that are searched for it.
const MAX_SEARCHED_BYTES: u64 = 256 << 20;

/// What an ELF file of 64 bits asks for.
#[derive(Debug, PartialEq, Eq)]
enum LibcRequirement {
    /// This loader.
    Loader(PathBuf),
    /// None: it is linked statically.
    Nothing,
}

/// A warning for the user, if the program is linked with musl libc, or statically and loads the driver all the same.
/// Nothing is said of a program that cannot be looked at: it is started all the same, and then the system says what is
/// wrong.
pub fn warning(program: &OsStr) -> Option<String> {
    let mut file = find(program)?;
    if let Some(by) = named_by_script(&file) {
        file = by;
    }
    let loader = match libc_requirement(&file).ok().flatten()? {
        LibcRequirement::Loader(loader) => loader,
        LibcRequirement::Nothing => return loads_driver(&file).then(|| linked_statically(&file)),
    };
    let name = loader.file_name()?.as_bytes();
    name.starts_with(b"ld-musl").then(|| {
        format!(
            "{} is linked with musl libc ({}), which cannot load the client library, so it finds no GPU: use an image with \
             glibc, such as Debian's, Ubuntu's or NVIDIA's",
            file.display(),
            loader.display()
        )
    })
}

/// Neither threads nor thread-local variables work in libraries that a static program of glibc loads: it ends by SIGSEGV
/// in the first library that has any, NVIDIA's driver included.
fn linked_statically(file: &Path) -> String {
    format!(
        "{} is linked statically, and glibc supports neither threads nor thread-local variables in libraries \
         that such a program loads: it crashes in the first call of CUDA, as with NVIDIA's driver; link it \
         without -static (-static-libgcc and -cudart static are fine)",
        file.display()
    )
}

/// Whether a program has the driver's name in it.
fn loads_driver(file: &Path) -> bool {
    let mut content = Vec::new();
    let read = File::open(file).and_then(|file| file.take(MAX_SEARCHED_BYTES).read_to_end(&mut content));
    read.is_ok() && memchr::memmem::find(&content, DRIVER).is_some()
}

/// The file of a program, as a shell finds it.
fn find(program: &OsStr) -> Option<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return Some(program.into());
    }
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders).map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// The program that carries out a script, as its first line names it.
fn named_by_script(file: &Path) -> Option<PathBuf> {
    let mut start = Vec::new();
    File::open(file).ok()?.take(MAX_PATH_LEN as u64).read_to_end(&mut start).ok()?;
    let line = start.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let mut fields = line.split(|byte| byte.is_ascii_whitespace()).filter(|word| !word.is_empty());
    let first = Path::new(OsStr::from_bytes(fields.next()?));
    match fields.next() {
        Some(name) if first.ends_with("env") => find(OsStr::from_bytes(name)),
        _ => Some(first.to_owned()),
    }
}

/// What a program asks for; nothing is known of what is no ELF file of 64 bits.
fn libc_requirement(path: &Path) -> io::Result<Option<LibcRequirement>> {
    let Some(elf) = Elf::open(path)? else { return Ok(None) };
    for segment in elf.segments() {
        let (kind, range) = segment?;
        if kind == INTERPRETER {
            let mut path = elf.read(range.start, (range.end - range.start).min(MAX_PATH_LEN as u64))?;
            path.truncate(path.iter().position(|byte| *byte == 0).unwrap_or(path.len()));
            return Ok(Some(LibcRequirement::Loader(OsString::from_vec(path).into())));
        }
    }
    Ok(Some(LibcRequirement::Nothing))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elf::{HEADER, PROGRAM_HEADER};

    /// A file that says of itself no more than which loader it wants.
    fn elf(loader: &str) -> Vec<u8> {
        let mut file = vec![0; HEADER + PROGRAM_HEADER];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        file[32] = HEADER as u8;
        file[56] = 1;
        file[HEADER] = INTERPRETER as u8;
        file[HEADER + 8] = (HEADER + PROGRAM_HEADER) as u8;
        file[HEADER + 32] = loader.len() as u8 + 1;
        file.extend(loader.bytes().chain([0]));
        file
    }

    #[test]
    fn programs_of_musl_are_told_and_others_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let said = |name: &str, content: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, content).unwrap();
            warning(path.as_os_str())
        };
        let text = said("musl", &elf("/lib/ld-musl-x86_64.so.1")).unwrap();
        assert!(text.contains("/lib/ld-musl-x86_64.so.1") && text.contains("glibc"), "{text}");
        let script = format!("#! {} -x\n", folder.path().join("musl").display());
        assert!(said("script", script.as_bytes()).is_some());
        let cut = &elf("/lib/ld-musl-x86_64.so.1")[..HEADER + 30];
        for other in [&elf("/lib64/ld-linux-x86-64.so.2")[..], b"", b"#!", b"#!/usr/bin/env sh\n", cut] {
            assert_eq!(said("other", other), None);
        }
        let mut alone = elf("");
        alone[HEADER] = 1;
        assert_eq!(said("static", &alone), None, "it has nothing to do with GPUs");
        alone.extend(b"\0libcuda.so.1\0");
        assert!(said("static", &alone).unwrap().contains("linked statically"));
        let mut hostile = elf("/lib/ld-musl-x86_64.so.1");
        hostile[HEADER + 8..HEADER + 16].fill(0xFF);
        assert_eq!(said("hostile", &hostile), None);
        // The program that runs this is of this machine, and so is the shell.
        for known in
            [std::env::current_exe().unwrap().as_os_str(), OsStr::new("sh"), OsStr::new("no such program")]
        {
            assert_eq!(warning(known), None);
        }
    }
}
