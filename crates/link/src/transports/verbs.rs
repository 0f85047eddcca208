//! Verbs: for two ends whose RDMA devices reach each other.

use causeway_access::Endpoint;
use causeway_connection::channel::Connection;
use causeway_pipeline::TransportKind;
use causeway_transport::Parts;
use causeway_transport_verbs::upgrade::{chance, offer};
use causeway_wire::frame::MAX_OPENING;
use causeway_wire::handshake::{Opening, Protection, Response, UpgradeHello, VerbsHello};

use super::facts::{Facts, Rdma};
use super::row::{Cost, Dialling, NotJoined, ONLY_WITHIN_A_HOST, Transport, Upgrade};
use crate::handshake::error::misunderstood;
use crate::handshake::hello::open;
use crate::transport_choice::TransportChoice;

/// A round trip over two cards and a switch.
const AT_BEST: Cost = Cost(4_000);

pub(super) static TRANSPORT: Transport =
    Transport { kind: TransportKind::Verbs, at_best: AT_BEST, probe, dial, accept: Some(accept) };

impl Facts<'_> {
    fn rdma(&self) -> &Result<Rdma, String> {
        self.rdma.get_or_init(|| {
            let chance = chance(self.local).map_err(|error| error.to_string())?;
            Ok(Rdma { is_ethernet: chance.is_ethernet, chance: Some(chance) })
        })
    }
}

fn probe(facts: &Facts<'_>) -> Result<Cost, String> {
    match facts.endpoint {
        Endpoint::Unix(_) => return Err(ONLY_WITHIN_A_HOST.to_owned()),
        Endpoint::Vsock(_) => {
            return Err(
                "RDMA devices need a network, and a vsock is not one; connect to the server's network \
                        address"
                    .to_owned(),
            );
        }
        Endpoint::Tcp { .. } => {}
    }
    let rdma = facts.rdma().as_ref().map_err(String::clone)?;
    let is_exposed = facts.protection == Protection::Encrypted && rdma.is_ethernet;
    if is_exposed && facts.choice == TransportChoice::Auto && !facts.in_clear {
        return Err(
            "verbs are not encrypted, unlike TCP, and on Ethernet others may listen; request verbs if \
                    the network is trusted"
                .to_owned(),
        );
    }
    Ok(AT_BEST)
}

/// Queue pairs for the session, or for the way between two workers.
fn dial(dialling: &mut Dialling<'_>) -> Result<Parts, NotJoined> {
    let found = dialling.facts.rdma.take().and_then(Result::ok).and_then(|rdma| rdma.chance);
    let chance = match found {
        Some(chance) => chance,
        None => chance(dialling.facts.local).map_err(|error| NotJoined::Unusable(error.to_string()))?,
    };
    let (by_rdma_cm, queue_pairs, depth) = chance.parameters();
    let (session, token) = (dialling.session(), dialling.token());
    let hello = UpgradeHello::Verbs(VerbsHello { session, token, by_rdma_cm, queue_pairs, depth });
    let Dialling { target, options, purpose, .. } = dialling;
    let opened =
        open(target, purpose.proof(), options, MAX_OPENING, |out| Opening::encode_upgrade(&hello, out));
    let (setup, response) = opened.map_err(|error| NotJoined::Unusable(error.to_string()))?;
    let joined = match response {
        Response::Verbs(worker) => chance.upgrade(setup, worker).map_err(|error| error.to_string()),
        Response::Refused { text } => Err(format!("the server refused it: {text}")),
        other => Err(misunderstood(target, "verbs", &other).to_string()),
    };
    Ok(joined.map_err(NotJoined::Unusable)?.parts(dialling.connection())?)
}

fn accept(upgrade: Upgrade, command: &Connection) -> Result<Parts, NotJoined> {
    let UpgradeHello::Verbs(hello) = upgrade.hello else {
        return Err(NotJoined::Unusable("verbs are asked for by queue pairs".to_owned()));
    };
    let joined = offer(*upgrade.connection, &hello)
        .map_err(|error| NotJoined::Unusable(format!("the other end is not served over verbs: {error}")))?;
    Ok(joined.parts(command)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handshake::options::ConnectOptions;
    use causeway_access::{Key, Target};

    #[test]
    fn what_would_be_encrypted_goes_over_ethernet_only_where_the_user_says_so() {
        let target = Target::tcp("h", 1, Protection::Encrypted, Some(Key::generate()));
        let open = Target { protection: Protection::Unprotected, ..target.clone() };
        let judge = |target: &Target, choice, in_clear, is_ethernet| {
            let mut facts = Facts::before(target, &ConnectOptions::default());
            (facts.choice, facts.in_clear) = (choice, in_clear);
            facts.rdma = Ok(Rdma { is_ethernet, chance: None }).into();
            probe(&facts).is_ok()
        };
        let (auto, only) = (TransportChoice::Auto, TransportChoice::Only(TransportKind::Verbs));
        assert!(!judge(&target, auto, false, true));
        assert!(judge(&target, auto, true, true) && judge(&target, only, false, true));
        assert!(judge(&target, auto, false, false) && judge(&open, auto, false, true));
    }

    #[test]
    fn why_there_are_no_devices_is_the_reason() {
        let target = Target::tcp("h", 1, Protection::Unprotected, None);
        let mut facts = Facts::before(&target, &ConnectOptions::default());
        facts.rdma = Err("there is no card".to_owned()).into();
        assert_eq!(probe(&facts), Err("there is no card".to_owned()));
    }
}
