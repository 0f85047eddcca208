//! Silent connections: something on the way keeps them open and forwards nothing any more. Every connection
//! goes through a relay that can be told to fall silent, in either direction.

mod common;

use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use causeway_connection::channel::Connection;
use causeway_connection::keepalive::KeepaliveTimeouts;
use causeway_link::{
    ConnectOptions, Destination, Link, LinkError, Receiver, TransferError, TransferOptions, connect,
    describe_process,
};
use causeway_wire::codec::Encode as _;
use causeway_wire::handshake::Protection;
use causeway_wire::message::{ClientMessage, Command};
use common::relay::Relay;
use common::{COMMANDS, Pair, events, listen, pattern, target};
use crossbeam_channel::unbounded;

/// How long anything here may take that must happen: a timeout is 3 s, and the machine may be busy.
const LIMIT: Duration = Duration::from_secs(60);

/// Longer than the timeouts.
const LONG: Duration = Duration::from_secs(7);

const LANES: u32 = 3;
const M: usize = 1 << 20;

/// Both ends of a session through a relay, with all lanes; the server waits so many seconds for a client.
fn relayed(client_timeout: u64) -> (Pair, Relay) {
    let (server, sessions, _) = listen(None);
    let mut hello = describe_process(COMMANDS, Vec::new());
    hello.lanes = LANES;
    let relay = Relay::default();
    let through = relay.start(server);
    let keepalive = KeepaliveTimeouts::of_seconds(3, 3);
    let options = ConnectOptions { keepalive, lanes_by_distance: false, ..ConnectOptions::default() };
    let client = connect(&target(through, Protection::Unprotected, None), hello, &options).unwrap();
    let (worker, worker_receiver) = sessions.recv().unwrap();
    worker.keep_alive(KeepaliveTimeouts::of_seconds(3, client_timeout), true);
    (Pair { client, worker, worker_receiver }, relay)
}

fn command(out: &mut Vec<u8>, length: usize) {
    let payload = vec![0; length];
    ClientMessage::Command(Command { call: 0, thread: 0, context: 0, opcode: 1, payload: &payload })
        .encode(out);
}

/// Receives until the link ends.
fn receive_all(mut receiver: Receiver) {
    std::thread::spawn(move || while receiver.recv().is_ok() {});
}

/// Waits until a transfer has gone over the lanes, each of them.
fn wait_for_lanes(from: &Link, relay: &Relay) {
    let begun = Instant::now();
    while relay.connections() < 1 + LANES as usize {
        assert!(begun.elapsed() < LIMIT, "the lanes do not come");
        std::thread::sleep(Duration::from_millis(10));
    }
    from.send_transfer(1 << 40, &vec![0; 4 * M]).unwrap();
}

#[test]
fn both_ends_give_a_link_up_on_which_nothing_comes_whatever_they_are_doing() {
    for directions in [&[0, 1][..], &[0], &[1]] {
        let (Pair { client, worker, worker_receiver }, relay) = relayed(3);
        let (client_events, client_reports) = events(false);
        let (worker_events, worker_reports) = events(true);
        worker.start(worker_events);
        client.link.start(client_events);
        receive_all(client.receiver);
        receive_all(worker_receiver);
        wait_for_lanes(&client.link, &relay);
        let (done, ended) = unbounded();
        let destination = Destination::buffer(vec![0; 100], move |buffer| done.send(buffer).unwrap());
        client.link.expect_transfer(1, destination).unwrap();
        relay.silence(.., directions);
        // One thread sends commands and one a transfer, until each is blocked; a third one waits.
        let blocked = [client.link.clone(), client.link.clone()];
        let [sends, uploads] = blocked;
        let flood = std::thread::spawn(move || while sends.append(|out| command(out, 50_000)).is_ok() {});
        let upload = std::thread::spawn(move || {
            let bytes = vec![0; 64 * M];
            (2..).find(|number| uploads.send_transfer(*number, &bytes).is_err());
        });
        let lost = client_reports.lost.recv_timeout(LIMIT).unwrap();
        // The end that hears of nothing says so; the other one may hear of its end.
        let names_silence = |cause: &LinkError| matches!(cause, LinkError::KeepaliveTimeout { seconds: 3.. });
        assert!(
            names_silence(&lost) == directions.contains(&1) || matches!(lost, LinkError::PeerDisconnected),
            "{directions:?}: {lost}"
        );
        assert!(matches!(ended.recv_timeout(LIMIT).unwrap(), Err(TransferError::Link(_))));
        flood.join().unwrap();
        upload.join().unwrap();
        let lost = worker_reports.lost.recv_timeout(LIMIT).unwrap();
        assert!(
            names_silence(&lost) || matches!(lost, LinkError::PeerDisconnected),
            "{directions:?}: {lost}"
        );
    }
}

#[test]
fn a_lane_that_falls_silent_is_given_up_and_its_bytes_go_by_others() {
    for directions in [&[0, 1][..], &[0], &[1]] {
        let (Pair { client, worker, worker_receiver }, relay) = relayed(1000);
        let (client_events, client_reports) = events(false);
        let (worker_events, worker_reports) = events(true);
        worker.start(worker_events);
        client.link.start(client_events);
        receive_all(client.receiver);
        receive_all(worker_receiver);
        wait_for_lanes(&client.link, &relay);
        worker_reports.arrived.recv_timeout(LIMIT).unwrap();
        relay.silence(2..3, directions);
        let bytes: Vec<_> = (0..6).map(|number| pattern(8 * M + number, number as u64)).collect();
        let (back, came_back) = unbounded();
        std::thread::scope(|scope| {
            for (number, bytes) in (0_u64..).zip(&bytes) {
                let (back, options) = (back.clone(), TransferOptions { flow: number, ..Default::default() });
                let destination = Destination::buffer(vec![0; bytes.len()], move |buffer| {
                    back.send((number, buffer)).unwrap();
                });
                client.link.expect_transfer(number, destination).unwrap();
                for link in [&client.link, &worker] {
                    scope.spawn(move || {
                        // SAFETY: `bytes` outlives what is begun.
                        let sending =
                            unsafe { link.begin_transfer(number, bytes.as_ptr(), bytes.len(), options) };
                        let sending = sending.unwrap();
                        sending.wait().unwrap();
                        // What has left may still be lost: it is kept until all has come.
                        std::mem::forget(sending);
                    });
                }
            }
            for _ in &bytes {
                let (number, buffer) = came_back.recv_timeout(LIMIT).unwrap();
                assert!(buffer.unwrap() == bytes[number as usize], "{directions:?}: {number} to the client");
                let (number, buffer) = worker_reports.arrived.recv_timeout(LIMIT).unwrap();
                assert!(buffer == bytes[number as usize], "{directions:?}: {number} to the worker");
            }
        });
        assert!(client_reports.lost.is_empty() && worker_reports.lost.is_empty());
    }
}

#[test]
fn a_link_whose_commands_alone_fall_silent_is_given_up() {
    let (Pair { client, worker, worker_receiver }, relay) = relayed(1000);
    let (client_events, client_reports) = events(false);
    let (worker_events, worker_reports) = events(true);
    worker.start(worker_events);
    client.link.start(client_events);
    receive_all(client.receiver);
    receive_all(worker_receiver);
    wait_for_lanes(&client.link, &relay);
    relay.silence(0..1, &[0, 1]);
    let lost = [&client_reports, &worker_reports].map(|reports| reports.lost.recv_timeout(LIMIT).unwrap());
    // Whoever gives up first closes the lanes, and the other may hear of that before its own time is up.
    let is_told = |cause: &LinkError| cause.to_string().contains("connection for commands");
    assert!(lost.iter().any(is_told), "{lost:?}");
    assert!(
        lost.iter().all(|cause| is_told(cause) || matches!(cause, LinkError::PeerDisconnected)),
        "{lost:?}"
    );
}

#[test]
fn a_link_that_falls_silent_before_it_is_used_is_given_up() {
    let (Pair { client, worker, worker_receiver: _receiver }, relay) = relayed(3);
    relay.silence(.., &[0, 1]);
    let (client_events, client_reports) = events(false);
    let (worker_events, worker_reports) = events(true);
    worker.start(worker_events);
    client.link.start(client_events);
    for reports in [client_reports, worker_reports] {
        let lost = reports.lost.recv_timeout(LIMIT).unwrap();
        // No lane comes into being then, which may be found out first.
        assert!(!matches!(lost, LinkError::Closed), "{lost}");
    }
}

#[test]
fn neither_a_quiet_link_nor_one_whose_peer_reads_nothing_is_given_up() {
    let (Pair { client, worker, mut worker_receiver }, relay) = relayed(3);
    let (client_events, client_reports) = events(false);
    let (worker_events, worker_reports) = events(true);
    worker.start(worker_events);
    client.link.start(client_events);
    receive_all(client.receiver);
    wait_for_lanes(&client.link, &relay);
    let frames = client.link.counters().frames_sent;
    // As while a kernel runs: nobody has anything to say.
    std::thread::sleep(LONG);
    assert_eq!(client.link.counters().frames_sent, frames, "a keepalive is no message");
    // The worker is at a long command, while commands come until there is no room for more.
    let sends = client.link.clone();
    let flood =
        std::thread::spawn(move || (0..1000).all(|_| sends.append(|out| command(out, 50_000)).is_ok()));
    std::thread::sleep(LONG);
    assert!(client_reports.lost.is_empty() && worker_reports.lost.is_empty());
    let mut received = 0;
    while received < 1000 * 50_000 {
        received += worker_receiver.recv().unwrap().len();
    }
    assert!(flood.join().unwrap());
    assert!(client_reports.lost.is_empty() && worker_reports.lost.is_empty());
}

#[test]
fn a_peer_is_not_given_up_that_has_never_kept_alive_and_one_that_has_is() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let relay = Relay::default();
    let stream = TcpStream::connect(relay.start(listener.local_addr().unwrap())).unwrap();
    let mut ends = [stream, listener.accept().unwrap().0]
        .map(|stream| Link::accepted(Connection::new(stream, None)).unwrap())
        .into_iter();
    let ((own, own_receiver), (peer, peer_receiver)) = (ends.next().unwrap(), ends.next().unwrap());
    let (own_events, reports) = events(false);
    own.start(own_events);
    peer.start(events(true).0);
    receive_all(own_receiver);
    receive_all(peer_receiver);
    // The kernel has counted something.
    peer.send(|out| command(out, 10)).unwrap();
    own.keep_alive(KeepaliveTimeouts::of_seconds(3, 3), false);
    std::thread::sleep(LONG);
    assert!(reports.lost.is_empty(), "it may be an older release");
    peer.keep_alive(KeepaliveTimeouts::of_seconds(0, 0), false);
    std::thread::sleep(LONG);
    assert!(reports.lost.is_empty());
    relay.silence(.., &[0, 1]);
    let lost = reports.lost.recv_timeout(LIMIT).unwrap();
    assert!(matches!(lost, LinkError::KeepaliveTimeout { .. }), "{lost}");
}
