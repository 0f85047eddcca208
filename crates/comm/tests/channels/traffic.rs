//! What is the traffic taken for that two ranks have, by the calls of both?

use crate::job::{Ended, Rank, run};
use crate::rank::CALLS;

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
