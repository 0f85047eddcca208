//! Parser of server addresses that users write.

use core::str::FromStr;

use causeway_wire::handshake::Protection;
use thiserror::Error;

use super::address::{CLEAR, DEFAULT_PORT, INSECURE, INVITATION_SCHEME, SCHEME, Target, UNIX};
use super::key::KeyError;

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
    /// It is an invitation.
    #[error(
        "this is an invitation, by which a client enrols a key of its own: `causeway login NAME` reads it, and NAME is the server          from then on"
    )]
    Invitation,
    /// What stands behind the `?` is not known.
    #[error(
        "`?{0}` says nothing that Causeway knows: write ?{CLEAR} for a server that was started with --clear, \
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
        let (host, port) = split_address(address)?;
        Ok(Self::tcp(host, port, protection, key))
    }
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
        assert!(message("::1").contains("[::1]:7690"));
        assert!(message(":80").contains("names no host"));
        assert!(message("http://gpuhost").contains("causeway://HOST:PORT"));
        assert!(message("causeway://short@gpuhost").contains("43 characters"));
        assert!(message("gpu host:1").contains("no host name"));
        assert!(message("gpuhost?fast").contains("?clear"));
        assert!(message("unix:relative").contains("unix:/PATH") && target("unix:@").is_err());
        let key = Key::generate();
        let both = format!("causeway://{}@gpuhost?insecure-no-key", *key.to_text());
        assert_eq!(target(&both), Err(TargetError::NeedlessKey));
    }
}
