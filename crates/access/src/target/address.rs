//! Server address (target): host, port or socket, and protection.

use core::fmt;
use std::net::SocketAddr;

use causeway_wire::handshake::Protection;
use zeroize::Zeroizing;

use super::key::Key;

/// The port that `causeway serve` listens on unless told otherwise.
pub const DEFAULT_PORT: u16 = 7690;

pub(super) const SCHEME: &str = "causeway://";

/// What an invitation begins with, so that it is not taken for a connect string.
pub(super) const INVITATION_SCHEME: &str = "causeway-invitation://";

/// What the address of a Unix socket begins with.
pub(super) const UNIX: &str = "unix:";

/// What stands behind the `?` in the address of a server that was started with `--clear`.
pub(super) const CLEAR: &str = "clear";

/// What stands there for a server that was started with `--insecure-no-key`.
pub(super) const INSECURE: &str = "insecure-no-key";

/// Where connections to a server are made.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// Over TCP.
    Tcp {
        /// Host name or address, without brackets.
        host: String,
        /// The port.
        port: u16,
    },
    /// At a Unix socket of this host: a path, or `@` and an abstract name. The kernel says who is at the
    /// other end.
    Unix(String),
}

impl Endpoint {
    /// What the machine is called that the server runs on.
    pub fn host(&self) -> &str {
        match self {
            Self::Tcp { host, .. } => host,
            Self::Unix(_) => "localhost",
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(name) => write!(f, "{UNIX}{name}"),
        }
    }
}

/// A server to connect to: `HOST:PORT`, `causeway://HOST:PORT`, `causeway://KEY@HOST:PORT` or `unix:PATH`.
///
/// The port may be left out ([`DEFAULT_PORT`]); an IPv6 address stands in brackets. `?clear` behind it asks
/// for a connection on which both ends prove that they hold the key and nothing is encrypted,
/// `?insecure-no-key` for one without either. [`Display`](fmt::Display) leaves key and wishes out, so a
/// target can be logged; a server that has a name in the configuration files is shown with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Where it is.
    pub endpoint: Endpoint,
    /// How connections to it are protected. A Unix socket needs no protection from the network.
    pub protection: Protection,
    /// The server's key, if it is known.
    pub key: Option<Key>,
    /// The name by which it was found in the configuration files.
    pub name: Option<String>,
}

impl Target {
    /// A server that is reached over TCP.
    pub fn tcp(host: impl Into<String>, port: u16, protection: Protection, key: Option<Key>) -> Self {
        Self { endpoint: Endpoint::Tcp { host: host.into(), port }, protection, key, name: None }
    }

    /// A server that is reached at a Unix socket: a path, or `@` and an abstract name.
    pub fn unix(name: impl Into<String>) -> Self {
        let endpoint = Endpoint::Unix(name.into());
        Self { endpoint, protection: Protection::Unprotected, key: None, name: None }
    }

    /// The same server by the address at which it was found.
    #[must_use]
    pub fn at(&self, address: SocketAddr) -> Self {
        let endpoint = Endpoint::Tcp { host: address.ip().to_canonical().to_string(), port: address.port() };
        Self { endpoint, ..self.clone() }
    }

    /// Asks for connections on which nothing is encrypted after the proofs, if they would be.
    pub fn request_clear(&mut self) {
        if self.protection == Protection::Encrypted {
            self.protection = Protection::Authenticated;
        }
    }

    /// Whether the server cannot be reached without a key, and its key is not known.
    pub fn lacks_key(&self) -> bool {
        self.protection.needs_key() && self.key.is_none()
    }

    /// The whole address, with the key in it. Keep it out of logs, arguments and the environment.
    pub fn connect_string(&self) -> Zeroizing<String> {
        let key = self.key.as_ref().filter(|_| self.protection.needs_key());
        self.text(key)
    }

    /// How a program is told which server is meant, if it reads the same configuration files: the name, or else
    /// the address without the key.
    pub fn reference(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.address())
    }

    /// The whole address without the key.
    pub fn address(&self) -> String {
        self.text(None).to_string()
    }

    fn text(&self, key: Option<&Key>) -> Zeroizing<String> {
        if let Endpoint::Unix(_) = self.endpoint {
            return Zeroizing::new(self.endpoint.to_string());
        }
        let configured = match self.protection {
            Protection::Encrypted => String::new(),
            Protection::Authenticated => format!("?{CLEAR}"),
            Protection::Unprotected => format!("?{INSECURE}"),
        };
        Zeroizing::new(match key {
            Some(key) => format!("{SCHEME}{}@{}{configured}", *key.to_text(), self.endpoint),
            None => format!("{SCHEME}{}{configured}", self.endpoint),
        })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{name} ({})", self.endpoint),
            None => self.endpoint.fmt(f),
        }
    }
}
