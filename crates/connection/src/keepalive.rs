//! Keepalive timeouts: when a connection on which nothing is received counts as dead, although TCP still
//! acknowledges.
//!
//! TCP's own signs of life come from the nearest machine that takes the bytes: a proxy that has stopped to
//! forward them gives these for ever. So both ends of a link send something on each of its connections every
//! [`INTERVAL`], and here is decided what it means that nothing comes.
//!
//! What the kernel has taken in counts, whether or not the peer has read it. So an end that is busy and reads
//! nothing for a while gives up no peer, and an end that is blocked in sending still notices. A process that is
//! stopped falls silent on all its connections at once, and nothing tells its silence from that of a network;
//! a connection that falls silent alone is dead.
//!
//! Pure: what is known of the connections, and the time, are arguments.

use std::time::{Duration, Instant};

/// How often something is sent on a connection on which nothing else is.
pub const INTERVAL: Duration = Duration::from_secs(1);

/// The longest time between two looks that counts as silence: this process itself did not run in a longer one.
const MAX_STEP: Duration = Duration::from_secs(2);

/// Bytes that wait to be read: with fewer there is room for what the peer sends to show that it is there.
const MUCH_UNREAD: u64 = 16 << 10;

/// How long both directions must stand still, with bytes that wait at this end for being read and for being
/// taken: either end may be busy, and so read nothing.
const STANDSTILL: Duration = Duration::from_secs(600);

/// The shortest timeout: a keepalive may come late, and is looked for once in an [`INTERVAL`].
const MIN_SECONDS: u64 = 3;

/// How long may nothing come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeepaliveTimeouts {
    /// On one connection of a link, while something comes on others.
    pub connection: Duration,
    /// On all connections of a link.
    pub link: Duration,
}

impl KeepaliveTimeouts {
    /// As many seconds; 0 is for ever, and less than 3 are 3.
    pub fn of_seconds(connection: u64, link: u64) -> Self {
        let timeout = |seconds: u64| match seconds {
            0 => Duration::MAX,
            seconds => Duration::from_secs(seconds.max(MIN_SECONDS)),
        };
        Self { connection: timeout(connection), link: timeout(link) }
    }
}

/// What the kernel knows of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes that have come, read or not.
    pub received: u64,
    /// Those of them that nobody has read.
    pub unread: u64,
    /// Bytes sent that have been acknowledged.
    pub acknowledged: u64,
    /// Whether there are others, sent or waiting to be.
    pub has_unacknowledged: bool,
}

/// How long nothing has come on a connection.
#[derive(Debug, Default)]
struct Silence {
    last: Option<Traffic>,
    silent: Duration,
    /// The part of that in which something came on others.
    alone: Duration,
    standing_still: Duration,
}

impl Silence {
    /// Takes in what is known now; whether something has come.
    fn look(&mut self, now: Traffic, step: Duration) -> bool {
        let before = self.last.replace(now).unwrap_or(Traffic { received: 0, ..now });
        let is_quiet = now.received == before.received;
        let has_capacity = now.unread < MUCH_UNREAD;
        let is_stuck = now.has_unacknowledged && now.acknowledged == before.acknowledged;
        let longer =
            |time: Duration, holds: bool| if holds { time.saturating_add(step) } else { Duration::ZERO };
        self.silent = longer(self.silent, is_quiet && has_capacity);
        self.standing_still = longer(self.standing_still, is_quiet && !has_capacity && is_stuck);
        if self.silent.is_zero() {
            self.alone = Duration::ZERO;
        }
        !is_quiet
    }
}

/// What has to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Liveness<K> {
    /// These connections are dead, for so long nothing has come on them. The others go on.
    Connections(Vec<(K, Duration)>),
    /// The link is: for so long nothing has come on any of its connections.
    Link(Duration),
}

/// Watches the connections of a link, each of which has a name.
#[derive(Debug)]
pub struct Watch<K> {
    timeouts: KeepaliveTimeouts,
    looked: Option<Instant>,
    /// How long ago something came on any of them.
    unheard: Duration,
    connections: Vec<(K, Silence)>,
}

impl<K: Copy + PartialEq> Watch<K> {
    /// Nothing is known yet.
    pub fn new(timeouts: KeepaliveTimeouts) -> Self {
        Self { timeouts, looked: None, unheard: Duration::ZERO, connections: Vec::new() }
    }

    /// Looks at the connections that there are now; those of which the kernel knows nothing are left out.
    pub fn look(&mut self, now: Instant, connections: impl IntoIterator<Item = (K, Traffic)>) -> Liveness<K> {
        let step = self.looked.map_or(Duration::ZERO, |looked| now.saturating_duration_since(looked));
        let step = step.min(MAX_STEP);
        self.looked = Some(now);
        self.unheard = self.unheard.saturating_add(step);
        let (mut known, mut has_traffic) = (core::mem::take(&mut self.connections), false);
        for (name, traffic) in connections {
            let before = known.iter().position(|(known, _)| *known == name);
            let mut silence = before.map(|at| known.swap_remove(at).1).unwrap_or_default();
            has_traffic |= silence.look(traffic, step);
            self.connections.push((name, silence));
        }
        if has_traffic {
            // After a long silence on all of them nobody knows on which something comes first.
            let alone = core::mem::take(&mut self.unheard).min(MAX_STEP);
            let quiet = self.connections.iter_mut().filter(|(_, silence)| !silence.silent.is_zero());
            quiet.for_each(|(_, silence)| silence.alone = silence.alone.saturating_add(alone));
        }
        let KeepaliveTimeouts { connection, link } = self.timeouts;
        let liveliest = self.connections.iter().map(|(_, silence)| silence.silent).min();
        let Some(liveliest) = liveliest else { return Liveness::Connections(Vec::new()) };
        if liveliest >= link {
            return Liveness::Link(liveliest);
        }
        let dead = self.connections.iter().filter_map(|(name, silence)| {
            if silence.alone >= connection {
                Some((*name, silence.silent))
            } else if silence.standing_still >= link.max(STANDSTILL) {
                Some((*name, silence.standing_still))
            } else {
                None
            }
        });
        Liveness::Connections(dead.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A link with connections 0, 1, 2 that is looked at, its made-up clock, and what the kernel says.
    struct Link {
        watch: Watch<u8>,
        now: Instant,
        traffic: Vec<Traffic>,
    }

    impl Link {
        fn new(connection: u64, link: u64) -> Self {
            let traffic = Traffic { received: 100, unread: 0, acknowledged: 50, has_unacknowledged: false };
            let watch = Watch::new(KeepaliveTimeouts::of_seconds(connection, link));
            Self { watch, now: Instant::now(), traffic: vec![traffic; 3] }
        }

        /// A second passes, in which something comes on these connections.
        fn second(&mut self, received: &[usize]) -> Liveness<u8> {
            received.iter().for_each(|connection| self.traffic[*connection].received += 24);
            self.after(INTERVAL)
        }

        fn after(&mut self, time: Duration) -> Liveness<u8> {
            self.now += time;
            self.watch.look(self.now, (0..).zip(self.traffic.iter().copied()))
        }

        /// So many seconds pass like this, and nothing is given up.
        fn seconds(&mut self, count: u32, received: &[usize]) {
            for second in 0..count {
                assert_eq!(self.second(received), ALIVE, "after {second} s");
            }
        }
    }

    const ALIVE: Liveness<u8> = Liveness::Connections(Vec::new());
    const ALL: &[usize] = &[0, 1, 2];

    fn dead(connection: u8, seconds: u64) -> Liveness<u8> {
        Liveness::Connections(vec![(connection, Duration::from_secs(seconds))])
    }

    #[test]
    fn a_link_is_given_up_on_which_nothing_comes_at_all() {
        let mut link = Link::new(5, 10);
        link.seconds(100, ALL);
        link.seconds(9, &[]);
        assert_eq!(link.second(&[]), Liveness::Link(Duration::from_secs(10)));
    }

    #[test]
    fn any_byte_is_a_sign_of_life() {
        let mut link = Link::new(5, 5);
        link.seconds(1, ALL);
        for _ in 0..20 {
            link.seconds(4, &[]);
            link.traffic.iter_mut().for_each(|traffic| traffic.received += 1);
            link.seconds(1, &[]);
        }
    }

    #[test]
    fn a_connection_is_given_up_that_falls_silent_alone() {
        let mut link = Link::new(5, 1000);
        link.seconds(3, ALL);
        link.seconds(4, &[0, 2]);
        assert_eq!(link.second(&[0, 2]), dead(1, 5));
        link.traffic.truncate(1);
        link.seconds(50, &[0]);
    }

    #[test]
    fn a_peer_that_is_stopped_falls_silent_on_all_and_is_waited_for_longer() {
        let mut link = Link::new(5, 100);
        link.seconds(1, ALL);
        link.seconds(90, &[]);
        // It goes on, and is not heard on all at the same time.
        link.seconds(1, &[1]);
        link.seconds(1, ALL);
        link.seconds(99, &[]);
        assert_eq!(link.second(&[]), Liveness::Link(Duration::from_secs(100)));
    }

    #[test]
    fn time_in_which_this_process_did_not_run_is_nobodys_silence() {
        let mut link = Link::new(5, 10);
        link.seconds(1, ALL);
        for _ in 0..3 {
            assert_eq!(link.after(Duration::from_secs(86_400)), ALIVE);
        }
        link.seconds(3, &[]);
        assert_eq!(link.second(&[]), Liveness::Link(Duration::from_secs(10)));
    }

    #[test]
    fn whoever_reads_nothing_gives_nobody_up() {
        let mut link = Link::new(5, 5);
        link.seconds(1, ALL);
        // What is unread leaves no room; what this end sends is taken.
        for second in 0..1000 {
            for traffic in &mut link.traffic {
                (traffic.unread, traffic.has_unacknowledged) = (64 << 10, true);
                traffic.acknowledged += 24;
            }
            assert_eq!(link.second(&[]), ALIVE, "after {second} s");
        }
        link.traffic.iter_mut().for_each(|traffic| traffic.unread = 0);
        link.seconds(4, &[]);
        assert_eq!(link.second(&[]), Liveness::Link(Duration::from_secs(5)), "it reads again");
    }

    #[test]
    fn where_both_directions_stand_still_it_takes_long() {
        let mut link = Link::new(5, 5);
        link.seconds(1, ALL);
        (link.traffic[1].unread, link.traffic[1].has_unacknowledged) = (64 << 10, true);
        // The first look sees that bytes have come to wait.
        link.traffic[1].received += 64 << 10;
        link.seconds(600, &[0, 2]);
        assert_eq!(link.second(&[0, 2]), dead(1, 600));
    }

    #[test]
    fn zero_is_for_ever_and_a_timeout_leaves_time_for_a_late_keepalive() {
        let mut link = Link::new(0, 0);
        link.seconds(1, ALL);
        link.seconds(100_000, &[]);
        assert_eq!(KeepaliveTimeouts::of_seconds(1, 2), KeepaliveTimeouts::of_seconds(3, 3));
    }

    #[test]
    fn a_connection_that_comes_later_begins_anew() {
        let mut link = Link::new(5, 10);
        link.seconds(1, ALL);
        let lane = link.traffic.pop().unwrap();
        link.seconds(4, &[0, 1]);
        link.traffic.push(lane);
        link.seconds(5, &[0, 1]);
        assert_eq!(link.second(&[0, 1]), dead(2, 5));
    }
}
