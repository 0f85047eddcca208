//! Login errors.

use std::io;

use causeway_access::keys::file::KeyFileError;
use causeway_access::target::InvitationError;
use causeway_config::file::ConfigFileError;
use causeway_config::table::{CONFIG, KEY_FILE};
use causeway_link::ConnectError;
use thiserror::Error;

/// Why this machine is not a client now.
#[derive(Debug, Error)]
pub enum LoginError {
    /// The invitation makes no sense.
    #[error(transparent)]
    Invitation(#[from] InvitationError),
    /// A file with keys cannot be used.
    #[error(transparent)]
    KeyFile(#[from] KeyFileError),
    /// The configuration file cannot be used, or has no place for the name.
    #[error(transparent)]
    ConfigFile(#[from] ConfigFileError),
    /// It cannot be read or written.
    #[error("the configuration file {path} cannot be {action}: {cause}")]
    ConfigIo {
        /// The file.
        path: String,
        /// What was tried.
        action: &'static str,
        /// What the system said.
        cause: io::Error,
    },
    /// There is a key of that server.
    #[error(
        "there is a key of {0} already: `causeway run --on {0}` uses it. To replace it, remove it first: \
         `causeway key remove {0}`"
    )]
    HasKey(String),
    /// Keys are read from elsewhere.
    #[error(
        "{variable} is set, so programs would not read what this command saves: unset it in the environment \
         and in configuration files", variable = KEY_FILE.name
    )]
    NamedKeyFile,
    /// Configuration files are not read.
    #[error("{variable} is empty, so no configuration file is read: unset it, or name a file", variable = CONFIG.name)]
    NoConfigFile,
    /// The server refuses.
    #[error("{0}. Nothing has changed here")]
    Refused(ConnectError),
    /// The server refuses, or is not there; an earlier command may have enrolled the key.
    #[error(
        "{cause}. Nothing has changed here. An earlier `causeway login` with this invitation has created a \
         key that the server may have enrolled: it is kept in {file}, and running the same command again \
         finds out. Remove the file if you no longer need the invitation"
    )]
    RefusedLater {
        /// What the server said, or how far the command came.
        cause: ConnectError,
        /// The key's file.
        file: String,
    },
    /// The name is none.
    #[error(
        "the NAME contains a secret: give a name for the server, as in `causeway login gpu-box`, which then \
         asks for the invitation. Other users of this machine may have seen the secret"
    )]
    SecretAsName,
    /// It is not known whether the server has enrolled the key.
    #[error("{0}. Run the same command again with the same invitation: it continues where this one stopped")]
    Interrupted(ConnectError),
    /// It is not typed.
    #[error(
        "no invitation was given: paste the one that `causeway client invite NAME` has printed on the server"
    )]
    NoInvitation,
    /// Nothing can be read or printed.
    #[error("standard input or output failed: {0}")]
    Io(#[from] io::Error),
}
