//! What links over shared memory do besides what all links do: pieces in place, order, back-pressure,
//! descriptors, and the way back to TCP when memory cannot be shared.

mod common;

use std::io::Write as _;
use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use causeway_link::accept::{HandshakeTimeouts, Request, authenticate, authenticate_local};
use causeway_link::{
    ConnectError, ConnectOptions, Destination, Link, LinkError, TransportChoice, TransportKind, connect,
    describe_process,
};
use causeway_memory::SealedMemory;
use causeway_transport::slots::{SLOT, STAGING_LIMITS};
use causeway_transport_shm::layout::{Layout, RING};
use causeway_wire::codec::Encode as _;
use causeway_wire::handshake::{
    Abilities, LaneToken, Locality, Protection, Response, SessionId, SharedMemory, Welcome,
};
use causeway_wire::message::ClientMessage;
use common::{
    COMMANDS, Joint, Pair, SCARCE_SHM, SHM, events, events_with, local_socket, pair, pattern, target,
    version, wait_until,
};
use crossbeam_channel::unbounded;

/// The least that can be.
const SCARCE: usize = STAGING_LIMITS.0;

fn receive_all(mut receiver: causeway_link::Receiver) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || while receiver.recv().is_ok() {})
}

#[test]
fn transfers_are_taken_where_they_lie_and_their_memory_goes_round() {
    let Pair { client, worker, worker_receiver } = pair(SCARCE_SHM);
    let (worker_events, reports) = events_with(true, true);
    worker.start(worker_events);
    client.link.start(events(false).0);
    let receiving = receive_all(worker_receiver);
    let longest = Layout::halves(SCARCE).upload_slots as usize / 2 * SLOT;
    for number in 0..40 {
        let length = [1, SLOT, SLOT + 1, longest][number % 4];
        client.link.send_transfer(number as u64, &pattern(length, number as u64)).unwrap();
        let (transfer, lease) = reports.leases.recv().unwrap();
        let mut bytes = vec![0; lease.len()];
        // SAFETY: the vector has the lease's bytes.
        unsafe { lease.empty_into(bytes.as_mut_ptr(), 1) };
        assert!(transfer == number as u64 && bytes == pattern(length, number as u64));
    }
    // What does not fit into a piece comes in several, and so not in place.
    client.link.send_transfer(99, &pattern(longest + 1, 9)).unwrap();
    let (transfer, bytes) = reports.arrived.recv().unwrap();
    assert!(transfer == 99 && bytes == pattern(longest + 1, 9));
    client.link.close();
    receiving.join().unwrap();
}

#[test]
fn pieces_filled_here_arrive_at_the_peers_destination() {
    let Pair { client, worker, worker_receiver: _receiver } = pair(SHM);
    worker.start(events(true).0);
    client.link.start(events(false).0);
    let receiving = receive_all(client.receiver);
    let [downloads, _] = worker.regions().unwrap();
    for number in 1..14 {
        let length = 300_000 * number;
        let (done, ended) = unbounded();
        let destination = Destination::buffer(vec![0; length], move |buffer| done.send(buffer).unwrap());
        client.link.expect_transfer(number as u64, destination).unwrap();
        let mut piece = worker.piece(length).expect("there is room");
        assert!(downloads.holds(piece.as_ptr(), piece.len()));
        // SAFETY: the pattern has the piece's bytes.
        unsafe { piece.fill(pattern(length, number as u64).as_ptr(), 1) };
        worker.send_piece(number as u64, piece).unwrap();
        assert!(ended.recv().unwrap().unwrap() == pattern(length, number as u64));
    }
    assert!(worker.piece(1 << 30).is_none(), "no piece is that long");
    let held: Vec<_> = core::iter::from_fn(|| worker.piece(1 << 20)).collect();
    assert!(held.len() == 8 && worker.piece(1).is_none());
    drop(held);
    assert!(worker.piece(1).is_some());
    client.link.close();
    receiving.join().unwrap();
}

#[test]
fn a_command_sent_after_a_transfer_finds_it_there() {
    let Pair { client, worker, mut worker_receiver } = pair(SHM);
    let (worker_events, reports) = events_with(true, true);
    worker.start(worker_events);
    client.link.start(events(false).0);
    let sending = std::thread::spawn(move || {
        for number in 0..2_000 {
            client.link.send_transfer(number, &[7; 100]).unwrap();
            client.link.append(|out| ClientMessage::HostDone { token: number }.encode(out)).unwrap();
            if number % 7 == 0 {
                client.link.flush().unwrap();
            }
        }
        client.link.send(|out| ClientMessage::Goodbye.encode(out)).unwrap();
        client
    });
    let mut settled = 0;
    'session: loop {
        let body = worker_receiver.recv().unwrap();
        for message in causeway_wire::message::Messages::<ClientMessage<'_>>::new(body) {
            let ClientMessage::HostDone { token } = message.unwrap() else { break 'session };
            while settled <= token {
                // Another thread may be delivering it right now, but it has been taken.
                let (number, _lease) = reports.leases.recv_timeout(Duration::from_secs(20)).unwrap();
                settled = settled.max(number + 1);
            }
        }
    }
    assert_eq!(settled, 2_000);
    sending.join().unwrap();
}

#[test]
fn transfers_overtake_commands_that_take_their_time() {
    let Pair { client, worker, mut worker_receiver } = pair(SHM);
    let (worker_events, reports) = events_with(true, true);
    worker.start(worker_events);
    client.link.start(events(false).0);
    client.link.send(|out| ClientMessage::HostDone { token: 1 }.encode(out)).unwrap();
    worker_receiver.recv().unwrap();
    // The receiving thread is busy with that message from here on.
    for number in 0..5 {
        client.link.send_transfer(number, &[1]).unwrap();
        assert_eq!(reports.leases.recv_timeout(Duration::from_secs(20)).unwrap().0, number);
    }
}

#[test]
fn a_peer_that_takes_nothing_is_waited_for_with_bounded_memory() {
    let Pair { client, worker, worker_receiver } = pair(SCARCE_SHM);
    client.link.start(events(false).0);
    let half = Layout::halves(SCARCE).upload_slots as usize * SLOT;
    let sent = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| {
            for number in 0..64 {
                client.link.send_transfer(number, &pattern(SLOT, number)).unwrap();
                sent.fetch_add(SLOT, Ordering::SeqCst);
            }
        });
        let commands = scope.spawn(|| {
            let mut bytes = 0;
            // More than the ring and the batches take.
            while bytes < 4 * RING {
                client.link.append(|out| ClientMessage::HostDone { token: 1 }.encode(out)).unwrap();
                bytes += 9;
            }
        });
        wait_until("half of the transfers are sent", || sent.load(Ordering::SeqCst) >= half);
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(sent.load(Ordering::SeqCst), half, "the arena is full, so nothing more may have gone");
        assert!(client.link.counters().message_bytes_sent as usize <= RING + (128 << 10));
        assert!(!commands.is_finished() && !sending.is_finished());
        // When the peer goes on, everything arrives.
        let (worker_events, reports) = events(true);
        worker.start(worker_events);
        let receiving = receive_all(worker_receiver);
        for _ in 0..64 {
            let (number, bytes) = reports.arrived.recv().unwrap();
            assert!(bytes == pattern(SLOT, number));
        }
        sending.join().unwrap();
        commands.join().unwrap();
        client.link.close();
        receiving.join().unwrap();
    });
}

#[test]
fn a_peer_that_goes_in_the_middle_of_a_copy_frees_whoever_waits_for_it() {
    for ends in [true, false] {
        let Pair { client, worker, worker_receiver } = pair(SCARCE_SHM);
        let (client_events, reports) = events(false);
        client.link.start(client_events);
        let link = client.link.clone();
        let sending = std::thread::spawn(move || link.send_transfer(1, &pattern(8 << 20, 1)));
        wait_until("the copy begins", || client.link.counters().transfer_bytes_sent > 0);
        if ends {
            worker.close();
        }
        drop(worker_receiver);
        assert!(matches!(sending.join().unwrap(), Err(LinkError::PeerDisconnected)));
        assert!(matches!(reports.lost.recv().unwrap(), LinkError::PeerDisconnected));
    }
}

#[test]
fn descriptors_arrive_under_their_numbers_before_and_after_the_start() {
    let Pair { client, worker, worker_receiver: _receiver } = pair(SHM);
    client.link.start(events(false).0);
    let memory = SealedMemory::new("test", 12_345).unwrap();
    client.link.send_descriptor(1, &memory).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    let (worker_events, reports) = events(true);
    worker.start(worker_events);
    client.link.send_descriptor(2, &memory).unwrap();
    for expected in [1, 2] {
        let (number, arrived) = reports.descriptors.recv().unwrap();
        assert_eq!((number, arrived.unwrap().bytes()), (expected, 12_345));
    }
    let Pair { client, .. } = pair(Joint::Tcp { lanes: 1, protection: Protection::Unprotected });
    let refused = client.link.send_descriptor(1, &memory);
    assert!(matches!(refused, Err(LinkError::NotWithThisTransport(TransportKind::Tcp))));
    assert!(client.link.piece(1).is_none() && client.link.regions().is_none());
}

const TIMEOUT: Duration = Duration::from_secs(5);

/// A server that goes as far as its part of the joining says and no further; afterwards it serves over TCP.
fn half_hearted(
    join: impl FnOnce(causeway_connection::channel::Connection) + Send + 'static,
) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let own = version();
        let caller = authenticate(
            listener.accept().unwrap().0,
            &common::door(None, &own, TIMEOUT),
            &common::NoSecrets,
        )
        .unwrap();
        let Request::Session { version, hello } = caller.request else { panic!("it wants a session") };
        let (local, name) = local_socket();
        let welcome = Response::Welcome(Welcome {
            version,
            session: SessionId([1; 16]),
            token: LaneToken([9; 32]),
            lanes: hello.lanes,
            release: "0.1.0".into(),
            locality: Locality { boot_id: String::new(), sockets: vec![format!("@{name}")] },
            abilities: Abilities::ours(&COMMANDS),
            snapshot: Vec::new(),
        });
        let mut connection = caller.connection;
        connection.send_handshake(|out| welcome.encode(out)).unwrap();
        let timeouts = HandshakeTimeouts { proof: TIMEOUT, request: TIMEOUT };
        join(
            authenticate_local(local.accept().unwrap().0, false, |_, _| None, &own, timeouts)
                .unwrap()
                .connection,
        );
        let (_link, mut receiver) = Link::accepted(connection).unwrap();
        while receiver.recv().is_ok() {}
    });
    address
}

#[test]
fn where_memory_cannot_be_shared_the_session_goes_on_over_tcp_and_says_why() {
    type Join = Box<dyn FnOnce(causeway_connection::channel::Connection) + Send>;
    let refuses = |text: &'static str| -> Join {
        Box::new(move |mut beside| {
            beside.send_handshake(|out| Response::Refused { text: text.into() }.encode(out)).unwrap();
        })
    };
    let grants = |bytes: &'static [u8]| -> Join {
        Box::new(move |mut beside| {
            let slots = Layout::halves(SCARCE).upload_slots;
            let memory = SharedMemory { upload_slots: slots, download_slots: slots };
            beside.send_handshake(|out| Response::SharedMemory(memory).encode(out)).unwrap();
            (&**beside.socket()).write_all(bytes).unwrap();
        })
    };
    // The message that the memory comes with, but no descriptor.
    let no_descriptor = b"CwSd\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    for choice in [TransportChoice::Auto, TransportChoice::Only(TransportKind::Shm)] {
        for (join, reason) in [
            (refuses("no memory today"), "no memory today"),
            (grants(no_descriptor), "no descriptor came"),
            (grants(b"nonsense, 24 bytes of it"), "malformed message"),
            (grants(b""), "sent no memory"),
        ] {
            let address = half_hearted(join);
            let options = ConnectOptions { via: choice, ..ConnectOptions::default() };
            let connected = connect(
                &target(address, Protection::Unprotected, None),
                describe_process(COMMANDS, Vec::new()),
                &options,
            );
            match (choice, connected) {
                (TransportChoice::Auto, Ok(session)) => {
                    assert_eq!(session.link.kind(), TransportKind::Tcp);
                    let told = &session.reasons[0];
                    assert!(told.kind == TransportKind::Shm && told.text.contains(reason), "{told:?}");
                    session.link.send(|out| ClientMessage::Goodbye.encode(out)).unwrap();
                }
                (TransportChoice::Only(_), Err(error @ ConnectError::Via { .. })) => {
                    assert!(error.to_string().contains(reason), "{error}");
                }
                (_, other) => panic!("{choice}: {other:?}"),
            }
        }
    }
}
