//! A rank of another host that ends, or says what it must not: the team ends with an error that says so,
//! kernels wait no longer, and nothing is written.

use std::time::Instant;

use causeway_comm::bootstrap::ByteStream;
use causeway_comm::device::gpu::Block;
use causeway_comm::device::layout::{CONTROL_BYTES_OF_RANK, INBOX_AT};
use causeway_comm::device::peers::Peers;
use causeway_comm::device::remote::frame::{Frame, MAX_IN_FLIGHT, MAX_PAYLOAD, Position};
use causeway_comm::device::windows::Announcement;

use super::*;

/// Of a window in the host, the first that the team makes behind that of its own.
const BYTES: u64 = MAX_PAYLOAD as u64;
const WINDOW: u32 = 1;

/// A rank that has joined and made the same windows, and says the rest itself.
struct Stranger {
    peers: Peers,
    stream: ByteStream,
}

impl Stranger {
    /// Waits until the other rank has ended the connection.
    fn wait_for_end(&self) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while self.peers.ended().is_none() {
            assert!(Instant::now() < deadline, "the other rank does not end the connection");
            std::thread::yield_now();
        }
    }

    fn join(hosts: &Hosts) -> Self {
        let peers = hosts.join(1);
        assert!(peers.gpus(7).unwrap().is_spread);
        let mut streams = peers.take_streams(true).unwrap();
        streams.retain(|(peer, _)| *peer == 0);
        assert!(!peers.all_have_verbs(false).unwrap());
        let stranger = Self { peers, stream: streams.pop().unwrap().1 };
        stranger.window(0, INBOX_AT + 2 * CONTROL_BYTES_OF_RANK);
        stranger.window(WINDOW, BYTES);
        stranger
    }

    fn window(&self, number: u32, bytes: u64) {
        let part = Block { address: 4096, bytes, descriptor: None, owner: Box::new(()) };
        self.peers.exchange(Announcement { number, in_host: true, bytes }, Some(&part)).unwrap();
    }

    /// Says as much as the other one takes.
    fn say(&self, bytes: &[u8]) {
        let mut written = 0;
        while written < bytes.len() {
            // It has ended the stream when it has heard enough.
            let Ok(count) = self.stream.write([&bytes[written..], &[]]) else { return };
            written += count;
        }
    }
}

/// What the team of rank 0 says of its end, where rank 1 does this while a kernel waits for it.
fn end_of_team(window_is_freed: bool, act: impl FnOnce(Stranger) + Send) -> String {
    let hosts = Hosts::new(&[0, 1]);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let stranger = Stranger::join(&hosts);
            if window_is_freed {
                stranger.window(WINDOW + 1, BYTES);
            }
            act(stranger);
        });
        let gpu = Ranks::new(Lanes::Well);
        let team = Team::of_processes(gpu.gpus(1).remove(0), hosts.join(0), 2, patient()).unwrap();
        let mut window = team.window(Kind::Host, BYTES).unwrap();
        if window_is_freed {
            team.free(window).unwrap();
            assert_eq!(team.window(Kind::Host, BYTES).unwrap(), window, "its number is free again");
            window = WINDOW;
        }
        gpu.launch_one("meet", 32, Params::default().team(&team, 0));
        let found = gpu.bytes(team.window_handle(0, window).unwrap().base, BYTES);
        assert!(found.iter().all(|byte| *byte == 0), "nothing was written");
        team.failure().expect("the team has ended").to_string()
    })
}

#[test]
fn a_rank_of_another_host_that_says_what_it_must_not_ends_the_team() {
    let at = |window, offset| Position { window, offset };
    let put = |window, offset| {
        let frame = Frame::Put { to: at(window, offset), bytes: 8 }.encode();
        [&frame[..], &[0xff; 8]].concat()
    };
    let gets = Frame::Get { from: at(WINDOW, 0), bytes: MAX_PAYLOAD }.encode().repeat(2 * MAX_IN_FLIGHT);
    for (bytes, told) in [
        (vec![0xff; 40], "it sends bytes that are not a frame of a team"),
        (put(9, 0), "it names a window that this rank does not have"),
        (put(WINDOW, BYTES - 4), "it names bytes that do not lie in the window"),
        (put(WINDOW, u64::MAX - 4), "it names bytes that do not lie in the window"),
        (
            Frame::Signal { to: at(WINDOW, BYTES), value: 1, adds: true }.encode().to_vec(),
            "do not lie in the window",
        ),
        (Frame::Done { count: 200 }.encode().to_vec(), "it answers what was not asked"),
        (Frame::Data { bytes: 8 }.encode().to_vec(), "it answers w"),
        (gets, "it asks for more at a time than it may"),
    ] {
        let failure = end_of_team(false, |stranger| {
            stranger.say(&bytes);
            // It has heard of the end when its own connection is at an end.
            stranger.wait_for_end();
        });
        assert!(
            failure.starts_with("rank 0: the link to rank 1") && failure.contains(told),
            "{told}: {failure}"
        );
    }
}

#[test]
fn bytes_for_a_window_that_was_freed_are_not_written_into_the_next() {
    let late = Frame::Put { to: Position { window: WINDOW, offset: 0 }, bytes: 8 }.encode();
    let failure = end_of_team(true, |stranger| {
        stranger.say(&[&late[..], &[0xff; 8]].concat());
        stranger.wait_for_end();
    });
    assert!(failure.contains("it names a window that this rank does not have"), "{failure}");
}

#[test]
fn a_rank_of_another_host_that_ends_in_the_middle_of_a_frame_ends_the_waits() {
    let failure = end_of_team(false, |stranger| stranger.say(&[1, 0, 0]));
    assert_eq!(failure, "rank 1 has ended, or its part of the team has");
}
