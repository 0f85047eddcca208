//! Order in which transports are tried.

use std::io;

use causeway_transport::Parts;

use super::facts::Facts;
use super::row::{Cost, Dialling, NotJoined, Transport};
use crate::transport_choice::{Reason, TransportChoice};

/// Why no transport joins two ends.
#[derive(Debug)]
pub(crate) enum NotEstablished {
    /// Each was tried, or could not be: why.
    NoneWorks(Vec<Reason>),
    /// This machine has nothing left to give.
    System(io::Error),
}

/// Tries the transports that the user admits, the cheapest first, until one joins the two ends; and says why
/// those do not that were tried before it. A row is probed when no cheaper one is left to try.
pub(crate) fn establish(
    table: &[&Transport],
    dialling: &mut Dialling<'_>,
) -> Result<(Parts, Vec<Reason>), NotEstablished> {
    let choice = dialling.facts.choice;
    let mut unprobed: Vec<_> = table.iter().filter(|row| choice.admits(row.kind)).collect();
    unprobed.sort_by_key(|row| core::cmp::Reverse(row.at_best));
    let (mut usable, mut tried) = (Vec::new(), Vec::new());
    while let Some(next) = next(&mut unprobed, &mut usable, &mut tried, &dialling.facts) {
        match (next.dial)(dialling) {
            Ok(parts) => return Ok((parts, tried)),
            Err(NotJoined::Unusable(text)) => tried.push(Reason { kind: next.kind, text }),
            Err(NotJoined::System(error)) => return Err(NotEstablished::System(error)),
        }
    }
    Err(NotEstablished::NoneWorks(tried))
}

/// The cheapest transport that is left, of which `unprobed` have their best last. Why others are none goes to
/// `tried`.
fn next<'a>(
    unprobed: &mut Vec<&'a &'a Transport>,
    usable: &mut Vec<(Cost, &'a Transport)>,
    tried: &mut Vec<Reason>,
    facts: &Facts<'_>,
) -> Option<&'a Transport> {
    loop {
        let best = usable.iter().map(|(cost, _)| *cost).min();
        let could_be_cheaper = |row: &&&Transport| best.is_none_or(|best| row.at_best < best);
        let Some(row) = unprobed.pop_if(|row| could_be_cheaper(&&**row)) else {
            let at = usable.iter().position(|(cost, _)| Some(*cost) == best)?;
            return Some(usable.swap_remove(at).1);
        };
        match (row.probe)(facts) {
            Ok(cost) => usable.push((cost, row)),
            Err(text) => tried.push(Reason { kind: row.kind, text }),
        }
    }
}

/// Why the transport that was asked for can be had from this server in no case, or from any; checked before a
/// connection is made.
pub(crate) fn cannot_be_had(table: &[&Transport], facts: &Facts<'_>) -> Option<Reason> {
    let TransportChoice::Only(kind) = facts.choice else { return None };
    match table.iter().find(|row| row.kind == kind) {
        Some(row) => (row.probe)(facts).err().map(|text| Reason { kind, text }),
        None => Some(Reason { kind, text: "this program has no such transport".to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handshake::options::ConnectOptions;
    use crate::transports::TRANSPORTS;
    use causeway_access::{Endpoint, Target};
    use causeway_pipeline::TransportKind;
    use causeway_wire::handshake::Protection;

    fn refuse(_: &mut Dialling<'_>) -> Result<Parts, NotJoined> {
        Err(NotJoined::Unusable("it does not answer".to_owned()))
    }

    const fn row(
        name: &'static str,
        at_best: u32,
        probe: fn(&Facts<'_>) -> Result<Cost, String>,
    ) -> Transport {
        Transport {
            kind: TransportKind::Other(name),
            at_best: Cost(at_best),
            probe,
            dial: refuse,
            accept: None,
        }
    }

    static FAST: Transport = row("fast", 1, |_| Err("it is far".to_owned()));
    static MIDDLING: Transport = row("middling", 2, |_| Ok(Cost(50)));
    static SLOW: Transport = row("slow", 30, |_| Ok(Cost(40)));
    static NEVER_ASKED: Transport = row("never asked", 45, |_| unreachable!("a cheaper one is left"));

    fn facts(endpoint: &Endpoint) -> Facts<'_> {
        let target =
            Target { endpoint: endpoint.clone(), ..Target::tcp("h", 1, Protection::Unprotected, None) };
        Facts { endpoint, ..Facts::before(Box::leak(Box::new(target)), &ConnectOptions::default()) }
    }

    #[test]
    fn the_cheapest_is_tried_first_and_a_dearer_one_is_not_looked_into_meanwhile() {
        let endpoint = Endpoint::Tcp { host: "h".into(), port: 1 };
        let facts = facts(&endpoint);
        let table = [&FAST, &MIDDLING, &SLOW, &NEVER_ASKED];
        let mut unprobed: Vec<_> = table.iter().rev().collect();
        let (mut usable, mut tried) = (Vec::new(), Vec::new());
        let first = next(&mut unprobed, &mut usable, &mut tried, &facts).unwrap();
        assert_eq!(first.kind, SLOW.kind, "it is cheaper here than the one that is better at best");
        assert_eq!(tried, [Reason { kind: FAST.kind, text: "it is far".to_owned() }]);
        assert_eq!(unprobed.len(), 1);
        unprobed.clear();
        assert_eq!(next(&mut unprobed, &mut usable, &mut tried, &facts).unwrap().kind, MIDDLING.kind);
        assert!(next(&mut unprobed, &mut usable, &mut tried, &facts).is_none());
    }

    #[test]
    fn what_cannot_be_had_is_said_before_a_connection_is_made() {
        let socket = Endpoint::Unix("/run/x".into());
        for (kind, is_refused) in
            [(TransportKind::Tcp, true), (TransportKind::Verbs, true), (TransportKind::Shm, false)]
        {
            let facts = Facts { choice: TransportChoice::Only(kind), ..facts(&socket) };
            assert_eq!(cannot_be_had(TRANSPORTS, &facts).is_some(), is_refused, "{kind}");
        }
        let unknown = Facts { choice: TransportChoice::Only(TransportKind::Other("toy")), ..facts(&socket) };
        assert!(cannot_be_had(TRANSPORTS, &unknown).is_some());
    }
}
