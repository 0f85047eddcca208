//! File system access (Landlock): the files that a process may open.
//!
//! The libraries of the system, for the driver; what the kernel tells in `/proc` and `/sys`; the nodes of
//! devices; and the folder in which the driver keeps what it has compiled. Landlock keeps the rest from it,
//! whatever the permissions of the files say, and no file can be executed. It also keeps the process from
//! tracing others, and from ABI 4 and 6 on from TCP, from abstract sockets and from signalling others.

use causeway_config::Variable;
use causeway_config::read::PROCESS;
use causeway_config::table::{DRIVER, LD_LIBRARY_PATH, NVML};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, Compatible as _, PathBeneath, PathFd, PathFdError,
    Ruleset, RulesetAttr as _, RulesetCreatedAttr as _, RulesetError, RulesetStatus, Scope,
    path_beneath_rules,
};
use thiserror::Error;

/// The newest rights that this code knows of; of those the kernel's are taken.
const NEWEST: ABI = ABI::V9;

/// Where libraries, their settings and what the kernel tells are.
const SYSTEM: &[&str] = &[
    "/usr",
    "/lib",
    "/lib32",
    "/lib64",
    "/nix/store",
    "/gnu/store",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/nvidia",
    "/etc/libibverbs.d",
    "/etc/rdma",
    "/run/nvidia",
    "/proc",
    "/sys",
];

/// How the names of device nodes in `/dev` begin that a worker opens.
const DEVICES: &[&str] = &["nvidia", "infiniband", "gdrdrv", "null", "zero", "full", "random", "urandom"];

/// Variables that name a folder, or several with colons between them, where libraries lie.
const LIBRARY_FOLDERS: &[&Variable] = &[&LD_LIBRARY_PATH];
/// Variables that name a library.
const LIBRARIES: &[&Variable] = &[&DRIVER, &NVML];

/// Where a process has its threads, and their names.
const OWN_THREADS: &str = "/proc/self/task";

/// Why a process reaches more files than it should.
#[derive(Debug, Error)]
pub enum FilesError {
    /// The kernel refused.
    #[error("the kernel rejected the rules for a worker's files: {0}")]
    Refused(#[from] RulesetError),
    /// `/proc` is not there, or not that of this process.
    #[error("cannot find the threads of a worker in {OWN_THREADS}: {0}")]
    OwnThreads(PathFdError),
    /// The kernel had Landlock when the server started.
    #[error("the kernel does not enforce the rules for a worker's files")]
    NotEnforced,
}

/// What a process may read.
pub fn readable() -> Vec<PathBuf> {
    let settings = std::fs::read_dir("/etc/ld.so.conf.d").into_iter().flatten().flatten();
    let settings = settings.map(|file| file.path()).chain([PathBuf::from("/etc/ld.so.conf")]);
    let settings: Vec<String> = settings.filter_map(|file| std::fs::read_to_string(file).ok()).collect();
    let mut paths = named_by(|variable| PROCESS.text(variable), &settings);
    paths.extend(std::env::current_exe());
    paths.extend(SYSTEM.iter().map(PathBuf::from));
    paths
}

/// The folders and files of libraries that variables and the loader's settings name.
fn named_by(variable: impl Fn(&Variable) -> Option<String>, settings: &[String]) -> Vec<PathBuf> {
    let folders = LIBRARY_FOLDERS.iter().filter_map(|name| variable(name));
    let folders: Vec<String> =
        folders.flat_map(|list| list.split(':').map(str::to_owned).collect::<Vec<_>>()).collect();
    let libraries = LIBRARIES.iter().filter_map(|name| variable(name)).map(PathBuf::from);
    // What a library needs lies beside it, as a rule.
    let library_folders = libraries.filter_map(|library| library.parent().map(Path::to_owned));
    let configured = settings.iter().flat_map(|text| text.lines().map(str::trim));
    let configured = configured.filter(|line| line.starts_with('/'));
    let named =
        folders.iter().map(String::as_str).chain(configured).map(PathBuf::from).chain(library_folders);
    // A folder that is named as `/` or not at all would be everything.
    named.filter(|path| path.is_absolute() && path.parent().is_some()).collect()
}

/// The first of `readable` beneath which a file lies, whatever links lead there.
pub fn holds(readable: &[PathBuf], file: &Path) -> Option<PathBuf> {
    let file = file.canonicalize().unwrap_or_else(|_| file.to_owned());
    let is_above = |folder: &&PathBuf| file.starts_with(folder.canonicalize().as_ref().unwrap_or(folder));
    readable.iter().find(is_above).cloned()
}

/// The nodes of devices in a folder such as `/dev`.
fn devices(folder: &Path) -> Vec<PathBuf> {
    let names = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.file_name());
    let is_needed = |name: &std::ffi::OsString| {
        name.to_str().is_some_and(|name| DEVICES.iter().any(|device| name.starts_with(device)))
    };
    names.filter(is_needed).map(|name| folder.join(name)).collect()
}

/// Keeps this process from all files but those it needs, and those in `writable`, which are folders of its
/// own.
pub fn restrict(writable: &[PathBuf]) -> Result<(), FilesError> {
    let read: BitFlags<AccessFs> = AccessFs::ReadFile | AccessFs::ReadDir;
    let device = read | AccessFs::WriteFile | AccessFs::IoctlDev;
    let made = AccessFs::MakeReg | AccessFs::MakeDir | AccessFs::MakeSym;
    let changed = AccessFs::WriteFile
        | AccessFs::Truncate
        | AccessFs::RemoveFile
        | AccessFs::RemoveDir
        | AccessFs::Refer;
    // NVIDIA's driver gives its threads names by files, which it empties first; without that it does not
    // start (580.159).
    let named = AccessFs::WriteFile | AccessFs::Truncate;
    // A folder of NVIDIA's MPS has a socket.
    let own = read | made | changed | AccessFs::ResolveUnix;
    let handled = AccessFs::from_all(NEWEST);
    let network = AccessNet::from_all(NEWEST);
    let scope = Scope::Signal | Scope::AbstractUnixSocket;
    let rules = Ruleset::default().handle_access(handled)?.handle_access(network)?.scope(scope)?;
    let created = rules
        .create()?
        .set_compatibility(landlock::CompatLevel::BestEffort)
        .add_rules(path_beneath_rules(readable(), read))?
        .add_rules(path_beneath_rules(devices(Path::new("/dev")), device))?
        .add_rules(path_beneath_rules(writable, own & handled))?;
    let created = created.add_rule(PathBeneath::new(own_threads()?, named & handled))?;
    let outcome = created.log_same_exec(false)?.restrict_self()?;
    if outcome.ruleset == RulesetStatus::NotEnforced { Err(FilesError::NotEnforced) } else { Ok(()) }
}

/// The folder of this process's threads, open for as long as the process lives: a rule holds for what the
/// kernel keeps of the folder, and of a folder in `/proc` that nobody has open it keeps nothing.
fn own_threads() -> Result<&'static PathFd, FilesError> {
    static THREADS: OnceLock<PathFd> = OnceLock::new();
    match THREADS.get() {
        Some(threads) => Ok(threads),
        None => {
            let opened = PathFd::new(OWN_THREADS).map_err(FilesError::OwnThreads)?;
            Ok(THREADS.get_or_init(|| opened))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_found_where_variables_and_the_loader_say() {
        let variable = |variable: &Variable| match variable.name {
            "LD_LIBRARY_PATH" => Some("/opt/a:relative::/:/opt/b".to_owned()),
            "CAUSEWAY_DRIVER" => Some("/drivers/libcuda.so.1".to_owned()),
            _ => None,
        };
        let settings = ["include /etc/x/*.conf\n/opt/c\n # /opt/d\n".to_owned()];
        let found = named_by(variable, &settings);
        assert_eq!(found, ["/opt/a", "/opt/b", "/opt/c", "/drivers"].map(PathBuf::from));
    }

    #[test]
    fn a_file_is_found_beneath_a_folder_also_by_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let (real, link) = (folder.path().join("real"), folder.path().join("link"));
        std::fs::create_dir(&real).unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        std::fs::write(real.join("key"), "").unwrap();
        let readable = [PathBuf::from("/usr"), real.clone()];
        assert_eq!(holds(&readable, &link.join("key")), Some(real.clone()));
        assert_eq!(holds(&readable[..1], &link.join("key")), None);
        // Beneath is more than beginning with the same letters.
        assert_eq!(holds(&[real.join("ke")], &real.join("key")), None);
    }

    #[test]
    fn device_nodes_are_the_gpus_the_cards_and_the_plain_ones() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["nvidia0", "nvidiactl", "infiniband", "null", "sda", "mem", "tty"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        let mut names: Vec<_> =
            devices(folder.path()).iter().map(|path| path.file_name().unwrap().to_owned()).collect();
        names.sort();
        assert_eq!(names, ["infiniband", "null", "nvidia0", "nvidiactl"]);
    }
}
