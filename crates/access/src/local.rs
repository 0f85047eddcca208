//! Which sockets of this host are servers', and is a server on this host?

/// What the names of all sockets of servers begin with. A server cannot make a client speak to any other
/// socket.
pub const SOCKET_PREFIX: &str = "causeway-";

/// What this machine's kernel calls its current life; empty when it cannot be read.
pub fn boot_id() -> String {
    let read = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    read.map(|text| text.trim().to_owned()).unwrap_or_default()
}
