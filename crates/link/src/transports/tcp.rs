//! TCP: the connection on which the session was granted, and bulk lanes beside it. Every pair of hosts has
//! it.

use causeway_access::Endpoint;
use causeway_pipeline::TransportKind;
use causeway_transport::Parts;
use causeway_transport_tcp::{TcpOptions, parts};

use super::facts::Facts;
use super::row::{Cost, Dialling, NotJoined, ONLY_WITHIN_A_HOST, Transport};
use crate::handshake::lanes::LaneDialer;
use crate::transport_choice::TransportChoice;

/// A round trip over a loopback device.
const AT_BEST: Cost = Cost(20_000);

pub(super) static TRANSPORT: Transport =
    Transport { kind: TransportKind::Tcp, at_best: AT_BEST, probe, dial, accept: None };

/// It goes over whatever connection there is, but who asks for TCP means a network.
fn probe(facts: &Facts<'_>) -> Result<Cost, String> {
    match (facts.endpoint, facts.choice) {
        (Endpoint::Unix(_), TransportChoice::Only(_)) => Err(ONLY_WITHIN_A_HOST.to_owned()),
        _ => Ok(AT_BEST),
    }
}

fn dial(dialling: &mut Dialling<'_>) -> Result<Parts, NotJoined> {
    let lanes = LaneDialer {
        target: dialling.target.clone(),
        options: dialling.options.clone(),
        purpose: dialling.purpose,
        lanes: dialling.lanes,
    };
    let options =
        TcpOptions { dialer: Some(Box::new(lanes)), resume: dialling.resume, ..TcpOptions::default() };
    Ok(parts(dialling.take_connection(), options)?)
}
