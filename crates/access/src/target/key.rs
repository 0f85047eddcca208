//! Key: the secret that a server and its clients share, its IDs and proofs, and the name of a client with its
//! own.

use core::fmt;
use core::str::FromStr;
use std::net::{IpAddr, SocketAddr};

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::hmac::{self, HMAC_SHA256};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use causeway_wire::handshake::{KeyId, LaneToken, TicketId};
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};
use thiserror::Error;
use zeroize::{Zeroize as _, Zeroizing};

/// The secret that a server and its clients share, or a server and one client: 32 random bytes, which are wiped
/// when it is dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct Key {
    secret: Zeroizing<[u8; 32]>,
    /// The client whose own it is.
    client: Option<ClientName>,
}

/// A text is not a key.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum KeyError {
    /// It is not as long as a key, or has other characters.
    #[error(
        "the key has {found} characters and is invalid: it must be the 43 characters of base64url (or 64 \
         hexadecimal digits) that `causeway key show` prints on the server; copy the whole connect string"
    )]
    Secret {
        /// How many characters there are.
        found: usize,
    },
    /// What stands before it is no client's name.
    #[error("the text before the key is not a valid client name: {0}")]
    Client(#[from] ClientNameError),
}

impl Key {
    /// Makes a new key from the operating system's random numbers.
    ///
    /// # Panics
    /// When the operating system has no random numbers to give, which Linux does not do after boot.
    pub fn generate() -> Self {
        Self { secret: Zeroizing::new(random_bytes()), client: None }
    }

    /// Makes a new key for one client.
    pub fn generate_for(client: ClientName) -> Self {
        Self { client: Some(client), ..Self::generate() }
    }

    /// The key of a client, of these secret bytes.
    pub fn of_client(client: ClientName, secret: [u8; 32]) -> Self {
        Self { secret: Zeroizing::new(secret), client: Some(client) }
    }

    /// The key of connections that another server's worker opens with a ticket.
    pub fn of_ticket(ticket: &LaneToken) -> Self {
        Self { secret: Zeroizing::new(ticket.0), client: None }
    }

    /// The 32 secret bytes.
    pub fn bytes(&self) -> &[u8; 32] {
        &self.secret
    }

    /// The client whose own key it is; nothing for one that all clients of a server share.
    pub fn client(&self) -> Option<ClientName> {
        self.client
    }

    /// The key as it appears in a connect string: 43 characters of base64url, behind `NAME:` where it is the key
    /// of one client.
    pub fn to_text(&self) -> Zeroizing<String> {
        let secret = Zeroizing::new(URL_SAFE_NO_PAD.encode(*self.secret));
        match self.client {
            Some(client) => Zeroizing::new(format!("{client}:{}", *secret)),
            None => secret,
        }
    }
}

/// What says in the clear which client's key a connection comes with: the beginning of a digest, which tells
/// nothing of the key.
pub fn key_id(key: &Key) -> KeyId {
    KeyId(beginning(b"causeway client key", key.bytes()))
}

/// What says in the clear which invitation a connection comes with, as [`key_id`] does of keys.
pub fn invitation_id(secret: &Key) -> KeyId {
    KeyId(beginning(b"causeway invitation", secret.bytes()))
}

fn beginning(purpose: &[u8], secret: &[u8]) -> [u8; 8] {
    let digest = digest(&SHA256, &[purpose, secret].concat());
    *digest.as_ref().first_chunk().expect("a digest has 32 bytes")
}

/// What says in the clear which ticket a connection comes with: the beginning of a digest, which tells
/// nothing of the ticket.
pub fn ticket_id(ticket: &LaneToken) -> TicketId {
    TicketId(beginning(b"causeway ticket", &ticket.0))
}

/// Shows whoever holds the same key that a server with that key listens at an address: an HMAC of the
/// address.
pub fn address_proof(key: &Key, address: SocketAddr) -> [u8; 32] {
    let proof = hmac::sign(&address_key(key), &address_text(address));
    *proof.as_ref().first_chunk().expect("SHA-256 makes 32 bytes")
}

/// Whether [`address_proof`] has made `proof` for this address, by the same key.
pub fn is_address_proof(key: &Key, address: SocketAddr, proof: &[u8; 32]) -> bool {
    hmac::verify(&address_key(key), &address_text(address), proof).is_ok()
}

fn address_key(key: &Key) -> hmac::Key {
    hmac::Key::new(HMAC_SHA256, key.bytes())
}

fn address_text(address: SocketAddr) -> Vec<u8> {
    let ip = match address.ip().to_canonical() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    [b"causeway address".as_slice(), &ip.octets(), &address.port().to_be_bytes()].concat()
}

/// Shows whoever holds the same key, or none either, that a server with that key listens at a Unix socket: an
/// HMAC of what the asker has thought up for this one connection.
pub fn socket_proof(key: Option<&Key>, nonce: &[u8; 32]) -> [u8; 32] {
    let proof = hmac::sign(&socket_key(key), &socket_text(nonce));
    *proof.as_ref().first_chunk().expect("SHA-256 makes 32 bytes")
}

/// Whether [`socket_proof`] has made `proof` of this nonce, by the same key or without one.
pub fn is_socket_proof(key: Option<&Key>, nonce: &[u8; 32], proof: &[u8; 32]) -> bool {
    hmac::verify(&socket_key(key), &socket_text(nonce), proof).is_ok()
}

fn socket_key(key: Option<&Key>) -> hmac::Key {
    hmac::Key::new(HMAC_SHA256, key.map_or(&[0; 32], |key| key.bytes()))
}

fn socket_text(nonce: &[u8; 32]) -> Vec<u8> {
    [b"causeway socket".as_slice(), nonce].concat()
}

/// Random bytes from the operating system, fit for secrets.
///
/// # Panics
/// When the operating system has none to give, which Linux does not do after boot.
pub fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    let mut filled = 0;
    // Not AWS-LC's generator, which measures the processor's jitter for 30 to 60 ms before its first byte.
    while filled < N {
        match getrandom(&mut bytes[filled..], GetRandomFlags::empty()) {
            Ok(count) => filled += count,
            Err(Errno::INTR) => {}
            Err(error) => panic!("cannot get random bytes from the operating system: {error}"),
        }
    }
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
        let (client, text) = match text.split_once(':') {
            Some((name, secret)) => (Some(name.parse::<ClientName>()?), secret),
            None => (None, text),
        };
        let error = KeyError::Secret { found: text.chars().count() };
        let mut bytes = Zeroizing::new([0; 32]);
        if text.len() == 64 {
            let digit = |byte: u8| char::from(byte).to_digit(16);
            for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
                let (high, low) = digit(pair[0]).zip(digit(pair[1])).ok_or_else(|| error.clone())?;
                *byte = (high << 4 | low) as u8;
            }
        } else {
            let mut decoded = URL_SAFE_NO_PAD.decode(text).map_err(|_| error.clone())?;
            let fits = decoded.len() == bytes.len();
            if fits {
                bytes.copy_from_slice(&decoded);
            }
            decoded.zeroize();
            if !fits {
                return Err(error);
            }
        }
        Ok(Self { secret: bytes, client })
    }
}

/// The longest name, in bytes.
const MAX_NAME_LEN: usize = 32;

/// The name that a server has given a client with a key of its own: 1 to 32 letters, digits, `-` and `_`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientName {
    /// Zeros behind its end.
    bytes: [u8; MAX_NAME_LEN],
}

/// A text is no [`ClientName`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("a name has 1 to {MAX_NAME_LEN} letters (a to z, A to Z), digits, `-` and `_`")]
pub struct ClientNameError;

impl ClientName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        let length = self.bytes.iter().position(|byte| *byte == 0).unwrap_or(MAX_NAME_LEN);
        str::from_utf8(&self.bytes[..length]).expect("its letters are ASCII")
    }
}

impl FromStr for ClientName {
    type Err = ClientNameError;

    fn from_str(text: &str) -> Result<Self, ClientNameError> {
        let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        if text.is_empty() || text.len() > MAX_NAME_LEN || !text.bytes().all(is_letter) {
            return Err(ClientNameError);
        }
        let mut bytes = [0; MAX_NAME_LEN];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        Ok(Self { bytes })
    }
}

impl fmt::Display for ClientName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Debug for ClientName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_proved_by_the_same_key_only() {
        let key = Key::generate();
        let [own, mapped, other]: [SocketAddr; 3] =
            ["10.0.0.1:7", "[::ffff:10.0.0.1]:7", "10.0.0.1:8"].map(|address| address.parse().unwrap());
        let proof = address_proof(&key, own);
        assert!(is_address_proof(&key, own, &proof) && is_address_proof(&key, mapped, &proof));
        assert!(!is_address_proof(&key, other, &proof) && !is_address_proof(&Key::generate(), own, &proof));
        assert!(!is_address_proof(&key, own, &[0; 32]));
    }

    #[test]
    fn a_socket_is_proved_for_one_nonce_by_the_same_key_or_by_none() {
        let (key, nonce) = (Key::generate(), random_bytes());
        let proof = socket_proof(Some(&key), &nonce);
        assert!(is_socket_proof(Some(&key), &nonce, &proof));
        assert!(!is_socket_proof(Some(&key), &random_bytes(), &proof));
        assert!(!is_socket_proof(Some(&Key::generate()), &nonce, &proof));
        assert!(!is_socket_proof(None, &nonce, &proof));
        assert!(is_socket_proof(None, &nonce, &socket_proof(None, &nonce)));
    }

    #[test]
    fn both_ways_to_write_a_key_are_understood_and_nothing_else() {
        let key = Key::generate();
        assert_eq!(key.to_text().parse(), Ok(key.clone()));
        let hexadecimal: String = key.bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hexadecimal.parse(), Ok(key));
        let own = Key::generate_for("ada".parse().unwrap());
        assert_eq!(own.to_text().parse(), Ok(own.clone()));
        assert!(own.to_text().starts_with("ada:") && key_id(&own) == key_id(&own.clone()));
        assert!(matches!("no name:x".parse::<Key>(), Err(KeyError::Client(_))));
        assert!(
            ["", "short", &"g".repeat(64), &"A".repeat(44)].iter().all(|text| text.parse::<Key>().is_err())
        );
    }

    #[test]
    fn names_are_short_and_plain() {
        for name in ["a", "Ada-1_x", &"n".repeat(MAX_NAME_LEN)] {
            assert_eq!(name.parse::<ClientName>().unwrap().to_string(), name);
        }
        for text in ["", "a b", "a:b", "a.b", "\u{e4}", "a\0", &"n".repeat(MAX_NAME_LEN + 1)] {
            assert_eq!(text.parse::<ClientName>(), Err(ClientNameError), "{text:?}");
        }
    }
}
