//! Checkpoint file: the state of a session, behind the address at which its program looks for it.
//!
//! The state is a server's own format. What stands before it is of `causeway checkpoint`, and says at which address of a
//! network the server was when the session was saved: the program connects there again, wherever the session is restored.

use std::io::{self, Read, Write};

use causeway_access::Target;
use causeway_access::target::Endpoint;

/// The first bytes of a file that has an address.
const MAGIC: [u8; 8] = *b"CSWYFIL1";

/// The longest address: a host name of the domain name system, and a port.
const MAX_ADDRESS: usize = 300;

/// Writes what stands before the state. A server at a socket of its host has no address of a network.
pub fn write_address(file: &mut impl Write, server: &Endpoint) -> io::Result<()> {
    let address = match server {
        Endpoint::Tcp { .. } => server.to_string(),
        Endpoint::Unix(_) | Endpoint::Vsock(_) => return Ok(()),
    };
    if address.len() > MAX_ADDRESS {
        return Ok(());
    }
    file.write_all(&MAGIC)?;
    file.write_all(&(address.len() as u16).to_le_bytes())?;
    file.write_all(address.as_bytes())
}

/// Reads what stands before the state: the server's address, if the file has one, and the bytes of the state that were read
/// with it.
pub fn read_address(file: &mut impl Read) -> io::Result<(Option<Endpoint>, Vec<u8>)> {
    let mut start = Vec::new();
    file.by_ref().take(MAGIC.len() as u64).read_to_end(&mut start)?;
    if start != MAGIC {
        return Ok((None, start));
    }
    let damaged = || io::Error::new(io::ErrorKind::InvalidData, "it is damaged, or cut short");
    let mut length = [0; 2];
    file.read_exact(&mut length).map_err(|_| damaged())?;
    let length = usize::from(u16::from_le_bytes(length));
    if length > MAX_ADDRESS {
        return Err(damaged());
    }
    let mut address = vec![0; length];
    file.read_exact(&mut address).map_err(|_| damaged())?;
    let address = String::from_utf8(address).map_err(|_| damaged())?;
    let target: Target = address.parse().map_err(|_| damaged())?;
    Ok((Some(target.endpoint), Vec::new()))
}

/// Whether a program that looks for its session at one address may find it at a server that is named by the other: one
/// server has several names, and one port. Nothing is known of sockets.
pub fn may_be_same(saved: &Endpoint, server: &Endpoint) -> bool {
    match (saved, server) {
        (Endpoint::Tcp { port: saved, .. }, Endpoint::Tcp { port, .. }) => saved == port,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16) -> Endpoint {
        Endpoint::Tcp { host: host.to_owned(), port }
    }

    #[test]
    fn the_address_comes_back_and_the_state_is_unchanged() {
        for server in [tcp("::1", 7690), tcp("gpu-box", 1), Endpoint::Unix("/run/a".into())] {
            let mut file = Vec::new();
            write_address(&mut file, &server).unwrap();
            file.extend(b"CSWYSES3 and more");
            let mut rest = file.as_slice();
            let (address, mut state) = read_address(&mut rest).unwrap();
            state.extend(rest);
            assert_eq!(state, b"CSWYSES3 and more");
            assert_eq!(address, Some(server).filter(|server| matches!(server, Endpoint::Tcp { .. })));
        }
        assert_eq!(read_address(&mut b"abc".as_slice()).unwrap(), (None, b"abc".to_vec()));
    }

    #[test]
    fn a_damaged_address_is_refused() {
        let mut file = Vec::new();
        write_address(&mut file, &tcp("gpu-box", 7690)).unwrap();
        for end in MAGIC.len()..file.len() - 1 {
            assert!(read_address(&mut &file[..end]).is_err(), "{end}");
        }
        let mut long = file.clone();
        long[9] = 0xff;
        assert!(read_address(&mut long.as_slice()).is_err());
        file[12] = 0xff;
        assert!(read_address(&mut file.as_slice()).is_err());
    }

    #[test]
    fn only_another_port_is_another_server_for_sure() {
        assert!(may_be_same(&tcp("127.0.0.1", 7690), &tcp("gpu-box", 7690)));
        assert!(!may_be_same(&tcp("127.0.0.1", 7690), &tcp("127.0.0.1", 7790)));
        assert!(may_be_same(&tcp("127.0.0.1", 7690), &Endpoint::Unix("/run/a".into())));
    }
}
