//! Could a client use verbs, and what does it do to be joined?

use std::net::IpAddr;
use std::time::{Duration, Instant};

use causeway_ibverbs::{Libraries, Transport};
use causeway_wire::codec::Encode as _;
use causeway_wire::handshake::{Response, VerbsEnd};

use super::description::{bring_up, check, describe, first_packet};
use super::joined::{Joined, assemble};
use super::messages::{UPGRADE_TIMEOUT, ended, expect_ready, path_failed};
use super::rdma_cm::connect_by_rdma_cm;
use crate::endpoint::{Counts, Prepared, local_port};
use crate::error::UpgradeError;
use crate::settings::{Method, Settings};
use causeway_connection::channel::Connection;

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
