//! Peers that end: all who listen hear of it at once, and a receiver whose sender on another host is gone in
//! the middle of a message, or says what makes no sense there, gets an error.

use std::ffi::OsString;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use causeway_comm::board::BoardLocations;
use causeway_comm::bootstrap::{self, Connection};
use causeway_comm::matching::{Descriptor, Source};
use causeway_comm::settings::Settings;
use causeway_comm::tracer::{Operation, Traffic};
use causeway_comm::{Board, Identity, Job, World};
use causeway_config::Environment;

/// The longest that a rank's end may take to be heard.
const LIMIT: Duration = Duration::from_secs(30);

#[test]
fn those_that_listen_hear_of_each_rank_that_goes() {
    let nonce = Job::random_nonce().unwrap();
    let set = |asked: &str| (asked == "CAUSEWAY_CACHE_DIR").then(OsString::new);
    let settings = || Settings::read(Environment::of(&set)).unwrap();
    let mut worlds: Vec<_> = (0..4).map(|rank| World::join(nonce, rank, 4, settings()).unwrap()).collect();
    for (one, other) in worlds.iter().flat_map(|one| (0..4).map(move |other| (one, other))) {
        assert!(one.is_local(other), "rank {} reaches rank {other}", one.rank());
    }
    let (presence, (tells, heard), (tells_too, heard_too)) = (worlds[0].presence(), channel(), channel());
    let there = presence.clone();
    // It is notified when nobody asks the one that has gone for anything any more.
    let _listener = worlds[0].listen(move |peer| tells.send((peer, there.has(peer))).unwrap());
    let other = worlds[0].listen(move |peer| tells_too.send(peer).unwrap());

    drop(worlds.remove(2));
    assert_eq!(heard.recv_timeout(LIMIT), Ok((2, false)));
    assert_eq!(heard_too.recv_timeout(LIMIT), Ok(2));
    assert!(presence.has(1) && presence.has(3));

    drop(other);
    drop(worlds.pop());
    assert_eq!(heard.recv_timeout(LIMIT), Ok((3, false)));
    // What it would have been told by has gone with it.
    assert_eq!(heard_too.recv_timeout(LIMIT), Err(RecvTimeoutError::Disconnected));
    assert!(presence.has(1));
}

/// Bytes of a message, and of the first piece in which it comes.
const BYTES: usize = 3 << 20;
const PIECE: u32 = 512 << 10;

/// A rank that has nothing but `tcp`.
fn receiver(nonce: [u8; 16]) -> World {
    let set = |asked: &str| match asked {
        "CAUSEWAY_COMM_CHANNELS" => Some(OsString::from("tcp")),
        "CAUSEWAY_COMM_HOSTS" => Some(OsString::from("127.0.0.1")),
        "CAUSEWAY_CACHE_DIR" => Some(OsString::new()),
        _ => None,
    };
    World::join(nonce, 1, 2, Settings::read(Environment::of(&set)).unwrap()).unwrap()
}

fn message(kind: u8, slot: u16, bytes: u32) -> [u8; 16] {
    let mut message = [0; 16];
    message[0] = kind;
    message[2..4].copy_from_slice(&slot.to_le_bytes());
    message[4..8].copy_from_slice(&bytes.to_le_bytes());
    message
}

/// The words of a failed receive, to which a sender has said what it says and then has gone.
fn said_when(says: impl FnOnce(&Connection) + Send) -> String {
    let nonce = Job::random_nonce().unwrap();
    let world = receiver(nonce);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let job = Job::new(nonce, 2).unwrap();
            let folder = tempfile::tempdir().unwrap();
            let locations = BoardLocations { folders: vec![folder.path().to_owned()], system_v: false };
            let identity = Identity::of_this_process(None).unwrap();
            let board = Board::join(&job, 0, 0, identity, &locations).unwrap();
            let hosts = ["127.0.0.1".to_owned()];
            let sender = bootstrap::connect_over_network(&job, board.slot(), 1, &hosts).unwrap();
            // It has no words of offers in memory that both share.
            sender.send(&message(14, 0, 0), None).unwrap();
            assert_eq!(sender.receive().unwrap().unwrap().0[0], 2, "the payload is asked for");
            says(&sender);
        });
        let memory = Source { buffer: 1, ..Source::default() };
        let (word, traffic) = (None, Traffic::Latency);
        let word = Descriptor { from: 0, to: 1, operation: 1, bytes: BYTES as u64, memory, word, traffic };
        let mut into = vec![0_u8; BYTES];
        // SAFETY: so many bytes are this function's until the call returns.
        let came =
            unsafe { world.fetch(&word, into.as_mut_ptr() as u64, false, BYTES as u64, Operation::Blocking) };
        came.unwrap_err().to_string()
    })
}

#[test]
fn a_sender_that_ends_within_a_piece_is_an_error_that_names_it() {
    let said = said_when(|sender| {
        sender.send(&message(4, 0, PIECE), None).unwrap();
        sender.send_bytes(&[7; 100_000]).unwrap();
    });
    assert!(said.contains("the connection to rank 0, which has ended"), "{said}");
}

#[test]
fn a_sender_that_ends_between_pieces_is_an_error_that_names_it() {
    let said = said_when(|sender| {
        for slot in 0..2 {
            sender.send(&message(4, slot, PIECE), None).unwrap();
            sender.send_bytes(&vec![7; PIECE as usize]).unwrap();
        }
    });
    assert!(said.contains("the connection to rank 0, which has ended"), "{said}");
}

#[test]
fn a_piece_that_is_not_the_next_one_is_not_taken() {
    let said = said_when(|sender| {
        sender.send(&message(4, 1, PIECE), None).unwrap();
        // It waits for the receiver to give up.
        let _ = sender.receive();
    });
    assert!(said.contains("another piece than the next"), "{said}");
}
