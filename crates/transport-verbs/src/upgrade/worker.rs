//! Worker side of the upgrade, and its error report to the client.

use std::sync::Arc;
use std::time::Instant;

use causeway_ibverbs::{Libraries, Listener, Transport};
use causeway_wire::codec::Encode as _;
use causeway_wire::handshake::{Response, VerbsEnd, VerbsHello};

use super::description::{bring_up, check, describe, first_packet};
use super::joined::{Joined, assemble};
use super::messages::{UPGRADE_TIMEOUT, ended, expect_ready, path_failed, receive};
use super::rdma_cm::{accept_by_rdma_cm, with_other_ports};
use crate::endpoint::{Counts, Prepared, local_port, port_of};
use crate::error::UpgradeError;
use crate::settings::Settings;
use crate::state::State;
use causeway_access::target::random_bytes;
use causeway_connection::channel::Connection;

/// Lets a client join over verbs on the connection that it has opened for that: the worker's part. What fails
/// is told to the client, which then stays on TCP.
pub fn offer(setup: Connection, hello: &VerbsHello) -> Result<Joined, UpgradeError> {
    offer_with(setup, hello, || Ok(Settings::from_environment()?))
}

/// As [`offer`], with settings of one's own.
pub fn offer_with(
    mut setup: Connection,
    hello: &VerbsHello,
    settings: impl FnOnce() -> Result<Settings, UpgradeError>,
) -> Result<Joined, UpgradeError> {
    let offered = settings().and_then(|settings| offer_on(&mut setup, hello, &settings));
    match offered {
        Ok(state) => Ok(Joined { state, setup }),
        Err(error) => {
            let refusal = Response::Refused { text: error.to_string().into() };
            // The client may have given up already.
            let _ = setup.send_handshake(|out| refusal.encode(out));
            causeway_connection::channel::end_after_goodbye(setup.socket());
            Err(error)
        }
    }
}

fn offer_on(
    setup: &mut Connection,
    hello: &VerbsHello,
    settings: &Settings,
) -> Result<Arc<State>, UpgradeError> {
    let deadline = Instant::now() + UPGRADE_TIMEOUT;
    let libraries = Libraries::load()?;
    let local = setup.socket().local_addr().map_err(ended)?.ip().to_canonical();
    let listen = || with_other_ports(|| Ok(Listener::bind(libraries, local)?));
    let mut listener = hello.by_rdma_cm.then(listen).transpose()?;
    let port = match &listener {
        Some(listener) => port_of(listener.device().clone(), settings)?,
        None => local_port(libraries, settings, Some(local))?,
    };
    if listener.is_none() && port.device.transport() == Transport::Iwarp {
        return Err(UpgradeError::NoPort(format!(
            "{} is iWARP, which the client did not ask for",
            port.device.name()
        )));
    }
    let limits = port.device.limits()?;
    let counts = Counts::agree(settings, &limits, hello.queue_pairs, hello.depth);
    let mut prepared = Prepared::new(port, settings, counts)?;
    let packet = first_packet();
    let manager_port = listener.as_ref().map_or(0, Listener::port);
    if listener.is_none() {
        prepared.make_queue_pairs()?;
    }
    let mut own = describe(&prepared, packet, manager_port);
    if listener.is_some() {
        // Nobody but the client knows this number.
        own.gid = random_bytes();
    }
    let response = Response::Verbs(own.clone());
    setup.send_handshake(|out| response.encode(out)).map_err(ended)?;
    // The peer's end comes only behind its connections, so what it says of reads is not known here yet.
    if let Some(listener) = &mut listener {
        accept_by_rdma_cm(listener, &mut prepared, &own, deadline)?;
    }
    let client: VerbsEnd = receive(setup, deadline)?;
    check(&client)?;
    if client.queue_pairs != counts.queue_pairs {
        return Err(UpgradeError::Protocol("it has another number of queue pairs"));
    }
    if manager_port == 0 {
        bring_up(&prepared, packet, &client)?;
    }
    let state = assemble(prepared, &client)?;
    setup.send_handshake(|out| Response::VerbsReady.encode(out)).map_err(ended)?;
    state.wait_for_hellos(deadline).and_then(|()| state.send_hellos()).map_err(path_failed)?;
    expect_ready(setup, deadline)?;
    Ok(state)
}
