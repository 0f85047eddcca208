//! Refusal: the message to a client that is not admitted.

use causeway_connection::channel::{Connection, end_after_goodbye};
use causeway_wire::codec::Encode as _;
use causeway_wire::handshake::Response;

/// Tells a caller why it is turned away, and ends the connection.
pub fn refuse(connection: &mut Connection, text: &str) {
    let refusal = Response::Refused { text: text.into() };
    // The caller may be gone already; it is turned away either way.
    let _ = connection.send_handshake(|out| refusal.encode(out));
    end_after_goodbye(connection.socket());
}
