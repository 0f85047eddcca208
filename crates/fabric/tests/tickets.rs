//! Does a ticket let the worker of another server in, and to nothing but what it is for?

mod common;

use causeway_fabric::accept::{AcceptError, Caller, Request, greet};
use causeway_fabric::{ConnectError, ConnectOptions, Key, PeerAddress, Target, Via, ViaChoice, connect_peer};
use causeway_wire::codec::Encode as _;
use causeway_wire::handshake::{Answer, LaneToken, Locality, PeerHello, SessionId};
use std::net::TcpListener;
use std::thread::JoinHandle;
use std::time::Duration;

const TICKET: LaneToken = LaneToken([7; 32]);

/// A server that greets one caller, and takes it in if it comes with a ticket.
fn greet_one(key: Option<Key>) -> (Target, JoinHandle<Result<Request, AcceptError>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let target = Target { host: address.ip().to_string(), port: address.port(), key: key.clone() };
    let greeted = std::thread::spawn(move || {
        let stream = listener.accept().unwrap().0;
        let tickets = || vec![LaneToken([6; 32]), TICKET];
        let caller = greet(stream, key.as_ref(), tickets, &common::offer(), Duration::from_secs(5))?;
        let Caller { request, mut connection } = caller;
        if matches!(request, Request::Peer(_)) {
            connection.send_handshake(|out| Answer::LaneReady.encode(out)).unwrap();
        }
        Ok(request)
    });
    (target, greeted)
}

fn at(target: Target) -> PeerAddress {
    PeerAddress { target, locality: Locality::default() }
}

#[test]
fn a_ticket_leads_to_its_session_with_and_without_a_key() {
    for key in [None, Some(Key::generate())] {
        let (target, greeted) = greet_one(key);
        // The key itself is not needed: that of another server does as well.
        let known = at(Target { key: target.key.as_ref().map(|_| Key::generate()), ..target });
        let session = SessionId([3; 16]);
        let options = ConnectOptions { via: ViaChoice::Only(Via::Tcp), ..ConnectOptions::default() };
        let way = connect_peer(&known, session, TICKET, &options).expect("the ticket is right");
        let request = greeted.join().unwrap().expect("it is taken in");
        let expected = PeerHello { session, ticket: TICKET, connection: 0 };
        assert!(matches!(request, Request::Peer(hello) if hello == expected));
        way.link.close();
    }
}

#[test]
fn a_wrong_ticket_is_turned_away_where_there_is_a_key() {
    let (target, greeted) = greet_one(Some(Key::generate()));
    let wrong = LaneToken([8; 32]);
    let refused = connect_peer(&at(target), SessionId([3; 16]), wrong, &ConnectOptions::default());
    assert!(matches!(refused, Err(ConnectError::Refused { .. })), "{refused:?}");
    assert!(matches!(greeted.join().unwrap(), Err(AcceptError::WrongKey(_))));
}

#[test]
fn a_ticket_in_the_keys_place_opens_no_session() {
    let (target, greeted) = greet_one(Some(Key::generate()));
    let thief = Target { key: Some(Key::of_ticket(&TICKET)), ..target };
    let hello = causeway_fabric::describe_process(1, Vec::new());
    assert!(causeway_fabric::connect(&thief, hello, &ConnectOptions::default()).is_err());
    assert!(matches!(greeted.join().unwrap(), Err(AcceptError::NotForTickets)));
}
