//! NCCL's settings of a program: which processes it takes for those of one machine, and its network plugin.
//!
//! NCCL takes processes with one host name and one boot of the kernel for neighbours that open each other's memory. Over
//! Causeway that is so of processes with the same servers, and of no others, whose memory the servers keep apart.

use std::ffi::OsString;
use std::net::{SocketAddr, ToSocketAddrs as _, UdpSocket};
use std::path::PathBuf;
use std::process::Command;

use causeway_access::{Endpoint, Target, VsockAddress};
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

/// Which network NCCL is to use, by the name that its plugin gives it.
const NETWORK: &str = "NCCL_NET";

/// What our names of machines begin with.
const HOST_ID_PREFIX: &str = "causeway ";

/// Where the kernel lists RDMA devices, which NCCL uses by itself.
const RDMA_DEVICES: &str = "/sys/class/infiniband";

/// Sets for a program on these servers what the user has not set. `via` is what carries its sessions, where that is known.
pub fn hand_over(command: &mut Command, servers: &[Target], via: Option<TransportChoice>) {
    // What a `causeway run` around this one has set is of its servers.
    let is_nested = std::env::var(HOST_ID).is_ok_and(|id| id.starts_with(HOST_ID_PREFIX));
    let files = configuration();
    let is_users = |name: &str| {
        std::env::var_os(name).is_some() && !is_nested || files.iter().any(|file| names(file, name))
    };
    let servers: Vec<_> = servers.iter().map(Server::resolve).collect();
    let shares = servers.iter().all(|server| server.shares_memory(via));
    // The plugin stands in front of all other networks: not of one that is asked for, nor of RDMA where that can work.
    let has_rdma = std::fs::read_dir(RDMA_DEVICES).is_ok_and(|mut devices| devices.next().is_some());
    let plugin = plugin().filter(|_| !(is_users(NETWORK) || shares && has_rdma));
    let one = |is_set: bool| is_set.then(|| OsString::from("1"));
    for (name, value) in [
        (HOST_ID, Some(host_id(&servers).into())),
        (NET_PLUGIN, plugin.map(Into::into)),
        // GPUs of two servers may be joined by NVLink, and their processes keep them apart: no fault, as NCCL would have it.
        (IGNORE_DISABLED_P2P, one(servers.len() > 1)),
        // Kernels of such a server cannot poll what this machine writes: without this NCCL waits for ever, with it the plugin
        // says so.
        (SHM_DISABLE, one(!shares)),
    ] {
        match value {
            _ if is_users(name) => {}
            Some(value) => drop(command.env(name, value)),
            None => drop(command.env_remove(name)),
        }
    }
}

/// NCCL's files of settings, which give way to the environment.
fn configuration() -> Vec<String> {
    let own = std::env::var_os("HOME").map(|folder| PathBuf::from(folder).join(".nccl.conf"));
    let named = std::env::var_os("NCCL_CONF_FILE").map(PathBuf::from);
    let paths = [Some("/etc/nccl.conf".into()), named.or(own)];
    paths.into_iter().flatten().filter_map(|path| std::fs::read_to_string(path).ok()).collect()
}

/// Whether a file of settings has a value for a name.
fn names(file: &str, name: &str) -> bool {
    file.lines().any(|line| line.trim_start().strip_prefix(name).is_some_and(|rest| rest.starts_with('=')))
}

/// A server, and the addresses that its name has.
struct Server<'a> {
    endpoint: &'a Endpoint,
    addresses: Vec<SocketAddr>,
}

impl<'a> Server<'a> {
    /// Looks its name up once. One without an address is no error here: the program says so when it connects.
    fn resolve(server: &'a Target) -> Self {
        let addresses = match &server.endpoint {
            Endpoint::Tcp { host, port } => (host.as_str(), *port).to_socket_addrs().ok(),
            Endpoint::Unix(_) | Endpoint::Vsock(_) => None,
        };
        Self { endpoint: &server.endpoint, addresses: addresses.into_iter().flatten().collect() }
    }

    /// Its address as a number, if it has one.
    fn address(&self) -> String {
        let first = self.addresses.iter().min();
        first.map_or_else(|| self.endpoint.to_string(), ToString::to_string)
    }

    /// Whether it may have the program's own pages: it is of this machine.
    fn shares_memory(&self, via: Option<TransportChoice>) -> bool {
        match (via, self.endpoint) {
            (Some(TransportChoice::Only(kind)), _) => kind.is_within_host(),
            (_, Endpoint::Unix(_) | Endpoint::Vsock(VsockAddress { cid: VsockAddress::LOCAL, .. })) => true,
            (_, Endpoint::Vsock(_)) => false,
            // The system lets a socket have the machine's own addresses alone.
            (_, Endpoint::Tcp { .. }) => {
                self.addresses.iter().any(|address| UdpSocket::bind((address.ip(), 0)).is_ok())
            }
        }
    }
}

/// The name of a machine: this one's, with its servers, whatever their order and however they are spelled.
fn host_id(servers: &[Server<'_>]) -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let mut servers: Vec<_> = servers.iter().map(Server::address).collect();
    servers.sort();
    format!("{HOST_ID_PREFIX}{host} {} {}", boot.trim(), servers.join(","))
}

/// The plugin's path, where it is installed.
fn plugin() -> Option<PathBuf> {
    let folders = library::folders();
    let mut paths = folders.iter().flat_map(|folder| PLUGIN.map(|name| folder.join(name)));
    paths.find(|path| path.exists())
}

#[cfg(test)]
mod tests {
    use causeway_wire::handshake::Protection;

    use super::*;

    fn tcp(host: &str, port: u16) -> Target {
        Target::tcp(host, port, Protection::Encrypted, None)
    }

    fn host_id_of(servers: &[&Target]) -> String {
        host_id(&servers.iter().map(|server| Server::resolve(server)).collect::<Vec<_>>())
    }

    #[test]
    fn processes_of_one_server_are_neighbours_and_of_two_are_not() {
        let (one, other) = (&tcp("127.0.0.1", 7690), &tcp("127.0.0.1", 7691));
        assert_eq!(host_id_of(&[one]), host_id_of(&[one]));
        assert_ne!(host_id_of(&[one]), host_id_of(&[other]));
        assert_ne!(host_id_of(&[one]), host_id_of(&[one, other]));
        assert_eq!(host_id_of(&[one, other]), host_id_of(&[other, one]));
        assert_eq!(host_id_of(&[&tcp("localhost", 7690)]).replace("[::1]", "127.0.0.1"), host_id_of(&[one]));
    }

    #[test]
    fn files_of_settings_count() {
        let file = "# NCCL_NET=x\nNCCL_DEBUG=WARN\n NCCL_NET_PLUGIN=none\n";
        assert!(names(file, "NCCL_NET_PLUGIN") && names(file, "NCCL_DEBUG") && !names(file, "NCCL_NET"));
    }

    #[test]
    fn servers_of_other_machines_share_no_memory() {
        let shares = |server: Target, via| Server::resolve(&server).shares_memory(via);
        let auto = Some(TransportChoice::Auto);
        assert!(shares(tcp("127.0.0.1", 1), auto) && shares(Target::unix("@x"), auto));
        // An address for documentation, which no machine has.
        assert!(!shares(tcp("203.0.113.1", 1), auto));
        let by_tcp = Some("tcp".parse().unwrap());
        assert!(!shares(tcp("127.0.0.1", 1), by_tcp) && !shares(Target::unix("@x"), by_tcp));
    }
}
