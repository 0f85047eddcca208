//! Lanes that die in the middle of transfers. Every connection goes through a relay that cuts it, with
//! everything that is on its way, once it has carried so many bytes.

mod common;

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use causeway_access::Key;
use causeway_link::{
    ConnectOptions, Destination, LinkError, TransferError, TransferOptions, connect, describe_process,
};
use causeway_wire::handshake::Protection;
use common::{COMMANDS, Pair, events, listen, pattern, target, wait_until};
use crossbeam_channel::unbounded;

/// How many bytes each lane carries to the server and back before it is cut.
type Limits = &'static [(usize, usize)];

const FOREVER: usize = usize::MAX;

/// Relays connections to `server`: the first is the command connection, the others are lanes.
fn relay(server: SocketAddr, limits: Limits) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for (number, client) in listener.incoming().enumerate() {
            let client = Arc::new(client.unwrap());
            let Ok(server) = TcpStream::connect(server) else { return };
            let server = Arc::new(server);
            let lane = number.checked_sub(1).and_then(|lane| limits.get(lane).copied());
            let (up, down) = lane.unwrap_or((FOREVER, FOREVER));
            for (from, to, limit) in [(&client, &server, up), (&server, &client, down)] {
                let (from, to) = (Arc::clone(from), Arc::clone(to));
                std::thread::spawn(move || forward(&from, &to, limit));
            }
        }
    });
    address
}

fn forward(mut from: &TcpStream, mut to: &TcpStream, mut limit: usize) {
    let mut bytes = vec![0; 64 << 10];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        let count = count.min(limit);
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
        limit -= count;
        if limit == 0 {
            break;
        }
    }
    for stream in [from, to] {
        // An error says that the other direction has ended already.
        let _ = stream.shutdown(Shutdown::Both);
    }
}

fn relayed_pair(limits: Limits, protection: Protection) -> Pair {
    let key = protection.needs_key().then(Key::generate);
    let (server, sessions, _) = listen(key.clone());
    let mut hello = describe_process(COMMANDS, Vec::new());
    hello.lanes = limits.len() as u32;
    let through = relay(server, limits);
    let client =
        connect(&target(through, protection, key.as_ref()), hello, &ConnectOptions::default()).unwrap();
    let (worker, worker_receiver) = sessions.recv().unwrap();
    Pair { client, worker, worker_receiver }
}

const M: usize = 1 << 20;

/// Copies both ways at once in several flows, some waited for and some posted.
fn every_transfer_arrives(limits: Limits, protection: Protection) {
    let Pair { client, worker, worker_receiver: _receiver } = relayed_pair(limits, protection);
    let (worker_events, worker_reports) = events(true);
    let (client_events, client_reports) = events(false);
    worker.start(worker_events);
    client.link.start(client_events);
    let lengths = [9 * M + 3, 100, 5 * M, 12 * M, 300_000, 0, 8 * M];
    let bytes: Vec<_> = (0_u64..).zip(lengths).map(|(number, length)| pattern(length, number)).collect();
    let (back, came_back) = unbounded();
    for (number, length) in (0..).zip(lengths) {
        let back = back.clone();
        let destination =
            Destination::buffer(vec![0; length], move |buffer| back.send((number, buffer)).unwrap());
        client.link.expect_transfer(number, destination).unwrap();
    }
    let kept = Arc::new(());
    std::thread::scope(|scope| {
        for (number, bytes) in (0..).zip(&bytes) {
            let (link, worker, kept) = (&client.link, &worker, &kept);
            let options = TransferOptions {
                flow: number % 3,
                lanes: 3,
                steady: number % 4 < 2,
                ..TransferOptions::default()
            };
            scope.spawn(move || {
                // SAFETY: `bytes` outlives the test, which waits for the guards.
                let post = |link: &causeway_link::Link| unsafe {
                    link.post_transfer(number, bytes.as_ptr(), bytes.len(), options, Arc::clone(kept))
                };
                // SAFETY: `bytes` outlives what is begun.
                let begin = |link: &causeway_link::Link| unsafe {
                    link.begin_transfer(number, bytes.as_ptr(), bytes.len(), options)
                };
                let (waited, posted) = if number % 2 == 0 { (link, worker) } else { (worker, link) };
                post(posted).unwrap();
                let sending = begin(waited).unwrap();
                sending.wait().unwrap();
                // What has left may still be lost: it is kept until all has come.
                std::mem::forget(sending);
            });
        }
    });
    for _ in lengths {
        let (number, buffer) = came_back.recv_timeout(Duration::from_secs(60)).unwrap();
        assert!(buffer.unwrap() == bytes[number as usize], "transfer {number} to the client");
        let (number, buffer) = worker_reports.arrived.recv_timeout(Duration::from_secs(60)).unwrap();
        assert!(buffer == bytes[number as usize], "transfer {number} to the worker");
    }
    // The last acknowledgements let the posted memory go.
    wait_until("acknowledgements of all transfers", || Arc::strong_count(&kept) == 1);
    assert!(client_reports.lost.is_empty() && worker_reports.lost.is_empty());
}

#[test]
fn nothing_is_lost_with_one_lane_of_three() {
    every_transfer_arrives(
        &[(FOREVER, FOREVER), (3 * M + 17, FOREVER), (FOREVER, FOREVER)],
        Protection::Unprotected,
    );
    every_transfer_arrives(
        &[(FOREVER, FOREVER), (FOREVER, 2 * M + 1), (FOREVER, FOREVER)],
        Protection::Unprotected,
    );
}

#[test]
fn nothing_is_lost_with_all_lanes_but_one() {
    every_transfer_arrives(
        &[(2 * M, FOREVER), (FOREVER, M + 100), (FOREVER, FOREVER), (500_000, 70_000)],
        Protection::Authenticated,
    );
}

#[test]
fn nothing_is_lost_with_encrypted_lanes_either() {
    every_transfer_arrives(&[(2 * M, FOREVER), (FOREVER, FOREVER), (FOREVER, 3 * M)], Protection::Encrypted);
}

#[test]
fn a_link_without_lanes_is_lost() {
    for protection in [Protection::Unprotected, Protection::Authenticated, Protection::Encrypted] {
        let Pair { client, worker, worker_receiver: _receiver } =
            relayed_pair(&[(M, FOREVER), (3 * M, FOREVER)], protection);
        let (client_events, client_reports) = events(false);
        client.link.start(client_events);
        let (worker_events, worker_reports) = events(true);
        worker.start(worker_events);
        assert!(client.link.send_transfer(1, &pattern(100 * M, 1)).is_err());
        assert!(client_reports.lost.recv_timeout(Duration::from_secs(60)).is_ok());
        assert!(worker_reports.lost.recv_timeout(Duration::from_secs(60)).is_ok());
        assert!(worker_reports.arrived.is_empty());
    }
}

#[test]
fn what_cannot_be_sent_again_is_lost_cleanly() {
    let Pair { client, worker, worker_receiver: _receiver } =
        relayed_pair(&[(FOREVER, 3 * M), (FOREVER, FOREVER)], Protection::Unprotected);
    let (client_events, client_reports) = events(false);
    client.link.start(client_events);
    worker.start(events(true).0);
    let (done, ended) = unbounded();
    for number in 0..40 {
        let done = done.clone();
        let destination = Destination::buffer(vec![0; M], move |buffer| done.send((number, buffer)).unwrap());
        client.link.expect_transfer(number, destination).unwrap();
    }
    // The memory of each is released as soon as its bytes have left; those that the lane takes with it are
    // gone.
    for number in 0..40 {
        let mut bytes = pattern(M, number);
        let sent = worker.send_transfer(number, &bytes);
        bytes.fill(0);
        if sent.is_err() {
            break;
        }
    }
    for _ in 0..40 {
        match ended.recv_timeout(Duration::from_secs(60)).unwrap() {
            (number, Ok(bytes)) => assert!(bytes == pattern(M, number)),
            (_, Err(TransferError::Link(error))) => {
                assert!(matches!(error, LinkError::PeerDisconnected | LinkError::Transport(_)), "{error}");
                assert!(client_reports.lost.recv_timeout(Duration::from_secs(60)).is_ok());
                return;
            }
            (_, Err(error)) => panic!("{error}"),
        }
    }
}
