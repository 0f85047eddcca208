//! Upgrade messages on the TCP connection beside the queue pairs.

use std::io;
use std::time::{Duration, Instant};

use causeway_connection::channel::Connection;
use causeway_transport::LinkError;
use causeway_wire::codec::{Decode, Decoder};
use causeway_wire::frame::MAX_OPENING;
use causeway_wire::handshake::Response;

use crate::error::UpgradeError;

/// How long either end waits for the whole of it. What cannot be is said at once, and the end of a process is
/// noticed, so that this much is waited only for a machine that is busy, with the start of hundreds of
/// sessions for instance, or for packets of rdma_cm that nobody answers.
pub(super) const UPGRADE_TIMEOUT: Duration = Duration::from_secs(15);

pub(super) fn receive<T: for<'a> Decode<'a>>(
    setup: &mut Connection,
    deadline: Instant,
) -> Result<T, UpgradeError> {
    let body = setup.receive_handshake(MAX_OPENING, deadline);
    let body = body.map_err(|error| UpgradeError::Connection(error.to_string()))?;
    let mut input = Decoder::new(&body);
    let value = input.value().and_then(|value| input.finish().map(|()| value));
    value.map_err(|_| UpgradeError::Protocol("a message for setting up verbs makes no sense"))
}

pub(super) fn expect_ready(setup: &mut Connection, deadline: Instant) -> Result<(), UpgradeError> {
    match receive::<Response>(setup, deadline)? {
        Response::VerbsReady => Ok(()),
        Response::Refused { text } => Err(UpgradeError::Refused(text)),
        _ => Err(UpgradeError::Protocol("it says something else than that it is ready")),
    }
}

pub(super) fn ended(error: io::Error) -> UpgradeError {
    UpgradeError::Connection(error.to_string())
}

pub(super) fn path_failed(error: LinkError) -> UpgradeError {
    UpgradeError::Path(match error {
        LinkError::PeerSilent => "nothing was heard on them in time".to_owned(),
        other => other.to_string(),
    })
}
