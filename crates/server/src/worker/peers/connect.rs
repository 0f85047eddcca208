//! Connecting to a worker of another server.

use super::destination::Reader;
use super::gpudirect::gpudirect;
use crate::worker::pool::Pool;
use crate::worker::rdma::DeviceBlocks;
use crate::worker::session::{Head, Session};
use crate::worker_process::Exchange;
use causeway_access::{Endpoint, Target};
use causeway_api::calls::peer_connect;
use causeway_api::types::PeerTransport;
use causeway_config::read::PROCESS;
use causeway_config::table::SOCKET_DIR;
use causeway_connection::Dial;
use causeway_link::transport_choice::why_not_better;
use causeway_link::{ConnectOptions, DeviceUse, PeerAddress, PeerLink, connect_peer};
use causeway_wire::codec::Encode;
use causeway_wire::handshake::{LaneToken, Locality, SessionId};
use causeway_wire::text::Printable;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// Has the broker make connections, as a worker may not.
struct ByBroker {
    exchange: Arc<Exchange>,
    /// What the other server has proved of its address.
    proof: [u8; 32],
}

impl core::fmt::Debug for ByBroker {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("ByBroker(..)")
    }
}

impl Dial for ByBroker {
    fn dial(&self, endpoint: &Endpoint, timeout: Duration) -> io::Result<OwnedFd> {
        self.exchange.dial(endpoint, timeout, self.proof)
    }
}

/// Connects to the worker of another server, and tells the client how that went. The worker is given to
/// `found` before the client hears of it.
pub fn connect(
    session: &Arc<Session>,
    blocks: &Arc<DeviceBlocks>,
    event_loop: &Arc<Pool>,
    head: Head,
    request: &peer_connect<'_>,
    found: impl FnOnce(Arc<Reader>) + Send + 'static,
) {
    let target = match request.address.parse::<Target>() {
        Ok(target) => Target { key: None, ..target },
        Err(cause) => {
            let way = PeerTransport { via: Printable::default(), reason: cause.to_string().into() };
            return session.reply_with(head, |out| way.encode(out));
        }
    };
    let locality = Locality {
        boot_id: request.boot_id.to_owned(),
        sockets: request.sockets.lines().map(str::to_owned).collect(),
    };
    let address = PeerAddress { target, locality };
    let options = ConnectOptions {
        via: request.via.parse().unwrap_or_default(),
        verbs_in_clear: request.in_clear,
        socket_folder: PROCESS.path(&SOCKET_DIR),
        keepalive: session.exchange().peer_keepalive(),
        dialer: Some(Arc::new(ByBroker {
            exchange: Arc::clone(session.exchange()),
            proof: request.ticket.proof,
        })),
        ..ConnectOptions::default()
    };
    let (connecting, blocks, event_loop) = (Arc::clone(session), Arc::clone(blocks), Arc::clone(event_loop));
    let (other, ticket) = (SessionId(request.ticket.session), LaneToken(request.ticket.secret));
    session.in_background(move || {
        let way = match connect_peer(&address, other, ticket, &options) {
            Ok(PeerLink { link, receiver, reasons }) => {
                let via = link.kind();
                let reason = why_not_better(via, &reasons);
                tracing::info!("copies come from the server at {} via {via}{reason}", address.target);
                let (direct, way) = gpudirect(&connecting, &blocks, &link, DeviceUse::Own);
                let way = if way.is_empty() { way } else { format!("; into the device by {way}") };
                let reason = format!("{reason}{way}");
                found(Reader::start(&connecting, &event_loop, link, receiver, direct));
                PeerTransport { via: via.to_string().into(), reason: reason.into() }
            }
            Err(cause) => {
                tracing::warn!("cannot connect for copies from another server: {cause}");
                PeerTransport { via: Printable::default(), reason: cause.to_string().into() }
            }
        };
        connecting.reply_with(head, |out| way.encode(out));
    });
}
