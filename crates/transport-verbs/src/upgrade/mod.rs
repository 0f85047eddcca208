//! Upgrade of a connection to queue pairs: the client's side, and the worker's side.
//!
//! The client opens one more connection to the server, proves there that it owns the session, and says what
//! it would like; the broker hands the connection to the session's worker. Both then tell each other what
//! their queue pairs need and bring them up, or let rdma_cm do that, which iWARP demands; the client greets
//! the worker on each queue pair, the worker answers there, and with that the client decides to go on over
//! verbs and says so. Until then either may give up by ending the connection, and the session stays on TCP.
//!
//! | module | contents |
//! | --- | --- |
//! | `connect` | Connection of the queue pairs: exchanged endpoint descriptions, messages on TCP, bring-up, test messages, and the link made of them |
//! | `rdma_cm` | Upgrade by rdma_cm |

mod connect;
mod rdma_cm;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_access::target::random_bytes;
use causeway_connection::channel::Connection;
use causeway_ibverbs::{Libraries, Listener, Transport};
use causeway_wire::codec::Encode as _;
use causeway_wire::handshake::{Response, VerbsEnd, VerbsHello};

use crate::endpoint::{Counts, Prepared, local_port, port_of};
use crate::error::UpgradeError;
use crate::settings::{Method, Settings};
use crate::state::State;
use crate::upgrade::connect::{
    UPGRADE_TIMEOUT, assemble, bring_up, check, describe, ended, expect_ready, first_packet, path_failed,
    receive,
};
use crate::upgrade::rdma_cm::{accept_by_rdma_cm, connect_by_rdma_cm, with_other_ports};

pub use crate::upgrade::connect::Joined;

/// How long a client waits for an answer to its hellos. A path that carries nothing is noticed by its card
/// sooner.
const PATH_PROBE_TIMEOUT: Duration = Duration::from_secs(10);

/// What a client can use, found out before a server is asked.
#[derive(Debug)]
pub struct VerbsCapability {
    libraries: Libraries,
    settings: Settings,
    /// Whether rdma_cm is to join the queue pairs.
    by_rdma_cm: bool,
    /// Whether the packets go over Ethernet, where many can read them.
    pub is_ethernet: bool,
    local: Option<IpAddr>,
}

/// Whether this process could use verbs, and how. `local` is the address of its end of the connection to the
/// server, if there is one already.
pub fn chance(local: Option<IpAddr>) -> Result<VerbsCapability, UpgradeError> {
    chance_with(Settings::from_environment()?, local)
}

/// As [`chance`], with settings of one's own.
pub fn chance_with(settings: Settings, local: Option<IpAddr>) -> Result<VerbsCapability, UpgradeError> {
    let libraries = Libraries::load()?;
    let port = local_port(libraries, &settings, local)?;
    let is_iwarp = port.device.transport() == Transport::Iwarp;
    let by_rdma_cm = is_iwarp || settings.method == Method::Manager;
    let is_ethernet = port.port.link_layer != causeway_ibverbs::LinkLayer::InfiniBand;
    Ok(VerbsCapability { libraries, settings, by_rdma_cm, is_ethernet, local })
}

impl VerbsCapability {
    /// What the server is asked for.
    pub fn parameters(&self) -> (bool, u32, u32) {
        (self.by_rdma_cm, self.settings.queue_pairs, self.settings.depth)
    }

    /// Joins the session's worker over `setup`, which has been asked: the client's part.
    pub fn upgrade(self, mut setup: Connection, worker: VerbsEnd) -> Result<Joined, UpgradeError> {
        let deadline = Instant::now() + UPGRADE_TIMEOUT;
        check(&worker)?;
        let prepared = if worker.manager_port > 0 {
            connect_by_rdma_cm(self.libraries, &self.settings, &setup, &worker, deadline)?
        } else {
            let local = local_port(self.libraries, &self.settings, self.local)?;
            let limits = local.device.limits()?;
            let counts = Counts::agree(&self.settings, &limits, worker.queue_pairs, worker.depth);
            let mut prepared = Prepared::new(local, &self.settings, counts)?;
            prepared.make_queue_pairs()?;
            prepared
        };
        if prepared.counts.queue_pairs != worker.queue_pairs {
            return Err(UpgradeError::Protocol("it wants more queue pairs than were asked for"));
        }
        let packet = first_packet();
        let end = describe(&prepared, packet, 0);
        if worker.manager_port == 0 {
            bring_up(&prepared, packet, &worker)?;
        }
        setup.send_handshake(|out| end.encode(out)).map_err(ended)?;
        let state = assemble(prepared, &worker)?;
        expect_ready(&mut setup, deadline)?;
        let path_deadline = deadline.min(Instant::now() + PATH_PROBE_TIMEOUT);
        state.send_hellos().and_then(|()| state.wait_for_hellos(path_deadline)).map_err(path_failed)?;
        setup.send_handshake(|out| Response::VerbsReady.encode(out)).map_err(ended)?;
        Ok(Joined { state, setup })
    }
}

/// Lets a client join over verbs on the connection that it has opened for that: the worker's part. What fails
/// is reported to the client, which then stays on TCP.
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
