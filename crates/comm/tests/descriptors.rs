//! A process without a free file descriptor. Its limit holds for all threads, so that there is one test here.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use causeway_comm::board::BoardLocations;
use causeway_comm::bootstrap::BootstrapListener;
use causeway_comm::{Board, Identity, Job};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, connect, socket};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What a rank says first.
const CHALLENGE_BYTES: usize = 8;

#[test]
fn who_comes_when_there_is_no_descriptor_left_is_sent_away_and_let_in_later() {
    let folder = tempfile::tempdir().unwrap();
    let job = Job::new(Job::random_nonce().unwrap(), 2).unwrap();
    let locations = BoardLocations { folders: vec![folder.path().to_owned()], system_v: false };
    let board = Board::join(&job, 0, 0, Identity::of_this_process(None).unwrap(), &locations).unwrap();
    let mut listener = BootstrapListener::open(&job, &board).unwrap();
    let stop = listener.stopper();
    let path = folder.path().join(format!("causeway-comm-{}-0.0", job.name()));
    let address = SocketAddrUnix::new(&path).unwrap();
    let accepting = std::thread::spawn(move || while listener.arrival().is_some() {});

    let callers: Vec<_> =
        (0..4).map(|_| socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap()).collect();
    let before = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(256), ..before }).unwrap();
    let held: Vec<File> = core::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    let said: Vec<_> = callers
        .into_iter()
        .map(|caller| {
            connect(&caller, &address).unwrap();
            let mut caller = UnixStream::from(caller);
            caller.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
            // It stays open: its descriptor is to be nobody else's.
            (caller.read(&mut [0; CHALLENGE_BYTES]), caller)
        })
        .collect();
    drop(held);
    setrlimit(Resource::Nofile, before).unwrap();
    for (said, _) in said {
        assert_eq!(said.expect("the connection is closed, and not left waiting"), 0);
    }

    // Who comes before the rank knows that it has descriptors again is sent away as well.
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        let mut caller = UnixStream::connect(&path).unwrap();
        caller.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        if caller.read_exact(&mut [0; CHALLENGE_BYTES]).is_ok() {
            break;
        }
        assert!(Instant::now() < until, "nobody is let in, though there are descriptors again");
    }
    stop.stop();
    accepting.join().unwrap();
}
