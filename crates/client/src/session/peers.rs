//! Ways from server to server, by which copies between their devices go without passing here.

use super::{Session, with};
use crate::environment;
use crate::log::{error, info};
use causeway_api::calls;
use causeway_api::handle::{Handle, MOST_SERVERS};
use causeway_api::sys::CUresult;
use causeway_api::types::{PeerTicket, PeerWay};
use causeway_fabric::Via;
use causeway_fabric::target::random_bytes;
use parking_lot::Mutex;
use std::sync::OnceLock;

/// What the user lets carry copies between devices of two servers (`CAUSEWAY_BETWEEN_SERVERS`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Choice {
    /// The best that works.
    Auto,
    /// The links between workers, even where devices reach each other's memory.
    Link,
    /// This process.
    Client,
}

/// What the user has chosen.
pub fn choice() -> Choice {
    static CHOICE: OnceLock<Choice> = OnceLock::new();
    *CHOICE.get_or_init(|| {
        let text = environment::read("CAUSEWAY_BETWEEN_SERVERS").unwrap_or_default();
        parse(&text).unwrap_or_else(|| {
            error!("CAUSEWAY_BETWEEN_SERVERS={text} means nothing: choose auto, link or client; auto it is");
            Choice::Auto
        })
    })
}

fn parse(text: &str) -> Option<Choice> {
    match text.trim() {
        "" | "auto" => Some(Choice::Auto),
        "link" => Some(Choice::Link),
        "client" => Some(Choice::Client),
        _ => None,
    }
}

/// What carries copies from the devices of one server to those of another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// A link between their workers.
    Link(PeerLink),
    /// This process, since there is no other way.
    Client,
}

/// A link by which the worker of one server reads what the client offers it of another one's devices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeerLink {
    /// The number by which the reader knows the other worker: its server's.
    pub peer: u64,
    /// The ticket with which it came there.
    pub ticket: PeerTicket,
    /// What carries the bytes.
    pub via: Via,
}

/// The ways, by destination and source. A link that could not be had is not tried again.
static WAYS: Mutex<[[Option<Way>; MOST_SERVERS]; MOST_SERVERS]> =
    Mutex::new([[None; MOST_SERVERS]; MOST_SERVERS]);

/// The way for copies between devices of two servers, which is found when it is first needed.
///
/// # Errors
/// When one of the servers is lost.
pub fn way(destination: usize, source: usize) -> Result<Way, CUresult> {
    if choice() == Choice::Client {
        return Ok(Way::Client);
    }
    let mut ways = WAYS.lock();
    let known = &mut ways[destination][source];
    match known {
        Some(way) => Ok(*way),
        None => Ok(*known.insert(connect(destination, source)?)),
    }
}

/// What has been found out about ways between servers, a sentence each, for the report.
static FOUND: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Notes what has been found out about a way.
pub fn note(sentence: String) {
    info!("{sentence}");
    FOUND.lock().push(sentence);
}

/// What has been noted so far.
pub fn found() -> Vec<String> {
    FOUND.lock().clone()
}

fn connect(destination: usize, source: usize) -> Result<Way, CUresult> {
    let Session { target, via, locality, .. } = with(source)?;
    let ticket = super::call_in(Handle::null_of(source), &calls::peer_ticket {})?;
    let peer = source as u64;
    let request = calls::peer_connect {
        peer,
        host: &target.host,
        port: target.port.into(),
        encrypted: target.key.is_some(),
        via: &via.to_string(),
        boot_id: &locality.boot_id,
        sockets: &locality.sockets.join("\n"),
        ticket,
    };
    let PeerWay { via, reason } = super::call_in(Handle::null_of(destination), &request)?;
    let (destination, source) = (destination + 1, source + 1);
    match Via::ALL.into_iter().find(|known| known.to_string() == via) {
        Some(via) => {
            note(format!(
                "copies from devices of server {source} to those of server {destination} go via {via}{reason}"
            ));
            Ok(Way::Link(PeerLink { peer, ticket, via }))
        }
        None => {
            let sentence = format!(
                "devices of server {source} cannot be copied from by server {destination}, which has to reach it at \
                 {target}: {reason}. Such copies go by way of this machine, and are as slow as its network"
            );
            error!("{sentence}");
            FOUND.lock().push(sentence);
            Ok(Way::Client)
        }
    }
}

/// A number for something that a server is allowed to read: who knows it may, so nobody can guess it.
pub fn offer_number() -> u64 {
    u64::from_le_bytes(random_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_read() {
        assert_eq!(
            ["", "auto", "link", "client "].map(parse).map(Option::unwrap).map(|choice| choice as u8),
            [0, 0, 1, 2]
        );
        assert_eq!(parse("tcp"), None);
    }
}
