//! What a sender answers to a peer that says nonsense about its card.

use std::ffi::OsString;
use std::time::Duration;

use causeway_comm::board::BoardLocations;
use causeway_comm::bootstrap::{BootstrapListener, Connection};
use causeway_comm::settings::Settings;
use causeway_comm::{Board, Identity, Job, World};
use causeway_config::Environment;

/// `Join`, `Fetch` by loopback, and what a sender says that has no such card or message.
const JOIN: u8 = 15;
const FETCH: u8 = 2;
const REFUSED: u8 = 13;

/// A rank that connects to this test, which is rank 1 and says something. Gives the answers until it has
/// nothing more to say.
fn answers(says: &[[u8; 16]]) -> Vec<[u8; 16]> {
    let nonce = Job::random_nonce().unwrap();
    let job = Job::new(nonce, 2).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let locations = BoardLocations { folders: vec![folder.path().to_owned()], system_v: false };
    let board = Board::join(&job, 1, 0, Identity::of_this_process(None).unwrap(), &locations).unwrap();
    let mut listener = BootstrapListener::open(&job, &board).unwrap();
    let set = |asked: &str| match asked {
        "CAUSEWAY_SOCKET_DIR" => Some(OsString::from(folder.path())),
        "CAUSEWAY_CACHE_DIR" => Some(OsString::new()),
        _ => None,
    };
    std::thread::scope(|scope| {
        let coming = scope.spawn(|| listener.arrival().unwrap().unwrap());
        let world = World::join(nonce, 0, 2, Settings::read(Environment::of(&set)).unwrap()).unwrap();
        while !world.is_reachable(1) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let connection: Connection = coming.join().unwrap();
        connection.set_timeout(Some(Duration::from_millis(500))).unwrap();
        assert_eq!(connection.receive().unwrap().unwrap().0[0], 14, "the words come first");
        for part in says {
            connection.send(part, None).unwrap();
        }
        let mut heard = Vec::new();
        while let Ok(Some((message, _))) = connection.receive() {
            heard.push(message);
        }
        // The rank is as it was for others.
        assert_eq!(world.rank(), 0);
        heard
    })
}

fn message(kind: u8, small: u8) -> [u8; 16] {
    let mut message = [0; 16];
    message[..2].copy_from_slice(&[kind, small]);
    message
}

#[test]
fn an_end_that_cannot_be_ends_the_connection() {
    assert_eq!(answers(&[message(JOIN, 0), [0xff; 16], [0xff; 16], [0xff; 16], [0xff; 16]]), [[0; 16]; 0]);
}

#[test]
fn a_fetch_before_the_cards_are_joined_is_refused() {
    let loopback = 5;
    let heard = answers(&[message(FETCH, loopback), message(FETCH, loopback)]);
    assert_eq!(heard.iter().map(|message| message[0]).collect::<Vec<_>>(), [REFUSED, REFUSED]);
}

#[test]
fn who_has_no_card_says_so() {
    let mut devices = std::fs::read_dir("/sys/class/infiniband").into_iter().flatten();
    if devices.next().is_some() {
        eprintln!("not tested: there is an RDMA device");
        return;
    }
    let mut first = [0; 16];
    // A queue pair, its first packet, and half of a GID.
    first[0] = 7;
    first[4] = 8;
    first[8..].fill(1);
    let mut second = [0; 16];
    second[..8].fill(1);
    // An MTU of 1024 bytes, and 16 reads.
    second[10..12].copy_from_slice(&[3, 16]);
    assert_eq!(answers(&[message(JOIN, 0), first, second, [0; 16], [0; 16]]), [message(REFUSED, 4)]);
}
