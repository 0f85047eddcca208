//! Device memory accounts: how much of it the sessions of each peer and group have, and whether they may have more.
//!
//! A worker asks before it has its back end allocate, and says when memory has been freed; one that ends returns what
//! it had. The account holds for what clients send: a worker that its client has taken over may allocate without asking.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use causeway_access::keys::groups::{GroupName, PeerLimits};
use causeway_config::Size;
use causeway_wire::handshake::SessionId;
use thiserror::Error;

use crate::admission::{LimitScope, Source};
use crate::locks::{Mutex, rank};

/// How much there is of what a session asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryBounds {
    /// What all sessions of its peer may have together, if that is limited.
    pub limit: Option<u64>,
    /// The peer's group, and what all sessions of its members may have together, if that is limited.
    pub group: Option<(GroupName, Option<u64>)>,
    /// All memory of a device that the broker alone divides up among sessions; 0 for a device of another kind.
    pub capacity: u64,
}

impl MemoryBounds {
    /// No limit of the peer, and no device that is divided up.
    const NONE: Self = Self { limit: None, group: None, capacity: 0 };

    /// Those of a peer, on a device of `capacity` bytes.
    pub fn of_peer(limits: &PeerLimits, capacity: u64) -> Self {
        let group = limits.group.map(|(name, limits)| (name, limits.device_memory));
        Self { limit: limits.own.device_memory, group, capacity }
    }

    /// The peer's group.
    pub fn group_name(self) -> Option<GroupName> {
        self.group.map(|(name, _)| name)
    }

    /// Whether any amount is granted.
    pub fn is_unlimited(self) -> bool {
        self.limit.is_none() && self.group_limit().is_none() && self.capacity == 0
    }

    fn group_limit(self) -> Option<u64> {
        self.group.and_then(|(_, limit)| limit)
    }
}

/// Why a session gets no more device memory; sentences for the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum MemoryRefused {
    /// Its peer has as much as it may have.
    #[error(
        "{} bytes of device memory were requested, and {peer} has {} of the {} that `device-memory` in the \
         list of clients allows (`causeway client limit`)",
        Size(*requested), Size(*used), Size(*limit)
    )]
    Peer {
        /// Whose memory it is.
        peer: Source,
        /// What was asked for.
        requested: u64,
        /// What it has.
        used: u64,
        /// What it may have.
        limit: u64,
    },
    /// Its peer's group has as much as it may have.
    #[error(
        "{} bytes of device memory were asked for, and group {group} has {} of the {} that `device-memory` of [groups.{group}] in \
         the list of clients lets its members have together",
        Size(*requested), Size(*used), Size(*limit)
    )]
    Group {
        /// Whose memory it is.
        group: GroupName,
        /// What was asked for.
        requested: u64,
        /// What all sessions of its members have.
        used: u64,
        /// What they may have.
        limit: u64,
    },
    /// The device has no more.
    #[error(
        "{} bytes of device memory were requested, and all sessions use {} of {}",
        Size(*requested), Size(*used), Size(*capacity)
    )]
    Device {
        /// What was asked for.
        requested: u64,
        /// What all sessions have.
        used: u64,
        /// What there is.
        capacity: u64,
    },
}

/// What one session has.
#[derive(Debug, Clone, Copy)]
struct Account {
    peer: Source,
    group: Option<GroupName>,
    /// Bytes of any device.
    bytes: u64,
    /// Those of a device that the broker alone divides up.
    shared: u64,
    /// Those of such a device that are on the host for now.
    suspended: u64,
}

#[derive(Debug, Default)]
struct Accounts {
    sessions: HashMap<SessionId, Account>,
    used: HashMap<LimitScope, u64>,
    shared: u64,
}

impl Accounts {
    fn used_by(&self, scope: LimitScope) -> u64 {
        self.used.get(&scope).copied().unwrap_or(0)
    }

    /// The bytes of a session count for its peer's group from now on.
    fn set_group(&mut self, session: SessionId, group: Option<GroupName>) {
        let Some(account) = self.sessions.get_mut(&session) else { return };
        let (before, bytes) = (core::mem::replace(&mut account.group, group), account.bytes);
        if before != group {
            self.subtract(before.map(LimitScope::Group), bytes);
            self.add(group.map(LimitScope::Group), bytes);
        }
    }

    fn add(&mut self, scope: Option<LimitScope>, bytes: u64) {
        if let Some(scope) = scope.filter(|_| bytes > 0) {
            let used = self.used.entry(scope).or_default();
            // Each peer's bytes fit; several peers of a group say what they like.
            *used = used.saturating_add(bytes);
        }
    }

    fn subtract(&mut self, scope: Option<LimitScope>, bytes: u64) {
        if let Some(scope) = scope
            && let Entry::Occupied(mut used) = self.used.entry(scope)
        {
            *used.get_mut() = used.get().saturating_sub(bytes);
            if *used.get() == 0 {
                used.remove();
            }
        }
    }

    /// Why a peer, or its group, may have no more.
    fn check(&self, peer: Source, requested: u64, bounds: MemoryBounds) -> Result<(), MemoryRefused> {
        let is_above = |used: u64, limit: &u64| used.checked_add(requested).is_none_or(|all| all > *limit);
        let used = self.used_by(LimitScope::Peer(peer));
        if let Some(limit) = bounds.limit.filter(|limit| is_above(used, limit)) {
            return Err(MemoryRefused::Peer { peer, requested, used, limit });
        }
        if let Some((group, Some(limit))) = bounds.group {
            let used = self.used_by(LimitScope::Group(group));
            if is_above(used, &limit) {
                return Err(MemoryRefused::Group { group, requested, used, limit });
            }
        }
        Ok(())
    }

    /// Takes bytes from what a session has, no more than that.
    fn release(&mut self, session: SessionId, bytes: u64) {
        let Some(account) = self.sessions.get_mut(&session) else { return };
        let bytes = bytes.min(account.bytes);
        let shared = bytes.min(account.shared);
        account.bytes -= bytes;
        account.shared -= shared;
        account.suspended = account.suspended.saturating_sub(bytes - shared);
        self.shared -= shared;
        let (peer, group) = (account.peer, account.group);
        self.subtract(Some(LimitScope::Peer(peer)), bytes);
        self.subtract(group.map(LimitScope::Group), bytes);
    }
}

/// The accounts of all sessions of one broker.
#[derive(Debug, Default)]
pub struct DeviceMemory(Mutex<rank::Leaf, Accounts>);

impl DeviceMemory {
    /// Lets a session have more, if its peer and the peer's group may and there is enough.
    ///
    /// # Errors
    /// What there is not enough of.
    pub fn reserve(
        &self,
        session: SessionId,
        peer: Source,
        bytes: u64,
        bounds: MemoryBounds,
    ) -> Result<(), MemoryRefused> {
        let mut accounts = self.0.lock();
        let (group, capacity) = (bounds.group_name(), bounds.capacity);
        accounts.set_group(session, group);
        accounts.check(peer, bytes, bounds)?;
        let of_device = MemoryRefused::Device { requested: bytes, used: accounts.shared, capacity };
        if capacity != 0 && accounts.shared.checked_add(bytes).is_none_or(|all| all > capacity) {
            return Err(of_device);
        }
        // What does not fit into 64 bits is no memory of any device.
        accounts.used_by(LimitScope::Peer(peer)).checked_add(bytes).ok_or(of_device)?;
        let shared = if capacity == 0 { 0 } else { bytes };
        let new = Account { peer, group, bytes: 0, shared: 0, suspended: 0 };
        let account = accounts.sessions.entry(session).or_insert(new);
        account.bytes += bytes;
        account.shared += shared;
        accounts.shared += shared;
        accounts.add(Some(LimitScope::Peer(peer)), bytes);
        accounts.add(group.map(LimitScope::Group), bytes);
        Ok(())
    }

    /// A session has more, without a limit.
    pub fn take(&self, session: SessionId, peer: Source, group: Option<GroupName>, bytes: u64) {
        let group = group.map(|name| (name, None));
        // Only sizes that no device has are refused.
        let _ = self.reserve(session, peer, bytes, MemoryBounds { group, ..MemoryBounds::NONE });
    }

    /// Whether a peer, and its group, may have as much again as one of its sessions has.
    ///
    /// # Errors
    /// When a limit is below that.
    pub fn admits_copy(
        &self,
        session: SessionId,
        peer: Source,
        bounds: MemoryBounds,
    ) -> Result<(), MemoryRefused> {
        let accounts = self.0.lock();
        let requested = accounts.sessions.get(&session).map_or(0, |account| account.bytes);
        accounts.check(peer, requested, bounds)
    }

    /// A session has less.
    pub fn release(&self, session: SessionId, bytes: u64) {
        self.0.lock().release(session, bytes);
    }

    /// What a session has is on the host for now: its peer has it as before, but the device does not.
    pub fn suspend(&self, session: SessionId) {
        let mut accounts = self.0.lock();
        let Some(account) = accounts.sessions.get_mut(&session) else { return };
        let shared = core::mem::take(&mut account.shared);
        account.suspended += shared;
        accounts.shared -= shared;
    }

    /// What a session has on the host is to be on the device again, of which there are `capacity` bytes; 0 does not ask.
    ///
    /// # Errors
    /// When the device has not as much now.
    pub fn reclaim(&self, session: SessionId, capacity: u64) -> Result<(), MemoryRefused> {
        let mut accounts = self.0.lock();
        let used = accounts.shared;
        let Some(account) = accounts.sessions.get_mut(&session) else { return Ok(()) };
        let requested = account.suspended;
        if capacity != 0 && used.checked_add(requested).is_none_or(|all| all > capacity) {
            return Err(MemoryRefused::Device { requested, used, capacity });
        }
        account.suspended = 0;
        account.shared += requested;
        accounts.shared += requested;
        Ok(())
    }

    /// A session has ended, and has nothing any more.
    pub fn session_ends(&self, session: SessionId) {
        let mut accounts = self.0.lock();
        accounts.release(session, u64::MAX);
        accounts.sessions.remove(&session);
    }

    /// How many bytes sessions of a peer may have, and how many of them are left; as many as can be where there is no
    /// bound.
    pub fn info(&self, peer: Source, bounds: MemoryBounds) -> (u64, u64) {
        let accounts = self.0.lock();
        let limit = bounds.limit.unwrap_or(u64::MAX);
        let left = limit.saturating_sub(accounts.used_by(LimitScope::Peer(peer)));
        let of_group = bounds.group_limit().unwrap_or(u64::MAX);
        let used_by_group = bounds.group.map_or(0, |(group, _)| accounts.used_by(LimitScope::Group(group)));
        let left_of_group = of_group.saturating_sub(used_by_group);
        let capacity = bounds.capacity;
        let left_of_device = if capacity == 0 { u64::MAX } else { capacity.saturating_sub(accounts.shared) };
        (limit.min(of_group), left.min(left_of_group).min(left_of_device))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DRIVER: MemoryBounds = MemoryBounds { limit: Some(10), ..MemoryBounds::NONE };
    const SOFTWARE: MemoryBounds = MemoryBounds { capacity: 100, ..MemoryBounds::NONE };

    fn session(number: u8) -> SessionId {
        SessionId([number; 16])
    }

    #[test]
    fn sessions_of_a_peer_share_its_limit_to_the_last_byte() {
        let memory = DeviceMemory::default();
        let (ada, bob) = (Source::Client("ada".parse().unwrap()), Source::User(7));
        memory.reserve(session(1), ada, 4, DRIVER).unwrap();
        memory.reserve(session(2), ada, 6, DRIVER).unwrap();
        assert_eq!(memory.info(ada, DRIVER), (10, 0));
        let refused = memory.reserve(session(2), ada, 1, DRIVER).unwrap_err();
        assert!(
            refused.to_string().contains("client ada has 10 of the 10 that `device-memory`"),
            "{refused}"
        );
        memory.reserve(session(3), bob, 10, DRIVER).unwrap();
        // A fork has as much again as its parent.
        let bounds = |limit| MemoryBounds { limit: Some(limit), ..MemoryBounds::NONE };
        let room = |limit| memory.admits_copy(session(1), ada, bounds(limit));
        assert_eq!((room(14), memory.admits_copy(session(1), ada, MemoryBounds::NONE)), (Ok(()), Ok(())));
        let refused = room(13).unwrap_err();
        assert_eq!(refused, MemoryRefused::Peer { peer: ada, requested: 4, used: 10, limit: 13 });
        memory.release(session(1), 3);
        assert_eq!(memory.info(ada, DRIVER), (10, 3));
        memory.session_ends(session(2));
        assert_eq!(memory.info(ada, DRIVER), (10, 9));
        memory.reserve(session(1), ada, 9, DRIVER).unwrap();
        assert!(memory.reserve(session(1), ada, u64::MAX, SOFTWARE).is_err());
        // A limit that has been lowered takes nothing away, and lets no session have more.
        let lower = bounds(5);
        assert_eq!(memory.info(ada, lower), (5, 0));
        assert!(memory.reserve(session(1), ada, 1, lower).is_err());
    }

    #[test]
    fn members_of_a_group_share_its_limit_to_the_last_byte() {
        let memory = DeviceMemory::default();
        let (ada, bob, eve) = (Source::Client("ada".parse().unwrap()), Source::User(7), Source::User(8));
        let [staff, guests]: [GroupName; 2] = ["staff", "guests"].map(|name| name.parse().unwrap());
        let of_group = MemoryBounds { group: Some((staff, Some(10))), ..MemoryBounds::NONE };
        let both = MemoryBounds { limit: Some(4), ..of_group };
        assert!(!of_group.is_unlimited());
        assert!(MemoryBounds { group: Some((staff, None)), ..MemoryBounds::NONE }.is_unlimited());
        memory.reserve(session(1), ada, 4, both).unwrap();
        assert_eq!((memory.info(ada, both), memory.info(bob, of_group)), ((4, 0), (10, 6)));
        assert!(matches!(memory.reserve(session(1), ada, 1, both), Err(MemoryRefused::Peer { .. })));
        memory.reserve(session(2), bob, 6, of_group).unwrap();
        for (number, peer) in [(2, bob), (3, eve)] {
            let refused = memory.reserve(session(number), peer, 1, of_group).unwrap_err().to_string();
            assert!(
                refused.contains("group staff has 10 of the 10 that `device-memory` of [groups.staff]"),
                "{refused}"
            );
        }
        assert_eq!(memory.info(eve, of_group), (10, 0));
        memory.reserve(session(3), eve, 1, MemoryBounds::NONE).unwrap();
        let refused = memory.admits_copy(session(2), bob, of_group).unwrap_err();
        assert_eq!(refused, MemoryRefused::Group { group: staff, requested: 6, used: 10, limit: 10 });
        // A session counts for the group that its peer is in now, with all that it has.
        let of_guests = MemoryBounds { group: Some((guests, Some(7))), ..MemoryBounds::NONE };
        memory.reserve(session(2), bob, 1, of_guests).unwrap();
        assert_eq!((memory.info(ada, of_group).1, memory.info(bob, of_guests).1), (6, 0));
        memory.take(session(2), bob, Some(staff), 0);
        memory.release(session(1), 1);
        assert_eq!((memory.info(bob, of_group).1, memory.info(bob, of_guests).1), (0, 7));
        (1..=3).for_each(|number| memory.session_ends(session(number)));
        assert!(memory.0.lock().used.is_empty());
    }

    #[test]
    fn a_device_in_software_is_one_for_all() {
        let memory = DeviceMemory::default();
        let (ada, bob) = (Source::User(1), Source::User(2));
        memory.reserve(session(1), ada, 60, SOFTWARE).unwrap();
        let refused = memory.reserve(session(2), bob, 41, SOFTWARE).unwrap_err();
        assert_eq!(refused, MemoryRefused::Device { requested: 41, used: 60, capacity: 100 });
        assert_eq!(memory.info(bob, SOFTWARE), (u64::MAX, 40));
        memory.reserve(session(2), bob, 40, SOFTWARE).unwrap();
        memory.session_ends(session(1));
        assert_eq!(memory.info(bob, SOFTWARE).1, 60);
    }

    #[test]
    fn what_is_on_the_host_is_the_peers_and_not_the_devices() {
        let memory = DeviceMemory::default();
        let (ada, bob) = (Source::User(1), Source::User(2));
        let bounds = MemoryBounds { limit: Some(70), ..SOFTWARE };
        memory.reserve(session(1), ada, 60, bounds).unwrap();
        memory.suspend(session(1));
        memory.suspend(session(1));
        assert_eq!((memory.info(ada, bounds), memory.info(bob, SOFTWARE).1), ((70, 10), 100));
        assert!(memory.reserve(session(2), ada, 11, bounds).is_err(), "the limit still counts it");
        memory.reserve(session(3), bob, 50, SOFTWARE).unwrap();
        let refused = memory.reclaim(session(1), 100).unwrap_err();
        assert_eq!(refused, MemoryRefused::Device { requested: 60, used: 50, capacity: 100 });
        memory.release(session(3), 10);
        for _ in 0..2 {
            memory.reclaim(session(1), 100).unwrap();
            assert_eq!(memory.info(bob, SOFTWARE).1, 0);
        }
        // One that ends on the host has nothing any more.
        memory.suspend(session(1));
        memory.release(session(1), 20);
        memory.session_ends(session(1));
        memory.reclaim(session(1), 100).unwrap();
        assert_eq!((memory.info(ada, bounds), memory.info(bob, SOFTWARE).1), ((70, 60 - 10 + 10), 60));
    }

    proptest! {
        #[test]
        fn sums_are_those_of_the_sessions_whatever_workers_say(
            steps in proptest::collection::vec((0_u8..6, 0_u64..50, 0_u8..7), 0..200),
        ) {
            let memory = DeviceMemory::default();
            let (mut model, mut away) = ([0_u64; 6], [0_u64; 6]);
            for (number, bytes, what) in steps {
                let (peer, index) = (Source::User(u32::from(number) % 2), usize::from(number));
                let of_peer = |model: &[u64; 6]| model.iter().skip(index % 2).step_by(2).sum::<u64>();
                match what {
                    0..3 => {
                        let bounds = MemoryBounds { limit: Some(90), group: None, capacity: 150 };
                        let on_device = model.iter().sum::<u64>() - away.iter().sum::<u64>();
                        let fits = of_peer(&model) + bytes <= 90 && on_device + bytes <= 150;
                        prop_assert_eq!(memory.reserve(session(number), peer, bytes, bounds).is_ok(), fits);
                        model[index] += if fits { bytes } else { 0 };
                    }
                    3 => {
                        memory.release(session(number), bytes);
                        let (bytes, on_device) = (bytes.min(model[index]), model[index] - away[index]);
                        model[index] -= bytes;
                        away[index] -= bytes.saturating_sub(on_device);
                    }
                    4 => {
                        memory.suspend(session(number));
                        away[index] = model[index];
                    }
                    5 => {
                        let on_device = model.iter().sum::<u64>() - away.iter().sum::<u64>();
                        let fits = on_device + away[index] <= 150;
                        prop_assert_eq!(memory.reclaim(session(number), 150).is_ok(), fits || model[index] == 0);
                        away[index] = if fits { 0 } else { away[index] };
                    }
                    _ => {
                        memory.session_ends(session(number));
                        (model[index], away[index]) = (0, 0);
                    }
                }
                let accounts = memory.0.lock();
                prop_assert_eq!(accounts.used_by(LimitScope::Peer(peer)), of_peer(&model));
                prop_assert_eq!(accounts.shared, model.iter().sum::<u64>() - away.iter().sum::<u64>());
            }
        }
    }
}
