//! Stand-in for NVIDIA's `ptxas`, which Triton and XLA call to make machine code of their PTX: the software GPU runs
//! the PTX itself. It is this program, started by that name.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use causeway_access::private_folder;
use causeway_api::image::Form;
use causeway_gpu_software::{Options, check};
use thiserror::Error;

/// The name by which it is started.
const NAME: &str = "ptxas";

/// The variables that name it to Triton: up to a compute capability and from there on.
const VARIABLES: [&str; 2] = ["TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH"];

/// What stands before the version in what `ptxas --version` says, and the version: callers make PTX for it, here 8.7.
const VERSION: &str =
    "Causeway's stand-in for ptxas, which passes PTX on to the software GPU\nrelease 12.8, V12.8.0";

/// Why there is no output.
#[derive(Debug, Error)]
enum PtxasError {
    /// No input is named.
    #[error("no file with PTX is named: give its path as the first argument, or a path that ends in `.ptx`")]
    NoInput,
    /// No output is named.
    #[error("no output file is named: give its path after `-o`")]
    NoOutput,
    /// A file cannot be read or written.
    #[error("{} cannot be {action}: {cause}", path.display())]
    File { path: PathBuf, action: &'static str, cause: io::Error },
    /// The settings of the software GPU make no sense.
    #[error(transparent)]
    Options(#[from] causeway_config::ValueError),
    /// The software GPU would not run it.
    #[error("{}: {reason}", path.display())]
    Refused { path: PathBuf, reason: String },
}

/// Whether this process was started as the stand-in.
pub fn is_meant(arguments: &[OsString]) -> bool {
    arguments.first().is_some_and(|first| Path::new(first).file_name() == Some(OsStr::new(NAME)))
}

/// Does what the command line asks for.
pub fn run(arguments: &[OsString]) -> ExitCode {
    if arguments.iter().any(|argument| argument == "--version" || argument == "-V") {
        return match writeln!(io::stdout(), "{VERSION}") {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        };
    }
    match pass_on(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Without a standard error it cannot be said.
            let _ = writeln!(io::stderr(), "{NAME} (causeway): {error}");
            ExitCode::FAILURE
        }
    }
}

/// Writes the PTX as the result, if the software GPU runs all its kernels.
fn pass_on(arguments: &[OsString]) -> Result<(), PtxasError> {
    let (input, output) = files(arguments)?;
    let failed = |path: &Path, action| {
        let path = path.to_owned();
        move |cause| PtxasError::File { path, action, cause }
    };
    let mut ptx = fs::read(&input).map_err(failed(&input, "read"))?;
    // The driver takes text up to a zero.
    ptx.push(0);
    let check = check::check_image(Form::Single, &ptx, &Options::from_environment()?);
    let of_image = check.refusal.map(|refusal| refusal.reason);
    let of_kernel =
        check.refused_kernels.first().map(|kernel| format!("kernel `{}`: {}", kernel.name, kernel.reason));
    if let Some(reason) = of_image.or(of_kernel) {
        return Err(PtxasError::Refused { path: input, reason });
    }
    fs::write(&output, &ptx).map_err(failed(&output, "written"))
}

/// The input and the output that a command line names. Options of `ptxas` do not matter: they are about machine code.
fn files(arguments: &[OsString]) -> Result<(PathBuf, PathBuf), PtxasError> {
    // XLA's files have no extension, but stand before all options.
    let first = arguments.get(1).filter(|first| !first.to_string_lossy().starts_with('-'));
    let (mut input, mut output) = (first.map(PathBuf::from), None);
    let mut rest = arguments.iter().skip(1);
    while let Some(argument) = rest.next() {
        let text = argument.to_string_lossy();
        if argument == "-o" || argument == "--output-file" {
            output = rest.next().map(PathBuf::from);
        } else if let Some(path) = text.strip_prefix("--output-file=").or(text.strip_prefix("-o=")) {
            output = Some(PathBuf::from(path));
        } else if Path::new(argument).extension() == Some(OsStr::new("ptx")) {
            input = Some(PathBuf::from(argument));
        }
    }
    Ok((input.ok_or(PtxasError::NoInput)?, output.ok_or(PtxasError::NoOutput)?))
}

/// Has a program that uses software GPUs alone find the stand-in, where the user names no other program; one that
/// uses others does not inherit it.
pub fn hand_over(command: &mut Command, is_software: bool) {
    for name in VARIABLES {
        match std::env::var_os(name).filter(|path| !path.is_empty()) {
            // A program that makes no machine code needs none.
            None if is_software => drop(link().map(|link| command.env(name, link))),
            Some(path) if !is_software && link_path().is_ok_and(|link| link == Path::new(&path)) => {
                command.env_remove(name);
            }
            _ => {}
        }
    }
}

/// Where the link is, in the user's own folder.
fn link_path() -> io::Result<PathBuf> {
    Ok(private_folder()?.join(NAME))
}

/// The link of that name to this program.
fn link() -> io::Result<PathBuf> {
    make_link(link_path()?)
}

/// A folder like that of a CUDA toolkit, with nothing but the link in `bin`.
pub fn toolkit() -> io::Result<PathBuf> {
    let folder = toolkit_path()?;
    fs::create_dir_all(folder.join("bin"))?;
    make_link(folder.join("bin").join(NAME))?;
    Ok(folder)
}

/// Where that folder is.
pub fn toolkit_path() -> io::Result<PathBuf> {
    Ok(private_folder()?.join("cuda"))
}

/// Makes a link to this program, or leaves the one that is there.
fn make_link(link: PathBuf) -> io::Result<PathBuf> {
    // One that has been replaced meanwhile is nowhere.
    let executable = std::env::current_exe()?.canonicalize()?;
    if fs::read_link(&link).is_ok_and(|there| there == executable) {
        return Ok(link);
    }
    // Another `causeway` may be making it, or programs of another one use it: never is there none.
    let made = link.with_extension(std::process::id().to_string());
    // A process with this number that was killed may have left one.
    let _ = fs::remove_file(&made);
    std::os::unix::fs::symlink(&executable, &made)?;
    fs::rename(&made, &link)?;
    Ok(link)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(OsString::from).collect()
    }

    #[test]
    fn the_command_lines_of_triton_name_their_files() {
        for line in [
            "/x/ptxas -lineinfo -v --gpu-name=sm_80 /tmp/a.ptx -o /tmp/a.o",
            "ptxas -v --opt-level 0 --regAllocOptLevel=2 --gpu-name sm_120a /tmp/a.ptx --output-file /tmp/a.o",
            "ptxas --output-file=/tmp/a.o /tmp/a.ptx --fmad=false",
            "ptxas /tmp/a.ptx -o /tmp/a.o -arch=sm_120a --warn-on-spills -v",
        ] {
            assert!(is_meant(&arguments(line)));
            let found = files(&arguments(line)).unwrap();
            assert_eq!(found, ("/tmp/a.ptx".into(), "/tmp/a.o".into()), "{line}");
        }
        let of_xla =
            files(&arguments("ptxas /tmp/tempfile-vm-1 -o /tmp/tempfile-vm-2 -arch=sm_120a -v")).unwrap();
        assert_eq!(of_xla, ("/tmp/tempfile-vm-1".into(), "/tmp/tempfile-vm-2".into()));
        assert!(matches!(files(&arguments("ptxas -v a.ptx")), Err(PtxasError::NoOutput)));
        assert!(matches!(files(&arguments("ptxas -o a.ptx")), Err(PtxasError::NoInput)));
        assert!(!is_meant(&arguments("causeway run ptxas")) && !is_meant(&[]));
    }

    #[test]
    fn ptx_is_passed_on_if_the_software_gpu_runs_it() {
        let folder = tempfile::tempdir().unwrap();
        let (input, output) = (folder.path().join("k.ptx"), folder.path().join("k.o"));
        let line =
            arguments(&format!("ptxas -v --gpu-name=sm_80 {} -o {}", input.display(), output.display()));
        let head = ".version 8.7\n.target sm_80\n.address_size 64\n";
        let runs = format!("{head}.visible .entry k() {{ ret; }}\n");
        fs::write(&input, &runs).unwrap();
        pass_on(&line).unwrap();
        assert_eq!(fs::read(&output).unwrap(), [runs.as_bytes(), &[0]].concat());

        fs::remove_file(&output).unwrap();
        for (text, reason) in [
            (
                format!("{head}.visible .entry k() {{ .reg .b32 r;\n multimem.red.add.u32 [r], r;\nret; }}"),
                "kernel `k`: line 5",
            ),
            (format!("{head}.visible .entry k() {{ no.such.instruction; }}"), "line 4"),
            (head.replace("sm_80", "sm_999"), "k.ptx: "),
        ] {
            fs::write(&input, text).unwrap();
            let error = pass_on(&line).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
        assert!(!output.exists());
        fs::remove_file(&input).unwrap();
        assert!(pass_on(&line).unwrap_err().to_string().contains("k.ptx cannot be read"));
    }
}
