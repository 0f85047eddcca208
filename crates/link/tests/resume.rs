//! Resumption of a link whose connections are lost. Every connection goes through a relay that cuts it after
//! a number of bytes, or when it is told to.

mod common;

use std::time::{Duration, Instant};

use causeway_link::{
    ConnectOptions, Destination, Link, LinkError, Receiver, TransferOptions, connect, describe_process,
};
use causeway_wire::handshake::Protection;
use common::relay::Relay;
use common::{COMMANDS, Events, Pair, Reports, events, listen, pattern, target};
use crossbeam_channel::unbounded;
use std::sync::Arc;

/// How long anything here may take that must happen.
const LIMIT: Duration = Duration::from_secs(60);

const LANES: u32 = 2;
const K: usize = 1 << 10;

/// Both ends of a session through a relay that may be without a connection for so many seconds.
struct Session {
    client: Link,
    client_receiver: Receiver,
    worker: Link,
    worker_receiver: Receiver,
    client_reports: Reports,
    worker_reports: Reports,
    relay: Relay,
}

fn start(resume: u32, budgets: &[[u64; 2]], protection: Protection) -> Session {
    let key = protection.needs_key().then(causeway_access::Key::generate);
    let (server, sessions, _) = listen(key.clone());
    let mut hello = describe_process(COMMANDS, Vec::new());
    hello.lanes = LANES;
    hello.abilities = hello.abilities.resuming(resume);
    let relay = Relay::default();
    let through = relay.start(server);
    let options = ConnectOptions { lanes_by_distance: false, ..ConnectOptions::default() };
    // The handshake is not resumed: the budget is that of what follows.
    let client = connect(&target(through, protection, key.as_ref()), hello, &options).unwrap();
    relay.limit_first(budgets);
    let (worker, worker_receiver) = sessions.recv().unwrap();
    let pair = Pair { client, worker, worker_receiver };
    let (client_events, client_reports) = events(false);
    let (worker_events, worker_reports): (Arc<Events>, Reports) = events(true);
    pair.worker.start(worker_events);
    pair.client.link.start(client_events);
    assert!(pair.worker.is_resumable() == (resume > 0) && pair.client.link.is_resumable() == (resume > 0));
    Session {
        client: pair.client.link,
        client_receiver: pair.client.receiver,
        worker: pair.worker,
        worker_receiver: pair.worker_receiver,
        client_reports,
        worker_reports,
        relay,
    }
}

/// Receives numbers until the link ends, checks that they come in order and hands each on.
fn receive_numbers(mut receiver: Receiver, each: impl Fn(u64) + Send + 'static) {
    std::thread::spawn(move || {
        let mut next = 0;
        while let Ok(body) = receiver.recv() {
            for number in body.chunks_exact(8) {
                let number = u64::from_le_bytes(number.try_into().unwrap());
                assert_eq!(number, next, "numbers come once each, and in order");
                next += 1;
                each(number);
            }
        }
    });
}

/// Numbers go to the worker and back, and transfers each way; all of it comes once and in order.
fn exchange(session: Session, numbers: u64, transfers: &[usize]) {
    let Session { client, client_receiver, worker, worker_receiver, client_reports, worker_reports, relay } =
        session;
    let (came_back, back) = unbounded();
    receive_numbers(client_receiver, move |number| came_back.send(number).unwrap());
    let echo = worker.clone();
    receive_numbers(worker_receiver, move |number| {
        echo.send(|out| out.extend(number.to_le_bytes())).unwrap();
    });
    let (arrived, arrivals) = unbounded();
    std::thread::scope(|scope| {
        for (number, length) in (0_u64..).zip(transfers) {
            let arrived = arrived.clone();
            let destination = Destination::buffer(vec![0; *length], move |buffer| {
                arrived.send((number, buffer)).unwrap();
            });
            client.expect_transfer(number, destination).unwrap();
            for link in [&client, &worker] {
                scope.spawn(move || {
                    let mut bytes = pattern(*length, number);
                    let options = TransferOptions { flow: number, ..Default::default() };
                    // SAFETY: `bytes` outlives what is begun.
                    let sending =
                        unsafe { link.begin_transfer(number, bytes.as_ptr(), bytes.len(), options) };
                    let sending = sending.unwrap();
                    sending.wait().unwrap();
                    drop(sending);
                    // Memory that has been released may hold anything.
                    bytes.fill(0xee);
                });
            }
        }
        for number in 0..numbers {
            client.append(|out| out.extend(number.to_le_bytes())).unwrap();
            if number % 7 == 0 {
                client.flush().unwrap();
            }
        }
        client.flush().unwrap();
        for number in 0..numbers {
            assert_eq!(back.recv_timeout(LIMIT), Ok(number));
        }
        for _ in transfers {
            let (number, buffer) = arrivals.recv_timeout(LIMIT).unwrap();
            assert!(buffer.unwrap() == pattern(transfers[number as usize], number), "{number} to the client");
            let (number, buffer) = worker_reports.arrived.recv_timeout(LIMIT).unwrap();
            assert!(buffer == pattern(transfers[number as usize], number), "{number} to the worker");
        }
    });
    assert!(client_reports.lost.is_empty() && worker_reports.lost.is_empty());
    drop(relay);
}

#[test]
fn nothing_is_lost_or_doubled_wherever_the_connection_for_commands_is_cut() {
    for direction in 0..2 {
        for cut in (0..700).step_by(13).chain(600..630) {
            let mut budget = [u64::MAX; 2];
            budget[direction] = cut;
            exchange(start(60, &[budget], Protection::Unprotected), 60, &[]);
        }
    }
}

#[test]
fn transfers_go_on_where_all_connections_are_cut_again_and_again() {
    for (seed, protection) in
        [Protection::Unprotected, Protection::Authenticated, Protection::Encrypted].into_iter().enumerate()
    {
        let session = start(60, &[], protection);
        let relay = session.relay.clone();
        let cutter = std::thread::spawn(move || {
            for step in 0..12 {
                std::thread::sleep(Duration::from_millis(3 + (step * 7 + seed as u64 * 5) % 40));
                relay.cut();
            }
        });
        let lengths: Vec<usize> = (0..12).map(|number| (number * 331 + 1) * K).collect();
        exchange(session, 4000, &lengths);
        cutter.join().unwrap();
    }
}

#[test]
fn a_connection_that_comes_back_late_is_waited_for() {
    let session = start(60, &[], Protection::Unprotected);
    let relay = session.relay.clone();
    relay.close(true);
    relay.cut();
    let opener = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(2));
        relay.close(false);
    });
    exchange(session, 500, &[3 * K, 3000 * K]);
    opener.join().unwrap();
}

#[test]
fn a_link_without_a_connection_for_too_long_ends_with_the_reason() {
    let Session { client, client_receiver, worker, worker_receiver, client_reports, worker_reports, relay } =
        start(1, &[], Protection::Unprotected);
    receive_numbers(client_receiver, |_| ());
    receive_numbers(worker_receiver, |_| ());
    relay.close(true);
    relay.cut();
    let begun = Instant::now();
    for reports in [client_reports, worker_reports] {
        let lost = reports.lost.recv_timeout(LIMIT).unwrap();
        assert!(matches!(lost, LinkError::NotResumed { .. }), "{lost}");
    }
    assert!(begun.elapsed() >= Duration::from_millis(900), "the time that was agreed is waited");
    assert!(client.is_lost() && worker.is_lost());
    assert!(client.send(|out| out.push(0)).is_err());
}

#[test]
fn a_link_that_is_closed_is_not_waited_for() {
    let session = start(3600, &[], Protection::Unprotected);
    receive_numbers(session.client_receiver, |_| ());
    receive_numbers(session.worker_receiver, |_| ());
    session.client.close();
    let lost = session.worker_reports.lost.recv_timeout(LIMIT).unwrap();
    assert!(matches!(lost, LinkError::PeerDisconnected), "{lost}");
}

#[test]
fn whoever_did_not_ask_for_it_is_not_resumed() {
    let session = start(0, &[], Protection::Unprotected);
    receive_numbers(session.client_receiver, |_| ());
    receive_numbers(session.worker_receiver, |_| ());
    session.relay.cut();
    for reports in [session.client_reports, session.worker_reports] {
        let lost = reports.lost.recv_timeout(LIMIT).unwrap();
        // The connection may be cut while lanes are being opened, which is told by another text.
        assert!(matches!(lost, LinkError::PeerDisconnected | LinkError::Transport(_)), "{lost}");
    }
}

#[test]
fn the_peer_hears_of_a_close_though_the_connection_is_cut_meanwhile() {
    // The frame that says so is cut in two, or lost whole, or what the peer answers is.
    for (direction, cuts) in [&[0, 1, 12, 23, 24][..], &[0, 12]].into_iter().enumerate() {
        for cut in cuts {
            let session = start(60, &[], Protection::Unprotected);
            receive_numbers(session.client_receiver, |_| ());
            receive_numbers(session.worker_receiver, |_| ());
            let mut budget = [u64::MAX; 2];
            budget[direction] = *cut;
            session.relay.limit_first(&[budget]);
            session.client.close();
            let lost = session.worker_reports.lost.recv_timeout(LIMIT).unwrap();
            assert!(matches!(lost, LinkError::PeerDisconnected), "{lost}");
            assert!(session.client_reports.lost.is_empty(), "its owner has closed it");
        }
    }
}
