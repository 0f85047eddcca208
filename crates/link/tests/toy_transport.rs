//! A new transport is a crate and a row of the table: here is one, between two threads of one process, of
//! which no other file knows.

mod common;

use std::collections::VecDeque;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, LazyLock, Weak};
use std::time::Duration;

use causeway_connection::channel::{Connection, shut_down};
use causeway_link::accept::{Request, authenticate};
use causeway_link::transports::{Cost, Dialling, NotJoined, TRANSPORTS, Transport};
use causeway_link::{
    Awaited, ConnectError, ConnectOptions, Destination, Link, LinkError, Receiver, Sending, Session,
    TransportChoice, TransportKind, connect_over, describe_process,
};
use causeway_sync::Monitor;
use causeway_transport::{
    ChunkDestination, Memory, OutgoingTransfer, Parts, ReceiveMessages, SendMessages, Shared, count,
};
use causeway_wire::chunk::ChunkHeader;
use causeway_wire::codec::Encode as _;
use causeway_wire::handshake::{Abilities, LaneToken, Locality, Protection, Response, SessionId, Welcome};
use common::{COMMANDS, Reports, door, events, pattern, target, version};
use crossbeam_channel::{Receiver as Queue, Sender, bounded, unbounded};

const KIND: TransportKind = TransportKind::Other("toy");

/// Bytes of one direction, and whether the wire has ended.
#[derive(Default)]
struct Direction {
    bytes: VecDeque<u8>,
    has_ended: bool,
}

/// What joins the two ends: both directions, and the link of each end once its owner has started it.
#[derive(Default)]
struct Wire {
    directions: [Monitor<Direction>; 2],
    links: Monitor<[Weak<Shared>; 2]>,
}

/// One end of it, of which the other one is `1 - side`.
#[derive(Clone)]
struct End {
    wire: Arc<Wire>,
    side: usize,
}

impl SendMessages for End {
    fn send(&mut self, bytes: &[u8]) -> Result<(), LinkError> {
        self.wire.directions[self.side].change(|direction| {
            if direction.has_ended {
                return Err(LinkError::PeerDisconnected);
            }
            direction.bytes.extend(bytes);
            Ok(())
        })
    }
}

impl ReceiveMessages for End {
    fn receive(&mut self, _link: &Arc<Shared>, into: &mut [u8], wait: bool) -> Result<usize, LinkError> {
        self.wire.directions[1 - self.side].wait(|direction| {
            if direction.bytes.is_empty() {
                let nothing = if direction.has_ended { Err(LinkError::PeerDisconnected) } else { Ok(0) };
                return (direction.has_ended || !wait).then_some(nothing);
            }
            let count = direction.bytes.len().min(into.len());
            into.iter_mut().zip(direction.bytes.drain(..count)).for_each(|(to, byte)| *to = byte);
            Some(Ok(count))
        })
    }
}

/// The memory of the other end, which is this process's; and the connection on which the session was granted.
struct Both(End, Connection);

impl Memory for Both {
    fn kind(&self) -> TransportKind {
        KIND
    }

    fn start(&self, link: &Arc<Shared>) {
        let Self(End { wire, side }, _) = self;
        wire.links.change(|links| links[*side] = Arc::downgrade(link));
    }

    unsafe fn send(&self, link: &Arc<Shared>, order: OutgoingTransfer) -> Result<Sending, LinkError> {
        let Self(End { wire, side }, _) = self;
        let peer = wire.links.wait(|links| links[1 - side].upgrade());
        let length = order.length as u32;
        let chunk = ChunkHeader { transfer: order.transfer, offset: 0, total: length.into(), length };
        if let ChunkDestination::Memory { to, .. } = peer.transfers().claim(&chunk, peer.events())? {
            // SAFETY: the order's memory is readable until it has been carried out, and the place was
            // claimed.
            unsafe { core::ptr::copy_nonoverlapping(order.start.0, to.get(), order.length) };
        }
        count(&link.counters().transfer_bytes_sent, order.length);
        peer.transfers().landed(&chunk, None);
        Ok(Sending::done())
    }

    fn wake_receiver(&self, _: Awaited) {}

    fn end(&self) {
        for direction in &self.0.wire.directions {
            direction.change(|direction| direction.has_ended = true);
        }
        shut_down(self.1.socket());
    }
}

fn parts(end: End, connection: Connection) -> Parts {
    Parts {
        sender: Box::new(end.clone()),
        receiver: Box::new(end.clone()),
        memory: Box::new(Both(end, connection)),
        wait_for_capacity: None,
        descriptors: Vec::new(),
    }
}

/// The end of a session that its server is to take.
type Offered = (SessionId, End);

/// The ends that servers of this process have not taken yet.
static OFFERED: LazyLock<(Sender<Offered>, Queue<Offered>)> = LazyLock::new(unbounded);

fn dial(dialling: &mut Dialling<'_>) -> Result<Parts, NotJoined> {
    let here = End { wire: Arc::default(), side: 0 };
    let there = End { side: 1, ..here.clone() };
    OFFERED.0.send((dialling.session(), there)).map_err(|_| NotJoined::Unusable("nobody listens".into()))?;
    Ok(parts(here, dialling.take_connection()))
}

static TOY: Transport = ROW;

const ROW: Transport =
    Transport { kind: KIND, at_best: Cost(10), probe: |_| Ok(Cost(10)), dial, accept: None };

static TOY_OUT_OF_REACH: Transport =
    Transport { probe: |_| Err("a toy reaches no further than this process".to_owned()), ..ROW };

static TOY_THAT_FAILS: Transport =
    Transport { dial: |_| Err(NotJoined::Unusable("it is broken".to_owned())), ..ROW };

/// Causeway's transports, and one more.
fn table(toy: &'static Transport) -> Vec<&'static Transport> {
    TRANSPORTS.iter().copied().chain([toy]).collect()
}

/// Grants one session, and makes the link of its worker's end.
fn serve(session: SessionId) -> (SocketAddr, Queue<(Link, Receiver)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (links, new_links) = bounded(1);
    std::thread::spawn(move || {
        let own = version();
        let door = door(None, &own, Duration::from_secs(60));
        let mut caller = authenticate(listener.accept().unwrap().0, &door, &common::NoSecrets).unwrap();
        let Request::Session { version, .. } = caller.request else { panic!("a session is asked for") };
        let welcome = Response::Welcome(Welcome {
            version,
            session,
            token: LaneToken([7; 32]),
            lanes: 1,
            release: "0.1.0".into(),
            locality: Locality { boot_id: String::new(), sockets: Vec::new() },
            abilities: Abilities::ours(&COMMANDS),
            snapshot: Vec::new(),
        });
        caller.connection.send_handshake(|out| welcome.encode(out)).unwrap();
        let end = loop {
            let (of, end) = OFFERED.1.recv().unwrap();
            if of == session {
                break end;
            }
            OFFERED.0.send((of, end)).unwrap();
        };
        links.send(Link::new(parts(end, caller.connection)).unwrap()).unwrap();
    });
    (address, new_links)
}

fn ask(toy: &'static Transport, address: SocketAddr, via: TransportChoice) -> Result<Session, ConnectError> {
    let options = ConnectOptions { via, ..ConnectOptions::default() };
    let target = target(address, Protection::Unprotected, None);
    connect_over(&table(toy), &target, describe_process(COMMANDS, Vec::new()), &options)
}

/// A session over the toy, both of whose ends have been started.
fn pair(number: u8) -> (Session, Reports, Link, Receiver, Reports) {
    let (address, links) = serve(SessionId([number; 16]));
    let client = ask(&TOY, address, TransportChoice::Auto).unwrap();
    let (worker, receiver) = links.recv().unwrap();
    let ((ours, our_reports), (theirs, their_reports)) = (events(false), events(true));
    client.link.start(ours);
    worker.start(theirs);
    (client, our_reports, worker, receiver, their_reports)
}

#[test]
fn the_cheapest_transport_is_taken_and_carries_messages_both_ways() {
    let (mut client, _ours, worker, mut receiver, _theirs) = pair(1);
    assert_eq!((client.link.kind(), worker.kind()), (KIND, KIND));
    assert!(client.reasons.iter().any(|reason| reason.text == "toy is faster"), "{:?}", client.reasons);
    client.link.append(|out| out.extend_from_slice(b"one")).unwrap();
    client.link.send(|out| out.extend_from_slice(b", two")).unwrap();
    assert_eq!(receiver.recv().unwrap(), b"one, two");
    worker.send(|out| out.extend_from_slice(b"three")).unwrap();
    assert_eq!(client.receiver.recv().unwrap(), b"three");
    assert_eq!(worker.counters().frames_received, 1);
}

#[test]
fn copies_get_into_their_destinations_whether_they_are_expected_or_not() {
    let (client, _ours, worker, _receiver, theirs) = pair(2);
    let bytes = pattern(3 << 20, 5);
    client.link.send_transfer(7, &bytes).unwrap();
    assert_eq!(theirs.arrived.recv().unwrap(), (7, bytes.clone()));
    let (ended, came) = bounded(1);
    let destination =
        Destination::buffer(vec![0; bytes.len()], move |filled| ended.send(filled.unwrap()).unwrap());
    client.link.expect_transfer(8, destination).unwrap();
    worker.send_transfer(8, &bytes).unwrap();
    assert!(came.recv().unwrap() == bytes);
    assert_eq!(client.link.counters().transfer_bytes_sent, bytes.len() as u64);
    assert!(!client.link.is_one_sided() && !client.link.passes_descriptors());
    assert!(client.link.piece(1 << 20).is_none(), "it has no staging memory");
}

#[test]
fn the_end_of_one_side_is_the_loss_of_the_other() {
    let (client, _ours, worker, mut receiver, theirs) = pair(3);
    let waiting = std::thread::spawn(move || receiver.recv().map(<[u8]>::len));
    client.link.close();
    assert!(matches!(waiting.join().unwrap(), Err(LinkError::PeerDisconnected)));
    assert!(matches!(theirs.lost.recv().unwrap(), LinkError::PeerDisconnected));
    assert!(worker.send(|out| out.push(1)).is_err());
}

#[test]
fn a_toy_that_does_not_work_is_passed_over_and_the_reason_is_kept() {
    for (toy, why) in
        [(&TOY_OUT_OF_REACH, "a toy reaches no further than this process"), (&TOY_THAT_FAILS, "it is broken")]
    {
        let (address, _links, _errors) = common::listen(None);
        let session = ask(toy, address, TransportChoice::Auto).unwrap();
        assert_eq!(session.link.kind(), TransportKind::Tcp);
        let reason = session.reasons.iter().find(|reason| reason.kind == KIND).unwrap();
        assert_eq!(reason.text, why);
        let (address, _links, _errors) = common::listen(None);
        let Err(ConnectError::Via { via, text, .. }) = ask(toy, address, TransportChoice::Only(KIND)) else {
            panic!("it cannot be had")
        };
        assert_eq!((via, text.as_str()), (KIND, why));
    }
}
