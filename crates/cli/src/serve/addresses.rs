//! Addresses of a server: where it listens, and under which address others reach it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs as _};

use causeway_access::{DEFAULT_PORT, Endpoint, Target, TargetError, VsockAddress};
use causeway_connection::vsock;

use super::error::ServeError;

/// Where a server listens.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ListenAddresses {
    /// Over TCP.
    pub network: Option<SocketAddr>,
    /// Over vsock.
    pub vsock: Option<VsockAddress>,
    /// At a Unix socket: a path, or `@` and an abstract name.
    pub socket: Option<String>,
}

/// Where to listen: at most once over each kind of socket.
pub fn listen_addresses(list: &str) -> Result<ListenAddresses, ServeError> {
    let mut addresses = ListenAddresses::default();
    for text in list.split(',').map(str::trim) {
        let wrong = |cause: String| ServeError::Address { address: text.to_owned(), cause };
        let is_first = match text.split_once(':') {
            Some(("vsock", _)) => {
                let address = VsockAddress::to_listen_at(text).map_err(|cause| wrong(cause.to_string()))?;
                addresses.vsock.replace(address).is_none()
            }
            Some(("unix", _)) => {
                let wrong = |cause: TargetError| wrong(cause.to_string());
                let Endpoint::Unix(name) = text.parse::<Target>().map_err(wrong)?.endpoint else {
                    unreachable!("an address that begins with unix: is that of a Unix socket")
                };
                addresses.socket.replace(name).is_none()
            }
            _ => addresses.network.replace(resolve(text)?).is_none(),
        };
        if !is_first {
            return Err(ServeError::TooMany(list.to_owned()));
        }
    }
    Ok(addresses)
}

/// Address of the metrics. There is no default port.
pub fn metrics_address(text: &str) -> Result<SocketAddr, ServeError> {
    let wrong = |cause: String| ServeError::MetricsAddress { address: text.to_owned(), cause };
    let has_port = text.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    if !has_port || text.parse::<IpAddr>().is_ok() {
        return Err(wrong("it names no port".to_owned()));
    }
    resolve(text).map_err(|error| match error {
        ServeError::Address { cause, .. } => wrong(cause),
        other => other,
    })
}

fn resolve(address: &str) -> Result<SocketAddr, ServeError> {
    let wrong = |cause: String| ServeError::Address { address: address.to_owned(), cause };
    if let Ok(address) = address.parse() {
        return Ok(address);
    }
    if let Some(port) = address.strip_prefix(':').and_then(|port| port.parse().ok()) {
        return Ok((Ipv4Addr::UNSPECIFIED, port).into());
    }
    if let Ok(address) = address.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
        return Ok((address, DEFAULT_PORT).into());
    }
    if !address.is_empty() && address.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(wrong(format!(
            "it is a port without an address: write :{address} for all addresses, or 127.0.0.1:{address}"
        )));
    }
    let (host, port) = match address.rsplit_once(':') {
        Some((host, port)) => (host, port.parse().map_err(|_| wrong(format!("`{port}` is no port")))?),
        None => (address, DEFAULT_PORT),
    };
    let addresses = (host, port).to_socket_addrs().map_err(|cause| wrong(cause.to_string()))?;
    only_address(addresses.collect()).map_err(wrong)
}

/// The one of a name's addresses at which is listened. Those of this machine alone are as good as each other; of
/// others none can be left out for the user.
fn only_address(mut addresses: Vec<SocketAddr>) -> Result<SocketAddr, String> {
    addresses.sort_unstable();
    addresses.dedup();
    match addresses[..] {
        [] => Err("the name has no address".to_owned()),
        [address] => Ok(address),
        // IPv4 sorts first.
        [first, ..] if addresses.iter().all(|address| address.ip().is_loopback()) => Ok(first),
        _ => {
            let all: Vec<_> = addresses.iter().map(ToString::to_string).collect();
            Err(format!("the name has several addresses: write one of {}, or :PORT for all", all.join(", ")))
        }
    }
}

/// What a user at a terminal does with a target that has just been printed; nothing for a Unix socket's.
pub fn hint(target: &Target) -> Option<String> {
    let host = match &target.endpoint {
        Endpoint::Tcp { host, .. } => host,
        Endpoint::Unix(_) => return None,
        Endpoint::Vsock(VsockAddress { cid: VsockAddress::LOCAL, .. }) => "localhost",
        Endpoint::Vsock(VsockAddress { cid: VsockAddress::HOST, .. }) => "a guest",
        Endpoint::Vsock(_) => "the host",
    };
    // A shell would take the question mark of what is not protected for a pattern.
    let on = if target.protection.needs_key() {
        target.endpoint.to_string()
    } else {
        format!("'{}'", target.address())
    };
    if host == "localhost" || host.parse().is_ok_and(|address: IpAddr| address.is_loopback()) {
        return Some(format!(
            "On this machine: `causeway run --on {on} -- PROGRAM`. With --listen 0.0.0.0, other machines can \
             connect, too."
        ));
    }
    let first = if target.key.is_some() { "`causeway key add`, paste that line, then " } else { "" };
    let machine = match target.endpoint {
        Endpoint::Vsock(_) => format!("In {host}"),
        _ => "On the other machine".to_owned(),
    };
    Some(format!("{machine}: {first}`causeway run --on {on} -- PROGRAM`"))
}

/// The address under which other machines reach a server that listens at all addresses of this one.
pub fn reachable(target: &Target) -> Target {
    let mut target = target.clone();
    if let Endpoint::Vsock(address @ VsockAddress { cid: VsockAddress::ANY, .. }) = &mut target.endpoint {
        address.cid = vsock::local_cid().unwrap_or(VsockAddress::HOST);
    }
    if let Endpoint::Tcp { host, .. } = &mut target.endpoint
        && host.parse().is_ok_and(|address: IpAddr| address.is_unspecified())
    {
        *host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    }
    target
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_understood_with_and_without_a_port() {
        let resolved = |text: &str| resolve(text).unwrap().to_string();
        assert_eq!(resolved("127.0.0.1:0"), "127.0.0.1:0");
        assert_eq!(resolved("127.0.0.1"), format!("127.0.0.1:{DEFAULT_PORT}"));
        assert_eq!(resolved(":7730"), "0.0.0.0:7730");
        assert_eq!(resolved("[::1]:80"), "[::1]:80");
        assert_eq!(resolved("::1"), format!("[::1]:{DEFAULT_PORT}"));
        assert!(resolve("localhost:1").unwrap().ip().is_loopback());
        for port in ["7690", "0"] {
            let error = resolve(port).unwrap_err().to_string();
            assert!(error.contains(&format!("write :{port}")), "{error}");
        }
    }

    #[test]
    fn name_with_several_addresses_is_refused_unless_all_are_loopback() {
        let only = |addresses: &[&str]| {
            only_address(addresses.iter().map(|address| address.parse().unwrap()).collect())
        };
        assert_eq!(only(&["[::1]:5", "127.0.0.1:5"]), Ok("127.0.0.1:5".parse().unwrap()));
        assert_eq!(only(&["10.0.0.1:5", "10.0.0.1:5"]), Ok("10.0.0.1:5".parse().unwrap()));
        let error = only(&["10.0.0.1:5", "10.0.0.2:5"]).unwrap_err();
        assert!(error.contains("10.0.0.1:5, 10.0.0.2:5"), "{error}");
        assert!(only(&[]).is_err());
    }

    #[test]
    fn a_terminal_is_told_what_to_do_with_a_connect_string() {
        let signals = |text: &str| hint(&text.parse().unwrap()).unwrap_or_default();
        let key = format!("causeway://{}@gpu-box:7690", "A".repeat(43));
        assert_eq!(
            signals(&key),
            "On the other machine: `causeway key add`, paste that line, then `causeway run --on gpu-box:7690 -- PROGRAM`"
        );
        let open = signals("causeway://gpu-box:7690?insecure-no-key");
        assert_eq!(
            open,
            "On the other machine: `causeway run --on 'causeway://gpu-box:7690?insecure-no-key' -- PROGRAM`"
        );
        let here = signals("127.0.0.1:7690");
        assert!(here.contains("--on 127.0.0.1:7690") && here.contains("--listen 0.0.0.0"), "{here}");
        assert_eq!(signals("unix:@causeway"), "");
        assert!(signals("vsock:2:1").starts_with("In a guest: `causeway run --on vsock:2:1"));
        assert!(signals("vsock:3:1").starts_with("In the host: "));
    }

    #[test]
    fn metrics_have_a_port() {
        assert_eq!(metrics_address("127.0.0.1:9").unwrap().port(), 9);
        assert_eq!(metrics_address(":9469").unwrap().to_string(), "0.0.0.0:9469");
        assert_eq!(metrics_address("[::1]:9").unwrap().to_string(), "[::1]:9");
        for wrong in ["127.0.0.1", "localhost", "::1", ":http", "", "no-such-host.invalid:9"] {
            let text = metrics_address(wrong).unwrap_err().to_string();
            assert!(text.contains("--metrics 127.0.0.1:9469"), "{text}");
        }
    }

    #[test]
    fn a_server_listens_over_tcp_and_at_a_unix_socket() {
        let all = listen_addresses("127.0.0.1:5, unix:/run/a.sock,vsock:7690").unwrap();
        let vsock = VsockAddress { cid: VsockAddress::ANY, port: 7690 };
        let network = "127.0.0.1:5".parse().ok();
        assert_eq!(all, ListenAddresses { network, vsock: Some(vsock), socket: Some("/run/a.sock".into()) });
        let socket = Some("@a".into());
        assert_eq!(listen_addresses("unix:@a").unwrap(), ListenAddresses { socket, ..Default::default() });
        assert!(matches!(listen_addresses("vsock:5,vsock:1:6"), Err(ServeError::TooMany(_))));
        assert!(matches!(listen_addresses("vsock:a"), Err(ServeError::Address { .. })));
        assert!(matches!(listen_addresses("127.0.0.1:5,127.0.0.1:6"), Err(ServeError::TooMany(_))));
        assert!(matches!(listen_addresses("unix:a"), Err(ServeError::Address { .. })));
    }

    #[test]
    fn what_is_no_address_is_explained() {
        let text = resolve("localhost:http").unwrap_err().to_string();
        assert!(text.contains("`http` is no port") && text.contains("HOST:PORT"), "{text}");
        for wrong in ["no-such-host.invalid", ":", ":http", ":70000"] {
            assert!(resolve(wrong).is_err(), "{wrong}");
        }
    }
}
