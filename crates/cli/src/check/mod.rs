//! `causeway check`: what the software GPU lacks for a program, said before that runs.

mod files;
mod finding;
mod images;
mod libraries;
mod print;

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use causeway_api::coverage::{FUNCTIONS, Function, Kind};
use causeway_config::ValueError;
use causeway_gpu_software::Options;
use causeway_gpu_software::check::UNANSWERED_CALLS;
use clap::Args;
use thiserror::Error;

use crate::elf::Elf;
use crate::stand_ins;
use finding::{FileCheck, Lacking};
use print::{Report, Unreadable};

/// Report what the software GPU lacks for a program, without running it.
///
/// Reads the GPU code of programs, libraries, fat binaries, cubins and PTX files, and of all libraries below
/// a folder, such as the site-packages of a Python environment. Reports for which devices there is code,
/// which kernels exist only as machine code, which instructions are refused (kernel and line), and which
/// driver calls and libraries that a program is linked to are missing. Code that a program compiles or reads
/// at run time is not checked. Exit code: 0 if nothing is missing, 1 if something is, 2 if a file cannot be
/// read.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Programs, libraries, or folders that contain them.
    #[arg(value_name = "FILE", required = true)]
    paths: Vec<PathBuf>,
    /// Print all findings as JSON.
    #[arg(long)]
    json: bool,
}

/// Why nothing was checked.
#[derive(Debug, Error)]
pub enum CheckError {
    /// A variable of the software GPU makes no sense.
    #[error(transparent)]
    Options(#[from] ValueError),
    /// A file or folder that is named cannot be read.
    #[error("cannot check {path}: {cause}")]
    Unreadable {
        /// Which one.
        path: String,
        /// What the system said, or what is wrong with it.
        cause: io::Error,
    },
    /// A file that is named has no code that could be checked.
    #[error(
        "{0} is no program or library of 64 bits, fat binary, cubin, PTX text or folder: for a script, check \
         the program or the Python environment that runs it"
    )]
    NoCode(String),
    /// The report cannot be printed.
    #[error("cannot print the report: {0}")]
    Print(#[source] io::Error),
}

/// Checks, and reports.
pub fn check(arguments: &Arguments) -> Result<ExitCode, CheckError> {
    let options = Options::from_environment()?;
    let environment = std::env::var("LD_LIBRARY_PATH").unwrap_or_default();
    let (mut checks, mut unreadable, mut examined) = (Vec::new(), Vec::new(), 0);
    for path in &arguments.paths {
        let named = |cause| CheckError::Unreadable { path: path.display().to_string(), cause };
        let kind = path.metadata().map_err(named)?;
        if kind.is_dir() {
            let libraries = files::libraries(path).map_err(named)?;
            for file in libraries.into_iter().filter(|file| !is_replaced(file)) {
                examined += 1;
                match check_library(&file, &options) {
                    Ok(check) => checks.extend(check),
                    Err(cause) => unreadable.push(Unreadable { path: file, cause: cause.to_string() }),
                }
            }
        } else if !kind.is_file() {
            // Whoever opens a pipe waits for another one.
            return Err(CheckError::NoCode(path.display().to_string()));
        } else {
            examined += 1;
            let check = check_named(path, &environment, &options).map_err(named)?;
            checks.push(check.ok_or_else(|| CheckError::NoCode(path.display().to_string()))?);
        }
    }
    let searched: Vec<_> = arguments.paths.iter().map(|path| path.display().to_string()).collect();
    let searched = searched.join(", ");
    let report =
        Report { files: &checks, unreadable: &unreadable, searched: &searched, examined, options: &options };
    let text = if arguments.json { format!("{:#}\n", print::json(&report)) } else { print::text(&report) };
    match io::stdout().lock().write_all(text.as_bytes()) {
        // As with `causeway check ... | head`: who asked has seen enough.
        Err(cause) if cause.kind() != io::ErrorKind::BrokenPipe => return Err(CheckError::Print(cause)),
        _ => {}
    }
    Ok(ExitCode::from(match (unreadable.is_empty(), checks.iter().all(FileCheck::is_good)) {
        (false, _) => 2,
        (true, false) => 1,
        (true, true) => 0,
    }))
}

/// Whether programs on the software GPU get another library in place of this one.
fn is_replaced(library: &Path) -> bool {
    library.file_name().and_then(OsStr::to_str).is_some_and(stand_ins::has)
}

/// A library beneath a folder; nothing where it has nothing to do with GPUs. What it is linked to lies beneath the folder,
/// too, or is not the folder's.
fn check_library(path: &Path, options: &Options) -> io::Result<Option<FileCheck>> {
    let Some(elf) = Elf::open(path)? else { return Ok(None) };
    let sections = elf.sections()?;
    let mut check = FileCheck::new(path.to_owned());
    add_calls(&mut check, elf.imports(&sections, |name| unanswered(name).is_some())?);
    images::for_each(&elf, &sections, |form, image| check.add_image(form, image, options))?;
    Ok((check.images > 0 || !check.is_good()).then_some(check))
}

/// A file that is named, and the libraries that it is linked to; nothing where it is of no known form.
fn check_named(path: &Path, environment: &str, options: &Options) -> io::Result<Option<FileCheck>> {
    let mut check = FileCheck::new(path.to_owned());
    let Some(elf) = Elf::open(path)? else {
        let Some((form, image)) = files::image(path)? else { return Ok(None) };
        check.add_image(form, &image, options);
        return Ok(Some(check));
    };
    let sections = elf.sections()?;
    add_calls(&mut check, elf.imports(&sections, |name| unanswered(name).is_some())?);
    images::for_each(&elf, &sections, |form, image| check.add_image(form, image, options))?;
    libraries::add(&mut check, &elf.dynamic(&sections)?, environment, options);
    Ok(Some(check))
}

fn add_calls(check: &mut FileCheck, functions: BTreeSet<String>) {
    for function in functions {
        if let Some(reason) = unanswered(&function) {
            check.add(Lacking::Call { function, reason });
        }
    }
}

/// Why a call of the driver is not answered; nothing when it is, or is none.
fn unanswered(symbol: &str) -> Option<String> {
    if !symbol.starts_with("cu") {
        return None;
    }
    let is_named = |function: &&Function| {
        function.symbol == symbol || function.per_thread.is_some_and(|variant| variant.symbol == symbol)
    };
    let mut function = FUNCTIONS.iter().find(is_named)?;
    if let Kind::Same { target } = function.kind {
        function = FUNCTIONS.iter().find(|function| function.symbol == target)?;
    }
    match function.kind {
        Kind::Unsupported { reason } => Some(reason.to_owned()),
        _ if UNANSWERED_CALLS.contains(&function.symbol) => {
            Some("the software GPU does not have it".to_owned())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_known_by_each_of_their_names() {
        for function in FUNCTIONS {
            if let Kind::Unsupported { reason } = function.kind {
                assert_eq!(unanswered(function.symbol).as_deref(), Some(reason));
            }
        }
        for answered in ["cuInit", "cuMemcpyAsync_ptsz", "cublasCreate_v2", "malloc", ""] {
            assert_eq!(unanswered(answered), None, "{answered}");
        }
        assert!(unanswered("cuMemBatchDecompressAsync").is_some());
    }
}
