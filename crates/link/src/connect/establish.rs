//! Link setup of a granted session.

use std::io;

use causeway_access::Target;
use causeway_access::local::boot_id;
use causeway_connection::channel::Connection;
use causeway_wire::handshake::Locality;

use crate::handshake::error::{ConnectError, not_via};
use crate::handshake::options::ConnectOptions;
use crate::link::Link;
use crate::receiver::Receiver;
use crate::transport_choice::{Reason, reasons};
use crate::transports::{self, Dialling, Facts, NotEstablished, Transport};

/// A link over the cheapest transport that works; and why others are not in use.
pub(super) fn establish(
    table: &[&Transport],
    mut dialling: Dialling<'_>,
) -> Result<(Link, Receiver, Vec<Reason>), ConnectError> {
    let (target, choice) = (dialling.target, dialling.facts.choice);
    let no_thread = |cause: io::Error| ConnectError::Failed {
        target: target.to_string(),
        text: format!("no thread could be started: {cause}"),
    };
    match transports::establish(table, &mut dialling) {
        Ok((parts, tried)) => {
            let (link, receiver) = Link::new(parts).map_err(no_thread)?;
            let reasons = reasons(choice, link.kind(), &tried);
            Ok((link, receiver, reasons))
        }
        Err(NotEstablished::System(cause)) => Err(no_thread(cause)),
        Err(NotEstablished::NoneWorks(tried)) => Err(match tried.into_iter().next_back() {
            Some(Reason { kind, text }) => not_via(target, kind, text),
            None => {
                ConnectError::Failed { target: target.to_string(), text: "there is no transport".to_owned() }
            }
        }),
    }
}

/// What is known of both ends once there is a connection.
pub(super) fn facts<'a>(
    target: &'a Target,
    options: &ConnectOptions,
    connection: &Connection,
    server: &'a Locality,
) -> Facts<'a> {
    Facts {
        server: Some(server),
        boot_id: boot_id(),
        local: connection.socket().local_addr().ok().map(|address| address.ip().to_canonical()),
        ..Facts::before(target, options)
    }
}
