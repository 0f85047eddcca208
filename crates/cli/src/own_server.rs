//! The server of this machine that commands about keys and clients mean: its key file, and how clients reach it.

use std::path::PathBuf;

use causeway_access::keys::file::{self, KeyFileError};
use causeway_access::{DEFAULT_PORT, Target, TargetError, service_key_file};

/// The key file that is named, or else that of this machine's service, where that is meant, or of this user's server.
pub fn key_file(named: Option<PathBuf>) -> Result<PathBuf, KeyFileError> {
    named.or_else(service_key_file).map_or_else(file::default_path, Ok)
}

/// The server as clients reach it: at the address that is given, or by this machine's name and the usual port.
pub fn target(address: Option<&str>) -> Result<Target, TargetError> {
    let here = || format!("{}:{DEFAULT_PORT}", rustix::system::uname().nodename().to_string_lossy());
    address.map_or_else(here, str::to_owned).parse()
}
