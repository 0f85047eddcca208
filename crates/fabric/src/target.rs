//! Where a server is and with which key it is reached, as the user writes it.

use core::fmt;
use core::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use causeway_wire::handshake::LaneToken;
use ring::rand::{SecureRandom as _, SystemRandom};
use thiserror::Error;

/// The port that `causeway serve` listens on unless told otherwise.
pub const DEFAULT_PORT: u16 = 7690;

const SCHEME: &str = "causeway://";

/// The secret that a server and its clients share: 32 random bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct Key([u8; 32]);

/// A text is not a key.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "the key has {found} characters that make no key: it must be the 43 characters of base64url (or 64 \
     hexadecimal \
     digits) that `causeway serve` printed; copy the whole connect string"
)]
pub struct KeyError {
    found: usize,
}

impl Key {
    /// Makes a new key from the operating system's random numbers.
    ///
    /// # Panics
    /// When the operating system has no random numbers to give, which Linux does not do after boot.
    pub fn generate() -> Self {
        Self(random_bytes())
    }

    /// The key of connections that another server's worker opens with a ticket.
    pub fn of_ticket(ticket: &LaneToken) -> Self {
        Self(ticket.0)
    }

    /// The 32 secret bytes.
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The key as it appears in a connect string: 43 characters of base64url.
    pub fn to_text(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.0)
    }
}

/// Random bytes from the operating system, fit for secrets.
///
/// # Panics
/// When the operating system has none to give, which Linux does not do after boot.
pub fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).expect("the operating system gives random bytes");
    bytes
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

impl FromStr for Key {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let error = KeyError { found: text.chars().count() };
        let bytes = if text.len() == 64 {
            let digit = |byte: u8| char::from(byte).to_digit(16);
            text.as_bytes()
                .chunks(2)
                .map(|pair| Some((digit(pair[0])? << 4 | digit(pair[1])?) as u8))
                .collect::<Option<Vec<u8>>>()
                .ok_or(error.clone())?
        } else {
            URL_SAFE_NO_PAD.decode(text).map_err(|_| error.clone())?
        };
        Ok(Self(bytes.try_into().map_err(|_| error)?))
    }
}

/// A server to connect to: `host:port`, `causeway://host:port` or `causeway://KEY@host:port`.
///
/// The port may be left out ([`DEFAULT_PORT`]); an IPv6 address stands in brackets. [`Display`](fmt::Display)
/// leaves the key out, so a target can be logged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Host name or address, without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// The server's key; without one the connection is not encrypted.
    pub key: Option<Key>,
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
    #[error("`{0}://` is not a kind of address that Causeway knows: write causeway://HOST:PORT or HOST:PORT")]
    UnknownScheme(String),
    /// The part before the `@` is not a key.
    #[error(transparent)]
    Key(#[from] KeyError),
}

impl Target {
    /// The servers of a list with commas between them.
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
        let rest = match text.split_once("://") {
            Some(("causeway", rest)) => rest,
            Some((scheme, _)) => return Err(TargetError::UnknownScheme(scheme.to_owned())),
            None => text,
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (key, address) = match rest.rsplit_once('@') {
            Some((key, address)) => (Some(key.parse()?), address),
            None => (None, rest),
        };
        if address.is_empty() {
            return Err(if key.is_some() {
                TargetError::NoHost(text_without_key(address))
            } else {
                TargetError::Empty
            });
        }
        let (host, port) = split_address(address)?;
        Ok(Self { host: host.to_owned(), port, key })
    }
}

fn text_without_key(address: &str) -> String {
    format!("{SCHEME}{address}")
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
    } else if address.matches(':').count() > 1 {
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
            _ => return Err(TargetError::BadPort { found: port.to_owned(), address: address.to_owned() }),
        },
    };
    Ok((host, port))
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl Target {
    /// The whole address, with the key in it: what a client is started with. Keep it out of logs.
    pub fn connect_string(&self) -> String {
        match &self.key {
            Some(key) => format!("{SCHEME}{}@{self}", key.to_text()),
            None => format!("{SCHEME}{self}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(text: &str) -> Result<Target, TargetError> {
        text.parse()
    }

    #[test]
    fn every_way_to_write_a_target_is_understood() {
        let plain = Target { host: "gpuhost".into(), port: 9000, key: None };
        assert_eq!(target("gpuhost:9000"), Ok(plain.clone()));
        assert_eq!(target(" causeway://gpuhost:9000/ "), Ok(plain));
        assert_eq!(target("gpuhost").unwrap().port, DEFAULT_PORT);
        assert_eq!(target("[::1]:9000").unwrap().to_string(), "[::1]:9000");
        assert_eq!(target("[fe80::1]").unwrap().host, "fe80::1");
    }

    #[test]
    fn a_connect_string_survives_a_round_trip_and_display_hides_the_key() {
        let target = Target { host: "::1".into(), port: 1, key: Some(Key::generate()) };
        assert_eq!(target.connect_string().parse(), Ok(target.clone()));
        assert_eq!(target.to_string(), "[::1]:1");
        let hexadecimal: String =
            target.key.as_ref().unwrap().bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hexadecimal.parse(), Ok(target.key.unwrap()));
    }

    #[test]
    fn errors_say_what_to_do() {
        let message = |text: &str| target(text).unwrap_err().to_string();
        assert!(message("").contains("HOST:PORT"));
        assert!(message("gpuhost:port").contains("`port` in `gpuhost:port` is no port"));
        assert!(message("gpuhost:0").contains("1 to 65535"));
        assert!(message("::1").contains("[::1]:7690"));
        assert!(message(":80").contains("names no host"));
        assert!(message("http://gpuhost").contains("causeway://HOST:PORT"));
        assert!(message("causeway://short@gpuhost").contains("43 characters"));
        assert!(message("gpu host:1").contains("no host name"));
    }
}
