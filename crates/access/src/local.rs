//! Discovery of servers on this host by their Unix sockets.

/// What the names of all sockets of servers begin with. A server cannot make a client speak to any other
/// socket.
pub const SOCKET_PREFIX: &str = "causeway-";

/// What the names of sockets in folders end with.
pub const SOCKET_SUFFIX: &str = ".sock";

/// Whether the last part of a path, or an abstract name without its `@`, is what a server calls a socket.
pub fn is_socket_name(name: &str) -> bool {
    let number =
        name.strip_prefix(SOCKET_PREFIX).map(|rest| rest.strip_suffix(SOCKET_SUFFIX).unwrap_or(rest));
    number.is_some_and(|number| {
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    })
}

/// What this machine's kernel calls its current life; empty when it cannot be read.
pub fn boot_id() -> String {
    let read = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    read.map(|text| text.trim().to_owned()).unwrap_or_default()
}
