//! Shared memory: for a server on this host, however names and namespaces look.

use std::os::fd::OwnedFd;

use causeway_connection::channel::Connection;
use causeway_pipeline::TransportKind;
use causeway_transport::Parts;
use causeway_transport_shm::upgrade::{Way, offer, upgrade};
use causeway_transport_shm::{UpgradeError, staging};
use causeway_wire::handshake::{JoinHello, Locality, UpgradeHello};

use super::facts::Facts;
use super::row::{Cost, Dialling, NotJoined, Transport, Upgrade};

/// A round trip over memory that two processes share.
const AT_BEST: Cost = Cost(1_000);

pub(super) static TRANSPORT: Transport =
    Transport { kind: TransportKind::Shm, at_best: AT_BEST, probe, dial, accept: Some(accept) };

/// Only one of the server's sockets can tell for certain whether it is on this host, so that each is tried.
fn probe(facts: &Facts<'_>) -> Result<Cost, String> {
    match facts.server {
        Some(server) if server.sockets.is_empty() => Err(explain_no_socket(server, &facts.boot_id)),
        _ => Ok(AT_BEST),
    }
}

fn dial(dialling: &mut Dialling<'_>) -> Result<Parts, NotJoined> {
    let owner = JoinHello { session: dialling.session(), token: dialling.token() };
    let (options, limit) = (dialling.options, staging::cgroup_limit());
    let way = Way {
        dialer: options.dialer.as_deref(),
        socket_folder: options.socket_folder.as_deref(),
        key: dialling.target.key.as_ref().filter(|_| dialling.target.protection.needs_key()),
    };
    let nowhere = Locality { boot_id: String::new(), sockets: Vec::new() };
    let server = dialling.facts.server.unwrap_or(&nowhere);
    match upgrade(server, &owner, &way, |bytes| staging::client_may_use(bytes, limit)) {
        Ok(joined) => Ok(joined.parts(dialling.connection())?),
        Err(error) => Err(NotJoined::Unusable(explain_not_shared(server, &dialling.facts.boot_id, &error))),
    }
}

fn accept(upgrade: Upgrade, command: &Connection) -> Result<Parts, NotJoined> {
    let UpgradeHello::Join(_) = upgrade.hello else {
        return Err(NotJoined::Unusable("shm is asked for at a socket of this host".to_owned()));
    };
    let socket = OwnedFd::from(upgrade.connection.socket().try_clone()?);
    drop(upgrade);
    let joined = offer(socket, staging::layout()).map_err(|error| {
        NotJoined::Unusable(format!("no memory is shared with the other end, which is on this host: {error}"))
    })?;
    tracing::debug!(staging = joined.staging(), "memory is shared with the other end");
    Ok(joined.parts(command)?)
}

/// Whether the server's kernel is this one; `boot_id` is this one's.
fn is_same_kernel(server: &Locality, boot_id: &str) -> bool {
    !boot_id.is_empty() && server.boot_id == boot_id
}

/// Why a server that names no socket shares no memory.
fn explain_no_socket(server: &Locality, boot_id: &str) -> String {
    if is_same_kernel(server, boot_id) {
        "the server is on this host but does not listen at a Unix socket: its log says why".to_owned()
    } else if server.boot_id.is_empty() && server.sockets.is_empty() && !boot_id.is_empty() {
        // A server names its host unless what a session carries is limited.
        "the server offers none: it limits this client's bandwidth (`bandwidth`), which only tcp supports"
            .to_owned()
    } else {
        "the server is on another host".to_owned()
    }
}

/// Why a client and a server that names sockets do not share memory.
fn explain_not_shared(server: &Locality, boot_id: &str, error: &UpgradeError) -> String {
    match error {
        UpgradeError::Unreachable { .. } if is_same_kernel(server, boot_id) => format!(
            "the server is on this host (its boot id is the same), but {error}; containers need a folder that both \
             see: name it with `causeway serve --socket-dir` and CAUSEWAY_SOCKET_DIR"
        ),
        UpgradeError::Unreachable { .. } => {
            "the server is on another host: its boot id is another, and none of its sockets can be reached here"
                .to_owned()
        }
        other => format!("the server is on this host, but {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    fn server(sockets: &[&str]) -> Locality {
        Locality { boot_id: "a".into(), sockets: sockets.iter().map(|name| (*name).to_owned()).collect() }
    }

    #[test]
    fn the_boot_id_decides_what_is_advised_and_nothing_else() {
        let locality = server(&["@causeway-1"]);
        let unreachable = UpgradeError::Unreachable {
            name: "@causeway-...".into(),
            cause: io::Error::from_raw_os_error(111),
        };
        assert!(explain_not_shared(&locality, "a", &unreachable).contains("--socket-dir"));
        assert!(explain_not_shared(&locality, "b", &unreachable).contains("another host"));
        let refused = UpgradeError::Refused("no memory".into());
        assert!(
            explain_not_shared(&locality, "b", &refused)
                .contains("on this host, but the server refused it: no memory")
        );
    }

    #[test]
    fn a_server_that_names_no_socket_is_far_or_says_why_in_its_log() {
        let silent = server(&[]);
        assert!(explain_no_socket(&silent, "a").contains("its log says why"));
        assert_eq!(explain_no_socket(&silent, "b"), "the server is on another host");
        let limited = Locality { boot_id: String::new(), ..server(&[]) };
        assert!(explain_no_socket(&limited, "b").contains("bandwidth"));
        assert_eq!(
            explain_no_socket(&Locality { boot_id: String::new(), ..silent }, ""),
            "the server is on another host"
        );
    }
}
