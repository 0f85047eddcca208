//! A session: what a client asks for, what it is granted, and how the session is named and proved afterwards.

use core::fmt;

use super::{Abilities, Offer};
use crate::codec::{Decode, DecodeError, Decoder, Encode};
use crate::record;
use crate::text::Printable;

/// Names a session; given out by the server, 128 random bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SessionId(pub [u8; 16]);

record!(SessionId { 0 });

impl SessionId {
    /// All 128 bits, of which [`Display`](fmt::Display) shows the first 32.
    pub fn in_full(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl fmt::Display for SessionId {
    /// The first 32 bits, which tell sessions apart in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[..4].iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The secret with which a client's further connections prove that they belong to its session.
#[derive(Clone, Copy)]
pub struct LaneToken(pub [u8; 32]);

record!(LaneToken { 0 });

impl PartialEq for LaneToken {
    /// Compares in a time that does not depend on where two tokens differ, so that it cannot be found byte
    /// by byte.
    fn eq(&self, other: &Self) -> bool {
        let difference = self.0.iter().zip(&other.0).fold(0, |all, (a, b)| all | (a ^ b));
        core::hint::black_box(difference) == 0
    }
}

impl Eq for LaneToken {}

impl fmt::Debug for LaneToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LaneToken(..)")
    }
}

/// What a client says of itself when it asks for a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientHello {
    /// What the client can talk.
    pub offer: Offer,
    /// The client's process id, for logs.
    pub pid: u32,
    /// The client's host name, for logs.
    pub host: Printable,
    /// The program's name, for logs.
    pub program: Printable,
    /// Environment variables that the worker sets before it starts the GPU.
    pub environment: Vec<(String, String)>,
    /// Bulk lanes that the client would like to open.
    pub lanes: u32,
    /// What the client knows and can do.
    pub abilities: Abilities,
    /// The user on the client's host, as the client says; empty from earlier releases. For accounts.
    pub user: Printable,
    /// The job of the client's batch system, as the client says; empty where there is none. For accounts.
    pub job: Printable,
    /// By what the client gets the state of the session that it is a fork of, if it is one.
    pub fork: Option<LaneToken>,
}

impl Encode for ClientHello {
    fn encode(&self, out: &mut Vec<u8>) {
        self.offer.encode(out);
        self.pid.encode(out);
        self.host.encode(out);
        self.program.encode(out);
        self.environment.encode(out);
        self.lanes.encode(out);
        self.abilities.encode_with(out, |more| {
            self.user.encode(more);
            self.job.encode(more);
            // Servers of earlier releases pass over it, and their clients have nothing to ask for.
            if let Some(ticket) = self.fork {
                ticket.encode(more);
            }
        });
    }
}

impl ClientHello {
    /// Decodes what follows the offer in a request for a session.
    pub fn decode_rest(offer: Offer, rest: &[u8]) -> Result<Self, DecodeError> {
        let mut input = Decoder::new(rest);
        let (pid, host, program) = (input.value()?, input.value()?, input.value()?);
        let (environment, lanes) = (input.value()?, input.value()?);
        let (abilities, mut more) = Abilities::decode_with(&mut input)?;
        input.finish()?;
        let (user, job) = match more.remaining() {
            0 => Default::default(),
            _ => (more.value()?, more.value()?),
        };
        let fork = if more.remaining() > 0 { Some(more.value()?) } else { None };
        Ok(Self { offer, pid, host, program, environment, lanes, abilities, user, job, fork })
    }
}

/// Where the server is, for a client that may be on the same host.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Locality {
    /// What the server's kernel calls its current life; empty when it cannot be read. Equal ones mean one
    /// kernel; different ones mean little, since some containers are shown one of their own.
    pub boot_id: String,
    /// Unix sockets at which the server can be reached from its own host: paths, or `@` and an abstract name.
    pub sockets: Vec<String>,
}

record!(Locality { boot_id, sockets });

/// A granted session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Welcome {
    /// The protocol version that both ends talk from here on.
    pub version: u16,
    /// Names the session.
    pub session: SessionId,
    /// Goes into the `LaneHello` of every lane.
    pub token: LaneToken,
    /// How many lanes the client may open.
    pub lanes: u32,
    /// Version of the server, for people to read.
    pub release: Printable,
    /// Where the server is.
    pub locality: Locality,
    /// What the server knows and can do.
    pub abilities: Abilities,
    /// Everything about the devices that the client answers by itself; opaque here.
    pub snapshot: Vec<u8>,
}

impl Encode for Welcome {
    fn encode(&self, out: &mut Vec<u8>) {
        self.version.encode(out);
        self.session.encode(out);
        self.token.encode(out);
        self.lanes.encode(out);
        self.release.encode(out);
        self.locality.encode(out);
        self.abilities.encode(out);
        self.snapshot.as_slice().encode(out);
    }
}

impl<'a> Decode<'a> for Welcome {
    fn decode(input: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        Ok(Self {
            version: input.value()?,
            session: input.value()?,
            token: input.value()?,
            lanes: input.value()?,
            release: input.value()?,
            locality: input.value()?,
            abilities: input.value()?,
            snapshot: input.value::<&[u8]>()?.to_vec(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_compared_whole_and_never_printed() {
        let mut other = [7; 32];
        assert_eq!(LaneToken(other), LaneToken([7; 32]));
        other[31] ^= 1;
        assert_ne!(LaneToken(other), LaneToken([7; 32]));
        assert_eq!(format!("{:?}", LaneToken(other)), "LaneToken(..)");
    }
}
