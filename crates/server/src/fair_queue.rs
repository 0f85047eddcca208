//! Fair queue of a device: whose sessions may run kernels on it, by shares, when several peers have some to run.
//!
//! Start-time fair queueing (P. Goyal, H. M. Vin, H. Cheng, SIGCOMM 1996). A slot belongs to a peer, and each of its
//! sessions that has kernels gets a lease of it, so that kernels of one peer may wait for each other. What a peer used
//! while others waited, divided by its share, is its virtual time, and the next slot is that of the peer with the least.
//! A peer alone keeps its slot without being asked. Pure: the time is an argument.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

/// How long a peer may start kernels while others wait. A kernel that runs longer is never interrupted.
pub const QUANTUM: Duration = Duration::from_millis(20);

/// For how long after its slot was recalled a peer may start what its running kernels may be waiting for.
pub const DRAIN: Duration = Duration::from_millis(50);

/// How long the others wait for kernels of a slot that was recalled. Later ones run at the same time: a kernel may wait for
/// one that is still to start.
const OVERDUE: Duration = Duration::from_secs(2);

/// How long the device is kept for a peer that has used less than those who wait: its program has got a result and is
/// about to launch what comes next.
const ANTICIPATION: Duration = Duration::from_millis(5);

/// For how long a session keeps its lease without kernels while others wait: the next one of a stream follows at once.
pub const LINGER: Duration = Duration::from_millis(1);

/// Parts of a nanosecond in virtual time, so that shares divide it exactly enough.
const PARTS: u128 = 1 << 20;

/// What a session is to be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action<S> {
    /// It may start kernels.
    Grant { session: S, lease: u32 },
    /// Others wait: it is to give the lease back when it has run nothing for [`LINGER`].
    Contend { session: S, lease: u32 },
    /// It is to start none any more, and to say when those that run have ended.
    Recall { session: S, lease: u32 },
}

#[derive(Debug)]
struct Peer {
    share: u32,
    /// The virtual time up to which it has been served.
    finish: u128,
    /// When a slot of it ended last.
    ended_at: Option<Duration>,
    /// Whether it asks again right after its kernels have ended, as far as is known.
    returns_soon: bool,
    /// Leases that the others do not wait for any more, and since when there are some.
    overdue: usize,
    overdue_since: Duration,
}

/// How far it is with a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Standing {
    Alone,
    Contended,
    Recalled,
    /// The others do not wait for it any more.
    Overdue,
}

#[derive(Debug, Clone, Copy)]
struct Lease {
    number: u32,
    standing: Standing,
}

#[derive(Debug)]
struct Member<P> {
    peer: P,
    /// Since which request it waits.
    waits_since: Option<u64>,
    lease: Option<Lease>,
}

#[derive(Debug)]
struct Slot<P> {
    peer: P,
    start: u128,
    since: Duration,
    /// Since when others wait.
    contended_since: Option<Duration>,
    recalled_at: Option<Duration>,
}

/// The peers that use a device, and their sessions.
#[derive(Debug)]
pub struct FairQueue<S, P> {
    newest_lease: u32,
    requests: u64,
    virtual_time: u128,
    peers: HashMap<P, Peer>,
    sessions: HashMap<S, Member<P>>,
    slot: Option<Slot<P>>,
    /// The peer that the device is kept for.
    awaited: Option<(P, Duration)>,
    /// Whose slot was the last one.
    last: Option<P>,
    actions: Vec<Action<S>>,
}

impl<S, P> Default for FairQueue<S, P> {
    fn default() -> Self {
        Self {
            newest_lease: 0,
            requests: 0,
            virtual_time: 0,
            peers: HashMap::new(),
            sessions: HashMap::new(),
            slot: None,
            awaited: None,
            last: None,
            actions: Vec::new(),
        }
    }
}

impl<S: Copy + Eq + Hash, P: Copy + Eq + Hash> FairQueue<S, P> {
    /// A session has kernels to run and no lease that holds. A share of 0 counts as 1.
    pub fn request(&mut self, session: S, peer: P, share: u32, now: Duration) {
        let entry = self.peers.entry(peer).or_insert(Peer {
            share: 1,
            finish: 0,
            ended_at: None,
            returns_soon: true,
            overdue: 0,
            overdue_since: now,
        });
        entry.share = share.max(1);
        if let Some(ended_at) = entry.ended_at
            && now.saturating_sub(ended_at) <= ANTICIPATION
        {
            entry.returns_soon = true;
        }
        self.requests += 1;
        let member = self.sessions.entry(session).or_insert(Member { peer, waits_since: None, lease: None });
        member.waits_since.get_or_insert(self.requests);
    }

    /// All kernels of a session that had this lease have ended.
    pub fn ended(&mut self, session: S, lease: u32, now: Duration) {
        let Some(member) = self.sessions.get_mut(&session) else { return };
        if member.lease.is_some_and(|held| held.number == lease) {
            self.end_lease(session, now);
        }
    }

    /// A session is gone, with what it had and wanted.
    pub fn session_ends(&mut self, session: S, now: Duration) {
        self.end_lease(session, now);
        self.sessions.remove(&session);
    }

    fn end_lease(&mut self, session: S, now: Duration) {
        let Some(member) = self.sessions.get_mut(&session) else { return };
        let Some(lease) = member.lease.take() else { return };
        if lease.standing != Standing::Overdue {
            return;
        }
        if let Some(peer) = self.peers.get_mut(&member.peer) {
            peer.overdue -= 1;
            if peer.overdue == 0 {
                peer.finish += cost(now.saturating_sub(peer.overdue_since), peer.share);
            }
        }
    }

    /// What sessions are to be told by now.
    pub fn actions(&mut self, now: Duration) -> Vec<Action<S>> {
        self.advance(now);
        if self.slot.is_none() {
            self.choose(now);
            self.advance(now);
        }
        core::mem::take(&mut self.actions)
    }

    /// When something is to be done although nothing happens.
    pub fn next_deadline(&self) -> Option<Duration> {
        match (&self.slot, self.awaited) {
            (None, awaited) => awaited.map(|(_, end)| end),
            (Some(Slot { recalled_at: Some(at), .. }), _) => self.has_rival().then_some(*at + OVERDUE),
            (Some(slot), _) => slot.contended_since.map(|since| since.max(slot.since + QUANTUM)),
        }
    }

    fn holders(&self, peer: P) -> impl Iterator<Item = (S, Lease)> {
        self.sessions.iter().filter(move |(_, member)| member.peer == peer).filter_map(|(session, member)| {
            member.lease.filter(|lease| lease.standing != Standing::Overdue).map(|lease| (*session, lease))
        })
    }

    /// Whether a session waits that has no lease, or one that was recalled.
    fn has_rival(&self) -> bool {
        self.sessions.values().any(|member| member.waits_since.is_some())
    }

    /// Goes on with the slot that there is, and ends it when it is over.
    fn advance(&mut self, now: Duration) {
        let Some(slot) = &self.slot else { return };
        let (peer, recalled_at) = (slot.peer, slot.recalled_at);
        let has_holders = self.holders(peer).next().is_some();
        // Its own sessions join it.
        let is_open = recalled_at.is_none_or(|at| has_holders && now < at + DRAIN);
        if is_open {
            self.grant_all(peer, now);
        }
        let others_wait =
            self.sessions.values().any(|member| member.peer != peer && member.waits_since.is_some());
        if others_wait && let Some(slot) = &mut self.slot {
            slot.contended_since.get_or_insert(now);
        }
        let has_holders = self.holders(peer).next().is_some();
        if !has_holders {
            return self.end_slot(now);
        }
        let Some(slot) = &mut self.slot else { return };
        if slot.contended_since.is_some() && now >= slot.since + QUANTUM {
            slot.recalled_at.get_or_insert(now);
        }
        match (slot.recalled_at, slot.contended_since) {
            (Some(at), _) if now >= at + OVERDUE && self.has_rival() => self.mark_overdue(peer, now),
            (Some(_), _) => self.notify_holders(peer, Standing::Recalled),
            (None, Some(_)) => self.notify_holders(peer, Standing::Contended),
            (None, None) => {}
        }
    }

    /// Gives a lease to each session of a peer that waits for one.
    fn grant_all(&mut self, peer: P, now: Duration) {
        let mut waiting: Vec<_> = self
            .sessions
            .iter()
            .filter(|(_, member)| member.peer == peer)
            .filter_map(|(session, member)| Some((member.waits_since?, *session)))
            .collect();
        waiting.sort_unstable_by_key(|(since, _)| *since);
        for (_, session) in waiting {
            // One from an earlier slot is over with it.
            self.end_lease(session, now);
            self.newest_lease = self.newest_lease.wrapping_add(1);
            let number = self.newest_lease;
            if let Some(member) = self.sessions.get_mut(&session) {
                member.waits_since = None;
                member.lease = Some(Lease { number, standing: Standing::Alone });
                self.actions.push(Action::Grant { session, lease: number });
            }
        }
    }

    /// Tells the holders of a slot once how far it is.
    fn notify_holders(&mut self, peer: P, standing: Standing) {
        for (&session, member) in self.sessions.iter_mut().filter(|(_, member)| member.peer == peer) {
            if let Some(lease) = member.lease.as_mut().filter(|lease| lease.standing < standing) {
                lease.standing = standing;
                let lease = lease.number;
                self.actions.push(match standing {
                    Standing::Recalled => Action::Recall { session, lease },
                    _ => Action::Contend { session, lease },
                });
            }
        }
    }

    /// The others wait no longer for a slot.
    fn mark_overdue(&mut self, peer: P, now: Duration) {
        let mut left = 0;
        for member in self.sessions.values_mut().filter(|member| member.peer == peer) {
            if let Some(lease) = member.lease.as_mut().filter(|lease| lease.standing != Standing::Overdue) {
                lease.standing = Standing::Overdue;
                left += 1;
            }
        }
        if let Some(entry) = self.peers.get_mut(&peer) {
            if entry.overdue == 0 {
                entry.overdue_since = now;
            }
            entry.overdue += left;
        }
        self.end_slot(now);
        // It is not about to launch anything.
        self.last = None;
    }

    /// The slot is over, and its peer has used what it used while others waited.
    fn end_slot(&mut self, now: Duration) {
        let Some(slot) = self.slot.take() else { return };
        if let Some(peer) = self.peers.get_mut(&slot.peer) {
            let used = slot.contended_since.map_or(Duration::ZERO, |since| now.saturating_sub(since));
            peer.finish = peer.finish.max(slot.start) + cost(used, peer.share);
            peer.ended_at = Some(now);
        }
        self.last = Some(slot.peer);
    }

    /// The virtual time at which a slot of a peer would start.
    fn tag(&self, peer: P) -> u128 {
        self.peers.get(&peer).map_or(0, |entry| entry.finish).max(self.virtual_time)
    }

    /// Begins the slot of the peer that has used the least of its share.
    fn choose(&mut self, now: Duration) {
        self.awaited = None;
        let waiting = self.sessions.values().filter_map(|member| Some((member.waits_since?, member.peer)));
        let Some((start, _, peer)) = waiting
            .map(|(since, peer)| (self.tag(peer), since, peer))
            .min_by_key(|(tag, since, _)| (*tag, *since))
        else {
            return self.forget();
        };
        if let Some(last) = self.last
            && last != peer
            && self.tag(last) < start
            && self.sessions.values().any(|member| member.peer == last)
            && let Some(entry) = self.peers.get_mut(&last)
            && entry.returns_soon
            && let Some(ended_at) = entry.ended_at
        {
            if now < ended_at + ANTICIPATION {
                self.awaited = Some((last, ended_at + ANTICIPATION));
                return;
            }
            entry.returns_soon = false;
        }
        self.virtual_time = start;
        self.forget();
        self.slot = Some(Slot { peer, start, since: now, contended_since: None, recalled_at: None });
    }

    /// Forgets the peers of which nothing is to be known: they are as new ones.
    fn forget(&mut self) {
        let (sessions, virtual_time) = (&self.sessions, self.virtual_time);
        self.peers.retain(|peer, entry| {
            entry.finish > virtual_time || sessions.values().any(|member| member.peer == *peer)
        });
    }
}

/// What so much time is in the virtual time of a peer.
fn cost(time: Duration, share: u32) -> u128 {
    time.as_nanos() * PARTS / u128::from(share.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLISECOND: Duration = Duration::from_millis(1);

    /// A program that launches kernels of one length, and so long after the end of one the next.
    #[derive(Clone, Copy)]
    struct Program {
        peer: u8,
        share: u32,
        kernel: Duration,
        pause: Duration,
    }

    /// What a worker does for a program, step by step.
    #[derive(Clone, Copy, PartialEq, Debug)]
    enum Doing {
        Pauses(Duration),
        Waits,
        Runs { until: Duration, lease: u32 },
    }

    /// Runs programs for `length` on a device; for how long each has had it, and how long each waited at most.
    fn simulate(programs: &[Program], length: Duration) -> Vec<(Duration, Duration)> {
        let mut queue = FairQueue::default();
        let mut doing = vec![Doing::Pauses(Duration::ZERO); programs.len()];
        // The lease that holds, whether others wait, and whether it was recalled.
        let mut leases: Vec<Option<(u32, bool, bool)>> = vec![None; programs.len()];
        let mut results = vec![(Duration::ZERO, Duration::ZERO); programs.len()];
        let mut waits_since = vec![Duration::ZERO; programs.len()];
        let mut now = Duration::ZERO;
        while now < length {
            for (number, program) in programs.iter().enumerate() {
                if let Doing::Runs { until, lease } = doing[number]
                    && until <= now
                {
                    results[number].0 += program.kernel;
                    doing[number] = Doing::Pauses(now + program.pause);
                    if leases[number] == Some((lease, true, true)) {
                        leases[number] = None;
                        queue.ended(number, lease, now);
                    }
                }
                if let Doing::Pauses(until) = doing[number]
                    && until <= now
                {
                    if let Some((lease, _, false)) = leases[number] {
                        doing[number] = Doing::Runs { until: now + program.kernel, lease };
                    } else {
                        (doing[number], waits_since[number]) = (Doing::Waits, now);
                        queue.request(number, program.peer, program.share, now);
                    }
                }
                // It gives back what it does not use.
                if let (Doing::Pauses(until), Some((lease, true, _))) = (doing[number], leases[number])
                    && now >= until - program.pause + LINGER
                {
                    leases[number] = None;
                    queue.ended(number, lease, now);
                }
            }
            let mut actions = queue.actions(now);
            while !actions.is_empty() {
                for action in core::mem::take(&mut actions) {
                    match action {
                        Action::Grant { session, lease } => {
                            assert_eq!(doing[session], Doing::Waits);
                            leases[session] = Some((lease, false, false));
                            let wait = &mut results[session].1;
                            *wait = (*wait).max(now - waits_since[session]);
                            let until = now + programs[session].kernel;
                            doing[session] = Doing::Runs { until, lease };
                        }
                        Action::Contend { session, lease } => {
                            assert_eq!(leases[session], Some((lease, false, false)));
                            leases[session] = Some((lease, true, false));
                        }
                        Action::Recall { session, lease } => {
                            assert!(leases[session].is_some_and(|held| held.0 == lease && !held.2));
                            leases[session] = Some((lease, true, true));
                            if !matches!(doing[session], Doing::Runs { .. }) {
                                leases[session] = None;
                                queue.ended(session, lease, now);
                            }
                        }
                    }
                }
                actions = queue.actions(now);
            }
            let running: Vec<_> = doing
                .iter()
                .zip(programs)
                .filter(|(doing, program)| matches!(doing, Doing::Runs { .. }) && program.kernel < OVERDUE)
                .map(|(_, program)| program.peer)
                .collect();
            assert!(running.windows(2).all(|pair| pair[0] == pair[1]), "one peer at a time: {running:?}");
            let next =
                doing.iter().zip(programs).zip(&leases).filter_map(|((doing, program), lease)| {
                    match (*doing, lease) {
                        (Doing::Pauses(until), Some((_, true, _))) => Some(
                            until.min((until - program.pause + LINGER).max(now + Duration::from_micros(1))),
                        ),
                        (Doing::Pauses(until) | Doing::Runs { until, .. }, _) => Some(until),
                        (Doing::Waits, _) => None,
                    }
                });
            let next = next.chain(queue.next_deadline()).min().expect("somebody goes on");
            assert!(next > now, "nothing happens at {now:?}: {queue:?}");
            now = next;
        }
        results
    }

    /// What a session hears that gets a slot while others wait.
    fn contended(session: u8, lease: u32) -> [Action<u8>; 2] {
        [Action::Grant { session, lease }, Action::Contend { session, lease }]
    }

    fn ratio(results: &[(Duration, Duration)]) -> f64 {
        results[0].0.as_secs_f64() / results[1].0.as_secs_f64()
    }

    #[test]
    fn shares_of_three_to_one_give_three_to_one() {
        for kernel in [1, 5, 30, 100, 700] {
            // A program that pauses for long leaves the device to others.
            for pause in [0, 1, 3].into_iter().filter(|pause| 4 * *pause <= kernel) {
                let program =
                    Program { peer: 1, share: 3, kernel: kernel * MILLISECOND, pause: pause * MILLISECOND };
                let other = Program { peer: 2, share: 1, ..program };
                let ratio = ratio(&simulate(&[program, other], Duration::from_secs(100)));
                assert!((2.7..3.3).contains(&ratio), "kernels of {kernel} ms, {pause} ms apart: {ratio}");
            }
        }
        // Kernels of different lengths.
        let long = Program { peer: 1, share: 3, kernel: 300 * MILLISECOND, pause: MILLISECOND };
        let short = Program { peer: 2, share: 1, kernel: 7 * MILLISECOND, pause: Duration::ZERO };
        let ratio = ratio(&simulate(&[long, short], Duration::from_secs(100)));
        assert!((2.7..3.3).contains(&ratio), "{ratio}");
    }

    #[test]
    fn sessions_of_a_peer_have_its_share_together() {
        let program = Program { peer: 1, share: 1, kernel: 50 * MILLISECOND, pause: MILLISECOND };
        let other = Program { peer: 2, share: 2, ..program };
        let results = simulate(&[program, program, other], Duration::from_secs(100));
        // Both of one peer run at the same time.
        let ratio = results[2].0.as_secs_f64() / results[0].0.as_secs_f64();
        assert!((1.8..2.2).contains(&ratio) && results[0].0 == results[1].0, "{results:?}");
    }

    #[test]
    fn one_who_is_idle_saves_nothing_and_loses_nothing() {
        let busy = Program { peer: 1, share: 1, kernel: 10 * MILLISECOND, pause: Duration::ZERO };
        let seldom = Program { peer: 2, share: 1, kernel: MILLISECOND, pause: 100 * MILLISECOND };
        let results = simulate(&[busy, seldom], Duration::from_secs(100));
        // Nobody keeps the device for what does not come soon.
        assert!(results[0].0 > Duration::from_secs(96), "{results:?}");
        assert!(results[1].1 <= QUANTUM + 15 * MILLISECOND, "it comes next: {results:?}");
        // One who was alone for long owes nothing for that time.
        let mut queue = FairQueue::default();
        let at = |seconds| Duration::from_secs(seconds);
        queue.request(1, 1, 1, at(0));
        assert_eq!(queue.actions(at(0)), [Action::Grant { session: 1, lease: 1 }]);
        assert_eq!(queue.next_deadline(), None, "alone, it is never asked");
        queue.request(2, 2, 1, at(3600));
        assert_eq!(queue.actions(at(3600)), [Action::Recall { session: 1, lease: 1 }]);
        queue.ended(1, 1, at(3600));
        assert_eq!(queue.actions(at(3600)), [Action::Grant { session: 2, lease: 2 }]);
        queue.request(1, 1, 1, at(3600));
        assert_eq!(queue.actions(at(3600)), [Action::Contend { session: 2, lease: 2 }]);
        assert_eq!(queue.next_deadline(), Some(at(3600) + QUANTUM));
        assert_eq!(queue.actions(at(3600) + QUANTUM), [Action::Recall { session: 2, lease: 2 }]);
    }

    #[test]
    fn a_kernel_without_end_holds_nobody_up_for_long() {
        let endless = Program { peer: 1, share: 3, kernel: Duration::from_secs(1000), pause: MILLISECOND };
        let other = Program { peer: 2, share: 1, kernel: 10 * MILLISECOND, pause: MILLISECOND };
        let results = simulate(&[endless, other], Duration::from_secs(100));
        assert!(results[1].0 > Duration::from_secs(80) && results[1].1 <= OVERDUE + QUANTUM, "{results:?}");
    }

    #[test]
    fn kernels_of_a_peer_that_wait_for_each_other_get_there() {
        let mut queue = FairQueue::default();
        queue.request(1, 1, 1, Duration::ZERO);
        queue.request(9, 2, 1, Duration::ZERO);
        assert_eq!(queue.actions(Duration::ZERO), contended(1, 1));
        assert_eq!(queue.actions(QUANTUM), [Action::Recall { session: 1, lease: 1 }]);
        // Another session of the peer, a moment later.
        queue.request(2, 1, 1, QUANTUM);
        let joins = [Action::Grant { session: 2, lease: 2 }, Action::Recall { session: 2, lease: 2 }];
        assert_eq!(queue.actions(QUANTUM), joins);
        // A third one comes too late for this slot, and without it neither of the two ends.
        queue.request(3, 1, 1, QUANTUM + DRAIN);
        assert_eq!(queue.actions(QUANTUM + DRAIN), []);
        assert_eq!(queue.next_deadline(), Some(QUANTUM + OVERDUE));
        let left = QUANTUM + OVERDUE;
        assert_eq!(queue.actions(left), contended(9, 3));
        queue.ended(9, 3, left);
        assert_eq!(queue.actions(left), [], "the other one may want more");
        let later = left + ANTICIPATION;
        assert_eq!(queue.actions(later), [Action::Grant { session: 3, lease: 4 }]);
    }

    #[test]
    fn a_dead_session_loses_its_turn_at_once() {
        let mut queue = FairQueue::default();
        queue.request(1, 1, 1, Duration::ZERO);
        queue.request(2, 2, 1, Duration::ZERO);
        assert_eq!(queue.actions(Duration::ZERO), contended(1, 1));
        queue.session_ends(1, MILLISECOND);
        assert_eq!(queue.actions(MILLISECOND), [Action::Grant { session: 2, lease: 2 }]);
        // What is said of leases that are over, or never were, changes nothing.
        queue.ended(2, 1, MILLISECOND);
        queue.ended(7, 2, MILLISECOND);
        queue.session_ends(1, MILLISECOND);
        assert_eq!(queue.actions(MILLISECOND), []);
        queue.session_ends(2, MILLISECOND);
        assert_eq!((queue.actions(MILLISECOND), queue.next_deadline()), (vec![], None));
        assert!(queue.sessions.is_empty() && queue.slot.is_none());
    }

    /// Whatever sessions say and when: leases that hold are of one peer, and nobody waits for ever.
    #[test]
    fn whatever_sessions_say_everybody_gets_a_turn() {
        let mut seed = 1_u64;
        let mut random = move |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        for _ in 0..200 {
            let mut queue = FairQueue::default();
            let mut now = Duration::ZERO;
            let mut leases: HashMap<u64, u32> = HashMap::new();
            let mut waits: HashMap<u64, Duration> = HashMap::new();
            for _ in 0..400 {
                let session = random(6);
                match random(8) {
                    0..3 => {
                        queue.request(session, session % 3, random(4) as u32, now);
                        waits.entry(session).or_insert(now);
                    }
                    3..6 => {
                        let lease = leases.get(&session).copied().unwrap_or(random(9) as u32);
                        queue.ended(session, lease, now);
                    }
                    6 if random(4) == 0 => {
                        queue.session_ends(session, now);
                        waits.remove(&session);
                        leases.remove(&session);
                    }
                    _ => now += Duration::from_millis(random(40)),
                }
                while queue.next_deadline().is_some_and(|end| end <= now) || random(2) == 0 {
                    for action in queue.actions(now) {
                        if let Action::Grant { session, lease } = action {
                            leases.insert(session, lease);
                            let since = waits.remove(&session).expect("it has asked");
                            // Each of two others may have a slot, again and again as their shares are.
                            assert!(now - since < 9 * (OVERDUE + QUANTUM + ANTICIPATION + DRAIN));
                        }
                    }
                    let valid = queue.sessions.values().filter(|member| {
                        member.lease.is_some_and(|lease| lease.standing != Standing::Overdue)
                    });
                    let peers: Vec<_> = valid.map(|member| member.peer).collect();
                    assert!(peers.windows(2).all(|pair| pair[0] == pair[1]), "{queue:?}");
                    let overdue: usize = queue.peers.values().map(|peer| peer.overdue).sum();
                    let counted = queue.sessions.values().filter(|member| {
                        member.lease.is_some_and(|lease| lease.standing == Standing::Overdue)
                    });
                    assert_eq!(overdue, counted.count(), "{queue:?}");
                }
            }
        }
    }
}
