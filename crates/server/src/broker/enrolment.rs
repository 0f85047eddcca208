//! Enrolment of invited clients' keys.

use causeway_connection::channel::{Connection, end_after_goodbye};
use causeway_wire::codec::Encode as _;
use causeway_wire::handshake::{ClientHello, KeyId, NewKey, Response};

use super::clients::EnrolError;
use super::refusal::{Refusal, refuse};
use super::shared::Shared;
use crate::admission::{HandshakeSlot, Origin, Source};

/// Enrols the key of a client that has come with an invitation.
pub fn enrol(
    shared: &Shared,
    peer: Origin,
    hello: &ClientHello,
    invitation: KeyId,
    key: NewKey,
    mut connection: Connection,
    slot: HandshakeSlot,
) {
    if !slot.finish() {
        return;
    }
    let client = format!("{} (process {} on {})", hello.program, hello.pid, hello.host);
    match shared.clients.enrol(invitation, key) {
        Ok(name) => {
            tracing::info!(%peer, "{client} has enrolled the key of client {name} with an invitation");
            shared.attempts.succeeded(Source::of(peer));
            shared.audit.key_enrolled(peer, name, hello);
            // It may be gone already, and finds out by its key that it is enrolled.
            let _ = connection.send_handshake(|out| Response::Enrolled.encode(out));
            end_after_goodbye(connection.socket());
        }
        Err(error) => {
            let text = match &error {
                EnrolError::NotAccepted(why) => {
                    tracing::warn!(%peer, "enrolment by {client} refused: {why}");
                    why.to_string()
                }
                // What is wrong with the file is not for clients.
                EnrolError::Clients(_) => {
                    tracing::error!(%peer, "enrolment by {client} failed: {error}");
                    "it cannot change its list of clients (see its log); the invitation is still valid"
                        .to_owned()
                }
            };
            shared.totals.refused(Refusal::NotProved);
            shared.audit.refused(peer, Some(hello), Refusal::NotProved, &text);
            refuse(&mut connection, &text);
        }
    }
}
