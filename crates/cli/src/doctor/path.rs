//! Facts of a server's machine, and the path to it.

use std::time::{Duration, Instant};

use causeway_access::Target;
use causeway_api::calls::COMMANDS;
use causeway_api::snapshot::Snapshot;
use causeway_connection::exchange::Exchange;
use causeway_connection::socket::DialError;
use causeway_doctor::Facts;
use causeway_doctor::checks::path::ServerPath;
use causeway_doctor::live::DRIVER_TIMEOUT;
use causeway_link::refusal::WRONG_KEY;
use causeway_link::{
    ConnectError, ConnectOptions, TransportChoice, connect, connect_diagnosis, describe_process,
};
use causeway_measure::statistics::percentile;
use causeway_wire::codec::{Decoder, Encode as _};
use causeway_wire::diagnosis::DiagnosisRequest;

use crate::server::connect_options;

/// How long the server may take to say what its machine is like, where a driver may hang.
const SERVER_TIMEOUT: Duration = DRIVER_TIMEOUT.saturating_add(Duration::from_secs(20));

/// Questions of which the round trip is taken, and how long they may take together.
const ROUNDS: usize = 200;
const TIME: Duration = Duration::from_secs(2);

/// Asks a server, and tries the ways to it. The facts are missing when it does not tell them, which the way then says.
pub fn examine(target: &Target, via: TransportChoice) -> (Option<Facts>, ServerPath) {
    let is_chosen = via != TransportChoice::Auto;
    let mut path = ServerPath { target: target.to_string(), is_chosen, ..ServerPath::default() };
    let hello = describe_process(COMMANDS, Vec::new());
    let mut exchange = match connect_diagnosis(target, &hello, &ConnectOptions::default()) {
        Ok(exchange) => exchange,
        Err(error) => {
            fail(&mut path, &error);
            return (None, path);
        }
    };
    path.round_trip = round_trip(&mut exchange);
    let facts = ask(&mut exchange, DiagnosisRequest::Facts).and_then(|bytes| {
        Facts::from_json(&bytes).ok_or_else(|| "its description of its machine is malformed".to_owned())
    });
    path.path_mtu = exchange.path_mtu();
    drop(exchange);
    match connect(target, hello, &connect_options(via)) {
        Ok(session) => {
            path.used = Some(session.link.kind().to_string());
            path.not_used =
                session.reasons.iter().map(|reason| (reason.kind.to_string(), reason.text.clone())).collect();
            // What cannot be decoded is reported by whoever uses it.
            path.backend = Decoder::new(&session.welcome.snapshot)
                .value::<Snapshot>()
                .ok()
                .map(|snapshot| snapshot.backend.into());
            session.link.close();
        }
        Err(error) => fail(&mut path, &error),
    }
    match facts {
        Ok(facts) => (Some(facts), path),
        Err(why) => {
            path.silence = Some(why);
            (None, path)
        }
    }
}

fn fail(path: &mut ServerPath, error: &ConnectError) {
    path.failure = Some(error.to_string());
    path.advice = advice(error).map(str::to_owned);
}

/// What to do about a failure, where its own words do not say it.
fn advice(error: &ConnectError) -> Option<&'static str> {
    match error {
        ConnectError::Dial(DialError::Refused { .. }) => Some(
            "Start `causeway serve` on that machine; if it is running there, name the port at which it \
             listens, which it prints and logs.",
        ),
        ConnectError::Dial(DialError::NoSocket { .. }) => Some(
            "Start `causeway serve` here; if it runs as another user, let it serve this one with `causeway serve --allow-user`.",
        ),
        ConnectError::Refused { text, .. } if text.to_string().starts_with(WRONG_KEY) => Some(
            "Have `causeway key show` print the server's connect string there, and store it here with `causeway key add`.",
        ),
        _ => None,
    }
}

fn ask(exchange: &mut Exchange, request: DiagnosisRequest<'_>) -> Result<Vec<u8>, String> {
    match exchange.request(SERVER_TIMEOUT, |out| request.encode(out)) {
        Ok(Some(reply)) => Ok(reply),
        Ok(None) => Err("it ended the connection".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Microseconds for a question of a few bytes and its answer: the shortest and the median.
fn round_trip(exchange: &mut Exchange) -> Option<(f64, f64)> {
    let started = Instant::now();
    let mut times = Vec::new();
    while times.len() < ROUNDS && started.elapsed() < TIME {
        let sent = Instant::now();
        ask(exchange, DiagnosisRequest::Echo(&[0; 32])).ok()?;
        times.push(sent.elapsed().as_secs_f64() * 1e6);
    }
    Some((percentile(&times, 0.0)?, percentile(&times, 0.5)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_fits_the_failure() {
        let refused = |text: &str| ConnectError::Refused { target: "a:1".into(), text: text.into() };
        let nothing = ConnectError::from(DialError::Refused { target: "a:1".into() });
        assert!(advice(&nothing).unwrap().contains("Start `causeway serve`"));
        assert!(advice(&refused("the key is not this server's: see there")).unwrap().contains("key add"));
        assert_eq!(advice(&refused("it is full")), None);
        let silent = DialError::TimedOut { target: "a:1".into(), seconds: 5.0 };
        assert_eq!(advice(&silent.into()), None, "its text asks for machine and firewall");
    }
}
