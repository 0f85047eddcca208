//! The first bytes of a connection, in the clear: how it is to be protected, and by which secret.

use thiserror::Error;

/// The first four bytes that either end sends.
pub const PREFACE_MAGIC: [u8; 4] = *b"CSWY";

/// Size of an encoded [`Preface`] and of the fixed part of a [`PrefaceResponse`], in bytes.
pub const PREFACE_SIZE: usize = 8;

/// The first words, at a Unix socket, of a server that connects for a client of its own. A nonce of
/// [`PROOF_SIZE`] bytes follows. A server that listens there answers [`PrefaceResponse::Continue`] and a proof, of
/// as many bytes, that it holds the same key. Then the connection begins, with a [`Preface`], as one of a
/// stranger: whose user has connected counts no more.
pub const FOR_A_CLIENT: [u8; PREFACE_SIZE] = {
    let [a, b, c, d] = PREFACE_MAGIC;
    [a, b, c, d, 3, 0, 0, 0]
};

/// The same of somebody who has a key of its own: its [`KeyId`](super::KeyId) follows the nonce, and the proof
/// is by that key.
pub const FOR_A_NAMED_CLIENT: [u8; PREFACE_SIZE] = {
    let [a, b, c, d] = PREFACE_MAGIC;
    [a, b, c, d, 3, 1, 0, 0]
};

/// Size of the nonce behind [`FOR_A_CLIENT`], and of the proof that answers it, in bytes.
pub const PROOF_SIZE: usize = 32;

/// The longest refusal in a [`PrefaceResponse`], in bytes.
pub const MAX_REFUSAL: usize = 1024;

/// How a connection is protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protection {
    /// By nothing here: neither end proves anything. At a Unix socket the kernel says who is there; over a
    /// network this is for a server that was started with `--insecure-no-key`.
    Unprotected,
    /// Both ends prove that they hold the secret, and the handshake is encrypted; what follows on connections
    /// that carry a link is in the clear. Who can alter what the network carries can alter that.
    Authenticated,
    /// Both ends prove that they hold the secret, and everything is encrypted.
    Encrypted,
}

impl Protection {
    /// Whether both ends prove that they hold a secret.
    pub fn needs_key(self) -> bool {
        self != Self::Unprotected
    }
}

/// The secret that a client proves to hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Secret {
    /// The server's key.
    Key,
    /// A ticket of one of the server's sessions; its [`TicketId`](super::TicketId) follows the preface.
    Ticket,
    /// A key that the server has made for this client alone; its [`KeyId`](super::KeyId) follows the preface.
    ClientKey,
    /// The secret of an invitation, which lets a client enrol its key and nothing else; its
    /// [`KeyId`](super::KeyId) follows the preface.
    Invitation,
}

/// A client's first words: how the connection is to be protected. They are part of what both ends prove, so
/// that nobody in between can alter them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preface {
    /// How the connection is to be protected; unless it is not, a Noise handshake follows.
    pub protection: Protection,
    /// By which secret.
    pub secret: Secret,
}

/// The first bytes were not those of a peer that speaks this protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the first bytes {found:02x?} are not those of Causeway's protocol")]
pub struct NotCauseway {
    /// The bytes found.
    pub found: [u8; PREFACE_SIZE],
}

impl Preface {
    /// The preface of a client.
    pub fn by_key(protection: Protection) -> Self {
        Self { protection, secret: Secret::Key }
    }

    /// The preface as it travels.
    pub fn to_bytes(&self) -> [u8; PREFACE_SIZE] {
        let [a, b, c, d] = PREFACE_MAGIC;
        let protection = match self.protection {
            Protection::Unprotected => 0,
            Protection::Encrypted => 1,
            Protection::Authenticated => 2,
        };
        let secret = match self.secret {
            Secret::Key => 0,
            Secret::Ticket => 1,
            Secret::ClientKey => 2,
            Secret::Invitation => 3,
        };
        [a, b, c, d, protection, secret, 0, 0]
    }

    /// Reads a preface.
    pub fn parse(bytes: &[u8; PREFACE_SIZE]) -> Result<Self, NotCauseway> {
        let foreign = NotCauseway { found: *bytes };
        let [a, b, c, d, protection, secret, 0, 0] = *bytes else { return Err(foreign) };
        if [a, b, c, d] != PREFACE_MAGIC {
            return Err(foreign);
        }
        let protection = match protection {
            0 => Protection::Unprotected,
            1 => Protection::Encrypted,
            2 => Protection::Authenticated,
            _ => return Err(foreign),
        };
        let secret = match secret {
            0 => Secret::Key,
            1 if protection.needs_key() => Secret::Ticket,
            2 if protection.needs_key() => Secret::ClientKey,
            3 if protection.needs_key() => Secret::Invitation,
            _ => return Err(foreign),
        };
        Ok(Self { protection, secret })
    }
}

/// A server's answer to a [`Preface`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrefaceResponse {
    /// The client goes on.
    Continue,
    /// The server ends the connection; a text of this many bytes, at most [`MAX_REFUSAL`], follows.
    Refused {
        /// Bytes in the text.
        length: u16,
    },
}

impl PrefaceResponse {
    /// The fixed part of the answer as it travels.
    pub fn to_bytes(&self) -> [u8; PREFACE_SIZE] {
        let [a, b, c, d] = PREFACE_MAGIC;
        match self {
            Self::Continue => [a, b, c, d, 0, 0, 0, 0],
            Self::Refused { length } => {
                let [low, high] = length.to_le_bytes();
                [a, b, c, d, 1, 0, low, high]
            }
        }
    }

    /// Reads the fixed part of an answer.
    pub fn parse(bytes: &[u8; PREFACE_SIZE]) -> Result<Self, NotCauseway> {
        let foreign = NotCauseway { found: *bytes };
        match bytes {
            [a, b, c, d, ..] if [*a, *b, *c, *d] != PREFACE_MAGIC => Err(foreign),
            [.., 0, 0, 0, 0] => Ok(Self::Continue),
            [.., 1, 0, low, high] => {
                let length = u16::from_le_bytes([*low, *high]);
                if usize::from(length) <= MAX_REFUSAL { Ok(Self::Refused { length }) } else { Err(foreign) }
            }
            _ => Err(foreign),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefaces_survive_a_round_trip_and_foreign_bytes_do_not() {
        for protection in [Protection::Unprotected, Protection::Authenticated, Protection::Encrypted] {
            for secret in [Secret::Key, Secret::Ticket, Secret::ClientKey, Secret::Invitation] {
                let preface = Preface { protection, secret };
                let means_something = protection.needs_key() || secret == Secret::Key;
                assert_eq!(Preface::parse(&preface.to_bytes()).ok(), means_something.then_some(preface));
            }
        }
        for answer in [PrefaceResponse::Continue, PrefaceResponse::Refused { length: 300 }] {
            assert_eq!(PrefaceResponse::parse(&answer.to_bytes()), Ok(answer));
        }
        assert!(PrefaceResponse::parse(&PrefaceResponse::Refused { length: 2000 }.to_bytes()).is_err());
        for at_sockets_alone in [FOR_A_CLIENT, FOR_A_NAMED_CLIENT] {
            assert!(Preface::parse(&at_sockets_alone).is_err());
        }
        assert!(Preface::parse(b"GET / HT").is_err());
        assert!(PrefaceResponse::parse(b"SSH-2.0-").is_err());
    }
}
