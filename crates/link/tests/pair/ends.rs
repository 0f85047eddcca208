//! End of a link, and its notification.

use std::time::{Duration, Instant};

use causeway_link::{Destination, LinkError, TransferError};
use causeway_wire::codec::Encode as _;
use causeway_wire::message::ClientMessage;
use crossbeam_channel::unbounded;

use crate::commands::{command, receive_commands};
use crate::common::{ALL, Joint, Pair, events, pair};

#[test]
fn a_lost_peer_fails_transfers_and_is_told_once() {
    for joint in ALL {
        let Pair { mut client, worker, worker_receiver } = pair(joint);
        let (client_events, reports) = events(false);
        client.link.start(client_events);
        worker.start(events(true).0);
        let (done, ended) = unbounded();
        let destination = Destination::buffer(vec![0; 100], move |buffer| done.send(buffer).unwrap());
        client.link.expect_transfer(1, destination).unwrap();
        client.link.send_transfer(2, &[0; 100]).unwrap();
        drop(worker_receiver);
        assert!(matches!(client.receiver.recv(), Err(LinkError::PeerDisconnected)));
        assert!(matches!(ended.recv().unwrap(), Err(TransferError::Link(LinkError::PeerDisconnected))));
        assert!(matches!(reports.lost.recv().unwrap(), LinkError::PeerDisconnected));
        assert!(client.link.is_lost());
        assert!(matches!(client.link.send(command(1, 0, &[])), Err(LinkError::PeerDisconnected)));
        assert!(client.link.send_transfer(3, &[0; 100]).is_err());
        let late = Destination::buffer(Vec::new(), |_| panic!("it was refused"));
        assert!(client.link.expect_transfer(4, late).is_err());
        std::thread::sleep(Duration::from_millis(20));
        assert!(reports.lost.is_empty());
    }
}

#[test]
fn a_loss_before_the_start_is_told_at_the_start() {
    for joint in ALL {
        let Pair { mut client, worker_receiver, .. } = pair(joint);
        drop(worker_receiver);
        assert!(client.receiver.recv().is_err());
        let (client_events, reports) = events(false);
        client.link.start(client_events);
        assert!(matches!(reports.lost.recv().unwrap(), LinkError::PeerDisconnected));
    }
}

#[test]
fn closing_sends_the_last_words_and_tells_only_the_peer() {
    ALL.into_iter().for_each(closing_sends_the_last_words);
}

pub fn closing_sends_the_last_words(joint: Joint) {
    let Pair { mut client, worker, mut worker_receiver } = pair(joint);
    let (client_events, client_reports) = events(false);
    let (worker_events, worker_reports) = events(true);
    client.link.start(client_events);
    worker.start(worker_events);
    client.link.append(command(1, 5, b"last")).unwrap();
    client.link.append(|out| ClientMessage::Goodbye.encode(out)).unwrap();
    client.link.close();
    assert_eq!(receive_commands(&mut worker_receiver), [(5, 1)]);
    assert!(matches!(worker_receiver.recv(), Err(LinkError::PeerDisconnected)));
    assert!(matches!(worker_reports.lost.recv().unwrap(), LinkError::PeerDisconnected));
    assert!(matches!(client.receiver.recv(), Err(LinkError::Closed)));
    assert!(client_reports.lost.is_empty());
}

#[test]
fn a_blocked_sender_is_freed_when_the_peer_goes() {
    ALL.into_iter().for_each(a_blocked_sender_is_freed);
}

pub fn a_blocked_sender_is_freed(joint: Joint) {
    let Pair { client, worker, worker_receiver } = pair(joint);
    client.link.start(events(false).0);
    worker.start(events(true).0);
    let link = client.link.clone();
    let sender = std::thread::spawn(move || {
        // Nobody receives, so the kernel's buffers fill up and this blocks.
        while link.append(command(0, 0, &[0; 50_000])).is_ok() {}
    });
    // It blocks earlier where less may be under way.
    let begun = Instant::now();
    while client.link.counters().frames_sent < 10 && begun.elapsed() < Duration::from_secs(1) {
        std::thread::yield_now();
    }
    drop(worker_receiver);
    sender.join().unwrap();
}
