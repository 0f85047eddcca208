//! A diagnosis: a process of its own says what the server's machine is like, to one client, and ends.
//!
//! It starts NVIDIA's driver, if there is one, which the broker must neither wait for nor end with; and it
//! has what workers have: the server's limits, container and user.

use std::process::ExitCode;
use std::time::Duration;

use causeway_connection::channel::Connection;
use causeway_connection::exchange::Exchange;
use causeway_wire::codec::{Decoder, Encode as _};
use causeway_wire::diagnosis::{DiagnosisRequest, MAX_QUERIES};
use causeway_wire::handshake::Response;

/// How long the client may take between two queries.
const NEXT_QUERY_TIMEOUT: Duration = Duration::from_secs(10);

/// Answers the client until it goes, asks nothing for a while, or has asked too much.
pub fn run(mut connection: Connection) -> ExitCode {
    if connection.send_handshake(|out| Response::DiagnosisReady.encode(out)).is_err() {
        return ExitCode::SUCCESS;
    }
    let mut exchange = Exchange::new(connection);
    let mut facts = None;
    for _ in 0..MAX_QUERIES {
        let bytes = match exchange.receive(Some(NEXT_QUERY_TIMEOUT)) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => break,
            Err(error) => {
                tracing::debug!("a client that requested a diagnosis has disconnected: {error}");
                break;
            }
        };
        let mut input = Decoder::new(&bytes);
        let request = match input.value().and_then(|request| input.finish().map(|()| request)) {
            Ok(request) => request,
            Err(error) => {
                tracing::warn!("malformed request from a client: {error}");
                return ExitCode::FAILURE;
            }
        };
        let sent = match request {
            DiagnosisRequest::Facts => {
                let facts = facts.get_or_insert_with(|| causeway_doctor::examine().to_json());
                exchange.send(|out| out.extend_from_slice(facts))
            }
            DiagnosisRequest::Echo(bytes) => exchange.send(|out| out.extend_from_slice(bytes)),
        };
        if sent.is_err() {
            break;
        }
    }
    ExitCode::SUCCESS
}
