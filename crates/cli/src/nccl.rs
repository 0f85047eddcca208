//! NCCL's settings of a program: which processes it takes for those of one machine, and its network plugin.
//!
//! NCCL takes processes with one host name and one boot of the kernel for neighbours that open each other's memory. Over
//! Causeway that is so of processes with the same servers, and of no others, whose memory the servers keep apart.

use std::net::{ToSocketAddrs as _, UdpSocket};
use std::path::PathBuf;
use std::process::Command;

use causeway_access::{Endpoint, Target};
use causeway_link::TransportChoice;

use crate::library;

/// What NCCL takes for a machine's name.
const HOST_ID: &str = "NCCL_HOSTID";

/// The network plugin, by its name or path.
const NET_PLUGIN: &str = "NCCL_NET_PLUGIN";

/// Whether processes of one machine must not talk through memory of the host.
const SHM_DISABLE: &str = "NCCL_SHM_DISABLE";

/// Whether NCCL goes on where GPUs that are joined by NVLink do not reach each other.
const IGNORE_DISABLED_P2P: &str = "NCCL_IGNORE_DISABLED_P2P";

/// The plugin's names: in packages and archives, and where cargo has built it.
const PLUGIN: [&str; 3] =
    ["nccl/libnccl-net-causeway.so", "libnccl-net-causeway.so", "libcauseway_nccl_net.so"];

/// Sets for a program on these servers what the user has not set. `via` is what carries its sessions, where that is known.
pub fn hand_over(command: &mut Command, servers: &[Target], via: Option<TransportChoice>) {
    let mut set = |name: &str, value: Option<std::ffi::OsString>| {
        if std::env::var_os(name).is_none()
            && let Some(value) = value
        {
            command.env(name, value);
        }
    };
    set(HOST_ID, Some(host_id(servers).into()));
    set(NET_PLUGIN, plugin().map(Into::into));
    // GPUs of two servers may be joined by NVLink, and their processes keep them apart: no fault, as NCCL would have it.
    set(IGNORE_DISABLED_P2P, (servers.len() > 1).then(|| "1".into()));
    // Kernels of such a server cannot poll what this machine writes: without this NCCL waits for ever, with it the plugin says
    // so.
    set(SHM_DISABLE, (!servers.iter().all(|server| shares_memory(server, via))).then(|| "1".into()));
}

/// The name of a machine: this one's, with its servers.
fn host_id(servers: &[Target]) -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let servers: Vec<_> = servers.iter().map(|server| server.endpoint.to_string()).collect();
    format!("{host} {} {}", boot.trim(), servers.join(","))
}

/// The plugin's path, where it is installed.
fn plugin() -> Option<PathBuf> {
    let folders = library::folders();
    let mut paths = folders.iter().flat_map(|folder| PLUGIN.map(|name| folder.join(name)));
    paths.find(|path| path.exists())
}

/// Whether a server may have the program's own pages: it is of this machine.
fn shares_memory(server: &Target, via: Option<TransportChoice>) -> bool {
    match (via, &server.endpoint) {
        (Some(TransportChoice::Only(kind)), _) => kind.is_within_host(),
        (_, Endpoint::Unix(_)) => true,
        (_, Endpoint::Tcp { host, port }) => (host.as_str(), *port)
            .to_socket_addrs()
            // The system lets a socket have the machine's own addresses alone.
            .is_ok_and(|mut all| all.any(|address| UdpSocket::bind((address.ip(), 0)).is_ok())),
    }
}

#[cfg(test)]
mod tests {
    use causeway_wire::handshake::Protection;

    use super::*;

    fn tcp(host: &str, port: u16) -> Target {
        Target::tcp(host, port, Protection::Encrypted, None)
    }

    #[test]
    fn processes_of_one_server_are_neighbours_and_of_two_are_not() {
        let (one, other) = (tcp("127.0.0.1", 7690), tcp("127.0.0.1", 7691));
        assert_eq!(host_id(std::slice::from_ref(&one)), host_id(std::slice::from_ref(&one)));
        assert_ne!(host_id(std::slice::from_ref(&one)), host_id(std::slice::from_ref(&other)));
        assert_ne!(host_id(std::slice::from_ref(&one)), host_id(&[one, other]));
    }

    #[test]
    fn servers_of_other_machines_share_no_memory() {
        let auto = Some(TransportChoice::Auto);
        assert!(shares_memory(&tcp("127.0.0.1", 1), auto) && shares_memory(&Target::unix("@x"), auto));
        // An address for documentation, which no machine has.
        assert!(!shares_memory(&tcp("203.0.113.1", 1), auto));
        let by_tcp = Some("tcp".parse().unwrap());
        assert!(!shares_memory(&tcp("127.0.0.1", 1), by_tcp) && !shares_memory(&Target::unix("@x"), by_tcp));
    }
}
