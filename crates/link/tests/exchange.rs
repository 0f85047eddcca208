//! Monitoring sessions over real loopback sockets: one message there, one back.

mod common;

use std::time::Duration;

use causeway_access::Key;
use causeway_connection::exchange::ExchangeError;
use causeway_link::{ConnectOptions, connect_monitor, describe_process};
use causeway_wire::handshake::Protection;
use common::{COMMANDS, listen, pattern, target};

const TIMEOUT: Duration = Duration::from_secs(20);

#[test]
fn questions_of_every_length_are_answered_with_and_without_a_key() {
    for protection in [Protection::Unprotected, Protection::Authenticated, Protection::Encrypted] {
        let key = protection.needs_key().then(Key::generate);
        let (address, _sessions, _) = listen(key.clone());
        let hello = describe_process(COMMANDS, Vec::new());
        let server = target(address, protection, key.as_ref());
        let mut exchange = connect_monitor(&server, &hello, &ConnectOptions::default()).unwrap();
        for length in [0, 1, 1000, 3_000_000] {
            let question = pattern(length, 5);
            let mut response = exchange.request(TIMEOUT, |out| out.extend(&question)).unwrap().unwrap();
            response.reverse();
            assert!(response == question, "{length} bytes came back changed");
        }
        let too_long = exchange.request(TIMEOUT, |out| out.resize(9 << 20, 0));
        assert!(matches!(too_long, Err(ExchangeError::TooLong(_))));
    }
}
