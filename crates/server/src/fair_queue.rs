//! Fair queue of a device: whose sessions may run kernels on it, by shares, when several peers have some to run.
//!
//! Start-time fair queueing (P. Goyal, H. M. Vin, H. Cheng, SIGCOMM 1996). A slot belongs to a peer, and each of its
//! sessions that has kernels gets a lease of it, so that kernels of one peer may wait for each other. What a peer used
//! while others waited, divided by its share, is its virtual time, and the next slot is that of the peer with the least.
//! A peer alone keeps its slot without being asked. Peers may be in groups (P. Goyal's hierarchical queue): the time is
//! divided among groups and peers without one, and that of a group among its peers, by a virtual time of its own. Pure:
//! the time is an argument.

use std::collections::{HashMap, HashSet};
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

/// A message for a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action<S> {
    /// It may start kernels.
    Grant { session: S, lease: u32 },
    /// Others wait: it is to give the lease back when it has run nothing for [`LINGER`].
    Contend { session: S, lease: u32 },
    /// It is to start none any more, and to say when those that run have ended.
    Recall { session: S, lease: u32 },
}

/// A peer, or a group.
#[derive(Debug)]
struct Peer<P> {
    share: u32,
    /// The group that it is in. A group is in none.
    group: Option<P>,
    /// The virtual time up to which it has been served, in its group or among all.
    finish: u128,
    /// Of a group: the virtual time among its peers.
    virtual_time: u128,
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
    /// The peer's group, and where the slot starts in its time.
    group: Option<(P, u128)>,
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
    peers: HashMap<P, Peer<P>>,
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
    /// A session of a peer, which may be in a group with a share of its own, has kernels to run and no lease that holds. A
    /// share of 0 counts as 1.
    pub fn request(&mut self, session: S, peer: P, share: u32, group: Option<(P, u32)>, now: Duration) {
        if let Some((group, share)) = group {
            self.entry(group, now).share = share.max(1);
        }
        let entry = self.entry(peer, now);
        entry.share = share.max(1);
        let group = group.map(|(group, _)| group);
        if entry.group != group {
            // Its time was that of others.
            (entry.group, entry.finish) = (group, 0);
        }
        if let Some(ended_at) = entry.ended_at
            && now.saturating_sub(ended_at) <= ANTICIPATION
        {
            entry.returns_soon = true;
        }
        self.requests += 1;
        let member = self.sessions.entry(session).or_insert(Member { peer, waits_since: None, lease: None });
        member.waits_since.get_or_insert(self.requests);
    }

    fn entry(&mut self, peer: P, now: Duration) -> &mut Peer<P> {
        self.peers.entry(peer).or_insert(Peer {
            share: 1,
            group: None,
            finish: 0,
            virtual_time: 0,
            ended_at: None,
            returns_soon: true,
            overdue: 0,
            overdue_since: now,
        })
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
        let Some(peer) = self.peers.get_mut(&member.peer) else { return };
        peer.overdue -= 1;
        if peer.overdue > 0 {
            return;
        }
        let (used, group) = (now.saturating_sub(peer.overdue_since), peer.group);
        peer.finish += cost(used, peer.share);
        if let Some(group) = group.and_then(|group| self.peers.get_mut(&group)) {
            group.finish += cost(used, group.share);
        }
    }

    /// Messages that are due for sessions.
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
        let used = slot.contended_since.map_or(Duration::ZERO, |since| now.saturating_sub(since));
        if let Some(peer) = self.peers.get_mut(&slot.peer) {
            // Who is in another group by now has another time.
            if peer.group == slot.group.map(|(group, _)| group) {
                peer.finish = peer.finish.max(slot.start) + cost(used, peer.share);
            }
            peer.ended_at = Some(now);
        }
        if let Some((group, start)) = slot.group
            && let Some(group) = self.peers.get_mut(&group)
        {
            group.finish = group.finish.max(start) + cost(used, group.share);
        }
        self.last = Some(slot.peer);
    }

    /// The group of a peer, or the peer itself: among these the time is divided first.
    fn top(&self, peer: P) -> P {
        self.peers.get(&peer).and_then(|entry| entry.group).unwrap_or(peer)
    }

    /// The virtual time of a group, or of all.
    fn virtual_time(&self, group: Option<P>) -> u128 {
        group.map_or(self.virtual_time, |group| self.peers.get(&group).map_or(0, |entry| entry.virtual_time))
    }

    /// The virtual time at which a slot of a peer would start, in its group or among all.
    fn tag(&self, peer: P) -> u128 {
        let entry = self.peers.get(&peer);
        entry.map_or(0, |entry| entry.finish).max(self.virtual_time(entry.and_then(|entry| entry.group)))
    }

    /// Whether a peer would come before another one.
    fn precedes(&self, peer: P, other: P) -> bool {
        let (top, other_top) = (self.top(peer), self.top(other));
        if top == other_top { self.tag(peer) < self.tag(other) } else { self.tag(top) < self.tag(other_top) }
    }

    /// Begins the slot of the peer that has used the least of its share.
    fn choose(&mut self, now: Duration) {
        self.awaited = None;
        let waiting = || self.sessions.values().filter_map(|member| Some((member.waits_since?, member.peer)));
        let first = waiting().min_by_key(|(since, peer)| (self.tag(self.top(*peer)), *since));
        let Some(top) = first.map(|(_, peer)| self.top(peer)) else { return self.forget() };
        let of_top = waiting().filter(|(_, peer)| self.top(*peer) == top);
        let Some((_, peer)) = of_top.min_by_key(|(since, peer)| (self.tag(*peer), *since)) else { return };
        if let Some(last) = self.last
            && last != peer
            && self.precedes(last, peer)
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
        let (start, group) = (self.tag(peer), (top != peer).then(|| (top, self.tag(top))));
        self.virtual_time = self.tag(top);
        if let Some(entry) = group.and_then(|(group, _)| self.peers.get_mut(&group)) {
            entry.virtual_time = start;
        }
        self.forget();
        self.slot = Some(Slot { peer, start, group, since: now, contended_since: None, recalled_at: None });
    }

    /// Forgets the peers and groups of which nothing is to be known: they are as new ones. A group is known for as long as
    /// its peers are, whose time is its own.
    fn forget(&mut self) {
        let has_sessions = |peer: &P| self.sessions.values().any(|member| member.peer == *peer);
        let is_known = |(peer, entry): &(&P, &Peer<P>)| {
            entry.finish > self.virtual_time(entry.group) || has_sessions(peer)
        };
        let known = self.peers.iter().filter(is_known);
        let known: HashSet<P> =
            known.flat_map(|(peer, entry)| [Some(*peer), entry.group]).flatten().collect();
        self.peers.retain(|peer, _| known.contains(peer));
    }
}

/// What so much time is in the virtual time of a peer.
fn cost(time: Duration, share: u32) -> u128 {
    time.as_nanos() * PARTS / u128::from(share.max(1))
}

#[cfg(test)]
mod tests;
