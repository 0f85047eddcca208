//! The sockets of ranks: who is let in, and what becomes of those who are not.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use causeway_comm::board::Places;
use causeway_comm::meeting::{self, Connection, HelloError, Meeting, MeetingError, SocketPlace};
use causeway_comm::{Board, Identity, Job};

fn join(job: &Job, rank: u32, folder: &Path) -> Board {
    let places = Places { folders: vec![folder.to_owned()], system_v: false };
    Board::join(job, rank, 0, Identity::of_this_process(None).unwrap(), &places).unwrap()
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
    fn while_listening<T>(&self, mut hear: impl FnMut(&mut Meeting) -> T + Send, others: impl FnOnce()) -> T
    where
        T: Send,
    {
        let mut meeting = Meeting::open(&self.job, &self.boards[0]).unwrap();
        std::thread::scope(|scope| {
            let heard = scope.spawn(move || hear(&mut meeting));
            others();
            heard.join().unwrap()
        })
    }

    fn reach(&self) -> Result<Connection, Vec<MeetingError>> {
        let scan = self.boards[1].scan();
        meeting::reach(&self.job, self.boards[1].slot(), scan.get(0).unwrap())
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
        |meeting| {
            let connection = meeting.arrival().unwrap().unwrap();
            let file: File = tempfile::tempfile().unwrap();
            (&file).write_all(b"shared").unwrap();
            connection.send(&[7; 16], Some(file.as_fd())).unwrap();
            connection
        },
        || caller = Some(pair.reach().unwrap()),
    );
    let caller = caller.unwrap();
    assert_eq!((arrived.peer, caller.peer), (1, 0));
    assert_eq!(caller.place, SocketPlace::Folder(pair.folder.path().to_owned()));
    let own = Some(std::process::id());
    assert_eq!((caller.seen, caller.sees, arrived.seen, arrived.sees), (own, own, own, own));
    let (message, memory) = caller.receive().unwrap().unwrap();
    let mut content = String::new();
    let mut memory = File::from(memory.unwrap());
    std::io::Seek::rewind(&mut memory).unwrap();
    memory.read_to_string(&mut content).unwrap();
    assert_eq!((message, content.as_str()), ([7; 16], "shared"));
    assert!(caller.may_reach_into().is_ok() && !caller.has_ended());
    drop(arrived);
    assert!(caller.has_ended() && caller.receive().unwrap().is_none());
}

#[test]
fn without_the_nonce_nobody_gets_in() {
    let pair = Pair::new();
    let heard = pair.while_listening(
        |meeting| meeting.arrival().unwrap(),
        || {
            // Another job's rank, which knows the name of the socket.
            let mut stranger = pair.stranger();
            stranger.read_exact(&mut [0; 8]).unwrap();
            stranger.write_all(b"CWmeet1\0").unwrap();
            stranger.write_all(&[1; 48]).unwrap();
            assert_eq!(stranger.read(&mut [0; 64]).unwrap(), 0);
        },
    );
    assert!(matches!(heard, Err(HelloError::Proof)), "{heard:?}");
}

#[test]
fn what_is_no_greeting_is_refused() {
    let pair = Pair::new();
    let heard = pair.while_listening(
        |meeting| meeting.arrival().unwrap(),
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
        |meeting| meeting.arrival().unwrap().unwrap().peer,
        || {
            // More than are let in at a time, some of which say half of something, and some of which go
            // again.
            let mut silent: Vec<UnixStream> = (0..100).map(|_| pair.stranger()).collect();
            silent.iter_mut().step_by(2).for_each(|stream| {
                // It may have been thrown out by those who came after it.
                let _ = stream.write_all(b"CWmeet1");
            });
            silent.truncate(60);
            pair.reach().unwrap();
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
            let mut hello = [0; 56];
            stream.read_exact(&mut hello).unwrap();
            // What the caller said, sent back.
            stream.write_all(&hello).unwrap();
        });
        pair.reach().unwrap_err()
    });
    let text = failures[0].to_string();
    assert!(text.contains("is not that rank: it cannot prove that it belongs to the job"), "{text}");
}

#[test]
fn nobody_at_home_is_said_with_the_place() {
    let pair = Pair::new();
    let failures = pair.reach().unwrap_err();
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
    let mut meeting = Meeting::open(&job, &boards[0]).unwrap();
    assert!(meeting.refused().is_empty(), "{:?}", meeting.refused());
    std::thread::scope(|scope| {
        scope.spawn(|| meeting.arrival().unwrap().unwrap());
        let scan = boards[1].scan();
        let connection = meeting::reach(&job, boards[1].slot(), scan.get(0).unwrap()).unwrap();
        assert_eq!(connection.place, SocketPlace::Folder(long.clone()));
    });
}

#[test]
fn sockets_go_with_their_rank_and_a_wait_can_be_ended() {
    let pair = Pair::new();
    let mut meeting = Meeting::open(&pair.job, &pair.boards[0]).unwrap();
    let stop = meeting.stopper();
    stop.stop();
    assert!(meeting.arrival().is_none());
    drop(meeting);
    pair.boards[0].forget_names().unwrap();
    assert_eq!(std::fs::read_dir(pair.folder.path()).unwrap().count(), 0);
    // One that was killed leaves its socket behind, which the next one takes.
    let path = pair.folder.path().join(format!("causeway-comm-{}-0.0", pair.job.name()));
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists() && Meeting::open(&pair.job, &pair.boards[0]).unwrap().refused().is_empty());
}
