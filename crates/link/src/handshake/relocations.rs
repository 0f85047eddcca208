//! Relocations of a session: where its further connections are dialled, once its worker has said that it goes elsewhere.
//!
//! Between the worker's word that the session moves and that it has settled, both locations are tried: first the new one,
//! where the session is if it went well, and then the one where it was. The client never takes part in the decision: the
//! worker that it reaches goes on from what the client says it has received, and the other one's work, which the client
//! has not seen, is dropped with its worker.

use std::time::{Duration, Instant};

use causeway_access::{Endpoint, Target};
use causeway_wire::handshake::LaneToken;
use causeway_wire::relocation::Relocation;

use crate::locks::{Mutex, rank};

/// The longest time for which a server has its client look for a session, as of `CAUSEWAY_RESUME_TIMEOUT`.
const MAX_WAIT: Duration = Duration::from_secs(86_400);

/// A location where the session may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Location {
    pub(crate) target: Target,
    /// What the connection is proved by; the target's key where there is none.
    pub(crate) ticket: Option<LaneToken>,
}

/// Where a session is, and where it may be.
#[derive(Debug, Default)]
pub struct Relocations(Mutex<rank::Leaf, State>);

#[derive(Debug, Default)]
struct State {
    /// Where it has moved to; nothing as long as it is where it began.
    confirmed: Option<Location>,
    pending: Option<Pending>,
    /// Where the connection for commands was opened last, among the candidates.
    current: Option<Location>,
}

#[derive(Debug)]
struct Pending {
    /// The new location; nothing where the session comes back at its old one.
    location: Option<Location>,
    until: Instant,
}

impl Relocations {
    /// The session, which began at `first`, goes elsewhere: connections are dialled there from now on.
    ///
    /// # Errors
    /// When the address is none, or connections there would be protected less than the user has asked for.
    pub fn begin(&self, first: &Target, relocation: &Relocation) -> Result<(), String> {
        let location = if relocation.address.is_empty() {
            // Where it came with a ticket, it comes back with a new one: its key is that of another server.
            let confirmed = self.0.lock().confirmed.clone();
            confirmed
                .filter(|location| location.ticket.is_some())
                .map(|location| Location { ticket: Some(relocation.ticket), ..location })
        } else {
            let named: Target = relocation.address.parse().map_err(|error| format!("{error}"))?;
            // A path of another host means nothing here, or something else.
            let Endpoint::Tcp { .. } = named.endpoint else {
                return Err(format!("{named} is no address of a network"));
            };
            if relocation.protection < first.protection {
                return Err(format!(
                    "{named} would protect its connections less than {first}, where it began"
                ));
            }
            let target = Target { protection: relocation.protection, key: None, ..named };
            Some(Location { target, ticket: Some(relocation.ticket) })
        };
        let wait = Duration::from_secs(relocation.seconds.into()).min(MAX_WAIT);
        let until = Instant::now() + wait;
        self.0.lock().pending = Some(Pending { location, until });
        Ok(())
    }

    /// The session is where it is connected now. Whether it has moved there.
    pub fn confirm(&self) -> Option<Target> {
        let mut state = self.0.lock();
        let pending = state.pending.take()?;
        let location = pending.location.filter(|location| state.current.as_ref() == Some(location))?;
        let target = location.target.clone();
        state.confirmed = Some(location);
        Some(target)
    }

    /// For how long it is still looked for.
    pub(crate) fn time_left(&self) -> Option<Duration> {
        let state = self.0.lock();
        state.pending.as_ref().map(|pending| pending.until.saturating_duration_since(Instant::now()))
    }

    /// Where to dial for commands, one after the other; `first` is where the session began.
    pub(crate) fn candidates(&self, first: &Target) -> Vec<Location> {
        let state = self.0.lock();
        let confirmed =
            state.confirmed.clone().unwrap_or_else(|| Location { target: first.clone(), ticket: None });
        state.pending.iter().filter_map(|pending| pending.location.clone()).chain([confirmed]).collect()
    }

    /// Where to dial lanes.
    pub(crate) fn current(&self, first: &Target) -> Location {
        let state = self.0.lock();
        let known = state.current.clone().or_else(|| state.confirmed.clone());
        known.unwrap_or_else(|| Location { target: first.clone(), ticket: None })
    }

    /// The connection for commands has been opened there.
    pub(crate) fn opened(&self, location: Location) {
        self.0.lock().current = Some(location);
    }
}

#[cfg(test)]
mod tests {
    use core::str::FromStr as _;

    use super::*;
    use causeway_wire::handshake::Protection;

    fn relocation(address: &str) -> Relocation {
        let ticket = LaneToken([7; 32]);
        Relocation { address: address.into(), protection: Protection::Encrypted, ticket, seconds: 60 }
    }

    fn names(locations: &[Location]) -> Vec<String> {
        locations.iter().map(|location| location.target.endpoint.to_string()).collect()
    }

    #[test]
    fn a_session_is_looked_for_at_both_places_until_it_has_settled() {
        let first: Target = "10.0.0.1:7000".parse().unwrap();
        let relocations = Relocations::default();
        assert_eq!(names(&relocations.candidates(&first)), ["10.0.0.1:7000"]);
        relocations.begin(&first, &relocation("10.0.0.2:7000")).unwrap();
        let [new, old] = &relocations.candidates(&first)[..] else { panic!("two locations") };
        assert_eq!(names(&[new.clone(), old.clone()]), ["10.0.0.2:7000", "10.0.0.1:7000"]);
        assert!(new.ticket.is_some() && old.ticket.is_none() && relocations.time_left().is_some());
        // It stays: the new location is forgotten.
        relocations.opened(old.clone());
        assert_eq!(relocations.confirm(), None);
        assert_eq!(names(&relocations.candidates(&first)), ["10.0.0.1:7000"]);
        // It goes: the old one is.
        relocations.begin(&first, &relocation("10.0.0.2:7000")).unwrap();
        relocations.opened(new.clone());
        assert_eq!(relocations.confirm(), Some(new.target.clone()));
        assert_eq!(relocations.candidates(&first), core::slice::from_ref(new));
        assert_eq!(relocations.current(&first), *new);
        // It comes back where it is: there it is known by a new ticket alone.
        let again = Relocation { ticket: LaneToken([8; 32]), ..relocation("") };
        relocations.begin(&first, &again).unwrap();
        let [again, old] = &relocations.candidates(&first)[..] else { panic!("two tickets") };
        assert_eq!((again.ticket, old.ticket), (Some(LaneToken([8; 32])), Some(LaneToken([7; 32]))));
        assert_eq!((&again.target, &old.target), (&new.target, &new.target));
        relocations.opened(again.clone());
        relocations.confirm();
        assert_eq!(relocations.candidates(&first), core::slice::from_ref(again));
        // Where it began it is known by its key.
        let relocations = Relocations::default();
        relocations.begin(&first, &relocation("")).unwrap();
        assert_eq!(relocations.candidates(&first), [Location { target: first.clone(), ticket: None }]);
    }

    #[test]
    fn what_is_no_address_of_a_network_is_refused() {
        let first: Target = "10.0.0.1:7000".parse().unwrap();
        let relocations = Relocations::default();
        assert!(relocations.begin(&first, &relocation("unix:/tmp/socket")).is_err());
        assert!(relocations.begin(&first, &relocation("no address at all")).is_err());
        assert!(relocations.time_left().is_none());
    }

    #[test]
    fn no_server_lowers_protection_or_has_its_client_wait_for_ever() {
        let first = |protection| Target { protection, ..Target::from_str("10.0.0.1:7000").unwrap() };
        let relocations = Relocations::default();
        let there = |protection| Relocation { protection, seconds: u32::MAX, ..relocation("10.0.0.2:7000") };
        let all = [Protection::Unprotected, Protection::Authenticated, Protection::Encrypted];
        for (before, after) in all.into_iter().flat_map(|one| all.map(|other| (one, other))) {
            let begun = relocations.begin(&first(before), &there(after));
            assert_eq!(begun.is_ok(), after >= before, "{before:?} {after:?}");
        }
        assert!(relocations.time_left().unwrap() <= MAX_WAIT);
    }
}
