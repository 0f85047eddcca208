//! The sockets of ranks: who is let in, and what becomes of those who are not.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use causeway_comm::board::BoardLocations;
use causeway_comm::bootstrap::{
    self, BootstrapError, BootstrapListener, Connection, HelloError, SocketAddress,
};
use causeway_comm::{Board, Identity, Job};

fn join(job: &Job, rank: u32, folder: &Path) -> Board {
    let locations = BoardLocations { folders: vec![folder.to_owned()], system_v: false };
    Board::join(job, rank, 0, Identity::of_this_process(None).unwrap(), &locations).unwrap()
}

struct Pair {
    folder: tempfile::TempDir,
    job: Job,
    boards: [Board; 2],
}

impl Pair {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let job = Job::new(Job::random_nonce().unwrap(), 4).unwrap();
        let boards = [0, 1].map(|rank| join(&job, rank, folder.path()));
        Self { folder, job, boards }
    }

    /// What rank 0's socket hears while `others` do what they do.
    fn while_listening<T>(
        &self,
        mut hear: impl FnMut(&mut BootstrapListener) -> T + Send,
        others: impl FnOnce(),
    ) -> T
    where
        T: Send,
    {
        let mut listener = BootstrapListener::open(&self.job, &self.boards[0]).unwrap();
        std::thread::scope(|scope| {
            let heard = scope.spawn(move || hear(&mut listener));
            others();
            heard.join().unwrap()
        })
    }

    fn connect(&self) -> Result<Connection, Vec<BootstrapError>> {
        let scan = self.boards[1].scan();
        bootstrap::connect(&self.job, self.boards[1].slot(), scan.get(0).unwrap())
    }

    fn stranger(&self) -> UnixStream {
        UnixStream::connect(self.folder.path().join(format!("causeway-comm-{}-0.0", self.job.name())))
            .unwrap()
    }
}

#[test]
fn two_ranks_meet_and_hand_over_memory() {
    let pair = Pair::new();
    let mut caller = None;
    let arrived = pair.while_listening(
        |listener| {
            let connection = listener.arrival().unwrap().unwrap();
            let file: File = tempfile::tempfile().unwrap();
            (&file).write_all(b"shared").unwrap();
            connection.send(&[7; 16], Some(file.as_fd())).unwrap();
            connection
        },
        || caller = Some(pair.connect().unwrap()),
    );
    let caller = caller.unwrap();
    assert_eq!((arrived.peer, caller.peer), (1, 0));
    assert_eq!(caller.address, SocketAddress::Folder(pair.folder.path().to_owned()));
    let own = Some(std::process::id());
    assert_eq!((caller.seen, caller.sees, arrived.seen, arrived.sees), (own, own, own, own));
    let (message, memory) = caller.receive().unwrap().unwrap();
    let mut content = String::new();
    let mut memory = File::from(memory.unwrap());
    std::io::Seek::rewind(&mut memory).unwrap();
    memory.read_to_string(&mut content).unwrap();
    assert_eq!((message, content.as_str()), ([7; 16], "shared"));
    assert!(caller.check_process_access().is_ok() && !caller.has_ended());
    drop(arrived);
    assert!(caller.has_ended() && caller.receive().unwrap().is_none());
}

#[test]
fn without_the_nonce_nobody_gets_in() {
    let pair = Pair::new();
    let heard = pair.while_listening(
        |listener| listener.arrival().unwrap(),
        || {
            // Another job's rank, which knows the name of the socket.
            let mut stranger = pair.stranger();
            stranger.read_exact(&mut [0; 8]).unwrap();
            stranger.write_all(b"CWmeet3\0").unwrap();
            stranger.write_all(&[1; 56]).unwrap();
            assert_eq!(stranger.read(&mut [0; 64]).unwrap(), 0);
        },
    );
    assert!(matches!(heard, Err(HelloError::Proof)), "{heard:?}");
}

#[test]
fn what_is_no_greeting_is_refused() {
    let pair = Pair::new();
    let heard = pair.while_listening(
        |listener| listener.arrival().unwrap(),
        || {
            let mut stranger = pair.stranger();
            stranger.read_exact(&mut [0; 8]).unwrap();
            stranger.write_all(&[b'x'; 4096]).unwrap();
            // It is thrown out.
            assert!(!matches!(stranger.read(&mut [0; 64]), Ok(1..)));
        },
    );
    assert!(matches!(heard, Err(HelloError::Magic)), "{heard:?}");
}

#[test]
fn those_who_say_nothing_keep_nobody_out() {
    let pair = Pair::new();
    let begun = Instant::now();
    let arrived = pair.while_listening(
        |listener| listener.arrival().unwrap().unwrap().peer,
        || {
            // More than are let in at a time, some of which say half of something, and some of which go
            // again.
            let mut silent: Vec<UnixStream> = (0..100).map(|_| pair.stranger()).collect();
            silent.iter_mut().step_by(2).for_each(|stream| {
                // It may have been thrown out by those who came after it.
                let _ = stream.write_all(b"CWmeet3");
            });
            silent.truncate(60);
            pair.connect().unwrap();
        },
    );
    assert_eq!(arrived, 1);
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
}

#[test]
fn an_answer_that_is_not_the_ranks_is_not_believed() {
    let pair = Pair::new();
    let path = pair.folder.path().join(format!("causeway-comm-{}-0.0", pair.job.name()));
    let listener = std::os::unix::net::UnixListener::bind(path).unwrap();
    let failures = std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(&[1; 8]).unwrap();
            let mut hello = [0; 64];
            stream.read_exact(&mut hello).unwrap();
            // What the caller said, sent back.
            stream.write_all(&hello).unwrap();
        });
        pair.connect().unwrap_err()
    });
    let text = failures[0].to_string();
    assert!(text.contains("is not rank 0: it cannot prove that it belongs to the job"), "{text}");
}

#[test]
fn nobody_at_home_is_said_with_the_place() {
    let pair = Pair::new();
    let failures = pair.connect().unwrap_err();
    // The abstract name as well: both have this network namespace.
    assert_eq!(failures.len(), 2);
    let text = failures[0].to_string();
    assert!(text.contains(pair.folder.path().to_str().unwrap()) && text.contains("rank 0"), "{text}");
}

#[test]
fn a_folder_with_a_long_name_will_do() {
    let folder = tempfile::tempdir().unwrap();
    let long = folder.path().join("x".repeat(120));
    std::fs::create_dir(&long).unwrap();
    let job = Job::new(Job::random_nonce().unwrap(), 2).unwrap();
    let boards = [0, 1].map(|rank| join(&job, rank, &long));
    let mut listener = BootstrapListener::open(&job, &boards[0]).unwrap();
    assert!(listener.refused().is_empty(), "{:?}", listener.refused());
    std::thread::scope(|scope| {
        scope.spawn(|| listener.arrival().unwrap().unwrap());
        let scan = boards[1].scan();
        let connection = bootstrap::connect(&job, boards[1].slot(), scan.get(0).unwrap()).unwrap();
        assert_eq!(connection.address, SocketAddress::Folder(long.clone()));
    });
}

#[test]
fn sockets_go_with_their_rank_and_a_wait_can_be_ended() {
    let pair = Pair::new();
    let mut listener = BootstrapListener::open(&pair.job, &pair.boards[0]).unwrap();
    let stop = listener.stopper();
    stop.stop();
    assert!(listener.arrival().is_none());
    drop(listener);
    pair.boards[0].forget_names().unwrap();
    assert_eq!(std::fs::read_dir(pair.folder.path()).unwrap().count(), 0);
    // One that was killed leaves its socket behind, which the next one takes.
    let path = pair.folder.path().join(format!("causeway-comm-{}-0.0", pair.job.name()));
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(
        path.exists() && BootstrapListener::open(&pair.job, &pair.boards[0]).unwrap().refused().is_empty()
    );
}

/// Two ranks with no board in common, the first of which listens for other hosts.
fn strangers(jobs: [&Job; 2]) -> ([tempfile::TempDir; 2], [Board; 2], BootstrapListener) {
    let folders = [0, 1].map(|_| tempfile::tempdir().unwrap());
    let boards = [0, 1].map(|rank| join(jobs[rank as usize], rank, folders[rank as usize].path()));
    let mut listener = BootstrapListener::open(jobs[0], &boards[0]).unwrap();
    listener.open_to_hosts();
    assert!(listener.refused().is_empty());
    (folders, boards, listener)
}

#[test]
fn ranks_that_share_nothing_meet_over_a_network() {
    let job = Job::new(Job::random_nonce().unwrap(), 4).unwrap();
    let (_folders, boards, mut listener) = strangers([&job, &job]);
    std::thread::scope(|scope| {
        let heard = scope.spawn(|| listener.arrival().unwrap().unwrap());
        // The first host is none.
        let hosts = ["host.invalid".to_owned(), "127.0.0.1".to_owned()];
        let caller = bootstrap::connect_over_network(&job, boards[1].slot(), 0, &hosts).unwrap();
        let arrived = heard.join().unwrap();
        assert_eq!((arrived.peer, caller.peer, arrived.seen, caller.seen), (1, 0, None, None));
        assert!(caller.is_network() && matches!(caller.address, SocketAddress::Network(_)));
        caller.send(&[7; 16], None).unwrap();
        caller.send_bytes(b"payload").unwrap();
        let mut payload = [0; 7];
        assert_eq!(arrived.receive().unwrap().unwrap().0, [7; 16]);
        arrived.receive_bytes(&mut payload).unwrap();
        assert_eq!(&payload, b"payload");
        drop(caller);
        assert!(arrived.receive().unwrap().is_none() && arrived.has_ended());
    });
}

#[test]
fn a_flood_over_the_network_pushes_out_nobody_of_this_host() {
    use std::net::TcpStream;
    let job = Job::new(Job::random_nonce().unwrap(), 4).unwrap();
    let (folders, boards, mut listener) = strangers([&job, &job]);
    let stop = listener.stopper();
    std::thread::scope(|scope| {
        let heard = scope.spawn(move || {
            let came: Vec<_> = std::iter::from_fn(|| listener.arrival()).flatten().collect();
            (came.iter().map(|connection| connection.peer).collect::<Vec<_>>(), listener)
        });
        // One of this host, who has said nothing yet.
        let path = folders[0].path().join(format!("causeway-comm-{}-0.0", job.name()));
        let mut local = UnixStream::connect(path).unwrap();
        local.read_exact(&mut [0; 8]).unwrap();
        // Many more than have a place, each of which is let in: it hears what it is to prove.
        let flood: Vec<TcpStream> = (0..100)
            .map(|_| {
                let mut stream = TcpStream::connect(("127.0.0.1", job.port(0, 0))).unwrap();
                stream.read_exact(&mut [0; 8]).unwrap();
                stream
            })
            .collect();
        local.set_nonblocking(true).unwrap();
        let left = local.read(&mut [0; 1]).expect_err("it is not thrown out, and nothing is said to it");
        assert_eq!(left.kind(), std::io::ErrorKind::WouldBlock);
        // A rank comes over the network all the same.
        let hosts = ["127.0.0.1".to_owned()];
        bootstrap::connect_over_network(&job, boards[1].slot(), 0, &hosts).unwrap();
        drop(flood);
        stop.stop();
        assert_eq!(heard.join().unwrap().0, [1]);
    });
}

#[test]
fn ranks_of_other_jobs_and_no_hosts_are_told() {
    let (job, other) = (Job::new([1; 16], 4).unwrap(), Job::new([2; 16], 4).unwrap());
    let (_folders, boards, _meeting) = strangers([&job, &job]);
    let said = |job: &Job, hosts: &[String]| {
        let failures = bootstrap::connect_over_network(job, boards[1].slot(), 0, hosts).unwrap_err();
        failures.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    };
    assert!(said(&job, &[]).contains("CAUSEWAY_COMM_HOSTS names no hosts"));
    assert!(said(&other, &["127.0.0.1".to_owned()]).contains("cannot connect to"), "it has other ports");
    assert!(said(&job, &["host.invalid".to_owned()]).contains("host.invalid"));
}

/// Someone between two hosts has recorded what a rank answered, and says it again to the next one who calls.
#[test]
fn an_answer_that_was_given_before_is_not_taken() {
    use std::net::{TcpListener, TcpStream};
    let job = Job::new(Job::random_nonce().unwrap(), 4).unwrap();
    // It has the rank's first port at one address, so the rank takes its second one.
    let recorder = TcpListener::bind(("127.0.0.2", job.port(0, 0))).unwrap();
    let (_folders, boards, mut listener) = strangers([&job, &job]);
    let (own, hosts) = (boards[1].slot().clone(), ["127.0.0.2".to_owned()]);
    let passed = std::thread::scope(|scope| {
        let heard = scope.spawn(|| listener.arrival().unwrap().unwrap());
        let recording = scope.spawn(|| {
            let (mut caller, _) = recorder.accept().unwrap();
            let mut rank = TcpStream::connect(("127.0.0.1", job.port(0, 1))).unwrap();
            let (mut challenge, mut hello, mut answer) = ([0; 8], [0; 64], [0; 64]);
            rank.read_exact(&mut challenge).unwrap();
            caller.write_all(&challenge).unwrap();
            caller.read_exact(&mut hello).unwrap();
            rank.write_all(&hello).unwrap();
            rank.read_exact(&mut answer).unwrap();
            caller.write_all(&answer).unwrap();
            (challenge, answer)
        });
        let met = bootstrap::connect_over_network(&job, &own, 0, &hosts);
        heard.join().unwrap();
        assert!(met.is_ok(), "what passes through is taken");
        recording.join().unwrap()
    });
    drop(listener);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut caller, _) = recorder.accept().unwrap();
            caller.write_all(&passed.0).unwrap();
            caller.read_exact(&mut [0; 64]).unwrap();
            caller.write_all(&passed.1).unwrap();
        });
        let failures = bootstrap::connect_over_network(&job, &own, 0, &hosts).unwrap_err();
        let is_imposter = |failure: &BootstrapError| {
            matches!(failure, BootstrapError::Imposter { cause: HelloError::Proof, .. })
        };
        assert!(failures.iter().any(is_imposter), "{failures:?}");
    });
}
