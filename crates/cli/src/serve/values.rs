//! Values of options that name addresses, files and folders: what a server could not use of them, before it
//! starts.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use causeway_access::keys::file;
use causeway_config::file::{ConfigFileError, Entry, Section};
use causeway_server::broker::GpuChoice;
use rustix::fs::{Access, access};

use super::addresses::{listen_addresses, metrics_address};
use super::error::ServeError;

/// Folders that the service of the packages gets when it starts.
const OF_SERVICE: [&str; 2] = ["/run/causeway", "/var/cache/causeway"];

/// What is wrong with options from configuration files, each with its value as on a command line.
pub fn check_entries(entries: &[(&Entry, String)]) -> Vec<ConfigFileError> {
    let mut errors: Vec<_> = entries
        .iter()
        .filter_map(|(entry, value)| {
            let own = is_own(&entry.location.file);
            Some(error_at(entry, &check_value(&entry.key, value, own).err()?))
        })
        .collect();
    let find = |key: &str| entries.iter().find(|(entry, _)| entry.key == key);
    if let (Some((_, gpu)), Some((entry, _))) = (find("gpu"), find("allow-software"))
        && let Ok(gpu @ (GpuChoice::Cpu | GpuChoice::Driver)) = gpu.parse()
    {
        errors.push(error_at(entry, &ServeError::NoFallback(gpu)));
    }
    errors
}

fn error_at(entry: &Entry, cause: &ServeError) -> ConfigFileError {
    let text = format!("{} cannot be used: {cause}", entry.key);
    ConfigFileError { location: entry.location.clone(), section: Some(Section::Serve), text }
}

/// Whether a server of this user would read a configuration file: what others may do, this one cannot know.
fn is_own(file: &Path) -> bool {
    let user = rustix::process::geteuid().as_raw();
    user == 0 || std::fs::metadata(file).is_ok_and(|status| status.uid() == user)
}

/// Checks the value of an option by itself. Whether files can be used is asked where a server of this user
/// would.
fn check_value(option: &str, value: &str, own: bool) -> Result<(), ServeError> {
    let path = Path::new(value);
    match option {
        "listen" => {
            let addresses = listen_addresses(value)?;
            if let Some(address) = addresses.network.filter(|address| !is_here(*address)) {
                return Err(ServeError::Address { address: address.to_string(), cause: NOT_HERE.to_owned() });
            }
            match addresses.socket {
                Some(name) if !name.starts_with('@') => must_have_folder(Path::new(&name), "the Unix socket"),
                _ => Ok(()),
            }
        }
        "metrics" => match metrics_address(value)? {
            address if is_here(address) => Ok(()),
            _ => Err(ServeError::MetricsAddress { address: value.to_owned(), cause: NOT_HERE.to_owned() }),
        },
        "key-file" => {
            must_have_folder(path, "the key file")?;
            if own { check_key_file(path) } else { Ok(()) }
        }
        "audit-log" => {
            must_have_folder(path, "the audit log")?;
            let written = if path.exists() { path } else { parent(path) };
            must_be_writable(written, own, "the audit log")
        }
        "socket-dir" if !is_of_service(path) => {
            must_be_folder(path, "the sockets")?;
            must_be_writable(path, own, "the sockets")
        }
        // It is made when it is missing.
        "cache-dir" if !is_of_service(path) => {
            let there = path.ancestors().find(|folder| folder.exists()).unwrap_or(Path::new("/"));
            must_be_folder(there, "the image cache")?;
            must_be_writable(there, own, "the image cache")
        }
        _ => Ok(()),
    }
}

const NOT_HERE: &str = "this machine has no such address; `ip address` lists its addresses";

/// Whether this machine has an address. Its port may be in use: by the server that is to be reloaded.
fn is_here(address: SocketAddr) -> bool {
    TcpListener::bind((address.ip(), 0))
        .map_or_else(|cause| cause.kind() != ErrorKind::AddrNotAvailable, |_| true)
}

fn is_of_service(path: &Path) -> bool {
    OF_SERVICE.iter().any(|folder| path.starts_with(folder))
}

/// The folder of a file.
fn parent(file: &Path) -> &Path {
    file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Refuses a file in a folder that is not there: it is more likely to be misspelt than wanted.
pub fn must_have_folder(file: &Path, what: &'static str) -> Result<(), ServeError> {
    let folder = parent(file);
    if is_of_service(folder) { Ok(()) } else { must_be_folder(folder, what) }
}

fn must_be_folder(folder: &Path, what: &'static str) -> Result<(), ServeError> {
    match std::fs::metadata(folder) {
        Ok(status) if !status.is_dir() => Err(ServeError::NotAFolder { path: folder.to_owned(), what }),
        Err(_) if !folder.exists() => Err(ServeError::NoFolder { folder: folder.to_owned(), what }),
        _ => Ok(()),
    }
}

fn must_be_writable(path: &Path, own: bool, what: &'static str) -> Result<(), ServeError> {
    let mode = if path.is_dir() { Access::WRITE_OK | Access::EXEC_OK } else { Access::WRITE_OK };
    match access(path, mode) {
        Err(cause) if own => {
            Err(ServeError::NotWritable { path: path.to_owned(), what, cause: cause.into() })
        }
        _ => Ok(()),
    }
}

/// A key file is made when it is missing.
fn check_key_file(path: &Path) -> Result<(), ServeError> {
    if !path.exists() {
        return must_be_writable(parent(path), true, "the key file");
    }
    file::load(path).map(drop).map_err(ServeError::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_and_files_are_looked_at_before_a_server_starts() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name).display().to_string();
        std::fs::write(at("file"), "").unwrap();
        for (option, value) in [
            ("listen", format!("unix:{}", at("a.sock"))),
            ("listen", "unix:@name".to_owned()),
            ("listen", "127.0.0.7:7690".to_owned()),
            ("listen", "0.0.0.0".to_owned()),
            ("listen", "unix:/run/causeway/server.sock".to_owned()),
            ("key-file", at("key")),
            ("key-file", "key".to_owned()),
            ("audit-log", at("new")),
            ("audit-log", at("file")),
            ("cache-dir", at("a/b/c")),
            ("cache-dir", "/var/cache/causeway".to_owned()),
            ("socket-dir", at("")),
            ("gpu", "anything".to_owned()),
        ] {
            assert!(check_value(option, &value, true).is_ok(), "{option} {value}");
        }
        for (option, value, expected) in [
            ("listen", format!("unix:{}", at("ky/a.sock")), "/ky for the Unix socket"),
            ("key-file", at("ky/key"), "/ky for the key file"),
            ("key-file", at("file"), "key"),
            ("audit-log", at("file/log"), "/file, which is for the audit log, is not a folder"),
            ("audit-log", at("none/log"), "/none for the audit log"),
            ("cache-dir", at("file/a"), "/file, which is for the image cache, is not a folder"),
            ("socket-dir", at("none"), "/none for the sockets"),
            ("metrics", ":http".to_owned(), "no address for metrics"),
            // Of a network that is for documents alone.
            ("metrics", "203.0.113.7:9469".to_owned(), "this machine has no such address"),
            ("listen", "203.0.113.7".to_owned(), "this machine has no such address"),
        ] {
            let error = check_value(option, &value, true).unwrap_err().to_string();
            assert!(error.contains(expected), "{option} {value}: {error}");
        }
        // What others may do is not asked; that something is not there counts for all.
        assert!(check_value("key-file", &at("file"), false).is_ok());
        assert!(check_value("key-file", &at("ky/key"), false).is_err());
    }
}
