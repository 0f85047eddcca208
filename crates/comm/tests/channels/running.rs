//! Ranks while they run: they enter other namespaces, others of their owner's processes see them and switch channels
//! off, and their traffic is taken for what it is.

use std::time::Duration;

use causeway_comm::live::{self, LiveRank};
use causeway_comm::{Channel, Job};

use crate::job::{Ended, Rank, run, run_job};
use crate::rank::{CALLS, MOVES};

/// Namespaces may be forbidden here.
fn can_move() -> bool {
    let tried = std::process::Command::new("unshare").args(["--uts", "--ipc", "true"]).output();
    let can = tried.is_ok_and(|tried| tried.status.success());
    if !can {
        eprintln!("not tested: this needs root, and unshare with namespaces");
    }
    can
}

fn nothing_is_lost(moves: &str, channel: &str, hosts: &str) {
    const MESSAGES: u64 = 60;
    let variables = vec![
        (MOVES, moves.to_owned()),
        ("CAUSEWAY_COMM_EXPLAIN", "1".to_owned()),
        ("CAUSEWAY_COMM_HOSTS", hosts.to_owned()),
        ("FAKE_GPU_GDRDRV", "1".to_owned()),
    ];
    let rank = Rank { host: None, variables };
    let ended = run(&[rank.clone(), rank], channel, MESSAGES, false);
    let told: Vec<_> = ended.iter().map(|one| (&one.said, &one.trouble)).collect();
    assert!(ended.iter().all(|one| one.is_ok), "{told:?}");
    let sum = |word| ended.iter().map(|one| one.messages(word)).sum::<u64>();
    assert_eq!((sum("moved"), sum(channel)), (4, MESSAGES), "{told:?}");
    if hosts.is_empty() {
        let place = "the peer is in another container of this host";
        let sees = |one: &Ended| one.said.iter().any(|line| line.contains(place));
        assert!(ended.iter().all(sees), "what lies between the two is found out anew: {told:?}");
    }
}

#[test]
fn ranks_that_tell_of_their_moves_lose_nothing() {
    if can_move() {
        for channel in ["staged", "bar"] {
            nothing_is_lost("told", channel, "");
        }
    }
}

#[test]
fn ranks_that_just_enter_other_namespaces_lose_nothing() {
    if can_move() {
        nothing_is_lost("noticed", "staged", "");
    }
}

#[test]
fn ranks_that_meet_over_a_network_lose_nothing() {
    if can_move() {
        nothing_is_lost("told", "tcp", "127.0.0.1");
    }
}

#[test]
fn a_channel_that_is_switched_off_carries_nothing_from_the_next_message_on() {
    const MESSAGES: u64 = 800;
    let nonce = Job::random_nonce().unwrap();
    let tag = Job::new(nonce, 2).unwrap().tag();
    // All are sent by rank 0; to measure both channels alone takes more than ten messages by each.
    let variables = [(CALLS, "Send Recv"), ("FAKE_GPU_GDRDRV", "1"), ("FAKE_GPU_COPY_US", "1000")];
    let variables = variables.map(|(name, value)| (name, value.to_owned())).to_vec();
    let rank = Rank { host: None, variables };
    let job =
        std::thread::spawn(move || run_job(nonce, &[rank.clone(), rank], "staged,bar", MESSAGES, false));
    let by = |rank: &LiveRank, channel| rank.count(Some(channel)).messages;
    let receiver = || live::ranks().unwrap().into_iter().find(|rank| (rank.job(), rank.rank()) == (tag, 1));
    let seen = loop {
        assert!(!job.is_finished(), "the job has ended before it was seen");
        match receiver() {
            Some(rank) if by(&rank, Channel::Bar) >= 10 => break rank,
            _ => std::thread::sleep(Duration::from_millis(2)),
        }
    };
    assert_eq!(seen.channels(), [Channel::Staged, Channel::Bar]);
    seen.allow(&[Channel::Staged, Channel::Vmm]);
    assert_eq!(seen.channels(), [Channel::Staged]);
    let before = by(&seen, Channel::Bar);
    let ended = job.join().unwrap();
    assert!(ended.iter().all(|one| one.is_ok), "{}{}", ended[0].trouble, ended[1].trouble);
    let [bar, staged] = ["bar", "staged"].map(|channel| ended[1].messages(channel));
    // One may have been under way.
    assert!(bar <= before + 1, "{bar} by bar, {before} when it was switched off");
    assert_eq!(bar + staged, MESSAGES);
    // The page is there as long as it is mapped, and says what the report does.
    assert_eq!([by(&seen, Channel::Bar), by(&seen, Channel::Staged)], [bar, staged]);
}

/// Messages after which the traffic is known.
const THRESHOLD: u64 = 10;

/// Rank 0 sends so many messages to rank 1 by these calls.
fn traffic(calls: &str, channel: &str, messages: u64) -> [Ended; 2] {
    let variables = vec![
        (CALLS, calls.to_owned()),
        ("CAUSEWAY_COMM_TRACE", THRESHOLD.to_string()),
        ("CAUSEWAY_COMM_EXPLAIN", "1".to_owned()),
        ("CAUSEWAY_COMM_HOSTS", "127.0.0.1".to_owned()),
    ];
    let rank = Rank { host: None, variables };
    let ended = run(&[rank.clone(), rank], channel, messages, false);
    for one in &ended {
        assert!(one.is_ok, "{:?}\n{}", one.said, one.trouble);
    }
    ended
}

/// How many messages came that the sender had said to be bound so.
fn told(ended: &[Ended; 2]) -> [u64; 2] {
    ["latency", "bandwidth"].map(|traffic| ended[1].messages(traffic))
}

fn says(ended: &Ended, words: &str) -> bool {
    ended.said.iter().any(|line| line.contains(words))
}

#[test]
fn a_sender_that_does_not_wait_is_bound_by_bandwidth_whatever_the_receiver_does() {
    for calls in ["Isend Recv", "Isend Irecv"] {
        let ended = traffic(calls, "staged", 25);
        // The tenth message ends the first period, and is told so already.
        assert_eq!(told(&ended), [THRESHOLD - 1, 25 - (THRESHOLD - 1)], "{calls}");
        assert!(says(&ended[0], "Bandwidth"), "{calls}: {:?}", ended[0].said);
        // The receiver counts its own calls, for what it sends itself.
        assert_eq!(says(&ended[1], "Bandwidth"), calls.ends_with("Irecv"), "{calls}: {:?}", ended[1].said);
        let report = "received by staged: there is no other (into a GPU, bound by bandwidth)";
        assert!(says(&ended[1], report), "{calls}: {:?}", ended[1].said);
    }
}

#[test]
fn a_sender_that_waits_is_bound_by_latency() {
    for calls in ["Send Recv", "Send Irecv"] {
        let ended = traffic(calls, "staged", 25);
        assert_eq!(told(&ended), [25, 0], "{calls}");
        assert!(!says(&ended[1], "bound by bandwidth"), "{calls}: {:?}", ended[1].said);
    }
}

#[test]
fn peers_over_a_network_are_not_counted() {
    let ended = traffic("Isend Irecv", "tcp", 25);
    assert_eq!(told(&ended), [25, 0]);
    assert!(ended.iter().all(|one| says(one, "Latency")), "{:?}", ended[0].said);
}
