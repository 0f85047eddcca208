//! Server address (target): host, port or socket, protection, and the parser of addresses that users write.

use core::fmt;
use core::str::FromStr;
use std::net::SocketAddr;

use causeway_wire::handshake::Protection;
use thiserror::Error;
use zeroize::Zeroizing;

use crate::target::key::{Key, KeyError};
use crate::target::vsock::{VSOCK, VsockAddress, VsockAddressError};

/// The port that `causeway serve` listens on unless told otherwise.
pub const DEFAULT_PORT: u16 = 7690;

pub(super) const SCHEME: &str = "causeway://";

/// What an invitation begins with, so that it is not taken for a connect string.
pub(super) const INVITATION_SCHEME: &str = "causeway-invitation://";

/// What the address of a Unix socket begins with.
pub(super) const UNIX: &str = "unix:";

/// What stands behind the `?` in the address of a server that was started with `--clear`.
const CLEAR: &str = "clear";

/// What stands there for a server that was started with `--insecure-no-key`.
const INSECURE: &str = "insecure-no-key";

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
    /// Between a virtual machine and its host, without a network.
    Vsock(VsockAddress),
}

impl Endpoint {
    /// What the machine is called that the server runs on.
    pub fn host(&self) -> &str {
        match self {
            Self::Tcp { host, .. } => host,
            Self::Unix(_) => "localhost",
            Self::Vsock(VsockAddress { cid: VsockAddress::HOST, .. }) => "host",
            Self::Vsock(VsockAddress { cid: VsockAddress::LOCAL, .. }) => "localhost",
            Self::Vsock(_) => "guest",
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(name) => write!(f, "{UNIX}{name}"),
            Self::Vsock(address) => address.fmt(f),
        }
    }
}

/// A server to connect to: `HOST:PORT`, `causeway://HOST:PORT`, `causeway://KEY@HOST:PORT` or `unix:PATH`.
/// `vsock:CID:PORT` may stand for `HOST:PORT`.
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

    /// A server that is reached over vsock.
    pub fn vsock(address: VsockAddress, protection: Protection, key: Option<Key>) -> Self {
        Self { endpoint: Endpoint::Vsock(address), protection, key, name: None }
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

    /// How a program is passed the server, if it reads the same configuration files: the name, or else
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

/// A text is not a [`Target`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TargetError {
    /// Nothing is there.
    #[error(
        "the server's address is empty: give HOST:PORT or the connect string that `causeway serve` printed"
    )]
    Empty,
    /// There is no host.
    #[error("`{0}` names no host: give HOST:PORT, for example gpuhost:{DEFAULT_PORT}")]
    NoHost(String),
    /// It is a pool of servers, not one.
    #[error(
        "`{0}` is a pool, whose GPUs are held for one program at a time: start the program by `causeway run --on {0}`, have \
         Python call causeway_gpu.connect(\"{0}\"), or use the variables that `causeway pool acquire` prints"
    )]
    Pool(String),
    /// The port is not a number from 1 to 65535.
    #[error(
        "`{found}` in `{address}` is no port: it must be a number from 1 to 65535, such as {DEFAULT_PORT}"
    )]
    BadPort {
        /// What stands where the port should be.
        found: String,
        /// The address without its key.
        address: String,
    },
    /// An IPv6 address stands without brackets.
    #[error("write the IPv6 address `{0}` in brackets: [{0}]:{DEFAULT_PORT}")]
    BareIpv6(String),
    /// The address contains characters that no host name has.
    #[error("`{0}` is no host name: give HOST:PORT or the connect string that `causeway serve` printed")]
    BadHost(String),
    /// Another scheme than `causeway://`.
    #[error(
        "`{0}://` is not an address scheme that Causeway supports: write causeway://HOST:PORT or \
        HOST:PORT"
    )]
    UnknownScheme(String),
    /// It is an invitation.
    #[error(
        "this is an invitation, by which a client enrols a key of its own: `causeway login NAME` reads it, and NAME is the \
         server from then on"
    )]
    Invitation,
    /// What stands behind the `?` is not known.
    #[error(
        "`?{0}` is no option of an address: write ?{CLEAR} for a server that was started with --clear, \
         ?{INSECURE} for one that was started with --insecure-no-key, or nothing"
    )]
    UnknownOption(String),
    /// A Unix socket's name is missing or not absolute.
    #[error("`{UNIX}{0}` names no Unix socket: write unix:/PATH, or unix:@NAME for an abstract one")]
    BadSocket(String),
    /// A key where there can be none.
    #[error(
        "the address of a server that was started with --insecure-no-key has no key: leave it out, or leave ?{INSECURE} out"
    )]
    NeedlessKey,
    /// The address of a vsock is malformed.
    #[error(transparent)]
    Vsock(#[from] VsockAddressError),
    /// The part before the `@` is not a key.
    #[error(transparent)]
    Key(#[from] KeyError),
}

impl Target {
    /// The servers of a list of addresses with commas between them. Names and keys that are not in it are found
    /// by [`crate::servers()`].
    ///
    /// # Errors
    /// For the first that is no target, an empty one among them.
    pub fn list(text: &str) -> Result<Vec<Self>, TargetError> {
        text.split(',').map(str::parse).collect()
    }
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, TargetError> {
        let text = text.trim();
        if let Some(name) = text.strip_prefix(UNIX) {
            let is_named = name.strip_prefix(['/', '@']).is_some_and(|rest| !rest.is_empty());
            return if is_named && !name.contains('\0') {
                Ok(Self::unix(name))
            } else {
                Err(TargetError::BadSocket(name.to_owned()))
            };
        }
        let rest = match text.split_once("://") {
            Some(("causeway", rest)) => rest,
            _ if text.starts_with(INVITATION_SCHEME) => return Err(TargetError::Invitation),
            Some((scheme, _)) => return Err(TargetError::UnknownScheme(scheme.to_owned())),
            None => text,
        };
        let (rest, protection) = match rest.split_once('?') {
            None => (rest, Protection::Encrypted),
            Some((rest, CLEAR)) => (rest, Protection::Authenticated),
            Some((rest, INSECURE)) => (rest, Protection::Unprotected),
            Some((_, other)) => return Err(TargetError::UnknownOption(other.to_owned())),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (key, address) = match rest.rsplit_once('@') {
            Some((key, address)) => (Some(key.parse()?), address),
            None => (None, rest),
        };
        if key.is_some() && protection == Protection::Unprotected {
            return Err(TargetError::NeedlessKey);
        }
        if address.is_empty() {
            return Err(if key.is_some() {
                TargetError::NoHost(SCHEME.to_owned())
            } else {
                TargetError::Empty
            });
        }
        if address.starts_with(VSOCK) {
            return Ok(Self::vsock(address.parse()?, protection, key));
        }
        let (host, port) = split_address(address)?;
        Ok(Self::tcp(host, port, protection, key))
    }
}

/// Whether a text consists of what IPv6 addresses are written with, so that no host and port can be meant.
fn is_like_ipv6(address: &str) -> bool {
    let (number, _zone) = address.split_once('%').unwrap_or((address, ""));
    number.chars().all(|c| c.is_ascii_hexdigit() || matches!(c, ':' | '.'))
}

fn split_address(address: &str) -> Result<(&str, u16), TargetError> {
    let (host, port) = if let Some(rest) = address.strip_prefix('[') {
        let Some((host, after)) = rest.split_once(']') else {
            return Err(TargetError::BadHost(address.to_owned()));
        };
        let port = match after.strip_prefix(':') {
            Some(port) => Some(port),
            None if after.is_empty() => None,
            None => return Err(TargetError::BadHost(address.to_owned())),
        };
        (host, port)
    } else if address.matches(':').count() > 1 && is_like_ipv6(address) {
        return Err(TargetError::BareIpv6(address.to_owned()));
    } else {
        match address.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (address, None),
        }
    };
    if host.is_empty() {
        return Err(TargetError::NoHost(address.to_owned()));
    }
    if host.contains(|c: char| c.is_whitespace() || matches!(c, '/' | '?' | '#' | '@')) {
        return Err(TargetError::BadHost(host.to_owned()));
    }
    let port = match port {
        None => DEFAULT_PORT,
        Some(port) => match port.parse() {
            Ok(number) if number != 0 => number,
            // A word behind it is the pool's name, a number the port of a host called so.
            _ if host == "pool" => return Err(TargetError::Pool(address.to_owned())),
            _ => return Err(TargetError::BadPort { found: port.to_owned(), address: address.to_owned() }),
        },
    };
    Ok((host, port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::{Endpoint, Key};

    fn target(text: &str) -> Result<Target, TargetError> {
        text.parse()
    }

    #[test]
    fn every_way_to_write_a_target_is_understood() {
        let plain = Target::tcp("gpuhost", 9000, Protection::Encrypted, None);
        assert_eq!(target("gpuhost:9000"), Ok(plain.clone()));
        assert_eq!(target(" causeway://gpuhost:9000/ "), Ok(plain));
        assert_eq!(target("gpuhost"), Ok(Target::tcp("gpuhost", DEFAULT_PORT, Protection::Encrypted, None)));
        assert_eq!(target("[::1]:9000").unwrap().to_string(), "[::1]:9000");
        assert_eq!(
            target("[fe80::1]").unwrap().endpoint,
            Endpoint::Tcp { host: "fe80::1".into(), port: DEFAULT_PORT }
        );
        assert_eq!(target("unix:/run/a.sock"), Ok(Target::unix("/run/a.sock")));
        assert_eq!(target("unix:@a"), Ok(Target::unix("@a")));
        let host = VsockAddress { cid: 2, port: 7690 };
        assert_eq!(target("vsock:2:7690"), Ok(Target::vsock(host, Protection::Encrypted, None)));
        assert_eq!(target("vsock:2:7690?clear").unwrap().protection, Protection::Authenticated);
        assert_eq!(target("gpuhost?clear").unwrap().protection, Protection::Authenticated);
        assert_eq!(target("causeway://a:1?insecure-no-key").unwrap().protection, Protection::Unprotected);
    }

    #[test]
    fn a_connect_string_survives_a_round_trip_and_nothing_else_shows_the_key() {
        let key = Some(Key::generate());
        let servers = [
            Target::tcp("::1", 1, Protection::Encrypted, key.clone()),
            Target::tcp("::1", 1, Protection::Authenticated, key.clone()),
            Target::tcp("::1", 1, Protection::Unprotected, None),
            Target::unix("/run/a b.sock"),
            Target::vsock(VsockAddress { cid: 3, port: 1 }, Protection::Encrypted, key.clone()),
        ];
        for server in servers {
            assert_eq!(server.connect_string().parse(), Ok(server.clone()));
            assert_eq!(server.address().parse(), Ok(Target { key: None, ..server.clone() }));
            let shown = format!("{server} {} {server:?}", server.address());
            assert!(!shown.contains(&**key.as_ref().unwrap().to_text()), "{shown}");
        }
    }

    #[test]
    fn errors_say_what_to_do() {
        let message = |text: &str| target(text).unwrap_err().to_string();
        assert!(message("").contains("HOST:PORT"));
        assert!(message("gpuhost:port").contains("`port` in `gpuhost:port` is no port"));
        assert!(message("gpuhost:0").contains("1 to 65535"));
        assert!(message("::1").contains("[::1]:7690") && message("fe80::1%eth0").contains("in brackets"));
        assert!(message("pool:gpus").contains("causeway run --on pool:gpus"));
        assert!(message("pool:gpus:2").contains("causeway run --on pool:gpus:2"));
        assert!(message("gpu-box:7690:3").contains("`7690:3` in `gpu-box:7690:3` is no port"));
        assert!(message(":80").contains("names no host"));
        assert!(message("http://gpuhost").contains("causeway://HOST:PORT"));
        assert!(message("causeway://short@gpuhost").contains("43 characters"));
        assert!(message("gpu host:1").contains("no host name"));
        assert!(message("gpuhost?fast").contains("?clear"));
        assert!(message("vsock:7690").contains("vsock:CID:PORT") && message("vsock:a:1").contains("no CID"));
        assert!(message("unix:relative").contains("unix:/PATH") && target("unix:@").is_err());
        let key = Key::generate();
        let both = format!("causeway://{}@gpuhost?insecure-no-key", *key.to_text());
        assert_eq!(target(&both), Err(TargetError::NeedlessKey));
    }
}
