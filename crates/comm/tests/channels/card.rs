//! Channels by RDMA devices, in the guest of `tests/verbs`: between its two hosts, and within one.
//! And what a sender answers to a peer that says nonsense about its card.

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use causeway_comm::board::BoardLocations;
use causeway_comm::bootstrap::{self, BootstrapListener, Connection};
use causeway_comm::live::{self, LiveRank};
use causeway_comm::matching::{Descriptor, Source};
use causeway_comm::settings::Settings;
use causeway_comm::tracer::{Operation, Traffic};
use causeway_comm::{Board, Channel, Identity, Job, World};
use causeway_config::Environment;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::job::{Rank, all_come, run, run_job};
use crate::rank::CALLS;

/// Addresses of the guest's hosts.
const HOSTS: &str = "10.213.79.1,10.213.79.2";

/// The first of them.
const HOST: &str = "10.213.79.1";

/// What ranks say: the words of offers, a fetch, what joins cards, and where a payload lies.
const WORDS: u8 = 14;
const FETCH: u8 = 2;
const JOIN: u8 = 15;
const JOINED: u8 = 16;
const LENT: u8 = 17;

/// The kind of RDMA devices, in the guest.
fn devices() -> Option<String> {
    let found = std::env::var("CAUSEWAY_GUEST_DEVICE").ok();
    if found.is_none() {
        eprintln!("not tested: there are no RDMA devices (tests/verbs/run has them)");
    }
    found
}

/// A rank on a host, whose GPU's memory cards reach or do not.
fn rank(host: &'static str, gpudirect: bool) -> Rank {
    let mut variables = vec![("CAUSEWAY_COMM_HOSTS", HOSTS.to_owned())];
    if gpudirect {
        variables.push(("FAKE_GPU_GPUDIRECT", "1".to_owned()));
    }
    Rank { host: Some(host), variables }
}

/// How many messages there are: more in `make verbs-test` than in `make test`.
fn messages() -> u64 {
    if std::env::var_os("CAUSEWAY_TEST_ALL").is_some() { 60 } else { 12 }
}

/// Whether cards reach the GPU's memory at each of two ranks.
const WAYS: [[bool; 2]; 4] = [[false, false], [true, true], [true, false], [false, true]];

#[test]
fn random_messages_come_by_cards() {
    let Some(_) = devices() else { return };
    for [one, two] in WAYS {
        println!("note: rdma, GPUDirect {one} and {two}");
        all_come(&[rank("h1", one), rank("h2", two)], "rdma", messages());
        println!("note: loopback, GPUDirect {one} and {two}");
        all_come(&[rank("h1", one), rank("h1", two)], "loopback", messages());
    }
}

/// GPUDirect of one end is switched off and on again, then that of the other end, while messages come.
#[test]
fn gpudirect_that_is_switched_off_stages_from_the_next_message_on() {
    const MESSAGES: u64 = 600;
    let Some(_) = devices() else { return };
    let nonce = Job::random_nonce().unwrap();
    let tag = Job::new(nonce, 2).unwrap().tag();
    let mut rank = rank("h1", true);
    rank.variables.extend([(CALLS, "Send Recv".to_owned()), ("FAKE_GPU_COPY_US", "1000".to_owned())]);
    let job = std::thread::spawn(move || run_job(nonce, &[rank.clone(), rank], "loopback", MESSAGES, false));
    let find =
        |number| live::ranks().unwrap().into_iter().find(|one| (one.job(), one.rank()) == (tag, number));
    let wait_for = |what: &dyn Fn(&LiveRank) -> bool| loop {
        assert!(!job.is_finished(), "the job has ended before that");
        match find(1) {
            Some(receiver) if what(&receiver) => break receiver,
            _ => std::thread::sleep(Duration::from_millis(2)),
        }
    };
    let receiver = wait_for(&|receiver| receiver.gpudirect().messages >= 5);
    let sender = find(0).unwrap();
    for end in [&receiver, &sender] {
        end.allow_gpudirect(false);
        let [direct, staged] = [receiver.gpudirect(), receiver.staged()].map(|count| count.messages);
        wait_for(&|receiver| receiver.staged().messages >= staged + 20);
        // One may have been in flight.
        assert!(receiver.gpudirect().messages <= direct + 1, "{direct} before, {:?}", receiver.gpudirect());
        end.allow_gpudirect(true);
        wait_for(&|receiver| receiver.gpudirect().messages >= direct + 5);
    }
    let ended = job.join().unwrap();
    assert!(ended.iter().all(|one| one.is_ok), "{}{}", ended[0].trouble, ended[1].trouble);
    assert_eq!(ended[1].messages("loopback"), MESSAGES);
    let all = receiver.count(Some(Channel::Loopback));
    let (direct, staged) = (receiver.gpudirect(), receiver.staged());
    assert_eq!(all.messages, MESSAGES);
    assert_eq!(all.bytes, direct.bytes + staged.bytes);
    println!("note: {} of {MESSAGES} messages by GPUDirect", direct.messages);
}

#[test]
fn a_sender_that_dies_while_it_is_read_is_an_error() {
    let Some(_) = devices() else { return };
    for gpudirect in [false, true] {
        let ended = run(&[rank("h1", gpudirect), rank("h2", gpudirect)], "rdma", 1, true);
        assert!(
            ended.iter().any(|one| one.is_ok),
            "the receiver goes on: {}{}",
            ended[0].trouble,
            ended[1].trouble
        );
        for error in ended.iter().flat_map(|one| &one.said).filter(|line| line.starts_with("error")) {
            println!("note: {error}");
            assert!(error.contains(" rank 0 ") || error.contains(" rank 1 "), "{error}");
        }
    }
}

/// What a receiver says whose sender answers with another end than it has: its own, changed. With `rdma` they
/// meet over a network, and with `loopback` at a Unix socket.
fn error_of_end(channel: &str, change: impl Fn(&mut [u8; 64]) + Sync) -> String {
    let host = std::fs::File::open("/run/netns/h1").unwrap();
    move_into_link_name_space(host.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
    let nonce = Job::random_nonce().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let set = |asked: &str| match asked {
        "CAUSEWAY_COMM_CHANNELS" => Some(OsString::from(channel)),
        "CAUSEWAY_COMM_HOSTS" => Some(OsString::from(HOST)),
        "CAUSEWAY_SOCKET_DIR" => Some(folder.path().as_os_str().to_owned()),
        "CAUSEWAY_CACHE_DIR" => Some(OsString::new()),
        _ => None,
    };
    let world = World::join(nonce, 1, 2, Settings::read(Environment::of(&set)).unwrap()).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let job = Job::new(nonce, 2).unwrap();
            let locations = BoardLocations { folders: vec![folder.path().to_owned()], system_v: false };
            let board =
                Board::join(&job, 0, 0, Identity::of_this_process(None).unwrap(), &locations).unwrap();
            let sender = match channel {
                "rdma" => bootstrap::connect_over_network(&job, board.slot(), 1, &[HOST.to_owned()]).unwrap(),
                _ => bootstrap::connect(&job, board.slot(), board.scan().get(1).unwrap()).unwrap(),
            };
            let say = |kind: u8| {
                let mut message = [0; 16];
                message[0] = kind;
                sender.send(&message, None)
            };
            let hear = || sender.receive().unwrap().unwrap().0;
            say(WORDS).unwrap();
            let join = hear();
            assert_eq!(join[0], JOIN);
            let mut end = [0; 64];
            for part in end.as_chunks_mut::<16>().0 {
                *part = hear();
            }
            // The receiver's further queue pairs, of which this sender has none.
            for _ in 0..4 * join[2] {
                hear();
            }
            change(&mut end);
            say(JOINED).unwrap();
            for part in end.as_chunks::<16>().0 {
                sender.send(part, None).unwrap();
            }
            // Where the receiver still asks, the payload is said to lie at an address of no memory.
            while let Ok(Some((message, _))) = sender.receive() {
                if message[0] == FETCH && say(LENT).is_err() {
                    break;
                }
            }
        });
        let memory = Source { buffer: 1, rdma: true, ..Source::default() };
        let (word, traffic) = (None, Traffic::Latency);
        let word = Descriptor { from: 0, to: 1, operation: 1, bytes: 1 << 20, memory, word, traffic };
        let mut into = vec![0_u8; 1 << 20];
        let place = into.as_mut_ptr() as u64;
        // SAFETY: so many bytes are this function's until the call returns.
        let came = unsafe { world.fetch(&word, place, false, 1 << 20, Operation::Blocking) };
        drop(world);
        came.unwrap_err().to_string()
    })
}

#[test]
fn a_sender_whose_end_is_made_up_is_an_error() {
    let Some(_) = devices() else { return };
    let said = error_of_end("rdma", |end| *end = [0xff; 64]);
    assert!(said.contains("an end of a path between RDMA devices that cannot be"), "{said}");
    let said = error_of_end("rdma", |end| end[52..60].fill(0));
    assert!(said.contains("slots of such a size"), "{said}");
    // Of a queue pair that is not there, whose slots are as many as there can be.
    let said = error_of_end("rdma", |end| {
        end[..4].copy_from_slice(&0x00ab_cdef_u32.to_le_bytes());
        tell_slots(end);
    });
    println!("note: {said}");
    assert!(said.contains("rdma: cannot receive the message of rank 0 by an RDMA device"), "{said}");
}

/// As many slots as there can be, in what a sender tells.
fn tell_slots(end: &mut [u8; 64]) {
    end[52..54].copy_from_slice(&4_u16.to_le_bytes());
    end[56..60].copy_from_slice(&(512_u32 << 10).to_le_bytes());
}

#[test]
fn a_sender_of_this_host_that_is_said_to_be_elsewhere_is_an_error() {
    let Some(_) = devices() else { return };
    // rdma_cm joins them, at a port.
    let tell = |end: &mut [u8; 64], address: [u8; 16]| {
        *end = core::array::from_fn(|at| if at == 26 || at == 27 { end[at] } else { 0 });
        end[8..24].copy_from_slice(&address);
        end[28] = 1;
        end[30..32].copy_from_slice(&4711_u16.to_le_bytes());
        tell_slots(end);
    };
    // The guest's other host, one for documents (RFC 5737), and one for documents of IPv6 (RFC 3849).
    for address in ["10.213.79.2", "192.0.2.7", "2001:db8::7"] {
        let told = match address.parse().unwrap() {
            IpAddr::V4(four) => four.to_ipv6_mapped(),
            IpAddr::V6(six) => six,
        };
        let said = error_of_end("loopback", |end| tell(end, told.octets()));
        let expected = format!("takes connections at {address}, which is no address of this host");
        assert!(said.contains(&expected), "{said}");
    }
    let said = error_of_end("loopback", |end| tell(end, [0; 16]));
    assert!(said.contains("the peer's description of its RDMA device is invalid"), "{said}");
    // Nobody is at that port.
    let said =
        error_of_end("loopback", |end| tell(end, Ipv4Addr::new(10, 213, 79, 1).to_ipv6_mapped().octets()));
    println!("note: {said}");
    assert!(said.contains("loopback: cannot receive the message of rank 0 by an RDMA device"), "{said}");
}

/// What a sender says that has no such card or message.
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
        let deadline = Instant::now() + Duration::from_secs(60);
        while !world.is_reachable(1) {
            assert!(Instant::now() < deadline, "the other rank is not reached");
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
