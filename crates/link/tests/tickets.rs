//! Secrets that callers come with beside the server's key: tickets, which let the worker of another server in and to
//! nothing but what they are for, keys of single clients, and invitations.

mod common;

use causeway_access::keys::clients::NotAccepted;
use causeway_access::target::{invitation_id, key_id, ticket_id};
use causeway_access::{Invitation, Key, Target};
use causeway_connection::channel::Connection;
use causeway_connection::dial_here;
use causeway_connection::noise::{Handshake, MESSAGE_SIZE};
use causeway_link::accept::{AcceptError, Caller, Request, Secrets, authenticate};
use causeway_link::{
    ConnectError, ConnectOptions, PeerAddress, TransportChoice, TransportKind, connect_peer,
};
use causeway_wire::codec::Encode as _;
use causeway_wire::handshake::{
    KeyId, LaneToken, Locality, NewKey, Opening, PREFACE_SIZE, PeerHello, Preface, PrefaceResponse,
    Protection, Response, Secret, SessionId, TicketId,
};
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::thread::JoinHandle;
use std::time::Duration;

const TICKET: LaneToken = LaneToken([7; 32]);

/// What a server knows beside its key.
struct Known {
    clients: Vec<Key>,
    invitation: Option<Key>,
}

impl Secrets for Known {
    fn ticket(&self, id: TicketId) -> Option<LaneToken> {
        (id == ticket_id(&TICKET)).then_some(TICKET)
    }

    fn client_key(&self, id: KeyId) -> Result<Key, NotAccepted> {
        self.clients.iter().find(|key| key_id(key) == id).cloned().ok_or(NotAccepted::Unknown)
    }

    fn invitation(&self, id: KeyId) -> Result<Key, NotAccepted> {
        let invitation = self.invitation.clone().filter(|secret| invitation_id(secret) == id);
        invitation.ok_or(NotAccepted::InvitationUnknown)
    }
}

/// A server that authenticates one caller, and takes it in if it comes with a ticket.
fn authenticate_one(key: Option<Key>) -> (Target, JoinHandle<Result<Request, AcceptError>>) {
    authenticate_invited(key, None)
}

/// The same, where a client is invited.
fn authenticate_invited(
    key: Option<Key>,
    invitation: Option<Key>,
) -> (Target, JoinHandle<Result<Request, AcceptError>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let protection = if key.is_some() { Protection::Encrypted } else { Protection::Unprotected };
    let target = common::target(address, protection, key.as_ref());
    let accepted = std::thread::spawn(move || {
        let stream = listener.accept().unwrap().0;
        let own = common::version();
        let door = common::door(key.as_ref(), &own, Duration::from_secs(5));
        let caller = authenticate(stream, &door, &Known { clients: Vec::new(), invitation })?;
        let Caller { request, mut connection, .. } = caller;
        match request {
            Request::Peer(_) => connection.send_handshake(|out| Response::LaneReady.encode(out)).unwrap(),
            Request::Enrol { .. } => connection.send_handshake(|out| Response::Enrolled.encode(out)).unwrap(),
            _ => {}
        }
        Ok(request)
    });
    (target, accepted)
}

fn at(target: Target) -> PeerAddress {
    PeerAddress { target, locality: Locality::default() }
}

/// A connection on which both ends have proved that they hold a secret.
fn authenticated(target: &Target, kind: Secret, id: [u8; 8], secret: &Key) -> Connection {
    let mut stream = dial_here(&target.endpoint, Duration::from_secs(5)).unwrap();
    let preface = Preface { protection: Protection::Encrypted, secret: kind }.to_bytes();
    let mut handshake = Handshake::client(secret, &preface);
    let id = if kind == Secret::Key { &[] } else { id.as_slice() };
    stream.write_all(&[preface.as_slice(), id, &handshake.write()].concat()).unwrap();
    let mut response = [0; PREFACE_SIZE + MESSAGE_SIZE];
    stream.read_exact(&mut response).unwrap();
    handshake.read(response.last_chunk().unwrap()).unwrap();
    Connection::new(stream, Some(handshake.finish(false)))
}

#[test]
fn a_ticket_leads_to_its_session_with_and_without_a_key() {
    for key in [None, Some(Key::generate())] {
        let (target, accepted) = authenticate_one(key);
        // The key itself is not needed.
        let known = at(Target { key: None, ..target });
        let session = SessionId([3; 16]);
        let options =
            ConnectOptions { via: TransportChoice::Only(TransportKind::Tcp), ..ConnectOptions::default() };
        let way = connect_peer(&known, session, TICKET, &options).expect("the ticket is right");
        let request = accepted.join().unwrap().expect("it is taken in");
        let expected = PeerHello { session, ticket: TICKET, connection: 0 };
        assert!(matches!(request, Request::Peer(hello) if hello == expected));
        way.link.close();
    }
}

#[test]
fn a_wrong_ticket_is_turned_away_where_there_is_a_key() {
    let (target, accepted) = authenticate_one(Some(Key::generate()));
    let wrong = LaneToken([8; 32]);
    let refused = connect_peer(&at(target), SessionId([3; 16]), wrong, &ConnectOptions::default());
    assert!(matches!(refused, Err(ConnectError::Refused { .. })), "{refused:?}");
    assert!(matches!(accepted.join().unwrap(), Err(AcceptError::NoSession)));
}

#[test]
fn a_ticket_in_the_keys_place_opens_no_session() {
    let (target, accepted) = authenticate_one(Some(Key::generate()));
    let thief = Target { key: Some(Key::of_ticket(&TICKET)), ..target };
    let hello = causeway_link::describe_process(common::COMMANDS, Vec::new());
    assert!(causeway_link::connect(&thief, hello, &ConnectOptions::default()).is_err());
    assert!(matches!(accepted.join().unwrap(), Err(AcceptError::WrongKey(_))));
}

#[test]
fn whoever_comes_with_a_ticket_gets_no_session() {
    let (target, accepted) = authenticate_one(Some(Key::generate()));
    let mut connection =
        authenticated(&target, Secret::Ticket, ticket_id(&TICKET).0, &Key::of_ticket(&TICKET));
    let hello = causeway_link::describe_process(common::COMMANDS, Vec::new());
    connection.send_handshake(|out| Opening::encode_session(&hello, out)).unwrap();
    assert!(matches!(accepted.join().unwrap(), Err(AcceptError::NotForTickets)));
}

#[test]
fn a_client_with_a_key_of_its_own_is_known_by_its_name() {
    let (own, server_key) = (Key::generate_for("ada".parse().unwrap()), Key::generate());
    // Another client's key, one that only says to be hers, and the server's key under her name.
    let unknown = Key::generate_for("bob".parse().unwrap());
    let alike: Key = format!("ada:{}", *server_key.to_text()).parse().unwrap();
    for (key, is_known) in [(own.clone(), true), (unknown, false), (alike, false)] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (known, door_key) = (Known { clients: vec![own.clone()], invitation: None }, server_key.clone());
        let accepted = std::thread::spawn(move || {
            let version = common::version();
            let door = common::door(Some(&door_key), &version, Duration::from_secs(5));
            authenticate(listener.accept().unwrap().0, &door, &known).map(|caller| caller.client)
        });
        let target = common::target(address, Protection::Encrypted, Some(&key));
        let hello = causeway_link::describe_process(common::COMMANDS, Vec::new());
        let refused =
            causeway_link::connect(&target, hello, &ConnectOptions::default()).unwrap_err().to_string();
        let accepted = accepted.join().unwrap();
        if is_known {
            assert_eq!(accepted.unwrap(), Some((own.client().unwrap(), key_id(&own))));
        } else {
            assert!(matches!(accepted, Err(AcceptError::ClientNotAccepted(NotAccepted::Unknown))));
            assert!(refused.contains("has no client with this key"), "{refused}");
        }
    }
}

/// What enrols the new key of `secret`'s client, as `causeway login` does.
fn enrol(target: Target, secret: &Key, key: &Key) -> Result<(), ConnectError> {
    let invitation = Invitation::new(Target { key: Some(secret.clone()), ..target }).unwrap();
    let hello = causeway_link::describe_process(common::COMMANDS, Vec::new());
    causeway_link::enrol(&invitation, &hello, key, &ConnectOptions::default())
}

#[test]
fn an_invitation_enrols_a_key() {
    let ada = "ada".parse().unwrap();
    let (secret, key) = (Key::generate_for(ada), Key::generate_for(ada));
    let (target, accepted) = authenticate_invited(Some(Key::generate()), Some(secret.clone()));
    enrol(target, &secret, &key).expect("the invitation is right");
    let request = accepted.join().unwrap().expect("it is taken in");
    assert!(matches!(request, Request::Enrol { key: found, .. } if found.0 == *key.bytes()), "{request:?}");
    let (target, accepted) = authenticate_invited(Some(Key::generate()), Some(secret.clone()));
    let refused = enrol(target, &Key::generate_for(ada), &key).unwrap_err().to_string();
    assert!(refused.contains("has no such invitation"), "{refused}");
    let accepted = accepted.join().unwrap();
    assert!(matches!(accepted, Err(AcceptError::ClientNotAccepted(NotAccepted::InvitationUnknown))));
    // The server that was reached does not hold the secret, and says that it knows the invitation.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = common::target(listener.local_addr().unwrap(), Protection::Encrypted, None);
    let impostor = std::thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        let mut first = [0; PREFACE_SIZE + 8 + MESSAGE_SIZE];
        stream.read_exact(&mut first).unwrap();
        let answer = PrefaceResponse::Continue.to_bytes();
        stream.write_all(&[answer.as_slice(), &[7; MESSAGE_SIZE]].concat()).unwrap();
        let mut more = Vec::new();
        let _ = stream.read_to_end(&mut more);
        more
    });
    let refused = enrol(target, &secret, &key).unwrap_err();
    assert!(matches!(refused, ConnectError::ServerNotAuthentic { .. }), "{refused}");
    assert!(impostor.join().unwrap().is_empty(), "nothing is sent to it");
}

#[test]
fn an_invitation_is_for_enrolling_alone_and_that_takes_one() {
    let (secret, server_key) = (Key::generate_for("ada".parse().unwrap()), Key::generate());
    let hello = causeway_link::describe_process(common::COMMANDS, Vec::new());
    let invited = || authenticate_invited(Some(server_key.clone()), Some(secret.clone()));
    for opening in [Opening::encode_session, Opening::encode_status, Opening::encode_monitor] {
        let (target, accepted) = invited();
        let mut connection = authenticated(&target, Secret::Invitation, invitation_id(&secret).0, &secret);
        connection.send_handshake(|out| opening(&hello, out)).unwrap();
        assert!(matches!(accepted.join().unwrap(), Err(AcceptError::NotForInvitations)));
    }
    let (target, accepted) = invited();
    let mut connection = authenticated(&target, Secret::Key, [0; 8], &server_key);
    connection.send_handshake(|out| Opening::encode_enrol(&hello, &NewKey([1; 32]), out)).unwrap();
    assert!(matches!(accepted.join().unwrap(), Err(AcceptError::NotForInvitations)));
    // The secret is no key.
    let (target, accepted) = invited();
    let thief = Target { key: Some(secret.clone()), ..target };
    assert!(causeway_link::check(&thief, &ConnectOptions::default()).is_err());
    assert!(matches!(accepted.join().unwrap(), Err(AcceptError::ClientNotAccepted(NotAccepted::Unknown))));
}
