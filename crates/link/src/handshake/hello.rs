//! The first words on a connection: the preface, the proofs of the secret, and one message each way.

use std::io::{self, Write as _};
use std::time::Instant;

use causeway_wire::codec::Decoder;
use causeway_wire::handshake::{
    LaneToken, PREFACE_SIZE, Preface, PrefaceResponse, Protection, Response, Secret,
};
use causeway_wire::text::Printable;

use super::error::{ConnectError, explain};
use super::options::ConnectOptions;
use crate::refusal::WRONG_KEY;
use std::net::TcpStream;

use causeway_access::target::{Key, Target, invitation_id, key_id, ticket_id};
use causeway_access::{Endpoint, keys};
use causeway_connection::channel::{Connection, handshake_frame};
use causeway_connection::dial_here;
use causeway_connection::noise::{Handshake, MESSAGE_SIZE};
use causeway_connection::socket::DialError;

/// What a caller proves itself with where the server demands it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Proof {
    /// The key of the target.
    Key,
    /// A ticket of one of the server's sessions.
    Ticket(LaneToken),
    /// The secret of an invitation, which stands in the place of the target's key.
    Invitation,
}

/// Makes a connection, authenticates it, and exchanges one message each way.
pub(crate) fn open(
    target: &Target,
    proof: Proof,
    options: &ConnectOptions,
    limit: usize,
    encode: impl FnOnce(&mut Vec<u8>),
) -> Result<(Connection, Response), ConnectError> {
    let deadline = Instant::now() + options.response_timeout;
    let failed = |error| explain(target, options, error);
    let message = handshake_frame(encode);
    // What is not encrypted can go with the first words, which saves a round trip.
    let with_preface = if target.protection.needs_key() { &[] } else { message.as_slice() };
    let mut connection = authenticate(target, proof, options, with_preface, deadline)?;
    if with_preface.is_empty() {
        connection.outgoing.send(&message).map_err(|error| failed(error.into()))?;
    }
    let body = connection.receive_handshake(limit, deadline).map_err(failed)?;
    let mut input = Decoder::new(&body);
    let response = input.value::<Response>().and_then(|response| input.finish().map(|()| response)).map_err(
        |error| ConnectError::Failed {
            target: target.to_string(),
            text: format!("malformed response from the server: {error}"),
        },
    )?;
    Ok((connection, response))
}

/// Makes a connection on which both ends have proved that they hold the secret, unless it is unprotected.
/// `with_preface` is sent right behind the first words, in the clear.
pub(crate) fn authenticate(
    target: &Target,
    proof: Proof,
    options: &ConnectOptions,
    with_preface: &[u8],
    deadline: Instant,
) -> Result<Connection, ConnectError> {
    let secret = match (target.protection.needs_key(), proof) {
        (false, _) => Secret::Key,
        (true, Proof::Ticket(_)) => Secret::Ticket,
        (true, Proof::Invitation) => Secret::Invitation,
        (true, Proof::Key) if target.key.as_ref().is_some_and(|key| key.client().is_some()) => {
            Secret::ClientKey
        }
        (true, Proof::Key) => Secret::Key,
    };
    let preface = Preface { protection: target.protection, secret };
    // First, since that nothing listens there says more than that its key is not known.
    let stream = dial(&target.endpoint, options)?;
    let bytes = preface.to_bytes();
    let mut first = bytes.to_vec();
    let mut handshake = None;
    if preface.protection.needs_key() {
        let key = match proof {
            Proof::Key | Proof::Invitation => target.key.clone().ok_or_else(|| ConnectError::NoKey {
                target: target.to_string(),
                address: target.endpoint.to_string(),
            })?,
            Proof::Ticket(ticket) => Key::of_ticket(&ticket),
        };
        match (secret, proof) {
            (Secret::ClientKey, _) => first.extend(key_id(&key).0),
            (_, Proof::Ticket(ticket)) => first.extend(ticket_id(&ticket).0),
            (_, Proof::Invitation) => first.extend(invitation_id(&key).0),
            (_, Proof::Key) => {}
        }
        first.extend(handshake.insert(Handshake::client(&key, &bytes)).write());
    } else {
        first.extend(with_preface);
    }
    let failed = |error: io::Error| explain(target, options, error.into());
    (&stream).write_all(&first).map_err(failed)?;
    let mut clear = Connection::new(stream, None);
    expect_continue(target, options, &mut clear, deadline.min(Instant::now() + options.preface_timeout))?;
    let Some(mut handshake) = handshake else { return Ok(clear) };
    let mut message = [0; MESSAGE_SIZE];
    clear.incoming.receive_exact(&mut message, deadline).map_err(failed)?;
    handshake.read(&message).map_err(|_| ConnectError::ServerNotAuthentic { target: target.to_string() })?;
    let stream = clear.socket().try_clone().map_err(failed)?;
    let keys = handshake.finish(preface.protection == Protection::Authenticated);
    Ok(Connection::new(stream, Some(keys)))
}

/// Connects to a server, or has it done.
fn dial(endpoint: &Endpoint, options: &ConnectOptions) -> Result<TcpStream, DialError> {
    let Some(dialer) = &options.dialer else { return dial_here(endpoint, options.connect_timeout) };
    let made = dialer.dial(endpoint, options.connect_timeout);
    made.map(TcpStream::from).map_err(|cause| DialError::Other { target: endpoint.to_string(), cause })
}

/// Reads the server's answer to the first words.
fn expect_continue(
    target: &Target,
    options: &ConnectOptions,
    connection: &mut Connection,
    deadline: Instant,
) -> Result<(), ConnectError> {
    let sent_at = Instant::now();
    let mut read = |into: &mut [u8]| {
        let read = connection.incoming.receive_exact(into, deadline);
        read.map_err(|error| match error.kind() {
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => ConnectError::NoPrefaceResponse {
                target: target.to_string(),
                seconds: sent_at.elapsed().as_secs_f64(),
            },
            _ => explain(target, options, error.into()),
        })
    };
    let mut response = [0; PREFACE_SIZE];
    read(&mut response)?;
    match PrefaceResponse::parse(&response) {
        Ok(PrefaceResponse::Continue) => Ok(()),
        Ok(PrefaceResponse::Refused { length }) => {
            let mut text = vec![0; usize::from(length)];
            read(&mut text)?;
            let mut text = Printable::from_bytes(&text).to_string();
            if text.starts_with(WRONG_KEY)
                && let Some(origin) = keys::origin(target)
            {
                text.push_str("; the key that was tried is from ");
                text.push_str(&origin);
            }
            Err(ConnectError::Refused { target: target.to_string(), text: Printable::from(text.as_str()) })
        }
        Err(error) => Err(ConnectError::NotCauseway {
            target: target.to_string(),
            found: Printable::from_bytes(&error.found),
        }),
    }
}
